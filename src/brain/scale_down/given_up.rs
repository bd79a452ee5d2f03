//! Verdicts of nodes that are to go (their host is evacuated, or their machine is outdated) and have not begun to: why they are to go, and what they wait for.
//!
//! Such a node has the verdict of any node that stays when this comes: a pod of it has no place, or it is used by more than half.
//! That hides what is being done about it. So its verdict is written anew: why it is to go comes first, then the machine that takes its
//! place, or why none does, or whose turn it is.

use std::sync::Arc;

use model::action::Kind;
use model::cluster::ObjectKey;
use model::reasons::{GivenUp, Kept, WaitsFor};
use model::report::{NodeVerdict, PodVerdict};

use crate::decision::turn::DecisionBuilder;
use crate::index::NodeIndex;
use crate::observed::view::{MachinePhase, MachineView};
use crate::simulation::places;

/// Why the node at this index is to go where a person evacuates its host.
pub(crate) fn find_evacuated(turn: &DecisionBuilder<'_>, index: NodeIndex) -> Option<GivenUp> {
    find_evacuation(turn, turn.view.machine_at(index)?)
}

/// Why a machine, which may be no node yet, is to go where a person evacuates its host.
pub(crate) fn find_evacuation(
    turn: &DecisionBuilder<'_>,
    machine: &MachineView<'_>,
) -> Option<GivenUp> {
    Some(GivenUp::HostEvacuated {
        host: machine.seen.host.clone(),
        since: places::evacuated(turn, machine)?,
    })
}

/// Writes the verdicts anew of those nodes that are given up and stay.
pub(crate) fn tell(turn: &mut DecisionBuilder<'_>) {
    for (name, (cause, later)) in std::mem::take(&mut turn.given_up) {
        let Some(NodeVerdict::Kept {
            why, pod, until, ..
        }) = turn.report.nodes.get(&name)
        else {
            continue;
        };
        let (until, pod) = (*until, pod.clone());
        let (waits, blocking) = match later {
            // It stays for now however much it is used. What keeps it at its turn too is said before that comes, and so is a timer after
            // which it goes without a turn.
            Some(later) if !keeps_anyway(why) && !goes_by_itself(why) => (later, None),
            Some(_) => (other(why), pod),
            None => (find(turn, &name, why, pod.as_ref()), pod),
        };
        let until = match &waits {
            WaitsFor::Batch { until: end } | WaitsFor::PoolBackOff { until: end, .. } => Some(*end),
            WaitsFor::Other { .. } => until,
            // When the reason that is not told any more would have been looked at again is of no use.
            WaitsFor::MachineComing { .. }
            | WaitsFor::MachinePlanned { .. }
            | WaitsFor::NoMachine { .. }
            | WaitsFor::Turn { .. } => None,
        };
        let verdict = NodeVerdict::Kept {
            reason: waits.reason(),
            why: Kept::GivenUp {
                cause: Box::new(cause),
                waits: Box::new(waits),
            },
            pod: blocking,
            until,
        };
        turn.report.nodes.insert(name, verdict);
    }
}

/// Whether a reason keeps a node that is given up as it keeps any other.
fn keeps_anyway(why: &Kept) -> bool {
    matches!(
        why,
        Kept::PoweredOff { .. }
            | Kept::PoolNotConfigured { .. }
            | Kept::LeftAlone { .. }
            | Kept::DisabledAnnotation { .. }
            | Kept::DoNotDisrupt { .. }
            | Kept::RemovedByOthers { .. }
            | Kept::BlockedByPod { .. }
            | Kept::Held { .. }
    )
}

/// Whether a node is unneeded, and goes without a turn when a time is over.
pub(crate) fn goes_by_itself(why: &Kept) -> bool {
    matches!(
        why,
        Kept::NotLongEnough { .. }
            | Kept::PodsChanged { .. }
            | Kept::TooYoung { .. }
            | Kept::Delayed { .. }
    )
}

fn other(why: &Kept) -> WaitsFor {
    WaitsFor::Other {
        kept: Box::new(why.clone()),
    }
}

/// What a node that is to go waits for when no other node goes before it. `why` is the reason for which this decision keeps it, `pod` the pod that
/// this reason is about.
fn find(turn: &DecisionBuilder<'_>, name: &str, why: &Kept, pod: Option<&ObjectKey>) -> WaitsFor {
    let found = match (why, pod) {
        (Kept::NoPlace { .. }, Some(pod)) => find_for_pod(turn, pod),
        (Kept::PoolMin { .. }, _) => find_for_min(turn, name),
        _ => None,
    };
    found.unwrap_or_else(|| other(why))
}

/// What a node waits for because of one of its pods that no other node has room for: the machine that is made for the pod, or why none is.
fn find_for_pod(turn: &DecisionBuilder<'_>, pod: &ObjectKey) -> Option<WaitsFor> {
    match turn.bound_pods.get(pod)? {
        PodVerdict::FitsMachine { machine } => Some(coming(machine)),
        PodVerdict::Triggers { machine, .. } => {
            // A machine that was planned may have been dropped: its host had no CPUs of its own left, or the pool no address.
            let planned = turn.plan.iter().any(|action| {
                matches!(action.kind, Kind::Create(_)) && action.target.machine == *machine
            });
            planned.then(|| WaitsFor::MachinePlanned {
                machine: machine.clone(),
            })
        }
        PodVerdict::Batched { until } => Some(WaitsFor::Batch { until: *until }),
        PodVerdict::Held { why } | PodVerdict::NoCompatiblePool { why } => {
            Some(WaitsFor::NoMachine {
                pod: Some(pod.clone()),
                refused: why.clone(),
            })
        }
        PodVerdict::FitsNode { .. } | PodVerdict::Ignored { .. } | PodVerdict::Unread { .. } => {
            None
        }
    }
}

/// The first machine that comes for the pool of a node: with it the pool keeps its `min` when the node goes.
fn find_for_min(turn: &DecisionBuilder<'_>, name: &str) -> Option<WaitsFor> {
    let pool = turn.view.machine_of_node(name)?.pool_name();
    let mut machines = turn.view.machines.values();
    let on_its_way = machines
        .find(|machine| machine.pool_name() == pool && machine.phase == MachinePhase::Coming);
    if let Some(machine) = on_its_way {
        return Some(coming(machine.name));
    }
    let mut planned = turn.plan.iter().filter(|action| match &action.kind {
        Kind::Create(spec) => spec.mark.pool == pool,
        _ => false,
    });
    planned.next().map(|action| WaitsFor::MachinePlanned {
        machine: action.target.machine.clone(),
    })
}

fn coming(machine: &Arc<str>) -> WaitsFor {
    WaitsFor::MachineComing {
        machine: machine.clone(),
    }
}
