//! DaemonSets: one pod for every node that would take it, bound by the scheduler through a node
//! affinity to the node's name.

use std::collections::BTreeSet;
use std::sync::Arc;

use filters::NodeInfo;
use serde_json::{Value, json};

use super::{erase, from_template, owned, store};
use crate::sim::kube::object::{deleting, is_true, list, name, set, text, uid};
use crate::sim::kube::resources::{DAEMONSETS, NODES, PODS};
use crate::sim::kube::scheduler::{fit, read};
use crate::sim::kube::store::State;

/// What every daemon pod tolerates.
const TOLERATED: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

pub(super) fn reconcile(state: &mut State) {
    if state.all(DAEMONSETS).is_empty() {
        return;
    }
    let pods = owned(state, PODS);
    let nodes: Vec<NodeInfo> = state
        .all(NODES)
        .values()
        .map(|n| read::node_info(n))
        .collect();
    for target in state.snapshot(DAEMONSETS) {
        if deleting(&target) {
            continue;
        }
        let own = pods.get(uid(&target)).map_or(&[][..], Vec::as_slice);
        let template = prototype(&target);
        let (guest, wanted) = (read::pod_info(&template), text(&template, "/spec/nodeName"));
        let mut desired = 0;
        let mut served = BTreeSet::new();
        for pod in own {
            let node = node_of(pod);
            let there = nodes.iter().find(|n| *n.name == *node);
            let stays = there.is_some_and(|n| fit::daemon_stays(&guest, n));
            let finished = matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
            if deleting(pod) {
                served.insert(node.to_owned());
            } else if !stays || finished || !served.insert(node.to_owned()) {
                erase(state, PODS, pod);
            }
        }
        for node in &nodes {
            let meant = wanted.is_empty() || *wanted == *node.name;
            if meant && fit::daemon_starts(&guest, node) {
                desired += 1;
                if !served.contains(&*node.name) {
                    let mut pod = template.clone();
                    pin(&mut pod, &node.name);
                    store(state, PODS, pod);
                }
            }
        }
        status(state, &target, own, desired);
    }
}

/// The pod of the set, before it is given a node.
pub(in crate::sim::kube) fn prototype(target: &Value) -> Value {
    let mut pod = from_template(target);
    set(
        &mut pod,
        &["metadata", "generateName"],
        json!(format!("{}-", name(target))),
    );
    let mut tolerations = list(&pod, "/spec/tolerations").to_vec();
    let host_network = pod.pointer("/spec/hostNetwork") == Some(&json!(true));
    let network = ("node.kubernetes.io/network-unavailable", "NoSchedule");
    for (key, effect) in TOLERATED.iter().chain(host_network.then_some(&network)) {
        tolerations.push(json!({"key": key, "operator": "Exists", "effect": effect}));
    }
    set(
        &mut pod,
        &["spec", "tolerations"],
        Value::Array(tolerations),
    );
    pod
}

/// Adds `metadata.name In [node]` to every required term, as the daemon controller does.
fn pin(pod: &mut Value, node: &str) {
    let field = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    let at = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let mut terms = list(pod, at).to_vec();
    if terms.is_empty() {
        terms.push(json!({}));
    }
    for term in &mut terms {
        set(term, &["matchFields"], field.clone());
    }
    set(
        pod,
        &[
            "spec",
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        ],
        Value::Array(terms),
    );
}

/// The node a daemon pod is for.
pub(super) fn node_of(pod: &Value) -> &str {
    let bound = text(pod, "/spec/nodeName");
    if !bound.is_empty() {
        return bound;
    }
    text(
        pod,
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0",
    )
}

fn status(state: &mut State, target: &Value, own: &[Arc<Value>], desired: usize) {
    let living = own.iter().filter(|p| !deleting(p));
    let ready = living.clone().filter(|p| is_true(p, "Ready")).count();
    let current = living.count().min(desired);
    let mut new = target.clone();
    for (field, value) in [
        ("currentNumberScheduled", json!(current)),
        ("desiredNumberScheduled", json!(desired)),
        ("numberMisscheduled", json!(0)),
        ("numberReady", json!(ready)),
        ("numberAvailable", json!(ready)),
        ("updatedNumberScheduled", json!(current)),
        (
            "observedGeneration",
            target["metadata"]["generation"].clone(),
        ),
    ] {
        set(&mut new, &["status", field], value);
    }
    state.replace(DAEMONSETS, new);
}
