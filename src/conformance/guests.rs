//! Guests of a case that are not ours: VMs and containers that have memory, addresses, PCI devices and CPUs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::pci::PciUse;
use crate::model::quantity::Quantity;
use crate::model::region::{GuestKind, Region, Vm};
use crate::model::topology::Pins;
use crate::model::words;

use super::fields::CaseFields;
use super::nearest;
use super::networks;
use super::objects::{name_of, named};
use super::scalars::{quantity, text, texts, truth, whole};
use super::stage::{CaseWorld, REGION, free_vmid};
use super::topologies::cpus;
use super::value::{CaseError, CaseValue};

/// Reads `guests`.
pub(super) fn read(case: &mut CaseFields<'_>, stage: &mut CaseWorld) -> Result<(), CaseError> {
    if let Some(value) = case.take("guests") {
        for (name, item) in named(value)? {
            guest(stage, &item, name.as_ref())?;
        }
    }
    Ok(())
}

fn guest(stage: &mut CaseWorld, value: &CaseValue, name: Option<&String>) -> Result<(), CaseError> {
    let mut fields = CaseFields::of(value, "a guest")?;
    let name: Arc<str> = name_of(&mut fields, name, "a guest")?.into();
    let region = fields.with("region", text)?.unwrap_or(REGION);
    let Some(seen) = stage.snapshot.regions.get_mut(region) else {
        return Err(value.wrong(format!("there is no region {region:?}")));
    };
    let host = known_host(seen, fields.need("host")?)?;
    let container = fields.with("container", truth)?.unwrap_or(false);
    let read = fields.with("read", truth)?.unwrap_or(true);
    let mut vm = Vm {
        host,
        name: name.clone(),
        kind: if container {
            GuestKind::Lxc
        } else {
            GuestKind::Qemu
        },
        running: fields.with("running", truth)?.unwrap_or(true),
        onboot: fields.with("onboot", truth)?.unwrap_or(false),
        cpus: fields
            .any(&["cpus", "cpu"])
            .map(whole)
            .transpose()?
            .unwrap_or(0),
        ..Vm::default()
    };
    if let Some(value) = fields.any(&["memory", "mem"]) {
        vm.memory = quantity(value)?.units();
    }
    vm.memory_min = fields.with("balloon", quantity)?.map(Quantity::units);
    let addresses = fields.with("addresses", networks::addresses)?;
    let devices = fields.with("pci", devices)?;
    let pins = Pins {
        cpus: fields.with("affinity", cpus)?.unwrap_or_default(),
        memory: fields.with("numa_memory", memory)?.unwrap_or_default(),
    };
    fields.done()?;
    if read {
        vm.addresses = Some(addresses.unwrap_or_default());
        if !container {
            vm.devices = Some(devices.unwrap_or_default());
            vm.pins = Some(pins);
        }
    }
    // One of this name is another one now.
    let of_name = |vm: &Vm| !vm.template && vm.ownership.is_none() && vm.name == name;
    let known = seen.vms.iter().find(|(_, vm)| of_name(vm));
    let known = known.map(|(vmid, _)| *vmid);
    let vmid = known
        .or_else(|| free_vmid(seen))
        .ok_or_else(|| value.wrong("there are more guests than VMIDs for them"))?;
    seen.vms.insert(vmid, vm);
    Ok(())
}

/// A host that the region has.
fn known_host(region: &Region, value: &CaseValue) -> Result<Arc<str>, CaseError> {
    let wanted = text(value)?;
    let found = region.hosts.get_key_value(wanted);
    found.map(|(name, _)| name.clone()).ok_or_else(|| {
        let known: Vec<&str> = region.hosts.keys().map(|name| &**name).collect();
        let hint = nearest::hint(wanted, known.iter().copied());
        let known = words::names(&known);
        value.wrong(format!("there is no host {wanted:?}{hint}; known: {known}"))
    })
}

/// `[gpu, "0000:01:00.0", "vgpu,mdev=nvidia-63"]`: devices of mappings, certain ones by their addresses, and mediated ones of either.
fn devices(value: &CaseValue) -> Result<Vec<PciUse>, CaseError> {
    let names = texts(value)?.into_iter();
    let used = names.map(|name| {
        let text = if name.contains(':') {
            name
        } else {
            format!("mapping={name}")
        };
        PciUse::read(&text).ok_or_else(|| value.expected("devices, as [gpu]"))
    });
    used.collect()
}

/// `{0: 4Gi}`: memory by the host's NUMA nodes that it is bound to.
fn memory(value: &CaseValue) -> Result<BTreeMap<usize, i64>, CaseError> {
    let expected = || value.expected("memory by NUMA node, as {0: 4Gi}");
    let entries = value.map().ok_or_else(expected)?.iter();
    let entries = entries.map(|entry| {
        let node = entry.key.parse::<usize>().map_err(|_| expected())?;
        Ok((node, quantity(&entry.value)?.units()))
    });
    entries.collect()
}
