//! Whose VM it is: judged on what PVE says right now, never on what the daemon says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::config::new_vm;
use crate::config::settings::{PoolAllow, has_tags};
use crate::model::action::CLONE_LOCK;
use crate::model::mark::{Mark, Ownership};
use crate::pve::perl::Fields;
use crate::pve::{FailureCause, LATE_CALL, TaskState, Upid, VmConfig};

use super::allow::against::own_cpu_keys;
use super::allow::{self, AdmittedCall, mark_of, our_cluster};
use super::intents::CloneIntent;
use super::policy::BrokerPolicy;

/// Longest DNS label.
const LABEL: usize = 63;
/// What a machine's name has after its pool's: `-xxxxx`.
const TAIL: usize = 6;
/// The clocks of two hosts may differ by this, in seconds.
pub(super) const CLOCKS: i64 = 60;
/// [`LATE_CALL`] in seconds.
const LATE_SECONDS: i64 = LATE_CALL.0 / 1000;
/// The mark of a VM that is ours, or why it is not.
pub(super) fn mark(policy: &BrokerPolicy, vmid: u32, config: &VmConfig) -> Result<Mark, String> {
    if config.template {
        return Err(format!("VM {vmid} is a template"));
    }
    let mark = match config.ownership() {
        Ownership::Marked(mark) => mark,
        Ownership::Unmarked => return Err(format!("VM {vmid} carries no mark")),
        Ownership::UnknownVersion(version) => {
            return Err(format!(
                "VM {vmid} carries a mark of the unknown version {version}"
            ));
        }
        Ownership::Damaged(why) => return Err(format!("VM {vmid}: {why}")),
    };
    if mark.vmid != vmid {
        return Err(format!(
            "VM {vmid} carries the mark of VM {}: it is a copy",
            mark.vmid
        ));
    }
    our_cluster(policy, &mark.cluster)?;
    Ok((*mark).clone())
}

/// The mark that a call wants to give to the VM that it makes.
pub(super) fn mark_of_clone(call: &AdmittedCall) -> Result<Mark, String> {
    let newid = call.param("newid").or_else(|| call.param("vmid"));
    let newid = newid.and_then(|text| text.parse().ok());
    let (Some(newid), Some(name), Some(description)) =
        (newid, call.param("name"), call.param("description"))
    else {
        return Err("a new VM needs a VMID, a name and a description".to_owned());
    };
    mark_of(description, newid, name)
}

/// VM `vmid` is a template that the policy names.
pub(super) fn template(policy: &BrokerPolicy, vmid: u32, config: &VmConfig) -> Result<(), String> {
    let allow = &policy.allow;
    let named = allow.template_vmids.contains(&vmid)
        || allow
            .template_names
            .iter()
            .any(|name| **name == *config.name)
        || allow
            .template_tags
            .iter()
            .any(|wanted| has_tags(&config.tags(), wanted));
    if !named {
        return Err(format!(
            "VM {vmid} is no template that the configuration names"
        ));
    }
    if !config.template {
        return Err(format!("VM {vmid} is not a template"));
    }
    Ok(())
}

/// `vmid` stands in the data of `/cluster/resources`, where existence is immediate.
pub(super) fn exists(resources: &Value, vmid: u32) -> bool {
    resources
        .as_array()
        .into_iter()
        .flatten()
        .any(|entry| Fields::of(entry).integer("vmid") == Some(i64::from(vmid)))
}

/// A clone's task as PVE lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CloneTask {
    pub(super) upid: Upid,
    pub(super) running: bool,
    /// It ended, and not well.
    pub(super) failed: bool,
}

/// The tasks in a list that make VMs as an intent's was to be made, running and ended. Those that make VMs of settings name the VM:
/// of these only its own count.
pub(super) fn making_tasks(data: &Value, intent: &CloneIntent) -> Vec<CloneTask> {
    let own = intent.vmid.to_string();
    let clones = intent.lock() == CLONE_LOCK;
    let entries = data.as_array().into_iter().flatten();
    entries
        .filter_map(|entry| {
            let fields = Fields::of(entry);
            let upid: Upid = fields.text("upid")?.parse().ok()?;
            let status = fields.text("status").unwrap_or_default();
            let ended = fields.get("endtime").is_some();
            let running = !ended && (status.is_empty() || status.eq_ignore_ascii_case("running"));
            let well = status == "OK" || status.starts_with("WARNINGS");
            let right = upid.kind() == intent.task_kind() && (clones || upid.id() == own);
            right.then_some(CloneTask {
                upid,
                running,
                failed: !running && !well,
            })
        })
        .collect()
}

/// A running clone task that may be `intent`'s: its own when no other can be, else any of its template,
/// whose VMID the task carries, or of any template when that is not known either; but none that the
/// record of another machine claims.
pub(super) fn clone_under_way<'a>(
    tasks: &'a [CloneTask],
    intent: &CloneIntent,
    claimed: &BTreeSet<Upid>,
) -> Option<&'a Upid> {
    let named = intent.task_id().map(|id| id.to_string());
    tasks
        .iter()
        .filter(|task| task.running && !claimed.contains(&task.upid))
        .map(|task| &task.upid)
        .find(|upid| match &intent.task {
            Some(known) if intent.unanswered.is_empty() => *upid == known,
            _ => named.as_deref().is_none_or(|named| upid.id() == named),
        })
}

/// A clone task of somebody else that may have made the placeholder at the VMID of `intent`: it began
/// after ours, and still runs or did not end well. A clone that ended well leaves no placeholder.
pub(super) fn others_clone<'a>(
    tasks: &'a [CloneTask],
    intent: &CloneIntent,
    claimed: &BTreeSet<Upid>,
) -> Option<&'a Upid> {
    let open = tasks
        .iter()
        .filter(|task| (task.running || task.failed) && !claimed.contains(&task.upid))
        .map(|task| &task.upid);
    let known = intent.task.as_ref();
    if let Some(own) = known.filter(|_| intent.unanswered.is_empty()) {
        let own_start = own.started();
        return open
            .filter(|upid| *upid != own)
            .find(|upid| upid.started() >= own_start);
    }
    // Ours are not all known: root made no more of the template than were asked for, while they could be begun.
    let (first, last) = intent.span();
    let (first, last) = (
        first.0 / 1000 - CLOCKS,
        last.0 / 1000 + LATE_SECONDS + CLOCKS,
    );
    let named = intent.task_id().unwrap_or_default().to_string();
    let most = intent.unanswered.len().max(1);
    let mut ours = 0;
    let mut others = open
        .filter(|upid| Some(*upid) != known && upid.started() >= first)
        .filter(|upid| {
            let alike = upid.user() == "root@pam" && upid.id() == named && upid.started() <= last;
            if alike {
                ours += 1;
            }
            !alike || ours > most
        });
    others.next()
}

/// What lies at a VMID is what PVE makes there before a clone's first disk is copied.
pub(super) fn placeholder(vmid: u32, config: &VmConfig) -> Result<(), String> {
    let text = config.description.trim();
    let bare = text.is_empty() || text == "qmclone temporary file";
    let named = config.raw.contains_key("name");
    if bare && !named && config.disks.is_empty() {
        return Ok(());
    }
    Err(format!(
        "VM {vmid} is a clone under way of somebody else: it has a name, notes or disks, and not our mark"
    ))
}

/// The machine that a clone is to become is one of its pool's: its type, its template, its host.
pub(super) fn fits_pool(
    policy: &BrokerPolicy,
    mark: &Mark,
    host: &str,
    template: u32,
    config: &VmConfig,
) -> Result<(), String> {
    let pool = pool_of(policy, mark)?;
    let named = pool.template_vmid == Some(template)
        || pool.template_name.as_deref() == Some(&*config.name)
        || has_tags(&config.tags(), &pool.template_tags);
    if !named {
        return Err(format!(
            "VM {template} is not the template of pool {}",
            mark.pool
        ));
    }
    is_of_pool(policy, mark, host)
}

/// A VM that is made of settings is one of its mark's pool, and made of what the file says, to the letter.
pub(super) fn made_of_settings(
    policy: &BrokerPolicy,
    call: &AdmittedCall,
    mark: &Mark,
) -> Result<(), String> {
    let pool = pool_of(policy, mark)?;
    let own = pool.new_vm.as_deref() == Some(&*mark.template);
    let new = policy.allow.new_vms.get(&mark.template).filter(|_| own);
    let Some(new) = new else {
        return Err(format!(
            "machines of pool {} are not made of the settings of template {}",
            mark.pool, mark.template
        ));
    };
    is_of_pool(policy, mark, call.host.as_deref().unwrap_or_default())?;
    let kind = policy.allow.types.get(&mark.instance_type);
    let notes = call.param("description").unwrap_or_default();
    let storage = new.storage_of(call.param(new_vm::DISK));
    let disk = (storage, kind.map_or(0, |kind| kind.disk));
    let wanted = new.params(mark, notes, disk);
    let wanted: BTreeMap<&str, &str> = wanted.iter().map(|(k, v)| (&**k, &**v)).collect();
    let given: BTreeMap<&str, &str> = call.params.iter().map(|(k, v)| (&**k, &**v)).collect();
    let keys: BTreeSet<&str> = wanted.keys().chain(given.keys()).copied().collect();
    let differs = keys.iter().find(|key| wanted.get(*key) != given.get(*key));
    differs.map_or(Ok(()), |key| {
        Err(format!(
            "parameter {key}: the configuration gives machines of pool {} {} there",
            mark.pool,
            wanted.get(key).unwrap_or(&"nothing")
        ))
    })
}

fn pool_of<'a>(policy: &'a BrokerPolicy, mark: &Mark) -> Result<&'a PoolAllow, String> {
    let pool = policy.allow.pools.get(&mark.pool).ok_or_else(|| {
        format!(
            "the mark names pool {}, which is not in the configuration",
            mark.pool
        )
    })?;
    if !pool.types.contains(&mark.instance_type) {
        return Err(format!(
            "the mark names instance type {}, which pool {} does not have",
            mark.instance_type, mark.pool
        ));
    }
    Ok(pool)
}

/// The machine has the host, the addresses, the CPUs and the name of one of its pool's.
fn is_of_pool(policy: &BrokerPolicy, mark: &Mark, host: &str) -> Result<(), String> {
    let pool = pool_of(policy, mark)?;
    let named = |hosts: &[String]| hosts.iter().any(|named| named == host);
    if !pool.hosts.is_empty() && !named(&pool.hosts) || named(&pool.exclude_hosts) {
        return Err(format!("pool {} may not use host {host}", mark.pool));
    }
    addresses(policy, mark, &pool.networks)?;
    own_cpu_keys(policy, mark, host)?;
    let head: String = mark.pool.chars().take(LABEL - TAIL).collect();
    let tail = mark.machine.strip_prefix(&head);
    if tail.is_none_or(|tail| tail.len() != TAIL || !tail.starts_with('-')) {
        return Err(format!(
            "machine {} is not named after its pool ({}-xxxxx)",
            mark.machine, mark.pool
        ));
    }
    Ok(())
}

/// The addresses of a mark are what the pool's networks give: on these cards, one of each family, in the ranges.
fn addresses(
    policy: &BrokerPolicy,
    mark: &Mark,
    networks: &BTreeMap<u8, String>,
) -> Result<(), String> {
    if !mark.addresses.keys().eq(networks.keys()) {
        return Err(format!(
            "the mark reserves addresses for {} network cards, pool {} gives them to {}",
            mark.addresses.len(),
            mark.pool,
            networks.len()
        ));
    }
    for (card, name) in networks {
        let network = policy.allow.networks.get(name);
        let network = network.ok_or_else(|| format!("there is no network {name}"))?;
        network
            .ipconfig(&mark.addresses[card])
            .map_err(|why| format!("the addresses of the mark for net{card}: {why}"))?;
    }
    Ok(())
}

/// The VM has, or is given, no more than its instance type says. What a person gave it after we
/// configured it is the person's.
pub(super) fn sized(
    policy: &BrokerPolicy,
    call: &AdmittedCall,
    mark: &Mark,
    config: &VmConfig,
    record: &CloneIntent,
) -> Result<(), String> {
    let number = |key: &str| call.param(key).and_then(|text| text.parse::<i64>().ok());
    let (cores, memory) = if call.rule.name == "start" {
        if record.configured {
            return Ok(());
        }
        (i64::from(config.cpus), config.memory_mib)
    } else {
        (number("cores").unwrap_or(0), number("memory").unwrap_or(0))
    };
    let Some(size) = policy.allow.types.get(&mark.instance_type) else {
        return Err(format!(
            "instance type {} of VM {} is not in the configuration",
            mark.instance_type, mark.vmid
        ));
    };
    let most = size.memory >> 20;
    if cores > i64::from(size.cores) || memory > most {
        return Err(format!(
            "VM {} would have {cores} cores and {memory} MiB, its instance type {} has {} and {most}: its configuration is written first",
            mark.vmid, mark.instance_type, size.cores
        ));
    }
    let disk = call.param("size").and_then(allow::disk_bytes);
    if disk.is_some_and(|disk| i64::try_from(disk).is_ok_and(|disk| disk > size.disk)) {
        return Err(format!(
            "the disk of VM {} would be larger than the {} GiB of its instance type {}",
            mark.vmid,
            size.disk >> 30,
            mark.instance_type
        ));
    }
    Ok(())
}

/// No volume that PVE would destroy with the VM holds somebody's data: what carries the VM's own VMID
/// in its name and is no disk that PVE makes. CSI drivers name volumes so.
pub(super) fn no_data(vmid: u32, config: &VmConfig) -> Result<(), String> {
    let own = format!("vm-{vmid}-");
    let data = config.raw.values().find_map(|value| {
        let volume = value.split(',').next()?;
        let name = volume.rsplit([':', '/']).next()?;
        let rest = name.split('.').next()?.strip_prefix(&own)?;
        let pves = rest == "cloudinit" || rest.starts_with("disk-") || rest.starts_with("state-");
        (volume.contains(':') && !pves).then_some(volume)
    });
    match data {
        None => Ok(()),
        Some(volume) => Err(format!(
            "VM {vmid} has the volume {volume} attached, which would be destroyed with it; detach it first"
        )),
    }
}

/// The clone task ended, badly, and not because the VMID was somebody else's.
pub(super) fn not_taken(vmid: u32, task: &TaskState) -> Result<(), String> {
    match task {
        TaskState::Running => Err(format!("the clone task of VM {vmid} still runs")),
        TaskState::Failed(text) if FailureCause::of(text) == FailureCause::VmidTaken => Err(
            format!("the clone failed because VMID {vmid} was taken: the VM there is not ours"),
        ),
        TaskState::Failed(_) => Ok(()),
        TaskState::Ok | TaskState::Warnings(_) => Err(format!(
            "the clone of VM {vmid} ended well: what is there now is not what it left"
        )),
    }
}
