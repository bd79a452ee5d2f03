//! What may be made at most: every limit is counted through one decision, so that it holds inside
//! one batch too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::policy::PoolPolicy;

use super::offer::{Choice, Offer};
use super::turn::Turn;
use super::view::{Known, Standing};
use super::words;

/// What is taken, machines planned in this decision included.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pools: BTreeMap<Arc<str>, PoolUse>,
    nodes: u64,
    in_flight: u64,
    hosts: BTreeMap<(Arc<str>, Arc<str>), HostUse>,
    vmids: BTreeMap<Arc<str>, BTreeSet<u32>>,
    /// Below this, every VMID of the region's range is taken.
    first_free: BTreeMap<Arc<str>, u32>,
}

/// What a pool has.
#[derive(Debug, Default)]
struct PoolUse {
    machines: u64,
    cpu_milli: i64,
    memory: i64,
}

/// What a host holds.
#[derive(Debug, Default)]
struct HostUse {
    /// Configured memory of what runs and of what is on its way.
    memory: i64,
    /// Machines by pool, for spreading.
    machines: BTreeMap<Arc<str>, u64>,
}

impl Ledger {
    /// Counts what there is.
    pub(super) fn of(turn: &Turn<'_>) -> Ledger {
        let mut ledger = Ledger {
            nodes: turn.view.snapshot.cluster.nodes.len() as u64,
            ..Ledger::default()
        };
        for (name, region) in &turn.view.snapshot.regions {
            let taken = ledger.vmids.entry(name.clone()).or_default();
            taken.extend(region.vms.keys());
            // Templates are VMs too and are in the list; a copy that is not seen is still taken.
            taken.extend(region.templates.values().flatten().map(|copy| copy.vmid));
            for vm in region.vms.values().filter(|vm| vm.running) {
                let host = ledger.host(name, &vm.host);
                host.memory = host.memory.saturating_add(vm.memory.max(0));
            }
        }
        for known in turn.view.machines.values() {
            ledger.count(known);
        }
        ledger
    }

    fn count(&mut self, known: &Known<'_>) {
        let machine = known.machine;
        let cores = known.kind.map_or(0, |kind| kind.cores);
        let memory = known.kind.map_or(0, |kind| kind.memory);
        self.vmids
            .entry(machine.region.clone())
            .or_default()
            .insert(machine.mark.vmid);
        if known.node.is_none() {
            self.nodes += 1;
        }
        if matches!(known.standing, Standing::Coming | Standing::Overdue) {
            self.in_flight += 1;
        }
        let pool_name: Arc<str> = known.pool_name().into();
        let pool = self.pools.entry(pool_name.clone()).or_default();
        pool.machines += 1;
        pool.cpu_milli = pool.cpu_milli.saturating_add(i64::from(cores) * 1000);
        pool.memory = pool.memory.saturating_add(memory);
        // What runs is in the region's list; what does not run yet will take its type's memory.
        let running = machine.vm.as_ref().is_some_and(|vm| vm.running);
        let going_up = !matches!(known.standing, Standing::Leaving | Standing::NoVm);
        let host = self.host(&machine.region, &machine.host);
        *host.machines.entry(pool_name).or_insert(0) += 1;
        if !running && going_up {
            host.memory = host.memory.saturating_add(memory);
        }
    }

    fn host(&mut self, region: &Arc<str>, host: &Arc<str>) -> &mut HostUse {
        self.hosts
            .entry((region.clone(), host.clone()))
            .or_default()
    }

    /// Whether one more machine of a choice may be made at all, whatever the host.
    pub(super) fn admits(&self, turn: &Turn<'_>, choice: &Choice<'_>) -> Result<(), String> {
        let (name, pool) = (choice.pool, choice.policy);
        turn.holds
            .may_grow(&pool.region)
            .map_err(ToString::to_string)?;
        if let Some(until) = super::backoff::until(turn, name) {
            return Err(format!("the pool backs off until {until}"));
        }
        self.pool_admits(name, pool, choice)?;
        let scale_up = &turn.view.policy.scale_up;
        if scale_up.max_nodes_total > 0 && self.nodes >= u64::from(scale_up.max_nodes_total) {
            return Err(format!(
                "the cluster has {} nodes with those on their way, max_nodes_total is {}",
                self.nodes, scale_up.max_nodes_total
            ));
        }
        if self.in_flight >= u64::from(scale_up.max_in_flight) {
            return Err(format!(
                "{} machines are being made, max_in_flight is {}",
                self.in_flight, scale_up.max_in_flight
            ));
        }
        if self.vmid(turn, &pool.region).is_none() {
            return Err(format!(
                "the region {} has no free VMID in its range",
                pool.region
            ));
        }
        Ok(())
    }

    fn pool_admits(
        &self,
        name: &str,
        pool: &PoolPolicy,
        choice: &Choice<'_>,
    ) -> Result<(), String> {
        let have = self.pools.get(name);
        let machines = have.map_or(0, |have| have.machines);
        if machines >= u64::from(pool.max) {
            return Err(format!(
                "pool limit: it has {machines} machines, its max is {}",
                pool.max
            ));
        }
        let cpu = have
            .map_or(0, |have| have.cpu_milli)
            .saturating_add(i64::from(choice.kind.cores) * 1000);
        if let Some(max) = pool.max_cpu_milli.filter(|max| cpu > *max) {
            return Err(format!(
                "pool limit: its VMs would have {} cores, its ceiling is {}",
                words::cores(cpu),
                words::cores(max)
            ));
        }
        let memory = have
            .map_or(0, |have| have.memory)
            .saturating_add(choice.kind.memory);
        if let Some(max) = pool.max_memory.filter(|max| memory > *max) {
            return Err(format!(
                "pool limit: its VMs would have {} of memory, its ceiling is {}",
                words::bytes(memory),
                words::bytes(max)
            ));
        }
        Ok(())
    }

    /// Whether the host of an offer can take one more machine of the choice.
    pub(super) fn host_admits(
        &self,
        turn: &Turn<'_>,
        choice: &Choice<'_>,
        offer: &Offer<'_>,
    ) -> Result<(), String> {
        if let Err(why) = &offer.copy {
            return Err(why.clone());
        }
        let free = self.free_memory(turn, choice, offer);
        match free {
            None => Err(format!(
                "the memory of the host {} is not known",
                offer.host
            )),
            Some(free) if free < choice.kind.memory => Err(format!(
                "the host {} has {} of memory left for VMs, one of this type takes {}",
                offer.host,
                words::bytes(free),
                words::bytes(choice.kind.memory)
            )),
            Some(_) => Ok(()),
        }
    }

    /// Memory of the host that is not promised to any VM; `None` when its size is not known.
    pub(super) fn free_memory(
        &self,
        turn: &Turn<'_>,
        choice: &Choice<'_>,
        offer: &Offer<'_>,
    ) -> Option<i64> {
        let region = &choice.policy.region;
        let host = turn
            .view
            .snapshot
            .regions
            .get(region)?
            .hosts
            .get(offer.host)?;
        if host.memory <= 0 {
            return None;
        }
        let reserve = turn
            .view
            .policy
            .regions
            .get(region)
            .map_or(0, |region| region.host_memory_reserve);
        let used = self
            .hosts
            .get(&(region.clone(), offer.host.clone()))
            .map_or(0, |used| used.memory);
        Some(
            host.memory
                .saturating_sub(reserve.max(0))
                .saturating_sub(used),
        )
    }

    /// How many machines of a pool are on a host.
    pub(super) fn on_host(&self, choice: &Choice<'_>, offer: &Offer<'_>) -> u64 {
        self.hosts
            .get(&(choice.policy.region.clone(), offer.host.clone()))
            .and_then(|host| host.machines.get(choice.pool))
            .copied()
            .unwrap_or(0)
    }

    /// The lowest VMID of the region's range that nothing has.
    pub(super) fn vmid(&self, turn: &Turn<'_>, region: &Arc<str>) -> Option<u32> {
        let range = turn.view.policy.regions.get(region)?;
        let taken = self.vmids.get(region);
        let first = self.first_free.get(region).copied();
        let first = first.map_or(range.vmid_first, |first| first.max(range.vmid_first));
        (first..=range.vmid_last).find(|vmid| !taken.is_some_and(|taken| taken.contains(vmid)))
    }

    /// Books one machine.
    pub(super) fn book(&mut self, choice: &Choice<'_>, offer: &Offer<'_>, vmid: u32) {
        let pool = self.pools.entry(choice.pool.clone()).or_default();
        pool.machines += 1;
        pool.cpu_milli = pool
            .cpu_milli
            .saturating_add(i64::from(choice.kind.cores) * 1000);
        pool.memory = pool.memory.saturating_add(choice.kind.memory);
        self.nodes += 1;
        self.in_flight += 1;
        let region = &choice.policy.region;
        let host = self.host(region, offer.host);
        host.memory = host.memory.saturating_add(choice.kind.memory);
        *host.machines.entry(choice.pool.clone()).or_insert(0) += 1;
        self.vmids.entry(region.clone()).or_default().insert(vmid);
        // It was the lowest that was free.
        self.first_free
            .insert(region.clone(), vmid.saturating_add(1));
    }
}
