//! Workloads as manifests: the pods that their controllers would have made.

use serde_json::{Value as Json, json};

/// Whether objects of a kind stand for pods.
#[must_use]
pub fn makes_pods(kind: &str) -> bool {
    ["Deployment", "ReplicaSet", "StatefulSet", "Job"].contains(&kind)
}

/// The pods of a manifest: itself, or as many as the workload wants.
#[must_use]
pub fn pods(object: Json) -> Vec<Json> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if !makes_pods(&kind) {
        return vec![object];
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    // A Deployment's pods belong to its ReplicaSet.
    let owner = if kind == "Deployment" {
        "ReplicaSet"
    } else {
        &kind
    };
    let spec = &object["spec"];
    let wanted = if kind == "Job" {
        spec["parallelism"].as_u64()
    } else {
        spec["replicas"].as_u64()
    };
    let template = &spec["template"];
    (0..wanted.unwrap_or(1).min(MOST))
        .map(|index| {
            json!({
                "kind": "Pod",
                "metadata": {
                    "name": format!("{name}-{index}"),
                    "namespace": object["metadata"]["namespace"],
                    "labels": template["metadata"]["labels"],
                    "annotations": template["metadata"]["annotations"],
                    "ownerReferences": [{
                        "kind": owner,
                        "name": name,
                        "uid": format!("uid-{owner}-{name}"),
                        "controller": true,
                    }],
                },
                "spec": template["spec"],
                "status": {},
            })
        })
        .collect()
}

/// Pods of one workload: far beyond what anybody writes down.
const MOST: u64 = 100_000;
