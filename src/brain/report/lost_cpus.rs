//! Machines that do not have the CPUs for themselves that they were made with: somebody migrated a VM, and its affinity means
//! other CPUs on the new host, or another guest's.

use model::cpu_loss::CpuLoss;
use model::reasons::Warning;

use crate::decision::turn::DecisionBuilder;
use crate::observed::view::MachineView;

/// Tells of every machine whose CPUs another guest of its host has too, that its host does not have for machines, or of which nobody
/// knows what they are there.
pub(crate) fn report(turn: &mut DecisionBuilder<'_>) {
    let machines = turn.view.machines.values();
    let found: Vec<Warning> = machines.filter_map(|machine| find(turn, machine)).collect();
    for warning in found {
        turn.warn(warning);
    }
}

fn find(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> Option<Warning> {
    let seen = machine.seen;
    if turn.holds.unread_in(&seen.region).is_some() {
        return None;
    }
    let loss = CpuLoss::find(seen, machine.region?, turn.view.policy)?;
    let (with, shared) = loss.shared.unzip();
    Some(Warning::LostCpus {
        machine: machine.name.clone(),
        host: seen.host.clone(),
        cpus: loss.cpus,
        shared: shared.unwrap_or_default(),
        with,
        lacking: loss.lacking,
        untold: loss.untold,
        far: loss.far,
    })
}
