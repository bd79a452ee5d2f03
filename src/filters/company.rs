//! What other pods decide: affinity, anti-affinity both ways, topology spread.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::label_list::LabelList;
use model::scheduling::{
    LabelSelector, Labels, Operator, PodShape, PodTerm, Requirement, SpreadConstraint,
};

use crate::node::{bears, chosen, selects};
use crate::{No, NodeInfo, NodeInfos, PodInfo};

/// Whom the constraints of a pod, and those of others, are about; and where those pods stand, by index.
#[derive(Debug)]
pub(crate) struct PodTerms<'w> {
    world: &'w NodeInfos<'w>,
    pod: &'w PodInfo,
    /// Terms of pods that are averse to this one.
    averse: Vec<(usize, &'w PodTerm, &'w PodInfo)>,
    /// Pods that this one is averse to.
    disliked: Vec<(usize, &'w PodTerm, &'w PodInfo)>,
    /// Where pods stand that all its affinity terms mean.
    wanted: Vec<usize>,
    spread: Vec<SpreadCounts>,
}

/// A hard spread constraint.
#[derive(Debug)]
struct SpreadCounts {
    key: Arc<str>,
    max_skew: i64,
    min_domains: i128,
    /// The pods that count on each node, where the node takes part.
    pods: Vec<Option<i64>>,
    /// The pod itself is among those that count.
    itself: bool,
}

fn value<'l>(labels: &'l LabelList) -> impl Fn(&str) -> Option<&'l str> {
    |key| labels.get(key).map(AsRef::as_ref)
}

/// Whether a term of a pod of `from` means a pod.
fn means(world: &NodeInfos<'_>, term: &PodTerm, from: &str, pod: &PodInfo) -> bool {
    let namespace = &pod.key.namespace;
    let mut there = term.namespaces.iter().any(|name| name == namespace);
    if let Some(selector) = &term.namespace_selector {
        let none = Labels::new();
        let known = world.cluster.namespaces.get(namespace).unwrap_or(&none);
        there |= selects(Some(selector), |key| known.get(key).map(AsRef::as_ref));
    }
    if term.namespaces.is_empty() && term.namespace_selector.is_none() {
        there = *from == **namespace;
    }
    there && selects(term.selector.as_ref(), value(&pod.shape.labels))
}

fn all_mean(world: &NodeInfos<'_>, of: &PodInfo, pod: &PodInfo) -> bool {
    let mut terms = of.shape.pod_affinity.iter();
    terms.all(|term| means(world, term, &of.key.namespace, pod))
}

impl<'w> PodTerms<'w> {
    /// Looks through all pods once.
    pub(crate) fn of(world: &'w NodeInfos<'w>, pod: &'w PodInfo) -> PodTerms<'w> {
        let mut company = PodTerms {
            world,
            pod,
            averse: Vec::new(),
            disliked: Vec::new(),
            wanted: Vec::new(),
            spread: Vec::new(),
        };
        let own = &pod.shape;
        for (at, spot) in world.nodes.iter().enumerate() {
            for guest in &spot.pods {
                for term in &guest.shape.pod_anti_affinity {
                    if means(world, term, &guest.key.namespace, pod) {
                        company.averse.push((at, term, guest));
                    }
                }
                for term in &own.pod_anti_affinity {
                    if means(world, term, &pod.key.namespace, guest) {
                        company.disliked.push((at, term, guest));
                    }
                }
                if !own.pod_affinity.is_empty() && all_mean(world, pod, guest) {
                    company.wanted.push(at);
                }
            }
        }
        company.spread = spread(world, pod);
        company
    }

    /// Whether two nodes are in one domain.
    fn near(&self, one: usize, other: usize, key: &str) -> bool {
        let label = |at: usize| self.world.nodes[at].labels.get(key);
        label(one).is_some() && label(one) == label(other)
    }

    pub(crate) fn affinity(&self, at: usize) -> Result<(), No> {
        self.wanted(at)?;
        for (there, term, guest) in &self.disliked {
            if self.near(*there, at, &term.topology_key) {
                let said = "node(s) didn't match pod anti-affinity rules";
                return Err(No::soft(said, &guest.key));
            }
        }
        for (there, term, guest) in &self.averse {
            if self.near(*there, at, &term.topology_key) {
                let said = "node(s) didn't satisfy existing pods anti-affinity rules";
                return Err(No::soft(said, &guest.key));
            }
        }
        Ok(())
    }

    /// Required affinity: pods that meet all terms must be near by every key; the first of a kind that
    /// wants itself may go wherever the keys are.
    fn wanted(&self, at: usize) -> Result<(), No> {
        let no = |key| Err(No::firm("node(s) didn't match pod affinity rules", key));
        let labels = |at: usize| &self.world.nodes[at].labels;
        let (mut near, mut anywhere) = (true, false);
        for term in &self.pod.shape.pod_affinity {
            let key = &term.topology_key;
            if !labels(at).contains_key(key) {
                return no(&**key);
            }
            near &= self.wanted.iter().any(|there| self.near(*there, at, key));
            anywhere |= self
                .wanted
                .iter()
                .any(|there| labels(*there).contains_key(key));
        }
        let first = !anywhere && all_mean(self.world, self.pod, self.pod);
        if near || first {
            Ok(())
        } else {
            no("nobody is near")
        }
    }

    pub(crate) fn spread(&self, at: usize) -> Result<(), No> {
        let spots = &self.world.nodes;
        for one in &self.spread {
            if !spots[at].labels.contains_key(&one.key) {
                let said =
                    "node(s) didn't match pod topology spread constraints (missing required label)";
                return Err(No::firm(said, &one.key));
            }
        }
        for one in &self.spread {
            let mut domains: BTreeMap<&Arc<str>, i64> = BTreeMap::new();
            for (index, spot) in spots.iter().enumerate() {
                if let Some(pods) = one.pods[index].filter(|_| !spot.empty || index == at) {
                    *domains.entry(&spot.labels[&one.key]).or_insert(0) += pods;
                }
            }
            let least = if one.min_domains > domains.len() as i128 {
                0
            } else {
                domains.values().min().copied().unwrap_or(0)
            };
            let domain = &spots[at].labels[&one.key];
            let here = domains.get(domain).copied().unwrap_or(0);
            if here + i64::from(one.itself) - least > one.max_skew {
                let said = "node(s) didn't match pod topology spread constraints";
                return Err(No::soft(
                    said,
                    &format!("{here} in {domain}, the least is {least}"),
                ));
            }
        }
        Ok(())
    }
}

/// The hard constraints of a pod: its own, else the cluster's, which take the pods of its controller.
fn constraints<'w>(
    world: &'w NodeInfos<'_>,
    shape: &'w PodShape,
) -> (Vec<&'w SpreadConstraint>, bool) {
    let owner = shape.owner.as_ref().map_or("", |owner| &*owner.kind);
    let replicated = ["ReplicaSet", "StatefulSet", "ReplicationController"].contains(&owner);
    let default = shape.spread.is_empty() && replicated;
    let list = if default {
        world.default_spread
    } else {
        &shape.spread
    };
    (list.iter().filter(|one| one.hard).collect(), default)
}

fn spread(world: &NodeInfos<'_>, pod: &PodInfo) -> Vec<SpreadCounts> {
    let shape = &pod.shape;
    let (list, default) = constraints(world, shape);
    let keyed = |spot: &NodeInfo| {
        list.iter()
            .all(|constraint| spot.labels.contains_key(&constraint.topology_key))
    };
    let each = |constraint: &&SpreadConstraint| {
        let selector = merged(constraint, &shape.labels);
        let counted = |other: &PodInfo| {
            let theirs = other.shape.owner.as_ref().map(|owner| &owner.uid);
            let selected = if default {
                shape.owner.as_ref().map(|owner| &owner.uid) == theirs
            } else {
                let nothing = |s: &LabelSelector| s.labels.is_empty() && s.expressions.is_empty();
                !selector.as_ref().is_some_and(nothing)
                    && selects(selector.as_ref(), value(&other.shape.labels))
            };
            other.key.namespace == pod.key.namespace && selected
        };
        let pods = |spot: &NodeInfo| {
            let takes_part = keyed(spot)
                && (!constraint.honor_affinity || chosen(shape, spot))
                && (!constraint.honor_taints || bears(shape, &spot.taints));
            let pods = spot.pods.iter();
            let pods = pods.filter(|guest| !guest.deleting && counted(guest));
            takes_part.then(|| i64::try_from(pods.count()).unwrap_or(i64::MAX))
        };
        SpreadCounts {
            key: constraint.topology_key.clone(),
            max_skew: constraint.max_skew.into(),
            min_domains: constraint.min_domains.unwrap_or(1).into(),
            pods: world.nodes.iter().map(pods).collect(),
            itself: counted(pod),
        }
    };
    list.iter().map(each).collect()
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
