//! The batch window: pods that come together are planned together.
//!
//! The window opens with the first pod that a node would help, and closes when nothing new came for
//! a while, at the latest after its longest time. The decision that closes it plans for all pods there
//! are then, those that came with it too: however many come, none waits longer than `batch_max`. Pods
//! that could not be helped stay in the closed batch, so that they open no window of their own, again
//! and again; the first pod that comes after the closing opens the next.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::memory::Batch;
use model::time::Time;

use crate::decision::turn::DecisionBuilder;

/// Brings the batch up to date with the pods that a node would help; says until when to wait, if
/// the window is open.
pub(crate) fn update(turn: &mut DecisionBuilder<'_>, pods: BTreeSet<Arc<str>>) -> Option<Time> {
    let now = turn.now();
    if pods.is_empty() {
        turn.memory.batch = None;
        return None;
    }
    let batch = match turn.memory.batch.take() {
        Some(before) if pods.is_subset(&before.pods) => Batch { pods, ..before },
        Some(before) if !before.closed => Batch {
            last: came(turn, &before),
            pods,
            ..before
        },
        None | Some(_) => Batch {
            first: now,
            last: now,
            closed: false,
            pods,
        },
    };
    let until = closes(turn, &batch);
    let open = !batch.closed && until > now;
    turn.memory.batch = Some(Batch {
        closed: !open,
        ..batch
    });
    if open {
        turn.wake_at(until);
    }
    open.then_some(until)
}

/// When the newest of the pods came. Nobody looks while a batch fills, so it may be a while ago. Where that is not known
/// they come now, and those that come as the window closes keep it open no longer.
fn came(turn: &DecisionBuilder<'_>, before: &Batch) -> Time {
    let now = turn.now();
    match turn.view.snapshot.cluster.unschedulable_at {
        Some(seen) => seen.min(now).max(before.last),
        None if closes(turn, before) <= now => before.last,
        None => now,
    }
}

fn closes(turn: &DecisionBuilder<'_>, batch: &Batch) -> Time {
    let scale_up = &turn.view.policy.scale_up;
    (batch.last + scale_up.batch_idle).min(batch.first + scale_up.batch_max)
}
