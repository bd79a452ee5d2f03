//! Machines of ours that run on this host with CPUs of their own.

use std::io;
use std::path::Path;

use super::Roots;
use super::conf::Conf;
use crate::model::cpus::CpuSet;
use crate::model::mark::{self, Ownership};

/// Longest file of PVE's or the kernel's that is read, in bytes.
const MOST: usize = 1 << 20;

/// A machine of ours that runs here.
#[derive(Clone, Debug)]
pub(super) struct PinnedGuest {
    pub(super) vmid: u32,
    /// The machine's name, by its mark.
    pub(super) machine: String,
    /// QEMU's process.
    pub(super) pid: i32,
    /// The machine's CPUs, by its `affinity`.
    pub(super) cpus: CpuSet,
    /// The guest's NUMA nodes: first and last vCPU, the host's node.
    pub(super) nodes: Vec<(usize, usize, usize)>,
    /// Addresses of the PCI devices that QEMU was given.
    pub(super) devices: Vec<String>,
    /// How many vCPUs it has.
    pub(super) vcpus: usize,
}

/// A thread of QEMU's.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) tid: i32,
    pub(super) name: String,
    /// The number of the vCPU that it is.
    pub(super) vcpu: Option<usize>,
}

/// What runs here.
#[derive(Debug, Default)]
pub(super) struct RunningGuests {
    /// The machines of ours.
    pub(super) guests: Vec<PinnedGuest>,
    /// Why nobody can tell of a VM whether it is one of them, by VM.
    pub(super) unread: Vec<String>,
}

/// Why a VM is not known as a machine of ours that runs here.
#[derive(Debug)]
enum NotPinned {
    /// It is none, or it does not run.
    NotOurs(String),
    /// What says whether it is one cannot be read.
    Unread(String),
}

impl From<NotPinned> for String {
    fn from(why: NotPinned) -> String {
        match why {
            NotPinned::NotOurs(text) | NotPinned::Unread(text) => text,
        }
    }
}

/// The machines of ours that run here. An error where nobody can tell of any.
pub(super) fn running(roots: &Roots) -> Result<RunningGuests, String> {
    let directory = roots.run.join("qemu-server");
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        // No VM was started since the host did.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(RunningGuests::default());
        }
        Err(error) => return Err(format!("cannot read {}: {error}", directory.display())),
    };
    let mut running = RunningGuests::default();
    for entry in entries {
        let entry =
            entry.map_err(|error| format!("cannot read {}: {error}", directory.display()))?;
        let name = entry.file_name();
        let vmid = name.to_str().and_then(|name| name.strip_suffix(".pid"));
        if let Some(vmid) = vmid.and_then(|vmid| vmid.parse().ok()) {
            match look(roots, vmid) {
                Ok(guest) => running.guests.push(guest),
                Err(NotPinned::NotOurs(_)) => {}
                Err(NotPinned::Unread(why)) => running.unread.push(format!("VM {vmid}: {why}")),
            }
        }
    }
    running.guests.sort_by_key(|guest| guest.vmid);
    running.unread.sort();
    Ok(running)
}

/// What a VM is, if it runs here and is ours; else why it is not.
fn look(roots: &Roots, vmid: u32) -> Result<PinnedGuest, NotPinned> {
    let not_ours = |why: String| Err(NotPinned::NotOurs(why));
    let conf = text(&roots.pve.join("qemu-server"), &format!("{vmid}.conf"))?;
    let conf = Conf::read(&conf);
    let Ownership::Marked(mark) = mark::read(&conf.description) else {
        return not_ours(format!("VM {vmid} carries no mark of ours"));
    };
    if mark.vmid != vmid {
        return not_ours(format!("VM {vmid} is a copy of VM {}", mark.vmid));
    }
    let affinity = conf
        .values
        .get("affinity")
        .and_then(|text| CpuSet::read(text));
    let Some(cpus) = affinity.filter(|cpus| !cpus.is_empty()) else {
        return not_ours(format!("VM {vmid} has no affinity"));
    };
    // Whoever may edit notes can write a mark, and only root an affinity.
    if cpus != mark.cpus {
        return not_ours(format!(
            "VM {vmid} has the affinity {cpus}, which is not that of its mark"
        ));
    }
    let pid = text(&roots.run.join("qemu-server"), &format!("{vmid}.pid"))?;
    // QEMU makes the file before it writes its number.
    let unread = |_| NotPinned::Unread(format!("no process id stands in {vmid}.pid"));
    let pid: i32 = pid.trim().parse().map_err(unread)?;
    let line = text(&roots.proc, &format!("{pid}/cmdline"))?;
    let words: Vec<&str> = line.split('\0').collect();
    let id = vmid.to_string();
    // Whatever has the number of a QEMU that has ended is no QEMU of this VM.
    if !words.windows(2).any(|two| two[0] == "-id" && two[1] == id) {
        return not_ours(format!("process {pid} is not VM {vmid}"));
    }
    let number = |key: &str| conf.values.get(key).and_then(|text| text.parse().ok());
    let cores: usize = number("cores").unwrap_or(1);
    let sockets: usize = number("sockets").unwrap_or(1);
    Ok(PinnedGuest {
        vmid,
        machine: mark.machine.clone(),
        pid,
        cpus,
        nodes: conf.nodes(),
        devices: devices(&words),
        vcpus: number("vcpus").unwrap_or(cores.saturating_mul(sockets)),
    })
}

/// The addresses of the devices that QEMU was given, `0000:01:00.0`.
fn devices(words: &[&str]) -> Vec<String> {
    let given = words.windows(2).filter(|two| two[0] == "-device");
    let given = given
        .map(|two| two[1])
        .filter(|device| device.starts_with("vfio-pci,"));
    let hosts = given.filter_map(|device| {
        device
            .split(',')
            .find_map(|part| part.strip_prefix("host="))
    });
    hosts.map(str::to_owned).collect()
}

/// Reads a file below a directory. It is gone when the directory can be listed and does not name it: where `/etc/pve` is away, as
/// while pve-cluster starts again, no file is there and none is gone.
fn text(directory: &Path, file: &str) -> Result<String, NotPinned> {
    let path = directory.join(file);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let text = format!("cannot read {}: {error}", path.display());
            let name = file.split('/').next().unwrap_or(file);
            let gone = match error.kind() {
                io::ErrorKind::NotFound => lists(directory, name).is_ok_and(|listed| !listed),
                // A process that ended since its file was opened.
                _ => error.raw_os_error() == Some(nix::libc::ESRCH),
            };
            return Err(if gone {
                NotPinned::NotOurs(text)
            } else {
                NotPinned::Unread(text)
            });
        }
    };
    if bytes.len() > MOST {
        return Err(NotPinned::Unread(format!(
            "{} is longer than any",
            path.display()
        )));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a directory names an entry.
fn lists(directory: &Path, name: &str) -> io::Result<bool> {
    for entry in std::fs::read_dir(directory)? {
        if entry?.file_name() == name {
            return Ok(true);
        }
    }
    Ok(false)
}

impl PinnedGuest {
    /// Whether it still is the machine that was looked at: its mark, its CPUs and its process.
    pub(super) fn prove(&self, roots: &Roots) -> Result<(), String> {
        let now = look(roots, self.vmid)?;
        let same = (&now.machine, now.pid, &now.cpus) == (&self.machine, self.pid, &self.cpus);
        if same {
            Ok(())
        } else {
            Err(format!("VM {} is not what it was a moment ago", self.vmid))
        }
    }

    /// Whether a thread still is one of QEMU's: its number may be another program's by now.
    pub(super) fn has(&self, roots: &Roots, tid: i32) -> Result<bool, String> {
        let path = roots.proc.join(format!("{}/task/{tid}", self.pid));
        path.try_exists()
            .map_err(|error| format!("cannot read {}: {error}", path.display()))
    }

    /// QEMU's threads. KVM calls those of vCPUs `CPU N/KVM`.
    pub(super) fn threads(&self, roots: &Roots) -> Result<Vec<Thread>, String> {
        let tasks = roots.proc.join(format!("{}/task", self.pid));
        let entries = std::fs::read_dir(&tasks);
        let entries =
            entries.map_err(|error| format!("cannot read {}: {error}", tasks.display()))?;
        let mut threads = Vec::new();
        for entry in entries.flatten() {
            let Some(tid) = entry.file_name().to_str().and_then(|tid| tid.parse().ok()) else {
                continue;
            };
            // It may have ended since.
            let Ok(name) = std::fs::read(entry.path().join("comm")) else {
                continue;
            };
            let name = String::from_utf8_lossy(&name).trim_end().to_owned();
            let number = name
                .strip_prefix("CPU ")
                .and_then(|rest| rest.strip_suffix("/KVM"));
            let vcpu = number.and_then(|number| number.parse().ok());
            threads.push(Thread { tid, name, vcpu });
        }
        let vcpus = threads
            .iter()
            .filter(|thread| thread.vcpu.is_some())
            .count();
        if vcpus != self.vcpus {
            return Err(format!(
                "QEMU has {vcpus} threads for vCPUs, {} are configured: it is starting, or it has no KVM",
                self.vcpus
            ));
        }
        threads.sort_by_key(|thread| thread.tid);
        Ok(threads)
    }
}
