//! Pods that are being deleted, and the pods that their controllers made in their place.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::cluster::{Cluster, ObjectKey, Pod};
use model::reasons::FateReason;
use model::story::PodOutcome;
use model::time::{Span, Time};

/// What becomes of pods, and why, by pod.
pub(super) type Fates = BTreeMap<ObjectKey, (PodOutcome, Option<FateReason>)>;

/// Says of those that are being deleted that they are, and which pod is in their place or where it will have one. One that nobody makes anew ends,
/// as any other of that kind.
pub(super) fn tell_terminating(cluster: &Cluster, fates: &mut Fates) {
    let terminating = |key: &ObjectKey| {
        let pod = cluster.pods.get(key)?;
        (pod.deletion.is_some() && pod.shape.owner.is_some()).then_some(pod)
    };
    if !fates.keys().any(|key| terminating(key).is_some()) {
        return;
    }
    let successors = pair_with_successors(cluster);
    for (key, (fate, why)) in fates {
        if terminating(key).is_none() {
            continue;
        }
        match fate {
            PodOutcome::Goes => {
                *fate = PodOutcome::Terminates;
                *why = successors.get(key).map(|(successor, pod)| {
                    let (successor, node) = ((*successor).clone(), pod.node.clone());
                    FateReason::SuccessorThere { successor, node }
                });
            }
            PodOutcome::Moves { to } => {
                let to = to.clone();
                *fate = PodOutcome::Terminates;
                *why = Some(FateReason::SuccessorComes { to });
            }
            PodOutcome::Stays
            | PodOutcome::Terminates
            | PodOutcome::Unplaced
            | PodOutcome::Blocks { .. } => {}
        }
    }
}

/// By pod that is being deleted the first pod that its controller made from then on, and that is in no other's place.
fn pair_with_successors(cluster: &Cluster) -> BTreeMap<&ObjectKey, (&ObjectKey, &Pod)> {
    let mut ending: BTreeMap<&Arc<str>, Vec<(Time, &ObjectKey)>> = BTreeMap::new();
    let mut made: BTreeMap<&Arc<str>, Vec<(Time, &ObjectKey, &Pod)>> = BTreeMap::new();
    for (key, pod) in &cluster.pods {
        let Some(owner) = &pod.shape.owner else {
            continue;
        };
        match pod.deletion {
            Some(end) => {
                let since = find_begin_of_deletion(pod, end);
                ending.entry(&owner.uid).or_default().push((since, key));
            }
            None => {
                let of = made.entry(&owner.uid).or_default();
                of.push((pod.created, key, pod));
            }
        }
    }
    let mut pairs = BTreeMap::new();
    for (owner, mut deleted) in ending {
        let mut others = made.remove(owner).unwrap_or_default();
        deleted.sort_by_key(|(since, key)| (*since, *key));
        others.sort_by_key(|(created, key, _)| (*created, *key));
        let mut others = others.into_iter();
        for (since, key) in deleted {
            // What was made before this one's deletion was made before those of the next ones, too.
            let successor = others.find(|(created, ..)| *created >= since);
            if let Some((_, successor, pod)) = successor {
                pairs.insert(key, (successor, pod));
            }
        }
    }
    pairs
}

/// When the deletion of a pod was asked for that shall end at `end`. The API server writes whole seconds.
fn find_begin_of_deletion(pod: &Pod, end: Time) -> Time {
    let seconds = pod.deletion_grace_seconds.map_or(0, i64::from).max(0);
    end - Span::seconds(seconds)
}
