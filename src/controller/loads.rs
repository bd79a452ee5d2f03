//! How loaded hosts are, where a pool bounds that: which to ask next, and what they told. Pure.
//!
//! PVE's own averages of a minute are averaged over some minutes: a short peak closes no host.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::model::region::HostLoad;

/// A host is asked again after this long: PVE has a new average each minute.
const AGAIN: Duration = Duration::from_secs(55);
/// A host that has told nothing for this long has a load that nobody knows.
const STALE: Duration = Duration::from_mins(5);

/// The load that each host of a region told last, and when it was asked.
#[derive(Debug, Default)]
pub(super) struct HostLoads {
    /// By the host's name.
    known: BTreeMap<Arc<str>, LoadReading>,
}

#[derive(Debug)]
struct LoadReading {
    at: Instant,
    last: Option<(Instant, HostLoad)>,
}

impl HostLoads {
    /// The hosts that are to be asked at `now`, those asked longest ago first. Others than these are forgotten.
    pub(super) fn due<'a>(
        &mut self,
        hosts: impl Iterator<Item = &'a Arc<str>>,
        now: Instant,
    ) -> Vec<Arc<str>> {
        let named: Vec<&Arc<str>> = hosts.collect();
        self.known.retain(|host, _| named.contains(&host));
        let asked = |host: &Arc<str>| self.known.get(host).map(|asked| asked.at);
        let due = |host: &&Arc<str>| asked(host).is_none_or(|at| now.duration_since(at) >= AGAIN);
        let mut due: Vec<Arc<str>> = named.into_iter().filter(due).cloned().collect();
        due.sort_by_key(asked);
        due
    }

    /// A host was asked at `now`; `None`: it did not tell, and what it told before stands for a while.
    pub(super) fn record(&mut self, host: Arc<str>, now: Instant, load: Option<HostLoad>) {
        let before = self.known.remove(&host).and_then(|asked| asked.last);
        let last = load.map(|load| (now, load)).or(before);
        self.known.insert(host, LoadReading { at: now, last });
    }

    /// How loaded a host is, if that is known.
    pub(super) fn of(&self, host: &str, now: Instant) -> Option<HostLoad> {
        let (at, load) = self.known.get(host)?.last?;
        (now.duration_since(at) < STALE).then_some(load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_told_stands_until_it_is_too_old() {
        let hosts: Vec<Arc<str>> = ["a", "b"].map(Arc::from).into();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut loads = HostLoads::default();
        assert_eq!(loads.due(hosts.iter(), start), hosts);
        let load = HostLoad {
            cpu: Some(500),
            ..HostLoad::default()
        };
        loads.record("a".into(), start, Some(load));
        assert_eq!(loads.due(hosts.iter(), after(30)), hosts[1..]);
        loads.record("b".into(), after(30), None);
        assert_eq!(loads.due(hosts.iter(), after(60)), hosts[..1]);
        loads.record("a".into(), after(60), None);
        assert_eq!(loads.of("a", after(299)), Some(load));
        assert_eq!(loads.of("a", after(300)), None, "it is too old");
        assert_eq!(loads.of("b", after(60)), None);
        assert_eq!(loads.due(hosts[1..].iter(), after(400)), hosts[1..]);
        assert_eq!(loads.of("a", after(100)), None, "it is no host any more");
    }
}
