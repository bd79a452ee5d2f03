//! Steps of the host's clock. Pure.
//!
//! Between two steps the wall clock goes as the monotonic one. Where it does not, somebody set it
//! (time synchronisation after a boot, a person), or the host slept. Timers must not ring for that,
//! nor stand still until the clock has caught up: whatever is remembered is moved by the step, so
//! that it is as long ago as it was.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::time::{Span, Time};

/// A difference up to this is no step: clocks are read one after another, and slewed.
const TOLERANCE: Span = Span::seconds(2);

/// Watches the wall clock.
#[derive(Debug, Default)]
pub(super) struct ClockSteps {
    last: Option<(Instant, Time)>,
}

impl ClockSteps {
    /// The wall clock shows `wall` at `at`. Gives by how much it was set since the last look;
    /// negative: back.
    pub(super) fn look(&mut self, at: Instant, wall: Time) -> Option<Span> {
        let last = self.last.replace((at, wall));
        let (then, before) = last?;
        let expected = before + ceil(at.saturating_duration_since(then));
        let step = Span(wall.0 - expected.0);
        (step.0.abs() > TOLERANCE.0).then_some(step)
    }
}

/// A duration in whole milliseconds, rounded up: what is said to be old is at least so old.
pub(super) fn ceil(duration: Duration) -> Span {
    let millis = duration.as_micros().div_ceil(1_000);
    Span(i64::try_from(millis).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_the_clock_shows_beyond_the_time_that_passed_is_a_step() {
        let mut steps = ClockSteps::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for (seconds, wall, step) in [
            (0, 1_000, None),
            (10, 11_000, None),
            (20, 21_900, None),
            (30, 3_631_900, Some(3_600)),
            (40, 3_641_900, None),
            (50, 51_900, Some(-3_600)),
            (60, 61_900, None),
        ] {
            let seen = steps.look(at(seconds), Time(wall));
            assert_eq!(seen, step.map(Span::seconds), "at {seconds} s");
        }
    }
}
