//! A machine's whole life in the simulator, with the real daemon: pending pods bring nodes, idle
//! nodes go, and nothing is left behind, whenever the daemon dies in between.

#[path = "life/absence.rs"]
mod absence;
#[path = "life/changed_file.rs"]
mod changed_file;
#[path = "life/clocks.rs"]
mod clocks;
#[path = "life/cloud_init.rs"]
mod cloud_init;
mod common;
#[path = "life/damaged.rs"]
mod damaged;
#[path = "life/devices.rs"]
mod devices;
#[path = "life/drift.rs"]
mod drift;
#[path = "life/hardware.rs"]
mod hardware;
#[path = "life/history.rs"]
mod history;
#[path = "life/hostile_days/mod.rs"]
mod hostile_days;
#[path = "life/hosts.rs"]
mod hosts;
#[path = "life/hung_hosts.rs"]
mod hung_hosts;
#[path = "life/identity.rs"]
mod identity;
#[path = "life/in_place.rs"]
mod in_place;
#[path = "life/joining.rs"]
mod joining;
#[path = "life/keep_failed.rs"]
mod keep_failed;
#[path = "life/lacking.rs"]
mod lacking;
#[path = "life/lease.rs"]
mod lease;
#[path = "life/networks.rs"]
mod networks;
#[path = "life/no_template.rs"]
mod no_template;
#[path = "life/nominations.rs"]
mod nominations;
#[path = "life/notices.rs"]
mod notices;
#[path = "life/pinning.rs"]
mod pinning;
#[path = "life/placeholder.rs"]
mod placeholder;
#[cfg(debug_assertions)]
#[path = "life/planted.rs"]
mod planted;
#[path = "life/power.rs"]
mod power;
#[path = "life/recipes/mod.rs"]
mod recipes;
#[path = "life/record.rs"]
mod record;
#[path = "life/recorder.rs"]
mod recorder;
#[path = "life/regions.rs"]
mod regions;
#[path = "life/remedy.rs"]
mod remedy;
#[path = "life/rescue.rs"]
mod rescue;
#[path = "life/retry.rs"]
mod retry;
#[path = "life/serving.rs"]
mod serving;
#[path = "life/shipped_metrics.rs"]
mod shipped_metrics;
#[path = "life/soft_taints.rs"]
mod soft_taints;
#[path = "life/storages.rs"]
mod storages;
#[path = "life/support_bundle.rs"]
mod support_bundle;
#[path = "life/swarm.rs"]
mod swarm;
#[path = "life/talos.rs"]
mod talos;
#[path = "life/tasks.rs"]
mod tasks;
#[path = "life/tell.rs"]
mod tell;
#[path = "life/templates.rs"]
mod templates;
#[path = "life/tenant.rs"]
mod tenant;
#[path = "life/terms.rs"]
mod terms;
#[path = "life/text.rs"]
mod text;
#[path = "life/traces.rs"]
mod traces;
#[path = "life/two_regions.rs"]
mod two_regions;
#[path = "life/unread.rs"]
mod unread;
#[path = "life/usual.rs"]
mod usual;
#[path = "life/waiting.rs"]
mod waiting;

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::{CallCounter, Kill, KillMoment};
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec};
use pve_autoscaler::sim::pve::AdminAct;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use serde_json::{Value, json};

use common::{Scene, simulate};

/// The demo's configuration with timers of seconds, so that a life is short.
pub(crate) const HASTY: &str = "
version = 1
[kubernetes]
name = \"test\"
[proxmox]
vmids = \"9100-9120\"
[template.debian]
vmid = 9000
[instance_type.small]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
[pool.general]
template = \"debian\"
instance_types = [\"small\"]
min = 0
max = 3
[scale_up]
initial_backoff = \"30s\"
[scale_down]
unneeded_time = \"20s\"
delay_after_add = \"10s\"
min_node_age = \"0s\"
delay_after_failure = \"10s\"
quarantine = \"30s\"
";

/// One pod comes, stays for a minute and a half, and goes.
fn visit() -> Workload {
    Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::seconds(90))
}

#[test]
fn a_pending_pod_brings_a_node_and_an_idle_node_goes() {
    simulate(async {
        let scene = Scene::new(1, HASTY, GuestSpec::default());
        scene.live(None, 0, visit(), Duration::from_mins(6)).await;
        scene.nothing_is_left();
        assert!(scene.machines_made() >= 1, "no machine was ever made");
    });
}

/// The node is unneeded from the third minute on; the daemon is started anew in the seventh.
#[test]
fn timers_survive_a_restart() {
    let config = HASTY.replace("unneeded_time = \"20s\"", "unneeded_time = \"5m\"");
    assert_ne!(config, HASTY);
    simulate(async {
        let scene = Scene::new(3, &config, GuestSpec::default());
        let begun = tokio::time::Instant::now();
        let first = Duration::from_mins(7);
        scene
            .live_and_stop(first, visit(), Duration::from_mins(16))
            .await;
        scene.nothing_is_left();
        let took = begun.elapsed();
        assert!(
            took > first,
            "{took:?}: it was not needed for less than it says"
        );
        assert!(took < Duration::from_mins(10), "{took:?}: it began anew");
    });
}

#[test]
fn a_seed_replays_to_the_byte() {
    let trace = || {
        simulate(async {
            let scene = Scene::new(7, HASTY, GuestSpec::default());
            scene.live(None, 0, visit(), Duration::from_mins(6)).await;
            scene.trace()
        })
    };
    let (first, second) = (trace(), trace());
    assert!(first.len() > 100, "the trace is too short to say anything");
    assert_eq!(first, second);
}

/// Worlds tried at the same time.
pub(crate) const THREADS: usize = 2;

/// The daemon dies at every single call it makes, before it is sent or after it was carried out,
/// and is started again: it converges, nothing is lost or doubled.
#[test]
fn a_crash_at_any_call_loses_nothing() {
    let calls = simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        let counter = CallCounter::new(None);
        scene
            .live(Some(&counter), 0, visit(), Duration::from_mins(6))
            .await;
        scene.nothing_is_left();
        counter.seen()
    });
    // Reads change nothing: dying before one is dying after the call before it.
    let kills: Vec<(Kill, &String)> = calls
        .iter()
        .enumerate()
        .flat_map(|(index, name)| {
            let call = index as u64 + 1;
            let both = [KillMoment::BeforeSending, KillMoment::AfterCarriedOut];
            let whens = if name.starts_with("GET ") {
                &both[..1]
            } else {
                &both[..]
            };
            whens
                .iter()
                .map(move |&when| (Kill { call, when }, name))
                .collect::<Vec<_>>()
        })
        .collect();
    let try_all = |part: usize| -> Vec<String> {
        let mine = kills.iter().skip(part).step_by(THREADS);
        mine.filter_map(|(kill, name)| {
            let findings = simulate(crash(*kill));
            (!findings.is_empty()).then(|| format!("{kill:?} ({name}): {findings:?}"))
        })
        .collect()
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|part| scope.spawn(move || try_all(part)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        kills.len(),
        failures.join("\n")
    );
}

async fn crash(kill: Kill) -> Vec<String> {
    let scene = Scene::new(3, HASTY, GuestSpec::default());
    let counter = CallCounter::new(Some(kill));
    scene
        .live_and_die(&counter, visit(), Duration::from_mins(16))
        .await;
    scene.verdict()
}

/// One call to the API server.
pub(crate) async fn call(scene: &Scene, request: http::request::Builder, body: String) -> Value {
    patch(
        scene,
        request.header("content-type", "application/json"),
        body,
    )
    .await
}

/// One call with a content type of its own.
pub(crate) async fn patch(scene: &Scene, request: http::request::Builder, body: String) -> Value {
    let request = request
        .body(axum::body::Body::from(body))
        .expect("a request");
    let answer = tower::ServiceExt::oneshot(scene.world.kube.router(), request)
        .await
        .expect("an answer");
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
    serde_json::from_slice(&body.expect("a body")).expect("an object")
}

/// The Lease's holder.
async fn holder(scene: &Scene) -> Value {
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/pve-autoscaler";
    let lease = call(scene, http::Request::get(path), String::new()).await;
    lease["spec"]["holderIdentity"].clone()
}

#[test]
fn a_stop_gives_the_lease_back_and_a_crash_does_not() {
    let life = Duration::from_secs(20);
    simulate(async {
        let scene = Scene::new(2, HASTY, GuestSpec::default());
        scene.live_until(life, 0).await;
        assert_eq!(holder(&scene).await, "");
        let crash = scene.live(None, 1, visit(), life);
        crash.await;
        assert_ne!(holder(&scene).await, "");
        let (led, leads) = tokio::sync::oneshot::channel();
        tokio::select! {
            () = scene.live_on(2, |after| led.send(after).expect("somebody listens")) => {}
            after = leads => {
                let after = after.expect("it leads");
                assert!(after > Duration::from_secs(29), "led after {after:?}");
            }
        }
    });
}

#[test]
fn an_end_by_an_error_gives_the_lease_back_too() {
    simulate(async {
        let scene = Scene::new(2, HASTY, GuestSpec::default());
        let daemon = scene.world.daemon(scene.state(), None, 0);
        // Its state directory becomes something else: nothing can be remembered any more.
        let breaks = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_ne!(holder(&scene).await, "");
            std::fs::remove_dir_all(scene.state()).expect("removed");
            std::fs::write(scene.state(), "").expect("written");
            scene.play(visit()).await;
        };
        tokio::select! {
            biased;
            ended = daemon => assert!(ended.is_err()),
            () = breaks => panic!("it goes on without its state"),
        }
        assert_eq!(holder(&scene).await, "");
        std::fs::remove_file(scene.state()).expect("removed");
    });
}

/// The daemon is stopped well every few seconds of a machine's life and started again: it goes on
/// at once with what it did, and nothing is lost or doubled.
#[test]
fn a_stop_at_any_time_loses_nothing() {
    let mut tried = 0;
    for at in (46_000..240_000).step_by(4_700) {
        simulate(async {
            let scene = Scene::new(3, HASTY, GuestSpec::default());
            let first = Duration::from_millis(at);
            scene
                .live_and_stop(first, visit(), Duration::from_mins(16))
                .await;
            let findings = scene.findings();
            assert!(findings.is_empty(), "stopped at {at} ms: {findings:?}");
            scene.nothing_is_left();
            assert_eq!(scene.machines_made(), 1, "stopped at {at} ms");
        });
        tried += 1;
    }
    assert!(tried > 40);
}

/// Somebody moves the VM from host to host while it boots and joins: it is found again.
#[test]
fn a_machine_that_is_moved_while_it_joins_becomes_a_node() {
    simulate(async {
        let scene = Scene::new(4, HASTY, GuestSpec::default());
        let moves = async {
            for host in ["pve2", "pve3", "pve1"].iter().cycle().take(40) {
                tokio::time::sleep(Duration::from_secs(3)).await;
                for vm in scene.world.pve.vms() {
                    if (9100..9121).contains(&vm.vmid) && vm.running {
                        let (vmid, host) = (vm.vmid, (*host).to_owned());
                        let moved = scene
                            .world
                            .pve
                            .administer(&AdminAct::Migrate { vmid, host });
                        moved.expect("it moves");
                    }
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit(), Duration::from_mins(8)) => {}
            () = moves => {}
        }
        scene.nothing_is_left();
        assert_eq!(scene.machines_made(), 1);
    });
}

#[test]
fn a_join_that_fails_is_cleaned_up_and_tried_again() {
    simulate(async {
        let guests = GuestSpec {
            fates: BTreeMap::from([(0, GuestFault::JoinFails)]),
            ..GuestSpec::default()
        };
        let scene = Scene::new(5, HASTY, guests);
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(5));
        scene.live(None, 0, stays, Duration::from_mins(12)).await;
        scene.nothing_is_left();
        assert_eq!(
            scene.machines_made(),
            2,
            "one that failed and one that took its place"
        );
    });
}

/// Every Event, as `KIND REASON: MESSAGE`.
pub(crate) async fn events(scene: &Scene) -> Vec<String> {
    let list = call(scene, http::Request::get("/api/v1/events"), String::new()).await;
    let items = list["items"].as_array().expect("a list").iter();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told = items.map(|event| {
        let kind = word(&event["involvedObject"]["kind"]);
        let (reason, message) = (word(&event["reason"]), word(&event["message"]));
        format!("{kind} {reason}: {message}")
    });
    told.collect()
}

/// Each of these is the beginning of an Event, and its other part is in the same one.
pub(crate) fn expect_told(told: &[String], wanted: &[(&str, &str)]) {
    for (start, part) in wanted {
        let found = told
            .iter()
            .any(|event| event.starts_with(start) && event.contains(part));
        assert!(found, "no {start:?} with {part:?} in {told:#?}");
    }
}

#[test]
fn people_are_told_under_cluster_autoscalers_reasons() {
    simulate(async {
        let guests = GuestSpec {
            fates: BTreeMap::from([(0, GuestFault::JoinFails)]),
            ..GuestSpec::default()
        };
        let scene = Scene::new(5, HASTY, guests);
        let big = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big", "namespace": "default"},
            "spec": {"containers": [
                {"name": "c", "image": "x", "resources": {"requests": {"cpu": "64"}}},
            ]},
        });
        let post = http::Request::post("/api/v1/namespaces/default/pods");
        call(&scene, post, big.to_string()).await;
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(5));
        scene.live(None, 0, stays, Duration::from_mins(12)).await;
        expect_told(
            &events(&scene).await,
            &[
                ("Pod TriggeredScaleUp: ", "of pool general on host pve"),
                ("Pod NotTriggerScaleUp: ", "general/small: cpu: asks 64"),
                (
                    "ConfigMap ScaledUpGroup: ",
                    "1 pod fits nowhere else: default/web-",
                ),
                ("ConfigMap FailedToScaleUpGroup: ", "failed in step join: "),
                ("ConfigMap ScaleDownEmpty: ", "removing machine general-"),
                ("Node ScaleDown: ", "removing machine general-"),
            ],
        );
        let path = "/api/v1/namespaces/kube-system/configmaps/pve-autoscaler-status";
        let map = call(&scene, http::Request::get(path), String::new()).await;
        let status = map["data"]["status"].as_str().expect("a text");
        for words in [
            "autoscalerStatus: Running",
            "- name: \"general\"",
            "cloudProviderTarget: 0",
        ] {
            assert!(status.contains(words), "{words:?} is not in {status}");
        }
    });
}

/// Somebody protects the VM, as only a person does: its removal fails before the drain, and says so.
#[test]
fn a_removal_that_fails_is_told_with_its_reason() {
    simulate(async {
        let scene = Scene::new(6, HASTY, GuestSpec::default());
        let protects = async {
            tokio::time::sleep(Duration::from_mins(2)).await;
            let vms = scene.world.pve.vms().into_iter();
            let ours: Vec<u32> = vms
                .map(|vm| vm.vmid)
                .filter(|vmid| (9100..9121).contains(vmid))
                .collect();
            assert_eq!(ours.len(), 1);
            let act = AdminAct::Configure {
                vmid: ours[0],
                key: "protection".to_owned(),
                value: Some("1".to_owned()),
            };
            scene.world.pve.administer(&act).expect("it is there");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit(), Duration::from_mins(6)) => {}
            () = protects => {}
        }
        expect_told(
            &events(&scene).await,
            &[
                ("ConfigMap ScaleDownFailed: ", "protect"),
                ("Node ScaleDownFailed: ", "protect"),
            ],
        );
    });
}

#[test]
fn every_fate_of_a_guest_ends_with_nothing_left() {
    for fault in [
        GuestFault::JoinHangs,
        GuestFault::AgentSilent,
        GuestFault::CloudInitDegraded,
        GuestFault::NeverReady,
        GuestFault::LessMemory,
        GuestFault::SlowBoot,
        GuestFault::IgnoresShutdown,
    ] {
        simulate(async {
            let guests = GuestSpec {
                fates: BTreeMap::from([(0, fault)]),
                ..GuestSpec::default()
            };
            let scene = Scene::new(11, HASTY, guests);
            let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(15));
            scene.live(None, 0, stays, Duration::from_mins(40)).await;
            let findings = scene.findings();
            assert!(findings.is_empty(), "{fault:?}: {findings:?}");
            scene.nothing_is_left();
        });
    }
}
