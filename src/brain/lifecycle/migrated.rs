//! Machines that somebody migrated, PVE's own balancing of load for one: the zone of their nodes follows.

use std::sync::Arc;

use model::action::{Kind, Reason};
use model::policy::{STARTUP_TAINT, ZONE_LABEL};

use crate::decision::turn::{self, DecisionBuilder};
use crate::observed::view::{MachinePhase, MachineView};

/// Plans the zone labels of nodes whose VM has moved to another host.
pub(crate) fn plan(turn: &mut DecisionBuilder<'_>) {
    let machines = std::mem::take(&mut turn.view.machines);
    for machine in machines.values() {
        look(turn, machine);
    }
    turn.view.machines = machines;
}

fn look(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>) {
    let seen = machine.seen;
    let at_rest = |vm: &model::region::MachineVm| vm.marked && vm.lock.is_none();
    let still = seen.vm.as_ref().is_some_and(at_rest) && !machine.busy();
    if machine.phase != MachinePhase::Up || !still {
        return;
    }
    let (Some((_, node)), Some(region)) = (machine.node, machine.region) else {
        return;
    };
    // One that is to be opened anew gets the labels of its host with that.
    if node.taints.iter().any(|taint| *taint.key == *STARTUP_TAINT) {
        return;
    }
    let Some(says) = node.labels.get(ZONE_LABEL) else {
        return;
    };
    // A zone that no host stands for is somebody's own; one that the file called otherwise before stays as it is.
    let zones = turn.view.policy.regions.get(&seen.region);
    let zones = zones.map(|policy| policy.zones).unwrap_or_default();
    let means = |host: &Arc<str>| *says == *host || *says == zones.zone_of(&seen.region, host);
    let moved = !means(&seen.host)
        && region.hosts.keys().any(means)
        && region.hosts.contains_key(&seen.host);
    if !moved || turn.holds.may_begin(&seen.region).is_err() {
        return;
    }
    let age = turn.view.policy.scale_up.max_view_age;
    let reason = Reason::Migrated { from: says.clone() };
    let (target, precondition) = (turn::target(machine), turn::precondition(machine, age));
    turn.act(Kind::Relabel, target, precondition, reason);
}
