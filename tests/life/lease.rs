//! Two installations, one lease.

use std::time::Duration;

use pve_autoscaler::model::region::Step;
use pve_autoscaler::model::snapshot::Snapshot;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::pve::AdminAct;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};

use serde_json::json;

use crate::HASTY;
use crate::common::{Scene, simulate};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/pve-autoscaler";

/// The first has just cloned a machine when it dies and its lease goes. What the second has read of PVE is from before
/// that.
#[test]
fn who_takes_the_lease_over_reads_what_was_made_just_before() {
    simulate(async {
        let scene = Scene::new(31, HASTY, GuestSpec::default());
        let other = tempfile::tempdir().expect("a directory");
        let first = async {
            tokio::select! {
                () = scene.live_on(0, |_| {}) => {}
                () = async {
                    while scene.machines_made() == 0 {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    // Until its clone is done a machine carries no mark that another could read.
                    tokio::time::sleep(Duration::from_secs(5)).await;
                } => {}
            }
            crate::patch(&scene, http::Request::delete(LEASE), String::new()).await;
            std::future::pending::<()>().await;
        };
        let second = async {
            // It has read everything before the pod comes, and looks at PVE every thirty seconds while it waits.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let ended = scene.world.daemon(other.path(), None, 100).await;
            panic!("it ended: {ended:?}");
        };
        let pods = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(5));
        tokio::select! {
            biased;
            () = first => {}
            () = second => {}
            () = scene.preside() => {}
            () = scene.play(pods) => {}
            () = tokio::time::sleep(Duration::from_mins(5)) => {}
        }
        assert_eq!(scene.machines_made(), 1);
    });
}

/// A Lease of somebody who runs no more, and who asks others to wait for 68 years: whoever stands by says what to do about it.
#[test]
fn a_lease_for_ever_is_told_with_what_to_do() {
    simulate(async {
        let scene = Scene::new(31, HASTY, GuestSpec::default());
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "pve-autoscaler", "namespace": "kube-system"},
            "spec": {"holderIdentity": "colleague", "leaseDurationSeconds": i32::MAX},
        });
        let (all, _) = LEASE.rsplit_once('/').expect("a path");
        let create = http::Request::post(all).header("content-type", "application/json");
        crate::patch(&scene, create, lease.to_string()).await;
        tokio::select! {
            biased;
            () = scene.live_on(0, |_| {}) => {}
            () = tokio::time::sleep(Duration::from_mins(1)) => {}
        }
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let holds: Vec<String> = turn
            .decision
            .report
            .holds
            .iter()
            .map(|hold| hold.why.to_string())
            .collect();
        let wanted = "colleague holds the lease, does not renew it, and asks others to wait for ";
        assert!(holds.iter().any(|why| why.contains(wanted)), "{holds:?}");
        let command = "kubectl -n kube-system delete lease pve-autoscaler";
        assert!(holds.iter().any(|why| why.contains(command)), "{holds:?}");
        assert_eq!(scene.machines_made(), 0);
    });
}

/// A colleague's instance takes the lease over, and with it the machine: what this one's journal remembers of it is shown no
/// more, neither the step that it had reached nor, after the colleague has removed it, the machine itself.
#[test]
fn a_standby_shows_nothing_of_its_own_old_journal() {
    simulate(async {
        let scene = Scene::new(31, HASTY, GuestSpec::default());
        let look = |of: &dyn Fn(&Snapshot) -> bool| {
            let turn = scene.world.turns.borrow().clone();
            turn.is_some_and(|turn| of(&turn.snapshot))
        };
        let done = |snapshot: &Snapshot| {
            let mut machines = snapshot.machines.values();
            machines.any(|machine| machine.step.is_some_and(|(step, _)| step == Step::Done))
        };
        let pods = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120));
        let story = async {
            until(|| look(&|snapshot| snapshot.leader && done(snapshot))).await;
            let spec =
                json!({"spec": {"holderIdentity": "colleague", "leaseDurationSeconds": 7200}});
            let change =
                http::Request::patch(LEASE).header("content-type", "application/merge-patch+json");
            crate::patch(&scene, change, spec.to_string()).await;
            until(|| look(&|snapshot| !snapshot.leader && snapshot.lease.holder == "colleague"))
                .await;
            assert!(look(&|snapshot| {
                let machines: Vec<_> = snapshot.machines.values().collect();
                machines.len() == 1 && machines[0].node.is_some() && machines[0].step.is_none()
            }));
            let vms = scene.world.pve.vms().into_iter();
            let vmid = vms
                .map(|vm| vm.vmid)
                .find(|vmid| (9100..9121).contains(vmid));
            let vmid = vmid.expect("its VM");
            scene
                .world
                .pve
                .administer(&AdminAct::PowerOff { vmid })
                .expect("it runs");
            scene
                .world
                .pve
                .administer(&AdminAct::Destroy { vmid })
                .expect("it is there");
            until(|| look(&|snapshot| !snapshot.leader && snapshot.machines.is_empty())).await;
        };
        tokio::select! {
            biased;
            () = story => {}
            () = scene.live(None, 0, pods, Duration::from_mins(30)) => panic!("the story did not come to its end"),
        }
    });
}

/// Returns once it holds.
async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
