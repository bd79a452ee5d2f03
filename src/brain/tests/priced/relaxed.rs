//! The least that any plan costs, and loads of which cheap plans are made: column generation.
//!
//! Each pod pays something. Where no load of any machine pays more than the machine costs, no plan costs less than what
//! all pods pay. The linear program looks for the pays that come to most; it begins with a few loads, and the knapsack
//! adds those that pay too much, until there is none. The solver is trusted with nothing: what is proven is proven in
//! whole numbers, from the knapsack's answer to whatever pays the solver named.

use microlp::{ComparisonOp, Error, OptimizationDirection, Problem, Solution, Variable};

use super::knapsack::best_fillings;
use super::packing::{Filling, PARTS, Packing};

/// The solver counts prices in this unit, which makes them small numbers.
pub(super) const UNIT: f64 = 10_000.0;
/// A load that pays so many parts more than its machine costs is no new one: the solver computes in floating point.
const SLACK: u64 = 100;
/// So many times loads are asked for at most. What is proven by then is proven.
const ROUNDS: usize = 400;

#[derive(Debug)]
pub(super) struct Relaxed {
    pub(super) fillings: Vec<Filling>,
    /// What a pod of each item pays, in parts of a millionth. No load of any machine pays more than the machine costs.
    pub(super) pays: Vec<u64>,
    /// No plan costs less, in millionths.
    pub(super) least: u64,
}

/// Finds loads and pays, beginning with these loads.
pub(super) fn relax(packing: &Packing, fillings: Vec<Filling>) -> Relaxed {
    let mut relaxed = Relaxed {
        fillings: Vec::new(),
        pays: vec![0; packing.items.len()],
        least: 0,
    };
    for mut filling in fillings {
        for (pods, item) in filling.pods.iter_mut().zip(&packing.items) {
            *pods = item.count.min(*pods);
        }
        relaxed.note(filling);
    }
    // What was found until then is good without the rest.
    if let Err(why) = relaxed.improve(packing) {
        eprintln!("the solver gave up: {why}");
    }
    relaxed
}

impl Relaxed {
    fn note(&mut self, filling: Filling) -> bool {
        let new = filling.pods.iter().any(|pods| *pods > 0) && !self.fillings.contains(&filling);
        if new {
            self.fillings.push(filling);
        }
        new
    }

    fn improve(&mut self, packing: &Packing) -> Result<(), Error> {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let variables: Vec<Variable> = (0..packing.items.len())
            .map(|item| {
                let most = f64::from(packing.cheapest(item)) / UNIT;
                problem.add_var(f64::from(packing.items[item].count), (0.0, most))
            })
            .collect();
        for filling in &self.fillings {
            let price = f64::from(packing.bins[filling.bin].price) / UNIT;
            problem.add_constraint(terms(&variables, &filling.pods), ComparisonOp::Le, price);
        }
        let mut solution = solved(problem.solve()?)?;
        for _ in 0..ROUNDS {
            let pays: Vec<u64> = variables
                .iter()
                .map(|variable| parts(solution.var_value(*variable)))
                .collect();
            let found = self.ask(packing, &pays);
            if found.is_empty() {
                break;
            }
            for filling in found {
                let price = f64::from(packing.bins[filling.bin].price) / UNIT;
                let row = terms(&variables, &filling.pods);
                solution = solved(solution.add_constraint(row, ComparisonOp::Le, price)?)?;
            }
        }
        Ok(())
    }

    /// New loads that pay too much. Pays between these and the best ones so far are asked first: the solver goes from one
    /// end of what it knows too little of to the other.
    fn ask(&mut self, packing: &Packing, pays: &[u64]) -> Vec<Filling> {
        let between = |(best, new): (&u64, &u64)| u64::midpoint(*best, *new);
        let middle: Vec<u64> = self.pays.iter().zip(pays).map(between).collect();
        for asked in [middle, pays.to_vec()] {
            let best = best_fillings(packing, &asked);
            let lowered = lower(packing, asked, &best);
            let least = proven(packing, &lowered);
            if least >= self.least {
                (self.least, self.pays) = (least, lowered);
            }
            let mut found = Vec::new();
            for (_, filling) in best {
                let counts = filling.pods.iter().zip(pays);
                let paid: u64 = counts.map(|(count, pay)| u64::from(*count) * pay).sum();
                let price = packing.price_of(&filling) * PARTS;
                if paid > price + SLACK && self.note(filling.clone()) {
                    found.push(filling);
                }
            }
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }
}

/// Lowers pays until no load pays more than its machine costs. These are the loads that pay most.
fn lower(packing: &Packing, pays: Vec<u64>, best: &[(u64, Filling)]) -> Vec<u64> {
    let too_much = |(paid, filling): &&(u64, Filling)| {
        u128::from(*paid) * 1_000_000_000 / u128::from(packing.price_of(filling))
    };
    let Some((paid, filling)) = best.iter().max_by_key(too_much) else {
        return pays;
    };
    let price = packing.price_of(filling) * PARTS;
    if *paid <= price {
        return pays;
    }
    let lowered = pays.into_iter().map(|pay| {
        let lowered = u128::from(pay) * u128::from(price) / u128::from(*paid);
        u64::try_from(lowered).expect("no more than it was")
    });
    lowered.collect()
}

/// What all pods pay, rounded up to what a plan can cost.
fn proven(packing: &Packing, pays: &[u64]) -> u64 {
    let items = packing.items.iter().zip(pays);
    let all: u64 = items.map(|(item, pay)| u64::from(item.count) * pay).sum();
    all.div_ceil(PARTS).next_multiple_of(packing.step())
}

fn terms(variables: &[Variable], pods: &[u32]) -> Vec<(Variable, f64)> {
    let all = variables.iter().zip(pods).filter(|(_, count)| **count > 0);
    all.map(|(variable, count)| (*variable, f64::from(*count)))
        .collect()
}

pub(super) fn solved(outcome: microlp::SolveOutcome) -> Result<Solution, Error> {
    let none = |_| Error::InternalError("no solution within the limits".to_owned());
    outcome.into_solution().map_err(none)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is between zero and a price"
)]
fn parts(value: f64) -> u64 {
    (value.max(0.0) * UNIT * 1000.0) as u64
}
