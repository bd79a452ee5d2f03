//! Rules for the storages that new machines' disks go to.

use std::collections::BTreeMap;

use super::hosts::{counting, gone, is_made, kind};
use super::together::PlannedActions;
use super::{Case, CheckResult, CheckRule, ensure, refuse};
use model::action::Kind;
use model::chosen_storages::ChosenStorages;
use model::hosts::StorageFloor;
use model::policy::InstanceType;
use model::region::{Machine, Region, Storage, TemplateCopy};

/// Bytes by storage.
type Sizes<'a> = BTreeMap<&'a str, i128>;

/// Disks of a machine that is planned.
#[derive(Debug)]
struct NewClone<'a> {
    host: &'a str,
    sizes: Sizes<'a>,
    /// How much of a storage the machine's pool leaves free (`min_free_storage`); `None` where it may fill it.
    floor: Option<StorageFloor>,
}

/// Whether the storages of a host have room for the disks of all machines that are planned, and whether the host has them.
pub(super) fn hold(
    case: Case<'_>,
    region: &str,
    host: &str,
    planned: &PlannedActions<'_>,
) -> CheckResult {
    let Some(seen) = case.snapshot.regions.get(region) else {
        return refuse(
            CheckRule::Region,
            format!("the region {region} was not seen"),
        );
    };
    let clones: Vec<NewClone<'_>> = planned
        .iter()
        .filter(|(action, _)| *action.target.region == *region)
        .filter_map(|(action, mark)| {
            let Kind::Create(spec) = &action.kind else {
                return None;
            };
            let mut copies = seen.templates.get(mark.template.as_str())?.iter();
            let copy = copies.find(|copy| copy.vmid == spec.template_vmid)?;
            let kind = kind(case, &mark.instance_type)?;
            let pool = case.policy.pools.get(mark.pool.as_str());
            let pool = pool.map(|pool| pool.further.get(region).unwrap_or(pool));
            Some(NewClone {
                host: &action.target.host,
                sizes: clone(copy, kind, &spec.storages),
                floor: pool.and_then(|pool| pool.host_rules.min_free_storage),
            })
        })
        .collect();
    let here = clones.iter().filter(|clone| clone.host == host);
    let used = here.flat_map(|clone| clone.sizes.keys().copied());
    for name in used.collect::<std::collections::BTreeSet<&str>>() {
        let storage = seen.storages.get(host).and_then(|of| of.get(name));
        let Some(storage) = storage else {
            let elsewhere = seen.storages.values().any(|of| of.contains_key(name));
            ensure(!elsewhere, CheckRule::Storage, || {
                format!("{host} has no storage {name}")
            })?;
            let mut bounds = clones.iter().filter(|clone| clone.host == host);
            let bounded =
                bounds.any(|clone| clone.floor.is_some() && clone.sizes.contains_key(name));
            ensure(!bounded, CheckRule::Storage, || {
                format!("a part of {name} is to stay free, and its size on {host} is not known")
            })?;
            continue;
        };
        ensure(storage.active, CheckRule::Storage, || {
            format!("the storage {name} is not available on {host}")
        })?;
        let same = |other: &str| other == host || shared(seen, other, name) && storage.shared;
        let there = clones.iter().filter(|clone| same(clone.host));
        let new = there.filter_map(|clone| Some((*clone.sizes.get(name)?, clone.floor)));
        let new: Vec<(i128, Option<StorageFloor>)> = new.collect();
        if !new.is_empty() {
            room(case, seen, (region, name, storage), &same, &new)?;
        }
    }
    Ok(())
}

fn shared(seen: &Region, host: &str, name: &str) -> bool {
    let storage = seen.storages.get(host).and_then(|of| of.get(name));
    storage.is_some_and(|storage| storage.shared)
}

/// Bytes on each storage that a clone of a template has when it is a machine of an instance type.
fn clone<'a>(copy: &'a TemplateCopy, kind: &InstanceType, chosen: &'a ChosenStorages) -> Sizes<'a> {
    let mut sizes = Sizes::new();
    for disk in &copy.disks {
        let size = if disk.boot {
            disk.size.max(kind.disk)
        } else {
            disk.size
        };
        *sizes.entry(chosen.of(disk)).or_default() += i128::from(size.max(0));
    }
    sizes
}

/// Bytes on each storage that a machine's disks have, or will have while the machine is made.
fn sizes<'a>(case: Case<'a>, seen: &'a Region, machine: &'a Machine, made: bool) -> Sizes<'a> {
    let vm = seen.vms.get(&machine.mark.vmid);
    let vm = vm.filter(|vm| !vm.disks.is_empty() && *vm.host == *machine.host);
    let as_planned = || {
        let copies = seen.templates.get(machine.mark.template.as_str())?;
        let mut copies = copies.iter();
        let copy = copies.find(|copy| copy.shared || *copy.host == *machine.host)?;
        let kind = kind(case, &machine.mark.instance_type)?;
        Some(clone(copy, kind, &machine.storages))
    };
    let as_it_is = || {
        let disks = vm?.disks.iter();
        let disks = disks.map(|(name, size)| (&**name, i128::from((*size).max(0))));
        Some(disks.collect())
    };
    let found = if made {
        as_planned().or_else(as_it_is)
    } else {
        as_it_is().or_else(as_planned)
    };
    found.unwrap_or_default()
}

/// How many bytes of a storage of `total` bytes stay free by a floor (`min_free_storage`).
fn kept(floor: StorageFloor, total: i64) -> i128 {
    match floor {
        StorageFloor::Bytes(bytes) => i128::from(bytes),
        StorageFloor::Permille(part) => i128::from(total) * i128::from(part) / 1000,
    }
}

/// Whether a storage has room for new disks beside those that are there or coming, and leaves free what each of them asks for.
fn room(
    case: Case<'_>,
    seen: &Region,
    (region, name, storage): (&str, &str, &Storage),
    same: &dyn Fn(&str) -> bool,
    planned: &[(i128, Option<StorageFloor>)],
) -> CheckResult {
    // A host that does not have a shared storage at hand may tell no size of it.
    let mut known = seen.storages.iter().filter(|(host, _)| same(host));
    let known = known.find_map(|(_, of)| of.get(name).filter(|shown| shown.total > 0));
    let storage = known.unwrap_or(storage);
    if storage.total <= 0 {
        let bounded = planned.iter().any(|(_, floor)| floor.is_some());
        return ensure(!bounded, CheckRule::Storage, || {
            format!("a part of {name} is to stay free, and its size is not known")
        });
    }
    let new: i128 = planned.iter().map(|(size, _)| size).sum();
    if new <= 0 {
        return Ok(());
    }
    let floors = planned.iter().filter_map(|(_, floor)| *floor);
    let keep = floors.map(|floor| kept(floor, storage.total)).max();
    let keep = keep.unwrap_or(0);
    let (mut all, mut coming) = (new, new);
    for machine in case.snapshot.machines.values() {
        if *machine.region != *region || !same(&machine.host) {
            continue;
        }
        if gone(machine) && machine.vm.is_none() {
            continue;
        }
        let made = is_made(machine);
        let sizes = sizes(case, seen, machine, made);
        let size = sizes.get(name).copied().unwrap_or(0);
        all += size;
        coming += if made { size } else { 0 };
    }
    let (total, free) = (i128::from(storage.total), i128::from(storage.free.max(0)));
    ensure(coming + keep <= free, CheckRule::Storage, || {
        format!(
            "disks under way on {name} have {coming} bytes, {free} are free and {keep} must stay so"
        )
    })?;
    let factor = i128::from(counting(case, region).storage_overcommit_permille);
    let grown = (total - free).max(0) + all;
    ensure(
        storage.thick || grown + keep <= total * factor / 1000,
        CheckRule::Storage,
        || {
            format!(
                "{name} of {total} bytes would come to {grown} with all disks grown, and {keep} must stay free"
            )
        },
    )
}
