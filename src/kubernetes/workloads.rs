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
                "spec": with_claims(&object, index),
                "status": {},
            })
        })
        .collect()
}

/// The spec of a workload's pod; a StatefulSet's has the claims of its templates as volumes, in place of volumes of the same name.
fn with_claims(object: &Json, index: u64) -> Json {
    let mut spec = object["spec"]["template"]["spec"].clone();
    let claims = claim_names(object, index);
    if claims.is_empty() || !spec.is_object() {
        return spec;
    }
    let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    volumes.retain(|volume| {
        claims
            .iter()
            .all(|(template, _)| volume["name"] != *template)
    });
    volumes.extend(claims.into_iter().map(|(template, claim)| {
        json!({"name": template, "persistentVolumeClaim": {"claimName": claim}})
    }));
    spec["volumes"] = volumes.into();
    spec
}

/// The templates of a StatefulSet's claims, with the names of those that one of its pods gets.
fn claim_names(object: &Json, index: u64) -> Vec<(String, String)> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let templates = object["spec"]["volumeClaimTemplates"].as_array();
    let templates = templates.filter(|_| object["kind"] == "StatefulSet");
    let names = templates.into_iter().flatten().filter_map(|template| {
        let template = template["metadata"]["name"].as_str()?;
        Some((template.to_owned(), format!("{template}-{name}-{index}")))
    });
    names.collect()
}

/// The claims that a StatefulSet's controller makes for as many pods as [`pods`] gives, for those that are not there yet.
#[must_use]
pub fn claims(object: &Json) -> Vec<Json> {
    let templates = object["spec"]["volumeClaimTemplates"].as_array();
    let pods = object["spec"]["replicas"].as_u64().unwrap_or(1).min(MOST);
    let claims = (0..pods).flat_map(|index| {
        let names = claim_names(object, index).into_iter();
        names.filter_map(move |(template, claim)| {
            let mut templates = templates?.iter();
            let of = templates.find(|of| of["metadata"]["name"] == *template)?;
            Some(json!({
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": object["metadata"]["namespace"]},
                "spec": of["spec"],
                "status": {"phase": "Pending"},
            }))
        })
    });
    claims.collect()
}

/// Pods of one workload: far beyond what anybody writes down.
const MOST: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stateful_sets_pods_have_claims_of_their_own() {
        let object = json!({
            "kind": "StatefulSet",
            "metadata": {"name": "db", "namespace": "shop"},
            "spec": {
                "replicas": 2,
                "template": {"spec": {"containers": [{"name": "c"}], "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}],
            },
        });
        let volumes: Vec<Json> = pods(object.clone())
            .iter()
            .map(|pod| pod["spec"]["volumes"].clone())
            .collect();
        let claim = |pod: &str| json!([{"name": "tmp", "emptyDir": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{pod}")}}]);
        assert_eq!(volumes, [claim("db-0"), claim("db-1")]);
        let made = claims(&object);
        assert_eq!(made.len(), 2);
        assert_eq!(
            made[1]["metadata"],
            json!({"name": "data-db-1", "namespace": "shop"})
        );
        assert_eq!(made[1]["spec"]["storageClassName"], "fast");
        // Other kinds have no such templates, whatever stands there.
        let mut other = object;
        other["kind"] = "Deployment".into();
        assert_eq!(claims(&other), Vec::<Json>::new());
        assert_eq!(
            pods(other)[0]["spec"]["volumes"].as_array().map(Vec::len),
            Some(2)
        );
    }
}
