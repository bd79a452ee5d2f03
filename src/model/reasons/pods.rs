//! Why a pod calls for no machine whatever there is.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::Phase;
use crate::time::Time;

/// Why a pod is left alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Ignored {
    /// It is not pending.
    Phase {
        /// `status.phase`.
        phase: Phase,
    },
    /// It is being deleted.
    BeingDeleted,
    /// A scheduling gate holds it.
    Gated,
    /// It is a static pod.
    Static,
    /// The pod's DaemonSet places it, or the controller that says by annotation that it does as one.
    DaemonSet,
    /// Another scheduler places it.
    OtherScheduler {
        /// `spec.schedulerName`.
        scheduler: Arc<str>,
    },
    /// It asks for devices by ResourceClaim, which are not modelled.
    Devices,
    /// The pod's priority is too low to call for nodes.
    Expendable {
        /// The pod's priority.
        priority: i32,
        /// The least priority that calls for nodes.
        cutoff: i32,
    },
    /// kube-scheduler has not found it unschedulable yet.
    NotUnschedulable,
    /// The pod's annotation asks to wait.
    DelayAnnotation {
        /// The annotation.
        annotation: Arc<str>,
        /// Until when.
        until: Time,
    },
    /// `new_pod_scale_up_delay` lets it wait.
    NewPodDelay {
        /// Until when.
        until: Time,
    },
}
