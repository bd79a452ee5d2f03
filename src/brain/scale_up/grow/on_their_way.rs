//! Pods that were put on machines on their way, in the second plan.
//!
//! Before anything is planned, pods go to machines on their way first fit, in kube-scheduler's order. Another order may have held more of
//! them: a pod that others must run beside (their target) came to a machine with no room for them, or two small pods are where one large
//! pod would fit. No pod is bound to such a machine yet. So where pods have no place in the end, the second plan is made once more with the
//! pods on these machines: they may stay, change places or go to new machines, and none loses its place to a pod of the same priority.

use std::collections::BTreeMap;

use super::catalog::Catalog;
use super::first_plan::Visit;
use super::pending::PendingGroups;
use super::planner::Planner;
use super::second_plan::{Domains, repack_among};
use crate::index::{NodeIndex, PendingPodIndex, ShapeId};
use crate::simulation::bookings::BookedPods;
use crate::simulation::demand::{Group, Origin};
use crate::simulation::world::NodeOrigin;

/// Machines on their way that are looked at, and pods on them, at most: those of the first machines by name.
const MAX_MACHINES: usize = 64;
const MAX_PODS: usize = 1_000;
/// Kinds of pods without a place for which machines are looked for, at most.
const MAX_WAITING: usize = 64;
/// Machines that second plans may look at in a decision before this one is made. What found nothing is remembered, so the next decision
/// comes here.
const MAX_LOOKED: u64 = 4_000_000;

/// Phase: where pods have no place, makes the second plan once more with pods that were put on machines on their way. Only where pods are
/// nominated: else kube-scheduler puts them on whichever node is ready first, whatever was planned.
pub(super) fn repack<'p, 'a>(
    planner: &mut Planner<'p, 'a>,
    catalog: &mut Catalog<'p, 'a>,
    pending: &mut PendingGroups<'a>,
    visits: Vec<Visit>,
) {
    let nominates = planner.turn.view.nominates();
    if !nominates || planner.looked > MAX_LOOKED || planner.world.booked_pods.is_empty() {
        return;
    }
    let coming = find_machines(planner, pending);
    let booked = take_booked(planner, &coming);
    if booked.is_empty() {
        return;
    }
    let mut all = add_booked(planner, catalog, pending, booked);
    all.extend(visits);
    let among = (Domains::WithMachines, coming);
    repack_among(planner, catalog, pending, all, among);
}

/// The machines on their way that a pod without a place could be on, or that carry a pod which such a one must run beside.
fn find_machines(planner: &mut Planner<'_, '_>, pending: &PendingGroups<'_>) -> Vec<NodeIndex> {
    let waiting = pending.groups.iter().filter(|group| group.left() > 0);
    let waiting: Vec<ShapeId> = waiting.map(|group| group.shape).take(MAX_WAITING).collect();
    for shape in &waiting {
        planner.world.rules(*shape);
        planner.world.prepare(*shape);
    }
    let world = &*planner.world;
    let wanted = |node: NodeIndex, waits: ShapeId| {
        let rules = world.inter_pod.known_rules(waits);
        let mut there = world.nodes[node].residents.iter();
        rules.is_some_and(|rules| there.any(|pods| world.inter_pod.is_wanted(rules, pods.shape)))
    };
    let nodes = planner.existing.nodes().iter().copied();
    let coming = nodes.filter(|node| {
        let of = &world.nodes[*node];
        let on_its_way = matches!(of.origin, NodeOrigin::Machine(_)) && !of.closed;
        let mut shapes = waiting.iter();
        on_its_way && shapes.any(|shape| world.admits(*shape, *node) || wanted(*node, *shape))
    });
    coming.take(MAX_MACHINES).collect()
}

/// The pods that were put on these machines, of as many of them as have few enough together.
fn take_booked<'a>(planner: &mut Planner<'_, 'a>, coming: &[NodeIndex]) -> Vec<BookedPods<'a>> {
    let mut count = 0;
    let booked = std::mem::take(&mut planner.world.booked_pods);
    let booked = booked.into_iter().filter(|booked| {
        if !coming.contains(&booked.node) {
            return false;
        }
        count += booked.pods.len();
        count <= MAX_PODS
    });
    booked.collect()
}

/// Adds these pods to the pending ones, as such that have a place. Returns where they are.
fn add_booked<'a>(
    planner: &mut Planner<'_, 'a>,
    catalog: &mut Catalog<'_, 'a>,
    pending: &mut PendingGroups<'a>,
    booked: Vec<BookedPods<'a>>,
) -> Vec<Visit> {
    let mut kinds: BTreeMap<ShapeId, Vec<BookedPods<'a>>> = BTreeMap::new();
    for pods in booked {
        kinds.entry(pods.shape).or_default().push(pods);
    }
    let mut visits = Vec::new();
    for (shape, parts) in kinds {
        let group = Group {
            shape,
            need: None,
            pods: parts.iter().flat_map(|part| &part.pods).copied().collect(),
            origin: Origin::Waits,
        };
        let group = pending.append_placed(planner.world, catalog, group);
        let mut next = 0;
        for part in parts {
            let (first, count) = (next, part.pods.len());
            next += count;
            visits.push(Visit {
                group,
                pods: PendingPodIndex(first)..PendingPodIndex(next),
                placed_pods: vec![(part.node, count)],
                preempting: Vec::new(),
                undo: Vec::new(),
                booked: true,
            });
        }
    }
    visits
}
