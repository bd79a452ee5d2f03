//! The adapter against the simulated cluster: every effect with the rights of the RBAC manifest.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::bootstrap::MANIFEST;
use super::client::KubeRequest;
use super::*;
use crate::clock::Clock;
use crate::model::action::NodeRef;
use crate::model::cluster::{Node, ObjectKey};
use crate::model::policy::{LEAVING_TAINT, STARTUP_TAINT};
use crate::model::scheduling::Labels;
use crate::model::time::{Span, Time};
use crate::sim::kube::{Kube, KubeSpec, KubeUserSpec, PolicyRule};

const EPOCH: Time = Time(1_795_000_000_000);

/// Collects every call's end.
#[derive(Debug, Default)]
struct Calls(Mutex<BTreeSet<(String, CallOutcome)>>);

impl CallObserver for Calls {
    fn called(&self, verb: &'static str, kind: &'static str, outcome: CallOutcome, _: Duration) {
        let call = format!("{verb} {kind}");
        self.0.lock().expect("a lock").insert((call, outcome));
    }
}

/// The manifest's rules, as the simulated cluster takes them.
fn rules() -> Vec<PolicyRule> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(MANIFEST).expect("it is YAML");
    let mut all = Vec::new();
    for document in documents {
        let namespace = document["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default();
        for rule in document["rules"].as_array().into_iter().flatten() {
            let mut rule: PolicyRule = serde_json::from_value(rule.clone()).expect("a rule");
            rule.namespace = namespace.to_owned();
            all.push(rule);
        }
    }
    assert!(all.len() > 10, "the manifest's rules are read");
    all
}

struct World {
    kube: Kube,
    admin: KubeClient,
    /// With the manifest's rights and no others.
    ours: KubeClient,
    calls: Arc<Calls>,
    clock: Clock,
}

async fn world() -> World {
    let clock = Clock::starting_at(EPOCH);
    let spec = KubeSpec {
        users: vec![KubeUserSpec {
            name: "pve-autoscaler".to_owned(),
            token: "our-token".to_owned(),
            groups: vec!["system:authenticated".to_owned()],
            rules: rules(),
        }],
        ..KubeSpec::default()
    };
    let kube = Kube::new(spec, clock, 11);
    let admin = KubeClient::new(in_memory(kube.router()), clock, Arc::new(Unobserved)).await;
    let calls = Arc::new(Calls::default());
    let ours = KubeClient::new(in_memory(as_us(&kube)), clock, calls.clone()).await;
    World {
        kube,
        admin,
        ours,
        calls,
        clock,
    }
}

/// The public door with our token.
fn as_us(kube: &Kube) -> axum::Router {
    kube.public_router().layer(axum::middleware::from_fn(
        |mut request: axum::extract::Request, next: axum::middleware::Next| {
            let token = axum::http::HeaderValue::from_static("Bearer our-token");
            request.headers_mut().insert("authorization", token);
            next.run(request)
        },
    ))
}

impl World {
    async fn create(&self, kind: &'static str, path: &str, object: Value) -> Value {
        let request = KubeRequest::new("create", kind, "", path.to_owned()).json(object);
        self.admin.read(request).await.expect("the admin may do it")
    }

    async fn node(&self, name: &str, unschedulable: bool) -> NodeRef {
        let made = self
            .create(
                "nodes",
                "/api/v1/nodes",
                json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
                    "spec": { "unschedulable": unschedulable, "taints": [
                        { "key": STARTUP_TAINT, "effect": "NoSchedule" },
                        { "key": "other", "value": "x", "effect": "NoExecute", "timeAdded": "2026-11-18T10:00:00Z" } ] },
                    "status": { "capacity": { "cpu": "4", "memory": "8Gi", "pods": "110" },
                        "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" },
                        "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-18T11:00:00Z" }],
                        "nodeInfo": { "systemUUID": "4A1C8D1E-9C1F-4E5B-8D4A-3B6B2C9A7E21" } },
                }),
            )
            .await;
        NodeRef {
            name: name.into(),
            uid: made["metadata"]["uid"].as_str().expect("a UID").into(),
        }
    }

    async fn pod(&self, name: &str, node: &str) -> (ObjectKey, String) {
        let made = self
            .create(
                "pods",
                "/api/v1/namespaces/default/pods",
                json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" } },
                    "spec": { "nodeName": node, "tolerations": [{ "operator": "Exists" }],
                        "containers": [{ "name": "c", "image": "c", "resources": { "requests": { "cpu": "1" } } }] },
                }),
            )
            .await;
        let uid = made["metadata"]["uid"].as_str().expect("a UID").to_owned();
        (ObjectKey::new("default", name), uid)
    }

    /// Every call was within the manifest's rights.
    fn assert_permitted(&self) {
        let calls = self.calls.0.lock().expect("a lock");
        let forbidden: Vec<_> = calls
            .iter()
            .filter(|(_, outcome)| *outcome == CallOutcome::Refused(403))
            .collect();
        assert!(forbidden.is_empty(), "the manifest lacks {forbidden:?}");
    }
}

fn has_taint(node: &Node, key: &str) -> bool {
    node.taints.iter().any(|taint| &*taint.key == key)
}

fn another(node: &NodeRef) -> NodeRef {
    NodeRef {
        name: node.name.clone(),
        uid: "another-uid".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_marked_released_and_deleted_by_its_uid() {
    let world = world().await;
    let ours = &world.ours;
    let node = world.node("small-aaaaa", false).await;
    let marked = ours.mark_leaving(&node, EPOCH).await;
    assert_eq!(marked, Ok(NodeChange::Changed));
    let view = ours
        .node("small-aaaaa")
        .await
        .expect("read")
        .expect("there");
    assert!(view.unschedulable);
    let taint = view
        .taints
        .iter()
        .find(|taint| &*taint.key == LEAVING_TAINT);
    assert_eq!(taint.map(|taint| &*taint.value), Some("1795000000"));
    assert!(view.taints.iter().any(|taint| &*taint.key == "other"));
    let later = EPOCH + Span::minutes(5);
    assert_eq!(
        ours.mark_leaving(&node, later).await,
        Ok(NodeChange::AlreadySo)
    );
    assert_eq!(ours.release_node(&node).await, Ok(NodeChange::Changed));
    assert_eq!(ours.release_node(&node).await, Ok(NodeChange::AlreadySo));
    let view = ours
        .node("small-aaaaa")
        .await
        .expect("read")
        .expect("there");
    assert!(!view.unschedulable);
    assert!(
        !has_taint(&view, LEAVING_TAINT)
            && has_taint(&view, "other")
            && has_taint(&view, STARTUP_TAINT)
    );

    for change in [
        ours.mark_leaving(&another(&node), EPOCH).await,
        ours.release_node(&another(&node)).await,
        ours.remove_taint(&another(&node), STARTUP_TAINT).await,
        ours.delete_node(&another(&node)).await,
    ] {
        assert_eq!(change, Ok(NodeChange::Gone));
    }
    assert_eq!(ours.nodes().await.expect("a list").len(), 1);
    assert_eq!(ours.delete_node(&node).await, Ok(NodeChange::Changed));
    assert_eq!(ours.delete_node(&node).await, Ok(NodeChange::Gone));
    assert_eq!(ours.node("small-aaaaa").await, Ok(None));
    world.assert_permitted();
}

#[tokio::test(start_paused = true)]
async fn tm_14_giving_a_removal_up_does_not_undo_what_a_person_did() {
    let world = world().await;
    let node = world.node("small-bbbbb", true).await;
    let ours = &world.ours;
    let balancers = Labels::from([(Arc::from(nodes::EXCLUDED), Arc::from(""))]);
    let labelled = ours.label_node(&node, &balancers, &Labels::new()).await;
    assert_eq!(labelled, Ok(NodeChange::Changed));
    assert_eq!(
        ours.mark_leaving(&node, EPOCH).await,
        Ok(NodeChange::Changed)
    );
    assert_eq!(ours.release_node(&node).await, Ok(NodeChange::Changed));
    let view = ours
        .node("small-bbbbb")
        .await
        .expect("read")
        .expect("there");
    assert!(view.unschedulable, "it was cordoned before");
    assert!(!view.annotations.contains_key(nodes::WAS_CORDONED));
    let label = view.labels.get(nodes::EXCLUDED).map(|value| &**value);
    assert_eq!(label, Some(""), "it was kept from the balancers before");
    world.assert_permitted();
}

#[tokio::test(start_paused = true)]
async fn an_initialised_node_gets_its_labels_and_loses_its_startup_taint() {
    let world = world().await;
    let node = world.node("small-ccccc", false).await;
    let ours = &world.ours;
    let labels = Labels::from([("pve-autoscaler.io/pool".into(), "small".into())]);
    let annotations = Labels::from([("pve-autoscaler.io/machine".into(), "home/9001/x".into())]);
    let change = ours.label_node(&node, &labels, &annotations).await;
    assert_eq!(change, Ok(NodeChange::Changed));
    let change = ours.label_node(&node, &labels, &annotations).await;
    assert_eq!(change, Ok(NodeChange::AlreadySo));
    let change = ours.remove_taint(&node, STARTUP_TAINT).await;
    assert_eq!(change, Ok(NodeChange::Changed));
    let view = ours
        .node("small-ccccc")
        .await
        .expect("read")
        .expect("there");
    assert_eq!(view.labels.len(), 2);
    assert_eq!(view.annotations.len(), 1);
    assert!(!has_taint(&view, STARTUP_TAINT) && has_taint(&view, "other"));
    world.assert_permitted();
}

#[tokio::test(start_paused = true)]
async fn evictions_respect_budgets_and_uids() {
    let world = world().await;
    world.node("small-ddddd", false).await;
    let (key, uid) = world.pod("web-1", "small-ddddd").await;
    let status = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    let path = "/api/v1/namespaces/default/pods/web-1/status";
    let patch = KubeRequest::new("patch", "pods/status", "web-1", path.to_owned());
    world
        .admin
        .call(patch.merge_patch(status))
        .await
        .expect("patched");
    let on = world.ours.pods_on("small-ddddd").await.expect("a list");
    assert_eq!(on.len(), 1);
    assert_eq!(&*on[0].1.uid, &*uid);
    assert!(
        world
            .ours
            .pods_on("elsewhere")
            .await
            .expect("a list")
            .is_empty()
    );
    world
        .create(
            "poddisruptionbudgets",
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": { "name": "web", "namespace": "default" },
                "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "web" } } } }),
        )
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let other = world.ours.evict(&key, "another-uid", None).await;
    assert_eq!(other, EvictOutcome::Conflict);
    let blocked = world.ours.evict(&key, &uid, Some(30)).await;
    assert!(
        matches!(&blocked, EvictOutcome::Blocked { why, .. } if !why.is_empty()),
        "{blocked:?}"
    );
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web";
    let delete = KubeRequest::new("delete", "poddisruptionbudgets", "web", path.to_owned());
    world.admin.call(delete).await.expect("deleted");
    assert_eq!(
        world.ours.evict(&key, &uid, Some(0)).await,
        EvictOutcome::Accepted
    );
    let gone = ObjectKey::new("default", "no-such-pod");
    assert_eq!(world.ours.evict(&gone, "x", None).await, EvictOutcome::Gone);
    assert_eq!(
        world.ours.attachments_on("small-ddddd").await,
        Ok(Vec::new())
    );
    world.assert_permitted();
}

fn token(clock: Clock, secret: &str) -> BootstrapToken {
    BootstrapToken {
        id: "abc123".to_owned(),
        secret: secret.into(),
        expires: clock.now() + Span::minutes(15),
        description: "machine small-k3x9p".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_made_replaced_and_deleted_but_never_read() {
    let world = world().await;
    let ours = &world.ours;
    let first = token(world.clock, "0123456789abcdef");
    assert_eq!(ours.create_token(&first).await, Ok(()));
    let again = ours.create_token(&first).await.expect_err("it is there");
    assert!(again.already_exists() && !again.maybe_done(), "{again}");
    let second = token(world.clock, "fedcba9876543210");
    assert_eq!(ours.replace_token(&second).await, Ok(()));
    let stored = world.kube.objects("v1", "Secret");
    let made = stored
        .iter()
        .find(|secret| secret["metadata"]["name"] == "bootstrap-token-abc123")
        .expect("it is stored");
    assert_eq!(made["type"], "bootstrap.kubernetes.io/token");
    assert_eq!(made["data"]["token-secret"], "ZmVkY2JhOTg3NjU0MzIxMA==");
    assert_eq!(ours.delete_token("abc123").await, Ok(()));
    assert_eq!(ours.delete_token("abc123").await, Ok(()));
    world.assert_permitted();
    // That one is there before it is replaced, and none before it is deleted, is an answer and no error.
    let calls = world.calls.0.lock().expect("a lock").clone();
    for (call, outcome) in [
        ("create secrets", CallOutcome::Conflict),
        ("delete secrets", CallOutcome::Absent),
    ] {
        assert!(calls.contains(&(call.to_owned(), outcome)), "{calls:?}");
    }
    assert!(calls.iter().all(|(_, end)| !end.is_error()), "{calls:?}");

    let path = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abc123";
    let read = KubeRequest::new("get", "secrets", "x", path.to_owned());
    let error = ours.call(read).await.expect_err("never read");
    assert_eq!(error.code(), Some(403));
    for bad in [
        BootstrapToken {
            id: "../abc".to_owned(),
            ..token(world.clock, "0123456789abcdef")
        },
        BootstrapToken {
            secret: "short".into(),
            ..token(world.clock, "x")
        },
        BootstrapToken {
            expires: world.clock.now() + Span::minutes(60),
            ..token(world.clock, "0123456789abcdef")
        },
    ] {
        let error = ours.create_token(&bad).await.expect_err("not sent");
        assert!(matches!(error, KubeError::NotSent { .. }), "{error}");
        assert!(!error.to_string().contains("0123456789abcdef"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_cluster_tells_who_it_is_and_how_it_is_joined() {
    let world = world().await;
    let uid = world.ours.kube_system_uid().await.expect("a UID");
    assert!(uid.len() >= 32, "{uid}");
    let info = world.ours.cluster_info().await.expect("cluster-info");
    assert_eq!(info.endpoint, "192.0.2.10:6443");
    assert_eq!(info.ca_hashes.len(), 1);
    assert!(info.ca_hashes[0].starts_with("sha256:"));
    let version = world.ours.server_version().await.expect("a version");
    assert_eq!(version.version, "v1.34.1");
    if let Some(time) = version.time {
        assert!(time.since(EPOCH) < Span::minutes(1) && EPOCH.since(time) < Span::minutes(1));
    }
    world.assert_permitted();
}

#[tokio::test(start_paused = true)]
async fn events_and_status_arrive() {
    let world = world().await;
    let (key, uid) = {
        world.node("small-eeeee", false).await;
        world.pod("web-2", "small-eeeee").await
    };
    let (recorder, run) = recorder(world.ours.clone(), "pve1".to_owned());
    let event = Event {
        about: InvolvedObject::pod(&key, &uid.as_str().into()),
        reason: events::reason::TRIGGERED_SCALE_UP,
        warning: false,
        message: "pool small grows from 1 to 2".to_owned(),
    };
    recorder.record(event.clone());
    let again = recorder.clone();
    let repeat = async move {
        tokio::time::sleep(Duration::from_mins(2)).await;
        again.record(event);
    };
    drop(recorder);
    tokio::join!(run, repeat);
    let stored = world.kube.objects("v1", "Event");
    let ours: Vec<_> = stored
        .iter()
        .filter(|event| event["source"]["component"] == "pve-autoscaler")
        .collect();
    assert_eq!(ours.len(), 1);
    assert_eq!(ours[0]["count"], 2);
    assert_eq!(ours[0]["involvedObject"]["name"], "web-2");
    for text in ["one", "two"] {
        let now = world.clock.now();
        assert_eq!(
            world.ours.write_status("kube-system", text, now).await,
            Ok(())
        );
    }
    let maps = world.kube.objects("v1", "ConfigMap");
    let status = maps
        .iter()
        .find(|map| map["metadata"]["name"] == status::STATUS_NAME)
        .expect("it is stored");
    assert_eq!(status["data"]["status"], "two");
    world.assert_permitted();
}

#[tokio::test(start_paused = true)]
async fn one_of_two_instances_leads_and_the_other_follows_at_once_when_it_stops() {
    let world = world().await;
    let lease = LeaseName {
        namespace: "kube-system".to_owned(),
        name: LEASE_NAME.to_owned(),
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (first, run_first) = elect(
        world.ours.clone(),
        lease.clone(),
        "pve1".to_owned(),
        Timing::DEFAULT,
        StdRng::seed_from_u64(1),
        async move {
            let _ = stopped.await;
        },
    );
    let (second, run_second) = elect(
        world.ours.clone(),
        lease,
        "pve2".to_owned(),
        Timing::DEFAULT,
        StdRng::seed_from_u64(2),
        std::future::pending(),
    );
    let first_task = tokio::spawn(run_first);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second_task = tokio::spawn(run_second);
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(first.held() && !second.held());
    }
    assert_eq!(second.holder().borrow().identity, "pve1");
    stop.send(()).expect("it runs");
    first_task.await.expect("it ends");
    assert!(!first.held());
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(second.held(), "it need not wait for the lease to run out");
    second_task.abort();
    world.assert_permitted();
}

/// As a renewal does whose answer has not come when the daemon stops.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_written_since_is_given_back_all_the_same_unless_another_has_it() {
    for (holder, left) in [("pve1", None), ("pve2", Some("pve2"))] {
        let world = world().await;
        let lease = LeaseName {
            namespace: "kube-system".to_owned(),
            name: LEASE_NAME.to_owned(),
        };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (leads, run) = elect(
            world.ours.clone(),
            lease.clone(),
            "pve1".to_owned(),
            Timing::DEFAULT,
            StdRng::seed_from_u64(1),
            async move {
                let _ = stopped.await;
            },
        );
        let task = tokio::spawn(run);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(leads.held());
        let path =
            format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{LEASE_NAME}");
        let read = KubeRequest::new("get", "leases", "", path.clone());
        let mut now: Value = world.admin.read(read).await.expect("it is there");
        now["spec"]["holderIdentity"] = json!(holder);
        now["spec"]["renewTime"] = json!("2026-11-18T11:00:00.000000Z");
        let write = KubeRequest::new("update", "leases", "", path).json(now);
        world
            .admin
            .read::<Value>(write)
            .await
            .expect("it is written");
        stop.send(()).expect("it runs");
        task.await.expect("it ends");
        let held = world.admin.lease_holder(&lease).await.expect("it is read");
        assert_eq!(held.as_deref(), left);
        world.assert_permitted();
    }
}

#[tokio::test(start_paused = true)]
async fn the_store_follows_the_cluster() {
    let world = world().await;
    world.node("small-fffff", false).await;
    let store = ClusterStore::new();
    let watching = tokio::spawn(watch::watch(world.ours.clone(), store.clone(), 3));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(store.complete(), "{:?}", store.view().sources);
    world.assert_permitted();
    let mut changes = store.changes();
    changes.mark_unchanged();
    world
        .create(
            "pods",
            "/api/v1/namespaces/default/pods",
            json!({ "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": "big", "namespace": "default" },
                "spec": { "containers": [{ "name": "c", "image": "c", "resources": { "requests": { "cpu": "64" } } }] } }),
        )
        .await;
    let told = tokio::time::timeout(Duration::from_secs(10), async {
        while changes.borrow_and_update().unschedulable == 0 {
            changes.changed().await.expect("the store lives");
        }
    });
    told.await.expect("the scheduler marks it and we are told");
    let view = store.view();
    let pod = view
        .cluster
        .pods
        .get(&ObjectKey::new("default", "big"))
        .expect("it is seen");
    assert!(pod.unschedulable_since.is_some() && pod.node.is_none());
    // An hour with everything that a cluster does by itself: the view stays fresh and right.
    tokio::time::sleep(Duration::from_hours(1)).await;
    world.kube.compact();
    tokio::time::sleep(Duration::from_hours(1)).await;
    let now = world.clock.now();
    for (name, source) in store.view().sources {
        assert!(
            source.complete && source.error.is_none(),
            "{name}: {source:?}"
        );
        assert!(
            now.since(source.as_of) <= Span::seconds(100),
            "{name}: {source:?}"
        );
    }
    assert_eq!(store.problems(), Vec::<String>::new());
    let nodes = world.ours.nodes().await.expect("a list");
    assert_eq!(nodes.len(), store.view().cluster.nodes.len());
    watching.abort();
    world.assert_permitted();
}

/// A nomination goes to a pod that waits and that nobody nominated, and only ours is taken back.
#[tokio::test(start_paused = true)]
async fn a_nomination_is_never_over_somebody_elses() {
    let world = world().await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
    });
    let made = world
        .create("pods", "/api/v1/namespaces/default/pods", pod)
        .await;
    let uid = made["metadata"]["uid"].as_str().expect("a UID").to_owned();
    let key = ObjectKey::new("default", "web");
    let ours = &world.ours;
    let say = async |uid: &str, from: Option<&str>, to: Option<&str>| {
        let said = ours.nominate(&key, uid, from, to).await;
        said.expect("the manifest allows it")
    };
    let stands = || {
        let pods = world.kube.objects("v1", "Pod");
        pods[0]["status"]["nominatedNodeName"]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!(say("other", None, Some("n1")).await, Nomination::Void);
    assert_eq!(say(&uid, None, Some("n1")).await, Nomination::Written);
    assert_eq!(stands().as_deref(), Some("n1"));
    assert_eq!(say(&uid, None, Some("n2")).await, Nomination::Void);
    assert_eq!(say(&uid, Some("n2"), None).await, Nomination::Void);
    assert_eq!(stands().as_deref(), Some("n1"));
    assert_eq!(say(&uid, Some("n1"), None).await, Nomination::Written);
    assert_eq!(stands(), None);
    world.node("n3", false).await;
    let binding =
        json!({"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n3"}});
    let path = "/api/v1/namespaces/default/pods/web/binding";
    world.create("pods/binding", path, binding).await;
    assert_eq!(say(&uid, None, Some("n1")).await, Nomination::Void, "bound");
    let gone = ObjectKey::new("default", "gone");
    let said = ours.nominate(&gone, &uid, None, Some("n1")).await;
    assert_eq!(said.expect("allowed"), Nomination::Void);
}
