//! Why a node could go.

use std::sync::Arc;

use model::drift::Outdated;
use model::time::Time;

use crate::scale_down::consolidate::intents::Rest;
use crate::scale_down::shrink::KeepReason;

/// Why a node could go.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    /// It is underused, as cluster-autoscaler counts.
    Unneeded,
    /// The node's pool is consolidated.
    Consolidate,
    /// The node's pool has more nodes than its `max`; without that the node would be kept for this.
    AboveMax {
        /// Nodes it has.
        have: u32,
        /// Nodes it may have.
        max: u32,
        /// Why it would be kept.
        otherwise: KeepReason,
    },
    /// A person evacuates its host. Where its pods go is known beforehand.
    Evacuated {
        /// The host.
        host: Arc<str>,
        /// Since when.
        since: Time,
        /// Why it stays until a machine is there for a pod that finds no place yet.
        missing: Option<Box<KeepReason>>,
    },
    /// It is outdated, and its pool replaces such nodes. Where its pods go is known beforehand.
    Outdated {
        /// Why it is outdated.
        outdated: Outdated,
        /// Why it stays until a machine is there for a pod that finds no place yet.
        missing: Option<Box<KeepReason>>,
    },
    /// The machine that was made to replace it works.
    Replaced {
        /// The machine.
        by: Arc<str>,
        /// What removing the node saves, with the other nodes that the machine replaces.
        rest: Rest,
    },
}

impl Mode {
    /// Why the node is kept once its pool has not too many any more.
    pub(crate) fn fallback(&self) -> Option<&KeepReason> {
        match self {
            Mode::AboveMax { otherwise, .. } => Some(otherwise),
            _ => None,
        }
    }

    /// Whether the node is given up, whatever it is used for.
    pub(crate) fn gives_up(&self) -> bool {
        matches!(self, Mode::Evacuated { .. } | Mode::Outdated { .. })
    }

    /// Why a node that is given up stays for now: one of its pods has no place on another node until a new machine works.
    pub(crate) fn missing(&self) -> Option<&KeepReason> {
        match self {
            Mode::Evacuated { missing, .. } | Mode::Outdated { missing, .. } => missing.as_deref(),
            _ => None,
        }
    }
}
