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

use super::problem::{Amounts, CoverProblem, PodClass};
use crate::index::{
    ChoiceIndex, CliqueIndex, IndexVec, PodClassIndex, PoolIndex, ResourceIndex, RoomIndex,
};

/// How many sets of classes have levies of their own. Each multiplies the levies; more than a few say the
/// same again.
const MAX_SETS: usize = 10;
/// How many steps are tried for one resource of one set, evenly over the sizes that pods have.
const MAX_STEPS: usize = 8;

/// By class of pods: whether it is in a set of classes.
type ClassSet = IndexVec<PodClassIndex, bool>;

/// One levy.
#[derive(Debug)]
pub(super) struct Levy {
    /// By class of pods: what one pod of it pays to this levy, in the unit of `total`.
    pub(super) pays: IndexVec<PodClassIndex, i128>,
    /// What all that has to be paid comes to.
    pub(super) total: i128,
    /// The most that a machine collects, by candidate.
    pub(super) machine: IndexVec<ChoiceIndex, i128>,
    /// The most that a room collects.
    pub(super) room: IndexVec<RoomIndex, i128>,
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
    let resources = problem.candidates.first().into_iter();
    let resources = resources.flat_map(|first| first.amounts.indexes());
    for set in list_sets(problem) {
        for resource in resources.clone() {
            levies.push(levy_amount(problem, &set, resource));
            for step in list_steps(problem, &set, resource) {
                levies.push(levy_steps(problem, &set, resource, step));
            }
        }
    }
    let cliques = (0..problem.cliques).map(CliqueIndex);
    levies.extend(cliques.map(|clique| levy_apart(problem, clique)));
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
        pays: problem.classes.with_each(0),
        total,
        machine: problem.candidates.iter().map(|c| pays(c.pool)).collect(),
        room: problem.rooms.with_each(0),
    }
}

fn levy_amount(problem: &CoverProblem, set: &ClassSet, resource: ResourceIndex) -> Levy {
    let of = |amounts: &Amounts| i128::from(amounts[resource]);
    levy_classes(problem, set, |class| of(&class.amounts), of)
}

fn levy_steps(problem: &CoverProblem, set: &ClassSet, resource: ResourceIndex, step: i64) -> Levy {
    let of = |amounts: &Amounts| i128::from(amounts[resource] / step);
    levy_classes(problem, set, |class| of(&class.amounts), of)
}

fn levy_apart(problem: &CoverProblem, clique: CliqueIndex) -> Levy {
    let pays = |class: &PodClass| i128::from(class.cliques.contains(&clique));
    let everyone = problem.classes.with_each(true);
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
    set: &ClassSet,
    pays: impl Fn(&PodClass) -> i128,
    most: impl Fn(&Amounts) -> i128,
) -> Levy {
    let classes = problem.classes.iter().zip(set);
    let pays: IndexVec<PodClassIndex, i128> = classes
        .map(|(class, is)| if *is { pays(class) } else { 0 })
        .collect();
    let each = pays.iter().zip(&problem.classes);
    let total = each.fold(0i128, |sum, (per_pod, class)| {
        sum.saturating_add(per_pod.saturating_mul(class.count))
    });
    let mut paid_at = problem.candidates.with_each(false);
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
fn list_sets(problem: &CoverProblem) -> Vec<ClassSet> {
    let classes = &problem.classes;
    let unplaced = |class: PodClassIndex| !problem.rooms.iter().any(|room| room.may[class]);
    let unplaced: ClassSet = classes.indexes().map(unplaced).collect();
    let mut within: Vec<&IndexVec<ChoiceIndex, bool>> =
        classes.iter().map(|class| &class.may).collect();
    within.sort_unstable();
    within.dedup();
    let inside = |places: &IndexVec<ChoiceIndex, bool>| -> ClassSet {
        let inside = |class: &PodClass| {
            class
                .may
                .iter()
                .zip(places)
                .all(|(may, in_it)| !may || *in_it)
        };
        classes.iter().map(inside).collect()
    };
    let mut sets = vec![classes.with_each(true)];
    sets.extend(within.into_iter().map(inside));
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    for set in sets {
        let alone: ClassSet = set.iter().zip(&unplaced).map(|(a, b)| *a && *b).collect();
        for subset in [set, alone] {
            if all.len() < MAX_SETS && subset.contains(&true) && known.insert(subset.clone()) {
                all.push(subset);
            }
        }
    }
    all
}

/// The sizes that are worth a try as a step: what pods of the set ask.
fn list_steps(problem: &CoverProblem, set: &ClassSet, resource: ResourceIndex) -> Vec<i64> {
    let classes = problem.classes.iter().zip(set).filter(|(_, is)| **is);
    let sizes: BTreeSet<i64> = classes.map(|(class, _)| class.amounts[resource]).collect();
    let sizes: Vec<i64> = sizes.into_iter().filter(|size| *size > 1).collect();
    let some = sizes.len().div_ceil(MAX_STEPS).max(1);
    sizes.into_iter().rev().step_by(some).collect()
}
