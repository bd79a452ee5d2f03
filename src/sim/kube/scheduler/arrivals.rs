//! In which order pods stand in the queue. kube-scheduler sorts pods of one priority by the time at which they came into its
//! queue, at first or after an attempt (plugin PrioritySort). As every turn tries all pods that wait, one after the other,
//! they keep the order in which they came.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::sim::kube::object::{uid, version};

/// Pods that wait, by UID, with their place in the queue.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    places: BTreeMap<String, u64>,
    next: u64,
}

impl Arrivals {
    /// Notes who waits now: whoever is new stands behind all others, in the order in which they were written last.
    pub(super) fn note(&mut self, queue: &[Arc<Value>]) {
        let mut places = BTreeMap::new();
        let mut new = Vec::new();
        for pod in queue {
            match self.places.get(uid(pod)) {
                Some(place) => {
                    places.insert(uid(pod).to_owned(), *place);
                }
                None => new.push(pod),
            }
        }
        new.sort_by_key(|pod| version(pod));
        for pod in new {
            places.insert(uid(pod).to_owned(), self.next);
            self.next += 1;
        }
        self.places = places;
    }

    /// The place of a pod that waits; whoever was not noted stands last.
    pub(super) fn place(&self, pod: &Value) -> u64 {
        self.places.get(uid(pod)).copied().unwrap_or(u64::MAX)
    }
}
