//! What a machine's disks take, and of which storage: a shared one is one for all hosts, any other one for each host. Where two storages
//! lie in one pool, a disk takes its size of both: what is free on one is what is free on the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::hosts::StorageFloor;
use model::policy::InstanceType;
use model::region::{RegionName, Storage, TemplateCopy};
use model::snapshot::Snapshot;

/// Disks that one machine has on one storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Disks {
    /// Place of the storage among those of all regions.
    pub(crate) slot: usize,
    /// Bytes.
    pub(crate) size: i64,
    /// What a new machine with these disks leaves free there; `None`: no such bound.
    pub(crate) floor: Option<StorageFloor>,
}

/// The places of a host's storages, by name.
type OfHost = BTreeMap<Arc<str>, usize>;

/// The places of all storages, by region, host and name.
#[derive(Debug, Default)]
pub(crate) struct StorageSlots {
    regions: BTreeMap<RegionName, BTreeMap<Arc<str>, OfHost>>,
    /// The places of other storages that lie in the same pool as the one at this place.
    beside: BTreeMap<usize, BTreeSet<usize>>,
    count: usize,
}

impl StorageSlots {
    /// The places of the storages that a snapshot shows.
    pub(crate) fn of(snapshot: &Snapshot) -> StorageSlots {
        let mut slots = StorageSlots::default();
        for (name, region) in &snapshot.regions {
            let mut shared: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
            let of_region = slots.regions.entry(name.clone()).or_default();
            for (host, storages) in &region.storages {
                let of_host = of_region.entry(host.clone()).or_default();
                for (storage, seen) in storages {
                    let known = shared.get(storage).copied().filter(|_| seen.shared);
                    let slot = known.unwrap_or(slots.count);
                    slots.count = slots.count.max(slot + 1);
                    if seen.shared {
                        shared.insert(storage, slot);
                    }
                    of_host.insert(storage.clone(), slot);
                }
                for (slot, other) in pairs_in_one_pool(storages, of_host) {
                    slots.beside.entry(slot).or_default().insert(other);
                }
            }
        }
        slots
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The place of a storage of a host.
    pub(crate) fn at(&self, region: &str, host: &str, storage: &str) -> Option<usize> {
        let of_region = self.regions.get(region)?;
        of_region.get(host)?.get(storage).copied()
    }

    /// The name of the storage at a place.
    pub(crate) fn name(&self, slot: usize) -> &str {
        let hosts = self.regions.values().flat_map(BTreeMap::values);
        let mut storages = hosts.flatten();
        let found = storages.find(|(_, at)| **at == slot);
        found.map_or("", |(name, _)| name)
    }

    /// What a clone of a template takes on a host as a machine of a type, summed up by storage, and what it leaves free there. A
    /// storage that is not shown counts for nothing.
    pub(crate) fn of_clone(
        &self,
        (region, host): (&str, &str),
        (copy, instance_type): (&TemplateCopy, &InstanceType),
        floor: Option<StorageFloor>,
    ) -> Vec<Disks> {
        let mut found: Vec<Disks> = Vec::new();
        for disk in &copy.disks {
            let Some(own_slot) = self.at(region, host, &disk.storage) else {
                continue;
            };
            let grown = if disk.boot { instance_type.disk } else { 0 };
            let size = disk.size.max(grown).max(0);
            for slot in self.that_lose(own_slot) {
                match found.iter_mut().find(|of| of.slot == slot) {
                    Some(of) => of.size = of.size.saturating_add(size),
                    None => found.push(Disks { slot, size, floor }),
                }
            }
        }
        found
    }

    /// What a VM has on its host.
    pub(crate) fn of_vm(
        &self,
        (region, host): (&str, &str),
        disks: &BTreeMap<Arc<str>, i64>,
    ) -> impl Iterator<Item = Disks> {
        let placed = disks.iter().filter_map(move |(storage, size)| {
            let slot = self.at(region, host, storage)?;
            Some((slot, (*size).max(0)))
        });
        placed.flat_map(|(slot, size)| {
            let slots = self.that_lose(slot);
            slots.map(move |slot| Disks {
                slot,
                size,
                floor: None,
            })
        })
    }

    /// The places of the storages that have less free when a disk is made on the one at a place: itself first.
    fn that_lose(&self, slot: usize) -> impl Iterator<Item = usize> {
        let beside = self.beside.get(&slot).into_iter().flatten().copied();
        std::iter::once(slot).chain(beside)
    }
}

/// The places of two different storages of a host that lie in one pool, each pair in both orders.
fn pairs_in_one_pool(
    storages: &BTreeMap<Arc<str>, Storage>,
    slots: &OfHost,
) -> impl Iterator<Item = (usize, usize)> {
    let placed = || {
        storages.iter().filter_map(|(name, storage)| {
            let backing = storage.backing.as_deref()?;
            Some((backing, *slots.get(name)?))
        })
    };
    placed().flat_map(move |(backing, slot)| {
        let others = placed().filter(move |(of, other)| *of == backing && *other != slot);
        others.map(move |(_, other)| (slot, other))
    })
}
