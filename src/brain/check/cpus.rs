//! Rules for the CPUs that new machines get of their host for themselves.

use std::collections::{BTreeMap, BTreeSet};

use super::hosts::{gone, kind};
use super::together::PlannedActions;
use super::{Case, CheckResult, CheckRule, ensure, refuse};
use model::cpus::CpuSet;
use model::mark::Mark;
use model::region::GuestKind;
use model::topology::HostTopology;

/// Whether the CPUs of the planned machines are there, and those of no other guest; and the memory beside them, or for their huge pages.
pub(super) fn are_free(
    case: Case<'_>,
    region: &str,
    host: &str,
    planned: &PlannedActions<'_>,
) -> CheckResult {
    let here = planned
        .iter()
        .filter(|(action, _)| *action.target.region == *region && *action.target.host == *host);
    let marks: Vec<&Mark> = here.map(|(_, mark)| *mark).collect();
    let mut pinned = Vec::new();
    let mut with_pages = Vec::new();
    for mark in marks {
        let pool = case.policy.pools.get(mark.pool.as_str());
        let pool = pool.and_then(|pool| pool.at(region));
        if pool.is_some_and(|pool| pool.pinning.cpus) {
            pinned.push(mark);
        } else {
            ensure(mark.cpus.is_empty(), CheckRule::Cpus, || {
                format!("pool {} gives its machines no CPUs of their own", mark.pool)
            })?;
            if pool.is_some_and(|pool| pool.page_nodes() > 0) {
                with_pages.push(mark);
            }
        }
    }
    let policy = case.policy.regions.get(region);
    if pinned.is_empty() {
        let topology = policy.and_then(|policy| policy.topologies.get(host));
        return match topology.filter(|_| !with_pages.is_empty()) {
            Some(topology) => enough_memory(case, (region, host), topology, with_pages.into_iter()),
            None => Ok(()),
        };
    }
    let Some(topology) = policy.and_then(|policy| policy.topologies.get(host)) else {
        let why = format!("the configuration has no topology of {host}");
        return refuse(CheckRule::Cpus, why);
    };
    let mut taken = taken(case, region, host)?;
    let seen = case.snapshot.regions.get(region);
    let has = seen.and_then(|seen| seen.hosts.get(host));
    let has = has.map_or(0, |shown| shown.cpus as usize);
    let listed: usize = topology.cores.iter().map(CpuSet::len).sum();
    ensure(has == listed, CheckRule::Cpus, || {
        format!("{host} has {has} CPUs, its topology {listed}")
    })?;
    for mark in &pinned {
        alone(case, mark, topology, &mut taken)?;
    }
    let bound = pinned.iter().chain(&with_pages).copied();
    enough_memory(case, (region, host), topology, bound)
}

/// Whether the CPUs of a machine are as many as its type has, and nobody else's.
fn alone(case: Case<'_>, mark: &Mark, topology: &HostTopology, taken: &mut CpuSet) -> CheckResult {
    let cores = kind(case, &mark.instance_type).map_or(0, |kind| kind.cores as usize);
    let machine = &mark.machine;
    ensure(
        mark.cpus.len() == cores && cores > 0,
        CheckRule::Cpus,
        || format!("{machine} has {cores} cores and the CPUs {}", mark.cpus),
    )?;
    for cpu in mark.cpus.iter() {
        let there = topology.cores.iter().any(|core| core.contains(cpu));
        ensure(there, CheckRule::Cpus, || format!("there is no CPU {cpu}"))?;
        ensure(!topology.reserved.contains(cpu), CheckRule::Cpus, || {
            format!("CPU {cpu} is reserved")
        })?;
        ensure(!taken.contains(cpu), CheckRule::Cpus, || {
            format!("CPU {cpu} is another guest's")
        })?;
        taken.insert(cpu);
    }
    Ok(())
}

/// The CPUs that guests and machines have on a host or will have, planned ones aside.
fn taken(case: Case<'_>, region: &str, host: &str) -> Result<CpuSet, super::Refusal> {
    let mut taken = CpuSet::new();
    let mut ours = Vec::new();
    for machine in case.snapshot.machines.values() {
        if *machine.region == *region {
            if machine.vm.is_some() {
                ours.push(machine.mark.vmid);
            }
            if *machine.host == *host && (machine.vm.is_some() || !gone(machine)) {
                taken.extend(machine.mark.cpus.iter());
            }
        }
    }
    let seen = case.snapshot.regions.get(region);
    for (vmid, vm) in seen.into_iter().flat_map(|seen| &seen.vms) {
        if *vm.host != *host || vm.template || vm.kind != GuestKind::Qemu {
            continue;
        }
        match &vm.pins {
            Some(pins) => taken.extend(pins.cpus.iter()),
            None if ours.contains(vmid) => {}
            None => {
                let why = format!("which CPUs the guest {vmid} on {host} has was not read");
                refuse(CheckRule::Cpus, why)?;
            }
        }
    }
    Ok(taken)
}

/// Whether the NUMA nodes have the memory that is bound to them, where the configuration says what they have.
fn enough_memory<'a>(
    case: Case<'_>,
    (region, host): (&str, &str),
    topology: &HostTopology,
    planned: impl Iterator<Item = &'a Mark>,
) -> CheckResult {
    let mut bound: BTreeMap<usize, i128> = BTreeMap::new();
    let mut written = Vec::new();
    let seen = case.snapshot.regions.get(region);
    for (vmid, vm) in seen.into_iter().flat_map(|seen| &seen.vms) {
        let pins = vm.pins.as_ref().filter(|pins| !pins.memory.is_empty());
        if let Some(pins) = pins.filter(|_| *vm.host == *host && !vm.template) {
            written.push(*vmid);
            for (node, bytes) in &pins.memory {
                *bound.entry(*node).or_default() += i128::from(*bytes);
            }
        }
    }
    let machines = case.snapshot.machines.values();
    let machines = machines.filter(|machine| {
        let here = *machine.region == *region && *machine.host == *host;
        let stays = machine.vm.is_some() || !gone(machine);
        here && stays && !written.contains(&machine.mark.vmid)
    });
    let there = machines.map(|machine| (&*machine.mark, machine.terms.as_ref()));
    let there = there.map(|(mark, terms)| (mark, terms, false));
    // A NUMA node that others have bound too much of is no fault of a machine that is not in it.
    let mut asked = BTreeSet::new();
    for (mark, terms, new) in there.chain(planned.map(|mark| (mark, None, true))) {
        let terms = terms.map(|terms| &terms.kind);
        let memory = terms.or_else(|| kind(case, &mark.instance_type));
        let memory = memory.map_or(0, |kind| kind.memory >> 20);
        let pool = case.policy.pools.get(mark.pool.as_str());
        let pool = pool.and_then(|pool| pool.at(region));
        if mark.cpus.is_empty() {
            let count = pool.map_or(0, |pool| pool.page_nodes() as usize);
            let enough = !new || count <= topology.numa.len();
            ensure(enough, CheckRule::Cpus, || {
                format!("{host} has too few NUMA nodes for huge pages from {count} of them")
            })?;
            asked.extend((0..count).filter(|_| new));
            for node in 0..count {
                *bound.entry(node).or_default() += (i128::from(memory) << 20) / count as i128;
            }
            continue;
        }
        let page = pool.map_or(1, |pool| pool.pinning.page_mib());
        let nodes = match topology.guest_nodes(&mark.cpus, (memory, page)) {
            Ok(nodes) => nodes,
            Err(why) if new => return refuse(CheckRule::Cpus, why),
            Err(_) => continue,
        };
        for node in nodes {
            if new {
                asked.insert(node.host);
            }
            let bytes = i128::from(node.memory_mib) << 20;
            *bound.entry(node.host).or_default() += bytes;
        }
    }
    let nodes = topology.numa.iter().enumerate();
    for (node, of) in nodes.filter(|(node, _)| asked.contains(node)) {
        let bound = bound.get(&node).copied().unwrap_or(0);
        let enough = of.memory.is_none_or(|has| bound <= i128::from(has));
        ensure(enough, CheckRule::Cpus, || {
            format!("NUMA node {node} of {host} has too little memory for what is bound to it")
        })?;
    }
    Ok(())
}
