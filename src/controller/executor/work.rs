//! One machine being worked on: its tools, its place in the journal, and the clock of each step.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::controller::disk_storages::chosen_of;
use crate::controller::journal::JournalEntry;
use crate::model::cluster::ObjectKey;
use crate::model::mark::{self, Mark, Ownership};
use crate::model::region::{Failure, GuestKind, Step};
use crate::model::time::Span;
use crate::pve::transport::CallError;
use crate::pve::{ClusterResources, FailureCause, Task, VmConfig};

use super::Tools;
use super::step_time::span;
use super::stop::GONE;
pub(super) use super::stop::Stop;
pub(super) use super::task::TaskFailure;
pub(super) use super::transient::{is_transient, is_transient_kube};

/// First pause after a failed call; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause between two tries of a call. Every retry also ends with its step's deadline.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Between two looks whether the PVE cluster has quorum again.
const QUORUM_LOOK: Duration = Duration::from_secs(10);
/// Something that is waited for is looked at again after this part of the wait so far: seen late by
/// a tenth of its own time at most, with a few dozen looks however long it takes …
const PART_OF_WAIT: u32 = 10;
/// … and no pause between two looks is shorter than this.
pub(super) const SHORTEST_LOOK: Duration = Duration::from_millis(100);
/// What was read of a VM this long ago is as good as read now, while nobody here changed it: a look
/// takes two calls of some ten milliseconds each.
const FRESH: Duration = Duration::from_millis(250);
/// Where it is not known by then whether a VM is there, what failed stays what it was.
const LOOK_FOR_GONE: Duration = Duration::from_secs(30);

/// What a look at a machine's VMID shows.
#[derive(Debug)]
pub(super) enum VmState {
    /// No VM has this VMID.
    Absent,
    /// Our machine, with the host it is on and its configuration.
    Ours(Box<VmConfig>),
    /// Our machine, but its SMBIOS UUID is not the one it had: which node is on it cannot be told. It is left alone.
    Changed(String),
    /// A locked VM without a mark: the placeholder of a clone under way, or of a dead one.
    Placeholder,
    /// Our machine in the last part of its removal: PVE has replaced its configuration, mark and
    /// all, by `lock: destroyed`, and takes its traces out of the cluster's files.
    Going,
    /// Somebody else's, and how that was seen.
    Foreign(String),
}

/// A machine being worked on.
#[derive(Debug)]
pub(super) struct Work {
    /// The clients, stores and clocks that actions use.
    pub(super) tools: Tools,
    /// The name of the machine that is worked on.
    pub(super) machine: Arc<str>,
    /// The mark that the machine's VM must carry.
    pub(super) mark: Mark,
    /// The PVE client of the machine's region.
    pub(super) pve: crate::pve::Client,
    /// What was seen last, for the message when a step's time is up.
    pub(super) last: Mutex<LastWait>,
    /// The step worked at, and how long somebody has worked at it so far.
    pub(super) spent: Mutex<Option<(Step, Span)>>,
    /// The number of this work; no other work has it.
    number: u64,
    /// The configuration at the last look, and when that was.
    seen: Mutex<Option<(Instant, VmConfig)>>,
}

/// What a step last waited for.
#[derive(Debug, Default)]
pub(super) struct LastWait {
    pub(super) text: String,
    /// PVE or Kubernetes did not answer, or could not do it for anybody.
    pub(super) outage: bool,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.tools.active_tasks.fetch_sub(1, Ordering::Relaxed);
        self.tools.waits.end(&self.machine, self.number);
    }
}

impl Work {
    /// Opens the work on a machine that has a journal entry.
    pub(super) fn open(tools: Tools, entry: &JournalEntry) -> Result<Work, Stop> {
        let region = &entry.target.region;
        let pve = tools.pve.get(region).cloned().ok_or_else(|| {
            Stop::Failed(format!(
                "region {region} is not in the configuration; add it again or remove the VM by hand"
            ))
        })?;
        tools.active_tasks.fetch_add(1, Ordering::Relaxed);
        let number = tools.works.fetch_add(1, Ordering::Relaxed);
        tools.waits.begin(&entry.target.machine, number, None);
        Ok(Work {
            tools,
            number,
            machine: entry.target.machine.clone(),
            mark: entry.spec.mark.clone(),
            pve,
            last: Mutex::default(),
            spent: Mutex::default(),
            seen: Mutex::new(None),
        })
    }

    /// The journal's entry as it is now.
    pub(super) fn entry(&self) -> Result<JournalEntry, Stop> {
        self.tools.journal.get(&self.machine).ok_or_else(|| {
            Stop::Transient(format!("the journal has no entry for {}", self.machine))
        })
    }

    /// The machine's host as last seen.
    pub(super) fn host(&self) -> Result<Arc<str>, Stop> {
        Ok(self.entry()?.target.host)
    }

    /// Changes the journal's entry.
    pub(super) fn record(&self, change: impl FnOnce(&mut JournalEntry)) -> Result<(), Stop> {
        Ok(self.tools.journal.update(&self.machine, change)?)
    }

    /// Says what is in the way and is being waited for.
    pub(super) fn note(&self, what: impl Into<String>) {
        self.waits_for(what.into(), true, false);
    }

    /// Says what is being waited for that every machine goes through.
    pub(super) fn progress(&self, what: impl Into<String>) {
        self.waits_for(what.into(), false, false);
    }

    fn waits_for(&self, what: String, hindered: bool, outage: bool) {
        let now = self.tools.clock.now();
        self.tools.waits.note(&self.machine, &what, hindered, now);
        let last = LastWait { text: what, outage };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    /// Says that a pod may not be evicted, and why.
    pub(super) fn held_by(&self, pod: &ObjectKey, uid: &Arc<str>, why: &str) {
        let now = self.tools.clock.now();
        self.tools.waits.held_by(&self.machine, pod, uid, why, now);
    }

    /// A step begins: nothing is waited for yet.
    fn step_begins(&self, step: Step) {
        let now = self.tools.clock.now();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = LastWait::default();
        self.tools
            .waits
            .begin(&self.machine, self.number, Some((step, now)));
    }

    /// Says what is being waited for: that PVE or Kubernetes can do anything at all again. A step whose
    /// time ends like this was not failed by the machine or its pool.
    pub(super) fn note_outage(&self, what: impl Into<String>) {
        self.waits_for(what.into(), true, true);
    }

    /// Begins a step and does its work within its time. Time counts while somebody works at the step, across
    /// restarts, and not while nobody does: a daemon that was away took no time from the guest. A step that
    /// the journal has left behind (it is only checked again) gets its time anew, and so does one whose time
    /// was up, when it is tried again.
    pub(super) async fn step<T>(
        &self,
        step: Step,
        limit: Span,
        work: impl Future<Output = Result<T, Stop>>,
    ) -> Result<T, Failure> {
        self.enter(step).map_err(|stop| self.failure(step, stop))?;
        self.attempt(step, limit, work).await
    }

    /// Does the work of a step within its time without beginning it: the work looks first, and [enters] the
    /// step when the look has shown that it may. A step that stands in the journal is one that was decided:
    /// whoever finds it there goes on with it.
    ///
    /// [enters]: Work::enter
    pub(super) async fn attempt<T>(
        &self,
        step: Step,
        limit: Span,
        work: impl Future<Output = Result<T, Stop>>,
    ) -> Result<T, Failure> {
        // On the heap: whoever awaits this holds it only once.
        let work = Box::pin(work);
        let began = Instant::now();
        self.step_begins(step);
        let result = match self.take_up(step) {
            Err(stop) => Err(stop),
            Ok(spent) => self.within(step, limit, spent, work).await,
        };
        let result = match result {
            Ok(done) => Ok(done),
            Err(stop) => Err(self.failure(step, self.unless_gone(step, stop).await)),
        };
        let (observer, took) = (&self.tools.observer, span(began.elapsed()));
        observer.step(&self.machine, step, took, result.as_ref().err());
        result
    }

    /// Writes down that a step was decided; durable when this returns. A later one stays.
    pub(super) fn enter(&self, step: Step) -> Result<(), Stop> {
        let now = self.tools.clock.now();
        self.record(|entry| {
            if entry.step < step {
                entry.step = step;
                entry.since = now;
                entry.spent = Span::ZERO;
            }
            if step <= Step::Done {
                entry.reached = entry.reached.max(Some(step));
            }
        })
    }

    /// The failure that a stop in `step` is.
    pub(super) fn failure(&self, step: Step, stop: Stop) -> Failure {
        stop.into_failure(step, self.tools.clock.now(), self.host().ok())
    }

    /// Why a step on the way up ended, where somebody may have removed the VM under it: then that alone, and by nobody's fault. Of a VM that is not
    /// there PVE says many things; a token is told that it lacks a privilege.
    pub(super) async fn unless_gone(&self, step: Step, stop: Stop) -> Stop {
        let made = (Step::Configure..Step::Done).contains(&step);
        if !made || stop.is_transient() {
            return stop;
        }
        match timeout(LOOK_FOR_GONE, self.look()).await {
            Ok(Ok(VmState::Absent)) => Stop::Transient(GONE.to_owned()),
            _ => stop,
        }
    }

    /// The pause before the next look at something that has been waited for since `began`. The more
    /// machines are worked on, the longer: PVE is asked about as often as for one.
    pub(super) fn pace(&self, began: Instant, longest: Duration) -> Duration {
        let active =
            u32::try_from(self.tools.active_tasks.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let pause = pace_alone(began.elapsed());
        pause.saturating_mul(active.max(1)).min(longest)
    }

    /// Looks at what has the machine's VMID now, wherever it is, reading the mark afresh.
    pub(super) async fn look(&self) -> Result<VmState, Stop> {
        let vmid = self.mark.vmid;
        loop {
            let resources = self
                .patiently("reading the resources", || self.pve.resources())
                .await?;
            let Some(guest) = resources.guests.get(&vmid) else {
                if let Some(why) = self.may_be_there(&resources).await?
                    && !planted!(AnswersNotChecked)
                {
                    self.note_outage(format!("PVE's list has no row for VM {vmid}, and {why}"));
                    sleep(LONGEST_PAUSE).await;
                    continue;
                }
                return Ok(VmState::Absent);
            };
            if let Some(why) = guest.unplaced(vmid) {
                self.note_outage(why);
                sleep(LONGEST_PAUSE).await;
                continue;
            }
            if guest.kind != GuestKind::Qemu && guest.odd.is_none() {
                return Ok(VmState::Foreign(format!("VMID {vmid} is a container")));
            }
            let host = guest.host.clone();
            match self.pve.vm_config(&host, vmid).await {
                Ok(config) => {
                    let look = self.judge(host, config)?;
                    if !matches!(look, VmState::Ours(_)) {
                        self.doubt();
                    }
                    return Ok(look);
                }
                // It moved or went between the two calls: look again.
                Err(error) if error.cause() == FailureCause::Gone => {
                    self.note(error.to_string());
                    sleep(FIRST_PAUSE).await;
                }
                Err(error) if is_transient(&error) => {
                    self.note_outage(error.to_string());
                    sleep(FIRST_PAUSE * 4).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Why a VM that was ours may be there, though the list has no row for it: its last host shows it with our mark, or is
    /// online and does not answer. PVE leaves out of the list what the caller may not see any more.
    async fn may_be_there(&self, resources: &ClusterResources) -> Result<Option<String>, Stop> {
        let entry = self.entry()?;
        if !entry.was_ours() {
            return Ok(None);
        }
        let host = &entry.target.host;
        Ok(match self.pve.vm_config(host, self.mark.vmid).await {
            Ok(config) => {
                let marked = mark::read(&config.description);
                let ours = matches!(marked, Ownership::Marked(mark) if *mark == self.mark);
                ours.then(|| format!("host {host} shows it with our mark"))
            }
            Err(error) if is_transient(&error) && resources.is_online(host) => {
                Some(format!("host {host} does not say: {error}"))
            }
            Err(_) => None,
        })
    }

    /// What the region's watcher has read of the VM may not hold any more: it is read again with the next poll.
    pub(super) fn doubt(&self) {
        if let Ok(entry) = self.entry() {
            self.tools.doubts.add(&entry.target.region, self.mark.vmid);
        }
    }

    /// The machine's configuration if it was read a moment ago and nothing was changed since.
    pub(super) fn just_seen(&self) -> Option<VmConfig> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, config) = seen.as_ref()?;
        (at.elapsed() <= FRESH).then(|| config.clone())
    }

    /// The VM is about to be changed: what was read of it does not count any more.
    pub(super) fn changing(&self) {
        self.remember(None);
    }

    fn remember(&self, seen: Option<(Instant, VmConfig)>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    fn judge(&self, host: Arc<str>, config: VmConfig) -> Result<VmState, Stop> {
        let vmid = self.mark.vmid;
        if planted!(MarkNotReRead) && self.entry()?.marked {
            return Ok(VmState::Ours(Box::new(config)));
        }
        match mark::read(&config.description) {
            Ownership::Marked(mark) if *mark == self.mark => {
                let entry = self.entry()?;
                // Before it no node can be on it; with the stop what was edited and pending came into force.
                let may_run = (Step::Start..Step::Shutdown).contains(&entry.step);
                let known = entry.uuid.filter(|_| may_run);
                if let Some(old) = known.filter(|old| Some(old) != config.uuid.as_ref()) {
                    let new = config.uuid.as_deref().unwrap_or("gone");
                    return Ok(VmState::Changed(format!(
                        "left alone: the SMBIOS UUID of VM {vmid} on {host} was {old} and is {new} now, so its node cannot be identified; restore it with `qm set {vmid} --smbios1 uuid={old}`"
                    )));
                }
                self.record(|stored| {
                    stored.marked = true;
                    stored.target.host = host;
                    // Of one that may have a node only what its node shows is remembered.
                    if stored.step < Step::Register {
                        stored.uuid.clone_from(&config.uuid);
                    }
                })?;
                self.remember(Some((Instant::now(), config.clone())));
                Ok(VmState::Ours(Box::new(config)))
            }
            Ownership::Unmarked if self.entry()?.is_placeholder(config.lock.as_deref()) => {
                Ok(VmState::Placeholder)
            }
            Ownership::Unmarked if config.lock.as_deref() == Some("destroyed") => {
                let entry = self.entry()?;
                if !entry.marked && entry.step != Step::Destroy {
                    let how = format!("VM {vmid} on {host} is being destroyed and carries no mark");
                    return Ok(VmState::Foreign(how));
                }
                self.record(|stored| stored.target.host = host)?;
                Ok(VmState::Going)
            }
            Ownership::Unmarked => Ok(VmState::Foreign(format!(
                "VM {vmid} on {host} carries no mark"
            ))),
            Ownership::Marked(other) => Ok(VmState::Foreign(format!(
                "VM {vmid} on {host} carries the mark of machine {} of cluster {}",
                other.machine, other.cluster
            ))),
            Ownership::UnknownVersion(version) => Ok(VmState::Foreign(format!(
                "VM {vmid} on {host} carries a mark of version {version}"
            ))),
            Ownership::Damaged(why) => Ok(VmState::Foreign(format!("VM {vmid} on {host}: {why}"))),
        }
    }

    /// What is to say while PVE has not finished a removal, and what a person can do if it never does.
    pub(super) fn going(&self) -> String {
        let vmid = self.mark.vmid;
        format!(
            "VM {vmid} is being destroyed; if that was interrupted, `qm destroy {vmid} --skiplock` on {} finishes it",
            self.host().unwrap_or_default()
        )
    }

    /// Says where the disk may be that a clone was copying when it was cut short: PVE does not remove
    /// it with the VM, and its name alone does not prove whose it is.
    pub(super) fn disk_left(&self) {
        let template = self.tools.settings.templates.get(&*self.mark.template);
        let new = template.and_then(|template| template.new_vm.as_ref());
        let new = new.map(|new| &new.create.storage);
        let names = new.or(template.and_then(|template| template.storage.as_ref()));
        let chosen = self.entry().map(|entry| entry.spec.storages.own);
        let chosen = chosen.ok().flatten();
        let storage = names.map(|names| chosen_of(names, chosen.as_deref()));
        tracing::warn!(machine = %self.machine,
            "a disk that the clone was copying may be left: `pvesm list {} --vmid {}` on {} shows it, `pvesm free VOLUME` removes it",
            storage.unwrap_or("STORAGE"), self.mark.vmid, self.host().unwrap_or_default());
    }

    /// Whether PVE is at the removal of the VM.
    pub(super) async fn being_destroyed(&self) -> Result<bool, Stop> {
        let (host, vmid) = (self.host()?, self.mark.vmid);
        let tasks = self
            .patiently("listing tasks", || self.pve.active_tasks(&host, vmid))
            .await?;
        let id = vmid.to_string();
        let removes = |task: &Task| task.upid.kind() == "qmdestroy" && task.upid.id() == id;
        Ok(tasks.iter().any(removes))
    }

    /// Repeats a call that reads (or may be repeated) until it is answered, pausing between tries.
    /// Ends with an error that waiting does not mend, or with the step's deadline.
    pub(super) async fn patiently<T, F>(
        &self,
        what: &str,
        mut call: impl FnMut() -> F,
    ) -> Result<T, Stop>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let mut pause = FIRST_PAUSE;
        loop {
            match call().await {
                Ok(value) => return Ok(value),
                Err(error) if is_transient(&error) => {
                    self.note_outage(format!("{what}: {error}"));
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes a Kubernetes call, and makes it again while it fails with what passes by itself.
    pub(super) async fn patiently_kube<T, F>(
        &self,
        what: &str,
        mut call: impl FnMut() -> F,
    ) -> Result<T, Stop>
    where
        F: Future<Output = Result<T, crate::kubernetes::KubeError>>,
    {
        let mut pause = FIRST_PAUSE;
        loop {
            match call().await {
                Ok(value) => return Ok(value),
                Err(error) if is_transient_kube(&error) => {
                    self.wait_for_kube(what, &error);
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Notes what of Kubernetes is waited for. A right that is missing is told in the log as well, at once: it may be
    /// missing for good.
    pub(super) fn wait_for_kube(&self, what: &str, error: &crate::kubernetes::KubeError) {
        let text = format!("{what}: {error}");
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let said = last.text == text;
        drop(last);
        if error.code() == Some(403) && !said {
            tracing::warn!(machine = %self.machine, %error,
                "Kubernetes forbids it: just started, its roles not read yet, or a right is missing; tried again");
        }
        self.note_outage(text);
    }

    /// Waits before PVE is asked once more for a change that it refused with `error`: for `pause`, or for quorum
    /// where that was missing. A try without it would only be one more failure in PVE's log.
    pub(super) async fn wait_before_retry(
        &self,
        error: &CallError,
        pause: Duration,
    ) -> Result<(), Stop> {
        if error.cause() != FailureCause::NoQuorum || planted!(QuorumIgnored) {
            sleep(pause).await;
            return Ok(());
        }
        loop {
            sleep(QUORUM_LOOK).await;
            let cluster = self
                .patiently("looking for quorum", || self.pve.cluster_status())
                .await?;
            if cluster.quorate {
                return Ok(());
            }
            self.note_outage(error.to_string());
        }
    }
}

/// The pause before the next look at something that has been waited for so long, if nobody else waits for anything.
pub(super) fn pace_alone(waited: Duration) -> Duration {
    (waited / PART_OF_WAIT).max(SHORTEST_LOOK)
}

/// Repeats a Kubernetes call until it is answered, an error comes that waiting does not mend, or `limit` is
/// over: then the last error is the answer. What is waited for is told in the log.
pub(super) async fn kube_within<T, F>(
    machine: &str,
    limit: Duration,
    mut call: impl FnMut() -> F,
) -> Result<T, crate::kubernetes::KubeError>
where
    F: Future<Output = Result<T, crate::kubernetes::KubeError>>,
{
    let ends = Instant::now() + limit;
    let mut pause = FIRST_PAUSE;
    loop {
        match call().await {
            Err(error) if is_transient_kube(&error) && Instant::now() + pause < ends => {
                tracing::warn!(machine, %error, "Kubernetes is asked again");
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            answered => return answered,
        }
    }
}
