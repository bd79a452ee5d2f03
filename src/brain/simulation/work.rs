//! The budget of work of one decision: whether it is used up.

use model::reasons::{Reasons, Refused};

use super::world::SimCluster;
use crate::decision::turn::DecisionBuilder;

/// What is made of the budget in fact, at most: each step a few times. Reached only by pods that hang together in long
/// chains, and by removals.
const MAX_BUDGETS: u64 = 5;

/// Whether more was done since `began` than one decision may do.
pub(crate) fn used_up(turn: &DecisionBuilder<'_>, world: &SimCluster<'_>, began: u64) -> bool {
    let done = world.inter_pod.steps().saturating_sub(began);
    done > turn.steps.saturating_mul(MAX_BUDGETS)
}

/// What is said of a pod whose place depends on others' in so long a chain that the budget was used up.
pub(crate) fn chained() -> Reasons {
    Reasons::new([("*".into(), Refused::Chained.into())].into())
}
