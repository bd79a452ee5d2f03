//! Others' guests: what their hosts have to keep for them, as far as it counts.
//!
//! `/cluster/resources` shows neither whether a guest starts with its host nor what ballooning leaves it: each guest of
//! which that counts is read by itself, once, and then when it seems to have changed or the last reading is old. What was not
//! read counts in full: a guest that is off as one that starts with its host, one that runs with all its memory.
//! Which PCI devices and CPUs it has is not known until it was read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::controller::region::Fingerprint;
use crate::controller::region::silent_hosts::SilentHosts;
use crate::model::hosts::HostCounting;
use crate::model::region::GuestKind;
use crate::pve::{CallError, FailureCause, GuestPromise, GuestResource};

/// A reading is old after this long: that somebody edited `onboot` shows nowhere else.
const STALE: Duration = Duration::from_mins(30);
/// Guests that are read in one poll because they are new or changed.
const READS_PER_POLL: usize = 50;

/// Configurations of others' guests as they were read last, by VMID.
#[derive(Debug, Default)]
pub(super) struct ForeignGuests {
    seen: BTreeMap<u32, ForeignGuestReading>,
    /// Their fixed addresses as they were read last: those on a host that went off stand, whatever PVE forgets of them.
    addresses: BTreeMap<u32, Vec<IpAddr>>,
}

/// One guest: how `/cluster/resources` showed it when its configuration was read, and what that says.
#[derive(Clone, Debug)]
struct ForeignGuestReading {
    fingerprint: Fingerprint,
    running: bool,
    promise: GuestPromise,
    read: Instant,
}

impl ForeignGuestReading {
    /// Whether nothing about the guest seems to have changed since it was read.
    fn is(&self, guest: &GuestResource) -> bool {
        self.fingerprint == Fingerprint::of(guest) && self.running == guest.running()
    }
}

/// Which things that other guests may hold as well the machines of a region get.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SharedResources {
    /// Addresses of a network.
    pub(super) addresses: bool,
    /// PCI devices of hosts.
    pub(super) devices: bool,
    /// CPUs of hosts for themselves.
    pub(super) cpus: bool,
}

impl ForeignGuests {
    /// The memory that a guest's host keeps for it, and whether the guest starts with its host, as the guest's configuration says;
    /// `None` while that was not read, or was read before the guest seems to have changed.
    pub(super) fn promise(&self, vmid: u32, guest: &GuestResource) -> Option<GuestPromise> {
        let seen = self.seen.get(&vmid).filter(|seen| seen.is(guest));
        seen.map(|seen| seen.promise.clone())
    }

    /// The fixed addresses of a guest on a host that does not answer, as they were read last.
    pub(super) fn last_addresses(&self, vmid: u32) -> Option<&Vec<IpAddr>> {
        self.addresses.get(&vmid)
    }

    /// Only guests that are there are remembered.
    pub(super) fn keep(&mut self, there: &BTreeMap<u32, GuestResource>) {
        self.addresses.retain(|vmid, _| there.contains_key(vmid));
    }

    /// Which of these guests are to be read at `now`, of those that count: of those that are off whether they start with their
    /// host, of those that run what ballooning leaves them, and of all which addresses, and of all VMs which PCI devices they
    /// have, where machines get some. Guests of hosts that do not answer are left for later.
    pub(super) fn find_due<'g>(
        &mut self,
        guests: &[(u32, &'g GuestResource)],
        counting: &HostCounting,
        scarce: SharedResources,
        silent: &SilentHosts,
        now: Instant,
    ) -> Vec<(u32, &'g GuestResource)> {
        let of_vms = scarce.devices || scarce.cpus;
        let counts = |guest: &GuestResource| {
            if scarce.addresses || (of_vms && guest.kind == GuestKind::Qemu) {
                true
            } else if guest.running() {
                counting.balloon_minimum && guest.kind == GuestKind::Qemu
            } else {
                counting.onboot
            }
        };
        let wanted = guests.iter().filter(|(_, guest)| counts(guest));
        let mut wanted: Vec<(u32, &GuestResource)> = wanted.copied().collect();
        let stays: BTreeSet<u32> = wanted.iter().map(|(vmid, _)| *vmid).collect();
        self.seen.retain(|vmid, _| stays.contains(vmid));
        wanted.retain(|(_, guest)| !silent.has(&guest.host));
        self.due(&wanted, now)
    }

    /// A guest was asked about at `now`.
    pub(super) fn record(
        &mut self,
        (vmid, guest): (u32, &GuestResource),
        now: Instant,
        told: Result<GuestPromise, CallError>,
    ) {
        match told {
            Ok(promise) => {
                self.addresses.insert(vmid, promise.addresses.clone());
                let seen = ForeignGuestReading {
                    fingerprint: Fingerprint::of(guest),
                    running: guest.running(),
                    promise,
                    read: now,
                };
                self.seen.insert(vmid, seen);
            }
            // It went or moved between the two calls; the next poll sees.
            Err(error) if error.cause() == FailureCause::Gone => drop(self.seen.remove(&vmid)),
            // A guest that cannot be read counts as it did, and waits its turn like one that was read: else it is the oldest each time.
            Err(_) => {
                if let Some(seen) = self.seen.get_mut(&vmid) {
                    seen.read = now;
                }
            }
        }
    }

    /// Those that are new or changed, and the one whose reading is oldest, if it is old.
    fn due<'g>(
        &self,
        wanted: &[(u32, &'g GuestResource)],
        now: Instant,
    ) -> Vec<(u32, &'g GuestResource)> {
        let seen =
            |vmid: u32, guest: &GuestResource| self.seen.get(&vmid).filter(|seen| seen.is(guest));
        let news = wanted
            .iter()
            .filter(|(vmid, guest)| seen(*vmid, guest).is_none());
        let mut due: Vec<(u32, &GuestResource)> = news.copied().take(READS_PER_POLL).collect();
        let old = wanted.iter().filter_map(|(vmid, guest)| {
            let read = seen(*vmid, guest)?.read;
            (now.duration_since(read) > STALE).then_some((read, *vmid, *guest))
        });
        let oldest = old.min_by_key(|(read, vmid, _)| (*read, *vmid));
        due.extend(oldest.map(|(_, vmid, guest)| (vmid, guest)));
        due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::controller::region::RegionWatcher;
    use crate::pve::Client;
    use crate::pve::transport::memory::RouterTransport;
    use crate::sim::guests::GuestSpec;
    use crate::sim::kube::KubeSpec;
    use crate::sim::pve::{AdminAct, MachineSpec, PveSpec};
    use crate::sim::world::{World, WorldSpec};

    const CONFIG: &str =
        "version = 1\n[kubernetes]\nname = \"test\"\n[proxmox]\nvmids = \"9100-9120\"\n";

    /// A guest that is off, on a host that does not answer at first: what is not known counts.
    #[test]
    fn a_guest_that_was_not_read_may_start_with_its_host() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        runtime.expect("a runtime").block_on(async {
            let world = World::new(WorldSpec {
                seed: 1,
                pve: PveSpec::default(),
                kube: KubeSpec::default(),
                guests: GuestSpec::default(),
                config: CONFIG.to_owned(),
            });
            let world = world.unwrap_or_else(|errors| panic!("{errors}"));
            let guest = AdminAct::AddMachine(MachineSpec {
                vmid: 300,
                host: "pve2".to_owned(),
                container: true,
                template: false,
                running: false,
                storage: "shared".to_owned(),
                disk: 1 << 30,
                disk_used: 1 << 20,
                cloudinit: false,
                pool: None,
                config: [("onboot".to_owned(), "0".to_owned())].into(),
            });
            let online = |online| AdminAct::HostOnline {
                host: "pve2".to_owned(),
                online,
            };
            world.pve.administer(&guest).expect("added");
            world.pve.administer(&online(false)).expect("off");
            let client = Client::new(Arc::new(RouterTransport::new(world.pve_way())));
            let (clock, settings) = (world.clock, world.settings.clone());
            let mut watcher = RegionWatcher::new("default".into(), client, clock, settings);
            let mut onboot = async || {
                let observed = watcher.poll().await.expect("it is read");
                observed.region.vms[&300].onboot
            };
            assert!(onboot().await, "nobody has read it");
            world.pve.administer(&online(true)).expect("on");
            assert!(!onboot().await, "it was read");
        });
    }
}
