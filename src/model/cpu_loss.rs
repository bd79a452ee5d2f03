//! What a machine does not have any more of the CPUs that were given to it alone: its VM was moved to another host, where the same
//! numbers are other CPUs, or another guest has them too.

use std::collections::BTreeSet;

use super::cpus::CpuSet;
use super::policy::Policy;
use super::region::{Machine, Region};
use super::topology::{HostTopology, Pins};

/// How the CPUs of a machine are not its alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuLoss {
    /// The CPUs that its affinity names.
    pub cpus: CpuSet,
    /// The first other guest of its host whose affinity names some of them, and which.
    pub shared: Option<(u32, CpuSet)>,
    /// Those of them that the host does not have, or keeps for itself, by its topology in the file.
    pub lacking: CpuSet,
    /// The file has no topology of the host: nobody knows which CPUs these are there.
    pub untold: bool,
    /// The machine's memory is bound to other NUMA nodes of the host than these CPUs are in.
    pub far: bool,
}

impl CpuLoss {
    /// How the CPUs of a machine are not its alone on the host that its VM is on; `None` where they are, where it has none, and where
    /// its configuration was not read.
    pub fn find(machine: &Machine, region: &Region, policy: &Policy) -> Option<CpuLoss> {
        let vmid = machine.mark.vmid;
        let pins = region.vms.get(&vmid)?.pins.as_ref()?;
        if machine.mark.cpus.is_empty() || pins.cpus.is_empty() {
            return None;
        }
        let topologies = &policy.regions.get(&machine.region)?.topologies;
        let topology = topologies.get(&machine.host);
        let lacking = topology.map(|host| pins.cpus.without(&host.usable()));
        let loss = CpuLoss {
            cpus: pins.cpus.clone(),
            shared: another(region, &machine.host, (vmid, &pins.cpus)),
            lacking: lacking.unwrap_or_default(),
            untold: topology.is_none() && policy.pins_in(&machine.region),
            far: topology.is_some_and(|host| is_far(host, pins)),
        };
        let kept = CpuLoss {
            cpus: pins.cpus.clone(),
            ..CpuLoss::default()
        };
        (loss != kept).then_some(loss)
    }
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

/// Whether memory is bound to other NUMA nodes of a host than the CPUs are in.
fn is_far(host: &HostTopology, pins: &Pins) -> bool {
    let nodes = host.numa.iter().enumerate();
    let near = nodes.filter(|(_, node)| !node.cpus.both(&pins.cpus).is_empty());
    let near: BTreeSet<usize> = near.map(|(at, _)| at).collect();
    !pins.memory.is_empty() && !pins.memory.keys().eq(&near)
}
