//! Which node to open for a group: of the heaviest pools that may, the one that carries most for its
//! price.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::refusals::{No, Refusals, Words};
use super::{Grower, Kind, Pick};
use crate::constraints::fit::attach::{self, Slots};
use crate::constraints::fit::volumes::Need;
use crate::constraints::fit::{self, amounts, node_preferences};
use crate::constraints::stock::Gift;
use crate::simulation::company::{Preferences, Rules};
use crate::simulation::offer::{Daemon, Offer};
use model::reasons::{Misfit, Reasons, Refused, VolumeMisfit};
use model::resources::Resources;
use model::scheduling::HostPort;

/// Choices that are filled on trial for one pick, at most: those with the best prospects. The rest could hardly
/// be better, and each trial goes through all that waits.
const TRIALS: usize = 24;
/// Hosts whose reasons are said where none will do: `explain pod` has them all.
const HOSTS_NAMED: usize = 3;
/// Parts of a price: an unmet preference of weight 100 counts as much as the price itself.
pub(super) const WHOLE: i128 = 100;

/// A choice that may be opened, on its best host.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    choice: usize,
    offer: usize,
    /// Price, perhaps with preferences that are not met.
    cost: i128,
}

/// What is known while looking for what to open for one group.
#[derive(Debug)]
pub(super) struct Search<'r> {
    pub(super) lead: usize,
    pub(super) rules: Option<&'r Rules>,
    /// The first kind of those that may fill up the node.
    pub(super) others: Option<usize>,
    /// What is said against choices.
    words: Words,
    /// Something may not be opened that could later.
    held: bool,
    /// By choice: something is said against it already.
    refused: Vec<bool>,
    /// What limits say of pools, each in each of its regions.
    pools: BTreeMap<usize, Result<(), Arc<Refused>>>,
    /// What rules say, by an offer.
    known: Vec<(usize, Arc<Refused>)>,
}

/// What a trial has used up of a node.
#[derive(Debug)]
pub(super) struct Room {
    free: Resources,
    ports: Vec<HostPort>,
    slots: Option<Arc<Slots>>,
    /// Which offer it is of.
    at: (usize, usize),
    /// Volumes that claims take.
    gift: Gift,
}

impl Grower<'_, '_, '_, '_> {
    /// What to open for a group. Otherwise says why nothing, and whether that can change without other
    /// pods changing.
    pub(super) fn choose(
        &mut self,
        lead: usize,
        rules: Option<&Rules>,
        refusals: &mut Refusals,
    ) -> Result<Pick, (Reasons, bool)> {
        let mut search = Search {
            lead,
            rules,
            others: self.others(lead, rules),
            words: Words::default(),
            held: false,
            refused: vec![false; self.choices.len()],
            pools: BTreeMap::new(),
            known: Vec::new(),
        };
        let total = self.total_worth(&search);
        let found = (0..self.market.tiers.len())
            .find_map(|tier| Some((tier, self.best(&mut search, tier, total)?)));
        if let Some((tier, pick)) = &found {
            self.say_of_losers(&mut search, *tier, pick);
        }
        let row = self.groups[lead].row;
        let misfits = &self.rows.get(row).why;
        let why = refusals.reasons(self.choices, row, misfits, &search.words);
        match found {
            Some((_, pick)) => {
                self.groups[lead].why = why;
                Ok(pick)
            }
            None => Err((why, search.held)),
        }
    }

    /// Why those that were not refused lost.
    fn say_of_losers(&self, search: &mut Search<'_>, tier: usize, pick: &Pick) {
        let winner = &self.choices[pick.choice];
        let dearer = Arc::new(Refused::CarriesLess {
            winner: winner.label.clone(),
        });
        let lighter = Arc::new(Refused::WeighsLess {
            pool: winner.pool.clone(),
        });
        for (index, of) in self.market.tiers.iter().enumerate().skip(tier) {
            let text = if index == tier { &dearer } else { &lighter };
            let row = self.row(search.lead);
            let lost = |choice: &usize| {
                row.any[*choice] && !search.refused[*choice] && *choice != pick.choice
            };
            let losers = of.choices.iter().copied().filter(lost);
            search.words.say_all(self.choices, losers, text);
        }
    }

    /// The choice of a tier that carries most for what it costs; of equals the one that carries more. A
    /// preference makes a choice dearer, yet is no reason for more machines: one that meets more preferences must
    /// carry as much as the one that is best without.
    fn best(&self, search: &mut Search<'_>, tier: usize, total: i128) -> Option<Pick> {
        let mut best = self.carries_most(search, tier, total, None)?;
        let lead = search.lead;
        let unmet = self.unmet(lead, best.choice, best.offer);
        if unmet > 0 {
            best.cost = self.cost(best.choice, unmet);
            best = self
                .carries_most(search, tier, total, Some(best.worth))
                .unwrap_or(best);
        }
        let pays = |pick: &Pick| !cheaper(&best, pick);
        let larger = self.larger(search, &best).filter(pays);
        let larger = larger.or_else(|| self.roomier(search, &best).filter(pays));
        Some(larger.unwrap_or(best))
    }

    /// The choice of a tier that carries most for its price; where they must carry at least `least`, for
    /// its price with preferences.
    fn carries_most(
        &self,
        search: &mut Search<'_>,
        tier: usize,
        total: i128,
        least: Option<i128>,
    ) -> Option<Pick> {
        let mut best: Option<Pick> = None;
        let mut trials = 0;
        for (choice, most) in self.market.walk(tier, total) {
            let beaten = best.as_ref().is_some_and(|best| {
                let best = (best.cost, best.worth);
                trials >= TRIALS || self.market.cannot_beat(choice, most, WHOLE, best)
            });
            if beaten {
                break;
            }
            let Some(candidate) = self.candidate(search, choice, least.is_some()) else {
                continue;
            };
            trials += 1;
            let pick = self.trial(search, &candidate);
            if pick.lead > 0
                && least.is_none_or(|least| pick.worth >= least)
                && best.as_ref().is_none_or(|best| {
                    cheaper(&pick, best)
                        || self.as_good_and_nicer(search, &pick, best)
                        || self.on_a_better_host(&pick, best)
                })
            {
                best = Some(pick);
            }
        }
        best
    }

    /// Whether a choice costs and carries the same as the best so far and its hosts suit the preferences of the
    /// leading group better, while no group that waits could do with it alone.
    fn as_good_and_nicer(&self, search: &Search<'_>, pick: &Pick, best: &Pick) -> bool {
        let Some(preferences) = self.groups[search.lead].preferences.as_deref() else {
            return false;
        };
        let free = |pick: &Pick| &self.choices[pick.choice].offers[pick.offer].free;
        let replaceable = |kind: &Kind<'_>| {
            let any = &self.rows.get(kind.row).any;
            any[best.choice] || !any[pick.choice]
        };
        pick.cost == best.cost
            && pick.worth == best.worth
            && free(pick) == free(best)
            && self.kinds.iter().all(replaceable)
            && self.least_penalty(search, preferences, pick)
                < self.least_penalty(search, preferences, best)
    }

    /// What a pod of the leading group counts on the host of a choice that suits its preferences best.
    fn least_penalty(
        &self,
        search: &Search<'_>,
        preferences: &Preferences,
        pick: &Pick,
    ) -> Option<i64> {
        let choice = &self.choices[pick.choice];
        let row = self.row(search.lead);
        let offers = choice.offers.iter().enumerate().filter(|(index, offer)| {
            row.fits[choice.first + index] && self.ledger.host_admits(choice, offer).is_ok()
        });
        let penalty = offers.map(|(index, _)| {
            let slot = choice.first + index;
            let company = &self.world.company;
            company.penalty(preferences, |key| self.domains[slot][key])
        });
        penalty.min()
    }

    /// The price of a choice for pods of which preferences of this weight are not met.
    fn cost(&self, choice: usize, unmet: i64) -> i128 {
        i128::from(self.choices[choice].price) * (WHOLE + i128::from(unmet))
    }

    /// A choice on its best host, if it may be opened for the leading group; what is said against it
    /// is noted.
    fn candidate(
        &self,
        search: &mut Search<'_>,
        index: usize,
        preferences: bool,
    ) -> Option<Candidate> {
        let choice = &self.choices[index];
        if !self.row(search.lead).any[index] || search.refused[index] {
            return None;
        }
        let pool = search.pools.entry(choice.site_slot).or_insert_with(|| {
            let admits = self.ledger.pool_admits(self.turn, choice);
            admits.map_err(Arc::new)
        });
        if let Err(why) = pool {
            search.held = true;
            search.refused[index] = true;
            search.words.say(self.choices, index, why);
            return None;
        }
        let host = self
            .ledger
            .type_admits(choice, None)
            .map_err(No::Held)
            .and_then(|()| self.host(index, Some((search.lead, search.rules))));
        match host {
            Ok((offer, unmet)) => Some(Candidate {
                choice: index,
                offer,
                cost: self.cost(index, if preferences { unmet } else { 0 }),
            }),
            Err(no) => {
                search.held |= matches!(no, No::Held(_));
                search.refused[index] = true;
                let text = self.refused(no, search.rules, &mut search.known);
                search.words.say(self.choices, index, &text);
                None
            }
        }
    }

    /// The host for one more machine of a choice: the one that meets most preferences, then the one that the
    /// pool's strategy takes. With the weight of the preferences it does not meet.
    pub(super) fn host(
        &self,
        choice: usize,
        lead: Option<(usize, Option<&Rules>)>,
    ) -> Result<(usize, i64), No> {
        let chosen = &self.choices[choice];
        let row = lead.map(|(group, _)| self.row(group));
        let rules = lead.and_then(|(_, rules)| rules);
        let (mut held, mut refusal): (Vec<Refused>, Option<No>) = (Vec::new(), None);
        let (mut refused, mut best) = (0, None);
        for (index, offer) in chosen.offers.iter().enumerate() {
            if row.is_some_and(|row| !row.fits[chosen.first + index]) {
                continue;
            }
            let verdict = match rules.filter(|rules| self.may(rules, choice, index) == 0) {
                Some(_) => Err(No::Misfit(chosen.first + index)),
                None => self.ledger.host_admits(chosen, offer).map_err(No::Held),
            };
            let verdict = verdict.and_then(|()| {
                let why = lead.and_then(|(group, _)| self.unserved(group, offer));
                why.map_or(Ok(()), |why| Err(No::Volume(why)))
            });
            if let Err(why) = verdict {
                refused += 1;
                match why {
                    No::Held(why) if held.len() < HOSTS_NAMED => held.push(why),
                    No::Held(_) => {}
                    other => refusal = refusal.or(Some(other)),
                }
                continue;
            }
            let unmet = lead.map_or(0, |(group, _)| self.unmet(group, choice, index));
            let rank = (unmet, self.ledger.host_rank(chosen, offer));
            if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                best = Some((rank, index));
            }
        }
        best.map(|((unmet, ..), index)| (index, unmet))
            .ok_or_else(|| match (held.is_empty(), refusal) {
                // What may change by itself is said before what may not.
                (true, Some(refusal)) => refusal,
                (true, None) => No::Held(Refused::NoHost),
                (false, _) if refused > 1 => {
                    let (hosts, first) = (refused, held);
                    No::Held(Refused::NoneOfHosts { hosts, first })
                }
                (false, _) => No::Held(held.remove(0)),
            })
    }

    /// Why a new node of an offer finds no volumes for a pod of a group any more.
    fn unserved(&self, group: usize, offer: &Offer<'_>) -> Option<VolumeMisfit> {
        let need = self.groups[group].need.as_deref()?;
        let need = Some(need).filter(|need| !need.waiting.is_empty())?;
        let world = &*self.world;
        world.given.misfit(&world.stock, need, offer.at())
    }

    /// Why no machine is made somewhere. Of offers in the same domains one refusal is shared.
    pub(super) fn refused(
        &self,
        no: No,
        rules: Option<&Rules>,
        known: &mut Vec<(usize, Arc<Refused>)>,
    ) -> Arc<Refused> {
        let slot = match no {
            No::Held(refused) => return Arc::new(refused),
            No::Volume(volume) => {
                let misfit = Box::new(Misfit::Volume { volume });
                return Arc::new(Refused::Misfit { misfit });
            }
            No::Misfit(slot) => slot,
        };
        let same = |(other, _): &&(usize, Arc<Refused>)| self.domains[*other] == self.domains[slot];
        if let Some((_, refused)) = known.iter().find(same) {
            return refused.clone();
        }
        let at = |key: usize| self.domains[slot][key];
        let misfit = rules.and_then(|rules| self.world.company.misfit(rules, at));
        // It was refused for its rules: without one that is not met any more its machines are for others.
        let refused = Arc::new(
            misfit.map_or(Refused::ForOtherPods, |misfit| Refused::Misfit {
                misfit: Box::new(misfit),
            }),
        );
        known.push((slot, refused.clone()));
        refused
    }

    /// How many pods with these rules one new node of an offer may take.
    pub(super) fn may(&self, rules: &Rules, choice: usize, offer: usize) -> usize {
        let slot = self.choices[choice].first + offer;
        let at = |key: usize| self.domains[slot][key];
        let daemons = self.choices[choice].offers[offer].residents.iter();
        let daemons = daemons.map(Daemon::pod);
        let may = self.world.company.most_beside(rules, at, &daemons);
        usize::try_from(may).unwrap_or(usize::MAX)
    }

    /// The weight of a group's preferences that a new node of an offer does not meet.
    pub(super) fn unmet(&self, group: usize, choice: usize, offer: usize) -> i64 {
        let shape = self.world.shapes[self.groups[group].shape].shape;
        let place = self.choices[choice].place(&self.choices[choice].offers[offer]);
        node_preferences::unmet(shape, place)
    }

    /// The first kind of those that may fill up a node which is opened for `lead`. Where every pod of the
    /// lead needs a node of its own there will be as many nodes as pods: each is as cheap as can be, and
    /// the others find what is left on them.
    fn others(&self, lead: usize, rules: Option<&Rules>) -> Option<usize> {
        let shape = self.world.shapes[self.groups[lead].shape].shape;
        let alone = rules.is_some_and(Rules::solitary) || !shape.host_ports.is_empty();
        (!alone).then_some(self.groups[lead].kind)
    }

    /// The worth of all that one node could carry at best, were it large enough.
    fn total_worth(&self, search: &Search<'_>) -> i128 {
        let times = |worth: i128, left: usize| {
            worth.saturating_mul(i128::try_from(left).unwrap_or(i128::MAX))
        };
        let group = &self.groups[search.lead];
        match search.others {
            None => self.kinds[group.kind].worth,
            Some(first) => self.kinds[first..]
                .iter()
                .map(|kind| times(kind.worth, kind.left))
                .fold(0, i128::saturating_add),
        }
    }

    /// What one new node of a candidate would take.
    fn trial(&self, search: &Search<'_>, candidate: &Candidate) -> Pick {
        let at = &self.choices[candidate.choice].offers[candidate.offer];
        let room = Room {
            free: at.free.clone(),
            ports: at.ports.clone(),
            slots: self.choices[candidate.choice].slots.clone(),
            at: (candidate.choice, candidate.offer),
            gift: Gift::default(),
        };
        let may = search.rules.map_or(usize::MAX, |rules| {
            self.may(rules, candidate.choice, candidate.offer)
        });
        let mut pick = Pick {
            choice: candidate.choice,
            offer: candidate.offer,
            lead: 0,
            worth: 0,
            cost: candidate.cost,
            instead: None,
        };
        self.weigh(&mut pick, (search.lead, may), search.others, room);
        pick
    }

    /// What a node would carry: the leading group first, then the others in order. What other pods
    /// forbid the others is not asked; so this is how much there may be, not what will be.
    pub(super) fn weigh(
        &self,
        pick: &mut Pick,
        (lead, may): (usize, usize),
        others: Option<usize>,
        mut room: Room,
    ) {
        let slot = self.choices[pick.choice].first + pick.offer;
        let group = &self.groups[lead];
        pick.lead = self.fits(lead, &room).min(may).min(group.left());
        if pick.lead == 0 {
            return;
        }
        self.take(pick, lead, pick.lead, &mut room);
        for (index, kind) in self
            .kinds
            .iter()
            .enumerate()
            .skip(others.unwrap_or(usize::MAX))
        {
            if room.free.pods <= 0 {
                break;
            }
            let mut left = kind.left;
            if index == group.kind {
                left -= group.left();
            }
            if left == 0
                || amounts::full(kind.asked, &room.free)
                || !self.rows.get(kind.row).fits[slot]
            {
                continue;
            }
            // Of those that share a claim for one pod alone only one finds a place.
            let first = kind.groups.start;
            let need = self.groups[first].need.as_deref();
            let single = kind.alone || need.is_some_and(|need| !need.alone.is_empty());
            let most = if single { 1 } else { left };
            let count = self.fits(first, &room).min(most);
            if count > 0 {
                self.take(pick, first, count, &mut room);
            }
        }
    }

    /// What a pick puts on its node: pods of the leading group, then of those that other pods do not
    /// matter to. The rest comes when its turn comes, and its rules are asked.
    pub(super) fn filling(&self, lead: usize, pick: &Pick) -> Vec<(usize, usize)> {
        let slot = self.choices[pick.choice].first + pick.offer;
        let at = &self.choices[pick.choice].offers[pick.offer];
        let mut room = match pick.instead {
            None => Room {
                free: at.free.clone(),
                ports: at.ports.clone(),
                slots: self.choices[pick.choice].slots.clone(),
                at: (pick.choice, pick.offer),
                gift: Gift::default(),
            },
            Some(machine) => self.room_as(machine, pick),
        };
        let mut fill = vec![(lead, pick.lead)];
        self.use_up(lead, pick.lead, &mut room);
        let alone = self.kinds[self.groups[lead].kind].alone;
        let others = if alone { self.groups.len() } else { lead + 1 };
        let kinds = &self.kinds[self.groups[lead].kind..];
        for kind in kinds {
            if kind.left == 0 || !self.rows.get(kind.row).fits[slot] {
                continue;
            }
            for group in kind.groups.start.max(others)..kind.groups.end {
                if amounts::full(kind.asked, &room.free) {
                    break;
                }
                let queue = &self.groups[group];
                let passed = queue.left() == 0 || queue.dependent;
                if passed || self.spoken_for(group, &fill) {
                    continue;
                }
                let count = self.fits(group, &room).min(queue.left());
                if count > 0 {
                    self.use_up(group, count, &mut room);
                    fill.push((group, count));
                }
            }
        }
        fill
    }

    /// Whether a claim of the next pod of a group is for one pod alone and goes to another, perhaps to
    /// one of this filling.
    fn spoken_for(&self, group: usize, fill: &[(usize, usize)]) -> bool {
        let queue = &self.groups[group];
        let Some(need) = queue.need.as_deref().filter(|need| !need.alone.is_empty()) else {
            return false;
        };
        let key = queue.pods[queue.next].key;
        let shares = |other: usize| {
            let other = &self.groups[other];
            let theirs = other.need.as_deref().map(|theirs| &theirs.alone);
            other.pods[0].key.namespace == key.namespace
                && theirs.is_some_and(|theirs| !theirs.is_disjoint(&need.alone))
        };
        self.turn.promises.taken(key, Some(need)).is_some()
            || fill.iter().any(|(other, _)| shares(*other))
    }

    pub(super) fn room_as(&self, machine: usize, pick: &Pick) -> Room {
        let bin = self.planned.machines[machine].bin;
        Room {
            free: self.free_as(machine, pick.choice, pick.offer),
            ports: self.world.bins[bin].ports.clone(),
            slots: self.slots_as(bin, pick.choice),
            at: (pick.choice, pick.offer),
            gift: Gift::default(),
        }
    }

    fn fits(&self, group: usize, room: &Room) -> usize {
        let shape = self.world.shapes[self.groups[group].shape].shape;
        let need = self.groups[group].need.as_deref();
        let full = need.and_then(|need| room.slots.as_ref()?.misfit(need));
        if full.is_some() {
            return 0;
        }
        let most = fit::room(shape, &room.free, &room.ports);
        let most = match need.filter(|need| !need.waiting.is_empty()) {
            Some(need) => self.served(need, room.at, most, &mut room.gift.clone()),
            None => most,
        };
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// For how many pods, `limit` at most, a new node of an offer finds volumes beside those in `gift`,
    /// which is added to.
    fn served(&self, need: &Need, at: (usize, usize), limit: u64, gift: &mut Gift) -> u64 {
        let at = self.choices[at.0].offers[at.1].at();
        let given = &self.world.given;
        given.serve(&self.world.stock, need, at, limit, gift)
    }

    fn use_up(&self, group: usize, count: usize, room: &mut Room) {
        let shape = self.world.shapes[self.groups[group].shape].shape;
        amounts::take(&mut room.free, &shape.requests, count as u64);
        room.ports.extend(shape.host_ports.iter().cloned());
        let need = self.groups[group].need.as_deref();
        attach::take(&mut room.slots, need);
        if let Some(need) = need.filter(|need| !need.waiting.is_empty()) {
            self.served(need, room.at, count as u64, &mut room.gift);
        }
    }

    fn take(&self, pick: &mut Pick, group: usize, count: usize, room: &mut Room) {
        self.use_up(group, count, room);
        let count = i128::try_from(count).unwrap_or(i128::MAX);
        let worth = self.kinds[self.groups[group].kind].worth;
        pick.worth = pick.worth.saturating_add(worth.saturating_mul(count));
    }
}

/// Whether `a` carries more for what it costs than `b`; of equals the one that carries more.
pub(super) fn cheaper(a: &Pick, b: &Pick) -> bool {
    let (left, right) = (
        a.cost.saturating_mul(b.worth),
        b.cost.saturating_mul(a.worth),
    );
    left < right || (left == right && a.worth > b.worth)
}
