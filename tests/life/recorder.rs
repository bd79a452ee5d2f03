//! The record of whole simulated days: everything that was done is told, and the same program decides the same anew.

use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::record::replay::{ReplayOutcome, Replayed, replay};
use pve_autoscaler::record::{Deed, DeedKind, Filter, History, Recorded};
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};

use crate::common::{Scene, simulate};
use crate::{HASTY, visit};

fn recording() -> String {
    format!("{HASTY}\n[recorder]\nenabled = true\n")
}

fn history(scene: &Scene) -> History {
    History::open(&scene.state().join("record")).expect("there is a record")
}

fn deeds(scene: &Scene) -> Vec<Deed> {
    let history = history(scene);
    let told = history
        .find_deeds(&Filter::default(), 10_000)
        .expect("read");
    assert_eq!(told.damage, Vec::<String>::new());
    for deed in &told.deeds {
        let program = deed.program.as_deref();
        assert_eq!(program, Some(env!("CARGO_PKG_VERSION")), "{deed:?}");
    }
    told.deeds
}

fn outcomes(scene: &Scene, decide: impl Fn(&Recorded) -> ReplayOutcome) -> Vec<ReplayOutcome> {
    let mut outcomes = Vec::new();
    let history = history(scene);
    let damage = history
        .decisions(&Filter::default(), |recorded| {
            outcomes.push(decide(recorded));
        })
        .expect("read");
    assert_eq!(damage, Vec::<String>::new());
    outcomes
}

/// Machines that come and go with several workloads, with a stop and a start in between.
fn day(seed: u64) -> Scene {
    simulate(async {
        let scene = Scene::new(seed, &recording(), GuestSpec::default());
        scene
            .live_and_stop(Duration::from_secs(100), visit(), Duration::from_mins(16))
            .await;
        let more = Workload::visit("batch", 5, WorkloadPods::of("1", "1Gi"), Span::seconds(120));
        scene.live(None, 2, more, Duration::from_mins(8)).await;
        scene.nothing_is_left();
        scene
    })
}

#[test]
fn a_day_is_told_and_the_same_program_decides_the_same() {
    let scene = day(3);
    let deeds = deeds(&scene);
    let planned = |wanted: &str| {
        let names = deeds.iter().filter_map(|deed| match &deed.kind {
            DeedKind::Planned {
                action, machine, ..
            } if action == wanted => Some(machine),
            _ => None,
        });
        names.collect::<std::collections::BTreeSet<_>>().len()
    };
    let ended = |wanted: &str| {
        let is = |deed: &&Deed| matches!(&deed.kind, DeedKind::Ended { action, failure: None, .. } if action == wanted);
        deeds.iter().filter(is).count()
    };
    let made = scene.machines_made();
    assert!(made >= 3, "{made} machines make no day");
    assert_eq!(planned("create"), made);
    assert_eq!(ended("create") + ended("continue"), made);
    assert_eq!(ended("remove"), made);
    let why = deeds.iter().find_map(|deed| match &deed.kind {
        DeedKind::Planned { why, pool, .. } => Some((why.clone(), pool.clone())),
        _ => None,
    });
    let (why, pool) = why.expect("something was planned");
    assert!(
        why.starts_with("1 pod fits nowhere else: default/web-"),
        "{why}"
    );
    assert_eq!(pool.as_deref(), Some("general"));
    for deed in &deeds {
        if let DeedKind::Planned {
            action,
            host,
            chosen_host,
            ..
        } = &deed.kind
        {
            let chosen = chosen_host.as_ref().map(|chosen| &chosen.host);
            assert_eq!(
                chosen,
                Some(host).filter(|_| action == "create"),
                "{deed:?}"
            );
        }
    }
    let machines = history(&scene).machines(&Filter::default()).expect("read");
    assert_eq!(machines.len(), made);
    for machine in &machines {
        let steps: Vec<&str> = machine.phases.iter().map(|phase| &*phase.step).collect();
        for step in ["clone", "start", "join", "initialize", "drain", "destroy"] {
            assert!(steps.contains(&step), "{step} of {machine:?}");
        }
        assert!(
            machine.working.is_some() && machine.removed.is_some(),
            "{machine:?}"
        );
    }
    let points = history(&scene)
        .points(&Filter::default(), 50)
        .expect("read");
    assert!(points.len() <= 50 && points.iter().any(|point| point.pending() > 0));
    assert!(
        points.iter().any(|point| point.wanted() > point.nodes()),
        "{points:?}"
    );
    assert!(points.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let outcomes = outcomes(&scene, |recorded| replay(recorded, None));
    assert!(
        outcomes.len() > 40,
        "{} decisions make no day",
        outcomes.len()
    );
    for outcome in &outcomes {
        assert_eq!(outcome.replayed, Replayed::Same, "{outcome:#?}");
    }
}

#[test]
fn another_configuration_decides_otherwise_and_it_is_told_where() {
    let scene = day(5);
    let policy = |from: &str, to: &str| {
        let changed = HASTY.replace(from, to);
        assert_ne!(changed, HASTY);
        let settings = pve_autoscaler::config::parse(&changed, "another configuration");
        settings.unwrap_or_else(|errors| panic!("{errors}")).policy
    };
    let none = policy("max = 3", "max = 0");
    let differ = outcomes(&scene, |recorded| replay(recorded, Some(&none)));
    let plans: Vec<&str> = differ
        .iter()
        .filter_map(|outcome| match &outcome.replayed {
            Replayed::Differs { differences, .. } => Some(differences),
            _ => None,
        })
        .flatten()
        .map(|difference| difference.at.as_str())
        .collect();
    assert!(plans.iter().any(|at| at.starts_with("plan")), "{plans:?}");
    assert!(
        plans
            .iter()
            .any(|at| at.starts_with("report.pods.default/")),
        "{plans:?}"
    );
    let same = policy("\"20s\"", "\"20000ms\"");
    let outcomes = outcomes(&scene, |recorded| replay(recorded, Some(&same)));
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.replayed == Replayed::Same)
    );
}

#[test]
fn a_pod_and_a_node_are_told_of_alone() {
    let scene = day(3);
    let all = deeds(&scene);
    let made: Vec<_> = all
        .iter()
        .filter_map(|deed| match &deed.kind {
            DeedKind::Planned {
                machine, planned, ..
            } => {
                let pod = planned.pointer("/reason/pods/0")?.as_str()?.to_owned();
                Some((machine.clone(), pod))
            }
            _ => None,
        })
        .collect();
    let (machine, pod) = made.first().expect("a machine was made for a pod").clone();
    let (namespace, name) = pod.split_once('/').expect("a key");
    let of_pod = Filter {
        pod: Some(pve_autoscaler::model::cluster::ObjectKey::new(
            namespace, name,
        )),
        ..Filter::default()
    };
    let told = history(&scene).deeds(&of_pod, 100).expect("read");
    let verdicts: Vec<Option<&str>> = told
        .iter()
        .filter_map(|deed| match &deed.kind {
            DeedKind::Pod { verdict, .. } => Some(verdict.as_deref()),
            _ => None,
        })
        .collect();
    assert!(verdicts.contains(&Some("triggers")), "{verdicts:?}");
    assert!(verdicts.contains(&Some("fits_machine")), "{verdicts:?}");
    assert_eq!(
        verdicts.last(),
        Some(&None),
        "it was bound in the end: {verdicts:?}"
    );
    let machines: Vec<_> = told
        .iter()
        .filter_map(|deed| match &deed.kind {
            DeedKind::Planned { machine, .. } | DeedKind::Ended { machine, .. } => Some(machine),
            _ => None,
        })
        .collect();
    assert!(
        machines.len() >= 2 && machines.iter().all(|name| **name == machine),
        "{machines:?}"
    );
    let of_node = Filter {
        node: Some(machine.to_string()),
        ..Filter::default()
    };
    let told = history(&scene).deeds(&of_node, 100).expect("read");
    assert!(told.iter().any(|deed| matches!(
        &deed.kind,
        DeedKind::Ended { action, .. } if action == "remove"
    )));
    let other = Filter {
        pool: Some("another".to_owned()),
        ..Filter::default()
    };
    assert_eq!(history(&scene).deeds(&other, 100).expect("read"), []);
}

#[test]
fn a_daemon_that_is_killed_at_any_time_leaves_a_record_that_is_read_and_gone_on_with() {
    for at in [46_000, 61_500, 83_100] {
        let scene = simulate(async {
            let scene = Scene::new(3, &recording(), GuestSpec::default());
            let first = Duration::from_millis(at);
            scene.live(None, 0, visit(), first).await;
            scene.live(None, 1, visit(), Duration::from_mins(6)).await;
            scene
        });
        let begun = deeds(&scene)
            .iter()
            .filter(|deed| matches!(deed.kind, DeedKind::Begun { .. }))
            .count();
        assert_eq!(begun, 2, "killed at {at} ms");
        let outcomes = outcomes(&scene, |recorded| replay(recorded, None));
        assert!(
            outcomes
                .iter()
                .all(|outcome| outcome.replayed == Replayed::Same)
        );
    }
}

#[test]
fn a_record_that_is_switched_off_is_not_written() {
    let scene = simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        scene.live(None, 0, visit(), Duration::from_mins(2)).await;
        scene
    });
    assert!(!scene.state().join("record").exists());
}
