//! Holds a paused clock back, so that simulated time passes as fast as a person wants and no faster.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Simulated time between two looks at the wall clock.
const STEP: Duration = Duration::from_millis(100);

/// Never ends; `speed` simulated seconds pass in a second at most.
#[expect(
    clippy::disallowed_methods,
    reason = "here the simulation meets the time of the person who looks"
)]
pub(super) async fn hold_back(speed: u32) {
    let (simulated, real) = (Instant::now(), std::time::Instant::now());
    loop {
        sleep(STEP).await;
        let due = simulated.elapsed() / speed;
        if let Some(early) = due.checked_sub(real.elapsed()) {
            // The whole world runs on this thread: holding it holds the world.
            std::thread::sleep(early);
        }
    }
}
