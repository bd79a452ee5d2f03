//! `staying`: the machines that stay when the package is removed, for the package's own script to name, and who manages them then.
//!
//! The daemon knows them; where it does not run, PVE's configuration files on this host do. Whether another host manages them the
//! daemon knows too, or else the Lease.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::args::StayingOptions;
use super::{CliFailure, control, host_name, output, render, write};
use crate::clock::Clock;
use crate::config;
use crate::controller::control::ControlCommand;
use crate::controller::status::DaemonStatus;
use crate::kubernetes::{Connector, KubeClient, LEASE_NAME, LeaseName, Unobserved, lease};
use crate::model::mark::{self, Mark, Ownership};

/// Longest wait for what the API server says of the Lease: the removal waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Names the machines; prints nothing when there are none. `config`: the daemon's file.
pub(super) fn run(config: &Path, options: &StayingOptions) -> Result<(), CliFailure> {
    let status: Option<DaemonStatus> = control::ask(&options.control, &ControlCommand::Status)
        .ok()
        .and_then(|answer| serde_json::from_value(answer).ok());
    let machines = machines(status.as_ref(), &marked(&options.pve_directory));
    if machines.is_empty() {
        return Ok(());
    }
    let holder = match &status {
        Some(status) => Some(status.holder.clone()).filter(|_| !status.leader),
        None => ask_holder(config),
    };
    let elsewhere = holder
        .as_deref()
        .and_then(|holder| other_host(holder, host_name::own().as_deref()));
    write(&output::sentences(&text(&machines, elsewhere)))
}

/// Who holds the Lease, by the API server of the daemon's file; `None` where nobody does, or that cannot be known soon.
fn ask_holder(config: &Path) -> Option<String> {
    let kubernetes = config::load(config).ok()?.kubernetes;
    let connector = Connector::File {
        path: kubernetes.kubeconfig,
        context: kubernetes.context,
    };
    let lease = LeaseName {
        namespace: kubernetes.namespace,
        name: LEASE_NAME.to_owned(),
    };
    let asked = async {
        let client = KubeClient::new(connector, Clock::System, Arc::new(Unobserved)).await;
        client.lease_holder(&lease).await
    };
    let runtime = super::runtime().ok()?;
    let answer = runtime.block_on(async { timeout(PATIENCE, asked).await });
    // A name that is still being looked up is not waited for.
    runtime.shutdown_background();
    answer.ok()?.ok()?
}

/// The host of the instance that holds the Lease, if that is not `own`.
fn other_host<'a>(holder: &'a str, own: Option<&str>) -> Option<&'a str> {
    let host = lease::host_of(holder);
    Some(host).filter(|host| !host.is_empty() && Some(*host) != own)
}

/// Lines that name the machines, by VMID. Where the daemon answers, machines of other clusters are none of ours.
fn machines(
    status: Option<&DaemonStatus>,
    marked: &BTreeMap<u32, (String, Mark)>,
) -> BTreeMap<u32, String> {
    let cluster = status.and_then(|status| status.cluster_id.as_deref());
    let mut lines: BTreeMap<u32, String> = marked
        .iter()
        .filter(|(_, (_, mark))| cluster.is_none_or(|cluster| cluster == mark.cluster))
        .map(|(vmid, (host, mark))| {
            let line = format!("{} (VM {vmid} on {host})", mark.machine);
            (*vmid, line)
        })
        .collect();
    for (name, machine) in status.iter().flat_map(|status| &status.machines) {
        let mut line = format!("{name} (VM {} on {}", machine.vmid, machine.host);
        if let Some(node) = &machine.node {
            let _ = write!(line, ", node {node}");
        }
        lines.insert(machine.vmid, line + ")");
    }
    lines
}

/// What is said of them. `elsewhere`: another host, whose instance holds the Lease.
fn text(machines: &BTreeMap<u32, String>, elsewhere: Option<&str>) -> String {
    let mut text = match elsewhere {
        Some(host) => format!(
            "pve-autoscaler on {host} holds the Lease. While it runs there, it manages these machines, which stay as they are:\n"
        ),
        None => "Unless pve-autoscaler runs on another host of this cluster: these machines stay as they are and are not managed \
                 any more:\n"
            .to_owned(),
    };
    for line in machines.values() {
        let _ = writeln!(text, "  {}", render::one_line(line));
    }
    if elsewhere.is_none() {
        text.push_str(
            "A later installation manages them again. To have them removed: install it again, set min = 0 and max = 0, drain \
             their nodes and wait until `pve-autoscaler status` shows no machine; or by hand, `kubectl delete node` and, on the \
             machine's host, `qm destroy`.\n",
        );
    }
    text
}

/// VMs with an intact mark, by VMID, and the hosts they are on. What cannot be read is left out: this host may
/// have no PVE at all.
fn marked(directory: &Path) -> BTreeMap<u32, (String, Mark)> {
    let list = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut found = BTreeMap::new();
    for host in list(&directory.join("nodes")) {
        for file in list(&host.path().join("qemu-server")) {
            let path = file.path();
            let vmid = path
                .file_stem()
                .and_then(|name| name.to_str()?.parse().ok());
            let text = std::fs::read(&path).map(|bytes| description(&bytes));
            if let (Some(vmid), Ok(text)) = (vmid, text)
                && let Ownership::Marked(mark) = mark::read(&text)
            {
                let host = host.file_name().to_string_lossy().into_owned();
                found.insert(vmid, (host, Mark::clone(&mark)));
            }
        }
    }
    found
}

/// The description in a VM's configuration file: the comments before the first section (the others are of
/// snapshots), a line each, with `%` and two digits for a byte that is not written as it is.
fn description(file: &[u8]) -> String {
    let lines = file
        .split(|byte| *byte == b'\n')
        .take_while(|line| !line.starts_with(b"["))
        .filter_map(|line| line.strip_prefix(b"#"));
    let mut text = Vec::new();
    for line in lines {
        let mut rest = line;
        while let [first, after @ ..] = rest {
            let escaped = after
                .get(..2)
                .filter(|_| *first == b'%')
                .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
            text.push(escaped.unwrap_or(*first));
            rest = if escaped.is_some() {
                &after[2..]
            } else {
                after
            };
        }
        text.push(b'\n');
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::status::MachineStatus;
    use crate::model::time::Time;

    fn mark(machine: &str, cluster: &str, vmid: u32) -> Mark {
        Mark {
            cluster: cluster.to_owned(),
            machine: machine.to_owned(),
            vmid,
            pool: "workers".to_owned(),
            instance_type: "small".to_owned(),
            template: "debian".to_owned(),
            token: "abcdef".to_owned(),
            created: Time(0),
            addresses: BTreeMap::new(),
            cpus: crate::model::cpus::CpuSet::new(),
            unknown: [].into(),
        }
    }

    /// The file as PVE writes it: a colon and a percent sign are escaped.
    fn file(description: &str) -> String {
        let lines = description.lines().map(|line| {
            let escaped = line.replace('%', "%25").replace(':', "%3A");
            format!("#{escaped}\n")
        });
        lines.collect::<String>()
            + "cores: 2\nname: some\n\n[before]\n#pve-autoscaler%3Av1 x\ncores: 1\n"
    }

    #[test]
    fn marked_vms_are_found_in_pves_files_and_others_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |host: &str| folder.path().join("nodes").join(host).join("qemu-server");
        for host in ["pve1", "pve2"] {
            std::fs::create_dir_all(place(host)).expect("made");
        }
        let write = |host: &str, vmid: u32, text: &str| {
            std::fs::write(place(host).join(format!("{vmid}.conf")), file(text)).expect("written");
        };
        write(
            "pve1",
            9101,
            &mark("workers-a", "1/home", 9101).describe("Ärger: 5 %"),
        );
        write(
            "pve2",
            9102,
            &mark("workers-b", "2/other", 9102).describe(""),
        );
        write("pve2", 100, "somebody's own");
        write(
            "pve2",
            9103,
            &(mark("workers-c", "1/home", 9103).line() + "\nbelow it"),
        );
        let found = marked(folder.path());
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [9101, 9102]);

        let all = text(&machines(None, &found), None);
        let said = "Unless pve-autoscaler runs on another host of this cluster: ";
        assert!(all.starts_with(said), "{all}");
        assert!(all.contains("\n  workers-a (VM 9101 on pve1)\n"), "{all}");
        assert!(all.contains("\n  workers-b (VM 9102 on pve2)\n"), "{all}");
        assert!(marked(&folder.path().join("nowhere")).is_empty());
        assert!(machines(None, &BTreeMap::new()).is_empty());

        let mut status = DaemonStatus {
            cluster_id: Some("1/home".into()),
            ..DaemonStatus::default()
        };
        let machine = MachineStatus {
            region: "default".into(),
            off: false,
            differs: Vec::new(),
            drifted: None,
            stays: None,
            leaves: false,
            usual: None,
            pool: "workers".to_owned(),
            instance_type: "small".to_owned(),
            host: "pve1".into(),
            cpus: crate::model::cpus::CpuSet::new(),
            addresses: BTreeMap::new(),
            vmid: 9101,
            node: Some("workers-a".into()),
            step: None,
            busy: None,
            failure: None,
            waits: None,
            ails: None,
        };
        status.machines.insert("workers-a".into(), machine);
        let ours = text(&machines(Some(&status), &found), None);
        assert!(
            ours.contains("\n  workers-a (VM 9101 on pve1, node workers-a)\n"),
            "{ours}"
        );
        assert!(!ours.contains("workers-b"), "{ours}");
    }

    /// Found by it: machines that another host manages, called unmanaged, with the way to destroy them.
    #[test]
    fn machines_that_another_host_manages_are_not_called_unmanaged() {
        let named = BTreeMap::from([(9101, "workers-a (VM 9101 on pve1)".to_owned())]);
        let holder = lease::identity("pve2", 7);
        let elsewhere = other_host(&holder, Some("pve1"));
        let said = text(&named, elsewhere);
        assert!(
            said.starts_with("pve-autoscaler on pve2 holds the Lease. ")
                && said.contains("\n  workers-a (VM 9101 on pve1)\n"),
            "{said}"
        );
        for wrong in ["not managed", "qm destroy", "Unless"] {
            assert!(!said.contains(wrong), "{said}");
        }
        // A former instance of this host manages nothing, and nor does nobody.
        assert_eq!(other_host(&lease::identity("pve1", 7), Some("pve1")), None);
        assert_eq!(other_host("", Some("pve1")), None);
    }

    /// The package is removed all the same where no file, no kubeconfig or no API server is.
    #[test]
    fn who_holds_the_lease_is_not_known_without_an_api_server() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("config.toml");
        assert_eq!(ask_holder(&config), None);
        let kubeconfig = folder.path().join("kubeconfig");
        let pools = "[template.t]\nvmid = 8000\n[instance_type.s]\ncores = 1\nmemory = \"2GiB\"\n[pool.p]\ntemplate = \"t\"\ninstance_types = [\"s\"]\nmax = 1\n";
        let file = format!(
            "version = 1\n[kubernetes]\nkubeconfig = {kubeconfig:?}\n[proxmox]\nvmids = \"9000-9099\"\n{pools}"
        );
        std::fs::write(&config, file).expect("written");
        config::load(&config).expect("a whole file");
        assert_eq!(ask_holder(&config), None);
        // Somebody listens there and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = silent.local_addr().expect("it is bound").port();
        let cluster = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{port}', insecure-skip-tls-verify: false}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{token: x}}}}]\n"
        );
        std::fs::write(&kubeconfig, cluster).expect("written");
        #[allow(clippy::disallowed_methods)] // there is no runtime here whose time could be paused
        let began = std::time::Instant::now();
        assert_eq!(ask_holder(&config), None);
        assert!(began.elapsed() < PATIENCE * 9 / 5, "{:?}", began.elapsed());
    }
}
