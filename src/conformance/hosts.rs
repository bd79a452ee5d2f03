//! Hosts of a case: CPUs, memory, load, PCI devices, storages, what their CPUs are to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::host_bounds::HostOverrides;
use crate::model::policy::RegionPolicy;
use crate::model::quantity::Quantity;
use crate::model::region::{Host, HostLoad, MediatedLeft, Region, Storage};
use crate::model::time::Time;
use crate::model::topology::HostTopology;

use super::fields::CaseFields;
use super::objects::{name_of, named};
use super::scalars::{names, permille, quantity, several, shared, text, time, truth, whole};
use super::stage::{CaseWorld, REGION};
use super::topologies;
use super::value::{CaseError, CaseValue};

/// Hosts where a case names none.
const ZONES: [&str; 3] = ["z1", "z2", "z3"];
/// Memory of a host, and size of a storage, where a case says nothing: more than any case needs.
const PLENTY: i64 = 1 << 55;
/// PCI devices of one mapping on a host at most.
const MOST_DEVICES: u32 = 250;

/// A mapping of PCI devices with the addresses of its devices on one host.
type HostDevices = (Arc<str>, Vec<Arc<str>>);

/// A host as a case says it.
#[derive(Clone, Debug)]
pub(super) struct CaseHost {
    name: Arc<str>,
    host: Host,
    devices: Vec<HostDevices>,
    /// What is left of mediated devices, by mapping.
    mediated: BTreeMap<Arc<str>, MediatedLeft>,
    storages: BTreeMap<Arc<str>, Storage>,
    topology: Option<HostTopology>,
    /// What the configuration says of it otherwise than of its region.
    own: HostOverrides,
}

/// Reads `hosts`, or makes the usual ones and those that pools name.
pub(super) fn read(case: &mut CaseFields<'_>, stage: &mut CaseWorld) -> Result<(), CaseError> {
    let hosts = if let Some(value) = case.take("hosts") {
        described(value, stage.now)?
    } else {
        let pools = stage.policy.pools.values();
        let of_pools = pools.flat_map(|pool| pool.hosts.iter().cloned());
        let names = ZONES.into_iter().map(Arc::from).chain(of_pools);
        names.map(CaseHost::usual).collect()
    };
    let used = hosts.iter().filter(|host| host.host.memory_used > 0);
    let used = used.map(|host| (host.name.clone(), host.host.memory_used));
    let used: Vec<(Arc<str>, i64)> = used.collect();
    for host in hosts {
        let region = stage.snapshot.regions.entry(REGION.into()).or_default();
        if let Some(policy) = stage.policy.regions.get_mut(REGION) {
            host.put(region, policy);
        }
    }
    stage.place_templates(REGION);
    for (host, memory) in used {
        stage.add_others(&host, memory);
    }
    Ok(())
}

/// What hosts have left of mediated devices is beside what VMs have that run now.
pub(super) fn tell_mediated(stage: &mut CaseWorld) {
    for region in stage.snapshot.regions.values_mut() {
        let mut told = region.mediated.clone();
        for (host, mappings) in &mut told {
            let running = region.vms.iter();
            let running = running.filter(|(_, vm)| vm.running && vm.host == *host);
            let running: BTreeSet<u32> = running.map(|(vmid, _)| *vmid).collect();
            for left in mappings.values_mut() {
                left.running.clone_from(&running);
            }
        }
        if !told.is_empty() {
            region.mediated = told;
        }
    }
}

/// The hosts that a list or a map describes.
pub(super) fn described(value: &CaseValue, now: Time) -> Result<Vec<CaseHost>, CaseError> {
    let hosts = named(value)?.into_iter();
    let hosts = hosts.map(|(name, item)| match (&name, item.scalar()) {
        (None, Some(name)) => Ok(CaseHost::usual(name.into())),
        _ => host(&item, name.as_ref(), now),
    });
    hosts.collect()
}

impl CaseHost {
    /// A host of which a case says nothing.
    fn usual(name: Arc<str>) -> CaseHost {
        CaseHost {
            name,
            host: Host {
                online: true,
                cpus: 1_000_000,
                memory: PLENTY,
                ..Host::default()
            },
            devices: Vec::new(),
            mediated: BTreeMap::new(),
            storages: BTreeMap::new(),
            topology: None,
            own: HostOverrides::default(),
        }
    }

    /// Puts it into a region; the region's policy has its topology, and what is counted otherwise of it.
    pub(super) fn put(self, region: &mut Region, policy: &mut RegionPolicy) {
        let name = self.name;
        for (mapping, devices) in self.devices {
            let hosts = region.mappings.entry(mapping).or_default();
            hosts.insert(name.clone(), devices);
        }
        if !self.mediated.is_empty() {
            region.mediated.insert(name.clone(), self.mediated);
        }
        if !self.storages.is_empty() {
            region.storages.insert(name.clone(), self.storages);
        }
        if let Some(topology) = self.topology {
            policy.topologies.insert(name.clone(), topology.into());
        }
        if self.own != HostOverrides::default() {
            policy.hosts.insert(name.clone(), self.own);
        }
        region.hosts.insert(name, self.host);
    }
}

fn host(value: &CaseValue, name: Option<&String>, now: Time) -> Result<CaseHost, CaseError> {
    let mut fields = CaseFields::of(value, "a host")?;
    let name = name_of(&mut fields, name, "a host")?;
    let mut found = CaseHost::usual(name.into());
    found.topology = fields.with("topology", topologies::read)?;
    let listed = found.topology.as_ref().map(|of| of.cpus().len());
    let listed = listed.and_then(|listed| u32::try_from(listed).ok());
    let cpus = fields.any(&["cpus", "cpu"]).map(whole).transpose()?;
    let host = &mut found.host;
    host.cpus = cpus.or(listed).unwrap_or(host.cpus);
    for (keys, slot) in [
        (["memory", "mem"], &mut host.memory),
        (["memory_used", "used"], &mut host.memory_used),
    ] {
        if let Some(value) = fields.any(&keys) {
            *slot = quantity(value)?.units();
        }
    }
    host.cpu_used_milli = fields
        .with("cpu_used", quantity)?
        .map_or(0, Quantity::milli);
    host.online = fields.with("online", truth)?.unwrap_or(true);
    host.maintenance = fields.with("maintenance", truth)?.unwrap_or(false);
    let since = fields.with("evacuated", |value| evacuated(value, now))?;
    host.evacuated = since.flatten();
    host.load = fields.with("load", load)?;
    host.bridges = fields.with("bridges", names)?;
    found.devices = fields.with("pci", devices)?.unwrap_or_default();
    found.mediated = fields.with("mdev", mediated)?.unwrap_or_default();
    found.storages = fields.with("storages", storages)?.unwrap_or_default();
    found.own = own(&mut fields)?;
    fields.done()?;
    Ok(found)
}

/// `true`, or since when a person evacuates the host.
fn evacuated(value: &CaseValue, now: Time) -> Result<Option<Time>, CaseError> {
    if let Ok(evacuated) = truth(value) {
        return Ok(evacuated.then_some(now));
    }
    let since = time(value, now);
    let since = since.map_err(|_| value.expected("true, false, or since when: \"5m ago\""));
    since.map(Some)
}

/// What the configuration says of one host, by its keys there.
fn own(fields: &mut CaseFields<'_>) -> Result<HostOverrides, CaseError> {
    let memory = fields.with("host_memory_reserve", quantity)?;
    let cores = fields.with("host_cores_reserve", quantity)?;
    Ok(HostOverrides {
        memory_reserve: memory.map(Quantity::units),
        cpu_reserve_milli: cores.map(Quantity::milli),
        memory_overcommit_permille: fields.with("memory_overcommit", permille)?,
        cpu_overcommit_permille: fields.with("cpu_overcommit", permille)?,
    })
}

/// `{cpu: 0.9, io_pressure: 0.1}`: how loaded a host was of late. What is not said is not known, as where PVE does not tell.
fn load(value: &CaseValue) -> Result<HostLoad, CaseError> {
    let mut fields = CaseFields::of(value, "the load of a host")?;
    let load = HostLoad {
        cpu: fields.with("cpu", permille)?,
        memory: fields.with("memory", permille)?,
        cpu_pressure: fields.with("cpu_pressure", permille)?,
        memory_pressure: fields.with("memory_pressure", permille)?,
        io_pressure: fields.with("io_pressure", permille)?,
    };
    fields.done()?;
    Ok(load)
}

/// `{gpu: 2}`: so many devices of a mapping; `{gpu: ["0000:01:00.0"]}`: these.
fn devices(value: &CaseValue) -> Result<Vec<HostDevices>, CaseError> {
    let entries = value
        .map()
        .ok_or_else(|| value.expected("devices by mapping, as {gpu: 2}"))?;
    let mappings = entries.iter().enumerate().map(|(at, entry)| {
        let mapping: Arc<str> = entry.key.as_str().into();
        let number = entry.value.scalar().map(str::parse::<u32>);
        let addresses = if let Some(Ok(count)) = number {
            if count > MOST_DEVICES {
                let most = format!("at most {MOST_DEVICES} devices of a mapping");
                return Err(entry.value.expected(&most));
            }
            // A domain for each mapping: no two have a device in common.
            let address = |device: u32| format!("{:04x}:{device:02x}:00.0", 0x1000 + at).into();
            (0..count).map(address).collect()
        } else {
            let addresses = several(&entry.value).into_iter().map(shared);
            addresses.collect::<Result<_, _>>()?
        };
        Ok((mapping, addresses))
    });
    mappings.collect()
}

/// `{vgpu: {nvidia-63: 4}}`: how many mediated devices of which types are left of a mapping, beside what guests and machines have that run.
fn mediated(value: &CaseValue) -> Result<BTreeMap<Arc<str>, MediatedLeft>, CaseError> {
    let expected = "mediated devices by mapping and type, as {vgpu: {nvidia-63: 4}}";
    let entries = value.map().ok_or_else(|| value.expected(expected))?;
    let mappings = entries.iter().map(|entry| {
        let types = entry.value.map().ok_or_else(|| value.expected(expected))?;
        let left = types.iter().map(|of| {
            let mdev: Arc<str> = of.key.as_str().into();
            Ok::<_, CaseError>((mdev, whole(&of.value)?))
        });
        let left = MediatedLeft {
            left: left.collect::<Result<_, CaseError>>()?,
            ..MediatedLeft::default()
        };
        Ok::<(Arc<str>, MediatedLeft), CaseError>((entry.key.as_str().into(), left))
    });
    mappings.collect()
}

/// `{fast: {size: 100Gi, used: 40Gi}}`, or names alone.
fn storages(value: &CaseValue) -> Result<BTreeMap<Arc<str>, Storage>, CaseError> {
    let storages = named(value)?.into_iter();
    let storages = storages.map(|(name, item)| storage(&item, name.as_ref()));
    storages.collect()
}

fn storage(value: &CaseValue, name: Option<&String>) -> Result<(Arc<str>, Storage), CaseError> {
    let mut fields = CaseFields::of(value, "a storage")?;
    let name = name_of(&mut fields, name, "a storage")?;
    let size = fields.with("size", quantity)?.map(Quantity::units);
    let used = fields.with("used", quantity)?.map_or(0, Quantity::units);
    let total = size.unwrap_or(PLENTY);
    if used > total {
        return Err(value.wrong("the storage has more in use than its size"));
    }
    let storage = Storage {
        active: fields.with("active", truth)?.unwrap_or(true),
        shared: fields.with("shared", truth)?.unwrap_or(false),
        free: total - used,
        total,
        thick: fields.with("thick", truth)?.unwrap_or(false),
        backing: fields.with("space_of", text)?.map(Arc::from),
    };
    fields.done()?;
    Ok((name.into(), storage))
}
