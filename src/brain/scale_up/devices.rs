//! How many PCI devices of mappings are free: guests have some, machines under way and planned ones will.
//!
//! A guest has what its configuration says, whether it runs or not: PVE gives a device to whoever starts first, and a person's
//! VM that is off must still start.
//!
//! PVE tells of mediated devices how many more of a type a host can make, beside those of the VMs that ran when it was asked. From that number come
//! off the mediated devices in the configurations of all other VMs, and those of machines to come. How many of one type are left once a machine has
//! another type of the same card is known when its VM runs: see [`HostMapping::bearing`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::pci::{PciDevice, PciUse, share_a_device};
use model::reasons::HostRefused;
use model::region::{MappedDevices, RegionName};

use crate::decision::turn::DecisionBuilder;
use crate::index::{HostMappingIndex, IndexVec};
use crate::observed::view::{MachinePhase, MachineView};
use crate::simulation::takes::{self, Bearing, Devices, HostMapping, HostMappings};

/// The devices of a mapping on one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct DeviceRoom {
    has: i64,
    taken: i64,
    /// How many are taken of its cards in another way. While there is one, none of these is free.
    mixed: i64,
}

impl DeviceRoom {
    /// How many there are.
    pub(crate) fn has(&self) -> i64 {
        self.has
    }

    /// How many of them are free.
    pub(crate) fn free(&self) -> i64 {
        if self.mixed > 0 {
            return 0;
        }
        self.has.saturating_sub(self.taken).max(0)
    }

    /// Why none is free though some are left.
    pub(crate) fn refusal(&self, of: &HostMapping) -> Option<HostRefused> {
        (self.mixed > 0 && self.has > 0).then(|| mixed(of))
    }
}

/// The free devices of all mappings on all hosts.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct DeviceRooms(IndexVec<HostMappingIndex, DeviceRoom>);

/// Too few devices of a mapping are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooFew {
    wanted: Devices,
    room: DeviceRoom,
}

impl DeviceRooms {
    /// The devices of a snapshot, with those counted that guests have and machines under way will have.
    pub(crate) fn of(turn: &DecisionBuilder<'_>, mappings: &HostMappings) -> DeviceRooms {
        if mappings.iter().next().is_none() {
            return DeviceRooms::default();
        }
        let uses = DeviceUses::of(turn);
        let rooms = mappings.iter().map(|of| {
            let mapped = turn.view.snapshot.regions.get(&of.region);
            let mapped = mapped.map(|region| &region.mappings);
            match &of.mdev {
                None => whole(mapped, of, uses.at(of)),
                Some(_) => mediated(turn, mapped, of, uses.at(of)),
            }
        });
        DeviceRooms(rooms.collect())
    }

    /// By mapping and host, in the order of [`HostMappings::iter`].
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DeviceRoom> {
        self.0.iter()
    }

    /// Takes what a planned machine needs.
    pub(crate) fn take(&mut self, devices: &[Devices]) {
        for of_mapping in devices {
            let room = &mut self.0[of_mapping.mapping];
            room.taken += of_mapping.count;
            room.mixed += of_mapping.mixed;
        }
    }

    /// Gives back what [`DeviceRooms::take`] took.
    pub(crate) fn give(&mut self, devices: &[Devices]) {
        for of_mapping in devices {
            let room = &mut self.0[of_mapping.mapping];
            room.taken -= of_mapping.count;
            room.mixed -= of_mapping.mixed;
        }
    }

    /// The first mapping of which too few are free, once others are given back.
    pub(crate) fn admit(&self, devices: &[Devices], given: &[Devices]) -> Result<(), TooFew> {
        for wanted in devices.iter().filter(|wanted| wanted.count > 0) {
            let mut room = self.0[wanted.mapping];
            if let Some(back) = given.iter().find(|back| back.mapping == wanted.mapping) {
                room.taken = room.taken.saturating_sub(back.count);
                room.mixed = room.mixed.saturating_sub(back.mixed);
            }
            // A machine that wants one card in two ways has it in neither.
            room.mixed = room.mixed.saturating_add(wanted.mixed);
            if room.free() < wanted.count {
                return Err(TooFew {
                    wanted: *wanted,
                    room,
                });
            }
        }
        Ok(())
    }
}

impl TooFew {
    /// Why a host takes no machine.
    pub(crate) fn refusal(self, mappings: &HostMappings) -> HostRefused {
        let of = mappings.at(self.wanted.mapping);
        if let Some(mixed) = self.room.refusal(of) {
            return mixed;
        }
        let mapping = of.mapping.clone();
        let (has, free, asks) = (self.room.has, self.room.free(), self.wanted.count);
        match of.mdev.clone() {
            None => HostRefused::Devices {
                mapping,
                has,
                free,
                asks,
            },
            Some(mdev) => HostRefused::MediatedDevices {
                mapping,
                mdev,
                has,
                free,
                asks,
            },
        }
    }
}

fn mixed(of: &HostMapping) -> HostRefused {
    HostRefused::MixedDevices {
        mapping: of.mapping.clone(),
        mdev: of.mdev.clone(),
    }
}

/// Who has a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceUser<'a> {
    /// A machine of ours, by name.
    Machine(&'a Arc<str>),
    /// Another guest, by VMID.
    Guest(u32),
}

/// A host with devices, by its region and its name.
type DeviceHost = (RegionName, Arc<str>);

/// One PCI device, whole or mediated, that a guest or a machine to come has on a host.
#[derive(Debug)]
struct DeviceUse<'a> {
    user: DeviceUser<'a>,
    /// The VM that has it, or will.
    vmid: u32,
    taken: PciUse,
}

/// What guests and machines of each host have of its devices, or will have.
#[derive(Debug, Default)]
pub(crate) struct DeviceUses<'a>(BTreeMap<DeviceHost, Vec<DeviceUse<'a>>>);

impl<'a> DeviceUses<'a> {
    /// Those of a turn's snapshot.
    pub(crate) fn of(turn: &DecisionBuilder<'a>) -> DeviceUses<'a> {
        let mut uses = DeviceUses::default();
        let mut machines: BTreeSet<(&str, u32)> = BTreeSet::new();
        for machine in turn.view.machines.values() {
            let seen = machine.seen;
            machines.insert((&seen.region, seen.mark.vmid));
            let at = (seen.region.clone(), seen.host.clone());
            let devices = of_machine(machine).into_iter();
            let devices = devices.map(|taken| DeviceUse {
                user: DeviceUser::Machine(machine.name),
                vmid: seen.mark.vmid,
                taken,
            });
            uses.0.entry(at).or_default().extend(devices);
        }
        for (name, region) in &turn.view.snapshot.regions {
            let guests = region.vms.iter().filter(|(_, vm)| !vm.template);
            let guests = guests.filter(|(vmid, _)| !machines.contains(&(&**name, **vmid)));
            for (vmid, vm) in guests {
                let at = (name.clone(), vm.host.clone());
                let devices = vm.devices.iter().flatten().cloned();
                let devices = devices.map(|taken| DeviceUse {
                    user: DeviceUser::Guest(*vmid),
                    vmid: *vmid,
                    taken,
                });
                uses.0.entry(at).or_default().extend(devices);
            }
        }
        uses
    }

    /// What is taken on a mapping's host, of whatever mapping.
    fn at(&self, mapping: &HostMapping) -> &[DeviceUse<'a>] {
        let here = self.0.get(&(mapping.region.clone(), mapping.host.clone()));
        here.map_or(&[][..], Vec::as_slice)
    }

    /// Who certainly has a device of a mapping on its host: once for each.
    pub(crate) fn users(&self, mapping: &HostMapping) -> impl Iterator<Item = DeviceUser<'a>> {
        let uses = self.at(mapping).iter();
        let of_it = uses.filter(move |one| mapping.is_of(&one.taken));
        of_it.map(|one| one.user)
    }
}

/// What a machine has: what its configuration says once that was written, before what its type says.
fn of_machine(machine: &MachineView<'_>) -> Vec<PciUse> {
    let seen = machine.seen;
    let going_up = !matches!(machine.phase, MachinePhase::Leaving | MachinePhase::NoVm);
    if seen.vm.is_none() && !going_up {
        return Vec::new();
    }
    let vms = machine.region.map(|region| &region.vms);
    let vm = vms.and_then(|vms| vms.get(&seen.mark.vmid));
    let written = vm.and_then(|vm| vm.devices.as_ref());
    let being_made = machine.is_being_made();
    match written {
        Some(devices) if !(devices.is_empty() && being_made && going_up) => devices.clone(),
        _ => {
            let devices = machine.instance_type.iter().flat_map(|of| &of.pci);
            devices.map(PciDevice::taken).collect()
        }
    }
}

/// The mappings of a region.
type Mappings = BTreeMap<Arc<str>, MappedDevices>;

/// The devices of a host on one of which somebody has something: those of a mapping, or one by its address. None of a mapping that is not there.
fn places(mappings: Option<&Mappings>, host: &str, taken: &PciUse) -> Vec<Arc<str>> {
    match taken {
        PciUse::Mapping(name) | PciUse::Mdev { mapping: name, .. } => {
            let here = mappings.and_then(|mappings| mappings.get(name)?.get(host));
            here.cloned().unwrap_or_default()
        }
        PciUse::Device(address)
        | PciUse::MdevOf {
            device: address, ..
        } => vec![address.clone()],
    }
}

/// How something that is taken bears on a mapping.
fn bearing(mappings: Option<&Mappings>, of: &HostMapping, taken: &PciUse) -> Bearing {
    of.bearing(&places(mappings, &of.host, taken), taken.mdev())
}

/// Whole devices of a mapping.
fn whole(mappings: Option<&Mappings>, of: &HostMapping, uses: &[DeviceUse<'_>]) -> DeviceRoom {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let mixes = uses
        .iter()
        .filter(|of_one| bearing(mappings, of, &of_one.taken) == Bearing::Mixes);
    DeviceRoom {
        has: number(of.devices.len()),
        taken: number(taken(mappings, of, uses)),
        mixed: number(mixes.count()),
    }
}

/// Mediated devices of a type: what the host told that is left, and what VMs have that ran then.
fn mediated(
    turn: &DecisionBuilder<'_>,
    mappings: Option<&Mappings>,
    of: &HostMapping,
    uses: &[DeviceUse<'_>],
) -> DeviceRoom {
    let Some((told, mdev)) = of.left(turn.view.snapshot).zip(of.mdev.as_ref()) else {
        return DeviceRoom::default();
    };
    let left = told.left.get(mdev).copied().map_or(0, i64::from);
    let mut room = DeviceRoom {
        has: left,
        ..DeviceRoom::default()
    };
    for one in uses {
        let ran = told.running.contains(&one.vmid);
        let own = of.is_of(&one.taken);
        match bearing(mappings, of, &one.taken) {
            // PVE's number does not have the device of a VM that ran: it is one more that there is, and one that is taken.
            Bearing::Counts if ran && own => {
                room.has += 1;
                room.taken += 1;
            }
            Bearing::Counts if !ran => room.taken += 1,
            // A whole card is gone whether the VM ran or not; parts of another type that were there are taken off what is left.
            Bearing::Mixes if !ran || one.taken.mdev().is_none() => room.mixed += 1,
            _ => {}
        }
    }
    room
}

/// How many devices of a mapping are taken at most: which one PVE gives of a mapping that has others too is not known.
fn taken(mappings: Option<&Mappings>, of: &HostMapping, uses: &[DeviceUse<'_>]) -> usize {
    let mut certain: BTreeSet<usize> = BTreeSet::new();
    let mut named: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for one in uses {
        match &one.taken {
            PciUse::Mapping(name) => *named.entry(name).or_default() += 1,
            PciUse::Device(address) => {
                let devices = of.devices.iter().enumerate();
                let same = devices.filter(|(_, device)| share_a_device(device, address));
                certain.extend(same.map(|(at, _)| at));
            }
            // A card with mediated devices is given whole to nobody: that is counted as mixed, and not as taken.
            PciUse::Mdev { .. } | PciUse::MdevOf { .. } => {}
        }
    }
    let by_name = named.iter().map(|(name, count)| {
        if ***name == *of.mapping {
            return *count;
        }
        let other = mappings.and_then(|mappings| mappings.get(*name)?.get(&of.host));
        other.map_or(0, |other| takes::shared(&of.devices, other).min(*count))
    });
    by_name.sum::<usize>() + certain.len()
}
