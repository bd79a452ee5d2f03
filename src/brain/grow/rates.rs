//! What pods are worth at rates under which no machine that could be made holds more than its price: so a
//! search knows what pods that are not dealt yet will cost at least.

use super::puzzle::{Model, Puzzle};

/// Parts of one unit of price: fine enough for a byte of memory.
pub(super) const WHOLE: i128 = 1 << 60;
/// Rounds of the search for the best rates of CPU and memory together: each leaves two thirds.
const ROUNDS: usize = 200;
/// The places of CPU and memory among the amounts.
const CPU: usize = 0;
const MEMORY: usize = 1;

/// A price of resources.
#[derive(Debug)]
pub(super) struct Rate {
    /// By resource, in parts of [`WHOLE`].
    of: Vec<i128>,
    /// What the largest model is worth.
    pub(super) most: i128,
}

impl Rate {
    /// What so much is worth.
    pub(super) fn worth(&self, amounts: &[i64]) -> i128 {
        let both = self.of.iter().zip(amounts);
        let worth = both.map(|(rate, amount)| rate.saturating_mul(i128::from((*amount).max(0))));
        worth.fold(0, i128::saturating_add)
    }
}

/// The rates that may tell something of a puzzle.
pub(super) fn of(puzzle: &Puzzle) -> Vec<Rate> {
    let Some(first) = puzzle.lots.first() else {
        return Vec::new();
    };
    let asked: Vec<i128> = (0..first.asked.len())
        .map(|resource| {
            let lots = puzzle.lots.iter();
            let all = lots.map(|lot| i128::from(lot.asked[resource]) * count(lot.count));
            all.fold(0, i128::saturating_add)
        })
        .collect();
    let mut rates: Vec<Vec<i128>> = Vec::new();
    let single = |resource: usize, rate: i128| {
        let mut rates = vec![0; asked.len()];
        rates[resource] = rate;
        rates
    };
    if asked[CPU] > 0 && asked[MEMORY] > 0 {
        rates.push(together(&puzzle.models, &asked));
    }
    for resource in (0..asked.len()).filter(|resource| asked[*resource] > 0) {
        rates.push(single(resource, highest(&puzzle.models, resource, |_| 0)));
    }
    let whole = rates.into_iter().map(|of| {
        let mut rate = Rate { of, most: 0 };
        let models = puzzle.models.iter();
        rate.most = models
            .map(|model| rate.worth(&model.free))
            .max()
            .unwrap_or(0);
        rate
    });
    whole.collect()
}

/// The highest rate of a resource under which no model is worth more than its price, where `paid` is what
/// the rest of it is worth.
fn highest(models: &[Model], resource: usize, paid: impl Fn(&Model) -> i128) -> i128 {
    let rates = models.iter().filter(|model| model.free[resource] > 0);
    let rates = rates.map(|model| {
        let left = i128::from(model.price).saturating_mul(WHOLE) - paid(model);
        left.max(0) / i128::from(model.free[resource])
    });
    rates.min().unwrap_or(0)
}

/// The rates of CPU and memory at which all pods together are worth most. What they are worth is concave
/// in the rate of CPU, that of memory being the highest beside it.
fn together(models: &[Model], asked: &[i128]) -> Vec<i128> {
    let memory = |cpu: i128| {
        highest(models, MEMORY, |model| {
            cpu.saturating_mul(i128::from(model.free[CPU].max(0)))
        })
    };
    let worth = |cpu: i128| {
        let of_cpu = cpu.saturating_mul(asked[CPU]);
        of_cpu.saturating_add(memory(cpu).saturating_mul(asked[MEMORY]))
    };
    let (mut low, mut high) = (0, highest(models, CPU, |_| 0));
    for _ in 0..ROUNDS {
        let third = (high - low) / 3;
        if third == 0 {
            break;
        }
        if worth(low + third) < worth(high - third) {
            low += third;
        } else {
            high -= third;
        }
    }
    let mut rates = vec![0; asked.len()];
    rates[CPU] = low;
    rates[MEMORY] = memory(low);
    rates
}

/// What all prices are multiples of.
pub(super) fn grain(puzzle: &Puzzle) -> i128 {
    let prices = puzzle.models.iter().map(|model| i128::from(model.price));
    prices.fold(0, divisor).max(1)
}

fn divisor(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The least multiple of `grain` that is no less.
pub(super) fn round_up(price: i128, grain: i128) -> i128 {
    let rest = price.rem_euclid(grain);
    if rest == 0 {
        price
    } else {
        price.saturating_add(grain - rest)
    }
}

fn count(of: usize) -> i128 {
    i128::try_from(of).unwrap_or(i128::MAX)
}
