//! Limits over several actions at once.

use std::collections::{BTreeMap, BTreeSet};

use super::create::{host_is_off, is_given_up};
use super::{
    Case, CheckResult, CheckRule, consolidation, cpus, devices, drain, ensure, hosts, landing,
    refuse, storages,
};
use model::action::{Action, Kind, Reason};
use model::cluster::Node;
use model::policy::{LEAVING_TAINT, STARTUP_TAINT};
use model::region::{Busy, Machine, Step};

/// No two actions are about the same machine, VMID, node or token.
pub(super) fn distinct<'a>(plan: impl IntoIterator<Item = &'a Action>) -> CheckResult {
    let mut seen = BTreeSet::new();
    for action in plan {
        let target = &action.target;
        let mut names = vec![format!("machine {}", target.machine)];
        if target.vmid != 0 {
            names.push(format!("VMID {} in {}", target.vmid, target.region));
        }
        names.extend(
            target
                .node
                .as_ref()
                .map(|node| format!("node {}", node.name)),
        );
        if let Kind::Create(spec) = &action.kind {
            if !spec.mark.token.is_empty() {
                names.push(format!("token {}", spec.mark.token));
            }
            let addresses = spec.mark.addresses.values().flatten();
            names.extend(addresses.map(|address| format!("address {address}")));
        }
        for name in names {
            if !seen.insert(name.clone()) {
                return refuse(CheckRule::Twice, format!("two actions are about {name}"));
            }
        }
    }
    Ok(())
}

/// A machine that is not a node yet and may become one.
fn in_flight(case: Case<'_>, machine: &Machine) -> bool {
    let node = machine
        .node
        .as_ref()
        .and_then(|name| case.snapshot.cluster.nodes.get(name));
    let young = node.is_none_or(|node| node.taints.iter().any(|t| &*t.key == STARTUP_TAINT));
    young
        && machine.failure.is_none()
        && machine.busy != Some(Busy::Down)
        && machine.step.is_none_or(|(step, _)| step < Step::Done)
        && (machine.vm.is_some() || machine.step.is_none_or(|(step, _)| step <= Step::Clone))
        && !host_is_off(case, machine)
}

/// Whether new machines stay within every limit, together with all there is.
pub(super) fn creations(case: Case<'_>, creations: &[&Action]) -> CheckResult {
    if creations.is_empty() {
        return Ok(());
    }
    let planned: Vec<(&Action, &model::mark::Mark)> = creations
        .iter()
        .filter_map(|action| match &action.kind {
            Kind::Create(spec) => Some((*action, &spec.mark)),
            _ => None,
        })
        .collect();
    let (machines, settings) = (&case.snapshot.machines, &case.policy.scale_up);
    let flying = machines.values().filter(|m| in_flight(case, m)).count() + planned.len();
    ensure(
        flying <= settings.max_in_flight as usize,
        CheckRule::InFlight,
        || {
            format!(
                "{flying} machines would be made at once, max_in_flight is {}",
                settings.max_in_flight
            )
        },
    )?;
    let nodes = &case.snapshot.cluster.nodes;
    let nodeless = machines
        .values()
        .filter(|m| m.node.as_ref().is_none_or(|name| !nodes.contains_key(name)))
        .count();
    let total = nodes.len() + nodeless + planned.len();
    let max = settings.max_nodes_total as usize;
    ensure(max == 0 || total <= max, CheckRule::NodesTotal, || {
        format!("there would be {total} nodes, max_nodes_total is {max}")
    })?;
    most(case, &planned)?;
    let pools: BTreeSet<&str> = planned.iter().map(|(_, mark)| mark.pool.as_str()).collect();
    for pool in pools {
        pool_limits(case, pool, &planned)?;
    }
    let hosts: BTreeSet<_> = planned
        .iter()
        .map(|(action, _)| (&action.target.region, &action.target.host))
        .collect();
    for (region, host) in hosts {
        hosts::holds(case, region, host, &planned)?;
        storages::hold(case, region, host, &planned)?;
        devices::are_free(case, region, host, &planned)?;
        cpus::are_free(case, region, host, &planned)?;
    }
    Ok(())
}

pub(super) type PlannedActions<'a> = [(&'a Action, &'a model::mark::Mark)];

/// All pools together have no more than they may.
fn most(case: Case<'_>, planned: &PlannedActions<'_>) -> CheckResult {
    let (mut cores, mut memory) = (0i128, 0i128);
    let there = case
        .snapshot
        .machines
        .values()
        .map(|machine| &*machine.mark);
    for mark in there.chain(planned.iter().map(|(_, mark)| *mark)) {
        if let Some(kind) = case.policy.instance_types.get(mark.instance_type.as_str()) {
            cores += i128::from(kind.cores);
            memory += i128::from(kind.memory);
        }
    }
    let totals = &case.policy.totals;
    let cpu = totals
        .max_cpu_milli
        .is_none_or(|max| cores * 1000 <= i128::from(max));
    let ram = totals
        .max_memory
        .is_none_or(|max| memory <= i128::from(max));
    ensure(cpu && ram, CheckRule::Totals, || {
        format!("all pools would have {cores} cores and {memory} bytes of memory")
    })
}

fn pool_limits(case: Case<'_>, name: &str, planned: &PlannedActions<'_>) -> CheckResult {
    let Some(pool) = case.policy.pools.get(name) else {
        return refuse(CheckRule::Pool, format!("no pool {name} is configured"));
    };
    let kinds: Vec<&str> = case
        .snapshot
        .machines
        .values()
        .map(|machine| &*machine.mark)
        .chain(planned.iter().map(|(_, mark)| *mark))
        .filter(|mark| mark.pool == name)
        .map(|mark| mark.instance_type.as_str())
        .collect();
    ensure(kinds.len() <= pool.max as usize, CheckRule::PoolMax, || {
        format!(
            "the pool {name} would have {} machines, its max is {}",
            kinds.len(),
            pool.max
        )
    })?;
    let (mut cores, mut memory) = (0i128, 0i128);
    for kind in kinds
        .iter()
        .filter_map(|kind| case.policy.instance_types.get(*kind))
    {
        cores += i128::from(kind.cores);
        memory += i128::from(kind.memory);
    }
    let cpu = pool
        .max_cpu_milli
        .is_none_or(|max| cores * 1000 <= i128::from(max));
    let ram = pool.max_memory.is_none_or(|max| memory <= i128::from(max));
    ensure(cpu && ram, CheckRule::PoolMax, || {
        format!("the pool {name} would have {cores} cores and {memory} bytes of memory")
    })
}

/// Whether a reason takes down a node that works.
pub(super) fn chosen(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Unneeded { .. }
            | Reason::Unready { .. }
            | Reason::AboveMax { .. }
            | Reason::Consolidated { .. }
            | Reason::Replaced { .. }
            | Reason::Evacuated { .. }
            | Reason::Outdated { .. }
    )
}

pub(super) fn by_choice(action: &Action) -> bool {
    chosen(&action.reason)
}

/// Whether removals keep the pools' `min`, the parallelism, the budgets, and find a place for every
/// pod, all together.
pub(super) fn removals(case: Case<'_>, removals: &[&Action]) -> CheckResult {
    let chosen: Vec<&Action> = removals.iter().copied().filter(|a| by_choice(a)).collect();
    if chosen.is_empty() {
        return Ok(());
    }
    let targets: BTreeSet<&str> = removals.iter().map(|a| &*a.target.machine).collect();
    keep_min(case, &chosen, &targets)?;
    keep_totals(case, &targets)?;
    surplus(case, &chosen)?;
    consolidation::node_budgets(case, &chosen)?;
    // A removal of this plan that is not chosen goes on with one that was begun: that one is under way.
    let ours: BTreeSet<&str> = chosen.iter().map(|a| &*a.target.machine).collect();
    let under_way: Vec<&str> = case
        .snapshot
        .machines
        .iter()
        .filter(|(name, machine)| !ours.contains(&***name) && leaving(case, machine))
        .filter(|(_, machine)| !interrupted(case, machine))
        .filter_map(|(_, machine)| machine.node.as_deref())
        .collect();
    parallel(case, &chosen, &under_way)?;
    let chosen_nodes: Vec<&str> = drain::nodes_of(&chosen)
        .into_iter()
        .map(|name| &**name)
        .collect();
    let before = drain::demanded(case, &under_way);
    for (name, mut asked) in drain::demanded(case, &chosen_nodes) {
        if let Some(other) = before.get(name) {
            asked.evictions += other.evictions;
            asked.nodes += other.nodes;
        }
        let allowed = i64::from(case.snapshot.cluster.budgets[name].allowed);
        // One node alone may wait for evictions to be allowed one after the other.
        let bearable = asked.evictions <= allowed || (asked.nodes == 1 && allowed >= 1);
        ensure(bearable, CheckRule::Budget, || {
            format!(
                "{} pods of {name} on {} nodes would be evicted, {allowed} may be",
                asked.evictions, asked.nodes
            )
        })?;
    }
    landing::check(case, &chosen)
}

pub(super) fn leaving(case: Case<'_>, machine: &Machine) -> bool {
    let tainted = machine
        .node
        .as_ref()
        .and_then(|name| case.snapshot.cluster.nodes.get(name))
        .is_some_and(|node| {
            node.deletion.is_some() || node.taints.iter().any(|t| &*t.key == LEAVING_TAINT)
        });
    tainted
        || machine.busy == Some(Busy::Down)
        || machine.step.is_some_and(|(step, _)| step > Step::Done)
}

/// Nobody is at its removal, which can still be taken back: no pod is evicted there, and none will be
/// before another removal of it passed here. One that never worked is not taken back but brought to an end.
fn interrupted(case: Case<'_>, machine: &Machine) -> bool {
    let node = machine
        .node
        .as_ref()
        .and_then(|name| case.snapshot.cluster.nodes.get(name));
    let starting = |seen: &Node| seen.taints.iter().any(|t| &*t.key == STARTUP_TAINT);
    node.is_some_and(|node| node.deletion.is_none() && !starting(node))
        && machine.busy.is_none()
        && machine.vm.is_some()
        && machine.step.is_none_or(|(step, _)| step < Step::Shutdown)
}

/// A node of ours that has been made ready for pods.
pub(super) fn works(case: Case<'_>, machine: &Machine) -> bool {
    machine
        .node
        .as_ref()
        .and_then(|name| case.snapshot.cluster.nodes.get(name))
        .is_some_and(|node| !node.taints.iter().any(|t| &*t.key == STARTUP_TAINT))
}

/// All pools together keep the least they must.
fn keep_totals(case: Case<'_>, targets: &BTreeSet<&str>) -> CheckResult {
    let (mut cores, mut memory) = (0i128, 0i128);
    for (name, machine) in &case.snapshot.machines {
        let kind = case
            .policy
            .instance_types
            .get(machine.mark.instance_type.as_str());
        let stays = works(case, machine) && !targets.contains(&**name) && !leaving(case, machine);
        if let Some(kind) = kind.filter(|_| stays) {
            cores += i128::from(kind.cores);
            memory += i128::from(kind.memory);
        }
    }
    let totals = &case.policy.totals;
    ensure(
        cores * 1000 >= i128::from(totals.min_cpu_milli) && memory >= i128::from(totals.min_memory),
        CheckRule::Totals,
        || format!("the pools would keep {cores} cores and {memory} bytes of memory"),
    )
}

/// A pool that has too many nodes loses no more than it has too many.
fn surplus(case: Case<'_>, removals: &[&Action]) -> CheckResult {
    let mut going: BTreeMap<&str, usize> = BTreeMap::new();
    for action in removals {
        let machine = case.snapshot.machines.get(&action.target.machine);
        if let (Reason::AboveMax { .. }, Some(machine)) = (&action.reason, machine) {
            *going.entry(&machine.mark.pool).or_insert(0) += 1;
        }
    }
    for (name, count) in going {
        let have = case
            .snapshot
            .machines
            .values()
            .filter(|machine| machine.mark.pool == *name)
            // One whose drain was interrupted is decided on anew, and not gone.
            .filter(|machine| machine.busy != Some(Busy::Down))
            .count();
        let max = case.policy.pools.get(name).map_or(0, |pool| pool.max);
        ensure(have >= max as usize + count, CheckRule::Surplus, || {
            format!("the pool {name} has {have} machines, its max is {max}, {count} would go")
        })?;
    }
    Ok(())
}

/// All working nodes of an atomic pool go, or none.
pub(super) fn whole_pools(case: Case<'_>, removals: &[&Action]) -> CheckResult {
    let going: BTreeSet<&str> = removals.iter().map(|a| &*a.target.machine).collect();
    for action in removals.iter().filter(|action| by_choice(action)) {
        let Some(machine) = case.snapshot.machines.get(&action.target.machine) else {
            continue;
        };
        let name = machine.mark.pool.as_str();
        if !case.policy.pools.get(name).is_some_and(|pool| pool.atomic) {
            continue;
        }
        let other = case.snapshot.machines.iter().find(|(other, beside)| {
            beside.mark.pool == *name
                && works(case, beside)
                && !going.contains(&***other)
                && !leaving(case, beside)
        });
        if let Some((other, _)) = other {
            return refuse(
                CheckRule::Atomic,
                format!("the pool {name} goes as a whole, and {other} would stay"),
            );
        }
    }
    Ok(())
}

fn keep_min(case: Case<'_>, chosen: &[&Action], targets: &BTreeSet<&str>) -> CheckResult {
    let mut pools: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, machine) in &case.snapshot.machines {
        let stays = !targets.contains(&**name) && !leaving(case, machine);
        if works(case, machine) && stays && !is_given_up(case, machine) {
            *pools.entry(&machine.mark.pool).or_insert(0) += 1;
        }
    }
    for action in chosen {
        let Some(machine) = case.snapshot.machines.get(&action.target.machine) else {
            continue;
        };
        if is_given_up(case, machine) {
            continue;
        }
        let name = machine.mark.pool.as_str();
        let min = case.policy.pools.get(name).map_or(0, |pool| pool.min);
        let stay = pools.get(name).copied().unwrap_or(0);
        ensure(stay >= min as usize, CheckRule::PoolMin, || {
            format!("the pool {name} would keep {stay} nodes, its min is {min}")
        })?;
    }
    Ok(())
}

/// The atomic pool that all these nodes are of, if they are: it may overshoot.
fn one_whole_pool<'a>(case: Case<'a>, nodes: &BTreeSet<&str>) -> Option<&'a str> {
    let mut pools = case
        .snapshot
        .machines
        .values()
        .filter(|machine| {
            machine
                .node
                .as_deref()
                .is_some_and(|node| nodes.contains(node))
        })
        .map(|machine| machine.mark.pool.as_str());
    let first = pools.next()?;
    let atomic = case.policy.pools.get(first).is_some_and(|pool| pool.atomic);
    (atomic && pools.all(|pool| pool == first)).then_some(first)
}

fn parallel(case: Case<'_>, chosen: &[&Action], under_way: &[&str]) -> CheckResult {
    let settings = &case.policy.scale_down;
    let mut nodes: BTreeSet<&str> = under_way.iter().copied().collect();
    nodes.extend(drain::nodes_of(chosen).iter().map(|name| &***name));
    let all = chosen.len() + under_way.len();
    ensure(
        all <= settings.max_parallel as usize || one_whole_pool(case, &nodes).is_some(),
        CheckRule::Parallel,
        || {
            format!(
                "{all} nodes would be leaving at once, max_parallel is {}",
                settings.max_parallel
            )
        },
    )?;
    // Pods are evicted also where nothing must land for them.
    let drained = |name: &&str| !drain::concerned(case, name).is_empty();
    let chosen_nodes = drain::nodes_of(chosen).into_iter().map(|name| &**name);
    let mut draining: BTreeSet<&str> = chosen_nodes.filter(drained).collect();
    if draining.is_empty() {
        return Ok(());
    }
    draining.extend(under_way.iter().copied().filter(drained));
    ensure(
        draining.len() <= settings.max_parallel_drain as usize
            || one_whole_pool(case, &draining).is_some(),
        CheckRule::Parallel,
        || {
            format!(
                "{} nodes would be draining at once, max_parallel_drain is {}",
                draining.len(),
                settings.max_parallel_drain
            )
        },
    )
}
