//! Rules for consolidation: nodes that go because their pods do well elsewhere, machines that take the
//! place of others, and the pools' own budgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    Case, CheckResult, CheckRule, drain, ensure, existing, newcomer, refuse, removal, together,
};
use model::action::{Action, CreateSpec, Reason};
use model::cluster::{Node, ObjectKey, ReadyStatus};
use model::disruption::{Cause, ConsolidationPolicy};
use model::policy::{InstanceType, LEAVING_TAINT, PoolPolicy, STARTUP_TAINT};
use model::region::Machine;

/// Price of a core and of a GiB, in millionths an hour, where a type names no price.
const CORE: i128 = 20_000;
const GIB: i128 = 10_000;

fn price(kind: &InstanceType) -> i128 {
    match kind.price {
        Some(price) => i128::from(price.max(0)),
        None => i128::from(kind.cores) * CORE + i128::from(kind.memory.max(0)) * GIB / (1 << 30),
    }
}

/// The price of a machine of a type in a region.
pub(super) fn price_of(case: Case<'_>, kind: &str, region: &str) -> i128 {
    let price = case.policy.instance_types.get(kind).map_or(0, price);
    let of = case.policy.regions.get(region);
    let permille = of.and_then(|policy| policy.price_permille);
    permille.map_or(price, |permille| price * i128::from(permille) / 1000)
}

fn policy(pool: &PoolPolicy) -> Option<ConsolidationPolicy> {
    pool.consolidation.as_ref().map(|how| how.policy)
}

/// A node that pods can be sent to.
fn sound(node: &Node) -> bool {
    let tainted = |key: &str| node.taints.iter().any(|taint| &*taint.key == key);
    node.ready.status == ReadyStatus::True
        && node.deletion.is_none()
        && !tainted(LEAVING_TAINT)
        && !tainted(STARTUP_TAINT)
}

/// A removal for consolidation is what the pool asks for.
pub(super) fn removal(
    case: Case<'_>,
    action: &Action,
    machine: &Machine,
    pool: &PoolPolicy,
) -> CheckResult {
    let wanted = policy(pool);
    match &action.reason {
        Reason::Consolidated { .. } => {
            let moves = !action.precondition.landing.is_empty();
            let allowed = match wanted {
                Some(ConsolidationPolicy::WhenUnderused) => true,
                Some(ConsolidationPolicy::WhenEmpty) => !moves,
                Some(ConsolidationPolicy::Never) | None => false,
            };
            ensure(allowed, CheckRule::Consolidation, || {
                format!("the pool's consolidation is {wanted:?}")
            })
        }
        Reason::Replaced { by, saving, .. } => {
            ensure(
                wanted == Some(ConsolidationPolicy::WhenUnderused),
                CheckRule::Consolidation,
                || format!("the pool's consolidation is {wanted:?}"),
            )?;
            let other = case.snapshot.machines.get(by);
            let node = other
                .and_then(|other| other.node.as_ref())
                .and_then(|name| case.snapshot.cluster.nodes.get(name));
            let apart = |replacement: &&Machine| {
                *by != action.target.machine
                    && replacement.mark.instance_type != machine.mark.instance_type
            };
            match other.filter(apart) {
                Some(other) if node.is_some_and(sound) && *saving > 0 => {
                    still_saves(case, action, machine, other)
                }
                _ => refuse(
                    CheckRule::Replacement,
                    format!("{by} does not work, or is no replacement"),
                ),
            }
        }
        // What works goes by cluster-autoscaler's rules only where a pool has no others.
        Reason::Unneeded { .. } => ensure(wanted.is_none(), CheckRule::Consolidation, || {
            format!("the pool's consolidation is {wanted:?}")
        }),
        _ => Ok(()),
    }
}

/// At the prices of now the machine that works still saves what the pools want on the nodes that are to go;
/// once some are gone it stays for their pods, and only what is promised is compared.
fn still_saves(case: Case<'_>, action: &Action, machine: &Machine, other: &Machine) -> CheckResult {
    let Reason::Replaced {
        saving,
        others,
        gone,
        ..
    } = &action.reason
    else {
        return Ok(());
    };
    let own = machine.node.iter();
    let names: BTreeSet<&Arc<str>> = own.chain(others).collect();
    let (mut old, mut wanted) = (0i128, 0i128);
    for name in names {
        let there = case.snapshot.cluster.nodes.contains_key(name);
        let behind = behind(case, name).filter(|_| there);
        let Some(behind) = behind.filter(|behind| behind.mark.machine != other.mark.machine) else {
            continue;
        };
        let Some(pool) = case.policy.pools.get(behind.mark.pool.as_str()) else {
            return refuse(CheckRule::Unconfigured, behind.mark.pool.clone());
        };
        let price = price_of(case, &behind.mark.instance_type, &behind.region);
        old += price;
        wanted += least(pool, price);
    }
    let working = |name: &&Arc<str>| case.snapshot.cluster.nodes.get(*name).is_some_and(sound);
    if let Some(name) = gone.iter().find(working) {
        let why = format!("{name} is said to have gone for it, and works");
        return refuse(CheckRule::Saving, why);
    }
    let kind = other.mark.instance_type.as_str();
    let saves = if !gone.is_empty() {
        wanted = 1;
        old
    } else if case.policy.instance_types.contains_key(kind) {
        old - price_of(case, kind, &other.region)
    } else {
        return refuse(CheckRule::Saving, format!("nobody knows what {kind} costs"));
    };
    ensure(
        saves >= wanted && i128::from(*saving) <= saves,
        CheckRule::Saving,
        || format!("it saves {saves} millionths an hour, {wanted} are wanted, {saving} promised"),
    )
}

/// What must be saved on a node of this price.
fn least(pool: &PoolPolicy, price: i128) -> i128 {
    pool.consolidation.as_ref().map_or(0, |how| {
        let share = (price * i128::from(how.min_saving.permille.max(0)) + 999) / 1000;
        share.max(i128::from(how.min_saving.price)).max(1)
    })
}

/// The machine behind a node.
fn behind<'a>(case: Case<'a>, node: &str) -> Option<&'a Machine> {
    let mut machines = case.snapshot.machines.values();
    machines.find(|machine| machine.node.as_deref() == Some(node))
}

/// A machine that is made to replace nodes is cheaper by what its pools want, and all pods of the nodes
/// have a place.
pub(super) fn creation(case: Case<'_>, action: &Action, spec: &CreateSpec) -> CheckResult {
    let Reason::Replaces {
        nodes,
        pods,
        saving,
    } = &action.reason
    else {
        return Ok(());
    };
    ensure(!nodes.is_empty(), CheckRule::Replacement, || {
        "it replaces nothing".to_owned()
    })?;
    let (mut old, mut wanted) = (0i128, 0i128);
    for name in nodes {
        let (machine, pool) = replaceable(case, action, name)?;
        let kind = machine.mark.instance_type.as_str();
        let alike = kind == spec.mark.instance_type && machine.region == action.target.region;
        ensure(!alike, CheckRule::Saving, || {
            format!("{name} is of the type {kind} too")
        })?;
        let price = price_of(case, kind, &machine.region);
        old += price;
        wanted += least(pool, price);
    }
    let made = price_of(case, &spec.mark.instance_type, &action.target.region);
    let saves = old - made;
    ensure(
        saves >= wanted && i128::from(*saving) <= saves,
        CheckRule::Saving,
        || format!("it saves {saves} millionths an hour, {wanted} are wanted, {saving} promised"),
    )?;
    fits(case, action, spec, nodes, pods)?;
    replaced_budgets(case, nodes)
}

/// The node and its pods may go.
fn replaceable<'a>(
    case: Case<'a>,
    action: &Action,
    name: &str,
) -> Result<(&'a Machine, &'a PoolPolicy), super::Refusal> {
    let (Some(machine), Some(node)) = (behind(case, name), case.snapshot.cluster.nodes.get(name))
    else {
        return refuse(CheckRule::Replacement, format!("{name} is no node of ours"));
    };
    let Some(pool) = case.policy.pools.get(machine.mark.pool.as_str()) else {
        return refuse(CheckRule::Unconfigured, machine.mark.pool.clone());
    };
    let wanted = policy(pool);
    ensure(
        wanted == Some(ConsolidationPolicy::WhenUnderused) && !pool.atomic,
        CheckRule::Consolidation,
        || format!("the consolidation of the pool of {name} is {wanted:?}"),
    )?;
    ensure(
        sound(node) && machine.busy.is_none(),
        CheckRule::Replacement,
        || format!("{name} does not work, or is leaving"),
    )?;
    let settings = pool.scale_down.as_ref().unwrap_or(&case.policy.scale_down);
    removal::disabled(case, pool, settings, node)?;
    removal::old(case, settings, node)?;
    drain::pods(case, action, name, pool, settings)?;
    existing::carried_once(case, machine)?;
    Ok((machine, pool))
}

/// What the machine is for is on those nodes, and could run there.
fn fits(
    case: Case<'_>,
    action: &Action,
    spec: &CreateSpec,
    nodes: &[Arc<str>],
    pods: &[ObjectKey],
) -> CheckResult {
    let mut found = Vec::new();
    for key in pods {
        let seen = case.snapshot.cluster.pods.get(key);
        let there = seen.filter(|pod| pod.node.as_ref().is_some_and(|node| nodes.contains(node)));
        let Some(pod) = there else {
            return refuse(
                CheckRule::Replacement,
                format!("{key} is on none of the nodes any more"),
            );
        };
        found.push((key, pod));
    }
    newcomer::holds(case, action, spec, &found, CheckRule::Replacement)
}

/// Every disruption budget that the pods count in allows an eviction.
fn replaced_budgets(case: Case<'_>, nodes: &[Arc<str>]) -> CheckResult {
    let names: Vec<&str> = nodes.iter().map(|name| &**name).collect();
    for name in drain::demanded(case, &names).keys() {
        let allowed = case.snapshot.cluster.budgets[*name].allowed;
        ensure(allowed >= 1, CheckRule::Budget, || {
            format!("the disruption budget {name} allows no eviction")
        })?;
    }
    Ok(())
}

/// The pools' own budgets: nodes that are leaving or not Ready count.
pub(super) fn node_budgets(case: Case<'_>, chosen: &[&Action]) -> CheckResult {
    let mut more: BTreeMap<&str, Vec<Cause>> = BTreeMap::new();
    let mut going: Vec<&str> = Vec::new();
    for action in chosen {
        let Some(machine) = case.snapshot.machines.get(&action.target.machine) else {
            continue;
        };
        going.push(&action.target.machine);
        // One that is not Ready is disrupted already.
        if matches!(action.reason, Reason::Unready { .. }) {
            continue;
        }
        let cause = match action.reason {
            Reason::Outdated { .. } => Cause::Outdated,
            _ if action.precondition.landing.is_empty() => Cause::Empty,
            _ => Cause::Underused,
        };
        more.entry(&machine.mark.pool).or_default().push(cause);
    }
    for (name, causes) in more {
        let Some(pool) = case.policy.pools.get(name) else {
            continue;
        };
        let (mut nodes, mut disrupted) = (0u32, 0u32);
        for (machine_name, machine) in &case.snapshot.machines {
            let node = machine
                .node
                .as_ref()
                .and_then(|node| case.snapshot.cluster.nodes.get(node));
            let Some(node) = node.filter(|_| machine.mark.pool == *name) else {
                continue;
            };
            let leaving = together::leaving(case, machine);
            if !leaving && !together::works(case, machine) {
                continue;
            }
            nodes += 1;
            let counted = going.contains(&&**machine_name);
            let unready = node.ready.status != ReadyStatus::True;
            disrupted += u32::from(!counted && (leaving || unready));
        }
        for budget in &pool.budgets {
            let held = causes
                .iter()
                .filter(|cause| budget.holds(**cause, case.now).is_some());
            let count = u32::try_from(held.count()).unwrap_or(u32::MAX);
            if count == 0 {
                continue;
            }
            let allowed = budget.nodes.of(nodes);
            ensure(
                disrupted.saturating_add(count) <= allowed,
                CheckRule::NodeBudget,
                || {
                    format!(
                        "{count} more of {nodes} nodes of the pool {name} would be disrupted, {disrupted} are, {allowed} may be"
                    )
                },
            )?;
        }
    }
    Ok(())
}
