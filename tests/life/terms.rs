//! A reload changes what is promised of a pool's machines while one of them comes up.

use std::sync::Arc;
use std::time::Duration;

use pve_autoscaler::config;
use pve_autoscaler::model::region::Step;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use serde_json::{Value, json};

use crate::HASTY;
use crate::common::{Scene, simulate};

/// A startup taint that a CNI would take away.
const TAINT: &str = "startup_taints = [\"example.org/cni:NoSchedule\"]\n";

fn with(pool: &str) -> String {
    HASTY.replace("min = 0\n", &format!("min = 0\n{pool}"))
}

/// While the clone is made, or shortly after.
const EARLY: Duration = Duration::from_millis(48_500);
/// When the node is there: not Ready, or Ready and waiting for the CNI.
const LATE: Duration = Duration::from_secs(100);

/// The daemon begins with one file and goes on with another at a time while the machine comes up; the
/// CNI is there a while later. Gives the scene at its end.
async fn reloaded(before: &str, after: &str, time: Duration) -> Scene {
    let mut scene = Scene::new(3, before, GuestSpec::default());
    let workload = || Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120));
    tokio::select! {
        biased;
        () = scene.live_until(time, 0) => {}
        () = scene.preside() => {}
        () = scene.play(workload()) => {}
    }
    let step = |scene: &Scene| {
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let mut machines = turn.snapshot.machines.values();
        machines
            .next()
            .and_then(|machine| machine.step)
            .map(|(step, _)| step)
    };
    let at = step(&scene);
    assert!(at.is_some() && at < Some(Step::Done), "{at:?}");
    scene.world.settings = Arc::new(config::parse(after, "after").expect("it is valid"));
    let cni = async {
        tokio::time::sleep(Duration::from_mins(2)).await;
        take_taint(&scene).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = scene.live_on(1, |_| {}) => {}
        () = scene.preside() => {}
        () = cni => {}
        () = tokio::time::sleep(Duration::from_mins(6)) => {}
    }
    scene
}

/// Every node's `spec.taints` without the CNI's.
async fn take_taint(scene: &Scene) {
    let list = crate::call(scene, http::Request::get("/api/v1/nodes"), String::new()).await;
    for node in list["items"].as_array().expect("a list") {
        let name = node["metadata"]["name"].as_str().expect("a name");
        let taints = node["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let left: Vec<Value> = taints
            .into_iter()
            .filter(|taint| taint["key"] != "example.org/cni")
            .collect();
        let patch = http::Request::patch(format!("/api/v1/nodes/{name}"))
            .header("content-type", "application/merge-patch+json");
        crate::patch(scene, patch, json!({"spec": {"taints": left}}).to_string()).await;
    }
}

#[test]
fn a_startup_taint_that_is_dropped_makes_no_second_machine() {
    simulate(async {
        let scene = reloaded(&with(TAINT), HASTY, LATE).await;
        assert_eq!(scene.machines_made(), 1, "a second one for the same pod");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

#[test]
fn a_type_that_changes_its_size_makes_no_second_machine() {
    simulate(async {
        // By the new size the pod would not fit on the machine that comes.
        let smaller = HASTY.replace(
            "cores = 2\nmemory = \"4GiB\"",
            "cores = 1\nmemory = \"1GiB\"",
        );
        assert_ne!(smaller, HASTY);
        let scene = reloaded(HASTY, &smaller, EARLY).await;
        assert_eq!(scene.machines_made(), 1);
        let vms = scene.world.pve.vms().into_iter();
        let made: Vec<_> = vms.filter(|vm| (9100..9121).contains(&vm.vmid)).collect();
        assert_eq!(made.len(), 1, "{made:?}");
        let node = crate::call(&scene, http::Request::get("/api/v1/nodes"), String::new()).await;
        let capacity = &node["items"][0]["status"]["capacity"]["cpu"];
        assert_eq!(capacity, "2", "it was made as it was planned");
    });
}

/// New labels and taints are for new machines; those of the one that comes are what it was made for.
#[test]
fn labels_and_taints_are_those_of_the_plan() {
    simulate(async {
        let before = with(&format!(
            "{TAINT}labels = {{ \"example.org/tier\" = \"old\" }}\n"
        ));
        let after = with(
            "labels = { \"example.org/tier\" = \"new\" }\ntaints = [\"example.org/only:NoSchedule\"]\n",
        );
        let scene = reloaded(&before, &after, LATE).await;
        assert_eq!(scene.machines_made(), 1);
        let nodes = crate::call(&scene, http::Request::get("/api/v1/nodes"), String::new()).await;
        let node = &nodes["items"][0];
        assert_eq!(node["metadata"]["labels"]["example.org/tier"], "old");
        let taints = node["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        assert!(taints.is_empty(), "{taints:?}");
    });
}
