//! Levies: rules by which pods pay, with the most that one machine can collect.
//!
//! Whatever pods are put on a machine of some size, as long as they fit, they pay no more than this:
//! * **amount**: each pays what it asks of a resource. Together they ask no more than there is.
//! * **steps** of θ: each pays ⌊a/θ⌋ of what it asks. Σ⌊aᵢ/θ⌋ is whole and no more than Σaᵢ/θ, so no more
//!   than ⌊size/θ⌋. (Pods larger than half of every machine pay 1 each, and no machine collects 2.)
//! * **apart**: each pod of a clique pays 1. Two are never on the same machine.
//! * **pool**: a machine of a pool below its `min` pays 1 itself.
//! * **heads**: any machine pays 1; there are as many as the bound on machines says.
//!
//! And of any levy a place collects nothing if no pod that pays may be there, and never more than all pods
//! pay together.

use std::collections::BTreeSet;

use super::problem::{CoverProblem, PodClass};
use crate::index::PoolIndex;

/// How many sets of classes have levies of their own. Each multiplies the levies; more than a few say the
/// same again.
const MAX_SETS: usize = 10;
/// How many steps are tried for one resource of one set, evenly over the sizes that pods have.
const MAX_STEPS: usize = 8;

/// One levy.
#[derive(Debug)]
pub(super) struct Levy {
    /// By class of pods: what one pod of it pays to this levy, in the unit of `total`.
    pub(super) pays: Vec<i128>,
    /// What all that has to be paid comes to.
    pub(super) total: i128,
    /// The most that a machine collects, by candidate.
    pub(super) machine: Vec<i128>,
    /// The most that a room collects.
    pub(super) room: Vec<i128>,
}

impl Levy {
    /// What the rooms cannot collect.
    pub(super) fn left(&self) -> i128 {
        let rooms = self
            .room
            .iter()
            .fold(0i128, |sum, most| sum.saturating_add(*most));
        self.total.saturating_sub(rooms)
    }
}

/// All levies that pods pay, and those of pools.
pub(super) fn list_levies(problem: &CoverProblem) -> Vec<Levy> {
    let mut levies = Vec::new();
    let resources = problem.candidates.first().map_or(0, |c| c.amounts.len());
    for set in list_sets(problem) {
        for resource in 0..resources {
            levies.push(levy_amount(problem, &set, resource));
            for step in list_steps(problem, &set, resource) {
                levies.push(levy_steps(problem, &set, resource, step));
            }
        }
    }
    levies.extend((0..problem.cliques).map(|clique| levy_apart(problem, clique)));
    let pools = problem.kept.indexed();
    let pools = pools.filter(|(_, kept)| **kept > 0);
    levies.extend(pools.map(|(pool, kept)| {
        let of_pool = |other: PoolIndex| i128::from(other == pool);
        levy_machines(problem, *kept, of_pool)
    }));
    levies
}

/// Any machine pays 1, and there are at least so many.
pub(super) fn levy_heads(problem: &CoverProblem, least: i128) -> Levy {
    levy_machines(problem, least, |_| 1)
}

fn levy_machines(problem: &CoverProblem, total: i128, pays: impl Fn(PoolIndex) -> i128) -> Levy {
    Levy {
        pays: vec![0; problem.classes.len()],
        total,
        machine: problem.candidates.iter().map(|c| pays(c.pool)).collect(),
        room: vec![0; problem.rooms.len()],
    }
}

fn levy_amount(problem: &CoverProblem, set: &[bool], resource: usize) -> Levy {
    let of = |amounts: &[i64]| i128::from(amounts[resource]);
    levy_classes(problem, set, |class| of(&class.amounts), of)
}

fn levy_steps(problem: &CoverProblem, set: &[bool], resource: usize, step: i64) -> Levy {
    let of = |amounts: &[i64]| i128::from(amounts[resource] / step);
    levy_classes(problem, set, |class| of(&class.amounts), of)
}

fn levy_apart(problem: &CoverProblem, clique: usize) -> Levy {
    let pays = |class: &PodClass| i128::from(class.cliques.contains(&clique));
    let everyone = vec![true; problem.classes.len()];
    let mut levy = levy_classes(problem, &everyone, pays, |_| 1);
    for (most, room) in levy.room.iter_mut().zip(&problem.rooms) {
        if *most > 0 {
            *most = room.most[clique].unwrap_or(levy.total);
        }
    }
    levy
}

/// A levy on the classes of a set; `most` is what a place of such a size can collect.
fn levy_classes(
    problem: &CoverProblem,
    set: &[bool],
    pays: impl Fn(&PodClass) -> i128,
    most: impl Fn(&[i64]) -> i128,
) -> Levy {
    let classes = problem.classes.iter().zip(set);
    let pays: Vec<i128> = classes
        .map(|(class, is)| if *is { pays(class) } else { 0 })
        .collect();
    let each = pays.iter().zip(&problem.classes);
    let total = each.fold(0i128, |sum, (per_pod, class)| {
        sum.saturating_add(per_pod.saturating_mul(class.count))
    });
    let mut paid_at = vec![false; problem.candidates.len()];
    for (class, _) in problem
        .classes
        .iter()
        .zip(&pays)
        .filter(|(_, pays)| **pays > 0)
    {
        for (at, may) in paid_at.iter_mut().zip(&class.may) {
            *at |= may;
        }
    }
    let machine = problem.candidates.iter().zip(paid_at);
    let machine = machine
        .map(|(of, paid)| {
            if paid {
                most(&of.amounts).min(total)
            } else {
                0
            }
        })
        .collect();
    let room = problem.rooms.iter().map(|room| {
        let paid = room
            .may
            .iter()
            .zip(&pays)
            .any(|(may, pays)| *may && *pays > 0);
        if paid {
            most(&room.amounts).min(total)
        } else {
            0
        }
    });
    Levy {
        room: room.collect(),
        pays,
        total,
        machine,
    }
}

/// Sets of classes: all; those that may be on certain candidates alone; and of each those that fit on nothing
/// that there is.
fn list_sets(problem: &CoverProblem) -> Vec<Vec<bool>> {
    let classes = &problem.classes;
    let unplaced = |class: usize| !problem.rooms.iter().any(|room| room.may[class]);
    let unplaced: Vec<bool> = (0..classes.len()).map(unplaced).collect();
    let mut within: Vec<&Vec<bool>> = classes.iter().map(|class| &class.may).collect();
    within.sort_unstable();
    within.dedup();
    let inside = |places: &[bool]| -> Vec<bool> {
        let inside = |class: &PodClass| {
            class
                .may
                .iter()
                .zip(places)
                .all(|(may, in_it)| !may || *in_it)
        };
        classes.iter().map(inside).collect()
    };
    let mut sets = vec![vec![true; classes.len()]];
    sets.extend(within.into_iter().map(|within| inside(within)));
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    for set in sets {
        let alone: Vec<bool> = set.iter().zip(&unplaced).map(|(a, b)| *a && *b).collect();
        for subset in [set, alone] {
            if all.len() < MAX_SETS && subset.contains(&true) && known.insert(subset.clone()) {
                all.push(subset);
            }
        }
    }
    all
}

/// The sizes that are worth a try as a step: what pods of the set ask.
fn list_steps(problem: &CoverProblem, set: &[bool], resource: usize) -> Vec<i64> {
    let classes = problem.classes.iter().zip(set).filter(|(_, is)| **is);
    let sizes: BTreeSet<i64> = classes.map(|(class, _)| class.amounts[resource]).collect();
    let sizes: Vec<i64> = sizes.into_iter().filter(|size| *size > 1).collect();
    let some = sizes.len().div_ceil(MAX_STEPS).max(1);
    sizes.into_iter().rev().step_by(some).collect()
}
