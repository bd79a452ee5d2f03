//! CPUs that machines can get for themselves, by host and NUMA node: who has them, which are free, which are reserved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::action::Kind;
use model::cpus::CpuSet;
use model::policy::PoolPolicy;
use model::reasons::Refused;
use model::region::RegionName;
use model::store_states::OwnCpuState;

use crate::decision::cpu_book::{self, CpuBook};
use crate::decision::cpus::FreeCpus;
use crate::decision::turn::DecisionBuilder;
use crate::observed::view::MachinePhase;

/// Writes the CPUs into the report: of each host that a pool may use whose machines get CPUs of their own, and whose topology the file has.
pub(crate) fn report(turn: &mut DecisionBuilder<'_>, book: &CpuBook) {
    let (snapshot, policy) = (turn.view.snapshot, turn.view.policy);
    let owners = CpuOwners::of(turn);
    for (name, region) in &snapshot.regions {
        if turn.holds.unread_in(name).is_some() {
            continue;
        }
        let pools = policy.pools_in(name).map(|(_, pool)| pool);
        let pools: Vec<&PoolPolicy> = pools.filter(|pool| pool.pinning.cpus).collect();
        for host in region.hosts.keys() {
            let user = pools.iter().find(|pool| pool.may_use(host));
            let Some((pool, free)) = user.zip(book.at(name, host)) else {
                continue;
            };
            let refusal = cpu_book::reachable(turn, pool, host).err();
            let note = refusal.clone().map(|refusal| {
                let host = host.clone();
                Refused::Host { host, refusal }.to_string()
            });
            let mut nodes = owners.nodes((name, host), free);
            for state in nodes.values_mut() {
                state.note.clone_from(&note);
                state.note_details.clone_from(&refusal);
            }
            let of_region = turn.report.own_cpus.entry(name.clone()).or_default();
            of_region.insert(host.clone(), nodes);
        }
    }
}

/// A guest that has CPUs of its host which no other guest may have.
#[derive(Clone, Debug)]
enum CpuOwner {
    /// A machine of ours, by name.
    Machine(Arc<str>),
    /// Another guest, by VMID.
    Guest(u32),
}

/// A region and one of its hosts.
type HostOfRegion = (RegionName, Arc<str>);

/// The CPUs that guests have for themselves, by host; those of machines that are planned now, too.
#[derive(Debug, Default)]
struct CpuOwners(BTreeMap<HostOfRegion, Vec<(CpuOwner, CpuSet)>>);

impl CpuOwners {
    /// Those of a turn's snapshot, and of what it plans.
    fn of(turn: &DecisionBuilder<'_>) -> CpuOwners {
        let mut owners = CpuOwners::default();
        let mut ours: BTreeSet<(&str, u32)> = BTreeSet::new();
        for machine in turn.view.machines.values() {
            let seen = machine.seen;
            ours.insert((&seen.region, seen.mark.vmid));
            let going_up = !matches!(machine.phase, MachinePhase::Leaving | MachinePhase::NoVm);
            if seen.vm.is_none() && !going_up {
                continue;
            }
            let region = turn.view.snapshot.regions.get(&seen.region);
            let vm = region.and_then(|region| region.vms.get(&seen.mark.vmid));
            let pins = vm.and_then(|vm| vm.pins.as_ref());
            let written = pins.map(|pins| pins.cpus.clone()).unwrap_or_default();
            let cpus = seen.mark.cpus.with(&written);
            let at = (seen.region.clone(), seen.host.clone());
            owners.add(at, CpuOwner::Machine(machine.name.clone()), cpus);
        }
        for (name, region) in &turn.view.snapshot.regions {
            let guests = region.vms.iter().filter(|(_, vm)| !vm.template);
            for (vmid, vm) in guests.filter(|(vmid, _)| !ours.contains(&(&**name, **vmid))) {
                let pins = vm.pins.as_ref();
                let cpus = pins.map(|pins| pins.cpus.clone()).unwrap_or_default();
                let at = (name.clone(), vm.host.clone());
                owners.add(at, CpuOwner::Guest(*vmid), cpus);
            }
        }
        for action in &turn.plan {
            if let Kind::Create(spec) = &action.kind {
                let at = (action.target.region.clone(), action.target.host.clone());
                let name = spec.mark.machine.as_str().into();
                owners.add(at, CpuOwner::Machine(name), spec.mark.cpus.clone());
            }
        }
        owners
    }

    fn add(&mut self, at: (RegionName, Arc<str>), owner: CpuOwner, cpus: CpuSet) {
        if !cpus.is_empty() {
            self.0.entry(at).or_default().push((owner, cpus));
        }
    }

    /// The NUMA nodes of a host by number.
    fn nodes(
        &self,
        (region, host): (&RegionName, &Arc<str>),
        free: &FreeCpus,
    ) -> BTreeMap<u16, OwnCpuState> {
        let topology = free.topology();
        let memory = free.counts().memory();
        let owners = self.0.get(&(region.clone(), host.clone()));
        let nodes = topology.numa.iter().zip(memory).zip(0u16..);
        let nodes = nodes.map(|((node, free_memory), number)| {
            let mut state = OwnCpuState {
                cpus: node.cpus.clone(),
                reserved: node.cpus.both(&topology.reserved),
                free: node.cpus.both(free.free()),
                free_memory,
                ..OwnCpuState::default()
            };
            for (owner, cpus) in owners.into_iter().flatten() {
                let here = cpus.both(&node.cpus);
                if here.is_empty() {
                    continue;
                }
                match owner {
                    CpuOwner::Machine(name) => state.machines.insert(name.clone(), here),
                    CpuOwner::Guest(vmid) => state.guests.insert(*vmid, here),
                };
            }
            (number, state)
        });
        nodes.collect()
    }
}
