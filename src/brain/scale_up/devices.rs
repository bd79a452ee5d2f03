//! How many PCI devices of mappings are free: guests have some, machines under way and planned ones will.
//!
//! A guest has what its configuration says, whether it runs or not: PVE gives a device to whoever starts first, and a person's
//! VM that is off must still start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::pci::{PciUse, share_a_device};
use model::reasons::HostRefused;
use model::region::RegionName;

use crate::decision::turn::DecisionBuilder;
use crate::index::{HostMappingIndex, IndexVec};
use crate::observed::view::{MachinePhase, MachineView};
use crate::simulation::takes::{self, Devices, HostMapping, HostMappings};

/// The devices of a mapping on one host.
#[derive(Clone, Debug, Default, Hash)]
struct DeviceRoom {
    has: i64,
    taken: i64,
}

impl DeviceRoom {
    fn free(&self) -> i64 {
        self.has.saturating_sub(self.taken)
    }
}

/// The free devices of all mappings on all hosts.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct DeviceRooms(IndexVec<HostMappingIndex, DeviceRoom>);

/// Too few devices of a mapping are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooFew {
    wanted: Devices,
    has: i64,
    free: i64,
}

impl DeviceRooms {
    /// The devices of a snapshot, with those counted that guests have and machines under way will have.
    pub(crate) fn of(turn: &DecisionBuilder<'_>, mappings: &HostMappings) -> DeviceRooms {
        if mappings.iter().next().is_none() {
            return DeviceRooms::default();
        }
        let uses = DeviceUses::of(turn);
        let rooms = mappings.iter().map(|mapping| DeviceRoom {
            has: i64::try_from(mapping.devices.len()).unwrap_or(i64::MAX),
            taken: taken(turn, mapping, uses.at(mapping)),
        });
        DeviceRooms(rooms.collect())
    }

    /// By mapping and host, in the order of [`HostMappings::iter`]: how many devices there are, and how many of them are free.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (i64, i64)> {
        self.0.iter().map(|room| (room.has, room.free().max(0)))
    }

    /// Takes what a planned machine needs.
    pub(crate) fn take(&mut self, devices: &[Devices]) {
        for of_mapping in devices {
            self.0[of_mapping.mapping].taken += of_mapping.count;
        }
    }

    /// Gives back what [`DeviceRooms::take`] took.
    pub(crate) fn give(&mut self, devices: &[Devices]) {
        for of_mapping in devices {
            self.0[of_mapping.mapping].taken -= of_mapping.count;
        }
    }

    /// The first mapping of which too few are free, once others are given back.
    pub(crate) fn admit(&self, devices: &[Devices], given: &[Devices]) -> Result<(), TooFew> {
        for wanted in devices {
            let mut back = given.iter().filter(|other| other.mapping == wanted.mapping);
            let back = back.next().map_or(0, |other| other.count);
            let room = &self.0[wanted.mapping];
            let free = room.free().saturating_add(back);
            if free < wanted.count {
                return Err(TooFew {
                    wanted: *wanted,
                    has: room.has,
                    free,
                });
            }
        }
        Ok(())
    }
}

impl TooFew {
    /// Why a host takes no machine.
    pub(crate) fn refusal(self, mappings: &HostMappings) -> HostRefused {
        HostRefused::Devices {
            mapping: mappings.at(self.wanted.mapping).mapping.clone(),
            has: self.has,
            free: self.free.max(0),
            asks: self.wanted.count,
        }
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

/// What guests and machines of each host have of its devices, or will have.
#[derive(Debug, Default)]
pub(crate) struct DeviceUses<'a>(BTreeMap<DeviceHost, Vec<(DeviceUser<'a>, PciUse)>>);

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
            let devices = devices.map(|taken| (DeviceUser::Machine(machine.name), taken));
            uses.0.entry(at).or_default().extend(devices);
        }
        for (name, region) in &turn.view.snapshot.regions {
            let guests = region.vms.iter().filter(|(_, vm)| !vm.template);
            let guests = guests.filter(|(vmid, _)| !machines.contains(&(&**name, **vmid)));
            for (vmid, vm) in guests {
                let at = (name.clone(), vm.host.clone());
                let devices = vm.devices.iter().flatten().cloned();
                let devices = devices.map(|taken| (DeviceUser::Guest(*vmid), taken));
                uses.0.entry(at).or_default().extend(devices);
            }
        }
        uses
    }

    /// What is taken on a mapping's host, of whatever mapping.
    fn at(&self, mapping: &HostMapping) -> &[(DeviceUser<'a>, PciUse)] {
        let here = self.0.get(&(mapping.region.clone(), mapping.host.clone()));
        here.map_or(&[][..], Vec::as_slice)
    }

    /// Who certainly has a device of a mapping on its host: once for each.
    pub(crate) fn users(&self, mapping: &HostMapping) -> impl Iterator<Item = DeviceUser<'a>> {
        let of_it = self.at(mapping).iter();
        let of_it = of_it.filter(move |(_, taken)| match taken {
            PciUse::Mapping(name) => *name == mapping.mapping,
            PciUse::Device(address) => {
                let mut devices = mapping.devices.iter();
                devices.any(|device| share_a_device(device, address))
            }
        });
        of_it.map(|(user, _)| *user)
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
            devices
                .map(|device| PciUse::Mapping(device.mapping.clone()))
                .collect()
        }
    }
}

/// How many devices of a mapping are taken at most: which one PVE gives of a mapping that has others too is not known.
fn taken(turn: &DecisionBuilder<'_>, of: &HostMapping, uses: &[(DeviceUser<'_>, PciUse)]) -> i64 {
    let mappings = turn.view.snapshot.regions.get(&of.region);
    let mappings = mappings.map(|region| &region.mappings);
    let mut certain: BTreeSet<usize> = BTreeSet::new();
    let mut named: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for (_, taken) in uses {
        match taken {
            PciUse::Mapping(name) => *named.entry(name).or_default() += 1,
            PciUse::Device(address) => {
                let devices = of.devices.iter().enumerate();
                let same = devices.filter(|(_, device)| share_a_device(device, address));
                certain.extend(same.map(|(at, _)| at));
            }
        }
    }
    let by_name = named.iter().map(|(name, count)| {
        if ***name == *of.mapping {
            return *count;
        }
        let other = mappings.and_then(|mappings| mappings.get(*name)?.get(&of.host));
        other.map_or(0, |other| takes::shared(&of.devices, other).min(*count))
    });
    let all = by_name.sum::<usize>() + certain.len();
    i64::try_from(all).unwrap_or(i64::MAX)
}
