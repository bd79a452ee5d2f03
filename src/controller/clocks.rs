//! The clocks of a region's hosts beside ours: which to ask next, and how far each is ahead. Pure.
//!
//! Guests begin with their host's clock, and tokens and certificates are made with times in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::time::{Span, Time};

/// A host's clock is asked for again after this long: clocks drift slowly.
const AGAIN: Span = Span::minutes(30);
/// PVE truncates its time to seconds: half a second is added on average.
const HALF_SECOND: Span = Span(500);

/// What is known of the clocks.
#[derive(Debug, Default)]
pub(super) struct HostClocks {
    known: BTreeMap<Arc<str>, ClockReading>,
}

#[derive(Debug)]
struct ClockReading {
    at: Time,
    ahead: Option<Span>,
}

impl HostClocks {
    /// The host whose clock is to be asked for at `now`: one never asked, else the one asked longest
    /// ago, if that is long. Hosts that are not named any more are forgotten.
    pub(super) fn due<'a>(
        &mut self,
        hosts: impl Iterator<Item = &'a Arc<str>> + Clone,
        now: Time,
    ) -> Option<Arc<str>> {
        let named: Vec<&Arc<str>> = hosts.collect();
        self.known.retain(|host, _| named.contains(&host));
        let asked = |host: &Arc<str>| self.known.get(host).map(|asked| asked.at);
        let oldest = named.into_iter().min_by_key(|host| asked(host))?;
        asked(oldest)
            // Also when ours was set back since.
            .is_none_or(|at| now.since(at) > AGAIN || now < at)
            .then(|| oldest.clone())
    }

    /// A host was asked at `sent` and told `theirs` at `came`; `None`: it did not tell.
    pub(super) fn record(&mut self, host: Arc<str>, sent: Time, theirs: Option<Time>, came: Time) {
        let ahead = theirs.map(|theirs| ahead(sent, theirs, came));
        self.known.insert(host, ClockReading { at: came, ahead });
    }

    /// How far a host's clock is ahead of ours, if it is known; negative: behind.
    pub(super) fn ahead(&self, host: &str) -> Option<Span> {
        self.known.get(host)?.ahead
    }
}

/// How far a clock that told `theirs` to a question of `sent`, answered at `came`, is ahead of ours: right to half
/// the question's way and half a second.
pub fn ahead(sent: Time, theirs: Time, came: Time) -> Span {
    let ours = i64::midpoint(sent.0, came.0);
    Span((theirs + HALF_SECOND).0.saturating_sub(ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_is_asked_once_and_then_each_in_its_turn() {
        let hosts: Vec<Arc<str>> = ["a", "b"].map(Arc::from).into();
        let mut clocks = HostClocks::default();
        let mut asked = Vec::new();
        for minute in 0..100 {
            let now = Time(0) + Span::minutes(minute);
            if let Some(host) = clocks.due(hosts.iter(), now) {
                clocks.record(host.clone(), now, Some(now + Span::seconds(7)), now);
                asked.push((minute, host));
            }
        }
        let turns: Vec<(i64, &str)> = asked.iter().map(|(at, host)| (*at, &**host)).collect();
        let wanted = [
            (0, "a"),
            (1, "b"),
            (31, "a"),
            (32, "b"),
            (62, "a"),
            (63, "b"),
            (93, "a"),
            (94, "b"),
        ];
        assert_eq!(turns, wanted);
        assert_eq!(clocks.ahead("a"), Some(Span(7_500)));
        let later = Time(0) + Span::minutes(99);
        assert_eq!(clocks.due(hosts[1..].iter(), later), None);
        assert_eq!(clocks.ahead("a"), None, "it is no host any more");
    }

    #[test]
    fn a_host_that_does_not_tell_is_not_asked_at_every_turn() {
        let host: Arc<str> = "a".into();
        let mut clocks = HostClocks::default();
        clocks.record(host.clone(), Time(0), None, Time(0));
        assert_eq!(clocks.due([&host].into_iter(), Time(60_000)), None);
        assert_eq!(clocks.ahead("a"), None);
    }

    #[test]
    fn the_questions_way_does_not_count_twice() {
        assert_eq!(ahead(Time(10_000), Time(11_000), Time(12_000)), Span(500));
        assert_eq!(ahead(Time(10_000), Time(1_000), Time(10_000)), Span(-8_500));
    }
}
