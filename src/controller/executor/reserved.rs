//! Before what is reserved for a machine is written into its VM, an address or CPUs of its host: nobody else has it.
//!
//! The brain chose it on a view, and knows of every machine that it planned itself. What it cannot know is a clone that another
//! leader asked for and that PVE began later. Of two VMs with one address or CPU exactly one is configured: each is marked before it
//! looks, and looks before it is written to. So whoever looks later finds the other one's mark, and gives way to what is written
//! already, or else to the lower VMID.

use std::fmt;
use std::net::IpAddr;

use crate::controller::journal::JournalEntry;
use crate::model::cpus::CpuSet;
use crate::model::mark::{Mark, Ownership};
use crate::model::region::GuestKind;
use crate::model::topology::Pins;
use crate::pve::{FailureCause, VmConfig};

use super::work::{Stop, Work};

/// How often a VM that is listed is looked for.
const LOOKS: usize = 3;

/// A thing that only one machine may have: an address, or CPUs of a host.
enum ExclusiveResource<'a> {
    Address(IpAddr),
    /// CPUs of a host.
    Cpus(&'a str, &'a CpuSet),
}

impl fmt::Display for ExclusiveResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExclusiveResource::Address(address) => write!(f, "the address {address}"),
            ExclusiveResource::Cpus(host, cpus) => write!(f, "one of the CPUs {cpus} of {host}"),
        }
    }
}

impl ExclusiveResource<'_> {
    /// Whether a machine with this mark, on this host, has it or some of it.
    fn is_of(&self, mark: &Mark, host: &str) -> bool {
        match self {
            ExclusiveResource::Address(address) => {
                mark.addresses.values().flatten().any(|own| own == address)
            }
            ExclusiveResource::Cpus(here, cpus) => {
                *here == host && !mark.cpus.both(cpus).is_empty()
            }
        }
    }

    /// Whether a guest with this configuration, on this host, has it or some of it. What cannot be read of its CPUs may be any.
    fn is_in(&self, config: &VmConfig, host: &str) -> bool {
        match self {
            ExclusiveResource::Address(address) => config.addresses().contains(address),
            ExclusiveResource::Cpus(here, cpus) => {
                let keys = config.raw.iter().map(|(key, value)| (&**key, &**value));
                let has = Pins::of(keys).is_none_or(|pins| !pins.cpus.both(cpus).is_empty());
                *here == host && has
            }
        }
    }
}

/// Another guest that has it, too.
struct Other {
    /// The guest as messages name it: `VM 9001 (name)`, or `the machine NAME` where only the journal knows it.
    name: String,
    vmid: u32,
    /// It is in its configuration, and not in its mark alone.
    written: bool,
}

/// Stops when another guest has an address or a CPU of the machine, and is to keep it.
pub(super) async fn unique(work: &Work) -> Result<(), Stop> {
    let host = work.host()?;
    let addresses = work.mark.addresses.values().flatten();
    let addresses = addresses.filter(|_| !planted!(AddressNotLookedUp));
    let mut all: Vec<ExclusiveResource<'_>> = addresses
        .map(|address| ExclusiveResource::Address(*address))
        .collect();
    if !work.mark.cpus.is_empty() && !planted!(CpusNotLookedUp) {
        all.push(ExclusiveResource::Cpus(&host, &work.mark.cpus));
    }
    for reserved in &all {
        for other in others(work, reserved).await? {
            if other.written || other.vmid < work.mark.vmid {
                return Err(Stop::Transient(format!(
                    "{reserved} that was chosen for it is also that of {}: it is made anew with another one",
                    other.name
                )));
            }
        }
    }
    Ok(())
}

async fn others(work: &Work, reserved: &ExclusiveResource<'_>) -> Result<Vec<Other>, Stop> {
    let journal = work.tools.journal.entries();
    let region = &work.entry()?.target.region;
    let mut others: Vec<Other> = journal
        .values()
        .filter(|entry| *entry.spec.mark.machine != *work.machine)
        .filter(|entry| {
            // Hosts of two regions may have one name; a network may reach both.
            entry.target.region == *region || matches!(reserved, ExclusiveResource::Address(_))
        })
        .filter(|entry| reserved.is_of(&entry.spec.mark, &entry.target.host))
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
        // A VM in the journal is among `others` already, with what its mark reserves.
        let known = *vmid == work.mark.vmid || intended(*vmid);
        let machine = !guest.template && guest.kind == GuestKind::Qemu;
        if known || !(machine || guest.odd.is_some()) || !in_range(*vmid) {
            continue;
        }
        if let Some(why) = guest.unplaced(*vmid) {
            return Err(Stop::Transient(format!(
                "{why}; it may have its CPUs or address"
            )));
        }
        let elsewhere =
            matches!(reserved, ExclusiveResource::Cpus(host, _) if *guest.host != **host);
        let online = |host: &str| resources.hosts.get(host).is_some_and(|host| host.online);
        if elsewhere || !online(&guest.host) {
            continue;
        }
        if let Some((host, config)) = read(work, *vmid, &guest.host).await? {
            others.extend(of_config((*vmid, &host), &config, reserved));
        }
    }
    Ok(others)
}

/// The configuration of a VM that was seen on a host, and the host that it is on; nothing if it is gone. The end of a clone moves it.
async fn read(work: &Work, vmid: u32, seen: &str) -> Result<Option<(String, VmConfig)>, Stop> {
    let mut host = seen.to_owned();
    for _ in 0..LOOKS {
        let read = work
            .patiently("reading a VM that may have it too", || async {
                match work.pve.vm_config(&host, vmid).await {
                    Ok(config) => Ok(Some(config)),
                    Err(error) if error.cause() == FailureCause::Gone => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .await?;
        if let Some(config) = read {
            return Ok(Some((host, config)));
        }
        let resources = work
            .patiently("reading the resources", || work.pve.resources())
            .await?;
        let Some(guest) = resources.guests.get(&vmid) else {
            return Ok(None);
        };
        host = guest.host.to_string();
    }
    Err(Stop::Transient(format!(
        "VM {vmid}, which may have its CPUs or address, is listed and cannot be found"
    )))
}

fn of_entry(entry: &JournalEntry) -> Other {
    Other {
        name: format!("the machine {}", entry.target.machine),
        vmid: entry.target.vmid,
        written: entry.configured,
    }
}

fn of_config(
    (vmid, host): (u32, &str),
    config: &VmConfig,
    reserved: &ExclusiveResource<'_>,
) -> Option<Other> {
    let written = reserved.is_in(config, host);
    let marked = matches!(config.ownership(), Ownership::Marked(mark) if reserved.is_of(&mark, host) && mark.vmid == vmid);
    (written || marked).then(|| Other {
        name: format!("VM {vmid} ({})", config.name),
        vmid,
        written,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_guest_has_a_cpu_by_what_is_written_of_it_on_the_same_host() {
        let wanted = CpuSet::read("4-5").expect("a set");
        let on = |host: &str, config: serde_json::Value| {
            let resource = ExclusiveResource::Cpus("pve1", &wanted);
            resource.is_in(&VmConfig::read(&config), host)
        };
        let pinned = |set: &str| json!({ "name": "a", "cores": 2, "affinity": set });
        assert!(on("pve1", pinned("5-6")));
        assert!(!on("pve1", pinned("6-7")));
        assert!(
            !on("pve2", pinned("5-6")),
            "another host has CPUs of its own"
        );
        assert!(on("pve1", pinned("what")), "what cannot be read may be any");
        assert!(!on("pve1", json!({ "name": "a", "cores": 2 })));
    }
}
