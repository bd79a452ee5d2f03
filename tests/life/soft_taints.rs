//! Nodes that may go soon take pods last: the taint of deletion candidates, and what kube-scheduler makes of it.

use std::time::Duration;

use pve_autoscaler::controller::state::StateFiles;
use pve_autoscaler::model::region::RegionName;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadPods, WorkloadStep};

use crate::common::{Scene, simulate};
use crate::hosts::region;
use crate::waiting::{until, while_it_lives};

const TAINT: &str = "pve-autoscaler.io/deletion-candidate";
/// When somebody begins: the machines are nodes by then.
const BEGINS: Duration = Duration::from_mins(4);

/// Unneeded nodes stay for longer than the test.
fn patient() -> String {
    region("").replace("unneeded_time = \"20s\"", "unneeded_time = \"2h\"")
}

fn deploy(name: &str, replicas: u32, cpu: &str) -> Workload {
    one(Act::Deploy {
        name: name.to_owned(),
        replicas,
        pods: WorkloadPods::of(cpu, "256Mi"),
    })
}

async fn play(scene: &Scene, workload: Workload) {
    let told = workload.play(scene.world.kube.router()).await;
    told.expect("the workload plays");
}

fn one(act: Act) -> Workload {
    let at = Span::ZERO;
    Workload {
        steps: vec![WorkloadStep { at, act }],
    }
}

/// `kubectl delete deployment`.
async fn delete(scene: &Scene, name: &str) {
    let path = format!("/apis/apps/v1/namespaces/default/deployments/{name}");
    play(scene, one(Act::Remove { path })).await;
}

/// The nodes with the taint, in order.
fn candidates(scene: &Scene) -> Vec<String> {
    let nodes = scene.world.kube.objects("v1", "Node");
    let tainted = nodes.iter().filter(|node| {
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let mut ours = taints.filter(|taint| taint["key"] == TAINT);
        ours.any(|taint| taint["effect"] == "PreferNoSchedule")
    });
    let mut names: Vec<String> = tainted.filter_map(|node| name(node)).collect();
    names.sort();
    names
}

fn name(object: &serde_json::Value) -> Option<String> {
    Some(object["metadata"]["name"].as_str()?.to_owned())
}

/// Where the pods of a Deployment are.
fn nodes_of(scene: &Scene, app: &str) -> Vec<String> {
    let pods = scene.world.kube.objects("v1", "Pod");
    let of_app = pods
        .iter()
        .filter(|pod| pod["metadata"]["labels"]["app"] == app);
    let mut nodes: Vec<String> = of_app
        .filter_map(|pod| Some(pod["spec"]["nodeName"].as_str()?.to_owned()))
        .collect();
    nodes.sort();
    nodes
}

/// Two nodes, of which one gets empty; then a pod comes that fits on both.
async fn a_pod_comes_to_an_unneeded_node(scene: &Scene, tainted: bool) -> bool {
    tokio::time::sleep(BEGINS).await;
    let (stays, goes) = (nodes_of(scene, "stays"), nodes_of(scene, "goes"));
    assert_ne!(stays, goes);
    delete(scene, "goes").await;
    if tainted {
        until(scene, "the empty node is a candidate", 5, || {
            candidates(scene) == goes
        })
        .await;
    } else {
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(candidates(scene), [""; 0]);
    }
    play(scene, deploy("comes", 1, "200m")).await;
    until(scene, "the pod runs", 2, || {
        !nodes_of(scene, "comes").is_empty()
    })
    .await;
    let there = nodes_of(scene, "comes") == goes;
    if tainted {
        // What fits nowhere else goes there all the same, and the node is as any other.
        play(scene, deploy("large", 1, "1200m")).await;
        until(scene, "the node is needed again", 5, || {
            nodes_of(scene, "large") == goes && candidates(scene).is_empty()
        })
        .await;
    }
    there
}

#[test]
fn pods_come_last_to_a_node_that_is_unneeded() {
    for tainted in [true, false] {
        let count = if tainted { 10 } else { 0 };
        let config = patient().replace(
            "[scale_down]\n",
            &format!("[scale_down]\nmax_bulk_soft_taint_count = {count}\n"),
        );
        let came = simulate(async move {
            let scene = Scene::new(5, &config, GuestSpec::default());
            let mut workload = deploy("stays", 1, "1300m");
            workload.steps.extend(deploy("goes", 1, "1300m").steps);
            let came = std::cell::Cell::new(false);
            let person = async { came.set(a_pod_comes_to_an_unneeded_node(&scene, tainted).await) };
            while_it_lives(&scene, workload, person).await;
            came.get()
        });
        // kube-scheduler likes the emptiest node best: without the taint the pod makes the node needed again.
        assert_eq!(came, !tainted, "tainted: {tainted}");
    }
}

#[test]
fn all_nodes_of_an_evacuated_host_are_candidates_at_once_and_none_afterwards() {
    simulate(async {
        let scene = Scene::new(6, &patient(), GuestSpec::default());
        let person = async {
            tokio::time::sleep(BEGINS).await;
            let mut all = nodes_of(&scene, "web");
            all.dedup();
            assert_eq!(all.len(), 6, "{all:?}");
            let nodes = scene.world.kube.objects("v1", "Node");
            let on_host = nodes
                .iter()
                .filter(|node| node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "pve2");
            let mut on_host: Vec<String> = on_host.filter_map(|node| name(node)).collect();
            on_host.sort();
            assert_eq!(on_host.len(), 2, "{on_host:?}");
            let files = StateFiles::open(scene.state()).expect("it is there");
            let region: RegionName = "default".into();
            let now = scene.world.clock.now();
            assert!(files.evacuate(&region, "pve2", now).expect("noted"));
            until(&scene, "both are candidates", 1, || {
                candidates(&scene) == on_host
            })
            .await;
            // The pool is at its max: nothing can go, and then the order is taken back.
            assert!(files.end_evacuation(&region, "pve2").expect("noted"));
            until(&scene, "none is a candidate", 1, || {
                candidates(&scene).is_empty()
            })
            .await;
        };
        while_it_lives(&scene, deploy("web", 6, "1500m"), person).await;
    });
}
