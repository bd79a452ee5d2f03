//! Before an address is written into a VM: nobody else has it.
//!
//! The brain chose it on a view, and knows of every machine that it planned itself. What it cannot know is a clone that another
//! leader asked for and that PVE began later. Of two VMs with one address exactly one is configured: each is marked before it
//! looks, and looks before it is written to. So whoever looks later finds the other one's mark, and gives way to what is written
//! already, or else to the lower VMID.

use std::net::IpAddr;

use crate::agent::journal::Entry;
use crate::model::mark::{Mark, Ownership};
use crate::model::region::GuestKind;
use crate::pve::{Cause, VmConfig};

use super::work::{Stop, Work};

/// Another guest that has an address of the machine.
struct Other {
    /// The guest as messages name it: `VM 9001 (name)`, or `the machine NAME` where only the journal knows it.
    name: String,
    vmid: u32,
    /// The address is in its configuration, and not in its mark alone.
    written: bool,
}

/// Stops when another guest has an address of the machine, and is to keep it.
pub(super) async fn unique(work: &Work) -> Result<(), Stop> {
    if planted!(AddressNotLookedUp) {
        return Ok(());
    }
    for address in work.mark.addresses.values().flatten() {
        for other in others(work, *address).await? {
            if other.written || other.vmid < work.mark.vmid {
                return Err(Stop::Transient(format!(
                    "the address {address} that was chosen for it is also that of {}: it is made anew with another one",
                    other.name
                )));
            }
        }
    }
    Ok(())
}

async fn others(work: &Work, address: IpAddr) -> Result<Vec<Other>, Stop> {
    let journal = work.tools.journal.entries();
    let region = &work.entry()?.target.region;
    let mut others: Vec<Other> = journal
        .values()
        .filter(|entry| *entry.spec.mark.machine != *work.machine)
        .filter(|entry| has(&entry.spec.mark, address))
        .map(of_entry)
        .collect();
    let resources = work
        .patiently("reading the resources", || work.pve.resources())
        .await?;
    let policy = work.tools.settings.policy.regions.get(region);
    let in_range = |vmid: u32| {
        policy.is_some_and(|policy| (policy.vmid_first..=policy.vmid_last).contains(&vmid))
    };
    let intended = |vmid: u32| {
        let mut entries = journal.values();
        entries.any(|entry| entry.target.region == *region && entry.target.vmid == vmid)
    };
    for (vmid, guest) in &resources.guests {
        // A VM in the journal is among `others` already, with the addresses of its mark.
        let known = *vmid == work.mark.vmid || intended(*vmid);
        if known || guest.template || guest.kind != GuestKind::Qemu || !in_range(*vmid) {
            continue;
        }
        let online = |host: &str| resources.hosts.get(host).is_some_and(|host| host.online);
        if !online(&guest.host) {
            continue;
        }
        let read = work
            .patiently("reading a VM that may have the address", || async {
                match work.pve.vm_config(&guest.host, *vmid).await {
                    Ok(config) => Ok(Some(config)),
                    Err(error) if error.cause() == Cause::Gone => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .await?;
        others.extend(read.and_then(|config| of_config(*vmid, &config, address)));
    }
    Ok(others)
}

fn has(mark: &Mark, address: IpAddr) -> bool {
    mark.addresses.values().flatten().any(|own| *own == address)
}

fn of_entry(entry: &Entry) -> Other {
    Other {
        name: format!("the machine {}", entry.target.machine),
        vmid: entry.target.vmid,
        written: entry.configured,
    }
}

fn of_config(vmid: u32, config: &VmConfig, address: IpAddr) -> Option<Other> {
    let written = config.addresses().contains(&address);
    let reserved = matches!(config.ownership(), Ownership::Marked(mark) if has(&mark, address) && mark.vmid == vmid);
    (written || reserved).then(|| Other {
        name: format!("VM {vmid} ({})", config.name),
        vmid,
        written,
    })
}
