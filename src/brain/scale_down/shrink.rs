//! Which nodes go: unneeded or unready for long enough, allowed to go, and with a place for every pod.
//!
//! Everything is simulated in one world: a node that is taken for removed is gone from it, its pods
//! stand elsewhere, and the next candidate sees that. Source: cluster-autoscaler's `core/scaledown`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::action::{Kind, Precondition, Reason};
use model::cluster::{Node, ObjectKey, ReadyStatus};
use model::memory::Memory;
use model::policy::ScaleDown;
use model::reasons::{Aborted, Kept, Removed};
use model::report::NodeVerdict;
use model::time::Time;

use crate::decision::turn::{self, DecisionBuilder};
use crate::index::{IndexVec, NodeIndex};
use crate::lifecycle::power;
use crate::observed::view::{MachinePhase, MachineView};
use crate::scale_down::candidates::{self, RemovalCandidate};
use crate::scale_down::consolidate::{exchange, intents, quiet, search, trial};
use crate::scale_down::drain_rules::Budgets;
use crate::scale_down::evacuate::{self, Evacuees};
use crate::scale_down::evicted;
use crate::scale_down::given_up;
use crate::scale_down::mode::Mode;
use crate::scale_down::rehearsal::{self, RehearsalUndo};
use crate::scale_down::removal_groups::{self, GroupKind, RemovalGroup};
use crate::scale_down::removals::RemovalAllowance;
use crate::scale_down::surplus;
use crate::simulation::bookings;
use crate::simulation::offer::ChoiceList;
use crate::simulation::pack::FitIndex;
use crate::simulation::work;
use crate::simulation::world::SimCluster;

/// Why a node stays, which pod blocks, and when to look again.
#[derive(Clone, Debug)]
pub(crate) struct KeepReason {
    pub(crate) why: Kept,
    pub(crate) pod: Option<ObjectKey>,
    pub(crate) until: Option<Time>,
}

impl KeepReason {
    pub(crate) fn because(why: Kept) -> KeepReason {
        KeepReason {
            why,
            pod: None,
            until: None,
        }
    }

    pub(crate) fn until(mut self, until: Time) -> KeepReason {
        self.until = Some(until);
        self
    }

    pub(crate) fn pod(mut self, pod: &ObjectKey) -> KeepReason {
        self.pod = Some(pod.clone());
        self
    }
}

/// Plans removals and replacements, ends given-up ones, and gives every node its verdict.
pub(crate) fn plan<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    choices: &ChoiceList<'a>,
    before: &'a Memory,
    evacuees: Evacuees<'a>,
) {
    note_failures(turn);
    quiet::note(turn);
    intents::tidy(turn);
    let leaving = under_way(turn);
    let budgets = Budgets::of(&turn.view, &leaving);
    let (mut candidates, kept) = candidates::find(turn, world, &budgets, evacuees);
    stay_all(turn, kept);
    candidates::sort(&mut candidates, turn);
    let destinations = rehearsal::destinations(world, &candidates);
    evicted::reserve(turn, world, before, &destinations);
    let (groups, kept_together) = removal_groups::group_nodes(turn, candidates);
    stay_all(turn, kept_together);
    let mut rehearsals = Rehearsals::begin(turn, world, destinations);
    let (mut unneeded, mut stuck) = (IndexVec::default(), Vec::new());
    for group in groups {
        match rehearsals.attempt(turn, world, group) {
            Ok(group) => {
                unneeded.push(group);
            }
            Err(refused) => {
                for (candidate, keep) in refused.0 {
                    stay(turn, candidate.name, keep);
                    stuck.push(candidate);
                }
            }
        }
    }
    let stuck = exchange::plan(turn, world, &mut rehearsals, &mut unneeded, stuck);
    remember(turn, &unneeded);
    let mut removals = RemovalAllowance::begin(turn, budgets, &leaving);
    // Those that may need more evictions at once than are allowed come last.
    unneeded.sort_by_key(|group| group.nodes.iter().any(|candidate| candidate.risky));
    let (order, spare) = rehearsals.places(&unneeded);
    for group in unneeded {
        dismiss(turn, &mut removals, group, before);
    }
    search::plan(turn, world, choices, &removals, &stuck, (&order, &spare));
    release(turn);
    given_up::tell(turn);
}

/// Lets a group go if it may go now. Nodes that a machine replaces all have a place, so that they may
/// follow one another.
fn dismiss<'a>(
    turn: &mut DecisionBuilder<'a>,
    removals: &mut RemovalAllowance<'a>,
    group: RemovalGroup<'a>,
    before: &Memory,
) {
    let groups = match group.kind {
        GroupKind::Machine(_) => group.nodes.into_iter().map(RemovalGroup::alone).collect(),
        GroupKind::None | GroupKind::Pool(_) => vec![group],
    };
    for part in groups {
        match removals.admit(turn, &part) {
            Ok(reasons) => {
                for (candidate, reason) in part.nodes.into_iter().zip(reasons) {
                    intents::goes(turn, candidate.name, &reason);
                    remove(turn, candidate, reason);
                }
            }
            Err(kept) => {
                for candidate in part.nodes.iter().filter(|node| node.mode.gives_up()) {
                    evacuate::keep_booked(turn, candidate, before);
                }
                stay_all(turn, kept);
            }
        }
    }
}

fn stay_all(turn: &mut DecisionBuilder<'_>, kept: Vec<(Arc<str>, KeepReason)>) {
    for (name, keep) in kept {
        stay(turn, &name, keep);
    }
}

/// Rehearsals one after the other in one world: the next sees what the last one left.
pub(crate) struct Rehearsals {
    order: Vec<NodeIndex>,
    /// The nodes of `order` as a fit index, for pods of nodes that go by other rules than consolidation.
    fit_index: FitIndex,
    /// The nodes of `order` without the restless, as a fit index, for consolidation.
    quiet: FitIndex,
    /// The nodes of `quiet` in the order of their names, for [`rehearsal::is_order_independent`].
    named: FitIndex,
    /// Nodes on which something came or went lately: consolidation sends nothing there.
    restless: BTreeSet<NodeIndex>,
    /// Nodes above a pool's `max`.
    surplus: BTreeMap<Arc<str>, u32>,
    /// How many nodes may become unneeded that were not before.
    newcomers: u64,
    /// Work steps that this decision had made when the rehearsals began.
    steps_at_begin: u64,
}

/// Candidates that stay, and why.
pub(crate) struct NotRemoved<'a>(pub(crate) Vec<(RemovalCandidate<'a>, KeepReason)>);

impl Rehearsals {
    fn begin(
        turn: &mut DecisionBuilder<'_>,
        world: &SimCluster<'_>,
        order: Vec<NodeIndex>,
    ) -> Rehearsals {
        let restless: BTreeSet<NodeIndex> = order
            .iter()
            .copied()
            .filter(|node| quiet::is_restless(turn, *node))
            .collect();
        let at_rest = order
            .iter()
            .copied()
            .filter(|node| !restless.contains(node));
        let at_rest: Vec<NodeIndex> = at_rest.collect();
        Rehearsals {
            fit_index: FitIndex::indexed(&order, world),
            quiet: FitIndex::indexed(&at_rest, world),
            named: FitIndex::indexed(&rehearsal::by_name(world, at_rest), world),
            order,
            restless,
            surplus: surplus::by_pool(turn),
            newcomers: count_newcomers_allowed(turn),
            steps_at_begin: world.inter_pod.steps(),
        }
    }

    /// These places have more free than before, or are open again.
    pub(crate) fn raise(&mut self, world: &SimCluster<'_>, nodes: &[NodeIndex]) {
        for fit_index in [&mut self.fit_index, &mut self.quiet, &mut self.named] {
            fit_index.lift(nodes, world);
        }
    }

    /// Where consolidation may send pods; and the nodes where it may not for now, or that are unneeded.
    fn places(self, unneeded: &[RemovalGroup<'_>]) -> (Vec<NodeIndex>, Vec<NodeIndex>) {
        let restless = self.restless;
        let order = self.order.into_iter();
        let order = order.filter(|node| !restless.contains(node)).collect();
        let unneeded = unneeded.iter().flat_map(|group| &group.nodes);
        let mut spare: Vec<NodeIndex> = unneeded.map(|candidate| candidate.index).collect();
        spare.extend(restless);
        (order, spare)
    }

    /// Takes the nodes of a group for gone and puts their pods elsewhere; undoes it all when one pod
    /// finds no place.
    pub(crate) fn attempt<'a>(
        &mut self,
        turn: &mut DecisionBuilder<'a>,
        world: &mut SimCluster<'a>,
        mut group: RemovalGroup<'a>,
    ) -> Result<RemovalGroup<'a>, NotRemoved<'a>> {
        if let Some(refused) = self.refuse(turn, world, &mut group) {
            return Err(refused);
        }
        let mut undo = RehearsalUndo::default();
        for node in &group.nodes {
            rehearsal::close(world, node.index, &mut undo);
        }
        let mut failed = None;
        for index in 0..group.nodes.len() {
            match self.reschedule(world, &mut group.nodes[index], &mut undo) {
                Ok(()) => {}
                Err(keep) => {
                    failed = Some((index, keep));
                    break;
                }
            }
        }
        let Some((at, keep)) = failed else {
            undo.keep(world);
            self.count(turn, &group);
            return Ok(group);
        };
        let touched = undo.roll_back(world);
        self.raise(world, &touched);
        let (name, why) = (group.nodes[at].name.clone(), keep.why.clone());
        let kind = group.kind;
        let nodes = group.nodes.into_iter().enumerate();
        Err(NotRemoved(
            nodes
                .map(|(index, mut candidate)| {
                    candidate.landing.clear();
                    let keep = if index == at {
                        keep.clone()
                    } else {
                        kind.keep(&name, &why)
                    };
                    (candidate, keep)
                })
                .collect(),
        ))
    }

    /// Why a group is not even tried.
    fn refuse<'a>(
        &self,
        turn: &DecisionBuilder<'a>,
        world: &SimCluster<'a>,
        group: &mut RemovalGroup<'a>,
    ) -> Option<NotRemoved<'a>> {
        let pool = pool_of(turn, group);
        let surplus = self.surplus.get(&pool).copied().unwrap_or(0);
        let enough = group
            .nodes
            .iter()
            .find_map(|node| node.mode.fallback().filter(|_| surplus == 0));
        let keep = match enough {
            Some(keep) => keep.clone(),
            None if work::used_up(turn, world, self.steps_at_begin) => {
                KeepReason::because(Kept::WorkUsedUp)
            }
            None if self.newcomers == 0 && is_newcomer(turn, group) => {
                KeepReason::because(Kept::EnoughUnneeded)
                    .until(turn.now() + turn.view.policy.scale_down.scan_interval)
            }
            None => return None,
        };
        let nodes = std::mem::take(&mut group.nodes).into_iter();
        Some(NotRemoved(
            nodes.map(|candidate| (candidate, keep.clone())).collect(),
        ))
    }

    fn reschedule<'a>(
        &mut self,
        world: &mut SimCluster<'a>,
        candidate: &mut RemovalCandidate<'a>,
        undo: &mut RehearsalUndo,
    ) -> Result<(), KeepReason> {
        if candidate.mode.gives_up() {
            let missing = candidate.mode.missing();
            return missing.map_or(Ok(()), |keep| Err(keep.clone()));
        }
        if world.nodes[candidate.index].receives {
            return Err(KeepReason::because(Kept::PodsMoveHere));
        }
        if candidate.empty() {
            return Ok(());
        }
        if matches!(candidate.mode, Mode::Consolidate)
            && let Some((key, domain)) = trial::find_lone_domains(world, candidate)
                .into_iter()
                .next()
        {
            return Err(KeepReason::because(Kept::LastOfDomain { key, domain }));
        }
        let mut landing = BTreeMap::new();
        let (consolidates, first) = match &candidate.mode {
            Mode::Consolidate => (true, None),
            Mode::Replaced { by, .. } => (true, world.by_name.get(by).copied()),
            Mode::Unneeded
            | Mode::AboveMax { .. }
            | Mode::Evacuated { .. }
            | Mode::Outdated { .. } => (false, None),
        };
        let (order_independent, unplaced) = match (consolidates, first) {
            (false, _) => {
                let fit_index = &mut self.fit_index;
                let left = rehearsal::reschedule(world, candidate, fit_index, &mut landing, undo);
                (true, left)
            }
            (true, None) => {
                let order_independent =
                    rehearsal::is_order_independent(world, &[candidate], &mut self.named);
                let fit_index = &mut self.quiet;
                let left = rehearsal::reschedule(world, candidate, fit_index, &mut landing, undo);
                (order_independent, left)
            }
            (true, Some(_)) => {
                let open = rehearsal::open(world, &self.order, &BTreeSet::new(), first);
                let mut fit_index = FitIndex::indexed(&open, world);
                let order_independent =
                    rehearsal::is_order_independent(world, &[candidate], &mut fit_index);
                let left =
                    rehearsal::reschedule(world, candidate, &mut fit_index, &mut landing, undo);
                (order_independent, left)
            }
        };
        if let Some(left) = unplaced.first() {
            let open = rehearsal::open(world, &self.order, &BTreeSet::new(), first);
            let pod = left.pods.first().map(|(key, _)| *key);
            return Err(rehearsal::no_place(world, left.load, pod, &open));
        }
        if !order_independent {
            return Err(KeepReason::because(Kept::OneOrderOnly));
        }
        candidate.landing = landing;
        Ok(())
    }

    /// Counts a group that works out.
    fn count(&mut self, turn: &DecisionBuilder<'_>, group: &RemovalGroup<'_>) {
        if is_newcomer(turn, group) {
            self.newcomers = self.newcomers.saturating_sub(1);
        }
        if let Some(surplus) = self.surplus.get_mut(&pool_of(turn, group)) {
            let nodes = u32::try_from(group.nodes.len()).unwrap_or(u32::MAX);
            *surplus = surplus.saturating_sub(nodes);
        }
    }
}

fn pool_of(turn: &DecisionBuilder<'_>, group: &RemovalGroup<'_>) -> Arc<str> {
    group
        .nodes
        .first()
        .and_then(|node| turn.view.machine_of_node(node.name))
        .map_or_else(|| "".into(), |machine| machine.pool_name().into())
}

/// How many nodes may become unneeded now that were not before: no more than can be removed by the
/// time they may go, so that timers do not run for nodes that could be needed by then.
///
/// Source: cluster-autoscaler's `unneededNodesLimit`, `min(unneeded + 2N, N·U/I + N)`, never below 2N.
fn count_newcomers_allowed(turn: &DecisionBuilder<'_>) -> u64 {
    let settings = &turn.view.policy.scale_down;
    let known = turn.memory.unneeded_since.len() as u64;
    let parallel = u64::from(settings.max_parallel);
    let wait = u64::try_from(settings.unneeded_time.0).unwrap_or(0);
    let interval = u64::try_from(settings.scan_interval.0).unwrap_or(0).max(1);
    let loops = parallel
        .saturating_mul(wait / interval)
        .saturating_add(parallel);
    let limit = loops
        .min(known.saturating_add(2 * parallel))
        .max(2 * parallel);
    limit.saturating_sub(known)
}

/// Whether a group takes one of the places of those that become unneeded: not what is unneeded already,
/// and not what goes together.
fn is_newcomer(turn: &DecisionBuilder<'_>, group: &RemovalGroup<'_>) -> bool {
    group.kind == GroupKind::None
        && group.nodes.iter().any(|node| {
            !turn.memory.unneeded_since.contains_key(node.name) && !node.mode.gives_up()
        })
}

/// Failed removals start their own delay.
fn note_failures(turn: &mut DecisionBuilder<'_>) {
    use model::region::Step;
    let failed = turn
        .view
        .machines
        .values()
        .filter_map(|machine| machine.seen.failure.as_ref())
        .filter(|failure| failure.step > Step::Done)
        .map(|failure| failure.at.min(turn.view.now))
        .max();
    turn.memory.last_scale_down_failure = turn.memory.last_scale_down_failure.max(failed);
    let removing = turn
        .view
        .machines
        .values()
        .any(|machine| machine.phase == MachinePhase::Leaving && machine.busy());
    if removing && turn.view.policy.scale_down.delay_after_delete > model::time::Span::ZERO {
        turn.memory.last_scale_down = Some(turn.view.now);
    }
}

/// Nodes whose removal is under way, those excepted that are decided on anew.
pub(crate) fn under_way<'a>(turn: &DecisionBuilder<'a>) -> Vec<&'a str> {
    turn.view
        .machines
        .values()
        .filter(|machine| is_under_way(machine))
        .filter_map(|machine| machine.node.map(|(name, _)| &**name))
        .collect()
}

/// Whether the removal of a machine is under way, and nothing is decided on it anew.
fn is_under_way(machine: &MachineView<'_>) -> bool {
    machine.phase == MachinePhase::Leaving && !machine.resumable()
}

/// Timers run as long as a node stays unneeded without a gap; the oldest time wins. On a view that
/// is not good nothing is known, and nothing changes; nor for nodes of a region that was not read yet after a start. Those of nodes
/// whose removal is under way are kept apart.
fn remember(turn: &mut DecisionBuilder<'_>, unneeded: &[RemovalGroup<'_>]) {
    if !turn.holds.may_observe() {
        return;
    }
    let now = turn.now();
    let mut before = std::mem::take(&mut turn.memory.unneeded_since);
    before.append(&mut turn.memory.unneeded_before_removal);
    for candidate in unneeded.iter().flat_map(|group| &group.nodes) {
        let since = before.get(candidate.name).copied().unwrap_or(now);
        // One whose removal failed or was given up waits as long as any other.
        let machine = turn.view.machine_of_node(candidate.name);
        let failed = machine.and_then(candidates::last_failure);
        let since = failed.map_or(since, |failure| since.max(failure.at.min(now)));
        turn.memory
            .unneeded_since
            .insert(candidate.name.clone(), since);
    }
    let nodes = &turn.view.snapshot.cluster.nodes;
    for (name, since) in before {
        let machine = turn.view.machine_of_node(&name);
        let memory = &mut turn.memory;
        if !nodes.contains_key(&name) {
            continue;
        }
        if machine.is_some_and(is_under_way) {
            memory.unneeded_before_removal.insert(name, since);
        } else if turn.holds.in_the_dark(machine) {
            memory.unneeded_since.entry(name).or_insert(since);
        }
    }
}

fn remove(turn: &mut DecisionBuilder<'_>, candidate: RemovalCandidate<'_>, reason: Reason) {
    let max_view_age = turn.view.policy.scale_down.max_view_age;
    let Some(machine) = turn.view.machine_of_node(candidate.name) else {
        return;
    };
    let precondition = Precondition {
        pods: candidate
            .pods
            .iter()
            .map(|(key, _)| (*key).clone())
            .collect(),
        landing: candidate.landing,
        ..turn::precondition(machine, max_view_age)
    };
    let target = turn::target(machine);
    for (key, pod) in &candidate.pods {
        if let Some(node) = precondition.landing.get(key) {
            bookings::keep(turn, node, [*pod]);
        }
    }
    turn.report.nodes.insert(
        candidate.name.clone(),
        NodeVerdict::Leaving {
            why: Removed::Planned {
                reason: reason.clone(),
            },
            moves: precondition.landing.clone(),
        },
    );
    turn.memory.last_scale_down = Some(turn.now());
    turn.act(Kind::Remove { drain: true }, target, precondition, reason);
}

/// Takes back removals that no task works on and that are not wanted any more.
fn release(turn: &mut DecisionBuilder<'_>) {
    if !turn.holds.may_observe() || planted!(NotReleased) {
        return;
    }
    let max_view_age = turn.view.policy.scale_down.max_view_age;
    let machines = std::mem::take(&mut turn.view.machines);
    for machine in machines.values().filter(|machine| machine.resumable()) {
        let wanted = turn
            .plan
            .iter()
            .any(|action| action.target.machine == *machine.name);
        if wanted || machine.pool.is_none() || turn.holds.may_shrink(&machine.seen.region).is_err()
        {
            continue;
        }
        let (target, precondition) = (
            turn::target(machine),
            turn::precondition(machine, max_view_age),
        );
        let because = match turn.report.nodes.get(&**machine.name) {
            Some(NodeVerdict::Kept { reason, why, .. }) => Aborted::Kept {
                reason: *reason,
                kept: Box::new(why.clone()),
            },
            _ => Aborted::NotWanted,
        };
        turn.act(
            Kind::Release,
            target,
            precondition,
            Reason::Aborted { because },
        );
    }
    turn.view.machines = machines;
}

pub(crate) fn stay(turn: &mut DecisionBuilder<'_>, name: &Arc<str>, keep: KeepReason) {
    if let Some(until) = keep.until {
        turn.wake_at(until);
    }
    let off = turn
        .view
        .machine_of_node(name)
        .and_then(|machine| power::off(turn, machine));
    let verdict = NodeVerdict::Kept {
        reason: keep.why.reason(),
        why: match off {
            Some(off) => Kept::PoweredOff {
                off,
                kept: Box::new(keep.why),
            },
            None => keep.why,
        },
        pod: keep.pod,
        until: keep.until,
    };
    turn.report.nodes.insert(name.clone(), verdict);
}

/// The settings that hold for a node's pool.
pub(crate) fn settings<'a>(turn: &DecisionBuilder<'a>, machine: &MachineView<'a>) -> &'a ScaleDown {
    machine
        .pool
        .and_then(|pool| pool.scale_down.as_ref())
        .unwrap_or(&turn.view.policy.scale_down)
}

/// Whether a node is Ready.
pub(crate) fn ready(node: &Node) -> bool {
    node.ready.status == ReadyStatus::True
}
