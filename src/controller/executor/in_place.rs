//! Bringing the VM of a machine that works in line with the file.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;

use crate::controller::in_place::{
    self, ANNOTATIONS, Beside, GROUPS, POOL, SettingChange, Written,
};
use crate::controller::journal::JournalEntry;
use crate::controller::vm_config;
use crate::model::in_place::FailedWrite;
use crate::model::mark::{self, Ownership};
use crate::model::region::{Failure, Step};
use crate::model::words;
use crate::pve::transport::{CallEffect, CallError};
use crate::pve::{ConfigUpdate, FailureCause, VmConfig};

use super::firewall;
use super::node;
use super::tools::Tools;
use super::up;
use super::vm;
use super::work::{Stop, Work, is_transient};

/// After a call that PVE could not do just now.
const PAUSE: Duration = Duration::from_secs(1);
/// Writes to one VM in one update at most. There are fewer keys than that: an update that needs more works against somebody
/// who writes the same keys.
const MOST_WRITES: u32 = 12;

/// Writes what differs, each value once: what PVE then shows is what it makes of it.
pub(super) async fn update(tools: Tools, entry: &JournalEntry) -> Result<(), Failure> {
    let work = up::open(tools, entry, Step::Done)?;
    let limit = work.tools.settings.deadlines.configure;
    let mut meant = BTreeMap::new();
    let changed = Box::pin(changed(&work, &mut meant));
    let done = match timeout(limit.to_std(), changed).await {
        Ok(done) => done,
        Err(_) => Err(Stop::Transient(format!("not done within {limit}"))),
    };
    // What was read of the VM before is not what it has now.
    work.doubt();
    let failure = done.map_err(|stop| work.failure(Step::Done, stop));
    let failed = failure.as_ref().err().map(|failure| FailedWrite {
        why: failure.message.clone(),
        at: failure.at,
        for_good: false,
    });
    let meant = failed.as_ref().map(|_| meant).unwrap_or_default();
    work.record(|stored| {
        stored.written.failed = failed;
        stored.written.failed_for = meant;
    })
    .map_err(|stop| work.failure(Step::Done, stop))?;
    failure
}

/// `meant`: the values that are to be written, by key, as far as that is known yet.
async fn changed(work: &Work, meant: &mut BTreeMap<String, String>) -> Result<(), Stop> {
    let settings = &work.tools.settings;
    let mut asked: Vec<SettingChange> = Vec::new();
    // Values that PVE refuses without naming one: each is tried alone then, so that one keeps no other back.
    let (mut apart, mut refused) = (false, BTreeMap::new());
    let mut writes = 0;
    loop {
        let (now, config) = proven(work).await?;
        let beside = read_beside(work).await?;
        let before = work.entry()?.written;
        let mut changes = in_place::changes((&config, &beside), &work.mark, settings, &before);
        changes.extend(annotations(work, &before)?);
        ended(work, &std::mem::take(&mut asked), &changes)?;
        let written = work.entry()?.written;
        let open = changes.iter().filter(|one| written.given_up(one).is_none());
        let values = open.clone();
        let values = values.map(|one| (one.key.to_owned(), one.wanted.clone()));
        *meant = values.collect();
        let open = open.filter(|one| !refused.contains_key(one.key)).cloned();
        let open: Vec<SettingChange> = at_once(open.collect(), apart);
        if open.is_empty() {
            let in_force = in_place::changes((&now, &beside), &work.mark, settings, &written);
            pending(work, in_force, &changes)?;
            return summed_up(&refused);
        }
        if writes == MOST_WRITES {
            let keys = words::names(open.iter().map(|change| change.key));
            return Err(Stop::Transient(format!("somebody else writes {keys} too")));
        }
        let pool = settings.pools.get(work.mark.pool.as_str());
        let ours = pool.map(vm_config::tags).unwrap_or_default();
        work.record(|entry| entry.written.asks(&open, &ours))?;
        work.changing();
        match write(work, &open, &config).await? {
            Ok(()) => {
                writes += 1;
                asked = open;
            }
            Err(error)
                if is_transient(&error)
                    || matches!(error.cause(), FailureCause::Changed | FailureCause::Gone) =>
            {
                work.note_outage(error.to_string());
                work.wait_before_retry(&error, PAUSE).await?;
            }
            Err(error) => {
                let wrong = open.iter().filter(|one| is_wrong(&error, one, open.len()));
                let wrong: Vec<&SettingChange> = wrong.collect();
                for change in &wrong {
                    give_up(work, change, error.to_string())?;
                }
                if let ([one], []) = (&*open, &*wrong) {
                    refused.insert(one.key, error.to_string());
                }
                apart |= wrong.is_empty();
            }
        }
    }
}

/// The changes that go into one call to PVE: all keys of the VM's configuration together, or one alone while the value that PVE refused
/// is looked for; then resource pool, security groups and the node's annotations, one at a time, since each has a call of its own.
fn at_once(open: Vec<SettingChange>, apart: bool) -> Vec<SettingChange> {
    let (configured, mut beside): (Vec<SettingChange>, Vec<SettingChange>) = open
        .into_iter()
        .partition(|change| ![POOL, GROUPS, ANNOTATIONS].contains(&change.key));
    if configured.is_empty() {
        beside.truncate(1);
        return beside;
    }
    let most = if apart { 1 } else { usize::MAX };
    configured.into_iter().take(most).collect()
}

/// Writes what goes into one call; `config` is what it is compared with.
async fn write(
    work: &Work,
    open: &[SettingChange],
    config: &VmConfig,
) -> Result<Result<(), CallError>, Stop> {
    let (host, vmid) = (work.host()?, work.mark.vmid);
    if let [change] = open
        && change.key == POOL
    {
        return Ok(work.pve.move_to_pool(vmid, &change.wanted).await);
    }
    if let [change] = open
        && change.key == GROUPS
    {
        return firewall::write(work, &firewall::wanted(work).unwrap_or_default()).await;
    }
    if let [change] = open
        && change.key == ANNOTATIONS
    {
        return node::annotated_anew(work).await.map(Ok);
    }
    let set = open.iter();
    let set = set.map(|change| (change.key.to_owned(), change.value(&work.mark)));
    let update = ConfigUpdate {
        set: set.collect(),
        delete: Vec::new(),
        digest: config.digest.clone(),
    };
    Ok(work.pve.update_config(&host, vmid, &update).await)
}

/// What of its node's annotations is to change.
fn annotations(work: &Work, written: &Written) -> Result<Option<SettingChange>, Stop> {
    let target = work.entry()?.target;
    let at = (&*target.region, &target.host);
    let settings = &work.tools.settings;
    Ok(in_place::annotations::change(
        settings, &work.mark, at, written,
    ))
}

/// Reads the VM's resource pool and firewall rules, where the file says which they are to be.
async fn read_beside(work: &Work) -> Result<Beside, Stop> {
    let settings = &work.tools.settings;
    let template = settings.templates.get(work.mark.template.as_str());
    let mut beside = Beside::default();
    if template.is_some_and(|template| template.resource_pool.is_some()) {
        let region = work.entry()?.target.region;
        let resources = work
            .patiently("reading the resources", || work.pve.resources())
            .await?;
        let guest = resources.guests.get(&work.mark.vmid);
        if let Some(why) = guest.and_then(|guest| guest.odd.as_ref()) {
            let vmid = work.mark.vmid;
            return Err(Stop::Transient(format!(
                "PVE's row of VM {vmid} cannot be read: {why}"
            )));
        }
        beside.pool = guest.and_then(|guest| in_place::seen_pool(settings, &region, guest));
    }
    if firewall::wanted(work).is_some() {
        beside.rules = Some(firewall::rules(work).await?.into());
    }
    Ok(beside)
}

/// The failure of an update: by key why PVE refused its value.
fn summed_up(refused: &BTreeMap<&'static str, String>) -> Result<(), Stop> {
    if refused.is_empty() {
        return Ok(());
    }
    let each = refused.iter();
    let each: Vec<String> = each
        .map(|(key, why)| format!("writing {key}: {why}"))
        .collect();
    Err(Stop::Failed(each.join("; ")))
}

/// The configuration in force and the one that a write is compared with, of a VM that is proven to be ours, at rest
/// and not HA's.
async fn proven(work: &Work) -> Result<(VmConfig, VmConfig), Stop> {
    let now = vm::ours(work).await?;
    let (host, vmid) = (work.host()?, work.mark.vmid);
    let status = work
        .patiently("reading the status", || work.pve.vm_status(&host, vmid))
        .await?;
    if status.ha_managed {
        return Err(Stop::Transient(format!(
            "VM {vmid} belongs to the HA manager, and is left as it is"
        )));
    }
    let config = work
        .patiently("reading the configuration", || {
            work.pve.next_config(&host, vmid)
        })
        .await?;
    if let Some(lock) = &config.lock {
        return Err(Stop::Transient(format!("the VM is locked ({lock})")));
    }
    // The digest that goes with the write is of this reading: it must prove itself.
    match mark::read(&config.description) {
        Ownership::Marked(mark) if *mark == work.mark => Ok((now, config)),
        _ => Err(Stop::Failed(format!("VM {vmid} lost its mark"))),
    }
}

/// Whether PVE takes this value itself for wrong, or is too old for the call.
fn is_wrong(error: &CallError, change: &SettingChange, many: usize) -> bool {
    let names: &[&str] = match change.key {
        POOL => &["poolid", "pool"],
        GROUPS => &["action", "iface", "type"],
        key => &[key],
    };
    let named = error.errors.keys().any(|key| names.contains(&&**key));
    let alone = many == 1 && error.errors.is_empty();
    let wrong = error.status == Some(400) && (named || alone);
    error.outcome == CallEffect::Refused && (wrong || error.status == Some(501))
}

/// This value is not written again.
fn give_up(work: &Work, change: &SettingChange, why: String) -> Result<(), Stop> {
    tracing::warn!(machine = %work.machine, key = change.key, wanted = %change.wanted, %why,
        "it cannot be updated in place, and is not written again");
    let failed = FailedWrite {
        why: why.into(),
        at: work.tools.clock.now(),
        for_good: true,
    };
    work.record(|entry| entry.written.give_up(change, failed))
}

/// What is written and not in force needs no other write.
fn pending(work: &Work, in_force: Vec<SettingChange>, left: &[SettingChange]) -> Result<(), Stop> {
    let written = work.entry()?.written;
    for change in in_force {
        if written.given_up(&change).is_some() {
            continue;
        }
        let mut left = left.iter().filter(|other| other.key == change.key);
        match left.next() {
            None => {
                let why = "it is written, and waits for the VM's next start";
                give_up(work, &change, why.to_owned())?;
            }
            // What the VM has from its next start on is not what it has: neither is reason for another try.
            Some(other) => {
                if let Some(failed) = written.given_up(other).cloned() {
                    work.record(|entry| entry.written.give_up(&change, failed))?;
                }
            }
        }
    }
    Ok(())
}

/// Keeps what was written, and what PVE made another value of.
fn ended(work: &Work, asked: &[SettingChange], left: &[SettingChange]) -> Result<(), Stop> {
    let pool = work.tools.settings.pools.get(work.mark.pool.as_str());
    for change in asked {
        let mut left = left.iter();
        // A person may have written it since; what is wanted of that is another value.
        let still = left.find(|one| one.key == change.key && one.wanted == change.wanted);
        if let Some(still) = still {
            let why = format!("PVE made {:?} of it", still.is);
            give_up(work, still, why)?;
            continue;
        }
        tracing::info!(machine = %work.machine, key = change.key, was = %change.is, is = %change.wanted,
            "updated in place");
        work.record(|entry| {
            let written: &mut Written = &mut entry.written;
            written.done(change.key);
            match (change.key, pool) {
                ("tags", Some(pool)) => written.tags = vm_config::tags(pool),
                (in_place::DESCRIPTION, _) => {
                    written.text = Some(change.wanted.clone());
                    written.asked = None;
                }
                _ => {}
            }
        })?;
    }
    Ok(())
}
