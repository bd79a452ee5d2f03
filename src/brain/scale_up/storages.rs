//! What storages have room for: disks of machines that are there, that are being made and that are planned.
//!
//! Plain numbers: the limits of one decision and the search for its plan reckon with the same.

use std::collections::BTreeMap;

use model::chosen_storages::ChosenStorages;
use model::hosts::StorageFloor;
use model::reasons::HostRefused;
use model::region::Storage;
use model::store_states::StorageState;

use crate::decision::turn::DecisionBuilder;
use crate::index::{IndexVec, StorageIndex};
use crate::simulation::disks::{Disks, Layouts, StorageIndexes};

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
pub(crate) struct Storages {
    rooms: IndexVec<StorageIndex, StorageRoom>,
    /// Which way the disks of each planned machine lie, in the order in which they were planned, where there are several. Machines whose
    /// ways are the same are told apart by nothing here: what one gives back is what was taken last.
    laid: BTreeMap<Layouts, Vec<usize>>,
}

/// The storages of the machines of a plan, told one machine after the other.
#[derive(Debug)]
pub(crate) struct StorageAnswers<'s> {
    storages: &'s Storages,
    /// By ways to lay disks: how many machines were told theirs.
    told: BTreeMap<Layouts, usize>,
}

impl StorageAnswers<'_> {
    /// The storages of one more machine whose disks can be laid in these ways: as it was planned, or, if it was planned nowhere, the first
    /// that have room.
    pub(crate) fn of(&mut self, ways: &Layouts) -> ChosenStorages {
        if ways.len() < 2 {
            return ways
                .first()
                .map_or_else(ChosenStorages::default, |way| way.chosen.clone());
        }
        let told = self.told.entry(ways.clone()).or_default();
        let planned = self
            .storages
            .laid
            .get(ways)
            .and_then(|laid| laid.get(*told));
        *told += 1;
        let way = planned.copied();
        let way = way.or_else(|| self.storages.first_with_room(ways, &[]));
        let way = ways.get(way.unwrap_or(0));
        way.map_or_else(ChosenStorages::default, |way| way.chosen.clone())
    }
}

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
        Storages {
            rooms: rooms.into_iter().flatten().collect(),
            laid: BTreeMap::new(),
        }
    }

    /// Counts the disks of a machine that is there or is being made.
    pub(crate) fn count(&mut self, disks: Disks, being_made: bool) {
        let room = &mut self.rooms[disks.storage];
        room.promised = room.promised.saturating_add(disks.size);
        if being_made {
            room.coming = room.coming.saturating_add(disks.size);
        }
    }

    /// One of them.
    pub(crate) fn room(&self, storage: StorageIndex) -> Option<&StorageRoom> {
        self.rooms.get(storage)
    }

    /// The storages of planned machines.
    pub(crate) fn answers(&self) -> StorageAnswers<'_> {
        StorageAnswers {
            storages: self,
            told: BTreeMap::new(),
        }
    }

    /// Takes what a planned machine needs, in the first way that has room.
    pub(crate) fn take(&mut self, ways: &Layouts) {
        let way = match ways.len() {
            0 | 1 => 0,
            // A plan that is laid anew, machine by machine, may leave room for none of the ways; then it counts on the first.
            _ => self.first_with_room(ways, &[]).unwrap_or(0),
        };
        if ways.len() > 1 {
            self.laid.entry(ways.clone()).or_default().push(way);
        }
        let Some(layout) = ways.get(way) else {
            return;
        };
        self.change(&layout.disks, 1);
        for of in &layout.disks {
            if let Some(floor) = of.floor {
                self.rooms[of.storage].note_floor(floor);
            }
        }
    }

    /// Gives back what [`Storages::take`] took.
    pub(crate) fn give(&mut self, ways: &Layouts) {
        let way = self.last_laid(ways);
        if let Some(laid) = self.laid.get_mut(ways) {
            laid.pop();
            if laid.is_empty() {
                self.laid.remove(ways);
            }
        }
        let Some(layout) = ways.get(way) else {
            return;
        };
        self.change(&layout.disks, -1);
        for of in &layout.disks {
            if let Some(floor) = of.floor {
                self.rooms[of.storage].forget_floor(floor);
            }
        }
    }

    // What is configured is no reason to panic, however absurd, and what is taken can be given back.
    fn change(&mut self, disks: &[Disks], times: i64) {
        for of in disks {
            let room = &mut self.rooms[of.storage];
            let size = of.size.wrapping_mul(times);
            room.promised = room.promised.wrapping_add(size);
            room.coming = room.coming.wrapping_add(size);
        }
    }

    /// The way in which the disks lie that are given back next.
    fn last_laid(&self, ways: &Layouts) -> usize {
        let laid = self.laid.get(ways);
        laid.and_then(|laid| laid.last()).copied().unwrap_or(0)
    }

    /// The first way to lay a machine's disks for which there is room, once others are given back.
    pub(crate) fn first_with_room(&self, ways: &Layouts, given: &[Disks]) -> Option<usize> {
        let mut ways = ways.iter();
        ways.position(|way| self.admit_layout(&way.disks, given).is_ok())
    }

    /// Whether there is room for a machine, once another one is given back. Else the first storage that has none; of several ways to lay
    /// its disks that is of the first one.
    pub(crate) fn admit(&self, ways: &Layouts, given: &Layouts) -> Result<(), (Disks, Short)> {
        let given = given.get(self.last_laid(given));
        let given = given.map_or(&[][..], |layout| &layout.disks);
        let mut first = None;
        for way in &**ways {
            match self.admit_layout(&way.disks, given) {
                Ok(()) => return Ok(()),
                Err(short) => first = first.or(Some(short)),
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// The storages that keep a machine off a host where there is room in none of several ways, each once and in the file's order.
    pub(crate) fn all_short(&self, ways: &Layouts) -> Vec<(Disks, Short)> {
        let mut all: Vec<(Disks, Short)> = Vec::new();
        for way in &**ways {
            if let Err(short) = self.admit_layout(&way.disks, &[])
                && all
                    .iter()
                    .all(|(disks, _)| disks.storage != short.0.storage)
            {
                all.push(short);
            }
        }
        all
    }

    /// The first storage that has no room for these disks, once others are given back.
    fn admit_layout(&self, disks: &[Disks], given: &[Disks]) -> Result<(), (Disks, Short)> {
        for of in disks {
            let mut back = given.iter().filter(|other| other.storage == of.storage);
            let back = back.next().map_or(0, |other| other.size);
            let admits = self.rooms[of.storage].admits(*of, back);
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
