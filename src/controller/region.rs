//! Watching a region: PVE has no watch, so it is read at an interval, and single VMs' configurations
//! only when something about them changed or the last reading is old.
//!
//! Calls in a steady state: two per poll, plus at most one more, a re-reading, a host's clock, its bridges or a storage's kept space: six a minute at the
//! default interval, whatever the number of VMs. The mappings of PCI devices are one more, where machines get some, so is what is left of mediated
//! devices on each host that can have them, where machines get such, and so are a machine's rules with each
//! reading of its configuration, where the file names security groups, and each host's load once a minute where a pool bounds that. Security groups,
//! mappings and rules for tags that the file needs are read at once, and then in turns with these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::clock::Clock;
use crate::config::settings::{Settings, TemplateSettings};
use crate::controller::clocks::HostClocks;
use crate::controller::foreign_guests::ForeignGuests;
use crate::controller::host_bridges::HostBridges;
use crate::controller::in_place::{self, Beside};
use crate::controller::inspection;
use crate::controller::kept_space::KeptSpace;
use crate::controller::loads::HostLoads;
use crate::controller::machines::{LastVmConfig, Observed};
use crate::controller::mediated::MediatedBook;
use crate::controller::named_parts::{self, NamedPartBook, NamedParts, PartsThere};
use crate::controller::region::silent_hosts::SilentHosts;
use crate::controller::storage_backings::StorageBackings;
use crate::controller::template_mark;
use crate::controller::templates::{self, RegionTemplates};
use crate::controller::vm_config;
use crate::model::foreign::ForeignText;
use crate::model::lacking::PartKind;
use crate::model::mark::Ownership;
use crate::model::region::{GuestKind, Host, MappedDevices, Region, RegionName, Vm};
use crate::model::shared::Shared;
use crate::model::snapshot::SourceState;
use crate::model::time::Span;
use crate::pve::transport::CallError;
use crate::pve::{Client, ClusterResources, FirewallRule, GuestResource, VmConfig};

/// A template's configuration is read again after this long though nothing about the VM seemed to change.
const STALE_TEMPLATE: Duration = Duration::from_mins(30);
/// That of a template with a fault is: somebody mends it.
const STALE_FAULTY: Duration = Duration::from_secs(15);
/// The configuration of a VM that carries a mark is: an edited description or UUID shows nowhere else. They take turns, the oldest reading first.
const STALE_MARK: Duration = Duration::from_secs(15);
/// That of any other VM in our range is: a person may put back the mark that somebody took out.
const STALE_UNMARKED: Duration = Duration::from_mins(5);
/// While machines are being made or removed the region is read this often.
pub const BUSY_POLL: Span = Span::seconds(10);
/// The clock's step.
const TICK: Duration = Duration::from_millis(1);
/// A whole poll must end within this time.
const POLL_DEADLINE: Duration = Duration::from_mins(2);

/// VMs of which somebody has seen that they are not as they were read last: the next poll reads them again.
#[derive(Clone, Debug, Default)]
pub struct Doubts(Arc<Mutex<BTreeSet<(RegionName, u32)>>>);

impl Doubts {
    /// Doubts what was read of a VM.
    pub fn add(&self, region: &RegionName, vmid: u32) {
        self.lock().insert((region.clone(), vmid));
    }

    /// Those of a region.
    #[cfg(test)]
    pub(super) fn of(&self, region: &RegionName) -> BTreeSet<u32> {
        let all = self.lock();
        let own = all.iter().filter(|(name, _)| name == region);
        own.map(|(_, vmid)| *vmid).collect()
    }

    /// Those of a region; they are not doubted any more.
    fn take(&self, region: &RegionName) -> BTreeSet<u32> {
        let mut all = self.lock();
        let (taken, left) = std::mem::take(&mut *all)
            .into_iter()
            .partition(|(name, _)| name == region);
        *all = left;
        let taken: BTreeSet<(RegionName, u32)> = taken;
        taken.into_iter().map(|(_, vmid)| vmid).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<(RegionName, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of a region whose last reading began before the lease became ours. It stands alone in the line of `systemctl status` too.
const UNREAD_SINCE_LEASE: &str =
    "no reading of this PVE cluster has ended since this instance took the lease";

/// What a watcher publishes.
#[derive(Clone, Debug, Default)]
pub struct RegionView {
    /// What is seen.
    pub observed: Arc<Observed>,
    /// How far it can be trusted; as of when follows from `begun`.
    pub source: SourceState,
    /// When its reading began, by the clock that nobody sets.
    pub begun: Option<Instant>,
}

impl RegionView {
    /// Until it was read after `since`, when the lease became ours, the region counts as not read: who had the lease
    /// before may have made machines that the reading does not show.
    pub fn forget_before(&mut self, since: Instant) {
        if self.source.complete && self.begun.is_none_or(|begun| begun < since) {
            self.source.complete = false;
            // Why it could not be read says more.
            let unread = || UNREAD_SINCE_LEASE.into();
            self.source.error.get_or_insert_with(unread);
        }
    }
}

/// What was read of a VM's configuration.
#[derive(Clone, Debug)]
struct KnownConfig {
    fingerprint: Fingerprint,
    config: Arc<VmConfig>,
    /// The rules of its firewall, if the file names security groups for it and they could be read.
    rules: Option<Arc<Vec<FirewallRule>>>,
    read: Instant,
    /// It carried a mark when it was read before: whoever took that out may put it back any time.
    was_marked: bool,
}

impl KnownConfig {
    /// Whether it carries a mark, or did.
    fn is_marked(&self) -> bool {
        self.was_marked || matches!(self.config.ownership(), Ownership::Marked(_))
    }

    /// For how long the reading is good as long as nothing seems to change.
    fn stale_after(&self, vmid: u32) -> Duration {
        // Where no machines would share a fixed address, it is read as often all the same: pools are not known here.
        let faulty = || {
            inspection::obstacle(vmid, &self.config, &TemplateSettings::default()).is_some()
                || inspection::has_fixed_address(&self.config)
        };
        match self.config.ownership() {
            Ownership::Unmarked if self.fingerprint.template && faulty() => STALE_FAULTY,
            Ownership::Unmarked if self.fingerprint.template => STALE_TEMPLATE,
            Ownership::Unmarked if !self.was_marked => STALE_UNMARKED,
            _ => STALE_MARK,
        }
    }
}

/// What changes in the resources when a configuration may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    host: Arc<str>,
    name: Arc<str>,
    lock: Option<Arc<str>>,
    template: bool,
    tags: Vec<String>,
    cpus: u32,
    memory: i64,
}

impl Fingerprint {
    pub(super) fn of(guest: &GuestResource) -> Fingerprint {
        Fingerprint {
            host: guest.host.clone(),
            name: guest.name.clone(),
            lock: guest.lock.clone(),
            template: guest.template,
            tags: guest.tags.clone(),
            cpus: guest.cpus,
            memory: guest.memory,
        }
    }
}

/// Watches one region.
#[derive(Debug)]
pub struct RegionWatcher {
    name: RegionName,
    client: Client,
    clock: Clock,
    settings: Arc<Settings>,
    known: BTreeMap<u32, KnownConfig>,
    foreign_guests: ForeignGuests,
    mappings: BTreeMap<Arc<str>, MappedDevices>,
    /// What was seen last.
    last: Shared<Region>,
    doubts: Doubts,
    loads: HostLoads,
    bridges: HostBridges,
    kept_space: KeptSpace,
    mediated: MediatedBook,
    backings: StorageBackings,
    named_parts: NamedPartBook,
    clocks: HostClocks,
    silent: SilentHosts,
    /// The last question beyond what every poll asks was to a host, and no re-reading.
    host_was_last: bool,
}

impl RegionWatcher {
    /// A watcher that has seen nothing.
    pub fn new(
        name: RegionName,
        client: Client,
        clock: Clock,
        settings: Arc<Settings>,
    ) -> RegionWatcher {
        RegionWatcher {
            name,
            client,
            clock,
            settings,
            known: BTreeMap::new(),
            foreign_guests: ForeignGuests::default(),
            mappings: BTreeMap::new(),
            last: Shared::default(),
            doubts: Doubts::default(),
            loads: HostLoads::default(),
            bridges: HostBridges::default(),
            kept_space: KeptSpace::default(),
            mediated: MediatedBook::default(),
            backings: StorageBackings::default(),
            named_parts: NamedPartBook::default(),
            clocks: HostClocks::default(),
            silent: SilentHosts::default(),
            host_was_last: false,
        }
    }

    /// What others doubt is read again.
    #[must_use]
    pub fn with_doubts(self, doubts: Doubts) -> RegionWatcher {
        RegionWatcher { doubts, ..self }
    }

    /// Polls until dropped. `poll_fast` says that machines are being worked on, `poll_now` asks for a poll
    /// at once.
    pub async fn run(
        mut self,
        view: watch::Sender<RegionView>,
        mut poll_fast: watch::Receiver<bool>,
        poll_now: Arc<Notify>,
    ) {
        let interval = self
            .settings
            .regions
            .get(&self.name)
            .map_or(Span::seconds(30), |region| region.poll);
        loop {
            // The timestamp is taken before the request: the answer may be older than its arrival.
            let begun = Instant::now();
            let as_of = self.clock.now();
            let polled = match timeout(POLL_DEADLINE, self.poll()).await {
                Ok(polled) => polled,
                Err(_) => Err(format!(
                    "the region was not read within {} s",
                    POLL_DEADLINE.as_secs()
                )),
            };
            match polled {
                Ok(observed) => {
                    let source = SourceState {
                        complete: true,
                        as_of,
                        error: None,
                        cause: None,
                    };
                    view.send_replace(RegionView {
                        observed: Arc::new(observed),
                        source,
                        begun: Some(begun),
                    });
                }
                Err(error) => {
                    let news =
                        view.borrow().source.error.as_deref() != Some(&*ForeignText::new(&error));
                    if news {
                        tracing::warn!(region = %self.name, %error, "cannot read the region");
                    }
                    view.send_modify(|view| view.source.error = Some(error.into()));
                }
            }
            let began = Instant::now();
            loop {
                let pace = if *poll_fast.borrow_and_update() {
                    interval.min(BUSY_POLL)
                } else {
                    interval
                };
                tokio::select! {
                    biased;
                    () = poll_now.notified() => {
                        // Later than what asked for it, also by a clock of milliseconds.
                        tokio::time::sleep(TICK).await;
                        break;
                    }
                    changed = poll_fast.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep_until(began + pace.to_std()) => break,
                }
            }
        }
    }

    /// Reads the region once.
    pub async fn poll(&mut self) -> Result<Observed, String> {
        let text = |error: CallError| error.to_string();
        let status = self.client.cluster_status().await.map_err(text)?;
        let mut resources = self.client.resources().await.map_err(text)?;
        unread::complete(&mut resources, &status, &self.last.vms);
        self.silent.keep(|host| resources.is_online(host));
        self.silent.ask_again(&self.client).await;
        self.read_mappings().await;
        self.ask_hosts(&resources).await;
        self.kept_space.apply(&mut resources);
        self.tell_backings(&mut resources).await;
        self.read_new_parts(&resources).await;
        let in_cluster = |host: &str| resources.hosts.contains_key(host);
        let mut of_hosts = self.bridges.addresses(in_cluster);
        of_hosts.extend(status.addresses());
        let mut region = Region {
            quorate: status.quorate,
            mappings: self.mappings.clone(),
            mediated: self.mediated.told().clone(),
            lacking: self.named_parts.lacking(&self.named_parts(&resources)),
            host_addresses: of_hosts,
            ..Region::default()
        };
        for (name, host) in &resources.hosts {
            let seen = Host {
                clock_ahead: self.clocks.ahead(name),
                load: self.loads.of(name, Instant::now()),
                bridges: self.bridges.of(name, Instant::now()).cloned(),
                ..host.into()
            };
            region.hosts.insert(name.clone(), seen);
        }
        for (host, storages) in &resources.storages {
            let storages = storages.iter();
            let storages = storages.map(|(name, storage)| (name.clone(), storage.into()));
            region.storages.insert(host.clone(), storages.collect());
        }
        for (vmid, guest) in &resources.guests {
            let mut vm = self.vm(*vmid, guest, &resources);
            if guest.odd.is_some() {
                vm = unread::guest(vm, guest, self.last.vms.get(vmid));
            }
            region.vms.insert(*vmid, vm);
        }
        unread::mark_hosts(&mut region);
        self.silent.mark(&mut region);
        let config = |vmid: u32| self.known.get(&vmid).map(|known| &*known.config);
        region.templates = self.templates().find(&resources, config);
        let templates = self.templates().named(&resources);
        let facts = self.known.iter().map(|(vmid, known)| {
            let facts = LastVmConfig {
                uuid: known.config.uuid.clone(),
                digest: known.config.digest.clone(),
                config: Some(known.config.clone()),
                beside: Beside {
                    pool: self.pool(*vmid, &resources),
                    rules: known.rules.clone(),
                },
            };
            (*vmid, facts)
        });
        let facts = facts.collect();
        let region: Shared<Region> = region.into();
        self.last = region.clone();
        Ok(Observed {
            region,
            facts,
            templates,
        })
    }

    /// Reads the mappings of PCI devices, if machines get some; those that were read last stand while PVE does not answer.
    async fn read_mappings(&mut self) {
        if self.settings.policy.mappings_in(&self.name).is_empty() {
            return;
        }
        match self.client.pci_mappings().await {
            // Those that no machine gets may share devices with one that machines do.
            Ok(mappings) => {
                let names = mappings.keys().map(ToString::to_string).collect();
                let there = PartsThere::Names(names);
                self.named_parts
                    .record(PartKind::PciMapping, Instant::now(), Some(there));
                self.mappings = mappings;
            }
            Err(error) => {
                tracing::debug!(region = %self.name, %error, "cannot read the mappings of PCI devices");
            }
        }
    }

    /// What machines have here by names of the file, for which PVE has lists.
    fn named_parts(&self, resources: &ClusterResources) -> NamedParts {
        let copies = self.templates().named(resources);
        named_parts::named(&self.settings, &self.name, |template| {
            let vmids = copies.get(template).into_iter().flatten();
            let configs = vmids.filter_map(|vmid| self.known.get(vmid));
            let tags = configs.map(|known| {
                let tags = known.config.raw.get("tags").map_or("", String::as_str);
                let tags = vm_config::split_tags(tags).into_iter();
                tags.map(str::to_owned).collect()
            });
            tags.collect()
        })
    }

    /// Whether a VM's configuration is of interest: it may be ours, or it is a template we clone.
    fn matters(&self, vmid: u32, guest: &GuestResource) -> bool {
        let range = self.settings.policy.regions.get(&self.name);
        range.is_some_and(|range| (range.vmid_first..=range.vmid_last).contains(&vmid))
            || self.templates().any_is(vmid, guest)
    }

    /// The resource pool of a VM, as far as it is seen.
    fn pool(&self, vmid: u32, resources: &ClusterResources) -> Option<Arc<str>> {
        let guest = resources.guests.get(&vmid)?;
        in_place::seen_pool(&self.settings, &self.name, guest)
    }

    fn templates(&self) -> RegionTemplates<'_> {
        RegionTemplates {
            region: &self.name,
            all: &self.settings.templates,
        }
    }

    /// The template that `template try` tries with a VM, if that made it.
    fn template_tried(&self, vmid: u32, config: &VmConfig) -> Option<Arc<str>> {
        let cluster = &self.settings.broker.allow.cluster_name;
        let mark = template_mark::read_trial(vmid, config, cluster)?;
        Some(mark.template.into())
    }

    fn vm(&self, vmid: u32, guest: &GuestResource, resources: &ClusterResources) -> Vm {
        let known = self.known.get(&vmid).filter(|known| {
            known.fingerprint == Fingerprint::of(guest)
                || guest.odd.is_some()
                || (known.fingerprint.host == guest.host && !online(resources, &guest.host))
        });
        let own = || known.map(|known| known.config.promise());
        let promise = self.foreign_guests.promise(vmid, guest).or_else(own);
        let in_range = self
            .settings
            .policy
            .regions
            .get(&self.name)
            .is_some_and(|range| (range.vmid_first..=range.vmid_last).contains(&vmid));
        Vm {
            host: guest.host.clone(),
            kind: guest.kind,
            name: guest.name.clone(),
            running: guest.running(),
            template: guest.template,
            lock: guest.lock.clone(),
            ha: guest.ha_state.is_some(),
            cpus: guest.cpus.max(known.map_or(0, |known| known.config.cpus)),
            memory: guest
                .memory
                .max(known.map_or(0, |known| known.config.memory_mib.saturating_mul(1 << 20))),
            memory_min: promise.as_ref().and_then(|promise| promise.memory_min),
            // Until it was read a guest that is off may be one that starts with its host.
            onboot: promise
                .as_ref()
                .map_or(!guest.running(), |promise| promise.onboot),
            devices: promise
                .as_ref()
                .filter(|_| guest.kind == GuestKind::Qemu)
                .map(|promise| promise.devices.clone()),
            pins: promise
                .as_ref()
                .filter(|_| guest.kind == GuestKind::Qemu)
                .and_then(|promise| promise.pins.clone()),
            addresses: promise.map(|promise| promise.addresses).or_else(|| {
                let gone = !online(resources, &guest.host);
                self.foreign_guests
                    .last_addresses(vmid)
                    .filter(|_| gone)
                    .cloned()
            }),
            uuid: known.and_then(|known| known.config.uuid.clone()),
            ownership: known
                .filter(|_| in_range)
                .map(|known| known.config.ownership()),
            trial_of: known
                .filter(|_| in_range)
                .and_then(|known| self.template_tried(vmid, &known.config)),
            disks: known
                .filter(|_| in_range)
                .map(|known| templates::sizes(&known.config))
                .unwrap_or_default(),
            unread: guest.odd.clone(),
        }
    }
}

fn online(resources: &ClusterResources, host: &str) -> bool {
    resources.hosts.get(host).is_some_and(|host| host.online)
}

mod asked_hosts;
mod questions;
pub(super) mod silent_hosts;
#[cfg(test)]
mod tests;
mod unread;
