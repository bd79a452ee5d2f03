//! Plans in which pods that are spread are dealt to a number of machines in turn, before all others come.
//!
//! A machine that others have filled counts for the spread, without a pod of it: as long as it is there each other machine may have
//! `maxSkew` pods and no more, and a plan made in the order of sizes ends with a machine for each of them. Dealt out first they leave
//! room for the others, on as few machines as all of them need.

use super::fill::{self, Way};
use super::state::{Draft, Spot};
use super::units::{self, Deal, Unit};
use super::{Bits, Problem, To};

/// Numbers of machines that are tried, above the least.
const MORE: [usize; 9] = [0, 1, 2, 3, 4, 6, 8, 12, 16];

/// Lays out such plans with several numbers of machines, up to `most`, and shows each to `see`, until that says it is enough.
pub(super) fn plans<'p>(
    problem: &'p Problem,
    most: usize,
    see: &mut dyn FnMut(&Draft<'p>) -> bool,
) {
    let spread: Vec<usize> = (0..problem.lots.len())
        .filter(|lot| {
            let mut rules = problem.lots[*lot].asks.spread.iter();
            rules.any(|even| even.counts_itself)
        })
        .collect();
    if spread.is_empty() {
        return;
    }
    let least = least(problem);
    for menu in fill::menus(problem) {
        for machines in MORE.map(|more| least + more) {
            if machines > most {
                break;
            }
            let Some(draft) = laid_out(problem, &spread, machines, &menu) else {
                return;
            };
            if see(&draft) || !problem.look(1) {
                return;
            }
        }
    }
}

/// How many machines all pods need at least: as many of the largest as what they ask comes to.
fn least(problem: &Problem) -> usize {
    let resources = problem.lots.first().map_or(0, |lot| lot.asked.len());
    let needed = (0..resources).map(|resource| {
        let asked = problem.lots.iter().map(|lot| {
            let count = i128::try_from(lot.count).unwrap_or(i128::MAX);
            i128::from(lot.asked[resource]).saturating_mul(count)
        });
        let largest = problem.models.iter().map(|model| model.free[resource]);
        let largest = i128::from(largest.max().unwrap_or(0).max(1));
        let asked: i128 = asked.fold(0, i128::saturating_add);
        usize::try_from((asked + largest - 1) / largest).unwrap_or(usize::MAX)
    });
    needed.max().unwrap_or(1).clamp(1, usize::MAX / 2)
}

/// A plan with these lots on so many machines, one pod after the other to each in turn, and then all others; `None` where that takes more
/// looks than there are left.
fn laid_out<'p>(
    problem: &'p Problem,
    spread: &[usize],
    machines: usize,
    menu: &Bits,
) -> Option<Draft<'p>> {
    let mut draft = Draft::new(problem);
    let new = Way {
        menu,
        cheapest: false,
        spin: 0,
        among: Some(&[]),
    };
    let mut on: Vec<Option<usize>> = vec![None; machines];
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (turn, slot) in on.iter_mut().enumerate() {
            for (index, lot) in spread.iter().enumerate() {
                // Not all lots begin with the same machine: what is left over in the last round is shared, too.
                let begins = index % machines;
                let late = turn < begins && draft.left[*lot] == problem.lots[*lot].count;
                if draft.left[*lot] == 0 || late {
                    continue;
                }
                // What is asked of a place looks at all machines.
                if !problem.look(draft.machines.len().max(1)) {
                    return None;
                }
                moved |= match *slot {
                    Some(at) => {
                        let spot = Spot {
                            to: Some(To::Machine(at)),
                            class: draft.machines[at].class,
                        };
                        draft.put(*lot, 1, spot, menu).is_some()
                    }
                    None => {
                        let unit = Unit {
                            parts: vec![(*lot, 1)],
                            times: 1,
                        };
                        let opened = draft.machines.len();
                        let placed = fill::place(&mut draft, &unit, new) == 0;
                        *slot = (placed && draft.machines.len() > opened).then_some(opened);
                        placed
                    }
                };
            }
        }
    }
    let (mut units, _) = units::waiting(problem, draft.left.clone(), Deal::Packed);
    units.sort_by_key(|unit| {
        let priority = unit
            .parts
            .iter()
            .map(|(lot, _)| problem.lots[*lot].priority);
        let size = fill::size(problem, unit);
        std::cmp::Reverse((priority.max(), size))
    });
    let all = Way { among: None, ..new };
    for unit in &units {
        fill::place(&mut draft, unit, all);
    }
    draft.rebind();
    Some(draft)
}
