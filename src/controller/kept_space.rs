//! Bytes that file systems keep for root: ext4 keeps a twentieth, and PVE cannot put disks there. `GET /cluster/resources` tells a
//! storage's size and use and not what is free, so that each storage is asked by itself: which one next, and what it answered. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::controller::region::silent_hosts::SilentHosts;
use crate::pve::ClusterResources;

/// A storage is asked again after this long: what is kept changes when somebody makes or tunes the file system.
const AGAIN: Duration = Duration::from_mins(30);
/// One that did not tell is asked again after this long.
const RETRY: Duration = Duration::from_mins(5);

/// A storage as a host sees it.
type StorageAt = (Arc<str>, Arc<str>);

/// The last answer of each storage that has images as files: the bytes kept for root, and the time of the question.
#[derive(Debug, Default)]
pub(super) struct KeptSpace {
    /// By host and storage; a shared one by the host that was asked.
    known: BTreeMap<StorageAt, KeptReading>,
}

#[derive(Debug)]
struct KeptReading {
    at: Instant,
    told: bool,
    /// Bytes.
    kept: i64,
}

impl KeptSpace {
    /// Storages that were never asked, each on a host that answers. Others than those that there are, are forgotten.
    pub(super) fn unknown(
        &mut self,
        resources: &ClusterResources,
        silent: &SilentHosts,
    ) -> Vec<StorageAt> {
        // PVE lists the storages of a host that is off, too, so that their last answers are not forgotten.
        self.known.retain(|(host, name), _| {
            let of = resources.storages.get(host);
            of.is_some_and(|of| of.contains_key(name))
        });
        let mut all = asked(resources, silent);
        all.retain(|at| !self.known.contains_key(at));
        all
    }

    /// The storage that was asked longest ago, if it is to be asked again at `now`.
    pub(super) fn due(
        &self,
        resources: &ClusterResources,
        silent: &SilentHosts,
        now: Instant,
    ) -> Option<StorageAt> {
        let all = asked(resources, silent).into_iter();
        let known = all.filter_map(|at| Some((self.known.get(&at)?, at)));
        let due = known.filter(|(reading, _)| {
            let again = if reading.told { AGAIN } else { RETRY };
            now.duration_since(reading.at) >= again
        });
        due.min_by_key(|(reading, _)| reading.at).map(|(_, at)| at)
    }

    /// A storage was asked at `now`; `None`: it did not tell, and what it told before stands.
    pub(super) fn record(&mut self, at: StorageAt, now: Instant, kept: Option<i64>) {
        let before = self.known.get(&at).map_or(0, |reading| reading.kept);
        let reading = KeptReading {
            at: now,
            told: kept.is_some(),
            kept: kept.unwrap_or(before),
        };
        self.known.insert(at, reading);
    }

    /// Says what is kept.
    pub(super) fn apply(&self, resources: &mut ClusterResources) {
        for (host, storages) in &mut resources.storages {
            for (name, storage) in storages {
                let known = if storage.shared {
                    let mut known = self.known.iter();
                    let known = known.find(|((_, of), _)| of == name);
                    known.map(|(_, reading)| reading)
                } else {
                    self.known.get(&(host.clone(), name.clone()))
                };
                storage.kept = known.map_or(0, |reading| reading.kept);
            }
        }
    }
}

/// The storages on file systems that are asked, each on a host: a shared one on the first that is online and answers.
fn asked(resources: &ClusterResources, silent: &SilentHosts) -> Vec<StorageAt> {
    let mut all: Vec<StorageAt> = Vec::new();
    for (host, storages) in &resources.storages {
        if !resources.is_online(host) || silent.has(host) {
            continue;
        }
        for (name, storage) in storages {
            let seen = |at: &StorageAt| storage.shared && at.1 == *name;
            if storage.active && storage.has_files_of_images() && !all.iter().any(seen) {
                all.push((host.clone(), name.clone()));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pve::{HostResource, StorageResource};

    fn resources(hosts: &[&str]) -> ClusterResources {
        let storage = |plugin: &str, shared: bool| StorageResource {
            active: true,
            shared,
            total: 100,
            used: 10,
            plugin: plugin.into(),
            content: vec!["images".to_owned()],
            ..StorageResource::default()
        };
        let storages: BTreeMap<Arc<str>, StorageResource> = [
            ("local".into(), storage("dir", false)),
            ("share".into(), storage("nfs", true)),
            ("thin".into(), storage("lvmthin", false)),
        ]
        .into();
        let mut resources = ClusterResources::default();
        for host in ["a", "b"] {
            let host: Arc<str> = host.into();
            let online = hosts.contains(&&*host);
            let of = HostResource {
                online,
                ..HostResource::default()
            };
            resources.hosts.insert(host.clone(), of);
            resources.storages.insert(host, storages.clone());
        }
        resources
    }

    #[test]
    fn each_file_system_is_asked_once_in_half_an_hour_and_a_shared_one_on_one_host() {
        let (mut kept, none) = (KeptSpace::default(), SilentHosts::default());
        let start = Instant::now();
        let at = |host: &str, storage: &str| (Arc::from(host), Arc::from(storage));
        let mut both = resources(&["a", "b"]);
        let new = kept.unknown(&both, &none);
        assert_eq!(new, [at("a", "local"), at("a", "share"), at("b", "local")]);
        let after = |minutes| start + Duration::from_mins(minutes);
        kept.record(at("a", "local"), start, Some(5));
        kept.record(at("a", "share"), after(1), Some(7));
        kept.record(at("b", "local"), after(2), None);
        assert_eq!(kept.unknown(&both, &none), []);
        assert_eq!(kept.due(&both, &none, after(6)), None);
        assert_eq!(kept.due(&both, &none, after(7)), Some(at("b", "local")));
        assert_eq!(kept.due(&both, &none, after(30)), Some(at("a", "local")));
        kept.apply(&mut both);
        let free =
            |of: &ClusterResources, host: &str, storage: &str| of.storages[host][storage].free();
        assert_eq!(free(&both, "a", "local"), 85);
        assert_eq!(free(&both, "b", "local"), 90);
        assert_eq!(free(&both, "b", "share"), 83);
        assert_eq!(free(&both, "b", "thin"), 90);
        // A question that fails leaves the answer before it in force.
        kept.record(at("a", "local"), after(30), None);
        kept.apply(&mut both);
        assert_eq!(free(&both, "a", "local"), 85);
        // The host that was asked for the shared one is off.
        let other = resources(&["b"]);
        assert_eq!(kept.unknown(&other, &none), [at("b", "share")]);
        assert_eq!(kept.due(&other, &none, after(60)), Some(at("b", "local")));
    }
}
