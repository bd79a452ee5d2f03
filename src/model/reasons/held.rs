//! What keeps the brain from acting, in full or in part.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::refused::Refused;
use crate::foreign::ForeignText;
use crate::time::{Span, Time};

/// Why something is on hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Held {
    /// The snapshot has a format that this program does not read.
    FormatVersion {
        /// The snapshot's version.
        seen: u32,
        /// The version that this program reads.
        reads: u32,
    },
    /// This instance does not hold the lease.
    NotLeader {
        /// Who does, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<Arc<str>>,
    },
    /// Somebody paused it.
    Paused {
        /// What they said.
        reason: Arc<str>,
    },
    /// The cluster's id is not known yet.
    NoClusterId,
    /// The clock was set back: the view is of a time that has not come.
    ViewAhead {
        /// The view's time.
        view: Time,
        /// What time it is.
        now: Time,
    },
    /// The clock was set back: something is remembered of a time that has not come.
    MemoryAhead {
        /// The latest time that is remembered.
        remembered: Time,
        /// What time it is.
        now: Time,
    },
    /// Sources were not read completely since the start.
    NotRead {
        /// The names of the sources, such as `kube/pods` or `pve/default`.
        sources: Vec<Arc<str>>,
    },
    /// Sources were read too long ago.
    Stale {
        /// The names of the sources.
        sources: Vec<Arc<str>>,
        /// The age of the oldest.
        age: Span,
        /// The age that is allowed.
        limit: Span,
    },
    /// Nothing was seen of a region yet.
    RegionNotSeen {
        /// The region.
        region: Arc<str>,
    },
    /// The PVE cluster of a region has no quorum.
    NoQuorum {
        /// The region.
        region: Arc<str>,
    },
    /// The region is not in the configuration.
    RegionNotConfigured,
    /// Scale-down is switched off.
    ScaleDownDisabled,
    /// Too many nodes are not Ready: cluster-autoscaler's `ClusterUnhealthy`.
    ClusterUnhealthy {
        /// Nodes that are not Ready.
        unready: usize,
        /// All nodes.
        nodes: usize,
        /// `ok_total_unready_count`.
        allowed: u32,
        /// `max_total_unready_percentage`.
        percent: usize,
    },
    /// The pool has more nodes than its `max`.
    AboveMax {
        /// Nodes that it has.
        have: u32,
        /// The pool's `max`.
        max: u32,
        /// Nodes that are to go.
        over: u32,
    },
    /// The pool has fewer nodes than its `min`, and no machine may be made.
    BelowMin {
        /// Nodes that it has, and machines under way.
        have: u32,
        /// The pool's `min`.
        min: u32,
        /// Why none is made.
        refused: Arc<Refused>,
    },
    /// The pool backs off after a failure.
    BacksOff {
        /// What failed; `None` where somebody else tells of that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<ForeignText>,
    },
    /// The pool has machines from before the memory began, and none of them works.
    NoneWorks,
}

/// Why something is on hold, with the fault behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Hindrance {
    /// Why.
    #[serde(flatten)]
    pub held: Held,
    /// The fault behind it in words, with which the sentence ends; `None` when there is none, or none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Arc<str>>,
}

impl From<Held> for Hindrance {
    fn from(held: Held) -> Hindrance {
        Hindrance { held, cause: None }
    }
}
