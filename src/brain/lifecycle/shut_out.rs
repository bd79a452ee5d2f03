//! New nodes that somebody shuts out before a pod came to them: a cordon, or a taint that nobody here sets.
//!
//! The pod that such a machine was made for waits on, and the next machine is shut out, too: whoever does it does it to all. So it counts as
//! a failure of the pool from the second machine on.

use model::cluster::Node;
use model::foreign::ForeignText;
use model::guard;
use model::scheduling::{Effect, Taint};
use model::time::{Span, Time};

use crate::constraints::fit::taints;
use crate::decision::turn::DecisionBuilder;
use crate::observed::view::{MachinePhase, MachineView};

/// How old a node must be for a cordon or a taint on it to count. A taint that is gone by then belonged to its coming up: CNIs and CSI drivers
/// set one, and take it away again.
const COMING_UP: Span = Span::minutes(1);
/// How late the turn may be that first sees a node older than [`COMING_UP`].
const SLACK: Span = Span::seconds(30);
/// How the keys of taints end that CNIs and CSI drivers set and take away (`node.cilium.io/agent-not-ready`, `ebs.csi.aws.com/agent-not-ready`).
const PASSING_ENDS: [&str; 2] = ["not-ready", "uninitialized"];

/// How somebody shut out the node of a machine that came a short while ago, before a pod came to it; and from when on that counts.
pub(crate) fn find(
    turn: &DecisionBuilder<'_>,
    machine: &MachineView<'_>,
) -> Option<(Time, ForeignText)> {
    let (_, node) = machine.node.filter(|_| machine.phase == MachinePhase::Up)?;
    let age = turn.now().since(node.created);
    if machine.busy()
        || age > turn.view.policy.scale_up.max_provision_time
        || carries(turn, machine)
    {
        return None;
    }
    let from = node.created + COMING_UP;
    let host = machine
        .region
        .and_then(|region| region.hosts.get(&machine.seen.host));
    if host.is_some_and(|host| host.evacuated.is_some()) {
        return None;
    }
    if node.unschedulable {
        let message = "somebody cordoned its node before a pod came to it";
        return Some((from, message.into()));
    }
    let key = barring_taint(machine, node)?;
    let message = format!("somebody tainted its node with {key} before a pod came to it");
    Some((from, message.into()))
}

/// Whether a pod is on the node of a machine that is no DaemonSet's and not the kubelet's own.
pub(crate) fn carries(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> bool {
    let pods = machine.node.map(|(name, _)| turn.view.pods(name));
    let mut pods = pods.unwrap_or_default().iter();
    pods.any(|(_, pod)| !pod.mirror && !guard::is_daemon(&pod.shape))
}

/// The key of a taint that keeps pods away and that neither the pool nor Kubernetes gives new nodes.
fn barring_taint<'n>(machine: &MachineView<'_>, node: &'n Node) -> Option<&'n str> {
    let of_pool = |key: &str| {
        let pool = machine.promised();
        pool.is_some_and(|pool| pool.taints.iter().any(|taint| *taint.key == *key))
    };
    let bars = |taint: &&Taint| taint.effect != Effect::PreferNoSchedule && !passes(taint);
    let keys = node.taints.iter().filter(bars).map(|taint| &*taint.key);
    let mut keys = keys.filter(|key| !machine.starts_with(key));
    keys.find(|key| !of_pool(key))
}

/// Whether whoever sets this taint takes it away by itself, by its name.
fn passes(taint: &Taint) -> bool {
    let mut ends = PASSING_ENDS.iter();
    taints::ephemeral(taint) || ends.any(|end| taint.key.ends_with(end))
}

/// Whether the machine carries a pod, and its node is the one that was shut out at `seen` or a newer one: whoever shut nodes out does so no more.
pub(crate) fn is_overcome(
    turn: &DecisionBuilder<'_>,
    machine: &MachineView<'_>,
    seen: Time,
) -> bool {
    let node = machine.node.filter(|_| carries(turn, machine));
    node.is_some_and(|(_, node)| node.created + COMING_UP + SLACK >= seen)
}
