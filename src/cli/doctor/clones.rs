//! Clones: which hosts of a pool can make its machines, and whether their storages have room for one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::finding::Findings;
use super::region::{RegionSeen, SeenRegion};
use crate::brain::inspect::{self, CopyRefused};
use crate::config::Settings;
use crate::config::storage_names::StorageNames;
use crate::controller::templates::RegionTemplates;
use crate::model::policy::{InstanceType, PoolPolicy};
use crate::model::region::{Region, RegionName, Storage, TemplateCopy};
use crate::model::words;

/// What helps where a host cannot clone a template.
pub(super) const COPY: &str = "a storage that all hosts share (storage and clone = \"full\" in the template's table), a copy of the template on each host (vm_name or tags name them all), or hosts in the pool's table";

/// What helps where the template itself has a fault.
const OF_TEMPLATE: &str = "what the lines about that template say";

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
        let kinds = kinds.filter_map(|kind| settings.policy.instance_types.get_key_value(kind));
        let smallest = kinds
            .clone()
            .map(|(_, kind)| kind)
            .min_by_key(|kind| kind.disk);
        for (kind_name, kind) in kinds {
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
        let at = (&**pool_name, pool);
        tell_storages(&region, at, smallest, &clonable, findings);
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
    let mut others: Vec<(&Arc<str>, CopyRefused)> = Vec::new();
    for (host, _) in hosts.filter(|(host, _)| pool.may_use(host)) {
        match inspect::template_for(region, pool, host) {
            Ok(copy) => clonable.push((host, copy)),
            // A fault of the template is the same for every host.
            Err(why) if is_fault(&why) && others.iter().any(|(_, told)| *told == why) => {}
            Err(why) => others.push((host, why)),
        }
    }
    if clonable.is_empty() && !others.is_empty() && others.iter().all(|(_, why)| is_fault(why)) {
        findings
            .wrong(format!(
                "pool {pool_name}: no host can clone its template {}, since no machine is made of it as it is",
                pool.template
            ))
            .mend(OF_TEMPLATE);
    } else if clonable.is_empty() && !others.is_empty() {
        let mends = others
            .iter()
            .map(|(host, why)| mend_of(why, host, pool_name));
        let mut distinct: Vec<String> = Vec::new();
        for mend in mends {
            if !distinct.contains(&mend) {
                distinct.push(mend);
            }
        }
        let told = others.into_iter().map(|(host, why)| why.words(host));
        let told: Vec<String> = told.collect();
        findings
            .wrong(format!(
                "pool {pool_name}: no host can clone its template: {}",
                told.join("; ")
            ))
            .mend(distinct.join("; "));
    } else {
        for (host, why) in others {
            let mend = mend_of(&why, host, pool_name);
            findings
                .warning(format!(
                    "pool {pool_name}: {}; no machine is made there",
                    why.words(host)
                ))
                .mend(mend);
        }
    }
    clonable
}

/// Whether this is a fault of the template, which the lines about templates say, too.
fn is_fault(why: &CopyRefused) -> bool {
    matches!(why, CopyRefused::TemplateFault { .. })
}

/// What lets a host clone the pool's template. A storage whose size nobody knows is helped by no copy.
fn mend_of(why: &CopyRefused, host: &str, pool_name: &str) -> String {
    match why {
        CopyRefused::Offline => {
            format!("bring the host {host} back, or leave it out of the pool's hosts")
        }
        CopyRefused::Maintenance => {
            format!("ha-manager crm-command node-maintenance disable {host}")
        }
        CopyRefused::Evacuated { .. } => format!("pve-autoscaler evacuate --end {host}"),
        CopyRefused::Unread { .. } => {
            format!("mend what PVE tells of {host} (pvesh get /cluster/resources shows it)")
        }
        CopyRefused::TemplateFault { .. } => OF_TEMPLATE.to_owned(),
        CopyRefused::NoTemplate { .. }
        | CopyRefused::StorageInactive { .. }
        | CopyRefused::NoStorage { .. } => COPY.to_owned(),
        CopyRefused::StorageNotShared { .. } => {
            format!("a copy of the template on {host}, or a storage in the list that is shared")
        }
        CopyRefused::NoneOfStorages { each } => {
            let mends = each.iter().map(|one| mend_of(one, host, pool_name));
            let mut mends: Vec<String> = mends.collect();
            mends.dedup();
            mends.join("; or ")
        }
        CopyRefused::NoBridge { bridge } => {
            format!("make the bridge {bridge} on {host}, or leave {host} out of the pool's hosts")
        }
        CopyRefused::StorageUnknown { .. } => format!(
            "let PVE tell the storage's size (a token needs Datastore.Audit on it), or min_free_storage = \"0%\" in [pool.{pool_name}]"
        ),
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
    let mut lists: Vec<&StorageNames> = Vec::new();
    for names in disks.map(|disk| &disk.storage) {
        if !lists.contains(&names) {
            lists.push(names);
        }
    }
    for names in lists {
        let barred = clonable.iter().filter(|(host, _)| {
            let storages = seen.resources.storages.get(*host);
            let takes = |name: &str| {
                let content = storages.and_then(|of| Some(&of.get(name)?.content));
                content.is_some_and(|of| of.is_empty() || of.iter().any(|kind| kind == "images"))
            };
            !names.iter().any(takes)
        });
        let barred: Vec<&str> = barred.map(|(host, _)| &***host).collect();
        if !barred.is_empty() {
            findings
                .wrong(format!(
                    "pool {pool_name}: the storage {names} of further disks is not there, or takes no disks of VMs, on {}",
                    barred.join(", ")
                ))
                .mend(format!(
                    "pvesm set {} --content images and what else it has, or another storage in [[template.{}.disk]]",
                    names.first(),
                    pool.template
                ));
        }
    }
}

/// Tells on which storages each host makes the disks of a machine, where the file lists several.
fn tell_storages(
    region: &Region,
    (pool_name, pool): (&str, &PoolPolicy),
    kind: Option<&InstanceType>,
    clonable: &[(&Arc<str>, &TemplateCopy)],
    findings: &mut Findings,
) {
    let listed = |copy: &TemplateCopy| copy.disks.iter().any(|disk| !disk.or.is_empty());
    let Some(kind) = kind.filter(|_| clonable.iter().any(|(_, copy)| listed(copy))) else {
        return;
    };
    let each = clonable.iter().filter_map(|(host, copy)| {
        let storages = lay(region, host, (copy, kind), pool).ok()?;
        let storages: BTreeSet<&str> = storages.into_iter().collect();
        Some(format!("{} on {host}", words::names(storages)))
    });
    let each: Vec<String> = each.collect();
    if !each.is_empty() {
        findings.fine(format!(
            "pool {pool_name}: the disks of a new machine come to {}",
            each.join(", ")
        ));
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

/// The storage of a host that is too full for a clone, if one is, with what the pool leaves free of it. Where the file lists several it
/// is all of them.
fn lack_of_room(
    region: &Region,
    host: &str,
    of: (&TemplateCopy, &InstanceType),
    pool: &PoolPolicy,
) -> Option<String> {
    lay(region, host, of, pool).err()
}

/// Disks that are made together, by whose they are and which storages they may come to.
type MadeTogether<'r> = (Option<&'r Arc<str>>, Vec<&'r Arc<str>>);

/// The storages of a host that the disks of a machine come to; of those that the file lists for a disk the first that has room.
fn lay<'r>(
    region: &'r Region,
    host: &str,
    (copy, kind): (&'r TemplateCopy, &InstanceType),
    pool: &PoolPolicy,
) -> Result<Vec<&'r str>, String> {
    let Some(storages) = region.storages.get(host) else {
        return Ok(Vec::new());
    };
    // What is made together comes to one storage: by the storages that it may come to.
    let mut wanted: BTreeMap<MadeTogether<'r>, i64> = BTreeMap::new();
    for disk in &copy.disks {
        let grown = if disk.boot { kind.disk } else { 0 };
        let there = disk.storages().filter(|name| {
            let storage = storages.get(*name);
            disk.or.is_empty() || storage.is_some_and(|storage| storage.active)
        });
        let sum = wanted
            .entry((disk.slot.as_ref(), there.collect()))
            .or_default();
        *sum = sum.saturating_add(disk.size.max(grown));
    }
    // What has one storage alone has no other way.
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort_by_key(|((_, names), _)| names.len() > 1);
    let mut taken: BTreeMap<&str, i64> = BTreeMap::new();
    for ((_, names), size) in wanted {
        let with = |name: &str| taken.get(name).copied().unwrap_or(0).saturating_add(size);
        let lack = |name: &str| lack_on((name, storages.get(name)?), host, with(name), pool);
        let mut lacks = Vec::new();
        let found = names.iter().find(|name| match lack(name) {
            None => true,
            Some(why) => {
                lacks.push(why);
                false
            }
        });
        let Some(name) = found else {
            // Of a list none of which is there the lines before tell.
            if lacks.is_empty() {
                continue;
            }
            return Err(lacks.join(" and "));
        };
        let sum = taken.entry(name).or_default();
        *sum = sum.saturating_add(size);
    }
    Ok(taken.into_keys().collect())
}

/// Why a storage of a host has no room for so many bytes of disks.
fn lack_on(
    (name, storage): (&str, &Storage),
    host: &str,
    wanted: i64,
    pool: &PoolPolicy,
) -> Option<String> {
    if storage.total <= 0 {
        return None;
    }
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
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::time::Time;

    /// One of each reason, with what its mend must speak of. A reason that is new does not compile here before it has a line.
    fn mends() -> Vec<(CopyRefused, &'static str)> {
        let storage = || Arc::from("fast");
        let all = vec![
            (CopyRefused::Offline, "bring the host pve2 back"),
            (CopyRefused::Maintenance, "node-maintenance disable pve2"),
            (
                CopyRefused::Evacuated { since: Time(0) },
                "evacuate --end pve2",
            ),
            (
                CopyRefused::Unread {
                    why: "maxmem is no number".into(),
                },
                "/cluster/resources",
            ),
            (
                CopyRefused::NoTemplate {
                    template: "debian".into(),
                    seen: 1,
                    tied: None,
                },
                "a copy of the template on each host",
            ),
            (
                CopyRefused::TemplateFault {
                    fault: "VM 8000: min_free_storage".into(),
                },
                "the lines about that template",
            ),
            (
                CopyRefused::StorageInactive {
                    storage: storage(),
                    template: 8000,
                },
                "a storage that all hosts share",
            ),
            (
                CopyRefused::NoStorage {
                    storage: "min_free_storage".into(),
                    template: 8000,
                },
                "a storage that all hosts share",
            ),
            (
                CopyRefused::StorageNotShared {
                    storage: storage(),
                    template: 8000,
                },
                "a storage in the list that is shared",
            ),
            (
                CopyRefused::NoneOfStorages {
                    each: vec![CopyRefused::NoStorage {
                        storage: storage(),
                        template: 8000,
                    }],
                },
                "a storage that all hosts share",
            ),
            (
                CopyRefused::NoBridge {
                    bridge: "vmbr1".into(),
                },
                "make the bridge vmbr1 on pve2",
            ),
            (
                CopyRefused::StorageUnknown { storage: storage() },
                "Datastore.Audit on it), or min_free_storage = \"0%\" in [pool.small]",
            ),
        ];
        let named = all.iter().map(|(why, _)| match why {
            CopyRefused::Offline => 0,
            CopyRefused::Maintenance => 1,
            CopyRefused::Evacuated { .. } => 2,
            CopyRefused::Unread { .. } => 3,
            CopyRefused::NoTemplate { .. } => 4,
            CopyRefused::TemplateFault { .. } => 5,
            CopyRefused::StorageInactive { .. } => 6,
            CopyRefused::NoStorage { .. } => 7,
            CopyRefused::NoBridge { .. } => 8,
            CopyRefused::StorageUnknown { .. } => 9,
            CopyRefused::StorageNotShared { .. } => 10,
            CopyRefused::NoneOfStorages { .. } => 11,
        });
        let named: BTreeSet<usize> = named.collect();
        assert_eq!(named.len(), all.len(), "each has one line");
        all
    }

    /// It finds a mend that goes by the words of a reason: a storage or a fault may be called as a key is.
    #[test]
    fn each_reason_has_what_helps_against_it() {
        for (why, wanted) in mends() {
            let mend = mend_of(&why, "pve2", "small");
            assert!(mend.contains(wanted), "{why:?}: {mend}");
            let is_key = matches!(why, CopyRefused::StorageUnknown { .. });
            assert_eq!(mend.contains("min_free_storage"), is_key, "{why:?}: {mend}");
        }
    }
}
