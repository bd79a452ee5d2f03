//! Why a node goes or is replaced, and what becomes of its pods.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::removal::{Blocked, Kept, Unremovable};
use crate::action::Reason;

/// Why a node is leaving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Removed {
    /// The node's removal is under way.
    UnderWay,
    /// The node's removal is planned now.
    Planned {
        /// The reason of the action.
        reason: Reason,
    },
}

/// Why a node works until a machine that replaces it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Replacing {
    /// The machine is on its way up.
    OnItsWay {
        /// The machine.
        by: Arc<str>,
        /// The saving of the replacement, in millionths per hour.
        saving: i64,
    },
    /// The machine is planned now.
    Planned {
        /// The machine.
        by: Arc<str>,
        /// The replacement's pool and type, as `pool/type`.
        offer: Arc<str>,
        /// All nodes that it replaces.
        nodes: Vec<Arc<str>>,
        /// The saving of the replacement, in millionths per hour.
        saving: i64,
    },
}

/// Why a removal that was begun is given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Aborted {
    /// The node stays.
    Kept {
        /// The reason in cluster-autoscaler's terms.
        reason: Unremovable,
        /// The reason.
        kept: Box<Kept>,
    },
    /// Nothing asks for the removal any more.
    NotWanted,
}

/// Why something becomes of a pod whose node goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum FateReason {
    /// It may not be evicted.
    Blocked {
        /// Why.
        blocked: Box<Blocked>,
    },
    /// It finds no other place.
    Unplaced {
        /// What keeps its node.
        kept: Box<Kept>,
    },
    /// It moves once the machine that was made for it works.
    OnceMachineWorks,
}
