//! Makes a plan cheaper in which the places of pods depend on each other: a few machines are taken apart with all pods on them, and those
//! are placed again, many times.
//!
//! [`super::cheapen`] leaves such pods where they were put first. What comes out here is put together once more from nothing, by all rules,
//! before it counts.

use std::collections::BTreeSet;

use super::cheapen::SeededRng;
use super::ruin_and_recreate;
use super::state::Draft;
use super::whole::{Filler, Values};
use crate::index::DraftMachineIndex;

/// Machines that are looked at for a pod: at most, and for each pod.
const MAX_LOOKS: u64 = 150_000;
const MAX_LOOKS_EACH: u64 = 2_500;
/// How many times machines are taken apart.
const RUIN_ROUNDS: usize = 400;
/// Machines that are taken apart at a time: at least, and at most.
const MIN_EMPTIED: usize = 2;
const MAX_EMPTIED: usize = 5;
/// Rounds without a better plan after which the search begins again with the best.
const PATIENCE: usize = 40;

/// A plan that is better than `start`, if one is found: it costs less, and leaves no more pods out.
pub(super) fn search<'p>(start: &Draft<'p>, filler: &Filler<'p>) -> Option<Draft<'p>> {
    let problem = start.problem;
    problem.allow(MAX_LOOKS, MAX_LOOKS_EACH.saturating_mul(problem.pods()));
    let values = Values::plain(filler);
    let mut rng = SeededRng::new(4);
    let mut best = start.clone();
    best.drop_empty();
    let (mut rank, mut found) = (best.rank(), None);
    let (mut current, mut now, mut idle) = (best.clone(), rank, 0);
    for round in 0..RUIN_ROUNDS {
        // A plan is copied in each round.
        let machines = current.machines.len();
        if machines == 0 || rank.price <= filler.floor() || !problem.look(machines) {
            break;
        }
        let mut trial = current.clone();
        for victim in victims(&trial, &mut rng) {
            trial.take_apart(victim);
        }
        trial.follow();
        trial.drop_empty();
        ruin_and_recreate::lay(&mut trial, (filler, &values), (round, &mut rng));
        trial.drop_empty();
        let after = trial.rank();
        idle += 1;
        if after < rank
            && trial.is_fair()
            && let Some(whole) = trial.put_together()
            && whole.rank() < rank
        {
            (rank, idle) = (whole.rank(), 0);
            best = whole.clone();
            found = Some(whole);
        }
        if after <= now {
            (current, now) = (trial, after);
        }
        if idle > PATIENCE {
            (current, now, idle) = (best.clone(), rank, 0);
        }
    }
    found
}

/// Some machines, by falling number.
fn victims(draft: &Draft<'_>, rng: &mut SeededRng) -> Vec<DraftMachineIndex> {
    let machines = draft.machines.len();
    let count = MIN_EMPTIED + rng.below(MAX_EMPTIED - MIN_EMPTIED + 1);
    let mut victims = BTreeSet::new();
    for _ in 0..2 * count {
        if victims.len() < count.min(machines) {
            victims.insert(DraftMachineIndex(rng.below(machines)));
        }
    }
    victims.into_iter().rev().collect()
}
