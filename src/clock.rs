//! The one place that asks what time it is.
//!
//! In a simulation the wall clock follows tokio's paused clock, so that days pass in seconds and
//! every run of a seed sees the same times.

use tokio::time::Instant;

use crate::model::time::{Span, Time};

/// A source of wall-clock time.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The host's clock.
    System,
    /// A clock that began at `epoch` when tokio's clock showed `start`.
    Virtual {
        /// The time shown at the start.
        epoch: Time,
        /// Tokio's time at the start.
        start: Instant,
    },
}

impl Clock {
    /// A virtual clock that shows `epoch` now. Needs a tokio runtime.
    pub fn starting_at(epoch: Time) -> Clock {
        Clock::Virtual {
            epoch,
            start: Instant::now(),
        }
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        match self {
            #[expect(
                clippy::disallowed_methods,
                reason = "the one place that reads the host's clock"
            )]
            Clock::System => Time(jiff::Timestamp::now().as_millisecond()),
            Clock::Virtual { epoch, start } => {
                let elapsed = i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX);
                *epoch + Span(elapsed)
            }
        }
    }
}
