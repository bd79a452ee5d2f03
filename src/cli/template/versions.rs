//! The versions of a booted template's programs against that of the API server that its machines would join.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::verdict::Expected;
use crate::cli::doctor::finding::Findings;
use crate::cli::doctor::skew::{self, VersionFit};
use crate::clock::Clock;
use crate::config::Settings;
use crate::config::settings::JoinMethod;
use crate::kubernetes::{Connector, KubeClient, Unobserved};
use crate::model::words;

/// Longest wait for the API server's version.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program of the guest.
#[derive(Debug)]
struct GuestProgram<'a> {
    name: &'static str,
    /// As it tells it: `v1.34.1`, `v1.34.1+k3s1`.
    version: &'a str,
}

/// The API server's version, such as `v1.34.1`.
///
/// # Errors
/// Why it is not known.
pub(super) async fn ask_server(settings: &Settings) -> Result<String, String> {
    let connector = Connector::File {
        path: settings.kubernetes.kubeconfig.clone(),
        context: settings.kubernetes.context.clone(),
    };
    let asked = async {
        let client = KubeClient::new(connector, Clock::System, Arc::new(Unobserved)).await;
        let version = client.server_version().await;
        version
            .map(|version| version.version)
            .map_err(|error| error.to_string())
    };
    let answer = timeout(PATIENCE, asked).await;
    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
}

/// Programs with a kubelet or for one, by how machines join. Where a command or the machine itself sees to that, which of them it runs is
/// not known.
fn programs(method: Option<&JoinMethod>) -> &'static [&'static str] {
    match method {
        None => &[],
        Some(JoinMethod::Kubeadm) => &["kubelet", "kubeadm"],
        Some(JoinMethod::K3s) => &["k3s"],
        Some(JoinMethod::Rke2) => &["rke2"],
        Some(JoinMethod::Command { .. } | JoinMethod::Itself) => &["kubelet", "k3s", "rke2"],
    }
}

/// Judges the versions that the guest told. A program that is missing is told elsewhere.
pub(super) fn judge<'a>(
    value: &impl Fn(&str) -> &'a str,
    expected: &Expected<'_>,
    findings: &mut Findings,
) {
    let of = &expected.of;
    let there = programs(expected.method).iter().map(|&name| GuestProgram {
        name,
        version: value(name),
    });
    let there: Vec<GuestProgram<'_>> = there
        .filter(|program| !program.version.is_empty())
        .collect();
    if there.is_empty() {
        return;
    }
    let named = words::names(there.iter().map(|program| program.name));
    let server = match expected.server {
        Ok(server) => server,
        Err(why) => {
            findings
                .unseen(format!(
                    "{of}: not compared with the API server, which did not tell its version: {named} ({why})"
                ))
                .mend("`pve-autoscaler doctor` says what to type where the API server is not reached");
            return;
        }
    };
    let Some(minor) = skew::minor(server) else {
        findings.unseen(format!(
            "{of}: not compared with the API server, whose version {server:?} cannot be read: {named}"
        ));
        return;
    };
    // One cause is told once: kubeadm that comes with a kubelet of the same minor is mended with it.
    let mut told = None;
    for program in &there {
        let Some(own) = skew::minor(program.version) else {
            findings.unseen(format!(
                "{of}: the version {:?} of its {} cannot be read, so it was not compared with the API server",
                program.version, program.name
            ));
            continue;
        };
        if told != Some(own) && !judge_one(program, own, (server, minor), expected, findings) {
            told = Some(own);
        }
    }
}

/// Judges one program, and says whether it goes with the API server. `own`: its minor.
fn judge_one(
    program: &GuestProgram<'_>,
    own: u32,
    (server, minor): (&str, u32),
    expected: &Expected<'_>,
    findings: &mut Findings,
) -> bool {
    let GuestProgram { name, version } = program;
    let kubeadm = *name == "kubeadm";
    let fit = if kubeadm {
        skew::compare_kubeadm(minor, own)
    } else {
        skew::compare_kubelet(minor, own)
    };
    let about = format!("{}: its {name} {version}", expected.of);
    // Whether a machine would not become a node, as far as is known.
    let (what, fails) = match fit {
        VersionFit::Fits => {
            findings.fine(format!("{about} goes with the API server {server}"));
            return true;
        }
        VersionFit::TooNew if kubeadm => (
            format!("refuses to join a cluster as old as the API server {server}"),
            true,
        ),
        VersionFit::TooOld if kubeadm => (
            format!(
                "is older than the API server {server}, and kubeadm shall be of the control plane's own minor"
            ),
            false,
        ),
        VersionFit::TooNew => (
            format!("is newer than the API server {server}, and no kubelet may be"),
            true,
        ),
        VersionFit::TooOld => (
            format!(
                "is too old for the API server {server}, with which kubelets from 1.{} on go",
                skew::oldest_kubelet(minor)
            ),
            true,
        ),
    };
    let unsure = matches!(
        expected.method,
        Some(JoinMethod::Command { .. } | JoinMethod::Itself)
    );
    let text = format!("{about} {what}");
    let finding = if fails && !unsure {
        findings.wrong(text)
    } else {
        findings.warning(text)
    };
    let how = mend(name, minor, expected);
    finding.mend(if fit == VersionFit::TooNew {
        format!("{how}; or upgrade the control plane first")
    } else {
        how
    });
    false
}

/// What brings the template's programs to the API server's minor.
fn mend(program: &str, minor: u32, expected: &Expected<'_>) -> String {
    let template = expected.template;
    if expected.built {
        return format!(
            "kubernetes = \"1.{minor}\" in [template.{template}.build], and pve-autoscaler template build {template}"
        );
    }
    match program {
        "kubelet" | "kubeadm" => format!(
            "in the template: install kubelet and kubeadm of https://pkgs.k8s.io/core:/stable:/v1.{minor}/deb/ (docs/template.md has the lines to type)"
        ),
        program => {
            format!("install {program} 1.{minor} in the template; docs/joining.md says which files")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::template::verdict;

    /// Findings about a guest that tells `said`, a line each.
    fn judged(
        said: &str,
        method: &JoinMethod,
        server: Result<&str, &str>,
        built: bool,
    ) -> Vec<String> {
        let expected = Expected {
            of: "T".to_owned(),
            template: "debian",
            name: "trial",
            method: Some(method),
            server,
            built,
            swap: false,
            endpoint: None,
            now: 0,
            disk: 0,
        };
        let said = verdict::read(said);
        let value = |key: &str| said.get(key).copied().unwrap_or_default();
        let mut findings = Findings::default();
        judge(&value, &expected, &mut findings);
        findings.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn kubelet_and_kubeadm_are_compared_with_the_api_server() {
        let with = |kubelet: &str, kubeadm: &str| {
            let said = format!("kubelet={kubelet}\nkubeadm={kubeadm}\n");
            judged(&said, &JoinMethod::Kubeadm, Ok("v1.34.1"), true)
        };
        let mend = "kubernetes = \"1.34\" in [template.debian.build], and pve-autoscaler template build debian";
        assert_eq!(
            with("v1.34.2", "v1.34.3"),
            [
                "ok: T: its kubelet v1.34.2 goes with the API server v1.34.1",
                "ok: T: its kubeadm v1.34.3 goes with the API server v1.34.1",
            ]
        );
        // One cause is one finding.
        assert_eq!(
            with("v1.36.0", "v1.36.0"),
            [format!(
                "WRONG: T: its kubelet v1.36.0 is newer than the API server v1.34.1, and no kubelet may be; {mend}; or upgrade the control plane first"
            )]
        );
        assert_eq!(
            with("v1.30.9", "v1.30.9"),
            [format!(
                "WRONG: T: its kubelet v1.30.9 is too old for the API server v1.34.1, with which kubelets from 1.31 on go; {mend}"
            )]
        );
        assert_eq!(
            with("v1.33.0", "v1.33.0"),
            [
                "ok: T: its kubelet v1.33.0 goes with the API server v1.34.1".to_owned(),
                format!(
                    "warning: T: its kubeadm v1.33.0 is older than the API server v1.34.1, and kubeadm shall be of the control plane's own minor; {mend}"
                ),
            ]
        );
        assert_eq!(
            with("v1.34.0", "v1.36.0")[1],
            format!(
                "WRONG: T: its kubeadm v1.36.0 refuses to join a cluster as old as the API server v1.34.1; {mend}; or upgrade the control plane first"
            )
        );
        assert_eq!(
            with("v1.34.0", "devel")[1],
            "unseen: T: the version \"devel\" of its kubeadm cannot be read, so it was not compared with the API server"
        );
    }

    #[test]
    fn a_template_made_by_hand_is_mended_by_hand() {
        let kubeadm = judged(
            "kubelet=v1.35.0\n",
            &JoinMethod::Kubeadm,
            Ok("v1.34.1"),
            false,
        );
        assert!(
            kubeadm.len() == 1
                && kubeadm[0].contains("https://pkgs.k8s.io/core:/stable:/v1.34/deb/"),
            "{kubeadm:?}"
        );
        let k3s = judged(
            "kubelet=v1.30.0\nk3s=v1.35.0+k3s1\n",
            &JoinMethod::K3s,
            Ok("v1.34.1+k3s1"),
            false,
        );
        assert_eq!(
            k3s,
            [
                "WRONG: T: its k3s v1.35.0+k3s1 is newer than the API server v1.34.1+k3s1, and no kubelet may be; install k3s 1.34 in the template; docs/joining.md says which files; or upgrade the control plane first"
            ]
        );
    }

    /// Where a command joins the machine, a program that lies there may not be what it runs.
    #[test]
    fn what_is_not_known_fails_nothing() {
        let itself = judged(
            "rke2=v1.35.0+rke2r1\n",
            &JoinMethod::Itself,
            Ok("v1.34.1"),
            false,
        );
        assert!(
            itself.len() == 1
                && itself[0].starts_with("warning: T: its rke2 v1.35.0+rke2r1 is newer"),
            "{itself:?}"
        );
        let both = "kubelet=v1.35.0\nkubeadm=v1.35.0\n";
        assert_eq!(
            judged(
                both,
                &JoinMethod::Kubeadm,
                Err("get version: refused"),
                true
            ),
            [
                "unseen: T: not compared with the API server, which did not tell its version: kubelet, kubeadm (get version: refused); `pve-autoscaler doctor` says what to type where the API server is not reached"
            ]
        );
        let odd = judged(both, &JoinMethod::Kubeadm, Ok("2.0"), true);
        assert_eq!(
            odd,
            [
                "unseen: T: not compared with the API server, whose version \"2.0\" cannot be read: kubelet, kubeadm"
            ]
        );
        // What is not installed is told by those who miss it.
        assert!(judged("", &JoinMethod::Kubeadm, Err("down"), true).is_empty());
    }
}
