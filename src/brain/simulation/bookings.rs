//! Places that pods have been given: on machines on their way, until they are bound, and on the nodes that
//! they go to when their own is removed, until they are evicted. Pods that were laid out one way
//! and are laid out another way the next time may not all fit any more, and would call for one more machine
//! while the first is still coming.
//!
//! Among pods of one priority those with a place come first; a pod of a higher priority goes before
//! them, as it does for kube-scheduler. A place is lost with its machine, or when the pod does not fit there
//! any more. With the memory lost, pods are laid out in kube-scheduler's order, as those are that were
//! never given a place.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::decision::pod_to_place::PodToPlace;
use crate::decision::turn::DecisionBuilder;
use crate::index::{DemandIndex, NodeIndex, ShapeId};
use crate::simulation::demand::{Demand, Group, Groups, Origin};
use crate::simulation::pack::{self, PlacedPods};
use crate::simulation::work;
use crate::simulation::world::{NodeOrigin, SimCluster};
use model::cluster::Pod;

/// Pods that have a place.
#[derive(Debug, Default)]
pub(crate) struct Bookings<'a> {
    booked: Vec<Booked<'a>>,
}

/// Pods of one group with a place on one node or machine.
#[derive(Debug)]
struct Booked<'a> {
    group: DemandIndex,
    node: NodeIndex,
    pods: Vec<PodToPlace<'a>>,
}

impl<'a> Bookings<'a> {
    /// Takes those out of their groups who have a place, on a node or machine that is there. It is remembered
    /// on for those alone that get it again.
    ///
    /// A pod that is nominated for its place needs none; it keeps its own for when kube-scheduler clears the
    /// nomination.
    pub(crate) fn restore(
        turn: &mut DecisionBuilder<'a>,
        world: &SimCluster<'a>,
        demand: &mut Demand<'a>,
    ) -> Bookings<'a> {
        let (groups, nominated) = (&mut demand.groups, &demand.nominated);
        let mut places = BTreeMap::new();
        for (name, mut pods) in std::mem::take(&mut turn.memory.bookings) {
            let kept = pods.extract_if(.., |pod| nominated.get(pod) == Some(&name));
            keep_uids(turn, &name, kept.collect());
            let node = world.by_name.get(&name).copied();
            if let Some(node) = node.filter(|node| !world.nodes[*node].closed) {
                places.extend(pods.into_iter().map(|pod| (pod, node)));
            }
        }
        let mut bookings = Bookings::default();
        if places.is_empty() {
            return bookings;
        }
        for (index, group) in groups.indexes().zip(groups.iter_mut()) {
            if !group.calls() {
                continue;
            }
            let mut found: BTreeMap<NodeIndex, Vec<PodToPlace<'a>>> = BTreeMap::new();
            group.pods.retain(|to_place| {
                let node = places.get(&to_place.pod.uid);
                if let Some(node) = node {
                    found.entry(*node).or_default().push(*to_place);
                }
                node.is_none()
            });
            bookings
                .booked
                .extend(found.into_iter().map(|(node, pods)| Booked {
                    group: index,
                    node,
                    pods,
                }));
        }
        bookings
    }

    /// Whether nobody has a place.
    pub(crate) fn is_empty(&self) -> bool {
        self.booked.is_empty()
    }

    /// Whether a pod of one of these groups (in ascending order) is booked.
    pub(crate) fn any(&self, groups: &[DemandIndex]) -> bool {
        let mut booked = self.booked.iter();
        booked.any(|booked| groups.binary_search(&booked.group).is_ok())
    }

    /// Places those of these groups whose place is on a working node (`working`), or on a machine on its way;
    /// those first whom other pods may be in the way of. Says whether there was anybody.
    pub(crate) fn come_back(
        &mut self,
        turn: &mut DecisionBuilder<'a>,
        world: &mut SimCluster<'a>,
        groups: &mut Groups<'a>,
        rank: &[DemandIndex],
        working: bool,
    ) -> bool {
        let mut anybody = false;
        // Pods with required affinity to each other are tried again after the others: every round but the last
        // places a pod.
        loop {
            let mut placed = false;
            for ruled in [true, false] {
                for booked in &mut self.booked {
                    let works = world.nodes[booked.node].origin == NodeOrigin::Node;
                    if works != working || rank.binary_search(&booked.group).is_err() {
                        continue;
                    }
                    let group = &groups[booked.group];
                    let has_rules = world.rules(group.shape).is_some();
                    if has_rules == ruled && !pack::is_stranded(world, group.shape) {
                        placed |= booked.resume(turn, world, group);
                    }
                }
            }
            anybody |= placed;
            if !placed || work::used_up(turn, world, 0) {
                return anybody;
            }
        }
    }

    /// Groups that did not get their place again become like all the others.
    pub(crate) fn give_up(&mut self, groups: &mut Groups<'a>, rank: &[DemandIndex]) {
        for booked in &mut self.booked {
            if rank.binary_search(&booked.group).is_ok() && !booked.pods.is_empty() {
                let pods = &mut groups[booked.group].pods;
                pods.append(&mut booked.pods);
                pods.sort_by_key(|to_place| {
                    (to_place.pod.created, to_place.pod.arrival, to_place.key)
                });
            }
        }
        self.booked
            .retain(|booked| rank.binary_search(&booked.group).is_err());
    }
}

impl<'a> Booked<'a> {
    fn resume(
        &mut self,
        turn: &mut DecisionBuilder<'a>,
        world: &mut SimCluster<'a>,
        group: &Group<'a>,
    ) -> bool {
        let (node, pods) = (self.node, &self.pods);
        let placed = pack::place_pods(turn, world, group, pods, |_, world, need| {
            let count = pack::put_at(world, group.shape, need, pods.len(), node);
            Vec::from([PlacedPods::free(node, count)])
        });
        let name = world.nodes[node].name.clone();
        keep(turn, &name, self.pods.drain(..placed).map(|one| one.pod));
        placed > 0
    }
}

/// Pods of one shape that this decision put on a machine on its way, where there was room.
#[derive(Clone, Debug)]
pub(crate) struct BookedPods<'a> {
    pub(crate) shape: ShapeId,
    pub(crate) node: NodeIndex,
    pub(crate) pods: Vec<PodToPlace<'a>>,
}

/// Notes pods that came to a machine on its way, if they may go elsewhere in this decision: they wait for a place of their own, and no
/// volume was taken for them.
pub(crate) fn note<'a>(
    world: &mut SimCluster<'a>,
    group: &Group<'a>,
    node: NodeIndex,
    pods: &[PodToPlace<'a>],
) {
    if group.origin == Origin::Waits && group.need.is_none() {
        let (shape, pods) = (group.shape, pods.to_vec());
        world.booked_pods.push(BookedPods { shape, node, pods });
    }
}

/// These pods have no place any more.
pub(crate) fn release<'p>(turn: &mut DecisionBuilder<'_>, pods: impl IntoIterator<Item = &'p Pod>) {
    let pods: BTreeSet<&Arc<str>> = pods.into_iter().map(|pod| &pod.uid).collect();
    turn.memory.bookings.retain(|_, booked| {
        booked.retain(|uid| !pods.contains(uid));
        !booked.is_empty()
    });
}

/// These pods have a place on a node or machine.
pub(crate) fn keep<'p>(
    turn: &mut DecisionBuilder<'_>,
    name: &Arc<str>,
    pods: impl IntoIterator<Item = &'p Pod>,
) {
    let pods = pods.into_iter().map(|pod| pod.uid.clone());
    keep_uids(turn, name, pods.collect());
}

fn keep_uids(turn: &mut DecisionBuilder<'_>, name: &Arc<str>, mut pods: Vec<Arc<str>>) {
    if pods.is_empty() {
        return;
    }
    match turn.memory.bookings.entry(name.clone()) {
        Entry::Vacant(entry) => {
            entry.insert(pods);
        }
        Entry::Occupied(mut entry) => entry.get_mut().append(&mut pods),
    }
}
