//! What hosts have beside CPU and memory that machines take: storages, PCI devices and CPUs for one machine alone, as one.

use model::reasons::HostRefused;

use crate::decision::turn::DecisionBuilder;
use crate::index::StorageIndex;
use crate::scale_up::devices::{DeviceRoom, DeviceRooms, TooFew};
use crate::scale_up::pins::{CpuRooms, NoCpus};
use crate::scale_up::storages::{Short, StorageAnswers, StorageRoom, Storages};
use crate::simulation::disks::{Disks, Layouts, StorageIndexes};
use crate::simulation::takes::{HostMappings, Takes};

/// Room on storages, devices of mappings, CPUs.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Stores {
    storages: Storages,
    devices: DeviceRooms,
    cpus: CpuRooms,
}

/// The indexes of storages, and the mappings of PCI devices.
#[derive(Debug, Default)]
pub(crate) struct StoreIndexes {
    pub(crate) storages: StorageIndexes,
    pub(crate) mappings: HostMappings,
}

/// What a host has too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreLack {
    Storage(Disks, Short),
    Devices(TooFew),
    Cpus(NoCpus),
}

impl StoreIndexes {
    /// The storages and PCI mappings in a turn's snapshot.
    pub(crate) fn of(turn: &DecisionBuilder<'_>) -> StoreIndexes {
        let (snapshot, policy) = (turn.view.snapshot, turn.view.policy);
        StoreIndexes {
            storages: StorageIndexes::of(snapshot),
            mappings: HostMappings::of(snapshot, policy),
        }
    }
}

impl Stores {
    /// What is free by a turn's snapshot; nothing that machines take of storages is counted yet.
    pub(crate) fn of(turn: &DecisionBuilder<'_>, indexes: &StoreIndexes) -> Stores {
        Stores {
            storages: Storages::of(turn, &indexes.storages),
            devices: DeviceRooms::of(turn, &indexes.mappings),
            cpus: CpuRooms::of(turn),
        }
    }

    /// Counts the disks of a machine that is there or is being made.
    pub(crate) fn count(&mut self, disks: Disks, being_made: bool) {
        self.storages.count(disks, being_made);
    }

    /// What a storage has room for.
    pub(crate) fn room(&self, storage: StorageIndex) -> Option<&StorageRoom> {
        self.storages.room(storage)
    }

    /// By mapping and host, in the order of [`HostMappings::iter`].
    pub(crate) fn devices(&self) -> impl Iterator<Item = &DeviceRoom> {
        self.devices.iter()
    }

    /// Takes what a planned machine needs.
    pub(crate) fn take(&mut self, takes: &Takes) {
        self.storages.take(&takes.disks);
        self.devices.take(&takes.devices);
        self.cpus.take(takes.cpus);
    }

    /// Gives back what [`Stores::take`] took.
    pub(crate) fn give(&mut self, takes: &Takes) {
        self.storages.give(&takes.disks);
        self.devices.give(&takes.devices);
        self.cpus.give(takes.cpus);
    }

    /// Whether there is enough for one more machine.
    pub(crate) fn admit(&self, takes: &Takes) -> Result<(), StoreLack> {
        self.admit_instead(takes, &Takes::default())
    }

    /// Why a host takes no machine of which it lacks this. Where its disks may lie on several storages each of them is named.
    pub(crate) fn refusal(
        &self,
        takes: &Takes,
        lack: StoreLack,
        indexes: &StoreIndexes,
    ) -> HostRefused {
        if !matches!(lack, StoreLack::Storage(..)) || takes.disks.len() < 2 {
            return lack.refusal(indexes);
        }
        let each = self.storages.all_short(&takes.disks).into_iter();
        let each = each.map(|(disks, short)| short.refusal(&indexes.storages, disks));
        let each: Vec<HostRefused> = each.collect();
        match &each[..] {
            // Another disk, of which there is one storage alone, finds no room whatever is chosen for this one.
            [only] => only.clone(),
            _ => HostRefused::NoneOfStorages { each },
        }
    }

    /// The first way to lay a machine's disks for which there is room.
    pub(crate) fn first_with_room(&self, ways: &Layouts) -> Option<usize> {
        self.storages.first_with_room(ways, &[])
    }

    /// The storages of planned machines.
    pub(crate) fn storage_answers(&self) -> StorageAnswers<'_> {
        self.storages.answers()
    }

    /// Whether there is enough for a machine, once another one is given back.
    pub(crate) fn admit_instead(&self, takes: &Takes, given: &Takes) -> Result<(), StoreLack> {
        let storages = self.storages.admit(&takes.disks, &given.disks);
        storages.map_err(|(disks, short)| StoreLack::Storage(disks, short))?;
        let devices = self.devices.admit(&takes.devices, &given.devices);
        devices.map_err(StoreLack::Devices)?;
        let cpus = self.cpus.admit(takes.cpus, given.cpus);
        cpus.map_err(StoreLack::Cpus)
    }
}

impl StoreLack {
    /// Why a host takes no machine.
    fn refusal(self, indexes: &StoreIndexes) -> HostRefused {
        match self {
            StoreLack::Storage(disks, short) => short.refusal(&indexes.storages, disks),
            StoreLack::Devices(few) => few.refusal(&indexes.mappings),
            StoreLack::Cpus(none) => none.refusal(),
        }
    }
}
