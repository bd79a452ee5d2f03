//! Pods that a removal has evicted and whose successors have not shown yet: their room is kept, so
//! that the next removal does not count on it. Source: cluster-autoscaler's `core/scaledown/planner`.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::cluster::{ObjectKey, Pod};
use model::memory::{Evicted, Memory};
use model::scheduling::PodShape;
use model::time::Span;

use crate::constraints::shape::NamespacedShape;
use crate::decision::turn::DecisionBuilder;
use crate::index::NodeIndex;
use crate::scale_down::drain_rules;
use crate::simulation::pack;
use crate::simulation::world::SimCluster;

/// How long room is kept for the successor of an evicted pod.
const PATIENCE: Span = Span::minutes(1);

/// Remembers the pods on nodes that are leaving, and sees which of them are gone.
pub(crate) fn note(turn: &mut DecisionBuilder<'_>) {
    if !turn.holds.may_observe() {
        return;
    }
    let now = turn.now();
    let snapshot = turn.view.snapshot;
    let cutoff = turn.view.policy.scale_up.expendable_priority;
    let mut evicted = std::mem::take(&mut turn.memory.evicted);
    let mut present = BTreeMap::new();
    for node in (0..snapshot.cluster.nodes.len()).map(NodeIndex) {
        if !turn.view.leaving_at(node) {
            continue;
        }
        for (key, pod) in turn.view.pods_at(node) {
            if drain_rules::concerned(pod, now) && pod.shape.priority >= cutoff {
                present.insert(pod.uid.clone(), (*key, *pod));
            }
        }
    }
    for (uid, (key, pod)) in &present {
        evicted
            .entry(uid.clone())
            .or_insert_with(|| remembered(key, pod, now));
    }
    evicted.retain(|uid, pod| {
        // One that was released, or stands elsewhere under its own UID, was not evicted.
        let alive = snapshot
            .cluster
            .pods
            .get(&pod.pod)
            .is_some_and(|seen| seen.uid == *uid);
        if alive {
            pod.gone = None;
            return present.contains_key(uid);
        }
        let gone = *pod.gone.get_or_insert(now);
        now.since(gone) < PATIENCE
    });
    turn.memory.evicted = evicted;
}

fn remembered(key: &ObjectKey, pod: &Pod, now: model::time::Time) -> Evicted {
    Evicted {
        pod: key.clone(),
        shape: pod.shape.clone(),
        seen: now,
        gone: None,
    }
}

/// Puts those that are still awaited where they will find room, on nodes in this order. What fits
/// nowhere is left: it cannot be kept room for.
pub(crate) fn reserve<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    before: &'a Memory,
    order: &[NodeIndex],
) {
    // Successors that are there stand somewhere, or are pending and were counted.
    for pod in list_awaited(turn, before, |_| true) {
        let id = world.intern(pod.namespace, pod.shape);
        let mut undo = Vec::new();
        let placed = pack::place_with_undo(world, id, None, 1, order, &mut undo);
        for (node, _) in placed {
            world.nodes[node].receives = true;
        }
    }
}

/// The shapes of pods that were evicted and whose controllers have not made another pod in their place yet. Room is held for each of them, so that no
/// node goes that the new pod needs. `has_come` says whether a pod of the same controller counts as that new pod already.
pub(crate) fn list_awaited<'a>(
    turn: &mut DecisionBuilder<'a>,
    before: &'a Memory,
    has_come: impl Fn(&Pod) -> bool,
) -> Vec<NamespacedShape<'a>> {
    let mut found = Vec::new();
    for uid in find_awaited(turn, has_come) {
        let Some(now) = turn.memory.evicted.get(&uid).cloned() else {
            continue;
        };
        if let Some(gone) = now.gone {
            turn.wake_at(gone + PATIENCE);
        }
        let pods = &turn.view.snapshot.cluster.pods;
        let seen = pods.get_key_value(&now.pod);
        let (namespace, shape): (&'a Arc<str>, &'a Arc<PodShape>) =
            match (before.evicted.get(&uid), seen) {
                (Some(pod), _) => (&pod.pod.namespace, &pod.shape),
                (None, Some((key, pod))) => (&key.namespace, &pod.shape),
                (None, None) => continue,
            };
        found.push(NamespacedShape { namespace, shape });
    }
    found
}

/// Whether a pod that still stands has, or should have, a successor already: a StatefulSet's waits
/// for it to be gone.
fn going(turn: &DecisionBuilder<'_>, evicted: &Evicted) -> bool {
    let owner = evicted.shape.owner.as_ref();
    let stateful = owner.is_some_and(|owner| &*owner.kind == "StatefulSet");
    let pod = turn.view.snapshot.cluster.pods.get(&evicted.pod);
    owner.is_some() && !stateful && pod.is_some_and(|pod| pod.deletion.is_some())
}

/// UIDs of evicted pods without a successor. A pod of the same controller that was made since the
/// first of them was seen leaving is the successor of one, where it counts as come.
fn find_awaited(turn: &DecisionBuilder<'_>, has_come: impl Fn(&Pod) -> bool) -> Vec<Arc<str>> {
    let cluster = &turn.view.snapshot.cluster;
    let mut by_owner: BTreeMap<&str, Vec<(&Arc<str>, &Evicted)>> = BTreeMap::new();
    let mut awaited = Vec::new();
    for (uid, pod) in &turn.memory.evicted {
        if pod.gone.is_none() && !going(turn, pod) {
            continue;
        }
        match &pod.shape.owner {
            Some(owner) => by_owner.entry(&owner.uid).or_default().push((uid, pod)),
            None => awaited.push(uid.clone()),
        }
    }
    if by_owner.is_empty() {
        return awaited;
    }
    let mut successors: BTreeMap<&str, usize> = BTreeMap::new();
    for (key, pod) in &cluster.pods {
        let Some(owner) = &pod.shape.owner else {
            continue;
        };
        let Some(evicted) = by_owner.get(&*owner.uid) else {
            continue;
        };
        let since = evicted.iter().map(|(_, gone)| gone.seen).min();
        // A StatefulSet's successor has the name of the pod it follows.
        let named = evicted.iter().any(|(_, gone)| gone.pod == *key);
        let new = !turn.memory.evicted.contains_key(&pod.uid) && has_come(pod);
        if new && (named || since.is_some_and(|since| pod.created >= since)) {
            *successors.entry(&owner.uid).or_insert(0) += 1;
        }
    }
    for (owner, evicted) in by_owner {
        let come = successors.get(owner).copied().unwrap_or(0);
        awaited.extend(evicted.into_iter().skip(come).map(|(uid, _)| uid.clone()));
    }
    awaited
}
