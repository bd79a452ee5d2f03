//! What other pods decide: affinity, anti-affinity both ways, topology spread.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::filters::{bears, chosen, selects};
use super::{Guest, Naive, Spot};
use model::cluster::PodKey;
use model::label_list::LabelList;
use model::scheduling::{
    LabelSelector, Labels, Operator, PodShape, PodTerm, Requirement, SpreadConstraint,
};

/// Whether a term of a pod of `from` means a pod.
fn means(
    naive: &Naive<'_>,
    term: &PodTerm,
    from: &str,
    namespace: &str,
    labels: &LabelList,
) -> bool {
    let mut there = term.namespaces.iter().any(|name| **name == *namespace);
    if let Some(selector) = &term.namespace_selector {
        let known = naive.lab.snapshot.cluster.namespaces.get(namespace);
        there |= selects(Some(selector), known.unwrap_or(&Labels::new()));
    }
    if term.namespaces.is_empty() && term.namespace_selector.is_none() {
        there = from == namespace;
    }
    there && selects(term.selector.as_ref(), labels)
}

fn neighbours<'n>(
    naive: &'n Naive<'_>,
    at: usize,
    key: &'n str,
) -> impl Iterator<Item = &'n Guest> {
    let here = naive.spots[at].labels.get(key).cloned();
    let near = naive
        .spots
        .iter()
        .filter(move |spot| here.is_some() && spot.labels.get(key) == here.as_ref());
    near.flat_map(|spot| &spot.guests)
}

pub(super) fn affinity(
    naive: &Naive<'_>,
    key: &PodKey,
    shape: &PodShape,
    at: usize,
) -> Result<(), String> {
    for spot in &naive.spots {
        for guest in &spot.guests {
            for term in &guest.shape.pod_anti_affinity {
                let same = spot.labels.get(&term.topology_key);
                let near = same.is_some() && same == naive.spots[at].labels.get(&term.topology_key);
                let from = &guest.key.namespace;
                if near && means(naive, term, from, &key.namespace, &shape.labels) {
                    return Err(format!("{} is averse to it", guest.key));
                }
            }
        }
    }
    for term in &shape.pod_anti_affinity {
        for guest in neighbours(naive, at, &term.topology_key) {
            let (namespace, labels) = (&guest.key.namespace, &guest.shape.labels);
            if means(naive, term, &key.namespace, namespace, labels) {
                return Err(format!("it is averse to {}", guest.key));
            }
        }
    }
    wanted(naive, key, shape, at)
}

/// Required affinity: pods that meet all terms must be near by every key; the first of a kind that
/// wants itself may go wherever the keys are.
fn wanted(naive: &Naive<'_>, key: &PodKey, shape: &PodShape, at: usize) -> Result<(), String> {
    let terms = &shape.pod_affinity;
    let all = |namespace: &str, labels: &LabelList| {
        terms
            .iter()
            .all(|term| means(naive, term, &key.namespace, namespace, labels))
    };
    let mut anywhere = false;
    let mut near = true;
    for term in terms {
        if !naive.spots[at].labels.contains_key(&term.topology_key) {
            return Err(format!("affinity: no label {}", term.topology_key));
        }
        near &= neighbours(naive, at, &term.topology_key)
            .any(|guest| all(&guest.key.namespace, &guest.shape.labels));
        for spot in &naive.spots {
            let labelled = spot.labels.contains_key(&term.topology_key);
            let mut guests = spot.guests.iter();
            anywhere |=
                labelled && guests.any(|guest| all(&guest.key.namespace, &guest.shape.labels));
        }
    }
    let first = !anywhere && all(&key.namespace, &shape.labels);
    if near || first {
        Ok(())
    } else {
        Err("affinity: nobody of the kind is near".to_owned())
    }
}

/// The hard constraints of a pod: its own, else the cluster's, which take the pods of its controller.
fn constraints<'n>(naive: &'n Naive<'_>, shape: &'n PodShape) -> (Vec<&'n SpreadConstraint>, bool) {
    let own: Vec<&SpreadConstraint> = shape.spread.iter().collect();
    let owner = shape.owner.as_ref().map_or("", |owner| &*owner.kind);
    let replicated = ["ReplicaSet", "StatefulSet", "ReplicationController"].contains(&owner);
    let (list, default) = if own.is_empty() && replicated {
        let default = &naive.lab.policy.scale_up.default_spread;
        (default.iter().collect(), true)
    } else {
        (own, false)
    };
    let list: Vec<_> = list
        .into_iter()
        .filter(|constraint| constraint.hard)
        .collect();
    (list, default)
}

pub(super) fn spread(
    naive: &Naive<'_>,
    key: &PodKey,
    shape: &PodShape,
    at: usize,
) -> Result<(), String> {
    let (list, default) = constraints(naive, shape);
    let keyed = |spot: &Spot| {
        list.iter()
            .all(|constraint| spot.labels.contains_key(&constraint.topology_key))
    };
    if !keyed(&naive.spots[at]) {
        return Err("spread: a label is missing".to_owned());
    }
    for constraint in &list {
        let owner = shape.owner.as_ref().map(|owner| &owner.uid);
        let selector = merged(constraint, &shape.labels);
        let counted = |namespace: &str, other: &PodShape| {
            let theirs = other.owner.as_ref().map(|owner| &owner.uid);
            let selected = if default {
                owner == theirs
            } else {
                let nothing = |s: &LabelSelector| s.labels.is_empty() && s.expressions.is_empty();
                !selector.as_ref().is_some_and(nothing) && selects(selector.as_ref(), &other.labels)
            };
            *namespace == *key.namespace && selected
        };
        let mut domains: BTreeMap<&Arc<str>, i64> = BTreeMap::new();
        for (index, spot) in naive.spots.iter().enumerate() {
            let takes_part = keyed(spot)
                && (!constraint.honor_affinity || chosen(shape, &spot.name, &spot.labels))
                && (!constraint.honor_taints || bears(shape, &spot.taints))
                && (!spot.empty_planned || index == at);
            if takes_part {
                let pods = spot.guests.iter();
                let pods = pods
                    .filter(|guest| !guest.deleting && counted(&guest.key.namespace, &guest.shape));
                let pods = i64::try_from(pods.count()).unwrap_or(i64::MAX);
                *domains
                    .entry(&spot.labels[&constraint.topology_key])
                    .or_insert(0) += pods;
            }
        }
        let few = constraint
            .min_domains
            .is_some_and(|min| i128::from(min) > domains.len() as i128);
        let least = if few {
            0
        } else {
            domains.values().min().copied().unwrap_or(0)
        };
        let domain = &naive.spots[at].labels[&constraint.topology_key];
        let here = domains.get(domain).copied().unwrap_or(0);
        let itself = i64::from(counted(&key.namespace, shape));
        if here + itself - least > i64::from(constraint.max_skew) {
            return Err(format!("spread: {here} in {domain}, the least is {least}"));
        }
    }
    Ok(())
}

/// Pods of the same revision alone: each of `matchLabelKeys` that the pod has asks for the pod's value.
fn merged(constraint: &SpreadConstraint, labels: &LabelList) -> Option<LabelSelector> {
    let alike = |key: &Arc<str>| {
        labels.get(key).map(|value| Requirement {
            key: key.clone(),
            operator: Operator::In,
            values: vec![value.clone()],
        })
    };
    let more = constraint.match_label_keys.iter().filter_map(alike);
    constraint.selector.clone().map(|mut whole| {
        whole.expressions.extend(more);
        whole
    })
}
