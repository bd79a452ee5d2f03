//! What a judge may ask: the requests that came, what was changed, what is there.

use std::collections::BTreeMap;

use serde::Serialize;

use super::world::{PveWorld, Run};
use super::{FirewallRule, Pve};
use crate::model::time::Time;

/// Requests kept; older ones are only counted.
pub(super) const MAX_SEEN: usize = 100_000;

/// A request that the fake got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// When it came.
    pub at: Time,
    /// When it was sent.
    pub sent: Time,
    /// The request's method, such as `GET`.
    pub method: String,
    /// The path that was asked for, below `/api2/json`.
    pub path: String,
    /// Not a read.
    pub changing: bool,
    /// It came long after it was sent, when whoever sent it had given up.
    pub late: bool,
    /// Who asked; empty when not authenticated.
    pub user: String,
    /// The answer's status; `None` while there is none.
    pub status: Option<u16>,
}

/// A change that a caller made to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineChange {
    /// When it took effect.
    pub at: Time,
    /// Who made it; `administrator` for acts of the test.
    pub by: String,
    /// The machine.
    pub vmid: u32,
    /// `clone`, `config`, `resize`, `start`, `shutdown`, `stop`, `destroy`, …
    pub what: String,
    /// The machine's name just before (after, for a clone).
    pub name: String,
    /// The machine's description just before (after, for a clone).
    pub description: String,
    /// The machine's SMBIOS UUID just before, lower case.
    pub uuid: String,
    /// It was powered on just before.
    pub running: bool,
}

/// An ISO on a storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IsoFacts {
    /// The host that has it; empty on shared storage.
    pub host: String,
    /// `STORAGE:iso/NAME`.
    pub volume: String,
    /// All of it.
    #[serde(skip)]
    pub content: Vec<u8>,
}

/// A machine as it is now, without any staleness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VmFacts {
    /// VMID.
    pub vmid: u32,
    /// The host that it is on.
    pub host: String,
    /// A container.
    pub container: bool,
    /// A template.
    pub template: bool,
    /// Powered on.
    pub running: bool,
    /// Name, empty where there is none yet.
    pub name: String,
    /// Description, without PVE's trailing newline.
    pub description: String,
    /// The lock of its configuration.
    pub lock: Option<String>,
    /// SMBIOS UUID, lower case.
    pub uuid: String,
    /// Configuration.
    pub config: BTreeMap<String, String>,
    /// Volumes.
    pub volumes: Vec<String>,
    /// The pool it is in.
    pub pool: Option<String>,
    /// The rules of its firewall.
    pub rules: Vec<FirewallRule>,
    /// The VM's own firewall is switched on.
    pub firewall_on: bool,
}

impl Pve {
    /// Every machine as it is now.
    pub fn vms(&self) -> Vec<VmFacts> {
        self.world(|world, _| {
            world
                .vms
                .keys()
                .filter_map(|vmid| world.facts(*vmid))
                .collect()
        })
    }

    /// One machine as it is now.
    pub fn vm(&self, vmid: u32) -> Option<VmFacts> {
        self.world(|world, _| world.facts(vmid))
    }

    /// The requests that came, oldest first (the last [`MAX_SEEN`]).
    pub fn requests(&self) -> Vec<Seen> {
        self.world(|world, _| world.seen.iter().cloned().collect())
    }

    /// How many requests came ever.
    pub fn request_count(&self) -> u64 {
        self.world(|world, _| world.requests)
    }

    /// What was changed on machines, oldest first.
    pub fn changes(&self) -> Vec<MachineChange> {
        self.world(|world, _| world.changes.clone())
    }

    /// What was changed on machines after the first so many changes, oldest first.
    pub fn changes_since(&self, first: usize) -> Vec<MachineChange> {
        self.world(|world, _| world.changes.get(first..).unwrap_or_default().to_vec())
    }

    /// The last words of the tasks that ended and are remembered: `OK`, or what went wrong.
    pub fn task_endings(&self) -> Vec<String> {
        self.world(|world, _| {
            let ended = world.tasks.values().filter(|task| task.end.is_some());
            ended.map(|task| task.exit.clone()).collect()
        })
    }

    /// The requests that came after the first so many, oldest first (of the last [`MAX_SEEN`]).
    pub fn requests_since(&self, first: u64) -> Vec<Seen> {
        self.world(|world, _| {
            let new = usize::try_from(world.requests - first).unwrap_or(usize::MAX);
            let skip = world.seen.len().saturating_sub(new);
            world.seen.iter().skip(skip).cloned().collect()
        })
    }

    /// Whether the cluster is quorate.
    pub fn quorate(&self) -> bool {
        self.world(|world, _| world.quorate)
    }

    /// Since when a task is at work that makes this VM by cloning.
    pub fn being_cloned_since(&self, vmid: u32) -> Option<Time> {
        self.world(|world, _| {
            let task = world.tasks.get(world.clones.get(&vmid)?)?;
            task.end.is_none().then_some(task.start)
        })
    }

    /// VMs that the HA manager keeps.
    pub fn managed(&self) -> Vec<u32> {
        self.world(|world, _| world.ha.keys().copied().collect())
    }

    /// How many workers were killed in their work: what they leave is nobody's fault.
    pub fn tasks_killed(&self) -> u64 {
        self.world(|world, _| world.killed)
    }

    /// Volumes whose owner does not exist.
    pub fn orphaned_volumes(&self) -> Vec<String> {
        self.world(|world, _| {
            let orphaned = world
                .volumes
                .values()
                .filter(|volume| !world.vms.contains_key(&volume.vmid));
            orphaned.map(|volume| volume.id.clone()).collect()
        })
    }

    /// Tasks that run, as UPIDs.
    pub fn running_tasks(&self) -> Vec<String> {
        self.world(|world, _| {
            let running = world.tasks.values().filter(|task| task.end.is_none());
            running.map(|task| task.upid.clone()).collect()
        })
    }
}

impl PveWorld {
    fn facts(&self, vmid: u32) -> Option<VmFacts> {
        let vm = self.vms.get(&vmid)?;
        Some(VmFacts {
            vmid,
            host: vm.host.clone(),
            container: vm.container,
            template: vm.flag("template"),
            running: vm.run != Run::Stopped,
            name: vm.text("name").to_owned(),
            description: vm.text("description").to_owned(),
            lock: vm.config.get("lock").cloned(),
            uuid: vm.uuid(),
            config: vm.config.clone(),
            volumes: PveWorld::volumes_of(vm),
            rules: self.firewalls.get(&vmid).cloned().unwrap_or_default(),
            firewall_on: self.firewalls_on.contains(&vmid),
            pool: {
                let mut pools = self.pools.iter();
                let holder = pools.find(|(_, members)| members.contains(&vmid));
                holder.map(|(name, _)| name.clone())
            },
        })
    }

    /// Notes a change to a machine.
    pub(super) fn note(&mut self, at: Time, by: &str, vmid: u32, what: &str) {
        // A machine that somebody destroyed in the meantime is not changed.
        let Some(vm) = self.vms.get(&vmid) else {
            return;
        };
        let name = vm.text("name").to_owned();
        let description = vm.text("description").to_owned();
        let (uuid, running) = (vm.uuid(), vm.run.is_on());
        self.changes.push(MachineChange {
            at,
            by: by.to_owned(),
            vmid,
            what: what.to_owned(),
            name,
            description,
            uuid,
            running,
        });
    }
}
