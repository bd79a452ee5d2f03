//! Pools that failed wait: 5 minutes, doubling to 30. Every failure counts once.
//!
//! Source: cluster-autoscaler's `utils/backoff`: failures during a back-off do not lengthen it.

use std::sync::Arc;

use model::foreign::ForeignText;
use model::memory::Backoff;
use model::time::{Span, Time};

use crate::decision::turn::Turn;
use crate::observed::view::Standing;

/// Until when a pool waits, if it does.
pub(crate) fn until(turn: &Turn<'_>, pool: &str) -> Option<Time> {
    if planted!(NoBackoff) {
        return None;
    }
    let counted = turn
        .memory
        .backoff
        .get(pool)
        .map(|backoff| backoff.until)
        .filter(|until| *until > turn.now());
    counted.max(unremembered(turn, pool))
}

/// A pool with machines from before this memory began, none of which works: its back-off may have
/// been lost with the memory, so it waits out a first one.
fn unremembered(turn: &Turn<'_>, pool: &str) -> Option<Time> {
    let began = turn.memory.began?;
    let until = began + turn.view.policy.scale_up.backoff_first;
    if until <= turn.now() {
        return None;
    }
    let mut of_pool = turn
        .view
        .machines
        .values()
        .filter(|known| known.pool_name() == pool)
        .peekable();
    of_pool.peek()?;
    let (mut working, mut older) = (false, false);
    for known in of_pool {
        working |= known.standing == Standing::Up && known.ready();
        older |= known.machine.mark.created < began;
    }
    (older && !working).then_some(until)
}

/// Counts the failures that were not counted yet, and forgets what is over.
pub(crate) fn count(turn: &mut Turn<'_>) {
    let now = turn.now();
    let scale_up = &turn.view.policy.scale_up;
    let reset = scale_up.backoff_reset;
    let mut failed: Vec<(Arc<str>, Arc<str>, Time, ForeignText)> = Vec::new();
    for known in turn.view.machines.values() {
        let message = match known.standing {
            Standing::Failed => match &known.machine.failure {
                Some(failure) if !failure.transient => {
                    (failure.at.min(now), failure.message.clone())
                }
                _ => continue,
            },
            Standing::Overdue => (
                now,
                format!("not initialised after {}", scale_up.max_provision_time).into(),
            ),
            _ => continue,
        };
        if !turn.memory.counted_failures.contains(known.name) {
            failed.push((
                known.name.clone(),
                known.pool_name().into(),
                message.0,
                message.1,
            ));
        }
    }
    failed.sort_by(|a, b| (a.2, &a.0).cmp(&(b.2, &b.0)));
    let (first, max) = (scale_up.backoff_first, scale_up.backoff_max);
    for (machine, pool, at, message) in failed {
        turn.memory.counted_failures.insert(machine.clone());
        let message = format!("{machine}: {message}").into();
        let before = turn.memory.backoff.get(&pool);
        let length = match before {
            Some(before) if at.since(before.failed) > reset => first,
            Some(before) if before.until > at => before.length,
            Some(before) => Span(before.length.0.saturating_mul(2)).min(max),
            None => first,
        };
        let until = before.map_or(at + length, |before| before.until.max(at + length));
        turn.memory.backoff.insert(
            pool,
            Backoff {
                until,
                length,
                failed: at.max(before_failed(before)),
                message,
            },
        );
    }
    forget(turn, reset);
}

fn before_failed(before: Option<&Backoff>) -> Time {
    before.map_or(Time::default(), |before| before.failed)
}

fn forget(turn: &mut Turn<'_>, reset: Span) {
    let now = turn.now();
    let machines = &turn.view.snapshot.machines;
    turn.memory
        .counted_failures
        .retain(|name| machines.contains_key(name));
    turn.memory
        .backoff
        .retain(|_, backoff| now.since(backoff.failed) <= reset || backoff.until > now);
}
