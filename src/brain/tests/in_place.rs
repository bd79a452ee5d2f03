//! Machines whose VM is not as the file says: when it is changed, and how many at a time.

use super::lab::Lab;
use super::lifecycle::{kinds, pool};
use model::action::{Kind, Reason};
use model::in_place::{AT_ONCE, Difference, FailedWrite};
use model::region::{Busy, MachineVm, Step};
use model::time::{Span, Time};

/// What differs in a test.
pub(crate) fn differs(key: &str, failed: Option<(Time, bool)>) -> Difference {
    Difference {
        key: key.into(),
        is: "a".into(),
        wanted: "b".into(),
        failed: failed.map(|(at, for_good)| FailedWrite {
            why: "PVE made \"c\" of it".into(),
            at,
            for_good,
        }),
    }
}

fn vm(lab: Lab, name: &str, edit: impl FnOnce(&mut MachineVm)) -> Lab {
    lab.edit_machine(name, |machine| edit(machine.vm.as_mut().expect("a VM")))
}

/// A working machine that a pod keeps, and what of it differs.
fn one(found: Vec<Difference>) -> Lab {
    let lab = pool().ours("m", "p", "one").bound("web", "m", 1900, 1);
    vm(lab, "m", |vm| vm.differs = found)
}

#[test]
fn what_differs_is_written_once() {
    let mut lab = one(vec![differs("tags", None), differs("startup", None)]);
    let decision = lab.turn();
    assert_eq!(kinds(&decision), [Kind::Update]);
    let keys = vec!["tags".into(), "startup".into()];
    assert_eq!(decision.plan[0].reason, Reason::Differs { keys });
    assert_eq!(kinds(&lab.turn()), [], "the executor is at it");
    lab.settle();
    assert_eq!(kinds(&lab.turn()), []);
    assert_eq!(lab.decide().report.warnings, [""; 0]);
}

#[test]
fn a_machine_that_is_not_at_rest_is_left_alone() {
    let differing = || one(vec![differs("tags", None)]);
    assert_eq!(kinds(&differing().decide()), [Kind::Update]);
    let locked = vm(differing(), "m", |vm| vm.lock = Some("backup".into()));
    assert_eq!(kinds(&locked.decide()), []);
    let ha = vm(differing(), "m", |vm| vm.ha = true);
    assert_eq!(kinds(&ha.decide()), []);
    let busy = differing().edit_machine("m", |machine| machine.busy = Some(Busy::Up));
    assert_eq!(kinds(&busy.decide()), []);
    let behind = differing().edit_machine("m", |machine| {
        machine.step = Some((Step::Initialize, machine.mark.created));
    });
    assert_eq!(kinds(&behind.decide()), [Kind::Continue]);
    let mut away = differing();
    let region = away.snapshot.regions.get_mut("home").expect("home");
    for host in region.hosts.values_mut() {
        host.online = false;
    }
    assert_eq!(kinds(&away.decide()), []);
    let mut unknown = differing();
    unknown.policy.pools.clear();
    assert_eq!(
        kinds(&unknown.decide()),
        [],
        "nobody says what it is to have"
    );
    let mut paused = differing();
    paused.snapshot.paused = Some("tea".into());
    assert_eq!(kinds(&paused.decide()), []);
}

#[test]
fn a_machine_that_is_removed_is_not_written_first() {
    let lab = pool().ours("m", "p", "one");
    let mut lab = vm(lab, "m", |vm| vm.differs = vec![differs("tags", None)]);
    assert_eq!(
        kinds(&lab.turn()),
        [Kind::Update],
        "not unneeded for long yet"
    );
    let lab = lab.after(Span::minutes(11));
    let lab = lab.edit_machine("m", |machine| machine.busy = None);
    assert_eq!(kinds(&lab.decide()), [Kind::Remove { drain: true }]);
}

#[test]
fn a_few_machines_are_changed_at_a_time_and_none_starves() {
    let names: Vec<String> = (0..9).map(|number| format!("m{number}")).collect();
    let mut lab = pool();
    for name in &names {
        lab = lab
            .ours(name, "p", "one")
            .bound(&format!("web-{name}"), name, 1900, 1);
        lab = vm(lab, name, |vm| vm.differs = vec![differs("tags", None)]);
    }
    let at = lab.now;
    // The first write failed a while ago: it comes after those that nobody tried.
    let failed = at - Span::minutes(6);
    lab = vm(lab, "m0", |vm| {
        vm.differs = vec![differs("tags", Some((failed, false)))];
    });
    let planned = |lab: &mut Lab| -> Vec<String> {
        let plan = lab.turn().plan;
        plan.iter()
            .map(|action| action.target.machine.to_string())
            .collect()
    };
    assert_eq!(planned(&mut lab), ["m1", "m2", "m3", "m4", "m5"]);
    assert_eq!(planned(&mut lab), [""; 0], "{AT_ONCE} are under way");
    lab = lab.edit_machine("m3", |machine| machine.busy = None);
    lab = vm(lab, "m3", |vm| vm.differs.clear());
    assert_eq!(planned(&mut lab), ["m6"]);
    lab.settle();
    assert_eq!(planned(&mut lab), ["m7", "m8", "m0"]);
}

#[test]
fn what_failed_is_tried_again_after_a_while_and_what_pve_does_not_keep_never() {
    let mut lab = one(vec![differs("tags", None)]);
    let at = lab.now;
    lab = vm(lab, "m", |vm| {
        vm.differs = vec![differs("tags", Some((at, false)))];
    });
    let decision = lab.decide();
    assert_eq!(kinds(&decision), []);
    assert_eq!(decision.wake, Some(at + Span::minutes(5)));
    let later = lab.after(Span::minutes(5));
    assert_eq!(kinds(&later.decide()), [Kind::Update]);

    let lab = one(vec![
        differs("tags", Some((at, true))),
        differs("onboot", None),
    ]);
    let decision = lab.after(Span::minutes(1800)).decide();
    let keys = vec!["onboot".into()];
    assert_eq!(decision.plan[0].reason, Reason::Differs { keys });
    let told = "machine m: tags is a, the file says b (not written again: PVE made \"c\" of it); change the file or the VM";
    assert_eq!(decision.report.warnings, [told]);
}
