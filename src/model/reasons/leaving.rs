//! Why a node goes or is replaced, and what becomes of its pods.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::removal::{Blocked, Kept, Unremovable};
use crate::action::Reason;
use crate::cluster::ObjectKey;

/// Why a node is leaving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Removed {
    /// The node's removal is under way.
    UnderWay {
        /// The reason for which it was begun; `None` where nobody remembers it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    },
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
    /// It is being deleted, and its controller has made another pod in its place.
    SuccessorThere {
        /// The other pod.
        successor: ObjectKey,
        /// The node that the other pod is on, if it is on one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<Arc<str>>,
    },
    /// It is being deleted, and its controller makes another pod once it is gone.
    SuccessorComes {
        /// Where the other pod has a place.
        to: Arc<str>,
    },
}
