//! Rules for taking a machine down.

use super::{
    Case, CheckResult, CheckRule, consolidation, create, drain, ensure, existing, refuse, together,
};
use model::action::{Action, Reason};
use model::cluster::{Node, ReadyStatus};
use model::policy::{PoolPolicy, STARTUP_TAINT, ScaleDown};
use model::region::{Busy, Host, Machine, Step};
use model::time::{Span, Time};

const DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

pub(super) fn check(case: Case<'_>, action: &Action, drained: bool) -> CheckResult {
    let machine = existing::machine(case, action)?;
    ensure(
        machine.vm.as_ref().is_some_and(|vm| vm.marked),
        CheckRule::Ours,
        || "its VM does not carry our mark".to_owned(),
    )?;
    looked_into(case, action, machine)?;
    let seen = machine
        .node
        .as_ref()
        .filter(|name| case.snapshot.cluster.nodes.contains_key(*name));
    if seen.is_none() {
        ensure(action.target.node.is_none(), CheckRule::Node, || {
            "the node it names is gone".to_owned()
        })?;
        ensure(!together::by_choice(action), CheckRule::Node, || {
            "it has no node that could be unneeded".to_owned()
        })?;
        return match action.reason {
            Reason::NoNode => few_lost(case),
            _ => Ok(()),
        };
    }
    ensure(drained, CheckRule::Undrained, || {
        "it has a node, and pods may run there".to_owned()
    })?;
    existing::same_node(action, machine)?;
    let node = existing::node(case, action)?;
    let starting = node.taints.iter().any(|t| &*t.key == STARTUP_TAINT);
    let shut = machine.step.is_some_and(|(step, _)| step >= Step::Shutdown);
    let failed = matches!(action.reason, Reason::Failed { .. });
    ensure(
        !(failed && is_disabled(node)) || shut,
        CheckRule::Disabled,
        || format!("the node carries {DISABLED}"),
    )?;
    match &action.reason {
        reason if together::chosen(reason) => {}
        Reason::Failed { .. } | Reason::NotWanted if starting || shut => return Ok(()),
        Reason::Failed { .. } if machine.step.is_none_or(|(step, _)| step < Step::Done) => {
            return drain::nobody_moves(case, action);
        }
        other => {
            return refuse(
                CheckRule::Working,
                format!("it works, and this is no reason to take it down: {other}"),
            );
        }
    }
    let Some(pool) = case.policy.pools.get(machine.mark.pool.as_str()) else {
        return refuse(CheckRule::Unconfigured, machine.mark.pool.clone());
    };
    let settings = pool.scale_down.as_ref().unwrap_or(&case.policy.scale_down);
    may_be_given_up(case, action, machine, (pool, settings, node))?;
    drain::utilization(case, action, settings, node)?;
    consolidation::removal(case, action, machine, pool)?;
    let name = action.target.node.as_ref().map_or("", |of| &of.name);
    drain::pods(case, action, name, pool, settings)
}

/// Whether a node that works may go for the reason of the action, as its host, its configuration or its timers have it.
fn may_be_given_up(
    case: Case<'_>,
    action: &Action,
    machine: &Machine,
    (pool, settings, node): (&PoolPolicy, &ScaleDown, &Node),
) -> CheckResult {
    if let Reason::Evacuated { since, .. } = action.reason {
        evacuation(case, machine, since, node)?;
    } else if let Reason::Unready { since } = action.reason
        && create::evacuated(case, machine).is_some()
    {
        unready(action, settings)?;
        evacuated_and_lost(case, machine, settings, (node, since))?;
    } else if let Reason::Outdated { .. } = action.reason {
        rollout(case, machine, node)?;
    } else {
        disabled(case, pool, settings, node)?;
        unready(action, settings)?;
        timers(case, action, pool, settings, node)?;
    }
    Ok(())
}

/// A pool keeps the first of its machines that failed, as many and for as long as its `keep_failed` says.
fn looked_into(case: Case<'_>, action: &Action, machine: &Machine) -> CheckResult {
    let pool = case.policy.pools.get(machine.mark.pool.as_str());
    let Some(keep) = pool.and_then(|pool| pool.keep_failed) else {
        return Ok(());
    };
    let Some(failed) = failed_at(case, machine, keep.how_long) else {
        return Ok(());
    };
    let rank = (failed, &machine.mark.machine);
    let others = case.snapshot.machines.values();
    let others = others.filter(|other| other.mark.pool == machine.mark.pool);
    let earlier = others.filter(|other| {
        let at = failed_at(case, other, keep.how_long);
        at.is_some_and(|at| (at, &other.mark.machine) < rank)
    });
    let concerned = matches!(action.reason, Reason::Failed { .. });
    let kept = concerned && earlier.count() < keep.machines as usize;
    ensure(
        !kept || planted!(FailedNotKept),
        CheckRule::KeptFailed,
        || {
            format!(
                "it failed at {failed}, and its pool keeps it for {} (keep_failed)",
                keep.how_long
            )
        },
    )
}

/// When a machine failed that never was a node for pods, less than this long ago, and whose VM nobody has switched off.
fn failed_at(case: Case<'_>, machine: &Machine, how_long: Span) -> Option<Time> {
    let failure = machine.failure.as_ref()?;
    let vm = machine.vm.as_ref().filter(|vm| vm.marked)?;
    let region = case.snapshot.regions.get(&machine.region)?;
    let host_on = region.hosts.get(&machine.host).is_some_and(Host::answers);
    let nodes = &case.snapshot.cluster.nodes;
    let node = machine.node.as_ref().and_then(|name| nodes.get(name));
    let opened = node.is_some_and(|node| !node.taints.iter().any(|t| &*t.key == STARTUP_TAINT));
    let begun = machine.step.is_some_and(|(step, _)| step >= Step::Drain);
    let over = case.now.0 >= failure.at.0.saturating_add(how_long.0);
    let other = failure.transient || failure.step >= Step::Done;
    let gone = other || (host_on && !vm.running) || opened || begun || over;
    (!gone).then_some(failure.at)
}

/// A person evacuates the host, and nothing on the Ready node forbids that it goes.
fn evacuation(case: Case<'_>, machine: &Machine, since: Time, node: &Node) -> CheckResult {
    let ordered = create::evacuated(case, machine);
    ensure(ordered == Some(since), CheckRule::Evacuated, || {
        format!("its host {} is evacuated since {ordered:?}", machine.host)
    })?;
    undisturbed(case, node)
}

/// On a host that a person evacuates and that is on, the node has not been Ready for long enough, and no annotation keeps it. Of a node whose
/// condition does not say since when, the time is that of the decision.
fn evacuated_and_lost(
    case: Case<'_>,
    machine: &Machine,
    settings: &ScaleDown,
    (node, since): (&Node, Time),
) -> CheckResult {
    let region = case.snapshot.regions.get(&machine.region);
    let host = region.and_then(|region| region.hosts.get(&machine.host));
    ensure(
        host.is_some_and(|host| host.online),
        CheckRule::Evacuated,
        || format!("its host {} is offline", machine.host),
    )?;
    let lost = node.ready.status != ReadyStatus::True
        && node.ready.since.is_none_or(|at| at <= since)
        && case.now.0.saturating_sub(since.0) >= settings.unready_time.0;
    ensure(lost, CheckRule::Timer, || {
        let wanted = settings.unready_time;
        format!(
            "not Ready since {since} is not for {wanted}: {:?}",
            node.ready
        )
    })?;
    annotations(case, node)
}

/// The machine is outdated by its pool's rules, and nothing on the Ready node forbids that it goes.
fn rollout(case: Case<'_>, machine: &Machine, node: &Node) -> CheckResult {
    ensure(
        create::is_outdated(case, machine),
        CheckRule::Outdated,
        || format!("its pool {} does not replace it", machine.mark.pool),
    )?;
    undisturbed(case, node)
}

/// The node is Ready, and no annotation keeps it.
fn undisturbed(case: Case<'_>, node: &Node) -> CheckResult {
    ensure(
        node.ready.status == ReadyStatus::True,
        CheckRule::Timer,
        || format!("the node's readiness has changed: {:?}", node.ready.status),
    )?;
    annotations(case, node)
}

fn is_disabled(node: &Node) -> bool {
    node.annotations.get(DISABLED).map(AsRef::as_ref) == Some("true")
}

/// Not so many machines that worked and run are without a node that the fault lies elsewhere.
fn few_lost(case: Case<'_>) -> CheckResult {
    let (mut with, mut without) = (0_u64, 0_u64);
    for machine in case.snapshot.machines.values() {
        if !machine
            .vm
            .as_ref()
            .is_some_and(|vm| vm.running && vm.marked)
        {
            continue;
        }
        let node = machine.node.as_ref();
        let there = node.is_some_and(|name| case.snapshot.cluster.nodes.contains_key(name));
        let step = machine.step.map(|(step, _)| step);
        let worked = matches!(step, Some(Step::Done | Step::Drain | Step::Detach));
        if worked && !there && machine.busy != Some(Busy::Down) {
            without += 1;
        } else {
            with += 1;
        }
    }
    let settings = &case.policy.scale_down;
    let many = without > u64::from(settings.ok_total_unready)
        && without * 100 > u64::from(settings.max_total_unready_percent) * (with + without);
    ensure(
        !many || planted!(ManyLostIgnored),
        CheckRule::ClusterUnhealthy,
        || format!("{without} machines that run have no node"),
    )
}

fn unready(action: &Action, settings: &ScaleDown) -> CheckResult {
    let unready = matches!(action.reason, Reason::Unready { .. });
    ensure(
        !unready || settings.unready_enabled,
        CheckRule::Disabled,
        || "removing nodes that are not Ready is switched off".to_owned(),
    )
}

pub(super) fn disabled(
    case: Case<'_>,
    pool: &PoolPolicy,
    settings: &ScaleDown,
    node: &Node,
) -> CheckResult {
    ensure(
        settings.enabled && case.policy.scale_down.enabled && !pool.scale_down_disabled,
        CheckRule::Disabled,
        || "scale-down is switched off".to_owned(),
    )?;
    annotations(case, node)
}

fn annotations(case: Case<'_>, node: &Node) -> CheckResult {
    let guard = node.annotations.get(DO_NOT_DISRUPT).map(AsRef::as_ref);
    ensure(
        !is_disabled(node) && !drain::guarded(guard, node.created, case.now),
        CheckRule::Disabled,
        || format!("the node carries {DISABLED} or {DO_NOT_DISRUPT}"),
    )
}

fn timers(
    case: Case<'_>,
    action: &Action,
    pool: &PoolPolicy,
    settings: &ScaleDown,
    node: &Node,
) -> CheckResult {
    let ready = node.ready.status == ReadyStatus::True;
    let unready = matches!(action.reason, Reason::Unready { .. });
    ensure(unready != ready, CheckRule::Timer, || {
        format!("the node's readiness has changed: {:?}", node.ready.status)
    })?;
    let (since, wanted) = match action.reason {
        Reason::Unready { since } => (since, settings.unready_time),
        Reason::Consolidated { since, .. } => {
            let after = pool.consolidation.as_ref().map(|how| how.after);
            (since, after.unwrap_or(settings.unneeded_time))
        }
        Reason::Unneeded { since, .. } | Reason::AboveMax { since, .. } => {
            (since, settings.unneeded_time)
        }
        // Its time was over when the machine in its place was made.
        _ => (node.created, settings.min_node_age),
    };
    let waited = case.now.0.saturating_sub(since.0);
    ensure(waited >= wanted.0, CheckRule::Timer, || {
        format!("since {since} are not {wanted}")
    })?;
    old(case, settings, node)
}

pub(super) fn old(case: Case<'_>, settings: &ScaleDown, node: &Node) -> CheckResult {
    let age = case.now.0.saturating_sub(node.created.0);
    ensure(age >= settings.min_node_age.0, CheckRule::Timer, || {
        format!(
            "the node is of {}, and stays for {}",
            node.created, settings.min_node_age
        )
    })
}
