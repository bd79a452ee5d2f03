//! Preemption as kube-scheduler does it (plugin DefaultPreemption): a pod that fits nowhere takes the place of pods of lower priority
//! on one node, is nominated for that node, and comes there when they are gone.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use filters::{NodeInfos, PodInfo};
use serde_json::Value;

use super::nominations::{self, nominated};
use crate::sim::kube::eviction::covers;
use crate::sim::kube::object::{deleting, name, namespace, number, set, set_condition, text};
use crate::sim::kube::resources::{PDBS, PODS};
use crate::sim::kube::store::State;
use crate::sim::kube::verbs;

/// The condition reason of a pod that is preempted.
const PREEMPTED: &str = "PreemptionByScheduler";

/// A node that takes a pod when some of its pods go.
#[derive(Debug)]
pub(super) struct PreemptionCandidate {
    /// The index of the node.
    at: usize,
    /// Who goes, the most important first.
    victims: Vec<Arc<Value>>,
    /// How many of them go in spite of a disruption budget.
    violations: usize,
}

/// `spec.priority`.
pub(super) fn priority(pod: &Value) -> i64 {
    number(pod, "/spec/priority").unwrap_or(0)
}

/// The lowest priority of a pod that is on a node: nobody preempts with one that is not higher.
pub(super) fn find_lowest(state: &State) -> i64 {
    let pods = state.all(PODS).values();
    let bound = pods.filter(|pod| !text(pod, "/spec/nodeName").is_empty());
    bound.map(|pod| priority(pod)).min().unwrap_or(i64::MAX)
}

/// Whether a pod may preempt others, or why not, as kube-scheduler says it: not one that never does, nor one for which pods of its
/// nominated node are on their way out.
pub(super) fn may_preempt(state: &State, pod: &Value) -> Result<(), &'static str> {
    if text(pod, "/spec/preemptionPolicy") == "Never" {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let Some(node) = nominated(pod) else {
        return Ok(());
    };
    let mut pods = state.all(PODS).values();
    let make_way = pods.any(|other| {
        text(other, "/spec/nodeName") == node && deleting(other) && priority(other) < priority(pod)
    });
    if make_way {
        return Err("not eligible due to a terminating pod on the nominated node.");
    }
    Ok(())
}

/// The node on which a pod preempts others, of those of these indices; `None` where that helps nowhere. `kept` are pods for which
/// room of a node is kept against this one.
pub(super) fn find_candidate(
    state: &State,
    world: &mut NodeInfos<'_>,
    (pod, info): (&Value, &PodInfo),
    nodes: &[usize],
    kept: &BTreeMap<usize, Vec<PodInfo>>,
) -> Option<PreemptionCandidate> {
    let candidates = nodes.iter().filter_map(|at| {
        let kept = kept.get(at).map(Vec::as_slice).unwrap_or_default();
        find_victims(state, world, (pod, info), *at, kept)
    });
    candidates.min_by_key(|candidate| {
        let victims = &candidate.victims;
        let highest = victims.first().map_or(i64::MIN, |pod| priority(pod));
        let sum: i64 = victims.iter().map(|pod| priority(pod) + (1 << 31)).sum();
        let highest_ones = victims.iter().filter(|pod| priority(pod) == highest);
        // The node whose most important victims started last.
        let earliest = highest_ones.map(|pod| text(pod, "/status/startTime")).min();
        (
            candidate.violations,
            highest,
            sum,
            victims.len(),
            Reverse(earliest.unwrap_or_default().to_owned()),
        )
    })
}

/// Who has to go from a node so that a pod fits there: of all pods of lower priority as few as will do.
fn find_victims(
    state: &State,
    world: &mut NodeInfos<'_>,
    (pod, info): (&Value, &PodInfo),
    at: usize,
    kept: &[PodInfo],
) -> Option<PreemptionCandidate> {
    let there = std::mem::take(&mut world.nodes[at].pods);
    let object = |info: &PodInfo| state.get(PODS, &info.key.namespace, &info.key.name);
    let (mut lower, mut stay) = (Vec::new(), Vec::new());
    for other in &there {
        match object(other).filter(|other| priority(other) < priority(pod)) {
            Some(found) => lower.push((found, other.clone())),
            None => stay.push(other.clone()),
        }
    }
    let mut fits = |pods: &[PodInfo]| {
        world.nodes[at].pods = pods.to_vec();
        let alone = world.ask(info).fits(at).is_ok();
        world.nodes[at].pods.extend_from_slice(kept);
        alone && (kept.is_empty() || world.ask(info).fits(at).is_ok())
    };
    let mut found = None;
    if !lower.is_empty() && fits(&stay) {
        lower.sort_by_key(|(pod, _)| {
            (
                Reverse(priority(pod)),
                text(pod, "/status/startTime").to_owned(),
            )
        });
        let protected = find_protected(state, lower.iter().map(|(pod, _)| &**pod));
        let (mut victims, mut violations) = (Vec::new(), 0);
        // Those whose budget is spent may stay before the others.
        for wanted in [true, false] {
            let some = lower.iter().zip(&protected);
            for ((pod, info), _) in some.filter(|(_, protected)| **protected == wanted) {
                stay.push(info.clone());
                if !fits(&stay) {
                    stay.pop();
                    victims.push(Arc::clone(pod));
                    violations += usize::from(wanted);
                }
            }
        }
        victims.sort_by_key(|pod| Reverse(priority(pod)));
        found = (!victims.is_empty()).then_some(PreemptionCandidate {
            at,
            victims,
            violations,
        });
    }
    world.nodes[at].pods = there;
    found
}

/// Of pods in this order, which would go in spite of a disruption budget.
fn find_protected<'p>(state: &State, pods: impl Iterator<Item = &'p Value>) -> Vec<bool> {
    let budgets: Vec<&Arc<Value>> = state.all(PDBS).values().collect();
    let allowed = budgets
        .iter()
        .map(|budget| number(budget, "/status/disruptionsAllowed").unwrap_or(0));
    let mut allowed: Vec<i64> = allowed.collect();
    let protected = pods.map(|pod| {
        let mut violates = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            let counted = budget.pointer("/status/disruptedPods");
            let counted = counted.is_some_and(|pods| pods.get(name(pod)).is_some());
            if covers(budget, pod) && !counted {
                *allowed -= 1;
                violates |= *allowed < 0;
            }
        }
        violates
    });
    protected.collect()
}

/// Deletes the victims and nominates the pod for their node; who of lower priority was nominated for it is so no more.
pub(super) fn carry_out(
    state: &mut State,
    world: &mut NodeInfos<'_>,
    pod: &Value,
    candidate: &PreemptionCandidate,
) {
    let node = world.nodes[candidate.at].name.clone();
    let now = state.now;
    for victim in &candidate.victims {
        state.change(PODS, namespace(victim), name(victim), |victim| {
            if !deleting(victim) {
                let message = "default-scheduler: preempting to accommodate a higher priority pod";
                set_condition(victim, "DisruptionTarget", "True", PREEMPTED, message, now);
            }
        });
        let options = Value::Object(serde_json::Map::new());
        // It is there: nobody else writes in this turn.
        let _ = verbs::delete(state, PODS, namespace(victim), name(victim), &options);
        let same = |info: &&mut PodInfo| {
            *info.key.namespace == *namespace(victim) && *info.key.name == *name(victim)
        };
        for gone in world.nodes[candidate.at].pods.iter_mut().filter(same) {
            gone.deleting = true;
        }
    }
    let others: Vec<Arc<Value>> = state
        .all(PODS)
        .values()
        .filter(|other| {
            nominated(other) == Some(&*node)
                && text(other, "/spec/nodeName").is_empty()
                && priority(other) < priority(pod)
        })
        .cloned()
        .collect();
    for other in others {
        nominations::clear(state, &other);
    }
    state.change(PODS, namespace(pod), name(pod), |pod| {
        set(pod, &["status", "nominatedNodeName"], Value::from(&*node));
    });
}
