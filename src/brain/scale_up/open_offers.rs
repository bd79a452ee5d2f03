//! Which offers could become one more machine now, before a plan is made.

use crate::decision::turn::DecisionBuilder;
use crate::scale_up::limits::LimitTracker;
use crate::simulation::followers::OpenOffers;
use crate::simulation::offer::ChoiceList;

/// The offers of which one more machine may be made now.
pub(crate) fn list_open<'c, 'a>(
    turn: &DecisionBuilder<'a>,
    choices: &'c ChoiceList<'a>,
) -> OpenOffers<'c, 'a> {
    let limits = LimitTracker::of(turn);
    let open = choices
        .iter()
        .filter(|choice| limits.admits(turn, choice).is_ok());
    let offers = open.flat_map(|choice| choice.offers.iter().map(move |offer| (choice, offer)));
    offers
        .filter(|(choice, offer)| limits.host_admits(choice, offer).is_ok())
        .collect()
}
