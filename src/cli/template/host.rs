//! One template, built on one host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tokio::time::{Instant, sleep};

use super::definition::{self, BuildStep, DISK, TemplateVm};
use super::files::HostFiles;
use super::guest::{TemplateGuest, span};
use super::{BuiltVm, TemplatePlace, TemplateRegion, snippets, tell_step};
use crate::clock::Clock;
use crate::config::file::Build;
use crate::config::storage_names::StorageNames;
use crate::controller::disk_storages;
use crate::controller::file_storages;
use crate::controller::template_mark::{self, BuildStage, MarkReader, MarkedProcess, TemplateMark};
use crate::model::foreign::ForeignText;
use crate::model::network::without_fixed_addresses;
use crate::model::time::Span;
use crate::pve::building::Download;
use crate::pve::remedy::{self, RemedyContext};
use crate::pve::{
    ClusterResources, ConfigUpdate, FailureCause, Poll, TaskEnd, Upid, VmConfig, WaitError,
};

/// The first boot until the agent answers: it is installed then.
const FIRST_BOOT: Duration = Duration::from_mins(10);
/// Tasks of PVE that copy nothing.
const SHORT: Duration = Duration::from_mins(3);
/// The guest's own shutdown.
const SHUTDOWN: Duration = Duration::from_mins(2);
/// Between two lines about a task that runs.
const NEWS: Duration = Duration::from_secs(5);
/// How the log of a task ends that went well: the next line of ours says so.
const TASK_OK: &str = "TASK OK";
/// Lines of a failed task's log that are told.
const LOG_LINES: usize = 5;
/// Lines of a failed step that are told once more.
const TOLD: usize = 15;

/// A build under way.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    pub(super) place: &'a TemplateRegion,
    pub(super) name: &'a str,
    pub(super) vm_name: &'a str,
    pub(super) build: &'a Build,
    pub(super) host: &'a str,
    pub(super) keep_failed: bool,
    pub(super) began: Instant,
}

/// The storages of a host that a build uses, of those that its keys list.
#[derive(Debug)]
struct BuildStorages<'a> {
    /// Of the template's disks.
    disks: &'a str,
    /// What the image is downloaded to; empty where none is.
    image: &'a str,
    /// Of the first boot's cloud-init data.
    snippets: &'a str,
    /// The directory of that storage on the host.
    folder: String,
}

impl Builder<'_> {
    /// Builds it; what has begun is removed when it fails, unless it is to be kept.
    pub(super) async fn run(&self, found: &[BuiltVm]) -> anyhow::Result<u32> {
        let resources = self.place.client.resources().await?;
        let storages = self.storages(&resources).await?;
        let files = HostFiles::find(self.place, self.host).await?;
        self.clear(found).await?;
        let image = self.image(storages.image).await?;
        let resources = self.place.client.resources().await?;
        let mark = self.mark(&resources)?;
        let vmid = mark.vmid;
        let file = snippets::file_name(self.name, vmid);
        let path = format!("{}/snippets/{file}", storages.folder);
        files
            .write(&path, &definition::vendor_data(self.build))
            .await?;
        let snippet = format!("{}:snippets/{file}", storages.snippets);
        let outcome = self.make(&mark, storages.disks, (&image, &snippet)).await;
        // Nothing refers to it any more: the VM's configuration names it until it is a template.
        let unneeded = outcome.is_ok() || !self.keep_failed;
        if unneeded && let Err(error) = files.remove(&path).await {
            self.say(&format!(
                "{error:#}; nothing needs the file any more: `template prune` removes it when no VM {vmid} is there"
            ))?;
        }
        outcome?;
        self.retire(found, vmid).await?;
        Ok(vmid)
    }

    /// Says what happens, with the time since it began.
    fn say(&self, text: &str) -> anyhow::Result<()> {
        tell_step((self.name, self.host), self.began, text)
    }

    /// The storages of the host that the build uses; or what is wrong with them, before anything is made.
    async fn storages(&self, resources: &ClusterResources) -> anyhow::Result<BuildStorages<'_>> {
        let host = self.host;
        if !resources.hosts.get(host).is_some_and(|found| found.online) {
            bail!("the host {host} is not online");
        }
        let build = self.build;
        let names = &build.storage;
        let chosen = disk_storages::choose(names, host, resources);
        if chosen.is_none() && names.is_list() {
            bail!(
                "storage: {}",
                disk_storages::explain_none(names, host, resources)
            );
        }
        let disks = chosen.unwrap_or_else(|| names.first());
        if let Some(why) = file_storages::lack(disks, "images", host, resources) {
            bail!("storage: {why}");
        }
        let snippets = self.taken(
            ("snippet_storage", &build.snippet_storage),
            "snippets",
            resources,
        )?;
        let image = if build.image.is_some() {
            self.taken(("image_storage", &build.image_storage), "import", resources)?
        } else {
            ""
        };
        let paths = self.place.client.storage_paths().await?;
        let Some(folder) = paths.get(snippets) else {
            bail!(
                "snippet_storage: storage {snippets} has no directory that cloud-init's data could be put in; name one of type dir, btrfs, nfs, cifs or cephfs"
            );
        };
        Ok(BuildStorages {
            disks,
            image,
            snippets,
            folder: folder.clone(),
        })
    }

    /// The storage of those that a key names which the host takes for files of a content type.
    fn taken<'n>(
        &self,
        (key, names): (&str, &'n StorageNames),
        content: &str,
        resources: &ClusterResources,
    ) -> anyhow::Result<&'n str> {
        let taken = file_storages::choose(names, content, self.host, resources);
        taken.ok_or_else(|| {
            let why = file_storages::explain_none(names, content, self.host, resources);
            anyhow!("{key}: {why}")
        })
    }

    /// Removes what an earlier build left.
    async fn clear(&self, found: &[BuiltVm]) -> anyhow::Result<()> {
        let left = found
            .iter()
            .filter(|built| *built.host == *self.host && !built.finished());
        for built in left {
            let (here, longest) = (self.place.mark_reader(), longest(self.build));
            if built
                .mark
                .may_be_under_way(&here, longest, Clock::System.now())
            {
                let vmid = built.vmid;
                bail!(
                    "VM {vmid} is being built by {}{}",
                    built.mark.tell_process(&here, longest),
                    by_hand(&built.mark, &here, (vmid, self.host))
                );
            }
            self.say(&format!(
                "removing VM {}, which an earlier build left",
                built.vmid
            ))?;
            self.place.remove(built.vmid, self.host, self.name).await?;
        }
        Ok(())
    }

    /// The volume to import from; it is downloaded to this storage if it is not there.
    async fn image(&self, storage: &str) -> anyhow::Result<String> {
        let Some(url) = &self.build.image else {
            return Ok(self.build.volume.clone().unwrap_or_default());
        };
        let checksum = self.build.checksum.clone().unwrap_or_default();
        let (algorithm, digits) = checksum.split_once(':').unwrap_or_default();
        let file = definition::image_file(url, &checksum);
        let volume = format!("{storage}:import/{file}");
        let there = self.place.client.images(self.host, storage).await?;
        if there.contains(&volume) {
            self.say(&format!("the image is there: {volume}"))?;
            return Ok(volume);
        }
        self.say(&format!("downloading {url} to {volume}"))?;
        let download = Download {
            url: url.clone(),
            file,
            algorithm: algorithm.to_owned(),
            checksum: digits.to_owned(),
        };
        let task = self
            .place
            .client
            .download_image(self.host, storage, &download);
        self.follow("the download", task.await?, self.limit())
            .await?;
        Ok(volume)
    }

    /// The mark of the VM to be, with the lowest free VMID.
    fn mark(&self, resources: &ClusterResources) -> anyhow::Result<TemplateMark> {
        let Some(range) = self.build.vmids else {
            bail!("the build has no vmids");
        };
        let free = (range.first..=range.last).find(|vmid| !resources.guests.contains_key(vmid));
        let vmid = free.with_context(|| {
            format!(
                "vmids {}-{} are all taken; `pve-autoscaler template prune` removes old templates, or give more",
                range.first, range.last
            )
        })?;
        let here = self.place.mark_reader();
        Ok(TemplateMark {
            template: self.name.to_owned(),
            cluster: self.place.cluster.clone(),
            vmid,
            definition: template_mark::definition(self.build),
            stage: BuildStage::Building,
            by: format!("{}/{}", here.host, std::process::id()),
            machine: Some(here.machine),
            begun: Clock::System.now().0 / 1_000,
            unknown: [].into(),
        })
    }

    /// From the image to the template.
    async fn make(
        &self,
        mark: &TemplateMark,
        storage: &str,
        (image, snippet): (&str, &str),
    ) -> anyhow::Result<()> {
        let vmid = mark.vmid;
        let parameters = definition::parameters(
            self.build,
            &TemplateVm {
                vmid,
                name: self.vm_name,
                description: &mark.describe(),
                storage,
                image,
                snippet,
            },
        );
        // Which of a list it is shows where the image's bytes go.
        let to = if self.build.storage.is_list() {
            format!(", its disks on {storage}")
        } else {
            String::new()
        };
        self.say(&format!("importing {image} into VM {vmid}{to}"))?;
        let created = self.place.client.create_vm(self.host, parameters).await;
        self.follow("creating the VM", created?, self.limit())
            .await?;
        let outcome = match self.install(vmid).await {
            Ok(()) => self.seal(mark).await,
            Err(error) => Err(error),
        };
        let Err(error) = outcome else {
            return Ok(());
        };
        if self.keep_failed {
            self.set_stage(mark, BuildStage::Failed, (None, vec![]))
                .await?;
            self.say(&format!(
                "VM {vmid} is kept: `qm terminal {vmid}` or `qm guest exec {vmid} -- sh` on {}; the next build or `template prune` removes it",
                self.host
            ))?;
        } else {
            self.say(&format!("removing VM {vmid}; --keep-failed would keep it"))?;
            if let Err(left) = self.place.remove(vmid, self.host, self.name).await {
                self.say(&format!("{left:#}; the next build removes it"))?;
            }
        }
        Err(error)
    }

    /// Boots it, and runs what is to be run in it.
    async fn install(&self, vmid: u32) -> anyhow::Result<()> {
        let (client, host) = (&self.place.client, self.host);
        if let Some(size) = self.build.disk {
            let config = self.place.proven(vmid, host, self.name).await?;
            let now = config
                .disks
                .get(DISK)
                .and_then(|disk| disk.size)
                .unwrap_or(0);
            if now < size.0 {
                let task = client.resize(host, vmid, DISK, size.0).await?;
                if let Some(task) = task {
                    self.follow("growing the disk", task, self.limit()).await?;
                }
            }
        }
        self.say("first boot, in which the guest agent is installed")?;
        let begun = Instant::now();
        let say = |line: &str| self.say(&format!("  {line}"));
        start(self.place, (host, vmid, self.name), SHORT, say).await?;
        let guest = TemplateGuest { client, host, vmid };
        let say = |line: &str| self.say(&format!("  {line}"));
        guest.answers((FIRST_BOOT, self.keep_failed), say).await?;
        self.say(&format!(
            "the agent answers, {} after the start",
            span(begun.elapsed())
        ))?;
        guest.ready(FIRST_BOOT).await?;
        for step in definition::steps(self.build) {
            self.step(guest, &step).await?;
        }
        self.place.proven(vmid, host, self.name).await?;
        self.say("shutting down")?;
        let task = client.shutdown(host, vmid, SHUTDOWN).await?;
        self.follow("the shutdown", task, SHUTDOWN + SHORT).await
    }

    async fn step(&self, guest: TemplateGuest<'_>, step: &BuildStep) -> anyhow::Result<()> {
        self.place.proven(guest.vmid, self.host, self.name).await?;
        self.say(&step.what)?;
        let begun = Instant::now();
        let mut last: Vec<String> = Vec::new();
        let mut unsaid = None;
        let each = |line: &str| {
            unsaid = unsaid.take().or(self.say(&format!("  {line}")).err());
            last.push(line.to_owned());
            last.drain(..last.len().saturating_sub(TOLD));
        };
        let code = guest
            .run(&step.name, &step.script, self.limit(), each)
            .await;
        let code = code.with_context(|| format!("{} failed", step.what))?;
        if code != 0 {
            bail!(
                "{} failed with exit code {code}; the guest said last:\n  {}",
                step.what,
                last.join("\n  ")
            );
        }
        self.say(&format!("done in {}", span(begun.elapsed())))
    }

    /// Makes the VM, which is off, a template that says from what it was built.
    async fn seal(&self, mark: &TemplateMark) -> anyhow::Result<()> {
        let status = self.place.client.vm_status(self.host, mark.vmid).await?;
        if status.running {
            bail!("VM {} still runs after its shutdown", mark.vmid);
        }
        // What was for its own boot alone: every machine would inherit it.
        let mut delete = vec!["cicustom".to_owned()];
        delete.extend(
            self.build
                .nameserver
                .as_ref()
                .map(|_| "nameserver".to_owned()),
        );
        let build = &self.build.ipconfig;
        let address = without_fixed_addresses(build);
        let set = (address != *build).then(|| ("ipconfig0".to_owned(), address));
        self.set_stage(mark, BuildStage::Ready, (set, delete))
            .await?;
        let task = self
            .place
            .client
            .make_template(self.host, mark.vmid)
            .await?;
        self.follow("making it a template", task, SHORT).await?;
        self.say(&format!(
            "VM {} is the template {}",
            mark.vmid, self.vm_name
        ))
    }

    async fn set_stage(
        &self,
        mark: &TemplateMark,
        stage: BuildStage,
        (set, delete): (Option<(String, String)>, Vec<String>),
    ) -> anyhow::Result<()> {
        let config = self.place.proven(mark.vmid, self.host, self.name).await?;
        let mark = TemplateMark {
            stage,
            ..mark.clone()
        };
        let description = ("description".to_owned(), mark.describe());
        let set = set.into_iter().chain([description]).collect();
        self.update(mark.vmid, self.host, &config, set, delete)
            .await
    }

    async fn update(
        &self,
        vmid: u32,
        host: &str,
        config: &VmConfig,
        set: BTreeMap<String, String>,
        delete: Vec<String>,
    ) -> anyhow::Result<()> {
        let update = ConfigUpdate {
            set,
            delete,
            digest: config.digest.clone(),
        };
        Ok(self.place.client.update_config(host, vmid, &update).await?)
    }

    /// Gives older templates of the name another one, so that machines are made of the new one alone.
    async fn retire(&self, found: &[BuiltVm], new: u32) -> anyhow::Result<()> {
        let resources = self.place.client.resources().await?;
        let at = TemplatePlace::on(&self.build.storage, self.host, &resources);
        let older = found
            .iter()
            .filter(|built| built.vmid != new && built.finished());
        for built in older.filter(|built| at.has(built)) {
            if &*built.name != self.vm_name {
                continue;
            }
            let config = self
                .place
                .proven(built.vmid, &built.host, self.name)
                .await?;
            let name = format!("{}-old-{}", self.vm_name, built.vmid);
            let set = [("name".to_owned(), name.clone())].into();
            self.update(built.vmid, &built.host, &config, set, vec![])
                .await?;
            self.say(&format!(
                "VM {}, the template before, is called {name} now; `template prune` removes it when no clone needs it",
                built.vmid
            ))?;
        }
        Ok(())
    }

    fn limit(&self) -> Duration {
        self.build.timeout.0.to_std()
    }

    /// Waits for a task, and says what it logs.
    async fn follow(&self, what: &str, task: Upid, within: Duration) -> anyhow::Result<()> {
        let say = |line: &str| self.say(&format!("  {line}"));
        follow(self.place, what, &task, within, say).await
    }
}

/// The longest that a build can take once its VM has a mark: creation, growth, the steps in the guest, and what lies between them.
pub(super) fn longest(build: &Build) -> Span {
    let steps = u32::try_from(definition::steps(build).len()).unwrap_or(u32::MAX);
    let guest = FIRST_BOOT * 2 + SHUTDOWN + SHORT * 4;
    span(
        guest.saturating_add(
            build
                .timeout
                .0
                .to_std()
                .saturating_mul(steps.saturating_add(2)),
        ),
    )
}

/// How a VM whose process nobody sees from here is removed by a person who knows that it runs no more.
pub(super) fn by_hand(mark: &TemplateMark, here: &MarkReader, (vmid, host): (u32, &str)) -> String {
    if mark.process(here) == MarkedProcess::Elsewhere {
        format!(
            ". Where it runs no more, `qm stop {vmid}; qm destroy {vmid}` on {host} removes the VM now"
        )
    } else {
        String::new()
    }
}

/// A task of PVE's that failed.
#[derive(Debug, thiserror::Error)]
#[error("{what} failed: {why}; PVE's log says: {}{}", log.join(" | "), advised(advice.as_deref()))]
struct FailedTask {
    what: String,
    why: ForeignText,
    log: Vec<String>,
    /// What to do about it, where PVE's words tell that.
    advice: Option<String>,
}

/// What to do, as the end of a sentence.
fn advised(advice: Option<&str>) -> String {
    advice.map_or_else(String::new, |advice| format!("; what to do: {advice}"))
}

/// Starts a VM that is proven to be of this template, and waits until it runs. The VM's status tells that, not the task: on a busy host PVE stops waiting for
/// QEMU, calls the start failed, and the VM runs all the same.
pub(super) async fn start(
    place: &TemplateRegion,
    (host, vmid, name): (&str, u32, &str),
    within: Duration,
    say: impl Fn(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let end = Instant::now() + within;
    loop {
        place.proven(vmid, host, name).await?;
        let task = place.client.start(host, vmid).await?;
        let left = end.saturating_duration_since(Instant::now());
        let Err(error) = follow(place, "the start", &task, left, &say).await else {
            return Ok(());
        };
        let cause = error.downcast_ref::<FailedTask>();
        let cause = cause.map(|failed| FailureCause::of(&failed.why));
        if !cause.is_some_and(|cause| cause.passes() || cause == FailureCause::AlreadyRunning) {
            return Err(error);
        }
        if place.client.vm_status(host, vmid).await?.running {
            return say("PVE waited no longer for the start, and the VM runs");
        }
        if Instant::now() >= end {
            return Err(error);
        }
        say(&format!("{error:#}; once more"))?;
        sleep(NEWS).await;
    }
}

/// Waits until a task ended well; `say` gets what it logs while it runs.
pub(super) async fn follow(
    place: &TemplateRegion,
    what: &str,
    task: &Upid,
    within: Duration,
    say: impl Fn(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let end = Instant::now() + within;
    let mut told: Option<Arc<str>> = None;
    loop {
        match place.client.wait_task(task, NEWS, Poll::default()).await {
            Ok(TaskEnd::Ok | TaskEnd::Warnings(_)) => return Ok(()),
            Ok(TaskEnd::Failed(why)) => {
                let log = place
                    .client
                    .task_log(task, LOG_LINES)
                    .await
                    .unwrap_or_default();
                let context = RemedyContext {
                    host: Some(task.node()),
                    vmid: task.id().parse().ok(),
                    ..RemedyContext::default()
                };
                let advice = remedy::of_task(&why, &log.join("; "), &context);
                return Err(FailedTask {
                    what: what.to_owned(),
                    why,
                    log,
                    advice,
                }
                .into());
            }
            Err(WaitError::Deadline { .. }) if Instant::now() < end => {
                let log = place.client.task_log(task, 1).await.unwrap_or_default();
                let news = |line: &&String| *line != TASK_OK && told.as_deref() != Some(line);
                if let Some(line) = log.last().filter(news) {
                    say(line)?;
                    told = Some(line.as_str().into());
                }
            }
            Err(WaitError::Deadline { .. }) => {
                bail!(
                    "{what} did not end within {}: PVE task {task}",
                    span(within)
                )
            }
            Err(error) => return Err(error).with_context(|| what.to_owned()),
        }
    }
}
