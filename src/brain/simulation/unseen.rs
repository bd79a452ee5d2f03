//! Pods that kube-scheduler has not looked at for long. No machine is made for those, so whoever waits for one must be told
//! where kube-scheduler does not run.

use model::cluster::{Phase, Pod};
use model::reasons::Warning;
use model::time::{Span, Time};

use crate::decision::turn::DecisionBuilder;

/// kube-scheduler looks at a new pod within a second; after a start of its own, or with thousands that come at once, within this.
const PATIENCE: Span = Span::minutes(2);

/// Pods that kube-scheduler has not looked at yet.
#[derive(Debug, Default)]
pub(crate) struct UnseenPods {
    /// When each was created.
    created: Vec<Time>,
}

impl UnseenPods {
    pub(crate) fn add(&mut self, pod: &Pod) {
        self.created.push(pod.created);
    }

    /// Warns where some of them came so long ago that kube-scheduler seems not to run: it has looked at no pod since.
    pub(crate) fn report(self, turn: &mut DecisionBuilder<'_>) {
        let Some(first) = self.created.iter().min().copied() else {
            return;
        };
        // What an old view does not show may have happened since.
        if !turn.holds.may_observe() {
            return;
        }
        if first + PATIENCE > turn.now() {
            return turn.wake_at(first + PATIENCE);
        }
        let pods = turn.view.snapshot.cluster.pods.values();
        if pods.clone().any(|pod| was_seen_since(pod, first)) {
            return;
        }
        let long = self
            .created
            .iter()
            .filter(|at| **at + PATIENCE <= turn.now());
        turn.warn(Warning::SchedulerSilent { pods: long.count() });
    }
}

/// Whether kube-scheduler has found a node for a pod, or none, since then.
fn was_seen_since(pod: &Pod, since: Time) -> bool {
    let refused = pod.unschedulable_since.is_some_and(|at| at >= since);
    let bound = pod.node.is_some() && !pod.mirror && pod.phase != Phase::Pending;
    refused || (bound && pod.started.is_some_and(|at| at >= since))
}
