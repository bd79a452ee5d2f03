//! Rules for the host of new machines: what it has, what its guests are promised, how many machines it has.

use super::together::PlannedActions;
use super::{Case, CheckResult, CheckRule, ensure, refuse};
use model::host_bounds::HostOverrides;
use model::hosts::HostCounting;
use model::policy::InstanceType;
use model::region::{Busy, GuestKind, Machine, Region, Step};

/// Memory and CPU of one host that its guests are promised, machines that this plan makes there included.
#[derive(Debug, Default)]
struct HostPromises {
    /// Bytes and thousandths of a CPU that are promised.
    memory: i128,
    cpu_milli: i128,
    /// The part of it that nobody uses yet.
    coming_memory: i128,
    coming_cpu_milli: i128,
    machines: usize,
}

impl HostPromises {
    fn promise(&mut self, memory: i128, cpu_milli: i128) {
        self.memory += memory;
        self.cpu_milli += cpu_milli;
    }

    fn expect(&mut self, memory: i128, cpu_milli: i128) {
        self.coming_memory += memory;
        self.coming_cpu_milli += cpu_milli;
    }
}

/// Whether a host has room for all machines that are planned there.
pub(super) fn holds(
    case: Case<'_>,
    region: &str,
    host: &str,
    planned: &PlannedActions<'_>,
) -> CheckResult {
    let Some(seen) = case.snapshot.regions.get(region) else {
        return refuse(
            CheckRule::Region,
            format!("the region {region} was not seen"),
        );
    };
    let here: Vec<_> = planned
        .iter()
        .filter(|(action, _)| *action.target.region == *region && *action.target.host == *host)
        .collect();
    let taken = taken(case, seen, (region, host), planned);
    memory(case, seen, (region, host), &taken)?;
    cpu(case, seen, (region, host), &taken)?;
    let most = counting(case, region).max_per_host;
    let few = most.is_none_or(|most| taken.machines <= most as usize);
    ensure(few, CheckRule::HostCapacity, || {
        format!("{host} would have {} machines", taken.machines)
    })?;
    for (_, mark) in here {
        of_pool(case, seen, (region, host), (&taken, planned), &mark.pool)?;
        let kind = kind(case, &mark.instance_type);
        let cpus = seen.hosts.get(host).map_or(0, |host| host.cpus);
        let starts = cpus == 0 || kind.is_none_or(|kind| kind.cores <= cpus);
        ensure(starts, CheckRule::HostCapacity, || {
            format!(
                "{host} has {cpus} CPUs, fewer than a machine of type {}",
                mark.instance_type
            )
        })?;
    }
    Ok(())
}

pub(super) fn kind<'a>(case: Case<'a>, name: &str) -> Option<&'a InstanceType> {
    case.policy.instance_types.get(name)
}

/// Bytes and thousandths of a CPU of a machine of a type.
fn size(case: Case<'_>, name: &str) -> (i128, i128) {
    kind(case, name).map_or((0, 0), |kind| {
        (i128::from(kind.memory), i128::from(kind.cores) * 1000)
    })
}

pub(super) fn counting(case: Case<'_>, region: &str) -> HostCounting {
    let region = case.policy.regions.get(region);
    region.map_or_else(HostCounting::default, |region| region.capacity.clone())
}

/// The reserves and overcommit ratios that the policy sets for one host (`[region.NAME.host.HOST]`); those that it leaves out are the region's.
fn own(case: Case<'_>, (region, host): (&str, &str)) -> HostOverrides {
    let region = case.policy.regions.get(region);
    let own = region.and_then(|region| region.hosts.get(host));
    own.copied().unwrap_or_default()
}

/// Whether a machine is on its way out, or its VM is gone.
pub(super) fn gone(machine: &Machine) -> bool {
    machine.step.is_some_and(|(step, _)| step > Step::Done)
        || machine.busy == Some(Busy::Down)
        || (machine.vm.is_none() && machine.step.is_some_and(|(step, _)| step > Step::Clone))
}

/// Whether a machine has not come to its end as a node yet; of one without a journal its node tells.
pub(super) fn is_made(machine: &Machine) -> bool {
    let step = machine.step.map(|(step, _)| step);
    !gone(machine) && step.map_or(machine.node.is_none(), |step| step < Step::Done)
}

fn taken(
    case: Case<'_>,
    seen: &Region,
    at: (&str, &str),
    planned: &PlannedActions<'_>,
) -> HostPromises {
    let (region, host) = at;
    let mut taken = HostPromises::default();
    let counting = counting(case, region);
    let marked = |vmid: u32| {
        let mut machines = case.snapshot.machines.values();
        machines.any(|machine| *machine.region == *region && machine.mark.vmid == vmid)
    };
    for (vmid, vm) in seen.vms.iter().filter(|(_, vm)| *vm.host == *host) {
        let will = counting.onboot && vm.onboot && !vm.template && !marked(*vmid);
        if !vm.running && !will {
            continue;
        }
        let memory = match vm.memory_min {
            Some(least) if counting.balloon_minimum => least.min(vm.memory),
            _ => vm.memory,
        };
        // PVE shows a container without a limit with all CPUs of its host: that is a bound, and no promise.
        let cpus = seen.hosts.get(host).map_or(0, |host| host.cpus);
        let cores = match vm.kind {
            GuestKind::Lxc if cpus > 0 && vm.cpus >= cpus => 0,
            GuestKind::Lxc | GuestKind::Qemu => vm.cpus,
        };
        taken.promise(i128::from(memory.max(0)), i128::from(cores) * 1000);
    }
    for machine in case.snapshot.machines.values() {
        if *machine.region != *region || *machine.host != *host {
            continue;
        }
        taken.machines += 1;
        let (memory, cpu) = size(case, &machine.mark.instance_type);
        // One whose VM nobody could read is listed, and was counted above; a VMID has one VM.
        let listed = seen.vms.get(&machine.mark.vmid);
        let runs =
            machine.vm.as_ref().is_some_and(|vm| vm.running) || listed.is_some_and(|vm| vm.running);
        if !runs && !gone(machine) {
            taken.promise(memory, cpu);
        }
        if is_made(machine) {
            taken.expect(memory, cpu);
        }
    }
    for (action, mark) in planned {
        if *action.target.region == *region && *action.target.host == *host {
            let (memory, cpu) = size(case, &mark.instance_type);
            taken.machines += 1;
            taken.promise(memory, cpu);
            taken.expect(memory, cpu);
        }
    }
    taken
}

fn memory(case: Case<'_>, seen: &Region, at: (&str, &str), taken: &HostPromises) -> CheckResult {
    let (region, host) = at;
    let (own, counting) = (own(case, at), counting(case, region));
    let policy = case.policy.regions.get(region);
    let reserve = policy.map_or(0, |policy| policy.host_memory_reserve);
    let reserve = i128::from(own.memory_reserve.unwrap_or(reserve));
    let factor = own.memory_overcommit_permille;
    let factor = i128::from(factor.unwrap_or(counting.memory_overcommit_permille));
    let has = seen
        .hosts
        .get(host)
        .map_or(0, |host| i128::from(host.memory));
    ensure(
        has > 0 && taken.memory + reserve.max(0) <= has * factor / 1000,
        CheckRule::HostMemory,
        || {
            format!(
                "VMs on {host} would have {} bytes of {has}, {reserve} are reserved",
                taken.memory
            )
        },
    )
}

fn cpu(case: Case<'_>, seen: &Region, at: (&str, &str), taken: &HostPromises) -> CheckResult {
    let (region, host) = at;
    let (own, counting) = (own(case, at), counting(case, region));
    let cpus = seen.hosts.get(host).map_or(0, |host| i128::from(host.cpus));
    let factor = own.cpu_overcommit_permille;
    let factor = factor.or(counting.cpu_overcommit_permille);
    let Some(factor) = factor.filter(|_| cpus > 0) else {
        return Ok(());
    };
    let reserve = own.cpu_reserve_milli.unwrap_or(counting.cpu_reserve_milli);
    let most = cpus * i128::from(factor) - i128::from(reserve);
    ensure(taken.cpu_milli <= most, CheckRule::HostCapacity, || {
        format!(
            "VMs on {host} would have {} thousandths of a CPU, {most} are the most",
            taken.cpu_milli
        )
    })
}

/// Whether a pool's own bounds hold on a host with all machines that are planned there: `max_per_host`, `min_free_memory` and
/// `min_free_cores`.
fn of_pool(
    case: Case<'_>,
    seen: &Region,
    at: (&str, &str),
    (taken, planned): (&HostPromises, &PlannedActions<'_>),
    name: &str,
) -> CheckResult {
    let (region, host) = at;
    let Some(pool) = case.policy.pools.get(name) else {
        return refuse(CheckRule::Pool, format!("no pool {name} is configured"));
    };
    let rules = &pool.further.get(region).unwrap_or(pool).host_rules;
    let there = case.snapshot.machines.values().filter(|machine| {
        *machine.region == *region && *machine.host == *host && *machine.mark.pool == *name
    });
    let new = planned.iter().filter(|(action, mark)| {
        *action.target.region == *region && *action.target.host == *host && *mark.pool == *name
    });
    let machines = there.count() + new.count();
    let few = rules
        .max_per_host
        .is_none_or(|most| machines <= most as usize);
    ensure(few, CheckRule::HostCapacity, || {
        format!("{host} would have {machines} machines of the pool {name}")
    })?;
    let Some(seen) = seen.hosts.get(host) else {
        return refuse(CheckRule::Host, format!("the host {host} was not seen"));
    };
    let idle = i128::from(seen.memory) - i128::from(seen.memory_used) - taken.coming_memory;
    let keep = i128::from(rules.min_free_memory);
    ensure(keep <= 0 || idle >= keep, CheckRule::HostCapacity, || {
        format!(
            "{host} would have {idle} bytes of memory that are not in use, the pool {name} keeps {keep}"
        )
    })?;
    let cpus = i128::from(seen.cpus) * 1000;
    let idle_milli = cpus - i128::from(seen.cpu_used_milli) - taken.coming_cpu_milli;
    let keep_milli = i128::from(rules.min_free_cpu_milli);
    ensure(
        keep_milli <= 0 || (cpus > 0 && idle_milli >= keep_milli),
        CheckRule::HostCapacity,
        || {
            format!(
                "{host} would have {idle_milli} thousandths of a CPU that are not in use, the pool {name} keeps {keep_milli}"
            )
        },
    )?;
    let load = seen.load.unwrap_or_default();
    let pressures = [load.cpu_pressure, load.memory_pressure, load.io_pressure];
    let mut ways = vec![
        (load.cpu, rules.max_cpu_load),
        (load.memory, rules.max_memory_load),
    ];
    ways.extend(pressures.map(|pressure| (pressure, rules.max_pressure)));
    let bears = |(is, most): &(Option<i64>, Option<i64>)| {
        most.is_none_or(|most| is.is_some_and(|is| is <= most))
    };
    let newcomer = planned.iter().any(|(action, mark)| {
        *action.target.region == *region && *action.target.host == *host && *mark.pool == *name
    });
    ensure(
        !newcomer || ways.iter().all(bears),
        CheckRule::HostCapacity,
        || format!("{host} is loaded too much for the pool {name}: {load:?}"),
    )
}
