//! The fake API server, driven over its router on paused time.

mod nominations;
mod preemption;
mod rbac;
mod volumes;

use std::time::Duration;

use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{Kube, KubeSpec};
use crate::clock::Clock;
use crate::model::time::Time;
use crate::sim::guests::api::Api;

const EPOCH: Time = Time(1_795_000_000_000);
const PODS: &str = "/api/v1/namespaces/default/pods";

fn cluster() -> (Kube, Api) {
    let spec = KubeSpec {
        keep_trace: true,
        ..KubeSpec::default()
    };
    let kube = Kube::new(spec, Clock::starting_at(EPOCH), 7);
    let api = Api::new(kube.router());
    (kube, api)
}

async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}]},
    })
}

async fn add_node(api: &Api, name: &str, cpu: &str) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    api.post("/api/v1/nodes", &node).await.expect("a node");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"renewTime": "2100-01-01T00:00:00.000000Z"},
    });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    api.post(leases, &lease).await.expect("a lease");
}

/// Does what a kubelet does to the pods of its node, at once.
async fn run_pods(api: &Api) {
    for item in items(&api.get(PODS).await.expect("pods")) {
        let path = format!("{PODS}/{}", item["metadata"]["name"].as_str().unwrap_or(""));
        if item["metadata"]["deletionTimestamp"].is_string() {
            let now = json!({"gracePeriodSeconds": 0});
            api.delete(&path, &now).await.expect("the pod ended");
        } else if item["spec"]["nodeName"].is_string() && item["status"]["phase"] == "Pending" {
            let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            api.patch(&format!("{path}/status"), &status)
                .await
                .expect("the pod runs");
        }
    }
}

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_room_is_unschedulable_until_a_node_comes() {
    let (_kube, api) = cluster();
    api.post(PODS, &pod("a", "500m")).await.expect("created");
    pause(1).await;
    let seen = api.get(&format!("{PODS}/a")).await.expect("the pod");
    let condition = &seen["status"]["conditions"][0];
    assert_eq!(condition["reason"], "Unschedulable");
    assert_eq!(condition["message"], "no nodes available to schedule pods");
    add_node(&api, "small", "250m").await;
    pause(1).await;
    let seen = api.get(&format!("{PODS}/a")).await.expect("the pod");
    assert_eq!(
        seen["status"]["conditions"][0]["message"],
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
    add_node(&api, "large", "4").await;
    pause(1).await;
    let seen = api.get(&format!("{PODS}/a")).await.expect("the pod");
    assert_eq!(seen["spec"]["nodeName"], "large");
}

/// client-go asks for protobuf first, and for JSON behind it: it gets JSON. Who takes protobuf alone is told what there is.
#[tokio::test(start_paused = true)]
async fn who_takes_json_too_gets_it_and_who_does_not_is_told() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let (kube, api) = cluster();
    api.post(PODS, &pod("a", "1")).await.expect("created");
    let ask = async |method: &str, path: &str, accept: &str| {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(http::header::ACCEPT, accept);
        let body = match method {
            "POST" => pod("b", "1").to_string(),
            _ => String::new(),
        };
        let request = request.header(http::header::CONTENT_TYPE, "application/json");
        let request = request
            .body(axum::body::Body::from(body))
            .expect("a request");
        let answer = kube.router().oneshot(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let media = answer.headers().get(http::header::CONTENT_TYPE).cloned();
        let media = media.expect("a type");
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
        let body: Value = serde_json::from_slice(&bytes.expect("a body")).expect("JSON");
        (code, media, body)
    };
    let both = format!("{PROTOBUF},application/json");
    for path in [PODS, &*format!("{PODS}/a")] {
        let (code, media, body) = ask("GET", path, &both).await;
        assert_eq!((code, media.to_str().ok()), (200, Some("application/json")));
        assert!(body["metadata"].is_object(), "{body}");
        let (code, media, body) = ask("GET", path, PROTOBUF).await;
        assert_eq!((code, media.to_str().ok()), (406, Some("application/json")));
        assert_eq!(
            (&body["kind"], &body["reason"]),
            (&"Status".into(), &"NotAcceptable".into())
        );
        let words = "only the following media types are accepted: application/json";
        assert_eq!(body["message"], words);
    }
    // What is not answered is not done either.
    let (code, ..) = ask("POST", PODS, PROTOBUF).await;
    assert_eq!(code, 406);
    api.get(&format!("{PODS}/b"))
        .await
        .expect_err("it was not made");
    let (code, ..) = ask("POST", PODS, &both).await;
    assert_eq!(code, 201);
    // Discovery is in one form or none, too; the version is JSON for everybody.
    for (path, wanted) in [("/api", 406), ("/apis/apps/v1", 406), ("/version", 200)] {
        assert_eq!(ask("GET", path, PROTOBUF).await.0, wanted, "{path}");
        assert_eq!(ask("GET", path, &both).await.0, 200, "{path}");
    }
}

/// What is not read is told, with the forms that are, and nothing is done; an empty body has no form.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_no_json_is_refused_by_its_type() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let (kube, api) = cluster();
    api.post(PODS, &pod("a", "1")).await.expect("created");
    let send = async |method: &str, path: &str, media: Option<&str>, body: &str| {
        let request = http::Request::builder().method(method).uri(path);
        let request = match media {
            Some(media) => request.header(http::header::CONTENT_TYPE, media),
            None => request,
        };
        let request = request
            .body(axum::body::Body::from(body.to_owned()))
            .expect("a request");
        let answer = kube.router().oneshot(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
        let said: Value = serde_json::from_slice(&bytes.expect("a body")).expect("JSON");
        (code, said)
    };
    let a = &*format!("{PODS}/a");
    let eviction = &*format!("{a}/eviction");
    let words = "the body of the request was in an unknown format - accepted media types include: ";
    let of_objects = &*format!("{words}application/json");
    let of_patches = &*format!(
        "{words}application/json-patch+json, application/merge-patch+json, \
         application/strategic-merge-patch+json, application/apply-patch+yaml"
    );
    for (method, path, media, told) in [
        ("POST", PODS, PROTOBUF, of_objects),
        ("POST", eviction, PROTOBUF, of_objects),
        (
            "PUT",
            a,
            "application/vnd.kubernetes.protobuf;v=1",
            of_objects,
        ),
        ("DELETE", a, PROTOBUF, of_objects),
        ("POST", PODS, "application/cbor", of_objects),
        ("PATCH", a, PROTOBUF, of_patches),
        ("PATCH", a, "application/json", of_patches),
    ] {
        // A Pod, of which no protobuf is read.
        let body = "k8s\u{0}\n\u{9}\n\u{2}v1\u{12}\u{3}Pod";
        let (code, said) = send(method, path, Some(media), body).await;
        assert_eq!(code, 415, "{method} {path} {media}: {said}");
        assert_eq!(said["reason"], "UnsupportedMediaType", "{said}");
        assert_eq!(said["message"], told, "{method} {path} {media}");
    }
    api.get(a).await.expect("it is there");
    let new = pod("b", "1").to_string();
    assert_eq!(send("POST", PODS, None, &new).await.0, 201);
    let json = Some("application/json; charset=utf-8");
    let new = pod("c", "1").to_string();
    assert_eq!(send("POST", PODS, json, &new).await.0, 201);
    assert_eq!(send("DELETE", a, Some(PROTOBUF), "").await.0, 200);
}

/// What kubectl 1.36 sends for `drain`, `delete --now`, `create namespace` and `create deployment`: its own bytes of the last two.
#[tokio::test(start_paused = true)]
async fn kubectl_deletes_evicts_and_creates_in_protobuf() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    const NEW_SPACE: &[u8] = b"k8s\x00\n\x0f\n\x02v1\x12\tNamespace\x12\x1c\n\x14\n\x04shop\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00\x12\x00\x1a\x02\n\x00\x1a\x00\"\x00";
    const NEW_DEPLOYMENT: &[u8] = b"k8s\x00\n\x15\n\x07apps/v1\x12\nDeployment\x12\xb4\x01\n\x1b\n\x01a\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00Z\x08\n\x03app\x12\x01a\x12\x86\x01\x08\x02\x12\n\n\x08\n\x03app\x12\x01a\x1an\n\x1a\n\x00\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00Z\x08\n\x03app\x12\x01a\x12P\x122\n\x01x\x12\x01x\x1a\x02sh\x1a\x02-c\x1a\x02id*\x002\n\n\x00\x10\x00\x18P\"\x00*\x00B\x00j\x00r\x00\x80\x01\x00\x88\x01\x00\x90\x01\x00\xa2\x01\x00\x1a\x002\x00B\x00J\x00R\x00X\x00`\x00h\x00\x82\x01\x00\x8a\x01\x00\x9a\x01\x00\xc2\x01\x00\"\x02\n\x00(\x008\x00\x1a\x0c\x08\x00\x10\x00\x18\x00 \x00(\x008\x00\x1a\x00\"\x00";
    const EVICTION_OF_A: &[u8] = b"k8s\x00\n\x15\n\tpolicy/v1\x12\x08Eviction\x12\x12\n\x0e\n\x01a\x1a\x07default8\x00\x12\x00\x1a\x00\"\x00";
    const AT_ONCE: &[u8] =
        b"k8s\x00\n\x13\n\x02v1\x12\rDeleteOptions\x12\x0e\x08\x01\"\nBackground\x1a\x00\"\x00";
    let (kube, api) = cluster();
    api.post(PODS, &pod("a", "1")).await.expect("created");
    api.post(PODS, &pod("b", "1")).await.expect("created");
    pause(1).await;
    let send = async |method: &str, path: &str, body: &'static [u8]| {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(http::header::CONTENT_TYPE, PROTOBUF);
        let request = request.body(axum::body::Body::from(body));
        let answer = kube.router().oneshot(request.expect("a request")).await;
        let answer = answer.expect("an answer");
        let code = answer.status().as_u16();
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
        let said: Value = serde_json::from_slice(&bytes.expect("a body")).expect("JSON");
        (code, said)
    };
    let (code, said) = send("POST", "/api/v1/namespaces", NEW_SPACE).await;
    assert_eq!(
        (code, &said["metadata"]["name"]),
        (201, &json!("shop")),
        "{said}"
    );

    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let (code, said) = send("POST", deployments, NEW_DEPLOYMENT).await;
    assert_eq!(code, 201, "{said}");
    let spec = &said["spec"];
    assert_eq!(spec["replicas"], 2);
    assert_eq!(spec["selector"]["matchLabels"], json!({"app": "a"}));
    assert_eq!(spec["template"]["metadata"]["labels"], json!({"app": "a"}));
    let container = &spec["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["name"], &container["image"]),
        (&json!("x"), &json!("x"))
    );
    assert_eq!(container["command"], json!(["sh", "-c", "id"]));
    assert_eq!(container["ports"][0]["containerPort"], 80);
    pause(5).await;
    let seen = api.get(&format!("{PODS}?labelSelector=app%3Da")).await;
    let seen = seen.expect("pods");
    let made = items(&seen)
        .into_iter()
        .filter(|pod| pod["metadata"]["name"] != "a");
    assert_eq!(made.count(), 2, "{seen}");

    let (code, said) = send("POST", &format!("{PODS}/b/eviction"), EVICTION_OF_A).await;
    assert_eq!(code, 400, "another pod's name: {said}");
    let (code, said) = send("POST", &format!("{PODS}/a/eviction"), EVICTION_OF_A).await;
    assert_eq!(code, 201, "{said}");
    let (code, said) = send("DELETE", &format!("{PODS}/b"), AT_ONCE).await;
    assert_eq!(code, 200, "{said}");
    pause(60).await;
    for gone in ["a", "b"] {
        let seen = api.get(&format!("{PODS}/{gone}")).await;
        seen.expect_err("it is gone");
    }
    let (code, said) = send("POST", "/api/v1/namespaces", &NEW_SPACE[..20]).await;
    assert_eq!(
        (code, &said["reason"]),
        (400, &json!("BadRequest")),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_pages_of_one_version() {
    let (_kube, api) = cluster();
    for at in 0..5 {
        api.post(PODS, &pod(&format!("p{at}"), "1"))
            .await
            .expect("created");
    }
    pause(1).await;
    let first = api.get(&format!("{PODS}?limit=2")).await.expect("a page");
    assert_eq!(items(&first).len(), 2);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    assert_eq!(items(&first)[0].get("kind"), None);
    api.delete(&format!("{PODS}/p3"), &json!({}))
        .await
        .expect("deleted");
    let token = first["metadata"]["continue"].as_str().expect("more");
    let rest = api
        .get(&format!("{PODS}?limit=9&continue={token}"))
        .await
        .expect("the rest");
    let names: Vec<_> = items(&rest)
        .iter()
        .map(|p| p["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["p2", "p3", "p4"], "the page shows the old version");
    assert_eq!(
        rest["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
}

#[tokio::test(start_paused = true)]
async fn watches_show_changes_bookmarks_and_gone() {
    let (kube, api) = cluster();
    let list = api.get(PODS).await.expect("a list");
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .to_owned();
    let path = format!(
        "{PODS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=100&resourceVersion={version}&labelSelector=app%3Da"
    );
    let mut watch = api.watch(&path).await.expect("a watch");
    api.post(PODS, &pod("b", "1")).await.expect("created");
    api.post(PODS, &pod("a", "1")).await.expect("created");
    let event = watch.next().await.expect("an event");
    assert_eq!(event["type"], "ADDED");
    assert_eq!(event["object"]["metadata"]["name"], "a");
    let event = watch.next().await.expect("an event");
    assert_eq!(event["type"], "MODIFIED", "the scheduler's refusal");
    let unlabel = json!({"metadata": {"labels": {"app": null}}});
    api.merge(&format!("{PODS}/a"), &unlabel)
        .await
        .expect("patched");
    assert_eq!(watch.next().await.expect("an event")["type"], "DELETED");
    let bookmark = watch.next().await.expect("a bookmark");
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(
        watch.next().await.expect("the last bookmark")["type"],
        "BOOKMARK"
    );
    assert_eq!(watch.next().await, None, "100 s are over");
    kube.compact();
    let mut watch = api.watch(&path).await.expect("a watch");
    let event = watch.next().await.expect("an event");
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["code"], 410);
    assert_eq!(event["object"]["reason"], "Expired");
}

#[tokio::test(start_paused = true)]
async fn writes_conflict_as_they_should() {
    let (_kube, api) = cluster();
    add_node(&api, "n", "1").await;
    pause(1).await;
    let node = api.get("/api/v1/nodes/n").await.expect("the node");
    let mut first = node.clone();
    first["metadata"]["labels"]["a"] = json!("1");
    api.put("/api/v1/nodes/n", &first)
        .await
        .expect("the first write");
    let refused = api
        .put("/api/v1/nodes/n", &first)
        .await
        .expect_err("a stale write");
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    let twice = json!({"spec": {"taints": [
        {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"},
    ]}});
    let refused = api
        .merge("/api/v1/nodes/n", &twice)
        .await
        .expect_err("twins");
    assert_eq!(refused.code, 422);
    let options = json!({"preconditions": {"uid": "other"}});
    let refused = api
        .delete("/api/v1/nodes/n", &options)
        .await
        .expect_err("another");
    assert_eq!(refused.code, 409);
    let dry = json!({"metadata": {"labels": {"dry": "1"}}});
    api.merge("/api/v1/nodes/n?dryRun=All", &dry)
        .await
        .expect("a dry run");
    let seen = api.get("/api/v1/nodes/n").await.expect("the node");
    assert_eq!(seen["metadata"]["labels"].get("dry"), None);
    let refused = api.get("/api/v1/nodes/m").await.expect_err("none");
    assert_eq!(refused.message, "nodes \"m\" not found");
}

#[tokio::test(start_paused = true)]
async fn a_budget_stops_evictions_until_the_pod_is_back() {
    let (_kube, api) = cluster();
    add_node(&api, "n", "4").await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]},
            },
        },
    });
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    api.post(deployments, &deployment).await.expect("created");
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    api.post(budgets, &budget).await.expect("created");
    pause(1).await;
    run_pods(&api).await;
    pause(1).await;
    let status = &api
        .get(&format!("{budgets}/web"))
        .await
        .expect("the budget")["status"];
    assert_eq!(status["disruptionsAllowed"], 1);
    let pods = items(&api.get(PODS).await.expect("pods"));
    let name = |at: usize| {
        pods[at]["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned()
    };
    let evict = async |name: &str, uid: &Value| {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        api.post(&format!("{PODS}/{name}/eviction"), &eviction)
            .await
    };
    let refused = evict(&name(0), &json!("other"))
        .await
        .expect_err("another pod");
    assert_eq!(refused.code, 409);
    evict(&name(0), &pods[0]["metadata"]["uid"])
        .await
        .expect("evicted");
    let refused = evict(&name(1), &pods[1]["metadata"]["uid"])
        .await
        .expect_err("spent");
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (429, "TooManyRequests")
    );
    assert_eq!(
        refused.body["details"]["causes"][0]["reason"],
        "DisruptionBudget"
    );
    run_pods(&api).await;
    pause(1).await;
    run_pods(&api).await;
    pause(1).await;
    evict(&name(1), &pods[1]["metadata"]["uid"])
        .await
        .expect("the budget is whole again");
    let twin = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "twin"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    api.post(budgets, &twin).await.expect("created");
    pause(1).await;
    let alive = items(&api.get(PODS).await.expect("pods"))
        .into_iter()
        .find(|p| p["metadata"]["deletionTimestamp"].is_null() && p["status"]["phase"] == "Running")
        .expect("a pod that runs");
    let name = alive["metadata"]["name"].as_str().expect("a name");
    let refused = evict(name, &alive["metadata"]["uid"])
        .await
        .expect_err("two budgets");
    assert_eq!(refused.code, 500);
}

#[tokio::test(start_paused = true)]
async fn label_keys_of_a_pod_stand_in_its_selectors_once_it_is_made() {
    let (_kube, api) = cluster();
    let mut web = pod("a", "1");
    web["metadata"]["labels"] = json!({"app": "a", "rev": "2"});
    let term = json!({
        "topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}},
        "matchLabelKeys": ["rev", "unknown"],
    });
    let mut other = term.clone();
    other["mismatchLabelKeys"] = json!(["app"]);
    let weighed = json!([{"weight": 1, "podAffinityTerm": other}]);
    web["spec"]["affinity"] = json!({
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighed},
    });
    let made = api.post(PODS, &web).await.expect("created");
    let selector = |path: &str| {
        let term = made["spec"]["affinity"].pointer(path).expect("a term");
        term["labelSelector"]["matchExpressions"].clone()
    };
    let own = json!({"key": "rev", "operator": "In", "values": ["2"]});
    let others = json!({"key": "app", "operator": "NotIn", "values": ["a"]});
    let required = "/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0";
    assert_eq!(selector(required), json!([own]));
    let preferred =
        "/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm";
    assert_eq!(selector(preferred), json!([own, others]));
}
