//! Whole machine fillings: what fills a machine best, by what pods are worth at the rates that bound the price.

use super::rates::{PRICE_UNIT, Rates};
use super::state::{Draft, Spot};
use super::{LaunchOptionSet, Problem, To};
use crate::index::{
    AmountIndex, DraftMachineIndex, FillChoiceIndex, FillLotIndex, IndexVec, LaunchOptionIndex,
    ListIndex, LotIndex, indexes_in,
};

/// Steps of the search for one filling, for each lot that there is.
const FILLING_STEPS: usize = 12_000;
/// Choices that are filled on trial for a whole machine, at most: those that cost least per worth that they could hold.
const MAX_CHOICES: usize = 12;
/// Values are compared with worths in parts of this.
const WORTH_PARTS: i128 = 1 << 12;
/// Weight of one round's lesson: 1 / `LESSON_DIVISOR`.
const LESSON_DIVISOR: i128 = 4;
/// A filling that wastes no more than one part in this many is good enough.
const TOLERATED_WASTE_DIVISOR: i128 = 256;

/// What whole machines are filled with.
#[derive(Debug)]
pub(super) struct Filler<'p> {
    problem: &'p Problem,
    pub(super) rates: &'p Rates,
    pub(super) pods: IndexVec<LotIndex, PodWorth>,
    /// Options that stand for the choices that may be worth their price, and all options of each choice.
    pub(super) choices: IndexVec<FillChoiceIndex, (LaunchOptionIndex, LaunchOptionSet)>,
}

/// A pod of a lot as the search for a filling sees it, worked out once for all searches.
#[derive(Debug)]
pub(super) struct PodWorth {
    /// The pod's worth at the rates, in parts of the price unit ([`Rates::worth_of`]).
    pub(super) worth: i128,
    /// The resources that the pod asks for, with the amount of each.
    asked: Vec<(AmountIndex, i64)>,
    /// Host ports keep it from pods of some lot.
    pub(super) picky: bool,
    /// No second pod of the lot may come to the same machine.
    pub(super) alone: bool,
}

/// The search for one filling.
struct FillSearch<'f, 'p> {
    filler: &'f Filler<'p>,
    values: &'f Values,
    /// Lots with how many pods there are.
    lots: &'f IndexVec<FillLotIndex, (LotIndex, usize)>,
    /// What a lot or a later one counts at most for a [`WORTH_PARTS`] of what it is worth.
    dearest: IndexVec<FillLotIndex, i128>,
    /// How many pods of each lot are on the machine.
    counts: IndexVec<FillLotIndex, usize>,
    best: (i128, IndexVec<FillLotIndex, usize>),
    steps: usize,
    enough: i128,
}

/// What a pod of each lot counts when machines are filled. It begins as what the pod is worth, and rises where pods of
/// the lot came to lie on machines that carry little for their price: those are thought of earlier the next time.
#[derive(Clone, Debug)]
pub(super) struct Values {
    /// In parts of the price unit.
    of: IndexVec<LotIndex, i128>,
}

impl Values {
    /// What pods are worth.
    pub(super) fn plain(filler: &Filler<'_>) -> Values {
        Values {
            of: filler.pods.iter().map(|pod| pod.worth).collect(),
        }
    }

    /// What a pod of a lot counts.
    pub(super) fn of_pod(&self, lot: LotIndex) -> i128 {
        self.of[lot]
    }

    /// Learns from a plan: what each lot's pods cost there, when a machine's price is shared by what pods are worth.
    pub(super) fn learn(&mut self, filler: &Filler<'_>, draft: &Draft<'_>) {
        let lots = filler.pods.len();
        let mut paid: IndexVec<LotIndex, i128> = vec![0; lots].into();
        let mut pods = paid.clone();
        for machine in &draft.machines {
            let Some((option, _)) = machine.bound else {
                continue;
            };
            let counts = machine.load.counts.iter();
            let worths = counts.map(|(lot, count)| {
                let worth = filler.pods[*lot].worth;
                (*lot, *count as i128, worth)
            });
            let all = worths.clone().fold(0_i128, |sum, (_, count, worth)| {
                sum.saturating_add(worth.saturating_mul(count))
            });
            let price = i128::from(filler.problem.options[option].price).saturating_mul(PRICE_UNIT);
            // What the machine costs for a part of what is on it.
            let rate = price / (all / WORTH_PARTS).max(1);
            for (lot, count, worth) in worths {
                let cost = (worth / WORTH_PARTS)
                    .saturating_mul(rate)
                    .saturating_mul(count);
                paid[lot] = paid[lot].saturating_add(cost);
                pods[lot] += count;
            }
        }
        for lot in paid.indexes() {
            let value = &mut self.of[lot];
            if draft.left[lot] > 0 {
                // A pod that found no place is thought of before the others.
                *value = value.saturating_add(*value / LESSON_DIVISOR);
            } else if pods[lot] > 0 {
                *value = *value - *value / LESSON_DIVISOR + paid[lot] / pods[lot] / LESSON_DIVISOR;
            }
        }
    }
}

/// Pods that fill a machine, and what they are worth.
type Filling = (i128, Vec<(LotIndex, usize)>);

/// The filling that is known for each choice, if one is.
type FillingsByChoice = IndexVec<FillChoiceIndex, Option<Filling>>;

impl<'p> Filler<'p> {
    pub(super) fn new(problem: &'p Problem, rates: &'p Rates) -> Filler<'p> {
        let pods = problem.lots.indexed().map(|(index, lot)| {
            let asked = lot.asked.indexed().map(|(of, asked)| (of, *asked));
            PodWorth {
                worth: rates.worth_of(&lot.asked).saturating_add(1),
                asked: asked.filter(|(_, asked)| *asked > 0).collect(),
                picky: lot.apart.contains(&true),
                alone: lot.apart[index] || lot.asks.unwanted.iter().any(|(_, itself)| *itself),
            }
        });
        let mut choices: Vec<(LaunchOptionIndex, LaunchOptionSet)> = Vec::new();
        for (index, option) in problem.options.indexed() {
            let same = |(of, _): &&mut (LaunchOptionIndex, LaunchOptionSet)| {
                problem.options[*of].choice == option.choice
            };
            if let Some((_, options)) = choices.iter_mut().find(same) {
                options.insert(index);
            } else {
                let mut options = LaunchOptionSet::none(problem.options.len());
                options.insert(index);
                choices.push((index, options));
            }
        }
        // Those first that cost least for what they could hold.
        choices.sort_by(|(a, _), (b, _)| {
            let size = |option: LaunchOptionIndex| {
                rates.worth_of(&problem.options[option].free).max(1) >> 40
            };
            let price = |option: LaunchOptionIndex| i128::from(problem.options[option].price);
            let left = price(*a).saturating_mul(size(*b));
            left.cmp(&price(*b).saturating_mul(size(*a))).then(a.cmp(b))
        });
        choices.truncate(MAX_CHOICES);
        Filler {
            problem,
            rates,
            pods: pods.collect(),
            choices: choices.into(),
        }
    }

    /// What a plan for all pods costs at least.
    pub(super) fn floor(&self) -> i128 {
        self.rates.floor().0
    }

    /// Fills whole machines with pods that have no place and depend on no others, as long as some choice can be had: what is left
    /// on machines of `spare` that carry something, then those that are empty, then new ones. `turned` shifts what pods are thought of first.
    pub(super) fn fill(
        &self,
        draft: &mut Draft<'_>,
        spare: &[DraftMachineIndex],
        (values, turned): (&Values, usize),
    ) {
        self.fill_rest(draft, spare, (values, turned));
        self.fill_new(draft, spare, (values, turned), 0);
    }

    /// As [`Filler::fill`], but for machines that carry something, as long as more than `until` pods that depend on no others have no place.
    pub(super) fn fill_new(
        &self,
        draft: &mut Draft<'_>,
        spare: &[DraftMachineIndex],
        (values, turned): (&Values, usize),
        until: usize,
    ) {
        let mut open = self.choices.with_each(true);
        let empty = |at: &DraftMachineIndex| draft.machines[*at].load.counts.is_empty();
        let mut spare: Vec<DraftMachineIndex> = spare.iter().copied().filter(empty).collect();
        // What filled a machine best still does as long as all its pods are there.
        let mut known: FillingsByChoice = self.choices.with_each(None);
        loop {
            let lots = self.waiting(draft, values, turned);
            if lots.iter().map(|(_, left)| left).sum::<usize>() <= until {
                return;
            }
            let best = self.best_choice(draft, &lots, values, (&open, &mut known));
            let filling = best.and_then(|index| Some((index, known[index].clone()?)));
            let Some((index, (_, filling))) = filling else {
                return;
            };
            let menu = &self.choices[index].1;
            let mut made = false;
            let pods = filling.iter().map(|(_, count)| count).sum::<usize>();
            let mut waiting = lots.iter().map(|(_, left)| left).sum::<usize>();
            while waiting > until
                && filling
                    .iter()
                    .all(|(lot, count)| draft.left[*lot] >= *count)
            {
                let to = spare.last().map(|at| To::Machine(*at));
                if !put(draft, &filling, to, menu) {
                    break;
                }
                spare.pop();
                waiting = waiting.saturating_sub(pods);
                made = true;
            }
            open[index] = open[index] && made;
        }
    }

    /// The open choice whose best filling is worth most for its price; `known` has the fillings, and gets those that are new.
    fn best_choice(
        &self,
        draft: &Draft<'_>,
        lots: &[(LotIndex, usize)],
        values: &Values,
        (open, known): (&IndexVec<FillChoiceIndex, bool>, &mut FillingsByChoice),
    ) -> Option<FillChoiceIndex> {
        let mut best: Option<FillChoiceIndex> = None;
        for (index, (option, _)) in self.choices.indexed() {
            if !open[index] {
                continue;
            }
            let holds = known[index].as_ref().is_some_and(|(_, filling)| {
                let mut pods = filling.iter();
                pods.all(|(lot, count)| draft.left[*lot] >= *count)
            });
            if !holds {
                if !self.problem.look(1 + lots.len() / 8) {
                    known[index] = None;
                    continue;
                }
                let free = &self.problem.options[*option].free;
                known[index] = Some(self.filling((*option, free), lots, values));
            }
            let price = |choice: FillChoiceIndex| {
                i128::from(self.problem.options[self.choices[choice].0].price)
            };
            let worth = |choice: FillChoiceIndex| {
                let filling = known[choice].as_ref();
                filling.map_or(0, |(worth, _)| *worth >> 32)
            };
            let better = best.is_none_or(|other| {
                let left = price(index).saturating_mul(worth(other));
                left < price(other).saturating_mul(worth(index))
            });
            if worth(index) > 0 && better {
                best = Some(index);
            }
        }
        best
    }

    /// Lots that have no place and depend on no others: those that are worth most first, but for some.
    fn waiting(&self, draft: &Draft<'_>, values: &Values, turned: usize) -> Vec<(LotIndex, usize)> {
        let lots = draft.left.indexed();
        let lots = lots.filter(|(lot, left)| **left > 0 && !self.problem.lots[*lot].tied);
        let mut lots: Vec<(LotIndex, usize)> = lots.map(|(lot, left)| (lot, *left)).collect();
        // A shift of a few bits, and another for each lot.
        let noise = |lot: LotIndex| {
            (lot.position().wrapping_mul(0x9e37_79b9) ^ turned.wrapping_mul(0x85eb_ca6b)) % 97
        };
        lots.sort_by_key(|(lot, _)| {
            let shift = if turned == 0 { 0 } else { noise(*lot) };
            let value = values.of[*lot] >> 20;
            (std::cmp::Reverse(value * (100 + shift as i128)), *lot)
        });
        lots
    }

    /// Fills what is free on machines that carry something, as the options that they would be made of.
    pub(super) fn fill_rest(
        &self,
        draft: &mut Draft<'_>,
        machines: &[DraftMachineIndex],
        (values, turned): (&Values, usize),
    ) {
        let all = LaunchOptionSet::all(self.problem.options.len());
        for at in machines {
            let machine = &draft.machines[*at];
            let Some((option, _)) = machine.bound else {
                continue;
            };
            let lots = self.waiting(draft, values, turned);
            if machine.load.counts.is_empty() || !self.problem.look(1 + lots.len() / 8) {
                continue;
            }
            let whole = self.problem.options[option].free.iter();
            let free = whole.zip(&machine.load.sum).map(|(free, sum)| free - sum);
            let free: IndexVec<AmountIndex, i64> = free.collect();
            let (_, filling) = self.filling((option, &free), &lots, values);
            put(draft, &filling, Some(To::Machine(*at)), &all);
        }
    }

    /// What fills best what is free on a machine of an option.
    fn filling(
        &self,
        (option, free): (LaunchOptionIndex, &IndexVec<AmountIndex, i64>),
        lots: &[(LotIndex, usize)],
        values: &Values,
    ) -> Filling {
        let usable = lots
            .iter()
            .filter(|(lot, _)| self.problem.lots[*lot].may.has(option));
        let usable: IndexVec<FillLotIndex, (LotIndex, usize)> = usable.copied().collect();
        let whole = self.rates.worth_of(free);
        let mut dearest: IndexVec<FillLotIndex, i128> = usable
            .iter()
            .map(|(lot, _)| {
                values.of[*lot].saturating_mul(WORTH_PARTS) / self.pods[*lot].worth.max(1) + 1
            })
            .collect();
        let mut later = i128::MIN;
        for of_lot in dearest.iter_mut().rev() {
            later = later.max(*of_lot);
            *of_lot = later;
        }
        let top = dearest.first().copied().unwrap_or(WORTH_PARTS);
        let enough = ((whole - whole / TOLERATED_WASTE_DIVISOR) / WORTH_PARTS).saturating_mul(top);
        let mut search = FillSearch {
            filler: self,
            values,
            lots: &usable,
            dearest,
            counts: usable.with_each(0),
            best: (0, IndexVec::default()),
            steps: (FILLING_STEPS / usable.len().max(1)).clamp(30, 400),
            enough,
        };
        search.go_on(FillLotIndex(0), &mut free.clone(), (0, whole));
        let (worth, counts) = search.best;
        let counts = usable.iter().zip(counts).filter(|(_, count)| *count > 0);
        (
            worth,
            counts.map(|((lot, _), count)| (*lot, count)).collect(),
        )
    }
}

impl FillSearch<'_, '_> {
    /// Goes on with the lots from `from` on: what is on the machine is worth `worth`, what is free `rest`.
    fn go_on(
        &mut self,
        from: FillLotIndex,
        free: &mut IndexVec<AmountIndex, i64>,
        (worth, rest): (i128, i128),
    ) {
        if worth > self.best.0 {
            self.best = (worth, self.counts.clone());
        }
        let filler = self.filler;
        for at in self.lots.indexes_from(from) {
            let (lot, count) = self.lots[at];
            let pod = &filler.pods[lot];
            let most = pod.room(free).min(count);
            if most == 0 || (pod.picky && self.keeps_off(at)) {
                continue;
            }
            if self.steps == 0
                || self.best.0 >= self.enough
                || worth.saturating_add((rest / WORTH_PARTS).saturating_mul(self.dearest[at]))
                    <= self.best.0
            {
                return;
            }
            // Those that keep to themselves come one to a machine.
            let most = if pod.alone { 1 } else { most };
            for some in [most, most - 1] {
                if some == 0 || self.steps == 0 {
                    break;
                }
                self.steps -= 1;
                pod.take(free, some, -1);
                self.counts[at] = some;
                let more = self.values.of[lot].saturating_mul(some as i128);
                let less = pod.worth.saturating_mul(some as i128);
                let after = (worth.saturating_add(more), rest.saturating_sub(less));
                self.go_on(FillLotIndex(at.0 + 1), free, after);
                pod.take(free, some, 1);
                self.counts[at] = 0;
            }
        }
    }

    /// Whether host ports of what is on the machine keep pods of a lot off it.
    fn keeps_off(&self, at: FillLotIndex) -> bool {
        let apart = &self.filler.problem.lots[self.lots[at].0].apart;
        indexes_in(FillLotIndex(0)..at)
            .any(|other| self.counts[other] > 0 && apart[self.lots[other].0])
    }
}

impl PodWorth {
    /// How many fit.
    pub(super) fn room(&self, free: &IndexVec<AmountIndex, i64>) -> usize {
        // Most do not fit where most is taken: no division for them.
        if self.asked.iter().any(|(of, asked)| free[*of] < *asked) {
            return 0;
        }
        let room = self.asked.iter().map(|(of, asked)| free[*of] / asked);
        usize::try_from(room.min().unwrap_or(i64::MAX)).unwrap_or(usize::MAX)
    }

    pub(super) fn take(&self, free: &mut IndexVec<AmountIndex, i64>, count: usize, sign: i64) {
        let times = i64::try_from(count).unwrap_or(i64::MAX).wrapping_mul(sign);
        for (of, asked) in &self.asked {
            free[*of] = free[*of].wrapping_add(asked.wrapping_mul(times));
        }
    }
}

/// Puts a filling on an empty machine, or a new one, that is of one of these options.
pub(super) fn put(
    draft: &mut Draft<'_>,
    filling: &[(LotIndex, usize)],
    to: Option<To>,
    menu: &LaunchOptionSet,
) -> bool {
    let mark = draft.mark();
    let mut spot = Spot { to, class: None };
    for (lot, count) in filling {
        let done = draft.put(*lot, *count, spot, menu);
        if done.is_none() {
            draft.rollback(mark);
            return false;
        }
        spot.to = done;
    }
    true
}
