//! Why a pod is left alone, in words.

use std::fmt::{self, Display, Formatter};

use crate::reasons::Ignored;

impl Display for Ignored {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Ignored::Phase { phase } => write!(f, "its phase is {phase:?}"),
            Ignored::BeingDeleted => write!(f, "it is being deleted"),
            Ignored::Gated => write!(f, "a scheduling gate holds it"),
            Ignored::Static => write!(f, "it is a static pod"),
            Ignored::DaemonSet => write!(f, "its DaemonSet, or a controller like one, places it"),
            Ignored::OtherScheduler { scheduler } => write!(f, "its scheduler is {scheduler}"),
            Ignored::Devices => write!(
                f,
                "it asks for devices by ResourceClaim, which are not modelled"
            ),
            Ignored::Expendable { priority, cutoff } => {
                write!(f, "expendable: its priority {priority} is below {cutoff}")
            }
            Ignored::NotUnschedulable => {
                write!(f, "kube-scheduler has not found it unschedulable")
            }
            Ignored::DelayAnnotation { annotation, until } => {
                write!(f, "its annotation {annotation} asks to wait until {until}")
            }
            Ignored::NewPodDelay { until } => {
                write!(f, "new_pod_scale_up_delay lets it wait until {until}")
            }
        }
    }
}
