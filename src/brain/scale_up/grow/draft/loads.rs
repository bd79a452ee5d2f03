//! Tries all ways to share the pods of a few machines among others that cost less together.
//!
//! Each pod has a value. A plan's price is the sum of all values and of each machine's *excess*: its price less the values of its own pods. If no
//! machine can hold pods valued above its price, no excess is negative. So in a plan below a given price the excesses of all machines together have a limit:
//! this is what there is to spare. The search puts the load of one machine after the other together, each with one of the most valuable pods
//! that are left. Pods that could not be shared within what there is to spare are not tried again with as much or less.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Problem;
use super::rates::PRICE_UNIT;
use super::whole::{Filler, PodWorth};
use crate::index::{
    AmountIndex, FillChoiceIndex, IndexVec, LaunchOptionIndex, LotIndex, PodSortIndex,
};

/// Right-shift of worths: they are counted in parts that are this many bits coarser than the price unit's.
const WORTH_SHIFT: u32 = 40;
/// For each such number of sorts of pods in it, looking at a load takes a step more.
const SORTS_PER_STEP: usize = 16;
/// Resources that have a rate: CPU and memory. Where pods ask for neither, nothing is found.
const RATED_RESOURCES: usize = 2;

/// A load: lots with how many pods of each, and which of the filler's choices it is for.
pub(super) type ChosenLoad = (FillChoiceIndex, Vec<(LotIndex, usize)>);

/// How many pods of each sort.
type CountsBySort = IndexVec<PodSortIndex, usize>;

/// Fixed-point denominator of the ratio of a pod's value to its worth.
const RATIO_PARTS: i64 = 1 << 10;

/// Alike pods that are to be shared.
struct PodSort<'f> {
    lot: LotIndex,
    pod: &'f PodWorth,
    /// What the search counts one pod of the sort for, in the parts of [`coarsen`]: its worth at the rates of the price bound, or somewhat else.
    worth: i64,
}

struct LoadSearch<'f, 'p> {
    problem: &'p Problem,
    filler: &'f Filler<'p>,
    /// Those that count most first.
    sorts: IndexVec<PodSortIndex, PodSort<'f>>,
    /// Steps that are left, and how many it takes to look at a load, begun or whole.
    steps: usize,
    each: usize,
    /// By how many pods of each sort are left: what there was to spare when they could not be shared.
    failed: BTreeMap<CountsBySort, i64>,
    plan: Vec<ChosenLoad>,
}

/// Pods that no load has taken yet, by sort (pods that ask the same), while the loads of one machine are put together.
struct RestToShare<'r> {
    counts: &'r CountsBySort,
    /// What its pods and those of later sorts ask.
    asked: IndexVec<PodSortIndex, [i64; RATED_RESOURCES]>,
    /// What pods of this and of later sorts count at most, for [`RATIO_PARTS`] of what they are worth at the rates.
    dearest: IndexVec<PodSortIndex, i64>,
    spare: i64,
}

/// A load that is being put together.
struct BegunLoad {
    /// Which of the filler's choices it is for, and the option that stands for that.
    choice: FillChoiceIndex,
    option: LaunchOptionIndex,
    free: IndexVec<AmountIndex, i64>,
    counts: CountsBySort,
    /// What the machine costs beyond what its pods count.
    over: i64,
}

/// A whole load: what its machine costs beyond what its pods count, the choice, and pods by sort.
type WholeLoad = (i64, FillChoiceIndex, CountsBySort);

/// A question to [`find`]: which pods to share among machines, and below which price.
pub(super) struct ShareQuestion<'f, 'p> {
    pub(super) problem: &'p Problem,
    pub(super) filler: &'f Filler<'p>,
    /// Lots with how many pods of each are to be shared.
    pub(super) pods: Vec<(LotIndex, usize)>,
    /// What all machines together must cost less than.
    pub(super) below: i128,
}

/// Machines for all pods of a question, if some are found within the steps, which it takes from `steps`. `pay` returns the value of a pod of a lot,
/// in parts of the price unit. If some machine can hold pods valued above its price, the search is not complete. Limits are not looked at, nor
/// constraints between pods on different machines.
pub(super) fn find(
    question: &ShareQuestion<'_, '_>,
    pay: &mut dyn FnMut(LotIndex) -> i128,
    steps: &mut usize,
) -> Option<Vec<ChosenLoad>> {
    let (problem, filler) = (question.problem, question.filler);
    let sorts = question.pods.iter().map(|(lot, count)| {
        let sort = PodSort {
            lot: *lot,
            pod: &filler.pods[*lot],
            worth: coarsen(pay(*lot)),
        };
        (sort, *count)
    });
    let mut sorts: Vec<(PodSort<'_>, usize)> = sorts.collect();
    sorts.sort_by_key(|(sort, _)| (Reverse(sort.worth), sort.lot));
    let (sorts, counts): (Vec<PodSort<'_>>, Vec<usize>) = sorts.into_iter().unzip();
    let (sorts, counts) = (IndexVec::from(sorts), CountsBySort::from(counts));
    let worths = sorts.iter().zip(&counts);
    let all = worths.map(|(sort, count)| sort.worth.saturating_mul(signed(*count)));
    let all = all.fold(0_i64, i64::saturating_add);
    // The highest price that is less.
    let most = question.below.saturating_sub(filler.rates.grain());
    let mut search = LoadSearch {
        problem,
        filler,
        steps: *steps,
        each: 1 + sorts.len() / SORTS_PER_STEP,
        sorts,
        failed: BTreeMap::new(),
        plan: Vec::new(),
    };
    let found = search.place(&counts, price(most).saturating_sub(all));
    *steps = search.steps;
    found.then_some(search.plan)
}

impl LoadSearch<'_, '_> {
    /// Shares what is left, with so much to spare.
    fn place(&mut self, counts: &CountsBySort, spare: i64) -> bool {
        let Some((first, _)) = counts.indexed().find(|(_, count)| **count > 0) else {
            return spare >= 0;
        };
        let failed = self.failed.get(counts);
        if self.steps == 0 || failed.is_some_and(|failed| *failed >= spare) {
            return false;
        }
        let rest = RestToShare {
            counts,
            asked: self.asked(counts),
            dearest: self.dearest(counts),
            spare,
        };
        let mut loads = Vec::new();
        for (choice, (option, _)) in self.filler.choices.indexed() {
            let of = &self.problem.options[*option];
            let mut begun = BegunLoad {
                choice,
                option: *option,
                free: of.free.clone(),
                counts: counts.with_each(0),
                over: price(i128::from(of.price)),
            };
            self.load(&rest, (first, first), &mut begun, &mut loads);
        }
        loads.sort();
        for (over, choice, pods) in loads {
            let left = counts.iter().zip(&pods).map(|(all, some)| all - some);
            let left: CountsBySort = left.collect();
            let lots = self
                .sorts
                .iter()
                .zip(&pods)
                .filter(|(_, count)| **count > 0);
            let lots = lots.map(|(sort, count)| (sort.lot, *count)).collect();
            self.plan.push((choice, lots));
            if self.place(&left, spare.saturating_sub(over)) {
                return true;
            }
            self.plan.pop();
            if self.steps == 0 {
                return false;
            }
        }
        let most = self.failed.entry(counts.clone()).or_insert(spare);
        *most = spare.max(*most);
        false
    }

    /// By sort: what its pods and those of later sorts count at most, for [`RATIO_PARTS`] of what they are worth at the rates.
    fn dearest(&self, counts: &CountsBySort) -> IndexVec<PodSortIndex, i64> {
        let mut dearest: IndexVec<PodSortIndex, i64> = vec![0; counts.len() + 1].into();
        for at in counts.indexes().rev() {
            dearest[at] = dearest[PodSortIndex(at.0 + 1)];
            if counts[at] > 0 {
                let PodSort { pod, worth, .. } = &self.sorts[at];
                let more = worth.saturating_mul(RATIO_PARTS) / coarsen(pod.worth).max(1);
                dearest[at] = dearest[at].max(more.saturating_add(1));
            }
        }
        dearest
    }

    /// By sort: what its pods and those of later sorts ask.
    fn asked(&self, counts: &CountsBySort) -> IndexVec<PodSortIndex, [i64; RATED_RESOURCES]> {
        let none = vec![[0_i64; RATED_RESOURCES]; counts.len() + 1];
        let mut asked: IndexVec<PodSortIndex, [i64; RATED_RESOURCES]> = none.into();
        for at in counts.indexes().rev() {
            asked[at] = asked[PodSortIndex(at.0 + 1)];
            let lot = &self.problem.lots[self.sorts[at].lot];
            for (sum, amount) in asked[at].iter_mut().zip(&lot.asked) {
                *sum = sum.saturating_add(amount.saturating_mul(signed(counts[at])));
            }
        }
        asked
    }

    /// All loads with a pod of the first sort that is left to which nothing could be added.
    fn load(
        &mut self,
        rest: &RestToShare<'_>,
        (first, from): (PodSortIndex, PodSortIndex),
        begun: &mut BegunLoad,
        loads: &mut Vec<WholeLoad>,
    ) {
        let most = self.most(&begun.free, (&rest.asked[from], rest.dearest[from]));
        if self.steps == 0 || begun.over.saturating_sub(most) > rest.spare {
            return;
        }
        self.steps = self.steps.saturating_sub(self.each);
        let fits = |at: &PodSortIndex| self.fit(*at, rest.counts[*at], begun) > 0;
        let next = self.sorts.indexes_from(from).find(fits);
        let Some(at) = next.filter(|next| from > first || *next == first) else {
            let whole = from > first && begun.over <= rest.spare && !self.takes_more(rest, begun);
            if whole && self.is_cheapest(begun) {
                loads.push((begun.over, begun.choice, begun.counts.clone()));
            }
            return;
        };
        let pod = self.sorts[at].pod;
        let least = usize::from(at == first);
        for count in (least..=self.fit(at, rest.counts[at], begun)).rev() {
            let over = begun.over;
            let worth = self.sorts[at].worth.saturating_mul(signed(count));
            pod.take(&mut begun.free, count, -1);
            begun.over = over.saturating_sub(worth);
            begun.counts[at] = count;
            self.load(rest, (first, PodSortIndex(at.0 + 1)), begun, loads);
            pod.take(&mut begun.free, count, 1);
            begun.over = over;
            begun.counts[at] = 0;
        }
    }

    /// What pods that ask so much count at most in so much room.
    fn most(&self, free: &[i64], (asked, dearest): (&[i64; RATED_RESOURCES], i64)) -> i64 {
        let both = free.iter().zip(asked).zip(self.filler.rates.first_rates());
        let worths =
            both.map(|((room, all), rate)| rate.saturating_mul(i128::from(*room.min(all))));
        let worth = worths.fold(0_i128, i128::saturating_add);
        // One part more, as worths are rounded down.
        let worth = coarsen(worth).saturating_add(1);
        worth.saturating_mul(dearest) / RATIO_PARTS + 1
    }

    /// How many pods of a sort a load could take.
    fn fit(&self, at: PodSortIndex, left: usize, begun: &BegunLoad) -> usize {
        let PodSort { lot, pod, .. } = &self.sorts[at];
        let of = &self.problem.lots[*lot];
        if left == 0 || !of.may.has(begun.option) {
            return 0;
        }
        let most = pod.room(&begun.free).min(left);
        let keeps_off = |(other, count): (&PodSort<'_>, &usize)| *count > 0 && of.apart[other.lot];
        if most > 0 && pod.picky && self.sorts.iter().zip(&begun.counts).any(keeps_off) {
            return 0;
        }
        if pod.alone { most.min(1) } else { most }
    }

    /// Whether a pod that is left has room beside the load: then a plan with that pod there is as good.
    fn takes_more(&self, rest: &RestToShare<'_>, begun: &BegunLoad) -> bool {
        self.sorts.indexes().any(|at| {
            let there = begun.counts[at];
            let more = rest.counts[at] > there && !(self.sorts[at].pod.alone && there > 0);
            more && self.fit(at, rest.counts[at] - there, begun) > 0
        })
    }

    /// Whether no cheaper choice could carry the load.
    fn is_cheapest(&self, begun: &BegunLoad) -> bool {
        let mine = &self.problem.options[begun.option];
        let used = mine
            .free
            .iter()
            .zip(&begun.free)
            .map(|(all, free)| all.saturating_sub(*free));
        let used: Vec<i64> = used.collect();
        let mut choices = self.filler.choices.indexed();
        !choices.any(|(choice, (option, _))| {
            let of = &self.problem.options[*option];
            let holds = |(amount, free): (&i64, &i64)| *amount == 0 || amount <= free;
            let mut lots = self.sorts.iter().zip(&begun.counts);
            (of.price, choice) < (mine.price, begun.choice)
                && used.iter().zip(&of.free).all(holds)
                && lots.all(|(sort, count)| {
                    *count == 0 || self.problem.lots[sort.lot].may.has(*option)
                })
        })
    }
}

/// A price in the parts in which worths are counted.
fn price(price: i128) -> i64 {
    coarsen(price.saturating_mul(PRICE_UNIT))
}

fn coarsen(worth: i128) -> i64 {
    i64::try_from(worth >> WORTH_SHIFT).unwrap_or(i64::MAX)
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
