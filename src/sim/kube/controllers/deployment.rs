//! Deployments and ReplicaSets. A new template replaces the old set at once, without a rollout.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{BURST, active, erase, from_template, owned, store};
use crate::sim::kube::object::{
    annotation, deleting, is_true, name, namespace, number, owner_reference, set, set_condition,
    text, uid,
};
use crate::sim::kube::resources::{DEPLOYMENTS, PODS, REPLICASETS};
use crate::sim::kube::store::{State, template_hash};

pub(super) fn deployments(state: &mut State) {
    let sets = owned(state, REPLICASETS);
    for deployment in state.snapshot(DEPLOYMENTS) {
        if deleting(&deployment) {
            continue;
        }
        let own = sets.get(uid(&deployment)).map_or(&[][..], Vec::as_slice);
        let hash = template_hash(&deployment["spec"]["template"]);
        let title = format!("{}-{hash}", name(&deployment));
        let wanted = number(&deployment, "/spec/replicas").unwrap_or(1);
        if !own.iter().any(|s| name(s) == title) {
            store(state, REPLICASETS, replica_set(&deployment, &title, &hash));
        }
        for set_of in own {
            let replicas = if name(set_of) == title { wanted } else { 0 };
            scale(state, set_of, replicas);
        }
        deployment_status(state, &deployment, own);
    }
}

fn replica_set(deployment: &Value, title: &str, hash: &str) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    set(
        &mut template,
        &["metadata", "labels", "pod-template-hash"],
        json!(hash),
    );
    let mut selector = deployment["spec"]["selector"].clone();
    set(
        &mut selector,
        &["matchLabels", "pod-template-hash"],
        json!(hash),
    );
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": title,
            "namespace": namespace(deployment),
            "labels": template["metadata"]["labels"],
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {
            "replicas": deployment["spec"]["replicas"],
            "selector": selector,
            "template": template,
        },
    })
}

fn scale(state: &mut State, target: &Value, replicas: i64) {
    if number(target, "/spec/replicas") == Some(replicas) || deleting(target) {
        return;
    }
    state.change(REPLICASETS, namespace(target), name(target), |s| {
        set(s, &["spec", "replicas"], json!(replicas));
        let generation = number(s, "/metadata/generation").unwrap_or(0) + 1;
        set(s, &["metadata", "generation"], json!(generation));
    });
}

fn deployment_status(state: &mut State, deployment: &Value, sets: &[Arc<Value>]) {
    let sum = |field: &str| -> i64 {
        sets.iter()
            .filter_map(|s| number(s, &format!("/status/{field}")))
            .sum()
    };
    let wanted = number(deployment, "/spec/replicas").unwrap_or(1);
    let (replicas, ready) = (sum("replicas"), sum("readyReplicas"));
    let mut new = deployment.clone();
    for (field, value) in [
        (
            "observedGeneration",
            number(deployment, "/metadata/generation").unwrap_or(1),
        ),
        ("replicas", replicas),
        ("updatedReplicas", replicas),
        ("readyReplicas", ready),
        ("availableReplicas", ready),
        ("unavailableReplicas", (wanted - ready).max(0)),
    ] {
        set(&mut new, &["status", field], json!(value));
    }
    let (status, reason) = if ready >= wanted {
        ("True", "MinimumReplicasAvailable")
    } else {
        ("False", "MinimumReplicasUnavailable")
    };
    let now = state.now;
    set_condition(&mut new, "Available", status, reason, "", now);
    state.replace(DEPLOYMENTS, new);
}

pub(super) fn replica_sets(state: &mut State) {
    let pods = owned(state, PODS);
    for target in state.snapshot(REPLICASETS) {
        if deleting(&target) {
            continue;
        }
        let own = pods.get(uid(&target)).map_or(&[][..], Vec::as_slice);
        let mut living: Vec<&Arc<Value>> = own.iter().filter(|p| active(p)).collect();
        let wanted = usize::try_from(number(&target, "/spec/replicas").unwrap_or(1)).unwrap_or(0);
        for _ in living.len()..wanted.min(living.len() + BURST) {
            let mut pod = from_template(&target);
            set(
                &mut pod,
                &["metadata", "generateName"],
                json!(format!("{}-", name(&target))),
            );
            if !store(state, PODS, pod) {
                break;
            }
        }
        if living.len() > wanted {
            living.sort_by_key(|p| (rank(p), std::cmp::Reverse(name(p).to_owned())));
            for pod in &living[..living.len() - wanted] {
                erase(state, PODS, pod);
            }
        }
        let count = |with: &dyn Fn(&Value) -> bool| {
            i64::try_from(living.iter().filter(|p| with(p)).count()).unwrap_or(i64::MAX)
        };
        let (replicas, ready) = (count(&|_| true), count(&|p| is_true(p, "Ready")));
        let mut new = Value::clone(&target);
        for (field, value) in [
            (
                "observedGeneration",
                number(&target, "/metadata/generation").unwrap_or(1),
            ),
            ("replicas", replicas),
            ("fullyLabeledReplicas", replicas),
            ("readyReplicas", ready),
            ("availableReplicas", ready),
        ] {
            set(&mut new, &["status", field], json!(value));
        }
        state.replace(REPLICASETS, new);
    }
}

/// The order in which a set gives up pods: unassigned first, then not running, not ready, by
/// deletion cost, and the newest before older ones.
fn rank(pod: &Value) -> (bool, bool, bool, i64, std::cmp::Reverse<String>) {
    let cost = annotation(pod, "controller.kubernetes.io/pod-deletion-cost")
        .and_then(|c| c.parse().ok())
        .unwrap_or(0);
    (
        !text(pod, "/spec/nodeName").is_empty(),
        text(pod, "/status/phase") == "Running",
        is_true(pod, "Ready"),
        cost,
        std::cmp::Reverse(text(pod, "/metadata/creationTimestamp").to_owned()),
    )
}
