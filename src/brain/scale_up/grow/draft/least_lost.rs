//! How many pods every plan leaves without a place at least, counted by their priorities, so that a search for places ends where there are no
//! more to be had.
//!
//! Each number here is proven by counting, never by a search: pods that no place holds, pods that keep each other off their machines and are more
//! than there can be machines, and pods that are spread over more zones than there can be machines for.

use std::collections::BTreeSet;

use super::movables::is_local;
use super::rates::Rates;
use super::ruin_and_recreate::{is_short, unplaceable};
use super::{LaunchOption, Lot, Problem, Rank};
use crate::index::{IndexVec, LotIndex, TallyIndex};
use crate::scale_up::limits::RemainingMachines;
use crate::simulation::inter_pod::Even;
use crate::simulation::inter_pod::topology::{DomainId, FRESH, NOWHERE};

/// A bound from below: no plan of a question leaves less without a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeastLost {
    /// As [`Rank::lost`] counts it.
    loss: u128,
    /// Whether some pod that could have a place by itself has none in any plan.
    somebody_waits: bool,
}

impl LeastLost {
    pub(super) fn of(problem: &Problem, rates: &Rates) -> LeastLost {
        let unplaceable = unplaceable(problem);
        let lots = problem.lots.iter().zip(&unplaceable);
        let alone = lots.filter(|(_, waits)| **waits);
        let alone = alone
            .map(|(lot, _)| lot.loss.saturating_mul(lot.count as u128))
            .fold(0, u128::saturating_add);
        let bounds = Bounds {
            problem,
            unplaceable: &unplaceable,
            machines: count_machines(problem),
        };
        let (crowded, uneven) = (bounds.crowded(), bounds.uneven());
        let too_many = || {
            let (_, least) = rates.floor();
            !unplaceable.iter().any(|waits| *waits) && least > bounds.machines
        };
        let together = crowded.max(uneven);
        LeastLost {
            loss: alone.saturating_add(together),
            somebody_waits: together > 0 || is_short(problem) || too_many(),
        }
    }

    /// Whether a plan loses no more than every plan does.
    pub(super) fn is_met_by(self, rank: &Rank) -> bool {
        rank.lost <= self.loss
    }

    /// Whether there may be a plan in which all pods have a place that can have one at all.
    pub(super) fn lets_all_be_placed(self) -> bool {
        !self.somebody_waits
    }
}

/// How many machines limits of pools allow at most.
fn count_machines(problem: &Problem) -> usize {
    let machines = |of: &RemainingMachines| of.machines;
    let all = problem.pools.iter().map(machines);
    let all = all.fold(0, u64::saturating_add);
    usize::try_from(machines(&problem.total).min(all)).unwrap_or(usize::MAX)
}

struct Bounds<'p> {
    problem: &'p Problem,
    unplaceable: &'p IndexVec<LotIndex, bool>,
    /// How many machines there can be.
    machines: usize,
}

impl Bounds<'_> {
    /// The loss ([`Rank::lost`]) of pods that keep each other off their machines, where there are more of them than there can be places.
    fn crowded(&self) -> u128 {
        let by_terms = self.problem.counters.indexes().map(|counter| {
            let lots = self
                .lots()
                .filter(|(_, lot)| keeps_its_kind_off(lot, counter));
            self.loss_beyond(lots, self.counts_machines(counter))
        });
        let by_ports = self
            .lots()
            .filter(|(at, lot)| lot.apart[*at])
            .map(|(first, _)| {
                let mut clique: Vec<LotIndex> = Vec::new();
                for (at, lot) in self
                    .lots()
                    .filter(|(at, lot)| *at >= first && lot.apart[*at])
                {
                    if clique.iter().all(|other| lot.apart[*other]) {
                        clique.push(at);
                    }
                }
                let lots = clique.into_iter().map(|at| (at, &self.problem.lots[at]));
                self.loss_beyond(lots, true)
            });
        // Lots with host ports are few kinds: the first of each kind finds all the others.
        by_terms
            .chain(by_ports.take(MAX_PORT_LOTS))
            .max()
            .unwrap_or(0)
    }

    /// Whether every place is a domain of its own to a counter.
    fn counts_machines(&self, counter: TallyIndex) -> bool {
        let key = self.problem.counters[counter].key;
        let mut fixed = self.problem.fixed.iter();
        is_local(self.problem, counter) && fixed.all(|fixed| fixed.domains[key] != NOWHERE)
    }

    /// The loss of pods of some lots, no two of which may share a place: as many as there can be places get one, those that count least stay
    /// out. Without `holds` places are no domains of their own, and the bound is 0.
    fn loss_beyond<'l>(
        &self,
        lots: impl Iterator<Item = (LotIndex, &'l Lot)>,
        holds: bool,
    ) -> u128 {
        if !holds {
            return 0;
        }
        let lots: Vec<(LotIndex, &Lot)> = lots.collect();
        let fixed = self.problem.fixed.iter();
        let fixed = fixed.filter(|fixed| lots.iter().any(|(at, _)| fixed.may[*at]));
        let places = self.machines.saturating_add(fixed.count());
        lose(lots.iter().map(|(_, lot)| (lot.loss, lot.count)), places)
    }

    /// What pods lose that are spread over domains wider than machines, where each such domain needs a machine before any gets more than
    /// `maxSkew` pods: the domain with fewest machines bounds all others.
    fn uneven(&self) -> u128 {
        let of_lots = self.lots().flat_map(|(at, lot)| {
            let spread = lot.asks.spread.iter();
            spread.filter_map(move |even| Some((lot, self.most_spread(at, lot, even)?)))
        });
        let losses = of_lots.map(|(lot, most)| lose([(lot.loss, lot.count)].into_iter(), most));
        losses.max().unwrap_or(0)
    }

    /// How many pods of a lot its spread lets have a place at most; `None` where that is not known. Asked are the simplest cases: the lot alone is
    /// counted, and none of its pods is anywhere yet.
    fn most_spread(&self, at: LotIndex, lot: &Lot, even: &Even) -> Option<usize> {
        let domains = self.domains(lot, even)?.len();
        let tally = &self.problem.counters[even.counter];
        let mut lots = self.problem.lots.indexed();
        let alone = lots.all(|(other, of)| other == at || !of.asks.feeds.contains(&even.counter));
        let mut fixed = self.problem.fixed.iter();
        let mut classes = self.problem.classes.iter();
        let nothing_there = tally.pods.iter().all(|pods| *pods == 0)
            && fixed.all(|fixed| !fixed.may[at])
            && classes.all(|class| class.daemons[even.counter] == 0);
        if !even.counts_itself || !alone || !nothing_there {
            return None;
        }
        let skew = usize::try_from(even.max_skew).ok()?;
        let options = lot.may.iter().map(|option| &self.problem.options[option]);
        let each = options.map(|option| fits(lot, option)).max()?;
        let least = each.saturating_mul(self.machines / domains);
        let others = least.saturating_add(skew).saturating_mul(domains - 1);
        Some(least.saturating_add(others))
    }

    /// The domains that pods of a lot could be in, if each of them counts whether a machine is there or not: it has nodes, or is held open
    /// for one. `None` where that is not so, or where there are none.
    fn domains(&self, lot: &Lot, even: &Even) -> Option<BTreeSet<DomainId>> {
        let tally = &self.problem.counters[even.counter];
        let has_nodes = |domain: DomainId| tally.places.get(domain).is_some_and(|nodes| *nodes > 0);
        let options = lot.may.iter().map(|option| &self.problem.options[option]);
        let machines = options.map(|option| self.problem.classes[option.class].domains[tally.key]);
        let domains: BTreeSet<DomainId> = machines.collect();
        let counts = |domain: &DomainId| {
            *domain < FRESH && (even.open.contains(domain) || has_nodes(*domain))
        };
        (!domains.is_empty() && domains.iter().all(counts)).then_some(domains)
    }

    /// The lots whose pods could have a place.
    fn lots(&self) -> impl Iterator<Item = (LotIndex, &Lot)> {
        let lots = self.problem.lots.indexed();
        lots.filter(|(at, _)| !self.unplaceable[*at])
    }
}

/// Lots with host ports that are looked at, at most: each is compared with all others.
const MAX_PORT_LOTS: usize = 8;

/// Whether a pod of a lot is counted by a counter and keeps others that are off its place, itself among them.
fn keeps_its_kind_off(lot: &Lot, counter: TallyIndex) -> bool {
    let mut unwanted = lot.asks.unwanted.iter();
    unwanted.any(|(of, itself)| *of == counter && *itself) && lot.asks.feeds.contains(&counter)
}

/// How many pods of a lot a machine of an option holds.
fn fits(lot: &Lot, option: &LaunchOption) -> usize {
    let both = lot.asked.iter().zip(&option.free);
    let rooms = both.filter(|(asked, _)| **asked > 0);
    let rooms = rooms.map(|(asked, free)| (*free).max(0) / asked);
    usize::try_from(rooms.min().unwrap_or(i64::MAX)).unwrap_or(usize::MAX)
}

/// The loss where at most `places` of some pods have a place. Of each lot: what one pod of it counts, and how many it has.
fn lose(pods: impl Iterator<Item = (u128, usize)>, places: usize) -> u128 {
    let mut pods: Vec<(u128, usize)> = pods.collect();
    let all = pods.iter().map(|(_, count)| *count);
    let mut left = all.fold(0, usize::saturating_add).saturating_sub(places);
    pods.sort_unstable();
    let losses = pods.iter().map(|(loss, count)| {
        let some = left.min(*count);
        left -= some;
        loss.saturating_mul(some as u128)
    });
    losses.fold(0, u128::saturating_add)
}
