//! Pods that came to nodes there are while the first plan was made: which of them may leave; they leave, and come again where the first
//! plan stays.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::first_plan::Visit;
use super::pending::PendingGroups;
use super::planner::Planner;
use super::view::PlanView;
use crate::constraints::fit::volumes::VolumeNeed;
use crate::constraints::shape::Resident;
use crate::index::{GroupIndex, IndexVec, NodeIndex, PendingPodIndex, ShapeId};
use crate::simulation::pack::FitIndex;
use crate::simulation::preempt;

impl Visit {
    /// The nodes that the pods came to; one for each that others give way for.
    fn nodes(&self) -> impl Iterator<Item = NodeIndex> {
        let free = self.placed_pods.iter().map(|(node, _)| *node);
        free.chain(self.preempting.iter().copied())
    }
}

/// By group, whether its pods may go anywhere as far as claims for one pod alone (`ReadWriteOncePod`) are concerned: where no other pod
/// has such a claim, and no group before it waits for the same one, it binds the pod to nothing.
pub(super) fn find_movable(view: PlanView<'_, '_>) -> IndexVec<GroupIndex, bool> {
    let mut users: BTreeSet<(&str, &Arc<str>)> = BTreeSet::new();
    let groups = view.pending.groups.iter();
    let movable = groups.map(|group| {
        let Some(need) = group.need.as_deref().filter(|need| !need.alone.is_empty()) else {
            return true;
        };
        let key = group.pods[PendingPodIndex(0)].key;
        let mut first = true;
        for claim in &need.alone {
            first &= users.insert((&key.namespace, claim));
        }
        first
            && need.refusal.is_none()
            && view
                .turn
                .claim_reservations
                .refusal(key, Some(need))
                .is_none()
    });
    movable.collect()
}

/// Separates the visits that stay on their nodes from those that leave before the second plan.
///
/// A visit stays if its pods may not be moved (`movable`). Visits that came to the same node before it stay too, since the node cannot be
/// restored to what they found; booked pods may leave it nevertheless. If a visit that stays has affinity, anti-affinity or topology spread, there is no second plan: it would have
/// to place these pods as well. Then all visits come back as `Err`.
pub(super) fn split_staying(
    view: PlanView<'_, '_>,
    visits: Vec<Visit>,
    movable: &IndexVec<GroupIndex, bool>,
) -> Result<(Vec<Visit>, Vec<Visit>), Vec<Visit>> {
    let inter_pod = &view.world.inter_pod;
    let mut held: BTreeSet<NodeIndex> = BTreeSet::new();
    let mut staying = vec![false; visits.len()];
    for (visit, stays) in visits.iter().zip(&mut staying).rev() {
        let after_it = || visit.nodes().any(|node| held.contains(&node));
        *stays = !movable[visit.group] || (!visit.booked && after_it());
        if !*stays {
            continue;
        }
        let shape = view.group(visit.group).shape;
        if inter_pod.known_rules(shape).is_some() {
            return Err(visits);
        }
        held.extend(visit.nodes());
    }
    let mut staying = staying.into_iter();
    Ok(visits
        .into_iter()
        .partition(|_| staying.next().unwrap_or(true)))
}

/// Pods leave the nodes that they came to.
pub(super) fn leave<'a>(
    planner: &mut Planner<'_, 'a>,
    pending: &PendingGroups<'a>,
    mut visits: Vec<Visit>,
) -> Vec<Visit> {
    for visit in visits.iter_mut().rev() {
        for (node, saved) in std::mem::take(&mut visit.undo).into_iter().rev() {
            planner.world.restore(node, saved);
        }
        let shape = pending.groups[visit.group].shape;
        if visit.booked {
            take_off(planner, visit, shape);
            continue;
        }
        for node in visit.nodes() {
            let new_pods = &mut planner.world.nodes[node].new_pods;
            if let Some(last) = new_pods.iter().rposition(|(of, ..)| *of == shape) {
                new_pods.remove(last);
            }
        }
    }
    if !visits.is_empty() {
        planner.renew_existing();
    }
    visits
}

/// Booked pods leave the machines that they were put on.
fn take_off(planner: &mut Planner<'_, '_>, visit: &mut Visit, shape: ShapeId) {
    visit.undo.clear();
    for (node, count) in &visit.placed_pods {
        for _ in 0..*count {
            planner.world.take(*node, shape);
        }
        let new_pods = &mut planner.world.nodes[*node].new_pods;
        let them = |of: &(ShapeId, Option<Arc<VolumeNeed>>, usize)| {
            of.0 == shape && of.1.is_none() && of.2 == *count
        };
        if let Some(last) = new_pods.iter().rposition(them) {
            new_pods.remove(last);
        }
    }
}

/// Pods come to nodes as they did.
pub(super) fn come_again<'a>(
    planner: &mut Planner<'_, 'a>,
    pending: &PendingGroups<'a>,
    visits: Vec<Visit>,
) -> Vec<Visit> {
    let again = visits.into_iter().map(|visit| {
        let group = &pending.groups[visit.group];
        let mut undo = Vec::new();
        for (node, count) in &visit.placed_pods {
            let world = &mut *planner.world;
            let mut saved = world.save(*node, Resident::of(group.shape, *count as u64));
            world.put(*node, group.shape, *count as u64, false);
            saved.with(world.supply(*node, group.need.as_deref(), *count as u64));
            undo.push((*node, saved));
            let new_pods = (group.shape, group.need.clone(), *count);
            world.nodes[*node].new_pods.push(new_pods);
        }
        for node in &visit.preempting {
            let world = &mut *planner.world;
            let mut index = FitIndex::over(&[*node], world);
            let need = group.need.as_deref();
            preempt::force(
                world,
                group.shape,
                need,
                1,
                &mut index,
                &mut Some(&mut undo),
            );
            let new_pods = (group.shape, group.need.clone(), 1);
            world.nodes[*node].new_pods.push(new_pods);
        }
        Visit { undo, ..visit }
    });
    again.collect()
}
