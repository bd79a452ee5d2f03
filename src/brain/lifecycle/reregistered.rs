//! Nodes that somebody deleted and whose kubelets registered them anew: they bear the startup taint again, and no pod may come.

use model::action::{Kind, Reason};
use model::cluster::ReadyStatus;
use model::policy::STARTUP_TAINT;
use model::region::{MachineVm, Step};

use crate::decision::turn::{self, DecisionBuilder};
use crate::observed::view::{MachinePhase, MachineView};

/// Plans that they are labelled and opened as they were when they first came.
pub(crate) fn plan(turn: &mut DecisionBuilder<'_>) {
    let machines = std::mem::take(&mut turn.view.machines);
    for machine in machines.values() {
        look(turn, machine);
    }
    turn.view.machines = machines;
}

fn look(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>) {
    let seen = machine.seen;
    let at_rest = |vm: &MachineVm| vm.marked && vm.lock.is_none();
    let still = seen.vm.as_ref().is_some_and(at_rest) && !machine.busy();
    let worked = machine.step() == Some(Step::Done);
    let Some((_, node)) = machine.node else {
        return;
    };
    let tainted = node.taints.iter().any(|taint| *taint.key == *STARTUP_TAINT);
    let closed = tainted && node.ready.status == ReadyStatus::True && node.deletion.is_none();
    if machine.phase != MachinePhase::Up || !worked || !still || !closed {
        return;
    }
    if turn.holds.may_begin(&seen.region).is_err() {
        return;
    }
    let age = turn.view.policy.scale_up.max_view_age;
    let (target, precondition) = (turn::target(machine), turn::precondition(machine, age));
    turn.act(Kind::Relabel, target, precondition, Reason::Reregistered);
}
