//! A machine's whole life in the simulator, with the real daemon: pending pods bring nodes, idle
//! nodes go, and nothing is left behind.

use std::time::Duration;

use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::world::{World, WorldSpec};
use serde_json::json;

const CONFIG: &str = include_str!("../src/sim/demo/demo.toml");

fn world(seed: u64) -> World {
    World::new(WorldSpec {
        seed,
        pve: PveSpec::default(),
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config: CONFIG.to_owned(),
    })
    .expect("the demo's configuration is valid")
}

fn simulate<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(future)
}

async fn post(world: &World, path: &str, body: serde_json::Value) {
    use tower::ServiceExt as _;
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(axum::body::Body::from(body.to_string()))
        .expect("a request");
    let response = world
        .kube
        .router()
        .oneshot(request)
        .await
        .expect("an answer");
    assert!(
        response.status().is_success(),
        "{path}: {}",
        response.status()
    );
}

fn deployment(name: &str, replicas: u32, cpu: &str, memory: &str) -> serde_json::Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "x",
                    "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}
            }
        }
    })
}

#[test]
fn pending_pods_bring_nodes() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter("info")
        .with_test_writer()
        .try_init();
    simulate(async {
        let world = world(1);
        let state = tempfile::tempdir().expect("a directory");
        let story = async {
            tokio::time::sleep(Duration::from_secs(40)).await;
            post(
                &world,
                "/apis/apps/v1/namespaces/default/deployments",
                deployment("web", 6, "1", "1Gi"),
            )
            .await;
            for _ in 0..40 {
                tokio::time::sleep(Duration::from_secs(5)).await;
                if let Some(turn) = world.turns.borrow().clone() {
                    let status = pve_autoscaler::agent::status::Status::of(&turn);
                    println!("{} {}", turn.at, status.line());
                    for (name, m) in &status.machines {
                        println!("   {name} {:?} {:?}", m.step, m.failure);
                    }
                }
            }
        };
        tokio::select! {
            ended = world.daemon(state.path(), None, 0) => panic!("{:?}", ended.err()),
            () = story => {}
        }
    });
}
