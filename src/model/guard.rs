//! By what pods and nodes forbid that they are disrupted: cluster-autoscaler's annotations `safe-to-evict` and
//! `scale-down-disabled`, and Karpenter's `do-not-disrupt`; and by what pods stay on a node that goes. Brain and executor read them
//! alike.

use super::cluster::{Node, Phase, Pod};
use super::policy::LEAVING_TAINT;
use super::scheduling::{Effect, PodShape, Toleration};
use super::time::{Span, Time};

/// On a pod: anything but `true` forbids its eviction.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// On a pod: `true` says that it is like a DaemonSet's: it ends with its node, and needs no other place.
pub const DAEMONSET_POD: &str = "cluster-autoscaler.kubernetes.io/daemonset-pod";
/// On a DaemonSet's pod: whether it is evicted when its node goes, `true` or else, whatever the configuration says
/// (cluster-autoscaler's `EnableDsEvictionKey`).
pub const DAEMON_EVICTION: &str = "cluster-autoscaler.kubernetes.io/enable-ds-eviction";
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

/// Whether pods of this shape say by [`DAEMON_EVICTION`] that they are evicted when their node goes, or that they are not.
pub fn evicts_daemon(shape: &PodShape) -> Option<bool> {
    let word = shape.annotations.get(DAEMON_EVICTION)?;
    Some(&**word == "true")
}

/// Whether pods of this shape tolerate the taint of a node that goes, and so stay there to its end.
pub fn tolerates_leaving(shape: &PodShape) -> bool {
    let daemon = is_daemon(shape);
    let mut tolerations = shape.tolerations.iter();
    tolerations.any(|toleration| bears_leaving(toleration, daemon))
}

/// Whether a pod with this toleration stays to the end. Operator and value do not matter: the taint's value is a
/// time that nobody can know before. Tolerating just everything keeps a DaemonSet's pod, which would come back at
/// once; another pod of that kind has better places to be than a machine that goes.
fn bears_leaving(toleration: &Toleration, daemon: bool) -> bool {
    let named = match toleration.key.as_deref() {
        Some(key) => key == LEAVING_TAINT,
        None => daemon && toleration.exists,
    };
    named
        && toleration
            .effect
            .is_none_or(|effect| effect == Effect::NoSchedule)
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
