//! Machines that do not have the CPUs for themselves that they were made with: somebody migrated a VM, and its affinity means
//! other CPUs on the new host, or another guest's.

use model::cpus::CpuSet;
use model::reasons::Warning;
use model::region::Region;

use crate::decision::turn::DecisionBuilder;
use crate::observed::view::MachineView;

/// Tells of every machine whose CPUs another guest of its host has too, or that its host does not have for machines.
pub(crate) fn report(turn: &mut DecisionBuilder<'_>) {
    let machines = turn.view.machines.values();
    let found: Vec<Warning> = machines.filter_map(|known| find(turn, known)).collect();
    for warning in found {
        turn.warn(warning);
    }
}

fn find(turn: &DecisionBuilder<'_>, known: &MachineView<'_>) -> Option<Warning> {
    let machine = known.machine;
    if machine.mark.cpus.is_empty() || turn.holds.unread_in(&machine.region).is_some() {
        return None;
    }
    let region = known.region?;
    let vmid = machine.mark.vmid;
    let own = &region.vms.get(&vmid)?.pins.as_ref()?.cpus;
    let policy = turn.view.policy.regions.get(&machine.region)?;
    let topology = policy.topologies.get(&machine.host);
    let lacking = topology.map(|host| own.without(&host.usable()));
    let lacking = lacking.unwrap_or_default();
    let other = another(region, &machine.host, (vmid, own));
    if lacking.is_empty() && other.is_none() {
        return None;
    }
    let (with, shared) = other.unzip();
    Some(Warning::LostCpus {
        machine: known.name.clone(),
        host: machine.host.clone(),
        cpus: own.clone(),
        shared: shared.unwrap_or_default(),
        with,
        lacking,
    })
}

/// The first other guest of the host whose affinity names some of these CPUs, and which.
fn another(region: &Region, host: &str, (vmid, own): (u32, &CpuSet)) -> Option<(u32, CpuSet)> {
    let mut others = region
        .vms
        .iter()
        .filter(|(other, vm)| **other != vmid && *vm.host == *host && !vm.template);
    others.find_map(|(other, vm)| {
        let shared = vm.pins.as_ref()?.cpus.both(own);
        (!shared.is_empty()).then_some((*other, shared))
    })
}
