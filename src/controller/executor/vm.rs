//! From a fresh clone to a running VM: first configuration write, disk size, start.

use std::time::Duration;

use tokio::time::sleep;

use crate::config::settings::{PoolSettings, TemplateSettings};
use crate::controller::disk_storages;
use crate::controller::drift;
use crate::controller::vm_config::{self, OwnKeys};
use crate::model::chosen_storages::ChosenStorages;
use crate::model::drift::Drift;
use crate::model::policy::InstanceType;
use crate::model::region::Step;
use crate::pve::transport::CallEffect;
use crate::pve::{ConfigUpdate, FailureCause, TaskState, Upid, VmConfig};

use super::reserved;
use super::work::{Stop, TaskFailure, VmState, Work, is_transient};

/// Between two looks at a lock that somebody else holds.
const LOCK_PAUSE: Duration = Duration::from_secs(5);
/// After a call that PVE could not do just now.
const PAUSE: Duration = Duration::from_secs(1);
/// Successful writes after which a configuration that still differs will always differ.
const MAX_WRITES: u32 = 3;

/// The machine's configuration, unlocked. A backup's lock is waited for.
pub(super) async fn unlocked(work: &Work) -> Result<VmConfig, Stop> {
    if let Some(config) = work.just_seen().filter(|config| config.lock.is_none()) {
        return Ok(config);
    }
    loop {
        let config = ours(work).await?;
        match &config.lock {
            None => return Ok(config),
            Some(lock) => {
                work.note(format!("the VM is locked ({lock})"));
                sleep(LOCK_PAUSE).await;
            }
        }
    }
}

/// The machine's configuration, or a stop when the VM is not ours any more.
pub(super) async fn ours(work: &Work) -> Result<VmConfig, Stop> {
    match work.look().await? {
        VmState::Ours(config) => Ok(*config),
        VmState::Absent => Err(Stop::Failed(format!("VM {} is gone", work.mark.vmid))),
        VmState::Placeholder => Err(Stop::Failed(format!("VM {} lost its mark", work.mark.vmid))),
        VmState::Going => Err(Stop::Failed(work.going())),
        VmState::Foreign(how) | VmState::Changed(how) => Err(Stop::Failed(how)),
    }
}

/// What the file says of the machine's VM beside its size: the tables of its template and pool, and the keys that are its own.
fn written_down(
    work: &Work,
    instance_type: &InstanceType,
) -> Result<(TemplateSettings, PoolSettings, OwnKeys), Stop> {
    let (settings, mark) = (&work.tools.settings, &work.mark);
    let gone = |table: &str, name: &str| forbidden(&format!("it has no [{table}.{name}]"));
    let template = settings.templates.get(mark.template.as_str()).cloned();
    let template = template.ok_or_else(|| gone("template", &mark.template))?;
    let pool = settings.pools.get(mark.pool.as_str()).cloned();
    let pool = pool.ok_or_else(|| gone("pool", &mark.pool))?;
    let entry = work.entry()?;
    let at = (&*entry.target.region, &*entry.target.host);
    let own = OwnKeys::of(settings, mark)
        .and_then(|own| own.with_cpus(settings, mark, at, instance_type))
        .map_err(|why| forbidden(&why))?;
    let own = OwnKeys {
        storages: entry.spec.storages,
        ..own
    };
    Ok((template, pool, own))
}

/// The storages of further disks that the machine does not have yet, where the file lists several and nobody knows which were planned: of a
/// machine that is known by its mark alone.
async fn further_storages(
    work: &Work,
    template: &TemplateSettings,
    config: &VmConfig,
) -> Result<ChosenStorages, Stop> {
    let mut further = template.hardware.disks.iter();
    let open = further.any(|(slot, disk)| disk.storage.is_list() && !config.raw.contains_key(slot));
    if !open {
        return Ok(ChosenStorages::default());
    }
    let host = work.host()?;
    let resources = work
        .patiently("reading the resources", || work.pve.resources())
        .await?;
    Ok(disk_storages::choose_all(template, &host, &resources))
}

/// The end of a machine that the file allowed when it was planned, and does not allow now, before it has what it was to get.
pub(super) fn forbidden(why: &str) -> Stop {
    Stop::Transient(format!(
        "the file was changed while the machine was being made, and allows it no more: {why}; the machine goes, and where one is still needed another is made by the file of now"
    ))
}

/// Undoes what the template passed on and sets the size. A VM that was configured keeps what it has: the file may have changed since.
pub(super) async fn configured(work: &Work) -> Result<(), Stop> {
    if work.entry()?.configured {
        return Ok(());
    }
    let instance_type = work.instance_type()?;
    let (template, pool, mut own) = written_down(work, &instance_type)?;
    let mut writes = 0;
    loop {
        let mut config = unlocked(work).await?;
        if writes > 0 {
            // Of a VM that runs a write may wait for its next start.
            let host = work.host()?;
            config = work
                .patiently("reading the configuration", || {
                    work.pve.next_config(&host, work.mark.vmid)
                })
                .await?;
        }
        if own.storages.is_empty() {
            own.storages = further_storages(work, &template, &config).await?;
        }
        let write = vm_config::write(
            &config.raw,
            &work.machine,
            &instance_type,
            (&template, &own),
            &pool,
        );
        if write.is_empty() {
            return settled(work, vm_config::tags(&pool));
        }
        let keys: Vec<&String> = write.set.keys().chain(&write.delete).collect();
        let keys = format!("{keys:?}");
        if writes == MAX_WRITES {
            return Err(Stop::Failed(format!(
                "PVE does not keep what is written to {keys}"
            )));
        }
        reserved::unique(work).await?;
        let host = work.host()?;
        let update = ConfigUpdate {
            set: write.set,
            delete: write.delete,
            digest: config.digest.clone(),
        };
        work.changing();
        match work.pve.update_config(&host, work.mark.vmid, &update).await {
            Ok(()) => writes += 1,
            // Gone: the end of a clone moves the configuration to its target host.
            Err(error)
                if is_transient(&error)
                    || matches!(error.cause(), FailureCause::Changed | FailureCause::Gone) =>
            {
                work.note_outage(error.to_string());
                work.wait_before_retry(&error, PAUSE).await?;
            }
            Err(error) => return Err(Stop::of_call(&format!("writing {keys}"), &error)),
        }
    }
}

/// Writes down that the VM has what it was to get, and what it is made of by that.
fn settled(work: &Work, tags: Vec<String>) -> Result<(), Stop> {
    work.record(|entry| {
        entry.configured = true;
        entry.written.tags = tags;
        if entry.made_of.is_empty() {
            return;
        }
        // After a reload the VM has other settings than it was planned with; what it was cloned from stays, and how it joins.
        let now = drift::made_of(&work.tools.settings, &work.mark);
        let planned = std::mem::replace(&mut entry.made_of, now);
        let joins = entry.joins.is_some();
        let stays = |part: &Drift| match part {
            Drift::Template => true,
            Drift::Kubelet | Drift::Join | Drift::Endpoint => joins,
            _ => false,
        };
        let stays = planned.into_iter().filter(|(part, _)| stays(part));
        entry.made_of.extend(stays);
    })
}

/// Grows the boot disk to the instance type's size.
pub(super) async fn resized(work: &Work) -> Result<(), Stop> {
    // Of one that went on the disk has its size, and another `boot_disk` of the file is for other machines.
    let entry = work.entry()?;
    if entry.configured && entry.step > Step::Resize {
        return Ok(());
    }
    let wanted = work.instance_type()?.disk;
    if wanted == 0 {
        return Ok(());
    }
    let named = work
        .tools
        .settings
        .templates
        .get(work.mark.template.as_str())
        .and_then(|t| t.boot_disk.clone());
    loop {
        let config = unlocked(work).await?;
        let disk = match named.as_deref() {
            Some(key) => config.disks.get_key_value(key),
            None => config.boot_disk(),
        };
        let Some((key, disk)) = disk else {
            let keys: Vec<&str> = config.disks.keys().map(|key| &**key).collect();
            return Err(Stop::Failed(format!(
                "the VM has no disk {} to grow (it has {}); set boot_disk in the template's settings",
                named.as_deref().unwrap_or("in its boot order"),
                keys.join(", ")
            )));
        };
        if disk.size.unwrap_or(0) >= wanted {
            return Ok(());
        }
        let host = work.host()?;
        work.changing();
        match work.pve.resize(&host, work.mark.vmid, key, wanted).await {
            Ok(Some(upid)) => task_done(work.follow(&upid).await?, "the resize", work).await?,
            Ok(None) => {}
            Err(error) if is_transient(&error) || error.cause() == FailureCause::Gone => {
                work.note_outage(error.to_string());
                work.wait_before_retry(&error, PAUSE).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Starts a VM that was off, unless the HA manager decides that.
pub(super) async fn switched_on(work: &Work) -> Result<(), Stop> {
    ours(work).await?;
    let host = work.host()?;
    let status = work
        .patiently("reading the status", || {
            work.pve.vm_status(&host, work.mark.vmid)
        })
        .await?;
    if status.ha_managed {
        return Err(Stop::Transient(format!(
            "VM {} belongs to the HA manager, which decides whether it runs",
            work.mark.vmid
        )));
    }
    started(work).await
}

/// Starts the VM.
pub(super) async fn started(work: &Work) -> Result<(), Stop> {
    if let Some(upid) = start_under_way(work).await {
        followed_start(work, &upid).await?;
    }
    loop {
        unlocked(work).await?;
        let host = work.host()?;
        let status = work
            .patiently("reading the status", || {
                work.pve.vm_status(&host, work.mark.vmid)
            })
            .await?;
        if status.running {
            return Ok(());
        }
        work.changing();
        match work.pve.start(&host, work.mark.vmid).await {
            Ok(upid) => followed_start(work, &upid).await?,
            Err(error)
                if is_transient(&error)
                    || error.outcome == CallEffect::Unknown
                    || error.cause() == FailureCause::Gone =>
            {
                work.note_outage(error.to_string());
                work.wait_before_retry(&error, PAUSE).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The task of a start that was asked for before the daemon was started anew, and that still runs.
async fn start_under_way(work: &Work) -> Option<Upid> {
    let upid = work.entry().ok()?.start?.parse().ok()?;
    let status = work.pve.task_status(&upid).await.ok()?;
    matches!(status, TaskState::Running).then_some(upid)
}

/// Follows a start, and remembers its task. Of one that finds the VM running, or its lock held, nothing is to be learned: how the VM came to
/// run tells the start before it.
async fn followed_start(work: &Work, upid: &Upid) -> Result<(), Stop> {
    let before = work.entry()?.start;
    work.record(|entry| entry.start = Some(upid.as_str().to_owned()))?;
    let failure = work.follow(upid).await?;
    let cause = failure.as_ref().map(TaskFailure::cause);
    if let Some(FailureCause::AlreadyRunning | FailureCause::LockTimeout) = cause {
        work.record(|entry| entry.start = before)?;
    }
    task_done(failure, "the start", work).await
}

/// The end of a task; failures that waiting mends are noted and tried again by the caller's loop.
async fn task_done(failure: Option<TaskFailure>, what: &str, work: &Work) -> Result<(), Stop> {
    match failure {
        None => Ok(()),
        Some(text) => {
            let cause = text.cause();
            if cause.passes() || cause == FailureCause::AlreadyRunning {
                work.note_outage(format!("{what}: {text}"));
                sleep(PAUSE).await;
                Ok(())
            } else {
                Err(Stop::of_task(what, &text))
            }
        }
    }
}
