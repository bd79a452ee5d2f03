//! How many machines the hosts have room for, as the daemon counts with the file that is proposed: memory that no guest is promised, and space on the
//! storages that clones go to. CPUs do not limit it: hosts promise them more than once, but a host starts no VM with more than it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::choose::{SetupSpec, TypeWanted};
use super::hardware::bytes_of;
use super::survey::Survey;
use super::templates::{TemplateSource, storage_on};
use super::text::DISK;
use crate::config::file::RegionTable;
use crate::model::words;
use crate::pve::{StorageResource, VmConfig};

/// Storages that are named with what is free on them.
const NAMED: usize = 4;

/// Sizes of a machine's disks in bytes, by storage.
type DiskSizes = BTreeMap<Arc<str>, i64>;

/// Storages that hold no more: a host's own one with the host.
type FullStorages = BTreeSet<(Arc<str>, Option<Arc<str>>)>;

/// The room for machines of the smallest size, beside those that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MachineRoom {
    pub(super) machines: u32,
    /// What holds no more.
    pub(super) bound: String,
}

/// What a host has room for.
#[derive(Debug)]
struct HostRoom<'a> {
    host: &'a Arc<str>,
    /// Machines for which it has the memory.
    memory: i64,
    /// What a machine's disks take on its storages.
    disks: DiskSizes,
    /// Machines for which its own storages have the space; `None` where nothing is counted.
    own_storages: Option<i64>,
}

impl HostRoom<'_> {
    fn machines(&self) -> i64 {
        let disks = self.own_storages.unwrap_or(i64::MAX);
        self.memory.min(disks)
    }
}

/// Counts it on the hosts that the pool may use (all, where none is named); `None` where no host says what it has.
pub(super) fn count(survey: &Survey, wanted: &SetupSpec, hosts: &[String]) -> Option<MachineRoom> {
    let sizes = wanted
        .types
        .iter()
        .filter_map(|one| Some((one, bytes_of(&one.memory)?)));
    let (smallest, memory) = sizes.min_by_key(|(one, size)| (*size, one.cores))?;
    if memory <= 0 {
        return None;
    }
    let resources = &survey.pve.resources;
    let known = resources.hosts.iter().filter(|(name, host)| {
        let named = hosts.is_empty() || hosts.iter().any(|one| *one == ***name);
        named && host.online && host.memory > 0
    });
    let known: Vec<&Arc<str>> = known.map(|(name, _)| name).collect();
    if known.is_empty() {
        return None;
    }
    let rooms = known.into_iter().filter_map(|host| {
        let disks = disks_on(survey, &wanted.template.source, host)?;
        let of_host = |name: &Arc<str>| resources.storages.get(host)?.get(name);
        let own = disks.iter().filter_map(|(name, size)| {
            let storage = of_host(name).filter(|storage| !storage.shared)?;
            fitting(survey, (host, name, storage), *size)
        });
        let own_storages = own.min();
        Some(HostRoom {
            host,
            memory: by_memory(survey, host, (smallest, memory)),
            disks,
            own_storages,
        })
    });
    let rooms: Vec<HostRoom<'_>> = rooms.collect();
    Some(judge(survey, &rooms))
}

/// Machines of this size for which the host has memory that no running guest is promised and that is not the host's own.
fn by_memory(survey: &Survey, host: &Arc<str>, (size, memory): (&TypeWanted, i64)) -> i64 {
    let resources = &survey.pve.resources;
    let Some(found) = resources.hosts.get(host) else {
        return 0;
    };
    if (1..size.cores).contains(&found.cpus) {
        return 0;
    }
    let reserve = RegionTable::default().host_memory_reserve.0;
    let guests = resources.guests.values();
    let running = guests.filter(|guest| guest.host == *host && guest.running() && !guest.template);
    let promised: i64 = running.map(|guest| guest.memory).sum();
    (found.memory - reserve - promised).max(0) / memory
}

/// What a machine's disks take where it is made on the host; `None` where none can be made there. A template that nobody knows takes nothing.
fn disks_on(survey: &Survey, source: &TemplateSource, host: &Arc<str>) -> Option<DiskSizes> {
    let resources = &survey.pve.resources;
    match source {
        TemplateSource::Build(build) => {
            let (name, storage) = storage_on(&build.storage, host, resources)?;
            let there = build.hosts.is_empty() || build.hosts.iter().any(|one| *one == **host);
            let size = bytes_of(DISK)?;
            (there || storage.shared).then(|| [(name.into(), size)].into())
        }
        TemplateSource::Vmid(vmid) => match survey.pve.templates.get(vmid) {
            Some(config) => reaches(survey, (*vmid, config), host).then(|| disks_of(config)),
            None => Some(DiskSizes::new()),
        },
        TemplateSource::Named(name) => {
            let named = survey.pve.templates.iter().filter(|(vmid, _)| {
                let guest = resources.guests.get(vmid);
                guest.is_some_and(|guest| *guest.name == **name)
            });
            let mut on_host =
                named.filter(|(vmid, config)| reaches(survey, (**vmid, *config), host));
            on_host.next().map(|(_, config)| disks_of(config))
        }
    }
}

/// Whether machines can be made of the template on the host: it is there, or its storages are shared.
fn reaches(survey: &Survey, (vmid, config): (u32, &VmConfig), host: &Arc<str>) -> bool {
    let resources = &survey.pve.resources;
    let here = resources
        .guests
        .get(&vmid)
        .is_some_and(|guest| guest.host == *host);
    let storages = resources.storages.get(host);
    let is_shared = |name: &Arc<str>| {
        let storage = storages.and_then(|of| of.get(name));
        storage.is_some_and(|storage| storage.shared)
    };
    here || disks_of(config).keys().all(is_shared)
}

/// The disks of a clone of the template, the one that it boots from with the size that setup gives it.
fn disks_of(config: &VmConfig) -> DiskSizes {
    let disks = config
        .disks
        .iter()
        .filter(|(_, disk)| !disk.cdrom && !disk.storage.is_empty());
    let disks: Vec<_> = disks.collect();
    let ordered = config
        .boot_order
        .iter()
        .find(|key| disks.iter().any(|(of, _)| of == key));
    let boot = ordered.or(disks.first().map(|(key, _)| *key));
    let mut sizes = DiskSizes::new();
    for (key, disk) in &disks {
        let own = disk.size.unwrap_or(0);
        let grown = bytes_of(DISK).filter(|_| Some(*key) == boot).unwrap_or(0);
        *sizes.entry(disk.storage.clone()).or_default() += own.max(grown);
    }
    sizes
}

/// Machines whose disks of this size the storage has space for, once those of our machines have grown; `None` where its size is not known.
fn fitting(
    survey: &Survey,
    (host, name, storage): (&Arc<str>, &Arc<str>, &StorageResource),
    size: i64,
) -> Option<i64> {
    (storage.total > 0 && size > 0).then(|| left(survey, (host, name, storage)) / size)
}

/// Bytes that disks of further machines may come to on the storage.
fn left(survey: &Survey, (host, name, storage): (&Arc<str>, &Arc<str>, &StorageResource)) -> i64 {
    let grow = !storage.is_thick();
    let ours = survey.pve.marked.iter().filter(|(vmid, _)| {
        let guest = survey.pve.resources.guests.get(vmid);
        let near = storage.shared || guest.is_some_and(|guest| guest.host == *host);
        grow && near && survey.ours.has(**vmid)
    });
    let disks = ours.flat_map(|(_, config)| config.disks.values());
    let promised: i64 = disks
        .filter(|disk| !disk.cdrom && disk.storage == *name)
        .filter_map(|disk| disk.size)
        .sum();
    (storage.free() - promised).max(0)
}

/// The machines for which all hosts together have room, and what holds no more.
fn judge(survey: &Survey, rooms: &[HostRoom<'_>]) -> MachineRoom {
    let storages = &survey.pve.resources.storages;
    // Of each storage that a machine's disks go to: for how many it has space.
    let each = rooms.iter().flat_map(|room| {
        let of_host = storages.get(room.host);
        room.disks.iter().filter_map(move |(name, size)| {
            let storage = of_host?.get(name)?;
            let fit = fitting(survey, (room.host, name, storage), *size)?;
            Some((room, name, storage.shared, fit))
        })
    });
    let mut machines: i64 = rooms.iter().map(HostRoom::machines).sum();
    let mut full = FullStorages::new();
    for (room, name, shared, fit) in each.clone() {
        if !shared && fit == room.machines() && fit < room.memory {
            full.insert((name.clone(), Some(room.host.clone())));
        }
    }
    let mut bounds_memory = rooms.iter().any(|room| room.machines() == room.memory);
    for (_, name, shared, fit) in each {
        if shared && fit < machines {
            machines = fit;
            full = [(name.clone(), None)].into();
            bounds_memory = false;
        }
    }
    let held = match machines {
        0 => "none of the smallest".to_owned(),
        _ => format!("{machines} of the smallest"),
    };
    let memory = "the hosts' memory that no guest is promised";
    let bound = if full.is_empty() {
        format!("{memory} holds {held}")
    } else if bounds_memory {
        // On some hosts the one holds no more, and on others the other.
        let space = describe(survey, rooms, &full);
        format!("{memory} and the storages hold {held}: {space}")
    } else {
        let by_memory: i64 = rooms.iter().map(|room| room.memory).sum();
        let space = describe(survey, rooms, &full);
        format!("the storage holds {held}, and memory {by_memory}: {space}")
    };
    MachineRoom {
        machines: u32::try_from(machines).unwrap_or(u32::MAX),
        bound,
    }
}

/// What is free on storages that hold no more, and what a machine takes there.
fn describe(survey: &Survey, rooms: &[HostRoom<'_>], full: &FullStorages) -> String {
    let told = full.iter().take(NAMED).filter_map(|(name, host)| {
        let having = |room: &&HostRoom<'_>| {
            let here = host.as_ref().is_none_or(|host| host == room.host);
            here && room.disks.contains_key(name)
        };
        let room = rooms.iter().find(having)?;
        let storage = survey.pve.resources.storages.get(room.host)?.get(name)?;
        let size = words::bytes(*room.disks.get(name)?);
        let left = words::bytes(left(survey, (room.host, name, storage)));
        let place = host
            .as_ref()
            .map_or_else(String::new, |host| format!(" on {host}"));
        Some(format!("{name}{place} has {left} for disks of {size} each"))
    });
    let told: Vec<String> = told.collect();
    match full.len().saturating_sub(NAMED) {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}

#[cfg(test)]
mod tests;
