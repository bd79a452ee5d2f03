//! Node lifecycle: nodes whose lease ran out become Unknown, conditions become taints, and pods
//! leave nodes whose NoExecute taints they do not tolerate.

use std::sync::Arc;

use serde_json::{Value, json};

use super::erase;
use crate::model::time::{Span, Time};
use crate::sim::kube::object::cordoned;
use crate::sim::kube::object::{
    condition, deleting, is_true, list, name, namespace, number, seconds, set, set_condition, text,
    time,
};
use crate::sim::kube::resources::{LEASES, NODES, PODS};
use crate::sim::kube::scheduler::read;
use crate::sim::kube::store::State;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Returns when the next toleration ends.
pub(super) fn reconcile(state: &mut State, grace: Span) -> Option<Time> {
    for node in state.snapshot(NODES) {
        let mut new = Value::clone(&node);
        if lost(state, &node, grace) {
            give_up(&mut new, state.now);
        }
        taints(&mut new, state.now);
        let unknown = condition(&new, "Ready").is_some_and(|c| text(c, "/status") == "Unknown");
        state.replace(NODES, new);
        if unknown {
            mark_pods(state, name(&node));
        }
    }
    expel(state)
}

/// Whether nothing was heard of a node for too long.
fn lost(state: &State, node: &Value, grace: Span) -> bool {
    let lease = state.get(LEASES, "kube-node-lease", name(node));
    let renewed = lease.and_then(|l| time(&l, "/spec/renewTime"));
    let beat = condition(node, "Ready").and_then(|c| time(c, "/lastHeartbeatTime"));
    let created = time(node, "/metadata/creationTimestamp");
    let heard = [renewed, beat, created].into_iter().flatten().max();
    heard.is_some_and(|h| state.now.since(h) > grace)
}

fn give_up(node: &mut Value, now: Time) {
    let known: Vec<String> = list(node, "/status/conditions")
        .iter()
        .map(|c| text(c, "/type").to_owned())
        .collect();
    let standard = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
    for kind in standard {
        if known.iter().any(|k| k == kind) {
            let why = "Kubelet stopped posting node status.";
            set_condition(node, kind, "Unknown", "NodeStatusUnknown", why, now);
        } else {
            let why = "Kubelet never posted node status.";
            set_condition(node, kind, "Unknown", "NodeStatusNeverUpdated", why, now);
        }
    }
}

/// Conditions and the cordon as taints.
fn taints(node: &mut Value, now: Time) {
    let ready = condition(node, "Ready").map_or("Unset", |c| text(c, "/status"));
    let not_ready = matches!(ready, "False" | "Unset");
    let unreachable = ready == "Unknown";
    let wanted = [
        (NOT_READY, "NoSchedule", not_ready),
        (NOT_READY, "NoExecute", ready == "False"),
        (UNREACHABLE, "NoSchedule", unreachable),
        (UNREACHABLE, "NoExecute", unreachable),
        (UNSCHEDULABLE, "NoSchedule", cordoned(node)),
    ];
    let mut taints = list(node, "/spec/taints").to_vec();
    let before = taints.clone();
    for (key, effect, set_it) in wanted {
        let is = |t: &Value| text(t, "/key") == key && text(t, "/effect") == effect;
        if !set_it {
            taints.retain(|t| !is(t));
        } else if !taints.iter().any(is) {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": seconds(now)}));
        }
    }
    if taints == before {
        return;
    }
    if taints.is_empty() {
        crate::sim::kube::object::unset(node, &["spec", "taints"]);
    } else {
        set(node, &["spec", "taints"], Value::Array(taints));
    }
}

/// Pods of a lost node count as not ready.
fn mark_pods(state: &mut State, node: &str) {
    let pods: Vec<Arc<Value>> = state
        .all(PODS)
        .values()
        .filter(|p| text(p, "/spec/nodeName") == node && is_true(p, "Ready"))
        .cloned()
        .collect();
    let now = state.now;
    for pod in pods {
        state.change(PODS, namespace(&pod), name(&pod), |p| {
            set_condition(p, "Ready", "False", "", "", now);
        });
    }
}

/// Deletes pods whose node has a NoExecute taint that they do not tolerate, or no longer.
fn expel(state: &mut State) -> Option<Time> {
    let mut next: Option<Time> = None;
    for node in state.snapshot(NODES) {
        let taints: Vec<&Value> = list(&node, "/spec/taints")
            .iter()
            .filter(|t| text(t, "/effect") == "NoExecute")
            .collect();
        if taints.is_empty() {
            continue;
        }
        let pods: Vec<Arc<Value>> = state
            .all(PODS)
            .values()
            .filter(|p| text(p, "/spec/nodeName") == name(&node) && !deleting(p))
            .cloned()
            .collect();
        for pod in pods {
            match leaves(&pod, &taints, state.now) {
                Some(at) if at <= state.now => erase(state, PODS, &pod),
                Some(at) => next = Some(next.map_or(at, |n| n.min(at))),
                None => {}
            }
        }
    }
    next
}

/// When a pod has to leave because of these taints; `None` for never.
fn leaves(pod: &Value, taints: &[&Value], now: Time) -> Option<Time> {
    let mut first: Option<Time> = None;
    for taint in taints {
        let covers = |toleration: &Value| {
            let toleration = read::toleration(toleration);
            toleration.is_some_and(|one| filters::tolerates(&one, &read::taint(taint)))
        };
        let matching: Vec<&Value> = list(pod, "/spec/tolerations")
            .iter()
            .filter(|t| covers(t))
            .collect();
        let since = time(taint, "/timeAdded").unwrap_or(now);
        let end = if matching.is_empty() {
            Some(since)
        } else {
            matching
                .iter()
                .filter_map(|t| number(t, "/tolerationSeconds"))
                .min()
                .map(|seconds| since + Span::seconds(seconds.max(0)))
        };
        first = match (first, end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    first
}
