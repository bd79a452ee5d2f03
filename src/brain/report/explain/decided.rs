//! The world as a decision leaves it: its machines are there, its pods have the places it names. One
//! pod is left out, so that it does not meet itself.

use std::sync::Arc;

use crate::decision::turn::DecisionBuilder;
use crate::index::PlannedIndex;
use crate::scale_up::limits::LimitTracker;
use crate::simulation::offer::{self, ChoiceList};
use crate::simulation::places;
use crate::simulation::world::{NodeOrigin, SimCluster};
use model::action::{Kind, Reason};
use model::decision::Decision;
use model::report::PodVerdict;

/// A decision carried out.
pub(super) struct DecidedWorld<'a> {
    pub(super) world: SimCluster<'a>,
    /// What limits and hosts still allow.
    pub(super) limits: LimitTracker,
}

/// Where a verdict has its pod.
pub(super) fn place(verdict: &PodVerdict) -> Option<&Arc<str>> {
    match verdict {
        PodVerdict::FitsNode { node, .. } => Some(node),
        PodVerdict::FitsMachine { machine } | PodVerdict::Triggers { machine, .. } => Some(machine),
        _ => None,
    }
}

/// Carries out a decision, as far as pods that are in the view wait for a place.
pub(super) fn carry_out<'a>(
    turn: &DecisionBuilder<'a>,
    choices: &ChoiceList<'a>,
    decision: &Decision,
) -> DecidedWorld<'a> {
    let mut world = places::build(turn, choices);
    let mut limits = LimitTracker::of(turn);
    for (index, action) in decision.plan.iter().enumerate() {
        let Kind::Create(spec) = &action.kind else {
            continue;
        };
        let mark = &spec.mark;
        let Some((choice, offer)) = offer::offer_of(choices, mark, &action.target) else {
            continue;
        };
        limits.book(choice, offer, mark.vmid);
        // What replaces nodes is full of their pods.
        if !matches!(action.reason, Reason::Replaces { .. }) {
            // No `PlannedMachines` are beside this world: only that the node is a planned one counts.
            let origin = NodeOrigin::Planned(PlannedIndex(index));
            let named = (action.target.machine.clone(), mark.vmid);
            offer::place(&mut world, choice, offer, named, origin);
        }
    }
    for (planned, verdict) in &decision.report.pods {
        let pod = turn.view.snapshot.cluster.pods.get_key_value(planned);
        let index = place(verdict).and_then(|name| world.by_name.get(name).copied());
        let (Some((key, pod)), Some(index)) = (pod, index) else {
            continue;
        };
        let need = turn.view.need(key, pod);
        let shape = world.intern(&key.namespace, &pod.shape);
        world.put(index, shape, 1, false);
        world.supply(index, need.as_ref(), 1);
    }
    DecidedWorld { world, limits }
}
