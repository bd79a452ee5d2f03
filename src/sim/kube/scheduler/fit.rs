//! Where the daemon controller has pods run.

use filters::{NodeInfo, PodInfo, chosen, unbearable};

use crate::model::scheduling::Effect;

/// Whether the daemon controller makes a pod for a node.
pub(in crate::sim::kube) fn daemon_starts(pod: &PodInfo, spot: &NodeInfo) -> bool {
    chosen(&pod.shape, spot) && filters::bears(&pod.shape, &spot.taints)
}

/// Whether a daemon pod may stay where it is.
pub(in crate::sim::kube) fn daemon_stays(pod: &PodInfo, spot: &NodeInfo) -> bool {
    let leaves = unbearable(&pod.shape, &spot.taints, &[Effect::NoExecute]);
    chosen(&pod.shape, spot) && leaves.is_none()
}
