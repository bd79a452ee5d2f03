//! New nodes that somebody shuts out before a pod came to them: a cordon, or a taint that nobody here sets.
//!
//! The pod that such a machine was made for waits on, and the next machine is shut out, too: whoever does it does it to all. So it counts as
//! a failure of the pool from the second machine on.

use model::cluster::Node;
use model::foreign::ForeignText;
use model::guard;
use model::scheduling::Effect;

use crate::decision::turn::DecisionBuilder;
use crate::observed::view::{MachinePhase, MachineView};

/// Taints of Kubernetes' own that come and go while a node comes up, or that say that it is not Ready: others look after those.
const PASSING: [&str; 4] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
];

/// How somebody shut out the node of a machine that came a short while ago, before a pod came to it.
pub(crate) fn find(turn: &DecisionBuilder<'_>, known: &MachineView<'_>) -> Option<ForeignText> {
    let (_, node) = known.node.filter(|_| known.phase == MachinePhase::Up)?;
    let age = turn.now().since(node.created);
    if known.busy() || age > turn.view.policy.scale_up.max_provision_time || carries(turn, known) {
        return None;
    }
    let host = known
        .region
        .and_then(|region| region.hosts.get(&known.machine.host));
    if host.is_some_and(|host| host.evacuated.is_some()) {
        return None;
    }
    if node.unschedulable {
        return Some("somebody cordoned its node before a pod came to it".into());
    }
    let key = barring_taint(known, node)?;
    Some(format!("somebody tainted its node with {key} before a pod came to it").into())
}

/// Whether a pod is on the node of a machine that is no DaemonSet's and not the kubelet's own.
pub(crate) fn carries(turn: &DecisionBuilder<'_>, known: &MachineView<'_>) -> bool {
    let pods = known.node.map(|(name, _)| turn.view.pods(name));
    let mut pods = pods.unwrap_or_default().iter();
    pods.any(|(_, pod)| !pod.mirror && !guard::is_daemon(&pod.shape))
}

/// The key of a taint that keeps pods away and that neither the pool nor Kubernetes gives new nodes.
fn barring_taint<'n>(known: &MachineView<'_>, node: &'n Node) -> Option<&'n str> {
    let of_pool = |key: &str| {
        let pool = known.promised();
        pool.is_some_and(|pool| pool.taints.iter().any(|taint| *taint.key == *key))
    };
    let keys = node
        .taints
        .iter()
        .filter(|taint| taint.effect != Effect::PreferNoSchedule)
        .map(|taint| &*taint.key);
    let mut keys = keys.filter(|key| !PASSING.contains(key) && !known.starts_with(key));
    keys.find(|key| !of_pool(key))
}
