//! The world as a decision leaves it: its machines are there, its pods have the places it names. One
//! pod is left out, so that it does not meet itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::constraints::fit::volumes::VolumeNeed;
use crate::decision::pod_to_place::PodToPlace;
use crate::decision::turn::DecisionBuilder;
use crate::index::{NodeIndex, PlannedIndex, ShapeId};
use crate::scale_down::evacuate;
use crate::scale_up::limits::LimitTracker;
use crate::simulation::demand::{self, Demand};
use crate::simulation::offer::{self, Choice, ChoiceList, Offer};
use crate::simulation::pack::{self, FitIndex};
use crate::simulation::places;
use crate::simulation::preempt;
use crate::simulation::world::{NodeOrigin, SimCluster};
use model::action::{Action, CreateSpec, Kind, Reason};
use model::cluster::{ObjectKey, Pod};
use model::decision::Decision;
use model::memory::Memory;
use model::report::PodVerdict;

/// A decision carried out.
pub(super) struct DecidedWorld<'a> {
    pub(super) world: SimCluster<'a>,
    /// What limits and hosts still allow.
    pub(super) limits: LimitTracker,
}

impl<'a> DecidedWorld<'a> {
    /// Limits no longer count the machine that is planned for a pod: it is what is asked about.
    pub(super) fn without_machine_of(
        &mut self,
        choices: &ChoiceList<'a>,
        decision: &Decision,
        place: Option<&Arc<str>>,
    ) {
        let action = place.and_then(|place| find_planned(decision, place));
        if let Some((spec, choice, offer)) = action.and_then(|of| find_offer(choices, of)) {
            self.limits.unbook(choice, offer, spec.mark.vmid);
        }
    }
}

/// The pod that is left out.
#[derive(Clone, Copy)]
pub(super) struct LeftOut<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) pod: &'a Pod,
}

/// A pod with the place that the decision has for it.
struct DecidedPlace<'a> {
    shape: ShapeId,
    need: Option<Arc<VolumeNeed>>,
    place: Arc<str>,
    /// Expendable pods give way for it there.
    preempts: bool,
    pod: PodToPlace<'a>,
}

/// Where a verdict has its pod.
pub(super) fn place(verdict: &PodVerdict) -> Option<&Arc<str>> {
    match verdict {
        PodVerdict::FitsNode { node, .. } => Some(node),
        PodVerdict::FitsMachine { machine } | PodVerdict::Triggers { machine, .. } => Some(machine),
        _ => None,
    }
}

/// Carries out a decision, as far as pods that are in the view wait for a place or have to leave theirs. `before` is the memory that the
/// decision began with.
pub(super) fn carry_out<'a>(
    turn: &mut DecisionBuilder<'a>,
    choices: &ChoiceList<'a>,
    decision: &Decision,
    before: &'a Memory,
    left_out: LeftOut<'a>,
) -> DecidedWorld<'a> {
    let mut world = places::build(turn, choices);
    demand::place_nominated(turn, &mut world);
    let evacuees = evacuate::plan(turn, &mut world, before);
    let mut demand = demand::collect(turn, &mut world, &evacuees.displaced);
    let placed = take_placed(decision, &mut demand);
    let (there, planned): (Vec<_>, Vec<_>) = placed
        .into_iter()
        .partition(|one| world.by_name.contains_key(&one.place));
    put_all(turn, &mut world, there);
    // The decision says no place of the pods that remain, such as those that kube-scheduler has not tried yet. The room of the pod that is left out
    // stays free of them.
    let kept = keep_room(&mut world, decision, left_out);
    pack::existing(turn, &mut world, demand);
    if let Some((node, shape)) = kept {
        world.take(node, shape);
    }
    let limits = make_machines(turn, &mut world, choices, decision);
    put_all(turn, &mut world, planned);
    DecidedWorld { world, limits }
}

/// The machine that a decision plans under a name.
pub(super) fn find_planned<'d>(decision: &'d Decision, machine: &str) -> Option<&'d Action> {
    let mut plan = decision.plan.iter();
    plan.find(|action| matches!(action.kind, Kind::Create(_)) && *action.target.machine == *machine)
}

/// The choice and the offer that a planned machine is made from, if they are still offered.
fn find_offer<'b, 'a>(
    choices: &'b ChoiceList<'a>,
    action: &'b Action,
) -> Option<(&'b CreateSpec, &'b Choice<'a>, &'b Offer<'a>)> {
    let Kind::Create(spec) = &action.kind else {
        return None;
    };
    let (choice, offer) = offer::offer_of(choices, &spec.mark, &action.target)?;
    Some((spec, choice, offer))
}

/// Takes the pods out of the demand that the decision has a place for, and those that it says wait for one.
fn take_placed<'a>(decision: &Decision, demand: &mut Demand<'a>) -> Vec<DecidedPlace<'a>> {
    // The report has no verdict on pods that must leave their nodes: bookings say where those go.
    let booked = decision.memory.bookings.iter();
    let booked: BTreeMap<&Arc<str>, &Arc<str>> = booked
        .flat_map(|(name, pods)| pods.iter().map(move |pod| (pod, name)))
        .collect();
    let mut placed = Vec::new();
    for group in demand.groups.iter_mut().filter(|group| group.calls()) {
        let (shape, need) = (group.shape, group.need.clone());
        group.pods.retain(|one| {
            let verdict = decision.report.pods.get(one.key);
            let found = match verdict {
                Some(verdict) => place(verdict),
                None => booked.get(&one.pod.uid).copied(),
            };
            if let Some(found) = found {
                placed.push(DecidedPlace {
                    shape,
                    need: need.clone(),
                    place: found.clone(),
                    preempts: matches!(verdict, Some(PodVerdict::FitsNode { preempts, .. }) if !preempts.is_empty()),
                    pod: *one,
                });
            }
            found.is_none() && verdict.is_none()
        });
    }
    placed
}

/// Puts pods where the decision has them.
fn put_all<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    mut all: Vec<DecidedPlace<'a>>,
) {
    // Pods that preempt are put last: the decision lets them preempt where all other room is taken.
    all.sort_by_key(|one| one.preempts);
    for one in all {
        let Some(node) = world.by_name.get(&one.place).copied() else {
            continue;
        };
        let need = one.need.as_deref();
        turn.claim_reservations.reserve(one.pod.key, need);
        if one.preempts {
            let mut place = FitIndex::over(&[node], world);
            if !preempt::force(world, one.shape, need, 1, &mut place, &mut None).is_empty() {
                continue;
            }
        }
        world.put(node, one.shape, 1, false);
        world.supply(node, need, 1);
    }
}

/// Keeps the room of the pod that is left out, where the decision has it on something there is.
fn keep_room<'a>(
    world: &mut SimCluster<'a>,
    decision: &Decision,
    LeftOut { key, pod }: LeftOut<'a>,
) -> Option<(NodeIndex, ShapeId)> {
    let verdict = decision.report.pods.get(key).and_then(place)?;
    let node = world.by_name.get(verdict).copied()?;
    let shape = world.intern(&key.namespace, &pod.shape);
    world.put(node, shape, 1, false);
    Some((node, shape))
}

/// Puts the planned machines into the world. Gives what limits leave beside them.
fn make_machines<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    choices: &ChoiceList<'a>,
    decision: &Decision,
) -> LimitTracker {
    let mut limits = LimitTracker::of(turn);
    for (index, action) in decision.plan.iter().enumerate() {
        let Some((spec, choice, offer)) = find_offer(choices, action) else {
            continue;
        };
        let vmid = spec.mark.vmid;
        limits.book(choice, offer, vmid);
        // What replaces nodes is full of their pods.
        if !matches!(action.reason, Reason::Replaces { .. }) {
            // No `PlannedMachines` are beside this world: the plan's own number stands for it.
            let origin = NodeOrigin::Planned(PlannedIndex(index));
            let named = (action.target.machine.clone(), vmid);
            offer::place(world, choice, offer, named, origin);
        }
    }
    limits
}
