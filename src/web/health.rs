//! Whether the daemon lives and can work, with reasons.

use std::time::Duration;

use tokio::time::Instant;

use crate::config;
use crate::controller::trouble;
use crate::controller::turn::Turn;
use crate::model::time::Span;

/// A turn must have ended within this time. The loop rests half a minute at most, and a turn over
/// a large cluster takes seconds; the watchdog of the service is of the same size.
pub const LIVE_LIMIT: Duration = Duration::from_secs(90);

/// How the loop is. Its owner sends a new one after every turn.
#[derive(Clone, Debug)]
pub struct Health {
    /// When the last turn ended; when the program started, before the first.
    pub beat: Instant,
    /// Why the daemon cannot work, one reason each; empty when it can.
    pub problems: Vec<String>,
}

impl Health {
    /// Before the first turn.
    pub fn starting(now: Instant) -> Health {
        Health {
            beat: now,
            problems: vec!["starting: no turn has ended yet".to_owned()],
        }
    }

    /// Running without a configuration: alive, with nothing to do. To be sent again and again.
    pub fn not_configured(file: &str, now: Instant) -> Health {
        Health {
            beat: now,
            problems: vec![config::not_configured(file)],
        }
    }

    /// After a turn. `max_view_age` is the age beyond which the brain does not act on a view.
    pub fn after(turn: &Turn, max_view_age: Span, now: Instant) -> Health {
        let troubles = trouble::find(&turn.snapshot, max_view_age, turn.at);
        let hindering = troubles.iter().filter(|trouble| trouble.hinders);
        let problems = hindering.map(ToString::to_string).collect();
        Health {
            beat: now,
            problems,
        }
    }

    /// Why the loop counts as dead; empty when it turns.
    pub(super) fn live(&self, now: Instant) -> Vec<String> {
        let rest = now.saturating_duration_since(self.beat);
        if rest > LIVE_LIMIT {
            vec![format!(
                "no turn of the loop has ended for {} s, at most {} s are usual",
                rest.as_secs(),
                LIVE_LIMIT.as_secs()
            )]
        } else {
            Vec::new()
        }
    }

    /// Why the daemon cannot work; empty when it can.
    pub(super) fn ready(&self, now: Instant) -> Vec<String> {
        let mut reasons = self.live(now);
        reasons.extend(self.problems.iter().cloned());
        reasons
    }
}
