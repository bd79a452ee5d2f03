//! Rehearsal of a removal: the node is taken for gone and its pods are put elsewhere, with the filters
//! that scale-up uses; what does not work out is taken back.

use std::collections::{BTreeMap, BTreeSet};

use model::cluster::ObjectKey;
use model::policy::POOL_LABEL;
use model::reasons::{FilterFailure, Kept};

use crate::constraints::fit;
use crate::index::{IndexVec, LoadIndex, NodeIndex};
use crate::scale_down::candidates::{PodsToMove, RemovalCandidate};
use crate::scale_down::shrink::KeepReason;
use crate::simulation::inter_pod::Rules;
use crate::simulation::pack::{self, FitIndex};
use crate::simulation::world::{NodeOrigin, Saved, SimCluster};

/// What takes a rehearsal back.
#[derive(Debug, Default)]
pub(crate) struct RehearsalUndo {
    puts: Vec<(NodeIndex, Saved)>,
    closed: Vec<NodeIndex>,
}

impl RehearsalUndo {
    /// Takes everything back. Returns which places have more free than before, or are open again.
    pub(crate) fn roll_back(self, world: &mut SimCluster<'_>) -> Vec<NodeIndex> {
        let mut touched = Vec::with_capacity(self.puts.len() + self.closed.len());
        for (node, saved) in self.puts.into_iter().rev() {
            world.restore(node, saved);
            touched.push(node);
        }
        for node in self.closed.into_iter().rev() {
            world.reopen(node);
            touched.push(node);
        }
        touched
    }

    /// Takes nothing back: where pods were put there must be a node.
    pub(crate) fn keep(self, world: &mut SimCluster<'_>) {
        for (node, _) in self.puts {
            world.nodes[node].receives = true;
        }
    }
}

/// Pods that found no place: their shape, and the first of them; without one a pending pod that was
/// to come to the node.
pub(crate) struct Unplaced<'c, 'a> {
    pub(crate) load: &'c PodsToMove<'a>,
    pub(crate) pods: Vec<crate::constraints::shape::Keyed<'a>>,
}

/// Where pods may be sent: ready nodes that stay; those first that are no candidates, and of the
/// candidates first those that would be removed last.
pub(crate) fn destinations(
    world: &SimCluster<'_>,
    candidates: &[RemovalCandidate<'_>],
) -> Vec<NodeIndex> {
    let rank: BTreeMap<NodeIndex, usize> = candidates
        .iter()
        .enumerate()
        .map(|(rank, candidate)| (candidate.index, rank + 1))
        .collect();
    let mut order: Vec<NodeIndex> = world
        .nodes
        .indexes()
        .filter(|index| {
            let node = &world.nodes[*index];
            node.ready && !node.closed && node.origin == NodeOrigin::Node
        })
        .collect();
    order.sort_by(|a, b| {
        let key = |node: &NodeIndex| {
            let rank = rank.get(node).copied();
            (rank.is_some(), std::cmp::Reverse(rank))
        };
        (key(a), &world.nodes[*a].name).cmp(&(key(b), &world.nodes[*b].name))
    });
    order
}

/// The destinations that are still open, those in `avoid` left out, `first` in front.
pub(crate) fn open(
    world: &SimCluster<'_>,
    order: &[NodeIndex],
    avoid: &BTreeSet<NodeIndex>,
    first: Option<NodeIndex>,
) -> Vec<NodeIndex> {
    let rest = order
        .iter()
        .copied()
        .filter(|node| !avoid.contains(node) && Some(*node) != first);
    first
        .into_iter()
        .chain(rest)
        .filter(|node| !world.nodes[*node].closed)
        .collect()
}

/// Takes a node for gone.
pub(crate) fn close(world: &mut SimCluster<'_>, node: NodeIndex, undo: &mut RehearsalUndo) {
    if !world.nodes[node].closed {
        world.close(node);
        undo.closed.push(node);
    }
}

/// Pods of some loads that were put on the open nodes of a fit index.
pub(crate) struct LaidLoads {
    /// The load, the place, and how many of its pods came there, in the order in which they came.
    placed: Vec<(LoadIndex, NodeIndex, usize)>,
    /// How many pods of each load found no place.
    pub(crate) left: IndexVec<LoadIndex, usize>,
}

/// Puts so many pods of loads on the open nodes of a fit index, one load after the other. As kube-scheduler does, it tries pods again that go
/// with others, or are spread among them, when others have found a place.
pub(crate) fn lay_in_rounds<'a>(
    world: &mut SimCluster<'a>,
    loads: &[(&PodsToMove<'a>, usize)],
    fit_index: &mut FitIndex,
    undo: &mut RehearsalUndo,
) -> LaidLoads {
    let all = loads.iter().map(|(_, count)| *count);
    let mut placed = Vec::new();
    let mut left: IndexVec<LoadIndex, usize> = all.collect();
    loop {
        let before = placed.len();
        for (index, (load, _)) in left.indexes().zip(loads) {
            let (need, wanted) = (load.need.as_deref(), left[index]);
            if wanted == 0 {
                continue;
            }
            let laid =
                pack::lay_with_undo(world, load.shape, need, wanted, fit_index, &mut undo.puts);
            for (node, count) in laid {
                left[index] -= count;
                placed.push((index, node, count));
            }
        }
        let mut waiting = loads.iter().zip(&left).filter(|(_, left)| **left > 0);
        let again = waiting.any(|((load, _), _)| {
            let rules = world.inter_pod.known_rules(load.shape);
            rules.is_some_and(Rules::may_open)
        });
        if !again || placed.len() == before {
            return LaidLoads { placed, left };
        }
    }
}

/// Puts the pods of a candidate on the open nodes of a fit index; those that find no place come back.
pub(crate) fn reschedule<'c, 'a>(
    world: &mut SimCluster<'a>,
    candidate: &'c RemovalCandidate<'a>,
    fit_index: &mut FitIndex,
    landing: &mut BTreeMap<ObjectKey, std::sync::Arc<str>>,
    undo: &mut RehearsalUndo,
) -> Vec<Unplaced<'c, 'a>> {
    let counted: Vec<_> = candidate.loads.iter().map(PodsToMove::counted).collect();
    let laid = lay_in_rounds(world, &counted, fit_index, undo);
    let mut pods: IndexVec<LoadIndex, _> = candidate
        .loads
        .iter()
        .map(|load| load.pods.iter())
        .collect();
    for (load, node, count) in laid.placed {
        for (key, _) in pods[load].by_ref().take(count) {
            landing.insert((*key).clone(), world.nodes[node].name.clone());
        }
    }
    let loads = candidate.loads.iter().zip(pods).zip(laid.left);
    let unplaced = loads.filter(|(_, left)| *left > 0);
    let unplaced = unplaced.map(|((load, rest), _)| Unplaced {
        load,
        pods: rest.copied().collect(),
    });
    unplaced.collect()
}

/// Whether the pods of some nodes find room on the open nodes of a fit index as well when they come one group
/// after the other in kube-scheduler's order. What fits only as it was laid out here would call for
/// another machine. Nothing stays changed.
pub(crate) fn is_order_independent<'a>(
    world: &mut SimCluster<'a>,
    nodes: &[&RemovalCandidate<'a>],
    fit_index: &mut FitIndex,
) -> bool {
    let mut loads: Vec<&PodsToMove<'a>> = nodes.iter().flat_map(|node| &node.loads).collect();
    loads.sort_by_cached_key(|load| {
        let priority = world.shapes[load.shape].shape.priority;
        let first = load.pods.iter().map(|(key, pod)| (pod.created, *key)).min();
        (std::cmp::Reverse(priority), first)
    });
    let mut undo = RehearsalUndo::default();
    let loads: Vec<_> = loads.into_iter().map(PodsToMove::counted).collect();
    let laid = lay_in_rounds(world, &loads, fit_index, &mut undo);
    let touched = undo.roll_back(world);
    fit_index.lift(&touched, world);
    laid.left.iter().all(|left| *left == 0)
}

/// Nodes in the order in which pods are put on what there is: by name.
pub(crate) fn by_name(world: &SimCluster<'_>, mut nodes: Vec<NodeIndex>) -> Vec<NodeIndex> {
    nodes.sort_by(|a, b| world.nodes[*a].name.cmp(&world.nodes[*b].name));
    nodes
}

/// A node with what keeps a pod off it, where that is known.
type Refusing = (NodeIndex, Option<FilterFailure>);

/// The node whose refusal tells most, with that: one that lacks room rather than one that would never take the pod, such as a control plane's;
/// of several a machine's, and the first of them.
fn find_telling(
    world: &SimCluster<'_>,
    load: &PodsToMove<'_>,
    open: &[NodeIndex],
) -> Option<Refusing> {
    let compared = open.iter().take(COMPARED).map(|index| {
        let failure = refuse_at(world, load, *index);
        let ours = world.nodes[*index].labels.contains_key(POOL_LABEL);
        let rank = (failure.as_ref().map_or(2, how_far), !ours);
        (rank, (*index, failure))
    });
    let mut best: Option<((u8, bool), Refusing)> = None;
    for (rank, told) in compared {
        if best.as_ref().is_none_or(|(least, _)| rank < *least) {
            best = Some((rank, told));
        }
        if rank == (0, false) {
            break;
        }
    }
    best.map(|(_, told)| told)
}

/// What keeps a pod that needs another place off a node.
fn refuse_at(
    world: &SimCluster<'_>,
    load: &PodsToMove<'_>,
    index: NodeIndex,
) -> Option<FilterFailure> {
    let (shape, node) = (world.shapes[load.shape].shape, &world.nodes[index]);
    world
        .filter_failure(index, shape, load.need.as_deref())
        .or_else(|| fit::first_shortage(shape, &node.free, &node.ports))
        .or_else(|| {
            let rules = world.inter_pod.known_rules(load.shape)?;
            world
                .inter_pod
                .filter_failure(rules, world.inter_pod.at(index))
        })
}

/// How far a node is from taking a pod: 0 where it lacks room, 2 where the pod and the node are not meant for each other.
fn how_far(failure: &FilterFailure) -> u8 {
    match failure {
        FilterFailure::Insufficient { .. } => 0,
        FilterFailure::Leaving
        | FilterFailure::Cordoned
        | FilterFailure::Taint { .. }
        | FilterFailure::NodeSelector { .. }
        | FilterFailure::NodeAffinity { .. } => 2,
        _ => 1,
    }
}

/// Of so many nodes, the first ones, the refusals are compared to find one that is worth telling.
const COMPARED: usize = 64;

/// Why a pod of a candidate finds no other place; without a pod, one that was to come there.
pub(crate) fn no_place(
    world: &SimCluster<'_>,
    load: &PodsToMove<'_>,
    pod: Option<&ObjectKey>,
    open: &[NodeIndex],
) -> KeepReason {
    let told = find_telling(world, load, open);
    let (nearest, filter_failure) = match told {
        Some((node, failure)) => (Some(node), failure),
        None => (None, None),
    };
    let keep = KeepReason::because(Kept::NoPlace {
        expected: pod.is_none(),
        others: open.len(),
        nearest: nearest.map(|index| world.nodes[index].name.clone()),
        filter_failure: filter_failure.map(|filter_failure| Box::new(fit::here(filter_failure))),
    });
    match pod {
        Some(key) => keep.pod(key),
        None => keep,
    }
}
