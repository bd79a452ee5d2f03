//! What a judge may ask of the fake cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use filters::{NodeInfo, PodInfo, room, welcome};
use serde_json::Value;

use super::auth::User;
use super::object::{condition, is_true, name, namespace, text, time, uid};
use super::resources::{EVENTS, LEASES, NAMESPACES, NODES, PODS, Res, VOLUMEATTACHMENTS};
use super::scheduler::{ended, fit, read};
use super::store::State;
use super::verbs::must_be_drained;
use super::{Kube, controllers};
use crate::model::time::Time;

/// A change that a caller made over the API; kubelets' are not kept, nor are Leases and Events.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    /// When.
    pub at: Time,
    /// Who.
    pub by: String,
    /// `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// The resource with its subresource, such as `pods/eviction`.
    pub resource: String,
    /// The object's namespace; empty where it has none.
    pub namespace: String,
    /// The object's name; empty for a new one.
    pub name: String,
    /// The call came long after it was sent, when whoever sent it had given up.
    pub late: bool,
    /// The object before.
    pub before: Option<Arc<Value>>,
    /// The object after; a deleted one is gone.
    pub after: Option<Arc<Value>>,
}

/// What a call is about to change, if that is worth a line in the judge's book.
pub(super) fn begin_deed(
    state: &State,
    (res, space, wanted): (Res, &str, &str),
    verb: &'static str,
    subresource: &str,
    user: &User,
    late: bool,
) -> Option<ObjectChange> {
    let row = res.row();
    let kept = matches!(verb, "create" | "update" | "patch" | "delete")
        && !state.dry
        && !row.review
        && user.node().is_none()
        && !user.is_in("system:bootstrappers")
        && res.stored() != EVENTS
        && res != LEASES;
    let resource = match subresource {
        "" => row.plural.to_owned(),
        sub => format!("{}/{sub}", row.plural),
    };
    kept.then(|| ObjectChange {
        at: state.now,
        by: user.name.clone(),
        verb,
        resource,
        namespace: space.to_owned(),
        name: wanted.to_owned(),
        late,
        before: state.get(res, space, wanted),
        after: None,
    })
}

/// It was done.
pub(super) fn end_deed(
    state: &mut State,
    (res, space, wanted): (Res, &str, &str),
    deed: Option<ObjectChange>,
) {
    if let Some(mut deed) = deed {
        deed.after = state.get(res, space, wanted);
        state.deeds.push(deed);
    }
}

/// A node on which nothing runs; one that does not say how many pods it takes takes any number.
fn roomy(node: &Value) -> NodeInfo {
    let mut spot = read::node_info(node);
    if spot.offers.pods == 0 {
        spot.offers.pods = i64::MAX;
    }
    spot
}

/// Whether a node takes a pod, as far as that is between it and what it holds.
fn takes(spot: &NodeInfo, pod: &PodInfo) -> bool {
    welcome(&pod.shape, spot).is_ok() && room(&pod.shape, spot).is_ok()
}

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
        drop(state);
        if ready {
            self.to_drain(node)
        } else {
            Vec::new()
        }
    }

    /// The pods that a drain of this node has to move.
    pub fn to_drain(&self, node: &str) -> Vec<String> {
        let state = self.inner.lock();
        let pods = state.all(PODS).values();
        pods.filter(|p| text(p, "/spec/nodeName") == node && must_be_drained(p))
            .map(|p| format!("{}/{}", namespace(p), name(p)))
            .collect()
    }

    /// Whether a pod is on this node that is there for its own sake: not a DaemonSet's and not a static one.
    pub fn serves(&self, node: &str) -> bool {
        let state = self.inner.lock();
        let mut pods = state.all(PODS).values();
        pods.any(|p| {
            let own = super::object::controller(p).map_or("", |owner| text(owner, "/kind"));
            text(p, "/spec/nodeName") == node && own != "DaemonSet" && !super::object::is_mirror(p)
        })
    }

    /// Volumes attached to nodes that do not exist, and to which.
    pub fn stranded(&self) -> Vec<(String, String)> {
        let state = self.inner.lock();
        let nodes = state.all(NODES);
        let attachments = state.all(VOLUMEATTACHMENTS).values();
        attachments
            .map(|a| {
                let volume = text(a, "/spec/source/persistentVolumeName").to_owned();
                (volume, text(a, "/spec/nodeName").to_owned())
            })
            .filter(|(_, node)| !nodes.contains_key(&(String::new(), node.clone())))
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
        let mut spot = roomy(node);
        for daemon in self.objects("apps/v1", "DaemonSet") {
            let daemon = read::pod_info(&controllers::daemon_pod(&daemon));
            if fit::daemon_starts(&daemon, &spot) {
                spot.pods.push(daemon);
            }
        }
        spot.cordoned = false;
        takes(&spot, &read::pod_info(pod))
    }

    /// What callers changed after the first so many changes, oldest first.
    pub fn deeds_since(&self, first: usize) -> Vec<ObjectChange> {
        let state = self.inner.lock();
        state.deeds.get(first..).unwrap_or_default().to_vec()
    }

    /// Volumes attached to a node.
    pub fn attached(&self, node: &str) -> Vec<String> {
        let state = self.inner.lock();
        let all = state.all(VOLUMEATTACHMENTS).values();
        all.filter(|a| text(a, "/spec/nodeName") == node && a["status"]["attached"] == true)
            .map(|a| text(a, "/spec/source/persistentVolumeName").to_owned())
            .collect()
    }

    /// Pods that a drain of this node would have to move, bound before `bound`, and that no other node has
    /// room for, each taken by itself. What came since `at` took no room then.
    pub fn homeless_without(&self, node: &str, bound: Time, at: Time) -> Vec<String> {
        let state = self.inner.lock();
        let pods = state.all(PODS);
        // Creation times are whole seconds.
        let second = Time(at.0 - at.0.rem_euclid(1000));
        let known = |p: &Value| time(p, "/metadata/creationTimestamp").is_none_or(|t| t < second);
        let ready = state
            .all(NODES)
            .values()
            .filter(|node| is_true(node, "Ready"));
        let others = ready.filter(|other| name(other) != node);
        let mut others: BTreeMap<&str, NodeInfo> =
            others.map(|other| (name(other), roomy(other))).collect();
        for pod in pods.values().filter(|p| !ended(p) && known(p)) {
            if let Some(other) = others.get_mut(text(pod, "/spec/nodeName")) {
                other.pods.push(read::pod_info(pod));
            }
        }
        let old = |pod: &Value| {
            let at = condition(pod, "PodScheduled").map_or("", |c| text(c, "/lastTransitionTime"));
            at.parse::<jiff::Timestamp>()
                .is_ok_and(|at| at.as_millisecond() < bound.0)
        };
        let concerned = pods
            .values()
            .filter(|p| text(p, "/spec/nodeName") == node && must_be_drained(p) && old(p));
        concerned
            .filter(|pod| {
                let pod = read::pod_info(pod);
                !others.values().any(|other| takes(other, &pod))
            })
            .map(|p| format!("{}/{}", namespace(p), name(p)))
            .collect()
    }

    /// Whether some pod has no node that works: it was not bound yet, or its node is leaving, not Ready or gone. A
    /// pod that came after `since` waited for a moment at least, whatever became of it.
    pub fn somebody_waits(&self, since: Time) -> bool {
        let state = self.inner.lock();
        let nodes = state.all(NODES);
        let works = |wanted: &str| {
            let node = nodes.get(&(String::new(), wanted.to_owned()));
            node.is_some_and(|node| is_true(node, "Ready") && node["spec"]["unschedulable"] != true)
        };
        let mut pods = state.all(PODS).values();
        pods.any(|p| {
            let came = time(p, "/metadata/creationTimestamp");
            came.is_some_and(|came| came > since)
                || !matches!(text(p, "/status/phase"), "Succeeded" | "Failed")
                    && !works(text(p, "/spec/nodeName"))
        })
    }
}
