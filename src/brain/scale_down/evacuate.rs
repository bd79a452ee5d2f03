//! Nodes that are given up: those of hosts that a person evacuates, and outdated ones of pools that replace them. Which of them
//! can go, and which pods need a machine elsewhere first.
//!
//! It comes before pending pods are placed. A pod on such a node stands where it finds room on another node, and that
//! room is its own from then on; a pod that finds none asks for a machine as a pending one does. A node goes when all of
//! its pods have a place on nodes that work, so that no pod waits for a VM to start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::cluster::{ObjectKey, Pod};
use model::memory::Memory;
use model::reasons::{GivenUp, WaitsFor};

use crate::constraints::shape::Keyed;
use crate::decision::turn::DecisionBuilder;
use crate::index::{NodeIndex, ShapeId};
use crate::observed::view::MachinePhase;
use crate::scale_down::candidates::{self, RemovalCandidate};
use crate::scale_down::consolidate::intents;
use crate::scale_down::drain_rules::Budgets;
use crate::scale_down::evicted;
use crate::scale_down::given_up;
use crate::scale_down::mode::Mode;
use crate::scale_down::node_budgets::NodeBudgets;
use crate::scale_down::outdated::{self, RolloutQueue};
use crate::scale_down::rehearsal::{self, RehearsalUndo};
use crate::scale_down::removals;
use crate::scale_down::shrink::{self, KeepReason};
use crate::simulation::bookings;
use crate::simulation::demand;
use crate::simulation::pack::{self, FitIndex};
use crate::simulation::world::SimCluster;

/// The nodes that are given up, with how each can go, and the pods on them that have no place on other nodes.
#[derive(Debug, Default)]
pub(crate) struct Evacuees<'a> {
    /// By simulated node: how it can go, or why it stays.
    nodes: BTreeMap<NodeIndex, Result<RemovalCandidate<'a>, KeepReason>>,
    /// Pods that run there and find room nowhere else.
    pub(crate) displaced: BTreeMap<&'a ObjectKey, &'a Pod>,
}

impl<'a> Evacuees<'a> {
    /// What was found of a node, once.
    pub(crate) fn take(
        &mut self,
        index: NodeIndex,
    ) -> Option<Result<RemovalCandidate<'a>, KeepReason>> {
        self.nodes.remove(&index)
    }
}

/// Takes nodes that are given up for gone and puts their pods elsewhere, as far as there is room. `before` is the memory that the
/// decision began with.
pub(crate) fn plan<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    before: &'a Memory,
) -> Evacuees<'a> {
    evicted::note(turn);
    let mut evacuees = Evacuees::default();
    let mut regions = turn.view.snapshot.regions.values();
    let evacuates =
        regions.any(|region| region.hosts.values().any(|host| host.evacuated.is_some()));
    let queues = outdated::find(turn);
    if !evacuates && queues.is_empty() {
        return evacuees;
    }
    let budgets = Budgets::of(&turn.view, &shrink::under_way(turn));
    let mut node_budgets = NodeBudgets::of(turn);
    let mut going = Vec::new();
    if evacuates {
        let nodes = &turn.view.snapshot.cluster.nodes;
        for (index, (name, node)) in (0..).map(NodeIndex).zip(nodes) {
            let judged = candidates::judge_evacuee(turn, world, &budgets, (index, name), node);
            let goes = judged.is_some() || goes_later(turn, index);
            let cause = given_up::find_evacuated(turn, index).filter(|_| goes);
            if let Some(cause) = cause {
                turn.given_up.insert(name.clone(), (cause, None));
            }
            match judged.map(|judged| admit(turn, &mut node_budgets, judged)) {
                Some(Ok(candidate)) => going.push(candidate),
                Some(Err(keep)) => {
                    evacuees.nodes.insert(index, Err(keep));
                }
                None => {}
            }
        }
    }
    let budgets = (&budgets, &mut node_budgets);
    let stay = roll(turn, world, budgets, queues, &mut going);
    // All of them first: what leaves one must not be sent to another. Nor to a node that stays there for a reason.
    let mut undo = RehearsalUndo::default();
    for candidate in &going {
        rehearsal::close(world, candidate.index, &mut undo);
    }
    let mut order = rehearsal::destinations(world, &[]);
    order.retain(|index| !evacuees.nodes.contains_key(index));
    let held = hold_room(turn, world, before, &order);
    let mut fit_index = FitIndex::over(&order, world);
    let awaited = list_booked(world, before);
    // A machine that was made in the place of one of them is for the pods of that one.
    going.sort_by_key(|candidate| {
        let mut pods = candidate.pods.iter();
        !pods.any(|(_, pod)| awaited.contains(&pod.uid))
    });
    for mut candidate in going {
        let displaced = move_pods(world, &mut candidate, (&order, &mut fit_index), &mut undo);
        evacuees.displaced.extend(displaced);
        evacuees.nodes.insert(candidate.index, Ok(candidate));
    }
    undo.keep(world);
    for (node, shape) in held {
        world.take(node, shape);
    }
    for (index, keep) in stay {
        evacuees.nodes.entry(index).or_insert(Err(keep));
    }
    evacuees
}

/// The pods, by UID, that have a place on a working node.
fn list_booked<'a>(world: &SimCluster<'_>, before: &'a Memory) -> BTreeSet<&'a Arc<str>> {
    let working = before.bookings.iter().filter(|(name, _)| {
        let node = world.by_name.get(*name);
        node.is_some_and(|node| world.nodes[*node].ready && !world.nodes[*node].closed)
    });
    working.flat_map(|(_, pods)| pods).collect()
}

/// The pods of a node that is given up and stays for now keep the places that they had on the machine that was made for them: another node that
/// is given up would take them, and one more machine would be made.
pub(crate) fn keep_booked(
    turn: &mut DecisionBuilder<'_>,
    candidate: &RemovalCandidate<'_>,
    before: &Memory,
) {
    for (key, pod) in &candidate.pods {
        let Some(node) = candidate.landing.get(key) else {
            continue;
        };
        let had = before.bookings.get(node);
        if had.is_some_and(|pods| pods.contains(&pod.uid)) {
            bookings::keep(turn, node, [*pod]);
        }
    }
}

/// Keeps a node that could go where its pool's own budgets leave nothing: no machine is made in the place of a node that may not go.
fn admit<'a>(
    turn: &DecisionBuilder<'a>,
    node_budgets: &mut NodeBudgets<'a>,
    judged: Result<RemovalCandidate<'a>, KeepReason>,
) -> Result<RemovalCandidate<'a>, KeepReason> {
    let candidate = judged?;
    let Some(machine) = turn.view.machine_at(candidate.index) else {
        return Ok(candidate);
    };
    // One that a machine was made to replace counts as disrupted already, and so does one that is not Ready.
    if intents::find_replacing(turn, candidate.name).is_some() || !shrink::ready(candidate.node) {
        return Ok(candidate);
    }
    let (pool, cause) = (machine.pool_name(), removals::cause_of(&candidate));
    let rules = machine.pool.map_or(&[][..], |policy| &policy.budgets);
    let admitted = node_budgets.admit(pool, rules, cause, 1, turn.now());
    admitted.map_err(|spent| {
        let mut keep = KeepReason::because(spent.why);
        keep.until = spent.until;
        keep
    })?;
    node_budgets.take(pool);
    Ok(candidate)
}

/// Whether a node on an evacuated host goes once something else has come: its machine is on its way up, or its pool is not configured.
fn goes_later(turn: &DecisionBuilder<'_>, index: NodeIndex) -> bool {
    let machine = turn.view.machine_at(index);
    machine.is_some_and(|machine| matches!(machine.phase, MachinePhase::Coming | MachinePhase::Up))
}

/// Puts the pods of a node that is given up on others, as far as there is room; gives those that find none.
fn move_pods<'a>(
    world: &mut SimCluster<'a>,
    candidate: &mut RemovalCandidate<'a>,
    (order, fit_index): (&[NodeIndex], &mut FitIndex),
    undo: &mut RehearsalUndo,
) -> Vec<Keyed<'a>> {
    let mut landing = BTreeMap::new();
    let left = rehearsal::reschedule(world, candidate, fit_index, &mut landing, undo);
    // Rather one that runs there than one that is to come.
    let running = left.iter().find(|left| !left.pods.is_empty());
    let without = running.or(left.first()).map(|left| {
        let pod = left.pods.first().map(|(key, _)| *key);
        Box::new(rehearsal::no_place(world, left.load, pod, order))
    });
    let pods = left.into_iter().flat_map(|left| left.pods).collect();
    if let Mode::Evacuated { missing, .. } | Mode::Outdated { missing, .. } = &mut candidate.mode {
        *missing = without;
    }
    candidate.landing = landing;
    pods
}

/// Holds room on working nodes for the pods of nodes whose removal is under way: pods of the nodes that are given up next do not come
/// there. Otherwise the machine that is made for these would be named for the pod that lost its place. A pod that is still there has its
/// room where it is booked; for one that was evicted it is kept on one of these nodes until its successor has a place. Says which
/// pods were put where. They are taken off again: the first come back by their bookings, and [`evicted::reserve`] puts the others.
fn hold_room<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    before: &'a Memory,
    order: &[NodeIndex],
) -> Vec<(NodeIndex, ShapeId)> {
    let mut held = hold_booked(turn, world);
    let mut fit_index = FitIndex::over(order, world);
    // A successor that kube-scheduler has not tried yet may come there. What it has tried finds no room there.
    let has_come = |pod: &Pod| {
        pod.node.is_some() || pod.nominated.is_some() || pod.unschedulable_since.is_some()
    };
    for pod in evicted::list_awaited(turn, before, has_come) {
        let shape = world.intern(pod.namespace, pod.shape);
        let placed = pack::place(world, shape, None, 1, &mut fit_index);
        held.extend(placed.into_iter().map(|(node, _)| (node, shape)));
    }
    held
}

/// Holds room for pods that are booked on working nodes.
fn hold_booked<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
) -> Vec<(NodeIndex, ShapeId)> {
    let mut places: BTreeMap<&Arc<str>, NodeIndex> = BTreeMap::new();
    for (name, pods) in &turn.memory.bookings {
        let node = world.by_name.get(name).copied();
        let node = node.filter(|node| world.nodes[*node].ready && !world.nodes[*node].closed);
        places.extend(pods.iter().filter_map(|pod| Some((pod, node?))));
    }
    let mut held = Vec::new();
    if places.is_empty() {
        return held;
    }
    for (key, pod) in turn.view.without_place() {
        let node = places.get(&pod.uid).copied();
        let Some(node) = node.filter(|_| demand::displaced(turn, pod)) else {
            continue;
        };
        let shape = world.intern(&key.namespace, &pod.shape);
        let need = turn.view.need(key, pod);
        if pack::hold_at(world, shape, need.as_ref(), node) {
            held.push((node, shape));
        }
    }
    held
}

/// Adds outdated nodes to those that are given up, in each pool as many as its rollout allows at once. Gives those that something
/// keeps; the others of a pool have their turn later.
fn roll<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    (budgets, node_budgets): (&Budgets<'a>, &mut NodeBudgets<'a>),
    queues: BTreeMap<Arc<str>, RolloutQueue>,
    going: &mut Vec<RemovalCandidate<'a>>,
) -> Vec<(NodeIndex, KeepReason)> {
    let mut stay = Vec::new();
    for (pool, queue) in queues {
        let mut room = queue.room;
        let (mut first, mut later) = (queue.leaving, Vec::new());
        for (name, outdated) in queue.nodes {
            let cause = GivenUp::Outdated {
                outdated: outdated.clone(),
            };
            if room == 0 {
                // One whose host is evacuated goes without a turn.
                let machine = turn.view.machine_of_node(&name);
                let has_turn = machine.is_some_and(candidates::may_be_given_up);
                if has_turn && !turn.given_up.contains_key(&name) {
                    later.push((name, cause));
                }
                continue;
            }
            let Some(index) = world.by_name.get(&name).copied() else {
                continue;
            };
            if going.iter().any(|candidate| candidate.index == index) {
                continue;
            }
            let judged = candidates::judge_outdated(turn, world, budgets, index, outdated);
            if judged.is_some() {
                let new = turn.given_up.entry(name.clone());
                new.or_insert((cause, None));
            }
            match judged.map(|judged| admit(turn, node_budgets, judged)) {
                Some(Ok(candidate)) => {
                    room -= 1;
                    first.push(name.clone());
                    turn.outdated.insert(name);
                    going.push(candidate);
                }
                Some(Err(keep)) => stay.push((index, keep)),
                None => {}
            }
        }
        // Each names the one right before it in the queue. Where several go at once its turn may come before that one is gone.
        let (max, mut before) = (queue.max, first.pop());
        for (name, cause) in later {
            let waits = match (queue.backs_off, before.replace(name.clone())) {
                (Some(until), _) => WaitsFor::PoolBackOff {
                    pool: pool.clone(),
                    until,
                },
                (None, Some(after)) => WaitsFor::Turn { after, max },
                (None, None) => continue,
            };
            let new = turn.given_up.entry(name);
            new.or_insert((cause, Some(waits)));
        }
    }
    stay
}
