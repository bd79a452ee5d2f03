//! What to open for a group: of the pools of highest weight that may have a machine, the choice that carries most for its price.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pending::GroupRun;
use super::refusals::{OfferRefusal, RefusalLog, SharedRefusals};
use super::trial_node::TrialNode;
use super::view::PlanView;
use crate::index::{
    CatalogOfferIndex, ChoiceIndex, GroupIndex, IndexVec, OfferIndex, PlannedIndex,
    PoolRegionIndex, RunIndex, TierIndex,
};
use crate::simulation::inter_pod::{Preferences, Rules};
use model::reasons::{Reasons, Refused};

/// After so many trials for one pick the search ends, if one of them may be opened. The choices with the best prospects come first, so the
/// rest could hardly be better, and each trial goes through all that waits. It counts anew for each tier, and for the pass with preferences.
const MAX_TRIALS: usize = 24;
/// Parts of a price: an unmet preference of weight 100 counts as much as the price itself.
pub(super) const PRICE_PERCENT: i128 = 100;

/// A machine to open for a group, and what it would take: the answer of [`choose`].
#[derive(Debug)]
pub(super) struct Pick {
    pub(super) choice: ChoiceIndex,
    pub(super) offer: OfferIndex,
    /// How many pods of the leading group it would take.
    pub(super) lead_pods: usize,
    /// The worth of all pods it might take.
    pub(super) worth: i128,
    /// What is paid for it, preferences that are not met included.
    pub(super) cost: i128,
    /// The planned machine that grows to this, instead of a new one.
    pub(super) instead: Option<PlannedIndex>,
}

/// What came of looking for a machine for one group.
#[derive(Debug)]
pub(super) struct Chosen {
    /// What to open, if anything may be.
    pub(super) pick: Option<Pick>,
    /// Why the others were not taken.
    pub(super) why: Reasons,
    /// Something may not be opened that could later, without other pods changing.
    pub(super) held: bool,
}

/// A choice that may be opened, on its best host.
#[derive(Clone, Copy, Debug)]
struct OpenableChoice {
    choice: ChoiceIndex,
    offer: OfferIndex,
    /// Price, perhaps with preferences that are not met.
    cost: i128,
}

/// What is known while looking for what to open for one group.
#[derive(Debug)]
pub(super) struct ChoiceSearch<'r, 'v, 'a> {
    pub(super) view: PlanView<'v, 'a>,
    pub(super) lead: GroupIndex,
    pub(super) rules: Option<&'r Rules>,
    /// The first run of those that may fill up the node.
    pub(super) others: Option<RunIndex>,
    /// What is said against choices.
    words: RefusalLog,
    /// Something may not be opened that could later.
    held: bool,
    /// By choice: something is said against it already.
    refused: IndexVec<ChoiceIndex, bool>,
    /// What limits say of pools, each in each of its regions.
    pools: BTreeMap<PoolRegionIndex, Result<(), Arc<Refused>>>,
    /// What rules say, by an offer.
    known: Vec<(CatalogOfferIndex, Arc<Refused>)>,
}

/// Finds what to open for a group whose pods follow these rules.
pub(super) fn choose(
    view: PlanView<'_, '_>,
    lead: GroupIndex,
    rules: Option<&Rules>,
    refusals: &mut SharedRefusals,
) -> Chosen {
    let mut search = ChoiceSearch::begin(view, lead, rules);
    let total = search.sum_worth();
    let mut tiers = view.catalog.candidates.tiers.indexes();
    let found = tiers.find_map(|tier| Some((tier, search.find_best(tier, total)?)));
    if let Some((tier, pick)) = &found {
        search.say_of_losers(*tier, pick);
    }
    let filter_failures = &view.row(lead).why;
    let row = view.group(lead).row;
    let why = refusals.reasons(view.catalog.choices, row, filter_failures, &search.words);
    Chosen {
        pick: found.map(|(_, pick)| pick),
        why,
        held: search.held,
    }
}

/// The first run of those that may fill up a node which is opened for `lead`. Where every pod of the
/// lead needs a node of its own there will be as many nodes as pods: each is as cheap as can be, and
/// the others find what is left on them.
fn find_fillers(
    view: PlanView<'_, '_>,
    lead: GroupIndex,
    rules: Option<&Rules>,
) -> Option<RunIndex> {
    let shape = view.shape(lead).shape;
    let alone = rules.is_some_and(Rules::need_a_node_each) || !shape.host_ports.is_empty();
    (!alone).then_some(view.group(lead).run)
}

impl<'r, 'v, 'a> ChoiceSearch<'r, 'v, 'a> {
    /// A search for a group whose pods follow these rules, of which nothing is known yet.
    pub(super) fn begin(
        view: PlanView<'v, 'a>,
        lead: GroupIndex,
        rules: Option<&'r Rules>,
    ) -> ChoiceSearch<'r, 'v, 'a> {
        ChoiceSearch {
            view,
            lead,
            rules,
            others: find_fillers(view, lead, rules),
            words: RefusalLog::default(),
            held: false,
            refused: vec![false; view.catalog.choices.len()].into(),
            pools: BTreeMap::new(),
            known: Vec::new(),
        }
    }
}

impl ChoiceSearch<'_, '_, '_> {
    /// Why those that were not refused lost.
    fn say_of_losers(&mut self, tier: TierIndex, pick: &Pick) {
        let view = self.view;
        let winner = view.choice(pick.choice);
        let dearer = Arc::new(Refused::CarriesLess {
            winner: winner.label.clone(),
        });
        let weighs_less = Arc::new(Refused::WeighsLess {
            pool: winner.pool.clone(),
        });
        let row = view.row(self.lead);
        let tiers = &view.catalog.candidates.tiers;
        for index in tiers.indexes_from(tier) {
            let text = if index == tier { &dearer } else { &weighs_less };
            let refused = &self.refused;
            let lost = |choice: &ChoiceIndex| {
                row.any[*choice] && !refused[*choice] && *choice != pick.choice
            };
            let losers = tiers[index].choices.iter().copied().filter(lost);
            self.words.say_all(view.catalog.choices, losers, text);
        }
    }

    /// The choice of a tier that carries most for what it costs; of equals the one that carries more. An unmet
    /// preference raises the cost of a choice, yet is no reason for more machines: one that meets more preferences must
    /// carry as much as the one that is best without.
    fn find_best(&mut self, tier: TierIndex, total: i128) -> Option<Pick> {
        let mut best = self.find_best_value(tier, total, None)?;
        let unmet = self.view.unmet(self.lead, best.choice, best.offer);
        if unmet > 0 {
            best.cost = self.compute_cost(best.choice, unmet);
            best = self
                .find_best_value(tier, total, Some(best.worth))
                .unwrap_or(best);
        }
        let pays = |pick: &Pick| !carries_more_for_its_cost(&best, pick);
        let larger = self.find_larger_type(&best).filter(pays);
        let larger = larger.or_else(|| self.find_roomier_machine(&best).filter(pays));
        Some(larger.unwrap_or(best))
    }

    /// The choice of a tier that carries most for its price; where they must carry at least `least`, for
    /// its price with preferences.
    fn find_best_value(
        &mut self,
        tier: TierIndex,
        total: i128,
        least: Option<i128>,
    ) -> Option<Pick> {
        let mut best: Option<Pick> = None;
        let mut trials = 0;
        let candidates = &self.view.catalog.candidates;
        for (choice, most) in candidates.walk(tier, total) {
            let beaten = best.as_ref().is_some_and(|best| {
                let best = (best.cost, best.worth);
                trials >= MAX_TRIALS || candidates.cannot_beat(choice, most, PRICE_PERCENT, best)
            });
            if beaten {
                break;
            }
            let Some(candidate) = self.find_candidate(choice, least.is_some()) else {
                continue;
            };
            trials += 1;
            let pick = self.fill_on_trial(&candidate);
            if pick.lead_pods > 0
                && least.is_none_or(|least| pick.worth >= least)
                && best.as_ref().is_none_or(|best| {
                    carries_more_for_its_cost(&pick, best)
                        || self.is_as_good_and_nicer(&pick, best)
                        || self.view.on_a_better_host(&pick, best)
                })
            {
                best = Some(pick);
            }
        }
        best
    }

    /// Whether a choice costs and carries the same as the best so far and its hosts suit the preferences of the
    /// leading group better, while no group that waits could do with it alone.
    fn is_as_good_and_nicer(&self, pick: &Pick, best: &Pick) -> bool {
        let view = self.view;
        let Some(preferences) = view.group(self.lead).preferences.as_deref() else {
            return false;
        };
        let free = |of: &Pick| &view.choice(of.choice).offers[of.offer].free;
        let replaceable = |run: &GroupRun<'_>| {
            let any = &view.catalog.rows.get(run.row).any;
            any[best.choice] || !any[pick.choice]
        };
        pick.cost == best.cost
            && pick.worth == best.worth
            && free(pick) == free(best)
            && view.pending.runs.iter().all(replaceable)
            && self.find_least_penalty(preferences, pick)
                < self.find_least_penalty(preferences, best)
    }

    /// What a pod of the leading group counts on the host of a choice that suits its preferences best.
    fn find_least_penalty(&self, preferences: &Preferences, pick: &Pick) -> Option<i64> {
        let view = self.view;
        let choice = view.choice(pick.choice);
        let row = view.row(self.lead);
        let offers = choice.offers.indexed().filter(|(index, offer)| {
            row.fits[choice.index_in_catalog(*index)]
                && view.limits.host_admits(choice, offer).is_ok()
        });
        let penalty = offers.map(|(index, _)| {
            let domains = &view.catalog.domains[choice.index_in_catalog(index)];
            let inter_pod = &view.world.inter_pod;
            inter_pod.penalty(preferences, |key| domains[key])
        });
        penalty.min()
    }

    /// The cost of a choice for pods of which preferences of this weight are not met, in parts of a price ([`PRICE_PERCENT`]).
    fn compute_cost(&self, choice: ChoiceIndex, unmet: i64) -> i128 {
        i128::from(self.view.choice(choice).price) * (PRICE_PERCENT + i128::from(unmet))
    }

    /// A choice on its best host, if it may be opened for the leading group; what is said against it
    /// is noted.
    fn find_candidate(&mut self, index: ChoiceIndex, preferences: bool) -> Option<OpenableChoice> {
        let view = self.view;
        let (choice, choices) = (view.choice(index), view.catalog.choices);
        if !view.row(self.lead).any[index] || self.refused[index] {
            return None;
        }
        let pool = self.pools.entry(choice.pool_region).or_insert_with(|| {
            let admits = view.limits.pool_admits(view.turn, choice);
            admits.map_err(Arc::new)
        });
        if let Err(why) = pool {
            self.held = true;
            self.refused[index] = true;
            self.words.say(choices, index, why);
            return None;
        }
        let host = view
            .limits
            .type_admits(choice, None)
            .map_err(OfferRefusal::Held)
            .and_then(|()| view.find_host(index, Some((self.lead, self.rules))));
        match host {
            Ok((offer, unmet)) => Some(OpenableChoice {
                choice: index,
                offer,
                cost: self.compute_cost(index, if preferences { unmet } else { 0 }),
            }),
            Err(no) => {
                self.held |= matches!(no, OfferRefusal::Held(_));
                self.refused[index] = true;
                let text = view.explain_refusal(no, self.rules, &mut self.known);
                self.words.say(choices, index, &text);
                None
            }
        }
    }

    /// The worth of all that one node could carry at best, were it large enough.
    fn sum_worth(&self) -> i128 {
        let times = |worth: i128, left: usize| {
            worth.saturating_mul(i128::try_from(left).unwrap_or(i128::MAX))
        };
        let runs = &self.view.pending.runs;
        match self.others {
            None => runs[self.view.group(self.lead).run].worth,
            Some(first) => runs
                .tail(first)
                .iter()
                .map(|run| times(run.worth, run.left))
                .fold(0, i128::saturating_add),
        }
    }

    /// What one new node of a candidate would take.
    fn fill_on_trial(&self, candidate: &OpenableChoice) -> Pick {
        let (choice, offer) = (candidate.choice, candidate.offer);
        let room = TrialNode::of_offer(self.view, choice, offer);
        let may = self.rules.map_or(usize::MAX, |rules| {
            self.view.count_admitted(rules, choice, offer)
        });
        let mut pick = Pick {
            choice,
            offer,
            lead_pods: 0,
            worth: 0,
            cost: candidate.cost,
            instead: None,
        };
        room.count_fill(&mut pick, (self.lead, may), self.others);
        pick
    }
}

/// Whether `a` has a lower cost per worth than `b`, or the same and carries more. A dearer pick may be that too.
pub(super) fn carries_more_for_its_cost(a: &Pick, b: &Pick) -> bool {
    let (left, right) = (
        a.cost.saturating_mul(b.worth),
        b.cost.saturating_mul(a.worth),
    );
    left < right || (left == right && a.worth > b.worth)
}
