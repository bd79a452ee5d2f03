//! Searches on where pods have no place yet: a few machines are taken apart, with all pods on them, and all pods
//! without a place are placed again; again and again, from the best plan or one that is nearly as good.
//!
//! Unlike [`super::cheapen`] it moves pods whose places depend on each other, and lets pods lose their place on the way.
//! What comes out is put together once more from nothing, by all rules, before it counts.

use std::collections::BTreeSet;

use super::cheapen::{self, SeededRng};
use super::fill::{self, PackingMode};
use super::least_lost::LeastLost;
use super::state::{Draft, Spot, signed};
use super::units::{self, DealMode, Unit};
use super::whole::{Filler, Values};
use super::{LaunchOptionSet, Placement, Problem, To, partly};
use crate::index::{DraftMachineIndex, IndexVec, LaunchOptionIndex, LotIndex};
use crate::scale_up::limits::RemainingMachines;
use crate::simulation::inter_pod::topology::FRESH;

/// Machines that are looked at for a pod: at most, and for each pod.
const MAX_LOOKS: u64 = 600_000;
const MAX_LOOKS_EACH: u64 = 10_000;
/// How many times machines are taken apart, for each effort.
const RUIN_ROUNDS: usize = 600;
/// By what the rounds are divided where it is proven that somebody waits in any plan.
const WAITING_DIVISOR: usize = 2;
/// How many times the looks and rounds above a small question gets, at most: the search as a whole costs no more than that of a
/// question of [`EFFORT_PODS`] pods.
const EFFORT: u64 = 10;
const EFFORT_PODS: u64 = 600;
/// Machines that are taken apart at a time: at least, and at most.
const MIN_EMPTIED: usize = 2;
const MAX_EMPTIED: usize = 5;
/// Rounds without a better plan after which the search begins again with the best.
const PATIENCE: usize = 60;

/// A plan that is better than `start`, if one is found. `start` may leave out pods that an answer may not.
pub(super) fn search<'p>(
    start: &Draft<'p>,
    filler: &Filler<'p>,
    least_lost: LeastLost,
) -> Option<Draft<'p>> {
    let problem = start.problem;
    if is_short(problem) {
        return None;
    }
    let unplaceable = unplaceable(problem);
    let effort = (EFFORT_PODS / problem.pods().max(1)).clamp(1, EFFORT);
    let each = MAX_LOOKS_EACH
        .saturating_mul(EFFORT)
        .saturating_mul(problem.pods());
    problem.allow(MAX_LOOKS * effort, each);
    let values = Values::plain(filler);
    let mut rng = SeededRng::new(3);
    let mut rank = problem.rank;
    if start.is_fair() {
        rank = rank.min(start.rank());
    }
    let mut found: Option<Draft<'p>> = None;
    let mut best = start.clone();
    best.drop_empty();
    if best.machines.is_empty() {
        // There is nothing to take apart.
        return None;
    }
    let mut least = waiting(&best);
    let (mut current, mut now, mut idle) = (best.clone(), least, 0);
    for round in 0..count_rounds(effort, least_lost) {
        if !problem.look(1) || least_lost.is_met_by(&rank) {
            break;
        }
        let mut trial = current.clone();
        for victim in victims(&trial, &unplaceable, &mut rng) {
            trial.take_apart(victim);
        }
        trial.follow();
        trial.drop_empty();
        lay(&mut trial, (filler, &values), (round, &mut rng));
        trial.drop_empty();
        let after = waiting(&trial);
        if trial.is_fair()
            && trial.rank() < rank
            && let Some(whole) = trial.put_together()
        {
            rank = whole.rank();
            found = Some(whole);
        }
        idle += 1;
        if after < least {
            (best, least, idle) = (trial.clone(), after, 0);
        }
        // Now and then a plan that is a little worse leads on.
        let slack = if rng.below(8) == 0 { now / 8 } else { 0 };
        if after <= now + slack {
            (current, now) = (trial, after);
        }
        if idle > PATIENCE {
            (current, now, idle) = (best.clone(), least, 0);
        }
    }
    found
}

/// How many times machines are taken apart.
fn count_rounds(effort: u64, least_lost: LeastLost) -> usize {
    let rounds = usize::try_from(effort).map_or(RUIN_ROUNDS, |effort| RUIN_ROUNDS * effort);
    if least_lost.lets_all_be_placed() {
        rounds
    } else {
        rounds / WAITING_DIVISOR
    }
}

/// Whether pods that can have a place ask more of a resource together than there can be: then one of them waits in any plan.
pub(super) fn is_short(problem: &Problem) -> bool {
    let machines = |of: &RemainingMachines| i128::from(of.machines);
    let all = problem.pools.iter().map(machines).sum::<i128>();
    let most = machines(&problem.total).min(all);
    let mut resources = problem.resources();
    let unplaceable = unplaceable(problem);
    resources.any(|resource| {
        let largest = problem.options.iter().map(|option| option.free[resource]);
        let largest = i128::from(largest.max().unwrap_or(0).max(0));
        let fixed = problem.fixed.iter();
        let fixed = fixed.map(|fixed| i128::from(fixed.free[resource].max(0)));
        let lots = problem.lots.iter().zip(&unplaceable);
        let lots = lots.filter(|(_, waits)| !**waits);
        let asked = lots.map(|(lot, _)| {
            let asked = i128::from(lot.asked[resource]);
            asked.saturating_mul(lot.count as i128)
        });
        let supply = most.saturating_mul(largest).saturating_add(fixed.sum());
        asked.fold(0, i128::saturating_add) > supply
    })
}

/// By lot: whether its pods wait in any plan, as no place that stays is large enough for one, and no machine that limits
/// allow.
pub(super) fn unplaceable(problem: &Problem) -> IndexVec<LotIndex, bool> {
    let allowed: IndexVec<LaunchOptionIndex, bool> = problem
        .options
        .iter()
        .map(|option| {
            let of_pool = problem.pools.get(option.pool);
            of_pool.is_some_and(|pool| pool.admits(option)) && problem.total.admits(option)
        })
        .collect();
    let lots = problem.lots.indexed().map(|(at, lot)| {
        let fits = |free: &[i64]| {
            lot.asked
                .iter()
                .zip(free)
                .all(|(asked, free)| asked <= free)
        };
        let stays = problem.fixed.iter();
        let mut stays = stays.filter(|fixed| fixed.may.get(at).copied().unwrap_or(false));
        let made = problem.options.indexed();
        let mut made = made.filter(|(option, _)| allowed[*option] && lot.may.has(*option));
        !stays.any(|fixed| fits(&fixed.free)) && !made.any(|(_, option)| fits(&option.free))
    });
    lots.collect()
}

/// How large the pods without a place are together, in parts of the largest machine.
fn waiting(draft: &Draft<'_>) -> i128 {
    let lots = draft.left.indexed().filter(|(_, left)| **left > 0);
    let sizes = lots.map(|(lot, left)| {
        let unit = Unit {
            parts: vec![(lot, *left)],
            times: 1,
        };
        fill::size(draft.problem, &unit)
    });
    sizes.sum()
}

/// Some machines, by falling number: the first one such that an unplaced pod might be there.
fn victims(
    draft: &Draft<'_>,
    unplaceable: &IndexVec<LotIndex, bool>,
    rng: &mut SeededRng,
) -> Vec<DraftMachineIndex> {
    let problem = draft.problem;
    let machines = draft.machines.len();
    if machines == 0 {
        return Vec::new();
    }
    let lots = problem
        .lots
        .indexes()
        .filter(|lot| draft.left[*lot] > 0 && !unplaceable[*lot]);
    let lots: Vec<LotIndex> = lots.collect();
    let mut victims = BTreeSet::new();
    if !lots.is_empty() {
        let lot = lots[rng.below(lots.len())];
        let may = |at: &DraftMachineIndex| {
            let bound = draft.machines[*at].bound;
            bound.is_some_and(|(option, _)| problem.lots[lot].may.has(option))
        };
        let open = draft.machines.indexes().filter(may);
        let open: Vec<DraftMachineIndex> = open.collect();
        if !open.is_empty() {
            victims.insert(open[rng.below(open.len())]);
        }
    }
    let count = MIN_EMPTIED + rng.below(MAX_EMPTIED - MIN_EMPTIED + 1);
    for _ in 0..2 * count {
        if victims.len() < count {
            victims.insert(DraftMachineIndex(rng.below(machines)));
        }
    }
    victims.into_iter().rev().collect()
}

/// Places the pods that have no place: those that depend on others first, or all by their size, shaken a little.
pub(super) fn lay(
    draft: &mut Draft<'_>,
    (filler, values): (&Filler<'_>, &Values),
    (round, rng): (usize, &mut SeededRng),
) {
    let problem = draft.problem;
    let menu = LaunchOptionSet::all(problem.options.len());
    let mode = PackingMode {
        menu: &menu,
        cheapest: rng.below(2) == 0,
        spin: rng.below(problem.classes.len()),
        among: None,
    };
    let deal = [DealMode::Packed, DealMode::Even, DealMode::Apart][rng.below(3)];
    let whole = rng.below(3) > 0;
    let (units, _) = units::waiting(problem, draft.left.clone(), deal);
    let mut units: Vec<(i128, Unit)> = units
        .into_iter()
        .filter(|unit| !whole || is_tied(problem, unit))
        .map(|unit| {
            let noise = 100 + rng.below(100) as i128;
            (fill::size(problem, &unit).saturating_mul(noise), unit)
        })
        .collect();
    units.sort_by_cached_key(|(size, unit)| {
        let follows = follows(problem, unit);
        (follows, std::cmp::Reverse(*size), unit.parts.clone())
    });
    for (_, unit) in &units {
        partly::place(draft, unit, mode);
    }
    // A pod that found no place with the others goes by itself.
    for (_, unit) in &units {
        for (lot, _) in &unit.parts {
            let single = Unit {
                parts: vec![(*lot, 1)],
                times: draft.left[*lot],
            };
            fill::place(draft, &single, mode);
        }
    }
    if whole {
        let used: Vec<DraftMachineIndex> = draft.machines.indexes().collect();
        filler.fill(draft, &used, (values, round));
    }
    cheapen::lay(draft, mode, rng.below(4));
}

/// Whether pods of a unit have required affinity.
fn follows(problem: &Problem, unit: &Unit) -> bool {
    let mut wanted = unit
        .parts
        .iter()
        .flat_map(|(lot, _)| &problem.lots[*lot].asks.wanted);
    wanted.any(|counter| {
        let mut lots = unit.parts.iter().map(|(lot, _)| &problem.lots[*lot]);
        !lots.any(|lot| lot.asks.feeds.contains(counter))
    })
}

fn is_tied(problem: &Problem, unit: &Unit) -> bool {
    let mut parts = unit.parts.iter();
    parts.any(|(lot, _)| problem.lots[*lot].tied)
}

impl<'p> Draft<'p> {
    /// Takes all pods off a machine. Nothing that was done before is taken back any more.
    pub(super) fn take_apart(&mut self, at: DraftMachineIndex) {
        for (lot, count) in self.machines[at].load.counts.clone() {
            self.take_off(at, lot, count);
        }
        self.unbook(at);
        self.machines[at].bound = None;
        self.steps.retain(|step| step.to != To::Machine(at));
        self.commit();
    }

    /// Pods of a lot leave a machine.
    pub(super) fn take_off(&mut self, at: DraftMachineIndex, lot: LotIndex, count: usize) {
        let problem = self.problem;
        let class = self.machines[at].class;
        for counter in &problem.lots[lot].asks.feeds {
            let domain = match class.map(|class| &problem.classes[class]) {
                Some(class) if !class.counts[*counter] => continue,
                Some(class) => class.domains[problem.counters[*counter].key],
                None => FRESH,
            };
            self.count(*counter, domain, -signed(count));
        }
        self.left[lot] += count;
        let load = &mut self.machines[at].load;
        let before = std::mem::take(&mut load.counts);
        load.sum.fill(0);
        for (other, some) in before {
            let stays = if other == lot { some - count } else { some };
            if stays > 0 {
                load.add(problem, other, stays);
            }
        }
        if load.counts.is_empty() {
            self.unsettle(at);
        }
        self.widen(at);
    }

    /// A machine that carries nothing is of no class any more.
    fn unsettle(&mut self, at: DraftMachineIndex) {
        let Some(class) = self.machines[at].class.take() else {
            return;
        };
        let class = &self.problem.classes[class];
        for (counter, tally) in self.problem.counters.indexed() {
            let domain = class.domains[tally.key];
            if domain >= FRESH || !class.counts[counter] {
                continue;
            }
            if tally.spreads {
                self.places[counter][domain] -= 1;
            }
            if class.daemons[counter] > 0 {
                self.count(counter, domain, -class.daemons[counter]);
            }
        }
    }

    /// Finds again which options can carry what is on a machine.
    fn widen(&mut self, at: DraftMachineIndex) {
        let problem = self.problem;
        let machine = &mut self.machines[at];
        machine.options = match machine.class {
            Some(class) => problem.classes[class].options.clone(),
            None => LaunchOptionSet::all(problem.options.len()),
        };
        for (lot, _) in &machine.load.counts {
            machine.options.intersect(&problem.lots[*lot].may);
        }
        for option in machine.options.clone().iter() {
            if !machine.load.within(&problem.options[option].free) {
                machine.options.remove(option);
            }
        }
    }

    /// Pods whose required affinity is not met any more leave too.
    pub(super) fn follow(&mut self) {
        let problem = self.problem;
        loop {
            let mut gone = Vec::new();
            for (at, machine) in self.machines.indexed() {
                let spot = Spot {
                    to: Some(To::Machine(at)),
                    class: machine.class,
                };
                for (lot, count) in &machine.load.counts {
                    let wanted = &problem.lots[*lot].asks.wanted;
                    if wanted.iter().any(|counter| self.pods(*counter, spot) == 0) {
                        gone.push((at, *lot, *count));
                    }
                }
            }
            if gone.is_empty() {
                return self.commit();
            }
            for (at, lot, count) in gone {
                self.take_off(at, lot, count);
                let left = |step: &Placement| step.to == To::Machine(at) && step.lot == lot;
                self.steps.retain(|step| !left(step));
                if self.machines[at].load.counts.is_empty() {
                    self.unbook(at);
                    self.machines[at].bound = None;
                }
            }
        }
    }

    /// Machines that carry nothing are planned no more. Nothing that was done before is taken back any more.
    pub(super) fn drop_empty(&mut self) {
        self.commit();
        let mut index = self.machines.with_each(None);
        let mut kept = 0;
        for (at, machine) in self.machines.indexed() {
            if !machine.load.counts.is_empty() {
                index[at] = Some(DraftMachineIndex(kept));
                kept += 1;
            }
        }
        for (at, _) in index.indexed().filter(|(_, to)| to.is_none()) {
            self.unsettle(at);
            self.unbook(at);
            self.machines[at].bound = None;
        }
        self.machines
            .retain(|machine| !machine.load.counts.is_empty());
        self.steps.retain_mut(|step| match step.to {
            To::Machine(at) => index[at].is_some_and(|at| {
                step.to = To::Machine(at);
                true
            }),
            To::Fixed(_) => true,
        });
        self.commit();
    }

    /// The plan once more from nothing, in an order in which each pod may go where it is; `None` where none is found.
    pub(super) fn put_together(&self) -> Option<Draft<'p>> {
        let mut whole = Draft::new(self.problem);
        let menu = LaunchOptionSet::all(self.problem.options.len());
        let mut made = self.machines.with_each(None);
        let mut waiting = self.steps_in_order();
        while !waiting.is_empty() {
            let before = waiting.len();
            let mut moved = false;
            let mut next = Vec::with_capacity(before);
            for step in waiting {
                let placed = whole.repeat(self, step, (&mut made, &menu));
                moved |= placed > 0;
                if placed < step.count {
                    let count = step.count - placed;
                    next.push(Placement { count, ..step });
                }
            }
            if !moved {
                return None;
            }
            waiting = next;
        }
        whole.rebind();
        whole.commit();
        Some(whole)
    }

    /// Does one step of another plan, as far as it may be done by now. Returns for how many pods.
    fn repeat(
        &mut self,
        other: &Draft<'p>,
        step: Placement,
        (made, menu): (
            &mut IndexVec<DraftMachineIndex, Option<DraftMachineIndex>>,
            &LaunchOptionSet,
        ),
    ) -> usize {
        let mark = self.mark();
        let (to, class, fresh) = match step.to {
            To::Fixed(_) => (step.to, None, None),
            To::Machine(at) => {
                let machine = &other.machines[at];
                let Some(bound) = machine.bound else { return 0 };
                let fresh = made[at].is_none().then_some(at);
                let here = match made[at] {
                    Some(here) => here,
                    None => {
                        // Machines before it may be on other hosts than they were in the other plan.
                        let Some(bound) = self.limits.site_or_other(self.problem, bound) else {
                            return 0;
                        };
                        let here = self.make();
                        self.save(here);
                        self.set(here, bound);
                        here
                    }
                };
                (To::Machine(here), machine.class, fresh)
            }
        };
        let spot = Spot {
            to: Some(to),
            class,
        };
        let mut count = step.count;
        while count > 0 {
            count = count.min(self.may(step.lot, spot));
            if count > 0 && self.put(step.lot, count, spot, menu).is_some() {
                if let (Some(at), To::Machine(here)) = (fresh, to) {
                    made[at] = Some(here);
                }
                return count;
            }
            count = count.saturating_sub(1);
        }
        self.rollback(mark);
        0
    }
}
