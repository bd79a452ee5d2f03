//! What a machine's disks take, and of which storage: a shared one is one for all hosts, any other one for each host. Where two storages
//! lie in one pool, a disk takes its size of both: what is free on one is what is free on the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::chosen_storages::ChosenStorages;
use model::hosts::StorageFloor;
use model::policy::InstanceType;
use model::region::{RegionName, Storage, TemplateCopy, TemplateDisk};
use model::snapshot::Snapshot;

use crate::index::StorageIndex;

/// Disks that one machine has on one storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Disks {
    pub(crate) storage: StorageIndex,
    /// Bytes.
    pub(crate) size: i64,
    /// What a new machine with these disks leaves free there; `None`: no such bound.
    pub(crate) floor: Option<StorageFloor>,
}

/// One of the ways to lay a machine's disks on the storages of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Layout {
    /// By storage.
    pub(crate) disks: Vec<Disks>,
    /// The storages chosen for them, where the file lists several.
    pub(crate) chosen: ChosenStorages,
}

/// The ways to lay a machine's disks, in the file's order: one where the file names one storage for each disk, or the host has one alone.
pub(crate) type Layouts = Arc<[Layout]>;

/// Of more ways than these the last are left out. Lists for several disks of one machine, all of whose storages are on one host, are what
/// makes them many.
const MOST_LAYOUTS: usize = 64;

/// The indexes of a host's storages, by name.
type OfHost = BTreeMap<Arc<str>, StorageIndex>;

/// The indexes of all storages, by region, host and name: a shared one has one for all hosts, any other one for each host.
#[derive(Debug, Default)]
pub(crate) struct StorageIndexes {
    regions: BTreeMap<RegionName, BTreeMap<Arc<str>, OfHost>>,
    /// By storage: the others that lie in the same pool.
    beside: BTreeMap<StorageIndex, BTreeSet<StorageIndex>>,
    count: usize,
}

impl StorageIndexes {
    /// The indexes of the storages that a snapshot shows.
    pub(crate) fn of(snapshot: &Snapshot) -> StorageIndexes {
        let mut indexes = StorageIndexes::default();
        for (name, region) in &snapshot.regions {
            let mut shared: BTreeMap<&Arc<str>, StorageIndex> = BTreeMap::new();
            let of_region = indexes.regions.entry(name.clone()).or_default();
            for (host, storages) in &region.storages {
                let of_host = of_region.entry(host.clone()).or_default();
                for (storage, seen) in storages {
                    let known = shared.get(storage).copied().filter(|_| seen.shared);
                    let index = known.unwrap_or(StorageIndex(indexes.count));
                    indexes.count = indexes.count.max(index.0 + 1);
                    if seen.shared {
                        shared.insert(storage, index);
                    }
                    of_host.insert(storage.clone(), index);
                }
                for (index, other) in pairs_in_one_pool(storages, of_host) {
                    indexes.beside.entry(index).or_default().insert(other);
                }
            }
        }
        indexes
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The index of a storage of a host.
    pub(crate) fn at(&self, region: &str, host: &str, storage: &str) -> Option<StorageIndex> {
        let of_region = self.regions.get(region)?;
        of_region.get(host)?.get(storage).copied()
    }

    /// The name of a storage.
    pub(crate) fn name(&self, storage: StorageIndex) -> &str {
        let hosts = self.regions.values().flat_map(BTreeMap::values);
        let mut storages = hosts.flatten();
        let found = storages.find(|(_, index)| **index == storage);
        found.map_or("", |(name, _)| name)
    }

    /// What a clone of a template takes on a host as a machine of a type whose disks are on these storages, summed up by storage, and what
    /// it leaves free there. A storage that is not shown counts for nothing.
    pub(crate) fn of_clone(
        &self,
        (region, host): (&str, &str),
        (copy, instance_type, chosen): (&TemplateCopy, &InstanceType, &ChosenStorages),
        floor: Option<StorageFloor>,
    ) -> Vec<Disks> {
        let mut found: Vec<Disks> = Vec::new();
        for disk in &copy.disks {
            let Some(own) = self.at(region, host, chosen.of(disk)) else {
                continue;
            };
            let grown = if disk.boot { instance_type.disk } else { 0 };
            let size = disk.size.max(grown).max(0);
            for storage in self.that_lose(own) {
                match found.iter_mut().find(|of| of.storage == storage) {
                    Some(of) => of.size = of.size.saturating_add(size),
                    None => found.push(Disks {
                        storage,
                        size,
                        floor,
                    }),
                }
            }
        }
        found
    }

    /// The ways to lay the disks of a clone of a template on a host; `usable` are the storages of the file's list for a disk which the
    /// host has.
    pub(crate) fn layouts<'d>(
        &self,
        at: (&str, &str),
        (copy, instance_type): (&'d TemplateCopy, &InstanceType),
        floor: Option<StorageFloor>,
        usable: impl Fn(&'d TemplateDisk) -> Vec<&'d Arc<str>>,
    ) -> Layouts {
        let mut ways = vec![ChosenStorages::default()];
        for disk in copy.disks.iter().filter(|disk| !disk.or.is_empty()) {
            // Disks that are made together come to one storage.
            if ways
                .iter()
                .any(|way| way.at(disk.slot.as_deref()).is_some())
            {
                continue;
            }
            let names = usable(disk);
            let further = ways.iter().flat_map(|way| {
                names.iter().map(move |name| {
                    let mut further = way.clone();
                    further.choose(disk.slot.as_ref(), (*name).clone());
                    further
                })
            });
            ways = further.take(MOST_LAYOUTS).collect();
        }
        let layout = |chosen: ChosenStorages| Layout {
            disks: self.of_clone(at, (copy, instance_type, &chosen), floor),
            chosen,
        };
        ways.into_iter().map(layout).collect()
    }

    /// What a VM has on its host.
    pub(crate) fn of_vm(
        &self,
        (region, host): (&str, &str),
        disks: &BTreeMap<Arc<str>, i64>,
    ) -> impl Iterator<Item = Disks> {
        let placed = disks.iter().filter_map(move |(name, size)| {
            let own = self.at(region, host, name)?;
            Some((own, (*size).max(0)))
        });
        placed.flat_map(|(own, size)| {
            let storages = self.that_lose(own);
            storages.map(move |storage| Disks {
                storage,
                size,
                floor: None,
            })
        })
    }

    /// The storages that have less free when a disk is made on one: that one first.
    fn that_lose(&self, own: StorageIndex) -> impl Iterator<Item = StorageIndex> {
        let beside = self.beside.get(&own).into_iter().flatten().copied();
        std::iter::once(own).chain(beside)
    }
}

/// Two different storages of a host that lie in one pool, each pair in both orders.
fn pairs_in_one_pool(
    storages: &BTreeMap<Arc<str>, Storage>,
    indexes: &OfHost,
) -> impl Iterator<Item = (StorageIndex, StorageIndex)> {
    let placed = || {
        storages.iter().filter_map(|(name, storage)| {
            let backing = storage.backing.as_deref()?;
            Some((backing, *indexes.get(name)?))
        })
    };
    placed().flat_map(move |(backing, index)| {
        let others = placed().filter(move |(of, other)| *of == backing && *other != index);
        others.map(move |(_, other)| (index, other))
    })
}
