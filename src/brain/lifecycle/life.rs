//! Machines under way: they go on, or are cleared away when they failed.
//!
//! A machine whose clone was never seen, or whose placeholder stands locked while nobody works on
//! it, is first continued: the executor looks for the clone task and follows it, or says that it
//! failed. Only a placeholder that nobody followed for a whole quarantine is cleared. What a removal
//! of ours left that was cut short needs none: nothing is in it any more.

use model::action::{Kind, Reason};
use model::cluster::ObjectKey;
use model::foreign::ForeignText;
use model::guard::{self, SCALE_DOWN_DISABLED, disables_scale_down};
use model::mark::Ownership;
use model::policy::STARTUP_TAINT;
use model::reasons::Warning;
use model::region::Step;
use model::time::{Span, Time};

use crate::decision::turn::{self, DecisionBuilder};
use crate::observed::view::{MachinePhase, MachineView, has_taint};

/// One step to take with a machine, and why.
type Move = Option<(Kind, Reason)>;

/// Plans what to do with every machine that is not a working node.
pub(crate) fn plan(turn: &mut DecisionBuilder<'_>) {
    let machines = std::mem::take(&mut turn.view.machines);
    for machine in machines.values() {
        if let Some((kind, reason)) = choose_move(turn, machine) {
            let age = match kind {
                Kind::Continue => turn.view.policy.scale_up.max_view_age,
                _ => turn.view.policy.scale_down.max_view_age,
            };
            let mut precondition = turn::precondition(machine, age);
            if kind == (Kind::Remove { drain: true }) {
                precondition.pods = pods_that_leave(turn, machine);
            }
            turn.act(kind, turn::target(machine), precondition, reason);
        }
    }
    turn.view.machines = machines;
}

/// The pods that are evicted from a node that never took pods for good. Some came all the same: those that tolerate every taint are bound to
/// a node as soon as it is registered.
fn pods_that_leave(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> Vec<ObjectKey> {
    let pods = machine.node.map(|(node, _)| turn.view.pods(node));
    let pods = pods.unwrap_or_default().iter();
    let leave = pods.filter(|(_, pod)| !pod.mirror && !guard::is_daemon(&pod.shape));
    leave.map(|(key, _)| (*key).clone()).collect()
}

fn choose_move(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>) -> Move {
    let name = machine.name;
    if let MachinePhase::Untouchable(why) = &machine.phase {
        if turn.holds.unread_in(&machine.seen.region).is_none() {
            turn.warn(Warning::LeftAlone {
                machine: name.clone(),
                left_alone: why.clone(),
            });
        }
        return None;
    }
    if machine.pool.is_none() {
        turn.warn(Warning::PoolGone {
            machine: name.clone(),
            pool: machine.pool_name().into(),
        });
        return None;
    }
    if machine.phase == MachinePhase::Coming {
        // One moment later it is overdue.
        let limit = turn.view.policy.scale_up.max_provision_time;
        let left = Span(limit.0.saturating_sub(machine.worked.0).max(0));
        turn.wake_at(turn.now() + left + Span(1));
    }
    if machine.busy() {
        return None;
    }
    match machine.phase {
        MachinePhase::Coming => continue_coming(turn, machine),
        MachinePhase::Failed | MachinePhase::Overdue => clear_failed(turn, machine),
        // The journal of a working node is one step behind: let it catch up.
        MachinePhase::Up if machine.step().is_some_and(|step| step < Step::Done) => {
            continue_machine(turn, machine)
        }
        MachinePhase::Leaving => continue_leaving(turn, machine),
        MachinePhase::Up
        | MachinePhase::NoNode
        | MachinePhase::NoVm
        | MachinePhase::Untouchable(_) => None,
    }
}

/// The locked, markless VM that a clone leaves until it is done, or a removal until it is.
fn is_placeholder(machine: &MachineView<'_>) -> bool {
    machine.seen.vm.as_ref().is_some_and(|vm| !vm.marked)
}

fn continue_machine(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> Move {
    turn.holds
        .may_continue(&machine.seen.region)
        .is_ok()
        .then_some((Kind::Continue, Reason::Unfinished))
}

fn continue_coming(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>) -> Move {
    if !machine.seen.intended && machine.seen.vm.is_none() {
        return clear_failed(turn, machine);
    }
    if is_taken_by_another(machine) {
        let message = format!("another machine has its VMID {}", machine.seen.mark.vmid);
        // A reading from before it was decided on tells of one that may have gone since.
        let early = turn.view.snapshot.was_read_before(machine.seen);
        let may = !early && turn.holds.may_clear(&machine.seen.region).is_ok();
        let reason = Reason::Failed {
            message: message.into(),
        };
        return may.then_some((Kind::DropIntent, reason));
    }
    if is_placeholder(machine) {
        return delete_placeholder(turn, machine).or_else(|| continue_machine(turn, machine));
    }
    continue_machine(turn, machine)
}

/// Whether the VM with the VMID that is intended for a machine is another machine's. A leader that stood still while another one took
/// the VMID finds that, and would wait for a clone that nobody may make.
fn is_taken_by_another(machine: &MachineView<'_>) -> bool {
    let seen = machine.seen;
    let vm = machine
        .region
        .and_then(|region| region.vms.get(&seen.mark.vmid));
    let Some(Ownership::Marked(written)) = vm.and_then(|vm| vm.ownership.as_ref()) else {
        return false;
    };
    let another = written.machine != seen.mark.machine && written.vmid == seen.mark.vmid;
    another && seen.vm.is_none()
}

fn clear_failed(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>) -> Move {
    let region = &machine.seen.region;
    let may_clear = turn.holds.may_clear(region).is_ok();
    if is_placeholder(machine) {
        return delete_placeholder(turn, machine);
    }
    if let Some(until) = machine.kept.filter(|_| !planted!(FailedNotKept)) {
        turn.wake_at(until);
        turn.warn(tell_of_kept(machine, until));
        return None;
    }
    // Without a journal it may be a working machine whose node just went: wait and see.
    let unsure = machine.seen.step.is_none() || is_known_by_mark_alone(machine);
    if unsure {
        let good = turn.holds.may_observe_in(region);
        if !turn.quarantine_over(&format!("machine/{}", machine.name), good) {
            return None;
        }
    }
    if !may_clear {
        return None;
    }
    let message = describe_failure(machine, turn.view.policy.scale_up.max_provision_time);
    // Somebody may want to look into it.
    if machine
        .node
        .is_some_and(|(_, node)| disables_scale_down(node))
    {
        turn.warn(Warning::FailedAndAnnotated {
            machine: machine.name.clone(),
            failure: message,
            annotation: SCALE_DOWN_DISABLED.into(),
        });
        return None;
    }
    let reason = Reason::Failed { message };
    if machine.seen.vm.is_none() {
        return Some((Kind::DropIntent, reason));
    }
    let drain = machine.node.is_some();
    Some((Kind::Remove { drain }, reason))
}

/// Whether a machine that runs is known by its mark alone, and no node of it has been seen since: its journal was lost,
/// and the one of now was begun with its registration, whether it had been a node before or not.
fn is_known_by_mark_alone(machine: &MachineView<'_>) -> bool {
    let runs = machine.seen.vm.as_ref();
    let runs = runs.is_some_and(|vm| vm.marked && vm.running);
    runs && machine.seen.terms.is_none()
        && machine.node.is_none()
        && machine.step() == Some(Step::Register)
}

/// What is to be said of a failed machine that is kept: until when, and where it is.
fn tell_of_kept(machine: &MachineView<'_>, until: Time) -> Warning {
    let failure = machine.seen.failure.as_ref();
    Warning::FailedAndKept {
        machine: machine.name.clone(),
        vmid: machine.seen.mark.vmid,
        host: machine.seen.host.clone(),
        failure: failure.map_or_else(ForeignText::default, |failure| failure.message.clone()),
        until,
    }
}

fn describe_failure(machine: &MachineView<'_>, limit: Span) -> ForeignText {
    match &machine.seen.failure {
        Some(failure) => failure.message.clone(),
        None => format!("not initialised after {limit}").into(),
    }
}

fn delete_placeholder(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>) -> Move {
    let region = &machine.seen.region;
    let good = turn.holds.may_observe_in(region);
    let vm = machine.seen.vm.as_ref();
    let (over, reason) = if vm.is_some_and(|vm| vm.lock.as_deref() == Some("destroyed")) {
        (good, Reason::NotWanted)
    } else {
        let key = format!("placeholder/{}", machine.name);
        (turn.quarantine_over(&key, good), Reason::DeadClone)
    };
    (over && machine.seen.intended && turn.holds.may_clear(region).is_ok())
        .then_some((Kind::DeletePlaceholder, reason))
}

/// A removal that was begun and that no task works on. It continues where it cannot be taken back. The others
/// are working nodes with our leaving taint: scale-down decides about them again.
fn continue_leaving(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>) -> Move {
    if is_placeholder(machine) {
        return delete_placeholder(turn, machine);
    }
    let never_worked = match machine.node {
        Some((_, node)) => has_taint(node, STARTUP_TAINT),
        None => true,
    };
    let shut = machine.step() >= Some(Step::Shutdown);
    if !(never_worked || shut) || turn.holds.may_clear(&machine.seen.region).is_err() {
        return None;
    }
    let kind = match (&machine.seen.vm, machine.node) {
        (Some(_), node) => Kind::Remove {
            drain: node.is_some(),
        },
        (None, Some(_)) => Kind::DeleteNode,
        (None, None) => Kind::DropIntent,
    };
    Some((kind, Reason::NotWanted))
}
