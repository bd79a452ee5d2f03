//! Failed machines that a pool keeps, to be looked into (`keep_failed`).

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec};
use pve_autoscaler::sim::pve::{AdminAct, VmFacts};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};

use crate::HASTY;
use crate::cloud_init::{administrator, names, own_name, with_isos};
use crate::common::{Scene, simulate};

const MINUTE: Duration = Duration::from_mins(1);

/// A pool that keeps one failed machine for ten minutes, and whose first machine cannot join.
pub(crate) fn scene() -> Scene {
    let config = HASTY.replace(
        "max = 3\n",
        "max = 3\nkeep_failed = 1\nkeep_failed_for = \"10m\"\n",
    );
    assert_ne!(config, HASTY);
    let guests = GuestSpec {
        fates: BTreeMap::from([(0, GuestFault::JoinFails)]),
        ..GuestSpec::default()
    };
    Scene::new(5, &config, guests)
}

fn web(stays: Span) -> Workload {
    Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), stays)
}

/// The VMs of ours.
fn machines(scene: &Scene) -> Vec<VmFacts> {
    let vms = scene.world.pve.vms().into_iter();
    vms.filter(|vm| (9100..9121).contains(&vm.vmid)).collect()
}

/// What the last turn warns of.
fn warnings(scene: &Scene) -> Vec<String> {
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    turn.decision.report.warnings.clone()
}

/// The first machine, which failed: it runs, and it is told with its host and what to type.
fn is_kept(scene: &Scene) -> Option<String> {
    let mut vms = machines(scene).into_iter();
    if !vms.any(|vm| vm.vmid == 9100 && vm.running) {
        return Some("the failed machine is gone before its time".to_owned());
    }
    let wanted = "`qm stop 9100` ends it now";
    let told = warnings(scene);
    let told = told.iter().any(|warning| warning.contains(wanted));
    (!told).then(|| format!("{:?} tell nothing of {wanted:?}", warnings(scene)))
}

/// What is wrong four minutes after the start: the failed machine is there, its token is not, and another one works.
pub(crate) async fn after_a_failure() -> Vec<String> {
    let scene = scene();
    scene
        .live(None, 0, web(Span::minutes(60)), 4 * MINUTE)
        .await;
    let mut wrong = scene.findings();
    wrong.extend(is_kept(&scene));
    if !scene.world.kube.objects("v1", "Secret").is_empty() {
        wrong.push("a bootstrap token is left".to_owned());
    }
    let nodes = scene.world.kube.objects("v1", "Node");
    let pools = "pve-autoscaler.io/pool";
    let ours = nodes
        .iter()
        .filter(|node| node["metadata"]["labels"].get(pools).is_some());
    if ours.count() != 1 {
        wrong.push("no other machine works in its stead".to_owned());
    }
    wrong
}

#[test]
fn a_failed_machine_is_kept_while_another_works() {
    let wrong = simulate(after_a_failure());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The daemon is started anew in the sixth minute; the machine goes in the eleventh after it failed, and nothing is left.
#[test]
fn it_goes_when_its_time_is_over_across_a_restart() {
    simulate(async {
        let scene = scene();
        let looks = async {
            for (minutes, there) in [(9, true), (5, false)] {
                tokio::time::sleep(minutes * MINUTE).await;
                let first = machines(&scene).iter().any(|vm| vm.vmid == 9100);
                assert_eq!(first, there, "{:?}", machines(&scene));
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live_and_stop(5 * MINUTE, web(Span::minutes(16)), 40 * MINUTE) => {}
            () = looks => {}
        }
        scene.nothing_is_left();
    });
}

/// A pool that keeps failed machines, whose data for cloud-init are on ISOs.
fn scene_with_isos() -> Scene {
    let config = with_isos("", "").replace(
        "max = 3\n",
        "max = 3\nkeep_failed = 1\nkeep_failed_for = \"30m\"\n",
    );
    let guests = GuestSpec {
        fates: BTreeMap::from([(0, GuestFault::JoinFails)]),
        ..GuestSpec::default()
    };
    Scene::new(5, &config, guests)
}

/// What is on its ISO can be read by whoever has a login on the host: it goes with the failure, and one that a crash left is swept away
/// while the machine is kept.
#[test]
fn the_image_of_a_kept_machine_goes_with_its_failure() {
    simulate(async {
        let scene = scene_with_isos();
        let looks = async {
            tokio::time::sleep(4 * MINUTE).await;
            assert_eq!(is_kept(&scene), None);
            assert_eq!(names(&scene.world.pve), Vec::<String>::new());
            let kept = machines(&scene).into_iter().find(|vm| vm.vmid == 9100);
            let kept = kept.expect("it is kept");
            assert!(!format!("{kept:?}").contains(".iso,"), "{kept:?}");
            let client = administrator(&scene.world.pve);
            let left = own_name(&scene, "default", 9100);
            let sent = client.upload_iso(&kept.host, "local", &left, b"an image");
            sent.await.expect("it is sent");
            tokio::time::sleep(5 * MINUTE).await;
            assert_eq!(is_kept(&scene), None);
            assert_eq!(names(&scene.world.pve), Vec::<String>::new());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live_and_stop(5 * MINUTE, web(Span::minutes(60)), 12 * MINUTE) => {}
            () = looks => {}
        }
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// A person has seen enough and stops the VM: it is removed at once.
#[test]
fn who_stops_its_vm_ends_it() {
    simulate(async {
        let scene = scene();
        let stops = async {
            tokio::time::sleep(4 * MINUTE).await;
            assert_eq!(is_kept(&scene), None);
            let off = AdminAct::PowerOff { vmid: 9100 };
            scene.world.pve.administer(&off).expect("it runs");
            tokio::time::sleep(MINUTE).await;
            let left: Vec<u32> = machines(&scene).iter().map(|vm| vm.vmid).collect();
            assert!(!left.contains(&9100), "{left:?}");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, web(Span::minutes(60)), 6 * MINUTE) => {}
            () = stops => {}
        }
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// No machine can join: one is kept, and all that fail after it go as they always did.
#[test]
fn no_more_than_it_says_are_kept() {
    simulate(async {
        let config = HASTY.replace("max = 3\n", "max = 3\nkeep_failed = 1\n");
        let guests = GuestSpec {
            chances: [(GuestFault::JoinFails, 100)].into(),
            ..GuestSpec::default()
        };
        let scene = Scene::new(5, &config, guests);
        scene
            .live(None, 0, web(Span::minutes(60)), 20 * MINUTE)
            .await;
        assert!(scene.machines_made() > 2, "{}", scene.machines_made());
        assert_eq!(is_kept(&scene), None);
        assert!(machines(&scene).len() <= 2, "{:?}", machines(&scene));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}
