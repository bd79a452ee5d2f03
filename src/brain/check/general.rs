//! What must hold for every action.

use super::{Case, CheckResult, CheckRule, ensure, existing, refuse, together};
use model::action::{self, Action, Kind, Reason};
use model::cluster::ReadyStatus;
use model::policy::STARTUP_TAINT;
use model::region::{Busy, Step};
use model::snapshot;
use model::time::Span;

/// Two readings of one clock may be this far apart.
const TOLERANCE_MS: i64 = 5_000;

pub(super) fn check(case: Case<'_>, action: &Action) -> CheckResult {
    let Case { snapshot, now, .. } = case;
    ensure(
        action.version == action::VERSION && snapshot.version == snapshot::VERSION,
        CheckRule::Version,
        || {
            format!(
                "action format {}, view format {}",
                action.version, snapshot.version
            )
        },
    )?;
    ensure(snapshot.leader, CheckRule::Leader, || {
        "this instance does not hold the lease".to_owned()
    })?;
    if let Some(who) = &snapshot.paused
        && action.kind != Kind::Continue
    {
        return refuse(CheckRule::Paused, format!("paused: {who}"));
    }
    ensure(snapshot.cluster_id.is_some(), CheckRule::ClusterId, || {
        "the cluster id is not known".to_owned()
    })?;
    let planned = action.precondition.planned;
    let age = now.0.saturating_sub(planned.0);
    ensure(
        age <= action.precondition.max_view_age.0 && age >= -TOLERANCE_MS,
        CheckRule::PlanAge,
        || {
            format!(
                "it was planned on a view of {planned}, it is {now}, at most {} may lie between",
                action.precondition.max_view_age
            )
        },
    )?;
    views(case, action)?;
    region(case, action)?;
    cluster_health(case, action)
}

/// The limit of the policy for what this action does.
fn limit(case: Case<'_>, action: &Action) -> Span {
    let of_policy = match action.kind {
        Kind::Create(_) | Kind::Continue | Kind::Start | Kind::Update => {
            case.policy.scale_up.max_view_age
        }
        _ => case.policy.scale_down.max_view_age,
    };
    of_policy.min(action.precondition.max_view_age)
}

fn views(case: Case<'_>, action: &Action) -> CheckResult {
    let limit = limit(case, action);
    let own = format!("pve/{}", action.target.region);
    let sources = &case.snapshot.sources;
    for needed in ["kube/pods", "kube/nodes", own.as_str()] {
        ensure(sources.contains_key(needed), CheckRule::View, || {
            format!("nothing was read from {needed}")
        })?;
    }
    for (name, source) in sources {
        if !name.starts_with("kube/") && **name != *own {
            continue;
        }
        ensure(source.complete, CheckRule::View, || {
            format!("{name} was not read completely")
        })?;
        let age = case.now.0.saturating_sub(source.as_of.0);
        let fresh = age <= limit.0 || planted!(StaleViewsUsed);
        ensure(fresh && age >= -TOLERANCE_MS, CheckRule::View, || {
            format!(
                "{name} is as of {}, it is {}, at most {limit} may lie between",
                source.as_of, case.now
            )
        })?;
    }
    Ok(())
}

fn region(case: Case<'_>, action: &Action) -> CheckResult {
    let name = &action.target.region;
    ensure(
        case.policy.regions.contains_key(name),
        CheckRule::Region,
        || format!("the region {name} is not configured"),
    )?;
    match case.snapshot.regions.get(name) {
        None => refuse(CheckRule::Region, format!("the region {name} was not seen")),
        Some(region) => ensure(
            region.quorate || planted!(QuorumIgnored),
            CheckRule::Region,
            || format!("the region {name} has no quorum"),
        ),
    }
}

/// With too many nodes unready nothing is added and no working node removed.
fn cluster_health(case: Case<'_>, action: &Action) -> CheckResult {
    let concerned = match &action.kind {
        Kind::Create(_) | Kind::DeleteNode => true,
        Kind::Remove { .. } => together::by_choice(action) || action.reason == Reason::NoNode,
        _ => false,
    };
    let nodes = &case.snapshot.cluster.nodes;
    let coming = |name: &str| {
        case.snapshot.machines.values().any(|machine| {
            machine.node.as_deref() == Some(name)
                && (matches!(machine.busy, Some(Busy::Up | Busy::Down))
                    || machine.step.is_some_and(|(at, _)| at != Step::Done))
        })
    };
    let mut unready = 0;
    for (name, node) in nodes {
        let starting = node.taints.iter().any(|t| &*t.key == STARTUP_TAINT);
        if node.ready.status != ReadyStatus::True
            && !starting
            && !coming(name)
            && !existing::lifeless(case, name, node)
        {
            unready += 1;
        }
    }
    let settings = &case.policy.scale_down;
    let many = unready > u64::from(settings.ok_total_unready)
        && unready * 100 > u64::from(settings.max_total_unready_percent) * nodes.len() as u64;
    ensure(!(concerned && many), CheckRule::ClusterUnhealthy, || {
        format!("{unready} of {} nodes are not Ready", nodes.len())
    })
}
