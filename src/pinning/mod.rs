//! The host's side of CPUs for one machine alone: on the host on which it runs, each vCPU of a machine of ours on a CPU of its own,
//! what else QEMU does elsewhere, the interrupts of passed-through devices beside the vCPUs, and the governor of their CPUs.
//!
//! Level-triggered: a [pass](Pinner::pass) looks at what is and changes what differs. A VM is touched while its configuration
//! carries our mark, made for its VMID, and the `affinity` that the mark names; both are read again right before each change. While
//! anything of a VM cannot be read nothing is given back. Nothing of it needs the daemon, its file, or PVE's API: it works on hosts that have the package alone.

mod conf;
mod governor;
mod guest;
mod interrupts;
mod kernel;
mod places;
mod report;
#[cfg(test)]
mod tests;
pub mod topology;
mod vm_starts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::cpus::CpuSet;
use governor::Governors;
use guest::{PinnedGuest, RunningGuests};
pub use kernel::{Affinity, Kernel};
pub use report::PinningReport;
pub use vm_starts::{LookTimes, VmStarts};

/// Where the kernel and PVE tell and are told; tests have trees of their own.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/run`.
    pub run: PathBuf,
    /// `/etc/pve`.
    pub pve: PathBuf,
    /// What is kept while the host is up.
    pub state: PathBuf,
}

impl Roots {
    /// All of them below one directory.
    pub fn below(root: &Path) -> Roots {
        let own = Roots::default();
        let of = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        Roots {
            proc: of(&own.proc),
            sys: of(&own.sys),
            run: of(&own.run),
            pve: of(&own.pve),
            state: of(&own.state),
        }
    }
}

impl Default for Roots {
    fn default() -> Roots {
        Roots {
            proc: "/proc".into(),
            sys: "/sys".into(),
            run: "/run".into(),
            pve: "/etc/pve".into(),
            state: "/run/pve-autoscaler-pinning".into(),
        }
    }
}

/// What is to be done beside placing vCPUs.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Where QEMU's other threads run; `None`: where PVE put them, on the machine's CPUs.
    pub housekeeping: Option<CpuSet>,
    /// Interrupts of passed-through devices go to the machine's CPUs.
    pub interrupts: bool,
    /// The governor of the machine's CPUs.
    pub governor: Option<String>,
}

/// What was found of one machine in a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// The machine's name, by its mark.
    pub machine: String,
    /// The machine's CPUs.
    pub cpus: CpuSet,
    /// Where each vCPU is.
    pub vcpus: BTreeMap<usize, u16>,
    /// Interrupts that are on the machine's CPUs.
    pub interrupts: BTreeSet<u32>,
    /// What could not be done.
    pub problems: Vec<String>,
}

/// What a pass found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinningOutcome {
    /// Machines of ours that run here with CPUs of their own, by VMID.
    pub machines: BTreeMap<u32, Pinned>,
    /// What was changed, in words.
    pub changes: Vec<String>,
    /// What could not be done for no machine in particular.
    pub problems: Vec<String>,
}

/// Does it.
#[derive(Debug)]
pub struct Pinner<A> {
    roots: Roots,
    wishes: Wishes,
    affinity: A,
}

impl<A: Affinity> Pinner<A> {
    /// One that works on these trees, and sets where threads run by `affinity`.
    pub fn new(roots: Roots, wishes: Wishes, affinity: A) -> Pinner<A> {
        Pinner {
            roots,
            wishes,
            affinity,
        }
    }

    /// Looks once, and changes what differs.
    pub fn pass(&self) -> PinningOutcome {
        let mut outcome = PinningOutcome::default();
        let running = match guest::running(&self.roots) {
            Ok(running) => running,
            Err(why) => {
                // Nobody knows who runs: what was done stands.
                outcome.problems.push(why);
                return outcome;
            }
        };
        let topology = topology::read(&self.roots.sys.join("devices/system"));
        let topology = match topology {
            Ok(topology) => topology,
            Err(error) => {
                outcome.problems.push(format!("{error:#}"));
                return outcome;
            }
        };
        outcome.problems.extend(running.unread.iter().cloned());
        let housekeeping = self.housekeeping(&topology.cpus(), &mut outcome.problems);
        for guest in &running.guests {
            let mut pinned = Pinned {
                machine: guest.machine.clone(),
                cpus: guest.cpus.clone(),
                ..Pinned::default()
            };
            let absent = guest.cpus.without(&topology.cpus());
            if absent.is_empty() {
                let places = places::of(guest, &topology);
                let told = (&mut pinned, &mut outcome.changes);
                self.threads(guest, places, housekeeping.as_ref(), told);
                if self.wishes.interrupts {
                    self.interrupts(guest, (&mut pinned, &mut outcome.changes));
                }
            } else {
                pinned.problems.push(format!(
                    "its affinity {} names CPUs that are not online here: {absent}",
                    guest.cpus
                ));
            }
            outcome.machines.insert(guest.vmid, pinned);
        }
        if let Some(wanted) = &self.wishes.governor {
            self.governors(&running, wanted, &mut outcome);
        }
        outcome
    }

    /// What is given back when nobody looks any more: governors.
    pub fn end(&self) -> PinningOutcome {
        let mut outcome = PinningOutcome::default();
        outcome.problems = match Governors::read(&self.roots) {
            Ok(mut known) => known.free(&CpuSet::new(), &mut outcome.changes),
            Err(why) => vec![why],
        };
        outcome
    }

    /// The CPUs for QEMU's other threads that this host has. The kernel takes others, passes them over, and tells a smaller set.
    fn housekeeping(&self, online: &CpuSet, problems: &mut Vec<String>) -> Option<CpuSet> {
        let wanted = self.wishes.housekeeping.as_ref()?;
        let absent = wanted.without(online);
        if !absent.is_empty() {
            problems.push(format!(
                "--housekeeping {wanted} names CPUs that are not online here: {absent}"
            ));
        }
        Some(wanted.both(online)).filter(|cpus| !cpus.is_empty())
    }

    /// Puts the threads of a machine where they belong.
    fn threads(
        &self,
        guest: &PinnedGuest,
        places: Result<BTreeMap<usize, u16>, String>,
        housekeeping: Option<&CpuSet>,
        (pinned, changes): (&mut Pinned, &mut Vec<String>),
    ) {
        let places = match places {
            Ok(places) => places,
            Err(why) => return pinned.problems.push(why),
        };
        let threads = match guest.threads(&self.roots) {
            Ok(threads) => threads,
            Err(why) => return pinned.problems.push(why),
        };
        for thread in threads {
            let (what, cpus) = match (thread.vcpu, housekeeping) {
                (Some(number), _) => match places.get(&number) {
                    Some(cpu) => (format!("vCPU {number}"), one(*cpu)),
                    None => continue,
                },
                (None, Some(elsewhere)) => (format!("thread {}", thread.name), elsewhere.clone()),
                (None, None) => continue,
            };
            match self.place(guest, thread.tid, &cpus) {
                Ok(changed) => {
                    if let Some(number) = thread.vcpu {
                        let cpu = cpus.iter().next().unwrap_or_default();
                        pinned.vcpus.insert(number, cpu);
                    }
                    if changed {
                        let (vmid, machine) = (guest.vmid, &guest.machine);
                        changes.push(format!("VM {vmid} ({machine}): {what} runs on {cpus}"));
                    }
                }
                Err(why) => pinned.problems.push(format!("{what}: {why}")),
            }
        }
    }

    /// Whether a thread had to be moved.
    fn place(&self, guest: &PinnedGuest, tid: i32, cpus: &CpuSet) -> Result<bool, String> {
        let is = match self.affinity.get(tid) {
            Ok(is) => is,
            // It has ended.
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => return Ok(false),
            Err(error) => return Err(format!("cannot read where thread {tid} runs: {error}")),
        };
        if is == *cpus {
            return Ok(false);
        }
        guest.prove(&self.roots)?;
        if !guest.has(&self.roots, tid)? {
            return Ok(false);
        }
        match self.affinity.set(tid, cpus) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(false),
            Err(error) => Err(format!("cannot move thread {tid} to {cpus}: {error}")),
        }
    }

    /// Puts the interrupts of a machine's devices on its CPUs.
    fn interrupts(&self, guest: &PinnedGuest, (pinned, changes): (&mut Pinned, &mut Vec<String>)) {
        if guest.devices.is_empty() {
            return;
        }
        let found = match interrupts::of(&self.roots.proc, &guest.devices) {
            Ok(found) => found,
            Err(why) => return pinned.problems.push(why),
        };
        for number in found {
            let path = interrupts::path(&self.roots.proc, number);
            let is = std::fs::read_to_string(&path).unwrap_or_default();
            if CpuSet::read(&is).as_ref() == Some(&guest.cpus) {
                pinned.interrupts.insert(number);
                continue;
            }
            let done = guest.prove(&self.roots).and_then(|()| {
                let written = std::fs::write(&path, guest.cpus.to_string());
                written.map_err(|error| format!("cannot write {}: {error}", path.display()))
            });
            match done {
                Ok(()) => {
                    pinned.interrupts.insert(number);
                    let (vmid, cpus) = (guest.vmid, &guest.cpus);
                    changes.push(format!("VM {vmid}: interrupt {number} goes to {cpus}"));
                }
                Err(why) => pinned.problems.push(why),
            }
        }
    }

    /// Gives the CPUs of machines their governor, and all others that had it from us their own, unless one of them may be a machine's
    /// of which nothing can be read.
    fn governors(&self, running: &RunningGuests, wanted: &str, outcome: &mut PinningOutcome) {
        let mut known = match Governors::read(&self.roots) {
            Ok(known) => known,
            Err(why) => return outcome.problems.push(why),
        };
        if running.unread.is_empty() {
            let all = running.guests.iter();
            let all = all.fold(CpuSet::new(), |all, guest| all.with(&guest.cpus));
            let problems = known.free(&all, &mut outcome.changes);
            outcome.problems.extend(problems);
        }
        for guest in &running.guests {
            for cpu in guest.cpus.iter() {
                let proof = || guest.prove(&self.roots);
                match known.set(cpu, wanted, proof) {
                    Ok(change) => outcome.changes.extend(change),
                    Err(why) => {
                        if let Some(pinned) = outcome.machines.get_mut(&guest.vmid) {
                            pinned.problems.push(why);
                        }
                        break;
                    }
                }
            }
        }
    }
}

/// The set of one CPU.
fn one(cpu: u16) -> CpuSet {
    let mut set = CpuSet::new();
    set.insert(cpu);
    set
}
