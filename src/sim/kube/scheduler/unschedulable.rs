//! Pods that were refused, where the scheduler misses what would help them.
//!
//! kube-scheduler tries a pod again when something happens that may help it, and else after five minutes. Not all that helps
//! is such an event (kubernetes/kubernetes#134859). The end of a nomination is one, for every pod that waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::model::time::{Span, Time};
use crate::sim::kube::object::{name, namespace, uid, version};
use crate::sim::kube::resources::PODS;
use crate::sim::kube::store::State;

/// kube-scheduler's `podMaxInUnschedulablePodsDuration`.
const LONGEST: Span = Span::minutes(5);

/// Pods that were refused.
#[derive(Debug, Default)]
pub(super) struct Unschedulable {
    /// By UID: the version in which the refusal was written, and when.
    refused: BTreeMap<String, (u64, Time)>,
}

impl Unschedulable {
    /// Takes those out of the queue that are not tried yet.
    pub(super) fn leave_out(&mut self, queue: &mut Vec<Arc<Value>>, now: Time) {
        // Whoever waits no more is not tried again either.
        let waiting: BTreeSet<&str> = queue.iter().map(|pod| uid(pod)).collect();
        self.refused.retain(|pod, _| waiting.contains(pod.as_str()));
        // A nomination may have come and gone between two turns: whoever writes into a pod that waits, nominates it.
        let is_written = queue.iter().any(|pod| {
            let refused = self.refused.get(uid(pod));
            refused.is_some_and(|(seen, _)| *seen != version(pod))
        });
        if is_written {
            self.refused.clear();
        }
        queue.retain(|pod| {
            let refused = self.refused.get(uid(pod));
            refused.is_none_or(|(_, at)| now.since(*at) >= LONGEST)
        });
    }

    /// A pod of the queue was refused, and that was written.
    pub(super) fn note(&mut self, state: &State, pod: &Value) {
        let key = (namespace(pod).to_owned(), name(pod).to_owned());
        if let Some(written) = state.all(PODS).get(&key) {
            let refused = (version(written), state.now);
            self.refused.insert(uid(pod).to_owned(), refused);
        }
    }

    /// When the first of them is tried again, if nothing happens.
    pub(super) fn next(&self) -> Option<Time> {
        self.refused.values().map(|(_, at)| *at + LONGEST).min()
    }
}
