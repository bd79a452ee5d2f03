//! What was asked to be destroyed, on disk before it is asked.
//!
//! Once a VM's disks are gone PVE replaces its configuration by `lock: destroyed`, takes its traces
//! out of the cluster's files (permissions, firewall, jobs) and removes the configuration last
//! (`destroy_vm` in PVE::API2::Qemu). A worker that dies in between leaves that lock and nothing
//! else: no mark, no name, no UUID. Only a removal recorded here proves then whose VM it was.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::model::time::Time;
use crate::pve::{Upid, VmConfig};

use super::records::{RecordDirectory, VmRecord};

/// What PVE writes in the place of a VM's configuration when its disks are gone.
pub(super) const LOCK: &str = "destroyed";

/// A removal that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Removal {
    /// The VMID.
    pub(super) vmid: u32,
    /// The machine's name, as in its mark or in the intent of its clone.
    pub(super) machine: String,
    /// The cluster id of its mark.
    pub(super) cluster: String,
    /// The host that the VM was on.
    pub(super) host: String,
    /// When it was first asked for.
    pub(super) asked: Time,
    /// The last removal's task, once PVE told it.
    #[serde(default)]
    pub(super) task: Option<Upid>,
}

impl VmRecord for Removal {
    const WHAT: &'static str = "removal";

    fn vmid(&self) -> u32 {
        self.vmid
    }

    fn is_about_same_machine(&self, other: &Self) -> bool {
        (&self.machine, &self.cluster) == (&other.machine, &other.cluster)
    }

    fn asked(&self) -> Time {
        self.asked
    }
}

/// The directory of removals.
pub(super) type RemovalRecords = RecordDirectory<Removal>;

/// Checks that the VM's configuration holds nothing but `lock: destroyed`: there is nothing to lose.
pub(super) fn nothing_left(vmid: u32, config: &VmConfig) -> Result<(), String> {
    let known = |key: &&String| !matches!(key.as_str(), "lock" | "digest");
    let more: Vec<&str> = config.raw.keys().filter(known).map(|key| &**key).collect();
    if more.is_empty() {
        return Ok(());
    }
    Err(format!(
        "VM {vmid} is locked ({LOCK}) and still has {}: PVE leaves nothing but the lock",
        more.join(", ")
    ))
}

/// Forgets the removals of VMs that are not `there` any more.
pub(super) fn forget_gone(removals: &RemovalRecords, there: &BTreeSet<u32>) {
    for vmid in removals.vmids() {
        if there.contains(&vmid) {
            continue;
        }
        // It is forgotten with the next reading, or when it is too old.
        if let Err(why) = removals.forget(vmid) {
            tracing::warn!(why, "the removal of a VM that is gone is still there");
        }
    }
}
