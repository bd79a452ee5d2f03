//! The CPUs of hosts that machines get for themselves: which are taken.
//!
//! Taken is what the configuration of any VM on the host names, running or off, what the marks and intents of machines reserve, and what
//! this decision's plan does. A guest that names none runs on all of them; who keeps CPUs for those reserves them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::action::Kind;
use model::cpus::CpuSet;
use model::policy::{InstanceType, PoolPolicy};
use model::reasons::HostRefused;
use model::region::{GuestKind, RegionName};
use model::topology::HostTopology;

use crate::decision::cpus::{CpuDemand, FreeCpus};
use crate::decision::turn::DecisionBuilder;
use crate::index::NumaIndex;
use crate::observed::view::{MachinePhase, MachineView};

/// What is free on the hosts of regions whose machines get CPUs of their own, as far as their topology is known.
#[derive(Debug, Default)]
pub(crate) struct CpuBook {
    hosts: BTreeMap<(RegionName, Arc<str>), FreeCpus>,
}

impl CpuBook {
    /// Reads what there is and what is planned.
    pub(crate) fn of(turn: &DecisionBuilder<'_>) -> CpuBook {
        let mut book = CpuBook::default();
        for (name, policy) in &turn.view.policy.regions {
            if turn.view.policy.pins_in(name) || turn.view.policy.pages_in(name) {
                let hosts = policy.topologies.iter();
                let hosts =
                    hosts.map(|(host, of)| ((name.clone(), host.clone()), FreeCpus::of(of)));
                book.hosts.extend(hosts);
            }
        }
        if book.hosts.is_empty() {
            return book;
        }
        for machine in turn.view.machines.values() {
            book.count(turn, machine);
        }
        for (name, region) in &turn.view.snapshot.regions {
            for vm in region.vms.values().filter(|vm| !vm.template) {
                let at = (name.clone(), vm.host.clone());
                let Some((free, pins)) = book.hosts.get_mut(&at).zip(vm.pins.as_ref()) else {
                    continue;
                };
                free.take(&pins.cpus);
                for (node, bytes) in &pins.memory {
                    free.take_memory(NumaIndex(*node), *bytes);
                }
            }
        }
        for action in &turn.plan {
            if let Kind::Create(spec) = &action.kind {
                let instance_type = spec.terms.as_ref().map(|terms| &terms.kind);
                let at = (action.target.region.clone(), action.target.host.clone());
                let pool = turn.view.policy.pools.get(spec.mark.pool.as_str());
                let pool = pool.and_then(|pool| pool.at(&action.target.region));
                book.reserve(&at, (pool, instance_type), &spec.mark.cpus);
            }
        }
        book
    }

    /// Books the CPUs that a machine's mark names, and the memory of its huge pages, as long as it has a VM or will have one.
    fn count(&mut self, turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) {
        let seen = machine.seen;
        let going_up = !matches!(machine.phase, MachinePhase::Leaving | MachinePhase::NoVm);
        let has_pages = machine.pool.is_some_and(|pool| pool.page_nodes() > 0);
        let takes = !seen.mark.cpus.is_empty() || has_pages;
        if !takes || (seen.vm.is_none() && !going_up) {
            return;
        }
        let at = (seen.region.clone(), seen.host.clone());
        let region = turn.view.snapshot.regions.get(&seen.region);
        let vm = region.and_then(|region| region.vms.get(&seen.mark.vmid));
        let pins = vm.and_then(|vm| vm.pins.as_ref());
        if pins.is_some_and(|pins| !pins.memory.is_empty()) {
            // Its memory counts by what is written.
            if let Some(free) = self.hosts.get_mut(&at) {
                free.take(&seen.mark.cpus);
            }
            return;
        }
        self.reserve(&at, (machine.pool, machine.instance_type), &seen.mark.cpus);
    }

    fn reserve(
        &mut self,
        at: &(RegionName, Arc<str>),
        (pool, instance_type): (Option<&PoolPolicy>, Option<&InstanceType>),
        cpus: &CpuSet,
    ) {
        let Some(free) = self.hosts.get_mut(at) else {
            return;
        };
        match pool.zip(instance_type) {
            Some((pool, instance_type)) => {
                free.take_all(demand(pool, instance_type, free.topology()), cpus);
            }
            None => free.take(cpus),
        }
    }

    /// What is free on a host.
    pub(crate) fn at(&self, region: &RegionName, host: &Arc<str>) -> Option<&FreeCpus> {
        self.hosts.get(&(region.clone(), host.clone()))
    }

    /// Takes the CPUs of one machine; none for a pool that gives none, but its huge pages. `None` where there are too few.
    pub(crate) fn give(
        &mut self,
        (pool, instance_type): (&PoolPolicy, &InstanceType),
        host: &Arc<str>,
    ) -> Option<CpuSet> {
        let at = (pool.region.clone(), host.clone());
        let free = self.hosts.get_mut(&at);
        if !pool.pinning.cpus {
            let free = free.filter(|_| pool.page_nodes() > 0);
            if let Some(free) = free {
                let demand = demand(pool, instance_type, free.topology());
                free.counts().place(demand)?;
                free.take_all(demand, &CpuSet::new());
            }
            return Some(CpuSet::new());
        }
        let free = free?;
        let demand = demand(pool, instance_type, free.topology());
        let cpus = free.place(demand)?;
        free.take_all(demand, &cpus);
        Some(cpus)
    }
}

/// How many CPUs of a host a machine of this pool and type takes for itself, and how many bytes of which NUMA nodes for its memory.
fn demand(pool: &PoolPolicy, instance_type: &InstanceType, host: &HostTopology) -> CpuDemand {
    let devices = instance_type.pci.iter();
    let nodes = devices.filter_map(|device| host.devices.get(&device.mapping));
    let bits = nodes.flatten().filter_map(|node| u32::try_from(*node).ok());
    CpuDemand {
        cpus: instance_type.cores,
        memory: instance_type.memory,
        page_mib: pool.pinning.page_mib(),
        near: bits.fold(0, |near, node| near | 1u64.checked_shl(node).unwrap_or(0)),
        page_nodes: pool.page_nodes(),
    }
}

/// The CPUs and the memory of NUMA nodes that a machine would take on a host. `None` where its pool has neither `cpu_pinning` nor huge
/// pages, or the file has no topology of the host.
pub(crate) fn demand_at(
    turn: &DecisionBuilder<'_>,
    (pool, instance_type): (&PoolPolicy, &InstanceType),
    host: &Arc<str>,
) -> Option<CpuDemand> {
    let takes = pool.pinning.cpus || pool.page_nodes() > 0;
    let topology = topology(turn, pool, host).filter(|_| takes)?;
    Some(demand(pool, instance_type, topology))
}

/// What the file says of a host's CPUs.
fn topology<'t>(
    turn: &DecisionBuilder<'t>,
    pool: &PoolPolicy,
    host: &Arc<str>,
) -> Option<&'t HostTopology> {
    let policy = turn.view.policy.regions.get(&pool.region)?;
    policy.topologies.get(host).map(|topology| &**topology)
}

/// Why a host has no CPUs for a machine alone, however many are taken.
pub(crate) fn reachable(
    turn: &DecisionBuilder<'_>,
    pool: &PoolPolicy,
    host: &Arc<str>,
) -> Result<(), HostRefused> {
    if !pool.pinning.cpus {
        return Ok(());
    }
    let topology = topology(turn, pool, host).ok_or(HostRefused::NoTopology)?;
    let Some(region) = turn.view.snapshot.regions.get(&pool.region) else {
        return Ok(());
    };
    let (listed, has) = (
        topology.cpus().len(),
        region.hosts.get(host).map_or(0, |host| host.cpus),
    );
    if listed != has as usize {
        return Err(HostRefused::OtherTopology { listed, has });
    }
    let seen = turn.view.machines.values().map(|machine| machine.seen);
    // An intent alone does not say what a VM with its VMID has.
    let ours = seen.filter(|seen| seen.region == pool.region && seen.vm.is_some());
    let ours: BTreeSet<u32> = ours.map(|machine| machine.mark.vmid).collect();
    let guests = region.vms.iter().filter(|(vmid, vm)| {
        let may_have = vm.kind == GuestKind::Qemu && !vm.template && !ours.contains(vmid);
        *vm.host == **host && may_have
    });
    let mut unread = guests.filter(|(_, vm)| vm.pins.is_none());
    match unread.next() {
        Some((guest, _)) => Err(HostRefused::UnreadCpus {
            guest: *guest,
            guests: 1 + unread.count(),
        }),
        None => Ok(()),
    }
}
