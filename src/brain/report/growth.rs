//! How many machines a plan makes for pods and for the pools' `min`, and at what price.

use model::action::Kind;
use model::report::Growth;

use crate::decision::turn::DecisionBuilder;
use crate::simulation::offer::{self, ChoiceList};

/// Writes how many machines the plan makes so far, and what they cost. Nothing where it makes none. Machines that
/// replace others are planned later and do not count.
pub(crate) fn report(turn: &mut DecisionBuilder<'_>, choices: &ChoiceList<'_>) {
    let mut growth = Growth::default();
    for action in &turn.plan {
        let Kind::Create(spec) = &action.kind else {
            continue;
        };
        let Some(choice) = offer::choice_of(choices, &spec.mark, &action.target.region) else {
            continue;
        };
        growth.nodes = growth.nodes.saturating_add(1);
        growth.price = growth.price.saturating_add(choice.price);
    }
    if growth.nodes > 0 {
        turn.report.scale_up = Some(growth);
    }
}
