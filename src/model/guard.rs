//! The annotations by which pods and nodes forbid that they are disrupted: cluster-autoscaler's `safe-to-evict` and
//! `scale-down-disabled`, and Karpenter's `do-not-disrupt`. Brain and executor read them alike.

use super::cluster::{Node, Phase, Pod};
use super::scheduling::PodShape;
use super::time::{Span, Time};

/// On a pod: anything but `true` forbids its eviction.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// On a pod: `true` says that it is like a DaemonSet's: it ends with its node, and needs no other place.
pub const DAEMONSET_POD: &str = "cluster-autoscaler.kubernetes.io/daemonset-pod";
/// On a node: `true` forbids its removal, whatever it is removed for.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// On a pod or a node: `true` forbids its disruption for ever, a Go duration such as `30m` for so long.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Whether pods of this shape are a DaemonSet's, or say by [`DAEMONSET_POD`] that they are like one (cluster-autoscaler's
/// `IsDaemonSetPod`).
pub fn is_daemon(shape: &PodShape) -> bool {
    let owner = shape.owner.as_ref();
    let says = shape.annotations.get(DAEMONSET_POD).map(|value| &**value);
    owner.is_some_and(|owner| &*owner.kind == "DaemonSet") || says == Some("true")
}

/// Whether [`SCALE_DOWN_DISABLED`] keeps the node.
pub fn disables_scale_down(node: &Node) -> bool {
    let value = node.annotations.get(SCALE_DOWN_DISABLED);
    value.is_some_and(|value| &**value == "true")
}

/// A `do-not-disrupt` that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// When the guard ends; `None` for never.
    pub until: Option<Time>,
}

impl Guard {
    /// What a value of `do-not-disrupt` forbids whose time counts from `since`. Any other word than `true` and a duration
    /// forbids nothing, as Karpenter has it.
    pub fn of(value: Option<&str>, since: Time, now: Time) -> Option<Guard> {
        let value = value?;
        if value == "true" {
            return Some(Guard { until: None });
        }
        let until = since + Span::from_go(value)?;
        (until > now).then_some(Guard { until: Some(until) })
    }

    /// What a pod's `do-not-disrupt` forbids. Its time begins with the pod's start, as in Karpenter: a pod that has not
    /// started is protected.
    pub fn of_pod(pod: &Pod, now: Time) -> Option<Guard> {
        let since = match pod.phase {
            Phase::Pending => pod.started.unwrap_or(now),
            _ => pod.started.unwrap_or(pod.created),
        };
        let value = pod.shape.annotations.get(DO_NOT_DISRUPT);
        Guard::of(value.map(|value| &**value), since, now)
    }
}
