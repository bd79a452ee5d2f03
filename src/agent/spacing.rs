//! How long a turn waits for the end of the one before.

use std::time::Duration;

/// From the end of a turn to the next at least: a burst of changes is seen as one or two.
pub(super) const SPACING: Duration = Duration::from_millis(50);
/// After a turn a change in the cluster waits for so many times what the turn cost: where much runs, something
/// changes all the time …
const COSTS: u32 = 50;
/// … and no longer than this.
const LONGEST_SPACING: Duration = Duration::from_secs(1);

/// From the end of a turn to the next one that a change in the cluster calls for.
pub(super) fn spacing(cost: Duration) -> Duration {
    (cost * COSTS).clamp(SPACING, LONGEST_SPACING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_wait_in_proportion_to_what_a_turn_costs() {
        for (micros, millis) in [
            (0, 50),
            (1_000, 50),
            (4_000, 200),
            (22_000, 1_000),
            (9_000_000, 1_000),
        ] {
            let wait = spacing(Duration::from_micros(micros));
            assert_eq!(wait, Duration::from_millis(millis), "{micros} µs");
        }
    }
}
