//! Puts pods on what there is: working nodes first, then machines on their way.

use std::sync::Arc;

use crate::model::cluster::PodKey;
use crate::model::report::PodVerdict;

use super::demand::{Demand, Group};
use super::fit::others::Rules;
use super::fit::volumes::Need;
use super::turn::Turn;
use super::world::{Bin, Saved, ShapeId, Site, World};

/// Places as many pods of every group as fit, in order; what is left stays in the groups.
pub(super) fn existing<'a>(
    turn: &mut Turn<'a>,
    world: &mut World<'a>,
    demand: Demand<'a>,
) -> Vec<Group<'a>> {
    let mut order: Vec<usize> = (0..world.bins.len())
        .filter(|index| !world.bins[*index].closed)
        .collect();
    order.sort_by(|a, b| {
        let key = |bin: &usize| world.bins[*bin].site != Site::Node;
        (key(a), &world.bins[*a].name).cmp(&(key(b), &world.bins[*b].name))
    });
    let mut groups = demand.groups;
    // Pods that depend on other pods are tried again as long as something was placed in between:
    // every round but the last places a pod, so it ends.
    let mut again = true;
    while again {
        let mut placed = false;
        again = false;
        for group in &mut groups {
            if group.pods.is_empty() {
                continue;
            }
            placed |= settle(turn, world, group, &order);
            again |= !group.pods.is_empty() && Rules::matter(world, group.shape);
        }
        again &= placed;
    }
    groups.retain(|group| group.calls && !group.pods.is_empty());
    groups
}

/// Places what fits of one group; says whether anything did.
fn settle<'a>(
    turn: &mut Turn<'a>,
    world: &mut World<'a>,
    group: &mut Group<'a>,
    order: &[usize],
) -> bool {
    let mut placed = 0;
    for (bin, count) in place(world, group, order) {
        for (key, pod) in &group.pods[placed..placed + count] {
            if group.calls && pod.node.is_none() {
                let verdict = verdict(&world.bins[bin]);
                turn.report.pods.insert((*key).clone(), verdict);
            }
        }
        placed += count;
        let guest = (group.shape, group.need.clone(), count);
        world.bins[bin].guests.push(guest);
    }
    group.pods.drain(..placed);
    placed > 0
}

fn verdict(bin: &Bin) -> PodVerdict {
    match &bin.site {
        Site::Machine(machine) => PodVerdict::FitsMachine {
            machine: machine.clone(),
        },
        Site::Node | Site::Planned(_) => PodVerdict::FitsNode {
            node: bin.name.clone(),
        },
    }
}

/// Places pods of one group on the bins in this order; says how many went where, in the order of
/// the group's pods.
pub(super) fn place(
    world: &mut World<'_>,
    group: &Group<'_>,
    order: &[usize],
) -> Vec<(usize, usize)> {
    let need = group.need.as_deref();
    put(world, group.shape, need, group.pods.len(), order, &mut None)
}

/// Places `count` pods of a shape, and keeps what is needed to take it back.
pub(super) fn place_with_undo(
    world: &mut World<'_>,
    shape: ShapeId,
    need: Option<&Need>,
    count: usize,
    order: &[usize],
    undo: &mut Vec<(usize, Saved)>,
) -> Vec<(usize, usize)> {
    put(world, shape, need, count, order, &mut Some(undo))
}

fn put(
    world: &mut World<'_>,
    id: ShapeId,
    need: Option<&Need>,
    mut left: usize,
    order: &[usize],
    undo: &mut Option<&mut Vec<(usize, Saved)>>,
) -> Vec<(usize, usize)> {
    if let Some(rules) = Rules::of(world, id) {
        return put_one_by_one(world, id, need, left, order, undo, rules);
    }
    let shape = world.shapes[id].shape;
    let mut placed = Vec::new();
    for index in order {
        if left == 0 {
            break;
        }
        let bin = &mut world.bins[*index];
        // Room is asked first: on a full cluster it is the cheapest answer.
        let room = usize::try_from(bin.room(shape)).unwrap_or(usize::MAX);
        if room == 0 || bin.misfit(shape, need).is_some() {
            continue;
        }
        let count = room.min(left);
        if let Some(undo) = undo {
            undo.push((*index, bin.save()));
        }
        bin.put(id, shape, count as u64, false);
        placed.push((*index, count));
        left -= count;
    }
    placed
}

/// Where other pods matter, every pod changes what the next may do.
fn put_one_by_one(
    world: &mut World<'_>,
    id: ShapeId,
    need: Option<&Need>,
    mut left: usize,
    order: &[usize],
    undo: &mut Option<&mut Vec<(usize, Saved)>>,
    mut rules: Rules,
) -> Vec<(usize, usize)> {
    let shape = world.shapes[id].shape;
    let fitting: Vec<usize> = order
        .iter()
        .copied()
        .filter(|index| world.bins[*index].misfit(shape, need).is_none())
        .collect();
    let mut placed = Vec::new();
    while left > 0 {
        let Some(index) = fitting.iter().copied().find(|index| {
            let bin = &world.bins[*index];
            bin.room(shape) > 0 && rules.misfit(bin.place()).is_none()
        }) else {
            break;
        };
        let bin = &mut world.bins[index];
        if let Some(undo) = undo {
            undo.push((index, bin.save()));
        }
        bin.put(id, shape, 1, false);
        rules.placed(bin.place());
        placed.push((index, 1));
        left -= 1;
    }
    placed
}

/// The keys of some pods.
pub(super) fn keys(pods: &[(&PodKey, &crate::model::cluster::Pod)]) -> Vec<PodKey> {
    pods.iter().map(|(key, _)| (*key).clone()).collect()
}

/// A reason under every choice's name.
pub(super) type Why = std::collections::BTreeMap<Arc<str>, String>;
