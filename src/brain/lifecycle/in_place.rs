//! Machines that work and whose VM is not as the file says: what PVE lets change while it runs is changed.

use std::sync::Arc;

use model::action::{Kind, Reason};
use model::in_place::{AT_ONCE, Difference};
use model::reasons::Warning;
use model::region::{Busy, Step};
use model::time::{Span, Time};

use crate::decision::turn::{self, DecisionBuilder};
use crate::observed::view::{MachinePhase, MachineView};

/// A write that failed is tried again after this long: a right that is missing, or a host that is away, takes its time.
const AGAIN: Span = Span::minutes(5);

/// Plans the changes, of a few machines at a time: first those that nobody tried, then the one that failed longest ago.
pub(crate) fn plan(turn: &mut DecisionBuilder<'_>) {
    let machines = std::mem::take(&mut turn.view.machines);
    let mut due = Vec::new();
    for machine in machines.values() {
        warn_not_updated(turn, machine);
        if let Some(keys) = look(turn, machine) {
            due.push((last_failed(machine), machine, keys));
        }
    }
    due.sort_by(|one, other| (one.0, one.1.name).cmp(&(other.0, other.1.name)));
    let under_way = |machine: &&MachineView<'_>| machine.seen.busy == Some(Busy::Update);
    let running = machines.values().filter(under_way).count();
    for (_, machine, keys) in due.into_iter().take(AT_ONCE.saturating_sub(running)) {
        let age = turn.view.policy.scale_up.max_view_age;
        let (target, precondition) = (turn::target(machine), turn::precondition(machine, age));
        turn.act(Kind::Update, target, precondition, Reason::Differs { keys });
    }
    turn.view.machines = machines;
}

/// What of a machine is to be written now.
fn look(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>) -> Option<Vec<Arc<str>>> {
    let vm = machine.seen.vm.as_ref()?;
    let at_rest = vm.marked && vm.lock.is_none() && !vm.ha && !machine.busy();
    let worked = machine.step().is_none_or(|step| step == Step::Done);
    if !at_rest || !worked || machine.phase != MachinePhase::Up || machine.pool.is_none() {
        return None;
    }
    let mut keys = Vec::new();
    let now = turn.now();
    for one in vm.differs.iter().filter(|one| !one.given_up()) {
        match &one.failed {
            Some(failed) if now.since(failed.at) < AGAIN => turn.wake_at(failed.at + AGAIN),
            _ => keys.push(one.key.clone()),
        }
    }
    let host = machine.region?.hosts.get(&machine.seen.host)?;
    let may = turn.holds.may_begin(&machine.seen.region).is_ok();
    // One action for a machine: what else is planned for it comes first.
    let name = machine.name;
    let planned = || {
        turn.plan
            .iter()
            .any(|action| action.target.machine == *name)
    };
    (!keys.is_empty() && may && host.answers() && !planned()).then_some(keys)
}

/// When a write to it failed last; first of all come those where none did.
fn last_failed(machine: &MachineView<'_>) -> Option<Time> {
    let differs = machine.seen.vm.iter().flat_map(|vm| &vm.differs);
    differs
        .filter_map(|one| one.failed.as_ref().map(|failed| failed.at))
        .max()
}

/// Tells of what is not written any more.
fn warn_not_updated(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>) {
    let differs = machine.seen.vm.iter().flat_map(|vm| &vm.differs);
    let differences: Vec<Difference> = differs.filter(|one| one.given_up()).cloned().collect();
    if !differences.is_empty() {
        turn.warn(Warning::NotUpdated {
            machine: machine.name.clone(),
            differences,
        });
    }
}
