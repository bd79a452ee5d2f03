//! A model world that carries decisions out over hours and days: a steady load makes no change, what is
//! consolidated costs no more than before, and every plan is done once.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::consolidating::consolidated;
use super::constraints::{HOSTNAME, own_term};
use super::lab::{Lab, owner};
use model::action::{Kind, Reason};
use model::cluster::ObjectKey;
use model::decision::Decision;
use model::disruption::ConsolidationPolicy;
use model::time::Span;

/// What one turn of the model world does: plans are carried out, machines come up and go down at once,
/// evicted pods stand where they were to land, waiting pods are bound where they were to go.
fn live(lab: &mut Lab, every: Span) -> Decision {
    let decision = lab.turn();
    for action in &decision.plan {
        if let Kind::Remove { .. } = action.kind {
            for (key, to) in &action.precondition.landing {
                succeed(lab, key, to);
            }
        }
    }
    lab.settle();
    for (key, verdict) in &decision.report.pods {
        use model::report::PodVerdict;
        let (PodVerdict::FitsNode { node: name, .. }
        | PodVerdict::FitsMachine { machine: name }
        | PodVerdict::Triggers { machine: name, .. }) = verdict
        else {
            continue;
        };
        if lab.snapshot.cluster.nodes.contains_key(name) {
            bind(lab, key, name);
        }
    }
    lab.now = lab.now + every;
    lab.refresh();
    decision
}

/// The pod's successor stands elsewhere.
fn succeed(lab: &mut Lab, key: &ObjectKey, to: &Arc<str>) {
    let now = lab.now;
    if let Some(pod) = lab.snapshot.cluster.pods.get_mut(key) {
        pod.uid = format!("{}'", pod.uid).into();
        pod.created = now;
    }
    bind(lab, key, to);
}

pub(super) fn bind(lab: &mut Lab, key: &ObjectKey, to: &Arc<str>) {
    if let Some(pod) = lab.snapshot.cluster.pods.get_mut(key) {
        pod.node = Some(to.clone());
        pod.phase = model::cluster::Phase::Running;
        pod.unschedulable_since = None;
        pod.ready = true;
    }
}

/// The price of all machines.
fn price(lab: &Lab) -> i64 {
    let kinds = &lab.policy.instance_types;
    let machines = lab.snapshot.machines.values();
    machines
        .map(|machine| {
            kinds[machine.mark.instance_type.as_str()]
                .price
                .unwrap_or(0)
        })
        .sum()
}

/// Machines made and taken down.
fn changes(decision: &Decision) -> usize {
    decision
        .plan
        .iter()
        .filter(|action| matches!(action.kind, Kind::Create(_) | Kind::Remove { .. }))
        .count()
}

/// Sixty pods of many sizes on nodes of every type, half of them too large for what they do.
fn town() -> Lab {
    let mut lab = consolidated();
    lab.policy.scale_down.max_parallel_drain = 3;
    for n in 0..24 {
        let kind = ["s", "m", "l"][n % 3];
        lab = lab.ours(&format!("n{n:02}"), "c", kind);
    }
    for n in 0..60usize {
        let node = format!("n{:02}", (n * 7) % 24);
        let name = format!("web{}-{n}", n % 5);
        let milli = [100, 250, 400, 700, 150][n % 5];
        lab = lab.bound(&name, &node, milli, milli);
    }
    lab
}

#[test]
fn nx_14_a_day_of_steady_load_changes_nothing_once_it_is_settled() {
    for policy in [
        None,
        Some(ConsolidationPolicy::WhenEmpty),
        Some(ConsolidationPolicy::WhenUnderused),
    ] {
        let mut lab = town().edit_pool("c", |pool| match policy {
            None => pool.consolidation = None,
            Some(policy) => {
                let how = pool.consolidation.as_mut().expect("consolidated");
                how.policy = policy;
                how.after = Span::minutes(5);
            }
        });
        // Three hours to find its order …
        let before = price(&lab);
        for _ in 0..180 {
            live(&mut lab, Span::minutes(1));
        }
        assert!(price(&lab) <= before);
        // … and then an hour of turns ten seconds apart, and a day of turns five minutes apart, without
        // a change.
        let machines: Vec<_> = lab.snapshot.machines.keys().cloned().collect();
        for _ in 0..360 {
            assert_eq!(live(&mut lab, Span::seconds(10)).plan, [], "{policy:?}");
        }
        for _ in 0..24 * 12 {
            assert_eq!(live(&mut lab, Span::minutes(5)).plan, [], "{policy:?}");
        }
        let after: Vec<_> = lab.snapshot.machines.keys().cloned().collect();
        assert_eq!(machines, after);
        assert!(lab.memory.replacements.is_empty());
        if policy == Some(ConsolidationPolicy::WhenUnderused) {
            assert!(price(&lab) * 2 < before, "{} of {before}", price(&lab));
        }
    }
}

#[test]
fn a_load_that_comes_and_goes_is_followed_without_flapping() {
    let mut lab = consolidated().edit_pool("c", |pool| {
        pool.consolidation.as_mut().expect("consolidated").after = Span::minutes(5);
    });
    let (mut made, mut gone) = (0, 0);
    for hour in 0..24usize {
        // Ten pods of a core in even hours, five in odd ones.
        for n in 0..10 {
            let key = ObjectKey::new("default", format!("web-{n}"));
            let wanted = hour % 2 == 0 || n < 5;
            let there = lab.snapshot.cluster.pods.contains_key(&key);
            if wanted && !there {
                lab = lab.pod(&format!("web-{n}"), 1000, 1000);
            } else if !wanted && there {
                lab.snapshot.cluster.pods.remove(&key);
            }
        }
        for _ in 0..60 {
            let decision = live(&mut lab, Span::minutes(1));
            for action in &decision.plan {
                match action.kind {
                    Kind::Create(_) => made += 1,
                    Kind::Remove { .. } => gone += 1,
                    _ => {}
                }
            }
        }
    }
    // Each change of load is answered by a few machines, never by a chain of them.
    assert!(made <= 24 * 2 && gone <= made, "{made} made, {gone} gone");
    let pods = lab.snapshot.cluster.pods.values();
    assert!(pods.into_iter().all(|pod| pod.node.is_some()));
}

/// A node's type and its pods' sizes.
type Recipe = (u8, Vec<(u16, u8)>);

fn recipes() -> impl Strategy<Value = Vec<Recipe>> {
    proptest::collection::vec(
        (
            0..3u8,
            proptest::collection::vec((50..2500u16, 0..8u8), 0..4),
        ),
        1..8,
    )
}

/// Pods that come at once: thousandths of a core, MiB, and what they ask of others.
fn newcomers() -> impl Strategy<Value = Vec<(u16, u16, u8)>> {
    proptest::collection::vec((50..1800u16, 50..3000u16, 0..8u8), 1..40)
}

fn build(recipes: &[Recipe], saving: i64) -> Lab {
    let mut lab = consolidated();
    lab.policy.scale_down.max_parallel_drain = 2;
    lab = lab.edit_pool("c", |pool| {
        let how = pool.consolidation.as_mut().expect("consolidated");
        how.min_saving.permille = saving;
    });
    for (n, (kind, pods)) in recipes.iter().enumerate() {
        let node = format!("n{n}");
        let kind = ["s", "m", "l"][usize::from(*kind)];
        lab = lab.ours(&node, "c", kind);
        let mut left = lab.snapshot.cluster.nodes[node.as_str()]
            .allocatable
            .cpu_milli;
        for (at, (milli, twist)) in pods.iter().enumerate() {
            if i64::from(*milli) > left {
                continue;
            }
            left -= i64::from(*milli);
            let name = format!("web{n}-{at}");
            lab = lab.bound(&name, &node, i64::from(*milli), 1);
            lab = lab.shape(&name, |shape| match twist {
                0 => shape.owner = None,
                1 => shape.priority = 1000,
                2 => shape.owner = Some(owner("StatefulSet", "db")),
                3 => {
                    shape
                        .node_selector
                        .insert("topology.kubernetes.io/zone".into(), "pve1".into());
                }
                _ => {}
            });
        }
    }
    lab
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn consolidation_ends_and_never_costs_more(recipes in recipes(), saving in 0..500i64) {
        let mut lab = build(&recipes, saving);
        let pods = lab.snapshot.cluster.pods.len();
        let before = price(&lab);
        let mut paid = before;
        for _ in 0..90 {
            let replacing = !lab.memory.replacements.is_empty();
            let decision = live(&mut lab, Span::minutes(1));
            let made = decision.plan.iter().any(|action| matches!(action.kind, Kind::Create(_)));
            // While a replacement is under way both are paid for, and only then.
            if lab.memory.replacements.is_empty() && !replacing && !made {
                prop_assert!(price(&lab) <= paid);
                paid = price(&lab);
            }
        }
        prop_assert!(price(&lab) <= before);
        prop_assert_eq!(lab.snapshot.cluster.pods.len(), pods);
        for (key, pod) in &lab.snapshot.cluster.pods {
            let there = pod.node.as_ref().is_some_and(|node| lab.snapshot.cluster.nodes.contains_key(node));
            prop_assert!(there, "{}", key);
        }
        for _ in 0..30 {
            let decision = live(&mut lab, Span::minutes(1));
            prop_assert_eq!(changes(&decision), 0);
        }
    }

    /// What scale-up laid out, consolidation has nothing to do with: its plan is as cheap as what consolidation looks for.
    #[test]
    fn consolidation_leaves_alone_what_scale_up_laid_out(pods in newcomers()) {
        let mut lab = consolidated().edit_pool("c", |pool| {
            let how = pool.consolidation.as_mut().expect("consolidated");
            how.min_saving.permille = 0;
        });
        for (at, (milli, mib, twist)) in pods.iter().enumerate() {
            let name = format!("app{twist}-{at}");
            lab = lab.pod(&name, i64::from(*milli), i64::from(*mib));
            lab = lab.shape(&name, |shape| match twist {
                0 => shape.pod_anti_affinity.push(own_term("app0", HOSTNAME)),
                1 => shape.pod_affinity.push(own_term("app2", HOSTNAME)),
                _ => {}
            });
        }
        for _ in 0..5 {
            live(&mut lab, Span::minutes(1));
        }
        let made = price(&lab);
        for _ in 0..60 {
            let decision = live(&mut lab, Span::minutes(1));
            prop_assert_eq!(&decision.plan, &[], "machines for {} are changed, in the end they cost {}", made, price(&lab));
        }
    }

    #[test]
    fn every_replacement_saves_what_is_wanted_and_is_planned_once(recipes in recipes(), saving in 0..500i64) {
        let mut lab = build(&recipes, saving);
        let kinds: BTreeMap<Arc<str>, i64> = lab.policy.instance_types.iter().map(|(name, kind)| (name.clone(), kind.price.unwrap_or(0))).collect();
        for _ in 0..30 {
            let decision = lab.turn();
            for action in &decision.plan {
                let (Kind::Create(spec), Reason::Replaces { nodes, saving: promised, .. }) = (&action.kind, &action.reason) else {
                    continue;
                };
                let types = nodes.iter().map(|node| lab.snapshot.machines[node].mark.instance_type.as_str());
                let old: i64 = types.clone().map(|kind| kinds[kind]).sum();
                let wanted: i64 = types.clone().map(|kind| (kinds[kind] * saving + 999) / 1000).map(|s| s.max(1)).sum();
                let new = kinds[spec.mark.instance_type.as_str()];
                prop_assert!(old - new >= wanted && *promised == old - new);
                prop_assert!(types.into_iter().all(|kind| kind != spec.mark.instance_type));
            }
            // Pods of a node that goes may call for a machine; nothing is consolidated twice.
            for action in &lab.decide().plan {
                prop_assert!(matches!(action.reason, Reason::PendingPods { .. }), "{:?}", action);
            }
            lab.settle();
            lab = lab.after(Span::seconds(15));
        }
    }
}
