//! What a judge may ask: the requests that came, what was changed, what is there.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Pve;
use super::world::{Run, World};
use crate::model::time::Time;

/// Requests kept; older ones are only counted.
pub(super) const MAX_SEEN: usize = 100_000;

/// A request that the fake got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// When it came.
    pub at: Time,
    /// Its method.
    pub method: String,
    /// Its path below `/api2/json`.
    pub path: String,
    /// Not a read.
    pub changing: bool,
    /// Who asked; empty when not authenticated.
    pub user: String,
    /// The answer's status; `None` while there is none.
    pub status: Option<u16>,
}

/// A change that a caller made to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// When it took effect.
    pub at: Time,
    /// Who made it; `administrator` for acts of the test.
    pub by: String,
    /// The machine.
    pub vmid: u32,
    /// `clone`, `config`, `resize`, `start`, `shutdown`, `stop`, `destroy`, …
    pub what: String,
    /// Its name just before (after, for a clone).
    pub name: String,
    /// Its description just before (after, for a clone).
    pub description: String,
}

/// A machine as it is now, without any staleness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VmFacts {
    /// VMID.
    pub vmid: u32,
    /// Its host.
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
    pub fn changes(&self) -> Vec<Change> {
        self.world(|world, _| world.changes.clone())
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

impl World {
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
            volumes: World::volumes_of(vm),
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
        self.changes.push(Change {
            at,
            by: by.to_owned(),
            vmid,
            what: what.to_owned(),
            name,
            description,
        });
    }
}
