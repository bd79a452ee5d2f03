//! The last resort where pods have no place: a search through the plans in which every pod has one.
//!
//! Pods are placed one by one, those that others count or have required affinity to first, on a place that stays, on a planned
//! machine or on a new one; where one has no place, the one before it goes elsewhere. Plans that leave more room
//! unused than there is to spare are given up early, and what came to nothing once is not tried again in another order.
//! A question of too many pods, or of more steps than are allowed, has no answer here.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::amounts::ResourceAmounts;
use super::fill::{self, PackingMode};
use super::state::{Draft, DraftMachine, Load};
use super::units::{self, DealMode, Unit};
use super::{CPU, LaunchOptionSet, MEMORY, Problem, Rank};
use crate::index::{AmountIndex, IndexVec, LotIndex, UnitIndex};

/// Plans of more pods are not searched through: hardly one would be found.
const MAX_PODS: u64 = 128;
/// Steps of one search at most, each of which tries one unit in one place: for a question of [`FULL_STEPS_PODS`] pods or fewer, in
/// which a step takes some microseconds. Larger ones get fewer, as each of theirs takes longer.
const MAX_STEPS: u64 = 240_000;
const FULL_STEPS_PODS: u64 = 32;
/// With this number of machines and places that stay, a step takes twice as long as with none.
const STEP_DOUBLING_PLACES: usize = 32;

/// By what pods that depend on no others are sorted, the largest first.
#[derive(Clone, Copy, Debug)]
enum PodOrder {
    /// What they ask of all resources, in parts of the largest machine.
    Size,
    /// What they ask of one resource.
    Resource(AmountIndex),
}

/// A plan better than `best` in which every pod has a place that can have one at all, if one is found.
pub(super) fn search(problem: &Problem, best: Rank) -> Option<Draft<'_>> {
    let pods = problem.pods();
    if pods > MAX_PODS {
        return None;
    }
    let steps = MAX_STEPS * FULL_STEPS_PODS / pods.max(FULL_STEPS_PODS);
    for order in [
        PodOrder::Size,
        PodOrder::Resource(CPU),
        PodOrder::Resource(MEMORY),
    ] {
        problem.allow(u64::MAX, steps.saturating_mul(pods));
        let mut search = AllPodsSearch::new(Draft::new(problem), order, steps);
        if search.place(UnitIndex(0)) {
            let mut found = search.draft;
            found.rebind();
            found.commit();
            return (found.rank() < best && found.is_fair()).then_some(found);
        }
        if search.steps > 0 {
            // All plans were seen, and another order sees the same.
            return None;
        }
    }
    None
}

struct AllPodsSearch<'p> {
    problem: &'p Problem,
    units: IndexVec<UnitIndex, Unit>,
    /// What a unit and those after it ask.
    rest: IndexVec<UnitIndex, ResourceAmounts>,
    /// The least that a unit or one after it asks of each resource.
    least: IndexVec<UnitIndex, ResourceAmounts>,
    /// How many machines can be made at most.
    most: usize,
    /// The most that a new machine has free of each resource.
    largest: ResourceAmounts,
    menu: LaunchOptionSet,
    draft: Draft<'p>,
    /// What came to nothing.
    vain: BTreeSet<u64>,
    steps: u64,
}

impl<'p> AllPodsSearch<'p> {
    /// A search for places of the pods that have none in a plan.
    fn new(draft: Draft<'p>, order: PodOrder, steps: u64) -> AllPodsSearch<'p> {
        let problem = draft.problem;
        let units = sorted(problem, &draft.left, order);
        let none = Load::empty(problem).sum;
        let (mut rest, mut least) = (vec![none.clone()], vec![none.clone()]);
        for unit in units.iter().rev() {
            let amounts = fill::amounts(problem, unit);
            let (mut sum, mut low) = (none.clone(), none.clone());
            let later = rest.last().into_iter().flatten();
            let later = later.zip(least.last().into_iter().flatten());
            let last = least.len() == 1;
            for (resource, (asked, (after, lowest))) in
                problem.resources().zip(amounts.iter().zip(later))
            {
                sum[resource] = after.saturating_add(*asked);
                low[resource] = if last { *asked } else { *asked.min(lowest) };
            }
            rest.push(sum);
            least.push(low);
        }
        rest.reverse();
        least.reverse();
        let mut largest = none;
        for option in &problem.options {
            for (most, free) in largest.iter_mut().zip(&option.free) {
                *most = (*free).max(*most);
            }
        }
        AllPodsSearch {
            most: most(&draft, units.len()),
            problem,
            units,
            rest: rest.into(),
            least: least.into(),
            largest,
            menu: LaunchOptionSet::all(problem.options.len()),
            draft,
            vain: BTreeSet::new(),
            steps,
        }
    }

    /// Places the units from `next` on. Returns whether all of them have a place.
    fn place(&mut self, next: UnitIndex) -> bool {
        if next == self.units.next_index() {
            return true;
        }
        if self.steps == 0 || self.is_wasteful(next) || !self.vain.insert(state(&self.draft, next))
        {
            return false;
        }
        let unit = self.units[next].clone();
        let menu = std::mem::take(&mut self.menu);
        let mode = PackingMode {
            menu: &menu,
            cheapest: false,
            spin: 0,
            among: None,
        };
        let spots = fill::spots(&self.draft, &unit, mode);
        self.menu = menu;
        for spot in spots {
            let places = self.draft.machines.len() + self.draft.fixed.len();
            let taken = 1 + u64::try_from(places / STEP_DOUBLING_PLACES).unwrap_or(u64::MAX);
            self.steps = self.steps.saturating_sub(taken);
            if self.steps == 0 {
                return false;
            }
            let mark = self.draft.mark();
            if fill::put_all(&mut self.draft, &unit, spot, &self.menu) {
                if self.place(UnitIndex(next.0 + 1)) {
                    return true;
                }
                self.draft.rollback(mark);
            }
        }
        false
    }

    /// Whether the units from `next` on ask more than there is room for: on a machine where none of them fits, what is
    /// free is lost.
    fn is_wasteful(&self, next: UnitIndex) -> bool {
        let mut rooms: ResourceAmounts = self.largest.clone();
        let more = self.most.saturating_sub(self.draft.machines.len());
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        for room in &mut rooms {
            *room = room.saturating_mul(more);
        }
        for machine in &self.draft.machines {
            self.add_room(next, &self.largest_of(machine), &machine.load, &mut rooms);
        }
        for (fixed, load) in self.problem.fixed.iter().zip(&self.draft.fixed) {
            self.add_room(next, &fixed.free, load, &mut rooms);
        }
        let mut both = self.rest[next].iter().zip(&rooms);
        both.any(|(rest, room)| rest > room)
    }

    /// The most that one of the options that a machine may be of has free of each resource.
    fn largest_of(&self, machine: &DraftMachine) -> ResourceAmounts {
        let mut largest = Load::empty(self.problem).sum;
        for option in machine.options.iter() {
            let of_option = &self.problem.options[option].free;
            for (most, free) in largest.iter_mut().zip(of_option) {
                *most = (*free).max(*most);
            }
        }
        largest
    }

    /// Adds what a place has free for the units from `next` on.
    fn add_room(&self, next: UnitIndex, free: &[i64], load: &Load, rooms: &mut ResourceAmounts) {
        let unused = free.iter().zip(&load.sum);
        let unused = unused.map(|(all, taken)| all.saturating_sub(*taken).max(0));
        let mut each = unused.clone().zip(&self.least[next]);
        if each.all(|(left, least)| left >= *least) {
            for (room, left) in rooms.iter_mut().zip(unused) {
                *room = room.saturating_add(left);
            }
        }
    }
}

/// A number that stands for what is placed: two plans with the same number take the same units from `next` on.
pub(super) fn state(draft: &Draft<'_>, next: UnitIndex) -> u64 {
    let problem = draft.problem;
    let machines = draft.machines.iter();
    let machines = machines.map(|machine| {
        let mut hasher = DefaultHasher::new();
        machine.class.hash(&mut hasher);
        machine.options.hash(&mut hasher);
        hash_load(problem, &machine.load, &mut hasher);
        hasher.finish()
    });
    let mut machines: Vec<u64> = machines.collect();
    machines.sort_unstable();
    let mut hasher = DefaultHasher::new();
    (next, machines).hash(&mut hasher);
    for load in &draft.fixed {
        hash_load(problem, load, &mut hasher);
    }
    hasher.finish()
}

/// Adds to a hash what a machine or node carries: its pods by kind where rules ask for them, and of all others only the sum of what they ask.
fn hash_load(problem: &Problem, load: &Load, hasher: &mut DefaultHasher) {
    load.sum.hash(hasher);
    let counted = |lot: LotIndex| {
        let of = &problem.lots[lot];
        of.tied || of.apart.iter().any(|apart| *apart)
    };
    let counts = load.counts.iter().filter(|(lot, _)| counted(*lot));
    let mut counts: Vec<_> = counts.collect();
    counts.sort_unstable();
    counts.hash(hasher);
}

/// How many machines a plan has at most when this many units more are placed, as far as options can be told apart.
fn most(draft: &Draft<'_>, units: usize) -> usize {
    let mut draft = draft.clone();
    let before = draft.machines.len();
    for made in 0..units {
        let at = draft.make();
        if !draft.bind(at) {
            return before + made;
        }
    }
    before + units
}

/// One unit for each pod or group of pods that has no place, `left` of each lot, and can have one: first those that others depend on, then those that depend
/// on them, then all others; what may be in fewer places first, then the largest.
fn sorted(
    problem: &Problem,
    left: &IndexVec<LotIndex, usize>,
    order: PodOrder,
) -> IndexVec<UnitIndex, Unit> {
    let placeable = |unit: &Unit| {
        let lots = unit.parts.iter().map(|(lot, _)| *lot);
        let mut places = lots.map(|lot| {
            let fixed = problem.fixed.iter().any(|fixed| fixed.may[lot]);
            fixed || problem.lots[lot].may.first().is_some()
        });
        places.all(|place| place)
    };
    let (units, _) = units::waiting(problem, left.clone(), DealMode::Apart);
    let units = units.into_iter();
    let units = units.filter(|unit| unit.times > 0 && placeable(unit));
    let mut units: IndexVec<UnitIndex, Unit> = units
        .flat_map(|unit| {
            let times = unit.times;
            std::iter::repeat_n(Unit { times: 1, ..unit }, times)
        })
        .collect();
    units.sort_by_cached_key(|unit| {
        let lots = unit.parts.iter().map(|(lot, _)| &problem.lots[*lot]);
        let replanned = lots.clone().all(|lot| !lot.tied);
        let follows = lots.clone().any(|lot| !lot.asks.wanted.is_empty());
        let breadth = lots.map(|lot| lot.may.len()).min().unwrap_or(0);
        let size = match order {
            PodOrder::Size => fill::size(problem, unit),
            PodOrder::Resource(resource) => i128::from(fill::amounts(problem, unit)[resource]),
        };
        (
            replanned,
            follows,
            breadth,
            Reverse(size),
            unit.parts.clone(),
        )
    });
    units
}
