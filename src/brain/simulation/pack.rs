//! Puts pods on what there is: working nodes first, then machines on their way.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::cluster::ObjectKey;
use model::report::PodVerdict;
use model::resources::Resources;

use crate::constraints::fit::amounts;
use crate::constraints::fit::volumes::VolumeNeed;
use crate::constraints::shape::Resident;
use crate::decision::pod_to_place::PodToPlace;
use crate::decision::turn::DecisionBuilder;
use crate::index::{
    DemandIndex, FitPlaceIndex, FitStretchIndex, IndexVec, NodeIndex, ShapeId, indexes_in,
};
use crate::simulation::bookings::{self, Bookings};
use crate::simulation::demand::{Demand, Group, Groups};
use crate::simulation::inter_pod::Rules;
use crate::simulation::preempt;
use crate::simulation::work;
use crate::simulation::world::{NodeOrigin, Saved, SimCluster, SimNodes};

/// Places of a fit index that share one bound: a stretch.
const STRETCH: usize = 32;

/// The stretch that a place is in.
fn stretch_of(place: FitPlaceIndex) -> FitStretchIndex {
    FitStretchIndex(place.0 / STRETCH)
}

/// Places in the order in which they are filled, with a bound on what each stretch of them still
/// has free, so that full ones are passed over together.
#[derive(Debug, Default)]
pub(crate) struct FitIndex {
    nodes: IndexVec<FitPlaceIndex, NodeIndex>,
    /// By stretch: at least what any place of it has free.
    bounds: IndexVec<FitStretchIndex, Bound>,
    /// Where the place of each node is, in a fit index that can be told of changes.
    places: IndexVec<NodeIndex, Option<FitPlaceIndex>>,
}

/// At least what is free on some places.
#[derive(Clone, Copy, Debug)]
struct Bound {
    cpu_milli: i64,
    memory: i64,
    ephemeral: i64,
    pods: i64,
}

impl Bound {
    const NOTHING: Bound = Bound {
        cpu_milli: i64::MIN,
        memory: i64::MIN,
        ephemeral: i64::MIN,
        pods: i64::MIN,
    };

    fn raise(&mut self, free: &Resources) {
        self.cpu_milli = self.cpu_milli.max(free.cpu_milli);
        self.memory = self.memory.max(free.memory);
        self.ephemeral = self.ephemeral.max(free.ephemeral);
        self.pods = self.pods.max(free.pods);
    }

    /// Whether one of the places might hold so much.
    fn may_hold(&self, asked: &Resources) -> bool {
        let fits = |amount: i64, free: i64| amount <= 0 || amount <= free;
        self.pods > 0
            && fits(asked.cpu_milli, self.cpu_milli)
            && fits(asked.memory, self.memory)
            && fits(asked.ephemeral, self.ephemeral)
    }
}

impl FitIndex {
    /// A fit index over these places.
    pub(crate) fn over(order: &[NodeIndex], world: &SimCluster<'_>) -> FitIndex {
        let mut fit_index = FitIndex::default();
        for node in order {
            fit_index.push(*node, world);
        }
        fit_index
    }

    /// Whether it has no place.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The nodes of its places, in order.
    pub(crate) fn nodes(&self) -> &[NodeIndex] {
        &self.nodes
    }

    /// The node of a place, if it has so many.
    pub(crate) fn node(&self, place: FitPlaceIndex) -> Option<NodeIndex> {
        self.nodes.get(place).copied()
    }

    /// Adds a place at the end.
    pub(crate) fn push(&mut self, node: NodeIndex, world: &SimCluster<'_>) {
        if self.nodes.len().is_multiple_of(STRETCH) {
            self.bounds.push(Bound::NOTHING);
        }
        self.nodes.push(node);
        if let Some(bound) = self.bounds.last_mut() {
            bound.raise(&world.nodes[node].free);
        }
    }

    /// A place has more free than before.
    pub(crate) fn raise(&mut self, place: FitPlaceIndex, world: &SimCluster<'_>) {
        let free = &world.nodes[self.nodes[place]].free;
        self.bounds[stretch_of(place)].raise(free);
    }

    /// A fit index that can be told of places with more free than before ([`FitIndex::lift`]).
    pub(crate) fn indexed(order: &[NodeIndex], world: &SimCluster<'_>) -> FitIndex {
        let mut fit_index = FitIndex::over(order, world);
        let last = order.iter().max().map_or(0, |last| last.0 + 1);
        fit_index.places = IndexVec::from(vec![None; last]);
        for (place, node) in fit_index.nodes.indexed() {
            fit_index.places[*node] = Some(place);
        }
        fit_index
    }

    /// These places may have more free than before, or are open again.
    pub(crate) fn lift(&mut self, nodes: &[NodeIndex], world: &SimCluster<'_>) {
        for node in nodes {
            if let Some(place) = self.places.get(*node).copied().flatten() {
                self.bounds[stretch_of(place)].raise(&world.nodes[*node].free);
            }
        }
    }

    /// The first place from `from` on that might hold one pod that asks this, and that `accept` takes.
    fn find<T>(
        &mut self,
        nodes: &SimNodes,
        from: FitPlaceIndex,
        asked: &Resources,
        mut accept: impl FnMut(NodeIndex) -> Option<T>,
    ) -> Option<(FitPlaceIndex, T)> {
        let all = self.nodes.next_index();
        let mut at = from;
        while at < all {
            let stretch = stretch_of(at);
            let end = FitPlaceIndex((stretch.0 + 1) * STRETCH).min(all);
            if self.bounds[stretch].may_hold(asked) {
                let mut bound = Bound::NOTHING;
                for place in indexes_in(at..end) {
                    let index = self.nodes[place];
                    if nodes[index].closed {
                        continue;
                    }
                    let free = &nodes[index].free;
                    bound.raise(free);
                    if amounts::full(asked, free) {
                        continue;
                    }
                    if let Some(found) = accept(index) {
                        return Some((place, found));
                    }
                }
                if at.0.is_multiple_of(STRETCH) {
                    self.bounds[stretch] = bound;
                }
            }
            at = end;
        }
        None
    }
}

/// Places as many pods of every group as fit, in order; what is left stays in the groups. Also says in
/// what order places are filled.
pub(crate) fn existing<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    mut demand: Demand<'a>,
) -> (Vec<Group<'a>>, FitIndex) {
    let mut order: Vec<NodeIndex> = world
        .nodes
        .indexes()
        .filter(|index| !world.nodes[*index].closed)
        .collect();
    order.sort_by(|a, b| {
        let key = |node: &NodeIndex| world.nodes[*node].origin != NodeOrigin::Node;
        (key(a), &world.nodes[*a].name).cmp(&(key(b), &world.nodes[*b].name))
    });
    let mut fit_index = FitIndex::over(&order, world);
    let mut bookings = Bookings::restore(turn, world, &mut demand);
    let mut groups = demand.groups;
    let mut nodes = FitIndex::default();
    if !bookings.is_empty() {
        let working = order.partition_point(|node| world.nodes[*node].origin == NodeOrigin::Node);
        nodes = FitIndex::over(&order[..working], world);
    }
    // Pods that depend on other pods are tried again as long as something was placed in between:
    // every round but the last places a pod, so it ends.
    let mut waiting: Vec<DemandIndex> = groups.indexes().collect();
    loop {
        let mut placed = false;
        for rank in ranks(&waiting, &groups, world) {
            if bookings.any(&rank) {
                placed |= bookings.come_back(turn, world, &mut groups, &rank, true);
                // Who can go to a node now does so before those who wait for their machines.
                for group in &rank {
                    placed |= settle(turn, world, &mut groups[*group], &mut nodes, true);
                }
                placed |= bookings.come_back(turn, world, &mut groups, &rank, false);
                bookings.give_up(&mut groups, &rank);
            }
            for group in &rank {
                placed |= settle(turn, world, &mut groups[*group], &mut fit_index, false);
            }
        }
        // Where pods were preempted, more room may have come of it than was asked.
        let preempted = world.any_preempted();
        waiting.retain(|group| {
            let group = &groups[*group];
            !group.pods.is_empty() && (preempted || world.rules(group.shape).is_some())
        });
        if !placed || waiting.is_empty() {
            break;
        }
        if work::used_up(turn, world, 0) {
            for group in waiting {
                leave_out(turn, &mut groups[group]);
            }
            break;
        }
    }
    let mut left = groups.into_vec();
    left.retain(|group| group.calls() && !group.pods.is_empty());
    (left, fit_index)
}

/// What is left of a group is looked at no more in this decision.
fn leave_out<'a>(turn: &mut DecisionBuilder<'a>, group: &mut Group<'a>) {
    let why = work::chained();
    for to_place in std::mem::take(&mut group.pods) {
        if group.calls() {
            turn.say(to_place, &PodVerdict::NoCompatiblePool { why: why.clone() });
        }
    }
}

/// Stretches of groups of one rank.
fn ranks(
    order: &[DemandIndex],
    groups: &Groups<'_>,
    world: &SimCluster<'_>,
) -> Vec<Vec<DemandIndex>> {
    let rank = |group: &DemandIndex| groups[*group].rank(world);
    let stretches = order.chunk_by(|a, b| rank(a) == rank(b));
    stretches.map(<[DemandIndex]>::to_vec).collect()
}

/// Whether pods of a shape have affinity to others of which none has a place yet, so that they fit nowhere.
pub(crate) fn is_stranded(world: &mut SimCluster<'_>, shape: ShapeId) -> bool {
    let rules = world.rules(shape);
    rules.is_some_and(|rules| world.inter_pod.is_stranded(&rules))
}

/// Places what fits of one group; says whether anything did. `firm`: nobody is preempted.
fn settle<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    group: &mut Group<'a>,
    fit_index: &mut FitIndex,
    firm: bool,
) -> bool {
    if is_stranded(world, group.shape) {
        return false;
    }
    let pods = std::mem::take(&mut group.pods);
    let placed = place_pods(turn, world, group, &pods, |turn, world, need| {
        if firm {
            let placed = place(world, group.shape, need, pods.len(), fit_index);
            return placed
                .into_iter()
                .map(|(b, n)| PlacedPods::free(b, n))
                .collect();
        }
        let asked = (group.shape, need);
        on_existing(turn, world, asked, pods.len(), fit_index, &mut None)
    });
    group.pods = pods;
    group.pods.drain(..placed);
    placed > 0
}

/// Places as many of these pods of a group as `put` has room for, and says so of them; says how many, from
/// the first on.
pub(crate) fn place_pods<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    group: &Group<'a>,
    pods: &[PodToPlace<'a>],
    put: impl FnOnce(&DecisionBuilder<'a>, &mut SimCluster<'a>, Option<&VolumeNeed>) -> Vec<PlacedPods>,
) -> usize {
    let mut placed = 0;
    let need = group.need.clone();
    let first = pods.first().copied();
    if first.is_some_and(|first| {
        turn.claim_reservations
            .refusal(first.key, need.as_deref())
            .is_some()
    }) {
        return 0;
    }
    for placed_pods in put(turn, world, need.as_deref()) {
        let (node, count) = (placed_pods.node, placed_pods.count);
        if count == 0 {
            continue;
        }
        let new_pods = (group.shape, group.need.clone(), count);
        world.nodes[node].new_pods.push(new_pods);
        if group.calls() {
            let preempts = !placed_pods.preempts.is_empty();
            let verdict = placed_pods.verdict(world);
            let waits = matches!(verdict, PodVerdict::FitsMachine { .. });
            let these = &pods[placed..placed + count];
            for to_place in these {
                turn.say(*to_place, &verdict);
            }
            if waits {
                let name = &world.nodes[node].name;
                bookings::keep(turn, name, these.iter().map(|one| one.pod));
                if !preempts {
                    bookings::note(world, group, node, these);
                }
            }
        }
        placed += count;
    }
    if let Some(first) = first.filter(|_| placed > 0) {
        turn.claim_reservations.reserve(first.key, need.as_deref());
    }
    placed
}

/// Pods that were put on one place.
#[derive(Debug)]
pub(crate) struct PlacedPods {
    pub(crate) node: NodeIndex,
    pub(crate) count: usize,
    /// Who is preempted for them.
    pub(crate) preempts: BTreeMap<ObjectKey, i32>,
}

impl PlacedPods {
    /// Places `count` pods in free room, without preemption.
    pub(crate) fn free(node: NodeIndex, count: usize) -> PlacedPods {
        PlacedPods {
            node,
            count,
            preempts: BTreeMap::new(),
        }
    }

    /// What is said of the pods.
    pub(crate) fn verdict(self, world: &SimCluster<'_>) -> PodVerdict {
        let node = &world.nodes[self.node];
        match &node.origin {
            NodeOrigin::Machine(machine) => PodVerdict::FitsMachine {
                machine: machine.clone(),
            },
            NodeOrigin::Node | NodeOrigin::Planned(_) => PodVerdict::FitsNode {
                node: node.name.clone(),
                preempts: self.preempts,
            },
        }
    }
}

/// Places up to `count` pods of a shape on the places of a fit index, and those that fit nowhere where
/// expendable pods give way for them. Keeps what is needed to take it back ([`SimCluster::restore`], last first), where that is asked for.
pub(crate) fn on_existing(
    turn: &DecisionBuilder<'_>,
    world: &mut SimCluster<'_>,
    (shape, need): (ShapeId, Option<&VolumeNeed>),
    count: usize,
    fit_index: &mut FitIndex,
    undo: &mut Option<&mut Vec<(NodeIndex, Saved)>>,
) -> Vec<PlacedPods> {
    let placed = put(
        world,
        (shape, need),
        count,
        fit_index,
        undo,
        Newcomers::Settled,
    );
    let mut placed_pods: Vec<PlacedPods> = placed
        .into_iter()
        .map(|(b, n)| PlacedPods::free(b, n))
        .collect();
    let left = count - placed_pods.iter().map(|one| one.count).sum::<usize>();
    for preempting in preempt::force(world, shape, need, left, fit_index, undo) {
        placed_pods.push(PlacedPods {
            node: preempting.node,
            count: 1,
            preempts: preempting.victims(world, &turn.view),
        });
    }
    placed_pods
}

/// Places up to `count` pods of a shape on the places of a fit index; says how many went where.
pub(crate) fn place(
    world: &mut SimCluster<'_>,
    shape: ShapeId,
    need: Option<&VolumeNeed>,
    count: usize,
    fit_index: &mut FitIndex,
) -> Vec<(NodeIndex, usize)> {
    put(
        world,
        (shape, need),
        count,
        fit_index,
        &mut None,
        Newcomers::Settled,
    )
}

/// Places `count` pods of a shape on these places in this order, and keeps what is needed to take it
/// back ([`SimCluster::restore`], last first).
pub(crate) fn place_with_undo(
    world: &mut SimCluster<'_>,
    shape: ShapeId,
    need: Option<&VolumeNeed>,
    count: usize,
    order: &[NodeIndex],
    undo: &mut Vec<(NodeIndex, Saved)>,
) -> Vec<(NodeIndex, usize)> {
    let mut fit_index = FitIndex::over(order, world);
    lay_with_undo(world, shape, need, count, &mut fit_index, undo)
}

/// Places up to `count` pods of a shape on the open places of a fit index, and keeps what is needed to take it back
/// ([`SimCluster::restore`], last first); whoever takes it back tells the fit index ([`FitIndex::lift`]). Says how many went where.
/// Expendable pods give way here too: the pods come one by one, in any order, so one that preempts nobody is not put
/// where others have made room.
pub(crate) fn lay_with_undo(
    world: &mut SimCluster<'_>,
    shape: ShapeId,
    need: Option<&VolumeNeed>,
    count: usize,
    fit_index: &mut FitIndex,
    undo: &mut Vec<(NodeIndex, Saved)>,
) -> Vec<(NodeIndex, usize)> {
    let mut undo = Some(undo);
    let mut placed = put(
        world,
        (shape, need),
        count,
        fit_index,
        &mut undo,
        Newcomers::OneByOne,
    );
    let left = count - placed.iter().map(|(_, came)| came).sum::<usize>();
    let preempting = preempt::force(world, shape, need, left, fit_index, &mut undo);
    placed.extend(preempting.into_iter().map(|one| (one.node, 1)));
    placed
}

/// When pods come that are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newcomers {
    /// In the order in which they are placed.
    Settled,
    /// One by one and in any order, as those of a node that is drained.
    OneByOne,
}

/// First fit. A place that took what it could is not looked at again, unless the pods placed since
/// may have opened it: where pods of this shape are spread, when the least domain got one more.
fn put(
    world: &mut SimCluster<'_>,
    (id, need): (ShapeId, Option<&VolumeNeed>),
    mut left: usize,
    fit_index: &mut FitIndex,
    undo: &mut Option<&mut Vec<(NodeIndex, Saved)>>,
    newcomers: Newcomers,
) -> Vec<(NodeIndex, usize)> {
    let rules = world.rules(id);
    world.prepare(id);
    let shape = world.shapes[id].shape;
    let one_by_one = newcomers == Newcomers::OneByOne;
    let timid = one_by_one && !world.expendable_pods.is_empty() && !world.preempts(id);
    let mut placed: Vec<(NodeIndex, usize)> = Vec::new();
    let mut from = FitPlaceIndex(0);
    while left > 0 {
        let found = fit_index.find(&world.nodes, from, &shape.requests, |index| {
            if timid && world.preempted(index) {
                return None;
            }
            admitted(world, id, need, index, rules.as_deref())
        });
        let Some((place, most)) = found else {
            break;
        };
        let index = fit_index.nodes[place];
        let count = usize::try_from(most).unwrap_or(usize::MAX).min(left);
        let pods = Resident::of(id, count as u64);
        let saved = undo.is_some().then(|| world.save(index, pods));
        let floor = rules.as_deref().map(|rules| world.inter_pod.floor(rules));
        world.put(index, id, count as u64, false);
        let bindings = world.supply(index, need, count as u64);
        if let (Some(undo), Some(mut saved)) = (undo.as_deref_mut(), saved) {
            saved.with(bindings);
            undo.push((index, saved));
        }
        let risen = rules.as_deref().map(|rules| world.inter_pod.floor(rules)) > floor;
        match placed.last_mut() {
            Some((last, sum)) if *last == index => *sum += count,
            _ => placed.push((index, count)),
        }
        left -= count;
        from = if risen { FitPlaceIndex(0) } else { place };
    }
    placed
}

/// Puts up to `count` pods of a shape on one place, by the domains alone that nodes are in: there kube-scheduler
/// will put them. Says how many.
pub(crate) fn put_at(
    world: &mut SimCluster<'_>,
    id: ShapeId,
    need: Option<&VolumeNeed>,
    count: usize,
    node: NodeIndex,
) -> usize {
    let rules = world.rules(id).map(|rules| rules.as_things_are());
    world.prepare(id);
    let mut placed = 0;
    while placed < count {
        let Some(most) = admitted(world, id, need, node, rules.as_ref()) else {
            break;
        };
        let some = usize::try_from(most)
            .unwrap_or(usize::MAX)
            .min(count - placed);
        world.put(node, id, some as u64, false);
        world.supply(node, need, some as u64);
        placed += some;
    }
    placed
}

/// Puts one pod of a shape on one place for [`SimCluster::take`] to take it off again, by the domains alone that nodes are in: its claims
/// take no volumes. Says whether there is room.
pub(crate) fn hold_at(
    world: &mut SimCluster<'_>,
    id: ShapeId,
    need: Option<&VolumeNeed>,
    node: NodeIndex,
) -> bool {
    let rules = world.rules(id).map(|rules| rules.as_things_are());
    world.prepare(id);
    let has_room = admitted(world, id, need, node, rules.as_ref()).is_some();
    if has_room {
        world.put(node, id, 1, false);
    }
    has_room
}

/// How many pods a place takes, if any.
pub(crate) fn admitted(
    world: &SimCluster<'_>,
    id: ShapeId,
    need: Option<&VolumeNeed>,
    index: NodeIndex,
    rules: Option<&Rules>,
) -> Option<u64> {
    let node = &world.nodes[index];
    let room = node.room(world.shapes[id].shape);
    if room == 0 || !world.admits(id, index) || world.reach_filter_failure(index, need).is_some() {
        return None;
    }
    let most = rules.map_or(u64::MAX, |rules| {
        world.inter_pod.most(rules, world.inter_pod.at(index))
    });
    let most = world.served(index, need, room.min(most));
    Some(most).filter(|most| *most > 0)
}

/// A reason under every choice's name.
pub(crate) type RefusalsByChoice = std::collections::BTreeMap<Arc<str>, model::reasons::Refusals>;
