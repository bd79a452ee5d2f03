//! What a world that was found wrong says of itself, for whoever reads the findings: the daemon's last turn, what was
//! asked of PVE and changed there, and the VMs that are left.
//!
//! With `PVE_AUTOSCALER_SAY=1` the daemon's log goes to standard error as well, by simulated time, and in the end what
//! was asked and changed in Kubernetes.

use pve_autoscaler::clock::Clock;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::common::Scene;

const SAY: &str = "PVE_AUTOSCALER_SAY";

/// All of it, a line each.
pub(crate) fn of(scene: &Scene) -> Vec<String> {
    let mut said = last_words(scene);
    said.extend(history(scene));
    if std::env::var_os(SAY).is_some() {
        eprintln!("{}", scene.world.kube.trace().1.join("\n"));
    }
    said
}

/// The time of the simulation.
struct Simulated(Clock);

impl FormatTime for Simulated {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "{}", self.0.now())
    }
}

/// Writes what the daemon logs, where somebody wants to read it, until the guard is dropped.
pub(crate) fn listen(scene: &Scene) -> Option<DefaultGuard> {
    std::env::var_os(SAY)?;
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_timer(Simulated(scene.world.clock));
    Some(tracing::subscriber::set_default(subscriber.finish()))
}

/// What was done to machines, and how those that are left look, for whoever reads the findings.
fn history(scene: &Scene) -> Vec<String> {
    let pve = &scene.world.pve;
    let changes = pve.changes().into_iter();
    let mut said: Vec<String> = changes
        .map(|change| {
            let (at, by, what) = (change.at, change.by, change.what);
            format!(
                "history: {at}: {by}: {what} VM {} ({})",
                change.vmid, change.name
            )
        })
        .collect();
    let asked = pve.requests().into_iter().filter(|seen| seen.changing);
    said.extend(asked.map(|seen| {
        let late = if seen.late { ", late" } else { "" };
        let (at, method, path, status) = (seen.at, seen.method, seen.path, seen.status);
        format!("history: {at}: {method} {path}: {status:?}{late}")
    }));
    said.sort();
    let left = pve.vms().into_iter().filter(|vm| !vm.template);
    said.extend(left.map(|vm| format!("left: {vm:?}")));
    said
}

/// What the daemon said of it all in the end, for whoever reads the findings.
fn last_words(scene: &Scene) -> Vec<String> {
    let Some(turn) = scene.world.turns.borrow().clone() else {
        return vec!["the daemon never had a turn".to_owned()];
    };
    let report = &turn.decision.report;
    let mut said = vec![format!(
        "the last turn, {}, was at {}",
        turn.number, turn.at
    )];
    said.extend(report.holds.iter().map(|hold| format!("hold: {hold:?}")));
    said.extend(
        report
            .warnings
            .iter()
            .map(|text| format!("warning: {text}")),
    );
    let machines = turn.snapshot.machines.iter();
    said.extend(machines.map(|(name, machine)| {
        let (vm, failure) = (&machine.vm, &machine.failure);
        format!("machine {name} at {:?}: {vm:?}, {failure:?}", machine.step)
    }));
    said.extend(
        report
            .nodes
            .iter()
            .map(|(name, verdict)| format!("node {name}: {verdict:?}")),
    );
    said.extend(
        report
            .pools
            .iter()
            .map(|(name, state)| format!("pool {name}: {state:?}")),
    );
    said.extend(
        turn.decision
            .plan
            .iter()
            .map(|action| format!("planned: {action:?}")),
    );
    said
}
