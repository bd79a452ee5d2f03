//! Which node to open for a group: of the heaviest pools that may, the one that carries most for its
//! price.

use std::sync::Arc;

use super::refusals::{No, Refusals, Words};
use super::{Grower, Pick};
use crate::brain::company::Rules;
use crate::brain::fit::{self, amounts, soft};
use crate::brain::offer;
use crate::model::report::Reasons;
use crate::model::resources::Resources;
use crate::model::scheduling::HostPort;

/// So many choices are filled on trial; where there are more, those with the best prospects.
const TRIALS: usize = 24;
/// Parts of a price: an unmet soft wish of weight 100 counts as much as the price itself.
const WHOLE: i128 = 100;

/// A choice that may be opened, on its best host.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    choice: usize,
    offer: usize,
    /// Price with soft wishes that are not met.
    cost: i128,
}

/// What a trial has used up of a node.
#[derive(Debug)]
struct Room {
    free: Resources,
    ports: Vec<HostPort>,
}

impl<'a> Grower<'_, '_, '_, 'a> {
    /// What to open for a group. Otherwise says why nothing, and whether that can change without other
    /// pods changing.
    pub(super) fn choose(
        &mut self,
        lead: usize,
        rules: Option<&Rules>,
        refusals: &mut Refusals,
    ) -> Result<Pick, (Reasons, bool)> {
        let mut words = Words::default();
        let (tier, held) = self.candidates(lead, rules, &mut words);
        let pick = self.best(lead, rules, &tier);
        if let Some(pick) = &pick {
            let label = &self.choices[pick.choice].label;
            let text: Arc<str> = format!("{label} carries more for its price").into();
            let losers = tier.iter().filter(|other| other.choice != pick.choice);
            for other in losers {
                words.say(self.choices, other.choice, &text);
            }
        }
        let row = self.groups[lead].row;
        let misfits = &self.rows.get(row).why;
        let why = refusals.reasons(self.choices, row, misfits, &words);
        match pick {
            Some(pick) => {
                self.groups[lead].why = why;
                Ok(pick)
            }
            None => Err((why, held)),
        }
    }

    /// The choices of the heaviest pools that may be opened for a group, and whether one may not that
    /// could later. What is said of the others goes to `words`.
    fn candidates(
        &self,
        lead: usize,
        rules: Option<&Rules>,
        words: &mut Words,
    ) -> (Vec<Candidate>, bool) {
        let row = self.row(lead);
        let (mut found, mut held) = (Vec::<Candidate>::new(), false);
        let mut pool: Option<(usize, Result<(), Arc<str>>)> = None;
        for (index, choice) in self.choices.iter().enumerate() {
            if !row.any[index] {
                continue;
            }
            if pool
                .as_ref()
                .is_none_or(|(slot, _)| *slot != choice.pool_slot)
            {
                let admits = self.ledger.pool_admits(self.turn, choice);
                pool = Some((choice.pool_slot, admits.map_err(Arc::from)));
            }
            if let Some((_, Err(why))) = &pool {
                held = true;
                words.say(self.choices, index, why);
                continue;
            }
            let host = self
                .ledger
                .type_admits(choice, None)
                .map_err(No::Held)
                .and_then(|()| self.host(index, Some(lead), rules));
            match host {
                Ok((offer, unmet)) => found.push(Candidate {
                    choice: index,
                    offer,
                    cost: i128::from(choice.price) * (WHOLE + i128::from(unmet)),
                }),
                Err(no) => {
                    held |= matches!(no, No::Held(_));
                    words.say(self.choices, index, &no.text().into());
                }
            }
        }
        let weight = |candidate: &Candidate| self.choices[candidate.choice].policy.weight;
        let heaviest = found.iter().map(weight).max();
        let (tier, lighter): (Vec<Candidate>, Vec<Candidate>) = found
            .into_iter()
            .partition(|candidate| Some(weight(candidate)) == heaviest);
        if let Some(first) = tier.first().filter(|_| !lighter.is_empty()) {
            let pool = self.choices[first.choice].pool;
            let text: Arc<str> = format!("the pool {pool} weighs more").into();
            for candidate in lighter {
                words.say(self.choices, candidate.choice, &text);
            }
        }
        (tier, held)
    }

    /// The host for one more machine of a choice: the one that meets most soft wishes, then the one
    /// with the fewest of the pool, then with the most free memory, then by name. With the weight of
    /// the wishes it does not meet.
    pub(super) fn host(
        &self,
        choice: usize,
        group: Option<usize>,
        rules: Option<&Rules>,
    ) -> Result<(usize, i64), No> {
        let chosen = &self.choices[choice];
        let row = group.map(|group| self.row(group));
        let mut refusal: Option<No> = None;
        let mut best = None;
        for (index, offer) in chosen.offers.iter().enumerate() {
            if row.is_some_and(|row| !row.fits[chosen.first + index]) {
                continue;
            }
            let verdict = match rules.filter(|rules| self.may(rules, choice, index) == 0) {
                Some(rules) => Err(self.forbidden(rules, chosen.first + index)),
                None => self.ledger.host_admits(chosen, offer).map_err(No::Held),
            };
            if let Err(why) = verdict {
                // What may change by itself is said before what may not.
                if refusal.is_none() || matches!(why, No::Held(_)) {
                    refusal = Some(why);
                }
                continue;
            }
            let unmet = group.map_or(0, |group| self.unmet(group, choice, index));
            let free = self.ledger.free_memory(offer);
            let rank = (
                unmet,
                self.ledger.on_host(chosen, offer),
                std::cmp::Reverse(free),
                offer.host,
            );
            if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                best = Some((rank, index));
            }
        }
        best.map(|((unmet, ..), index)| (index, unmet))
            .ok_or_else(|| {
                refusal.unwrap_or_else(|| No::Held("no host of its region may be used".to_owned()))
            })
    }

    fn forbidden(&self, rules: &Rules, slot: usize) -> No {
        let at = |key: usize| self.domains[slot][key];
        let misfit = self.world.company.misfit(rules, at);
        No::Misfit(misfit.map_or_else(String::new, |misfit| misfit.to_string()))
    }

    /// How many pods with these rules one new node of an offer may take.
    pub(super) fn may(&self, rules: &Rules, choice: usize, offer: usize) -> usize {
        let slot = self.choices[choice].first + offer;
        let may = self
            .world
            .company
            .most(rules, |key| self.domains[slot][key]);
        usize::try_from(may).unwrap_or(usize::MAX)
    }

    /// The weight of a group's soft wishes that a new node of an offer does not meet.
    pub(super) fn unmet(&self, group: usize, choice: usize, offer: usize) -> i64 {
        let shape = self.world.shapes[self.groups[group].shape].shape;
        let place = self.choices[choice].place(&self.choices[choice].offers[offer]);
        soft::unmet(shape, place)
    }

    /// The candidate that carries most for what it costs; of equals the one that carries more.
    fn best(&self, lead: usize, rules: Option<&Rules>, tier: &[Candidate]) -> Option<Pick> {
        let others = self.others(lead, rules);
        let total = self.total_worth(lead, &others);
        let mut order: Vec<(i128, &Candidate)> = tier
            .iter()
            .map(|candidate| (self.most_worth(candidate, total), candidate))
            .collect();
        if order.len() > TRIALS {
            // Stable: of equal prospects the first in the policy comes first.
            order.sort_by(|(a, left), (b, right)| {
                let (x, y) = (left.cost.saturating_mul(*b), right.cost.saturating_mul(*a));
                x.cmp(&y)
            });
        }
        let single = others.is_empty();
        let mut best: Option<Pick> = None;
        for (trial, (most, candidate)) in order.into_iter().enumerate() {
            let hopeless = best.as_ref().is_some_and(|best| {
                best.cost.saturating_mul(most) < candidate.cost.saturating_mul(best.worth)
            });
            if hopeless || (trial >= TRIALS && !single && best.is_some()) {
                continue;
            }
            let pick = self.trial(lead, rules, &others, candidate);
            let first = pick.fill.is_empty();
            if !first && best.as_ref().is_none_or(|best| cheaper(&pick, best)) {
                best = Some(pick);
            }
        }
        let best = best?;
        let larger = self.larger(lead, rules, &others, &best);
        Some(larger.filter(|pick| !cheaper(&best, pick)).unwrap_or(best))
    }

    /// The groups that may fill up a node which is opened for `lead`. Where every pod of the lead needs
    /// a node of its own there will be as many nodes as pods: each is as cheap as can be, and the others
    /// find what is left on them.
    fn others(&self, lead: usize, rules: Option<&Rules>) -> Vec<usize> {
        let shape = self.world.shapes[self.groups[lead].shape].shape;
        if rules.is_some_and(Rules::solitary) || !shape.host_ports.is_empty() {
            return Vec::new();
        }
        (lead + 1..self.groups.len())
            .filter(|group| self.groups[*group].left() > 0)
            .collect()
    }

    fn worth(&self, group: usize) -> i128 {
        let shape = self.world.shapes[self.groups[group].shape].shape;
        // A pod is worth something even if it asks for nothing.
        i128::from(offer::price(&shape.requests)).saturating_add(1)
    }

    fn total_worth(&self, lead: usize, others: &[usize]) -> i128 {
        let groups = std::iter::once(&lead).chain(others);
        groups.fold(0, |sum, group| {
            let left = i128::try_from(self.groups[*group].left()).unwrap_or(i128::MAX);
            sum.saturating_add(self.worth(*group).saturating_mul(left))
        })
    }

    /// More than a candidate can carry.
    fn most_worth(&self, candidate: &Candidate, total: i128) -> i128 {
        let offer = &self.choices[candidate.choice].offers[candidate.offer];
        let pods = i128::from(offer.free.pods.max(0));
        let room = i128::from(offer::price(&offer.free)).saturating_add(pods);
        room.min(total).saturating_add(1)
    }

    /// What one new node of a candidate would take.
    fn trial(
        &self,
        lead: usize,
        rules: Option<&Rules>,
        others: &[usize],
        candidate: &Candidate,
    ) -> Pick {
        let at = &self.choices[candidate.choice].offers[candidate.offer];
        let room = Room {
            free: at.free.clone(),
            ports: at.ports.clone(),
        };
        let may = rules.map_or(usize::MAX, |rules| {
            self.may(rules, candidate.choice, candidate.offer)
        });
        let mut pick = Pick {
            choice: candidate.choice,
            offer: candidate.offer,
            fill: Vec::new(),
            worth: 0,
            cost: candidate.cost,
            instead: None,
        };
        self.fill(&mut pick, (lead, may), others, room);
        pick
    }

    /// The leading group first, then the others in order. Those that other pods matter to count for
    /// what the node is worth; they are put there only when their turn comes and their rules are asked.
    fn fill(&self, pick: &mut Pick, (lead, may): (usize, usize), others: &[usize], mut room: Room) {
        let slot = self.choices[pick.choice].first + pick.offer;
        let count = self
            .fits(lead, &room)
            .min(may)
            .min(self.groups[lead].left());
        if count == 0 {
            return;
        }
        self.take(pick, lead, count, &mut room);
        pick.fill.push((lead, count));
        for group in others {
            let queue = &self.groups[*group];
            if room.free.pods <= 0 {
                break;
            }
            if !self.rows.get(queue.row).fits[slot] {
                continue;
            }
            let count = self.fits(*group, &room).min(queue.left());
            if count > 0 {
                self.take(pick, *group, count, &mut room);
                if !queue.dependent {
                    pick.fill.push((*group, count));
                }
            }
        }
    }

    fn fits(&self, group: usize, room: &Room) -> usize {
        let shape = self.world.shapes[self.groups[group].shape].shape;
        usize::try_from(fit::room(shape, &room.free, &room.ports)).unwrap_or(usize::MAX)
    }

    fn take(&self, pick: &mut Pick, group: usize, count: usize, room: &mut Room) {
        let shape = self.world.shapes[self.groups[group].shape].shape;
        amounts::take(&mut room.free, &shape.requests, count as u64);
        room.ports.extend(shape.host_ports.iter().cloned());
        let count = i128::try_from(count).unwrap_or(i128::MAX);
        pick.worth = pick
            .worth
            .saturating_add(self.worth(group).saturating_mul(count));
    }

    /// The same filling on a machine that is planned already and would become larger, if there is one:
    /// one machine less.
    fn larger(
        &self,
        lead: usize,
        rules: Option<&Rules>,
        others: &[usize],
        best: &Pick,
    ) -> Option<Pick> {
        let births = 0..self.births.born.len();
        births.into_iter().find_map(|birth| {
            let offer = self.may_become(birth, best.choice)?;
            let newborn = &self.births.born[birth];
            let slot = self.choices[best.choice].first + offer;
            if !self.row(lead).fits[slot] {
                return None;
            }
            let at = self.world.company.at(newborn.bin);
            let may = rules.map_or(u64::MAX, |rules| self.world.company.most(rules, at));
            let more = i128::from(self.choices[best.choice].price)
                - i128::from(self.choices[newborn.choice].price);
            let unmet = i128::from(self.unmet(lead, best.choice, offer));
            let mut pick = Pick {
                choice: best.choice,
                offer,
                fill: Vec::new(),
                worth: 0,
                cost: more * (WHOLE + unmet),
                instead: Some(birth),
            };
            let room = Room {
                free: self.free_as(birth, best.choice, offer),
                ports: self.world.bins[newborn.bin].ports.clone(),
            };
            let may = usize::try_from(may).unwrap_or(usize::MAX);
            self.fill(&mut pick, (lead, may), others, room);
            (!pick.fill.is_empty()).then_some(pick)
        })
    }
}

/// Whether `a` carries more for what it costs than `b`; of equals the one that carries more.
fn cheaper(a: &Pick, b: &Pick) -> bool {
    let (left, right) = (
        a.cost.saturating_mul(b.worth),
        b.cost.saturating_mul(a.worth),
    );
    left < right || (left == right && a.worth > b.worth)
}
