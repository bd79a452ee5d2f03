//! Why each machine that is planned comes to its host.

use std::collections::BTreeMap;

use model::action::Kind;
use model::host_choice::{HostChoice, OtherHost};

use crate::decision::turn::DecisionBuilder;
use crate::scale_up::limits::LimitTracker;
use crate::simulation::offer::{self, Choice, ChoiceList, Offer};

/// Writes for every machine that the plan makes why it comes to its host, one after the other in the plan's order.
pub(crate) fn report(turn: &mut DecisionBuilder<'_>, choices: &ChoiceList<'_>) {
    let makes = |kind: &Kind| matches!(kind, Kind::Create(_));
    if !turn.plan.iter().any(|action| makes(&action.kind)) {
        return;
    }
    let mut limits = LimitTracker::of(turn);
    let mut chosen = BTreeMap::new();
    for action in &turn.plan {
        let Kind::Create(spec) = &action.kind else {
            continue;
        };
        let target = &action.target;
        let Some((choice, offer)) = offer::offer_of(choices, &spec.mark, target) else {
            continue;
        };
        chosen.insert(target.machine.clone(), explain(&limits, choice, offer));
        limits.book(choice, offer, spec.mark.vmid);
    }
    turn.report.chosen_hosts = chosen;
}

/// Why the host of an offer, with what was booked before.
fn explain(limits: &LimitTracker, choice: &Choice<'_>, taken: &Offer<'_>) -> HostChoice {
    let own = limits.host_rank(choice, taken);
    let others = choice.offers.iter();
    let others = others
        .filter(|offer| offer.host != taken.host && limits.host_admits(choice, offer).is_ok());
    let first = others.min_by_key(|offer| limits.host_rank(choice, offer));
    HostChoice {
        host: taken.host.clone(),
        strategy: limits.strategy(choice),
        standing: limits.standing(choice, taken),
        other: first.map(|offer| OtherHost {
            host: offer.host.clone(),
            standing: limits.standing(choice, offer),
            comes_first: limits.host_rank(choice, offer) < own,
        }),
    }
}
