//! Puts pods on what there is: working nodes first, then machines on their way.

use std::sync::Arc;

use crate::model::cluster::PodKey;
use crate::model::report::PodVerdict;

use super::demand::{Demand, Group};
use super::fit::others::Rules;
use super::turn::Turn;
use super::world::{Bin, Site, World};

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
    let mut left = Vec::new();
    for mut group in demand.groups {
        let mut placed = 0;
        for (bin, count) in place(world, &group, &order) {
            for (key, pod) in &group.pods[placed..placed + count] {
                if group.calls && pod.node.is_none() {
                    let verdict = verdict(&world.bins[bin]);
                    turn.report.pods.insert((*key).clone(), verdict);
                }
            }
            placed += count;
        }
        group.pods.drain(..placed);
        if group.calls && !group.pods.is_empty() {
            left.push(group);
        }
    }
    left
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
    let shape = world.shapes[group.shape].shape;
    let need = group.need.as_deref();
    let mut left = group.pods.len();
    let mut placed = Vec::new();
    if let Some(mut rules) = Rules::of(world, group.shape) {
        let fitting: Vec<usize> = order
            .iter()
            .copied()
            .filter(|index| world.bins[*index].misfit(shape, need).is_none())
            .collect();
        while left > 0 {
            let Some(index) = fitting.iter().copied().find(|index| {
                let bin = &world.bins[*index];
                bin.room(shape) > 0 && rules.misfit(bin.place()).is_none()
            }) else {
                break;
            };
            world.bins[index].put(group.shape, shape, 1, false);
            rules.placed(world.bins[index].place());
            placed.push((index, 1));
            left -= 1;
        }
        return placed;
    }
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
        bin.put(group.shape, shape, count as u64, false);
        placed.push((*index, count));
        left -= count;
    }
    placed
}

/// The keys of some pods.
pub(super) fn keys(pods: &[(&PodKey, &crate::model::cluster::Pod)]) -> Vec<PodKey> {
    pods.iter().map(|(key, _)| (*key).clone()).collect()
}

/// A reason under every choice's name.
pub(super) type Why = std::collections::BTreeMap<Arc<str>, String>;
