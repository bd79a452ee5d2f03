//! The lower bound: no plan beats it, nor does the best one that an exhaustive search finds.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRng, TestRunner};

use super::lab::{Lab, lab, owner};
use super::wide::wide;
use crate::LowerBound;
use model::policy::POOL_LABEL;
use model::report::Growth;
use model::scheduling::{HostPort, LabelSelector, Labels, PodTerm};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// A machine that can be made: cores, GiB, price.
type Size = (u32, i64, i64);

/// One pod: a tenth of a core and of a GiB are the units.
#[derive(Clone, Debug)]
struct Small {
    cpu: i64,
    memory: i64,
    /// 0, 1: a host port; 2: no two on one node; 3: in the first pool alone; others nothing.
    twist: u8,
}

/// A world that can be searched through.
#[derive(Clone, Debug)]
struct Tiny {
    /// One pool each, unless `together`.
    sizes: Vec<Size>,
    /// One pool has them all.
    together: bool,
    /// Cores and GiB in tenths.
    nodes: Vec<(i64, i64)>,
    pods: Vec<Small>,
}

fn small() -> impl Strategy<Value = Small> {
    (1..20i64, 1..20i64, 0..10u8).prop_map(|(cpu, memory, twist)| Small { cpu, memory, twist })
}

fn tiny() -> impl Strategy<Value = Tiny> {
    (
        proptest::collection::vec((2..5u32, 2..5i64, 1..9i64), 1..4),
        any::<bool>(),
        proptest::collection::vec((0..20i64, 0..20i64), 0..3),
        proptest::collection::vec(small(), 1..7),
    )
        .prop_map(|(sizes, together, nodes, pods)| Tiny {
            sizes,
            together,
            nodes,
            pods,
        })
}

const TENTH: i64 = 100;

fn build(tiny: &Tiny) -> Lab {
    let mut lab = lab();
    for (n, (cores, gib, price)) in tiny.sizes.iter().enumerate() {
        let name = format!("t{n}");
        lab = lab
            .kind(&name, *cores, gib * 10 * TENTH)
            .edit_kind(&name, |kind| kind.price = Some(*price));
        if !tiny.together {
            lab = lab.pool(&format!("p{n}"), &[&name]);
        }
    }
    if tiny.together {
        let names: Vec<String> = (0..tiny.sizes.len()).map(|n| format!("t{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        lab = lab.pool("p0", &names);
    }
    for (n, (cpu, memory)) in tiny.nodes.iter().enumerate() {
        lab = lab.node(&format!("n{n}"), cpu * TENTH, memory * TENTH);
    }
    for (n, pod) in tiny.pods.iter().enumerate() {
        let name = format!("pod{n}");
        lab = lab.pod(&name, pod.cpu * TENTH, pod.memory * TENTH);
        lab = lab.shape(&name, |shape| {
            shape.owner = Some(owner("ReplicaSet", "app"));
            match pod.twist {
                0 | 1 => shape.host_ports.push(HostPort {
                    protocol: "TCP".into(),
                    ip: "".into(),
                    port: 80,
                }),
                2 => {
                    shape.labels = [("app".into(), "alone".into())].into();
                    shape.pod_anti_affinity.push(PodTerm {
                        selector: Some(LabelSelector {
                            labels: Labels::from([("app".into(), "alone".into())]),
                            ..LabelSelector::default()
                        }),
                        topology_key: HOSTNAME.into(),
                        ..PodTerm::default()
                    });
                }
                3 => {
                    shape.node_selector.insert(POOL_LABEL.into(), "p0".into());
                }
                _ => {}
            }
        });
    }
    lab
}

/// Pods that share a machine, or a node there is.
#[derive(Clone, Debug, Default)]
struct Load {
    cpu: i64,
    memory: i64,
    port: bool,
    alone: bool,
    first_pool: bool,
}

impl Load {
    /// With one pod more, if that one bears those that are there.
    fn with(&self, pod: &Small) -> Option<Load> {
        let (port, alone) = (pod.twist < 2, pod.twist == 2);
        if (port && self.port) || (alone && self.alone) {
            return None;
        }
        Some(Load {
            cpu: self.cpu + pod.cpu,
            memory: self.memory + pod.memory,
            port: self.port || port,
            alone: self.alone || alone,
            first_pool: self.first_pool || pod.twist == 3,
        })
    }

    fn price(&self, tiny: &Tiny) -> Option<i64> {
        let sizes = tiny.sizes.iter().enumerate();
        let may = sizes.filter(|(pool, (cores, gib, _))| {
            (*pool == 0 || tiny.together || !self.first_pool)
                && self.cpu <= i64::from(*cores) * 10
                && self.memory <= gib * 10
        });
        may.map(|(_, (.., price))| *price).min()
    }
}

/// The fewest machines, and the least price, over all ways to place all pods.
fn best(tiny: &Tiny) -> Option<(u32, i64)> {
    let mut best: Option<(u32, i64)> = None;
    let mut rooms = vec![Load::default(); tiny.nodes.len()];
    search(tiny, 0, &mut rooms, &mut Vec::new(), &mut best);
    best
}

fn search(
    tiny: &Tiny,
    next: usize,
    rooms: &mut Vec<Load>,
    machines: &mut Vec<Load>,
    best: &mut Option<(u32, i64)>,
) {
    let Some(pod) = tiny.pods.get(next) else {
        let price = machines
            .iter()
            .map(|load| load.price(tiny))
            .sum::<Option<i64>>();
        if let Some(price) = price {
            let count = u32::try_from(machines.len()).expect("a few");
            let before = best.unwrap_or((u32::MAX, i64::MAX));
            *best = Some((before.0.min(count), before.1.min(price)));
        }
        return;
    };
    for room in 0..rooms.len() {
        let (cpu, memory) = tiny.nodes[room];
        let Some(load) = rooms[room].with(pod).filter(|_| pod.twist != 3) else {
            continue;
        };
        if load.cpu <= cpu && load.memory <= memory {
            let before = std::mem::replace(&mut rooms[room], load);
            search(tiny, next + 1, rooms, machines, best);
            rooms[room] = before;
        }
    }
    for machine in 0..machines.len() {
        if let Some(load) = machines[machine].with(pod) {
            let before = std::mem::replace(&mut machines[machine], load);
            if machines[machine].price(tiny).is_some() {
                search(tiny, next + 1, rooms, machines, best);
            }
            machines[machine] = before;
        }
    }
    machines.push(Load::default().with(pod).expect("a pod alone"));
    search(tiny, next + 1, rooms, machines, best);
    machines.pop();
}

/// What a plan makes, and what no plan can do without.
fn growth(lab: &Lab) -> Option<(Growth, LowerBound)> {
    let decision = lab.decide();
    let growth = decision.report.scale_up?;
    Some((growth, lab.lower_bound(&decision)))
}

fn all_placed(lab: &Lab) -> bool {
    use model::report::PodVerdict::{FitsMachine, FitsNode, Triggers};
    let report = lab.decide().report;
    let placed = |verdict| {
        matches!(
            verdict,
            FitsNode { .. } | FitsMachine { .. } | Triggers { .. }
        )
    };
    report.pods.into_values().all(placed)
}

/// How the bound compares with the best there is, over many worlds.
#[derive(Debug, Default)]
struct Tally {
    worlds: u32,
    nodes: u32,
    price: u32,
    plan_nodes: u32,
    plan_price: u32,
}

#[test]
fn the_bound_is_below_the_best_and_mostly_it() {
    let mut tally = Tally::default();
    // The same worlds in every run: how often it is tight is a number to compare.
    let config = Config {
        cases: 400,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let tally_cell = std::cell::RefCell::new(&mut tally);
    runner
        .run(&tiny(), |tiny| {
            let lab = build(&tiny);
            let (Some((growth, least)), Some((nodes, price))) = (growth(&lab), best(&tiny)) else {
                return Ok(());
            };
            if !all_placed(&lab) {
                return Ok(());
            }
            prop_assert!(
                least.nodes <= nodes,
                "{} machines, {nodes} are enough",
                least.nodes
            );
            prop_assert!(
                least.price <= price,
                "price {}, {price} is enough",
                least.price
            );
            prop_assert!(
                nodes <= growth.nodes && price <= growth.price,
                "the search is wrong"
            );
            let mut tally = tally_cell.borrow_mut();
            tally.worlds += 1;
            tally.nodes += u32::from(least.nodes == nodes);
            tally.price += u32::from(least.price == price);
            tally.plan_nodes += u32::from(growth.nodes == nodes);
            tally.plan_price += u32::from(growth.price == price);
            Ok(())
        })
        .expect("a bound below the best");
    assert!(tally.worlds >= 200, "{tally:?}");
    assert!(tally.nodes * 100 >= tally.worlds * 85, "{tally:?}");
    assert!(tally.price * 100 >= tally.worlds * 80, "{tally:?}");
    assert!(tally.plan_nodes * 100 >= tally.worlds * 85, "{tally:?}");
    assert!(tally.plan_price * 100 >= tally.worlds * 90, "{tally:?}");
}

proptest! {
    #![proptest_config(Config::with_cases(192))]

    #[test]
    fn no_plan_beats_the_bound(world in wide(6, 20)) {
        let lab = world.build();
        if let Some((growth, least)) = growth(&lab) {
            prop_assert!(least.nodes <= growth.nodes, "{growth:?}, {least:?}");
            prop_assert!(least.price <= growth.price, "{growth:?}, {least:?}");
        }
    }

    #[test]
    fn more_pods_never_lower_the_bound(mut tiny in tiny()) {
        tiny.nodes.clear();
        let more = growth(&build(&tiny));
        let all = all_placed(&build(&tiny));
        tiny.pods.pop();
        let less = growth(&build(&tiny));
        if let (Some((_, more)), Some((_, less)), true) = (more, less, all) {
            prop_assert!(less.nodes <= more.nodes);
            prop_assert!(less.price <= more.price);
        }
    }
}

#[test]
fn pods_that_need_a_node_each_are_counted() {
    let lab = lab()
        .kind("big", 16, 16_384)
        .pool("p", &["big"])
        .pods("web", 7, 100, 100);
    let apart = lab.clone().shapes("web", |shape| {
        shape.host_ports.push(HostPort {
            protocol: "TCP".into(),
            ip: "".into(),
            port: 80,
        });
    });
    let nodes = |lab: &Lab| growth(lab).map(|(_, least)| least.nodes);
    assert_eq!((nodes(&lab), nodes(&apart)), (Some(1), Some(7)));
}

#[test]
fn pods_larger_than_half_of_a_machine_are_counted() {
    let lab = lab()
        .kind("four", 4, 16_384)
        .pool("p", &["four"])
        .pods("web", 9, 2100, 100);
    let (growth, least) = growth(&lab).expect("machines");
    assert_eq!((growth.nodes, least.nodes), (9, 9));
    assert_eq!(least.price, growth.price);
}

#[test]
fn machines_for_the_min_count_too() {
    let lab = lab()
        .kind("one", 1, 1024)
        .pool("p", &["one"])
        .pool("q", &["one"]);
    let lab = lab
        .edit_pool("q", |pool| pool.min = 3)
        .pods("web", 5, 900, 100);
    let (growth, least) = growth(&lab).expect("machines");
    assert_eq!((growth.nodes, least.nodes), (5, 5));
    let fewer = lab.edit_pool("q", |pool| pool.min = 8);
    assert_eq!(super::bound::growth(&fewer).expect("machines").1.nodes, 8);
}

#[test]
fn what_nodes_could_take_is_taken_off() {
    let lab = lab()
        .kind("one", 1, 1024)
        .pool("p", &["one"])
        .node("n", 1500, 4096)
        .pods("web", 5, 500, 100);
    let (growth, least) = growth(&lab).expect("a machine");
    assert_eq!((growth.nodes, least.nodes), (1, 1));
}

#[test]
fn a_decision_that_makes_nothing_has_no_bound() {
    let lab = lab()
        .kind("one", 1, 1024)
        .pool("p", &["one"])
        .node("n", 4000, 4096)
        .pod("web", 500, 100);
    assert_eq!(growth(&lab), None);
}
