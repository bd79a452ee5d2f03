//! What pods are worth at rates under which no machine that could be made holds more than its price: so a
//! search knows what pods that are not placed yet will cost at least.

use super::{CPU, LaunchOption, MEMORY, Problem};
use crate::index::{AmountIndex, IndexVec};

/// Parts of one unit of price: fine enough for a byte of memory.
pub(super) const PRICE_UNIT: i128 = 1 << 60;
/// Rounds of the search for the best rates of CPU and memory together: each leaves two thirds.
const RATE_ROUNDS: usize = 200;

/// A price of resources.
#[derive(Debug)]
struct Rate {
    /// By resource, in parts of [`PRICE_UNIT`].
    of: IndexVec<AmountIndex, i128>,
    /// The most that any option is worth at these rates.
    most: i128,
}

/// The rates that may tell something of a problem.
#[derive(Debug)]
pub(super) struct Rates {
    all: Vec<Rate>,
    /// All prices are multiples of it.
    grain: i128,
    /// By rate: what all pods are worth.
    worth: Vec<i128>,
    /// By rate: what places that stay could take.
    fixed: Vec<i128>,
}

impl Rate {
    /// What so much is worth.
    fn worth(&self, amounts: &[i64]) -> i128 {
        let both = self.of.iter().zip(amounts);
        let worth = both.map(|(rate, amount)| rate.saturating_mul(i128::from((*amount).max(0))));
        worth.fold(0, i128::saturating_add)
    }
}

impl Rates {
    pub(super) fn of(problem: &Problem) -> Rates {
        let rates = find_rates(problem);
        let worth = |rate: &Rate| {
            let lots = problem.lots.iter();
            let worth = lots.map(|lot| rate.worth(&lot.asked).saturating_mul(count(lot.count)));
            worth.fold(0, i128::saturating_add)
        };
        let fixed = |rate: &Rate| {
            let fixed = problem.fixed.iter().map(|fixed| rate.worth(&fixed.free));
            fixed.fold(0, i128::saturating_add)
        };
        Rates {
            grain: grain(problem),
            worth: rates.iter().map(worth).collect(),
            fixed: rates.iter().map(fixed).collect(),
            all: rates,
        }
    }

    /// What so much is worth at the first rates: of CPU and memory together, where both are asked.
    pub(super) fn worth_of(&self, amounts: &[i64]) -> i128 {
        self.all.first().map_or(0, |rate| rate.worth(amounts))
    }

    /// The first rates, by resource.
    pub(super) fn first_rates(&self) -> &[i128] {
        self.all.first().map_or(&[], |rate| &*rate.of)
    }

    /// What all prices are multiples of.
    pub(super) fn grain(&self) -> i128 {
        self.grain
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// By rate: what so much is worth.
    pub(super) fn worth(&self, amounts: &[i64]) -> Vec<i128> {
        self.all.iter().map(|rate| rate.worth(amounts)).collect()
    }

    /// What a plan for all pods costs at least, and the machines it makes at least.
    pub(super) fn floor(&self) -> (i128, usize) {
        let (mut price, mut machines) = (0, 0);
        for ((rate, all), fixed) in self.all.iter().zip(&self.worth).zip(&self.fixed) {
            let worth = all.saturating_sub(*fixed).max(0);
            price = price.max(up(worth, PRICE_UNIT));
            if rate.most > 0 {
                machines = machines.max(up(worth, rate.most));
            }
        }
        let machines = usize::try_from(machines).unwrap_or(usize::MAX);
        (round_up(price, self.grain), machines)
    }

    /// The least price and the fewest machines of any plan that completes an unfinished one: `machines` are those
    /// planned, by price and what is on them; `fixed` are the places that stay, by what is free and what is on them;
    /// `rest` is what the pods that are still to be placed are worth, by rate.
    pub(super) fn least(
        &self,
        machines: &[(i128, &[i64])],
        fixed: &[(&[i64], &[i64])],
        rest: &[i128],
    ) -> (i128, usize) {
        let paid: i128 = machines.iter().map(|(price, _)| price).sum();
        let (mut least, mut fewest) = (paid, machines.len());
        for (rate, waiting) in self.all.iter().zip(rest) {
            let loads = machines
                .iter()
                .map(|(price, sum)| (*price, rate.worth(sum)));
            let loads: Vec<(i128, i128)> = loads.collect();
            let free = fixed
                .iter()
                .map(|(free, sum)| rate.worth(free).saturating_sub(rate.worth(sum)).max(0));
            let free = free.fold(0, i128::saturating_add);
            let room = loads.iter().map(|(price, worth)| {
                price
                    .saturating_mul(PRICE_UNIT)
                    .saturating_sub(*worth)
                    .max(0)
            });
            let room = room.fold(free, i128::saturating_add);
            let more = waiting.saturating_sub(room).max(0);
            least = least.max(paid.saturating_add(up(more, PRICE_UNIT)));
            if rate.most > 0 {
                let spare = loads.iter().map(|(_, worth)| (rate.most - worth).max(0));
                let spare = spare.fold(free, i128::saturating_add);
                let made = up(waiting.saturating_sub(spare).max(0), rate.most);
                let made = usize::try_from(made).unwrap_or(usize::MAX);
                fewest = fewest.max(machines.len().saturating_add(made));
            }
        }
        (round_up(least, self.grain), fewest)
    }
}

/// How many parts of this size make up so much.
fn up(amount: i128, part: i128) -> i128 {
    amount.div_euclid(part) + i128::from(amount.rem_euclid(part) > 0)
}

fn find_rates(problem: &Problem) -> Vec<Rate> {
    let Some(first) = problem.lots.first() else {
        return Vec::new();
    };
    let asked: IndexVec<AmountIndex, i128> = first
        .asked
        .indexes()
        .map(|resource| {
            let lots = problem.lots.iter();
            let all = lots.map(|lot| i128::from(lot.asked[resource]) * count(lot.count));
            all.fold(0, i128::saturating_add)
        })
        .collect();
    let mut rates: Vec<IndexVec<AmountIndex, i128>> = Vec::new();
    let single = |resource: AmountIndex, rate: i128| {
        let mut of = asked.with_each(0);
        of[resource] = rate;
        of
    };
    if asked[CPU] > 0 && asked[MEMORY] > 0 {
        rates.push(together(&problem.options, &asked));
    }
    for resource in asked.indexes().filter(|resource| asked[*resource] > 0) {
        rates.push(single(resource, highest(&problem.options, resource, |_| 0)));
    }
    let whole = rates.into_iter().map(|of| {
        let mut rate = Rate { of, most: 0 };
        let options = problem.options.iter();
        rate.most = options
            .map(|option| rate.worth(&option.free))
            .max()
            .unwrap_or(0);
        rate
    });
    whole.collect()
}

/// The highest rate of a resource under which no option is worth more than its price, where `paid` is what
/// the rest of it is worth.
fn highest(
    options: &[LaunchOption],
    resource: AmountIndex,
    paid: impl Fn(&LaunchOption) -> i128,
) -> i128 {
    let rates = options.iter().filter(|option| option.free[resource] > 0);
    let rates = rates.map(|option| {
        let left = i128::from(option.price).saturating_mul(PRICE_UNIT) - paid(option);
        left.max(0) / i128::from(option.free[resource])
    });
    rates.min().unwrap_or(0)
}

/// The rates of CPU and memory at which all pods together are worth most. What they are worth is concave
/// in the rate of CPU, that of memory being the highest beside it.
fn together(
    options: &[LaunchOption],
    asked: &IndexVec<AmountIndex, i128>,
) -> IndexVec<AmountIndex, i128> {
    let memory = |cpu: i128| {
        highest(options, MEMORY, |option| {
            cpu.saturating_mul(i128::from(option.free[CPU].max(0)))
        })
    };
    let worth = |cpu: i128| {
        let of_cpu = cpu.saturating_mul(asked[CPU]);
        of_cpu.saturating_add(memory(cpu).saturating_mul(asked[MEMORY]))
    };
    let (mut low, mut high) = (0, highest(options, CPU, |_| 0));
    for _ in 0..RATE_ROUNDS {
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
    let mut rates = asked.with_each(0);
    rates[CPU] = low;
    rates[MEMORY] = memory(low);
    rates
}

/// What all prices are multiples of.
fn grain(problem: &Problem) -> i128 {
    let prices = problem
        .options
        .iter()
        .map(|option| i128::from(option.price));
    prices.fold(0, find_divisor).max(1)
}

fn find_divisor(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The least multiple of `grain` that is no less.
fn round_up(price: i128, grain: i128) -> i128 {
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
