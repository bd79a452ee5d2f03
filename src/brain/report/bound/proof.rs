//! What rates prove. This alone has to be right, with [`super::levy`].

use super::levy::Levy;
use super::problem::CoverProblem;
use crate::index::{ChoiceIndex, IndexVec, PodClassIndex};

/// What one unit of price is in the integers that rates are reckoned in, where prices need few bits.
const UNIT_BITS: u32 = 84;
/// Rates that ask too much of a machine are lowered in parts of two to the power of this.
const PART_BITS: u32 = 24;

/// Rates as integers: a levy takes the rate at its own position in `rates` for each unit that is paid, where a machine's price is its
/// price times `unit`.
#[derive(Debug)]
pub(super) struct IntegerRates {
    pub(super) unit: i128,
    pub(super) rates: Vec<i128>,
}

/// What a unit of price is, for these prices: the finer the cheaper they are, so that nothing overflows.
pub(super) fn choose_unit(prices: &IndexVec<ChoiceIndex, i128>) -> i128 {
    let most = prices.iter().copied().max().unwrap_or(0).max(1);
    1 << UNIT_BITS.saturating_sub(most.ilog2())
}

/// The least that machines for all classes cost, as far as these rates show; `None` where a number is too
/// large to reckon with.
///
/// With the rates (lowered, where they ask more of some machine than its price):
/// 1. no machine collects more than its price: `Σ rate × most ≤ price × unit`, for every candidate;
/// 2. no room collects more than its mosts, nor more than all pods that may be there pay;
/// 3. everything that is paid is collected by some machine or room: so the machines cost what is paid,
///    less what the rooms collect, at least; and whole multiples of what all prices are multiples of.
pub(super) fn prove(
    problem: &CoverProblem,
    levies: &[&Levy],
    found: &IntegerRates,
    prices: &IndexVec<ChoiceIndex, i128>,
) -> Option<i128> {
    let rates = lower_rates(levies, found, prices)?;
    let mut paid: i128 = 0;
    for (levy, rate) in levies.iter().zip(&rates) {
        paid = paid.checked_add(rate.checked_mul(levy.total)?)?;
    }
    // By class of pods: the price, in the unit of `prices`, that one pod of it pays over all levies together.
    let mut each: IndexVec<PodClassIndex, i128> = problem.classes.with_each(0);
    for (levy, rate) in levies.iter().zip(&rates).filter(|(_, rate)| **rate > 0) {
        for (sum, pays) in each.iter_mut().zip(&levy.pays) {
            *sum = sum.checked_add(rate.checked_mul(*pays)?)?;
        }
    }
    for (index, room) in problem.rooms.indexed() {
        let mut most: i128 = 0;
        for (levy, rate) in levies.iter().zip(&rates) {
            most = most.checked_add(rate.checked_mul(levy.room[index])?)?;
        }
        let mut all: i128 = 0;
        for (class, per_pod) in problem
            .classes
            .iter()
            .zip(&each)
            .zip(&room.may)
            .filter_map(|(x, may)| may.then_some(x))
        {
            all = all.checked_add(per_pod.checked_mul(class.count)?)?;
        }
        paid -= most.min(all);
    }
    if paid <= 0 {
        return Some(0);
    }
    let step = prices.iter().copied().fold(0, find_divisor).max(1);
    let step_unit = step.checked_mul(found.unit)?;
    step.checked_mul(divide_up(paid, step_unit))
}

/// The rates, such that no machine has to collect more than its price.
fn lower_rates(
    levies: &[&Levy],
    found: &IntegerRates,
    prices: &IndexVec<ChoiceIndex, i128>,
) -> Option<Vec<i128>> {
    let mut part: i128 = 1 << PART_BITS;
    for (candidate, price) in prices.indexed() {
        let mut asked: i128 = 0;
        for (levy, rate) in levies.iter().zip(&found.rates) {
            asked = asked.checked_add(rate.checked_mul(levy.machine[candidate])?)?;
        }
        let may = price.checked_mul(found.unit)?;
        if asked > may {
            // floor(may × 2^PART_BITS / asked), with `asked` made a little larger rather than a product too large.
            part = part.min(may / divide_up(asked, 1 << PART_BITS));
        }
    }
    let lower = |rate: &i128| {
        Some(
            (rate >> PART_BITS).checked_mul(part)?
                + (((rate & ((1 << PART_BITS) - 1)) * part) >> PART_BITS),
        )
    };
    if part == 1 << PART_BITS {
        return Some(found.rates.clone());
    }
    found.rates.iter().map(lower).collect()
}

/// `a / b`, rounded up; both are positive.
fn divide_up(a: i128, b: i128) -> i128 {
    a / b + i128::from(a % b != 0)
}

fn find_divisor(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { find_divisor(b, a % b) }
}
