//! What must be remembered between decisions and cannot be seen: timers, back-offs, lessons.
//!
//! Losing it may delay an action, never hasten one: see [`Memory::born`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::resources::Resources;
use super::time::{Span, Time};

/// Version of the format that this program writes. Another version on disk counts as lost.
pub const VERSION: u32 = 1;

/// The brain's memory; written to the state directory after every decision that changed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// When this memory began; set by the first decision. Timers that were lost count from here,
    /// and a pool that has machines but no healthy node waits out a first back-off from here.
    pub born: Option<Time>,
    /// Node name to the time since when it is unneeded without a gap.
    pub unneeded_since: BTreeMap<Arc<str>, Time>,
    /// Last time a machine was planned or became a node.
    pub last_scale_up: Option<Time>,
    /// Last time a machine was removed for being unneeded.
    pub last_scale_down: Option<Time>,
    /// Last time a removal failed.
    pub last_scale_down_failure: Option<Time>,
    /// Back-offs by pool.
    pub backoff: BTreeMap<Arc<str>, Backoff>,
    /// Machines whose failure has been counted already.
    pub counted_failures: BTreeSet<Arc<str>>,
    /// What nodes really offered, by `pool/instance type/template#promise`, where `promise` stands
    /// for the size and reservation they were made with: a lesson ends when the promise changes.
    pub learned: BTreeMap<Arc<str>, Resources>,
    /// The open batch of pending pods.
    pub batch: Option<Batch>,
    /// Things in quarantine (orphans, placeholders, foreign nodes of ours) and since when.
    pub quarantine: BTreeMap<Arc<str>, Time>,
    /// Counts machines ever planned, so that names differ.
    pub serial: u64,
}

/// A pool that waits after failures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// No new machine before this.
    pub until: Time,
    /// How long the present wait is.
    pub length: Span,
    /// The last failure.
    pub failed: Time,
    /// What it said.
    pub message: String,
}

/// A batch of pending pods that is still open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// When its first pod was seen.
    pub first: Time,
    /// When it last grew.
    pub last: Time,
    /// UIDs of the pods seen.
    pub pods: BTreeSet<Arc<str>>,
}
