//! Which pods of a plan can change places by themselves, as plain numbers. A pod with required affinity to others on its machine
//! goes with them, unless it has the choice of several. Of pods that are spread over machines, as many as every machine has stay where they are.

use super::amounts::ResourceAmounts;
use super::state::{Draft, Load};
use super::units::{self, DealMode};
use super::{LaunchOptionSet, Placement, Problem, To, fill};
use crate::index::{
    DraftMachineIndex, IndexVec, LaunchOptionClassIndex, LotIndex, MovableIndex, TallyIndex,
};
use crate::simulation::inter_pod::topology::{FRESH, NOWHERE};

/// Pods that change their place together.
#[derive(Clone, Debug)]
pub(super) struct Movable {
    /// Lots with how many pods of each; lots that others have required affinity to come first.
    pub(super) parts: Vec<(LotIndex, usize)>,
    /// Those of them that are at home.
    taken: Vec<(LotIndex, usize)>,
    pub(super) asked: ResourceAmounts,
    /// The options that all its pods may be on.
    pub(super) may: LaunchOptionSet,
    /// Where a topology wider than machines counts for it: the classes of machines that are of all domains it asks for.
    pub(super) classes: Option<Vec<LaunchOptionClassIndex>>,
    /// The machine that it is on; `None` where all of it waits.
    pub(super) home: Option<DraftMachineIndex>,
}

impl Movable {
    /// Where it is before anything moves: with a pod that waits it has no place, either.
    pub(super) fn start(&self) -> Option<DraftMachineIndex> {
        self.home.filter(|_| self.taken == self.parts)
    }
}

/// What depends on the place of a lot's pods.
#[derive(Clone, Copy, Debug, Default)]
struct Ties {
    /// Pods on its machine have required affinity to it, or it to them, and go where it goes.
    affinity: bool,
    /// It is counted by a wider topology than machines.
    wide: bool,
    /// It is counted by machine, for spread.
    counted: bool,
    /// It is counted by machine for its own spread alone, and no other pod is.
    even: bool,
}

/// Which pods can move, and which may not share a machine.
#[derive(Debug)]
pub(super) struct Movables {
    pub(super) all: IndexVec<MovableIndex, Movable>,
    /// By lot: the lots that it may not share a machine with, itself among them where one pod keeps the next away.
    pub(super) apart: IndexVec<LotIndex, Vec<LotIndex>>,
    /// By lot: of pods that are spread over machines, the number that every machine has; they stay.
    pub(super) even: IndexVec<LotIndex, usize>,
    /// By lot: whether its pods have required affinity to any one of several pods, on its machine. They move by themselves.
    pub(super) chooses: IndexVec<LotIndex, bool>,
}

impl Movables {
    /// The movables of a plan. An unplaced pod that goes with placed ones moves with some of these: others in each
    /// attempt. Pods that can have no place at all are left out. Of pods that are spread over machines, no machine gets more than one that the others lack.
    pub(super) fn of(
        draft: &Draft<'_>,
        attempt: usize,
        unplaceable: &IndexVec<LotIndex, bool>,
    ) -> Movables {
        let problem = draft.problem;
        let lots = problem.lots.indexes();
        let chooses: IndexVec<LotIndex, bool> =
            lots.clone().map(|lot| chooses(problem, lot)).collect();
        let ties: IndexVec<LotIndex, Ties> = lots
            .clone()
            .map(|lot| ties(problem, &chooses, lot))
            .collect();
        let even = lots.clone().map(|lot| {
            if ties[lot].even {
                on_every_machine(draft, lot)
            } else {
                0
            }
        });
        let even: IndexVec<LotIndex, usize> = even.collect();
        let mut all = IndexVec::default();
        for (at, machine) in draft.machines.indexed() {
            let mut together: Vec<(LotIndex, usize)> = Vec::new();
            for (lot, count) in &machine.load.counts {
                let of = ties[*lot];
                if of.counted && (of.affinity || !of.even) {
                    continue;
                }
                if of.affinity {
                    together.push((*lot, *count));
                    continue;
                }
                let mut one = movable(problem, vec![(*lot, 1)], Some(at));
                one.classes = of.wide.then(|| classes(problem, &one));
                all.extend(std::iter::repeat_n(one, count.saturating_sub(even[*lot])));
            }
            for parts in groups(problem, &together) {
                let wide = parts.iter().any(|(lot, _)| ties[*lot].wide);
                let mut some = movable(problem, parts, Some(at));
                some.classes = wide.then(|| classes(problem, &some));
                all.push(some);
            }
        }
        let left = draft.left.iter().zip(unplaceable);
        let left = left.map(|(left, waits)| if *waits { 0 } else { *left });
        let (waiting, _) = units::waiting(problem, left.collect(), DealMode::Apart);
        for unit in waiting {
            for _ in 0..unit.times {
                match find_joined(problem, &unit.parts, (&all, &chooses), attempt) {
                    Some(with) => join(problem, &mut all[with], &unit.parts),
                    None => {
                        let mut one = movable(problem, unit.parts.clone(), None);
                        let mut parts = one.parts.iter();
                        let wide = parts.any(|(lot, _)| ties[*lot].wide);
                        one.classes = wide.then(|| classes(problem, &one));
                        all.push(one);
                    }
                }
            }
        }
        Movables {
            all,
            apart: lots.map(|lot| find_apart(problem, &ties, lot)).collect(),
            even,
            chooses,
        }
    }

    /// What stays on each machine.
    pub(super) fn remainders(&self, draft: &Draft<'_>) -> IndexVec<DraftMachineIndex, Load> {
        let problem = draft.problem;
        let machines = draft.machines.iter();
        let mut loads: IndexVec<DraftMachineIndex, Load> =
            machines.map(|machine| machine.load.clone()).collect();
        for movable in &self.all {
            let Some(home) = movable.home else { continue };
            let before = std::mem::replace(&mut loads[home], Load::empty(problem));
            for (lot, count) in before.counts {
                let gone = movable.taken.iter().find(|(of, _)| *of == lot);
                let stays = count - gone.map_or(0, |(_, gone)| *gone);
                if stays > 0 {
                    loads[home].add(problem, lot, stays);
                }
            }
        }
        loads
    }
}

/// The movable that unplaced pods with required affinity join: of those that satisfy it, another one in each attempt.
fn find_joined(
    problem: &Problem,
    waiting: &[(LotIndex, usize)],
    (all, chooses): (&IndexVec<MovableIndex, Movable>, &IndexVec<LotIndex, bool>),
    attempt: usize,
) -> Option<MovableIndex> {
    let (first, _) = waiting.first()?;
    if chooses[*first] {
        return None;
    }
    let has = |movable: &Movable| {
        let mut parts = movable.parts.iter();
        parts.any(|(lot, _)| insists(problem, *first, *lot))
    };
    let with = all.indexed().filter(|(_, movable)| has(movable));
    let with: Vec<MovableIndex> = with.map(|(at, _)| at).collect();
    with.get(attempt % with.len().max(1)).copied()
}

/// Pods that wait move with others from now on.
fn join(problem: &Problem, with: &mut Movable, waiting: &[(LotIndex, usize)]) {
    let mut load = Load::empty(problem);
    for (lot, count) in with.parts.iter().chain(waiting) {
        load.add(problem, *lot, *count);
        with.may.intersect(&problem.lots[*lot].may);
    }
    with.parts = load.counts.to_vec();
    with.asked = load.sum;
}

/// The number of a lot's pods that every machine has.
fn on_every_machine(draft: &Draft<'_>, lot: LotIndex) -> usize {
    let machines = draft.machines.iter();
    let pods = machines.map(|machine| machine.load.count(lot));
    pods.min().unwrap_or(0)
}

/// The classes whose machines are of all domains that pods ask for.
fn classes(problem: &Problem, movable: &Movable) -> Vec<LaunchOptionClassIndex> {
    let classes = problem.classes.indexed().filter(|(_, class)| {
        movable.parts.iter().all(|(lot, _)| {
            let asks = &problem.lots[*lot].asks;
            let spread = asks.spread.iter().flat_map(|even| &even.keys).copied();
            let counters = asks.spread.iter().map(|even| even.counter);
            let counters = counters.chain(asks.wanted.iter().copied());
            let keys = counters.map(|counter| problem.counters[counter].key);
            spread.chain(keys).all(|key| class.domains[key] != NOWHERE)
        })
    });
    classes.map(|(index, _)| index).collect()
}

fn movable(
    problem: &Problem,
    parts: Vec<(LotIndex, usize)>,
    home: Option<DraftMachineIndex>,
) -> Movable {
    let mut may = LaunchOptionSet::all(problem.options.len());
    for (lot, _) in &parts {
        may.intersect(&problem.lots[*lot].may);
    }
    let unit = units::Unit { parts, times: 1 };
    Movable {
        asked: fill::amounts(problem, &unit),
        taken: match home {
            Some(_) => unit.parts.clone(),
            None => Vec::new(),
        },
        parts: unit.parts,
        may,
        classes: None,
        home,
    }
}

/// Whether a counter counts machines, and not a wider topology.
pub(super) fn is_local(problem: &Problem, counter: TallyIndex) -> bool {
    let key = problem.counters[counter].key;
    let mut classes = problem.classes.iter();
    classes.all(|class| class.domains[key] == FRESH)
}

/// Whether pods of a lot have required affinity to pods of which any one on their machine will do, and there are several; and
/// nothing on their machine goes where they go.
fn chooses(problem: &Problem, lot: LotIndex) -> bool {
    let asks = &problem.lots[lot].asks;
    let lots = || problem.lots.indexed();
    let wanted = asks.wanted.iter();
    let mut wanted = wanted
        .filter(|counter| is_local(problem, **counter))
        .peekable();
    let has_several = |counter: &TallyIndex| {
        let targets = lots().filter(|(_, of)| of.asks.feeds.contains(counter));
        targets.map(|(_, of)| of.count).sum::<usize>() > 1
    };
    wanted.peek().is_some()
        && wanted.all(|counter| !asks.feeds.contains(counter) && has_several(counter))
        && !lots().any(|(other, _)| insists(problem, other, lot))
}

fn ties(problem: &Problem, chooses: &IndexVec<LotIndex, bool>, lot: LotIndex) -> Ties {
    let (mut of_lot, mut alone, mut others) = (Ties::default(), false, false);
    let fed = &problem.lots[lot].asks.feeds;
    for (other, of) in problem.lots.indexed() {
        let own = other == lot;
        let mut see = |counter: TallyIndex, tie: &dyn Fn(&mut Ties)| {
            if own || fed.contains(&counter) {
                if is_local(problem, counter) {
                    tie(&mut of_lot);
                } else {
                    of_lot.wide = true;
                }
            }
        };
        for counter in &of.asks.wanted {
            see(*counter, &|ties| ties.affinity |= !chooses[other]);
        }
        for even in &of.asks.spread {
            see(even.counter, &|ties| ties.counted = true);
            let mut lots = problem.lots.indexed();
            let only =
                lots.all(|(one, its)| (one == lot) == its.asks.feeds.contains(&even.counter));
            let local = is_local(problem, even.counter);
            alone |= own && local && only;
            others |= !own && local && fed.contains(&even.counter);
        }
        // Which pods may not share a machine is asked for each machine.
        for counter in &of.asks.forbidden {
            see(*counter, &|_| {});
        }
        for (counter, _) in &of.asks.unwanted {
            see(*counter, &|_| {});
        }
    }
    of_lot.even = alone && !others;
    of_lot
}

/// Pods on one machine, grouped by required affinity; those that others have it to come first.
fn groups(problem: &Problem, lots: &[(LotIndex, usize)]) -> Vec<Vec<(LotIndex, usize)>> {
    let mut groups: Vec<Vec<(LotIndex, usize)>> = Vec::new();
    for part in lots {
        let linked = |group: &Vec<(LotIndex, usize)>| {
            let mut others = group.iter();
            others.any(|(other, _)| {
                insists(problem, part.0, *other) || insists(problem, *other, part.0)
            })
        };
        let (with, apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(linked);
        groups = apart;
        let mut group: Vec<_> = with.into_iter().flatten().collect();
        group.push(*part);
        groups.push(group);
    }
    for group in &mut groups {
        group.sort_by_key(|(lot, _)| (!problem.lots[*lot].asks.wanted.is_empty(), *lot));
    }
    groups
}

fn insists(problem: &Problem, lot: LotIndex, on: LotIndex) -> bool {
    let mut wanted = problem.lots[lot].asks.wanted.iter();
    wanted
        .any(|counter| is_local(problem, *counter) && problem.lots[on].asks.feeds.contains(counter))
}

/// The lots that pods of a lot may not share a machine with.
fn find_apart(problem: &Problem, ties: &IndexVec<LotIndex, Ties>, lot: LotIndex) -> Vec<LotIndex> {
    let keeps_off = |of: LotIndex, other: LotIndex| {
        let asks = &problem.lots[of].asks;
        let unwanted = asks.unwanted.iter().map(|(counter, _)| counter);
        let mut counters = asks.forbidden.iter().chain(unwanted);
        counters.any(|counter| {
            is_local(problem, *counter) && problem.lots[other].asks.feeds.contains(counter)
        })
    };
    let others = problem.lots.indexes().filter(|other| {
        (lot == *other && ties[lot].even)
            || problem.lots[lot].apart[*other]
            || keeps_off(lot, *other)
            || keeps_off(*other, lot)
    });
    others.collect()
}

impl<'p> Draft<'p> {
    /// The plan with each movable on the machine that `places` says, laid out once more by all rules; `None` where no order is
    /// found in which each pod may go there.
    pub(super) fn with_places(
        &self,
        movables: &IndexVec<MovableIndex, Movable>,
        places: &IndexVec<MovableIndex, DraftMachineIndex>,
    ) -> Option<Draft<'p>> {
        let mut draft = self.clone();
        let both = movables.iter().zip(places);
        let moved = both.filter(|(movable, place)| {
            movable.home != Some(**place) || movable.taken != movable.parts
        });
        for (movable, place) in moved {
            for (lot, count) in &movable.taken {
                let Some(home) = movable.home else { continue };
                draft.machines[home].load.remove(self.problem, *lot, *count);
                draft.forget(home, *lot, *count);
            }
            for (lot, count) in &movable.parts {
                let machine = &mut draft.machines[*place];
                machine.load.add(self.problem, *lot, *count);
                if movable.classes.is_some() {
                    let bound = machine.bound.map(|(option, _)| option);
                    machine.class = bound.map(|option| self.problem.options[option].class);
                }
                draft.steps.push(Placement {
                    lot: *lot,
                    to: To::Machine(*place),
                    count: *count,
                });
            }
        }
        draft.put_together()
    }

    /// Pods of a lot that left a machine are no longer among what was done.
    fn forget(&mut self, at: DraftMachineIndex, lot: LotIndex, mut count: usize) {
        for step in self.steps.iter_mut().rev() {
            if step.to == To::Machine(at) && step.lot == lot {
                let gone = count.min(step.count);
                step.count -= gone;
                count -= gone;
            }
        }
        self.steps.retain(|step| step.count > 0);
    }
}
