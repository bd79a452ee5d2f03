//! Looks for good rates: the simplex method in fixed-point numbers.
//!
//! Nothing here has to be right: [`super::proof`] takes what is found and verifies what it proves.

use super::levy::Levy;
use super::proof::{self, IntegerRates};
use crate::index::{ChoiceIndex, IndexVec, TableauColumnIndex, TableauRowIndex, TableauVariableId};

/// One, in the fixed-point numbers here.
const ONE: i128 = 1 << 40;
/// What counts as nothing beside [`ONE`].
const NEXT_TO_NOTHING: i128 = 1 << 14;
/// Rounds of adding the candidate that is asked too much. Mostly a few are enough; the rates of the last
/// round are lowered to what the others allow.
const MAX_ROUNDS: usize = 40;
/// Steps from corner to corner in one round, for each levy and row.
const STEPS_EACH: usize = 4;

/// The levies that can raise the bound: existing nodes do not cover them, and every machine that could cover
/// them has a price.
pub(super) fn find_useful<'l>(
    levies: &'l [Levy],
    prices: &IndexVec<ChoiceIndex, i128>,
) -> Vec<&'l Levy> {
    let useful = levies.iter().filter(|levy| {
        let mut machines = levy.machine.iter().zip(prices);
        levy.left() > 0
            && levy.machine.iter().any(|most| *most > 0)
            && machines.all(|(most, price)| *most == 0 || *price > 0)
    });
    useful.collect()
}

/// A levy, such that its dearest candidate is asked all of its price at a rate of one.
struct Scaled {
    /// The candidate that is asked most for its price.
    first: ChoiceIndex,
    /// By candidate: which part of its price it is asked.
    part: IndexVec<ChoiceIndex, i128>,
    /// What comes in.
    gain: i128,
}

/// `a × b / c` in so far as it can be reckoned.
fn times(a: i128, b: i128, c: i128) -> Option<i128> {
    a.checked_mul(b).map(|product| product / c)
}

fn scaled(levy: &Levy, prices: &IndexVec<ChoiceIndex, i128>) -> Option<Scaled> {
    let asked = levy.machine.indexed().zip(prices);
    let asked = asked.filter(|((_, most), _)| **most > 0);
    let mut first: Option<(ChoiceIndex, i128, i128)> = None;
    for ((index, most), price) in asked {
        let more = match first {
            None => true,
            Some((_, of_most, of_price)) => {
                most.checked_mul(of_price)? > of_most.checked_mul(*price)?
            }
        };
        if more {
            first = Some((index, *most, *price));
        }
    }
    let (first, most, price) = first?;
    let mut part: IndexVec<ChoiceIndex, i128> = Vec::with_capacity(prices.len()).into();
    for (amount, of) in levy.machine.iter().zip(prices) {
        part.push(if *amount == 0 {
            0
        } else {
            times(amount.checked_mul(price)?, ONE, most.checked_mul(*of)?)?
        });
    }
    Some(Scaled {
        first,
        part,
        gain: times(levy.left(), price, 1)?.checked_mul(1 << 20)? / most,
    })
}

/// Rates for the levies.
pub(super) fn find_rates(levies: &[&Levy], prices: &IndexVec<ChoiceIndex, i128>) -> IntegerRates {
    let unit = proof::choose_unit(prices);
    let scaled: Vec<Option<Scaled>> = levies.iter().map(|levy| scaled(levy, prices)).collect();
    let known: Vec<&Scaled> = scaled.iter().flatten().collect();
    let mut found = best(&known).into_iter();
    let mut rates = Vec::with_capacity(levies.len());
    for (levy, own) in levies.iter().zip(&scaled) {
        let rate = own.as_ref().and_then(|own| {
            let share = found.next()?;
            let (most, price) = (levy.machine[own.first], prices[own.first]);
            // share / ONE of the rate at which the first candidate is asked all it costs.
            let whole = price.checked_mul(unit)? / most;
            Some((whole >> 40).checked_mul(share)? + (((whole & (ONE - 1)) * share) >> 40))
        });
        rates.push(rate.unwrap_or(0).max(0));
    }
    IntegerRates { unit, rates }
}

/// The shares of one that bring in most, such that no candidate is asked more than its price.
fn best(levies: &[&Scaled]) -> Vec<i128> {
    let most = levies
        .iter()
        .map(|levy| levy.gain)
        .max()
        .unwrap_or(0)
        .max(1);
    let gains: Vec<i128> = levies
        .iter()
        .map(|levy| times(levy.gain, ONE, most).unwrap_or(0))
        .collect();
    // Candidates that must not be asked too much. Each is a row of the tableau.
    let mut rows: Vec<ChoiceIndex> = levies.iter().map(|levy| levy.first).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut shares = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let of_row = |row: &ChoiceIndex| levies.iter().map(|levy| levy.part[*row]).collect();
        shares = Tableau::new(rows.iter().map(of_row).collect(), &gains).solve();
        let asked = |row: ChoiceIndex| -> i128 {
            let asked = levies.iter().zip(&shares);
            asked
                .map(|(levy, share)| levy.part[row] * share / ONE)
                .sum()
        };
        let candidates = levies.first().into_iter();
        let candidates = candidates.flat_map(|levy| levy.part.indexes());
        let worst = candidates.map(|row| (asked(row), row)).max();
        match worst {
            Some((sum, row)) if sum > ONE + NEXT_TO_NOTHING && !rows.contains(&row) => {
                rows.push(row);
            }
            _ => break,
        }
    }
    shares
}

/// One row of a tableau.
type TableauRow = IndexVec<TableauColumnIndex, i128>;

/// Maximises `gain · x` with `row · x ≤ 1` for all rows, `x ≥ 0`: the condensed tableau.
struct Tableau {
    /// The rows and the gains below them; right-hand sides in the last column.
    cells: IndexVec<TableauRowIndex, TableauRow>,
    /// Which variable a row stands for; rows' own come after the levies'.
    basic: IndexVec<TableauRowIndex, TableauVariableId>,
    /// Which variable a column stands for.
    free: IndexVec<TableauColumnIndex, TableauVariableId>,
}

impl Tableau {
    fn new(rows: IndexVec<TableauRowIndex, TableauRow>, gains: &[i128]) -> Tableau {
        let (height, width) = (rows.len(), gains.len());
        let mut cells = rows;
        for row in &mut cells {
            row.push(ONE);
        }
        cells.push(gains.iter().map(|gain| -gain).chain([0]).collect());
        Tableau {
            cells,
            basic: (width..width + height).map(TableauVariableId).collect(),
            free: (0..width).map(TableauVariableId).collect(),
        }
    }

    fn solve(mut self) -> Vec<i128> {
        for _ in 0..STEPS_EACH * (self.basic.len() + self.free.len()) {
            let Some((row, column)) = self.next() else {
                break;
            };
            if self.pivot(row, column).is_none() {
                break;
            }
        }
        let mut shares: IndexVec<TableauVariableId, i128> = vec![0; self.free.len()].into();
        for (row, variable) in self.basic.indexed() {
            if let Some(share) = shares.get_mut(*variable) {
                *share = self.cells[row][self.right()].clamp(0, ONE);
            }
        }
        shares.into_vec()
    }

    /// The column of the right-hand sides.
    fn right(&self) -> TableauColumnIndex {
        self.free.next_index()
    }

    /// Where to turn: what brings in most, held back by the row that is full first.
    fn next(&self) -> Option<(TableauRowIndex, TableauColumnIndex)> {
        let gains = &self.cells[self.basic.next_index()];
        let (column, _) = gains
            .indexed()
            .take(self.free.len())
            .filter(|(_, gain)| **gain < -NEXT_TO_NOTHING)
            .min_by_key(|(column, gain)| (**gain, self.free[*column]))?;
        let rows = self.basic.indexes();
        let rows = rows.filter(|row| self.cells[*row][column] > NEXT_TO_NOTHING);
        let room = |row: TableauRowIndex| {
            self.cells[row][self.right()].max(0).saturating_mul(ONE) / self.cells[row][column]
        };
        rows.min_by_key(|row| (room(*row), self.basic[*row]))
            .map(|row| (row, column))
    }

    fn pivot(&mut self, at: TableauRowIndex, by: TableauColumnIndex) -> Option<()> {
        let pivot = self.cells[at][by];
        let mut row = self.cells[at].clone();
        for (column, cell) in row.indexes().zip(&mut row) {
            *cell = if column == by {
                times(ONE, ONE, pivot)?
            } else {
                times(*cell, ONE, pivot)?
            };
        }
        for (index, cells) in self.cells.indexes().zip(&mut self.cells) {
            let factor = cells[by];
            if index == at || factor == 0 {
                continue;
            }
            for (column, cell) in cells.indexes().zip(cells) {
                let change = times(factor, row[column], ONE)?;
                *cell = if column == by {
                    -change
                } else {
                    cell.checked_sub(change)?
                };
            }
        }
        self.cells[at] = row;
        std::mem::swap(&mut self.basic[at], &mut self.free[by]);
        Some(())
    }
}
