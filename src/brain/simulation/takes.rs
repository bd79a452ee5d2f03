//! What a machine takes of its host beside CPU and memory: room on storages, PCI devices by PVE's mappings, CPUs for itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::pci::{self, PciUse, share_a_card, share_a_device};
use model::policy::{InstanceType, Policy};
use model::reasons::HostRefused;
use model::region::{GuestKind, MediatedLeft, Region, RegionName};
use model::snapshot::Snapshot;

use crate::decision::cpus::CpuDemand;
use crate::index::{HostIndex, HostMappingIndex, IndexVec};
use crate::simulation::disks::Layouts;

/// What one machine takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Takes {
    /// The ways to lay its disks, of which it takes the first that has room.
    pub(crate) disks: Layouts,
    /// By mapping.
    pub(crate) devices: Vec<Devices>,
    /// CPUs of the host that the machine has for itself.
    pub(crate) cpus: Option<Cpus>,
}

/// CPUs of one host, and memory beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cpus {
    pub(crate) host: HostIndex,
    /// How many, with how much memory.
    pub(crate) demand: CpuDemand,
}

/// What a machine takes of the devices of one mapping on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Devices {
    pub(crate) mapping: HostMappingIndex,
    /// How many.
    pub(crate) count: i64,
    /// How many it takes in another way of cards that the mapping has too: whole ones where these are mediated, mediated ones of another type,
    /// or mediated ones where these are whole. While there is one of them, nobody gets any of these.
    pub(crate) mixed: i64,
}

/// A PCI mapping on a host, for whole devices or for mediated ones of a type.
#[derive(Debug)]
pub(crate) struct HostMapping {
    pub(crate) region: RegionName,
    pub(crate) host: Arc<str>,
    pub(crate) mapping: Arc<str>,
    /// The type of mediated device; `None`: whole devices.
    pub(crate) mdev: Option<Arc<str>>,
    /// The addresses of its devices there.
    pub(crate) devices: Vec<Arc<str>>,
}

/// How a device that somebody takes bears on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bearing {
    /// Not at all.
    None,
    /// It is one of them, or of those that take the same room.
    Counts,
    /// It takes cards of theirs in another way.
    Mixes,
}

impl HostMapping {
    /// How one that is taken of these devices, as mediated device of this type or whole, bears on the mapping's own.
    ///
    /// A card that makes mediated devices gives what is left in parts of one type or of several, as its maker has it. What one of type A leaves
    /// of B is known when A's VM runs and PVE tells what is left: until then B has none. Cards in use in parts are given whole to nobody, for PVE
    /// would take them from the parts, and the reverse.
    pub(crate) fn bearing(&self, devices: &[Arc<str>], mdev: Option<&Arc<str>>) -> Bearing {
        let meets = |same: fn(&str, &str) -> bool| {
            let mut own = self.devices.iter();
            own.any(|one| devices.iter().any(|other| same(one, other)))
        };
        match (self.mdev.as_ref(), mdev) {
            (None, None) if meets(share_a_device) => Bearing::Counts,
            (Some(own), Some(other)) if meets(share_a_card) && own == other => Bearing::Counts,
            (Some(own), Some(other)) if meets(share_a_card) && own != other => Bearing::Mixes,
            (None, Some(_)) | (Some(_), None) if meets(share_a_device) => Bearing::Mixes,
            _ => Bearing::None,
        }
    }

    /// Whether what somebody has is certainly one of these.
    pub(crate) fn is_of(&self, taken: &PciUse) -> bool {
        let here = match taken {
            PciUse::Mapping(name) | PciUse::Mdev { mapping: name, .. } => *name == self.mapping,
            PciUse::Device(address)
            | PciUse::MdevOf {
                device: address, ..
            } => {
                let mut devices = self.devices.iter();
                devices.any(|device| share_a_device(device, address))
            }
        };
        here && taken.mdev() == self.mdev.as_ref()
    }

    /// What is left of its mediated devices, if the host told that.
    pub(crate) fn left<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s MediatedLeft> {
        let region = snapshot.regions.get(&self.region)?;
        region.mediated.get(&self.host)?.get(&self.mapping)
    }

    /// What its devices are called.
    pub(crate) fn called(&self) -> Arc<str> {
        pci::called(&self.mapping, self.mdev.as_ref())
    }
}

/// The mappings that instance types name, on each host that has devices of them: once for whole devices, and once for each type of mediated
/// device.
#[derive(Debug, Default)]
pub(crate) struct HostMappings {
    all: IndexVec<HostMappingIndex, HostMapping>,
    of_host: BTreeMap<(RegionName, Arc<str>), Vec<HostMappingIndex>>,
}

impl HostMappings {
    /// The devices that a snapshot shows.
    pub(crate) fn of(snapshot: &Snapshot, policy: &Policy) -> HostMappings {
        let mut mappings = HostMappings::default();
        for (name, region) in &snapshot.regions {
            for (mapping, mdev) in policy.devices_in(name) {
                for (host, devices) in region.mappings.get(mapping).into_iter().flatten() {
                    let at = (name.clone(), host.clone());
                    let index = mappings.all.push(HostMapping {
                        region: name.clone(),
                        host: host.clone(),
                        mapping: mapping.clone(),
                        mdev: mdev.cloned(),
                        devices: devices.clone(),
                    });
                    mappings.of_host.entry(at).or_default().push(index);
                }
            }
        }
        mappings
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &HostMapping> {
        self.all.iter()
    }

    /// The mapping of an index.
    pub(crate) fn at(&self, index: HostMappingIndex) -> &HostMapping {
        &self.all[index]
    }

    /// What a machine of a type takes on a host. Where mappings have devices in common, one that is taken of one is taken of
    /// the others.
    pub(crate) fn of_machine(
        &self,
        (region, host): (&RegionName, &Arc<str>),
        instance_type: &InstanceType,
    ) -> Vec<Devices> {
        if instance_type.pci.is_empty() {
            return Vec::new();
        }
        let here = self.of_host.get(&(region.clone(), host.clone()));
        let here = here.map_or(&[][..], Vec::as_slice);
        let wanted = instance_type.pci.iter().filter_map(|device| {
            let mut mappings = here.iter().map(|index| self.at(*index));
            mappings.find(|of| of.mapping == device.mapping && of.mdev == device.mdev)
        });
        let wanted: Vec<&HostMapping> = wanted.collect();
        let takes = here.iter().map(|index| {
            let of = self.at(*index);
            let number = |bearing: Bearing| {
                let such = wanted
                    .iter()
                    .filter(|other| of.bearing(&other.devices, other.mdev.as_ref()) == bearing);
                i64::try_from(such.count()).unwrap_or(i64::MAX)
            };
            Devices {
                mapping: *index,
                count: number(Bearing::Counts),
                mixed: number(Bearing::Mixes),
            }
        });
        takes
            .filter(|devices| devices.count > 0 || devices.mixed > 0)
            .collect()
    }
}

/// The number of these devices that are among others.
pub(crate) fn shared(of: &[Arc<str>], others: &[Arc<str>]) -> usize {
    let of = of.iter();
    of.filter(|one| others.iter().any(|other| share_a_device(one, other)))
        .count()
}

/// Why a host has no device for a machine of a type, however many are taken.
pub(crate) fn reachable(
    region: &Region,
    host: &str,
    instance_type: &InstanceType,
) -> Result<(), HostRefused> {
    for device in &instance_type.pci {
        let mapping = device.mapping.clone();
        let Some(hosts) = region.mappings.get(&mapping) else {
            return Err(HostRefused::UnknownMapping { mapping });
        };
        if hosts.get(host).is_none_or(Vec::is_empty) {
            return Err(HostRefused::NoDevice { mapping });
        }
        known(region, host, &mapping, device.mdev.as_ref())?;
    }
    Ok(())
}

/// Why it is not known which devices of a mapping are free on a host, or how many mediated ones of a type.
pub(crate) fn known(
    region: &Region,
    host: &str,
    mapping: &Arc<str>,
    mdev: Option<&Arc<str>>,
) -> Result<(), HostRefused> {
    let told = region.mediated.get(host);
    let told = told.is_some_and(|told| told.contains_key(mapping));
    if let Some(mdev) = mdev.filter(|_| !told) {
        return Err(HostRefused::UntoldDevices {
            mapping: mapping.clone(),
            mdev: mdev.clone(),
        });
    }
    let guests = region.vms.iter();
    let mut unread = guests.filter(|(_, vm)| {
        let may_have = vm.kind == GuestKind::Qemu && !vm.template;
        *vm.host == *host && may_have && vm.devices.is_none()
    });
    match unread.next() {
        None => Ok(()),
        Some((guest, _)) => Err(HostRefused::UnreadDevices {
            mapping: mapping.clone(),
            guest: *guest,
            guests: 1 + unread.count(),
        }),
    }
}
