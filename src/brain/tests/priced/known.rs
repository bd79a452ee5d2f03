//! The cheapest plan that a long search finds.
//!
//! Machines are taken from the relaxed plan, what is left is relaxed anew, and so on; for the last pods all plans are
//! tried. Then a few machines of the plan at a time are laid out anew. This is done from several beginnings.

use microlp::{ComparisonOp, Error, OptimizationDirection, Problem, Variable};

use super::exhaust::{Found, find_below};
use super::knapsack::best_fillings;
use super::packing::{Filling, PARTS, Packing};
use super::relaxed::{Relaxed, UNIT, relax, solved};
use crate::tests::sizing::SeededRng;

/// How much is searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Steps of the search through all plans, where pods are few.
    pub(super) steps: u64,
    /// One beginning for each: a load is taken where its share in the relaxed plan is at least this, in hundredths.
    pub(super) bars: &'static [u32],
    /// So many times for each pod some machines are laid out anew.
    pub(super) tries: u32,
}

/// For as many pods all plans are tried.
const FEW: u32 = 22;
/// Steps of that for the last pods of a plan.
const LAST_STEPS: u64 = 300_000;
/// As many pods at most are laid out anew together, but for those of two machines, and steps of that.
const TOGETHER: u32 = 15;
const TOGETHER_STEPS: u64 = 20_000;

#[derive(Debug)]
pub(super) struct Known {
    /// No plan costs less.
    pub(super) least: u64,
    /// The cheapest plan, and its price.
    pub(super) plan: Vec<Filling>,
    pub(super) price: u64,
}

struct Hunt<'p> {
    packing: &'p Packing,
    relaxed: Relaxed,
}

pub(super) fn find(packing: &Packing, effort: Effort) -> Known {
    let hunt = Hunt {
        packing,
        relaxed: relax(packing, Vec::new()),
    };
    let mut least = hunt.relaxed.least;
    let mut best = by_turns(packing, &hunt.relaxed.pays);
    for bar in effort.bars {
        if hunt.is_good(&best) {
            break;
        }
        let plan = hunt.dive(*bar);
        let plan = hunt.change(plan, effort.tries * packing.pods());
        if packing.price(&plan) < packing.price(&best) {
            best = plan;
        }
    }
    if packing.pods() <= FEW && hunt.lower(&mut best, effort.steps) {
        least = packing.price(&best);
    }
    Known {
        least,
        price: packing.price(&best),
        plan: best,
    }
}

impl Hunt<'_> {
    /// It costs at most a thousandth more than any plan does.
    fn is_good(&self, plan: &[Filling]) -> bool {
        let (price, least) = (self.packing.price(plan), self.relaxed.least);
        (price - least) * 1000 <= least
    }

    /// Looks for cheaper plans among all there are; whether there is none.
    fn lower(&self, plan: &mut Vec<Filling>, steps: u64) -> bool {
        loop {
            let below = self.packing.price(plan);
            match find_below(self.packing, &self.relaxed.pays, below, steps) {
                Found::Plan(cheaper) => *plan = cheaper,
                Found::None => return true,
                Found::Spent => return false,
            }
        }
    }

    /// Takes loads of the relaxed plan, relaxes what is left, and so on.
    fn dive(&self, bar: u32) -> Vec<Filling> {
        let mut rest = self.packing.clone();
        let mut begun: Vec<Filling> = Vec::new();
        let mut best = by_turns(self.packing, &self.relaxed.pays);
        let mut price = self.packing.price(&best);
        let mut fillings = self.relaxed.fillings.clone();
        loop {
            let relaxed = relax(&rest, fillings);
            let spent: u64 = begun.iter().map(|of| rest.price_of(of)).sum();
            if rest.pods() <= 4 * FEW {
                let turns = by_turns(&rest, &relaxed.pays);
                if spent + rest.price(&turns) < price {
                    price = spent + rest.price(&turns);
                    best = begun.iter().cloned().chain(turns).collect();
                }
            }
            if rest.pods() <= FEW {
                while let Found::Plan(last) = find_below(
                    &rest,
                    &relaxed.pays,
                    price.saturating_sub(spent),
                    LAST_STEPS,
                ) {
                    price = spent + rest.price(&last);
                    best = begun.iter().cloned().chain(last).collect();
                }
                return best;
            }
            let shares = share(&rest, &relaxed.fillings);
            // The solver may give up; what there is by then is a plan.
            let Ok(shares) = shares else {
                return best;
            };
            for (filling, times) in taken(&shares, bar) {
                for _ in 0..times {
                    let filling = rest.take(relaxed.fillings[filling].clone());
                    if filling.pods.iter().any(|pods| *pods > 0) {
                        begun.push(rest.cheapen(filling));
                    }
                }
            }
            fillings = relaxed.fillings;
        }
    }

    /// A few machines of the plan at a time are laid out anew: for less, or else in another way for the same.
    fn change(&self, mut plan: Vec<Filling>, tries: u32) -> Vec<Filling> {
        let mut rng = SeededRng::new(0);
        for _ in 0..tries {
            if self.is_good(&plan) {
                break;
            }
            let (mut kept, mut part) = (plan.clone(), self.packing.clone());
            for item in &mut part.items {
                item.count = 0;
            }
            let (mut below, mut machines) = (0, 0);
            while !kept.is_empty() {
                let at = rng.below(kept.len());
                let more: u32 = kept[at].pods.iter().sum();
                if machines >= 2 && part.pods() + more > TOGETHER {
                    break;
                }
                let filling = kept.swap_remove(at);
                for (item, pods) in part.items.iter_mut().zip(&filling.pods) {
                    item.count += pods;
                }
                below += part.price_of(&filling);
                machines += 1;
            }
            let pays = &self.relaxed.pays;
            let mut found = find_below(&part, pays, below, TOGETHER_STEPS);
            if !matches!(found, Found::Plan(_)) {
                // Pays that are lower by a little say the same, and let loads be tried in another order.
                let lower = |pay: &u64| pay * (900 + rng.below(100) as u64) / 1000;
                let pays: Vec<u64> = pays.iter().map(lower).collect();
                let same = below + part.step();
                found = find_below(&part, &pays, same, TOGETHER_STEPS / 4);
            }
            if let Found::Plan(with) = found {
                kept.extend(with);
                plan = kept;
            }
        }
        plan
    }
}

/// How much of each load is in the cheapest plan whose machines are divisible.
fn share(packing: &Packing, fillings: &[Filling]) -> Result<Vec<f64>, Error> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let variables: Vec<Variable> = fillings
        .iter()
        .map(|filling| {
            let price = f64::from(packing.bins[filling.bin].price) / UNIT;
            problem.add_var(price, (0.0, f64::INFINITY))
        })
        .collect();
    for (at, item) in packing.items.iter().enumerate() {
        if item.count > 0 {
            let on = fillings.iter().zip(&variables);
            let row: Vec<(Variable, f64)> = on
                .filter(|(filling, _)| filling.pods[at] > 0)
                .map(|(filling, variable)| (*variable, f64::from(filling.pods[at])))
                .collect();
            problem.add_constraint(row, ComparisonOp::Ge, f64::from(item.count));
        }
    }
    let solution = solved(problem.solve()?)?;
    let values = variables.iter().map(|at| solution.var_value(*at));
    Ok(values.collect())
}

/// The loads that are taken for good, and how often: their whole share, and once more where what is left of it is at least
/// the bar. The one with the greatest share, where that is none.
fn taken(shares: &[f64], bar: u32) -> Vec<(usize, u32)> {
    let over = 1.0 - f64::from(bar) / 100.0;
    let all = shares.iter().enumerate();
    let taken: Vec<(usize, u32)> = all
        .map(|(at, share)| (at, floor(share + over + 1e-6)))
        .filter(|(_, times)| *times > 0)
        .collect();
    if !taken.is_empty() {
        return taken;
    }
    let all = shares.iter().enumerate();
    let greatest = all.max_by(|(_, a), (_, b)| a.total_cmp(b));
    greatest.map(|(at, _)| (at, 1)).into_iter().collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is a number of machines"
)]
fn floor(value: f64) -> u32 {
    value.max(0.0) as u32
}

/// One machine after the other: the load that pays most for its price, as often as there are pods for it. A pod is worth
/// what it pays, and a little of what its size costs by the default prices.
fn by_turns(packing: &Packing, pays: &[u64]) -> Vec<Filling> {
    let items = packing.items.iter().zip(pays);
    let worth: Vec<u64> = items
        .map(|(item, pay)| {
            let size = (item.cpu * 2000 + item.memory * 2500) as u64;
            pay * 9 + size * PARTS
        })
        .collect();
    let mut rest = packing.clone();
    let mut plan = Vec::new();
    while rest.pods() > 0 {
        let best = best_fillings(&rest, &worth);
        let rate = |(paid, filling): &(u64, Filling)| {
            u128::from(*paid) * 1_000_000 / u128::from(packing.price_of(filling))
        };
        let best = best.into_iter().max_by_key(rate);
        let (_, filling) = best.expect("there are bins");
        let pods = filling.pods.iter().zip(&rest.items);
        let times = pods
            .filter(|(pods, _)| **pods > 0)
            .map(|(pods, item)| item.count / pods);
        for _ in 0..times.min().expect("a pod fits somewhere") {
            let filling = rest.take(filling.clone());
            plan.push(packing.cheapen(filling));
        }
    }
    plan
}
