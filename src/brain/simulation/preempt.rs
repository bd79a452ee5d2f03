//! Room that expendable pods hold. kube-scheduler takes it from them for a pod that matters more and fits
//! nowhere else, so such a pod calls for no node.
//!
//! Source: cluster-autoscaler leaves pods below `expendable-pods-priority-cutoff` out of its snapshot
//! (`core/utils/expendable.go`, `core/static_autoscaler.go`), for adding nodes and for removing them
//! alike. Here they stand where they are until somebody needs their room, as kube-scheduler does it (plugin
//! `DefaultPreemption`): all of a node's are taken off on trial, the pod is tried, and those of them that
//! it can do with come back, the higher priority first. So a pod with `preemptionPolicy: Never`, which
//! preempts nobody, finds no room there; neither does one that an expendable pod of another node keeps
//! away. Volumes of a preempted pod stay attached for a while: they count against attach limits, and keep
//! a claim for one pod alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::cluster::ObjectKey;
use model::resources::Resources;

use crate::constraints::fit::volumes::VolumeNeed;
use crate::constraints::shape::{NamespacedShape, Resident};
use crate::index::{FitPlaceIndex, NodeIndex, ShapeId};
use crate::observed::view::SnapshotView;
use crate::simulation::inter_pod::Rules;
use crate::simulation::pack::{self, FitIndex};
use crate::simulation::world::{Saved, SimCluster};

/// What expendable pods of a place held in the beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpendablePods {
    pods: BTreeMap<ShapeId, u64>,
    held: Resources,
}

impl ExpendablePods {
    /// `count` more pods of an expendable shape, each of which asks for `asked`, are on this place.
    pub(crate) fn add(&mut self, id: ShapeId, asked: &Resources, count: u64) {
        let all = self.pods.entry(id).or_default();
        *all = all.saturating_add(count);
        for _ in 0..count {
            self.held.add(asked);
            self.held.pods = self.held.pods.saturating_add(1);
        }
    }

    /// What is free where they stand, were they not there.
    pub(crate) fn without(&self, free: &Resources) -> Resources {
        let mut free = free.clone();
        free.add(&self.held);
        free
    }

    /// Whether so much may be free at best; `false` is certain.
    fn may_hold(&self, asked: &Resources, free: &Resources) -> bool {
        let fits =
            |amount: i64, left: i64, held: i64| amount <= 0 || amount <= left.saturating_add(held);
        let held = &self.held;
        fits(1, free.pods, held.pods)
            && fits(asked.cpu_milli, free.cpu_milli, held.cpu_milli)
            && fits(asked.memory, free.memory, held.memory)
            && fits(asked.ephemeral, free.ephemeral, held.ephemeral)
    }
}

/// A pod that was put where others are preempted for it.
#[derive(Debug)]
pub(crate) struct PreemptingPod {
    pub(crate) node: NodeIndex,
    /// Shapes, how many of each went before, and how many go for this pod.
    victims: Vec<(ShapeId, u64, u64)>,
}

impl PreemptingPod {
    /// The pods that are preempted, with their priorities.
    pub(crate) fn victims(
        &self,
        world: &SimCluster<'_>,
        view: &SnapshotView<'_>,
    ) -> BTreeMap<ObjectKey, i32> {
        let on = view.pods(&world.nodes[self.node].name);
        let of = |(id, before, count): &(ShapeId, u64, u64)| {
            let shape = world.shapes[*id];
            let same = move |key: &ObjectKey, pod: &model::cluster::Pod| {
                let other = NamespacedShape {
                    namespace: &key.namespace,
                    shape: &pod.shape,
                };
                world.same_kind(shape, other)
            };
            let (before, count) = (at_most(*before), at_most(*count));
            let pods = on.iter().filter(move |(key, pod)| same(key, pod));
            pods.skip(before)
                .take(count)
                .map(|(key, pod)| ((*key).clone(), pod.shape.priority))
        };
        self.victims.iter().flat_map(of).collect()
    }
}

fn at_most(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl SimCluster<'_> {
    /// Whether kube-scheduler may preempt expendable pods for one of this shape.
    pub(crate) fn preempts(&self, id: ShapeId) -> bool {
        !self.shapes[id].shape.never_preempts && !self.expendable(id)
    }

    /// Expendable pods of a place that are preempted for pods that this decision put there.
    pub(crate) fn preempted(&self, index: NodeIndex) -> bool {
        self.expendable_pods.get(&index).is_some_and(|on| {
            let mut shapes = on.pods.keys();
            shapes.any(|id| self.gone(on, index, *id) > 0)
        })
    }

    /// Whether any was preempted anywhere.
    pub(crate) fn any_preempted(&self) -> bool {
        self.expendable_pods
            .keys()
            .any(|index| self.preempted(*index))
    }

    fn gone(&self, expendable_pods: &ExpendablePods, index: NodeIndex, id: ShapeId) -> u64 {
        let here = self.nodes[index].residents.iter().filter(|r| r.shape == id);
        let here = here.map(|resident| resident.count).sum();
        let before = expendable_pods.pods.get(&id).copied().unwrap_or(0);
        before.saturating_sub(here)
    }
}

/// Puts up to `left` pods of a shape where expendable pods give way for them, one after the other, in the
/// order of a fit index; says where each went.
pub(crate) fn force(
    world: &mut SimCluster<'_>,
    id: ShapeId,
    need: Option<&VolumeNeed>,
    left: usize,
    fit_index: &mut FitIndex,
    undo: &mut Option<&mut Vec<(NodeIndex, Saved)>>,
) -> Vec<PreemptingPod> {
    let mut placed = Vec::new();
    if world.expendable_pods.is_empty() || left == 0 || !world.preempts(id) {
        return placed;
    }
    let rules = world.rules(id);
    world.prepare(id);
    let mut from = FitPlaceIndex(0);
    while placed.len() < left
        && let Some(index) = fit_index.node(from)
    {
        let floor = rules.as_deref().map(|rules| world.inter_pod.floor(rules));
        let Some((victims, trail)) = make_way(world, id, need, index, rules.as_deref()) else {
            from.0 += 1;
            continue;
        };
        if let Some(undo) = undo {
            undo.extend(trail.into_iter().map(|saved| (index, saved)));
        }
        fit_index.raise(from, world);
        placed.push(PreemptingPod {
            node: index,
            victims,
        });
        // Where pods of this shape are spread, this one may have opened a place that was passed over.
        if rules.as_deref().map(|rules| world.inter_pod.floor(rules)) > floor {
            from = FitPlaceIndex(0);
        }
    }
    placed
}

/// Who goes: see [`PreemptingPod::victims`].
type Victims = Vec<(ShapeId, u64, u64)>;

/// Puts one pod on a place from which expendable pods go for it; what takes it back. Nothing has changed
/// where it does not fit even so.
fn make_way(
    world: &mut SimCluster<'_>,
    id: ShapeId,
    need: Option<&VolumeNeed>,
    index: NodeIndex,
    rules: Option<&Rules>,
) -> Option<(Victims, Vec<Saved>)> {
    let (node, expendable_pods) = (&world.nodes[index], world.expendable_pods.get(&index)?);
    if node.closed
        || !expendable_pods.may_hold(&world.shapes[id].shape.requests, &node.free)
        || !world.admits(id, index)
        || world.reach_filter_failure(index, need).is_some()
    {
        return None;
    }
    let mut trail = Vec::new();
    let mut gone: Vec<Resident> = Vec::new();
    for resident in world.nodes[index].residents.indexes().rev() {
        if world.expendable(world.nodes[index].residents[resident].shape) {
            let (pods, saved) = world.evict(index, resident);
            gone.push(pods);
            trail.push(saved);
        }
    }
    if gone.is_empty() || pack::admitted(world, id, need, index, rules).is_none() {
        for saved in trail.into_iter().rev() {
            world.restore(index, saved);
        }
        return None;
    }
    gone.sort_by_key(|pods| (Reverse(world.shapes[pods.shape].shape.priority), pods.shape));
    let mut victims = Vec::new();
    for pods in gone {
        let one = Resident { count: 1, ..pods };
        let mut back = 0;
        while back < pods.count {
            let saved = world.save(index, one);
            world.lay(index, pods.shape, 1, pods.deleting);
            if pack::admitted(world, id, need, index, rules).is_none() {
                world.restore(index, saved);
                break;
            }
            trail.push(saved);
            back += 1;
        }
        if back < pods.count {
            victims.push((pods.shape, pods.count - back));
        }
    }
    let mut saved = world.save(index, Resident::of(id, 1));
    world.put(index, id, 1, false);
    saved.with(world.supply(index, need, 1));
    trail.push(saved);
    let rest = world.expendable_pods.get(&index)?;
    let counted = victims.into_iter().map(|(victim, count)| {
        let before = world.gone(rest, index, victim).saturating_sub(count);
        (victim, before, count)
    });
    Some((counted.collect(), trail))
}

/// Who would be preempted for one pod of a shape on a place, if it fits there so. Nothing stays changed.
pub(crate) fn ask(
    world: &mut SimCluster<'_>,
    view: &SnapshotView<'_>,
    id: ShapeId,
    need: Option<&VolumeNeed>,
    index: NodeIndex,
) -> Option<BTreeMap<ObjectKey, i32>> {
    if !world.preempts(id) {
        return None;
    }
    let rules: Option<Arc<Rules>> = world.rules(id);
    world.prepare(id);
    let (victims, trail) = make_way(world, id, need, index, rules.as_deref())?;
    let preempting = PreemptingPod {
        node: index,
        victims,
    };
    let pods = preempting.victims(world, view);
    for saved in trail.into_iter().rev() {
        world.restore(index, saved);
    }
    Some(pods)
}
