//! `status.nominatedNodeName` as kube-scheduler honours it (KEP-1923, KEP-5278): the nominated node is tried
//! first, its room is kept against other pods of no higher priority, and an attempt that fails
//! clears the nomination, unless the pod never preempts.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use filters::NodeInfo;
use serde_json::Value;

use super::ended;
use crate::sim::kube::object::{name, namespace, number, text, uid, unset};
use crate::sim::kube::resources::PODS;
use crate::sim::kube::store::State;

/// The nominations of a turn.
#[derive(Debug, Default)]
pub(super) struct Nominations {
    by_node: BTreeMap<String, Vec<Arc<Value>>>,
}

impl Nominations {
    /// Those of the pods that wait.
    pub(super) fn of(queue: &[Arc<Value>]) -> Nominations {
        let mut by_node: BTreeMap<String, Vec<Arc<Value>>> = BTreeMap::new();
        for pod in queue {
            if let Some(node) = nominated(pod) {
                by_node
                    .entry(node.to_owned())
                    .or_default()
                    .push(Arc::clone(pod));
            }
        }
        Nominations { by_node }
    }

    /// The nodes on which room is kept against `pod`, and the pods for which.
    pub(super) fn against(&self, pod: &Value) -> impl Iterator<Item = (&str, Vec<&Arc<Value>>)> {
        let rank = |pod: &Value| number(pod, "/spec/priority").unwrap_or(0);
        let kept = move |other: &&Arc<Value>| uid(other) != uid(pod) && rank(other) >= rank(pod);
        let nodes = self.by_node.iter();
        nodes.map(move |(node, pods)| (node.as_str(), pods.iter().filter(kept).collect()))
    }

    /// The pod was bound, or its nomination was cleared.
    pub(super) fn forget(&mut self, pod: &Value) {
        if let Some(pods) = nominated(pod).and_then(|node| self.by_node.get_mut(node)) {
            pods.retain(|other| uid(other) != uid(pod));
        }
    }
}

/// The node that a pod is nominated for.
pub(super) fn nominated(pod: &Value) -> Option<&str> {
    Some(text(pod, "/status/nominatedNodeName")).filter(|node| !node.is_empty())
}

/// Takes a pod's nomination away.
pub(super) fn clear(state: &mut State, pod: &Value) {
    state.change(PODS, namespace(pod), name(pod), |pod| {
        unset(pod, &["status", "nominatedNodeName"]);
    });
}

/// Tells whether something happened that makes kube-scheduler try its pods again: a node came or changed, or
/// room became free. What it writes itself, and what others write into pods that wait, does not.
#[derive(Debug, Default)]
pub(super) struct Occasions {
    count: u64,
    nodes: u64,
    bound: BTreeSet<u64>,
    /// Since which occasion a pod's nomination is known, by the pod's UID.
    since: BTreeMap<String, (String, u64)>,
}

impl Occasions {
    /// Looks at what there is as a turn begins.
    pub(super) fn look(&mut self, state: &State, spots: &[NodeInfo], queue: &[Arc<Value>]) {
        let mut nodes = DefaultHasher::new();
        for spot in spots {
            (&spot.name, &spot.labels, &spot.taints).hash(&mut nodes);
            (spot.cordoned, &spot.offers, &spot.limits, &spot.attached).hash(&mut nodes);
        }
        let nodes = nodes.finish();
        let pods = state.all(PODS).values().filter(|pod| !ended(pod));
        let bound = pods.filter(|pod| !text(pod, "/spec/nodeName").is_empty());
        let bound: BTreeSet<u64> = bound
            .map(|pod| {
                let mut hasher = DefaultHasher::new();
                uid(pod).hash(&mut hasher);
                hasher.finish()
            })
            .collect();
        if nodes != self.nodes || !self.bound.is_subset(&bound) {
            self.count += 1;
        }
        (self.nodes, self.bound) = (nodes, bound);
        let mut since = BTreeMap::new();
        for pod in queue {
            if let Some(node) = nominated(pod) {
                let known = self.since.get(uid(pod)).filter(|known| known.0 == node);
                let known = known.cloned();
                let fresh = || (node.to_owned(), self.count);
                since.insert(uid(pod).to_owned(), known.unwrap_or_else(fresh));
            }
        }
        self.since = since;
    }

    /// Whether a failed attempt clears this pod's nomination: it was made because something happened after
    /// the nomination.
    pub(super) fn clears(&self, pod: &Value) -> bool {
        text(pod, "/spec/preemptionPolicy") != "Never"
            && self
                .since
                .get(uid(pod))
                .is_some_and(|(_, since)| *since < self.count)
    }
}
