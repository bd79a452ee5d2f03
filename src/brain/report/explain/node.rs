//! One node, taken for gone: what would become of each of its pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::constraints::fit::volumes::VolumeNeed;
use crate::constraints::shape::Keyed;
use crate::decision::turn::DecisionBuilder;
use crate::index::{NodeIndex, ShapeId};
use crate::lifecycle::power;
use crate::observed::view::{MachinePhase, MachineView};
use crate::scale_down::candidates::{self, PodsToMove, RemovalCandidate};
use crate::scale_down::consolidate;
use crate::scale_down::drain_rules::{self, Budgets, DrainRules};
use crate::scale_down::given_up;
use crate::scale_down::rehearsal;
use crate::scale_down::shrink;
use crate::simulation::pack;
use crate::simulation::world::{NodeOrigin, SimCluster};
use model::action::Reason;
use model::cluster::{Node, ObjectKey};
use model::reasons::{FateReason, Kept, Removed, WaitsFor};
use model::report::{Hold, NodeVerdict, PodVerdict, Scope};
use model::story::{MachineFacts, MachineParts, NodeStory, PodFate, PodOutcome};

use super::successors::{Fates, tell_terminating};
use super::{Asked, pod};

/// Tells of a node, or of a machine without one.
pub(super) fn tell(asked: Asked<'_>, name: &str) -> Option<NodeStory> {
    let mut story = tell_as_it_is(asked, name)?;
    let without = story.verdict.as_ref().and_then(pod_without_machine);
    let pod = without.and_then(|key| asked.snapshot.cluster.pods.get_key_value(key));
    if let Some((key, pod)) = pod {
        story.changes = pod::tell(asked, key, pod).changes;
    }
    Some(story)
}

/// What becomes of a pod when its node goes.
pub(super) fn find_fate(asked: Asked<'_>, name: &str, pod: &ObjectKey) -> Option<PodFate> {
    let mut fates = tell_as_it_is(asked, name)?.pods.into_iter();
    fates.find(|fate| fate.pod == *pod)
}

/// The pod for which no machine can be made, by the verdict on its node: the node is to go and waits for such a machine.
pub(super) fn pod_without_machine(verdict: &NodeVerdict) -> Option<&ObjectKey> {
    let NodeVerdict::Kept {
        why: Kept::GivenUp { waits, .. },
        ..
    } = verdict
    else {
        return None;
    };
    match &**waits {
        WaitsFor::NoMachine { pod, .. } => pod.as_ref(),
        _ => None,
    }
}

/// Tells of a node, or of a machine without one, and not what would have to change.
fn tell_as_it_is(asked: Asked<'_>, name: &str) -> Option<NodeStory> {
    let mut turn = super::begin(asked);
    let node = asked.snapshot.cluster.nodes.get_key_value(name);
    let machine = turn
        .view
        .machine_of_node(name)
        .or(turn.view.machines.get(name));
    let (full_name, told) = match (node, machine) {
        (Some((node_name, _)), machine) => (
            node_name.clone(),
            machine.map(|machine| facts(&turn, machine)),
        ),
        (None, Some(machine)) => (machine.name.clone(), Some(facts(&turn, machine))),
        (None, None) => return None,
    };
    let choices = super::choices(&turn);
    let (mut world, mut evacuees) = super::settle(&mut turn, &choices, asked.memory);
    let evacuee = world.by_name.get(name).copied();
    let evacuee = evacuee.and_then(|index| evacuees.take(index)?.ok());
    let report = &asked.decision.report;
    let verdict = report.nodes.get(&full_name).cloned();
    let replacement = verdict.as_ref().and_then(replacement);
    let replacement = replacement.and_then(|coming| turn.view.machines.get(coming));
    // Once there is a node its verdict says it.
    let comes = report.coming.get(&full_name).filter(|_| node.is_none());
    let for_itself = verdict
        .as_ref()
        .is_none_or(|verdict| !goes_otherwise(verdict));
    let unneeded_since = asked.memory.unneeded_since.get(&full_name);
    let unneeded_since = unneeded_since.filter(|_| for_itself);
    Some(NodeStory {
        replacement: replacement.map(|coming| facts(&turn, coming)),
        unneeded_since: unneeded_since.copied(),
        verdict,
        given_up: comes.and_then(|coming| coming.given_up.clone()),
        changes: Vec::new(),
        requested_permille: node.map_or_else(BTreeMap::new, |(node_name, node)| {
            shares(&turn, node_name, node)
        }),
        pods: find_fates(asked, &turn, &mut world, (name, evacuee.as_ref())),
        expected: expected(asked, name),
        holds: shrink_holds(&report.holds),
        node: full_name,
        machine: told,
        regions: asked.policy.regions.len(),
    })
}

/// The machine that takes the place of a node, by the decision's verdict on the node.
fn replacement(verdict: &NodeVerdict) -> Option<&Arc<str>> {
    match verdict {
        NodeVerdict::Replaced { by, .. } => Some(by),
        NodeVerdict::Kept {
            why: Kept::GivenUp { waits, .. },
            ..
        } => match &**waits {
            WaitsFor::MachineComing { machine } => Some(machine),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a node is to go for another reason than that it has been unneeded for long enough.
fn goes_otherwise(verdict: &NodeVerdict) -> bool {
    match verdict {
        NodeVerdict::Replaced { .. } => true,
        NodeVerdict::Kept { why, .. } => match why {
            // It may be unneeded, too, and go for that before its turn comes.
            Kept::GivenUp { waits, .. } => {
                !matches!(&**waits, WaitsFor::Other { kept } if given_up::goes_by_itself(kept))
            }
            _ => false,
        },
        NodeVerdict::Leaving { why, .. } => match why {
            Removed::UnderWay { .. } => true,
            Removed::Planned { reason } => {
                !matches!(reason, Reason::Unneeded { .. } | Reason::Unready { .. })
            }
        },
        NodeVerdict::NotAutoscaled | NodeVerdict::Unread { .. } => false,
    }
}

fn facts(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> MachineFacts {
    let mark = &machine.seen.mark;
    let mut standing = tell_phase(&machine.phase);
    if let Some(until) = machine.kept {
        standing = format!("{standing}, and is kept until {until} to be looked into");
    }
    if let Some(off) = power::off(turn, machine) {
        standing = format!("{standing}, but {off}");
    }
    let differs = machine.seen.vm.iter().flat_map(|vm| &vm.differs);
    let differs: Vec<String> = differs.map(ToString::to_string).collect();
    if !differs.is_empty() {
        standing = format!("{standing}; to be updated in place: {}", differs.join("; "));
    }
    let drifted = machine.seen.vm.as_ref().and_then(|vm| vm.drifted.as_ref());
    if let Some(drifted) = drifted.filter(|drifted| !drifted.is_empty()) {
        standing = format!("{standing}; drifted: {}", model::drift::tell(drifted));
    }
    MachineFacts {
        name: machine.name.clone(),
        pool: mark.pool.as_str().into(),
        instance_type: mark.instance_type.as_str().into(),
        region: machine.seen.region.clone(),
        host: machine.seen.host.clone(),
        cpus: mark.cpus.clone(),
        addresses: mark.addresses.clone(),
        vmid: mark.vmid,
        made_of: parts(machine),
        standing,
        made: None,
        made_by: None,
        step: machine.seen.step,
        waits: None,
        failure: machine.seen.failure.clone(),
    }
}

fn parts(machine: &MachineView<'_>) -> MachineParts {
    let mut devices: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    for device in machine.instance_type.iter().flat_map(|kind| &kind.pci) {
        *devices.entry(device.called()).or_default() += 1;
    }
    MachineParts {
        template: machine.seen.mark.template.as_str().into(),
        storages: machine.seen.storages.clone(),
        devices,
    }
}

fn tell_phase(phase: &MachinePhase) -> String {
    match phase {
        MachinePhase::Untouchable(why) => format!("left alone: {why}"),
        MachinePhase::Coming => "on its way up".to_owned(),
        MachinePhase::Overdue => "on its way up for longer than allowed".to_owned(),
        MachinePhase::Failed => "it failed to become a node".to_owned(),
        MachinePhase::Up => "up".to_owned(),
        MachinePhase::Leaving => "being taken down".to_owned(),
        MachinePhase::NoNode => "its Node object is gone".to_owned(),
        MachinePhase::NoVm => "its VM is gone".to_owned(),
    }
}

/// The holds that have to do with removing nodes.
fn shrink_holds(holds: &[Hold]) -> Vec<Hold> {
    let concerns = |hold: &&Hold| hold.scope != Scope::ScaleUp;
    holds.iter().filter(concerns).cloned().collect()
}

/// Thousandths of each allocatable amount that the node's pods request.
fn shares(turn: &DecisionBuilder<'_>, name: &str, node: &Node) -> BTreeMap<Arc<str>, i64> {
    let mut sum = model::resources::Resources::default();
    for (_, pod) in turn.view.pods(name) {
        sum.add(&pod.shape.requests);
    }
    let extended = node.allocatable.extended.keys().map(|resource| &**resource);
    ["cpu", "memory", "ephemeral-storage", "pods"]
        .into_iter()
        .chain(extended)
        .filter_map(|resource| {
            let of = i128::from(node.allocatable.get(resource));
            let share = i128::from(sum.get(resource)).saturating_mul(1000)
                / Some(of).filter(|of| *of > 0)?;
            Some((resource.into(), i64::try_from(share).unwrap_or(i64::MAX)))
        })
        .collect()
}

/// Pending pods that the decision counts on this node or machine.
fn expected(asked: Asked<'_>, name: &str) -> Vec<ObjectKey> {
    let comes = |verdict: &PodVerdict| match verdict {
        PodVerdict::FitsNode { node, .. } => &**node == name,
        PodVerdict::FitsMachine { machine } | PodVerdict::Triggers { machine, .. } => {
            &**machine == name
        }
        _ => false,
    };
    let pods = asked.decision.report.pods.iter();
    pods.filter(|(_, verdict)| comes(verdict))
        .map(|(key, _)| key.clone())
        .collect()
}

/// What would become of every pod of the node if it went now, alone.
fn find_fates<'a>(
    asked: Asked<'a>,
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    (name, evacuee): (&str, Option<&RemovalCandidate<'a>>),
) -> Vec<PodFate> {
    let settings = turn
        .view
        .machine_of_node(name)
        .map_or(&turn.view.policy.scale_down, |machine| {
            shrink::settings(turn, machine)
        });
    let budgets = Budgets::of(&turn.view, &[]);
    let expendable = turn.view.policy.scale_up.expendable_priority;
    let rules = DrainRules {
        settings,
        expendable,
        budgets: &budgets,
        strict: turn
            .view
            .machine_of_node(name)
            .is_some_and(|machine| consolidate::of(machine).is_some()),
        now: turn.now(),
    };
    let mut fates = Fates::new();
    let mut moving: BTreeMap<(ShapeId, Option<VolumeNeed>), Vec<Keyed<'a>>> = BTreeMap::new();
    for (key, pod) in turn.view.pods(name) {
        let outcome = drain_rules::decide_outcome(key, pod, rules);
        let (fate, why) = match outcome {
            drain_rules::DrainOutcome::Stays => (PodOutcome::Stays, None),
            drain_rules::DrainOutcome::Goes => (PodOutcome::Goes, None),
            drain_rules::DrainOutcome::Blocks(block) => (
                PodOutcome::Blocks {
                    reason: block.why.reason(),
                },
                Some(FateReason::Blocked {
                    blocked: Box::new(block.why),
                }),
            ),
            drain_rules::DrainOutcome::Moves => {
                let id = world.intern(&key.namespace, &pod.shape);
                let need = turn.view.need(key, pod);
                moving.entry((id, need)).or_default().push((*key, *pod));
                continue;
            }
        };
        fates.insert((*key).clone(), (fate, why));
    }
    remove_others(asked, world, name);
    land_elsewhere(world, name, moving, &mut fates);
    if let Some(evacuee) = evacuee {
        land_as_evacuated(evacuee, &mut fates);
    }
    land_as_decided(asked, turn, name, &mut fates);
    tell_terminating(&asked.snapshot.cluster, &mut fates);
    fates
        .into_iter()
        .map(|(pod, (fate, why))| PodFate { pod, fate, why })
        .collect()
}

/// The other nodes that the decision takes down are gone, and their pods where they are to land.
fn remove_others<'a>(asked: Asked<'a>, world: &mut SimCluster<'a>, name: &str) {
    for (leaving, verdict) in &asked.decision.report.nodes {
        let NodeVerdict::Leaving { moves, .. } = verdict else {
            continue;
        };
        if **leaving == *name {
            continue;
        }
        let Some(node) = world.by_name.get(leaving).copied() else {
            continue;
        };
        // Of a host that a person evacuates they are gone already, and their pods have their places.
        if world.nodes[node].closed {
            continue;
        }
        world.close(node);
        for (moved, to) in moves {
            let pod = asked.snapshot.cluster.pods.get_key_value(moved);
            let target = world.by_name.get(to).copied();
            if let (Some((key, pod)), Some(target)) = (pod, target) {
                let shape = world.intern(&key.namespace, &pod.shape);
                world.put(target, shape, 1, false);
            }
        }
    }
}

/// A person evacuates the node's host: its pods have their places already, or wait for a machine.
fn land_as_evacuated(evacuee: &RemovalCandidate<'_>, fates: &mut Fates) {
    let missing = evacuee.mode.missing();
    for (key, (fate, why)) in fates {
        if !matches!(fate, PodOutcome::Moves { .. } | PodOutcome::Unplaced) {
            continue;
        }
        if let Some(to) = evacuee.landing.get(key) {
            (*fate, *why) = (PodOutcome::Moves { to: to.clone() }, None);
        } else if let Some(keep) = missing {
            let kept = Box::new(keep.why.clone());
            (*fate, *why) = (PodOutcome::Unplaced, Some(FateReason::Unplaced { kept }));
        }
    }
}

/// Where the decision takes the node down, or has a machine made in its place, it says where the pods go.
fn land_as_decided(asked: Asked<'_>, turn: &DecisionBuilder<'_>, name: &str, fates: &mut Fates) {
    let verdict = asked.decision.report.nodes.get(name);
    let (moves, by) = match verdict {
        Some(NodeVerdict::Leaving {
            why: Removed::UnderWay { .. },
            ..
        }) => return land_under_way(asked, turn, fates),
        Some(NodeVerdict::Leaving { moves, .. }) => (moves, None),
        Some(NodeVerdict::Replaced { by, moves, .. }) => (moves, Some(by)),
        Some(NodeVerdict::Kept {
            why: Kept::GivenUp { waits, .. },
            ..
        }) => return land_as_booked(asked, waits, fates),
        _ => return,
    };
    for (key, (fate, why)) in fates {
        if !matches!(fate, PodOutcome::Moves { .. } | PodOutcome::Unplaced) {
            continue;
        }
        if let Some(to) = moves.get(key) {
            (*fate, *why) = (PodOutcome::Moves { to: to.clone() }, None);
        } else if let Some(by) = by {
            let once = Some(FateReason::OnceMachineWorks);
            (*fate, *why) = (PodOutcome::Moves { to: by.clone() }, once);
        }
    }
}

/// The removal is under way: the decision gave every pod that is left there another place before it placed any other.
fn land_under_way(asked: Asked<'_>, turn: &DecisionBuilder<'_>, fates: &mut Fates) {
    let once = || Some(FateReason::OnceMachineWorks);
    for (key, (fate, why)) in fates {
        if !matches!(fate, PodOutcome::Moves { .. } | PodOutcome::Unplaced) {
            continue;
        }
        let (to, reason) = match turn.bound_pods.get(key) {
            Some(PodVerdict::FitsNode { node, .. }) => (Some(node), None),
            Some(PodVerdict::FitsMachine { machine }) => (Some(machine), once()),
            _ => (find_booked(asked, key), once()),
        };
        if let Some(to) = to {
            (*fate, *why) = (PodOutcome::Moves { to: to.clone() }, reason);
        }
    }
}

/// The machine, no node yet, that a pod is booked on.
fn find_booked<'a>(asked: Asked<'a>, key: &ObjectKey) -> Option<&'a Arc<str>> {
    let cluster = &asked.snapshot.cluster;
    let pod = cluster.pods.get(key)?;
    let mut bookings = asked.decision.memory.bookings.iter();
    let booked =
        bookings.find(|(name, pods)| pods.contains(&pod.uid) && !cluster.nodes.contains_key(*name));
    booked.map(|(machine, _)| machine)
}

/// Where a machine comes in the place of a node that is given up, the pods that are booked on it move there.
fn land_as_booked(asked: Asked<'_>, waits: &WaitsFor, fates: &mut Fates) {
    let (WaitsFor::MachineComing { machine } | WaitsFor::MachinePlanned { machine }) = waits else {
        return;
    };
    let booked = asked.decision.memory.bookings.get(machine);
    for (key, (fate, why)) in fates {
        let pod = asked.snapshot.cluster.pods.get(key);
        let comes = pod.is_some_and(|pod| booked.is_some_and(|pods| pods.contains(&pod.uid)));
        if comes && matches!(fate, PodOutcome::Unplaced) {
            let to = machine.clone();
            (*fate, *why) = (PodOutcome::Moves { to }, Some(FateReason::OnceMachineWorks));
        }
    }
}

/// Puts the pods that move elsewhere.
fn land_elsewhere<'a>(
    world: &mut SimCluster<'a>,
    name: &str,
    moving: BTreeMap<(ShapeId, Option<VolumeNeed>), Vec<Keyed<'a>>>,
    fates: &mut Fates,
) {
    if let Some(node) = world.by_name.get(name).copied() {
        world.close(node);
    }
    let open: Vec<NodeIndex> = world
        .nodes
        .indexes()
        .filter(|index| {
            let node = &world.nodes[*index];
            node.ready && !node.closed && node.origin == NodeOrigin::Node
        })
        .collect();
    for mut load in list_pods_to_move(world, name, moving) {
        let (shape, need) = (load.shape, load.need.clone());
        let wanted = load.pods.len().max(load.new_pods);
        let mut undo = Vec::new();
        let placed = pack::place_with_undo(world, shape, need.as_deref(), wanted, &open, &mut undo);
        let mut left = std::mem::take(&mut load.pods).into_iter();
        for (node, count) in placed {
            for (key, _) in left.by_ref().take(count) {
                let to = world.nodes[node].name.clone();
                fates.insert(key.clone(), (PodOutcome::Moves { to }, None));
            }
        }
        load.pods = left.collect();
        for (key, _) in &load.pods {
            let kept = Box::new(rehearsal::no_place(world, &load, Some(key), &open).why);
            let why = Some(FateReason::Unplaced { kept });
            fates.insert((*key).clone(), (PodOutcome::Unplaced, why));
        }
    }
}

/// What needs another place, in the order that scale-down tries it: pending pods that are to come here too.
fn list_pods_to_move<'a>(
    world: &SimCluster<'a>,
    name: &str,
    moving: BTreeMap<(ShapeId, Option<VolumeNeed>), Vec<Keyed<'a>>>,
) -> Vec<PodsToMove<'a>> {
    let node = world.by_name.get(name).map(|node| &world.nodes[*node]);
    let new_pods = node.into_iter().flat_map(|node| &node.new_pods);
    let new_pods = new_pods.map(|(shape, need, new_pods)| PodsToMove {
        shape: *shape,
        need: need.clone(),
        pods: Vec::new(),
        new_pods: *new_pods,
    });
    let moving = moving.into_iter().map(|((shape, need), pods)| PodsToMove {
        shape,
        need: need.map(Arc::new),
        pods,
        new_pods: 0,
    });
    let mut loads: Vec<PodsToMove<'a>> = moving.chain(new_pods).collect();
    candidates::sort_hardest_first(world, &mut loads);
    loads
}
