//! What the judge remembers of the machines: what was seen of each a moment ago, before it was changed.

use std::sync::Arc;

use serde_json::Value;

use super::{Judge, mark, system_uuid, text};
use crate::model::policy::STARTUP_TAINT;
use crate::model::time::{Span, Time};
use crate::sim::pve::VmFacts;
use crate::sim::world::IDENTITY;

/// The daemon's taint on nodes that leave.
const LEAVING: &str = "pve-autoscaler.io/leaving";
/// Forbids the removal of a node.
const DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

/// What was seen of a machine.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenMachine {
    /// The pool that the machine is of.
    pub(super) pool: String,
    /// SMBIOS UUID when it was first seen with one.
    pub(super) uuid: String,
    /// It was powered on once.
    pub(super) started: bool,
    /// The machine's node was Ready once.
    pub(super) worked: bool,
    /// The nodes that lie on it, at the last look.
    pub(super) nodes: Vec<String>,
    /// Since when its node is Ready.
    pub(super) ready: Option<Time>,
    /// The machine's node was cordoned when it was last seen.
    pub(super) cordoned: bool,
    /// Since when its node is not cordoned.
    pub(super) open: Option<Time>,
    /// Since when its node is gone, and not by the daemon.
    pub(super) lost: Option<Time>,
    /// When the daemon first took its power away.
    pub(super) down: Option<Time>,
    /// When its node first took pods.
    pub(super) first: Option<Time>,
    /// The machine's clone was seen when nothing went wrong any more.
    pub(super) calm: bool,
    /// A pod came to its node once that is there for its own sake.
    pub(super) served: bool,
    /// From its clone to when its node first took pods something else made room, or took the demand away.
    pub(super) relieved: bool,
}

/// Whether a node is Ready.
pub(super) fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter()
            .any(|one| one["type"] == "Ready" && one["status"] == "True")
    })
}

/// Whether a node has the daemon's taint for leaving.
pub(super) fn is_leaving(node: &Value) -> bool {
    is_tainted(node, LEAVING)
}

/// Whether a node has the daemon's taint for one that is not initialised: no pod comes to it either.
pub(super) fn is_starting(node: &Value) -> bool {
    is_tainted(node, STARTUP_TAINT)
}

fn is_tainted(node: &Value, key: &str) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|all| all.iter().any(|taint| taint["key"] == key))
}

/// Whether no new pod comes to a node.
pub(super) fn is_cordoned(node: &Value) -> bool {
    node["spec"]["unschedulable"] == true || is_leaving(node)
}

impl Judge {
    /// Since when quorum and lease are missing, and when somebody last waited.
    pub(super) fn look_at_hindrances(&mut self, now: Time) {
        self.no_quorum = (!self.pve.quorate()).then(|| self.no_quorum.unwrap_or(now));
        let leases = self.kube.objects("coordination.k8s.io/v1", "Lease");
        let others = leases.iter().any(|lease| {
            let holder = text(lease, "/spec/holderIdentity");
            text(lease, "/metadata/name") == "pve-autoscaler"
                && !holder.is_empty()
                && !holder.starts_with(IDENTITY)
        });
        self.no_lease = others.then(|| self.no_lease.unwrap_or(now));
        // Creation times are whole seconds, and looks are a second apart.
        let lately = now - Span::seconds(2);
        if self.wanted == Time(i64::MAX) || self.kube.somebody_waits(lately) {
            self.wanted = now;
        }
    }

    /// Keeps what is to be seen of each machine now.
    pub(super) fn remember(&mut self, now: Time, ours: &[VmFacts]) {
        let nodes = self.nodes();
        self.disabled.retain(|name, _| {
            let node = nodes.iter().find(|n| text(n, "/metadata/name") == *name);
            node.is_some_and(|node| forbids(node))
        });
        for node in nodes.iter().filter(|node| forbids(node)) {
            let name = text(node, "/metadata/name").to_owned();
            self.disabled.entry(name).or_insert(now);
        }
        for vm in ours {
            let Some(seen) = mark(&vm.description) else {
                continue;
            };
            if seen.cluster != self.cluster || seen.vmid != u64::from(vm.vmid) {
                continue;
            }
            let lying = self.lying_on(vm, &nodes);
            let serves = lying
                .iter()
                .any(|node| self.kube.serves(text(node, "/metadata/name")));
            let fresh = SeenMachine {
                calm: self.calms(now),
                relieved: self.relieved(now),
                ..SeenMachine::default()
            };
            let known = self.machines.entry(vm.vmid).or_insert(fresh);
            known.served |= serves;
            known.pool = seen.pool;
            known.started |= vm.running;
            if known.uuid.is_empty() {
                known.uuid.clone_from(&vm.uuid);
            }
            self.uuids.insert(vm.uuid.clone());
            let ready = lying.iter().any(|node| is_ready(node));
            known.worked |= ready;
            known.ready = ready.then(|| known.ready.unwrap_or(now));
            let takes = lying
                .iter()
                .any(|node| is_ready(node) && !is_starting(node));
            known.first = known.first.or(takes.then_some(now));
            if lying.is_empty() {
                if known.worked && !known.nodes.is_empty() {
                    known.lost = known.lost.or(Some(now));
                }
            } else {
                known.lost = None;
                known.cordoned = lying
                    .iter()
                    .any(|node| is_cordoned(node) || is_starting(node));
                known.open = (!known.cordoned).then(|| known.open.unwrap_or(now));
            }
            known.nodes = lying
                .iter()
                .map(|node| text(node, "/metadata/name").to_owned())
                .collect();
        }
        self.machines
            .retain(|vmid, _| ours.iter().any(|vm| vm.vmid == *vmid));
        for known in self.machines.values().filter(|known| known.worked) {
            self.failures.remove(&known.pool);
        }
    }

    /// The nodes that lie on a VM: those with its UUID, and the one whose kubelet runs in it.
    fn lying_on(&self, vm: &VmFacts, nodes: &[Arc<Value>]) -> Vec<Arc<Value>> {
        let kubelet = self.guests.as_ref().and_then(|all| all.node_on(vm.vmid));
        let lies = |node: &&Arc<Value>| {
            let own = kubelet.as_deref() == Some(text(node, "/metadata/name"));
            own || (!vm.uuid.is_empty() && system_uuid(node) == vm.uuid)
        };
        nodes.iter().filter(lies).cloned().collect()
    }
}

/// Whether a node's annotation forbids its removal.
pub(super) fn forbids(node: &Value) -> bool {
    node["metadata"]["annotations"][DISABLED] == "true"
}
