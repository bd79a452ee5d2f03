//! Pods that do not bear one another: anti-affinity in the world as it will be after a plan.
//!
//! A plain reading, written apart from the one that decides. Affinity and spread are not asked here: a
//! later removal of the same plan may change them after a pod was placed rightly.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Case, CheckResult, CheckRule, landing, matching, refuse};
use model::cluster::{ObjectKey, Pod};
use model::label_list::LabelSet;
use model::scheduling::{LabelSelector, Labels, PodTerm};

/// Whether a selector takes in a pod with these labels.
pub(crate) fn selected(selector: Option<&LabelSelector>, labels: &impl LabelSet) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    let equal = selector
        .labels
        .iter()
        .all(|(key, value)| labels.value(key) == Some(value));
    let met = selector
        .expressions
        .iter()
        .all(|wanted| matching::meets(wanted, labels.value(&wanted.key).map(AsRef::as_ref)));
    equal && met
}

/// Whether a term of a pod in `from` is about this pod.
fn about(case: Case<'_>, term: &PodTerm, from: &str, key: &ObjectKey, pod: &Pod) -> bool {
    let namespace = if term.namespaces.is_empty() && term.namespace_selector.is_none() {
        *from == *key.namespace
    } else {
        let none = Labels::new();
        let labels = case.snapshot.cluster.namespaces.get(&key.namespace);
        term.namespaces.contains(&key.namespace)
            || selected(term.namespace_selector.as_ref(), labels.unwrap_or(&none))
    };
    namespace && selected(term.selector.as_ref(), &pod.shape.labels)
}

/// Two of these pods of which one does not bear the other on a node with these labels.
pub(super) fn find_conflict<'a>(
    case: Case<'_>,
    pods: &[(&'a ObjectKey, &Pod)],
    labels: &Labels,
) -> Option<(&'a ObjectKey, &'a ObjectKey)> {
    for (key, pod) in pods {
        for (other_key, other) in pods.iter().filter(|(other, _)| other != key) {
            let averse = pod.shape.pod_anti_affinity.iter().any(|term| {
                labels.contains_key(&term.topology_key)
                    && about(case, term, &key.namespace, other_key, other)
            });
            if averse {
                return Some((key, other_key));
            }
        }
    }
    None
}

/// Whether an expendable pod may be gone by the time a pod lands: kube-scheduler preempts it for that pod
/// where both would be on one node, or for another that lands where it runs.
fn may_go(
    case: Case<'_>,
    (pod, to): (&Pod, &Arc<str>),
    (other, at): (&Pod, &Arc<str>),
    landed: &BTreeMap<&ObjectKey, &Arc<str>>,
) -> bool {
    let preempts = |key: &&ObjectKey| {
        let newcomer = case.snapshot.cluster.pods.get(key);
        newcomer.is_some_and(|newcomer| landing::preempts(case, newcomer))
    };
    let comes = || {
        let mut there = landed.iter().filter(|(_, node)| ***node == *at);
        there.any(|(key, _)| preempts(key))
    };
    let gives_way = if to == at {
        landing::preempts(case, pod)
    } else {
        comes()
    };
    landing::expendable(case, other) && gives_way
}

/// No pod that lands comes near one that either of them does not bear. `landed` says where pods will
/// be; pods of the nodes `going` that are not in it are gone.
pub(super) fn check(
    case: Case<'_>,
    landed: &BTreeMap<&ObjectKey, &Arc<str>>,
    going: &[&str],
) -> CheckResult {
    let cluster = &case.snapshot.cluster;
    let place = |key: &ObjectKey, pod: &Pod| -> Option<Arc<str>> {
        match (landed.get(key), &pod.node) {
            (Some(node), _) => Some((*node).clone()),
            (None, Some(node)) if !going.contains(&&**node) => Some(node.clone()),
            _ => None,
        }
    };
    for (key, to) in landed {
        let Some(pod) = cluster.pods.get(key) else {
            continue;
        };
        for (other_key, other) in &cluster.pods {
            let Some(at) = place(other_key, other).filter(|_| other_key != *key) else {
                continue;
            };
            let averse = !pod.shape.pod_anti_affinity.is_empty()
                || !other.shape.pod_anti_affinity.is_empty();
            if other.phase.terminal() || !averse {
                continue;
            }
            let near = |term: &PodTerm| {
                let label = |node: &Arc<str>| {
                    let node = cluster.nodes.get(node)?;
                    node.labels.get(&term.topology_key)
                };
                label(to).is_some() && label(to) == label(&at)
            };
            let mine = pod
                .shape
                .pod_anti_affinity
                .iter()
                .any(|term| near(term) && about(case, term, &key.namespace, other_key, other));
            let theirs = other
                .shape
                .pod_anti_affinity
                .iter()
                .any(|term| near(term) && about(case, term, &other_key.namespace, key, pod));
            if (mine || theirs) && !may_go(case, (pod, to), (other, &at), landed) {
                return refuse(
                    CheckRule::Landing,
                    format!("{key} may not come to {to}: {other_key} is near"),
                );
            }
        }
    }
    Ok(())
}
