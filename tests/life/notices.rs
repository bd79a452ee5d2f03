//! What people are told of days that go wrong: the conditions that the last turn shows.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::controller::conditions::{ConditionInput, FoundConditions, find};
use pve_autoscaler::model::condition::ConditionKind;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};

use crate::HASTY;
use crate::common::{Scene, simulate};

/// What is seen after a day of a scene; `later` after its last turn.
fn seen(scene: &Scene, later: Span) -> FoundConditions {
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    find(ConditionInput {
        turn: Some(&turn),
        problems: &BTreeMap::new(),
        not_recording: false,
        failing: &BTreeMap::new(),
        now: turn.at + later,
    })
}

fn keys(seen: &FoundConditions) -> Vec<&str> {
    seen.there.keys().map(String::as_str).collect()
}

fn pods(number: u32) -> Workload {
    Workload::visit(
        "web",
        number,
        WorkloadPods::of("1", "1Gi"),
        Span::minutes(60),
    )
}

#[test]
fn a_day_that_goes_well_tells_nothing() {
    simulate(async {
        let scene = Scene::new(1, HASTY, GuestSpec::default());
        scene.live(None, 0, pods(1), Duration::from_mins(4)).await;
        let seen = seen(&scene, Span::ZERO);
        assert_eq!(keys(&seen), [] as [&str; 0]);
        assert!(seen.unknown.is_empty() && !seen.led_elsewhere, "{seen:?}");
    });
}

#[test]
fn machines_that_never_join_are_a_pool_that_backs_off_and_pods_that_wait() {
    simulate(async {
        let guests = GuestSpec {
            fates: (0..30)
                .map(|number| (number, GuestFault::JoinFails))
                .collect(),
            ..GuestSpec::default()
        };
        let scene = Scene::new(2, HASTY, guests);
        scene.live(None, 0, pods(1), Duration::from_mins(8)).await;
        let found = seen(&scene, Span::ZERO);
        let pool = found.there.values();
        let pool: Vec<_> = pool
            .filter(|one| one.kind == ConditionKind::PoolBacksOff)
            .collect();
        assert_eq!(pool.len(), 1, "{:?}", found.there);
        assert!(!pool[0].details.is_empty() && pool[0].todo.contains("retry"));
        let held = found.there.get("pods_held").expect("its pod waits");
        assert!(
            held.since.is_some() && held.details.contains("web"),
            "{held:?}"
        );
        // Whoever reads of the pod need not look for another notice to know what failed.
        let failure = &*pool[0].details;
        assert!(held.details.contains(failure), "{held:?}: {failure}");
        // Three minutes without a turn: how things stand is not known, and so nothing is over.
        let later = seen(&scene, Span::minutes(3));
        assert_eq!(keys(&later), [] as [&str; 0]);
        assert!(later.unknown.contains(&ConditionKind::PoolBacksOff));
    });
}

#[test]
fn more_pods_than_the_limits_allow_are_told_as_one() {
    simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        scene.live(None, 0, pods(60), Duration::from_mins(8)).await;
        let found = seen(&scene, Span::ZERO);
        let held = found.there.get("pods_held").expect("some wait");
        assert!(
            held.summary
                .ends_with("pods wait for a node that may not be made."),
            "{held:?}"
        );
        assert!(held.details.contains("more"), "{held:?}");
    });
}

#[test]
fn a_pause_is_a_pause_and_not_a_fault() {
    simulate(async {
        let scene = Scene::new(4, HASTY, GuestSpec::default());
        std::fs::write(scene.state().join("paused"), "lunch\nBcc: x").expect("written");
        scene.live(None, 0, pods(1), Duration::from_mins(2)).await;
        let found = seen(&scene, Span::ZERO);
        assert!(found.there.contains_key("paused"), "{found:?}");
        assert!(!found.there.contains_key("held_back"), "{found:?}");
        assert!(!found.there["paused"].details.contains('\n'));
    });
}

#[test]
fn problems_of_the_daemon_are_conditions_without_a_turn() {
    let problems = BTreeMap::from([
        ("loop", "cannot write /var/lib/x".to_owned()),
        ("notifications", "ops cannot be sent".to_owned()),
        ("journal", "a file".to_owned()),
        ("web", "an address".to_owned()),
    ]);
    let failing = BTreeMap::from([("ops".into(), "it answered 500".to_owned())]);
    let seen = find(ConditionInput {
        turn: None,
        problems: &problems,
        not_recording: true,
        failing: &failing,
        now: pve_autoscaler::model::time::Time(0),
    });
    assert_eq!(
        keys(&seen),
        [
            "daemon_files/journal",
            "daemon_files/web",
            "loop_ended",
            "not_recording",
            "notification_fails/ops"
        ]
    );
    for kind in [
        ConditionKind::NoLeader,
        ConditionKind::PodsHeld,
        ConditionKind::ViewOld,
    ] {
        assert!(seen.unknown.contains(&kind), "{kind:?}");
    }
}
