//! The batch window: pods that come together are planned together.
//!
//! The window opens with the first pod that a node would help, and closes when nothing new came for
//! a while, at the latest after its longest time. Pods that could not be helped then stay in the
//! closed batch, so that they open no window of their own, again and again; one new pod opens the
//! next.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::memory::Batch;
use crate::model::time::Time;

use super::turn::Turn;

/// Brings the batch up to date with the pods that a node would help; says until when to wait, if
/// the window is open.
pub(super) fn update(turn: &mut Turn<'_>, pods: BTreeSet<Arc<str>>) -> Option<Time> {
    let now = turn.now();
    if pods.is_empty() {
        turn.memory.batch = None;
        return None;
    }
    let batch = match turn.memory.batch.take() {
        None => Batch {
            first: now,
            last: now,
            pods,
        },
        Some(before) => {
            let grew = !pods.is_subset(&before.pods);
            let closed = closes(turn, &before) <= now;
            Batch {
                first: if grew && closed { now } else { before.first },
                last: if grew { now } else { before.last },
                pods,
            }
        }
    };
    let until = closes(turn, &batch);
    turn.memory.batch = Some(batch);
    turn.wake_at(until);
    (until > now).then_some(until)
}

fn closes(turn: &Turn<'_>, batch: &Batch) -> Time {
    let scale_up = &turn.view.policy.scale_up;
    (batch.last + scale_up.batch_idle).min(batch.first + scale_up.batch_max)
}
