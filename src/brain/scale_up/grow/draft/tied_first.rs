//! Lays a whole plan out again, where pods have no place yet: pods whose place depends on
//! others first, each time in another order, then what fills the machines best.

use super::cheapen::{self, SeededRng};
use super::fill::{self, PackingMode};
use super::least_lost::LeastLost;
use super::state::Draft;
use super::units::{self, DealMode, Unit};
use super::whole::{Filler, Values};
use super::{LaunchOptionSet, Problem, partly};
use crate::index::DraftMachineIndex;

/// Machines that are looked at for a pod: at most, and for each pod.
const MAX_LOOKS: u64 = 150_000;
const MAX_LOOKS_EACH: u64 = 2_500;
/// How many times the whole plan is laid out again.
const MAX_PLANS: usize = 120;

/// A plan that is better than `best`, if one is found.
pub(super) fn search<'p>(
    best: &Draft<'p>,
    filler: &Filler<'p>,
    least_lost: LeastLost,
) -> Option<Draft<'p>> {
    let problem = best.problem;
    problem.allow(MAX_LOOKS, MAX_LOOKS_EACH.saturating_mul(problem.pods()));
    let deals = [DealMode::Packed, DealMode::Even, DealMode::Apart];
    let tied: Vec<Vec<Unit>> = deals.iter().map(|deal| tied(problem, *deal)).collect();
    if tied[0].is_empty() {
        return None;
    }
    let menu = LaunchOptionSet::all(problem.options.len());
    let mut values = Values::plain(filler);
    let (mut rng, mut found, mut rank) = (SeededRng::new(2), None, best.rank());
    for round in 0..MAX_PLANS {
        if !problem.look(1) || least_lost.is_met_by(&rank) {
            break;
        }
        let mut draft = Draft::new(problem);
        let mode = PackingMode {
            menu: &menu,
            cheapest: rng.below(2) == 0,
            spin: round,
            among: None,
        };
        let mut units: Vec<(i128, &Unit)> = tied[round % tied.len()]
            .iter()
            .map(|unit| {
                let noise = 100 + rng.below(if round < tied.len() { 1 } else { 100 }) as i128;
                (fill::size(problem, unit).saturating_mul(noise), unit)
            })
            .collect();
        units.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        for (_, unit) in &units {
            partly::place(&mut draft, unit, mode);
        }
        let used: Vec<DraftMachineIndex> = draft.machines.indexes().collect();
        filler.fill(
            &mut draft,
            &used,
            (&values, round.saturating_sub(tied.len())),
        );
        for (_, unit) in &units {
            let [(lot, 1)] = unit.parts[..] else {
                continue;
            };
            let rest = Unit {
                times: draft.left[lot],
                ..(*unit).clone()
            };
            fill::place(&mut draft, &rest, mode);
        }
        cheapen::lay(&mut draft, mode, 0);
        values.learn(filler, &draft);
        if draft.rank() < rank && draft.is_fair() {
            rank = draft.rank();
            found = Some(draft);
        }
    }
    found
}

/// Units with pods whose place depends on others.
fn tied(problem: &Problem, deal: DealMode) -> Vec<Unit> {
    let (units, _) = units::of(problem, deal);
    let tied = units.into_iter().filter(|unit| {
        let mut lots = unit.parts.iter();
        lots.any(|(lot, _)| problem.lots[*lot].tied)
    });
    tied.collect()
}
