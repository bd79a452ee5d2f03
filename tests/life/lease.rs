//! Two installations, one lease.

use std::cell::RefCell;
use std::time::Duration;

use pve_autoscaler::controller::status::DaemonStatus;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::web::Metrics;

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
        let lease = serde_json::json!({
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

/// A standby that led before shows nothing of its own old work: another one has gone on since then.
#[test]
fn a_standby_does_not_tell_what_it_did_while_it_led() {
    simulate(async {
        let scene = Scene::new(31, HASTY, GuestSpec::default());
        let status = || scene.world.turns.borrow().as_deref().map(DaemonStatus::of);
        let story = async {
            while scene.machines_made() == 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            tokio::time::sleep(Duration::from_mins(5)).await;
            let led = status().expect("a turn");
            let takes = serde_json::json!({
                "spec": {"holderIdentity": "colleague", "leaseDurationSeconds": i32::MAX},
            });
            let patch = http::Request::patch(LEASE);
            let patch = patch.header("content-type", "application/merge-patch+json");
            crate::patch(&scene, patch, takes.to_string()).await;
            tokio::time::sleep(Duration::from_mins(1)).await;
            (led, status().expect("a turn"))
        };
        let pods = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(30));
        let (led, stands_by) = tokio::select! {
            biased;
            () = scene.live_on(0, |_| {}) => unreachable!("the daemon ended"),
            () = scene.play(pods) => unreachable!("the pods are gone"),
            told = story => told,
        };
        assert!(led.leader && !stands_by.leader);
        let steps = |status: &DaemonStatus| {
            let machines = status.machines.values();
            machines.filter(|machine| machine.step.is_some()).count()
        };
        assert_eq!((steps(&led), stands_by.machines.len()), (1, 1));
        assert_eq!(steps(&stands_by), 0);
    });
}

/// Two daemons that are scraped: what a dashboard adds up is the cluster once. It finds a standby that counts machines, nodes and pods once more,
/// and says that everything is on hold.
#[test]
fn two_instances_count_the_cluster_once() {
    let told = simulate(async {
        let scene = Scene::new(31, HASTY, GuestSpec::default());
        let other = tempfile::tempdir().expect("a directory");
        let second = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let ended = scene.world.daemon(other.path(), None, 100).await;
            panic!("it ended: {ended:?}");
        };
        // Both tell their turns here: the last of the one that leads, and the last of the other.
        let last = RefCell::new([None, None]);
        let listens = async {
            let mut turns = scene.world.turns.subscribe();
            while turns.changed().await.is_ok() {
                let turn = turns.borrow_and_update().clone().expect("a turn");
                let stands_by = usize::from(!turn.snapshot.leader);
                last.borrow_mut()[stands_by] = Some(turn);
            }
        };
        let pods = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(30));
        tokio::select! {
            biased;
            () = scene.live_on(0, |_| {}) => {}
            () = second => {}
            () = scene.play(pods) => {}
            () = listens => {}
            () = tokio::time::sleep(Duration::from_mins(10)) => {}
        }
        let turns = last.into_inner();
        turns.map(|turn| Metrics::new().plain_text(turn.as_deref()))
    });
    let [leads, stands_by] = &told;
    assert!(leads.contains("\npve_autoscaler_leader 1.0\n"), "{leads}");
    let standby = "\npve_autoscaler_leader 0.0\n";
    assert!(stands_by.contains(standby), "{stands_by}");
    let sum = |series: &str| -> f64 {
        let lines = told.iter().flat_map(|text| text.lines());
        let values = lines.filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        values
            .map(|value| value.parse::<f64>().expect("a number"))
            .sum()
    };
    for (series, once) in [
        ("kpnodes_total", 1.0),
        (
            "cluster_autoscaler_node_group_target_count{node_group=\"general\"}",
            1.0,
        ),
        ("pve_autoscaler_holds{scope=\"everything\"}", 0.0),
    ] {
        let found = sum(series);
        assert!(
            (found - once).abs() < 0.1,
            "{series}: {found}\n{leads}\n{stands_by}"
        );
    }
}
