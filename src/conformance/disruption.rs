//! Consolidation, disruption budgets and rollout of a pool.

use std::collections::BTreeSet;

use crate::model::disruption::{
    Cause, Consolidation, ConsolidationPolicy, NodeBudget, Rollout, Saving, Share, Window,
};
use crate::model::policy::PoolPolicy;
use crate::model::time::Span;

use super::fields::CaseFields;
use super::scalars::{decimal, millionths, several, span, text, truth, whole};
use super::value::{CaseError, CaseValue};

/// Karpenter's `disruption` of a NodePool: `{consolidationPolicy, consolidateAfter, budgets}`.
pub(super) fn block(value: &CaseValue, pool: &mut PoolPolicy) -> Result<(), CaseError> {
    let mut fields = CaseFields::of(value, "a disruption")?;
    let named = fields.with("consolidationPolicy", policy)?;
    let mut consolidation = Consolidation {
        policy: named.unwrap_or(ConsolidationPolicy::WhenUnderused),
        after: Span::ZERO,
        min_saving: Saving::default(),
    };
    if let Some(value) = fields.take("consolidateAfter") {
        if value.scalar() == Some("Never") {
            consolidation.policy = ConsolidationPolicy::Never;
        } else {
            consolidation.after = span(value)?;
        }
    }
    if let Some(value) = fields.take("budgets") {
        pool.budgets = budgets(value)?;
    }
    fields.done()?;
    pool.consolidation = Some(consolidation);
    Ok(())
}

/// `when-underused`, or `{policy, after, min_saving}`.
pub(super) fn consolidation(value: &CaseValue) -> Result<Consolidation, CaseError> {
    if value.scalar().is_some() {
        return Ok(Consolidation {
            policy: policy(value)?,
            after: Span::ZERO,
            min_saving: Saving::default(),
        });
    }
    let mut fields = CaseFields::of(value, "a consolidation")?;
    let read = Consolidation {
        policy: policy(fields.need("policy")?)?,
        after: fields
            .any(&["after", "consolidateAfter"])
            .map(span)
            .transpose()?
            .unwrap_or_default(),
        min_saving: fields.with("min_saving", saving)?.unwrap_or_default(),
    };
    fields.done()?;
    Ok(read)
}

fn policy(value: &CaseValue) -> Result<ConsolidationPolicy, CaseError> {
    Ok(match text(value)? {
        "never" => ConsolidationPolicy::Never,
        "when-empty" | "WhenEmpty" => ConsolidationPolicy::WhenEmpty,
        "when-underused" | "WhenEmptyOrUnderutilized" | "WhenUnderutilized" => {
            ConsolidationPolicy::WhenUnderused
        }
        _ => return Err(value.expected("never, when-empty or when-underused")),
    })
}

/// `15%` of what is replaced, or a price.
fn saving(value: &CaseValue) -> Result<Saving, CaseError> {
    match text(value)?.strip_suffix('%') {
        Some(percent) => Ok(Saving {
            permille: decimal(percent.trim(), 1)
                .ok_or_else(|| value.expected("a share such as 15%"))?,
            price: 0,
        }),
        None => Ok(Saving {
            permille: 0,
            price: millionths(value)?,
        }),
    }
}

/// Which outdated nodes a pool replaces, by the names that the configuration has for it.
pub(super) fn rollout(fields: &mut CaseFields<'_>) -> Result<Option<Rollout>, CaseError> {
    let drifted = fields.with("replace_drifted", truth)?.unwrap_or(false);
    let expire_after = fields.with("expire_after", span)?;
    let at_once = fields.take("max_rollout_parallelism");
    if !drifted && expire_after.is_none() {
        let idle = at_once.map(|value| {
            value.wrong(
                "max_rollout_parallelism means something only with replace_drifted or expire_after",
            )
        });
        return idle.map_or(Ok(None), Err);
    }
    Ok(Some(Rollout {
        drifted,
        expire_after,
        max_parallel: at_once.map(whole).transpose()?.unwrap_or(1),
    }))
}

/// `[3, 10%, {nodes: 0, schedule: "0 9 * * *", duration: 8h, causes: [underused]}]`.
pub(super) fn budgets(value: &CaseValue) -> Result<Vec<NodeBudget>, CaseError> {
    several(value).into_iter().map(budget).collect()
}

fn budget(value: &CaseValue) -> Result<NodeBudget, CaseError> {
    if value.scalar().is_some() {
        return Ok(NodeBudget {
            nodes: share(value)?,
            window: None,
            causes: BTreeSet::new(),
        });
    }
    let mut fields = CaseFields::of(value, "a budget")?;
    let nodes = share(fields.need("nodes")?)?;
    let schedule = fields.take("schedule");
    let duration = fields.with("duration", span)?;
    let causes = fields.any(&["causes", "reasons"]);
    let causes = causes
        .map(|value| {
            several(value)
                .into_iter()
                .map(cause)
                .collect::<Result<_, _>>()
        })
        .transpose()?
        .unwrap_or_default();
    fields.done()?;
    let window = match (schedule, duration) {
        (None, None) => None,
        (Some(schedule), Some(duration)) => Some(Window {
            schedule: text(schedule)?
                .parse()
                .map_err(|error| schedule.wrong(format!("expected a cron schedule: {error}")))?,
            duration,
        }),
        _ => return Err(value.wrong("a budget's window needs schedule and duration")),
    };
    Ok(NodeBudget {
        nodes,
        window,
        causes,
    })
}

fn share(value: &CaseValue) -> Result<Share, CaseError> {
    match text(value)?.strip_suffix('%') {
        Some(percent) => percent
            .parse()
            .map(Share::Percent)
            .map_err(|_| value.expected("a number of nodes, or a share such as 10%")),
        None => whole(value).map(Share::Nodes),
    }
}

fn cause(value: &CaseValue) -> Result<Cause, CaseError> {
    match text(value)? {
        "empty" | "Empty" => Ok(Cause::Empty),
        "underused" | "Underutilized" => Ok(Cause::Underused),
        "outdated" | "Drifted" => Ok(Cause::Outdated),
        _ => Err(value.expected("empty, underused or outdated")),
    }
}
