//! Rules for the PCI devices that new machines get of their host.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::hosts::{gone, is_made, kind};
use super::together::PlannedActions;
use super::{Case, CheckResult, CheckRule, ensure, refuse};
use model::pci::{PciDevice, PciUse, share_a_card, share_a_device};
use model::region::{GuestKind, Machine, Region};

/// Whether a host has a device of its own for each that the planned machines get, beside those of all its guests.
pub(super) fn are_free(
    case: Case<'_>,
    region: &str,
    host: &str,
    planned: &PlannedActions<'_>,
) -> CheckResult {
    let here = planned
        .iter()
        .filter(|(action, _)| *action.target.region == *region && *action.target.host == *host);
    let kinds = here.filter_map(|(_, mark)| kind(case, &mark.instance_type));
    let wanted: Vec<PciUse> = kinds
        .flat_map(|kind| kind.pci.iter().map(PciDevice::taken))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let Some(seen) = case.snapshot.regions.get(region) else {
        return refuse(
            CheckRule::Region,
            format!("the region {region} was not seen"),
        );
    };
    let unread = seen.vms.iter().find(|(_, vm)| {
        let may_have = vm.kind == GuestKind::Qemu && !vm.template;
        *vm.host == *host && may_have && vm.devices.is_none()
    });
    if let Some((vmid, _)) = unread {
        let why = format!("which PCI devices the guest {vmid} on {host} has was not read");
        return refuse(CheckRule::Device, why);
    }
    let mut given = DeviceAssignment::of(seen, host);
    let taken = taken(case, seen, (region, host));
    // First who has a certain device: a mapping may give another one instead.
    for (_, device) in &taken {
        if let PciUse::Device(address) = device {
            given.withdraw(address);
        }
    }
    for (_, device) in &taken {
        if let PciUse::Mapping(name) = device {
            // Guests that have more devices than there are share them: not at the same time.
            given.give(name);
        }
    }
    for device in &wanted {
        if let PciUse::Mapping(name) = device {
            ensure(given.give(name), CheckRule::Device, || {
                format!(
                    "{host} has no free PCI device of the mapping {name} for each planned machine"
                )
            })?;
        }
    }
    let cards = Cards { seen, host };
    wanted
        .iter()
        .try_for_each(|one| cards.has_for(one, &wanted, &taken))
}

/// The cards of a host, for whole devices and mediated ones.
struct Cards<'a> {
    seen: &'a Region,
    host: &'a str,
}

impl Cards<'_> {
    /// The addresses on one of which a device is.
    fn places(&self, device: &PciUse) -> Vec<Arc<str>> {
        match device {
            PciUse::Device(address)
            | PciUse::MdevOf {
                device: address, ..
            } => vec![address.clone()],
            PciUse::Mapping(name) | PciUse::Mdev { mapping: name, .. } => {
                let hosts = self.seen.mappings.get(name);
                hosts
                    .and_then(|hosts| hosts.get(self.host).cloned())
                    .unwrap_or_default()
            }
        }
    }

    fn meet(&self, one: &PciUse, other: &PciUse, same: fn(&str, &str) -> bool) -> bool {
        let others = self.places(other);
        let places = self.places(one);
        places
            .iter()
            .any(|place| others.iter().any(|at| same(place, at)))
    }

    /// Whether nobody has or gets cards in another way than a planned machine, and, if it gets a mediated device, whether the host told that
    /// there is one for each who has none yet.
    fn has_for(&self, one: &PciUse, wanted: &[PciUse], taken: &[(u32, PciUse)]) -> CheckResult {
        let host = self.host;
        let all = || wanted.iter().chain(taken.iter().map(|(_, device)| device));
        let mixed = all().find(|other| {
            one.mdev().is_some() != other.mdev().is_some() && self.meet(one, other, share_a_device)
        });
        ensure(mixed.is_none(), CheckRule::Device, || {
            format!("cards of {host} are given whole and in parts ({one})")
        })?;
        let PciUse::Mdev { mapping, mdev } = one else {
            return Ok(());
        };
        let told = self.seen.mediated.get(host);
        let Some(told) = told.and_then(|told| told.get(mapping)) else {
            let why = format!("{host} did not tell what is left of the mapping {mapping}");
            return refuse(CheckRule::Device, why);
        };
        // The host's number is what is left beside the mediated devices of VMs that ran when it was asked: only those of other VMs still
        // come off it.
        let waiting = taken
            .iter()
            .filter(|(vmid, _)| !told.running.contains(vmid));
        let waiting = waiting.map(|(_, device)| device).chain(wanted);
        let near = waiting.filter(|other| {
            let is_part = other.mdev().is_some();
            is_part && self.meet(one, other, share_a_card)
        });
        let (same, others): (Vec<&PciUse>, Vec<&PciUse>) =
            near.partition(|other| other.mdev() == Some(mdev));
        ensure(others.is_empty(), CheckRule::Device, || {
            format!("cards of {host} are promised to other types than {mdev}")
        })?;
        let left = told.left.get(mdev).copied().unwrap_or(0);
        let enough = u32::try_from(same.len()).is_ok_and(|asked| asked <= left);
        ensure(enough && !same.is_empty(), CheckRule::Device, || {
            format!(
                "{host} has {left} mediated devices {mdev} of the mapping {mapping} left, too few for each planned machine"
            )
        })
    }
}

/// What guests and machines have on a host or will have, planned ones aside.
fn taken(case: Case<'_>, seen: &Region, (region, host): (&str, &str)) -> Vec<(u32, PciUse)> {
    let mut all = Vec::new();
    let mut ours = BTreeSet::new();
    for machine in case.snapshot.machines.values() {
        if *machine.region == *region {
            ours.insert(machine.mark.vmid);
            if *machine.host == *host {
                let devices = of_machine(case, seen, machine).into_iter();
                all.extend(devices.map(|device| (machine.mark.vmid, device)));
            }
        }
    }
    let guests = seen
        .vms
        .iter()
        .filter(|(vmid, vm)| *vm.host == *host && !vm.template && !ours.contains(*vmid));
    all.extend(guests.flat_map(|(vmid, vm)| {
        let devices = vm.devices.iter().flatten();
        devices.map(|device| (*vmid, device.clone()))
    }));
    all
}

fn of_machine(case: Case<'_>, seen: &Region, machine: &Machine) -> Vec<PciUse> {
    let vm = seen.vms.get(&machine.mark.vmid);
    let written = vm.and_then(|vm| vm.devices.clone()).unwrap_or_default();
    let made = is_made(machine);
    if !written.is_empty() || (vm.is_some_and(|vm| vm.devices.is_some()) && !made) {
        return written;
    }
    if gone(machine) && machine.vm.is_none() {
        return Vec::new();
    }
    let terms = machine.terms.as_ref().map(|terms| &terms.kind);
    let kind = terms.or_else(|| kind(case, &machine.mark.instance_type));
    let devices = kind.into_iter().flat_map(|kind| &kind.pci);
    devices.map(PciDevice::taken).collect()
}

/// Who could have which device of a host: as many as can be get one of their own.
struct DeviceAssignment<'a> {
    seen: &'a Region,
    host: &'a str,
    /// The addresses of all mappings, each device once.
    devices: Vec<&'a str>,
    /// By device the mapping of who has it.
    owners: Vec<Option<String>>,
    withdrawn: Vec<bool>,
}

impl<'a> DeviceAssignment<'a> {
    fn of(seen: &'a Region, host: &'a str) -> DeviceAssignment<'a> {
        let mut devices: Vec<&str> = Vec::new();
        let here = seen.mappings.values().filter_map(|hosts| hosts.get(host));
        for address in here.flatten() {
            if !devices.iter().any(|known| share_a_device(known, address)) {
                devices.push(address);
            }
        }
        let count = devices.len();
        DeviceAssignment {
            seen,
            host,
            devices,
            owners: vec![None; count],
            withdrawn: vec![false; count],
        }
    }

    /// Somebody has this very device.
    fn withdraw(&mut self, address: &str) {
        for (device, withdrawn) in self.devices.iter().zip(&mut self.withdrawn) {
            *withdrawn |= share_a_device(device, address);
        }
    }

    /// Gives a device of a mapping, if there is a way to.
    fn give(&mut self, mapping: &str) -> bool {
        let mut asked = vec![false; self.devices.len()];
        self.find(mapping, &mut asked)
    }

    fn find(&mut self, mapping: &str, asked: &mut [bool]) -> bool {
        for at in 0..self.devices.len() {
            if asked[at] || self.withdrawn[at] || !self.has(mapping, at) {
                continue;
            }
            asked[at] = true;
            let owner = self.owners[at].clone();
            if owner.is_none_or(|owner| self.find(&owner, asked)) {
                self.owners[at] = Some(mapping.to_owned());
                return true;
            }
        }
        false
    }

    fn has(&self, mapping: &str, device: usize) -> bool {
        let of = self.seen.mappings.get(mapping);
        let mut of = of
            .and_then(|hosts| hosts.get(self.host))
            .into_iter()
            .flatten();
        of.any(|address| share_a_device(address, self.devices[device]))
    }
}
