//! Consolidation, budgets over nodes, and the limits over all pools.

use super::Problems;
use crate::config::file::{self, BudgetReason, ConsolidationKind};
use crate::config::place::KeyPath;
use crate::model::disruption::{
    Cause, Consolidation, ConsolidationPolicy, NodeBudget, Rollout, Saving, Share, Window,
};
use crate::model::time::Span;

/// Without a word about it, a node is let be for this long after a pod came or went …
const AFTER: Span = Span::minutes(5);
/// … and a replacement must save this part of what it replaces.
const MIN_SAVING: Saving = Saving {
    permille: 100,
    price: 0,
};
/// A window is at most a week long: what holds longer holds always.
const LONGEST_WINDOW: Span = Span::minutes(7 * 24 * 60);
/// A node that is replaced sooner does little but come and go.
const SHORTEST_AGE: Span = Span::minutes(60);

/// How a pool's nodes are consolidated.
pub(super) fn consolidation(
    pool: &file::Pool,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<Consolidation> {
    let underused = pool.consolidation == Some(ConsolidationKind::WhenUnderused);
    problems.unless(
        pool.consolidate_after.is_none()
            || matches!(
                pool.consolidation,
                Some(ConsolidationKind::WhenEmpty | ConsolidationKind::WhenUnderused)
            ),
        &path.at("consolidate_after"),
        || {
            "means something only with consolidation = \"when-empty\" or \"when-underused\""
                .to_owned()
        },
    );
    problems.unless(
        pool.min_saving.is_none() || underused,
        &path.at("min_saving"),
        || "means something only with consolidation = \"when-underused\"".to_owned(),
    );
    let policy = match pool.consolidation? {
        ConsolidationKind::Never => ConsolidationPolicy::Never,
        ConsolidationKind::WhenEmpty => ConsolidationPolicy::WhenEmpty,
        ConsolidationKind::WhenUnderused => ConsolidationPolicy::WhenUnderused,
    };
    Some(Consolidation {
        policy,
        after: pool.consolidate_after.map_or(AFTER, |after| after.0),
        min_saving: pool.min_saving.map_or(MIN_SAVING, |saving| saving.0),
    })
}

/// How the pool's outdated nodes are replaced.
pub(super) fn rollout(
    pool: &file::Pool,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<Rollout> {
    let expire_after = pool.expire_after.map(|age| age.0);
    problems.unless(
        expire_after.is_none_or(|age| age >= SHORTEST_AGE),
        &path.at("expire_after"),
        || format!("expected at least {SHORTEST_AGE}"),
    );
    let at_once = &path.at("max_rollout_parallelism");
    problems.unless(pool.max_rollout_parallelism > 0, at_once, || {
        "expected at least 1".to_owned()
    });
    let wanted = pool.replace_drifted || expire_after.is_some();
    problems.unless(wanted || pool.max_rollout_parallelism <= 1, at_once, || {
        "means something only with replace_drifted or expire_after".to_owned()
    });
    let key = if pool.replace_drifted {
        "replace_drifted"
    } else {
        "expire_after"
    };
    problems.unless(!(wanted && pool.atomic), &path.at(key), || {
        "means nothing with atomic = true: its nodes go all together or not at all".to_owned()
    });
    wanted.then_some(Rollout {
        drifted: pool.replace_drifted,
        expire_after,
        max_parallel: pool.max_rollout_parallelism,
    })
}

/// The pool's budgets.
pub(super) fn budgets(
    pool: &file::Pool,
    path: &KeyPath,
    problems: &mut Problems,
) -> Vec<NodeBudget> {
    let path = path.at("budget");
    pool.budget
        .iter()
        .enumerate()
        .map(|(position, budget)| {
            let path = path.at(&position);
            let nodes = problems.require(
                budget.nodes,
                &path.at("nodes"),
                "a number of nodes such as 3, or a percentage such as \"10%\"",
            );
            NodeBudget {
                nodes: nodes.map_or(Share::Nodes(0), |nodes| nodes.0),
                window: window(budget, &path, problems),
                causes: budget.reasons.iter().copied().map(cause).collect(),
            }
        })
        .collect()
}

fn cause(reason: BudgetReason) -> Cause {
    match reason {
        BudgetReason::Empty => Cause::Empty,
        BudgetReason::Underused => Cause::Underused,
        BudgetReason::Outdated => Cause::Outdated,
    }
}

fn window(
    budget: &file::NodeBudgetTable,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<Window> {
    match (&budget.schedule, budget.duration) {
        (None, None) => None,
        (Some(schedule), Some(duration)) => {
            problems.unless(
                duration.0 >= Span::minutes(1) && duration.0 <= LONGEST_WINDOW,
                &path.at("duration"),
                || format!("expected 1m to {LONGEST_WINDOW}"),
            );
            Some(Window {
                schedule: schedule.0.clone(),
                duration: duration.0,
            })
        }
        (Some(_), None) => {
            problems.add(
                &path.at("duration"),
                "is missing; expected for how long the budget holds from its schedule on",
            );
            None
        }
        (None, Some(_)) => {
            problems.add(
                &path.at("schedule"),
                "is missing; expected when the budget begins to hold",
            );
            None
        }
    }
}

/// What is kept is no more than what may be.
pub(super) fn check_limits(limits: &file::Limits, problems: &mut Problems) {
    let path = KeyPath::default().at("limits");
    if let (Some(min), Some(max)) = (limits.min_cpu, limits.max_cpu) {
        problems.unless(min <= max, &path.at("min_cpu"), || {
            format!("expected at most max_cpu, which is {max}")
        });
    }
    if let (Some(min), Some(max)) = (limits.min_memory, limits.max_memory) {
        problems.unless(min <= max, &path.at("min_memory"), || {
            format!("expected at most max_memory, which is {max}")
        });
    }
}
