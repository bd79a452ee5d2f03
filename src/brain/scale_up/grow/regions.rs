//! A pool in several regions: at equal weight and price its machines are spread as its strategy says, as if all its hosts
//! were in one.

use super::choose::Pick;
use super::view::PlanView;
use crate::index::{ChoiceIndex, GroupIndex, OfferIndex};
use crate::simulation::inter_pod::Rules;
use crate::simulation::offer::Choice;

impl PlanView<'_, '_> {
    /// Whether a choice is that of the best so far in another region, where the pool's strategy rather takes the host.
    pub(super) fn on_a_better_host(&self, pick: &Pick, best: &Pick) -> bool {
        let (one, other) = (
            &self.catalog.choices[pick.choice],
            &self.catalog.choices[best.choice],
        );
        let same = one.pool_type == other.pool_type;
        let rank = |choice: &Choice<'_>, of: &Pick| {
            self.limits.host_rank(choice, &choice.offers[of.offer])
        };
        same && pick.cost == best.cost
            && pick.worth == best.worth
            && rank(one, pick) < rank(other, best)
    }

    /// Whether the pool would rather have one more machine of a choice on a host of another region, which costs the same.
    pub(super) fn rather_elsewhere(
        &self,
        choice: ChoiceIndex,
        offer: OfferIndex,
        lead: (GroupIndex, Option<&Rules>),
    ) -> bool {
        let here = &self.catalog.choices[choice];
        let rank = self.limits.host_rank(here, &here.offers[offer]);
        let terms = |of: &Choice<'_>| (of.pool_type, of.policy.weight, of.price);
        let sister = |index: &ChoiceIndex| {
            let other = &self.catalog.choices[*index];
            *index != choice
                && terms(other) == terms(here)
                && self.limits.pool_admits(self.turn, other).is_ok()
        };
        let sisters = self.catalog.choices.indexes().filter(sister);
        let mut found = sisters.filter_map(|index| {
            let (best, _) = self.find_host(index, Some(lead)).ok()?;
            let other = &self.catalog.choices[index];
            Some(self.limits.host_rank(other, &other.offers[best]))
        });
        found.any(|other| other < rank)
    }
}
