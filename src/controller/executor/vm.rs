//! From a fresh clone to a running VM: first configuration write, disk size, start.

use std::time::Duration;

use tokio::time::sleep;

use crate::controller::drift;
use crate::controller::vm_config::{self, OwnKeys};
use crate::model::drift::Drift;
use crate::model::policy::InstanceType;
use crate::pve::transport::CallEffect;
use crate::pve::{ConfigUpdate, FailureCause, VmConfig};

use super::reserved;
use super::work::{Stop, VmState, Work, is_transient};

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

/// The keys that are the machine's own: what the configuration gives it now.
fn own_keys(work: &Work, instance_type: &InstanceType) -> Result<OwnKeys, Stop> {
    let settings = &work.tools.settings;
    let own = OwnKeys::of(settings, &work.mark).map_err(Stop::Transient)?;
    let target = work.entry()?.target;
    let at = (&*target.region, &*target.host);
    own.with_cpus(settings, &work.mark, at, instance_type)
        .map_err(Stop::Transient)
}

/// Undoes what the template passed on and sets the size.
pub(super) async fn configured(work: &Work) -> Result<(), Stop> {
    let settings = &work.tools.settings;
    let instance_type = work.instance_type()?;
    let template = settings.templates.get(work.mark.template.as_str());
    let template = template.cloned().unwrap_or_default();
    let pool = settings.pools.get(work.mark.pool.as_str());
    let pool = pool.cloned().unwrap_or_default();
    let own = own_keys(work, &instance_type)?;
    let mut writes = 0;
    loop {
        let mut config = unlocked(work).await?;
        let configured = work.entry()?.configured;
        if configured || writes > 0 {
            // Of a VM that runs a write may wait for its next start.
            let host = work.host()?;
            config = work
                .patiently("reading the configuration", || {
                    work.pve.next_config(&host, work.mark.vmid)
                })
                .await?;
        }
        if configured {
            // A person's, not the template's.
            config.raw.remove("protection");
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
        if !configured {
            reserved::unique(work).await?;
        }
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
        // After a reload the VM has other settings than it was planned with; what it was cloned from stays.
        if let Some(source) = entry.made_of.remove(&Drift::Template) {
            entry.made_of = drift::made_of(&work.tools.settings, &work.mark);
            entry.made_of.insert(Drift::Template, source);
        }
    })
}

/// Grows the boot disk to the instance type's size.
pub(super) async fn resized(work: &Work) -> Result<(), Stop> {
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
            Ok(Some(upid)) => task_done(work, &upid, "the resize").await?,
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
            Ok(upid) => task_done(work, &upid, "the start").await?,
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

/// Follows a task; failures that waiting mends are noted and tried again by the caller's loop.
async fn task_done(work: &Work, upid: &crate::pve::Upid, what: &str) -> Result<(), Stop> {
    match work.follow(upid).await? {
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
