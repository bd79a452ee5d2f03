//! Topology spread with `whenUnsatisfiable: DoNotSchedule`.
//!
//! Source: kube-scheduler's plugin `PodTopologySpread`. A node that does not exist yet is a domain of its
//! own as soon as it does: it counts as one with no pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::scheduling::{LabelSelector, Labels, Operator, Requirement, SpreadConstraint};

use super::{Misfit, Place, selector, taints};
use crate::brain::world::{Bin, Shape, ShapeId, World};

/// One constraint, counted.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    key: Arc<str>,
    max_skew: i64,
    min_domains: usize,
    /// The shape is among those counted.
    counts_itself: bool,
    /// Pods by value of the key.
    domains: BTreeMap<Arc<str>, i64>,
}

/// The hard constraints of a shape, counted over the places there are.
pub(super) fn of(world: &World<'_>, id: ShapeId) -> Vec<Spread> {
    let pod = world.shapes[id];
    let hard: Vec<&SpreadConstraint> = pod.shape.spread.iter().filter(|s| s.hard).collect();
    hard.iter()
        .map(|constraint| count(world, pod, constraint, &hard))
        .collect()
}

fn count(
    world: &World<'_>,
    pod: Shape<'_>,
    constraint: &SpreadConstraint,
    all: &[&SpreadConstraint],
) -> Spread {
    let selector = selector_of(constraint, &pod.shape.labels);
    let mut spread = Spread {
        key: constraint.topology_key.clone(),
        max_skew: i64::from(constraint.max_skew),
        min_domains: constraint
            .min_domains
            .map_or(1, |min| usize::try_from(min).unwrap_or(1)),
        counts_itself: selector::selects(selector.as_ref(), &pod.shape.labels),
        domains: BTreeMap::new(),
    };
    // The same shape stands on many nodes: whether it counts is asked once.
    let mut counts: BTreeMap<ShapeId, bool> = BTreeMap::new();
    for bin in world.bins.iter().filter(|bin| !bin.closed) {
        let keys = all.iter().all(|c| bin.labels.contains_key(&c.topology_key));
        let Some(value) = bin.labels.get(&spread.key).filter(|_| keys) else {
            continue;
        };
        if !included(constraint, pod, bin) {
            continue;
        }
        let mut found = 0i64;
        for resident in bin.residents.iter().filter(|resident| !resident.deleting) {
            let other = world.shapes[resident.shape];
            let matches = *counts.entry(resident.shape).or_insert_with(|| {
                other.namespace == pod.namespace
                    && selector::selects(selector.as_ref(), &other.shape.labels)
            });
            if matches {
                found = found.saturating_add(i64::try_from(resident.count).unwrap_or(i64::MAX));
            }
        }
        let sum = spread.domains.entry(value.clone()).or_insert(0);
        *sum = sum.saturating_add(found);
    }
    spread
}

/// The selector with `matchLabelKeys` merged in.
fn selector_of(constraint: &SpreadConstraint, labels: &Labels) -> Option<LabelSelector> {
    let mut selector = constraint.selector.clone()?;
    for key in &constraint.match_label_keys {
        if let Some(value) = labels.get(key) {
            selector.expressions.push(Requirement {
                key: key.clone(),
                operator: Operator::In,
                values: vec![value.clone()],
            });
        }
    }
    Some(selector)
}

/// Whether a node takes part in the count (`nodeAffinityPolicy`, `nodeTaintsPolicy`).
fn included(constraint: &SpreadConstraint, pod: Shape<'_>, bin: &Bin) -> bool {
    let shape = pod.shape;
    let chosen = || {
        shape
            .node_selector
            .iter()
            .all(|(key, value)| bin.labels.get(key) == Some(value))
            && shape
                .node_affinity
                .as_ref()
                .is_none_or(|terms| selector::any_term(terms, &bin.name, &bin.labels))
    };
    let tolerated = || taints::untolerated(&bin.taints, &shape.tolerations).is_none();
    (!constraint.honor_affinity || chosen()) && (!constraint.honor_taints || tolerated())
}

impl Spread {
    /// Why the next pod may not go to a place.
    pub(super) fn misfit(&self, place: Place<'_>) -> Option<Misfit> {
        let key = &self.key;
        let Some(value) = place.labels.get(key) else {
            return Some(Misfit::Others(format!(
                "its topology spread needs a node with the label {key}"
            )));
        };
        let here = self.domains.get(value).copied();
        let domains = self.domains.len() + usize::from(here.is_none());
        let least = if here.is_none() || domains < self.min_domains {
            0
        } else {
            self.domains.values().copied().min().unwrap_or(0)
        };
        let after = here
            .unwrap_or(0)
            .saturating_add(i64::from(self.counts_itself));
        (after.saturating_sub(least) > self.max_skew).then(|| {
            Misfit::Others(format!(
                "topology spread over {key}: {value} would have {after} pods, the least has {least}, maxSkew is {}",
                self.max_skew
            ))
        })
    }

    /// One more pod of the shape runs there.
    pub(super) fn placed(&mut self, place: Place<'_>) {
        if let Some(value) = place.labels.get(&self.key) {
            *self.domains.entry(value.clone()).or_insert(0) += i64::from(self.counts_itself);
        }
    }
}
