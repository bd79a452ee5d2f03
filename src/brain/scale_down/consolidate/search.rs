//! Which nodes one cheaper machine could replace.
//!
//! The nodes with the best price per eviction cost come first. The longest run from the head of that list which one
//! machine can replace is looked for, of many nodes by halving; then each node alone. What is found is made only when a
//! second look, a little later, finds the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::trial::{self, ReplacementMachine, ReplacementSearch};
use super::{SECOND_LOOK, quiet};
use crate::decision::turn::DecisionBuilder;
use crate::index::NodeIndex;
use crate::observed::view::MachinePhase;
use crate::scale_down::candidates::RemovalCandidate;
use crate::scale_down::mode::Mode;
use crate::scale_down::removals::{self, RemovalAllowance};
use crate::scale_down::shrink;
use crate::scale_up::limits::LimitTracker;
use crate::simulation::offer::ChoiceList;
use crate::simulation::planned::{CreateReason, PlannedMachines};
use crate::simulation::work;
use crate::simulation::world::SimCluster;
use model::action::{Kind, Reason};
use model::disruption::Cause;
use model::memory::{FoundConsolidation, Replacement};
use model::reasons::{Refused, Replacing, Warning};
use model::report::NodeVerdict;

/// Nodes that one machine replaces at most, as in Karpenter.
const MOST_TOGETHER: usize = 100;
/// Nodes up to which every number of them together is tried: a trial of some costs about as much as one alone.
const FEW_TOGETHER: usize = 16;
/// Nodes that are tried alone in one decision, at most: those that save most per eviction cost.
const MOST_ALONE: usize = 100;

/// Looks for a replacement and plans it when it was found before. `stuck` are the candidates whose
/// pods find no place on what there is, the nodes of `order`; those of `spare` are unneeded, or are to be
/// let be for now.
pub(crate) fn plan<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    choices: &ChoiceList<'a>,
    removals: &RemovalAllowance<'a>,
    stuck: &[RemovalCandidate<'a>],
    (order, spare): (&[NodeIndex], &[NodeIndex]),
) {
    if !turn.holds.may_observe() {
        return;
    }
    let before = turn.memory.consolidation.take();
    let grows = turn
        .plan
        .iter()
        .any(|action| matches!(action.kind, Kind::Create(_)));
    let under_way = turn.memory.replacements.len();
    let most = turn.view.policy.scale_down.max_parallel_drain as usize;
    // What is being made may make room: first things first.
    if grows || under_way >= most {
        return;
    }
    let mut nodes: Vec<&RemovalCandidate<'a>> = Vec::new();
    for candidate in stuck {
        if may_be_replaced(turn, world, removals, candidate) {
            nodes.push(candidate);
        }
    }
    if nodes.is_empty() {
        return;
    }
    let now = turn.now();
    if let Some(before) = before.clone()
        && now.since(before.since) < SECOND_LOOK
    {
        turn.wake_at(before.since + SECOND_LOOK);
        turn.memory.consolidation = Some(before);
        return;
    }
    let limits = LimitTracker::of(turn);
    let mut search = ReplacementSearch {
        choices,
        limits: &limits,
        order,
        spare,
        places: BTreeMap::new(),
        steps_at_begin: world.inter_pod.steps(),
    };
    let found = replace_several(turn, world, &mut search, removals, &nodes)
        .or_else(|| replace_one(turn, world, &mut search, removals, &nodes));
    let what = found
        .as_ref()
        .map(|(replaced, machine)| describe(turn, choices, replaced, machine))
        .unwrap_or_default();
    let same = before.is_some_and(|before| before.what == what);
    match found {
        Some((replaced, machine)) if same => make(turn, world, choices, &replaced, &machine),
        found => {
            turn.memory.consolidation = Some(FoundConsolidation { what, since: now });
            if found.is_some() {
                turn.wake_at(now + SECOND_LOOK);
            }
        }
    }
}

type FoundReplacement<'c, 'a> = (Vec<&'c RemovalCandidate<'a>>, ReplacementMachine);

/// Whether a node may be replaced at all now.
fn may_be_replaced<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &SimCluster<'a>,
    removals: &RemovalAllowance<'a>,
    candidate: &RemovalCandidate<'a>,
) -> bool {
    let Some(machine) = turn.view.machine_of_node(candidate.name) else {
        return false;
    };
    let region = &machine.seen.region;
    let wanted = matches!(candidate.mode, Mode::Consolidate)
        && super::replaces(machine)
        && machine.phase == MachinePhase::Up
        && machine.pool.is_some_and(|pool| !pool.atomic)
        // Its last removal failed: what stood in the way then may do so again.
        && machine.seen.failure.is_none()
        && !turn.memory.unreplaceable.contains_key(candidate.name)
        && !candidate.empty()
        && candidate.loads.iter().all(|load| load.new_pods == 0)
        && !world.nodes[candidate.index].receives
        && turn.holds.may_shrink(region).is_ok();
    if !wanted {
        return false;
    }
    let settings = shrink::settings(turn, machine);
    let due = quiet::since(turn, machine).map(|(_, until)| until);
    let keep = removals::check_age(turn, candidate, settings)
        .and_then(|()| removals.check_node_budgets(turn, machine, Cause::Underused, 1))
        .err();
    let free = keep.is_none() && removals.may_evict(candidate);
    let quiet = due.is_some_and(|due| due <= turn.now());
    for time in due.into_iter().chain(keep.and_then(|keep| keep.until)) {
        turn.wake_at(time);
    }
    free && quiet
}

/// The longest run from the head of the list that one machine can replace: two nodes at least, [`MOST_TOGETHER`] at most. Of few nodes
/// every length is tried from all of them down, for two may be too few to pay for a larger machine and three enough. Of many the
/// length is found by halving, as if no run that works were longer than one that fails.
fn replace_several<'c, 'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    search: &mut ReplacementSearch<'_, 'a>,
    removals: &RemovalAllowance<'a>,
    nodes: &[&'c RemovalCandidate<'a>],
) -> Option<FoundReplacement<'c, 'a>> {
    if nodes.len() <= FEW_TOGETHER {
        return (2..=nodes.len()).rev().find_map(|count| {
            let machine = find_replacement(turn, world, search, removals, &nodes[..count])?;
            Some((nodes[..count].to_vec(), machine))
        });
    }
    let mut found = None;
    let (mut few, mut many) = (2, nodes.len().min(MOST_TOGETHER));
    while few <= many {
        let middle = few + (many - few) / 2;
        let some = &nodes[..middle];
        match find_replacement(turn, world, search, removals, some) {
            Some(machine) => {
                found = Some((some.to_vec(), machine));
                few = middle + 1;
            }
            None => many = middle - 1,
        }
    }
    found
}

fn replace_one<'c, 'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    search: &mut ReplacementSearch<'_, 'a>,
    removals: &RemovalAllowance<'a>,
    nodes: &[&'c RemovalCandidate<'a>],
) -> Option<FoundReplacement<'c, 'a>> {
    nodes.iter().take(MOST_ALONE).find_map(|node| {
        let machine = find_replacement(turn, world, search, removals, &[*node])?;
        Some((vec![*node], machine))
    })
}

/// A trial whose outcome the pools' floors and budgets allow.
fn find_replacement<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    search: &mut ReplacementSearch<'_, 'a>,
    removals: &RemovalAllowance<'a>,
    nodes: &[&RemovalCandidate<'a>],
) -> Option<ReplacementMachine> {
    let mut pools: BTreeMap<&str, u32> = BTreeMap::new();
    for machine in nodes
        .iter()
        .filter_map(|node| turn.view.machine_of_node(node.name))
    {
        let count = pools.entry(machine.pool_name()).or_insert(0);
        *count += 1;
        if removals
            .check_node_budgets(turn, machine, Cause::Underused, *count)
            .is_err()
        {
            return None;
        }
    }
    if work::used_up(turn, world, search.steps_at_begin) {
        return None;
    }
    let replacement = trial::find_replacement(turn, world, search, nodes)?;
    let made = &search.choices[replacement.choice];
    removals
        .keeps_min_and_totals(turn, nodes, made)
        .then_some(replacement)
}

/// What was found, so that a second look can tell whether it is the same: the nodes, since when their
/// pods are the same, and what takes their place where.
fn describe(
    turn: &DecisionBuilder<'_>,
    choices: &ChoiceList<'_>,
    nodes: &[&RemovalCandidate<'_>],
    machine: &ReplacementMachine,
) -> String {
    let choice = &choices[machine.choice];
    let mut text = String::new();
    for node in nodes {
        let settled = turn.memory.settled.get(node.name);
        let since = settled.map_or(0, |settled| settled.since.0);
        let _ = write!(text, "{} {} {since}, ", node.name, node.node.uid);
    }
    let host = &choice.offers[machine.offer].host;
    let _ = write!(text, "by {} on {host} at {}", choice.label, choice.price);
    text
}

/// Says that a replacement is not made.
fn build_warning(refused: Refused) -> Warning {
    Warning::NotMade {
        replacement: true,
        refused: Box::new(refused),
    }
}

/// Plans the machine, and remembers what it replaces.
fn make<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    choices: &ChoiceList<'a>,
    nodes: &[&RemovalCandidate<'a>],
    machine: &ReplacementMachine,
) {
    let choice = &choices[machine.choice];
    let mut planned = PlannedMachines::begin();
    let limits = LimitTracker::of(turn);
    if let Err(why) = limits.addresses_admit(choice) {
        return turn.warn(build_warning(why.clone()));
    }
    let vmid = limits.vmid(turn, &choice.policy.region);
    let (at, reason) = ((machine.choice, machine.offer), CreateReason::Pods);
    let made = vmid.and_then(|vmid| planned.add(turn, world, choices, at, vmid, reason));
    if made.is_none() {
        return turn.warn(build_warning(match vmid {
            None => Refused::NoFreeVmid,
            Some(_) => Refused::NoFreeName,
        }));
    }
    let mut storages = limits.storage_answers();
    planned.finish(turn, choices, |ways| storages.of(ways), |_| &[]);
    let names: Vec<Arc<str>> = nodes.iter().map(|node| node.name.clone()).collect();
    let max_view_age = turn.view.policy.scale_down.max_view_age;
    let now = turn.now();
    let Some(action) = turn.plan.last_mut() else {
        return;
    };
    action.reason = Reason::Replaces {
        nodes: names.clone(),
        pods: machine.pods.clone(),
        saving: machine.saving,
    };
    let precondition = &mut action.precondition;
    precondition.max_view_age = precondition.max_view_age.min(max_view_age);
    // Any other pod on these nodes means that one came in between.
    let pods = nodes.iter().flat_map(|node| &node.pods);
    let pods: BTreeSet<_> = pods.map(|(key, _)| (*key).clone()).collect();
    precondition.pods = pods.into_iter().collect();
    precondition.landing.clone_from(&machine.moves);
    let name = action.target.machine.clone();
    let why = Replacing::Planned {
        by: name.clone(),
        offer: choice.label.clone(),
        nodes: names,
        saving: machine.saving,
    };
    let uids = nodes.iter();
    let uids = uids.map(|node| (node.name.clone(), node.node.uid.clone()));
    turn.memory.replacements.insert(
        name.clone(),
        Replacement {
            nodes: uids.collect(),
            gone: BTreeSet::new(),
            planned: now,
            saving: machine.saving,
        },
    );
    report(turn, nodes, machine, (&name, &why));
}

/// Says of each node that the machine `by` replaces it, and where its pods go.
fn report(
    turn: &mut DecisionBuilder<'_>,
    nodes: &[&RemovalCandidate<'_>],
    machine: &ReplacementMachine,
    (by, why): (&Arc<str>, &Replacing),
) {
    for node in nodes {
        let here = |(key, _): &(&model::cluster::ObjectKey, &Arc<str>)| {
            node.pods.iter().any(|(pod, _)| pod == key)
        };
        let moves = machine.moves.iter().filter(here);
        let verdict = NodeVerdict::Replaced {
            by: by.clone(),
            why: why.clone(),
            moves: moves.map(|(key, to)| (key.clone(), to.clone())).collect(),
            others: Arc::new(machine.others.clone()),
        };
        turn.report.nodes.insert(node.name.clone(), verdict);
    }
}
