//! Clones: which hosts of a pool can make its machines, and whether their storages have room for one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::finding::Findings;
use super::region::{RegionSeen, SeenRegion};
use crate::brain::inspect;
use crate::config::Settings;
use crate::controller::templates::RegionTemplates;
use crate::model::policy::{InstanceType, PoolPolicy};
use crate::model::region::{Region, RegionName, TemplateCopy};
use crate::model::words;

/// What helps where a host cannot clone a template.
pub(super) const COPY: &str = "a storage that all hosts share (storage and clone = \"full\" in the template's table), a copy of the template on each host (vm_name or tags name them all), or hosts in the pool's table";

/// Judges every pool of a region.
pub(super) fn look(region: &SeenRegion, findings: &mut Findings) {
    let of = &region.region;
    judge(&region.seen, &of.name, &of.here.settings, findings);
}

/// Judges every pool of a region by what was seen of it.
pub(super) fn judge(seen: &RegionSeen, name: &str, settings: &Settings, findings: &mut Findings) {
    let name: RegionName = name.into();
    let region = region(seen, &name, settings);
    for (pool_name, pool) in settings.policy.pools_in(&name) {
        // That there is none at all is said of the template.
        let copies = region.templates.get(&pool.template);
        if copies.is_none_or(Vec::is_empty) {
            continue;
        }
        let before = findings.0.len();
        let clonable = hosts(&region, pool_name, pool, findings);
        further_disks(seen, settings, (pool_name, pool), &clonable, findings);
        let kinds = pool.instance_types.iter();
        for (kind_name, kind) in
            kinds.filter_map(|kind| settings.policy.instance_types.get_key_value(kind))
        {
            judge_room(
                &region,
                (pool_name, pool),
                (kind_name, kind),
                &clonable,
                findings,
            );
        }
        if findings.0.len() == before && !clonable.is_empty() {
            let hosts: Vec<&str> = clonable.iter().map(|(host, _)| &***host).collect();
            findings.fine(format!(
                "pool {pool_name}: {} can clone its template, and storages have room for a machine of each type",
                words::names(&hosts)
            ));
        }
    }
}

/// The region as decisions see it, as far as clones matter.
fn region(seen: &RegionSeen, name: &RegionName, settings: &Settings) -> Region {
    let resources = &seen.resources;
    let hosts = resources.hosts.iter();
    let hosts = hosts.map(|(name, host)| (name.clone(), host.into()));
    let storages = resources.storages.iter().map(|(host, storages)| {
        let storages = storages.iter();
        let storages = storages.map(|(name, storage)| (name.clone(), storage.into()));
        (host.clone(), storages.collect())
    });
    let templates = RegionTemplates {
        region: name,
        all: &settings.templates,
    };
    Region {
        hosts: hosts.collect(),
        storages: storages.collect(),
        templates: templates.find(resources, |vmid| seen.configs.get(&vmid)),
        ..Region::default()
    }
}

/// The hosts that can clone the template of a pool; says why the others cannot.
fn hosts<'a>(
    region: &'a Region,
    pool_name: &str,
    pool: &PoolPolicy,
    findings: &mut Findings,
) -> Vec<(&'a Arc<str>, &'a TemplateCopy)> {
    let mut clonable = Vec::new();
    // Hosts that are off or in maintenance are named elsewhere.
    let hosts = region.hosts.iter();
    let hosts = hosts.filter(|(_, host)| host.online && !host.maintenance);
    let mut others = Vec::new();
    for (host, _) in hosts.filter(|(host, _)| pool.may_use(host)) {
        match inspect::template_for(region, pool, host) {
            Ok(copy) => clonable.push((host, copy)),
            Err(why) => others.push(why),
        }
    }
    // A fault of the template is the same for every host.
    others.dedup();
    if clonable.is_empty() && !others.is_empty() && others.iter().all(|why| is_fault(why)) {
        findings
            .wrong(format!(
                "pool {pool_name}: no host can clone its template {}, since no machine is made of it as it is",
                pool.template
            ))
            .mend("what the lines about that template say");
    } else if clonable.is_empty() && !others.is_empty() {
        findings
            .wrong(format!(
                "pool {pool_name}: no host can clone its template: {}",
                others.join("; ")
            ))
            .mend(mend_of(&others[0], pool_name));
    } else {
        for why in others {
            let mend = mend_of(&why, pool_name);
            findings
                .warning(format!("pool {pool_name}: {why}; no machine is made there"))
                .mend(mend);
        }
    }
    clonable
}

/// Whether this says a fault of the template, which the lines about templates say, too.
fn is_fault(why: &str) -> bool {
    let begin = "no machine is made of the template: ";
    why.contains(begin)
}

/// What lets a host clone the pool's template, of which this was said. A storage whose size nobody knows is helped by no copy.
fn mend_of(why: &str, pool_name: &str) -> String {
    if why.contains("min_free_storage") {
        format!(
            "let PVE tell the storage's size (a token needs Datastore.Audit on it), or min_free_storage = \"0%\" in [pool.{pool_name}]"
        )
    } else {
        COPY.to_owned()
    }
}

/// Storages that further disks are to be on, and that are not there or take no disks of VMs.
fn further_disks(
    seen: &RegionSeen,
    settings: &Settings,
    (pool_name, pool): (&str, &PoolPolicy),
    clonable: &[(&Arc<str>, &TemplateCopy)],
    findings: &mut Findings,
) {
    let template = settings.templates.get(&pool.template);
    let disks = template
        .into_iter()
        .flat_map(|of| of.hardware.disks.values());
    let names: BTreeSet<&Arc<str>> = disks.map(|disk| &disk.storage).collect();
    for name in names {
        let barred = clonable.iter().filter(|(host, _)| {
            let storages = seen.resources.storages.get(*host);
            let content = storages.and_then(|of| Some(&of.get(name)?.content));
            content.is_none_or(|of| !of.is_empty() && !of.iter().any(|kind| kind == "images"))
        });
        let barred: Vec<&str> = barred.map(|(host, _)| &***host).collect();
        if !barred.is_empty() {
            findings
                .wrong(format!(
                    "pool {pool_name}: the storage {name} of further disks is not there, or takes no disks of VMs, on {}",
                    barred.join(", ")
                ))
                .mend(format!(
                    "pvesm set {name} --content images and what else it has, or another storage in [[template.{}.disk]]",
                    pool.template
                ));
        }
    }
}

/// Says where no host has room for the disks of one machine.
fn judge_room(
    region: &Region,
    (pool, policy): (&str, &PoolPolicy),
    (kind_name, kind): (&str, &InstanceType),
    clonable: &[(&Arc<str>, &TemplateCopy)],
    findings: &mut Findings,
) {
    let short = clonable
        .iter()
        .map(|(host, copy)| lack_of_room(region, host, (copy, kind), policy));
    let Some(short) = short.collect::<Option<Vec<String>>>() else {
        return;
    };
    if !short.is_empty() {
        let lower = match policy.host_rules.min_free_storage {
            Some(_) => ", or lower min_free_storage",
            None => "",
        };
        findings
            .warning(format!(
                "pool {pool}: no host has room for the disks of instance type {kind_name}: {}",
                short.join("; ")
            ))
            .mend(format!(
                "make room there (pvesm list STORAGE shows what is on it), name another storage in the template's table, or a smaller disk in [instance_type.{kind_name}]{lower}"
            ));
    }
}

/// The storage of a host that is too full for a clone, if one is, with what the pool leaves free of it.
fn lack_of_room(
    region: &Region,
    host: &str,
    (copy, kind): (&TemplateCopy, &InstanceType),
    pool: &PoolPolicy,
) -> Option<String> {
    let mut sizes: BTreeMap<&Arc<str>, i64> = BTreeMap::new();
    for disk in &copy.disks {
        let grown = if disk.boot { kind.disk } else { 0 };
        let sum = sizes.entry(&disk.storage).or_default();
        *sum = sum.saturating_add(disk.size.max(grown));
    }
    let storages = region.storages.get(host)?;
    sizes.into_iter().find_map(|(name, wanted)| {
        let storage = storages.get(name).filter(|storage| storage.total > 0)?;
        let floor = pool.host_rules.min_free_storage;
        let keep = floor.map_or(0, |floor| floor.of_total(storage.total));
        let kept = if keep > 0 {
            format!(", and min_free_storage keeps {}", words::bytes(keep))
        } else {
            String::new()
        };
        (storage.free < wanted.saturating_add(keep)).then(|| {
            format!(
                "storage {name} of host {host} has {} free, {} wanted{kept}",
                words::bytes(storage.free),
                words::bytes(wanted)
            )
        })
    })
}
