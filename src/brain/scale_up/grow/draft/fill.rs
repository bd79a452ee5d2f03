//! Lays plans out: pods in some order onto places, machines planned before, and new ones. A pod that found no place is
//! placed earlier the next time.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::amounts::ResourceAmounts;
use super::state::{Draft, Load, Spot};
use super::units::{self, DealMode, Unit};
use super::{LaunchOptionSet, Problem, To, partly};
use crate::index::{
    DraftMachineIndex, IndexVec, LaunchOptionClassIndex, LaunchOptionIndex, ListIndex, LotIndex,
    TallyIndex, UnitIndex,
};

/// Orders that are tried in one way of laying out, at most: each puts pods earlier that found no place before.
const MAX_ORDERS: usize = 24;
/// Choices that are tried as the only ones, at most: those that cost least for their size.
const MAX_MENUS: usize = 10;
/// Parts of the largest machine, for sizes.
const SIZE_PARTS: i128 = 1 << 20;

/// How a plan is laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackingMode<'w> {
    /// The options that machines may be of, as long as one of them does.
    pub(super) menu: &'w LaunchOptionSet,
    /// Pods go where they raise the price of machines least; else to the first that can carry them.
    pub(super) cheapest: bool,
    /// The class that is thought of first.
    pub(super) spin: usize,
    /// The machines that pods may come to; all, where none are named.
    pub(super) among: Option<&'w [DraftMachineIndex]>,
}

/// Lays out plans in several ways and shows each to `see`, until that says it is enough.
pub(super) fn lay_out_plans<'p>(problem: &'p Problem, see: &mut dyn FnMut(&Draft<'p>) -> bool) {
    let menus = menus(problem);
    let priorities = priorities(problem);
    for deal in [DealMode::Packed, DealMode::Even, DealMode::Apart] {
        let (units, has_followers) = units::of(problem, deal);
        let units: IndexVec<UnitIndex, Unit> = units.into();
        for size in [PodSize::Sum, PodSize::Most] {
            for narrow in [true, false] {
                for menu in &menus {
                    for cheapest in [false, true] {
                        let mode = PackingMode {
                            menu,
                            cheapest,
                            spin: 0,
                            among: None,
                        };
                        let keys: IndexVec<UnitIndex, LotOrder> = units
                            .iter()
                            .map(|unit| key(problem, &priorities, unit, (size, narrow)))
                            .collect();
                        if rounds(problem, (&units, &keys), mode, see) {
                            return;
                        }
                    }
                }
            }
        }
        if !has_followers {
            return;
        }
    }
}

/// How large a pod is.
#[derive(Clone, Copy, Debug)]
enum PodSize {
    /// All it asks, in parts of the largest machine.
    Sum,
    /// What it asks most of.
    Most,
}

/// All options, and each that is worth its price by itself.
pub(super) fn menus(problem: &Problem) -> Vec<LaunchOptionSet> {
    let count = problem.options.len();
    let mut menus = vec![LaunchOptionSet::all(count)];
    let mut order: Vec<LaunchOptionIndex> = problem.options.indexes().collect();
    let size = |option: &LaunchOptionIndex| sizes(problem, &problem.options[*option].free).0.max(1);
    order.sort_by(|a, b| {
        let (x, y) = (&problem.options[*a], &problem.options[*b]);
        let left = i128::from(x.price).saturating_mul(size(b));
        let right = i128::from(y.price).saturating_mul(size(a));
        (x.tier, left).cmp(&(y.tier, right))
    });
    let mut shown: Vec<LaunchOptionIndex> = Vec::new();
    for option in order {
        let alike = |other: &LaunchOptionIndex| {
            problem.options[*other].choice == problem.options[option].choice
        };
        if let Some(at) = shown.iter().position(alike) {
            menus[at + 1].insert(option);
        } else if shown.len() < MAX_MENUS {
            let mut menu = LaunchOptionSet::none(count);
            menu.insert(option);
            shown.push(option);
            menus.push(menu);
        }
    }
    menus
}

/// The sum and the most of some amounts, in parts of the largest machine.
fn sizes(problem: &Problem, amounts: &[i64]) -> (i128, i128) {
    let (mut sum, mut most) = (0, 0);
    for (resource, amount) in problem.resources().zip(amounts) {
        let largest = problem.options.iter().map(|option| option.free[resource]);
        let largest = i128::from(largest.max().unwrap_or(0).max(1));
        // Pods and disk are asked by the way.
        let part = i128::from((*amount).max(0)) * SIZE_PARTS / largest;
        sum += part;
        most = most.max(part);
    }
    (sum, most)
}

/// Lays out plans in one way, pods first that found no place before. Returns whether it is enough.
fn rounds<'p>(
    problem: &'p Problem,
    (units, keys): (&IndexVec<UnitIndex, Unit>, &IndexVec<UnitIndex, LotOrder>),
    mode: PackingMode<'_>,
    see: &mut dyn FnMut(&Draft<'p>) -> bool,
) -> bool {
    let mut urgent: IndexVec<UnitIndex, usize> = units.with_each(0);
    let turns = problem.lots.iter().any(|lot| lot.zoned) && problem.classes.len() > 1;
    let mut before: Vec<UnitIndex> = Vec::new();
    for spin in 0..MAX_ORDERS {
        let mut order: Vec<UnitIndex> = units.indexes().collect();
        order.sort_by_key(|unit| {
            let (priority, breadth, size) = keys[*unit];
            (priority, Reverse(urgent[*unit]), breadth, size, *unit)
        });
        if order == before && !turns {
            return false;
        }
        before.clone_from(&order);
        let mut draft = Draft::new(problem);
        let mut all = true;
        for unit in order {
            let rest = partly::place(&mut draft, &units[unit], PackingMode { spin, ..mode });
            if rest > 0 {
                all = false;
                urgent[unit] += 1;
                raise_urgency(problem, units, unit, &mut urgent);
            }
        }
        draft.rebind();
        if see(&draft) || !problem.look(1) {
            return true;
        }
        if all {
            return false;
        }
    }
    false
}

/// The units that a unit follows come before it.
fn raise_urgency(
    problem: &Problem,
    units: &IndexVec<UnitIndex, Unit>,
    unit: UnitIndex,
    urgent: &mut IndexVec<UnitIndex, usize>,
) {
    let wanted = units[unit]
        .parts
        .iter()
        .flat_map(|(lot, _)| &problem.lots[*lot].asks.wanted);
    let wanted: Vec<TallyIndex> = wanted.copied().collect();
    for (other, of) in units.indexed() {
        let feeds = of.parts.iter().any(|(lot, _)| {
            let feeds = &problem.lots[*lot].asks.feeds;
            feeds.iter().any(|counter| wanted.contains(counter))
        });
        if feeds && other != unit {
            urgent[other] = urgent[other].max(urgent[unit] + 1);
        }
    }
}

type LotOrder = (Reverse<i32>, usize, Reverse<i128>);

/// By lot: its priority, or the highest of the lots that follow its pods and cannot be placed before them.
///
/// Where all pods have a place in the plan there is, none comes before another: no better plan leaves one out, and pods that are packed by
/// priority fill machines worse.
fn priorities(problem: &Problem) -> IndexVec<LotIndex, i32> {
    let lots = problem.lots.iter();
    if problem.rank.lost == 0 {
        return lots.map(|_| 0).collect();
    }
    let mut priorities: IndexVec<LotIndex, i32> = lots.map(|lot| lot.priority).collect();
    loop {
        let mut wanted: IndexVec<TallyIndex, Option<i32>> =
            vec![None; problem.counters.len()].into();
        for (lot, priority) in problem.lots.iter().zip(&priorities) {
            for counter in &lot.asks.wanted {
                wanted[*counter] = wanted[*counter].max(Some(*priority));
            }
        }
        let mut raised = false;
        for (lot, priority) in problem.lots.iter().zip(&mut priorities) {
            let highest = lot.asks.feeds.iter().filter_map(|counter| wanted[*counter]);
            if let Some(highest) = highest.max().filter(|highest| *highest > *priority) {
                (*priority, raised) = (highest, true);
            }
        }
        if !raised {
            return priorities;
        }
    }
}

fn key(
    problem: &Problem,
    priorities: &IndexVec<LotIndex, i32>,
    unit: &Unit,
    (size, narrow): (PodSize, bool),
) -> LotOrder {
    let lots = unit.parts.iter().map(|(lot, _)| &problem.lots[*lot]);
    let all = unit.parts.iter().map(|(lot, _)| priorities[*lot]);
    let priority = all.max().unwrap_or(0);
    let breadth = lots.map(|lot| lot.may.len()).min().unwrap_or(0);
    let (sum, most) = sizes(problem, &amounts(problem, unit));
    let size = match size {
        PodSize::Sum => sum,
        PodSize::Most => most,
    };
    let breadth = if narrow { breadth } else { 0 };
    (Reverse(priority), breadth, Reverse(size))
}

/// How large a unit is, in parts of the largest machine.
pub(super) fn size(problem: &Problem, unit: &Unit) -> i128 {
    sizes(problem, &amounts(problem, unit)).0
}

/// What a unit asks, by resource.
pub(super) fn amounts(problem: &Problem, unit: &Unit) -> ResourceAmounts {
    let mut sums = Load::empty(problem).sum;
    for (lot, count) in &unit.parts {
        let times = i64::try_from(*count).unwrap_or(i64::MAX);
        for (sum, asked) in sums.iter_mut().zip(&problem.lots[*lot].asked) {
            *sum = sum.saturating_add(asked.saturating_mul(times));
        }
    }
    sums
}

/// Places a unit as often as it is there. Returns how many found no place.
pub(super) fn place(draft: &mut Draft<'_>, unit: &Unit, mode: PackingMode<'_>) -> usize {
    let mut rest = unit.times;
    let all = LaunchOptionSet::all(draft.problem.options.len());
    while rest > 0 {
        let done = once(draft, unit, rest, mode);
        let done = done.or_else(|| once(draft, unit, rest, PackingMode { menu: &all, ..mode }));
        match done {
            Some(count) => rest -= count,
            None => break,
        }
    }
    rest
}

/// Places a unit once, or one that is a single pod as often as its place takes it. Returns how often.
fn once(draft: &mut Draft<'_>, unit: &Unit, rest: usize, mode: PackingMode<'_>) -> Option<usize> {
    let spots = spots(draft, unit, mode);
    for spot in spots {
        if let [(lot, 1)] = unit.parts[..] {
            let most = if mode.cheapest {
                1
            } else {
                bulk(draft, lot, spot, mode.menu)
            };
            let count = most.min(rest);
            if count > 0 && draft.put(lot, count, spot, mode.menu).is_some() {
                return Some(count);
            }
            if count > 1 && draft.put(lot, 1, spot, mode.menu).is_some() {
                return Some(1);
            }
        } else if put_all(draft, unit, spot, mode.menu) {
            return Some(1);
        }
    }
    None
}

/// Puts all pods of a unit on a spot.
pub(super) fn put_all(
    draft: &mut Draft<'_>,
    unit: &Unit,
    spot: Spot,
    menu: &LaunchOptionSet,
) -> bool {
    let mark = draft.mark();
    let mut spot = spot;
    let mut waiting: Vec<(LotIndex, usize)> = unit.parts.clone();
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting.retain(|(lot, count)| match draft.put(*lot, *count, spot, menu) {
            Some(to) => {
                spot.to = Some(to);
                false
            }
            None => true,
        });
        if waiting.len() == before {
            draft.rollback(mark);
            return false;
        }
    }
    true
}

/// How many pods of a lot a spot takes at once.
fn bulk(draft: &Draft<'_>, lot: LotIndex, spot: Spot, menu: &LaunchOptionSet) -> usize {
    let problem = draft.problem;
    let of = &problem.lots[lot];
    let room = match spot.to {
        Some(To::Fixed(at)) => draft.fixed[at].room(&of.asked, &problem.fixed[at].free),
        Some(To::Machine(at)) => {
            let machine = &draft.machines[at];
            let mut options = machine.options.clone();
            options.intersect(&of.may);
            options.intersect(menu);
            let rooms = options
                .iter()
                .map(|option| machine.load.room(&of.asked, &problem.options[option].free));
            rooms.max().unwrap_or(0)
        }
        None => {
            let mut options = of.may.clone();
            options.intersect(menu);
            if let Some(class) = spot.class {
                options.intersect(&problem.classes[class].options);
            }
            let empty = Load::empty(problem);
            let rooms = options
                .iter()
                .map(|option| empty.room(&of.asked, &problem.options[option].free));
            rooms.max().unwrap_or(0)
        }
    };
    if of.apart[lot] {
        return room.min(1);
    }
    room.min(draft.may(lot, spot))
}

/// What decides which spot is thought of first: how crowded it is, what it costs more, its class and number.
type SpotOrder = (i64, i64, usize, usize);

/// What is asked while spots are looked for.
struct SpotQuery<'w> {
    lots: SmallVec<[LotIndex; 6]>,
    asked: ResourceAmounts,
    zoned: bool,
    /// The options that all its pods may be on.
    may: LaunchOptionSet,
    mode: PackingMode<'w>,
}

impl SpotQuery<'_> {
    fn crowd(&self, draft: &Draft<'_>, spot: Spot) -> i64 {
        self.lots.iter().map(|lot| draft.crowd(*lot, spot)).sum()
    }

    fn turned(&self, draft: &Draft<'_>, class: LaunchOptionClassIndex) -> usize {
        let classes = draft.problem.classes.len().max(1);
        (class.position() + classes - self.mode.spin % classes) % classes
    }
}

/// Where a unit could go, what is best first.
pub(super) fn spots(draft: &Draft<'_>, unit: &Unit, mode: PackingMode<'_>) -> Vec<Spot> {
    let problem = draft.problem;
    let lots: SmallVec<[LotIndex; 6]> = unit.parts.iter().map(|(lot, _)| *lot).collect();
    let mut may = mode.menu.clone();
    for lot in &lots {
        may.intersect(&problem.lots[*lot].may);
    }
    let wanted = SpotQuery {
        zoned: lots.iter().any(|lot| problem.lots[*lot].zoned),
        asked: amounts(problem, unit),
        lots,
        may,
        mode,
    };
    let places = draft.machines.len() + problem.fixed.len() + problem.classes.len();
    let mut found: Vec<(SpotOrder, Spot)> = Vec::with_capacity(places.min(64));
    if mode.among.is_none() {
        for at in problem.fixed.indexes() {
            let mut all = wanted.lots.iter();
            if all.all(|lot| problem.fixed[at].may[*lot]) {
                let spot = Spot {
                    to: Some(To::Fixed(at)),
                    class: None,
                };
                found.push((
                    (wanted.crowd(draft, spot), i64::MIN, 0, at.position()),
                    spot,
                ));
            }
        }
    }
    // Machines made since count too.
    let made = draft.machines.next_index();
    let (known, first): (&[DraftMachineIndex], DraftMachineIndex) = match mode.among {
        Some(among) => (
            among,
            among
                .last()
                .map_or(made, |last| DraftMachineIndex(last.0 + 1)),
        ),
        None => (&[], DraftMachineIndex(0)),
    };
    let known = known.iter().copied().filter(|at| *at < made);
    let mut looks = 1;
    for at in known.chain(draft.machines.indexes_from(first)) {
        looks += 1;
        on_machine(draft, &wanted, at, &mut found);
    }
    problem.look(looks);
    on_new(draft, &wanted, &mut found);
    found.sort_by_key(|(key, _)| *key);
    found.into_iter().map(|(_, spot)| spot).collect()
}

fn on_machine(
    draft: &Draft<'_>,
    wanted: &SpotQuery<'_>,
    at: DraftMachineIndex,
    found: &mut Vec<(SpotOrder, Spot)>,
) {
    let problem = draft.problem;
    let machine = &draft.machines[at];
    if !machine.options.meets(&wanted.may) || machine.load.counts.is_empty() {
        return;
    }
    let mut more = -1;
    if wanted.mode.cheapest {
        let mut options = machine.options.clone();
        options.intersect(&wanted.may);
        let fits = |option: &LaunchOptionIndex| {
            fits(
                &machine.load.sum,
                &wanted.asked,
                &problem.options[*option].free,
            )
        };
        let Some(after) = options.iter().find(fits) else {
            return;
        };
        let price = |option: LaunchOptionIndex| problem.options[option].price;
        let now = machine.options.first().map_or(0, price);
        more = price(after).saturating_sub(now);
    }
    let of = |class| Spot {
        to: Some(To::Machine(at)),
        class,
    };
    if wanted.zoned && machine.class.is_none() {
        for (class, of_class) in problem.classes.indexed() {
            if machine.options.meets(&of_class.options) && wanted.may.meets(&of_class.options) {
                let spot = of(Some(class));
                let turned = wanted.turned(draft, class);
                found.push((
                    (wanted.crowd(draft, spot), more, turned, at.position()),
                    spot,
                ));
            }
        }
    } else {
        let spot = of(machine.class);
        found.push(((wanted.crowd(draft, spot), more, 0, at.position()), spot));
    }
}

fn on_new(draft: &Draft<'_>, wanted: &SpotQuery<'_>, found: &mut Vec<(SpotOrder, Spot)>) {
    let problem = draft.problem;
    let new = |class: Option<LaunchOptionClassIndex>| Spot { to: None, class };
    let cost = |within: &LaunchOptionSet| {
        let mut options = wanted.may.clone();
        options.intersect(within);
        let none = Load::empty(problem).sum;
        let fits =
            |option: &LaunchOptionIndex| fits(&none, &wanted.asked, &problem.options[*option].free);
        let first = options.iter().find(fits);
        first.map(|option| problem.options[option].price)
    };
    if !wanted.zoned {
        let spot = new(None);
        let cost = cost(&wanted.may);
        found.extend(cost.map(|cost| ((wanted.crowd(draft, spot), cost, 0, usize::MAX), spot)));
        return;
    }
    for (class, of) in problem.classes.indexed() {
        if let Some(cost) = cost(&of.options) {
            let spot = new(Some(class));
            let turned = wanted.turned(draft, class);
            found.push(((wanted.crowd(draft, spot), cost, turned, usize::MAX), spot));
        }
    }
}

fn fits(sum: &[i64], asked: &[i64], free: &[i64]) -> bool {
    let mut both = sum.iter().zip(asked).zip(free);
    both.all(|((taken, more), all)| *more == 0 || taken.saturating_add(*more) <= *all)
}
