//! `template build|list|prune|try`: templates that are made from the configuration, and only ever those that are proven to be.
//!
//! The commands are a person's, root's on a host with `channel = "local"`: they go past the broker, whose allow-list is for the daemon
//! (docs/decisions/templates-are-built-by-a-command.md). Before every change the VM's configuration is read, and it must carry this
//! configuration's mark ([`template_mark`](crate::controller::template_mark)).

mod definition;
mod files;
mod guest;
mod host;
pub(super) mod options;
mod overview;
mod snippets;
mod trial;
mod verdict;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tokio::time::{Instant, sleep};

use super::{CliFailure, channels, host_name, load, output, print, runtime};
use crate::broker::direct::Direct;
use crate::config::Settings;
use crate::config::file::Build;
use crate::config::settings::{Channel, TemplateSettings};
use crate::config::storage_names::StorageNames;
use crate::controller::disk_storages;
use crate::controller::template_mark::{self, BuildStage, MarkReader, TemplateMark};
use crate::model::region::GuestKind;
use crate::model::words;
use crate::pve::transport::Transport;
use crate::pve::{Client, ClusterResources, ConfigUpdate, VmConfig};

use host::Builder;
use options::{BuildOptions, TemplateCommand};
pub(super) use overview::TemplateList;

/// A removal, and the stop before it.
const REMOVAL: Duration = Duration::from_mins(5);
/// The longest that a new template is waited for in PVE's list of guests: hosts tell each other of theirs every ten seconds.
const LISTED: Duration = Duration::from_secs(30);
/// Between two looks at that list.
const LOOK: Duration = Duration::from_secs(1);

/// A region, and whose templates are ours in it.
#[derive(Debug)]
struct TemplateRegion {
    /// Its name in the configuration.
    region: String,
    /// It is the PVE cluster of this host; one behind a token may be another, with hosts of the same names.
    local: bool,
    client: Client,
    /// `kubernetes.name`: another cluster's configuration may name a template alike.
    cluster: String,
}

/// A VM that carries the mark of a template.
#[derive(Clone, Debug)]
struct BuiltVm {
    vmid: u32,
    host: Arc<str>,
    name: Arc<str>,
    /// PVE made it a template.
    template: bool,
    /// Storages of its disks.
    storages: Vec<Arc<str>>,
    mark: TemplateMark,
}

impl BuiltVm {
    /// It is a template that machines can be made of.
    fn finished(&self) -> bool {
        self.template && self.mark.stage == BuildStage::Ready
    }
}

impl TemplateRegion {
    fn open(settings: &Settings, name: &str) -> anyhow::Result<TemplateRegion> {
        let found = settings.regions.get(name);
        let region = found.with_context(|| format!("there is no region {name}"))?;
        let transport: Arc<dyn Transport> = match region.channel {
            Channel::Local => Arc::new(Direct::open().map_err(|why| anyhow!("{why}"))?),
            Channel::Token { .. } => channels::open(region, &settings.broker.socket)?,
        };
        Ok(TemplateRegion {
            region: name.to_owned(),
            local: region.channel == Channel::Local,
            client: Client::new(transport),
            cluster: settings.broker.allow.cluster_name.clone(),
        })
    }

    /// This machine, as it reads and writes marks of VMs there.
    fn mark_reader(&self) -> MarkReader {
        host_name::mark_reader(self.local)
    }

    /// The VM's configuration, read now, if it is the template of this name.
    async fn proven(&self, vmid: u32, host: &str, name: &str) -> anyhow::Result<VmConfig> {
        let config = self.client.vm_config(host, vmid).await?;
        let mark = TemplateMark::read(vmid, &config);
        let ours = mark.is_some_and(|mark| mark.cluster == self.cluster && mark.template == name);
        if !ours {
            bail!(
                "VM {vmid} on {host} does not carry the mark of template {name}: it is left alone"
            );
        }
        Ok(config)
    }

    /// Destroys a VM that is proven to be the template of this name, and off. A trial's VM has the protection of the VM that it was
    /// cloned from until it is configured; a template's own is a person's, and PVE refuses.
    async fn remove(&self, vmid: u32, host: &str, name: &str) -> anyhow::Result<()> {
        let quiet = |_: &str| Ok(());
        let config = self.proven(vmid, host, name).await?;
        let trial =
            TemplateMark::read(vmid, &config).is_some_and(|mark| mark.stage == BuildStage::Trial);
        if trial && config.raw.get("protection").is_some_and(|set| set == "1") {
            let update = ConfigUpdate {
                set: BTreeMap::from([("protection".to_owned(), "0".to_owned())]),
                delete: Vec::new(),
                digest: config.digest.clone(),
            };
            let taken = self.client.update_config(host, vmid, &update).await;
            taken.with_context(|| format!("taking the template's protection off VM {vmid}"))?;
        }
        if self.client.vm_status(host, vmid).await?.running {
            let task = self.client.stop(host, vmid, false).await?;
            host::follow(self, "stopping the VM", &task, REMOVAL, quiet).await?;
            self.proven(vmid, host, name).await?;
        }
        let task = self.client.destroy(host, vmid).await?;
        host::follow(self, &format!("removing VM {vmid}"), &task, REMOVAL, quiet).await
    }

    /// The VMs in the build's range that carry the template's mark.
    async fn find(
        &self,
        resources: &ClusterResources,
        name: &str,
        build: &Build,
    ) -> anyhow::Result<Vec<BuiltVm>> {
        let mut found = Vec::new();
        let range = build.vmids.map_or(0..=0, |range| range.first..=range.last);
        for (vmid, guest) in resources.guests.range(range) {
            let online = resources
                .hosts
                .get(&guest.host)
                .is_some_and(|host| host.online);
            if guest.kind != GuestKind::Qemu || !online {
                continue;
            }
            let config = self.client.vm_config(&guest.host, *vmid).await?;
            let mark = TemplateMark::read(*vmid, &config);
            let Some(mark) =
                mark.filter(|mark| mark.cluster == self.cluster && mark.template == name)
            else {
                continue;
            };
            let disks = config
                .disks
                .values()
                .filter(|disk| !disk.storage.is_empty());
            found.push(BuiltVm {
                vmid: *vmid,
                host: guest.host.clone(),
                name: config.name.clone(),
                template: config.template,
                storages: disks.map(|disk| disk.storage.clone()).collect(),
                mark,
            });
        }
        Ok(found)
    }

    /// Waits until PVE lists these VMs as templates of this name: neither the daemon nor `doctor` finds them before.
    async fn until_listed(&self, vm_name: &str, mut vmids: BTreeSet<u32>) -> anyhow::Result<()> {
        let end = Instant::now() + LISTED;
        let mut told = false;
        loop {
            // A list that cannot be read is no reason to fail: the templates are built.
            if let Ok(resources) = self.client.resources().await {
                vmids.retain(|vmid| {
                    let guest = resources.guests.get(vmid);
                    !guest.is_some_and(|guest| guest.template && *guest.name == *vm_name)
                });
            }
            if vmids.is_empty() {
                return Ok(());
            }
            let over = Instant::now() >= end;
            if over || !told {
                told = true;
                let named = words::names(vmids.iter().map(|vmid| format!("VM {vmid}")));
                let text = if over {
                    format!(
                        "note: PVE does not list {named} as the template {vm_name} after {}, and no machine is made of it until it does; \
                         `systemctl status pvestatd` on its host says whether that is at work\n",
                        guest::span(LISTED)
                    )
                } else {
                    format!(
                        "waiting until PVE lists {named} as the template {vm_name}: its hosts tell each other every ten seconds\n"
                    )
                };
                tell(&text).map_err(|_| anyhow!("cannot write to standard output"))?;
            }
            if over {
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }
}

/// Where a host's template lies: on the host alone, or on a storage that other hosts share.
#[derive(Clone, Copy, Debug)]
struct TemplatePlace<'a> {
    host: &'a str,
    /// The storage that the host takes of those that the build names, where it is shared.
    shared: Option<&'a str>,
    /// The build names several: templates on others of them are other hosts'.
    of_list: bool,
}

impl<'a> TemplatePlace<'a> {
    /// The place of a template that is to be built on a host.
    fn on(
        names: &'a StorageNames,
        host: &'a str,
        resources: &ClusterResources,
    ) -> TemplatePlace<'a> {
        let storage = storage_on(names, host, resources);
        TemplatePlace::at((names, storage), host, resources)
    }

    /// The place of a template that is there.
    fn of(
        names: &'a StorageNames,
        built: &'a BuiltVm,
        resources: &ClusterResources,
    ) -> TemplatePlace<'a> {
        let mut all = names.iter();
        let own = all.find(|name| built.storages.iter().any(|storage| **storage == **name));
        let storage = own.unwrap_or_else(|| names.first());
        TemplatePlace::at((names, storage), &built.host, resources)
    }

    fn at(
        (names, storage): (&StorageNames, &'a str),
        host: &'a str,
        resources: &ClusterResources,
    ) -> TemplatePlace<'a> {
        TemplatePlace {
            host,
            shared: is_shared(resources, storage, host).then_some(storage),
            of_list: names.is_list(),
        }
    }

    /// Whether a template serves the same hosts.
    fn has(&self, built: &BuiltVm) -> bool {
        let on = |name: &str| built.storages.iter().any(|storage| **storage == *name);
        let beside = self.shared.is_some_and(|name| !self.of_list || on(name));
        *built.host == *self.host || beside
    }
}

fn is_shared(resources: &ClusterResources, storage: &str, host: &str) -> bool {
    let of_host = resources.storages.get(host);
    of_host
        .and_then(|of| of.get(storage))
        .is_some_and(|storage| storage.shared)
}

/// The storage of these that a host's template lies on: where the host takes none, the first.
fn storage_on<'n>(names: &'n StorageNames, host: &str, resources: &ClusterResources) -> &'n str {
    let chosen = disk_storages::choose(names, host, resources);
    chosen.unwrap_or_else(|| names.first())
}

/// Tells sentences, a line each, folded at words where this is a terminal.
fn tell(text: &str) -> Result<(), CliFailure> {
    print(&output::sentences(text))
}

/// Says what happens to a template on a host, with the time since `began`.
fn tell_step((name, host): (&str, &str), began: Instant, text: &str) -> anyhow::Result<()> {
    let span = guest::span(began.elapsed()).to_string();
    let head = format!("{name} on {host}  {span:>6}  ");
    print(&output::headed_line(&head, text)).map_err(|_| anyhow!("cannot write to standard output"))
}

/// Runs one of the commands.
pub(super) fn run(config: &Path, command: &TemplateCommand) -> Result<(), CliFailure> {
    let settings = load(config)?;
    let work = async {
        match command {
            TemplateCommand::Build(options) => build(&settings, options).await,
            TemplateCommand::List(options) => overview::list(&settings, options.output).await,
            TemplateCommand::Prune(options) => overview::prune(&settings, options.dry_run).await,
            TemplateCommand::Try(options) => trial::run(&settings, options).await,
        }
    };
    runtime()?.block_on(work)
}

/// The templates with a build that are meant: all, or those that are named.
fn chosen<'a>(
    settings: &'a Settings,
    names: &[String],
) -> anyhow::Result<BTreeMap<&'a str, (&'a TemplateSettings, &'a Build)>> {
    let mut chosen = BTreeMap::new();
    for (name, template) in &settings.templates {
        if let Some(build) = &template.build {
            chosen.insert(&**name, (template, &**build));
        }
    }
    for name in names {
        if !chosen.contains_key(name.as_str()) {
            bail!("template {name} has no build in the configuration ([template.{name}.build])");
        }
    }
    if chosen.is_empty() {
        bail!(
            "no template has a build in the configuration ([template.NAME.build]); docs/template.md shows one"
        );
    }
    if !names.is_empty() {
        chosen.retain(|name, _| names.iter().any(|one| one == name));
    }
    Ok(chosen)
}

pub(super) async fn build(settings: &Settings, options: &BuildOptions) -> Result<(), CliFailure> {
    let mut failed = Vec::new();
    let (mut made, mut kept) = (0, 0);
    for (name, (template, build)) in chosen(settings, &options.names)? {
        let place = TemplateRegion::open(settings, &template.region)?;
        let resources = place.client.resources().await?;
        let hosts = hosts(settings, (name, build), &resources, &options.hosts)?;
        let vm_name = template.vm_name.as_deref().unwrap_or(name);
        let mut built = BTreeSet::new();
        for host in hosts {
            let resources = place.client.resources().await?;
            let found = place.find(&resources, name, build).await?;
            let at = TemplatePlace::on(&build.storage, &host, &resources);
            if let Some(current) = current(&found, build, at).filter(|_| !options.again) {
                kept += 1;
                tell(&format!(
                    "{name} on {host}: VM {} on {} is up to date; --again builds it anew\n",
                    current.vmid, current.host
                ))?;
                continue;
            }
            let builder = Builder {
                place: &place,
                name,
                vm_name,
                build,
                host: &host,
                keep_failed: options.keep_failed,
                began: Instant::now(),
            };
            match builder.run(&found).await {
                Ok(vmid) => {
                    made += 1;
                    built.insert(vmid);
                }
                Err(error) => {
                    tell(&format!("{name} on {host}: FAILED: {error:#}\n"))?;
                    failed.push(format!("{name} on {host}"));
                }
            }
        }
        place.until_listed(vm_name, built).await?;
    }
    if failed.is_empty() {
        let made = words::count(made, "template");
        return print(&format!("{made} built, {kept} up to date\n"));
    }
    Err(anyhow!("not built: {}", failed.join(", ")).into())
}

/// The finished template that was built from the definition as it is, on the host, or on the shared storage that the host takes.
fn current<'a>(found: &'a [BuiltVm], build: &Build, at: TemplatePlace<'_>) -> Option<&'a BuiltVm> {
    let wanted = template_mark::definition(build);
    let mut found = found.iter();
    found.find(|built| built.finished() && built.mark.definition == wanted && at.has(built))
}

/// The hosts on which `template build` without `--host` builds a template.
pub(super) fn hosts_of_build(
    settings: &Settings,
    of: (&str, &Build),
    resources: &ClusterResources,
) -> anyhow::Result<Vec<String>> {
    hosts(settings, of, resources, &[])
}

/// The hosts that get the template.
fn hosts(
    settings: &Settings,
    (name, build): (&str, &Build),
    resources: &ClusterResources,
    named: &[String],
) -> anyhow::Result<Vec<String>> {
    if !named.is_empty() {
        // Who names one twice means it once.
        let mut seen = BTreeSet::new();
        let once = named.iter().filter(|host| seen.insert(*host));
        return Ok(once.cloned().collect());
    }
    if !build.hosts.is_empty() {
        return Ok(build.hosts.clone());
    }
    let pools = settings.policy.pools.values();
    let pools: Vec<_> = pools.filter_map(|pool| pool.of_template(name)).collect();
    let wanted = |host: &str| pools.is_empty() || pools.iter().any(|pool| pool.may_use(host));
    let online = resources.hosts.iter().filter(|(_, host)| host.online);
    let having = online.filter(|(host, _)| {
        let storages = resources.storages.get(*host);
        let mut names = build.storage.iter();
        wanted(host) && storages.is_some_and(|of| names.any(|name| of.contains_key(name)))
    });
    let mut served: BTreeSet<&str> = BTreeSet::new();
    let apart = having.filter(|(host, _)| {
        let storage = storage_on(&build.storage, host, resources);
        let at = TemplatePlace::on(&build.storage, host, resources);
        // One template serves all hosts that share its storage.
        at.shared.is_none() || served.insert(storage)
    });
    let hosts: Vec<String> = apart.map(|(host, _)| host.to_string()).collect();
    if hosts.is_empty() {
        bail!(
            "no host that is online and that a pool of template {name} may use has the storage {} (storage of the build)",
            build.storage
        );
    }
    Ok(hosts)
}
