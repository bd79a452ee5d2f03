//! Planted bugs: each is switched on alone, and the judge finds it; without it the same story is clean.
//!
//! A bug is planted wherever the daemon is protected against it (the brain, the checker, the executor, the broker),
//! for one protection that is left would hide it. `src/planted.rs` says which bugs there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pve_autoscaler::controller::turn::Turn;
use pve_autoscaler::model::action;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::planted::{Bug, plant};
use pve_autoscaler::sim::faults::{Aim, CallCounter, FaultPlan, Kill, KillMoment};
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec, StandingNode, stand};
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{AdminAct, PveSpec, Timings};
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadKind, WorkloadPods, WorkloadStep};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::{Value, json};

use crate::common::{Scene, simulate};
use crate::nominations::{apart, left_behind};
use crate::{HASTY, call, visit};

const MINUTE: Duration = Duration::from_mins(1);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/pve-autoscaler";
const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// The story is clean as it is, and something with these words is found once the bug is planted.
fn finds(bug: Bug, words: &str, story: impl AsyncFn() -> Vec<String>) {
    let clean = simulate(story());
    assert!(clean.is_empty(), "without {bug:?}: {clean:#?}");
    let _planted = plant(bug);
    let found = simulate(story());
    assert!(
        found.iter().any(|finding| finding.contains(words)),
        "{bug:?} was not found by {words:?}: {found:#?}"
    );
}

fn spec(config: &str) -> WorldSpec {
    WorldSpec {
        seed: 3,
        pve: PveSpec::default(),
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config: config.to_owned(),
    }
}

fn scene() -> Scene {
    Scene::of(spec(HASTY))
}

/// Nothing goes wrong by itself in these worlds.
async fn lives(scene: &Scene, workload: Workload, time: Duration, acts: impl Future<Output = ()>) {
    scene.judge().expect_progress(Span::minutes(60));
    let acts = async {
        acts.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = scene.live(None, 0, workload, time) => {}
        () = acts => {}
    }
}

async fn until(time: Duration) {
    tokio::time::sleep(time).await;
}

fn web(replicas: u32, cpu: &str, stays: Span) -> Workload {
    Workload::visit("web", replicas, WorkloadPods::of(cpu, "512Mi"), stays)
}

/// A VM of ours that runs.
fn machine(scene: &Scene) -> Option<u32> {
    let vms = scene.world.pve.vms().into_iter();
    vms.filter(|vm| (9100..9121).contains(&vm.vmid) && vm.running)
        .map(|vm| vm.vmid)
        .next()
}

/// Names of nodes that a removal has marked.
fn leaving(scene: &Scene) -> Vec<String> {
    let nodes = scene.world.kube.objects("v1", "Node");
    let marked = nodes.iter().filter(|node| {
        let taints = node["spec"]["taints"].as_array();
        taints.is_some_and(|all| all.iter().any(|t| t["key"] == "pve-autoscaler.io/leaving"))
    });
    marked.map(|node| name(node)).collect()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// The first node that is marked.
async fn marked(scene: &Scene) -> String {
    loop {
        if let Some(node) = leaving(scene).pop() {
            return node;
        }
        until(Duration::from_millis(200)).await;
    }
}

async fn delete(scene: &Scene, path: &str) {
    call(scene, http::Request::delete(path), "{}".to_owned()).await;
}

async fn patch(scene: &Scene, path: &str, body: Value) {
    let request = http::Request::builder().method("PATCH").uri(path);
    let request = request.header("content-type", "application/merge-patch+json");
    let request = request.body(axum::body::Body::from(body.to_string()));
    let router = scene.world.kube.router();
    let answer = tower::ServiceExt::oneshot(router, request.expect("a request")).await;
    let answer = answer.expect("an answer");
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
}

/// Two machines, each with a pod that fills it by half, and a small pod; after three minutes the pod beside the
/// small one goes. The small one fits on the other machine, so that its own is drained. All ends after `length`.
fn crowd(length: Span) -> Workload {
    let deploy = |name: &str, cpu: &str| Act::Deploy {
        name: name.to_owned(),
        replicas: 1,
        pods: WorkloadPods::of(cpu, "512Mi"),
    };
    let end = |name: &str| Act::Delete {
        kind: WorkloadKind::Deployment,
        name: name.to_owned(),
    };
    let begin = ["one", "two"].map(|name| (Span::ZERO, deploy(name, "1200m")));
    let small = (Span::minutes(2), deploy("small", "300m"));
    let ends = ["one", "two", "small"].map(|name| (length, end(name)));
    let steps = begin.into_iter().chain([small]).chain(ends);
    Workload {
        steps: steps.map(|(at, act)| WorkloadStep { at, act }).collect(),
    }
}

/// The pod beside the small one goes.
async fn thin_out(scene: &Scene) {
    until(4 * MINUTE).await;
    let pods = scene.world.kube.objects("v1", "Pod");
    let app = |pod: &Value| {
        pod["metadata"]["labels"]["app"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let small = pods
        .iter()
        .find(|pod| app(pod) == "small")
        .expect("it is there");
    let node = &small["spec"]["nodeName"];
    assert!(node.is_string(), "the small pod runs");
    let beside = pods
        .iter()
        .find(|pod| app(pod) != "small" && pod["spec"]["nodeName"] == *node);
    let beside = app(beside.expect("one is beside it"));
    delete(
        scene,
        &format!("/apis/apps/v1/namespaces/default/deployments/{beside}"),
    )
    .await;
}

/// A person takes the mark off a VM while its node is drained: from then on it is theirs. The broker of the
/// simulation is blind as well.
#[test]
fn mark_not_re_read() {
    finds(Bug::MarkNotReRead, "which is not ours", async || {
        let scene = scene();
        let adopts = async {
            marked(&scene).await;
            let vmid = machine(&scene).expect("it runs");
            let (key, value) = ("description".to_owned(), Some("mine".to_owned()));
            let act = AdminAct::Configure { vmid, key, value };
            scene.world.pve.administer(&act).expect("it is there");
        };
        lives(&scene, visit(), 6 * MINUTE, adopts).await;
        scene.findings()
    });
}

/// The daemon dies with its clone call, and the clone's worker with it: what stands there then is the intent's.
#[test]
fn intent_not_durable() {
    let calls = simulate(async {
        let (scene, counter) = (scene(), CallCounter::new(None));
        scene.live(Some(&counter), 0, visit(), MINUTE).await;
        counter.seen()
    });
    let clone = calls
        .iter()
        .position(|call| call.starts_with("POST") && call.ends_with("/clone"));
    let call = clone.expect("a clone was asked for") as u64 + 1;
    finds(Bug::IntentNotDurable, "has no mark", async || {
        let scene = scene();
        let when = KillMoment::AfterCarriedOut;
        let counter = CallCounter::new(Some(Kill { call, when }));
        let breaks = async {
            counter.killed().await;
            // The worker has made its placeholder by then.
            until(Duration::from_millis(300)).await;
            let tasks = scene.world.pve.running_tasks();
            let upid = tasks.into_iter().find(|upid| upid.contains(":qmclone:"));
            let upid = upid.expect("the clone runs");
            let act = AdminAct::KillTask { upid };
            scene.world.pve.administer(&act).expect("it runs");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = breaks => {}
            () = scene.live_and_die(&counter, visit(), 16 * MINUTE) => {}
        }
        scene.verdict()
    });
}

/// A pod moves to another node.
#[test]
fn pods_deleted_past_budgets() {
    finds(Bug::PodsDeleted, "without an eviction", async || {
        let scene = scene();
        lives(
            &scene,
            crowd(Span::minutes(7)),
            11 * MINUTE,
            thin_out(&scene),
        )
        .await;
        scene.verdict()
    });
}

fn quorum(scene: &Scene, is: bool) {
    let act = AdminAct::Quorum(is);
    scene.world.pve.administer(&act).expect("it is");
}

/// A pod waits while the cluster has no quorum. The brain and the checker would both hold.
#[test]
fn quorum_ignored() {
    finds(Bug::QuorumIgnored, "without quorum", async || {
        let scene = scene();
        let loses = async {
            until(Duration::from_secs(40)).await;
            let quorum = |is| quorum(&scene, is);
            quorum(false);
            until(6 * MINUTE).await;
            quorum(true);
        };
        lives(&scene, web(1, "1", Span::minutes(9)), 13 * MINUTE, loses).await;
        scene.verdict()
    });
}

/// Pods cannot be read any more; the one that waited is gone when machines could be made again. The brain and the
/// checker would both hold.
#[test]
fn stale_views_used() {
    finds(Bug::StaleViewsUsed, "though nobody waits", async || {
        let scene = scene();
        // Every watch ends soon and is begun anew.
        scene.world.kube_faults.set(FaultPlan {
            cut: 1_000,
            cut_ms: 20_000,
            ..FaultPlan::default()
        });
        let blinds = async {
            until(Duration::from_secs(40)).await;
            let quorum = |is| quorum(&scene, is);
            quorum(false);
            until(Duration::from_secs(20)).await;
            scene
                .world
                .kube_faults
                .aim(Some(Aim::Refuse("/api/v1/pods")));
            until(6 * MINUTE).await;
            quorum(true);
            until(2 * MINUTE).await;
            scene.world.kube_faults.quiet();
            scene.world.kube_faults.aim(None);
        };
        lives(&scene, web(1, "1", Span::seconds(50)), 14 * MINUTE, blinds).await;
        scene.verdict()
    });
}

/// Somebody deletes a Node whose machine runs: it may come back.
#[test]
fn no_quarantine() {
    finds(Bug::NoQuarantine, "the quarantine is", async || {
        let scene = scene();
        let deletes = async {
            until(3 * MINUTE).await;
            let nodes = scene.world.kube.objects("v1", "Node");
            delete(&scene, &format!("/api/v1/nodes/{}", name(&nodes[0]))).await;
        };
        lives(&scene, web(1, "1", Span::minutes(5)), 10 * MINUTE, deletes).await;
        scene.verdict()
    });
}

/// Somebody else's node has a machine's name, so that its own kubelet cannot join.
#[test]
fn uuid_not_checked() {
    finds(Bug::UuidNotChecked, "which is not ours", async || {
        let scene = scene();
        let takes = async {
            let named = loop {
                let vms = scene.world.pve.vms();
                let ours = vms.iter().find(|vm| vm.name.starts_with("general-"));
                if let Some(vm) = ours {
                    break vm.name.clone();
                }
                until(Duration::from_millis(200)).await;
            };
            let node = StandingNode {
                name: named,
                ..StandingNode::default()
            };
            let _kubelet = stand(&scene.world.kube, &node, 1, scene.world.clock);
            std::future::pending::<()>().await;
        };
        lives(&scene, visit(), 8 * MINUTE, takes).await;
        // What the two nodes say contradicts each other, so that the VM stays.
        scene.findings()
    });
}

/// A pod comes past the scheduler while its node is being cordoned.
#[test]
fn no_fresh_look_at_the_pods() {
    finds(Bug::NoFreshLook, "undrained pods", async || {
        let scene = scene();
        let comes = async {
            let node = marked(&scene).await;
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late", "namespace": "default"},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x"}]},
            });
            call(&scene, http::Request::post(PODS), pod.to_string()).await;
            until(MINUTE).await;
            delete(&scene, &format!("{PODS}/late")).await;
        };
        lives(&scene, visit(), 8 * MINUTE, comes).await;
        scene.verdict()
    });
}

#[test]
fn no_cordon() {
    finds(Bug::NoCordon, "was not cordoned", async || {
        let scene = scene();
        let none = std::future::ready(());
        lives(&scene, web(1, "1", Span::minutes(4)), 8 * MINUTE, none).await;
        scene.verdict()
    });
}

/// How many machines a story made that needs one.
fn made(scene: &Scene) -> Option<String> {
    let made = scene.machines_made();
    (made != 1).then(|| format!("{made} machines were made for one pod"))
}

/// PVE makes the clone; its answer is lost.
#[test]
fn lost_reply_taken_as_failure() {
    finds(Bug::LostReplyIsFailure, "machines were made", async || {
        let scene = scene();
        scene.world.pve_faults.aim(Some(Aim::LoseAnswer("/clone")));
        let none = std::future::ready(());
        lives(&scene, web(1, "1", Span::minutes(4)), 9 * MINUTE, none).await;
        scene.verdict().into_iter().chain(made(&scene)).collect()
    });
}

/// The same with a clone that takes longer than a quarantine.
#[test]
fn running_clone_not_waited_for() {
    finds(
        Bug::RunningCloneIgnored,
        "while its clone is under way",
        async || {
            let mut spec = spec(HASTY);
            spec.pve.timings = Timings {
                allocate_shared: [150_000, 150_000],
                ..Timings::default()
            };
            let scene = Scene::of(spec);
            scene.world.pve_faults.aim(Some(Aim::LoseAnswer("/clone")));
            let none = std::future::ready(());
            lives(&scene, web(1, "1", Span::minutes(9)), 14 * MINUTE, none).await;
            scene.verdict().into_iter().chain(made(&scene)).collect()
        },
    );
}

/// A volume is let go a minute and a half after its pod went.
#[test]
fn volumes_not_waited_for() {
    finds(Bug::VolumesIgnored, "with volumes attached", async || {
        let mut spec = spec(HASTY);
        spec.kube.detach_latency = Span::seconds(90);
        let scene = Scene::of(spec);
        let sets = "/apis/apps/v1/namespaces/default/statefulsets";
        let object = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
            "spec": {
                "replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
                "template": {
                    "metadata": {"labels": {"app": "db"}},
                    "spec": {"containers": [{
                        "name": "db", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "512Mi"}},
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }]},
                },
                "volumeClaimTemplates": [{
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"], "storageClassName": "standard",
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }],
            },
        });
        let create = Act::Create {
            path: sets.to_owned(),
            object,
        };
        let workload = Workload {
            steps: vec![WorkloadStep {
                at: Span::ZERO,
                act: create,
            }],
        };
        let ends = async {
            until(4 * MINUTE).await;
            let kind = ("storage.k8s.io/v1", "VolumeAttachment");
            let attached = scene.world.kube.objects(kind.0, kind.1);
            assert_eq!(attached.len(), 1, "its volume is attached");
            delete(&scene, &format!("{sets}/db")).await;
        };
        lives(&scene, workload, 10 * MINUTE, ends).await;
        for l in scene.world.kube.trace().1 {
            if l.contains("olumeatt")
                || l.contains("DELETE")
                || l.contains("evict")
                || l.contains("PATCH")
            {
                eprintln!("K {l}");
            }
        }
        for r in scene.world.pve.requests() {
            if r.method != "GET" {
                eprintln!("P {:?} {} {} {:?}", r.at, r.method, r.path, r.status);
            }
        }
        scene.verdict().into_iter().chain(made(&scene)).collect()
    });
}

/// Ends with the turn that plans a removal: nothing of it has been done.
async fn removal_planned(scene: &Scene) {
    let removes = |turn: &std::sync::Arc<Turn>| {
        let plan = &turn.decision.plan;
        plan.iter()
            .any(|action| matches!(action.kind, action::Kind::Remove { .. }))
    };
    let mut turns = scene.world.turns.subscribe();
    let planned = turns.wait_for(|turn| turn.as_ref().is_some_and(removes));
    planned.await.expect("the world lasts longer");
}

/// Somebody switches the VM off when its removal has just begun, and on again: while its node counts as Ready
/// nobody makes its pods anew.
#[test]
fn nothing_to_lose_always_true() {
    finds(Bug::NothingToLose, "undrained pods", async || {
        let scene = scene();
        let switches = async {
            thin_out(&scene).await;
            scene.world.pve_faults.set(FaultPlan {
                latency_ms: [3_000, 3_000],
                ..FaultPlan::default()
            });
            removal_planned(&scene).await;
            let small = scene.world.kube.objects("v1", "Pod");
            let small = small
                .iter()
                .find(|pod| pod["metadata"]["labels"]["app"] == "small");
            let node = small.expect("it is there")["spec"]["nodeName"].clone();
            let vms = scene.world.pve.vms();
            let vm = vms
                .iter()
                .find(|vm| node == vm.name.as_str())
                .expect("it is ours");
            let vmid = vm.vmid;
            scene
                .world
                .pve
                .administer(&AdminAct::PowerOff { vmid })
                .expect("it runs");
            until(Duration::from_secs(30)).await;
            scene.world.pve_faults.quiet();
            // Who has destroyed it by then has done what he should not.
            let _ = scene.world.pve.administer(&AdminAct::Start { vmid });
        };
        lives(&scene, crowd(Span::minutes(9)), 16 * MINUTE, switches).await;
        scene.verdict()
    });
}

/// A budget forbids the eviction from the moment the drain begins until its time is up.
#[test]
fn failed_drain_not_released() {
    let config = format!("{HASTY}[pool.general.drain]\ntimeout = \"1m\"\n");
    finds(Bug::NotReleased, "is still cordoned", async || {
        let scene = Scene::of(spec(&config));
        let forbids = async {
            thin_out(&scene).await;
            marked(&scene).await;
            let budget = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "small"},
                "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "small"}}},
            });
            call(&scene, http::Request::post(BUDGETS), budget.to_string()).await;
        };
        lives(&scene, crowd(Span::minutes(30)), 9 * MINUTE, forbids).await;
        let two = BTreeMap::from([("general".to_owned(), 2)]);
        let rest = scene.judge().at_rest(&two);
        scene.findings().into_iter().chain(rest).collect()
    });
}

/// The API server is set back to a state in which five nodes had not joined yet. The brain and the checker would
/// both hold.
#[test]
fn many_lost_brake_off() {
    let config = HASTY.replace("max = 3", "max = 5");
    finds(Bug::ManyLostIgnored, "that lost their nodes", async || {
        let scene = Scene::of(spec(&config));
        let forgets = async {
            until(5 * MINUTE).await;
            let nodes = scene.world.kube.objects("v1", "Node");
            assert_eq!(nodes.len(), 5);
            for node in nodes {
                delete(&scene, &format!("/api/v1/nodes/{}", name(&node))).await;
            }
        };
        lives(
            &scene,
            web(5, "1200m", Span::minutes(30)),
            9 * MINUTE,
            forgets,
        )
        .await;
        scene.findings()
    });
}

/// A node says that it is ours, has no VM here, and works. The brain, the checker and the executor would leave it.
#[test]
fn ready_node_deleted_by_the_sweep() {
    finds(Bug::ReadyNodeDeleted, "which is not ours", async || {
        let scene = scene();
        let node = StandingNode {
            name: "general-old".to_owned(),
            labels: "pve-autoscaler.io/pool=general,topology.kubernetes.io/region=default"
                .to_owned(),
            ..StandingNode::default()
        };
        let _kubelet = stand(&scene.world.kube, &node, 1, scene.world.clock);
        lives(&scene, visit(), 6 * MINUTE, std::future::ready(())).await;
        scene.findings()
    });
}

/// Somebody else takes the lease while a guest boots.
#[test]
fn executor_not_stopped_with_the_lease() {
    finds(Bug::LeaseIgnored, "without the lease", async || {
        let mut spec = spec(HASTY);
        spec.guests.fates = BTreeMap::from([(0, GuestFault::AgentSilent)]);
        let scene = Scene::of(spec);
        let takes = async {
            until(Duration::from_mins(1)).await;
            let now = "2026-01-01T08:01:00.000000Z";
            let spec = json!({"spec": {
                "holderIdentity": "somebody", "leaseDurationSeconds": 3600,
                "acquireTime": now, "renewTime": now,
            }});
            patch(&scene, LEASE, spec).await;
        };
        lives(&scene, visit(), 5 * MINUTE, takes).await;
        scene.findings()
    });
}

/// No guest can join.
#[test]
fn no_back_off() {
    finds(Bug::NoBackoff, "it waits for", async || {
        let mut spec = spec(HASTY);
        spec.guests.chances = [(GuestFault::JoinFails, 100)].into();
        let scene = Scene::of(spec);
        let none = std::future::ready(());
        lives(&scene, web(1, "1", Span::minutes(9)), 13 * MINUTE, none).await;
        scene.verdict()
    });
}

/// Somebody gave a machine to the HA manager.
#[test]
fn no_purge() {
    finds(Bug::NoPurge, "pool general has 1 machines", async || {
        let scene = scene();
        let gives = async {
            until(2 * MINUTE).await;
            let vmid = machine(&scene).expect("it runs");
            let state = Some("started".to_owned());
            scene
                .world
                .pve
                .administer(&AdminAct::Ha { vmid, state })
                .expect("it is there");
        };
        lives(&scene, web(1, "1", Span::minutes(4)), 10 * MINUTE, gives).await;
        scene.verdict()
    });
}

/// What is seen of a machine that was removed is from before its end: whoever believes it begins with it anew.
#[test]
fn no_settling_after_a_removal() {
    finds(Bug::NoSettling, "is worked on again", async || {
        let scene = scene();
        let again = std::cell::RefCell::new(BTreeSet::new());
        let watches = async {
            let mut turns = scene.world.turns.subscribe();
            while turns.changed().await.is_ok() {
                let Some(turn) = turns.borrow_and_update().clone() else {
                    continue;
                };
                let changes = scene.world.pve.changes_since(0);
                let gone = |name: &str| {
                    changes
                        .iter()
                        .any(|change| change.what == "destroy" && change.name == name)
                };
                let plan = turn.decision.plan.iter();
                let begun = plan.filter(|action| action.kind == action::Kind::Continue);
                let begun = begun.map(|action| action.target.machine.clone());
                again.borrow_mut().extend(begun.filter(|name| gone(name)));
            }
        };
        lives(&scene, visit(), 8 * MINUTE, watches).await;
        let again = again.into_inner().into_iter();
        let again = again.map(|name| format!("{name} was removed and is worked on again"));
        scene.verdict().into_iter().chain(again).collect()
    });
}

#[test]
fn an_address_that_nobody_looks_up_is_found() {
    finds(
        Bug::AddressNotLookedUp,
        "have the address 192.0.2.50",
        async || crate::networks::rival().await.findings(),
    );
}

#[test]
fn a_wire_that_nobody_asks_is_found() {
    finds(
        Bug::WireNotAsked,
        "and so has the device 02:00:5e:10:00:01 on the wire",
        async || crate::networks::stranger().await.findings(),
    );
}

#[test]
fn cpus_that_nobody_looks_up_are_found() {
    finds(Bug::CpusNotLookedUp, "have CPUs together", async || {
        crate::pinning::shared(&crate::pinning::rival().await)
    });
}

#[test]
fn a_failed_machine_that_is_not_kept_is_found() {
    finds(
        Bug::FailedNotKept,
        "the failed machine is gone before its time",
        crate::keep_failed::after_a_failure,
    );
}

/// Whoever reads every answer takes a machine for gone that a damaged list has no row of.
#[test]
fn answers_that_nobody_checks_are_found() {
    finds(Bug::AnswersNotChecked, "is not seen", async || {
        crate::damaged::damaged_day(42, 200).await
    });
}

/// A target comes to the node that is there first, and its followers have no room beside it.
#[test]
fn nodes_that_take_pods_in_any_order_are_found() {
    finds(Bug::OpensAtOnce, "were left behind", async || {
        let mut found = Vec::new();
        for seed in 0..6 {
            found.extend(left_behind(seed, apart()).await);
        }
        found
    });
}
