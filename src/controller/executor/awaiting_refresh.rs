//! Machines whose action ended, until their region was read afresh.
//!
//! What is seen of such a machine is from before: a VM that was destroyed still seems to be there,
//! half made. Acting on that would do it twice, so the machine counts as busy until a reading of
//! its region that began after the action's end. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use crate::model::region::{Busy, RegionName};

/// Machines that are not looked at afresh yet.
#[derive(Debug, Default)]
pub(super) struct AwaitingRefresh {
    machines: BTreeMap<Arc<str>, (Busy, RegionName, Instant)>,
}

impl AwaitingRefresh {
    /// An action on `machine` ended at `now`.
    pub(super) fn ended(
        &mut self,
        machine: Arc<str>,
        busy: Busy,
        region: RegionName,
        now: Instant,
    ) {
        if !planted!(NoSettling) {
            self.machines.insert(machine, (busy, region, now));
        }
    }

    /// Regions were read: `begun` says when the reading of a region's newest view began.
    pub(super) fn saw(&mut self, begun: impl Fn(&RegionName) -> Option<Instant>) {
        self.machines
            .retain(|_, (_, region, ended)| begun(region).is_none_or(|begun| begun <= *ended));
    }

    /// Whether this one is.
    pub(super) fn holds(&self, machine: &str) -> bool {
        self.machines.contains_key(machine)
    }

    /// All of them, with what was done.
    pub(super) fn busy(&self) -> impl Iterator<Item = (Arc<str>, Busy)> {
        self.machines
            .iter()
            .map(|(machine, (busy, ..))| (machine.clone(), *busy))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn a_machine_settles_with_the_first_reading_that_began_after_its_end() {
        let (mut settling, start) = (AwaitingRefresh::default(), Instant::now());
        settling.ended("a".into(), Busy::Down, "north".into(), at(start, 1_000));
        settling.ended("b".into(), Busy::Up, "south".into(), at(start, 2_000));
        for (reading, left) in [
            (None, vec!["a", "b"]),
            (Some(1_000), vec!["a", "b"]),
            (Some(1_001), vec!["b"]),
            (Some(2_001), vec![]),
        ] {
            settling.saw(|_| reading.map(|reading| at(start, reading)));
            let held: Vec<_> = settling.busy().map(|(machine, _)| machine).collect();
            assert_eq!(held, left.into_iter().map(Arc::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_region_that_cannot_be_read_lets_nothing_settle() {
        let (mut settling, start) = (AwaitingRefresh::default(), Instant::now());
        settling.ended("a".into(), Busy::Down, "north".into(), at(start, 1_000));
        settling.saw(|region| (&**region == "south").then_some(at(start, 9_000)));
        assert!(settling.holds("a"));
    }
}
