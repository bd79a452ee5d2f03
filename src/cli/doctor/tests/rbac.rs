//! Each right of the manifests, taken out of its role in the simulated cluster.

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use http::HeaderValue;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::cli::doctor::Here;
use crate::cli::doctor::finding::{Findings, Grade};
use crate::cli::doctor::kubernetes::{ReachedCluster, look_at_rights};
use crate::clock::Clock;
use crate::config::parse;
use crate::kubernetes::bootstrap::{DOCTOR, MANIFEST, SERVING, USER};
use crate::kubernetes::{KubeClient, Unobserved, in_memory};
use crate::model::time::Time;
use crate::sim::kube::{Kube, KubeSpec, KubeUserSpec};

const EPOCH: Time = Time(1_795_000_000_000);
const TOKEN: &str = "of-the-daemon";
const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The simulated cluster lets everybody read it, as kubeadm does: without the role the daemon may, too.
const EVERYBODYS: &str = "get configmaps cluster-info in kube-public";
const NOMINATION: &str = "patch pods/status";
const LABEL: &str = "app.kubernetes.io/name";
const OF_SERVING: &str = "pve-autoscaler-serving-certificates";

/// Where objects like this one are made.
fn collection(object: &Value) -> String {
    let kind = object["kind"].as_str().expect("a kind").to_lowercase();
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{GROUP}/namespaces/{namespace}/{kind}s"),
        None => format!("{GROUP}/{kind}s"),
    }
}

async fn send(kube: &Kube, method: &str, path: &str, (media, body): (&str, &Value)) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media)
        .body(Body::from(body.to_string()))
        .expect("a request");
    let answer = kube.router().oneshot(request).await.expect("an answer");
    assert!(answer.status().is_success(), "{method} {path}: {answer:?}");
}

/// Gives a role these rules, and no other.
async fn give(kube: &Kube, role: &Value, rules: &[Value]) {
    let name = role["metadata"]["name"].as_str().expect("a name");
    let path = format!("{}/{name}", collection(role));
    let rules = json!({ "rules": rules });
    send(
        kube,
        "PATCH",
        &path,
        ("application/merge-patch+json", &rules),
    )
    .await;
}

fn list(object: &Value, key: &str) -> Vec<Value> {
    object[key].as_array().cloned().unwrap_or_default()
}

/// The rules of a role, one for each right.
fn rights(role: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    for rule in list(role, "rules") {
        let mut names = list(&rule, "resourceNames");
        if names.is_empty() {
            names.push(Value::Null);
        }
        for (group, resource) in pairs(&list(&rule, "apiGroups"), &list(&rule, "resources")) {
            for (verb, name) in pairs(&list(&rule, "verbs"), &names) {
                let mut one =
                    json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb] });
                if name.is_string() {
                    one["resourceNames"] = json!([name]);
                }
                all.push(one);
            }
        }
    }
    all
}

fn pairs(left: &[Value], right: &[Value]) -> Vec<(Value, Value)> {
    let all = left
        .iter()
        .flat_map(|one| right.iter().map(|other| (one.clone(), other.clone())));
    all.collect()
}

/// `get leases.coordination.k8s.io pve-autoscaler in kube-system`.
fn words(role: &Value, right: &Value) -> String {
    let part = |key: &str| right[key][0].as_str().unwrap_or_default();
    let mut words = format!("{} {}", part("verbs"), part("resources"));
    for (before, text) in [
        (".", part("apiGroups")),
        (" ", part("resourceNames")),
        (
            " in ",
            role["metadata"]["namespace"].as_str().unwrap_or_default(),
        ),
    ] {
        if !text.is_empty() {
            words += before;
            words += text;
        }
    }
    words
}

/// The cluster as the daemon meets it with this file.
async fn reached(kube: &Kube, clock: Clock, file: &str) -> ReachedCluster {
    let router = kube
        .public_router()
        .layer(from_fn(|mut request: Request, next: Next| {
            let token = HeaderValue::from_static("Bearer of-the-daemon");
            request.headers_mut().insert("authorization", token);
            next.run(request)
        }));
    let settings = parse(file, "test").unwrap_or_else(|errors| panic!("{errors}"));
    let here = Here {
        settings: Arc::new(settings),
        ..Here::of_test(Path::new("/nowhere"))
    };
    ReachedCluster {
        here,
        client: KubeClient::new(in_memory(router), clock, Arc::new(Unobserved)).await,
        id: None,
        version: "v1.34.1".to_owned(),
        minor: Some(34),
    }
}

async fn said(cluster: &ReachedCluster) -> Vec<(Grade, String)> {
    let mut findings = Findings::default();
    look_at_rights(cluster, &mut findings).await;
    let found = findings.0.into_iter();
    found.map(|one| (one.grade, one.text)).collect()
}

#[tokio::test(start_paused = true)]
async fn each_right_of_the_manifests_is_missed_by_its_verb_and_resource() {
    let clock = Clock::starting_at(EPOCH);
    let spec = KubeSpec {
        users: vec![KubeUserSpec {
            name: USER.to_owned(),
            token: TOKEN.to_owned(),
            ..KubeUserSpec::default()
        }],
        ..KubeSpec::default()
    };
    let kube = Kube::new(spec, clock, 7);
    let objects: Vec<Value> = [MANIFEST, SERVING]
        .into_iter()
        .flat_map(|text| serde_saphyr::from_multiple::<Value>(text).expect("it is YAML"))
        .filter(|object| object["metadata"]["labels"][LABEL] == USER)
        .collect();
    for object in &objects {
        send(
            &kube,
            "POST",
            &collection(object),
            ("application/json", object),
        )
        .await;
    }
    let all = "version = 1\n[kubernetes]\nserving_certificates = true\n";
    let all = reached(&kube, clock, all).await;
    let granted = "kubernetes: all rights that the daemon needs are granted";
    let granted = [(Grade::Fine, granted.to_owned())];
    assert_eq!(said(&all).await, granted);
    let mut named = 0;
    for role in &objects {
        let rights = rights(role);
        for (at, right) in rights.iter().enumerate() {
            let mut left = rights.clone();
            left.remove(at);
            give(&kube, role, &left).await;
            let words = words(role, right);
            let missing = format!("kubernetes: these rights are missing: {words}");
            if words == EVERYBODYS || role["metadata"]["name"] == DOCTOR {
                assert_eq!(said(&all).await, granted, "{words}");
            } else {
                assert_eq!(said(&all).await, [(Grade::Wrong, missing)]);
                named += 1;
            }
        }
        if !rights.is_empty() {
            give(&kube, role, &rights).await;
        }
    }
    assert!(named > 40, "the manifests have more rights than {named}");

    // A file without nominations and serving certificates needs no rights for them, and doctor must not ask for these rights.
    let few = "version = 1\n[scale_up]\nnominate_pods = false\n";
    let few = reached(&kube, clock, few).await;
    for role in &objects {
        let all = rights(role);
        let mut left = all.clone();
        let serving = role["metadata"]["name"] == OF_SERVING;
        left.retain(|right| !serving && words(role, right) != NOMINATION);
        if left != all {
            give(&kube, role, &left).await;
        }
    }
    assert_eq!(said(&few).await, granted);
    assert_eq!(said(&all).await[0].0, Grade::Wrong);
}
