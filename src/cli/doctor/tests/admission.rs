//! Each policy of admission-policy.yaml and each binding, missing from the simulated cluster.

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::cli::doctor::Here;
use crate::cli::doctor::admission::look;
use crate::cli::doctor::finding::{Findings, Grade};
use crate::cli::doctor::kubernetes::ReachedCluster;
use crate::clock::Clock;
use crate::kubernetes::bootstrap::{POLICY, USER};
use crate::kubernetes::{KubeClient, Unobserved, in_memory};
use crate::model::time::Time;
use crate::sim::kube::{Kube, KubeSpec};

const EPOCH: Time = Time(1_795_000_000_000);
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

async fn create(kube: &Kube, path: &str, object: &Value) {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(object.to_string()))
        .expect("a request");
    let answer = kube.router().oneshot(request).await.expect("an answer");
    assert!(answer.status().is_success(), "POST {path}: {answer:?}");
}

fn node(name: &str, metadata: &Value) -> Value {
    let mut node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata });
    node["metadata"]["name"] = json!(name);
    node
}

/// What is found in a cluster that has these objects of the manifest, and this node and a pod.
async fn found(objects: &[&Value], node: &Value) -> Vec<(Grade, String)> {
    let clock = Clock::starting_at(EPOCH);
    let kube = Kube::new(KubeSpec::default(), clock, 7);
    for object in objects {
        let kind = object["kind"].as_str().expect("a kind").to_lowercase();
        let plural = kind.strip_suffix('y').map(|stem| format!("{stem}ies"));
        let plural = plural.unwrap_or_else(|| format!("{kind}s"));
        create(&kube, &format!("{GROUP}/{plural}"), object).await;
    }
    create(&kube, "/api/v1/nodes", node).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "namespace": "default" },
        "spec": { "containers": [{ "name": "c", "image": "x" }] },
    });
    create(&kube, "/api/v1/namespaces/default/pods", &pod).await;
    let router = in_memory(kube.router_as(USER));
    let cluster = ReachedCluster {
        here: Here::of_test(Path::new("/nowhere")),
        client: KubeClient::new(router, clock, Arc::new(Unobserved)).await,
        id: None,
        version: "v1.34.1".to_owned(),
        minor: Some(34),
    };
    let mut findings = Findings::default();
    look(&cluster, &mut findings).await;
    for path in ["/api/v1/nodes/cp-1", "/api/v1/namespaces/default/pods/web"] {
        let request = http::Request::get(path).body(Body::empty());
        let answer = kube.router().oneshot(request.expect("a request")).await;
        let body = answer.expect("an answer").into_body();
        let body = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(!text.contains("doctor"), "a dry run stays: {text}");
    }
    let found = findings.0.into_iter();
    found.map(|one| (one.grade, one.text)).collect()
}

/// A policy without its binding judges nobody, and a binding without its policy neither. It finds a look that asks of one policy alone, one
/// that takes a refusal by another for it, and one that leaves behind what it tried.
#[tokio::test(start_paused = true)]
async fn each_policy_and_each_binding_is_missed_by_its_name() {
    let objects: Vec<Value> = serde_saphyr::from_multiple(POLICY).expect("it is YAML");
    let objects: Vec<&Value> = objects.iter().filter(|one| !one.is_null()).collect();
    assert_eq!(objects.len(), 6, "three policies, each with its binding");
    let control_plane = node("cp-1", &json!({}));
    let whole = found(&objects, &control_plane).await;
    let fine = whole.iter().all(|(grade, _)| *grade == Grade::Fine);
    assert!(fine && whole.len() == 4, "{whole:#?}");
    for name in ["tokens", "nodes", "pods"] {
        let words = format!("(pve-autoscaler-{name}, dry run)");
        let told = whole.iter().any(|(_, text)| {
            text.starts_with("kubernetes: admission-policy.yaml is in force: ")
                && text.ends_with(&words)
        });
        assert!(told, "{words:?} is not in {whole:#?}");
    }
    for (at, gone) in objects.iter().enumerate() {
        let mut left = objects.clone();
        left.remove(at);
        let said = found(&left, &control_plane).await;
        let name = gone["metadata"]["name"].as_str().expect("a name");
        let warnings: Vec<_> = said
            .iter()
            .filter(|(grade, _)| *grade != Grade::Fine)
            .collect();
        assert!(
            warnings.len() == 1
                && warnings[0].0 == Grade::Warning
                && warnings[0]
                    .1
                    .starts_with("kubernetes: admission-policy.yaml is not in force: ")
                && warnings[0]
                    .1
                    .contains(&format!("({name} or its binding is missing")),
            "without {} {name}: {said:#?}",
            gone["kind"]
        );
    }
}

/// The policy lets the daemon change the nodes of its machines, so that nothing can be tried on them. It finds a look that takes that for a
/// policy that is not in force.
#[tokio::test(start_paused = true)]
async fn a_policy_is_not_tried_on_machines_of_ours() {
    for metadata in [
        json!({ "labels": { "pve-autoscaler.io/pool": "general" } }),
        json!({ "annotations": { "pve-autoscaler.io/machine": "default/9100/x" } }),
    ] {
        let objects: Vec<Value> = serde_saphyr::from_multiple(POLICY).expect("it is YAML");
        let objects: Vec<&Value> = objects.iter().filter(|one| !one.is_null()).collect();
        let said = found(&objects, &node("cp-1", &metadata)).await;
        let fine = said.iter().all(|(grade, _)| *grade == Grade::Fine);
        assert!(fine && said.len() == 3, "{said:#?}");
        let nodes = said
            .iter()
            .any(|(_, text)| text.contains("pve-autoscaler-nodes"));
        assert!(!nodes, "{said:#?}");
    }
}
