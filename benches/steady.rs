//! An hour in which nothing happens, at several numbers of machines: how many calls PVE gets, and
//! whether anything is changed there or in Kubernetes.
//!
//! The real daemon runs in the simulator, in virtual time. The calls are counted where they arrive.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use common::config::small_machines;
use common::scene::{Scene, calls_by_kind, roomy, simulate};
use common::{Report, Row, note, now};
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::workload::{Pods, Workload};

/// The time that is watched.
const HOUR: Duration = Duration::from_hours(1);
/// All machines are up within this time.
const ARRIVAL: Duration = Duration::from_hours(2);
/// After the last machine: the timers that ring after an addition have rung.
const SETTLING: Duration = Duration::from_mins(35);
/// The target.
const CALLS_A_MINUTE: f64 = 6.0;

fn main() -> ExitCode {
    let mut report = Report::new(
        "An hour with nothing to do: calls to PVE, and changes of VMs and nodes (virtual time)",
    );
    for machines in [0, 1, 10, 100] {
        report.add(steady(machines));
    }
    report.finish()
}

fn steady(machines: usize) -> Row {
    let began = now();
    let row = simulate(async {
        let scene = Scene::new(1, &small_machines(machines), roomy(), GuestSpec::default());
        scene.live(hour(&scene, machines)).await
    });
    note(format!(
        "steady with {machines} machines took {:.1} s",
        began.elapsed().as_secs_f64()
    ));
    row
}

async fn hour(scene: &Scene, machines: usize) -> Row {
    let world = &scene.world;
    let replicas = u32::try_from(machines).expect("a small number");
    if replicas > 0 {
        // A pod that takes most of a machine: as many machines as pods, all of them used.
        let workload = Workload::visit("web", replicas, Pods::of("1", "2Gi"), Span::minutes(600));
        tokio::time::sleep(Duration::from_secs(45)).await;
        let playing = workload.play(world.kube.router());
        tokio::select! {
            played = playing => panic!("the workload ended early: {played:?}"),
            () = scene.until("all machines are up", ARRIVAL, |_| scene.nodes_in_service() == machines) => {}
        }
    }
    tokio::time::sleep(SETTLING).await;
    let (calls, changes, nodes) = (
        world.pve.request_count(),
        world.pve.changes().len(),
        nodes(scene),
    );
    let turns = turn_number(scene);
    tokio::time::sleep(HOUR).await;
    let new = usize::try_from(world.pve.request_count() - calls).expect("a small number");
    let mut seen = world.pve.requests();
    let seen = seen.split_off(seen.len() - new);
    for (kind, count) in calls_by_kind(&seen) {
        note(format!("{count:5}  {kind}"));
    }
    let minutes = HOUR.as_secs() / 60;
    let mut busiest = 0;
    for minute in 0..minutes {
        let first =
            seen.first().map_or(0, |call| call.at.0) + i64::try_from(minute).unwrap_or(0) * 60_000;
        let within =
            |call: &&pve_autoscaler::sim::pve::Seen| (first..first + 60_000).contains(&call.at.0);
        busiest = busiest.max(seen.iter().filter(within).count());
    }
    let changing = seen.iter().filter(|call| call.changing).count();
    let changed_nodes = usize::from(self::nodes(scene) != nodes);
    Row::new("steady", machines)
        .field("seconds", HOUR.as_secs())
        .field("pve_calls", seen.len())
        .field("pve_calls_a_minute", ratio(seen.len(), minutes))
        .field("busiest_minute", busiest)
        .field("vm_changes", world.pve.changes().len() - changes + changing)
        .field("node_changes", changed_nodes)
        .field("turns", turn_number(scene) - turns)
        .at_most("pve_calls_a_minute", CALLS_A_MINUTE)
        .exactly("vm_changes", 0)
        .exactly("node_changes", 0)
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
fn ratio(calls: usize, minutes: u64) -> f64 {
    calls as f64 / minutes as f64
}

fn turn_number(scene: &Scene) -> u64 {
    let turn = scene.world.turns.borrow();
    turn.as_ref().map_or(0, |turn| turn.number)
}

/// What of the nodes is not the kubelet's to change: identity, labels, annotations, spec.
fn nodes(scene: &Scene) -> Vec<(serde_json::Value, serde_json::Value)> {
    let nodes = scene.world.kube.objects("v1", "Node");
    nodes
        .iter()
        .map(|node| {
            let metadata = serde_json::json!([
                node["metadata"]["uid"],
                node["metadata"]["labels"],
                node["metadata"]["annotations"],
            ]);
            (metadata, node["spec"].clone())
        })
        .collect()
}
