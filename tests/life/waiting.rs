//! A daemon that lives while a test looks and acts: until something holds, and with a judge.

use std::time::Duration;

use pve_autoscaler::sim::workload::Workload;

use crate::common::Scene;

/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_secs(5);
/// No test lives longer.
const LONGEST: Duration = Duration::from_hours(3);

/// Looks every few seconds until something holds, for so many minutes at most; else it panics with what the daemon says of everything.
pub(crate) async fn until(scene: &Scene, what: &str, minutes: u32, holds: impl Fn() -> bool) {
    for _ in 0..minutes * 12 {
        if holds() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    let report = &turn.decision.report;
    let machines: Vec<_> = turn.snapshot.machines.keys().collect();
    panic!(
        "not within {minutes} minutes: {what}: {machines:?} {:#?} {:#?} {:#?} {:#?}",
        report.nodes, report.pods, report.holds, report.warnings,
    );
}

/// The daemon lives while somebody does something; the judge finds nothing wrong with either.
pub(crate) async fn while_it_lives(
    scene: &Scene,
    workload: Workload,
    does: impl Future<Output = ()>,
) {
    tokio::select! {
        biased;
        () = does => {}
        () = scene.live(None, 0, workload, LONGEST) => panic!("it took too long"),
    }
    let findings = scene.findings();
    assert!(findings.is_empty(), "{findings:#?}");
}
