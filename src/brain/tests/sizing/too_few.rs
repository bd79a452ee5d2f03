//! Worlds with one machine too few: how many pods wait, and what the decision costs.

use proptest::test_runner::Config;

use super::super::lab::{Lab, lab};
use super::kinds::{Kind, Limit, Style};
use super::plant::{HOSTNAME, SIZES, World, ZONE, spread};
use super::{SeededRng, first_world, outcome};
use model::scheduling::{LabelSelector, Labels, PodTerm};

/// Six types and so many machines at most; no pods yet.
fn of_six_types(most: u32) -> Lab {
    let mut lab = lab();
    let names: Vec<String> = (0..6).map(|size| format!("t{size}")).collect();
    for (name, (cores, gib)) in names.iter().zip(SIZES) {
        lab = lab.kind(name, cores, gib << 10);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    lab.pool("ng", &names)
        .edit_pool("ng", |pool| pool.max = most)
}

fn labelled(key: &str, value: &str) -> LabelSelector {
    LabelSelector {
        labels: Labels::from([(key.into(), value.into())]),
        ..LabelSelector::default()
    }
}

/// One pod more keeps apart than there can be machines: it waits, and no other.
#[test]
fn of_pods_that_keep_apart_as_many_have_a_place_as_there_are_machines() {
    let mut rng = SeededRng::new(7);
    let mut world = of_six_types(10);
    for pod in 0..60 {
        let milli = rng.one(&[250, 500, 500, 1000, 1000, 1500]);
        let mib = rng.one(&[512, 1024, 1024, 2048, 3072]);
        world = world.pod(&format!("app-{pod:02}"), milli, mib);
    }
    // Of priorities, too: the pod of the lowest waits.
    for number in 0..11 {
        world = world.shape(&format!("app-{number:02}"), |shape| {
            shape.priority = i32::from(number != 4);
            shape.labels.insert("apart".into(), "yes".into());
            shape.pod_anti_affinity.push(PodTerm {
                selector: Some(labelled("apart", "yes")),
                topology_key: HOSTNAME.into(),
                ..PodTerm::default()
            });
        });
    }
    let (waits, _) = outcome(&world);
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert!(waits[0].starts_with("default/app-04:"), "{waits:?}");
}

/// Five machines for three zones: one zone has one machine, on which eleven of the pods have room, so that each other zone gets twelve.
#[test]
fn the_zone_with_one_machine_bounds_the_pods_of_all_zones() {
    let world = of_six_types(5).pods("web", 43, 700, 1400);
    let world = world.shapes("web-", |shape| {
        shape.labels.insert("app".into(), "web".into());
        shape
            .spread
            .push(spread(1, ZONE, Some(labelled("app", "web"))));
    });
    assert_eq!(outcome(&world).0.len(), 43 - 35);
    // With a machine for each zone's second half all have room, and nothing is given up early.
    let roomy = world.clone().edit_pool("ng", |pool| pool.max = 6);
    assert_eq!(outcome(&roomy).0, Vec::<String>::new());
    // Two machines leave one zone without a node. Once it counts no more, the other two share all pods that have room.
    let two = world.edit_pool("ng", |pool| pool.max = 2);
    assert_eq!(outcome(&two).0.len(), 43 - 22);
}

/// One world of sixty pods, made around a plan, with one machine too few.
fn one_too_few(kind: Kind, types: usize, case: u64) -> Lab {
    let style = if case.is_multiple_of(2) {
        Style::Usual
    } else {
        Style::Wild
    };
    let limit = (Limit::Machines(0), style);
    let world = World::plant(kind, types, 60, limit, &mut SeededRng::new(case));
    world.build().edit_pool("ng", |pool| pool.max -= 1)
}

/// `PROPTEST_CASES=64 cargo test -p pve-autoscaler-brain --lib too_few -- --ignored --nocapture` says how many pods wait in each world, and
/// how long one decision takes.
#[test]
#[ignore = "tells, and takes minutes"]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn what_decisions_cost_with_one_machine_too_few() {
    let cases = u64::from(Config::default().cases / 16).max(4);
    let first = first_world();
    for kind in Kind::ALL {
        for types in [1, 3, 10] {
            for case in first..first + cases {
                let world = one_too_few(kind, types, case);
                let began = std::time::Instant::now();
                let (waits, price) = outcome(&world);
                let took = began.elapsed().as_millis();
                let pods = world.snapshot.cluster.pods.len();
                eprintln!(
                    "{kind:?}, {types} types, world {case}: {} of {pods} wait, price {price}: {took} ms",
                    waits.len()
                );
            }
        }
    }
}
