//! What of a region PVE does not tell, or tells so that it cannot be read: each such guest and host counts as there, by what was
//! seen of it last, and no room is seen where nobody knows how much of it is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::foreign::ForeignText;
use crate::model::mark::Ownership;
use crate::model::region::{Region, Vm};
use crate::pve::{ClusterResources, ClusterStatus, GuestResource, HostResource};

/// The list of resources has no row of a host.
const NO_ROW: &str = "PVE's list of resources has no row of it";

/// Brings together what is told of hosts: by the list of resources, by the cluster's own list, and by the rows of guests. A host
/// that only guests name is not in the cluster any more, and off. A guest whose host cannot be read is where it was.
pub(super) fn complete(
    resources: &mut ClusterResources,
    status: &ClusterStatus,
    last: &BTreeMap<u32, Vm>,
) {
    for (name, member) in &status.members {
        let listed = resources.hosts.contains_key(name);
        let host = resources.hosts.entry(name.clone()).or_default();
        match (&member.odd, listed) {
            (Some(odd), true) => drop(host.odd.get_or_insert_with(|| odd.clone())),
            (Some(odd), false) => (host.online, host.odd) = (true, Some(odd.clone())),
            (None, true) => host.online &= member.online,
            (None, false) => (host.online, host.odd) = (member.online, Some(NO_ROW.into())),
        }
    }
    for (vmid, guest) in &mut resources.guests {
        if guest.odd.is_some()
            && guest.host.is_empty()
            && let Some(seen) = last.get(vmid)
        {
            guest.host = seen.host.clone();
        }
    }
    let guests = resources.guests.values();
    let named: BTreeSet<Arc<str>> = guests.map(|guest| guest.host.clone()).collect();
    for name in named.into_iter().filter(|name| !name.is_empty()) {
        resources.hosts.entry(name).or_default();
    }
    if let Some(nameless) = &status.nameless {
        for (name, host) in &mut resources.hosts {
            if !status.members.contains_key(name) {
                // It may be the one whose row is that.
                host.online |= host == &HostResource::default();
                host.odd.get_or_insert_with(|| nameless.clone());
            }
        }
    }
}

/// A guest whose row cannot be read: what was seen of it last, and the most that its row may mean. `told`: what is told
/// of it now.
pub(super) fn guest(told: Vm, guest: &GuestResource, last: Option<&Vm>) -> Vm {
    let Some(seen) = last else {
        return Vm {
            running: true,
            ..told
        };
    };
    let ours = matches!(seen.ownership, Some(Ownership::Marked(_)));
    let silent = &*guest.status == "unknown";
    let others = silent && !ours;
    Vm {
        host: told.host,
        // Nobody hears whether somebody else's was started since.
        running: others || told.running || (silent && seen.running),
        cpus: told.cpus.max(seen.cpus),
        memory: told.memory.max(seen.memory),
        memory_min: None,
        ownership: told.ownership.or_else(|| seen.ownership.clone()),
        unread: told.unread,
        ..seen.clone()
    }
}

/// Notes the hosts of which nobody can tell how much is taken, because they have a guest that has nobody knows what.
pub(super) fn mark_hosts(region: &mut Region) {
    for (vmid, vm) in &region.vms {
        if vm.template || (vm.unread.is_none() && !vm.running) {
            continue;
        }
        let why = match &vm.unread {
            Some(why) if vm.host.is_empty() => format!("VM {vmid} may be there: {why}"),
            _ if vm.memory > 0 && vm.cpus > 0 => continue,
            Some(why) => format!("what VM {vmid} has of it is not known: {why}"),
            None => {
                let what = if vm.memory > 0 {
                    "many CPUs"
                } else {
                    "much memory"
                };
                format!("PVE does not tell how {what} VM {vmid} has, which runs there")
            }
        };
        for (name, host) in &mut region.hosts {
            // Without a host it may be on any.
            if vm.host.is_empty() || *name == vm.host {
                host.unread.get_or_insert_with(|| ForeignText::new(&why));
            }
        }
    }
    for host in region.hosts.values_mut() {
        if host.unread.is_some() {
            host.memory = 0;
        }
    }
}
