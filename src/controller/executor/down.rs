//! Taking a machine down: drain, detach, shut down, delete the Node, destroy the VM.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::config::settings::DrainSettings;
use crate::controller::journal::JournalEntry;
use crate::model::action::{Action, NodeRef};
use crate::model::cluster::{Node, ReadyStatus};
use crate::model::region::{Failure, Step};
use crate::model::time::Span;
use crate::pve::transport::{CallEffect, CallError};
use crate::pve::{ConfigUpdate, FailureCause, Upid, VmConfig};

use super::clone;
use super::drain;
use super::late;
use super::nocloud;
use super::node;
use super::tools::Tools;
use super::work::{Stop, TaskFailure, VmState, Work, is_transient};

/// After a call that PVE could not do just now.
const PAUSE: Duration = Duration::from_secs(1);
/// The node is read right before its VM loses its power. A reading older than this is not acted on: the node may have
/// been uncordoned since.
const FRESH: Duration = Duration::from_secs(10);
/// A stop must end within this time.
const STOP_DEADLINE: Span = Span::minutes(2);
/// Deleting the Node object.
const NODE_DEADLINE: Span = Span::minutes(2);

impl Work {
    /// The drain settings of the machine's pool.
    pub(super) fn drain(&self) -> DrainSettings {
        let pool = self.tools.settings.pools.get(self.mark.pool.as_str());
        pool.map(|pool| pool.drain.clone())
            .filter(|drain| drain.timeout > Span::ZERO)
            .unwrap_or(DrainSettings {
                max_grace: Span::minutes(10),
                timeout: Span::minutes(15),
                detach_timeout: Span::minutes(5),
                shutdown_timeout: Span::minutes(3),
            })
    }
}

/// Takes the machine down. May be begun again from any point.
pub(super) async fn take_down(
    tools: Tools,
    action: &Action,
    entry: &JournalEntry,
    drain: bool,
) -> Result<(), Failure> {
    let at = tools.clock.now();
    let work =
        Work::open(tools, entry).map_err(|stop| stop.into_lasting_failure(Step::Drain, at))?;
    let limits = work.drain();
    let config = work
        .attempt(Step::Drain, STOP_DEADLINE, present(&work))
        .await?;
    let node = work
        .attempt(
            Step::Drain,
            limits.timeout,
            node_of(&work, action, config.as_ref()),
        )
        .await?;
    if let Some(config) = &config {
        let mut may = kept(&work, config).map_err(|stop| work.failure(Step::Drain, stop));
        if let Some(node) = &node {
            if may.is_ok() {
                may = vacated(&work, node, action, drain).await;
            }
            may = given_up_or(&work, may);
        }
        may?;
        let patience = match node {
            None if never_a_node(&work) => Span::ZERO,
            _ => limits.shutdown_timeout,
        };
        let limit = Span(patience.0 + STOP_DEADLINE.0);
        let wanted_back = AtomicBool::new(false);
        let stopped = stopped(&work, node.as_ref(), patience, &wanted_back);
        let result = work.attempt(Step::Shutdown, limit, stopped).await;
        let wanted_back = wanted_back.load(Ordering::Relaxed);
        if let Some(node) = node.as_ref().filter(|_| wanted_back) {
            taken_back(&work, node).await?;
        }
        result?;
    }
    if let Some(node) = &node {
        work.step(Step::DeleteNode, NODE_DEADLINE, node_deleted(&work, node))
            .await?;
    }
    work.attempt(
        Step::Destroy,
        work.tools.settings.deadlines.destroy,
        destroyed(&work),
    )
    .await?;
    node::drop_token(&work).await;
    nocloud::remove_image(&work).await;
    late::end_entry(&work)
}

/// Sees that the node has nothing to lose: empties it, or without a drain looks that it is empty.
async fn vacated(work: &Work, node: &NodeRef, action: &Action, drain: bool) -> Result<(), Failure> {
    let limits = work.drain();
    if !work.attempt(Step::Drain, STOP_DEADLINE, runs(work)).await? {
        // Somebody has just switched it off and may switch it on again: as long as its node counts as
        // ready, nobody makes its pods anew.
        let lost = nothing_to_lose(work, node, "its VM is stopped");
        return work.attempt(Step::Drain, limits.timeout, lost).await;
    }
    let cleared = if drain {
        drained(work, node, action).await
    } else {
        let empty = nothing_to_lose(work, node, "its removal was planned without a drain");
        work.attempt(Step::Drain, limits.timeout, empty).await
    };
    if cleared.is_ok() {
        drain::undelayed(work, node).await;
    } else if drain {
        // Also when the time was up, wherever it was then.
        release(work, node).await;
    }
    cleared
}

/// Empties the node and waits for its volumes.
async fn drained(work: &Work, node: &NodeRef, action: &Action) -> Result<(), Failure> {
    let limits = work.drain();
    work.attempt(Step::Drain, NODE_DEADLINE, drain::cordoned(work, node))
        .await?;
    let emptied = drain::emptied(work, node, action);
    work.step(Step::Drain, limits.timeout, emptied).await?;
    let detached = drain::detached(work, node, action);
    work.step(Step::Detach, limits.detach_timeout, detached)
        .await
}

/// A removal that was given up before the VM was touched leaves the machine where it was: in service, or on its way up.
fn given_up_or<T>(work: &Work, result: Result<T, Failure>) -> Result<T, Failure> {
    if result.is_err() {
        let now = work.tools.clock.now();
        let back = work.record(|entry| {
            if entry.step >= Step::Drain {
                // An entry that was made from a VM's mark does not say how far its machine came: that one counts as in service.
                entry.step = entry.reached.unwrap_or(Step::Done).min(Step::Done);
                entry.since = now;
            }
        });
        if let Err(stop) = back {
            return Err(work.failure(Step::Drain, stop));
        }
    }
    result
}

async fn release(work: &Work, node: &NodeRef) {
    if planted!(NotReleased) {
        return;
    }
    late::no_power_off_comes(work, node).await;
    if let Err(error) = work.tools.kube.release_node(node).await {
        tracing::warn!(node = %node.name, %error, "the node could not be uncordoned; it is tried again");
    }
}

/// The machine's configuration, `None` when there is no VM of ours; a stop when it is not ours any
/// more. A clone that may still be under way is waited for: what it leaves must not be orphaned.
async fn present(work: &Work) -> Result<Option<VmConfig>, Stop> {
    loop {
        let ours = work.entry()?.was_ours();
        match work.look().await? {
            VmState::Ours(config) => return Ok(Some(*config)),
            // What is left of it is cleared away by itself, if the removal was ours.
            VmState::Going if !work.being_destroyed().await? => {
                return Err(Stop::Transient(work.going()));
            }
            VmState::Going => work.note(work.going()),
            VmState::Absent if ours => return Ok(None),
            VmState::Changed(how) => return Err(Stop::Failed(how)),
            VmState::Foreign(how) if ours => {
                return Err(Stop::Failed(format!("left alone: {how}")));
            }
            // Never ours: the VMID was taken by somebody else before our clone came to it.
            VmState::Absent | VmState::Foreign(_) => {
                if !clone::running(work).await? {
                    return Ok(None);
                }
                work.progress("the clone runs");
            }
            VmState::Placeholder => {
                if !clone::running(work).await? {
                    return Err(Stop::Transient(
                        "the VM is the locked placeholder of a dead clone".to_owned(),
                    ));
                }
                work.progress("the clone runs");
            }
        }
        sleep(PAUSE).await;
    }
}

/// The machine's node, read afresh; a stop when nodes contradict each other, or when it is another than was
/// planned with.
async fn node_of(
    work: &Work,
    action: &Action,
    config: Option<&VmConfig>,
) -> Result<Option<NodeRef>, Stop> {
    let planned = action.target.node.as_ref();
    let found = match (config, planned) {
        (Some(config), _) => {
            let off = work.entry()?.step >= Step::Shutdown && !runs(work).await?;
            node::own(work, config, off).await?
        }
        (None, Some(planned)) => left_behind(work, &planned.name).await?,
        (None, None) => None,
    };
    let Some((name, node)) = found else {
        return match planned {
            // The pods of the node that is gone may run on, and were not evicted: the machine waits out the quarantine first.
            Some(planned) if config.is_some() && work.entry()?.step < Step::Shutdown => {
                let name = &planned.name;
                Err(Stop::Transient(format!(
                    "node {name} is gone, and not by us: the next turn decides again"
                )))
            }
            _ => Ok(None),
        };
    };
    if planned.is_some_and(|planned| planned.name == name && planned.uid != node.uid) {
        return Err(Stop::Transient(format!(
            "node {name} is not the one it was when this was planned"
        )));
    }
    Ok(Some(NodeRef {
        name,
        uid: node.uid,
    }))
}

/// The node of a VM that is gone, once it is not Ready any more: before that something runs behind it.
async fn left_behind(work: &Work, name: &Arc<str>) -> Result<Option<(Arc<str>, Node)>, Stop> {
    let kube = &work.tools.kube;
    loop {
        let node = work
            .patiently_kube("reading the node", || kube.node(name))
            .await?;
        match node {
            Some(node) if node.ready.status == ReadyStatus::True => {
                work.note(format!(
                    "VM {} is gone and its node is Ready",
                    work.mark.vmid
                ));
                sleep(PAUSE * 5).await;
            }
            node => return Ok(node.map(|node| (name.clone(), node))),
        }
    }
}

/// Whether the VM runs.
async fn runs(work: &Work) -> Result<bool, Stop> {
    let host = work.host()?;
    let status = work
        .patiently("reading the status", || {
            work.pve.vm_status(&host, work.mark.vmid)
        })
        .await?;
    Ok(status.running)
}

/// Without a drain there must be no pod that would be lost; `why` there is none.
async fn nothing_to_lose(work: &Work, node: &NodeRef, why: &str) -> Result<(), Stop> {
    let kube = &work.tools.kube;
    let ready = work
        .patiently_kube("reading the node", || kube.node(&node.name))
        .await?
        .is_some_and(|node| node.ready.status == ReadyStatus::True);
    if !ready || planted!(NothingToLose) {
        return Ok(());
    }
    let pods = drain::pods(work, &node.name).await?;
    match crate::controller::drain_order::obstacle(&pods, &[], work.tools.clock.now()) {
        Some((pod, _)) => Err(Stop::Transient(format!(
            "pod {pod} runs on the node, which is ready, and {why}: the next turn decides again"
        ))),
        None => Ok(()),
    }
}

/// Right before the VM loses its power: its node is still the one that was emptied, or there is none, and
/// nothing has come since that would be lost. A lock may have been waited for meanwhile, for hours.
async fn still_empty(
    work: &Work,
    config: &VmConfig,
    emptied: Option<&NodeRef>,
    wanted_back: &AtomicBool,
) -> Result<(), Stop> {
    if planted!(NoFreshLook) {
        return Ok(());
    }
    loop {
        let began = Instant::now();
        empty_now(work, config, emptied, wanted_back).await?;
        // A call that was slow, or was made twice, leaves the readings before it old.
        if began.elapsed() < FRESH {
            return Ok(());
        }
        work.note("the API server answers slowly: what it says of the node is read anew");
        sleep(PAUSE).await;
    }
}

/// Reads the machine's node. It must be the one that was emptied, and still closed to pods; no pod on it may be one
/// that would be lost with it.
async fn empty_now(
    work: &Work,
    config: &VmConfig,
    emptied: Option<&NodeRef>,
    wanted_back: &AtomicBool,
) -> Result<(), Stop> {
    match (node::own(work, config, false).await?, emptied) {
        (None, _) => Ok(()),
        (Some((_, node)), Some(emptied)) if node.uid == emptied.uid => {
            if drain::wanted_back(&node) && !planted!(NoCordon) {
                wanted_back.store(true, Ordering::Relaxed);
                return Err(drain::uncordoned(emptied));
            }
            nothing_to_lose(work, emptied, "it was emptied before").await
        }
        (Some((name, _)), _) => Err(Stop::Transient(format!(
            "node {name} has come since the removal began: the next turn decides again"
        ))),
    }
}

/// Somebody wants the node back: it is in service again, until it is decided anew.
async fn taken_back(work: &Work, node: &NodeRef) -> Result<(), Failure> {
    release(work, node).await;
    let now = work.tools.clock.now();
    let back = work.record(|entry| {
        entry.step = Step::Done;
        entry.since = now;
    });
    back.map_err(|stop| work.failure(Step::Shutdown, stop))
}

/// Whether the journal shows that the machine never came as far as to register a node: nothing was
/// ever given to it that could be lost, and its guest may not even listen to a shutdown.
fn never_a_node(work: &Work) -> bool {
    let reached = work.entry().ok().and_then(|entry| entry.reached);
    reached.is_some_and(|reached| reached < Step::Register)
}

/// Shuts the guest down, and stops the VM if it does not go; without patience it is stopped at once.
/// `emptied`: its node, which was.
async fn stopped(
    work: &Work,
    emptied: Option<&NodeRef>,
    patience: Span,
    wanted_back: &AtomicBool,
) -> Result<(), Stop> {
    let mut asked = patience == Span::ZERO;
    // PVE refuses `overrule-shutdown` for a VM that the HA manager manages.
    let mut overrule = true;
    loop {
        let Some(config) = present(work).await? else {
            return Ok(());
        };
        if !runs(work).await? {
            return Ok(());
        }
        // A backup, mostly: PVE refuses both ways down until it has ended.
        if let Some(lock) = &config.lock {
            work.note(format!("the VM is locked ({lock})"));
            sleep(PAUSE * 5).await;
            continue;
        }
        still_empty(work, &config, emptied, wanted_back).await?;
        work.enter(Step::Shutdown)?;
        match ask_power_off(work, patience, asked, overrule).await? {
            Ok(upid) => {
                let within = if asked {
                    STOP_DEADLINE
                } else {
                    Span(patience.0 + 15_000)
                };
                match timeout(within.to_std(), followed(work, &upid)).await {
                    Ok(ended) => {
                        if let Some(failure) = ended? {
                            work.note(failure.to_string());
                            sleep(PAUSE).await;
                        }
                    }
                    Err(_) => work.note("the guest does not shut down"),
                }
                asked = true;
            }
            Err(error)
                if matches!(error.cause(), FailureCause::NotRunning | FailureCause::Gone) => {}
            Err(error) if is_transient(&error) => {
                work.note_outage(error.to_string());
                work.wait_before_retry(&error, PAUSE).await?;
            }
            Err(error) if overrule && error.errors.contains_key("overrule-shutdown") => {
                overrule = false;
            }
            // A guest that cannot be asked (paused, for instance) is stopped.
            Err(error) if !asked && error.outcome == CallEffect::Refused => {
                work.note(error.to_string());
                asked = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Asks PVE for a shutdown, or with `stop` to take the power away at once. The journal has it before: without an answer it
/// may still be carried out for a while, and a guest that was asked may obey long after PVE has given up waiting.
async fn ask_power_off(
    work: &Work,
    patience: Span,
    stop: bool,
    overrule: bool,
) -> Result<Result<Upid, CallError>, Stop> {
    let host = work.host()?;
    let vmid = work.mark.vmid;
    let earlier = work.entry()?.power_off_sent;
    let now = work.tools.clock.now();
    work.record(|entry| entry.power_off_sent = Some(now))?;
    let answer = if stop {
        work.pve.stop(&host, vmid, overrule).await
    } else {
        work.pve.shutdown(&host, vmid, patience.to_std()).await
    };
    if matches!(&answer, Err(error) if error.outcome != CallEffect::Unknown) {
        work.record(|entry| entry.power_off_sent = earlier)?;
    }
    Ok(answer)
}

/// Follows a task that takes the power away. The HA manager's only asks for it: there the VM is looked
/// at until it is off.
async fn followed(work: &Work, upid: &Upid) -> Result<Option<TaskFailure>, Stop> {
    let ended = work.follow(upid).await?;
    if ended.is_none() && upid.kind().starts_with("ha") {
        work.note("the HA manager was asked to stop the VM");
        while runs(work).await? {
            sleep(PAUSE * 2).await;
        }
    }
    Ok(ended)
}

async fn node_deleted(work: &Work, node: &NodeRef) -> Result<(), Stop> {
    let kube = &work.tools.kube;
    // Gone is as good: another of the same name is not ours.
    work.patiently_kube("deleting the Node", || kube.delete_node(node))
        .await
        .map(drop)
}

/// Verifies the mark once more, destroys the VM, and sees that it is gone.
async fn destroyed(work: &Work) -> Result<(), Stop> {
    loop {
        let Some(config) = present(work).await? else {
            return Ok(());
        };
        // What a clone left that was cut short after the mark: the broker destroys it past its lock,
        // once it had its quarantine.
        let dead_clone = config.lock.as_deref() == Some("clone") && !clone::running(work).await?;
        if let Some(lock) = config.lock.as_ref().filter(|_| !dead_clone) {
            work.note(format!("the VM is locked ({lock})"));
            sleep(PAUSE * 5).await;
            continue;
        }
        work.enter(Step::Destroy)?;
        let host: Arc<str> = work.host()?;
        match work.pve.destroy(&host, work.mark.vmid).await {
            Ok(upid) => {
                if let Some(text) = work.follow(&upid).await? {
                    let cause = text.cause();
                    if cause == FailureCause::Protected {
                        unprotected(work, &config).await?;
                        continue;
                    }
                    if dead_clone && matches!(cause, FailureCause::Locked(_)) {
                        return Err(Stop::Failed(format!(
                            "the remains of a clone that was cut short cannot be destroyed: {text}; remove them by hand: qm unlock {0} && qm destroy {0}",
                            work.mark.vmid
                        )));
                    }
                    if !(cause.passes()
                        || matches!(cause, FailureCause::Gone | FailureCause::StillRunning))
                    {
                        return Err(Stop::Failed(format!("destroying the VM failed: {text}")));
                    }
                    work.note(text.to_string());
                    sleep(PAUSE).await;
                } else if dead_clone {
                    work.disk_left();
                }
            }
            Err(error)
                if is_transient(&error)
                    || matches!(error.cause(), FailureCause::Gone)
                    || error.status == Some(403) =>
            {
                work.note(error.to_string());
                // A quarantine is minutes, and each refusal a line in the broker's journal.
                let pause = if dead_clone { PAUSE * 15 } else { PAUSE };
                work.wait_before_retry(&error, pause).await?;
            }
            Err(error) if error.cause() == FailureCause::StillRunning => {
                stopped(work, None, Span::ZERO, &AtomicBool::new(false)).await?;
            }
            Err(error) if error.cause() == FailureCause::Protected => {
                unprotected(work, &config).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A person may protect a VM in PVE to keep it; ours are made without protection.
fn kept(work: &Work, config: &VmConfig) -> Result<(), Stop> {
    let protected = config.raw.get("protection").is_some_and(|set| set == "1");
    if protected && work.entry()?.configured {
        return Err(Stop::Failed(format!(
            "VM {0} is protected in PVE, and not by us: somebody wants to keep it; `qm set {0} --protection 0` lets it go",
            work.mark.vmid
        )));
    }
    Ok(())
}

/// Takes off the protection that a clone has from its template until its first configuration write,
/// which may have failed.
async fn unprotected(work: &Work, config: &VmConfig) -> Result<(), Stop> {
    kept(work, config)?;
    let host = work.host()?;
    let update = ConfigUpdate {
        set: BTreeMap::from([("protection".to_owned(), "0".to_owned())]),
        delete: Vec::new(),
        digest: config.digest.clone(),
    };
    match work.pve.update_config(&host, work.mark.vmid, &update).await {
        Ok(()) => Ok(()),
        Err(error) if is_transient(&error) || error.cause() == FailureCause::Changed => {
            work.note(error.to_string());
            work.wait_before_retry(&error, PAUSE).await
        }
        Err(error) => Err(Stop::of_call("taking off the protection", &error)),
    }
}
