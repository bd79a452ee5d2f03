//! Which bridges and VNets hosts have for network cards of machines: which host to ask next, and what they told. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::model::region::Region;

/// A host is asked again after this long: somebody may change its interfaces.
const AGAIN: Duration = Duration::from_mins(30);
/// One that did not tell is asked again after this long.
const RETRY: Duration = Duration::from_mins(5);
/// One that lacks a bridge of a template's cards is: somebody makes it.
const LACKING: Duration = Duration::from_mins(1);
/// What a host told stands for this long while it tells nothing more.
const STALE: Duration = Duration::from_hours(2);

/// The bridges that each host of a region told last, and when it was asked.
#[derive(Debug, Default)]
pub(super) struct HostBridges {
    /// By the host's name.
    known: BTreeMap<Arc<str>, BridgesReading>,
    /// The addresses that each host told last, however long ago: one that is off comes back with them.
    addresses: BTreeMap<Arc<str>, BTreeSet<IpAddr>>,
}

/// What a host told of its bridges.
#[derive(Clone, Debug, Default)]
pub(super) struct ToldBridges {
    /// Their names.
    pub(super) names: BTreeSet<Arc<str>>,
    /// The host's addresses on them, and the gateways that it reaches by them.
    pub(super) addresses: BTreeSet<IpAddr>,
}

#[derive(Debug)]
struct BridgesReading {
    at: Instant,
    told: bool,
    last: Option<(Instant, BTreeSet<Arc<str>>)>,
}

impl HostBridges {
    /// The hosts that were never asked. Others than these are forgotten: one that comes back is asked at once.
    pub(super) fn unknown<'a>(
        &mut self,
        hosts: impl Iterator<Item = &'a Arc<str>>,
    ) -> Vec<Arc<str>> {
        let named: BTreeSet<&Arc<str>> = hosts.collect();
        self.known.retain(|host, _| named.contains(host));
        let new = named
            .into_iter()
            .filter(|host| !self.known.contains_key(*host));
        new.cloned().collect()
    }

    /// The host that is asked again at `now`, the one that was asked longest ago, if one is due. `seen`: the region as it was seen last.
    pub(super) fn due(&self, seen: &Region, now: Instant) -> Option<Arc<str>> {
        let copies = seen.templates.values().flatten();
        let wanted: BTreeSet<&Arc<str>> = copies.flat_map(|copy| &copy.bridges).collect();
        let is_due = |reading: &BridgesReading| {
            let lacks = reading
                .last
                .as_ref()
                .is_some_and(|(_, bridges)| wanted.iter().any(|bridge| !bridges.contains(*bridge)));
            let again = match (reading.told, lacks) {
                (false, _) => RETRY,
                (true, true) => LACKING,
                (true, false) => AGAIN,
            };
            now.duration_since(reading.at) >= again
        };
        let due = self.known.iter().filter(|(_, reading)| is_due(reading));
        let first = due.min_by_key(|(_, reading)| reading.at);
        first.map(|(host, _)| host.clone())
    }

    /// A host was asked at `now`; `None`: it did not tell, and what it told before stands for a while.
    pub(super) fn record(&mut self, host: Arc<str>, now: Instant, bridges: Option<ToldBridges>) {
        let before = self.known.remove(&host).and_then(|asked| asked.last);
        if let Some(told) = &bridges {
            let addresses = told.addresses.clone();
            self.addresses.insert(host.clone(), addresses);
        }
        let reading = BridgesReading {
            at: now,
            told: bridges.is_some(),
            last: bridges.map(|told| (now, told.names)).or(before),
        };
        self.known.insert(host, reading);
    }

    /// The bridges of a host, if they are known.
    pub(super) fn of(&self, host: &str, now: Instant) -> Option<&BTreeSet<Arc<str>>> {
        let (at, bridges) = self.known.get(host)?.last.as_ref()?;
        (now.duration_since(*at) < STALE).then_some(bridges)
    }

    /// The addresses of hosts and of their gateways, as each told them last. Those of hosts that are not `there` any more are forgotten.
    pub(super) fn addresses(&mut self, there: impl Fn(&str) -> bool) -> BTreeSet<IpAddr> {
        self.addresses.retain(|host, _| there(host));
        self.addresses.values().flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::region::TemplateCopy;

    fn bridges(names: &[&str]) -> BTreeSet<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn told(names: &[&str]) -> ToldBridges {
        ToldBridges {
            names: bridges(names),
            addresses: BTreeSet::new(),
        }
    }

    /// A region with a template whose machines have a card on `vmbr1`.
    fn region() -> Region {
        let copy = TemplateCopy {
            vmid: 100,
            host: "a".into(),
            shared: true,
            tied: None,
            disk: 0,
            disks: Vec::new(),
            fault: None,
            shared_addresses: BTreeMap::new(),
            bridges: bridges(&["vmbr1"]),
            uuid: None,
            redefined: false,
        };
        let mut region = Region::default();
        region.templates.insert("debian".into(), vec![copy]);
        region
    }

    #[test]
    fn hosts_are_asked_at_first_twice_an_hour_and_sooner_while_they_lack_a_bridge() {
        let hosts: Vec<Arc<str>> = ["a", "b"].map(Arc::from).into();
        let start = Instant::now();
        let after = |minutes| start + Duration::from_mins(minutes);
        let seen = region();
        let mut known = HostBridges::default();
        assert_eq!(known.unknown(hosts.iter()), hosts);
        assert_eq!(known.due(&seen, start), None, "the first time is another's");
        known.record("a".into(), start, Some(told(&["vmbr0", "vmbr1"])));
        assert_eq!(known.unknown(hosts.iter()), hosts[1..]);
        known.record("b".into(), start, Some(told(&["vmbr0"])));
        assert!(known.unknown(hosts.iter()).is_empty());
        // b has not the bridge: it is looked whether somebody made it.
        assert_eq!(known.due(&seen, start + Duration::from_secs(59)), None);
        assert_eq!(known.due(&seen, after(1)).as_deref(), Some("b"));
        known.record("b".into(), after(1), Some(told(&["vmbr0", "vmbr1"])));
        assert_eq!(known.due(&seen, after(29)), None);
        assert_eq!(known.due(&seen, after(30)).as_deref(), Some("a"));
        known.record("a".into(), after(30), None);
        assert_eq!(known.due(&seen, after(31)).as_deref(), Some("b"));
        known.record("b".into(), after(31), Some(told(&["vmbr1"])));
        assert_eq!(known.due(&seen, after(34)), None);
        assert_eq!(known.due(&seen, after(35)).as_deref(), Some("a"));
    }

    #[test]
    fn what_a_host_told_stands_until_it_is_too_old_or_the_host_was_away() {
        let hosts: Vec<Arc<str>> = ["a", "b"].map(Arc::from).into();
        let start = Instant::now();
        let after = |minutes| start + Duration::from_mins(minutes);
        let mut known = HostBridges::default();
        known.record("a".into(), start, Some(told(&["vmbr0"])));
        known.record("b".into(), start, None);
        assert_eq!(known.of("b", start), None);
        known.record("a".into(), after(30), None);
        assert_eq!(known.of("a", after(119)), Some(&bridges(&["vmbr0"])));
        assert_eq!(known.of("a", after(120)), None, "it is too old");
        assert!(known.unknown(hosts[1..].iter()).is_empty());
        assert_eq!(known.of("a", after(60)), None, "it was away");
        assert_eq!(known.unknown(hosts.iter()), hosts[..1]);
    }

    /// It finds a daemon that gives a machine the address of a host that has been off for a while, and one that keeps that of a host which is gone.
    #[test]
    fn the_addresses_of_a_host_stand_until_it_tells_others_or_is_gone() {
        let start = Instant::now();
        let at = |last: u8| IpAddr::from([192, 0, 2, last]);
        let with = |last: u8| ToldBridges {
            names: bridges(&["vmbr0"]),
            addresses: [at(1), at(last)].into(),
        };
        let mut known = HostBridges::default();
        known.record("a".into(), start, Some(with(11)));
        known.record("b".into(), start, Some(with(12)));
        let all = |known: &mut HostBridges| known.addresses(|_| true);
        assert_eq!(all(&mut known), [at(1), at(11), at(12)].into());
        known.record("a".into(), start + 2 * STALE, None);
        assert_eq!(known.of("a", start + 2 * STALE), None);
        assert_eq!(all(&mut known), [at(1), at(11), at(12)].into());
        known.record("a".into(), start + 2 * STALE, Some(with(21)));
        assert_eq!(all(&mut known), [at(1), at(12), at(21)].into());
        // The other one is off: nobody asks it, and it comes back.
        let on: Arc<str> = "a".into();
        known.unknown([&on].into_iter());
        assert_eq!(all(&mut known), [at(1), at(12), at(21)].into());
        let left = known.addresses(|host| host == "a");
        assert_eq!(left, [at(1), at(21)].into());
    }
}
