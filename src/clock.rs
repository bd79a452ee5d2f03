//! The one place that asks what time it is.
//!
//! In a simulation the wall clock follows tokio's paused clock, so that days pass in seconds and
//! every run of a seed sees the same times.

use std::sync::atomic::{AtomicI64, Ordering};

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
    /// A virtual clock that is set while it goes: the clock of a simulated host.
    Settable {
        /// What it would show had nobody set it, and tokio's time then.
        base: (Time, Instant),
        /// How far it was set ahead since, in milliseconds; negative: back.
        ahead: &'static AtomicI64,
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

    /// A virtual clock that shows `epoch` now and is set by [`Clock::set_ahead`]. Needs a tokio
    /// runtime. What holds its setting is never given back: simulations make few of these.
    pub fn settable(epoch: Time) -> Clock {
        Clock::Settable {
            base: (epoch, Instant::now()),
            ahead: Box::leak(Box::new(AtomicI64::new(0))),
        }
    }

    /// Sets a settable clock ahead of what it shows, or back; no other clock can be set.
    pub fn set_ahead(&self, by: Span) {
        if let Clock::Settable { ahead, .. } = self {
            ahead.fetch_add(by.0, Ordering::Relaxed);
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
            Clock::Settable { base, ahead } => {
                let elapsed = i64::try_from(base.1.elapsed().as_millis()).unwrap_or(i64::MAX);
                base.0 + Span(elapsed) + Span(ahead.load(Ordering::Relaxed))
            }
        }
    }
}
