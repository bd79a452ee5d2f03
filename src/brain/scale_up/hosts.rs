//! What hosts have, what of it is promised to guests, and which host gets the next machine of a pool.
//!
//! Plain numbers: the limits of one decision and the search for its plan reckon with the same.

use std::sync::Arc;

use model::host_bounds::HostBounds;
use model::host_choice::HostStanding;
use model::hosts::{HostCounting, HostStrategy, LoadKind, share_permille};
use model::policy::{InstanceType, PoolPolicy, RegionPolicy};
use model::reasons::HostRefused;
use model::region::{GuestKind, Host, HostLoad, Vm};
use model::time::Time;

use crate::index::{HostIndex, IndexVec, PoolIndex};
use crate::lifecycle::backoff::FailedThere;

/// What one machine takes of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MachineSize {
    /// Thousandths of a logical CPU.
    pub(crate) cpu_milli: i64,
    /// Bytes.
    pub(crate) memory: i64,
}

impl MachineSize {
    /// What a machine of an instance type takes.
    pub(crate) fn of(instance_type: &InstanceType) -> MachineSize {
        MachineSize {
            cpu_milli: i64::from(instance_type.cores).saturating_mul(1000),
            memory: instance_type.memory.max(0),
        }
    }
}

/// What a new machine of each pool leaves idle on its host in a region; 0 for no such bound.
pub(crate) fn find_reserves<'a>(
    pools: impl Iterator<Item = &'a PoolPolicy>,
    region: &str,
) -> Arc<IndexVec<PoolIndex, MachineSize>> {
    let reserve = |pool: &PoolPolicy| {
        let rules = &pool.at(region).unwrap_or(pool).host_rules;
        MachineSize {
            cpu_milli: rules.min_free_cpu_milli,
            memory: rules.min_free_memory,
        }
    };
    Arc::new(pools.map(reserve).collect())
}

/// What a guest is promised of its host (`None` where that is not known): one that runs, and one that will with its host. A machine
/// of ours that is off is counted where it stands in its life.
pub(crate) fn promised(
    vm: &Vm,
    host: Option<&Host>,
    counting: &HostCounting,
    ours: bool,
) -> Option<MachineSize> {
    let starts = counting.onboot && vm.onboot && !vm.template && !ours;
    let least = vm.memory_min.filter(|_| counting.balloon_minimum);
    let cores = if host.is_some_and(|host| runs_on_all_cpus(vm, host)) {
        0
    } else {
        i64::from(vm.cpus)
    };
    (vm.running || starts).then(|| MachineSize {
        cpu_milli: cores.saturating_mul(1000),
        memory: least.map_or(vm.memory, |least| least.min(vm.memory)).max(0),
    })
}

/// Whether a guest is a container that may run on every CPU of its host, as one without `cores` and `cpulimit` does: PVE shows as
/// many CPUs of it as the host has (pve-container, `PVE::LXC::vmstatus`). Such a container has a weight beside the other guests
/// (`cpuunits`), and no core is kept for it.
fn runs_on_all_cpus(vm: &Vm, host: &Host) -> bool {
    vm.kind == GuestKind::Lxc && host.cpus > 0 && vm.cpus >= host.cpus
}

/// What a host has, what of it is promised, and to how many machines.
#[derive(Clone, Debug, Hash)]
pub(crate) struct HostCapacity {
    /// What is installed; 0 where that is not known.
    installed: MachineSize,
    /// CPU that guests may be promised; `None`: as much as they like.
    most_cpu: Option<i64>,
    /// Memory that guests may be promised.
    most_memory: i64,
    /// Configured size of all guests that run, or will.
    promised: MachineSize,
    /// What nobody uses now; machines that are being made count in full.
    idle: MachineSize,
    /// Guests that run, or will.
    guests: u64,
    /// Machines, by pool.
    pools: IndexVec<PoolIndex, PoolMachines>,
    /// Machines of pools that are not configured.
    others: u64,
    /// What a new machine leaves idle, by pool.
    reserves: Arc<IndexVec<PoolIndex, MachineSize>>,
    /// How loaded it is of late.
    load: HostLoad,
}

/// Machines of one pool on a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct PoolMachines {
    /// Machines that are there and machines that are planned.
    all: u64,
    /// Machines that this decision makes.
    planned: u64,
    /// One failed here and none works since.
    failed: Option<FailedThere>,
}

/// What a pool asks of its hosts.
#[derive(Clone, Debug, Hash)]
pub(crate) struct HostDemand {
    pool: PoolIndex,
    strategy: HostStrategy,
    /// Machines of the pool on one host, at most; `None`: as many as there is room for.
    most: Option<u64>,
    /// Machines of all pools on one host, at most.
    most_of_all: Option<u64>,
    /// The host at which the next round begins, for `round-robin`.
    next: HostIndex,
    /// Number of all hosts.
    hosts: usize,
    /// The most that a host may be loaded, by way.
    loads: [Option<i64>; LoadKind::ALL.len()],
}

/// How good a host is for the next machine: the lowest gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostRank(bool, [i64; 2], HostIndex);

/// Why a host gets no further machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The host's memory is not known.
    UnknownMemory,
    /// How many CPUs the host has is not known, and the pool bounds what is in use of them.
    UnknownCpus,
    /// It has fewer CPUs than the machine, so PVE would not start that.
    Cpus(i64),
    /// A machine of the pool failed on it, so the pool makes none there until then.
    BacksOff(Time),
    /// It has as many machines of the pool as it may.
    MachinesOfPool(u64),
    /// It has as many machines of all pools as it may.
    Machines(u64),
    /// What is left of the memory that guests may be promised.
    Memory(i64),
    /// What is left of the CPU that guests may be promised.
    Cpu(i64),
    /// What is not in use of its memory, and what the machine must leave of it.
    IdleMemory(i64, i64),
    /// What is not in use of its CPU, and what the machine must leave of it.
    IdleCpu(i64, i64),
    /// How loaded it is in some way, if that is known, and the most that it may be.
    Load(LoadKind, Option<i64>, i64),
}

impl HostCapacity {
    /// A host on which nothing is promised yet; `reserves` is what a new machine leaves idle, by pool.
    pub(crate) fn of(
        host: &Host,
        bounds: &HostBounds,
        reserves: &Arc<IndexVec<PoolIndex, MachineSize>>,
    ) -> HostCapacity {
        let cpus = i64::from(host.cpus).saturating_mul(1000);
        let memory = host.memory.max(0);
        HostCapacity {
            installed: MachineSize {
                cpu_milli: cpus,
                memory,
            },
            most_cpu: bounds.most_cpu_milli(cpus),
            most_memory: bounds.most_memory(memory),
            promised: MachineSize::default(),
            idle: MachineSize {
                cpu_milli: cpus.saturating_sub(host.cpu_used_milli),
                memory: memory.saturating_sub(host.memory_used),
            },
            guests: 0,
            pools: reserves.with_each(PoolMachines::default()),
            others: 0,
            reserves: reserves.clone(),
            load: host.load.unwrap_or_default(),
        }
    }

    /// Counts a guest that runs, or will.
    pub(crate) fn promise(&mut self, size: MachineSize) {
        let promised = &mut self.promised;
        promised.cpu_milli = promised.cpu_milli.saturating_add(size.cpu_milli);
        promised.memory = promised.memory.saturating_add(size.memory);
        self.guests += 1;
    }

    /// Counts a machine that is being made: what it will use is not in use yet.
    pub(crate) fn expect(&mut self, size: MachineSize) {
        self.idle.cpu_milli = self.idle.cpu_milli.saturating_sub(size.cpu_milli);
        self.idle.memory = self.idle.memory.saturating_sub(size.memory);
    }

    /// Counts a machine that is there; without its pool where that is not configured.
    pub(crate) fn count(&mut self, pool: Option<PoolIndex>) {
        match pool {
            Some(pool) => self.pools[pool].all += 1,
            None => self.others += 1,
        }
    }

    /// Notes that a machine of a pool failed here.
    pub(crate) fn note_failure(&mut self, pool: PoolIndex, failed: FailedThere) {
        self.pools[pool].failed = Some(failed);
    }

    /// Takes what a planned machine of a pool needs.
    pub(crate) fn take(&mut self, pool: PoolIndex, size: MachineSize) {
        self.change(size, 1);
        self.guests = self.guests.wrapping_add(1);
        let machines = &mut self.pools[pool];
        machines.all = machines.all.wrapping_add(1);
        machines.planned = machines.planned.wrapping_add(1);
    }

    /// Gives back what [`HostCapacity::take`] took.
    pub(crate) fn give(&mut self, pool: PoolIndex, size: MachineSize) {
        self.change(size, -1);
        self.guests = self.guests.wrapping_sub(1);
        let machines = &mut self.pools[pool];
        machines.all = machines.all.wrapping_sub(1);
        machines.planned = machines.planned.wrapping_sub(1);
    }

    /// A planned machine gets another size.
    pub(crate) fn resize(&mut self, from: MachineSize, to: MachineSize) {
        self.change(from, -1);
        self.change(to, 1);
    }

    // What is configured is no reason to panic, however absurd, and what is taken can be given back.
    fn change(&mut self, size: MachineSize, times: i64) {
        let (cpu, memory) = (
            size.cpu_milli.wrapping_mul(times),
            size.memory.wrapping_mul(times),
        );
        self.promised.cpu_milli = self.promised.cpu_milli.wrapping_add(cpu);
        self.promised.memory = self.promised.memory.wrapping_add(memory);
        self.idle.cpu_milli = self.idle.cpu_milli.wrapping_sub(cpu);
        self.idle.memory = self.idle.memory.wrapping_sub(memory);
    }

    /// What guests are promised.
    pub(crate) fn promised(&self) -> MachineSize {
        self.promised
    }

    /// What guests may be promised, all of them together; CPU only where that is bounded.
    pub(crate) fn most(&self) -> (Option<i64>, i64) {
        (self.most_cpu, self.most_memory)
    }

    /// What guests may still be promised.
    pub(crate) fn left(&self) -> MachineSize {
        MachineSize {
            cpu_milli: self.free_cpu(),
            memory: self.free_memory(),
        }
    }

    /// Machines of all pools.
    pub(crate) fn machines(&self) -> u64 {
        self.pools.iter().map(|pool| pool.all).sum::<u64>() + self.others
    }

    /// Memory that guests may still be promised.
    fn free_memory(&self) -> i64 {
        self.most_memory.saturating_sub(self.promised.memory)
    }

    /// CPU that guests may still be promised; where that is not bounded, what the host has beyond its guests' cores.
    fn free_cpu(&self) -> i64 {
        let most = self.most_cpu.unwrap_or(self.installed.cpu_milli);
        most.saturating_sub(self.promised.cpu_milli)
    }

    /// Whether one more machine of this size may be made here for a pool.
    pub(crate) fn admits(&self, demand: &HostDemand, size: MachineSize) -> Result<(), Full> {
        let PoolMachines {
            all: has, failed, ..
        } = self.pools[demand.pool];
        if let Some(FailedThere::Until(until)) = failed {
            return Err(Full::BacksOff(until));
        }
        if demand.most.is_some_and(|most| has >= most) {
            return Err(Full::MachinesOfPool(has));
        }
        if let Some(most) = demand.most_of_all {
            let all = self.machines();
            if all >= most {
                return Err(Full::Machines(all));
            }
        }
        self.bears(demand)?;
        self.has_room_for(demand, size, MachineSize::default())
    }

    /// Whether it is not loaded too much for one more machine of a pool. What is not known may be too much.
    fn bears(&self, demand: &HostDemand) -> Result<(), Full> {
        for (kind, most) in LoadKind::ALL.into_iter().zip(demand.loads) {
            let is = self.load.of(kind);
            if let Some(most) = most.filter(|most| is.is_none_or(|is| is > *most)) {
                return Err(Full::Load(kind, is, most));
            }
        }
        Ok(())
    }

    /// Whether a planned machine here may get another size.
    pub(crate) fn admits_instead(
        &self,
        demand: &HostDemand,
        from: MachineSize,
        to: MachineSize,
    ) -> bool {
        self.has_room_for(demand, to, from).is_ok()
    }

    /// What a new machine of a pool leaves idle. Machines that are planned together leave what any of their pools asks.
    fn reserve_of(&self, demand: &HostDemand) -> MachineSize {
        let mut reserve = self.reserves[demand.pool];
        for (other, pool) in self.reserves.iter().zip(&self.pools) {
            if pool.planned > 0 {
                reserve.cpu_milli = reserve.cpu_milli.max(other.cpu_milli);
                reserve.memory = reserve.memory.max(other.memory);
            }
        }
        reserve
    }

    /// Whether there is room for `size`, once `given` is given back.
    fn has_room_for(
        &self,
        demand: &HostDemand,
        size: MachineSize,
        given: MachineSize,
    ) -> Result<(), Full> {
        let cpus = self.installed.cpu_milli;
        if self.installed.memory <= 0 {
            return Err(Full::UnknownMemory);
        }
        if cpus > 0 && size.cpu_milli > cpus {
            return Err(Full::Cpus(cpus));
        }
        let memory = self.free_memory().saturating_add(given.memory);
        if memory < size.memory {
            return Err(Full::Memory(memory));
        }
        let cpu = self.free_cpu().saturating_add(given.cpu_milli);
        if self.most_cpu.is_some() && cpu < size.cpu_milli {
            return Err(Full::Cpu(cpu));
        }
        let reserve = self.reserve_of(demand);
        let idle_memory = self.idle.memory.saturating_add(given.memory);
        if reserve.memory > 0 && idle_memory.saturating_sub(size.memory) < reserve.memory {
            return Err(Full::IdleMemory(idle_memory, reserve.memory));
        }
        if reserve.cpu_milli > 0 && cpus <= 0 {
            return Err(Full::UnknownCpus);
        }
        let idle_cpu = self.idle.cpu_milli.saturating_add(given.cpu_milli);
        if reserve.cpu_milli > 0 && idle_cpu.saturating_sub(size.cpu_milli) < reserve.cpu_milli {
            return Err(Full::IdleCpu(idle_cpu, reserve.cpu_milli));
        }
        Ok(())
    }

    /// This host's numbers that a strategy compares when it looks for a host for a pool's next machine.
    pub(crate) fn standing(&self, demand: &HostDemand) -> HostStanding {
        let of_pool = &self.pools[demand.pool];
        HostStanding {
            machines: of_pool.all,
            planned: of_pool.planned,
            guests: self.guests,
            free_memory: self.free_memory(),
            memory: self.installed.memory,
            free_cpu_milli: self.free_cpu(),
            cpu_milli: self.installed.cpu_milli,
            failed: of_pool.failed.is_some(),
        }
    }

    /// How good this host, which has the index `host`, is for the next machine of a pool.
    pub(crate) fn rank(&self, demand: &HostDemand, host: HostIndex) -> HostRank {
        let (memory, cpu) = (self.free_memory(), self.free_cpu());
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let keys = match demand.strategy {
            HostStrategy::Spread => [number(self.pools[demand.pool].all), -memory],
            HostStrategy::MaxMemory => [-memory, 0],
            HostStrategy::MaxCpu => [-cpu, -memory],
            HostStrategy::Balanced => {
                let memory = share_permille(memory, self.installed.memory);
                let cpu = share_permille(cpu, self.installed.cpu_milli);
                [-(memory.saturating_add(cpu)), 0]
            }
            HostStrategy::RoundRobin => {
                let hosts = demand.hosts.max(1);
                let distance = (host.0 + hosts - demand.next.0 % hosts) % hosts;
                [
                    number(self.pools[demand.pool].planned),
                    number(distance as u64),
                ]
            }
            HostStrategy::Pack => [i64::from(self.guests == 0), memory],
        };
        // Another host may do better, and no host is given up for good.
        let failed = self.pools[demand.pool].failed.is_some();
        HostRank(failed, keys, host)
    }
}

impl HostDemand {
    /// How the pool chooses among its hosts.
    pub(crate) fn strategy(&self) -> HostStrategy {
        self.strategy
    }

    /// What a pool asks of its hosts; `last` is the host that its last machine was planned on.
    pub(crate) fn of(
        (pool, policy): (PoolIndex, &PoolPolicy),
        region: Option<&RegionPolicy>,
        last: Option<HostIndex>,
        hosts: usize,
    ) -> HostDemand {
        let rules = &policy.host_rules;
        let most_of_all = region.and_then(|region| region.capacity.max_per_host);
        HostDemand {
            pool,
            strategy: rules.strategy,
            most: rules.max_per_host.map(u64::from),
            most_of_all: most_of_all.map(u64::from),
            next: last.map_or(HostIndex(0), |last| HostIndex(last.0 + 1)),
            hosts,
            loads: LoadKind::ALL.map(|kind| rules.most(kind)),
        }
    }
}

impl Full {
    /// Why a host gets no further machine of a type.
    pub(crate) fn refusal(self, instance_type: &InstanceType) -> HostRefused {
        let MachineSize { memory, cpu_milli } = MachineSize::of(instance_type);
        match self {
            Full::UnknownMemory => HostRefused::UnknownMemory,
            Full::UnknownCpus => HostRefused::UnknownCpus,
            Full::Cpus(has) => HostRefused::FewerCpus {
                has,
                asks: cpu_milli,
            },
            Full::BacksOff(until) => HostRefused::BacksOff { until },
            Full::MachinesOfPool(machines) => HostRefused::PoolMax { machines },
            Full::Machines(machines) => HostRefused::RegionMax { machines },
            Full::Memory(left) => HostRefused::Memory { left, asks: memory },
            Full::Cpu(left) => HostRefused::Cpu {
                left,
                asks: cpu_milli,
            },
            Full::IdleMemory(idle, keep) => HostRefused::IdleMemory {
                idle,
                asks: memory,
                keep,
            },
            Full::IdleCpu(idle, keep) => HostRefused::IdleCpu {
                idle,
                asks: cpu_milli,
                keep,
            },
            Full::Load(of, is, most) => HostRefused::Load { of, is, most },
        }
    }
}
