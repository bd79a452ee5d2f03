//! What an action begins upon: what runs already, how the last attempt ended, and what the journal has of the machine.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, advance};

use super::{Lab, lab, simulate};
use crate::controller::executor::{Ended, Executor, NotBegun, RunningAction, busy, keep_failure};
use crate::controller::turn::Turn;
use crate::model::action::{Action, Kind};
use crate::model::identity::Contradiction;
use crate::model::region::{Busy, Failure, Machine, Step};
use crate::model::shared::Shared;

/// What `begin` says of an action of this kind on the first machine. The checker refuses each of them here, as the machine is in
/// service and the view is old: it is asked last, so that a refusal of its says that nothing else stood against the action.
fn begun(executor: &mut Executor, lab: &Lab, kind: Kind) -> String {
    let turn = turn(lab);
    let action = of_kind(lab, kind);
    let now = lab.tools.clock.now();
    let policy = &lab.tools.settings.policy;
    match executor.begin(&action, &turn.snapshot, policy, now) {
        Err(NotBegun::Refused { .. }) => "refused".to_owned(),
        Err(NotBegun::Waits(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn turn(lab: &Lab) -> Arc<Turn> {
    lab.world.turns.borrow().clone().expect("it took turns")
}

fn of_kind(lab: &Lab, kind: Kind) -> Action {
    Action {
        kind,
        ..lab.removals[0].clone()
    }
}

/// Something of this kind runs on the first machine, and does not end.
fn runs(executor: &mut Executor, lab: &Lab, kind: Kind) {
    let action = of_kind(lab, kind);
    let handle = executor.tasks.spawn(std::future::pending::<Ended>());
    let running = RunningAction {
        busy: busy(&action.kind),
        action: action.clone(),
        handle,
    };
    executor.running.insert(action.target.machine, running);
}

fn failure(step: Step, lab: &Lab) -> Failure {
    Failure {
        step,
        message: "no".into(),
        advice: None,
        at: lab.tools.clock.now(),
        transient: false,
        host: None,
    }
}

/// What runs of this kind ends so, and its region is read after that.
fn ends(executor: &mut Executor, lab: &Lab, kind: &Kind, result: Result<(), Failure>) {
    runs(executor, lab, kind.clone());
    let action = of_kind(lab, kind.clone());
    executor.close(&Ended { action, result });
    let later = Instant::now() + Duration::from_millis(1);
    executor.saw(|_| Some(later));
}

#[test]
fn a_removal_alone_interrupts_and_is_interrupted_by_nothing() {
    simulate(async {
        let lab = lab("").await;
        let removal = || Kind::Remove { drain: true };
        for (running, then, may) in [
            (Kind::Continue, Kind::Continue, false),
            (Kind::Continue, Kind::Relabel, false),
            (Kind::Continue, removal(), true),
            (Kind::Update, Kind::Relabel, false),
            (Kind::Update, removal(), true),
            (removal(), removal(), false),
            (removal(), Kind::Release, false),
            (Kind::Release, Kind::Continue, false),
        ] {
            let mut executor = Executor::new(lab.tools.clone());
            let what = format!("{then:?} while {running:?} runs");
            runs(&mut executor, &lab, running);
            let said = begun(&mut executor, &lab, then);
            assert_eq!(said == "refused", may, "{what}: {said}");
            assert!(
                may || said.ends_with("is being worked on"),
                "{what}: {said}"
            );
            // What is refused interrupts nothing.
            assert_eq!(executor.running.len(), 1, "{what}");
        }
    });
}

#[test]
fn a_machine_is_left_alone_until_its_region_was_read_after_the_end() {
    simulate(async {
        let lab = lab("").await;
        let mut executor = Executor::new(lab.tools.clone());
        let machine = lab.removals[0].target.machine.clone();
        runs(&mut executor, &lab, Kind::Relabel);
        let before = Instant::now();
        advance(Duration::from_secs(1)).await;
        let action = of_kind(&lab, Kind::Relabel);
        // One that was begun before it, and was interrupted, says nothing of what runs now.
        let earlier = of_kind(&lab, Kind::Continue);
        executor.close(&Ended {
            action: earlier,
            result: Ok(()),
        });
        assert_eq!(executor.running.len(), 1);
        executor.close(&Ended {
            action,
            result: Ok(()),
        });
        assert_eq!(executor.running.len(), 0);
        executor.saw(|_| Some(before));
        assert_eq!(executor.busy().get(&machine), Some(&Busy::Up));
        let said = begun(&mut executor, &lab, Kind::Relabel);
        assert!(said.ends_with("its region is read first"), "{said}");
        advance(Duration::from_secs(1)).await;
        executor.saw(|_| Some(Instant::now()));
        assert_eq!(executor.busy().get(&machine), None);
        assert_eq!(begun(&mut executor, &lab, Kind::Relabel), "refused");
    });
}

#[test]
fn what_failed_waits_ever_longer_and_alone_until_something_works_on_the_machine() {
    simulate(async {
        let lab = lab("").await;
        let mut executor = Executor::new(lab.tools.clone());
        let kind = Kind::Relabel;
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            let failed = Err(failure(Step::Initialize, &lab));
            ends(&mut executor, &lab, &kind, failed);
            let said = begun(&mut executor, &lab, kind.clone());
            assert!(said.contains("the last attempt to relabel"), "{said}");
            // It may be taken down all the same.
            let removal = Kind::Remove { drain: true };
            assert_eq!(begun(&mut executor, &lab, removal), "refused");
            advance(Duration::from_secs(seconds - 1)).await;
            assert_ne!(begun(&mut executor, &lab, kind.clone()), "refused");
            advance(Duration::from_secs(1)).await;
            assert_eq!(begun(&mut executor, &lab, kind.clone()), "refused");
        }
        ends(&mut executor, &lab, &Kind::Start, Ok(()));
        let failed = Err(failure(Step::Initialize, &lab));
        ends(&mut executor, &lab, &kind, failed);
        let said = begun(&mut executor, &lab, kind.clone());
        assert!(said.ends_with("the next is in 10 s"), "{said}");
        // What was long ago is forgotten.
        advance(Duration::from_mins(10)).await;
        let failed = Err(failure(Step::Initialize, &lab));
        ends(&mut executor, &lab, &Kind::Start, failed);
        assert_eq!(executor.cooling.len(), 1);
    });
}

#[test]
fn what_runs_ends_with_the_lease() {
    simulate(async {
        let lab = lab("").await;
        let mut executor = Executor::new(lab.tools.clone());
        runs(&mut executor, &lab, Kind::Relabel);
        executor.stop();
        assert!(executor.busy().is_empty());
        let ended = executor.tasks.join_next().await.expect("it ran");
        assert!(ended.expect_err("it was ended").is_cancelled());
        runs(&mut executor, &lab, Kind::Relabel);
        executor.shut_down().await;
        assert!(executor.busy().is_empty() && executor.tasks.is_empty());
    });
}

/// The first machine as the view shows it, changed so.
fn seen(lab: &Lab, change: impl FnOnce(&mut Machine)) -> Machine {
    let name = &lab.removals[0].target.machine;
    let mut machine = turn(lab).snapshot.machines[name].clone();
    change(&mut machine);
    machine
}

/// The journal was lost with the host: what it must have of a machine to go on is in the mark and in the view.
#[test]
fn a_machine_without_an_entry_gets_one_by_what_is_seen_of_it() {
    simulate(async {
        let lab = lab("").await;
        let executor = Executor::new(lab.tools.clone());
        let action = of_kind(&lab, Kind::Continue);
        let (journal, name) = (&lab.tools.journal, &action.target.machine);
        let now = lab.tools.clock.now();
        let entry = |machine: &Machine| {
            journal.remove(name).expect("removed");
            let made = executor.entry(&action, Some(machine), now);
            let made = made.expect("written").expect("an entry");
            assert_eq!(journal.get(name).as_ref(), Some(&made));
            assert_eq!((made.reached, &made.target.node), (None, &None));
            made
        };
        let off = |machine: &mut Machine| {
            let mut vm = machine.vm.clone().expect("it is there");
            vm.running = false;
            machine.vm = Some(vm);
        };
        let uuid = seen(&lab, |_| ()).vm.and_then(|vm| vm.uuid);
        assert!(uuid.is_some());
        let made = entry(&seen(&lab, |_| ()));
        assert!(made.marked && made.configured);
        assert_eq!((made.step, &made.uuid), (Step::Register, &uuid));
        // A node shows that it was started once.
        let made = entry(&seen(&lab, off));
        assert_eq!((made.step, made.configured), (Step::Register, true));
        // It comes up: what PVE shows is its UUID, unless a node says otherwise or the VM has not its mark.
        let made = entry(&seen(&lab, |machine| machine.node = None));
        assert_eq!((made.step, made.configured), (Step::Register, true));
        assert_eq!(made.uuid, uuid);
        let doubted = entry(&seen(&lab, |machine| {
            machine.node = None;
            machine.contradiction = Some(Contradiction {
                nodes: vec!["other".into()],
                why: "two nodes".into(),
            });
        }));
        let bare = entry(&seen(&lab, |machine| {
            machine.node = None;
            let mut vm = machine.vm.clone().expect("it is there");
            vm.marked = false;
            machine.vm = Some(vm);
        }));
        assert_eq!((doubted.uuid, bare.uuid), (None, None));
        let made = entry(&seen(&lab, |machine| {
            machine.node = None;
            off(machine);
        }));
        assert_eq!((made.step, made.configured), (Step::Configure, false));
        let made = entry(&seen(&lab, |machine| machine.vm = None));
        assert!(!made.marked);
    });
}

#[test]
fn an_entry_follows_its_vm_and_is_no_other_clusters() {
    simulate(async {
        let lab = lab("").await;
        let executor = Executor::new(lab.tools.clone());
        let mut action = of_kind(&lab, Kind::Continue);
        action.target.host = "elsewhere".into();
        let name = action.target.machine.clone();
        let now = lab.tools.clock.now();
        let machine = seen(&lab, |_| ());
        let entry = executor.entry(&action, Some(&machine), now);
        let entry = entry.expect("kept").expect("an entry");
        assert_eq!(&*entry.target.host, "elsewhere");
        assert_eq!(lab.tools.journal.get(&name), Some(entry));
        let foreign = seen(&lab, |machine| {
            let mut mark = (*machine.mark).clone();
            mark.cluster = "0b5f3a6e/other".into();
            machine.mark = Shared::from(mark);
        });
        match executor.entry(&action, Some(&foreign), now) {
            Err(NotBegun::Journal(why)) => assert!(why.contains("sets it aside"), "{why}"),
            other => panic!("{other:?}"),
        }
    });
}

/// A machine that failed on its way up, and whose removal failed as well, has failed on its way up.
#[test]
fn a_failed_removal_does_not_hide_that_the_machine_never_came_up() {
    simulate(async {
        let lab = lab("").await;
        let name = &lab.removals[0].target.machine;
        let at_start = lab.tools.journal.get(name).expect("an entry");
        for (before, entry_step, after, kept) in [
            (None, Step::Join, Step::Drain, Step::Drain),
            (Some(Step::Join), Step::Join, Step::Drain, Step::Join),
            (Some(Step::Join), Step::Join, Step::Start, Step::Start),
            // It came into service since.
            (Some(Step::Join), Step::Done, Step::Drain, Step::Drain),
            (Some(Step::Drain), Step::Join, Step::Destroy, Step::Destroy),
        ] {
            let mut entry = at_start.clone();
            entry.step = entry_step;
            entry.failure = before.map(|step| failure(step, &lab));
            keep_failure(&mut entry, &failure(after, &lab));
            let left = entry.failure.expect("one of them").step;
            assert_eq!(left, kept, "{before:?} {entry_step:?} {after:?}");
        }
    });
}
