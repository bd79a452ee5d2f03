//! Worlds of which some machines are on their way: the same plans as in the others, with the first machines begun already.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::test_runner::Config;

use super::super::lab::Lab;
use super::super::naive::Naive;
use super::super::steady::bind;
use super::kinds::Kind;
use super::{SeededRng, first_world, nth, outcome};
use model::action::Kind as ActionKind;
use model::cluster::ObjectKey;
use model::decision::Decision;
use model::region::Busy;
use model::report::PodVerdict;
use model::time::Span;

/// How many of a world's machines are on their way.
fn coming(machines: usize, case: u64) -> usize {
    let wanted = usize::try_from(case % 3).expect("few") + 1;
    wanted.min(machines)
}

/// In how many worlds somebody waits, of how many, and who in the first.
fn waits(kind: Kind, types: usize, pods: usize, cases: u64) -> (u64, Option<String>) {
    let (mut waits, mut told) = (0, None);
    let first = first_world();
    for case in first..first + cases {
        let world = nth(kind, types, pods, case);
        let coming = coming(world.machines(), case);
        let (who, _) = outcome(&world.build_beside(coming));
        if who.is_empty() {
            continue;
        }
        waits += 1;
        eprintln!(
            "{kind:?}, {types} types, {pods} pods, world {case}, {coming} of {} on their way, {:?}: {} wait",
            world.machines(),
            world.limit,
            who.len()
        );
        told = told.or_else(|| Some(format!("case {case}: {who:#?}\n{world:?}")));
    }
    eprintln!("{kind:?}, {types} types, {pods} pods: {waits} of {cases} wait");
    (waits, told)
}

fn nobody_waits_beside(kind: Kind) {
    let cases = u64::from(Config::default().cases).min(20_000) / 8;
    for types in [1, 3] {
        let (waits, told) = waits(kind, types, 12, cases.max(8));
        let told = told.unwrap_or_default();
        assert_eq!(waits, 0, "{kind:?}, {types} types: {told}");
    }
}

#[test]
fn plain_pods_never_wait_beside_machines_on_their_way() {
    nobody_waits_beside(Kind::Plain);
}

#[test]
fn followers_never_wait_beside_machines_on_their_way() {
    nobody_waits_beside(Kind::Affinity);
}

#[test]
fn spread_pods_never_wait_beside_machines_on_their_way() {
    nobody_waits_beside(Kind::Spread);
}

#[test]
fn pods_that_keep_apart_never_wait_beside_machines_on_their_way() {
    nobody_waits_beside(Kind::Apart);
}

/// The numbers of all kinds; pods with claims stay where they were put. `PROPTEST_CASES=960 cargo test -p pve-autoscaler-brain --lib sizing::coming -- --ignored --nocapture`.
#[test]
#[ignore = "tells, and takes minutes"]
fn who_waits_beside_machines_on_their_way() {
    let cases = u64::from(Config::default().cases);
    for kind in Kind::ALL {
        for (pods, part) in [(12, 4), (30, 16), (60, 32)] {
            for types in [1, 3] {
                waits(kind, types, pods, (cases / part).max(1));
            }
        }
    }
}

/// Where kube-scheduler puts pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheduler {
    /// On the node that they wait for, if it is there: they are nominated for it.
    Nominated,
    /// On any node that takes them, whatever was planned.
    Rude,
}

/// Machines come up, kube-scheduler has its turn, time passes. Returns how many machines were made.
fn live(lab: &mut Lab, scheduler: Scheduler, rng: &mut SeededRng) -> usize {
    let decision = lab.turn();
    let made = decision.plan.iter();
    let made = made.filter(|action| matches!(action.kind, ActionKind::Create(_)));
    let made = made.count();
    come_up(lab, &decision, rng);
    schedule(lab, &decision, scheduler, rng);
    lab.now = lab.now + Span::seconds(10);
    lab.refresh();
    made
}

/// Some of the machines on their way come up: each after those that it takes pods after.
fn come_up(lab: &mut Lab, decision: &Decision, rng: &mut SeededRng) {
    let machines = lab.snapshot.machines.iter();
    let coming = machines.filter(|(_, machine)| machine.node.is_none());
    let coming: Vec<Arc<str>> = coming.map(|(name, _)| name.clone()).collect();
    for name in &coming {
        let after = decision.report.takes_pods_after.get(name);
        let waits = after.is_some_and(|after| after.iter().any(|other| coming.contains(other)));
        if waits || rng.below(3) > 0 {
            continue;
        }
        lab.clone_vm(name);
        lab.register(name, true);
        let machine = lab.snapshot.machines.get_mut(name).expect("there");
        assert!(machine.busy.is_none_or(|busy| busy == Busy::Up));
        machine.busy = None;
    }
}

fn schedule(lab: &mut Lab, decision: &Decision, scheduler: Scheduler, rng: &mut SeededRng) {
    let waiting = |lab: &Lab| -> Vec<ObjectKey> {
        let pods = lab.snapshot.cluster.pods.iter();
        let waiting = pods.filter(|(_, pod)| pod.node.is_none());
        waiting.map(|(key, _)| key.clone()).collect()
    };
    let planned: BTreeMap<&ObjectKey, &Arc<str>> = decision
        .report
        .pods
        .iter()
        .filter_map(|(key, verdict)| match verdict {
            PodVerdict::FitsNode { node: name, .. }
            | PodVerdict::FitsMachine { machine: name }
            | PodVerdict::Triggers { machine: name, .. } => Some((key, name)),
            _ => None,
        })
        .collect();
    let nothing = Decision {
        plan: Vec::new(),
        ..decision.clone()
    };
    let mut before = usize::MAX;
    let mut pods = waiting(lab);
    while pods.len() < before {
        before = pods.len();
        for key in &pods {
            let mut nodes: Vec<Arc<str>> = lab.snapshot.cluster.nodes.keys().cloned().collect();
            let mut order = Vec::new();
            while !nodes.is_empty() {
                order.push(nodes.swap_remove(rng.below(nodes.len())));
            }
            if scheduler == Scheduler::Nominated
                && let Some(name) = planned.get(key)
            {
                // A pod that is nominated for a node to come waits for it.
                order.retain(|node| node == *name);
            }
            let naive = Naive::of(lab, &nothing);
            let fits = |node: &&Arc<str>| {
                let at = naive.find(node);
                at.is_some_and(|at| naive.fits(key, at).is_ok())
            };
            let Some(node) = order.iter().find(fits).cloned() else {
                continue;
            };
            bind(lab, key, &node);
        }
        pods = waiting(lab);
    }
}

/// Forty turns: what the first one plans is made, and nothing after it.
fn no_more_machines(scheduler: Scheduler) {
    let cases = (u64::from(Config::default().cases) / 8).max(8);
    for case in 0..cases {
        for kind in [Kind::Plain, Kind::Affinity, Kind::Mixed] {
            let world = nth(kind, 3, 12, case);
            let mut lab = world.build_beside(coming(world.machines(), case));
            let mut rng = SeededRng::new(case);
            let first = live(&mut lab, scheduler, &mut rng);
            let more: usize = (0..20).map(|_| live(&mut lab, scheduler, &mut rng)).sum();
            let late: usize = (0..20).map(|_| live(&mut lab, scheduler, &mut rng)).sum();
            let told = || format!("{kind:?}, world {case}: {first}, then {more}, then {late}");
            assert_eq!(late, 0, "{}", told());
            if scheduler == Scheduler::Nominated {
                assert_eq!(more, 0, "{}", told());
            }
        }
    }
}

#[test]
fn pods_beside_machines_on_their_way_call_for_machines_once() {
    no_more_machines(Scheduler::Nominated);
}

#[test]
fn pods_that_go_elsewhere_than_planned_call_for_machines_a_few_times_at_most() {
    no_more_machines(Scheduler::Rude);
}
