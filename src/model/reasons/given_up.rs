//! Why a node is given up that stays for now, and what it waits for.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::refused::Reasons;
use super::removal::{Kept, Unremovable};
use crate::cluster::ObjectKey;
use crate::drift::Outdated;
use crate::time::Time;

/// Why a node is to go, whatever it is used for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum GivenUp {
    /// A person evacuates its host.
    HostEvacuated {
        /// The host.
        host: Arc<str>,
        /// Since when.
        since: Time,
    },
    /// Its pool replaces it: it has drifted, or is too old.
    Outdated {
        /// Why it is outdated.
        outdated: Outdated,
    },
}

/// What a node that is given up waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum WaitsFor {
    /// A machine that takes its place is on its way up.
    MachineComing {
        /// The machine.
        machine: Arc<str>,
    },
    /// A machine that takes its place is planned now.
    MachinePlanned {
        /// The machine.
        machine: Arc<str>,
    },
    /// A machine is planned with those for other pods of the same batch, once it closes.
    Batch {
        /// At the latest.
        until: Time,
    },
    /// A pod of it has no place on another node, and no machine can be made for it.
    NoMachine {
        /// The pod; `None` where an older program wrote this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pod: Option<ObjectKey>,
        /// Why, by `pool/type`, `pool/*` or `*`.
        refused: Reasons,
    },
    /// Its turn: other nodes of its pool are replaced first.
    Turn {
        /// The node whose turn comes right before, or that is replaced now.
        after: Arc<str>,
        /// `max_rollout_parallelism` of the pool.
        max: u32,
    },
    /// The end of its pool's back-off: the pool's new machines fail.
    PoolBackOff {
        /// The pool.
        pool: Arc<str>,
        /// Until when.
        until: Time,
    },
    /// The end of something else that keeps it.
    Other {
        /// What keeps it.
        kept: Box<Kept>,
    },
}

impl WaitsFor {
    /// The reason for which the node stays, in one name.
    pub fn reason(&self) -> Unremovable {
        match self {
            WaitsFor::MachineComing { .. }
            | WaitsFor::MachinePlanned { .. }
            | WaitsFor::Batch { .. } => Unremovable::BeingReplaced,
            WaitsFor::NoMachine { .. } => Unremovable::NoReplacement,
            WaitsFor::Turn { .. } | WaitsFor::PoolBackOff { .. } => Unremovable::ReplacedLater,
            WaitsFor::Other { kept } => kept.reason(),
        }
    }
}
