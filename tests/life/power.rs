//! Machines whose VM is off while their Node exists: after a power cut, and by somebody's hand.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::model::report::NodeVerdict;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{AdminAct, PveSpec, VmFacts};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;

use crate::HASTY;
use crate::common::{Scene, simulate};

/// One pod that stays.
fn stays() -> Workload {
    Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120))
}

/// Lives for so long, while `acts` are done.
async fn live(scene: &Scene, time: Duration, acts: impl Future<Output = ()>) {
    let acts = async {
        acts.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = scene.live(None, 0, stays(), time) => {}
        () = acts => {}
    }
}

fn act(scene: &Scene, act: &AdminAct) {
    scene.world.pve.administer(act).expect("it is possible");
}

/// The only machine.
fn machine(scene: &Scene) -> VmFacts {
    let vms = scene.world.pve.vms().into_iter();
    let mut ours: Vec<VmFacts> = vms.filter(|vm| (9100..9121).contains(&vm.vmid)).collect();
    assert_eq!(ours.len(), 1, "{ours:?}");
    ours.remove(0)
}

/// How often a VM of ours was asked to start.
fn starts(scene: &Scene) -> usize {
    let requests = scene.world.pve.requests();
    let start = |path: &str| path.ends_with("/status/start");
    requests
        .iter()
        .filter(|seen| seen.changing && start(&seen.path))
        .count()
}

/// What the last turn says of the machine's node, and its warnings.
fn told(scene: &Scene) -> (String, Vec<String>) {
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    let report = &turn.decision.report;
    let name = machine(scene).name;
    let verdict = match report.nodes.get(name.as_str()) {
        Some(NodeVerdict::Kept { why, .. }) => why.to_string(),
        Some(NodeVerdict::Leaving { why, .. }) => why.to_string(),
        other => format!("{other:?}"),
    };
    (verdict, report.warnings.clone())
}

#[test]
fn after_its_hosts_reboot_a_machine_is_started_again() {
    simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        let reboot = async {
            tokio::time::sleep(Duration::from_mins(3)).await;
            let host = machine(&scene).host;
            for online in [false, true] {
                let host = host.clone();
                act(&scene, &AdminAct::HostOnline { host, online });
                tokio::time::sleep(Duration::from_secs(90)).await;
            }
        };
        live(&scene, Duration::from_mins(12), reboot).await;
        assert!(machine(&scene).running, "it stays off");
        assert_eq!(starts(&scene), 2, "made once and started again once");
        assert_eq!(scene.machines_made(), 1);
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// The host goes down and comes back while the machine's node is registered and not Ready yet: the VM is started again at once, and not
/// given up when the time to become Ready is over. The pool has one machine at most: where it may have more, another one is made
/// for the pod meanwhile.
#[test]
fn a_machine_whose_host_reboots_before_it_is_ready_is_started_again() {
    simulate(async {
        let mut guests = GuestSpec::default();
        guests.ready.min = Span::seconds(20);
        guests.ready.max = Span::seconds(30);
        let config = HASTY.replace("max = 3", "max = 1");
        assert_ne!(config, HASTY);
        let scene = Scene::new(3, &config, guests);
        let reboot = async {
            while scene.world.kube.objects("v1", "Node").is_empty() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            // By then `kubeadm join` has ended.
            tokio::time::sleep(Duration::from_secs(5)).await;
            let host = machine(&scene).host;
            for online in [false, true] {
                let host = host.clone();
                act(&scene, &AdminAct::HostOnline { host, online });
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            tokio::time::sleep(Duration::from_secs(89)).await;
            assert!(machine(&scene).running, "it stays off");
        };
        live(&scene, Duration::from_mins(5), reboot).await;
        assert!(machine(&scene).running, "it stays off");
        assert_eq!((starts(&scene), scene.machines_made()), (2, 1));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Somebody switches the machine off, and off again: it is started once and then let alone, and told.
#[test]
fn who_switches_a_machine_off_twice_means_it() {
    simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        let mut verdict = String::new();
        let off = async {
            for minutes in [3, 4] {
                tokio::time::sleep(Duration::from_mins(minutes)).await;
                let vmid = machine(&scene).vmid;
                assert!(machine(&scene).running);
                act(&scene, &AdminAct::PowerOff { vmid });
                tokio::time::sleep(Duration::from_secs(45)).await;
                let said = told(&scene).0;
                assert!(said.contains("its VM is off since "), "{said}");
            }
            tokio::time::sleep(Duration::from_mins(2)).await;
            verdict = told(&scene).0;
        };
        live(&scene, Duration::from_mins(12), off).await;
        assert!(!machine(&scene).running);
        assert_eq!(starts(&scene), 2);
        assert!(verdict.contains("after it was started at "), "{verdict}");
        let warnings = told(&scene).1;
        let wanted = "is not started again: `qm start ";
        assert!(warnings.iter().any(|w| w.contains(wanted)), "{warnings:?}");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// A busy host: QEMU takes longer than PVE waits, which names its whole command line before it says `got timeout`. The VM runs all
/// the same and becomes a node. It finds a daemon that cuts PVE's text off before the reason, and so takes the machine for failed.
#[test]
fn a_start_that_takes_longer_than_pve_waits_is_no_failure() {
    simulate(async {
        let mut pve = PveSpec::default();
        pve.timings.start = [40_000, 41_000];
        let scene = Scene::of(WorldSpec {
            seed: 3,
            pve,
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config: HASTY.to_owned(),
        });
        live(&scene, Duration::from_mins(6), async {}).await;
        assert!(machine(&scene).running);
        assert_eq!((starts(&scene), scene.machines_made()), (1, 1));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// The first failure of a machine whose start takes so long and whose VM ends before it is a node, by itself where PVE had given up waiting
/// for its start, else by somebody's hand. With `first_life` the daemon is started anew after so long.
fn failure_of_a_vm_that_ends(start_ms: u64, first_life: Option<Duration>) -> String {
    let mut pve = PveSpec::default();
    pve.timings.start = [start_ms, start_ms];
    pve.timings.overdue_lives = Some(20_000);
    let mut guests = GuestSpec::default();
    guests.boot.min = Span::seconds(60);
    guests.boot.max = Span::seconds(60);
    let is_overdue = start_ms > 35_000;
    let failure = simulate(async move {
        let scene = Scene::of(WorldSpec {
            seed: 3,
            pve,
            kube: KubeSpec::default(),
            guests,
            config: HASTY.to_owned(),
        });
        let failure = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let vms = scene.world.pve.vms().into_iter();
                let mut running = vms.filter(|vm| vm.running && (9100..9121).contains(&vm.vmid));
                if let Some(vm) = running.next_back()
                    && !is_overdue
                {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    act(&scene, &AdminAct::PowerOff { vmid: vm.vmid });
                }
                let turn = scene.world.turns.borrow().clone();
                let mut failures = turn.iter().flat_map(|turn| {
                    let machines = turn.snapshot.machines.values();
                    machines.filter_map(|machine| machine.failure.clone())
                });
                if let Some(failure) = failures.next() {
                    return failure.message.to_string();
                }
            }
        };
        let time = Duration::from_mins(6);
        let lives = async {
            match first_life {
                Some(first) => scene.live_and_stop(first, stays(), time).await,
                None => scene.live(None, 0, stays(), time).await,
            }
        };
        tokio::select! {
            biased;
            () = lives => None,
            failure = failure => Some(failure),
        }
    });
    failure.expect("a machine that failed")
}

/// PVE calls a start failed, the VM runs all the same, and ends before it is a node: what PVE said of the start is told, and not only that
/// the VM stopped. So it is where the daemon was started anew while PVE still waited for the start. It finds a daemon that forgets how a
/// start went, and one that takes a second start in vain for it.
#[test]
fn a_start_that_pve_called_failed_is_told_when_the_vm_ends() {
    let begin = "the VM stopped while it was coming up, and PVE had called its start failed: start failed: command '/usr/bin/kvm -id 91";
    // The pod comes after 45 seconds, and PVE waits for 35.
    for first_life in [None, Some(Duration::from_secs(65))] {
        let told = failure_of_a_vm_that_ends(40_000, first_life);
        assert!(told.starts_with(begin), "{first_life:?}: {told}");
        assert!(
            told.contains("failed: got timeout"),
            "{first_life:?}: {told}"
        );
    }
}

/// Of a start that went well nothing is told.
#[test]
fn a_vm_that_ends_after_a_good_start_is_told_as_that() {
    assert_eq!(
        failure_of_a_vm_that_ends(1_000, None),
        "the VM stopped while it was coming up"
    );
}

#[test]
fn what_the_ha_manager_has_is_its() {
    simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        let off = async {
            tokio::time::sleep(Duration::from_mins(3)).await;
            let vmid = machine(&scene).vmid;
            let state = Some("ignored".to_owned());
            act(&scene, &AdminAct::Ha { vmid, state });
            act(&scene, &AdminAct::PowerOff { vmid });
        };
        live(&scene, Duration::from_mins(8), off).await;
        assert_eq!(starts(&scene), 1);
        let warnings = told(&scene).1;
        assert!(
            warnings.iter().any(|w| w.contains("the HA manager has it")),
            "{warnings:?}"
        );
    });
}

/// The daemon is started anew between the start and the next time somebody switches it off.
#[test]
fn that_it_was_started_survives_a_restart() {
    simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        let off = async {
            for minutes in [3, 4] {
                tokio::time::sleep(Duration::from_mins(minutes)).await;
                let vmid = machine(&scene).vmid;
                act(&scene, &AdminAct::PowerOff { vmid });
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live_and_stop(Duration::from_mins(6), stays(), Duration::from_mins(12)) => {}
            () = off => {}
        }
        assert_eq!(starts(&scene), 2);
        assert!(!machine(&scene).running);
        assert!(!scene.judge().at_rest(&BTreeMap::new()).is_empty());
    });
}
