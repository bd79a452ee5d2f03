//! Whose VM it is: judged on what PVE says right now, never on what the daemon says.

use serde_json::Value;

use crate::model::mark::{Mark, Ownership};
use crate::pve::perl::Fields;
use crate::pve::{Cause, Task, TaskState, Upid, VmConfig};

use super::allow::{Call, mark_of, our_cluster};
use super::intents::Intent;
use super::policy::Policy;

/// The mark of a VM that is ours, or why it is not.
pub(super) fn mark(policy: &Policy, vmid: u32, config: &VmConfig) -> Result<Mark, String> {
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

/// The mark that a clone call wants to give.
pub(super) fn mark_of_clone(call: &Call) -> Result<Mark, String> {
    let newid = call.param("newid").and_then(|text| text.parse().ok());
    let (Some(newid), Some(name), Some(description)) =
        (newid, call.param("name"), call.param("description"))
    else {
        return Err("a clone needs newid, name and description".to_owned());
    };
    mark_of(description, newid, name)
}

/// VM `vmid` is a template that the policy names.
pub(super) fn template(policy: &Policy, vmid: u32, config: &VmConfig) -> Result<(), String> {
    let allow = &policy.allow;
    let named = allow.template_vmids.contains(&vmid)
        || allow
            .template_names
            .iter()
            .any(|name| **name == *config.name);
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

/// A running clone task that may be `intent`'s: its own when it is known, else any of its template,
/// whose VMID the task carries, or of any template when that is not known either.
pub(super) fn clone_under_way<'a>(tasks: &'a [Task], intent: &Intent) -> Option<&'a Upid> {
    let template = intent.template.to_string();
    tasks
        .iter()
        .filter(|task| task.running && task.upid.kind() == "qmclone")
        .map(|task| &task.upid)
        .find(|upid| match &intent.task {
            Some(known) => *upid == known,
            None => intent.template == 0 || upid.id() == template,
        })
}

/// The clone task did not fail because the VMID was somebody else's.
pub(super) fn not_taken(vmid: u32, task: &TaskState) -> Result<(), String> {
    match task {
        TaskState::Running => Err(format!("the clone task of VM {vmid} still runs")),
        TaskState::Failed(text) if Cause::of(text) == Cause::VmidTaken => Err(format!(
            "the clone failed because VMID {vmid} was taken: the VM there is not ours"
        )),
        TaskState::Failed(_) | TaskState::Ok | TaskState::Warnings(_) => Ok(()),
    }
}
