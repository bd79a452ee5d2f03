//! What is wrong with a world that has come to rest.

use std::collections::BTreeMap;
use std::path::Path;

use super::known::is_cordoned;
use super::{Judge, mark, pool_of, system_uuid, text, tokens};
use crate::model::time::{Span, Time};

impl Judge {
    /// What is wrong with a world that has come to rest: machines and nodes must be one to one,
    /// tokens gone, nothing half-made, and every pool at `machines` of its name (0 when absent).
    pub fn at_rest(&self, machines: &BTreeMap<String, usize>) -> Vec<String> {
        let mut wrong = Vec::new();
        let ours = self.ours();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for vm in &ours {
            match mark(&vm.description) {
                Some(seen) => *counts.entry(seen.pool).or_default() += 1,
                None => wrong.push(format!("VM {} has no mark", vm.vmid)),
            }
            if !vm.running || vm.lock.is_some() {
                wrong.push(format!("VM {} ({}) is not running free", vm.vmid, vm.name));
            }
        }
        for pool in self.pools.iter().map(|p| &p.name) {
            let found = counts.get(pool).copied().unwrap_or(0);
            let wanted = machines.get(pool).copied().unwrap_or(0);
            if found != wanted {
                wrong.push(format!("pool {pool} has {found} machines, wanted {wanted}"));
            }
        }
        let nodes = self.nodes();
        for vm in &ours {
            let named = nodes.iter().filter(|n| system_uuid(n) == vm.uuid).count();
            if named != 1 {
                wrong.push(format!("VM {} ({}) has {named} nodes", vm.vmid, vm.name));
            }
        }
        for node in nodes.iter().filter(|n| pool_of(n).is_some()) {
            let uuid = system_uuid(node);
            if !ours.iter().any(|vm| vm.uuid == uuid) && !self.uuids_elsewhere.contains(&uuid) {
                wrong.push(format!("node {} has no VM", text(node, "/metadata/name")));
            }
        }
        for node in nodes
            .iter()
            .filter(|node| self.uuids.contains(&system_uuid(node)))
        {
            if is_cordoned(node) {
                wrong.push(format!(
                    "node {} is still cordoned",
                    text(node, "/metadata/name")
                ));
            }
        }
        for vmid in self.pve.managed() {
            if self.pve.vm(vmid).is_none() {
                wrong.push(format!(
                    "the HA manager still keeps VM {vmid}, which is gone"
                ));
            }
        }
        let orphaned = self.pve.orphaned_volumes();
        // A worker that was killed leaves what it was at.
        if !orphaned.is_empty() && self.pve.tasks_killed() == 0 {
            wrong.push(format!("volumes are left: {}", orphaned.join(", ")));
        }
        wrong.extend(self.isos_left());
        for (volume, node) in self.kube.stranded() {
            wrong.push(format!(
                "volume {volume} is still attached to node {node}, which is gone"
            ));
        }
        for token in tokens(&self.kube).difference(&self.tokens) {
            wrong.push(format!("bootstrap token {token} is still there"));
        }
        wrong
    }

    /// ISOs for cloud-init: a machine that works has none any more.
    fn isos_left(&self) -> impl Iterator<Item = String> {
        let isos = self.pve.isos().into_iter();
        let ours = isos.filter(|iso| iso.volume.contains(":iso/pve-autoscaler-"));
        ours.map(|iso| format!("{} is left on {}", iso.volume, iso.host))
    }

    /// What the daemon's state directory still says of machines that are no more.
    pub fn left_in(&self, state: &Path) -> Vec<String> {
        let machines: Vec<String> = self
            .ours()
            .iter()
            .filter_map(|vm| mark(&vm.description))
            .map(|seen| seen.machine)
            .collect();
        let Ok(files) = std::fs::read_dir(state.join("journal")) else {
            return Vec::new();
        };
        let mut left: Vec<String> = files
            .flatten()
            .filter_map(|file| {
                file.file_name()
                    .to_str()?
                    .strip_suffix(".json")
                    .map(str::to_owned)
            })
            .filter(|name| !machines.contains(name))
            .map(|name| format!("the journal still has {name}, which is gone"))
            .collect();
        left.sort();
        left
    }

    /// What the daemon did in a world that should have come to rest before.
    pub fn unrest(&self, now: Time, rest: Span) -> Option<String> {
        let busy = now.since(self.busy) < rest;
        busy.then(|| {
            format!(
                "{now}: something was changed at {}, and nothing is to be done",
                self.busy
            )
        })
    }
}
