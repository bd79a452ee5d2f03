//! What a machine takes of its host beside CPU and memory: room on storages, PCI devices by PVE's mappings, CPUs for itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::pci::share_a_device;
use model::policy::{InstanceType, Policy};
use model::reasons::HostRefused;
use model::region::{GuestKind, Region, RegionName};
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

/// Devices of one mapping on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Devices {
    pub(crate) mapping: HostMappingIndex,
    /// How many.
    pub(crate) count: i64,
}

/// A PCI mapping on a host.
#[derive(Debug)]
pub(crate) struct HostMapping {
    pub(crate) region: RegionName,
    pub(crate) host: Arc<str>,
    pub(crate) mapping: Arc<str>,
    /// The addresses of its devices there.
    pub(crate) devices: Vec<Arc<str>>,
}

/// The mappings that instance types name, on each host that has devices of them.
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
            for mapping in policy.mappings_in(name) {
                for (host, devices) in region.mappings.get(mapping).into_iter().flatten() {
                    let at = (name.clone(), host.clone());
                    let index = mappings.all.push(HostMapping {
                        region: name.clone(),
                        host: host.clone(),
                        mapping: mapping.clone(),
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
        let by_name = |name: &Arc<str>| {
            let mut mappings = here.iter().map(|index| self.at(*index));
            mappings.find(|mapping| mapping.mapping == *name)
        };
        let takes = here.iter().map(|index| {
            let of = self.at(*index);
            let wanted = instance_type.pci.iter().filter(|device| {
                let other = by_name(&device.mapping);
                other.is_some_and(|other| other.mapping == of.mapping || common(of, other) > 0)
            });
            let count = i64::try_from(wanted.count()).unwrap_or(i64::MAX);
            Devices {
                mapping: *index,
                count,
            }
        });
        takes.filter(|devices| devices.count > 0).collect()
    }
}

/// How many devices of a mapping another has too, on the same host.
fn common(of: &HostMapping, other: &HostMapping) -> usize {
    shared(&of.devices, &other.devices)
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
        known(region, host, &mapping)?;
    }
    Ok(())
}

/// Why it is not known which devices of a mapping are free on a host.
pub(crate) fn known(region: &Region, host: &str, mapping: &Arc<str>) -> Result<(), HostRefused> {
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
