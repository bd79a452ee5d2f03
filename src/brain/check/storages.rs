//! Rules for the storages that new machines' disks go to.

use std::collections::BTreeMap;

use super::hosts::{counting, gone, kind};
use super::together::PlannedActions;
use super::{Case, CheckResult, CheckRule, ensure, refuse};
use model::action::Kind;
use model::policy::InstanceType;
use model::region::{Machine, Region, Step, Storage, TemplateCopy};

/// Bytes by storage.
type Sizes<'a> = BTreeMap<&'a str, i128>;

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
    let clones: Vec<(&str, Sizes<'_>)> = planned
        .iter()
        .filter(|(action, _)| *action.target.region == *region)
        .filter_map(|(action, mark)| {
            let Kind::Create(spec) = &action.kind else {
                return None;
            };
            let mut copies = seen.templates.get(mark.template.as_str())?.iter();
            let copy = copies.find(|copy| copy.vmid == spec.template_vmid)?;
            let kind = kind(case, &mark.instance_type)?;
            Some((&*action.target.host, clone(copy, kind)))
        })
        .collect();
    let here = clones.iter().filter(|(at, _)| *at == host);
    let used = here.flat_map(|(_, sizes)| sizes.keys().copied());
    for name in used.collect::<std::collections::BTreeSet<&str>>() {
        let storage = seen.storages.get(host).and_then(|of| of.get(name));
        let Some(storage) = storage else {
            let elsewhere = seen.storages.values().any(|of| of.contains_key(name));
            ensure(!elsewhere, CheckRule::Storage, || {
                format!("{host} has no storage {name}")
            })?;
            continue;
        };
        ensure(storage.active, CheckRule::Storage, || {
            format!("the storage {name} is not available on {host}")
        })?;
        let same = |other: &str| other == host || shared(seen, other, name) && storage.shared;
        let there = clones.iter().filter(|(at, _)| same(at));
        let new: i128 = there.filter_map(|(_, sizes)| sizes.get(name)).sum();
        if new > 0 {
            room(case, seen, (region, name, storage), &same, new)?;
        }
    }
    Ok(())
}

fn shared(seen: &Region, host: &str, name: &str) -> bool {
    let storage = seen.storages.get(host).and_then(|of| of.get(name));
    storage.is_some_and(|storage| storage.shared)
}

/// Bytes on each storage that a clone of a template has when it is a machine of an instance type.
fn clone<'a>(copy: &'a TemplateCopy, kind: &InstanceType) -> Sizes<'a> {
    let mut sizes = Sizes::new();
    for disk in &copy.disks {
        let size = if disk.boot {
            disk.size.max(kind.disk)
        } else {
            disk.size
        };
        *sizes.entry(&disk.storage).or_default() += i128::from(size.max(0));
    }
    sizes
}

/// Bytes on each storage that a machine's disks have, or will have while the machine is made.
fn sizes<'a>(case: Case<'a>, seen: &'a Region, machine: &Machine, made: bool) -> Sizes<'a> {
    let vm = seen.vms.get(&machine.mark.vmid);
    let vm = vm.filter(|vm| !vm.disks.is_empty() && *vm.host == *machine.host);
    let as_planned = || {
        let copies = seen.templates.get(machine.mark.template.as_str())?;
        let mut copies = copies.iter();
        let copy = copies.find(|copy| copy.shared || *copy.host == *machine.host)?;
        Some(clone(copy, kind(case, &machine.mark.instance_type)?))
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

/// Whether a storage has room for new disks beside those that are there or coming.
fn room(
    case: Case<'_>,
    seen: &Region,
    (region, name, storage): (&str, &str, &Storage),
    same: &dyn Fn(&str) -> bool,
    new: i128,
) -> CheckResult {
    // A host that does not have a shared storage at hand may tell no size of it.
    let mut known = seen.storages.iter().filter(|(host, _)| same(host));
    let known = known.find_map(|(_, of)| of.get(name).filter(|storage| storage.total > 0));
    let storage = known.unwrap_or(storage);
    if storage.total <= 0 {
        return Ok(());
    }
    let (mut all, mut coming) = (new, new);
    for machine in case.snapshot.machines.values() {
        if *machine.region != *region || !same(&machine.host) {
            continue;
        }
        if gone(machine) && machine.vm.is_none() {
            continue;
        }
        let made = !gone(machine) && machine.step.is_none_or(|(step, _)| step < Step::Done);
        let sizes = sizes(case, seen, machine, made);
        let size = sizes.get(name).copied().unwrap_or(0);
        all += size;
        coming += if made { size } else { 0 };
    }
    let (total, free) = (i128::from(storage.total), i128::from(storage.free.max(0)));
    ensure(coming <= free, CheckRule::Storage, || {
        format!("disks under way on {name} have {coming} bytes, {free} are free")
    })?;
    let factor = i128::from(counting(case, region).storage_overcommit_permille);
    let grown = (total - free).max(0) + all;
    ensure(
        storage.thick || grown <= total * factor / 1000,
        CheckRule::Storage,
        || format!("{name} of {total} bytes would come to {grown} with all disks grown"),
    )
}
