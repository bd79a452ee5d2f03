//! Pods that must be together and find no place as a whole: as many of them are placed as one machine takes.
//!
//! Units are as large as the largest machine that limits allow at all. Beside others, or where others have used up what limits leave, it may
//! be that only a part of one has a place; the rest waits. Each spot that is tried counts among the machines that may be looked at.

use std::cmp::Reverse;

use super::fill::{self, PackingMode};
use super::state::{Draft, Spot};
use super::units::Unit;
use super::{LaunchOptionSet, Problem};
use crate::index::LotIndex;

/// Places a unit as often as it is there, and of those that find no place as many pods as do. Returns how many units are not whole.
pub(super) fn place(draft: &mut Draft<'_>, unit: &Unit, mode: PackingMode<'_>) -> usize {
    let rest = fill::place(draft, unit, mode);
    if !matches!(unit.parts[..], [(_, 1)]) {
        let all = LaunchOptionSet::all(draft.problem.options.len());
        for _ in 0..rest {
            let some = place_part(draft, unit, mode);
            if !some && !place_part(draft, unit, PackingMode { menu: &all, ..mode }) {
                break;
            }
        }
    }
    rest
}

/// Puts as many pods of a unit as one place takes on the place that takes most of them. Returns whether any has one.
fn place_part(draft: &mut Draft<'_>, unit: &Unit, mode: PackingMode<'_>) -> bool {
    let problem = draft.problem;
    let mut best: Option<(u128, Spot)> = None;
    for spot in spots(draft, unit, mode) {
        if !problem.look(unit.parts.len()) {
            break;
        }
        let mark = draft.mark();
        let gain = put_some(draft, unit, spot, mode.menu);
        draft.rollback(mark);
        if gain > best.as_ref().map_or(0, |(most, _)| *most) {
            best = Some((gain, spot));
        }
    }
    best.is_some_and(|(_, spot)| put_some(draft, unit, spot, mode.menu) > 0)
}

/// Where one of a unit's pods could go, without the others.
fn spots(draft: &Draft<'_>, unit: &Unit, mode: PackingMode<'_>) -> Vec<Spot> {
    let mut all: Vec<Spot> = Vec::new();
    for (lot, _) in &unit.parts {
        let single = Unit {
            parts: vec![(*lot, 1)],
            times: 1,
        };
        for spot in fill::spots(draft, &single, mode) {
            if !all.contains(&spot) {
                all.push(spot);
            }
        }
    }
    all
}

/// Puts as many pods of a unit on a spot as it takes: first those that may not be left out, then those of the highest priority, then the
/// smallest. Returns what they count.
fn put_some(draft: &mut Draft<'_>, unit: &Unit, mut spot: Spot, menu: &LaunchOptionSet) -> u128 {
    let problem = draft.problem;
    let mut waiting = wishes(problem, &unit.parts);
    let mut gain = 0u128;
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (lot, count) in waiting.iter_mut().filter(|(_, count)| *count > 0) {
            let put = put_most(draft, (*lot, *count), &mut spot, menu);
            if put > 0 {
                *count -= put;
                moved = true;
                let loss = problem.lots[*lot].loss;
                gain = gain.saturating_add(loss.saturating_mul(put as u128));
            }
        }
    }
    gain
}

/// The order in which some of the pods that belong together get a place, lots with how many pods: one of each lot that follows no other, then all
/// that may not be left out, then those of the highest priority, then the smallest.
pub(super) fn wishes(problem: &Problem, parts: &[(LotIndex, usize)]) -> Vec<(LotIndex, usize)> {
    let mut wishes = Vec::with_capacity(3 * parts.len());
    let mut rest: Vec<(LotIndex, usize)> = parts.to_vec();
    for (lot, left) in &mut rest {
        if problem.lots[*lot].asks.wanted.is_empty() && *left > 0 {
            wishes.push((*lot, 1));
            *left -= 1;
        }
    }
    for ((lot, left), (_, count)) in rest.iter_mut().zip(parts) {
        let of = &problem.lots[*lot];
        let kept = of.count.saturating_sub(of.spare) + *left;
        let kept = kept.saturating_sub(*count).min(*left);
        wishes.push((*lot, kept));
        *left -= kept;
    }
    rest.sort_by_key(|(lot, _)| {
        let single = Unit {
            parts: vec![(*lot, 1)],
            times: 1,
        };
        let size = fill::size(problem, &single);
        (Reverse(problem.lots[*lot].priority), size)
    });
    wishes.append(&mut rest);
    wishes.retain(|(_, count)| *count > 0);
    wishes
}

/// Puts as many of a number of pods of a lot on a spot as it takes, which is that place from then on. Returns how many.
fn put_most(
    draft: &mut Draft<'_>,
    (lot, count): (LotIndex, usize),
    spot: &mut Spot,
    menu: &LaunchOptionSet,
) -> usize {
    // What takes some takes fewer of them too.
    let (mut done, mut most) = (0, count.min(draft.may(lot, *spot)));
    while most > 0 {
        match draft.put(lot, most, *spot, menu) {
            Some(to) => {
                spot.to = Some(to);
                done += most;
                most = most.min(count - done);
            }
            None => most /= 2,
        }
    }
    done
}
