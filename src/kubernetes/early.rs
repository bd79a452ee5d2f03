//! Timestamps that lie in the future: the API server's clock is ahead of ours, or ours was set back.
//!
//! What was made later than now is taken for made when it was first seen. Otherwise nothing that
//! waits for its age would ever come to an end, or only once the clock has caught up.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::cluster::{Node, Pod};
use crate::model::time::{Span, Time};

/// What was read in the future is remembered until it lies this far in the past.
const KEPT: Span = Span::minutes(60);

/// Which times of which objects lay in the future, and when that was seen first.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// The time by which objects are read; `None` takes every time as it is.
    now: Option<Time>,
    /// By the object's UID and the field: the time that was read, and the one in its place.
    seen: BTreeMap<(Arc<str>, &'static str), (Time, Time)>,
}

impl Early {
    /// From now on objects are read at `now`.
    pub(super) fn at(&mut self, now: Time) {
        self.now = Some(now);
        self.seen.retain(|_, (read, _)| *read + KEPT > now);
    }

    /// Puts the time of the first sight in the place of one in the future.
    pub(super) fn tame(&mut self, uid: &Arc<str>, field: &'static str, time: &mut Time) {
        let Some(now) = self.now else { return };
        if *time <= now && self.seen.is_empty() {
            return;
        }
        let key = (uid.clone(), field);
        match self.seen.get(&key) {
            Some((read, first)) if *read == *time || *first == *time => *time = *first,
            _ if *time > now => {
                self.seen.insert(key, (*time, now));
                *time = now;
            }
            _ => {}
        }
    }

    /// Tames all of a node's times that lie in the past of every right clock.
    pub(super) fn tame_node(&mut self, node: &mut Node) {
        let uid = node.uid.clone();
        self.tame(&uid, "created", &mut node.created);
        if let Some(since) = &mut node.ready.since {
            self.tame(&uid, "ready", since);
        }
    }

    /// Makes a hostile pod harmless, as `tame_node` does with a node.
    pub(super) fn tame_pod(&mut self, pod: &mut Pod) {
        let uid = pod.uid.clone();
        self.tame(&uid, "created", &mut pod.created);
        if let Some(since) = &mut pod.unschedulable_since {
            self.tame(&uid, "unschedulable", since);
        }
    }

    /// The clock was set by `by`: what was first seen at a time was seen so much later, or earlier.
    pub(super) fn step(&mut self, by: Span) {
        for (_, first) in self.seen.values_mut() {
            *first = *first + by;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_the_future_is_as_old_as_it_was_first_seen() {
        let mut early = Early::default();
        let uid: Arc<str> = "u".into();
        let read = |early: &mut Early, now: i64, time: i64| {
            early.at(Time(now));
            let mut time = Time(time);
            early.tame(&uid, "created", &mut time);
            time.0
        };
        assert_eq!(read(&mut early, 1_000, 900), 900, "the past is as it is");
        assert_eq!(read(&mut early, 1_000, 9_000), 1_000);
        assert_eq!(read(&mut early, 5_000, 9_000), 1_000, "it ages");
        assert_eq!(
            read(&mut early, 9_500, 9_000),
            1_000,
            "also once it is no future any more"
        );
        assert_eq!(
            read(&mut early, 9_500, 9_600),
            9_500,
            "another time is another one"
        );
        let long_after = 9_600 + KEPT.0;
        assert_eq!(
            read(&mut early, long_after, 9_600),
            9_600,
            "nothing is kept for ever"
        );
    }

    #[test]
    fn who_has_no_clock_takes_every_time_as_it_is() {
        let mut time = Time(9_000);
        Early::default().tame(&"u".into(), "created", &mut time);
        assert_eq!(time, Time(9_000));
    }
}
