//! Pods that came to nodes there are while the first plan was made: they leave, and come again where the first plan stays.

use std::collections::BTreeSet;

use super::first::Visit;
use super::pending::PendingGroups;
use super::planner::Planner;
use super::view::PlanView;
use crate::constraints::shape::Resident;

/// Tells the visits that stay, whatever is laid out anew, from those that leave.
///
/// A pod that made expendable pods give way stays, and so do those that came to its node before it: what they found is not there to be
/// restored. So does one that no other place can be looked for. `None` where such a pod is spread, or wants or shuns others: nothing is
/// laid out anew then, since its place would have to be looked at with theirs.
pub(super) fn split_staying(
    view: PlanView<'_, '_>,
    visits: Vec<Visit>,
    movable: &[bool],
) -> Option<(Vec<Visit>, Vec<Visit>)> {
    let mut held: BTreeSet<usize> = BTreeSet::new();
    let (mut staying, mut leaving) = (Vec::new(), Vec::new());
    for visit in visits.into_iter().rev() {
        let on_held = visit.seats.iter().any(|(bin, _)| held.contains(bin));
        if visit.undo.is_some() && movable[visit.group] && !on_held {
            leaving.push(visit);
            continue;
        }
        if view
            .world
            .company
            .known_rules(view.group(visit.group).shape)
            .is_some()
        {
            return None;
        }
        held.extend(visit.seats.iter().map(|(bin, _)| *bin));
        staying.push(visit);
    }
    staying.reverse();
    leaving.reverse();
    Some((staying, leaving))
}

/// Pods leave the nodes that they came to.
pub(super) fn leave<'a>(
    planner: &mut Planner<'_, 'a>,
    pending: &PendingGroups<'a>,
    mut visits: Vec<Visit>,
) -> Vec<Visit> {
    for visit in visits.iter_mut().rev() {
        for (bin, saved) in visit.undo.take().into_iter().flatten().rev() {
            planner.world.restore(bin, saved);
        }
        let shape = pending.groups[visit.group].shape;
        for (bin, _) in &visit.seats {
            let guests = &mut planner.world.nodes[*bin].guests;
            if let Some(last) = guests.iter().rposition(|(of, ..)| *of == shape) {
                guests.remove(last);
            }
        }
    }
    if !visits.is_empty() {
        planner.renew_existing();
    }
    visits
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
        for (bin, count) in &visit.seats {
            let world = &mut *planner.world;
            let mut saved = world.save(*bin, Resident::of(group.shape, *count as u64));
            world.put(*bin, group.shape, *count as u64, false);
            saved.with(world.supply(*bin, group.need.as_deref(), *count as u64));
            undo.push((*bin, saved));
            let guest = (group.shape, group.need.clone(), *count);
            world.nodes[*bin].guests.push(guest);
        }
        Visit {
            undo: Some(undo),
            ..visit
        }
    });
    again.collect()
}
