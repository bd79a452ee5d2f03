//! What other pods decide: affinity, anti-affinity both ways, topology spread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::cluster::ObjectKey;
use model::label_list::LabelList;
use model::scheduling::{
    LabelSelector, Labels, Operator, PodShape, PodTerm, Requirement, SpreadConstraint,
};

use crate::node::{bears, chosen, selects};
use crate::{No, NodeInfo, NodeInfos, PodInfo};

/// A label of a node that names a domain, and a value of it.
type LabelDomain<'w> = (&'w Arc<str>, &'w Arc<str>);

/// Whom the constraints of a pod, and those of others, are about, and in which domains these stand.
#[derive(Debug)]
pub(crate) struct PodTerms<'w> {
    world: &'w NodeInfos<'w>,
    pod: &'w PodInfo,
    /// Where pods stand that are whose anti-affinity keeps this one away, each with one of them.
    existing_anti_affinity: BTreeMap<LabelDomain<'w>, &'w ObjectKey>,
    /// Where pods stand that the anti-affinity of this one keeps it away from.
    own_anti_affinity: BTreeMap<LabelDomain<'w>, &'w ObjectKey>,
    /// Where pods stand that all its affinity terms mean.
    wanted: BTreeSet<LabelDomain<'w>>,
    spread: Vec<SpreadCounts<'w>>,
}

/// A hard spread constraint.
#[derive(Debug)]
struct SpreadCounts<'w> {
    key: &'w Arc<str>,
    max_skew: i64,
    min_domains: i128,
    /// The pods that count on each node, where the node takes part.
    pods: Vec<Option<i64>>,
    /// The pods that count in each domain, without nodes that are empty and planned.
    domains: BTreeMap<&'w Arc<str>, i64>,
    /// The fewest in a domain.
    least: i64,
    /// The pod itself is among those that count.
    itself: bool,
}

impl SpreadCounts<'_> {
    fn least_of(&self, domains: &BTreeMap<&Arc<str>, i64>) -> i64 {
        if self.min_domains > domains.len() as i128 {
            return 0;
        }
        domains.values().min().copied().unwrap_or(0)
    }
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
        let mut pod_terms = PodTerms {
            world,
            pod,
            existing_anti_affinity: BTreeMap::new(),
            own_anti_affinity: BTreeMap::new(),
            wanted: BTreeSet::new(),
            spread: spread(world, pod),
        };
        let own = &pod.shape;
        for spot in &world.nodes {
            let domain = |term: &'w PodTerm| {
                Some((&term.topology_key, spot.labels.get(&term.topology_key)?))
            };
            for guest in &spot.pods {
                let theirs = guest.shape.pod_anti_affinity.iter();
                let theirs = theirs.filter(|term| means(world, term, &guest.key.namespace, pod));
                let theirs = theirs.filter_map(domain).map(|domain| (domain, &guest.key));
                pod_terms.existing_anti_affinity.extend(theirs);
                let ours = own.pod_anti_affinity.iter();
                let ours = ours.filter(|term| means(world, term, &pod.key.namespace, guest));
                let ours = ours.filter_map(domain).map(|domain| (domain, &guest.key));
                pod_terms.own_anti_affinity.extend(ours);
                if !own.pod_affinity.is_empty() && all_mean(world, pod, guest) {
                    pod_terms
                        .wanted
                        .extend(own.pod_affinity.iter().filter_map(domain));
                }
            }
        }
        pod_terms
    }

    pub(crate) fn affinity(&self, at: usize) -> Result<(), No> {
        self.wanted(at)?;
        if let Some(guest) = self.near(&self.own_anti_affinity, at) {
            return Err(No::soft(
                "node(s) didn't match pod anti-affinity rules",
                guest,
            ));
        }
        if let Some(guest) = self.near(&self.existing_anti_affinity, at) {
            let said = "node(s) didn't satisfy existing pods anti-affinity rules";
            return Err(No::soft(said, guest));
        }
        Ok(())
    }

    /// Who stands in a domain of a node.
    fn near(
        &self,
        standing: &BTreeMap<LabelDomain<'w>, &'w ObjectKey>,
        at: usize,
    ) -> Option<&'w ObjectKey> {
        let labels = &self.world.nodes[at].labels;
        let mut domains = standing.iter();
        let found = domains.find(|((key, value), _)| labels.get(*key) == Some(*value));
        found.map(|(_, guest)| *guest)
    }

    /// Required affinity: pods that meet all terms must be near by every key; the first of a kind that
    /// wants itself may go wherever the keys are.
    fn wanted(&self, at: usize) -> Result<(), No> {
        let no = |key| Err(No::firm("node(s) didn't match pod affinity rules", key));
        let labels = &self.world.nodes[at].labels;
        let mut near = true;
        for term in &self.pod.shape.pod_affinity {
            let key = &term.topology_key;
            let Some(value) = labels.get(key) else {
                return no(&**key);
            };
            near &= self.wanted.contains(&(key, value));
        }
        let first = self.wanted.is_empty() && all_mean(self.world, self.pod, self.pod);
        if near || first {
            Ok(())
        } else {
            no("nobody is near")
        }
    }

    /// Constraint after constraint, as the pod names them.
    pub(crate) fn spread(&self, at: usize) -> Result<(), No> {
        let spot = &self.world.nodes[at];
        for one in &self.spread {
            let Some(domain) = spot.labels.get(one.key) else {
                let said =
                    "node(s) didn't match pod topology spread constraints (missing required label)";
                return Err(No::firm(said, one.key));
            };
            let mut here = one.domains.get(domain).copied().unwrap_or(0);
            let mut least = one.least;
            if let Some(pods) = one.pods[at].filter(|_| spot.empty) {
                // With the pod on it the node is a domain, or of one.
                let mut domains = one.domains.clone();
                here += pods;
                domains.insert(domain, here);
                least = one.least_of(&domains);
            }
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
    world: &NodeInfos<'w>,
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

fn spread<'w>(world: &'w NodeInfos<'w>, pod: &'w PodInfo) -> Vec<SpreadCounts<'w>> {
    let shape = &pod.shape;
    let (list, default) = constraints(world, shape);
    let keyed = |spot: &NodeInfo| {
        list.iter()
            .all(|constraint| spot.labels.contains_key(&constraint.topology_key))
    };
    let each = |constraint: &&'w SpreadConstraint| {
        let key = &constraint.topology_key;
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
        let mut counts = SpreadCounts {
            key,
            max_skew: constraint.max_skew.into(),
            min_domains: constraint.min_domains.unwrap_or(1).into(),
            pods: world.nodes.iter().map(pods).collect(),
            domains: BTreeMap::new(),
            least: 0,
            itself: counted(pod),
        };
        for (spot, pods) in world.nodes.iter().zip(&counts.pods) {
            if let Some(pods) = pods.filter(|_| !spot.empty) {
                *counts.domains.entry(&spot.labels[key]).or_insert(0) += pods;
            }
        }
        counts.least = counts.least_of(&counts.domains);
        counts
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
