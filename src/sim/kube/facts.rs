//! What a judge may ask of the fake cluster.

use std::sync::Arc;

use serde_json::Value;

use super::object::{condition, is_true, map, name, namespace, text, uid};
use super::resources::{NAMESPACES, NODES, PODS, Res};
use super::scheduler::fit;
use super::scheduler::requests::{amounts, pod_requests};
use super::verbs::must_be_drained;
use super::{Kube, controllers};

impl Kube {
    /// All objects of a kind (`"v1"`, `"Pod"`), by namespace and name.
    pub fn objects(&self, api_version: &str, kind: &str) -> Vec<Arc<Value>> {
        Res::of_kind(api_version, kind)
            .map(|res| self.inner.lock().snapshot(res))
            .unwrap_or_default()
    }

    /// The UID of `kube-system`: the cluster's identity.
    pub fn cluster_uid(&self) -> String {
        let space = self.inner.lock().get(NAMESPACES, "", "kube-system");
        space.map_or(String::new(), |s| uid(&s).to_owned())
    }

    /// The pods that a drain has to move before this node's machine may stop: none when the node
    /// is not Ready or does not exist.
    pub fn undrained(&self, node: &str) -> Vec<String> {
        let state = self.inner.lock();
        let ready = state
            .get(NODES, "", node)
            .is_some_and(|n| is_true(&n, "Ready"));
        if !ready {
            return Vec::new();
        }
        let pods = state.all(PODS).values();
        pods.filter(|p| text(p, "/spec/nodeName") == node && must_be_drained(p))
            .map(|p| format!("{}/{}", namespace(p), name(p)))
            .collect()
    }

    /// Pods that the scheduler found no node for.
    pub fn unschedulable(&self) -> Vec<Arc<Value>> {
        let state = self.inner.lock();
        let pods = state.all(PODS).values();
        pods.filter(|p| {
            text(p, "/spec/nodeName").is_empty()
                && condition(p, "PodScheduled")
                    .is_some_and(|c| text(c, "/reason") == "Unschedulable")
        })
        .cloned()
        .collect()
    }

    /// Whether an empty node like this one would take the pod beside the daemon pods it would get.
    pub fn would_take(&self, node: &Value, pod: &Value) -> bool {
        let mut room = amounts(map(node, "/status/allocatable"));
        room.entry("pods".to_owned()).or_insert(i64::MAX);
        let mut wanted = vec![pod_requests(pod)];
        for daemon in self.objects("apps/v1", "DaemonSet") {
            let daemon = controllers::daemon_pod(&daemon);
            if fit::daemon_starts(&daemon, node) {
                wanted.push(pod_requests(&daemon));
            }
        }
        for (resource, amount) in wanted.iter().flatten() {
            let left = room.entry(resource.clone()).or_default();
            *left = left.saturating_sub(*amount);
        }
        fit::chosen(pod, node)
            && fit::untolerated(pod, node, &["NoSchedule", "NoExecute"]).is_none()
            && room.values().all(|left| *left >= 0)
    }
}
