//! Failed machines that their pool keeps for a while, to be looked into (`keep_failed`).

use std::collections::BTreeMap;
use std::sync::Arc;

use model::policy::STARTUP_TAINT;
use model::time::Time;

use super::view::{MachinePhase, MachineView, has_taint};
use crate::index::{IndexVec, MachineIndex};

/// When a machine failed, its name, its index among all machines, and until when it is kept if its pool keeps it.
type FailedMachine<'a> = (Time, &'a Arc<str>, MachineIndex, Time);

/// Notes at each machine that is kept until when it is. Of each pool the machines that failed first are kept, as many as
/// it says, so that a later failure takes the place of none of them.
pub(super) fn note<'a>(machines: &mut IndexVec<MachineIndex, MachineView<'a>>, now: Time) {
    let mut of_pools: BTreeMap<&'a str, Vec<FailedMachine<'a>>> = BTreeMap::new();
    for (index, machine) in machines.indexed() {
        if let Some((failed, until)) = span(machine).filter(|(_, until)| *until > now) {
            let of_pool = of_pools.entry(machine.pool_name()).or_default();
            of_pool.push((failed, machine.name, index, until));
        }
    }
    for (_, mut failed) in of_pools {
        failed.sort_unstable();
        let most = failed
            .first()
            .and_then(|(_, _, index, _)| machines[*index].pool);
        let most = most.and_then(|pool| pool.keep_failed);
        let most = most.map_or(0, |keep| keep.machines as usize);
        for (_, _, index, until) in failed.into_iter().take(most) {
            machines[index].kept = Some(until);
        }
    }
}

/// When a machine failed and until when it is kept if its pool keeps it: by its own fault; its VM runs with its mark, and its node, if one
/// came, was never open to pods. A VM that somebody switched off is looked into no more; what an unreachable host shows
/// of its VMs says nothing.
fn span(machine: &MachineView<'_>) -> Option<(Time, Time)> {
    let keep = machine.pool?.keep_failed?;
    let failure = machine.seen.failure.as_ref().filter(|it| !it.transient)?;
    let vm = machine.seen.vm.as_ref()?;
    let hosts = machine.region.map(|region| &region.hosts);
    let host = hosts.and_then(|hosts| hosts.get(&machine.seen.host));
    let on = vm.running || host.is_none_or(|host| !host.answers());
    let closed = machine
        .node
        .is_none_or(|(_, node)| node.deletion.is_none() && has_taint(node, STARTUP_TAINT));
    let kept = machine.phase == MachinePhase::Failed && vm.marked && on && closed;
    kept.then(|| (failure.at, failure.at + keep.how_long))
}
