//! What hosts are asked in a poll, and where the answers go: configurations, what guests are promised, and what not every poll asks: a host's
//! load (each minute, where a pool bounds it), its clock, its bridges, the bytes that the file systems of its storages keep for root (twice an
//! hour each), what it has left of mediated devices (each poll, where machines get some), and, of the whole region, the definitions of storages, security groups, mappings and rules for tags. [Silent hosts](super::silent_hosts) are asked none of it.

use std::sync::Arc;

use tokio::time::Instant;

use super::questions::{HostAnswer, HostQuestion, HostQuestions};
use super::{Fingerprint, KnownConfig, RegionWatcher, online};
use crate::controller::foreign_guests::SharedResources;
use crate::controller::host_bridges::ToldBridges;
use crate::controller::in_place::groups;
use crate::controller::named_parts::PartsThere;
use crate::model::lacking::PartKind;
use crate::model::mark::Ownership;
use crate::model::policy::PoolPolicy;
use crate::model::region::GuestKind;
use crate::pve::{
    Bridge, CallError, ClusterResources, FailureCause, FirewallRule, GuestResource, VmConfig,
};

/// Such re-readings in one poll.
const REREADS_PER_POLL: usize = 1;
/// Configurations read in one poll because something changed: a thousand VMs at the start take a few polls.
const READS_PER_POLL: usize = 200;

impl RegionWatcher {
    /// Asks hosts what this poll asks them, side by side. What they do not tell stays as it was, and who answers nothing is silent from now on.
    pub(super) async fn ask_hosts(&mut self, resources: &ClusterResources) {
        let now = Instant::now();
        let mut questions = HostQuestions::default();
        self.plan_configs(resources, now, &mut questions).await;
        self.plan_promises(resources, now, &mut questions);
        self.plan_loads(resources, now, &mut questions);
        self.plan_mediated(resources, &mut questions);
        self.plan_new_bridges(resources, &mut questions);
        for (host, storage) in self.kept_space.unknown(resources, &self.silent) {
            questions.add(&host, HostQuestion::KeptSpace(storage));
        }
        let settings = self.settings.clone();
        let rules_of = |config: &VmConfig| {
            let Ownership::Marked(mark) = config.ownership() else {
                return false;
            };
            let template = settings.templates.get(mark.template.as_str());
            template.and_then(groups::wanted).is_some()
        };
        let told = questions.ask(&self.client, &self.clock, &rules_of).await;
        for (host, told) in told {
            for answer in told.answers {
                self.record(&host, answer, resources, now);
            }
            if let Some(error) = told.silence {
                tracing::warn!(region = %self.name, %host, %error, "a host does not answer");
                self.silent.add(host, &error.message);
            }
        }
    }

    /// The hosts that can be asked.
    fn asked_hosts<'r>(
        &self,
        resources: &'r ClusterResources,
    ) -> impl Iterator<Item = &'r Arc<str>> + Clone {
        let hosts = resources.hosts.iter().filter(|(_, host)| host.online);
        hosts
            .map(|(name, _)| name)
            .filter(|name| !self.silent.has(name))
    }

    /// The configurations that changed, and one that is old, or what a host is asked in turns with that.
    async fn plan_configs(
        &mut self,
        resources: &ClusterResources,
        now: Instant,
        questions: &mut HostQuestions,
    ) {
        self.known
            .retain(|vmid, _| resources.guests.contains_key(vmid));
        let doubted = self.doubts.take(&self.name);
        let wanted = resources
            .guests
            .iter()
            .filter(|(vmid, guest)| guest.kind == GuestKind::Qemu && self.matters(**vmid, guest));
        let (mut changed, mut old) = (Vec::new(), Vec::new());
        for (vmid, guest) in wanted {
            if !online(resources, &guest.host) {
                // PVE forgets name and size of a dead host's VMs, and cannot read them: what was read last stands.
                continue;
            }
            if self.silent.has(&guest.host) {
                if doubted.contains(vmid) {
                    self.doubts.add(&self.name, *vmid);
                }
                continue;
            }
            match self.known.get(vmid) {
                // Whether it changed an odd row does not tell.
                Some(known)
                    if (guest.odd.is_some() || known.fingerprint == Fingerprint::of(guest))
                        && !doubted.contains(vmid) =>
                {
                    if now.duration_since(known.read) > known.stale_after(*vmid) {
                        old.push((known.read, *vmid));
                    }
                }
                _ => changed.push(*vmid),
            }
        }
        old.sort_unstable();
        if self
            .plan_in_turn(resources, !old.is_empty(), questions)
            .await
        {
            old.clear();
        }
        let rereads = old.into_iter().take(REREADS_PER_POLL).map(|(_, vmid)| vmid);
        for vmid in changed.into_iter().take(READS_PER_POLL).chain(rereads) {
            if let Some(guest) = resources.guests.get(&vmid) {
                questions.add(&guest.host, HostQuestion::Config(vmid));
            }
        }
    }

    /// A host's clock, its bridges, or what a storage keeps for root, if one is due; in turns with re-readings, if one is `waiting`. True if
    /// something is asked. One that does not tell is no failure.
    async fn plan_in_turn(
        &mut self,
        resources: &ClusterResources,
        waiting: bool,
        questions: &mut HostQuestions,
    ) -> bool {
        self.host_was_last = if waiting && self.host_was_last {
            false
        } else {
            let now = Instant::now();
            let hosts: Vec<&Arc<str>> = self.asked_hosts(resources).collect();
            let clock = self.clocks.due(hosts.into_iter(), self.clock.now());
            let kept = || self.kept_space.due(resources, &self.silent, now);
            let due = clock.map(|host| (host, HostQuestion::Clock)).or_else(|| {
                let (host, storage) = kept()?;
                Some((host, HostQuestion::KeptSpace(storage)))
            });
            match due {
                Some((host, question)) => {
                    questions.add(&host, question);
                    true
                }
                None => {
                    self.read_backings_again().await
                        || self.plan_bridges_again(questions)
                        || self.read_named_parts(resources).await
                }
            }
        };
        self.host_was_last
    }

    fn plan_bridges_again(&mut self, questions: &mut HostQuestions) -> bool {
        let due = self.bridges.due(&self.last, Instant::now());
        let due = due.filter(|host| !self.silent.has(host));
        if let Some(host) = &due {
            questions.add(host, HostQuestion::Bridges);
        }
        due.is_some()
    }

    /// What hosts have to keep for guests that are not ours.
    fn plan_promises(
        &mut self,
        resources: &ClusterResources,
        now: Instant,
        questions: &mut HostQuestions,
    ) {
        let policy = self.settings.policy.regions.get(&self.name);
        let counting = policy.map(|policy| policy.capacity.clone());
        self.foreign_guests.keep(&resources.guests);
        let theirs = resources.guests.iter().filter(|(vmid, guest)| {
            let ours = guest.kind == GuestKind::Qemu && self.matters(**vmid, guest);
            !ours && !guest.template && online(resources, &guest.host)
        });
        let theirs: Vec<(u32, &GuestResource)> =
            theirs.map(|(vmid, guest)| (*vmid, guest)).collect();
        let mut pools = self.settings.policy.pools_in(&self.name);
        let scarce = SharedResources {
            addresses: pools.any(|(_, pool)| !pool.networks.is_empty()),
            devices: !self.settings.policy.mappings_in(&self.name).is_empty(),
            cpus: self.settings.policy.pins_in(&self.name),
        };
        let counting = counting.unwrap_or_default();
        let due = self
            .foreign_guests
            .find_due(&theirs, &counting, scarce, &self.silent, now);
        for (vmid, guest) in due {
            questions.add(&guest.host, HostQuestion::Promise(guest.kind, vmid));
        }
    }

    /// How loaded hosts are, if a pool bounds that.
    fn plan_loads(
        &mut self,
        resources: &ClusterResources,
        now: Instant,
        questions: &mut HostQuestions,
    ) {
        if !self.settings.policy.loads_in(&self.name) {
            return;
        }
        let hosts: Vec<&Arc<str>> = self.asked_hosts(resources).collect();
        for host in self.loads.due(hosts.into_iter(), now) {
            questions.add(&host, HostQuestion::Load);
        }
    }

    /// What hosts have left of mediated devices, if machines get some of a mapping that names them.
    fn plan_mediated(&mut self, resources: &ClusterResources, questions: &mut HostQuestions) {
        let hosts = self.asked_hosts(resources);
        let named = hosts.filter_map(|host| {
            let mut mappings = self.settings.policy.mediated_at(&self.name, host);
            mappings.retain(|mapping| {
                let here = self
                    .mappings
                    .get(*mapping)
                    .and_then(|hosts| hosts.get(host));
                here.is_some_and(|devices| !devices.is_empty())
            });
            (!mappings.is_empty()).then_some((host, mappings))
        });
        let named = named.collect();
        for (host, mapping) in self.mediated.due(&named) {
            questions.add(&host, HostQuestion::Mediated(mapping));
        }
    }

    /// The bridges of hosts that pools may use, if they were never asked.
    fn plan_new_bridges(&mut self, resources: &ClusterResources, questions: &mut HostQuestions) {
        let policy = &self.settings.policy;
        let pools: Vec<&PoolPolicy> = policy.pools_in(&self.name).map(|(_, pool)| pool).collect();
        let used = self
            .asked_hosts(resources)
            .filter(|name| pools.iter().any(|pool| pool.may_use(name)));
        let used: Vec<&Arc<str>> = used.collect();
        for host in self.bridges.unknown(used.into_iter()) {
            questions.add(&host, HostQuestion::Bridges);
        }
    }

    /// Takes what a host was asked at `now`, and what it told.
    fn record(
        &mut self,
        host: &Arc<str>,
        answer: HostAnswer,
        resources: &ClusterResources,
        now: Instant,
    ) {
        let came = Instant::now();
        match answer {
            HostAnswer::Clock(sent, told, at) => {
                let theirs = told.ok().flatten();
                self.clocks.record(host.clone(), sent, theirs, at);
            }
            HostAnswer::Config(vmid, told, rules) => {
                if let Some(guest) = resources.guests.get(&vmid) {
                    self.record_config((vmid, guest), told, rules, now);
                }
            }
            HostAnswer::Promise(vmid, told) => {
                if let Some(guest) = resources.guests.get(&vmid) {
                    self.foreign_guests.record((vmid, guest), now, told);
                }
            }
            HostAnswer::Load(load) => self.loads.record(host.clone(), came, load.ok()),
            HostAnswer::Bridges(bridges) => {
                // An empty list is what a damaged answer reads as, or one to a token that may use none: it tells nothing.
                let told = bridges.ok().filter(|of| !of.is_empty());
                let told = told.map(|of| ToldBridges {
                    addresses: of.values().flat_map(Bridge::addresses).collect(),
                    names: of.into_keys().map(Arc::from).collect(),
                });
                self.bridges.record(host.clone(), came, told);
            }
            HostAnswer::Mediated(mapping, told) => {
                if let Ok(left) = told {
                    let running = resources.guests.iter().filter(|(_, guest)| {
                        guest.host == *host && guest.kind == GuestKind::Qemu && guest.running()
                    });
                    let running = running.map(|(vmid, _)| *vmid).collect();
                    self.mediated.record(host, mapping, left, running);
                }
            }
            HostAnswer::KeptSpace(storage, kept) => {
                let at = (host.clone(), storage);
                self.kept_space.record(at, came, kept.ok().flatten());
            }
        }
    }

    /// A VM's configuration was asked for at `now`, and the rules of its firewall, where the file names security groups for its template.
    fn record_config(
        &mut self,
        (vmid, guest): (u32, &GuestResource),
        told: Result<Arc<VmConfig>, CallError>,
        rules: Option<Result<Vec<FirewallRule>, CallError>>,
        now: Instant,
    ) {
        match told {
            Ok(config) => {
                let before = self.known.get(&vmid);
                // Rules that cannot be read are those that were: they are read again with the configuration, at its time.
                let former = before.and_then(|known| known.rules.clone());
                let known = KnownConfig {
                    was_marked: before.is_some_and(KnownConfig::is_marked),
                    fingerprint: Fingerprint::of(guest),
                    rules: rules.and_then(|told| told.map(Arc::new).ok().or(former)),
                    config,
                    read: now,
                };
                self.known.insert(vmid, known);
            }
            // It went or moved between the two calls; the next poll sees. A row that cannot be read may name a host where it never was.
            Err(error) if error.cause() == FailureCause::Gone && guest.odd.is_none() => {
                self.known.remove(&vmid);
            }
            // The VM counts as it did, and waits its turn like one that was read, else it would be the oldest in each poll.
            Err(_) => {
                if let Some(known) = self.known.get_mut(&vmid) {
                    known.read = now;
                }
            }
        }
    }

    /// One of PVE's lists of what the file names beside hosts and templates, if one is due.
    async fn read_named_parts(&mut self, resources: &ClusterResources) -> bool {
        let named = self.named_parts(resources);
        let Some(kind) = self.named_parts.due(&named, Instant::now()) else {
            return false;
        };
        self.read_parts(kind).await;
        true
    }

    /// One of these lists that was never asked for: a region with many hosts has many other questions first.
    pub(super) async fn read_new_parts(&mut self, resources: &ClusterResources) {
        let named = self.named_parts(resources);
        if let Some(kind) = self.named_parts.unasked(&named) {
            self.read_parts(kind).await;
        }
    }

    async fn read_parts(&mut self, kind: PartKind) {
        let told = self.ask_for_parts(kind).await;
        if let Err(error) = &told {
            tracing::debug!(region = %self.name, %error, "cannot read which {kind} there is");
        }
        self.named_parts.record(kind, Instant::now(), told.ok());
    }

    async fn ask_for_parts(&self, kind: PartKind) -> Result<PartsThere, CallError> {
        let client = &self.client;
        let names = match kind {
            PartKind::SecurityGroup => client.security_groups().await?,
            PartKind::UsbMapping => client.usb_mappings().await?,
            PartKind::DirMapping => client.dir_mappings().await?,
            PartKind::PciMapping => {
                let mappings = client.pci_mappings().await?;
                mappings.into_keys().map(|name| name.to_string()).collect()
            }
            PartKind::Tag => {
                let held = client.permissions("/").await?;
                // Others than these are not told the rules: an answer to them says that every tag may be set.
                if held.contains("Sys.Modify") || !held.contains("Sys.Audit") {
                    return Ok(PartsThere::All);
                }
                return Ok(PartsThere::Tags(client.tag_rules().await?));
            }
        };
        Ok(PartsThere::Names(names))
    }

    async fn read_backings_again(&mut self) -> bool {
        let due = self.backings.is_due(Instant::now());
        if due {
            self.read_backings().await;
        }
        due
    }

    async fn read_backings(&mut self) {
        let told = self.client.storage_backings().await;
        if let Err(error) = &told {
            tracing::debug!(region = %self.name, %error, "cannot read the definitions of the storages");
        }
        self.backings.record(Instant::now(), told.ok());
    }

    /// Says what each storage's volumes lie in; the definitions are read if there is a storage that they were never read for.
    pub(super) async fn tell_backings(&mut self, resources: &mut ClusterResources) {
        if self.backings.is_wanted(resources, Instant::now()) {
            self.read_backings().await;
        }
        self.backings.apply(resources);
    }
}
