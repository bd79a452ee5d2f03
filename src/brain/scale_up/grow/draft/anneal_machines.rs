//! Other machines for a plan whose machines together have less of something than its pods ask, where limits let some that
//! have enough be made: they become ones of other options, there are more of them, or fewer. Or machines that have enough and cost less.
//!
//! It computes with sums alone. Whether pods can be laid out on the machines is for others to find out.

use super::Problem;
use super::amounts::ResourceAmounts;
use super::bind::RemainingLimits;
use super::cheapen::SeededRng;
use super::state::Draft;
use crate::index::{
    AmountIndex, DraftMachineIndex, IndexVec, LaunchOptionIndex, LotIndex, SiteIndex, TierIndex,
};

/// Machines that a plan may have beyond those it began with.
pub(super) const MAX_MORE_MACHINES: usize = 8;
/// How many times a machine becomes another one, at most: where enough is looked for, where the fewest machines are, and where cheaper ones are. That holds for a
/// question of this number of pods or fewer; larger ones get fewer, as each of theirs takes longer.
const ENOUGH_STEPS: usize = 60_000;
const FEWEST_STEPS: usize = 8_000;
const PRICED_STEPS: usize = 24_000;
const FULL_STEPS_PODS: u64 = 96;
/// Steps in which the harm that a step may do falls to nothing, before it is as much as at first again.
const CYCLE_STEPS: usize = 2_000;
/// By how many machines of middling size there may be less after a step, at most.
const MAX_HARM: usize = 2;
/// Where the fewest machines are looked for, each counts as much as this part of a machine that is missing.
const MACHINE_DIVISOR: i128 = 4;
/// Parts in which it is counted what is missing of a resource.
const RESOURCE_PARTS: i128 = 10_000;

/// Which machines are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The first that have enough together.
    Enough,
    /// The fewest that do: pods are laid out more easily on those.
    Fewest,
    /// The first that do and cost no more than this, of no lower weight than those of the plan.
    Priced(i128),
}

/// The machines of a plan become ones that have enough together. Returns whether there are such. Pods of those that are given up
/// have no place then.
pub(super) fn enlarge(
    draft: &mut Draft<'_>,
    (wanted, unplaceable): (Wanted, &IndexVec<LotIndex, bool>),
    rng: &mut SeededRng,
) -> bool {
    let mut search = MachineAnnealing::of(draft, (wanted, unplaceable));
    let found = search.run(wanted, rng);
    if let Some(found) = &found {
        draft.become_of(found);
    }
    found.is_some()
}

/// The option and site that each planned machine would be made of, `None` where it is not made.
type BoundMachines = IndexVec<DraftMachineIndex, Option<(LaunchOptionIndex, SiteIndex)>>;

struct MachineAnnealing<'p> {
    problem: &'p Problem,
    limits: RemainingLimits,
    bound: BoundMachines,
    missing: Missing,
    /// The sum of the prices of all machines of this state, in the unit of a launch option's price.
    price: i128,
    /// The tier of the options of lowest weight that machines may become.
    tier: TierIndex,
}

impl<'p> MachineAnnealing<'p> {
    fn of(
        draft: &Draft<'p>,
        (wanted, unplaceable): (Wanted, &IndexVec<LotIndex, bool>),
    ) -> MachineAnnealing<'p> {
        let problem = draft.problem;
        let bound = draft.machines.iter().map(|machine| machine.bound);
        let mut bound: BoundMachines = bound.collect();
        let mut missing = Missing::of(draft, unplaceable);
        let options = bound.iter().flatten().map(|(option, _)| *option);
        for option in options.clone() {
            missing.change(problem, option, -1);
        }
        let price = options.clone().map(|option| price(problem, option)).sum();
        let lowest = options.map(|option| problem.options[option].tier).max();
        let tier = match wanted {
            Wanted::Priced(_) => lowest.unwrap_or(TierIndex(0)),
            Wanted::Enough | Wanted::Fewest => TierIndex(usize::MAX),
        };
        let more = match wanted {
            // Several small machines may cost less than a large one.
            Wanted::Priced(_) => MAX_MORE_MACHINES,
            Wanted::Enough | Wanted::Fewest => draft.left.iter().sum(),
        };
        bound.grow_to(bound.len() + more.min(MAX_MORE_MACHINES));
        MachineAnnealing {
            problem,
            limits: draft.limits.clone(),
            bound,
            missing,
            price,
            tier,
        }
    }

    fn run(&mut self, wanted: Wanted, rng: &mut SeededRng) -> Option<BoundMachines> {
        let of_machine = RESOURCE_PARTS / (self.bound.len().max(1) as i128);
        let (each, steps) = match wanted {
            Wanted::Enough => (0, ENOUGH_STEPS),
            Wanted::Priced(_) => (0, PRICED_STEPS),
            Wanted::Fewest => (of_machine / MACHINE_DIVISOR, FEWEST_STEPS),
        };
        let value = |search: &MachineAnnealing<'_>| {
            let machines = search.bound.iter().flatten().count() as i128;
            search.missing.parts() + each * machines + search.parts_above(wanted)
        };
        let pods = self.problem.pods().max(FULL_STEPS_PODS);
        let pods = usize::try_from(pods / FULL_STEPS_PODS).unwrap_or(usize::MAX);
        let steps = steps / pods;
        let harm = usize::try_from(of_machine).unwrap_or(0) * MAX_HARM;
        let mut now = value(self);
        let mut best: Option<(i128, BoundMachines)> = None;
        for step in 0..steps {
            if self.missing.parts() == 0
                && self.parts_above(wanted) == 0
                && best.as_ref().is_none_or(|(best, _)| now < *best)
            {
                best = Some((now, self.bound.clone()));
                if wanted != Wanted::Fewest {
                    break;
                }
            }
            if self.bound.is_empty() || self.problem.options.is_empty() {
                break;
            }
            let at = DraftMachineIndex(rng.below(self.bound.len()));
            let old = self.change(at, None);
            let option = LaunchOptionIndex(rng.below(self.problem.options.len()));
            if old.is_none() || rng.below(4) > 0 {
                let allowed = self.problem.options[option].tier <= self.tier;
                let site = allowed.then(|| self.limits.site(self.problem, option));
                let site = site.flatten();
                self.change(at, site.map(|site| (option, site)));
            }
            let after = value(self);
            let borne = rng.below(harm - harm * (step % CYCLE_STEPS) / CYCLE_STEPS);
            if after <= now + borne as i128 {
                now = after;
            } else {
                self.change(at, None);
                self.change(at, old);
            }
        }
        best.map(|(_, bound)| bound)
    }

    /// Makes a machine another one, or none. Returns what it was.
    fn change(
        &mut self,
        at: DraftMachineIndex,
        to: Option<(LaunchOptionIndex, SiteIndex)>,
    ) -> Option<(LaunchOptionIndex, SiteIndex)> {
        let before = std::mem::replace(&mut self.bound[at], to);
        if let Some((option, site)) = before {
            self.limits.give(self.problem, option, site);
            self.missing.change(self.problem, option, 1);
            self.price -= price(self.problem, option);
        }
        if let Some((option, site)) = to {
            self.limits.take(self.problem, option, site);
            self.missing.change(self.problem, option, -1);
            self.price += price(self.problem, option);
        }
        before
    }

    /// How far the machines cost more than they may, in parts of that.
    fn parts_above(&self, wanted: Wanted) -> i128 {
        let Wanted::Priced(most) = wanted else {
            return 0;
        };
        match self.price.saturating_sub(most) {
            ..=0 => 0,
            above => above.saturating_mul(RESOURCE_PARTS) / most.max(1) + 1,
        }
    }
}

fn price(problem: &Problem, option: LaunchOptionIndex) -> i128 {
    i128::from(problem.options[option].price)
}

/// By resource, in its unit: what pods ask for (`asked`), and how much of that the machines lack (`missing`; negative where they have more).
struct Missing {
    asked: IndexVec<AmountIndex, i128>,
    missing: IndexVec<AmountIndex, i128>,
}

impl Missing {
    /// Nothing is made yet. Counted are the pods on planned machines and those without a place, but none that no machine could hold.
    fn of(draft: &Draft<'_>, unplaceable: &IndexVec<LotIndex, bool>) -> Missing {
        let problem = draft.problem;
        let loads = draft.machines.iter().map(|machine| &machine.load);
        let placed: Vec<&ResourceAmounts> = loads.map(|load| &load.sum).collect();
        let asked = problem.resources().map(|resource| {
            let lots = problem.lots.iter().zip(&draft.left).zip(unplaceable);
            let lots = lots.filter(|(_, waits)| !**waits);
            let left = lots.map(|((lot, left), _)| i128::from(lot.asked[resource]) * *left as i128);
            let placed = placed.iter().map(|sum| i128::from(sum[resource]));
            left.chain(placed).sum()
        });
        let asked: IndexVec<AmountIndex, i128> = asked.collect();
        Missing {
            missing: asked.clone(),
            asked,
        }
    }

    /// A machine of an option is given up (1) or made (-1).
    fn change(&mut self, problem: &Problem, option: LaunchOptionIndex, sign: i128) {
        for (missing, free) in self.missing.iter_mut().zip(&problem.options[option].free) {
            *missing += sign * i128::from((*free).max(0));
        }
    }

    /// The sum over all resources, in parts of what is asked.
    fn parts(&self) -> i128 {
        let both = self.missing.iter().zip(&self.asked);
        let short = both.filter(|(missing, asked)| **missing > 0 && **asked > 0);
        short
            .map(|(missing, asked)| missing.saturating_mul(RESOURCE_PARTS) / asked + 1)
            .sum()
    }
}

impl Draft<'_> {
    /// Machines become what `after` says, or are given up; those beyond the ones there are are made.
    fn become_of(&mut self, after: &BoundMachines) {
        let before = self.machines.next_index();
        let changed = |at: &DraftMachineIndex| self.machines[*at].bound != after[*at];
        let changed = self.machines.indexes().filter(changed);
        let changed: Vec<DraftMachineIndex> = changed.collect();
        for at in &changed {
            self.unbook(*at);
            self.machines[*at].bound = None;
        }
        for at in &changed {
            if let Some(bound) = after[*at] {
                self.set(*at, bound);
            }
        }
        let machines = self.machines.indexes().rev();
        for at in machines.filter(|at| after[*at].is_none()) {
            self.take_apart(at);
        }
        self.follow();
        // Those that carry nothing are dropped, and made once more.
        let kept =
            |at: &DraftMachineIndex| *at < before && !self.machines[*at].load.counts.is_empty();
        let empty = after.indexes().filter(|at| !kept(at));
        let empty: Vec<(LaunchOptionIndex, SiteIndex)> = empty.filter_map(|at| after[at]).collect();
        self.drop_empty();
        for bound in empty {
            let at = self.make();
            self.set(at, bound);
        }
    }
}
