//! What the daemon tells people, while things go wrong and while it does not know yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pve_autoscaler::controller::status::{DaemonStatus, MachineStatus};
use pve_autoscaler::controller::turn::Turn;
use pve_autoscaler::model::policy::LEAVING_TAINT;
use pve_autoscaler::model::report::{NodeVerdict, PodVerdict};
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::FaultPlan;
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec};
use pve_autoscaler::sim::pve::{AdminAct, VmFacts};
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadKind, WorkloadPods, WorkloadStep};
use pve_autoscaler::web::Health;
use serde_json::json;

use crate::common::{Scene, listen, simulate};
use crate::{HASTY, call, events, expect_told};

/// A pod that no pool can run.
async fn too_large(scene: &Scene) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large", "namespace": "default"},
        "spec": {"containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "64"}}},
        ]},
    });
    let post = http::Request::post("/api/v1/namespaces/default/pods");
    call(scene, post, pod.to_string()).await;
}

/// Collects something of every turn, for ever.
async fn collect(scene: &Scene, found: &mut Vec<String>, of: impl Fn(&Turn) -> Vec<String>) {
    let mut turns = scene.world.turns.subscribe();
    while turns.changed().await.is_ok() {
        let turn: Option<Arc<Turn>> = turns.borrow_and_update().clone();
        found.extend(turn.iter().flat_map(|turn| of(turn)));
    }
}

/// What a turn says that it cannot know before everything was read.
fn premature(turn: &Turn) -> Vec<String> {
    let snapshot = &turn.snapshot;
    if snapshot.cluster_id.is_some() && snapshot.sources.values().all(|source| source.complete) {
        return Vec::new();
    }
    let report = &turn.decision.report;
    let pods = report.pods.iter().filter(|(_, verdict)| {
        matches!(
            verdict,
            PodVerdict::Held { .. } | PodVerdict::NoCompatiblePool { .. }
        )
    });
    let pods = pods.map(|(pod, verdict)| format!("{pod}: {verdict:?}"));
    let nodes = report.nodes.iter().filter(|(name, verdict)| {
        name.starts_with("general-") && matches!(verdict, NodeVerdict::NotAutoscaled)
    });
    let nodes = nodes.map(|(name, _)| format!("{name} is said to be somebody else's"));
    let pools = report.pools.iter().filter(|(_, pool)| pool.leaving > 0);
    let pools = pools.map(|(name, pool)| format!("pool {name}: {pool:?}"));
    let said = report.warnings.iter().cloned();
    said.chain(pods).chain(nodes).chain(pools).collect()
}

/// Pods wait, one pool is full and one pod fits nowhere, when the daemon is started anew: each of the two
/// sides is the slower one once.
#[test]
fn nothing_is_said_of_what_was_not_read_yet() {
    for slow_pve in [true, false] {
        simulate(async {
            let config = HASTY.replace("max = 3", "max = 1");
            let scene = Scene::new(12, &config, GuestSpec::default());
            let stays = Workload::visit(
                "web",
                3,
                WorkloadPods::of("1500m", "1Gi"),
                Span::minutes(30),
            );
            let mut said = Vec::new();
            let lives = async {
                scene.live_until(Duration::from_mins(4), 0).await;
                assert!(scene.machines_made() >= 1, "{:#?}", events(&scene).await);
                let slow = FaultPlan {
                    latency_ms: [1_000, 2_000],
                    ..FaultPlan::default()
                };
                let way = if slow_pve {
                    &scene.world.pve_faults
                } else {
                    &scene.world.kube_faults
                };
                way.set(slow);
                tokio::select! {
                    biased;
                    () = scene.live_on(1, |_| {}) => {}
                    () = collect(&scene, &mut said, premature) => {}
                    () = tokio::time::sleep(Duration::from_mins(2)) => {}
                }
            };
            tokio::select! {
                biased;
                () = lives => {}
                () = async { too_large(&scene).await; scene.play(stays).await } => {}
            }
            assert!(said.is_empty(), "slow PVE {slow_pve}: {said:#?}");
            let told = events(&scene).await;
            let wanted = told.iter().any(|event| event.contains("its max is 1"));
            assert!(wanted, "the pods are told once it is known: {told:#?}");
            let wrong = told.iter().filter(|event| event.contains("shows no host"));
            assert_eq!(wrong.count(), 0, "{told:#?}");
        });
    }
}

/// The log of this thread, from now on.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn begin() -> (Log, tracing::subscriber::DefaultGuard) {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        (log, listen(subscriber))
    }

    /// The lines that contain all of these.
    fn with(&self, parts: &[&str]) -> Vec<String> {
        let bytes = self.0.lock().expect("not poisoned").clone();
        let text = String::from_utf8(bytes).expect("text");
        let lines = text.lines().map(str::to_owned);
        lines
            .filter(|line| parts.iter().all(|part| line.contains(part)))
            .collect()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .expect("not poisoned")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Asks for the status every second until one of the machines waits for this, and gives the machine.
async fn waits_for(scene: &Scene, part: &str) -> (Arc<str>, MachineStatus) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let Some(turn) = scene.world.turns.borrow().clone() else {
            continue;
        };
        let machines = DaemonStatus::of(&turn).machines.into_iter();
        let found = machines.into_iter().find(|(_, machine)| {
            machine
                .waits
                .as_ref()
                .is_some_and(|wait| wait.what.contains(part))
        });
        if let Some(found) = found {
            return found;
        }
    }
}

/// A guest whose agent never answers: at once in the status, after a minute in the log, and in the end on the pods.
#[test]
fn a_silent_agent_is_told_long_before_its_time_is_up() {
    let (log, _guard) = Log::begin();
    simulate(async {
        let guests = GuestSpec {
            fates: BTreeMap::from([(0, GuestFault::AgentSilent)]),
            ..GuestSpec::default()
        };
        let scene = Scene::new(13, HASTY, guests);
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(20));
        let words = ["takes its time", "the guest agent does not answer"];
        let watches = async {
            let (machine, seen) = waits_for(&scene, "the guest agent does not answer").await;
            let wait = seen.waits.expect("it waits");
            assert!(!wait.hindered, "every guest boots: {wait:?}");
            let late = scene.world.clock.now().since(wait.since);
            assert!(late < Span::seconds(10), "seen after {late}");
            assert_eq!(log.with(&words), Vec::<String>::new());
            tokio::time::sleep(Duration::from_secs(100)).await;
            assert_eq!(log.with(&words).len(), 1, "{:#?}", log.with(&[]));
            assert_eq!(log.with(&[words[0], words[1], &machine]).len(), 1);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, stays, Duration::from_mins(15)) => {}
            () = watches => {}
        }
        assert_eq!(log.with(&words).len(), 1, "once per cause");
        expect_told(
            &events(&scene).await,
            &[(
                "Pod FailedToScaleUpGroup: ",
                "the guest agent does not answer",
            )],
        );
    });
}

/// A VM whose CPUs QEMU stopped is no guest that boots slowly: that is told, and the way on.
#[test]
fn a_vm_that_qemu_stopped_is_told_as_that() {
    simulate(async {
        let guests = GuestSpec {
            fates: BTreeMap::from([(0, GuestFault::AgentSilent)]),
            ..GuestSpec::default()
        };
        let scene = Scene::new(13, HASTY, guests);
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(20));
        let watches = async {
            waits_for(&scene, "the guest agent does not answer").await;
            let vms = scene.world.pve.vms().into_iter();
            let machine = vms.filter(|vm| (9100..9121).contains(&vm.vmid) && vm.running);
            for vmid in machine.map(|vm| vm.vmid) {
                let paused = scene.world.pve.administer(&AdminAct::Pause { vmid });
                paused.expect("it runs");
            }
            waits_for(
                &scene,
                "QEMU has stopped the VM (paused): somebody paused it; `qm resume` lets it go on",
            )
            .await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, stays, Duration::from_mins(15)) => panic!("it was not told"),
            () = watches => {}
        }
    });
}

/// The kubelet says why the node is not ready; when the machine is given up, its node and the pods that wait for it
/// have that, before all else that could be looked at is destroyed.
#[test]
fn a_node_that_never_becomes_ready_is_told_with_the_kubelets_words() {
    simulate(async {
        let guests = GuestSpec {
            fates: BTreeMap::from([(0, GuestFault::NeverReady)]),
            ..GuestSpec::default()
        };
        let scene = Scene::new(14, HASTY, guests);
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(40));
        tokio::select! {
            biased;
            () = scene.live(None, 0, stays, Duration::from_mins(25)) => panic!("nobody said it"),
            _ = waits_for(&scene, "cni plugin not initialized") => {}
        }
        let stays = Workload::default();
        scene.live(None, 1, stays, Duration::from_mins(25)).await;
        expect_told(
            &events(&scene).await,
            &[
                (
                    "ConfigMap FailedToScaleUpGroup: ",
                    "cni plugin not initialized",
                ),
                ("Node FailedToScaleUpGroup: ", "cni plugin not initialized"),
                ("Pod FailedToScaleUpGroup: ", "cni plugin not initialized"),
            ],
        );
    });
}

/// A budget that somebody makes while a node is being emptied: its removal waits, and says for what.
#[test]
fn a_refused_eviction_is_told_long_before_the_drain_is_given_up() {
    let (log, _guard) = Log::begin();
    simulate(async {
        let scene = Scene::new(15, HASTY, GuestSpec::default());
        let deploy = |at: i64, name: &str, cpu: &str| WorkloadStep {
            at: Span::seconds(at),
            act: Act::Deploy {
                name: name.to_owned(),
                replicas: 1,
                pods: WorkloadPods::of(cpu, "512Mi"),
            },
        };
        let delete = Act::Delete {
            kind: WorkloadKind::Deployment,
            name: "first".to_owned(),
        };
        let delete = WorkloadStep {
            at: Span::seconds(200),
            act: delete,
        };
        let steps = vec![
            deploy(0, "first", "1200m"),
            deploy(0, "stays", "300m"),
            deploy(100, "second", "1500m"),
            delete,
        ];
        let budget = Act::Budget {
            name: "stays".to_owned(),
            most_unavailable: 0,
        };
        let budget = Workload {
            steps: vec![WorkloadStep {
                at: Span::ZERO,
                act: budget,
            }],
        };
        let watches = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let nodes = call(&scene, http::Request::get("/api/v1/nodes"), String::new()).await;
                if nodes.to_string().contains(LEAVING_TAINT) {
                    break;
                }
            }
            let made = budget.play(scene.world.kube.router()).await;
            made.expect("it is made");
            let (machine, seen) = waits_for(&scene, "may not be evicted").await;
            let wait = seen.waits.expect("it waits");
            assert!(
                wait.hindered && wait.what.contains("default/stays-"),
                "{wait:?}"
            );
            let words = ["makes no progress", "may not be evicted", &machine];
            assert_eq!(log.with(&words), Vec::<String>::new());
            tokio::time::sleep(Duration::from_secs(100)).await;
            assert_eq!(log.with(&words).len(), 1, "{:#?}", log.with(&[]));
            let told = events(&scene).await;
            let holds = format!("holds up the removal of node {machine}");
            let waits = format!("the removal of machine {machine} waits: pod default/stays-");
            expect_told(
                &told,
                &[
                    ("Pod ScaleDownFailed: ", &holds),
                    ("Node ScaleDownFailed: ", &waits),
                ],
            );
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, Workload { steps }, Duration::from_mins(14)) => panic!("nobody said it: {:#?}", log.with(&[])),
            () = watches => {}
        }
    });
}

/// Kubernetes or PVE that cannot be reached is one fault, named in the headline and by readyz; not the lease that
/// could not be got because of it.
#[test]
fn one_fault_is_named_once() {
    let away = FaultPlan {
        broken: 1_000,
        ..FaultPlan::default()
    };
    for (kube, start) in [(true, true), (true, false), (false, true), (false, false)] {
        simulate(async {
            let scene = Scene::new(16, HASTY, GuestSpec::default());
            let way = if kube {
                &scene.world.kube_faults
            } else {
                &scene.world.pve_faults
            };
            let what = format!("Kubernetes {kube}, from the start {start}");
            let breaks = async {
                tokio::time::sleep(Duration::from_secs(if start { 0 } else { 60 })).await;
                way.set(away);
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = breaks => {}
                () = scene.live(None, 0, Workload::default(), Duration::from_mins(10)) => {}
            }
            let turn = scene.world.turns.borrow().clone().expect("it took turns");
            let status = DaemonStatus::of(&turn);
            let [trouble] = status.troubles.as_slice() else {
                panic!("{what}: {:#?}", status.troubles);
            };
            let cause = trouble.cause.as_deref().expect("it is known");
            let line = status.line();
            assert_eq!(line.matches(cause).count(), 1, "{what}: {line}");
            assert!(!line.contains("holding"), "{what}: {line}");
            assert_eq!(line.contains("0 nodes"), !start, "{what}: {line}");
            assert_eq!(cause.starts_with("Kubernetes: "), kube, "{what}: {cause}");
            let age = scene.world.settings.policy.scale_up.max_view_age;
            let health = Health::after(&turn, age, tokio::time::Instant::now());
            assert_eq!(health.problems, [trouble.to_string()], "{what}");
        });
    }
}

/// A storage that fills up while a disk is copied: PVE says `exit code 1` and no more, the task's log says why.
#[test]
fn a_failed_task_is_told_with_what_its_log_says() {
    simulate(async {
        let full = "vmid = 9000\nclone = \"full\"\nstorage = \"shared\"";
        let config = HASTY.replace("vmid = 9000", full);
        let scene = Scene::new(17, &config, GuestSpec::default());
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(20));
        let fills = async {
            let cloning = |vm: &VmFacts| vm.lock.as_deref() == Some("clone");
            while !scene.world.pve.vms().iter().any(cloning) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let full = AdminAct::Fill {
                storage: "shared".to_owned(),
                host: "pve1".to_owned(),
                left: 0,
            };
            scene.world.pve.administer(&full).expect("it is filled");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, stays, Duration::from_mins(5)) => {}
            () = fills => {}
        }
        let why = "failed: exit code 1; the task's log says: ";
        let told = events(&scene).await;
        let wanted = [(
            "ConfigMap FailedToScaleUpGroup: ",
            "No space left on device",
        )];
        expect_told(&told, &wanted);
        expect_told(&told, &[("Pod FailedToScaleUpGroup: ", why)]);
    });
}

/// A node that worked and does not any more: `status` says what PVE and the kubelet know of it.
#[test]
fn a_node_that_stopped_working_is_told_with_its_cause() {
    for (power, words) in [(true, "its VM is off"), (false, " is offline")] {
        simulate(async {
            let scene = Scene::new(18, HASTY, GuestSpec::default());
            let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(20));
            let breaks = async {
                tokio::time::sleep(Duration::from_secs(110)).await;
                let vms = scene.world.pve.vms();
                let ours = vms.iter().find(|vm| (9100..9121).contains(&vm.vmid));
                let ours = ours.expect("a machine");
                let act = if power {
                    AdminAct::PowerOff { vmid: ours.vmid }
                } else {
                    AdminAct::HostOnline {
                        host: ours.host.clone(),
                        online: false,
                    }
                };
                scene.world.pve.administer(&act).expect("it breaks");
                // The daemon starts a VM that is off, once.
                tokio::time::sleep(Duration::from_secs(100)).await;
                if power {
                    scene.world.pve.administer(&act).expect("it breaks again");
                }
                tokio::time::sleep(Duration::from_mins(1)).await;
            };
            tokio::select! {
                biased;
                () = scene.live(None, 0, stays, Duration::from_mins(20)) => {}
                () = breaks => {}
            }
            let turn = scene.world.turns.borrow().clone().expect("it took turns");
            let status = DaemonStatus::of(&turn);
            let mut machines = status.machines.values();
            let ails = machines.find_map(|machine| machine.ails.clone());
            let ails = ails.unwrap_or_else(|| panic!("{words}: {status:#?}"));
            assert!(ails.contains(words), "{ails}");
            assert!(ails.contains("its node is not Ready"), "{ails}");
            let line = status.line();
            assert!(
                line.contains("1 node of ours, 1 of them not ready, 0 pods pending"),
                "{line}"
            );
        });
    }
}
