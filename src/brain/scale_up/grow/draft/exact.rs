//! A small plan is searched through: branch and bound, within a fixed number of steps.
//!
//! Units are placed one by one, the largest first and followers after those they follow: on a place that stays, on
//! a planned machine, on a new one, or nowhere. Bindings hold all limits at any time, so a full plan is one that
//! can be made.

use std::collections::BTreeSet;

use super::everyone;
use super::fill::{self, PackingMode};
use super::rates::Rates;
use super::state::{Draft, Spot};
use super::units::{self, DealMode, Unit};
use super::{CPU, LaunchOptionSet, Lot, MEMORY, Problem, Rank, To};
use crate::index::{AmountIndex, DraftMachineIndex, IndexVec, ListIndex, LotIndex, UnitIndex};

/// Plans of more pods are not searched through: what is searched grows much faster than they do.
const MAX_PODS: u64 = 32;
/// With more options than this, hardly a plan would be searched through.
const MAX_OPTIONS: usize = 64;
/// Steps of one search at most, some milliseconds: each places one unit or ends a plan.
const MAX_STEPS: usize = 5_000;
/// Plans of at most this many pods are searched through further.
const FEW_PODS: u64 = 16;
/// Steps of such a search, some ten milliseconds.
const MORE_STEPS: usize = 20_000;

struct ExactSearch<'p, 'r> {
    problem: &'p Problem,
    rates: &'r Rates,
    units: IndexVec<UnitIndex, Unit>,
    /// By rate: what the units from this one on are worth.
    rest: IndexVec<UnitIndex, Vec<i128>>,
    menu: LaunchOptionSet,
    /// By lot: pods that are left out.
    out: IndexVec<LotIndex, usize>,
    draft: Draft<'p>,
    best: Rank,
    found: Option<Draft<'p>>,
    /// Partial plans that the search has been at: the hash of what each place carries ([`everyone::state`]), and by lot how many pods were left out.
    /// The same one, reached in another order, is not gone through again.
    seen: BTreeSet<(u64, IndexVec<LotIndex, usize>)>,
    steps: usize,
}

/// Orders in which units are placed; others than the first where pods have no place yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitOrder {
    /// What is worth most first.
    Worth,
    /// What asks most of one resource.
    Resource(AmountIndex),
    /// What may be on fewest options.
    Breadth,
}

/// A plan better than `best`, if one is found; nothing, where the question is too large for that.
pub(super) fn search<'p>(problem: &'p Problem, rates: &Rates, best: Rank) -> Option<Draft<'p>> {
    search_within(problem, rates, best, MAX_STEPS)
}

/// As [`search`], further, where there are few pods: what was found so far leaves pods out, or is expensive.
pub(super) fn search_longer<'p>(
    problem: &'p Problem,
    rates: &Rates,
    best: Rank,
) -> Option<Draft<'p>> {
    let few = problem.pods() <= FEW_PODS;
    few.then(|| search_within(problem, rates, best, MORE_STEPS))?
}

fn search_within<'p>(
    problem: &'p Problem,
    rates: &Rates,
    best: Rank,
    steps: usize,
) -> Option<Draft<'p>> {
    if problem.pods() > MAX_PODS || problem.options.len() > MAX_OPTIONS {
        return None;
    }
    let mut found: Option<Draft<'p>> = None;
    let together = units::of(problem, DealMode::Apart).0;
    let mut parts = together.iter().flat_map(|unit| &unit.parts);
    let parted = together.iter().any(|unit| unit.parts.len() > 1) || parts.any(|(_, n)| *n > 1);
    let (singles, before, choice) = units::singles(problem);
    let all = depths_of_followers(problem, &before);
    for (whole, units, depths) in [(true, together, all), (false, singles, before)] {
        let lost = found.as_ref().map_or(best, Draft::rank).lost;
        // Where pods have no place, some of those that belong together may have one.
        let in_parts = parted && lost > 0;
        if !(whole || choice || in_parts) {
            break;
        }
        for order in ORDERS {
            let rank = found.as_ref().map_or(best, Draft::rank);
            // The first order is tried in any case, the others where pods have no place.
            if order != UnitOrder::Worth && rank.lost == 0 {
                break;
            }
            let units = sorted(problem, rates, (units.clone(), &depths), order);
            found = by(problem, rates, (rank, steps), units).or(found);
        }
    }
    found
}

/// In which orders units are placed.
const ORDERS: [UnitOrder; 4] = [
    UnitOrder::Worth,
    UnitOrder::Breadth,
    UnitOrder::Resource(CPU),
    UnitOrder::Resource(MEMORY),
];

/// By lot: 1 for lots that follow others, and more for those that follow followers; `depths` is how many others come before it.
fn depths_of_followers(
    problem: &Problem,
    depths: &IndexVec<LotIndex, usize>,
) -> IndexVec<LotIndex, usize> {
    let lots = problem.lots.indexed();
    lots.map(|(index, lot)| usize::from(!lot.asks.wanted.is_empty()).max(depths[index]))
        .collect()
}

/// Searches with units in one order.
fn by<'p>(
    problem: &'p Problem,
    rates: &Rates,
    (best, steps): (Rank, usize),
    units: IndexVec<UnitIndex, Unit>,
) -> Option<Draft<'p>> {
    let mut rest = vec![vec![0; rates.len()]];
    for unit in units.iter().rev() {
        let after = rest.last().into_iter().flatten().copied();
        let with = after
            .zip(rates.worth(&asked(problem, unit)))
            .map(|(a, b)| a + b);
        let with = with.collect();
        rest.push(with);
    }
    rest.reverse();
    let mut search = ExactSearch {
        problem,
        rates,
        units,
        rest: rest.into(),
        menu: LaunchOptionSet::all(problem.options.len()),
        out: vec![0; problem.lots.len()].into(),
        draft: Draft::new(problem),
        best,
        found: None,
        seen: BTreeSet::new(),
        steps,
    };
    search.place(UnitIndex(0), None, 0);
    search.found
}

fn sorted(
    problem: &Problem,
    rates: &Rates,
    (units, depths): (Vec<Unit>, &IndexVec<LotIndex, usize>),
    order: UnitOrder,
) -> IndexVec<UnitIndex, Unit> {
    let mut units: IndexVec<UnitIndex, Unit> = units
        .into_iter()
        .flat_map(|unit| {
            let one = Unit {
                times: 1,
                ..unit.clone()
            };
            std::iter::repeat_n(one, unit.times)
        })
        .collect();
    units.sort_by_cached_key(|unit| {
        let priority = lots_of(problem, unit)
            .map(|lot| lot.priority)
            .max()
            .unwrap_or(0);
        let depth = unit.parts.iter().map(|(lot, _)| depths[*lot]).max();
        let breadth = lots_of(problem, unit).map(|lot| lot.may.len()).min();
        let asked = asked(problem, unit);
        let mut worth = rates.worth(&asked);
        match order {
            UnitOrder::Worth => {}
            UnitOrder::Resource(resource) => worth.insert(0, i128::from(asked[resource])),
            UnitOrder::Breadth => {
                let breadth = i128::try_from(breadth.unwrap_or(0)).unwrap_or(i128::MAX);
                worth.insert(0, -breadth);
            }
        }
        (
            depth,
            std::cmp::Reverse((priority, worth)),
            unit.parts.clone(),
        )
    });
    units
}

fn lots_of<'p>(problem: &'p Problem, unit: &Unit) -> impl Iterator<Item = &'p Lot> {
    unit.parts.iter().map(|(lot, _)| &problem.lots[*lot])
}

fn asked(problem: &Problem, unit: &Unit) -> IndexVec<AmountIndex, i64> {
    let mut sums: IndexVec<AmountIndex, i64> = vec![0; problem.count_resources()].into();
    for (lot, count) in &unit.parts {
        let times = i64::try_from(*count).unwrap_or(i64::MAX);
        for (sum, asked) in sums.iter_mut().zip(&problem.lots[*lot].asked) {
            *sum = sum.saturating_add(asked.saturating_mul(times));
        }
    }
    sums
}

/// Where the unit before went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Went {
    To(To),
    Nowhere,
}

impl ExactSearch<'_, '_> {
    /// Places the units from `next` on. Alike units that nothing else depends on go to places in their order:
    /// `from` is where the one before went, if it is such a one.
    fn place(&mut self, next: UnitIndex, from: Option<Went>, lost: u128) {
        if self.steps == 0 || self.cannot_improve(next, lost) {
            return;
        }
        // Where alike units keep an order, what may follow depends on where the last one went.
        if from.is_none() {
            let state = (everyone::state(&self.draft, next), self.out.clone());
            if !self.seen.insert(state) {
                return;
            }
        }
        self.steps -= 1;
        if next == self.units.next_index() {
            return self.settle();
        }
        let unit = self.units[next].clone();
        let replanned = unit
            .parts
            .iter()
            .all(|(lot, _)| !self.problem.lots[*lot].tied);
        let after = UnitIndex(next.0 + 1);
        let alike = replanned && self.units.get(after) == Some(&unit);
        let mode = PackingMode {
            menu: &self.menu,
            cheapest: true,
            spin: 0,
            among: None,
        };
        for spot in fill::spots(&self.draft, &unit, mode) {
            if !self.new_to_it(spot, from) {
                continue;
            }
            let mark = self.draft.mark();
            let menu = std::mem::take(&mut self.menu);
            let put = fill::put_all(&mut self.draft, &unit, spot, &menu);
            self.menu = menu;
            if put {
                let last = DraftMachineIndex(self.draft.machines.len().wrapping_sub(1));
                let to = spot.to.unwrap_or(To::Machine(last));
                self.place(after, alike.then_some(Went::To(to)), lost);
                self.draft.rollback(mark);
            }
        }
        let losses = unit.parts.iter();
        let losses =
            losses.map(|(lot, count)| self.problem.lots[*lot].loss.saturating_mul(*count as u128));
        let lost = lost.saturating_add(losses.fold(0, u128::saturating_add));
        for (lot, count) in &unit.parts {
            self.out[*lot] += count;
        }
        let mut lots = unit.parts.iter().map(|(lot, _)| *lot);
        if lots.all(|lot| self.out[lot] <= self.problem.lots[lot].spare) {
            self.place(after, alike.then_some(Went::Nowhere), lost);
        }
        for (lot, count) in &unit.parts {
            self.out[*lot] -= count;
        }
    }

    /// Whether a spot comes after the one that an alike unit went to, and is unlike those before it.
    fn new_to_it(&self, spot: Spot, from: Option<Went>) -> bool {
        let to = spot
            .to
            .unwrap_or(To::Machine(self.draft.machines.next_index()));
        if from.is_some_and(|from| Went::To(to) < from) {
            return false;
        }
        let Some(To::Machine(at)) = spot.to else {
            return true;
        };
        let machines = &self.draft.machines;
        let mine = &machines[at];
        let twin = |other: &super::state::DraftMachine| {
            other.class == mine.class && other.load.counts == mine.load.counts
        };
        let mut before = machines.indexed().take(at.position());
        // One that alike units may not go to any more is no twin.
        !before.any(|(index, other)| {
            twin(other) && from.is_none_or(|from| Went::To(To::Machine(index)) >= from)
        })
    }

    /// Whether nothing better can come of what is placed, whatever becomes of the units from `next` on.
    fn cannot_improve(&self, next: UnitIndex, lost: u128) -> bool {
        if lost != self.best.lost {
            return lost > self.best.lost;
        }
        let options = &self.problem.options;
        let prices = self.draft.machines.iter();
        let prices = prices.map(|machine| {
            let cheapest = machine
                .options
                .iter()
                .map(|option| options[option].price)
                .min();
            (i128::from(cheapest.unwrap_or(0)), &*machine.load.sum)
        });
        let prices: Vec<_> = prices.collect();
        let fixed = self.draft.fixed.iter().zip(&self.problem.fixed);
        let fixed: Vec<_> = fixed
            .map(|(load, fixed)| (&*fixed.free, &*load.sum))
            .collect();
        let (price, machines) = self.rates.least(&prices, &fixed, &self.rest[next]);
        let weight_loss = self.draft.rank().weight_loss;
        let best = &self.best;
        // What is uneven so far may become even.
        (0, weight_loss, price, machines)
            >= (best.uneven, best.weight_loss, best.price, best.machines)
    }

    /// All are placed.
    fn settle(&mut self) {
        let mark = self.draft.mark();
        self.draft.rebind();
        let rank = self.draft.rank();
        if rank < self.best {
            self.best = rank;
            self.found = Some(self.draft.clone());
        }
        self.draft.rollback(mark);
    }
}
