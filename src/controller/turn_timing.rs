//! When the next turn comes: which changes of the cluster call for one, and how long it waits for the end of the one
//! before.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::kubernetes::ChangeCounts;

/// The least time from the end of a turn to the next: a burst of changes is seen as one or two.
pub(super) const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);
/// After a turn a change in the cluster waits for this many times what the turn cost: where much runs, something
/// changes all the time …
const COSTS: u32 = 150;
/// … and no longer than this.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

/// How soon changes of the cluster call for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TurnUrgency {
    /// Not at all: who turns for another reason sees them.
    None,
    /// After the spacing.
    Unhurried,
    /// At once.
    AtOnce,
}

/// From the end of a turn to the next one that a change in the cluster calls for.
pub(super) fn interval_after(cost: Duration) -> Duration {
    (cost * COSTS).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
}

/// From when on changes of the cluster are answered, and which are not.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerTimes {
    /// Changes other than that a pod waits.
    pub(super) unhurried: Instant,
    /// That a pod waits: later than at once where the last such turn was for nothing.
    pub(super) hurried: Instant,
    /// A batch of pods is being waited for, and its end is known.
    pub(super) filling: bool,
}

/// Waits for a change of the cluster since `seen` that calls for a turn.
pub(super) async fn wait_for_change(
    changes: &mut watch::Receiver<ChangeCounts>,
    seen: ChangeCounts,
    answers: AnswerTimes,
) {
    loop {
        let now = *changes.borrow_and_update();
        let from = match urgency(seen, now, answers.filling) {
            TurnUrgency::AtOnce => Some(answers.hurried.min(answers.unhurried)),
            TurnUrgency::Unhurried => Some(answers.unhurried),
            TurnUrgency::None => None,
        };
        match from {
            Some(from) => {
                tokio::select! {
                    () = sleep_until(from) => return,
                    _ = changes.changed() => {}
                }
            }
            None => {
                // The store outlives the loop.
                let _ = changes.changed().await;
            }
        }
    }
}

/// What the changes from one moment to another call for.
fn urgency(before: ChangeCounts, after: ChangeCounts, filling: bool) -> TurnUrgency {
    let others =
        |changes: ChangeCounts| (changes.pods, changes.nodes, changes.other, changes.sources);
    if after.unschedulable != before.unschedulable && !filling {
        TurnUrgency::AtOnce
    } else if others(after) != others(before) {
        TurnUrgency::Unhurried
    } else {
        TurnUrgency::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_wait_in_proportion_to_what_a_turn_costs() {
        for (micros, millis) in [
            (0, 50),
            (300, 50),
            (2_000, 300),
            (6_000, 900),
            (22_000, 1_000),
            (9_000_000, 1_000),
        ] {
            let wait = interval_after(Duration::from_micros(micros));
            assert_eq!(wait, Duration::from_millis(millis), "{micros} µs");
        }
    }

    #[test]
    fn a_pod_that_waits_is_answered_at_once_unless_its_batch_fills() {
        let before = ChangeCounts::default();
        let pod = ChangeCounts {
            unschedulable: 1,
            ..before
        };
        assert_eq!(urgency(before, pod, false), TurnUrgency::AtOnce);
        assert_eq!(urgency(before, pod, true), TurnUrgency::None);
        let node = ChangeCounts { nodes: 1, ..pod };
        assert_eq!(urgency(before, node, false), TurnUrgency::AtOnce);
        assert_eq!(urgency(before, node, true), TurnUrgency::Unhurried);
        let quiet = ChangeCounts { quiet: 9, ..before };
        assert_eq!(urgency(before, quiet, false), TurnUrgency::None);
        assert_eq!(urgency(before, before, false), TurnUrgency::None);
    }
}
