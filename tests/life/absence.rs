//! What is nobody's fault: a daemon that is away while a guest boots, a PVE that can do nothing for
//! anybody, a state directory that was written for another cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pve_autoscaler::model::region::Step;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::Aim;
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec, Range};
use pve_autoscaler::sim::pve::AdminAct;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};

use crate::HASTY;
use crate::common::{Scene, simulate};

/// One pod that stays for two hours.
fn stays() -> Workload {
    Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120))
}

/// Guests that boot for so long.
fn booting(time: Span) -> GuestSpec {
    GuestSpec {
        boot: Range {
            min: time,
            max: time,
        },
        ..GuestSpec::default()
    }
}

/// Plays `workload` while `life` lasts.
async fn beside(scene: &Scene, workload: Workload, life: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = life => {}
        () = scene.preside() => {}
        () = scene.play(workload) => {}
    }
}

/// Runs the daemon for a while, as its `start`-th start.
async fn on(scene: &Scene, start: u64, time: Duration) {
    tokio::select! {
        biased;
        () = scene.live_on(start, |_| {}) => {}
        () = tokio::time::sleep(time) => {}
    }
}

/// Names of the machines that are working nodes, by the last turn.
fn working(scene: &Scene) -> Vec<String> {
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    let machines = turn.snapshot.machines.iter();
    machines
        .filter(|(_, machine)| machine.step.is_some_and(|(step, _)| step == Step::Done))
        .map(|(name, _)| name.to_string())
        .collect()
}

/// The daemon leaves while the guest boots and comes back after `away`: the machine it had begun
/// becomes a node, and no other is made.
fn goes_on_after(config: &str, boot: Span, away: Duration) {
    simulate(async {
        let scene = Scene::new(3, config, booting(boot));
        beside(&scene, stays(), async {
            scene.live_until(Duration::from_secs(75), 0).await;
            assert_eq!(scene.machines_made(), 1);
            tokio::time::sleep(away).await;
            on(&scene, 1, Duration::from_mins(8)).await;
        })
        .await;
        assert_eq!(scene.machines_made(), 1, "the healthy guest was given up");
        assert_eq!(working(&scene).len(), 1);
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

#[test]
fn the_daemons_absence_takes_no_time_from_a_step() {
    let config = format!("{HASTY}[lifecycle]\nagent = \"6m\"\n").replace(
        "[scale_up]",
        "[scale_up]\nmax_node_provision_time = \"60m\"",
    );
    // Back eleven minutes after the start, a minute and a half before the agent answers.
    goes_on_after(&config, Span::seconds(750), Duration::from_mins(10));
}

#[test]
fn the_daemons_absence_takes_no_time_from_the_provisioning() {
    let config = HASTY.replace("[scale_up]", "[scale_up]\nmax_node_provision_time = \"4m\"");
    goes_on_after(&config, Span::seconds(60), Duration::from_mins(40));
}

#[test]
fn what_was_planned_long_ago_and_never_begun_is_decided_anew() {
    never_begun(Span::ZERO);
}

/// How long ago it was planned nobody can tell.
#[test]
fn what_was_planned_before_the_clock_was_set_back_is_decided_anew() {
    never_begun(Span::minutes(97));
}

/// The daemon goes before a machine that it planned is begun, and comes back when nobody waits for it any more. Its clock
/// is `ahead` until then.
fn never_begun(ahead: Span) {
    simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        let workload = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::seconds(60));
        beside(&scene, workload, async {
            let faults = &scene.world.pve_faults;
            faults.aim(Some(Aim::Refuse("/api2/json/nodes/pve1/qemu/9000/clone")));
            scene.world.host_clock.set_ahead(ahead);
            scene.live_until(Duration::from_secs(75), 0).await;
            assert_eq!(scene.left().len(), 1, "the intent is in the journal");
            faults.aim(None);
            tokio::time::sleep(Duration::from_mins(10)).await;
            scene.world.host_clock.set_ahead(Span(-ahead.0));
            on(&scene, 1, Duration::from_mins(3)).await;
        })
        .await;
        assert_eq!(scene.machines_made(), 0);
        scene.nothing_is_left();
    });
}

/// Every life of the daemon is too short to see a deadline pass, and the guest never answers: its
/// time is up all the same.
#[test]
fn a_crash_loop_makes_no_deadline_endless() {
    let config = format!("{HASTY}[lifecycle]\nagent = \"3m\"\n").replace(
        "[scale_up]",
        "[scale_up]\nmax_node_provision_time = \"60m\"",
    );
    simulate(async {
        let guests = GuestSpec {
            fates: BTreeMap::from([(0, GuestFault::AgentSilent)]),
            ..GuestSpec::default()
        };
        let scene = Scene::new(3, &config, guests);
        let mut lives = 0;
        beside(&scene, stays(), async {
            scene.live_until(Duration::from_secs(75), 0).await;
            while scene.machines_made() < 2 {
                lives += 1;
                assert!(lives < 40, "the silent guest is waited for without end");
                scene.live_until(Duration::from_secs(6), lives).await;
                tokio::time::sleep(Duration::from_mins(2)).await;
            }
        })
        .await;
        assert!(
            lives > 5,
            "its time was up after {lives} lives of six seconds"
        );
    });
}

/// Lives for twelve minutes while `breaks` happens. No pool may be made to wait for that, and in the
/// end the pod's machine works.
async fn nobody_is_to_blame(scene: &Scene, breaks: impl Future<Output = ()>) {
    let mut waited = BTreeSet::new();
    let breaks = async {
        breaks.await;
        std::future::pending::<()>().await;
    };
    let mut turns = scene.world.turns.subscribe();
    let looks = async {
        while turns.changed().await.is_ok() {
            if let Some(turn) = turns.borrow_and_update().clone() {
                let backoff = turn.decision.memory.backoff.values();
                waited.extend(backoff.map(|backoff| backoff.message.to_string()));
            }
        }
    };
    beside(scene, stays(), async {
        tokio::select! {
            biased;
            () = on(scene, 0, Duration::from_mins(12)) => {}
            () = breaks => {}
            () = looks => {}
        }
    })
    .await;
    assert_eq!(
        waited,
        BTreeSet::new(),
        "the pool waits for what it cannot help"
    );
    assert_eq!(working(scene).len(), 1);
    assert_eq!(scene.findings(), Vec::<String>::new());
}

fn act(scene: &Scene, act: &AdminAct) {
    scene.world.pve.administer(act).expect("it is possible");
}

/// While a clone runs the cluster loses its quorum, and gets it back.
#[test]
fn lost_quorum_is_not_the_pools_fault() {
    simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        let cloning = || {
            let tasks = scene.world.pve.dump(0).tasks;
            tasks.iter().any(|task| task.contains(":qmclone:"))
        };
        let breaks = async {
            while !cloning() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            act(&scene, &AdminAct::Quorum(false));
            tokio::time::sleep(Duration::from_mins(1)).await;
            act(&scene, &AdminAct::Quorum(true));
        };
        nobody_is_to_blame(&scene, breaks).await;
    });
}

/// The host of a machine is started anew while the guest boots.
#[test]
fn a_host_that_reboots_is_not_the_pools_fault() {
    simulate(async {
        let scene = Scene::new(3, HASTY, booting(Span::seconds(60)));
        let breaks = async {
            tokio::time::sleep(Duration::from_secs(70)).await;
            let vms = scene.world.pve.vms().into_iter();
            let mut booting = vms.filter(|vm| (9100..9121).contains(&vm.vmid) && vm.running);
            let host = booting.next().expect("it boots").host;
            for online in [false, true] {
                let host = host.clone();
                act(&scene, &AdminAct::HostOnline { host, online });
                tokio::time::sleep(Duration::from_secs(20)).await;
            }
        };
        nobody_is_to_blame(&scene, breaks).await;
    });
}

/// A guest whose agent never answered was never a node: nothing in it is worth a shutdown.
#[test]
fn a_machine_that_never_was_a_node_is_stopped_at_once() {
    simulate(async {
        let guests = GuestSpec {
            fates: BTreeMap::from([(0, GuestFault::AgentSilent)]),
            ..GuestSpec::default()
        };
        let scene = Scene::new(3, HASTY, guests);
        beside(&scene, stays(), on(&scene, 0, Duration::from_mins(20))).await;
        let requests = scene.world.pve.requests();
        let down: Vec<&str> = requests
            .iter()
            .filter(|seen| seen.changing)
            .filter_map(|seen| seen.path.rsplit_once("/status/"))
            .map(|(_, verb)| verb)
            .filter(|verb| *verb != "start")
            .collect();
        assert_eq!(down, ["stop"]);
        assert_eq!(working(&scene).len(), 1, "and another took its place");
    });
}

/// Ten entries of a cluster that is no more: they take no place in the pool, and somebody is told.
#[test]
fn the_journal_of_a_former_cluster_fills_no_pool() {
    simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        let journal = scene.state().join("journal");
        beside(&scene, stays(), async {
            on(&scene, 0, Duration::from_secs(75)).await;
            // Its state, as it was for a cluster before.
            let files = std::fs::read_dir(&journal).expect("a journal");
            let paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
            assert_eq!(paths.len(), 1, "{paths:?}");
            let text = std::fs::read_to_string(&paths[0]).expect("readable");
            let entry: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            for number in 0..10 {
                let (name, vmid) = (format!("general-old{number:02}"), 9110 + number);
                let mut old = entry.clone();
                old["target"]["machine"] = name.clone().into();
                old["target"]["vmid"] = vmid.into();
                old["spec"]["mark"]["machine"] = name.clone().into();
                old["spec"]["mark"]["vmid"] = vmid.into();
                old["spec"]["mark"]["cluster"] = "former/test".into();
                let text = serde_json::to_string(&old).expect("JSON");
                std::fs::write(journal.join(format!("{name}.json")), text).expect("written");
            }
            std::fs::remove_file(&paths[0]).expect("removed");
            std::fs::write(&paths[0], text).expect("written");
            on(&scene, 1, Duration::from_mins(6)).await;
        })
        .await;
        assert_eq!(
            working(&scene).len(),
            1,
            "the pool counts machines of others"
        );
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let told = turn.decision.report.warnings.iter();
        let told: Vec<_> = told
            .filter(|text| text.contains("cluster former/test"))
            .collect();
        assert_eq!(told.len(), 1, "{:?}", turn.decision.report.warnings);
        assert!(told[0].contains("10 machines") && told[0].contains("pve-autoscaler adopt"));
        let left = std::fs::read_dir(&journal).expect("a journal").count();
        assert_eq!(left, 11, "nobody touches what is not ours");
    });
}

/// The state directory is lost while a machine works, and then somebody deletes its Node: without a journal it looks like
/// one that is still to join, and all the same it has its quarantine. The host's clock changes nothing of it.
#[test]
fn a_node_that_is_deleted_has_its_quarantine_without_a_journal_too() {
    let config = HASTY.replace("quarantine = \"30s\"", "quarantine = \"4m\"");
    assert_ne!(config, HASTY);
    for ahead in [Span::ZERO, Span::minutes(75)] {
        simulate(async {
            let scene = Scene::new(3, &config, GuestSpec::default());
            beside(&scene, stays(), async {
                on(&scene, 0, Duration::from_mins(4)).await;
                let worked = working(&scene);
                assert_eq!(worked.len(), 1);
                std::fs::remove_dir_all(scene.state()).expect("removed");
                std::fs::create_dir(scene.state()).expect("made");
                let deletes = async {
                    tokio::time::sleep(Duration::from_mins(2)).await;
                    let delete = http::Request::delete(format!("/api/v1/nodes/{}", worked[0]));
                    crate::call(&scene, delete, "{}".to_owned()).await;
                    tokio::time::sleep(Duration::from_secs(35)).await;
                    scene.world.host_clock.set_ahead(ahead);
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    biased;
                    () = on(&scene, 1, Duration::from_mins(12)) => {}
                    () = deletes => {}
                }
            })
            .await;
            let told = crate::events(&scene).await;
            let findings = scene.findings();
            assert!(
                findings.is_empty(),
                "ahead by {ahead}: {findings:#?} {told:#?}"
            );
        });
    }
}

/// Somebody deletes the Node of a machine that works, and its kubelet, started anew, registers it as it did at first: with the startup
/// taint, and without what the daemon wrote on it.
#[test]
fn a_node_that_is_registered_anew_takes_pods_again() {
    // No other machine is made for its pods meanwhile.
    let config = HASTY.replace("quarantine = \"30s\"", "quarantine = \"4m\"");
    let config = config.replace("max = 3", "max = 1");
    for journal in [true, false] {
        simulate(async {
            let scene = Scene::new(3, &config, GuestSpec::default());
            beside(&scene, stays(), async {
                on(&scene, 0, Duration::from_mins(4)).await;
                let worked = working(&scene);
                assert_eq!(worked.len(), 1);
                if !journal {
                    std::fs::remove_dir_all(scene.state()).expect("removed");
                    std::fs::create_dir(scene.state()).expect("made");
                }
                let vms = scene.world.pve.vms();
                let vm = vms.iter().find(|vm| vm.name == worked[0]).expect("its VM");
                let vmid = vm.vmid;
                let again = async {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    let delete = http::Request::delete(format!("/api/v1/nodes/{}", worked[0]));
                    crate::call(&scene, delete, "{}".to_owned()).await;
                    for act in [AdminAct::PowerOff { vmid }, AdminAct::Start { vmid }] {
                        let done = scene.world.pve.administer(&act);
                        done.expect("it is there");
                        tokio::time::sleep(Duration::from_secs(5)).await;
                    }
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    biased;
                    () = on(&scene, 1, Duration::from_mins(6)) => {}
                    () = again => {}
                }
                let told = crate::events(&scene).await;
                assert_eq!(working(&scene), worked, "journal {journal}: {told:#?}");
            })
            .await;
            let node = scene.world.kube.objects("v1", "Node");
            let tainted = node[0]["spec"]["taints"].to_string();
            assert!(!tainted.contains("uninitialized"), "{tainted}");
            let annotations = node[0]["metadata"]["annotations"].to_string();
            assert!(
                annotations.contains("pve-autoscaler.io/machine"),
                "{annotations}"
            );
            let pods = scene.world.kube.objects("v1", "Pod");
            let runs = pods
                .iter()
                .filter(|pod| pod["status"]["phase"] == "Running");
            assert!(runs.count() > 0, "nothing runs: {pods:?}");
            assert_eq!(scene.machines_made(), 1);
            let findings = scene.findings();
            assert!(findings.is_empty(), "journal {journal}: {findings:#?}");
        });
    }
}
