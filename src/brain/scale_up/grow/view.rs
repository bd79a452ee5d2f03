//! What the phases ask while nothing changes: of the plan in the making, of what could be made, of the pods that wait.

use std::sync::Arc;

use super::catalog::Catalog;
use super::fit_matrix::FitRow;
use super::pending::{PendingGroup, PendingGroups};
use super::refusals::OfferRefusal;
use crate::constraints::fit::node_preferences;
use crate::constraints::shape::NamespacedShape;
use crate::decision::turn::DecisionBuilder;
use crate::index::{
    CatalogOfferIndex, ChoiceIndex, GroupIndex, KeyId, NodeIndex, OfferIndex, TierIndex,
};
use crate::scale_up::limits::LimitTracker;
use crate::simulation::inter_pod::Rules;
use crate::simulation::offer::{Choice, Daemon, Offer};
use crate::simulation::pack::{self, FitIndex};
use crate::simulation::planned::PlannedMachines;
use crate::simulation::world::SimCluster;
use model::reasons::{FilterFailure, Reasons, Refused, VolumeFilterFailure};

/// Hosts whose reasons are said where none will do: `explain pod` has them all.
const HOSTS_NAMED: usize = 3;

/// All that is known of a plan in the making.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanView<'v, 'a> {
    pub(super) turn: &'v DecisionBuilder<'a>,
    pub(super) world: &'v SimCluster<'a>,
    pub(super) limits: &'v LimitTracker,
    pub(super) planned: &'v PlannedMachines,
    pub(super) existing: &'v FitIndex,
    pub(super) catalog: &'v Catalog<'v, 'a>,
    pub(super) pending: &'v PendingGroups<'a>,
}

impl<'v, 'a> PlanView<'v, 'a> {
    pub(super) fn choice(&self, choice: ChoiceIndex) -> &'v Choice<'a> {
        &self.catalog.choices[choice]
    }

    pub(super) fn group(&self, group: GroupIndex) -> &'v PendingGroup<'a> {
        &self.pending.groups[group]
    }

    /// The shape of a group's pods (what filters read of a pod), with their namespace.
    pub(super) fn shape(&self, group: GroupIndex) -> NamespacedShape<'a> {
        self.world.shapes[self.group(group).shape]
    }

    /// The row of the `FitMatrix` for a group: which offers' empty nodes could hold one of its pods, and why not the others.
    pub(super) fn row(&self, group: GroupIndex) -> &'v FitRow {
        self.catalog.rows.get(self.group(group).row)
    }

    pub(super) fn priority(&self, group: GroupIndex) -> i32 {
        self.shape(group).shape.priority
    }

    /// The tier of a choice.
    pub(super) fn tier(&self, choice: ChoiceIndex) -> TierIndex {
        let choices = self.catalog.choices;
        self.catalog
            .candidates
            .tier(choices, choices[choice].policy.weight)
    }

    /// The weight of a group's preferences that a new node of an offer does not meet.
    pub(super) fn unmet(&self, group: GroupIndex, choice: ChoiceIndex, offer: OfferIndex) -> i64 {
        let choice = self.choice(choice);
        let place = choice.place(&choice.offers[offer]);
        node_preferences::unmet(self.shape(group).shape, place)
    }

    /// How many pods with these rules one new node of an offer may take.
    pub(super) fn count_admitted(
        &self,
        rules: &Rules,
        choice: ChoiceIndex,
        offer: OfferIndex,
    ) -> usize {
        let choice = self.choice(choice);
        let domains = &self.catalog.domains[choice.index_in_catalog(offer)];
        let at = |key: KeyId| domains[key];
        let daemons = choice.offers[offer].residents.iter();
        let daemons = daemons.map(Daemon::pod);
        let may = self.world.inter_pod.most_beside(rules, at, &daemons);
        usize::try_from(may).unwrap_or(usize::MAX)
    }

    /// Why a new node of an offer finds no volumes for a pod of a group any more.
    fn volume_filter_failure(
        &self,
        group: GroupIndex,
        offer: &Offer<'_>,
    ) -> Option<VolumeFilterFailure> {
        let need = self.group(group).need.as_deref()?;
        let need = Some(need).filter(|need| !need.waiting.is_empty())?;
        self.world
            .assumed
            .filter_failure(&self.world.free_volumes, need, offer.at())
    }

    /// How many pods of a group a place takes, other pods' preferences aside.
    pub(super) fn room_beside(&self, group: GroupIndex, node: NodeIndex) -> u64 {
        let group = self.group(group);
        let need = group.need.as_deref();
        pack::admitted(self.world, group.shape, need, node, None).unwrap_or(0)
    }

    /// The host for one more machine of a choice: the one that meets most preferences, then the one that the
    /// pool's strategy takes. With the weight of the preferences it does not meet.
    pub(super) fn find_host(
        &self,
        choice: ChoiceIndex,
        lead: Option<(GroupIndex, Option<&Rules>)>,
    ) -> Result<(OfferIndex, i64), OfferRefusal> {
        let chosen = self.choice(choice);
        let row = lead.map(|(group, _)| self.row(group));
        let rules = lead.and_then(|(_, rules)| rules);
        let (mut held, mut refusal): (Vec<Refused>, Option<OfferRefusal>) = (Vec::new(), None);
        let (mut refused, mut best) = (0, None);
        for (index, offer) in chosen.offers.indexed() {
            if row.is_some_and(|row| !row.fits[chosen.index_in_catalog(index)]) {
                continue;
            }
            let verdict = match rules.filter(|rules| self.count_admitted(rules, choice, index) == 0)
            {
                Some(_) => Err(OfferRefusal::FilterFailure(chosen.index_in_catalog(index))),
                None => self
                    .limits
                    .host_admits(chosen, offer)
                    .map_err(OfferRefusal::Held),
            };
            let verdict = verdict.and_then(|()| {
                let why = lead.and_then(|(group, _)| self.volume_filter_failure(group, offer));
                why.map_or(Ok(()), |why| Err(OfferRefusal::Volume(why)))
            });
            if let Err(why) = verdict {
                refused += 1;
                match why {
                    OfferRefusal::Held(why) if held.len() < HOSTS_NAMED => held.push(why),
                    OfferRefusal::Held(_) => {}
                    other => refusal = refusal.or(Some(other)),
                }
                continue;
            }
            let unmet = lead.map_or(0, |(group, _)| self.unmet(group, choice, index));
            let rank = (unmet, self.limits.host_rank(chosen, offer));
            if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                best = Some((rank, index));
            }
        }
        best.map(|((unmet, ..), index)| (index, unmet))
            .ok_or_else(|| match (held.is_empty(), refusal) {
                // What may change by itself is said before what may not.
                (true, Some(refusal)) => refusal,
                (true, None) => OfferRefusal::Held(Refused::NoHost),
                (false, _) if refused > 1 => {
                    let (hosts, first) = (refused, held);
                    OfferRefusal::Held(Refused::NoneOfHosts { hosts, first })
                }
                (false, _) => OfferRefusal::Held(held.remove(0)),
            })
    }

    /// Why no machine is made somewhere. Of offers in the same domains one refusal is shared.
    pub(super) fn explain_refusal(
        &self,
        no: OfferRefusal,
        rules: Option<&Rules>,
        known: &mut Vec<(CatalogOfferIndex, Arc<Refused>)>,
    ) -> Arc<Refused> {
        let offer = match no {
            OfferRefusal::Held(refused) => return Arc::new(refused),
            OfferRefusal::Volume(volume) => {
                let filter_failure = Box::new(FilterFailure::Volume { volume });
                return Arc::new(Refused::FilterFailure { filter_failure });
            }
            OfferRefusal::FilterFailure(offer) => offer,
        };
        let domains = &self.catalog.domains;
        let same =
            |(other, _): &&(CatalogOfferIndex, Arc<Refused>)| domains[*other] == domains[offer];
        if let Some((_, refused)) = known.iter().find(same) {
            return refused.clone();
        }
        let at = |key: KeyId| domains[offer][key];
        let filter_failure = rules.and_then(|rules| self.world.inter_pod.filter_failure(rules, at));
        // It was refused for its rules: without one that is not met any more its machines are for others.
        let refused = Arc::new(
            filter_failure.map_or(Refused::ForOtherPods, |filter_failure| {
                Refused::FilterFailure {
                    filter_failure: Box::new(filter_failure),
                }
            }),
        );
        known.push((offer, refused.clone()));
        refused
    }

    /// Why a group is on none of the choices that could hold it, those that `taken` has aside: what limits say, or else
    /// `otherwise`.
    pub(super) fn explain_refusals(
        &self,
        group: GroupIndex,
        taken: impl Fn(ChoiceIndex) -> bool,
        otherwise: &Refused,
    ) -> Reasons {
        let row = self.row(group);
        let mut why = (*row.why).clone();
        for (index, choice) in self.catalog.choices.indexed() {
            if row.any[index] && !taken(index) {
                let refused = self.limits.admits(self.turn, choice).err();
                let refused = refused.unwrap_or_else(|| otherwise.clone());
                why.insert(choice.label.clone(), refused.into());
            }
        }
        Arc::new(why)
    }
}
