//! `staying`: the machines that stay when the package is removed, for the package's own script to name.
//!
//! The daemon knows them; where it does not run, PVE's configuration files on this host do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::args::StayingOptions;
use super::{CliFailure, control, print, render};
use crate::controller::control::ControlCommand;
use crate::controller::status::DaemonStatus;
use crate::model::mark::{self, Mark, Ownership};

/// Names the machines; prints nothing when there are none.
pub(super) fn run(options: &StayingOptions) -> Result<(), CliFailure> {
    let status: Option<DaemonStatus> = control::ask(&options.control, &ControlCommand::Status)
        .ok()
        .and_then(|answer| serde_json::from_value(answer).ok());
    print(&text(status.as_ref(), &marked(&options.pve_directory)))
}

/// Machines by VMID, with the host. Where the daemon answers, machines of other clusters are none of ours.
fn text(status: Option<&DaemonStatus>, marked: &BTreeMap<u32, (String, Mark)>) -> String {
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
    if lines.is_empty() {
        return String::new();
    }
    let mut text = "These machines stay as they are and are not managed any more:\n".to_owned();
    for line in lines.values() {
        let _ = writeln!(text, "  {}", render::one_line(line));
    }
    text.push_str(
        "A later installation manages them again. To have them removed: install it again, set min = 0 and max = 0, drain \
         their nodes\nand wait until `pve-autoscaler status` shows no machine; or by hand, `kubectl delete node` and \
         `qm destroy`.\n",
    );
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

        let all = text(None, &found);
        assert!(all.contains("\n  workers-a (VM 9101 on pve1)\n"), "{all}");
        assert!(all.contains("\n  workers-b (VM 9102 on pve2)\n"), "{all}");
        assert!(marked(&folder.path().join("nowhere")).is_empty());
        assert_eq!(text(None, &BTreeMap::new()), "");

        let mut status = DaemonStatus {
            cluster_id: Some("1/home".into()),
            ..DaemonStatus::default()
        };
        let machine = MachineStatus {
            region: "default".into(),
            off: false,
            differs: Vec::new(),
            drifted: None,
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
        let ours = text(Some(&status), &found);
        assert!(
            ours.contains("\n  workers-a (VM 9101 on pve1, node workers-a)\n"),
            "{ours}"
        );
        assert!(!ours.contains("workers-b"), "{ours}");
    }
}
