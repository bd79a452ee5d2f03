//! Makes a plan cheaper: a few machines at a time are emptied, and their pods are placed again.

use super::fill::{self, PackingMode};
use super::state::Draft;
use super::units::Unit;
use super::whole::{Filler, Values};
use super::{CPU, LaunchOptionSet, MEMORY, Problem, Rank, share};
use crate::index::{AmountIndex, ChoiceIndex, DraftMachineIndex, LotIndex};

/// Machines that are looked at for a pod while a plan is made cheaper: at most, and for each pod.
const CHEAPEN_LOOKS: u64 = 90_000;
const CHEAPEN_LOOKS_EACH: u64 = 1_500;
/// Machines that are looked at for a pod where some pod of the plan has no place yet: at most, and for each pod.
const WAITING_LOOKS: u64 = 150_000;
const WAITING_LOOKS_EACH: u64 = 2_500;
/// Machines that are emptied in one try: at most, and at least.
const MAX_EMPTIED: usize = 5;
const MIN_EMPTIED: usize = 2;
/// Tries without any gain, for each machine of the plan, after which the search ends.
const PATIENCE: usize = 40;

/// How often machines that were emptied are filled whole, before single pods are placed.
const WHOLE_TIMES: usize = 3;
/// How often all pods are packed again in whole machines: in all, and of that with the pods in the order of their values.
/// After that the order is shaken a little.
const PLANS_ANEW: usize = 60;
const PLANS_WITHOUT_NOISE: usize = 8;

/// A seeded pseudo-random generator: the same numbers in every run.
pub(super) struct SeededRng(u64);

impl SeededRng {
    pub(super) fn new(seed: u64) -> SeededRng {
        SeededRng(seed)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bound = bound.max(1) as u64;
        usize::try_from((self.0 >> 33) % bound).unwrap_or(0)
    }
}

/// Makes a plan cheaper, if it finds how.
pub(super) fn improve(draft: &mut Draft<'_>, filler: &Filler<'_>) {
    let problem = draft.problem;
    let (most, each) = match draft.rank().lost {
        0 => (CHEAPEN_LOOKS, CHEAPEN_LOOKS_EACH),
        _ => (WAITING_LOOKS, WAITING_LOOKS_EACH),
    };
    problem.allow(most, each.saturating_mul(problem.pods()));
    draft.commit();
    let values = all_anew(draft, filler);
    a_few_anew(draft, filler, &values);
    share::improve(draft, filler, &values);
}

/// Empties a few machines at a time, and places their pods again.
fn a_few_anew(draft: &mut Draft<'_>, filler: &Filler<'_>, values: &Values) {
    let problem = draft.problem;
    let floor = filler.floor();
    let menus = menus(problem);
    let mut rng = SeededRng::new(1);
    let mut idle = 0;
    while !is_best(draft.rank(), floor) && problem.look(1) {
        let used: Vec<DraftMachineIndex> = used(draft);
        if used.is_empty() || idle > PATIENCE * used.len() {
            return;
        }
        let victims = victims(draft, &used, &mut rng);
        let mark = draft.mark();
        let before = draft.rank();
        for victim in &victims {
            draft.unload(*victim, |lot| !problem.lots[lot].tied);
        }
        let fills = (filler, values);
        if whole(draft, fills, &menus[0], &victims, &mut rng, before)
            || piece_by_piece(draft, &menus, &victims, &mut rng, before)
        {
            idle = if draft.rank() < before { 0 } else { idle + 1 };
            draft.commit();
        } else {
            draft.rollback(mark);
            idle += 1;
        }
    }
}

/// Whether no plan can be better: all pods have a place, for the least price that there can be.
fn is_best(rank: Rank, floor: i128) -> bool {
    rank.lost == 0 && rank.price <= floor
}

/// Fills emptied machines as a whole. Returns whether the plan is better than `before`.
fn whole(
    draft: &mut Draft<'_>,
    (filler, values): (&Filler<'_>, &Values),
    menu: &LaunchOptionSet,
    victims: &[DraftMachineIndex],
    rng: &mut SeededRng,
    before: Rank,
) -> bool {
    let empty = draft.mark();
    for _ in 0..WHOLE_TIMES {
        filler.fill(draft, victims, (values, 1 + rng.below(1 << 16)));
        let mode = PackingMode {
            menu,
            cheapest: true,
            spin: 0,
            among: Some(victims),
        };
        lay(draft, mode, 0);
        if draft.rank() < before && draft.is_fair() {
            return true;
        }
        draft.rollback(empty);
    }
    false
}

/// Places pods one after the other on machines that were emptied, and new ones. Returns whether the plan is better
/// than `before`, or now and then as good.
fn piece_by_piece(
    draft: &mut Draft<'_>,
    menus: &[LaunchOptionSet],
    victims: &[DraftMachineIndex],
    rng: &mut SeededRng,
    before: Rank,
) -> bool {
    let empty = draft.mark();
    for menu in ways(menus, rng) {
        for cheapest in [true, false] {
            let by = rng.below(POD_ORDERS);
            let mode = PackingMode {
                menu,
                cheapest,
                spin: 0,
                among: Some(victims),
            };
            lay(draft, mode, by);
            let rank = draft.rank();
            let sideways = rank == before && rng.below(4) == 0;
            if (rank < before || sideways) && draft.is_fair() {
                return true;
            }
            draft.rollback(empty);
        }
    }
    false
}

/// Packs all pods whose places depend on no others into whole machines, again and again with what the last plan taught. The best
/// plan stays. Returns what was learnt.
fn all_anew(draft: &mut Draft<'_>, filler: &Filler<'_>) -> Values {
    let problem = draft.problem;
    let mut values = Values::plain(filler);
    let floor = filler.floor();
    let all = LaunchOptionSet::all(problem.options.len());
    let enough = problem.looks.get() / 2;
    for round in 0..PLANS_ANEW {
        let before = draft.rank();
        if is_best(before, floor) || problem.looks.get() <= enough {
            break;
        }
        let mark = draft.mark();
        let used = used(draft);
        for at in &used {
            draft.unload(*at, |lot| !problem.lots[lot].tied);
        }
        let with = (&values, round.saturating_sub(PLANS_WITHOUT_NOISE));
        filler.fill_rest(draft, &used, with);
        filler.fill_new(draft, &used, with, share::PODS_TOGETHER);
        if !share::share_rest(draft, filler, &values, &used, before) {
            filler.fill_new(draft, &used, with, 0);
            let mode = PackingMode {
                menu: &all,
                cheapest: true,
                spin: 0,
                among: None,
            };
            lay(draft, mode, 0);
        }
        values.learn(filler, draft);
        if draft.rank() < before && draft.is_fair() {
            draft.commit();
        } else {
            draft.rollback(mark);
        }
    }
    values
}

fn used(draft: &Draft<'_>) -> Vec<DraftMachineIndex> {
    let problem = draft.problem;
    let machines = draft.machines.indexed();
    let replanned = machines.filter(|(_, machine)| {
        let mut counts = machine.load.counts.iter();
        counts.any(|(lot, _)| !problem.lots[*lot].tied)
    });
    replanned.map(|(at, _)| at).collect()
}

/// Some machines, in order: the first one drawn, and others.
fn victims(
    draft: &Draft<'_>,
    used: &[DraftMachineIndex],
    rng: &mut SeededRng,
) -> Vec<DraftMachineIndex> {
    let problem = draft.problem;
    let waste = |at: DraftMachineIndex| {
        let machine = &draft.machines[at];
        let Some((option, _)) = machine.bound else {
            return 0;
        };
        let whole = &problem.options[option].free;
        let parts = machine.load.sum.iter().zip(whole).take(2);
        let parts = parts.map(|(sum, free)| (free - sum).max(0) * 1000 / free.max(&1));
        parts.sum::<i64>()
    };
    // Of two that are drawn the one that wastes more.
    let mut first = used[rng.below(used.len())];
    let other = used[rng.below(used.len())];
    if waste(other) > waste(first) {
        first = other;
    }
    let count = MIN_EMPTIED + rng.below(MAX_EMPTIED - MIN_EMPTIED + 1);
    let mut victims = vec![first];
    for _ in 1..count {
        victims.push(used[rng.below(used.len())]);
    }
    victims.sort_unstable();
    victims.dedup();
    victims
}

/// Sets of options to restrict a plan to: all options, and those of each choice.
fn menus(problem: &Problem) -> Vec<LaunchOptionSet> {
    let mut choices: Vec<ChoiceIndex> =
        problem.options.iter().map(|option| option.choice).collect();
    choices.sort_unstable();
    choices.dedup();
    let of = |wanted: &[ChoiceIndex]| {
        let mut menu = LaunchOptionSet::none(problem.options.len());
        for (index, option) in problem.options.indexed() {
            if wanted.contains(&option.choice) {
                menu.insert(index);
            }
        }
        menu
    };
    let mut menus = vec![of(&choices)];
    menus.extend(choices.iter().map(|choice| of(&[*choice])));
    menus
}

/// All options, and two random sets.
fn ways<'m>(menus: &'m [LaunchOptionSet], rng: &mut SeededRng) -> Vec<&'m LaunchOptionSet> {
    let mut ways = vec![&menus[0]];
    for _ in 0..2 {
        ways.push(&menus[rng.below(menus.len())]);
    }
    ways
}

/// Orders in which pods are laid out.
const POD_ORDERS: usize = 4;

/// Places the pods that have no place, except those whose place depends on other pods.
pub(super) fn lay(draft: &mut Draft<'_>, mode: PackingMode<'_>, by: usize) {
    let problem = draft.problem;
    let lots = problem
        .lots
        .indexes()
        .filter(|lot| draft.left[*lot] > 0 && !problem.lots[*lot].tied);
    let mut lots: Vec<LotIndex> = lots.collect();
    lots.sort_by_cached_key(|lot| {
        let asked = &problem.lots[*lot].asked;
        let part = |resource: AmountIndex| {
            let largest = problem.options.iter().map(|option| option.free[resource]);
            let largest = i128::from(largest.max().unwrap_or(0).max(1));
            i128::from(asked[resource]) * (1 << 20) / largest
        };
        let size = match by {
            0 => part(CPU) + part(MEMORY),
            1 => part(CPU).max(part(MEMORY)),
            2 => part(CPU),
            _ => part(MEMORY),
        };
        (std::cmp::Reverse(size), *lot)
    });
    for lot in lots {
        let unit = Unit {
            parts: vec![(lot, 1)],
            times: draft.left[lot],
        };
        fill::place(draft, &unit, mode);
    }
    draft.rebind();
}
