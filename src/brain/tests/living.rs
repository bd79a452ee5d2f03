//! What holds of decisions that follow one another, and of worlds that differ a little: generated worlds
//! of every constraint.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use super::lab::{Lab, lab};
use super::naive::Naive;
use super::wide::story::{tell, world as story};
use super::wide::{Wide, wide};
use crate::{check, decide};
use model::action::{Action, Kind};
use model::cluster::{ObjectKey, Phase, Pod};
use model::decision::Decision;
use model::report::PodVerdict;
use model::snapshot::Snapshot;
use model::time::{Span, Time};

fn decided(lab: &Lab) -> Decision {
    decide(&lab.snapshot, &lab.policy, &lab.memory, lab.now)
}

fn place(verdict: &PodVerdict) -> Option<&Arc<str>> {
    match verdict {
        PodVerdict::FitsNode { node: name, .. }
        | PodVerdict::FitsMachine { machine: name }
        | PodVerdict::Triggers { machine: name, .. } => Some(name),
        _ => None,
    }
}

/// The plan is done, machines are nodes as promised, and pods stand where the report sends them; those of
/// nodes that are gone stand where they were to land, or wait anew.
fn carry_out(lab: &mut Lab) -> Result<Decision, String> {
    let decision = lab.try_decide()?;
    lab.memory = decision.memory.clone();
    let mut bound: Vec<(ObjectKey, Arc<str>)> = Vec::new();
    for action in &decision.plan {
        lab.begin(action);
        let landing = action.precondition.landing.iter();
        bound.extend(landing.map(|(key, to)| (key.clone(), to.clone())));
    }
    let verdicts = decision.report.pods.iter();
    bound
        .extend(verdicts.filter_map(|(key, verdict)| Some((key.clone(), place(verdict)?.clone()))));
    lab.settle();
    let (now, nodes) = (lab.now, lab.snapshot.cluster.nodes.clone());
    let pods = &mut lab.snapshot.cluster.pods;
    for (key, name) in bound {
        if let Some(pod) = pods.get_mut(&key).filter(|_| nodes.contains_key(&name)) {
            if pod.node.is_some() {
                pod.uid = format!("{}'", pod.uid).into();
                pod.created = now;
            }
            pod.node = Some(name);
            pod.nominated = None;
            pod.phase = Phase::Running;
            pod.unschedulable_since = None;
            pod.ready = true;
        }
    }
    preempt(lab, &decision);
    let pods = &mut lab.snapshot.cluster.pods;
    // Pods of nodes that are gone: their controllers make them anew; others are gone with them.
    let gone = |node: &Option<Arc<str>>| node.as_ref().is_some_and(|n| !nodes.contains_key(n));
    pods.retain(|_, pod| !gone(&pod.node) || pod.shape.owner.is_some() && pod.deletion.is_none());
    pods.retain(|_, pod| {
        let daemon = pod
            .shape
            .owner
            .as_ref()
            .is_some_and(|o| &*o.kind == "DaemonSet");
        !(gone(&pod.node) && daemon)
    });
    for pod in pods.values_mut().filter(|pod| gone(&pod.node)) {
        pod.uid = format!("{}'", pod.uid).into();
        pod.node = None;
        pod.created = now;
        pod.phase = Phase::Pending;
        pod.unschedulable_since = Some(now);
        pod.ready = false;
    }
    lab.now = lab.now + Span::seconds(10);
    lab.refresh();
    Ok(decision)
}

/// Expendable pods that somebody was sent to the place of wait anew, and as many more as nodes hold too much.
fn preempt(lab: &mut Lab, decision: &Decision) {
    let cutoff = lab.policy.scale_up.expendable_priority;
    let cluster = &mut lab.snapshot.cluster;
    let mut victims: BTreeSet<ObjectKey> = BTreeSet::new();
    for verdict in decision.report.pods.values() {
        if let PodVerdict::FitsNode { preempts, .. } = verdict {
            victims.extend(preempts.keys().cloned());
        }
    }
    for (name, node) in &cluster.nodes {
        let here = |pod: &Pod| pod.node.as_ref() == Some(name) && !pod.phase.terminal();
        let mut pods: Vec<(&ObjectKey, &Pod)> = cluster.pods.iter().collect();
        pods.retain(|(key, pod)| here(pod) && !victims.contains(*key));
        pods.sort_by_key(|(_, pod)| std::cmp::Reverse(pod.shape.priority));
        let full = |pods: &[(&ObjectKey, &Pod)]| {
            let sum = |name| -> i128 {
                let asked = pods.iter().map(|(_, pod)| pod.shape.requests.get(name));
                asked.map(|asked| i128::from(asked.max(0))).sum()
            };
            ["cpu", "memory"]
                .into_iter()
                .any(|name| sum(name) > i128::from(node.allocatable.get(name)))
        };
        while full(&pods)
            && pods
                .last()
                .is_some_and(|(_, pod)| pod.shape.priority < cutoff)
        {
            victims.extend(pods.pop().map(|(key, _)| key.clone()));
        }
    }
    for victim in victims {
        if let Some(pod) = cluster.pods.get_mut(&victim) {
            pod.node = None;
            pod.phase = Phase::Pending;
            pod.unschedulable_since = Some(lab.now);
            pod.ready = false;
        }
    }
}

fn created(plan: &[Action]) -> usize {
    let made = plan.iter().filter(|a| matches!(a.kind, Kind::Create(_)));
    made.count()
}

/// Whether limits held something back: what is carried out may make room for it.
fn held(decision: &Decision) -> bool {
    let mut pods = decision.report.pods.values();
    pods.any(|verdict| {
        matches!(
            verdict,
            PodVerdict::Held { .. } | PodVerdict::NoCompatiblePool { .. }
        )
    }) || !decision.report.holds.is_empty()
}

/// Once a plan is carried out, nothing more is made.
fn done_once(world: &Wide) -> Result<(), String> {
    let mut lab = world.build();
    // What is there already is brought to its end first.
    carry_out(&mut lab)?;
    carry_out(&mut lab)?;
    let before = lab.clone();
    let first = carry_out(&mut lab)?;
    let second = lab.try_decide()?;
    if held(&first) || created(&second.plan) == 0 {
        return Ok(());
    }
    Err(format!(
        "made again{}\n=== then{}",
        tell(&before, &first),
        tell(&lab, &second)
    ))
}

/// A VM that runs uses what it was given of its host. Else a host that keeps some memory free would have room for one more.
fn use_host(lab: &mut Lab, machine: &str) {
    let machine = &lab.snapshot.machines[machine];
    let kind = &lab.policy.instance_types[machine.mark.instance_type.as_str()];
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    if let Some(host) = region.hosts.get_mut(&machine.host) {
        host.memory_used = host.memory_used.saturating_add(kind.memory);
        host.cpu_used_milli += i64::from(kind.cores) * 1000;
    }
}

/// What is on its way is enough: no machine is added while those that were made are still coming, one by one,
/// and kube-scheduler has bound nobody yet.
fn enough_comes(mut lab: Lab) -> Result<(), String> {
    // A pod that must leave its node has no verdict, so nobody sees that it waits for its turn.
    lab.policy.scale_up.max_in_flight = 1_000;
    let before = lab.clone();
    let first = lab.try_decide()?;
    if held(&first) {
        return Ok(());
    }
    lab.memory = first.memory.clone();
    let mut coming = Vec::new();
    for action in &first.plan {
        lab.begin(action);
        if matches!(action.kind, Kind::Create(_)) {
            coming.push(action.target.machine.clone());
        }
    }
    coming.reverse();
    for machine in std::iter::once(None).chain(coming.iter().map(Some)) {
        if let Some(machine) = machine {
            lab.clone_vm(machine);
            lab.register(machine, true);
            use_host(&mut lab, machine);
        }
        lab.now = lab.now + Span::seconds(2);
        lab.refresh();
        let second = lab.try_decide()?;
        if created(&second.plan) > 0 {
            return Err(format!(
                "one more{}\n=== then{}",
                tell(&before, &first),
                tell(&lab, &second)
            ));
        }
        lab.memory = second.memory;
    }
    Ok(())
}

/// Decisions come to an end, and stay there.
fn settles(world: &Wide) -> Result<(), String> {
    let mut lab = world.build();
    for pool in lab.policy.pools.values_mut() {
        pool.budgets.clear();
    }
    for _ in 0..60 {
        carry_out(&mut lab)?;
        lab = lab.after(Span::minutes(2));
    }
    for _ in 0..20 {
        let before = lab.clone();
        let decision = carry_out(&mut lab)?;
        let changes = decision
            .plan
            .iter()
            .any(|action| matches!(action.kind, Kind::Create(_) | Kind::Remove { .. }));
        if changes {
            return Err(format!("no end{}", tell(&before, &decision)));
        }
        lab = lab.after(Span::minutes(2));
    }
    Ok(())
}

/// Pods that get a place now.
fn happy(decision: &Decision) -> BTreeSet<ObjectKey> {
    let pods = decision.report.pods.iter();
    pods.filter(|(_, verdict)| place(verdict).is_some())
        .map(|(key, _)| key.clone())
        .collect()
}

/// With room for everything nobody stays out; with more of a limit nobody does who fits by himself.
fn more_never_hurts(world: &Wide) -> Result<(), String> {
    let mut lab = world.build();
    // Who depends on others may lose by what others gain; whose place is forbidden by others, too.
    lab.policy.scale_up.default_spread.clear();
    lab.snapshot.cluster.pods.retain(|_, pod| {
        let shape = &pod.shape;
        shape.spread.is_empty()
            && shape.pod_affinity.is_empty()
            && shape.pod_anti_affinity.is_empty()
            && shape.volumes.is_empty()
    });
    let before = lab.try_decide()?;
    let mut more = lab.clone();
    for pool in more.policy.pools.values_mut() {
        pool.max += 30;
        pool.max_cpu_milli = None;
    }
    more.policy.scale_up.max_in_flight += 100;
    more.policy.scale_up.max_nodes_total = 0;
    let region = more.snapshot.regions.get_mut("home").expect("home");
    for host in region.hosts.values_mut() {
        host.memory = 1 << 42;
    }
    compare(&lab, &before, &more)?;
    let larger = more.clone().node("zz-free", 8000, 8192);
    let before = more.try_decide()?;
    compare(&more, &before, &larger)
}

fn compare(lab: &Lab, before: &Decision, more: &Lab) -> Result<(), String> {
    let after = more.try_decide()?;
    let (had, has) = (happy(before), happy(&after));
    match had.difference(&has).next() {
        None => Ok(()),
        Some(key) => Err(format!(
            "{key} loses its place{}\n=== with more{}",
            tell(lab, before),
            tell(more, &after)
        )),
    }
}

/// Whoever is evicted has a place by the second opinion, in the world without the nodes that go; and no
/// budget is overdrawn by the plan as a whole.
fn evicted_land(world: &Wide) -> Result<(), String> {
    let mut lab = world.build();
    lab.memory = decided(&lab).memory;
    let mut lab = lab.after(Span::minutes(11));
    lab.memory = decided(&lab).memory;
    let lab = lab.after(Span::seconds(20));
    let decision = lab.try_decide()?;
    let mut naive = Naive::of(&lab, &decision);
    let mut evictions: Vec<(ObjectKey, Arc<str>)> = Vec::new();
    for action in &decision.plan {
        if let (Kind::Remove { .. }, Some(node)) = (&action.kind, &action.target.node) {
            naive.world.nodes.retain(|spot| spot.name != node.name);
            let landing = action.precondition.landing.iter();
            evictions.extend(landing.map(|(key, to)| (key.clone(), to.clone())));
        }
    }
    let landing = |key: &ObjectKey| {
        let shape = &lab.snapshot.cluster.pods[key].shape;
        shape.spread.is_empty() && shape.pod_affinity.is_empty()
    };
    let spread = !lab.policy.scale_up.default_spread.is_empty();
    let firm: Vec<_> = evictions
        .iter()
        .filter(|(key, _)| landing(key) && !spread)
        .cloned()
        .collect();
    let verdict = naive.lay_all(&firm);
    verdict.map_err(|(key, why)| format!("{key} {why}{}", tell(&lab, &decision)))?;
    for (name, budget) in &lab.snapshot.cluster.budgets {
        let counted = |key: &&ObjectKey| {
            let pod = &lab.snapshot.cluster.pods[*key];
            let wanted = budget.selector.as_ref().map(|selector| &selector.labels);
            key.namespace == name.namespace
                && pod.deletion.is_none()
                && wanted.is_some_and(|labels| {
                    labels
                        .iter()
                        .all(|(k, v)| pod.shape.labels.get(k) == Some(v))
                })
        };
        let nodes: Vec<usize> = decision
            .plan
            .iter()
            .map(|action| action.precondition.pods.iter().filter(counted).count())
            .filter(|count| *count > 0)
            .collect();
        let sum: usize = nodes.iter().sum();
        let allowed = usize::try_from(budget.allowed).unwrap_or(0);
        if sum > allowed && (nodes.len() > 1 || allowed == 0) {
            return Err(format!("{name} is overdrawn{}", tell(&lab, &decision)));
        }
    }
    Ok(())
}

/// What may be done while something holds: no machine is made on a stale view of the pods, none goes.
fn held_back(world: &Wide, which: usize) -> Result<(), String> {
    let mut lab = world.build();
    lab.memory = decided(&lab).memory;
    let mut lab = lab.after(Span::minutes(11));
    let source = [
        "kube/pods",
        "kube/nodes",
        "pve/home",
        "kube/poddisruptionbudgets",
    ][which % 4];
    let state = lab.snapshot.sources.get_mut(source).expect("a source");
    state.as_of = state.as_of - Span::minutes(10);
    if which >= 4 {
        state.complete = false;
    }
    let decision = lab.try_decide()?;
    let acts = decision.plan.iter().any(|action| {
        matches!(
            action.kind,
            Kind::Create(_) | Kind::Remove { .. } | Kind::DeleteNode
        )
    });
    if acts {
        return Err(format!("{source} is stale{}", tell(&lab, &decision)));
    }
    Ok(())
}

const HOSTILE: [&str; 12] = [
    "-1",
    "0",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "2147483647",
    "-2147483648",
    "4294967295",
    "\"\"",
    "\"no such thing\"",
    "null",
    "[]",
];

/// Every value of a JSON text that is no object, by its path.
fn leaves(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                leaves(value, format!("{path}/{key}"), found);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (index, value) in list.iter().enumerate() {
                leaves(value, format!("{path}/{index}"), found);
            }
        }
        _ => found.push(path),
    }
}

fn mutated(snapshot: &Snapshot, changes: &[(Index, Index)]) -> Option<Snapshot> {
    let mut value = serde_json::to_value(snapshot).expect("a snapshot serialises");
    let mut paths = Vec::new();
    leaves(&value, String::new(), &mut paths);
    for (at, what) in changes {
        let place = value
            .pointer_mut(&paths[at.index(paths.len())])
            .expect("it was there");
        let before = place.clone();
        *place = serde_json::from_str(HOSTILE[what.index(HOSTILE.len())]).expect("JSON");
        // What cannot be read at all never gets this far.
        if serde_json::from_value::<Snapshot>(value.clone()).is_err() {
            *value
                .pointer_mut(&paths[at.index(paths.len())])
                .expect("it was there") = before;
        }
    }
    serde_json::from_value(value).ok()
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 10_000, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn what_was_made_is_not_made_again(world in wide(4, 10)) {
        let verdict = done_once(&world);
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
    }

    #[test]
    fn what_is_on_its_way_is_enough(world in wide(4, 12)) {
        let verdict = enough_comes(world.build());
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
    }

    /// Pods of every size fill machines tightly: they fit as they were laid out and hardly in another way.
    #[test]
    fn tight_machines_on_their_way_are_enough(sizes in proptest::collection::vec((50..2_000i64, 50..4_000i64, 0..3i32), 2..60)) {
        let mut lab = lab().kind("two", 2, 4096).kind("four", 4, 8192).pool("p", &["two", "four"]).pool("q", &["four"]);
        for (n, (milli, mib, priority)) in sizes.into_iter().enumerate() {
            let name = format!("pod{n}");
            lab = lab.pod(&name, milli, mib).shape(&name, |shape| shape.priority = priority / 2);
        }
        lab.policy.scale_up.max_in_flight = 200;
        for pool in lab.policy.pools.values_mut() {
            pool.max = 100;
        }
        for host in lab.snapshot.regions.get_mut("home").expect("home").hosts.values_mut() {
            host.memory = 4 << 40;
        }
        let verdict = enough_comes(lab);
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
    }

    #[test]
    fn more_room_takes_no_place_away(world in wide(4, 10)) {
        let verdict = more_never_hurts(&world);
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
    }

    #[test]
    fn who_is_evicted_has_a_place_and_budgets_hold(world in wide(6, 10)) {
        let verdict = evicted_land(&world);
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
    }

    #[test]
    fn nothing_is_done_on_a_stale_view(world in wide(5, 6), which in 0..8usize) {
        let verdict = held_back(&world, which);
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
    }

    #[test]
    fn the_order_of_lists_does_not_matter(world in wide(4, 10)) {
        let lab = world.build();
        let mut other = lab.clone();
        let cluster = &mut other.snapshot.cluster;
        for node in cluster.nodes.values_mut() {
            node.taints.reverse();
        }
        for pod in cluster.pods.values_mut() {
            // Not shared with any other.
            let mut shape = (*pod.shape).clone();
            shape.tolerations.reverse();
            shape.volumes.reverse();
            shape.host_ports.reverse();
            pod.shape = Arc::new(shape);
        }
        let text = serde_json::to_string(&other.snapshot).expect("a snapshot serialises");
        other.snapshot = serde_json::from_str(&text).expect("and is read again");
        let (one, two) = (decided(&lab), decided(&other));
        prop_assert!(one.plan == two.plan, "{}\n=== reversed{}", tell(&lab, &one), tell(&other, &two));
        let places = |decision: &Decision| -> Vec<(ObjectKey, Option<Arc<str>>)> {
            let pods = decision.report.pods.iter();
            pods.map(|(key, verdict)| (key.clone(), place(verdict).cloned())).collect()
        };
        prop_assert!(places(&one) == places(&two), "{}", tell(&lab, &one));
    }

    /// Labels that no selector names, and controllers that nothing is counted by, change no decision: pods that
    /// have their own are decided on as those that have none.
    #[test]
    fn labels_that_nobody_names_change_nothing(world in wide(4, 12)) {
        let lab = world.build();
        let mut labelled = lab.clone();
        for (number, pod) in (0..).zip(labelled.snapshot.cluster.pods.values_mut()) {
            let shape = Arc::make_mut(&mut pod.shape);
            shape.labels.insert("number".into(), format!("{number}").into());
            shape.labels.insert(format!("own-{number}").into(), "yes".into());
        }
        let (before, after) = (decided(&lab), decided(&labelled));
        let same = before.plan == after.plan && before.report == after.report;
        prop_assert!(same, "{}\n=== with labels{}", tell(&lab, &before), tell(&labelled, &after));
    }

    #[test]
    fn hostile_values_anywhere_never_panic(
        world in wide(4, 6),
        changes in proptest::collection::vec(any::<(Index, Index)>(), 1..6),
        now in prop_oneof![4 => Just(None), 1 => any::<i64>().prop_map(Some)],
    ) {
        let mut lab = world.build();
        if let Some(snapshot) = mutated(&lab.snapshot, &changes) {
            lab.snapshot = snapshot;
            lab.now = now.map_or(lab.now, Time);
            let first = decided(&lab);
            let _ = check::check_plan(&first.plan, &lab.snapshot, &lab.policy, lab.now);
            lab.memory = first.memory;
            lab.now = lab.now + Span::minutes(11);
            let second = decided(&lab);
            let _ = check::check_plan(&second.plan, &lab.snapshot, &lab.policy, lab.now);
        }
    }

    /// One pod that lies about what it asks spoils nothing for the others.
    #[test]
    fn a_bad_pod_is_explained_alone(world in wide(4, 8), amount in prop_oneof![Just(i64::MAX), Just(1 << 60), Just(1 << 62)]) {
        let lab = world.build();
        let before = decided(&lab);
        let more = lab.clone().pod("zz-liar", amount, 0).shape("zz-liar", |shape| {
            shape.requests.memory = amount;
            shape.labels.clear();
        });
        let after = decided(&more);
        let others: Vec<_> = after.report.pods.iter().filter(|(key, _)| &*key.name != "zz-liar").collect();
        prop_assert!(before.plan == after.plan, "{}\n=== with it{}", tell(&lab, &before), tell(&more, &after));
        let same = before.report.pods.iter().eq(others);
        prop_assert!(same, "{}\n=== with it{}", tell(&lab, &before), tell(&more, &after));
        let liar = &after.report.pods[&ObjectKey::new("default", "zz-liar")];
        prop_assert!(matches!(liar, PodVerdict::NoCompatiblePool { .. }), "{:?}{}", liar, story(&more));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2_000, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn decisions_come_to_an_end(world in wide(5, 8)) {
        let verdict = settles(&world);
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
    }
}
