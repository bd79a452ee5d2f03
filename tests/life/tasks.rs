//! Tasks of an operator that a whole life has to answer: `docs/tasks.md`, 5, 6 and 8 to 10. What is typed there for Kubernetes and
//! PVE is done here to the simulated ones.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use pve_autoscaler::controller::answers::TurnQuestion;
use pve_autoscaler::controller::control::ControlAnswer;
use pve_autoscaler::controller::state::StateFiles;
use pve_autoscaler::model::region::RegionName;
use pve_autoscaler::model::report::NodeVerdict;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::pve::AdminAct;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use serde_json::{Value, json};

use crate::common::{Scene, simulate};
use crate::hosts::{act, fill, made, on, region};
use crate::waiting::{LOOK, until, while_it_lives};
use crate::{HASTY, call, patch};

/// When somebody begins: the machines are nodes by then.
const BEGINS: Duration = Duration::from_mins(4);
/// `kubectl drain --ignore-daemonsets`: cordoned, and each pod evicted, again and again while a budget forbids it.
pub(crate) async fn kubectl_drain(scene: &Scene, node: &str) {
    let request = http::Request::patch(format!("/api/v1/nodes/{node}"))
        .header("content-type", "application/merge-patch+json");
    let cordon = json!({"spec": {"unschedulable": true}});
    patch(scene, request, cordon.to_string()).await;
    loop {
        let pods = pods_of(scene, node);
        if pods.is_empty() {
            return;
        }
        for pod in pods {
            let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": pod, "namespace": "default"},
            });
            call(scene, http::Request::post(path), eviction.to_string()).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The workload's pods on a node.
fn pods_of(scene: &Scene, node: &str) -> Vec<String> {
    let pods = scene.world.kube.objects("v1", "Pod");
    let here = pods.iter().filter(|pod| {
        let of_set = pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet";
        of_set && pod["spec"]["nodeName"] == node
    });
    here.map(|pod| name(pod)).collect()
}

fn name(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str();
    name.unwrap_or_default().to_owned()
}

/// `kubectl get nodes -l LABEL=VALUE`.
fn nodes_with(scene: &Scene, label: &str, value: &str) -> Vec<String> {
    let nodes = scene.world.kube.objects("v1", "Node");
    let found = nodes
        .iter()
        .filter(|node| node["metadata"]["labels"][label] == value);
    found.map(|node| name(node)).collect()
}

/// Whether `status` has this note beside a host.
fn noted(scene: &Scene, host: &str, note: &str) -> bool {
    let turn = scene.world.turns.borrow().clone();
    turn.is_some_and(|turn| {
        let mut regions = turn.decision.report.hosts.values();
        regions.any(|hosts| {
            hosts
                .get(host)
                .is_some_and(|of| of.notes.iter().any(|it| it == note))
        })
    })
}

/// Why a node stays, in the words of `plan` and `explain node`.
fn kept_because(scene: &Scene, node: &str) -> Option<String> {
    let turn = scene.world.turns.borrow().clone()?;
    match turn.decision.report.nodes.get(node)? {
        NodeVerdict::Kept { why, .. } => Some(why.to_string()),
        _ => None,
    }
}

/// What `explain node` says of a node that leaves, at every second until its Node object is gone: why it goes, and what becomes of each pod.
async fn hear_why_it_leaves(scene: &Scene, node: &str) -> Vec<(String, Vec<String>)> {
    let mut said = Vec::new();
    loop {
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        match turn.decision.report.nodes.get(node) {
            None => return said,
            Some(NodeVerdict::Leaving { why, .. }) => {
                let answer = TurnQuestion::Node(node.to_owned()).answer(&turn);
                let ControlAnswer::Ok(story) = answer else {
                    panic!("{answer:?}");
                };
                let pods = story["pods"].as_array().expect("its pods").iter();
                let fates = pods.map(|pod| pod["fate"]["does"].to_string());
                said.push((why.to_string(), fates.collect()));
            }
            Some(_) => {}
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The workload is all there again.
fn runs(scene: &Scene, pods: usize) -> bool {
    let all = scene.world.kube.objects("v1", "Pod");
    let running = all.iter().filter(|pod| {
        let of_set = pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet";
        of_set && pod["status"]["phase"] == "Running" && pod["spec"]["nodeName"].is_string()
    });
    running.count() == pods
}

/// Task 5: each pod has a place on another host before its node goes, and the host gets nothing until that is ended.
#[test]
fn a_host_is_evacuated() {
    simulate(async {
        let scene = Scene::new(11, &region(""), GuestSpec::default());
        let person = async {
            tokio::time::sleep(BEGINS).await;
            assert_eq!(made(&scene), on([("pve1", 1), ("pve2", 1), ("pve3", 1)]));
            let files = StateFiles::open(scene.state()).expect("it is there");
            let region: RegionName = "default".into();
            let now = scene.world.clock.now();
            assert!(files.evacuate(&region, "pve2", now).expect("noted"));
            let nodes = nodes_with(&scene, "topology.kubernetes.io/zone", "pve2");
            let [node] = &nodes[..] else {
                panic!("{nodes:?}");
            };
            // Before it is said what keeps it that its host is evacuated, and which machine comes for it.
            until(&scene, "a machine comes in its place", 15, || {
                let said = kept_because(&scene, node).unwrap_or_default();
                said.starts_with("its host pve2 is evacuated since ")
                    && said.ends_with(" is on its way in its place")
            })
            .await;
            // For as long as it takes to empty and remove it that is said, and of no pod that it has no place.
            let said = hear_why_it_leaves(&scene, node);
            let said = tokio::time::timeout(Duration::from_mins(15), said).await;
            let said = said.expect("it goes");
            let why = |said: &(String, Vec<String>)| said.0.clone();
            assert!(
                said.iter()
                    .map(why)
                    .any(|why| why.ends_with("; it is being taken down")),
                "{said:?}"
            );
            for (why, fates) in &said {
                assert!(
                    why.starts_with("its host pve2 is evacuated since "),
                    "{why}"
                );
                let known = ["\"moves\"", "\"terminates\"", "\"stays\""];
                assert!(
                    fates.iter().all(|fate| known.contains(&&**fate)),
                    "{said:?}"
                );
            }
            until(&scene, "its pod left", 15, || {
                pods_of(&scene, node).is_empty()
            })
            .await;
            let pool = nodes_with(&scene, "pve-autoscaler.io/pool", "general");
            let others = pool.iter().filter(|other| *other != node).count();
            assert_eq!(
                others, 3,
                "the node in its place was there before: {pool:?}"
            );
            until(&scene, "the host has no machine", 15, || {
                !made(&scene).contains_key("pve2")
            })
            .await;
            until(&scene, "all pods run", 15, || runs(&scene, 3)).await;
            tokio::time::sleep(Duration::from_mins(3)).await;
            assert!(!made(&scene).contains_key("pve2"), "{:?}", made(&scene));
            assert_eq!(scene.machines_made(), 4);
            // It may have machines again: the next one comes there, as it has none.
            assert!(files.end_evacuation(&region, "pve2").expect("noted"));
            tokio::time::sleep(Duration::from_secs(30)).await;
            let more = Workload::visit(
                "more",
                1,
                WorkloadPods::of("1500m", "1Gi"),
                Span::minutes(60),
            );
            tokio::select! {
                () = scene.play(more) => {}
                () = until(&scene, "a machine comes to the host", 15, || made(&scene).contains_key("pve2")) => {}
            }
        };
        while_it_lives(&scene, fill(3), person).await;
    });
}

/// A host in the HA manager's maintenance gets nothing, and is drained by hand.
#[test]
fn a_host_is_drained_by_hand() {
    simulate(async {
        let scene = Scene::new(11, &region(""), GuestSpec::default());
        let person = async {
            tokio::time::sleep(BEGINS).await;
            assert_eq!(made(&scene), on([("pve1", 1), ("pve2", 1), ("pve3", 1)]));
            let host = "pve2".to_owned();
            act(&scene, &AdminAct::Maintenance { host, on: true });
            // Who drains before the daemon has seen it may get the next machine on the same host.
            until(&scene, "it is seen", 15, || {
                noted(&scene, "pve2", "in maintenance")
            })
            .await;
            let nodes = nodes_with(&scene, "topology.kubernetes.io/zone", "pve2");
            assert_eq!(nodes.len(), 1, "{nodes:?}");
            for node in &nodes {
                kubectl_drain(&scene, node).await;
            }
            until(&scene, "the host has no machine", 15, || {
                !made(&scene).contains_key("pve2")
            })
            .await;
            until(&scene, "all pods run", 15, || runs(&scene, 3)).await;
            assert_eq!(made(&scene).values().sum::<usize>(), 3);
        };
        while_it_lives(&scene, fill(3), person).await;
    });
}

/// Task 6.
#[test]
fn a_pool_is_rolled() {
    simulate(async {
        let scene = Scene::new(12, &region(""), GuestSpec::default());
        let person = async {
            tokio::time::sleep(BEGINS).await;
            let pool = || nodes_with(&scene, "pve-autoscaler.io/pool", "general");
            let old = pool();
            assert_eq!(old.len(), 3, "{old:?}");
            for node in &old {
                kubectl_drain(&scene, node).await;
                until(&scene, "all pods run before the next", 15, || {
                    runs(&scene, 3)
                })
                .await;
            }
            until(&scene, "the old ones are gone", 15, || {
                let now: BTreeSet<String> = pool().into_iter().collect();
                old.iter().all(|node| !now.contains(node))
            })
            .await;
            assert!(runs(&scene, 3));
            assert_eq!(scene.machines_made(), 6);
        };
        while_it_lives(&scene, fill(3), person).await;
    });
}

/// A life, a break in which somebody does something to the state, and a second life by another daemon: the machine is the same one, and
/// goes when its pod goes.
fn goes_on_elsewhere(seed: u64, between: impl Fn(&Path, &Path)) {
    simulate(async {
        let scene = Scene::new(seed, HASTY, GuestSpec::default());
        let other = tempfile::tempdir().expect("a directory");
        let workload = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(12));
        let lives = async {
            scene.live_until(Duration::from_mins(5), 0).await;
            let before = made(&scene);
            assert_eq!(before.values().sum::<usize>(), 1, "{before:?}");
            between(scene.state(), other.path());
            let second = scene.world.daemon(other.path(), None, 1);
            let looks = async {
                tokio::time::sleep(Duration::from_mins(5)).await;
                let turn = scene.world.turns.borrow().clone().expect("a turn");
                assert!(turn.snapshot.leader, "it leads");
                assert_eq!(turn.snapshot.machines.len(), 1, "it knows its machine");
                assert_eq!(made(&scene), before);
                until(&scene, "the machine goes with its pod", 15, || {
                    made(&scene).is_empty()
                })
                .await;
            };
            tokio::select! {
                biased;
                ended = second => panic!("it ended: {ended:?}"),
                () = looks => {}
            }
        };
        tokio::select! {
            biased;
            () = lives => {}
            () = scene.preside() => {}
            () = scene.play(workload) => {}
        }
        assert_eq!(scene.machines_made(), 1);
        let findings = scene.findings();
        assert!(findings.is_empty(), "{findings:#?}");
    });
}

/// Task 8: the state is gone, and nothing of it is brought back.
#[test]
fn it_is_restored_without_its_state() {
    goes_on_elsewhere(13, |old, _| std::fs::remove_dir_all(old).expect("removed"));
}

/// Task 9: the state is taken along.
#[test]
fn it_is_moved_with_its_state() {
    goes_on_elsewhere(14, |old, new| {
        let copied = std::process::Command::new("cp")
            .args(["-a", "."])
            .arg(new)
            .current_dir(old)
            .status();
        assert!(copied.expect("cp runs").success());
        std::fs::remove_dir_all(old).expect("removed");
    });
}

/// Task 10: with `max = 0` no machine is made for the pods that a drain leaves without a place, and in the end none is there.
#[test]
fn its_machines_are_removed_before_it() {
    let closed = region("").replace("max = 6", "max = 0");
    assert_ne!(closed, region(""));
    simulate(async {
        let mut scene = Scene::new(15, &region(""), GuestSpec::default());
        scene.live(None, 0, fill(2), BEGINS).await;
        assert_eq!(made(&scene).values().sum::<usize>(), 2);
        // The file is changed and read again.
        let file = pve_autoscaler::config::parse(&closed, "the changed file").expect("it is right");
        scene.world.settings = std::sync::Arc::new(file);
        let person = async {
            tokio::time::sleep(Duration::from_mins(1)).await;
            for node in nodes_with(&scene, "pve-autoscaler.io/pool", "general") {
                kubectl_drain(&scene, &node).await;
            }
            until(&scene, "no machine is left", 15, || made(&scene).is_empty()).await;
        };
        tokio::select! {
            biased;
            () = person => {}
            () = scene.live_on(1, |_| {}) => {}
            () = scene.preside() => {}
        }
        assert_eq!(scene.machines_made(), 2, "none was made any more");
        let findings = scene.findings();
        assert!(findings.is_empty(), "{findings:#?}");
    });
}
