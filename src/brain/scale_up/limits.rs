//! What may be made at most: every limit is counted through one decision, so that it holds inside
//! one batch too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::host_choice::HostStanding;
use model::hosts::HostStrategy;
use model::policy::{InstanceType, PoolPolicy, Totals, VOLUMES_VMID};
use model::reasons::{Limit, Refused};

use crate::decision::addresses::{AddressBook, FreeAddresses};
use crate::decision::turn::DecisionBuilder;
use crate::index::{HostIndex, IndexVec, PoolIndex, PoolRegionIndex};
use crate::lifecycle::backoff;
use crate::observed::view::{MachinePhase, MachineView};
use crate::scale_up::hosts::{self, HostCapacity, HostDemand, HostRank, MachineSize};
use crate::scale_up::machine_disks;
use crate::scale_up::numbers::{NumberDemands, NumberRooms};
use crate::scale_up::storages::StorageAnswers;
use crate::scale_up::stores::{StoreIndexes, Stores};
use crate::simulation::offer::{Choice, ChoiceList, Offer};
use crate::simulation::places;

/// What is taken, machines planned in this decision included.
#[derive(Debug, Default)]
pub(crate) struct LimitTracker {
    pools: IndexVec<PoolIndex, PoolUse>,
    /// What pools that are not configured have.
    others: PoolUse,
    totals: Totals,
    nodes: u64,
    in_flight: u64,
    hosts: IndexVec<HostIndex, HostCapacity>,
    /// What each pool asks of hosts in each of its regions.
    demands: IndexVec<PoolRegionIndex, HostDemand>,
    /// By region and by name.
    host_indexes: BTreeMap<Arc<str>, BTreeMap<Arc<str>, HostIndex>>,
    stores: Stores,
    store_indexes: StoreIndexes,
    vmids: BTreeMap<Arc<str>, BTreeSet<u32>>,
    addresses: FreeAddresses,
    /// Below this, every VMID of the region's range is taken.
    first_free: BTreeMap<Arc<str>, u32>,
}

/// What limits still allow, in numbers that a search can reckon with.
#[derive(Debug)]
pub(crate) struct RemainingRoom {
    pub(crate) pools: IndexVec<PoolIndex, RemainingMachines>,
    /// Over all pools.
    pub(crate) total: RemainingMachines,
    pub(crate) hosts: IndexVec<HostIndex, HostCapacity>,
    /// What each pool asks of hosts in each of its regions.
    pub(crate) demands: IndexVec<PoolRegionIndex, HostDemand>,
    pub(crate) stores: Stores,
    /// Addresses of networks and VMIDs of regions, which pools may share.
    pub(crate) numbers: NumberRooms,
    pub(crate) number_demands: NumberDemands,
}

/// What may still be made.
#[derive(Clone, Debug, Hash)]
pub(crate) struct RemainingMachines {
    pub(crate) machines: u64,
    /// Cores of all of them, in thousandths.
    pub(crate) cpu_milli: i64,
    /// Memory of all of them.
    pub(crate) memory: i64,
}

/// What a pool has.
#[derive(Clone, Debug, Default)]
struct PoolUse {
    machines: u64,
    /// Machines that this decision makes; `machines` has them too.
    planned: u64,
    cpu_milli: i64,
    memory: i64,
}

impl LimitTracker {
    /// Counts what there is.
    pub(crate) fn of(turn: &DecisionBuilder<'_>) -> LimitTracker {
        let snapshot = turn.view.snapshot;
        let pools = turn.view.policy.pools.len();
        let mut limits = LimitTracker {
            pools: vec![PoolUse::default(); pools].into(),
            totals: turn.view.policy.totals.clone(),
            nodes: snapshot.cluster.nodes.len() as u64,
            store_indexes: StoreIndexes::of(turn),
            ..LimitTracker::default()
        };
        limits.stores = Stores::of(turn, &limits.store_indexes);
        limits.addresses = AddressBook::of(turn).count(turn.view.policy);
        for (name, region) in &snapshot.regions {
            let policy = turn.view.policy.regions.get(name);
            let indexes = (limits.hosts.len()..).map(HostIndex);
            let indexes = region.hosts.keys().cloned().zip(indexes);
            limits.host_indexes.insert(name.clone(), indexes.collect());
            let reserves = hosts::find_reserves(turn.view.policy.pools.values(), name);
            let bounds = |host: &str| policy.map(|policy| policy.bounds_of(host));
            let hosts = region.hosts.iter().map(|(host, seen)| {
                HostCapacity::of(seen, &bounds(host).unwrap_or_default(), &reserves)
            });
            limits.hosts.extend(hosts);
            // Templates are VMs too and are in the list; a copy that is not seen is still taken.
            let copies = region.templates.values().flatten().map(|copy| copy.vmid);
            let taken = region.vms.keys().copied().chain(copies);
            limits.vmids.insert(name.clone(), taken.collect());
            let counting = policy.map(|policy| policy.capacity.clone());
            let counting = counting.unwrap_or_default();
            let machines = turn.view.machines.values();
            let asked = region.vms.values().any(|vm| !vm.running && vm.onboot);
            let ours = machines.filter(|machine| asked && *machine.seen.region == **name);
            let ours: BTreeSet<u32> = ours.map(|machine| machine.seen.mark.vmid).collect();
            for (vmid, vm) in &region.vms {
                let seen = region.hosts.get(&vm.host);
                let size = hosts::promised(vm, seen, &counting, ours.contains(vmid));
                if let Some((host, size)) = limits.host(name, &vm.host).zip(size) {
                    host.promise(size);
                }
            }
        }
        limits.demands = limits.demands(turn);
        limits.note_failures(turn);
        for machine in turn.view.machines.values() {
            limits.count(machine);
            // One whose host is off does not go on, and nothing waits for it.
            let under_way = matches!(machine.phase, MachinePhase::Coming | MachinePhase::Overdue);
            limits.in_flight += u64::from(under_way && !places::host_is_off(turn, machine));
        }
        for unread in crate::decision::unread::find(snapshot, turn.view.policy) {
            limits.count_unread(&unread);
            let node = snapshot.cluster.nodes.contains_key(&unread.vm.name);
            limits.nodes += u64::from(!node);
        }
        for (pool, node) in crate::decision::unread::nodes(turn) {
            let index = turn.view.policy.pools.keys().position(|name| name == pool);
            if let Some(of) = index.map(|index| &mut limits.pools[PoolIndex(index)]) {
                of.machines += 1;
                of.cpu_milli = of.cpu_milli.saturating_add(node.capacity.cpu_milli);
                of.memory = of.memory.saturating_add(node.capacity.memory);
            }
        }
        limits
    }

    /// What is held against hosts.
    fn note_failures(&mut self, turn: &DecisionBuilder<'_>) {
        for (index, (name, pool)) in turn.view.policy.pools.iter().enumerate() {
            if !turn.memory.host_backoff.contains_key(name) {
                continue;
            }
            for there in pool.everywhere() {
                let seen = turn.view.snapshot.regions.get(&there.region);
                for host in seen.into_iter().flat_map(|seen| seen.hosts.keys()) {
                    let failed = backoff::find_host_failure(turn, name, (&there.region, host));
                    if let Some((of, failed)) = self.host(&there.region, host).zip(failed) {
                        of.note_failure(PoolIndex(index), failed);
                    }
                }
            }
        }
    }

    /// What each pool asks of hosts, in each of its regions.
    fn demands(&self, turn: &DecisionBuilder<'_>) -> IndexVec<PoolRegionIndex, HostDemand> {
        let policy = turn.view.policy;
        let mut demands = IndexVec::default();
        for (index, (name, pool)) in policy.pools.iter().enumerate() {
            let last = turn.memory.last_hosts.get(name);
            let last = last.and_then(|last| self.find_host(pool, last));
            demands.extend(pool.everywhere().map(|there| {
                let region = policy.regions.get(&there.region);
                HostDemand::of((PoolIndex(index), there), region, last, self.hosts.len())
            }));
        }
        demands
    }

    /// A pool's host, by what memory calls it.
    fn find_host(&self, pool: &PoolPolicy, key: &Arc<str>) -> Option<HostIndex> {
        pool.everywhere().find_map(|there| {
            let mut hosts = self.host_indexes.get(&there.region)?.iter();
            let found = hosts.find(|(host, _)| pool.host_key(&there.region, host) == *key);
            found.map(|(_, index)| *index)
        })
    }

    /// One that cannot be read: what PVE lists of it counts.
    fn count_unread(&mut self, unread: &crate::decision::unread::Unread<'_>) {
        let (vm, (_, pool)) = (unread.vm, unread.pool);
        let taken = &mut self.pools[pool];
        taken.machines += 1;
        taken.cpu_milli = taken.cpu_milli.saturating_add(i64::from(vm.cpus) * 1000);
        taken.memory = taken.memory.saturating_add(vm.memory.max(0));
        if let Some(host) = self.host(unread.region, &vm.host) {
            host.count(Some(pool));
        }
    }

    fn count(&mut self, machine: &MachineView<'_>) {
        let seen = machine.seen;
        let cores = machine.instance_type.map_or(0, |of| of.cores);
        let memory = machine.instance_type.map_or(0, |of| of.memory);
        if !self
            .vmids
            .get(&seen.region)
            .is_some_and(|taken| taken.contains(&seen.mark.vmid))
        {
            let taken = self.vmids.entry(seen.region.clone()).or_default();
            taken.insert(seen.mark.vmid);
        }
        if machine.node.is_none() {
            self.nodes += 1;
        }
        let pool = machine.pool_index;
        let taken = match pool {
            Some(pool) => &mut self.pools[pool],
            None => &mut self.others,
        };
        taken.machines += 1;
        taken.cpu_milli = taken.cpu_milli.saturating_add(i64::from(cores) * 1000);
        taken.memory = taken.memory.saturating_add(memory);
        // What runs is in the region's list; what does not run yet will take its type's memory.
        let running = machine.runs();
        let going_up = !matches!(machine.phase, MachinePhase::Leaving | MachinePhase::NoVm);
        let being_made = machine.is_being_made();
        let size = machine
            .instance_type
            .map(MachineSize::of)
            .unwrap_or_default();
        if let Some(host) = self.host(&seen.region, &seen.host) {
            host.count(pool);
            if !running && going_up {
                host.promise(size);
            }
            if being_made && going_up {
                host.expect(size);
            }
        }
        let stores = &mut self.stores;
        let storages = &self.store_indexes.storages;
        machine_disks::each_of(storages, machine, |disks, coming| {
            stores.count(disks, coming);
        });
    }

    /// What a host has and is promised.
    pub(crate) fn capacity(&self, region: &str, host: &str) -> Option<&HostCapacity> {
        let index = *self.host_indexes.get(region)?.get(host)?;
        self.hosts.get(index)
    }

    /// What storages have room for, and which devices are free, with the indexes of both.
    pub(crate) fn stores(&self) -> (&Stores, &StoreIndexes) {
        (&self.stores, &self.store_indexes)
    }

    fn host(&mut self, region: &Arc<str>, host: &Arc<str>) -> Option<&mut HostCapacity> {
        let index = *self.host_indexes.get(region)?.get(host)?;
        self.hosts.get_mut(index)
    }

    /// Whether one more machine of a choice's pool may be made in its region at all, whatever its type and host.
    pub(crate) fn pool_admits(
        &self,
        turn: &DecisionBuilder<'_>,
        choice: &Choice<'_>,
    ) -> Result<(), Refused> {
        let (name, pool) = (choice.pool, choice.policy);
        turn.holds
            .may_grow(&pool.region)
            .map_err(|hold| Refused::Held { hold: hold.clone() })?;
        let PoolUse {
            machines, planned, ..
        } = self.pools[choice.pool_index];
        if machines >= u64::from(pool.max) {
            return Err(Refused::PoolMax {
                machines,
                max: pool.max,
                planned,
            });
        }
        let scale_up = &turn.view.policy.scale_up;
        if scale_up.max_nodes_total > 0 && self.nodes >= u64::from(scale_up.max_nodes_total) {
            return Err(Refused::NodesTotal {
                nodes: self.nodes,
                max: scale_up.max_nodes_total,
            });
        }
        // What passes by itself is said after what does not.
        if let Some(until) = backoff::find_end(turn, name) {
            return Err(Refused::BacksOff { until });
        }
        if self.in_flight >= u64::from(scale_up.max_in_flight) {
            return Err(Refused::InFlight {
                machines: self.in_flight,
                max: scale_up.max_in_flight,
            });
        }
        if self.vmid(turn, &pool.region).is_none() {
            return Err(Refused::NoVmid {
                region: pool.region.clone(),
            });
        }
        self.addresses.admit(pool)
    }

    /// Whether one more machine of a choice's pool can have its addresses.
    pub(crate) fn addresses_admit(&self, choice: &Choice<'_>) -> Result<(), Refused> {
        self.addresses.admit(choice.policy)
    }

    /// Whether the ceilings of a choice's pool leave room for one machine of its type, in the place of
    /// one of another type where `instead` is given.
    pub(crate) fn type_admits(
        &self,
        choice: &Choice<'_>,
        instead: Option<&InstanceType>,
    ) -> Result<(), Refused> {
        let (have, pool): (_, &PoolPolicy) = (&self.pools[choice.pool_index], choice.policy);
        let more = |mine: i64, other: Option<i64>| mine.saturating_sub(other.unwrap_or(0));
        let cores = |instance_type: &InstanceType| i64::from(instance_type.cores) * 1000;
        let cpu = more(cores(choice.instance_type), instead.map(cores));
        let cpu = have.cpu_milli.saturating_add(cpu);
        if let Some(max) = pool.max_cpu_milli.filter(|max| cpu > *max) {
            return Err(Refused::PoolCeiling {
                of: Limit::Cpu,
                would: cpu,
                max,
            });
        }
        let memory = more(choice.instance_type.memory, instead.map(|of| of.memory));
        let memory = have.memory.saturating_add(memory);
        if let Some(max) = pool.max_memory.filter(|max| memory > *max) {
            return Err(Refused::PoolCeiling {
                of: Limit::Memory,
                would: memory,
                max,
            });
        }
        self.totals_admit(
            more(cores(choice.instance_type), instead.map(cores)),
            more(choice.instance_type.memory, instead.map(|of| of.memory)),
        )
    }

    /// The ceilings over the VMs of all pools.
    fn totals_admit(&self, more_cpu: i64, more_memory: i64) -> Result<(), Refused> {
        let all = || self.pools.iter().chain([&self.others]);
        let cpu = all().fold(more_cpu, |sum, used| sum.saturating_add(used.cpu_milli));
        if let Some(max) = self.totals.max_cpu_milli.filter(|max| cpu > *max) {
            return Err(Refused::ClusterCeiling {
                of: Limit::Cpu,
                would: cpu,
                max,
            });
        }
        let memory = all().fold(more_memory, |sum, used| sum.saturating_add(used.memory));
        if let Some(max) = self.totals.max_memory.filter(|max| memory > *max) {
            return Err(Refused::ClusterCeiling {
                of: Limit::Memory,
                would: memory,
                max,
            });
        }
        Ok(())
    }

    /// Whether one more machine of a choice may be made at all, whatever the host.
    pub(crate) fn admits(
        &self,
        turn: &DecisionBuilder<'_>,
        choice: &Choice<'_>,
    ) -> Result<(), Refused> {
        self.pool_admits(turn, choice)?;
        self.type_admits(choice, None)
    }

    /// Whether the host of an offer can take one more machine of the choice.
    pub(crate) fn host_admits(
        &self,
        choice: &Choice<'_>,
        offer: &Offer<'_>,
    ) -> Result<(), Refused> {
        let refused = |refusal| Refused::Host {
            host: offer.host.clone(),
            refusal,
        };
        if let Err(why) = &offer.copy {
            return Err(refused(why.clone()));
        }
        let host = &self.hosts[offer.host_index];
        let has_room = host.admits(
            &self.demands[choice.pool_region],
            MachineSize::of(choice.instance_type),
        );
        has_room.map_err(|full| refused(full.refusal(choice.instance_type)))?;
        let stores_admit = self.stores.admit(&offer.takes);
        stores_admit.map_err(|lack| {
            let indexes = &self.store_indexes;
            refused(self.stores.refusal(&offer.takes, lack, indexes))
        })
    }

    /// Whether the host of an offer can take a planned machine that becomes one of this choice instead of another type.
    pub(crate) fn host_admits_instead(
        &self,
        (choice, offer): (&Choice<'_>, &Offer<'_>),
        (before, from): (&Choice<'_>, &Offer<'_>),
    ) -> bool {
        // The host may have nothing to make one of this type of: a device that the type before does without.
        if offer.copy.is_err() {
            return false;
        }
        let host = &self.hosts[offer.host_index];
        let demand = &self.demands[choice.pool_region];
        let (now, then) = (
            MachineSize::of(before.instance_type),
            MachineSize::of(choice.instance_type),
        );
        host.admits_instead(demand, now, then)
            && self.stores.admit_instead(&offer.takes, &from.takes).is_ok()
    }

    /// The storages of the machines that are planned.
    pub(crate) fn storage_answers(&self) -> StorageAnswers<'_> {
        self.stores.storage_answers()
    }

    /// How good the host of an offer is for one more machine of the choice: the lowest gets it.
    pub(crate) fn host_rank(&self, choice: &Choice<'_>, offer: &Offer<'_>) -> HostRank {
        self.hosts[offer.host_index].rank(&self.demands[choice.pool_region], offer.host_index)
    }

    /// How the host of an offer stands for one more machine of the choice: what the pool's strategy looks at.
    pub(crate) fn standing(&self, choice: &Choice<'_>, offer: &Offer<'_>) -> HostStanding {
        self.hosts[offer.host_index].standing(&self.demands[choice.pool_region])
    }

    /// How the pool of a choice chooses among its hosts.
    pub(crate) fn strategy(&self, choice: &Choice<'_>) -> HostStrategy {
        self.demands[choice.pool_region].strategy()
    }

    /// The next VMID of the region's range that nothing has, after that of the machine planned last: a call to PVE that was
    /// given up, and is carried out minutes later all the same, finds no other machine at its VMID.
    pub(crate) fn vmid(&self, turn: &DecisionBuilder<'_>, region: &Arc<str>) -> Option<u32> {
        let range = turn.view.policy.regions.get(region)?;
        let taken = self.vmids.get(region);
        let (lowest, highest) = (range.vmid_first, range.vmid_last);
        let after = |last: &u32| last.saturating_add(1);
        let first = self.first_free.get(region).copied();
        let first = first.or_else(|| turn.memory.last_vmids.get(region).map(after));
        let first = first.filter(|first| (lowest..=highest).contains(first));
        let first = first.unwrap_or(lowest);
        let free =
            |vmid: &u32| *vmid != VOLUMES_VMID && !taken.is_some_and(|taken| taken.contains(vmid));
        (first..=highest).chain(lowest..first).find(free)
    }

    /// By region: how many VMIDs of its range nothing has.
    fn free_vmids<'p>(&self, turn: &DecisionBuilder<'p>) -> BTreeMap<&'p Arc<str>, u64> {
        let regions = turn.view.policy.regions.iter();
        let free = regions.map(|(name, of)| {
            let taken = self.vmids.get(name).into_iter().flatten();
            let taken = taken.filter(|vmid| **vmid != VOLUMES_VMID);
            let taken = taken.chain([&VOLUMES_VMID]);
            let taken = taken.filter(|vmid| (of.vmid_first..=of.vmid_last).contains(vmid));
            let whole = (u64::from(of.vmid_last) + 1).saturating_sub(u64::from(of.vmid_first));
            (name, whole.saturating_sub(taken.count() as u64))
        });
        free.collect()
    }

    /// Books one machine.
    pub(crate) fn book(&mut self, choice: &Choice<'_>, offer: &Offer<'_>, vmid: u32) {
        self.pools[choice.pool_index].machines += 1;
        self.pools[choice.pool_index].planned += 1;
        self.nodes += 1;
        self.in_flight += 1;
        self.size(choice, choice.instance_type, 1);
        self.hosts[offer.host_index].take(choice.pool_index, MachineSize::of(choice.instance_type));
        self.stores.take(&offer.takes);
        let region = &choice.policy.region;
        self.addresses.take(choice.policy);
        self.vmids.entry(region.clone()).or_default().insert(vmid);
        // It was the next that was free.
        self.first_free
            .insert(region.clone(), vmid.saturating_add(1));
    }

    /// Takes back what [`LimitTracker::book`] booked.
    pub(crate) fn unbook(&mut self, choice: &Choice<'_>, offer: &Offer<'_>, vmid: u32) {
        let pool = &mut self.pools[choice.pool_index];
        pool.machines -= 1;
        pool.planned -= 1;
        self.nodes -= 1;
        self.in_flight -= 1;
        self.size(choice, choice.instance_type, -1);
        self.hosts[offer.host_index].give(choice.pool_index, MachineSize::of(choice.instance_type));
        self.stores.give(&offer.takes);
        self.addresses.give(choice.policy);
        let region = &choice.policy.region;
        if let Some(taken) = self.vmids.get_mut(region) {
            taken.remove(&vmid);
        }
        if let Some(first) = self.first_free.get_mut(region) {
            *first = vmid.min(*first);
        }
    }

    /// What limits still allow.
    pub(crate) fn remaining(
        &self,
        turn: &DecisionBuilder<'_>,
        choices: &ChoiceList<'_>,
    ) -> RemainingRoom {
        let left =
            |max: Option<i64>, used: i64| max.map_or(i64::MAX, |max| max.saturating_sub(used));
        let free_vmids = self.free_vmids(turn);
        let policies = turn.view.policy.pools.values();
        let (numbers, number_demands) =
            NumberRooms::of(turn.view.policy, &self.addresses, &free_vmids);
        let mut regions = number_demands.iter();
        let pools = self.pools.indexed().zip(policies);
        let pools = pools.map(|((pool, used), policy)| {
            let of_pool = regions.by_ref().take(policy.everywhere().count());
            let numbered = numbers.most_of_pool(of_pool);
            let mut places = choices.iter();
            let open = places
                .any(|choice| choice.pool_index == pool && self.pool_admits(turn, choice).is_ok());
            let most = if open { u64::from(policy.max) } else { 0 };
            RemainingMachines {
                machines: most.saturating_sub(used.machines).min(numbered),
                cpu_milli: left(policy.max_cpu_milli, used.cpu_milli),
                memory: left(policy.max_memory, used.memory),
            }
        });
        let pools = pools.collect();
        let all = || self.pools.iter().chain([&self.others]);
        let cpu = all().fold(0, |sum: i64, used| sum.saturating_add(used.cpu_milli));
        let memory = all().fold(0, |sum: i64, used| sum.saturating_add(used.memory));
        let scale_up = &turn.view.policy.scale_up;
        let nodes = match u64::from(scale_up.max_nodes_total) {
            0 => u64::MAX,
            most => most.saturating_sub(self.nodes),
        };
        let in_flight = u64::from(scale_up.max_in_flight).saturating_sub(self.in_flight);
        let numbered = numbers.most(&number_demands);
        RemainingRoom {
            pools,
            total: RemainingMachines {
                machines: nodes.min(in_flight).min(numbered),
                cpu_milli: left(self.totals.max_cpu_milli, cpu),
                memory: left(self.totals.max_memory, memory),
            },
            hosts: self.hosts.clone(),
            demands: self.demands.clone(),
            stores: self.stores.clone(),
            numbers,
            number_demands,
        }
    }

    /// Books that a planned machine becomes one of this choice instead of another type, on the same host.
    pub(crate) fn rebook(
        &mut self,
        (choice, offer): (&Choice<'_>, &Offer<'_>),
        (before, from): (&Choice<'_>, &Offer<'_>),
    ) {
        self.size(choice, before.instance_type, -1);
        self.size(choice, choice.instance_type, 1);
        self.hosts[offer.host_index].resize(
            MachineSize::of(before.instance_type),
            MachineSize::of(choice.instance_type),
        );
        self.stores.give(&from.takes);
        self.stores.take(&offer.takes);
    }

    /// Books that a planned machine of a choice is made on another host.
    pub(crate) fn relocate(&mut self, choice: &Choice<'_>, from: &Offer<'_>, to: &Offer<'_>) {
        let size = MachineSize::of(choice.instance_type);
        self.hosts[from.host_index].give(choice.pool_index, size);
        self.hosts[to.host_index].take(choice.pool_index, size);
        self.stores.give(&from.takes);
        self.stores.take(&to.takes);
    }

    fn size(&mut self, choice: &Choice<'_>, instance_type: &InstanceType, times: i64) {
        let pool = &mut self.pools[choice.pool_index];
        let cpu = i64::from(instance_type.cores) * 1000 * times;
        let memory = instance_type.memory.saturating_mul(times);
        pool.cpu_milli = pool.cpu_milli.saturating_add(cpu);
        pool.memory = pool.memory.saturating_add(memory);
    }
}
