//! What holds for any world: generated ones, with hostile numbers among them.

use std::sync::Arc;

use proptest::prelude::*;

use super::lab::{Lab, lab, owner};
use super::regions::{self, Second};
use crate::{check, decide};
use model::action::Kind;
use model::cluster::{ObjectKey, Phase, ReadyStatus};
use model::policy::LEAVING_TAINT;
use model::region::{Busy, Failure, Step};
use model::scheduling::{
    HostPort, LabelSelector, Labels, PodTerm, SpreadConstraint, Taint, Toleration,
};
use model::time::{Span, Time};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// How one pod differs from the plainest.
#[derive(Clone, Debug)]
struct Recipe {
    milli: i64,
    mib: i64,
    /// On which node, if on one.
    node: Option<usize>,
    app: u8,
    twist: u8,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    nodes: Vec<u8>,
    pods: Vec<Recipe>,
    max: u32,
    min: u32,
    in_flight: u32,
    nodes_total: u32,
    host_gib: i64,
    allowed: i32,
    idle_minutes: i64,
    /// A second region, over which all pools are too.
    second: Option<Second>,
}

fn recipe() -> impl Strategy<Value = Recipe> {
    (
        0..1500i64,
        0..1500i64,
        proptest::option::of(0..8usize),
        0..3u8,
        0..12u8,
    )
        .prop_map(|(milli, mib, node, app, twist)| Recipe {
            milli,
            mib,
            node,
            app,
            twist,
        })
}

/// In half of the worlds.
fn second() -> impl Strategy<Value = Option<Second>> {
    proptest::option::of(prop_oneof![
        Just(Second::There),
        Just(Second::Dear),
        Just(Second::Heavy),
        Just(Second::Away),
        Just(Second::NotQuorate),
        Just(Second::NeverRead),
    ])
}

pub(super) fn world() -> impl Strategy<Value = World> {
    (
        proptest::collection::vec(0..8u8, 0..8),
        proptest::collection::vec(recipe(), 0..25),
        (0..6u32, 0..3u32, 0..5u32, 0..12u32),
        (1..24i64, 0..3i32, 0..25i64),
        second(),
    )
        .prop_map(|(nodes, pods, limits, more, second)| World {
            second,
            nodes,
            pods,
            max: limits.0,
            min: limits.1,
            in_flight: limits.2,
            nodes_total: limits.3,
            host_gib: more.0,
            allowed: more.1,
            idle_minutes: more.2,
        })
}

pub(super) fn build(world: &World) -> Lab {
    let mut lab = lab()
        .kind("one", 1, 1024)
        .kind("two", 2, 2048)
        .kind("four", 4, 4096)
        .pool("p", &["one", "four"])
        .pool("q", &["two"])
        .daemon("agent", 50, 50)
        .budget("b", "app1", world.allowed);
    lab.policy.scale_up.max_in_flight = world.in_flight;
    lab.policy.scale_up.max_nodes_total = world.nodes_total;
    lab.policy.scale_down.max_parallel_drain = 3;
    for pool in lab.policy.pools.values_mut() {
        pool.max = world.max;
    }
    lab = lab.edit_pool("q", |pool| {
        pool.min = world.min.min(pool.max);
        pool.weight = 1;
    });
    for host in lab
        .snapshot
        .regions
        .get_mut("home")
        .expect("home")
        .hosts
        .values_mut()
    {
        host.memory = world.host_gib << 30;
    }
    for (n, state) in world.nodes.iter().enumerate() {
        lab = node(lab, &format!("n{n}"), *state);
    }
    for (n, recipe) in world.pods.iter().enumerate() {
        lab = pod(lab, &format!("pod{n}"), recipe, world.nodes.len());
    }
    if let Some(second) = world.second {
        regions::split(&mut lab, second);
    }
    lab
}

fn node(lab: Lab, name: &str, state: u8) -> Lab {
    match state {
        0 => lab.node(name, 2000, 2048),
        1 | 2 => lab.ours(name, "p", "one"),
        3 => lab.ours(name, "q", "two"),
        4 => lab.machine(name, "p", "four", Step::Agent),
        5 => lab
            .ours(name, "p", "four")
            .edit_machine(name, |machine| machine.busy = Some(Busy::Down))
            .edit_node(name, |node| {
                node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
            }),
        6 => lab
            .machine(name, "q", "two", Step::Join)
            .edit_machine(name, |machine| {
                machine.failure = Some(Failure {
                    advice: None,
                    step: Step::Join,
                    message: "no".into(),
                    at: machine.mark.created,
                    transient: false,
                    host: None,
                });
            }),
        _ => lab.ours(name, "p", "four").edit_node(name, |node| {
            node.ready.status = ReadyStatus::Unknown;
        }),
    }
}

fn pod(lab: Lab, name: &str, recipe: &Recipe, nodes: usize) -> Lab {
    let mut lab = lab.pod(name, recipe.milli, recipe.mib);
    if let Some(node) = recipe.node.filter(|_| nodes > 0) {
        let node = format!("n{}", node % nodes);
        if lab.snapshot.cluster.nodes.contains_key(node.as_str()) {
            lab = lab.edit(name, |pod| {
                pod.node = Some(node.into());
                pod.phase = Phase::Running;
                pod.unschedulable_since = None;
                pod.ready = true;
            });
        }
    }
    let app = format!("app{}", recipe.app);
    let term = |key: &str| PodTerm {
        selector: Some(LabelSelector {
            labels: Labels::from([("app".into(), app.as_str().into())]),
            ..LabelSelector::default()
        }),
        topology_key: key.into(),
        ..PodTerm::default()
    };
    lab.shape(name, |shape| {
        shape.labels.insert("app".into(), app.as_str().into());
        shape.owner = Some(owner("ReplicaSet", &app));
        match recipe.twist {
            0 => shape.host_ports.push(HostPort {
                protocol: "TCP".into(),
                ip: "".into(),
                port: 80,
            }),
            1 => {
                shape.node_selector.insert(ZONE.into(), "pve2".into());
            }
            2 => shape.pod_anti_affinity.push(term(HOSTNAME)),
            3 => shape.pod_affinity.push(term(ZONE)),
            4 => shape.spread.push(SpreadConstraint {
                max_skew: 1,
                topology_key: ZONE.into(),
                hard: true,
                selector: term(ZONE).selector,
                min_domains: None,
                match_label_keys: Vec::new(),
                honor_affinity: true,
                honor_taints: false,
            }),
            5 => shape.priority = 100,
            6 => shape.priority = -100,
            7 => shape.tolerations.push(Toleration {
                exists: true,
                ..Toleration::default()
            }),
            _ => {}
        }
    })
}

/// Everything that a plan changes is begun and settled; pods are bound where they were meant to go.
fn carry_out(lab: &mut Lab) -> usize {
    let decision = lab.turn();
    decision.plan.len()
}

fn counts(lab: &Lab, pool: &str) -> usize {
    lab.snapshot
        .machines
        .values()
        .filter(|machine| machine.mark.pool == pool)
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_plan_passes_the_checker_and_is_begun_once(world in world()) {
        let mut lab = build(&world);
        carry_out(&mut lab);
        let mut lab = lab.after(Span::minutes(world.idle_minutes));
        carry_out(&mut lab);
        let mut again = lab.decide();
        // A pod that is spread and must leave its node may need the zone that a machine on its way
        // opens: no more often than there are pods.
        let leaving = lab.snapshot.machines.values().any(|machine| machine.busy == Some(Busy::Down));
        let mut turns = if leaving { world.pods.len() } else { 0 };
        while turns > 0 && !again.plan.is_empty() {
            carry_out(&mut lab);
            turns -= 1;
            again = lab.decide();
        }
        prop_assert_eq!(again.plan, vec![]);
    }

    #[test]
    fn limits_are_never_exceeded(world in world()) {
        let mut lab = build(&world);
        let before = [counts(&lab, "p"), counts(&lab, "q")];
        let total = lab.snapshot.cluster.nodes.len() + lab.snapshot.machines.values().filter(|m| m.node.is_none()).count();
        let decision = lab.turn();
        let made = decision.plan.iter().filter(|a| matches!(a.kind, Kind::Create(_))).count();
        for (pool, before) in ["p", "q"].into_iter().zip(before) {
            prop_assert!(counts(&lab, pool) <= before.max(world.max as usize));
        }
        let max = world.nodes_total as usize;
        prop_assert!(made == 0 || max == 0 || total + made <= max);
        let machines = lab.snapshot.machines.values();
        let mut vmids: Vec<_> = machines.map(|m| (m.region.clone(), m.mark.vmid)).collect();
        vmids.sort_unstable();
        vmids.dedup();
        prop_assert_eq!(vmids.len(), lab.snapshot.machines.len());
    }

    #[test]
    fn the_order_and_the_sharing_of_the_input_do_not_matter(world in world()) {
        let lab = build(&world).after(Span::minutes(world.idle_minutes));
        let mut other = lab.clone();
        for pod in other.snapshot.cluster.pods.values_mut() {
            pod.shape = Arc::new((*pod.shape).clone());
        }
        let text = |lab: &Lab| {
            let decision = decide(&lab.snapshot, &lab.policy, &lab.memory, lab.now);
            serde_json::to_string(&decision).expect("a decision serialises")
        };
        prop_assert_eq!(text(&lab), text(&other));
        let saved = serde_json::to_string(&lab.snapshot).expect("a snapshot serialises");
        other.snapshot = serde_json::from_str(&saved).expect("and is read again");
        prop_assert_eq!(text(&lab), text(&other));
    }

    #[test]
    fn nothing_goes_whose_pods_do_not_land(world in world()) {
        let mut lab = build(&world);
        carry_out(&mut lab);
        let lab = lab.after(Span::minutes(11));
        let decision = lab.decide();
        let going: Vec<_> = decision.plan.iter().filter(|a| matches!(a.kind, Kind::Remove { .. })).map(|a| a.target.machine.clone()).collect();
        for action in decision.plan.iter().filter(|a| matches!(a.kind, Kind::Remove { .. })) {
            for (key, pod) in &lab.snapshot.cluster.pods {
                let moves = pod.node.as_ref() == Some(&action.target.machine)
                    && pod.shape.priority >= -10
                    && action.target.node.is_some();
                if moves {
                    let lands = action.precondition.landing.get(key);
                    prop_assert!(lands.is_some_and(|node| !going.contains(node)), "{}", key);
                }
            }
        }
    }

    #[test]
    fn hostile_numbers_never_panic(
        amounts in proptest::collection::vec(prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), Just(-1), any::<i64>()], 24),
        now in prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()],
        world in world(),
    ) {
        let mut lab = build(&world);
        let mut next = amounts.iter().copied().cycle();
        let mut number = || next.next().unwrap_or_default();
        for pod in lab.snapshot.cluster.pods.values_mut() {
            let shape = Arc::make_mut(&mut pod.shape);
            shape.requests.cpu_milli = number();
            shape.requests.memory = number();
            shape.requests.extended.insert("gpu/x".into(), number());
            shape.grace_seconds = number();
            pod.created = Time(number());
            pod.deletion_grace_seconds = i32::try_from(number()).ok();
        }
        for node in lab.snapshot.cluster.nodes.values_mut() {
            node.allocatable.cpu_milli = number();
            node.allocatable.memory = number();
            node.allocatable.pods = number();
            node.created = Time(number());
        }
        for kind in lab.policy.instance_types.values_mut() {
            kind.memory = number();
            kind.price = Some(number());
            kind.cores = 1 + u32::try_from(number().rem_euclid(1000)).unwrap_or(0);
        }
        for vm in lab.snapshot.regions.get_mut("home").expect("home").vms.values_mut() {
            vm.memory = number();
        }
        for time in [Time(now), lab.now] {
            let decision = decide(&lab.snapshot, &lab.policy, &lab.memory, time);
            let _ = check::check_plan(&decision.plan, &lab.snapshot, &lab.policy, time);
            let again = decide(&lab.snapshot, &lab.policy, &decision.memory, time);
            let _ = check::check_plan(&again.plan, &lab.snapshot, &lab.policy, time);
        }
        let _ = ObjectKey::new("a", "b");
    }
}
