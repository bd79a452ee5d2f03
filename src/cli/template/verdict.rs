//! What a booted template's guest tells of itself, and what that means for a machine that would join from it.

use std::collections::BTreeMap;

use super::versions;
use crate::cli::doctor::finding::Findings;
use crate::cli::doctor::skew::{self, VersionFit};
use crate::config::settings::JoinMethod;

/// Clocks may differ by this many seconds: tokens and certificates are judged by them.
const CLOCKS: i64 = 30;
/// A root file system that is smaller than this part of its disk, in per cent, did not grow with it.
const GROWN: i64 = 70;

/// What is expected of the guest.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    /// The template's name in the configuration, with the host: how findings begin.
    pub(super) of: String,
    /// The template's name alone.
    pub(super) template: &'a str,
    /// Whether a build of the configuration installs Kubernetes in it.
    pub(super) built: bool,
    /// The VM's name, which becomes the node's.
    pub(super) name: &'a str,
    /// How machines of it join; `None` where no pool uses the template.
    pub(super) method: Option<&'a JoinMethod>,
    /// The API server's version, or why it is not known.
    pub(super) server: Result<&'a str, &'a str>,
    /// Whether the pool's kubelet is told to bear swap.
    pub(super) swap: bool,
    /// The API server's address that the guest tried.
    pub(super) endpoint: Option<&'a str>,
    /// Seconds since 1970 by this host's clock.
    pub(super) now: i64,
    /// Size of the boot disk in bytes.
    pub(super) disk: i64,
}

/// What the guest said, by key.
pub(super) fn read(output: &str) -> BTreeMap<&str, &str> {
    let lines = output.lines().filter_map(|line| line.split_once('='));
    lines.map(|(key, value)| (key, value.trim())).collect()
}

/// Judges what the guest said.
pub(super) fn judge(said: &BTreeMap<&str, &str>, expected: &Expected<'_>, findings: &mut Findings) {
    let value = |key: &str| said.get(key).copied().unwrap_or_default();
    let of = &expected.of;
    findings.fine(format!(
        "{of}: it boots {}, Linux {}",
        or_unknown(value("system")),
        or_unknown(value("kernel"))
    ));
    judge_identity(&value, expected, findings);
    judge_programs(&value, expected, findings);
    versions::judge(&value, expected, findings);
    judge_system(&value, expected, findings);
    judge_network(&value, expected, findings);
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

/// Who it thinks it is: clones must differ.
fn judge_identity<'a>(
    value: &impl Fn(&str) -> &'a str,
    expected: &Expected<'_>,
    findings: &mut Findings,
) {
    let of = &expected.of;
    let called = value("hostname");
    if called == expected.name {
        findings.fine(format!("{of}: it took its VM's name"));
    } else {
        findings
            .wrong(format!(
                "{of}: the guest is called {} and its VM {}: its node would get a name that nobody expects",
                or_unknown(called),
                expected.name
            ))
            .mend("cloud-init must run at the first boot: install cloud-init, give the template a cloud-init drive (qm set VMID --ide2 STORAGE:cloudinit), and run `cloud-init clean` before it becomes a template");
    }
    match value("machine_id") {
        "own" => findings.fine(format!("{of}: its machine-id is its own")),
        "template" => {
            findings
                .wrong(format!("{of}: /etc/machine-id is the template's, so all machines share one: DHCP gives them one address, and logs mix"))
                .mend("in the template: truncate -s 0 /etc/machine-id; rm -f /var/lib/dbus/machine-id");
        }
        _ => {
            findings.warning(format!("{of}: it has no /etc/machine-id"));
        }
    }
    if value("host_keys") == "template" {
        findings
            .warning(format!("{of}: its SSH host keys are the template's: whoever has one machine can pass for all"))
            .mend("in the template: rm -f /etc/ssh/ssh_host_*; cloud-init makes new ones");
    }
    if value("joined") == "yes" {
        findings
            .wrong(format!("{of}: /etc/kubernetes/kubelet.conf is there: the template was a node, and no join would pass"))
            .mend("in the template: kubeadm reset -f, and clean up after it");
    }
    if let "error" | "degraded" = value("cloud_init") {
        findings
            .warning(format!(
                "{of}: cloud-init ended with {}",
                value("cloud_init")
            ))
            .mend("boot the template by hand and read `cloud-init status --long`");
    }
}

/// What its join needs to run.
fn judge_programs<'a>(
    value: &impl Fn(&str) -> &'a str,
    expected: &Expected<'_>,
    findings: &mut Findings,
) {
    let of = &expected.of;
    let single = |program: &str, findings: &mut Findings| match value(program) {
        "" => {
            findings
                .wrong(format!(
                    "{of}: {program} is not installed, and its pool joins with it"
                ))
                .mend(format!(
                    "install {program} in the template; docs/joining.md says which files"
                ));
        }
        version => findings.fine(format!("{of}: {program} {version}")),
    };
    match expected.method {
        None | Some(JoinMethod::Command { .. } | JoinMethod::Itself) => {}
        Some(JoinMethod::K3s) => single("k3s", findings),
        Some(JoinMethod::Rke2) => single("rke2", findings),
        Some(JoinMethod::Kubeadm) => {
            let (kubeadm, kubelet) = (value("kubeadm"), value("kubelet"));
            if kubeadm.is_empty() || kubelet.is_empty() {
                findings
                    .wrong(format!("{of}: kubeadm and kubelet are not both installed, and its pool joins with them"))
                    .mend("install both, of one minor version that the cluster has; docs/template.md says how");
            } else {
                judge_pair(of, kubeadm, kubelet, findings);
            }
            match value("runtime") {
                "" => {
                    findings
                        .wrong(format!("{of}: no container runtime listens: no socket of containerd, CRI-O or cri-dockerd is there"))
                        .mend("systemctl enable --now containerd, in the template");
                }
                socket => findings.fine(format!("{of}: a container runtime listens at {socket}")),
            }
        }
    }
}

/// Whether the guest's kubeadm starts its kubelet.
fn judge_pair(of: &str, kubeadm: &str, kubelet: &str, findings: &mut Findings) {
    let minors = skew::minor(kubeadm).zip(skew::minor(kubelet));
    let fit = minors.map(|(kubeadm, kubelet)| skew::compare_kubelet_with_kubeadm(kubeadm, kubelet));
    let both = format!("{of}: kubeadm is {kubeadm} and kubelet {kubelet}");
    let finding = match fit {
        // A version that cannot be read is told where it is compared with the API server's.
        None | Some(VersionFit::Fits) => {
            findings.fine(format!("{of}: kubeadm {kubeadm}, kubelet {kubelet}"));
            return;
        }
        Some(VersionFit::TooOld) => {
            findings.wrong(format!("{both}: kubeadm refuses a kubelet that is so old"))
        }
        Some(VersionFit::TooNew) => findings.warning(format!(
            "{both}: no kubelet shall be newer than its kubeadm"
        )),
    };
    finding.mend("install both of one minor version");
}

/// What kubeadm's preflight and the kubelet look at.
fn judge_system<'a>(
    value: &impl Fn(&str) -> &'a str,
    expected: &Expected<'_>,
    findings: &mut Findings,
) {
    let of = &expected.of;
    let kubeadm = expected.method == Some(&JoinMethod::Kubeadm);
    if kubeadm && value("forward") == "0" {
        findings
            .wrong(format!(
                "{of}: net.ipv4.ip_forward is 0, which kubeadm refuses"
            ))
            .mend("in the template: echo net.ipv4.ip_forward=1 >/etc/sysctl.d/99-kubernetes.conf");
    }
    if !expected.swap && value("swap").parse::<u32>().is_ok_and(|swaps| swaps > 0) {
        findings
            .wrong(format!("{of}: swap is on, and the kubelet does not start with it"))
            .mend("swapoff -a and take it out of /etc/fstab, in the template; or set kubelet.swap of the pool");
    }
    if let Ok(clock) = value("clock").parse::<i64>() {
        let apart = (clock - expected.now).abs();
        if apart > CLOCKS {
            findings
                .warning(format!("{of}: the guest's clock and this host's are {apart} s apart; certificates may not be valid yet"))
                .mend("install chrony or systemd-timesyncd in the template");
        }
    }
    let size = value("root_bytes").parse::<i64>().unwrap_or(0);
    if size > 0 && expected.disk > 0 && size < expected.disk / 100 * GROWN {
        findings
            .warning(format!(
                "{of}: its root file system has {} GiB of a disk of {} GiB: it did not grow",
                size >> 30,
                expected.disk >> 30
            ))
            .mend("cloud-guest-utils (growpart) in the template, and the root partition last on the disk");
    }
}

fn judge_network<'a>(
    value: &impl Fn(&str) -> &'a str,
    expected: &Expected<'_>,
    findings: &mut Findings,
) {
    let of = &expected.of;
    match value("address") {
        "" => {
            findings
                .wrong(format!("{of}: it has no address"))
                .mend("see the bridge, the VLAN, DHCP there, or ipconfig of the template");
        }
        addresses => findings.fine(format!(
            "{of}: it has the address {}",
            addresses.replace(',', ", ")
        )),
    }
    let Some(endpoint) = expected.endpoint else {
        findings.unseen(format!(
            "{of}: no address of the API server is known, so the guest did not try it"
        ));
        return;
    };
    match value("api") {
        "yes" => findings.fine(format!("{of}: it reaches the API server at {endpoint}")),
        "no" => {
            findings
                .wrong(format!("{of}: it does not reach the API server at {endpoint}, where it would join"))
                .mend("see routes, firewalls and name servers of its network; join.endpoint of the pool names another address");
        }
        _ => {
            findings.unseen(format!(
                "{of}: the guest has neither curl nor bash to try the API server with"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Grade;

    const GOOD: &str = "system=Debian GNU/Linux 13 (trixie)\nkernel=6.12.48\nhostname=trial\nmachine_id=own\nhost_keys=own\n\
        cloud_init=done\njoined=no\nkubeadm=v1.34.2\nkubelet=v1.34.1\nruntime=/run/containerd/containerd.sock\nswap=0\nforward=1\n\
        address=192.0.2.7,2001:db8::7\nclock=1000\nroot_bytes=32212254720\napi=yes\n";

    fn judged(changed: &[(&str, &str)]) -> Vec<(Grade, String)> {
        let mut text = GOOD.to_owned();
        for (from, to) in changed {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let expected = Expected {
            of: "template t".to_owned(),
            template: "t",
            built: false,
            name: "trial",
            method: Some(&JoinMethod::Kubeadm),
            server: Ok("v1.34.0"),
            swap: false,
            endpoint: Some("api.example:6443"),
            now: 1_010,
            disk: 32 << 30,
        };
        let mut findings = Findings::default();
        judge(&read(&text), &expected, &mut findings);
        let bad = findings
            .0
            .into_iter()
            .filter(|found| found.grade != Grade::Fine);
        bad.map(|found| (found.grade, format!("{found}"))).collect()
    }

    #[test]
    fn a_good_guest_has_no_fault() {
        assert_eq!(judged(&[]), []);
    }

    #[test]
    fn kubeadm_takes_kubelets_of_its_minor_and_some_older_ones() {
        for (kubeadm, kubelet, begins) in [
            (
                "v1.34.2",
                "v1.34.1",
                "ok: T: kubeadm v1.34.2, kubelet v1.34.1",
            ),
            ("v1.34.2", "v1.31.0", "ok: "),
            (
                "v1.34.2",
                "v1.30.9",
                "WRONG: T: kubeadm is v1.34.2 and kubelet v1.30.9: kubeadm refuses",
            ),
            (
                "v1.34.2",
                "v1.35.0",
                "warning: T: kubeadm is v1.34.2 and kubelet v1.35.0: no kubelet",
            ),
            ("devel", "v1.34.1", "ok: "),
        ] {
            let mut findings = Findings::default();
            judge_pair("T", kubeadm, kubelet, &mut findings);
            let said: Vec<String> = findings.0.iter().map(ToString::to_string).collect();
            assert!(said.len() == 1 && said[0].starts_with(begins), "{said:?}");
        }
    }

    #[test]
    fn each_fault_is_one_sentence() {
        for (from, to, grade, words) in [
            (
                "hostname=trial",
                "hostname=localhost",
                Grade::Wrong,
                "is called localhost and its VM trial",
            ),
            (
                "machine_id=own",
                "machine_id=template",
                Grade::Wrong,
                "machine-id is the template's",
            ),
            (
                "host_keys=own",
                "host_keys=template",
                Grade::Warning,
                "SSH host keys",
            ),
            ("joined=no", "joined=yes", Grade::Wrong, "was a node"),
            (
                "cloud_init=done",
                "cloud_init=error",
                Grade::Warning,
                "cloud-init ended with error",
            ),
            ("kubeadm=v1.34.2\n", "", Grade::Wrong, "not both installed"),
            (
                "kubeadm=v1.34.2",
                "kubeadm=v1.36.0",
                Grade::Wrong,
                "its kubeadm v1.36.0 refuses to join a cluster as old as the API server v1.34.0",
            ),
            (
                "runtime=/run/containerd/containerd.sock\n",
                "",
                Grade::Wrong,
                "no container runtime listens",
            ),
            ("swap=0", "swap=1", Grade::Wrong, "swap is on"),
            ("forward=1", "forward=0", Grade::Wrong, "ip_forward is 0"),
            (
                "address=192.0.2.7,2001:db8::7",
                "address=",
                Grade::Wrong,
                "no address",
            ),
            ("clock=1000", "clock=900", Grade::Warning, "are 110 s apart"),
            (
                "root_bytes=32212254720",
                "root_bytes=2147483648",
                Grade::Warning,
                "2 GiB of a disk of 32 GiB",
            ),
            (
                "api=yes",
                "api=no",
                Grade::Wrong,
                "does not reach the API server at api.example:6443",
            ),
            (
                "api=yes",
                "api=untried",
                Grade::Unseen,
                "neither curl nor bash",
            ),
        ] {
            let found = judged(&[(from, to)]);
            assert_eq!(found.len(), 1, "{to}: {found:?}");
            assert_eq!(found[0].0, grade, "{to}");
            assert!(found[0].1.contains(words), "{to}: {}", found[0].1);
        }
    }
}
