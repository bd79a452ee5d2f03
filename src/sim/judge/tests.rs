//! The judge sees what is wrong, and nothing else.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::Request;
use tower::ServiceExt as _;

use super::*;
use crate::clock::Clock;
use crate::sim::guests::api::Api;
use crate::sim::guests::{GuestSpec, KubeGuests, StandingNode, stand};
use crate::sim::kube::KubeSpec;
use crate::sim::pve::PveSpec;
use crate::sim::world::DAEMON;

struct Scene {
    clock: Clock,
    kube: Kube,
    pve: Pve,
    judge: Judge,
}

fn scene() -> Scene {
    let clock = Clock::starting_at(Time(1_795_000_000_000));
    let kube = Kube::new(KubeSpec::default(), clock, 1);
    let guests = KubeGuests::new(kube.public_router(), GuestSpec::default(), clock, 1);
    let pve = Pve::new(PveSpec::default(), Arc::new(guests), clock, 1);
    let pool = PoolRule {
        name: "p".to_owned(),
        max: 1,
        allocatable: json!({"cpu": "2", "memory": "4Gi"}),
        ..PoolRule::default()
    };
    let judge = Judge::new(kube.clone(), pve.clone(), "test", vec![pool]);
    Scene {
        clock,
        kube,
        pve,
        judge,
    }
}

async fn pause(seconds: u64) {
    tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
}

fn pod(cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{
            "name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}},
        }]},
    })
}

async fn put(router: Router, path: &str, form: &str) {
    let request = Request::put(format!("/api2/json{path}"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(form.to_owned()))
        .expect("a request");
    let answer = router.oneshot(request).await.expect("an answer");
    assert!(answer.status().is_success(), "{}", answer.status());
}

#[tokio::test(start_paused = true)]
async fn a_quiet_world_is_innocent() {
    let mut scene = scene();
    pause(60).await;
    scene.judge.look(scene.clock.now());
    assert_eq!(scene.judge.findings(), Vec::<String>::new());
    assert_eq!(scene.judge.at_rest(&BTreeMap::new()), Vec::<String>::new());
    let wanted = [("p".to_owned(), 1)].into();
    assert_eq!(
        scene.judge.at_rest(&wanted).len(),
        1,
        "a machine is missing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_foreign_vm_may_not_be_touched() {
    let mut scene = scene();
    let vm = scene.pve.vms().into_iter().find(|vm| !vm.container);
    let vm = vm.expect("the default world has a VM");
    let path = format!("/nodes/{}/qemu/{}/config", vm.host, vm.vmid);
    put(scene.pve.router_as("root@pam"), &path, "cores=3").await;
    scene.judge.look(scene.clock.now());
    let found = scene.judge.findings();
    assert!(
        found.iter().any(|f| f.contains("which is not ours")),
        "{found:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn nodes_go_after_their_pods() {
    let mut scene = scene();
    let node = StandingNode {
        name: "n".to_owned(),
        taints: Vec::new(),
        ..StandingNode::default()
    };
    let _kubelet = stand(&scene.kube, &node, 1, scene.clock);
    let api = Api::new(scene.kube.router_as(DAEMON));
    let pods = "/api/v1/namespaces/default/pods";
    api.post(pods, &pod("1")).await.expect("created");
    pause(30).await;
    assert_eq!(scene.kube.undrained("n"), ["default/a"]);
    let path = "/api/v1/nodes/n";
    api.delete(path, &json!({})).await.expect("deleted");
    scene.judge.look(scene.clock.now());
    let found = scene.judge.findings();
    assert!(
        found.iter().any(|f| f.contains("undrained pods")),
        "{found:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_that_a_pool_would_take_get_a_node_in_time() {
    for (cpu, late) in [("1", true), ("64", false)] {
        let mut scene = scene();
        let api = Api::new(scene.kube.router());
        let pods = "/api/v1/namespaces/default/pods";
        api.post(pods, &pod(cpu)).await.expect("created");
        scene.judge.expect_progress(Span::minutes(5));
        for _ in 0..8 {
            pause(60).await;
            scene.judge.look(scene.clock.now());
        }
        let found = scene.judge.findings();
        assert_eq!(!found.is_empty(), late, "{cpu}: {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn leftovers_are_named() {
    let scene = scene();
    let api = Api::new(scene.kube.router());
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-left00"}, "stringData": {"token-id": "left00"},
    });
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    api.post(secrets, &secret).await.expect("created");
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "p-gone", "labels": {POOL_LABEL: "p"}},
    });
    api.post("/api/v1/nodes", &node).await.expect("created");
    let wrong = scene.judge.at_rest(&BTreeMap::new());
    assert_eq!(wrong.len(), 2, "{wrong:?}");
}

/// Asks to clone the template as machine `tail` of pool p, and says the answer's status.
async fn ask(router: Router, vmid: u32, tail: &str) -> u16 {
    let mark = json!({
        "machine": format!("p-{tail}"), "pool": "p", "cluster": "u/test", "vmid": vmid,
    });
    let notes = format!("{MARK}{mark}").replace('%', "%25");
    let form = format!("newid={vmid}&name=p-{tail}&full=1&description={notes}");
    let request = Request::post("/api2/json/nodes/pve1/qemu/9000/clone")
        .header("content-type", "application/x-www-form-urlencoded");
    let request = request.body(Body::from(form)).expect("a request");
    router
        .oneshot(request)
        .await
        .expect("an answer")
        .status()
        .as_u16()
}

#[tokio::test(start_paused = true)]
async fn a_machine_too_many_is_refused_and_only_who_could_know_is_blamed() {
    for lost in [false, true] {
        let mut scene = scene();
        let broker = Broker::new(scene.pve.clone(), scene.clock, [("p".to_owned(), 1)].into());
        let way = || broker.wrap(scene.pve.router_as("root@pam"));
        scene.judge = scene.judge.behind(broker.clone());
        assert_eq!(ask(way(), 9100, "aaaaa").await, 200);
        // Its clone is under way: only the broker's record says whose it is.
        assert_eq!(ask(way(), 9100, "aaaaa").await / 100, 5, "PVE has it");
        if lost {
            scene.judge.disown(9100, scene.clock.now());
        }
        assert_eq!(ask(way(), 9101, "bbbbb").await, 403);
        pause(60).await;
        assert_eq!(ask(way(), 9101, "bbbbb").await, 403, "it has a mark now");
        scene.judge.look(scene.clock.now());
        let found = scene.judge.findings();
        let blamed = found.iter().any(|what| what.contains("as many as it may"));
        assert_eq!(blamed, !lost, "{found:?}");
    }
}
