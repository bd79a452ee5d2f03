//! Templates of a case: which hosts can clone them, and where the disks of their clones are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::action::CreateSpec;
use crate::model::quantity::Quantity;
use crate::model::region::{Region, TemplateCopy, TemplateDisk, Vm};
use crate::model::snapshot::Snapshot;
use crate::model::words;

use super::fields::CaseFields;
use super::nearest;
use super::objects::{name_of, named};
use super::scalars::{names, quantity, shared, texts};
use super::stage::{CaseWorld, DISK, TEMPLATE, free_vmid};
use super::value::{CaseError, CaseValue};

/// What the template of a pool with `ready: false` is called.
pub(super) const MISSING: &str = "missing";

/// Storages of a further disk, of which the first that serves is taken, and bytes.
type CaseDisk = (Vec<Arc<str>>, i64);

/// A template as a case says it.
#[derive(Clone, Debug, Default)]
pub(super) struct CaseTemplate {
    /// Hosts with a copy; where none is named it is the first that is up and has the storage.
    hosts: Vec<Arc<str>>,
    /// The storage of its boot disk; `None`: every host can clone it, and its disks count nowhere.
    storage: Option<Arc<str>>,
    /// Bytes of its boot disk.
    size: i64,
    /// The storages that full clones go to, to the first that serves; none: clones are linked and stay on the template's.
    clones_to: Vec<Arc<str>>,
    /// Further disks that each machine gets: storages, of which the first that serves is taken, and bytes.
    disks: Vec<CaseDisk>,
    /// The bridges that network cards of its machines are on.
    bridges: BTreeSet<Arc<str>>,
    /// Why no machine is made of it.
    fault: Option<Arc<str>>,
}

/// Reads `template`, that of pools which name none, and `templates`.
pub(super) fn read(case: &mut CaseFields<'_>, stage: &mut CaseWorld) -> Result<(), CaseError> {
    let usual = case.with("template", |value| {
        template(value, Some(&TEMPLATE.to_owned()))
    })?;
    let usual = usual.map_or_else(CaseTemplate::usual, |(_, usual)| usual);
    stage.templates.insert(TEMPLATE.into(), usual);
    if let Some(value) = case.take("templates") {
        for (name, item) in named(value)? {
            let (name, template) = template(&item, name.as_ref())?;
            stage.templates.insert(name, template);
        }
    }
    Ok(())
}

/// Every pool's template must be there, every host with a copy, and every storage of a template.
pub(super) fn check(case: &CaseFields<'_>, stage: &CaseWorld) -> Result<(), CaseError> {
    let unknown = |what: String, name: &str, known: Vec<&str>| {
        let hint = nearest::hint(name, known.iter().copied());
        let known = words::names(&known);
        Err(case
            .value()
            .wrong(format!("{what} {name:?}{hint}; known: {known}")))
    };
    for (name, pool) in &stage.policy.pools {
        let template = &*pool.template;
        if !stage.templates.contains_key(template) && template != MISSING {
            let known = stage.templates.keys().map(|name| &**name);
            let what = format!("the pool {name} names the template");
            return unknown(what, template, known.collect());
        }
    }
    let regions = || stage.snapshot.regions.values();
    let hosts: BTreeSet<&str> = regions()
        .flat_map(|region| region.hosts.keys().map(|name| &**name))
        .collect();
    let storages = regions().flat_map(|region| region.storages.values());
    let storages: BTreeSet<&str> = storages
        .flat_map(|storages| storages.keys().map(|name| &**name))
        .collect();
    for (name, template) in &stage.templates {
        let mut named = template.hosts.iter();
        if let Some(host) = named.find(|host| !hosts.contains(&***host)) {
            let what = format!("the template {name} is on a host that is not there,");
            return unknown(what, host, hosts.into_iter().collect());
        }
        let further = template.disks.iter().flat_map(|(storages, _)| storages);
        let named = template.storage.iter().chain(&template.clones_to);
        let mut named = named.chain(further);
        if let Some(storage) = named.find(|storage| !storages.contains(&***storage)) {
            let what = format!("the template {name} names a storage that no host has,");
            return unknown(what, storage, storages.into_iter().collect());
        }
    }
    Ok(())
}

fn template(
    value: &CaseValue,
    name: Option<&String>,
) -> Result<(Arc<str>, CaseTemplate), CaseError> {
    let mut fields = CaseFields::of(value, "a template")?;
    let name = name_of(&mut fields, name, "a template")?;
    let usual = CaseTemplate::usual();
    let hosts = fields.any(&["hosts", "host"]).map(texts).transpose()?;
    let hosts = hosts.unwrap_or_default();
    let size = fields.with("size", quantity)?;
    let found = CaseTemplate {
        hosts: hosts.iter().map(|host| host.as_str().into()).collect(),
        storage: fields.with("storage", shared)?,
        size: size.map_or(usual.size, Quantity::units),
        clones_to: fields.with("clones_to", storages)?.unwrap_or_default(),
        disks: fields.with("disks", further)?.unwrap_or_default(),
        bridges: fields.with("bridges", names)?.unwrap_or_default(),
        fault: fields.with("fault", shared)?,
    };
    fields.done()?;
    if found.storage.is_none() && !(found.clones_to.is_empty() && found.disks.is_empty()) {
        return Err(value.wrong("a template whose clones take space needs the key storage"));
    }
    Ok((name.into(), found))
}

/// A storage, or several.
fn storages(value: &CaseValue) -> Result<Vec<Arc<str>>, CaseError> {
    let names = texts(value)?.into_iter();
    Ok(names.map(Into::into).collect())
}

/// A disk that may lie on any of these storages.
fn disk_of(names: &[Arc<str>]) -> TemplateDisk {
    let (first, others) = names
        .split_first()
        .map_or_else(Default::default, |(first, others)| (first.clone(), others));
    TemplateDisk {
        storage: first,
        or: others.to_vec(),
        ..TemplateDisk::default()
    }
}

/// `[{storage: data, size: 50Gi}]`.
fn further(value: &CaseValue) -> Result<Vec<CaseDisk>, CaseError> {
    let items = value
        .list()
        .ok_or_else(|| value.expected("a list of disks, as [{storage: data, size: 50Gi}]"))?;
    let disks = items.iter().map(|item| {
        let mut fields = CaseFields::of(item, "a disk")?;
        let names = storages(fields.need("storage")?)?;
        let size = quantity(fields.need("size")?)?.units();
        fields.done()?;
        Ok((names, size))
    });
    disks.collect()
}

/// Notes on which storages the disks of a machine are that was planned.
pub(super) fn note_storages(snapshot: &mut Snapshot, spec: &CreateSpec, machine: &str) {
    if let Some(machine) = snapshot.machines.get_mut(machine) {
        machine.storages.clone_from(&spec.storages);
    }
}

/// Puts the copies of all templates into a region, in the place of those that are there.
pub(super) fn place(templates: &BTreeMap<Arc<str>, CaseTemplate>, region: &mut Region) {
    region.vms.retain(|_, vm| !vm.template);
    region.templates.clear();
    for (name, template) in templates {
        let hosts = template.places(region);
        let mut copies = Vec::new();
        for host in hosts {
            let Some(vmid) = free_vmid(region) else {
                continue;
            };
            copies.push(template.copy(region, vmid, &host));
            let vm = Vm {
                host,
                name: name.clone(),
                template: true,
                ..Vm::default()
            };
            region.vms.insert(vmid, vm);
        }
        if !copies.is_empty() {
            region.templates.insert(name.clone(), copies);
        }
    }
}

impl CaseTemplate {
    /// A template of which a case says nothing.
    fn usual() -> CaseTemplate {
        CaseTemplate {
            size: DISK,
            ..CaseTemplate::default()
        }
    }

    /// The hosts of a region that have a copy.
    fn places(&self, region: &Region) -> Vec<Arc<str>> {
        if !self.hosts.is_empty() {
            let there = |host: &&Arc<str>| region.hosts.contains_key(*host);
            return self.hosts.iter().filter(there).cloned().collect();
        }
        let has = |host: &str| {
            let storages = region.storages.get(host);
            let has = |name: &Arc<str>| storages.is_some_and(|of| of.contains_key(name));
            self.storage.as_ref().is_none_or(has)
        };
        let hosts = || region.hosts.iter().filter(|(name, _)| has(name));
        let first = hosts().find(|(_, host)| host.online).or(hosts().next());
        first.map(|(name, _)| name.clone()).into_iter().collect()
    }

    /// The copy on a host. PVE clones to another host from shared storage to shared storage only.
    fn copy(&self, region: &Region, vmid: u32, host: &Arc<str>) -> TemplateCopy {
        let storages = region.storages.get(host);
        let is_shared = |name: &Arc<str>| {
            let storage = storages.and_then(|storages| storages.get(name));
            storage.is_some_and(|storage| storage.shared)
        };
        let own = self.storage.as_ref().is_none_or(is_shared);
        let moves = self.clones_to.is_empty() || self.clones_to.iter().any(is_shared);
        let names = if self.clones_to.is_empty() {
            self.storage.as_slice()
        } else {
            self.clones_to.as_slice()
        };
        let boot = (!names.is_empty()).then(|| TemplateDisk {
            size: self.size,
            boot: true,
            ..disk_of(names)
        });
        let further = (1..).zip(&self.disks);
        let further = further.map(|(number, (names, size))| TemplateDisk {
            size: *size,
            slot: (names.len() > 1).then(|| format!("scsi{number}").into()),
            ..disk_of(names)
        });
        TemplateCopy {
            fault: self.fault.as_deref().map(Into::into),
            shared_addresses: BTreeMap::new(),
            bridges: self.bridges.clone(),
            uuid: None,
            redefined: false,
            vmid,
            host: host.clone(),
            shared: own && moves,
            tied: None,
            disk: self.size,
            disks: boot.into_iter().chain(further).collect(),
        }
    }
}
