//! Which vCPU of a machine is on which of its CPUs. Pure.

use std::collections::BTreeMap;

use super::guest::PinnedGuest;
use crate::model::cpus::CpuSet;
use crate::model::topology::HostTopology;

/// A CPU for each vCPU, in the guest's order: what is one NUMA node in the guest is on that of the host that its memory is on, and
/// neighbours are neighbours, threads of one core next to each other.
pub(super) fn of(
    guest: &PinnedGuest,
    topology: &HostTopology,
) -> Result<BTreeMap<usize, u16>, String> {
    let (vcpus, cpus) = (guest.vcpus, guest.cpus.len());
    if vcpus != cpus {
        return Err(format!(
            "it has {vcpus} vCPUs and an affinity of {cpus} CPUs, so that none has one of its own: they stay where PVE put them"
        ));
    }
    if guest.nodes.is_empty() {
        let order = in_order(&guest.cpus, topology);
        return Ok((0..).zip(order).collect());
    }
    let mut places = BTreeMap::new();
    let mut taken: BTreeMap<usize, std::vec::IntoIter<u16>> = BTreeMap::new();
    for (first, last, number) in &guest.nodes {
        let free = taken.entry(*number).or_insert_with(|| {
            let node = topology.numa.get(*number).map(|node| node.cpus.clone());
            in_order(&guest.cpus.both(&node.unwrap_or_default()), topology).into_iter()
        });
        for vcpu in *first..=*last {
            let Some(cpu) = free.next() else {
                return Err(format!(
                    "its affinity {} has too few CPUs in NUMA node {number} of the host for the vCPUs that it has there (numaN)",
                    guest.cpus
                ));
            };
            places.insert(vcpu, cpu);
        }
    }
    if places.len() != vcpus || places.keys().next_back() != Some(&(vcpus - 1)) {
        return Err(format!("its numaN name {} vCPUs of {vcpus}", places.len()));
    }
    Ok(places)
}

/// CPUs by socket, NUMA node, cache, core and number.
fn in_order(cpus: &CpuSet, topology: &HostTopology) -> Vec<u16> {
    let at = |sets: &[CpuSet], cpu: u16| sets.iter().position(|set| set.contains(cpu));
    let node = |cpu: u16| {
        topology
            .numa
            .iter()
            .position(|node| node.cpus.contains(cpu))
    };
    let mut cpus: Vec<u16> = cpus.iter().collect();
    cpus.sort_by_key(|cpu| {
        (
            at(&topology.sockets, *cpu),
            node(*cpu),
            at(&topology.caches, *cpu),
            at(&topology.cores, *cpu),
            *cpu,
        )
    });
    cpus
}
