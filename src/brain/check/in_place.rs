//! Rules for changing the VM of a machine that works, in place.

use std::sync::Arc;

use super::existing::{going, machine, same_node};
use super::{Case, CheckResult, CheckRule, ensure, refuse};
use model::action::{Action, Reason};
use model::in_place::AT_ONCE;
use model::region::{Busy, Host, Step};

pub(super) fn check(case: Case<'_>, action: &Action) -> CheckResult {
    let machine = machine(case, action)?;
    let node = super::existing::node(case, action)?;
    same_node(action, machine)?;
    let Some(vm) = machine.vm.as_ref().filter(|vm| vm.marked) else {
        return refuse(CheckRule::Ours, "its VM does not carry our mark");
    };
    ensure(vm.lock.is_none() && !vm.ha, CheckRule::Power, || {
        format!(
            "its VM is locked ({:?}) or belongs to the HA manager ({})",
            vm.lock, vm.ha
        )
    })?;
    let worked = machine.step.is_none_or(|(step, _)| step == Step::Done);
    ensure(
        worked && !going(node) && machine.busy.is_none(),
        CheckRule::Leaving,
        || "it is on its way up or down".to_owned(),
    )?;
    let region = case.snapshot.regions.get(&machine.region);
    let host = region.and_then(|region| region.hosts.get(&machine.host));
    ensure(host.is_some_and(Host::answers), CheckRule::Host, || {
        format!(
            "its host {} is not online, or does not answer",
            machine.host
        )
    })?;
    let Reason::Differs { keys } = &action.reason else {
        return refuse(CheckRule::InPlace, "it does not say what differs");
    };
    let open = |key: &Arc<str>| {
        let mut all = vm.differs.iter();
        all.any(|one| one.key == *key && !one.given_up())
    };
    ensure(
        !keys.is_empty() && keys.iter().all(open),
        CheckRule::InPlace,
        || format!("not all of {keys:?} differ, or were given up"),
    )
}

/// A few machines at a time, those that are being changed already among them.
pub(super) fn together(case: Case<'_>, updates: usize) -> CheckResult {
    let busy = case.snapshot.machines.values();
    let busy = busy.filter(|machine| machine.busy == Some(Busy::Update));
    let all = busy.count() + updates;
    ensure(updates == 0 || all <= AT_ONCE, CheckRule::Parallel, || {
        format!("{all} machines would be changed in place at once, {AT_ONCE} may be")
    })
}
