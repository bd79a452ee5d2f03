//! Required affinity and anti-affinity between pods, in both directions.
//!
//! Source: kube-scheduler's plugin `InterPodAffinity`: a domain is a topology key with the value that a
//! node's label has; anti-affinity of pods that run counts as much as that of the pod to place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::scheduling::{Labels, PodTerm};

use super::{Misfit, selector};
use crate::brain::world::{Shape, ShapeId, World};

/// A topology key with a value.
type Domain = (Arc<str>, Arc<str>);

/// What affinity asks of the place of one more pod of a shape.
#[derive(Clone, Debug, Default)]
pub(super) struct Affinity {
    /// Domains that pods there keep this shape out of.
    forbidden: BTreeSet<Domain>,
    /// Keys of the terms that must be met.
    wanted: Vec<Arc<str>>,
    /// Pods that meet all wanted terms, by domain.
    found: BTreeMap<Domain, u64>,
    /// The shape meets its own wanted terms: the first of its kind may go anywhere.
    wants_itself: bool,
    /// Keys of the terms that must not be met, with whether the shape meets the term itself.
    unwanted: Vec<(Arc<str>, bool)>,
    /// Pods that meet an unwanted term, by term and domain.
    met: BTreeSet<(usize, Domain)>,
}

/// Whether a term of a pod in `namespace` takes in a pod.
fn takes(world: &World<'_>, term: &PodTerm, namespace: &str, pod: Shape<'_>) -> bool {
    let named = term.namespaces.iter().any(|name| **name == *pod.namespace);
    let own = term.namespaces.is_empty()
        && term.namespace_selector.is_none()
        && pod.namespace == namespace;
    let by_label = || {
        let nothing = Labels::new();
        let labels = world.namespaces.get(pod.namespace).unwrap_or(&nothing);
        selector::selects(term.namespace_selector.as_ref(), labels)
    };
    (named || own || by_label()) && selector::selects(term.selector.as_ref(), &pod.shape.labels)
}

/// Whether any pod, there or to come, keeps this shape out of somewhere.
fn unwelcome<'w>(
    world: &'w World<'_>,
    id: ShapeId,
) -> impl Iterator<Item = (ShapeId, &'w PodTerm)> {
    let pod = world.shapes[id];
    world.averse.iter().flat_map(move |other| {
        let owner = world.shapes[*other];
        owner
            .shape
            .pod_anti_affinity
            .iter()
            .filter(move |term| takes(world, term, owner.namespace, pod))
            .map(move |term| (*other, term))
    })
}

impl Affinity {
    /// Whether affinity has anything to say about a shape.
    pub(super) fn matters(world: &World<'_>, id: ShapeId) -> bool {
        let shape = world.shapes[id].shape;
        !shape.pod_affinity.is_empty()
            || !shape.pod_anti_affinity.is_empty()
            || unwelcome(world, id).next().is_some()
    }

    /// Counts the pods there are.
    pub(super) fn of(world: &World<'_>, id: ShapeId) -> Affinity {
        let pod = world.shapes[id];
        let (wanted, unwanted) = (&pod.shape.pod_affinity, &pod.shape.pod_anti_affinity);
        let all = |other: Shape<'_>| {
            wanted
                .iter()
                .all(|term| takes(world, term, pod.namespace, other))
        };
        let mut affinity = Affinity {
            wanted: wanted
                .iter()
                .map(|term| term.topology_key.clone())
                .collect(),
            wants_itself: all(pod),
            unwanted: unwanted
                .iter()
                .map(|term| {
                    let itself = takes(world, term, pod.namespace, pod);
                    (term.topology_key.clone(), itself)
                })
                .collect(),
            ..Affinity::default()
        };
        let mut against: BTreeMap<ShapeId, Vec<&PodTerm>> = BTreeMap::new();
        for (other, term) in unwelcome(world, id) {
            against.entry(other).or_default().push(term);
        }
        for bin in world.bins.iter().filter(|bin| !bin.closed) {
            for resident in &bin.residents {
                let other = world.shapes[resident.shape];
                for term in against.get(&resident.shape).into_iter().flatten() {
                    affinity.forbid(&term.topology_key, &bin.labels);
                }
                if !wanted.is_empty() && all(other) {
                    affinity.add_found(&bin.labels, resident.count);
                }
                for (index, term) in unwanted.iter().enumerate() {
                    if takes(world, term, pod.namespace, other) {
                        affinity.add_met(index, &bin.labels);
                    }
                }
            }
        }
        affinity
    }

    fn forbid(&mut self, key: &Arc<str>, labels: &Labels) {
        if let Some(value) = labels.get(key) {
            self.forbidden.insert((key.clone(), value.clone()));
        }
    }

    fn add_found(&mut self, labels: &Labels, count: u64) {
        for key in &self.wanted {
            if let Some(value) = labels.get(key) {
                *self.found.entry((key.clone(), value.clone())).or_insert(0) += count;
            }
        }
    }

    fn add_met(&mut self, term: usize, labels: &Labels) {
        let key = &self.unwanted[term].0;
        if let Some(value) = labels.get(key) {
            self.met.insert((term, (key.clone(), value.clone())));
        }
    }

    /// Why the next pod may not go where a node has these labels.
    pub(super) fn misfit(&self, labels: &Labels) -> Option<Misfit> {
        let other = |why: String| Some(Misfit::Others(why));
        let domain = |key: &Arc<str>| labels.get(key).map(|value| (key.clone(), value.clone()));
        for (key, value) in &self.forbidden {
            if labels.get(key) == Some(value) {
                return other(format!(
                    "a pod there has anti-affinity to it within {key}={value}"
                ));
            }
        }
        for (term, (key, _)) in self.unwanted.iter().enumerate() {
            if domain(key).is_some_and(|domain| self.met.contains(&(term, domain))) {
                return other(format!("its pod anti-affinity over {key} is not met"));
            }
        }
        for key in &self.wanted {
            let Some(domain) = domain(key) else {
                return other(format!(
                    "its pod affinity needs a node with the label {key}"
                ));
            };
            let first = self.found.is_empty() && self.wants_itself;
            if !first && !self.found.contains_key(&domain) {
                return other(format!(
                    "its pod affinity over {key} finds no such pod in {}",
                    domain.1
                ));
            }
        }
        None
    }

    /// One more pod of the shape runs where a node has these labels.
    pub(super) fn placed(&mut self, labels: &Labels) {
        if self.wants_itself {
            self.add_found(labels, 1);
        }
        for term in 0..self.unwanted.len() {
            let (key, itself) = self.unwanted[term].clone();
            if itself {
                self.add_met(term, labels);
                self.forbid(&key, labels);
            }
        }
    }
}
