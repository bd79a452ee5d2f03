//! `template try`: a machine of a template without Kubernetes. It is cloned, configured and started as a pool's machine would be,
//! its guest is asked what a join would find, and it is destroyed.
//!
//! The VM has a VMID of its region's range, from the end, and a mark of its own: to the daemon it is no machine, and it leaves it
//! alone. By that mark `status`, `plan`, `doctor` and `setup` tell what it is, and what removes it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tokio::time::{Instant, sleep};

use super::guest::{TemplateGuest, span};
use super::host::{self, follow};
use super::options::TryOptions;
use super::verdict::{self, Expected};
use super::versions;
use super::{TemplateRegion, tell, tell_step};
use crate::cli::CliFailure;
use crate::cli::doctor::finding::{Findings, Grade};
use crate::clock::Clock;
use crate::config::settings::{JoinMethod, PoolSettings, TemplateSettings};
use crate::config::{self, Settings};
use crate::controller::disk_storages;
use crate::controller::join;
use crate::controller::template_mark::{BuildStage, TemplateMark, read_trial};
use crate::controller::templates::RegionTemplates;
use crate::controller::vm_config::{self, OwnKeys};
use crate::kubernetes::connect;
use crate::model::chosen_storages::ChosenStorages;
use crate::model::policy::{InstanceType, PoolPolicy};
use crate::model::region::{GuestKind, TemplateCopy};
use crate::model::time::Span;
use crate::model::words;
use crate::pve::{CloneVm, ClusterResources, ConfigUpdate, Upid, VmConfig};

/// Between two looks whether the agent answers.
const PAUSE: Duration = Duration::from_secs(1);
/// After this PVE lists a template that was just made.
const LISTED: Duration = Duration::from_secs(30);
/// What a trial takes beside its deadlines: questions in the guest, and the VM's removal.
const BESIDE: Span = Span::minutes(15);
/// The script that a guest is asked with.
const ASKED: &str = include_str!("scripts/trial.sh");

/// A trial under way.
struct TemplateTrial<'a> {
    settings: &'a Settings,
    options: &'a TryOptions,
    place: &'a TemplateRegion,
    name: &'a str,
    template: &'a TemplateSettings,
    copy: &'a TemplateCopy,
    pool: Option<(&'a str, &'a PoolPolicy)>,
    /// The API server's version, or why it is not known.
    server: Result<&'a str, &'a str>,
    vmid: u32,
    /// The storages of its disks, where the file lists several.
    storages: ChosenStorages,
    began: Instant,
}

/// Tries templates, and says what was found.
pub(super) async fn run(settings: &Settings, options: &TryOptions) -> Result<(), CliFailure> {
    let fault = options.ipconfig.as_deref().and_then(config::ipconfig_fault);
    if let Some(why) = fault {
        return Err(CliFailure::Usage(anyhow!("--ipconfig: {why}")));
    }
    let mut worst = Grade::Fine;
    let chosen = chosen(settings, &options.names)?;
    for name in &chosen {
        pool_of(settings, name, options.pool.as_deref())?;
    }
    let server = versions::ask_server(settings).await;
    for name in chosen {
        let template = &settings.templates[&name];
        let place = TemplateRegion::open(settings, &template.region)?;
        sweep(settings, &place, &name, template).await?;
        for copy in copies(&place, settings, &name, template, &options.hosts).await? {
            let resources = place.client.resources().await?;
            let trial = TemplateTrial {
                settings,
                options,
                place: &place,
                name: &name,
                template,
                copy: &copy,
                pool: pool_of(settings, &name, options.pool.as_deref())?,
                server: server.as_deref().map_err(String::as_str),
                vmid: free(settings, &template.region, &resources)?,
                storages: disk_storages::choose_all(template, &copy.host, &resources),
                began: Instant::now(),
            };
            worst = worst.max(trial.run().await?);
        }
    }
    match worst {
        Grade::Wrong => Err(CliFailure::Said),
        _ => Ok(()),
    }
}

/// The templates that are meant: those that are named, or all that a pool uses.
fn chosen(settings: &Settings, names: &[String]) -> anyhow::Result<Vec<Arc<str>>> {
    if let Some(unknown) = names
        .iter()
        .find(|name| !settings.templates.contains_key(name.as_str()))
    {
        let known = words::names(settings.templates.keys());
        bail!("the configuration has no template {unknown}; it has {known}");
    }
    let used = |name: &str| {
        settings
            .policy
            .pools
            .values()
            .any(|pool| pool.of_template(name).is_some())
    };
    let meant = |name: &&Arc<str>| match names {
        [] => used(name),
        names => names.iter().any(|one| **one == ***name),
    };
    let chosen: Vec<Arc<str>> = settings.templates.keys().filter(meant).cloned().collect();
    if chosen.is_empty() {
        bail!("no pool of the configuration uses a template; name one");
    }
    Ok(chosen)
}

/// The pool whose machine is tried: the one that is named, or the first that uses the template.
fn pool_of<'a>(
    settings: &'a Settings,
    template: &str,
    named: Option<&str>,
) -> anyhow::Result<Option<(&'a str, &'a PoolPolicy)>> {
    let pools = settings.policy.pools.iter();
    let mut pools = pools.filter_map(|(name, pool)| Some((name, pool.of_template(template)?)));
    let found = match named {
        None => pools.next(),
        Some(named) => {
            let found = pools.find(|(name, _)| &***name == named);
            Some(found.with_context(|| format!("no pool {named} uses the template {template}"))?)
        }
    };
    Ok(found.map(|(name, pool)| (&**name, pool)))
}

/// The VMIDs of a region.
fn vmids(settings: &Settings, region: &str) -> anyhow::Result<RangeInclusive<u32>> {
    let range = settings.policy.regions.get(region);
    let range = range.with_context(|| format!("there is no region {region}"))?;
    Ok(range.vmid_first..=range.vmid_last)
}

/// The last free VMID of a region: the daemon begins at the other end.
fn free(settings: &Settings, region: &str, resources: &ClusterResources) -> anyhow::Result<u32> {
    let vmids = vmids(settings, region)?.rev();
    let mut free = vmids.filter(|vmid| !resources.guests.contains_key(vmid));
    free.next()
        .with_context(|| format!("all VMIDs of region {region} are taken; give it more (vmids)"))
}

/// Removes what an interrupted trial of the template left.
async fn sweep(
    settings: &Settings,
    place: &TemplateRegion,
    name: &str,
    template: &TemplateSettings,
) -> anyhow::Result<()> {
    let resources = place.client.resources().await?;
    let range = vmids(settings, &template.region)?;
    for (&vmid, guest) in resources.guests.range(range) {
        // PVE lists a VM without its name for some seconds.
        if guest.kind != GuestKind::Qemu
            || !(guest.name.is_empty() || guest.name.starts_with(VM_NAME))
        {
            continue;
        }
        let config = place.client.vm_config(&guest.host, vmid).await?;
        // By the same proof `doctor` and `status` say that this is done.
        let mark = read_trial(vmid, &config, &place.cluster);
        let Some(mark) = mark.filter(|mark| mark.template == name) else {
            continue;
        };
        let (here, longest) = (place.mark_reader(), longest(settings));
        if mark.may_be_under_way(&here, longest, Clock::System.now()) {
            bail!(
                "VM {vmid} is a trial of {}{}",
                mark.tell_process(&here, longest),
                host::by_hand(&mark, &here, (vmid, &guest.host))
            );
        }
        tell(&format!(
            "{name}: removing VM {vmid}, which an earlier trial left\n"
        ))
        .map_err(|_| anyhow!("cannot write to standard output"))?;
        place.remove(vmid, &guest.host, name).await?;
    }
    Ok(())
}

/// The longest that a trial takes.
fn longest(settings: &Settings) -> Span {
    let of = &settings.deadlines;
    Span(of.clone.0 + of.resize.0 + of.start.0 + of.agent.0 + of.os.0 + BESIDE.0)
}

/// What a trial's VM is called, before its VMID.
const VM_NAME: &str = "pve-autoscaler-trial-";

/// The copies of the template to try: the first of the definition as it is that lies on a host that is online, or those on the hosts
/// that are named.
async fn copies(
    place: &TemplateRegion,
    settings: &Settings,
    name: &str,
    template: &TemplateSettings,
    hosts: &[String],
) -> anyhow::Result<Vec<TemplateCopy>> {
    let end = Instant::now() + LISTED;
    let mut found = loop {
        let found = listed(place, settings, name, template).await?;
        if !found.is_empty() {
            break found;
        }
        if Instant::now() >= end || !is_built(place, name, template).await? {
            bail!(
                "template {name}: no host that is online has such a template; `pve-autoscaler doctor` says more"
            );
        }
        sleep(PAUSE).await;
    };
    if hosts.is_empty() {
        // One that was built of an older definition is to be replaced, and is tried where there is no other.
        found.sort_by_key(|copy| copy.redefined);
        found.truncate(1);
        return Ok(found);
    }
    if let Some(host) = hosts
        .iter()
        .find(|host| !found.iter().any(|copy| *copy.host == ***host))
    {
        let there = words::names(found.iter().map(|copy| &copy.host));
        bail!("template {name}: there is none on the host {host}; there is on {there}");
    }
    found.retain(|copy| hosts.iter().any(|host| **host == *copy.host));
    Ok(found)
}

/// Where PVE lists the template.
async fn listed(
    place: &TemplateRegion,
    settings: &Settings,
    name: &str,
    template: &TemplateSettings,
) -> anyhow::Result<Vec<TemplateCopy>> {
    let resources = place.client.resources().await?;
    let mut configs = BTreeMap::new();
    for (vmid, guest) in &resources.guests {
        let host = resources.hosts.get(&guest.host);
        let online = host.is_some_and(|host| host.online);
        if online && template.means(*vmid, guest.template, &guest.name, &guest.tags) {
            configs.insert(*vmid, place.client.vm_config(&guest.host, *vmid).await?);
        }
    }
    let templates = RegionTemplates {
        region: &template.region.clone(),
        all: &settings.templates,
    };
    let found = templates.find(&resources, |vmid| configs.get(&vmid));
    Ok(found.get(name).cloned().unwrap_or_default())
}

/// Whether we built it: PVE lists it as a template some seconds later than it is one.
async fn is_built(
    place: &TemplateRegion,
    name: &str,
    template: &TemplateSettings,
) -> anyhow::Result<bool> {
    let Some(build) = &template.build else {
        return Ok(false);
    };
    let resources = place.client.resources().await?;
    let found = place.find(&resources, name, build).await?;
    Ok(found.iter().any(super::BuiltVm::finished))
}

impl TemplateTrial<'_> {
    /// Carries it out; the VM is removed whatever came of it, unless it is to be kept.
    async fn run(&self) -> anyhow::Result<Grade> {
        if let Some(fault) = &self.copy.fault {
            bail!("template {} on {}: {fault}", self.name, self.copy.host);
        }
        let network = self.network()?;
        let (pool, instance_type) = self.machine();
        let here = self.place.mark_reader();
        let mark = TemplateMark {
            template: self.name.to_owned(),
            cluster: self.place.cluster.clone(),
            vmid: self.vmid,
            definition: String::new(),
            stage: BuildStage::Trial,
            by: format!("{}/{}", here.host, std::process::id()),
            machine: Some(here.machine),
            begun: Clock::System.now().0 / 1_000,
            unknown: [].into(),
        };
        self.say(&format!(
            "cloning VM {} to VM {}",
            self.copy.vmid, self.vmid
        ))?;
        if self.template.cloud_init.is_some() {
            self.say(
                "its own cloud-init data ([template.NAME.cloud_init]) is left out of the trial",
            )?;
        }
        let deadlines = &self.settings.deadlines;
        let clone = self.clone_of(&mark);
        let task = self
            .place
            .client
            .clone_vm(&self.copy.host, self.copy.vmid, &clone);
        self.follow("the clone", &task.await?, deadlines.clone.to_std())
            .await?;
        let outcome = tokio::select! {
            outcome = self.tried(&network, &pool, &instance_type) => outcome,
            _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
        };
        if self.options.keep {
            self.say(&format!("VM {} is kept; the next trial of the template removes it, and so does `qm destroy {}` when it is off", self.vmid, self.vmid))?;
        } else {
            self.say(&format!("removing VM {}", self.vmid))?;
            if let Err(error) = self
                .place
                .remove(self.vmid, &self.copy.host, self.name)
                .await
            {
                self.say(&format!(
                    "{error:#}; the next trial of the template removes it"
                ))?;
            }
        }
        let findings = outcome?;
        let worst = findings.0.iter().map(|found| found.grade).max();
        for found in &findings.0 {
            line(&found.to_string())?;
        }
        Ok(worst.unwrap_or(Grade::Fine))
    }

    /// What the machine's network cards get. A pool's own addresses are given out by the daemon alone.
    fn network(&self) -> anyhow::Result<OwnKeys> {
        let mut network = OwnKeys {
            storages: self.storages.clone(),
            ..OwnKeys::default()
        };
        if let Some(text) = &self.options.ipconfig {
            network.ipconfigs.insert(0, text.clone());
        } else if let Some((pool, policy)) = self.pool
            && let Some(name) = policy.networks.get(&0)
        {
            bail!(
                "pool {pool} gets its addresses from the network {name}: give the trial a free one, such as --ipconfig ip=192.0.2.250/24,gw=192.0.2.1"
            );
        }
        if let Some((_, policy)) = self.pool {
            let networks = policy.networks.values();
            for network_of in networks.filter_map(|name| self.settings.networks.get(name)) {
                network.nameserver = network.nameserver.or_else(|| network_of.nameserver.clone());
                network.searchdomain = network
                    .searchdomain
                    .or_else(|| network_of.searchdomain.clone());
            }
        }
        Ok(network)
    }

    /// The pool's settings and its first instance type; without devices, which may all be in use.
    fn machine(&self) -> (PoolSettings, InstanceType) {
        let pool = self
            .pool
            .and_then(|(name, _)| self.settings.pools.get(name));
        let types = self.pool.map(|(_, policy)| &policy.instance_types);
        let first = types.and_then(|types| types.first());
        let first = first.and_then(|name| self.settings.policy.instance_types.get(name));
        let mut instance_type = first.cloned().unwrap_or(InstanceType {
            cores: 2,
            memory: 4 << 30,
            ..InstanceType::default()
        });
        instance_type.pci.clear();
        (pool.cloned().unwrap_or_default(), instance_type)
    }

    fn clone_of(&self, mark: &TemplateMark) -> CloneVm {
        CloneVm {
            newid: self.vmid,
            name: self.vm_name(),
            description: mark.describe(),
            pool: self.template.resource_pool.clone(),
            target: None,
            full: self.template.full_clone.then(|| {
                let names = self.template.storage.as_ref()?;
                let own = self.storages.own.as_deref();
                Some(disk_storages::chosen_of(names, own).to_owned())
            }),
        }
    }

    fn vm_name(&self) -> String {
        format!("{VM_NAME}{}", self.vmid)
    }

    async fn proven(&self) -> anyhow::Result<VmConfig> {
        self.place
            .proven(self.vmid, &self.copy.host, self.name)
            .await
    }

    /// From the clone to what its guest says.
    async fn tried(
        &self,
        network: &OwnKeys,
        pool: &PoolSettings,
        instance_type: &InstanceType,
    ) -> anyhow::Result<Findings> {
        let (client, host) = (&self.place.client, &*self.copy.host);
        let deadlines = &self.settings.deadlines;
        let config = self.proven().await?;
        let write = vm_config::write(
            &config.raw,
            &self.vm_name(),
            instance_type,
            (self.template, network),
            pool,
        );
        let update = ConfigUpdate {
            set: write.set,
            delete: write.delete,
            digest: config.digest.clone(),
        };
        client.update_config(host, self.vmid, &update).await?;
        self.grow(instance_type.disk).await?;
        let disk = self
            .proven()
            .await?
            .boot_disk()
            .and_then(|(_, disk)| disk.size);
        let say = |line: &str| self.say(&format!("  {line}"));
        let within = deadlines.start.to_std();
        host::start(self.place, (host, self.vmid, self.name), within, say).await?;
        let started = Instant::now();
        self.say("started")?;
        let guest = TemplateGuest {
            client,
            host,
            vmid: self.vmid,
        };
        self.agent(started, deadlines.agent.to_std()).await?;
        self.say(&format!(
            "the agent answers, {} after the start",
            span(started.elapsed())
        ))?;
        let refused = "the guest agent answers and runs no commands: is guest-exec blocked in its configuration (block-rpcs or \
                       allow-rpcs, on Rocky and RHEL in /etc/sysconfig/qemu-ga)?";
        guest.ready(deadlines.os.to_std()).await.context(refused)?;
        self.say(&format!(
            "the first boot is over, {} after the start",
            span(started.elapsed())
        ))?;
        self.ask(guest, pool, disk.unwrap_or(0)).await
    }

    /// Asks the booted guest what a join would find, and judges it. `disk`: the boot disk's size in bytes.
    async fn ask(
        &self,
        guest: TemplateGuest<'_>,
        pool: &PoolSettings,
        disk: i64,
    ) -> anyhow::Result<Findings> {
        let endpoint = self.endpoint().await;
        let words: Vec<&str> = endpoint.iter().map(String::as_str).collect();
        let said = guest.exec(ASKED, &words, "").await?;
        if !said.stdout.raw().contains("kernel=") {
            bail!(
                "the guest told nothing of itself: {}",
                super::guest::ending(&said)
            );
        }
        let method = self
            .pool
            .and_then(|(name, _)| self.settings.pools.get(name));
        let build = self.template.build.as_deref();
        let expected = Expected {
            of: format!("template {} on {}", self.name, self.copy.host),
            template: self.name,
            built: build.is_some_and(|build| !build.kubernetes.is_empty()),
            name: &self.vm_name(),
            method: method.map(|pool| &pool.join.method),
            server: self.server,
            swap: pool.kubelet.get("failSwapOn") == Some(&serde_json::Value::Bool(false)),
            endpoint: endpoint.as_deref(),
            now: Clock::System.now().0 / 1_000,
            disk,
        };
        let mut findings = Findings::default();
        verdict::judge(&verdict::read(said.stdout.raw()), &expected, &mut findings);
        Ok(findings)
    }

    /// Grows the boot disk as the instance type has it.
    async fn grow(&self, wanted: i64) -> anyhow::Result<()> {
        let config = self.proven().await?;
        let named = self.template.boot_disk.as_deref();
        let disk = match named {
            Some(named) => config
                .disks
                .get_key_value(named)
                .map(|(key, disk)| (&**key, disk)),
            None => config.boot_disk().map(|(key, disk)| (&**key, disk)),
        };
        let Some((key, _)) = disk.filter(|(_, disk)| disk.size.unwrap_or(0) < wanted) else {
            return Ok(());
        };
        let task = self
            .place
            .client
            .resize(&self.copy.host, self.vmid, key, wanted)
            .await?;
        let limit = self.settings.deadlines.resize.to_std();
        match task {
            Some(task) => self.follow("growing the disk", &task, limit).await,
            None => Ok(()),
        }
    }

    /// Waits for the guest agent.
    async fn agent(&self, started: Instant, within: Duration) -> anyhow::Result<()> {
        loop {
            let answer = self
                .place
                .client
                .agent_ping(&self.copy.host, self.vmid)
                .await;
            let Err(error) = answer else {
                return Ok(());
            };
            let pool = self
                .pool
                .and_then(|(name, _)| self.settings.pools.get(name));
            let at_first_boot = pool.is_some_and(|pool| pool.join.at_first_boot);
            if started.elapsed() >= within {
                bail!(
                    "the guest agent did not answer within {} (lifecycle.agent): {}. Is qemu-guest-agent installed and enabled in the \
                     template, and does the guest boot? With --keep, `qm terminal {}` on {} shows its console if it has a serial port{}",
                    span(within),
                    error.words(),
                    self.vmid,
                    self.copy.host,
                    if at_first_boot {
                        ". Machines of the pool join without the agent (join.delivery); a trial needs it"
                    } else {
                        ""
                    }
                );
            }
            sleep(PAUSE).await;
        }
    }

    /// Where the guest tries to reach the API server.
    async fn endpoint(&self) -> Option<String> {
        let pool = self
            .pool
            .and_then(|(name, _)| self.settings.pools.get(name))?;
        if let Some(endpoint) = &pool.join.endpoint {
            return Some(endpoint.clone());
        }
        let kubernetes = &self.settings.kubernetes;
        let server = connect::server(&kubernetes.kubeconfig, kubernetes.context.as_deref()).await;
        let port = (pool.join.method == JoinMethod::Rke2).then_some(join::RKE2_PORT);
        join::endpoint(&server.ok()?, port).ok()
    }

    async fn follow(&self, what: &str, task: &Upid, within: Duration) -> anyhow::Result<()> {
        let say = |line: &str| self.say(&format!("  {line}"));
        follow(self.place, what, task, within, say).await
    }

    /// Says what happens, with the time since it began.
    fn say(&self, text: &str) -> anyhow::Result<()> {
        tell_step((self.name, &*self.copy.host), self.began, text)
    }
}

fn line(text: &str) -> anyhow::Result<()> {
    tell(&format!("{text}\n")).map_err(|_| anyhow!("cannot write to standard output"))
}
