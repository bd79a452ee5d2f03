//! Plans in which pods that are spread, or must be in one zone, are dealt to a number of machines in turn, before all others come.
//!
//! Topology spread counts every machine, also one that other pods fill. As long as such a machine has no spread pod, each other machine may have
//! `maxSkew` of them. So a plan made in the order of sizes ends with a machine for each spread pod. If spread pods are dealt out first, the other pods
//! fill the room beside them, and all need as few machines as possible. The same holds for pods that must be in one zone: otherwise they fill
//! machines of their own there.

use std::collections::BTreeSet;

use super::fill::{self, PackingMode};
use super::state::{Draft, Spot};
use super::units::{self, DealMode, Unit};
use super::{LaunchOptionSet, Problem, To};
use crate::index::{DraftMachineIndex, LotIndex, TallyIndex};
use crate::simulation::inter_pod::topology::FRESH;

/// Numbers of machines that are tried, above the least.
const MORE_MACHINES: [usize; 9] = [0, 1, 2, 3, 4, 6, 8, 12, 16];
/// Classes that are tried as the first, at most.
const MAX_SPINS: usize = 4;

/// Lays out such plans with several numbers of machines, up to `most`, and shows each to `see`, until that says it is enough.
pub(super) fn deal_plans<'p>(
    problem: &'p Problem,
    most: usize,
    see: &mut dyn FnMut(&Draft<'p>) -> bool,
) {
    let least = least(problem);
    for (dealt, spins) in dealt(problem) {
        for menu in fill::menus(problem) {
            for machines in MORE_MACHINES.map(|more| least + more) {
                for spin in 0..spins {
                    if machines > most {
                        break;
                    }
                    let Some(draft) = laid_out(problem, &dealt, machines, (&menu, spin)) else {
                        return;
                    };
                    if see(&draft) || !problem.look(1) {
                        return;
                    }
                }
            }
        }
    }
}

/// Which lots are dealt out, in one way after the other, and how many classes are tried as the first: those that are spread, then those
/// beside that must be in one zone, with the pods that must be there.
fn dealt(problem: &Problem) -> Vec<(Vec<LotIndex>, usize)> {
    let wide = |counter: &TallyIndex| {
        let key = problem.counters[*counter].key;
        let mut classes = problem.classes.iter();
        classes.any(|class| class.domains[key] < FRESH)
    };
    let wanted = problem.lots.iter().flat_map(|lot| &lot.asks.wanted);
    let wanted: BTreeSet<TallyIndex> = wanted.copied().filter(wide).collect();
    let is_spread = |lot: &LotIndex| {
        let mut rules = problem.lots[*lot].asks.spread.iter();
        rules.any(|even| even.counts_itself)
    };
    let is_near = |lot: &LotIndex| {
        let asks = &problem.lots[*lot].asks;
        let mut counters = asks.wanted.iter().chain(&asks.feeds);
        counters.any(|counter| wanted.contains(counter))
    };
    let lots = problem.lots.indexes();
    let spread: Vec<LotIndex> = lots.clone().filter(is_spread).collect();
    let all: Vec<LotIndex> = lots.filter(|lot| is_spread(lot) || is_near(lot)).collect();
    let spins = problem.classes.len().clamp(1, MAX_SPINS);
    let mut ways = Vec::new();
    let more = all.len() > spread.len();
    if !spread.is_empty() {
        ways.push((spread, 1));
    }
    if more {
        ways.push((all, spins));
    }
    ways
}

/// How many machines all pods need at least: as many of the largest as what they ask comes to.
fn least(problem: &Problem) -> usize {
    let needed = problem.resources().map(|resource| {
        let asked = problem.lots.iter().map(|lot| {
            let count = i128::try_from(lot.count).unwrap_or(i128::MAX);
            i128::from(lot.asked[resource]).saturating_mul(count)
        });
        let largest = problem.options.iter().map(|option| option.free[resource]);
        let largest = i128::from(largest.max().unwrap_or(0).max(1));
        let asked: i128 = asked.fold(0, i128::saturating_add);
        usize::try_from((asked + largest - 1) / largest).unwrap_or(usize::MAX)
    });
    needed.max().unwrap_or(1).clamp(1, usize::MAX / 2)
}

/// A plan with these lots on a number of machines, one pod after the other to each in turn, and then all others; `None` where that takes more
/// looks than there are left.
fn laid_out<'p>(
    problem: &'p Problem,
    dealt: &[LotIndex],
    machines: usize,
    (menu, spin): (&LaunchOptionSet, usize),
) -> Option<Draft<'p>> {
    let mut draft = Draft::new(problem);
    let new = PackingMode {
        menu,
        cheapest: false,
        spin,
        among: Some(&[]),
    };
    let mut on: Vec<Option<DraftMachineIndex>> = vec![None; machines];
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (turn, slot) in on.iter_mut().enumerate() {
            for (index, lot) in dealt.iter().enumerate() {
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
                        let opened = draft.machines.next_index();
                        let placed = fill::place(&mut draft, &unit, new) == 0;
                        *slot = (placed && draft.machines.next_index() > opened).then_some(opened);
                        placed
                    }
                };
            }
        }
    }
    let (mut units, _) = units::waiting(problem, draft.left.clone(), DealMode::Packed);
    units.sort_by_key(|unit| {
        let priority = unit
            .parts
            .iter()
            .map(|(lot, _)| problem.lots[*lot].priority);
        let size = fill::size(problem, unit);
        std::cmp::Reverse((priority.max(), size))
    });
    let all = PackingMode { among: None, ..new };
    for unit in &units {
        fill::place(&mut draft, unit, all);
    }
    draft.rebind();
    Some(draft)
}
