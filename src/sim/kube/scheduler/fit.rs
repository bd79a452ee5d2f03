//! Where the daemon controller has pods run.

use filters::{Guest, Spot, chosen, unbearable};

use crate::model::scheduling::Effect;

/// Whether the daemon controller makes a pod for a node.
pub(in crate::sim::kube) fn daemon_starts(pod: &Guest, spot: &Spot) -> bool {
    chosen(&pod.shape, spot) && filters::bears(&pod.shape, &spot.taints)
}

/// Whether a daemon pod may stay where it is.
pub(in crate::sim::kube) fn daemon_stays(pod: &Guest, spot: &Spot) -> bool {
    let leaves = unbearable(&pod.shape, &spot.taints, &[Effect::NoExecute]);
    chosen(&pod.shape, spot) && leaves.is_none()
}
