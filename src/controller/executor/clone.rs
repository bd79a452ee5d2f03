//! The clone: from an intent in the journal to a VM that carries our mark.
//!
//! PVE writes name and description only after the first disk is copied. Until then the VM is a
//! locked placeholder, ours only because the journal intends it. `nextid` reserves nothing, so the
//! VMID may be taken by somebody in between; the attempt then ends and the brain plans another.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use crate::controller::disk_storages::chosen_of;
use crate::controller::drift;
use crate::controller::journal::{JournalEntry, UNKNOWN_TEMPLATE};
use crate::model::action::CLONE_LOCK;
use crate::model::region::{Failure, Step};
use crate::model::words;
use crate::pve::transport::{CallEffect, CallError};
use crate::pve::{CloneVm, FailureCause, Task, TaskState, Upid};

use super::on_wire;
use super::stop::GONE;
use super::up::PlanOrigin;
use super::work::{Stop, TaskFailure, VmState, Work, is_transient};

/// Between two looks at a clone under way.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// After a reply was lost: PVE forks the task within this time if it got the call.
const SETTLE: Duration = Duration::from_secs(3);

/// Ensures that the VM exists and carries our mark, its clone lock gone.
pub(super) async fn ensure(work: &Work, plan: PlanOrigin) -> Result<(), Failure> {
    let entry = work
        .entry()
        .map_err(|stop| work.failure(Step::Intent, stop))?;
    let limit = work.tools.settings.deadlines.clone;
    // The wire may be slow, and who waits for its answer keeps nobody from the storage.
    let asked = match plan {
        PlanOrigin::Fresh => {
            let asked = on_wire::nobody_answers(work).await;
            asked.map_err(|stop| work.failure(Step::Intent, stop))?;
            true
        }
        PlanOrigin::Earlier if on_wire::is_due(work, &entry) => {
            work.attempt(Step::Intent, limit, asked_on_wire(work))
                .await?
        }
        PlanOrigin::Earlier => false,
    };
    // Waiting for a turn at the storage is nobody's delay but ours: it does not eat the clone's time.
    let mut turn = if entry.upid.is_none() && entry.step <= Step::Clone {
        work.progress("its turn to clone: others clone to the same storage");
        // Until then it asks nothing of anybody.
        let _aside = work.pause_polling();
        let tools = &work.tools;
        tools.clones.acquire(&tools.settings, &entry).await
    } else {
        None
    };
    let made = cloned(work, (plan, asked), &mut turn);
    work.step(Step::Clone, limit, made).await
}

/// Asks for the addresses of a machine that was planned before, once it is seen that nothing of it is there and nothing may come. Whether
/// it came to that: what is there is for whoever makes the VM.
async fn asked_on_wire(work: &Work) -> Result<bool, Stop> {
    while matches!(work.look().await?, VmState::Absent) {
        if running_clone(work).await? {
            work.progress("a running clone task may be ours");
            sleep(LOOK_AGAIN).await;
            continue;
        }
        // Of one that nobody wants any more the next step tells.
        if still_wanted(work).is_ok() {
            on_wire::nobody_answers(work).await?;
        }
        return Ok(true);
    }
    Ok(false)
}

/// A turn at the storage that the clone goes to. The next one may begin when the task has ended, before its VM is looked at.
type StoragePermit = Option<OwnedSemaphorePermit>;

/// `plan`: whose plan it is, and whether its addresses were asked for on the wire.
async fn cloned(
    work: &Work,
    plan: (PlanOrigin, bool),
    turn: &mut StoragePermit,
) -> Result<(), Stop> {
    let mut seen_locked = false;
    loop {
        let look = work.look().await?;
        let locked = match &look {
            VmState::Ours(config) => config.lock.as_deref() == Some(CLONE_LOCK),
            VmState::Placeholder => true,
            VmState::Absent | VmState::Going | VmState::Foreign(_) | VmState::Changed(_) => false,
        };
        match look {
            VmState::Ours(_) | VmState::Placeholder if locked => {
                // PVE takes the lock off before the task ends; give a slow view a moment.
                if std::mem::replace(&mut seen_locked, true) {
                    sleep(LOOK_AGAIN).await;
                }
                under_way(work, turn).await?;
            }
            VmState::Ours(_) | VmState::Placeholder => return settled(work, turn).await,
            VmState::Going => return Err(Stop::Transient(work.going())),
            VmState::Changed(how) => return Err(Stop::Failed(how)),
            VmState::Foreign(how) => {
                return Err(Stop::Transient(format!(
                    "the VMID was taken by somebody else: {how}"
                )));
            }
            VmState::Absent => absent(work, plan, turn).await?,
        }
    }
}

/// The VM is ours and unlocked. PVE takes the lock off on the template's host and then moves the
/// configuration to the clone's: the task that is known to us is followed to its end first.
async fn settled(work: &Work, turn: &mut StoragePermit) -> Result<(), Stop> {
    if let Some(upid) = recorded_task(work.entry()?.upid.as_deref())
        && let Some(failure) = followed(work, &upid, turn).await?
    {
        return Err(failed(&failure));
    }
    work.record(|entry| entry.upid = None)
}

/// Follows the clone's task to its end, and then gives the turn away.
async fn followed(
    work: &Work,
    upid: &Upid,
    turn: &mut StoragePermit,
) -> Result<Option<TaskFailure>, Stop> {
    let ended = work.follow(upid).await?;
    drop(turn.take());
    Ok(ended)
}

/// The VM is there and locked: wait for its task, or find it dead.
async fn under_way(work: &Work, turn: &mut StoragePermit) -> Result<(), Stop> {
    let entry = work.entry()?;
    match recorded_task(entry.upid.as_deref()) {
        Some(upid) => match followed(work, &upid, turn).await? {
            None => Ok(()),
            Some(failure) => Err(failed(&failure)),
        },
        None if running_clone(work).await? => {
            work.progress("the clone task runs");
            Ok(())
        }
        // It may have ended between the two looks.
        None => match work.look().await? {
            VmState::Placeholder => Err(Stop::Transient(
                "the clone died and left a locked VM; it is removed after its quarantine"
                    .to_owned(),
            )),
            _ => Ok(()),
        },
    }
}

/// There is no VM: follow the task that will make it, or ask for one.
async fn absent(
    work: &Work,
    (plan, on_wire_asked): (PlanOrigin, bool),
    turn: &mut StoragePermit,
) -> Result<(), Stop> {
    let entry = work.entry()?;
    if let Some(upid) = recorded_task(entry.upid.as_deref()) {
        let ended = followed(work, &upid, turn).await?;
        work.record(|stored| stored.upid = None)?;
        return match ended {
            Some(failure) => Err(failed(&failure)),
            None => match work.look().await? {
                VmState::Absent => Err(Stop::Failed(
                    "the clone task succeeded but its VM is gone".to_owned(),
                )),
                _ => Ok(()),
            },
        };
    }
    // It was there, and now it is gone: what is known of it, and perhaps its node, must not become another VM's.
    if entry.was_ours() {
        return Err(Stop::Transient(GONE.to_owned()));
    }
    // Whoever has just been decided and asked for nothing yet has no clone.
    let asked = plan == PlanOrigin::Earlier || entry.unanswered_clone.is_some();
    if asked && running_clone(work).await? {
        work.progress("a running clone task may be ours");
        sleep(LOOK_AGAIN).await;
        return Ok(());
    }
    if plan == PlanOrigin::Earlier {
        still_wanted(work)?;
        if !on_wire_asked && on_wire::is_due(work, &entry) {
            // Nobody is asked while others wait for the storage: whoever goes on with it begins with that.
            return Err(Stop::Transient(
                "what was at its VMID is gone, and nobody was asked whether somebody has its address on the wire: that comes first"
                    .to_owned(),
            ));
        }
    }
    ask(work).await
}

/// A machine that was planned before, and for which nothing has begun, is made as long as a plan may be old: who waited
/// for it may be gone, if the daemon was away for hours or its journal is from a backup. It is not made either where the file has
/// another template, storage or network for it by now, with which nobody planned.
fn still_wanted(work: &Work) -> Result<(), Stop> {
    let file = drift::made_of(&work.tools.settings, &work.mark);
    let planned_with = work.entry()?.made_of;
    let other = planned_with.iter();
    let other = other.filter(|(part, hash)| file.get(*part) != Some(*hash));
    let other: Vec<String> = other.map(|(part, _)| part.to_string()).collect();
    if !other.is_empty() {
        return Err(Stop::Transient(format!(
            "the file was changed ({}) since it was planned, and its clone did not begin; the next turn plans by the file of now",
            words::names(&other)
        )));
    }
    let (planned, now) = (work.mark.created, work.tools.clock.now());
    let age = now.since(planned);
    if planned <= now && age <= work.tools.settings.policy.scale_up.max_view_age {
        return Ok(());
    }
    let when = if planned <= now {
        format!("{age} ago")
    } else {
        format!("at {planned}, before the clock was set back,")
    };
    Err(Stop::Transient(format!(
        "it was planned {when} and its clone did not begin; the next turn decides whether it is still needed"
    )))
}

/// The call that makes the VM.
enum Making {
    /// `POST …/clone`: a clone of a template.
    Clone(CloneVm),
    /// `POST …/qemu`: a VM that is made of settings, with that call's parameters.
    New(Vec<(String, String)>),
}

impl Making {
    fn of(work: &Work, notes: &str) -> Result<Making, Stop> {
        let entry = work.entry()?;
        let templates = &work.tools.settings.templates;
        let template = templates.get(work.mark.template.as_str()).cloned();
        let template = template.ok_or_else(|| {
            Stop::Transient(format!(
                "[template.{}] is not in the configuration any more",
                work.mark.template
            ))
        })?;
        let description = work.mark.describe(notes);
        if !entry.spec.is_new() {
            return Ok(Making::Clone(CloneVm {
                newid: work.mark.vmid,
                name: work.machine.to_string(),
                description,
                full: template.full_clone.then(|| {
                    let names = template.storage.as_ref()?;
                    Some(chosen_of(names, entry.spec.storages.own.as_deref()).to_owned())
                }),
                target: (entry.target.host != entry.spec.template_host)
                    .then(|| entry.target.host.to_string()),
                pool: template.resource_pool,
            }));
        }
        let Some(new) = template.new_vm else {
            return Err(Stop::Transient(format!(
                "[template.{}.create] is not in the configuration any more",
                work.mark.template
            )));
        };
        let disk = work.instance_type()?.disk;
        let chosen = entry.spec.storages.own.as_deref();
        let storage = chosen_of(&new.create.storage, chosen);
        let params = new.params(&work.mark, &description, (storage, disk));
        Ok(Making::New(params))
    }

    async fn call(self, work: &Work, entry: &JournalEntry) -> Result<Upid, CallError> {
        match self {
            Making::Clone(clone) => {
                let (host, source) = (&entry.spec.template_host, entry.spec.template_vmid);
                work.pve.clone_vm(host, source, &clone).await
            }
            Making::New(params) => work.pve.create_vm(&entry.target.host, params).await,
        }
    }
}

async fn ask(work: &Work) -> Result<(), Stop> {
    let before = work.entry()?.unanswered_clone;
    let now = work.tools.clock.now();
    let settings = &work.tools.settings;
    let human = settings
        .pools
        .get(work.mark.pool.as_str())
        .map_or("", |pool| &*pool.description);
    let making = Making::of(work, human)?;
    work.record(|entry| {
        entry.forget_vm();
        entry.unanswered_clone = Some(now);
        entry.written.text = Some(human.to_owned());
    })?;
    let answer = making.call(work, &work.entry()?).await;
    let lost = matches!(&answer, Err(error) if error.outcome == CallEffect::Unknown);
    work.record(|entry| {
        if !lost {
            entry.unanswered_clone = before;
        }
        entry.upid = answer.as_ref().ok().map(|upid| upid.as_str().to_owned());
    })?;
    match answer {
        Ok(_) => Ok(()),
        Err(error) => match (error.outcome, error.cause()) {
            (CallEffect::Unknown, _) if !planted!(LostReplyIsFailure) => {
                work.note_outage(format!("{error}; looking whether it began"));
                sleep(SETTLE).await;
                Ok(())
            }
            // Nothing was begun. Who needs a machine when there is quorum again is decided then.
            (_, FailureCause::NoQuorum) if !planted!(QuorumIgnored) => {
                Err(Stop::Transient(error.to_string()))
            }
            _ if is_transient(&error) && !planted!(LostReplyIsFailure) => {
                work.note_outage(error.to_string());
                sleep(SETTLE).await;
                Ok(())
            }
            (_, FailureCause::VmidTaken) => Err(Stop::Transient(format!(
                "VMID {} was taken in between: {error}",
                work.mark.vmid
            ))),
            _ => Err(error.into()),
        },
    }
}

/// What a failed clone task means.
fn failed(failure: &TaskFailure) -> Stop {
    match failure.cause() {
        FailureCause::VmidTaken | FailureCause::DiskExists => {
            Stop::of_task_as("the clone", failure, true)
        }
        _ => Stop::of_task("the clone", failure),
    }
}

fn recorded_task(upid: Option<&str>) -> Option<Upid> {
    upid.and_then(|text| text.parse().ok())
}

/// Whether the machine's clone runs: the task in the journal, or one whose reply was lost.
pub(super) async fn running(work: &Work) -> Result<bool, Stop> {
    if planted!(RunningCloneIgnored) {
        return Ok(false);
    }
    match recorded_task(work.entry()?.upid.as_deref()) {
        Some(upid) => {
            let state = work
                .patiently("reading a task", || work.pve.task_status(&upid))
                .await;
            // A task that nobody knows any more does not run.
            Ok(matches!(state, Ok(TaskState::Running)))
        }
        None => running_clone(work).await,
    }
}

/// Whether a clone of our template runs that no other machine's entry claims. A clone task names
/// its source, not its result, so such a task may be ours whose reply was lost. One that makes a VM of settings names that VM.
async fn running_clone(work: &Work) -> Result<bool, Stop> {
    if planted!(RunningCloneIgnored) {
        return Ok(false);
    }
    let claimed: Vec<String> = work
        .tools
        .journal
        .entries()
        .into_values()
        .filter_map(|e| e.upid)
        .collect();
    let kind = if work.entry()?.spec.is_new() {
        "qmcreate"
    } else {
        "qmclone"
    };
    for (host, named) in sources(work).await? {
        let tasks = work
            .patiently("listing tasks", || work.pve.active_tasks(&host, named))
            .await?;
        let source = named.to_string();
        let runs = |task: &Task| {
            task.upid.kind() == kind
                && task.upid.id() == source
                && !claimed.iter().any(|upid| upid == task.upid.as_str())
        };
        if tasks.iter().any(runs) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The VMs that the task which makes the machine may name, with their hosts. A clone's task names the template; where that is not known
/// (the machine is known by its mark alone) it may be any. A VM that is made of settings is named itself.
async fn sources(work: &Work) -> Result<Vec<(Arc<str>, u32)>, Stop> {
    let JournalEntry { spec, target, .. } = work.entry()?;
    if spec.is_new() {
        return Ok(vec![(target.host, target.vmid)]);
    }
    if spec.template_vmid != UNKNOWN_TEMPLATE {
        return Ok(vec![(spec.template_host, spec.template_vmid)]);
    }
    let resources = work
        .patiently("reading the resources", || work.pve.resources())
        .await?;
    let online = |host: &str| resources.hosts.get(host).is_some_and(|host| host.online);
    let guests = resources.guests.iter();
    let templates = guests.filter(|(_, guest)| guest.template && online(&guest.host));
    Ok(templates
        .map(|(vmid, guest)| (guest.host.clone(), *vmid))
        .collect())
}
