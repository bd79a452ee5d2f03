//! What a clone leaves that was cut short: a locked VM without a mark. It goes once nobody has been at it for a
//! quarantine, and what the daemon does meanwhile does not put that off without end.

use std::time::Duration;

use pve_autoscaler::model::time::{Span, Time};
use pve_autoscaler::sim::faults::Aim;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::pve::AdminAct;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};

use crate::HASTY;
use crate::common::{Scene, simulate};
use crate::no_template::of_settings;

/// As in [`HASTY`].
const QUARANTINE: Span = Span::seconds(30);

/// Kills the first clone's worker; gives when that was, and the VMID of what it leaves.
async fn cut_short(scene: &Scene) -> (Time, u32) {
    let makes = |upid: &String| upid.contains(":qmclone:") || upid.contains(":qmcreate:");
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let pve = &scene.world.pve;
        let vms = pve.vms().into_iter();
        let mut half = vms.filter(|vm| {
            (9100..9121).contains(&vm.vmid) && vm.lock.is_some() && vm.name.is_empty()
        });
        let tasks = pve.running_tasks();
        let clone = tasks.into_iter().find(makes);
        if let (Some(vm), Some(upid)) = (half.next(), clone) {
            pve.administer(&AdminAct::KillTask { upid })
                .expect("it runs");
            return (scene.world.clock.now(), vm.vmid);
        }
    }
}

/// How long after that the daemon destroyed it; the daemon is started anew whenever it has lived for so long.
fn cleared_after(file: &str, life: Duration) -> Span {
    simulate(async {
        let scene = Scene::new(3, file, GuestSpec::default());
        let lives = async {
            for start in 0.. {
                tokio::select! {
                    biased;
                    () = scene.live_on(start, |_| {}) => {}
                    () = tokio::time::sleep(if start == 0 { Duration::from_secs(55) } else { life }) => {}
                }
            }
        };
        let story = async {
            let (killed, vmid) = cut_short(&scene).await;
            let mut destroyed = None;
            while destroyed.is_none() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let changes = scene.world.pve.changes().into_iter();
                let mut gone =
                    changes.filter(|change| change.vmid == vmid && change.what == "destroy");
                destroyed = gone.next().map(|change| change.at);
            }
            destroyed.expect("it is").since(killed)
        };
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(60));
        tokio::select! {
            biased;
            () = lives => unreachable!("it lives for ever"),
            () = scene.preside() => unreachable!("it looks for ever"),
            () = scene.play(stays) => unreachable!("it rests for ever"),
            () = tokio::time::sleep(Duration::from_mins(30)) => {
                let left = scene.verdict();
                panic!("it stays, with lives of {life:?}: {left:#?} {:#?}", scene.world.pve.changes());
            }
            took = story => took,
        }
    })
}

#[test]
fn a_dead_clone_goes_one_quarantine_after_the_last_look_at_it() {
    let took = cleared_after(HASTY, Duration::from_hours(1));
    assert!(took >= QUARANTINE, "{took}");
    assert!(took < Span::minutes(1), "{took}");
}

/// So does what is left where a VM was being made of settings.
#[test]
fn a_dead_create_goes_one_quarantine_after_the_last_look_at_it() {
    let took = cleared_after(&of_settings("", ""), Duration::from_hours(1));
    assert!(took >= QUARANTINE, "{took}");
    assert!(took < Span::minutes(1), "{took}");
}

/// A daemon that leads for twenty-five seconds and is started anew: each life is shorter than the quarantine, which goes
/// on over all of them. A crash costs the half minute for which the lease runs on.
#[test]
fn a_quarantine_is_not_begun_anew_with_every_life() {
    let took = cleared_after(HASTY, Duration::from_secs(57));
    assert!(took >= QUARANTINE, "{took}");
    assert!(took < Span::minutes(3), "{took}");
}

/// A clone's answer is lost, a second call makes the VM, and somebody switches it off, so that its machine is removed. Then
/// the first call is carried out after all, and cut short: what it leaves is known to be ours.
#[test]
fn what_a_clone_leaves_that_comes_late_goes() {
    simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        let faults = &scene.world.pve_faults;
        faults.aim(Some(Aim::Delay("/clone", Duration::from_mins(3))));
        let visit = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(10));
        let story = async {
            let pve = &scene.world.pve;
            let vmid = loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let vms = pve.vms().into_iter();
                let mut up = vms.filter(|vm| (9100..9121).contains(&vm.vmid) && vm.running);
                if let Some(vm) = up.next() {
                    break vm.vmid;
                }
            };
            // It boots, and the daemon waits for its agent.
            tokio::time::sleep(Duration::from_secs(2)).await;
            pve.administer(&AdminAct::PowerOff { vmid })
                .expect("it runs");
            let came = loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let late = pve.vm(vmid).filter(|vm| vm.name.is_empty());
                let clones = pve.running_tasks().into_iter();
                let mut clones = clones.filter(|upid| upid.contains(":qmclone:"));
                if let (Some(_), Some(upid)) = (late, clones.next()) {
                    pve.administer(&AdminAct::KillTask { upid })
                        .expect("it runs");
                    break scene.world.clock.now();
                }
            };
            while pve.vm(vmid).is_some() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let took = scene.world.clock.now().since(came);
            assert!(took >= QUARANTINE && took < Span::minutes(2), "{took}");
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit, Duration::from_mins(25)) => {}
            () = async { story.await; std::future::pending::<()>().await } => {}
        }
        let pve = &scene.world.pve;
        let changes = pve.changes().into_iter();
        let destroyed = changes.filter(|change| change.vmid == 9100 && change.what == "destroy");
        assert_eq!(destroyed.count(), 2, "{:#?}", pve.changes());
        scene.nothing_is_left();
    });
}
