//! Taints and tolerations, and `spec.unschedulable`.
//!
//! Source: kube-scheduler's plugins `TaintToleration` and `NodeUnschedulable`.

use model::scheduling::{Effect, Taint, Toleration};

/// What the node controller sets for `spec.unschedulable`; a pod that tolerates it may come.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Taints that Kubernetes itself sets on a node that has just registered or has lost contact, and
/// takes away again: no reason to call for another node while ours is on its way.
const EPHEMERAL: [&str; 6] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/unschedulable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.kubernetes.io/out-of-service",
];

/// Beginnings of such taints' keys, by which cluster-autoscaler and Karpenter know them without being told: the startup taints of the one
/// (`StartupTaintPrefix`, and the prefix that it had before), and those of the Node Readiness Controller (`KnownEphemeralTaintKeyPrefixes`).
const EPHEMERAL_PREFIXES: [&str; 3] = [
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "readiness.k8s.io/",
];

/// Whether somebody in the cluster sets this taint while a node comes up, and clears it by itself.
pub(crate) fn ephemeral(taint: &Taint) -> bool {
    let prefixes = EPHEMERAL_PREFIXES.iter();
    EPHEMERAL.contains(&&*taint.key)
        || prefixes
            .into_iter()
            .any(|prefix| taint.key.starts_with(prefix))
}

/// The taints that keep a pod with these tolerations away. `PreferNoSchedule` never does.
pub(crate) fn untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &'a [Toleration],
) -> impl Iterator<Item = &'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect != Effect::PreferNoSchedule)
        .filter(|taint| !tolerations.iter().any(|t| t.tolerates(taint)))
}

/// Whether this is the taint that the node controller sets on a cordoned node.
pub(crate) fn is_of_cordon(taint: &Taint) -> bool {
    *taint.key == *UNSCHEDULABLE
}

/// Whether a pod with these tolerations may go to a cordoned node.
pub(crate) fn bears_cordon(tolerations: &[Toleration]) -> bool {
    let cordon = Taint::no_schedule(UNSCHEDULABLE, "");
    tolerations.iter().any(|t| t.tolerates(&cordon))
}
