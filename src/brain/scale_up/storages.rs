//! What storages have room for: disks of machines that are there, that are being made and that are planned.
//!
//! Plain numbers: the limits of one decision and the search for its plan reckon with the same.

use std::collections::BTreeMap;

use model::hosts::StorageFloor;
use model::reasons::HostRefused;
use model::region::Storage;
use model::store_states::StorageState;

use crate::decision::turn::DecisionBuilder;
use crate::index::{IndexVec, StorageIndex};
use crate::simulation::disks::{Disks, StorageIndexes};

/// A storage: a shared one once, any other for each host that has it.
#[derive(Clone, Debug, Hash)]
pub(crate) struct StorageRoom {
    /// What is free; 0 where that is not known.
    free: i64,
    /// What is in use.
    used: i64,
    /// The storage's size in bytes; 0 where that is not known.
    total: i64,
    /// What disks of machines and all else may come to; `None` where a disk takes its space when it is made.
    most: Option<i64>,
    /// Sizes of the disks of machines, those that are planned included.
    promised: i64,
    /// The part of it that is not in use yet: machines that are being made or planned.
    coming: i64,
    /// What planned machines leave free, with the number of them that ask for it.
    floors: BTreeMap<StorageFloor, u32>,
}

/// Why a storage has no room for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// What is free and not taken by machines that are being made, and what of it stays free.
    Free(i64, i64),
    /// What the disks of machines there may still grow by, and what stays free beside them.
    Growth(i64, i64),
}

impl StorageRoom {
    fn of(storage: &Storage, overcommit_permille: i64) -> StorageRoom {
        let total = storage.total.max(0);
        let free = storage.free.clamp(0, total);
        let most = i128::from(total) * i128::from(overcommit_permille) / 1000;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        StorageRoom {
            free,
            used: total - free,
            total,
            most: Some(most).filter(|_| !storage.thick),
            promised: 0,
            coming: 0,
            floors: BTreeMap::new(),
        }
    }

    /// What new disks leave free. Machines that are planned together leave what any of them asks.
    fn keep(&self, of_new: Option<StorageFloor>) -> i64 {
        let planned = self.floors.keys().copied();
        let floors = planned.chain(of_new);
        let kept = floors.map(|floor| floor.of_total(self.total));
        kept.max().unwrap_or(0)
    }

    /// Writes its numbers into the report.
    pub(crate) fn report(&self, state: &mut StorageState) {
        (state.total, state.free) = (self.total, self.free);
        (state.promised, state.coming) = (self.promised, self.coming);
        state.most = self.most.filter(|_| self.total > 0);
    }

    /// Bytes that disks of new machines may still take where so much stays free; `None`: its size is not known, so nothing is counted.
    pub(crate) fn left(&self, floor: Option<StorageFloor>) -> Option<i64> {
        let keep = self.keep(floor);
        let free = self.free.saturating_sub(self.coming);
        let grown = self.used.saturating_add(self.promised);
        let most = self.most.map_or(free, |most| most.saturating_sub(grown));
        let left = free.min(most).saturating_sub(keep).max(0);
        Some(left).filter(|_| self.total > 0)
    }

    /// Whether there is room for these disks, once `given` bytes are given back.
    fn admits(&self, disks: Disks, given: i64) -> Result<(), Short> {
        let asks_nothing = disks.size <= given && disks.floor.is_none();
        if self.total == 0 || asks_nothing {
            return Ok(());
        }
        let more = disks.size.saturating_sub(given);
        let keep = self.keep(disks.floor);
        let free = self.free.saturating_sub(self.coming);
        if more > free.saturating_sub(keep) {
            return Err(Short::Free(free.saturating_add(given), keep));
        }
        let Some(most) = self.most else {
            return Ok(());
        };
        let most = most.saturating_sub(keep);
        let left = most.saturating_sub(self.used.saturating_add(self.promised));
        if more > left {
            return Err(Short::Growth(left.saturating_add(given), keep));
        }
        Ok(())
    }

    /// Notes what a planned machine leaves free.
    fn note_floor(&mut self, floor: StorageFloor) {
        *self.floors.entry(floor).or_default() += 1;
    }

    /// Forgets what [`StorageRoom::note_floor`] noted.
    fn forget_floor(&mut self, floor: StorageFloor) {
        if let Some(count) = self.floors.get_mut(&floor) {
            *count -= 1;
            if *count == 0 {
                self.floors.remove(&floor);
            }
        }
    }
}

/// All storages.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Storages(IndexVec<StorageIndex, StorageRoom>);

impl Storages {
    /// The storages of a snapshot, with nothing of machines counted yet.
    pub(crate) fn of(turn: &DecisionBuilder<'_>, indexes: &StorageIndexes) -> Storages {
        let mut rooms: IndexVec<StorageIndex, Option<StorageRoom>> =
            vec![None; indexes.len()].into();
        for (name, region) in &turn.view.snapshot.regions {
            let policy = turn.view.policy.regions.get(name);
            let overcommit =
                policy.map_or(1000, |policy| policy.capacity.storage_overcommit_permille);
            for (host, storages) in &region.storages {
                for (storage, seen) in storages {
                    let index = indexes.at(name, host, storage);
                    let room = index.and_then(|index| rooms.get_mut(index));
                    // A host that does not have a shared one at hand tells no numbers of it.
                    if let Some(room) =
                        room.filter(|room| room.as_ref().is_none_or(|room| room.total == 0))
                    {
                        *room = Some(StorageRoom::of(seen, overcommit));
                    }
                }
            }
        }
        Storages(rooms.into_iter().flatten().collect())
    }

    /// Counts the disks of a machine that is there or is being made.
    pub(crate) fn count(&mut self, disks: Disks, being_made: bool) {
        let room = &mut self.0[disks.storage];
        room.promised = room.promised.saturating_add(disks.size);
        if being_made {
            room.coming = room.coming.saturating_add(disks.size);
        }
    }

    /// One of them.
    pub(crate) fn room(&self, storage: StorageIndex) -> Option<&StorageRoom> {
        self.0.get(storage)
    }

    /// Takes what a planned machine needs.
    pub(crate) fn take(&mut self, disks: &[Disks]) {
        self.change(disks, 1);
        for of in disks {
            if let Some(floor) = of.floor {
                self.0[of.storage].note_floor(floor);
            }
        }
    }

    /// Gives back what [`Storages::take`] took.
    pub(crate) fn give(&mut self, disks: &[Disks]) {
        self.change(disks, -1);
        for of in disks {
            if let Some(floor) = of.floor {
                self.0[of.storage].forget_floor(floor);
            }
        }
    }

    // What is configured is no reason to panic, however absurd, and what is taken can be given back.
    fn change(&mut self, disks: &[Disks], times: i64) {
        for of in disks {
            let room = &mut self.0[of.storage];
            let size = of.size.wrapping_mul(times);
            room.promised = room.promised.wrapping_add(size);
            room.coming = room.coming.wrapping_add(size);
        }
    }

    /// The first storage that has no room for these disks, once others are given back.
    pub(crate) fn admit(&self, disks: &[Disks], given: &[Disks]) -> Result<(), (Disks, Short)> {
        for of in disks {
            let mut back = given.iter().filter(|other| other.storage == of.storage);
            let back = back.next().map_or(0, |other| other.size);
            let admits = self.0[of.storage].admits(*of, back);
            admits.map_err(|short| (*of, short))?;
        }
        Ok(())
    }
}

impl Short {
    /// Why a storage has no room for the disks of a machine.
    pub(crate) fn refusal(self, indexes: &StorageIndexes, disks: Disks) -> HostRefused {
        let (storage, asks) = (indexes.name(disks.storage).into(), disks.size);
        match self {
            Short::Free(free, keep) => HostRefused::StorageFree {
                storage,
                free: free.max(0),
                asks,
                keep: Some(keep).filter(|keep| *keep > 0),
            },
            Short::Growth(left, keep) => HostRefused::StorageGrowth {
                storage,
                left: left.max(0),
                asks,
                keep: Some(keep).filter(|keep| *keep > 0),
            },
        }
    }
}
