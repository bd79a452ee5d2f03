//! When the definitions of storages are read (`GET /storage`), and what they said: the ZFS pool, export or the like that a storage's volumes
//! lie in, which `GET /cluster/resources` does not tell. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::pve::ClusterResources;

/// The definitions are read again after this long: somebody may edit them.
const AGAIN: Duration = Duration::from_mins(30);
/// They are read again after this long if they could not be read, or if PVE shows a storage that they did not have.
const RETRY: Duration = Duration::from_mins(5);

/// The last answer, and for which storages it was asked.
#[derive(Debug, Default)]
pub(super) struct StorageBackings {
    /// By storage: what its volumes lie in.
    known: BTreeMap<Arc<str>, Arc<str>>,
    /// The storages that PVE showed when the question was asked.
    asked_for: BTreeSet<Arc<str>>,
    /// The last question and whether it was answered.
    last: Option<(Instant, bool)>,
}

impl StorageBackings {
    /// Whether the definitions are read at once: they never were, or there is a storage that they were not read for.
    pub(super) fn is_wanted(&mut self, resources: &ClusterResources, now: Instant) -> bool {
        let shown = resources.storages.values().flat_map(BTreeMap::keys);
        let shown: BTreeSet<Arc<str>> = shown.cloned().collect();
        let new = !shown.is_subset(&self.asked_for);
        let wanted = match self.last {
            None => !shown.is_empty(),
            Some((at, _)) => new && now.duration_since(at) >= RETRY,
        };
        if wanted {
            self.asked_for = shown;
        }
        wanted
    }

    /// Whether they are read again at `now`, as time goes.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.last.is_some_and(|(at, told)| {
            let again = if told { AGAIN } else { RETRY };
            now.duration_since(at) >= again
        })
    }

    /// PVE was asked at `now`; `None`: it did not tell, and what it told before stands.
    pub(super) fn record(&mut self, now: Instant, told: Option<BTreeMap<Arc<str>, Arc<str>>>) {
        self.last = Some((now, told.is_some()));
        if let Some(told) = told {
            self.known = told;
        }
    }

    /// Says what the storages' volumes lie in.
    pub(super) fn apply(&self, resources: &mut ClusterResources) {
        for (name, storage) in resources.storages.values_mut().flatten() {
            storage.backing = self.known.get(name).cloned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pve::StorageResource;

    fn resources(storages: &[&str]) -> ClusterResources {
        let mut resources = ClusterResources::default();
        let of = storages.iter();
        let of = of.map(|name| (Arc::from(*name), StorageResource::default()));
        resources.storages.insert("pve1".into(), of.collect());
        resources
    }

    fn told(name: &str, backing: &str) -> BTreeMap<Arc<str>, Arc<str>> {
        [(name.into(), backing.into())].into()
    }

    #[test]
    fn definitions_are_read_at_first_for_new_storages_and_twice_an_hour() {
        let mut backings = StorageBackings::default();
        let start = Instant::now();
        let after = |minutes| start + Duration::from_mins(minutes);
        let mut one = resources(&["fast"]);
        assert!(!backings.is_due(start), "the first time is another's");
        assert!(!backings.is_wanted(&resources(&[]), start));
        assert!(backings.is_wanted(&one, start));
        backings.record(start, Some(told("fast", "ZFS pool rpool")));
        backings.apply(&mut one);
        let shown = |of: &ClusterResources| of.storages["pve1"]["fast"].backing.clone();
        assert_eq!(shown(&one).as_deref(), Some("ZFS pool rpool"));
        assert!(!backings.is_wanted(&one, after(60)));
        assert!(!backings.is_due(after(29)));
        assert!(backings.is_due(after(30)));
        // One that is new is asked for, and not in each poll.
        let two = resources(&["fast", "slow"]);
        assert!(!backings.is_wanted(&two, after(4)));
        assert!(backings.is_wanted(&two, after(5)));
        // An answer that fails leaves the one before it in force, and is asked for sooner.
        backings.record(after(5), None);
        backings.apply(&mut one);
        assert_eq!(shown(&one).as_deref(), Some("ZFS pool rpool"));
        assert!(!backings.is_wanted(&two, after(20)), "it was asked for");
        assert!(!backings.is_due(after(9)));
        assert!(backings.is_due(after(10)));
        // A storage whose definition is gone is not known any more.
        backings.record(after(10), Some(BTreeMap::new()));
        backings.apply(&mut one);
        assert_eq!(shown(&one), None);
    }
}
