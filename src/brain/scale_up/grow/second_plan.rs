//! The second plan: all machines for pods at once, where that is better ([`draft::Rank`]). The first plan opens
//! one machine after the other and settles its type at once; [`super::draft`] keeps machines open until the end.
//!
//! No pod loses for a price alone: as long as every pod has a place, none comes into a pool of lower weight or to more unmet
//! preferences about the node than its group had. What comes out is tried in the world, pod by pod; unless that is
//! better the plan stays as it was.

use std::collections::BTreeSet;

use super::catalog::Catalog;
use super::closed_domains;
use super::draft::{self, BetterPlan, Problem, To};
use super::first_plan::Visit;
use super::on_their_way;
use super::pending::{PendingGroup, PendingGroups};
use super::planner::Planner;
use super::question;
use super::view::PlanView;
use super::visits::{come_again, find_movable, leave, split_staying};
use super::withdrawal::{self, NoSecondPlan, Withdrawal};
use crate::constraints::shape::Resident;
use crate::decision::turn::DecisionBuilder;
use crate::index::{
    ChoiceIndex, FixedIndex, GroupIndex, IndexVec, KeyId, LaunchOptionIndex, LotIndex, NodeIndex,
    OfferIndex, PlannedIndex,
};
use crate::simulation::bookings;
use crate::simulation::inter_pod::topology::DomainId;
use crate::simulation::pack::{self, PlacedPods};
use crate::simulation::planned::CreateReason;
use crate::simulation::world::{NodeOrigin, Saved};
use model::reasons::{Refused, Warning};
use model::report::PodVerdict;

/// Where pods of a replanned group went.
#[derive(Debug)]
struct PlacedLot {
    replanned: LotIndex,
    node: NodeIndex,
    count: usize,
}

/// Phase: makes the second plan, and puts it in the place of the first if it is better. `visits` are the pods that came to
/// nodes there are while the first one was made.
///
/// Pods with topology spread may have no place then, because a domain counts in which a machine was possible and none is planned. That domain gets
/// no node, and kube-scheduler counts only domains with nodes. So the other domains may take more of these pods, and the plan is
/// made once more by that.
pub(super) fn repack<'p, 'a>(
    planner: &mut Planner<'p, 'a>,
    catalog: &mut Catalog<'p, 'a>,
    pending: &mut PendingGroups<'a>,
    visits: Vec<Visit>,
) {
    let visits = repack_once(planner, catalog, pending, visits, Domains::Open);
    let inter_pod = &planner.world.inter_pod;
    let waits = |group: &PendingGroup<'_>| {
        let rules = inter_pod.known_rules(group.shape);
        group.left() > 0 && rules.is_some_and(|rules| inter_pod.waits_for_domains(rules))
    };
    let visits = if pending.groups.iter().any(waits) {
        planner.world.inter_pod.close_unreached();
        repack_once(planner, catalog, pending, visits, Domains::WithNodes)
    } else {
        visits
    };
    let visits = closed_domains::repack(planner, catalog, pending, visits);
    on_their_way::repack(planner, catalog, pending, visits);
}

/// Which topology domains count for spreading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domains {
    /// Those of nodes, and those that new nodes could open.
    Open,
    /// Those that nodes are in, or were planned in.
    WithNodes,
    /// As [`Domains::WithNodes`], and no machine is made in this domain of this topology key.
    Without(KeyId, DomainId),
    /// As those before, and pods that were put on machines on their way are looked at as well ([`on_their_way`]).
    WithMachines,
}

/// Makes the second plan; gives back the visits that still are, where the first plan stays.
pub(super) fn repack_once<'p, 'a>(
    planner: &mut Planner<'p, 'a>,
    catalog: &mut Catalog<'p, 'a>,
    pending: &mut PendingGroups<'a>,
    visits: Vec<Visit>,
    domains: Domains,
) -> Vec<Visit> {
    repack_among(planner, catalog, pending, visits, (domains, Vec::new()))
}

/// [`repack_once`], where any of the pods may go to these machines on their way.
pub(super) fn repack_among<'p, 'a>(
    planner: &mut Planner<'p, 'a>,
    catalog: &mut Catalog<'p, 'a>,
    pending: &mut PendingGroups<'a>,
    visits: Vec<Visit>,
    (domains, coming): (Domains, Vec<NodeIndex>),
) -> Vec<Visit> {
    let view = planner.view(catalog, pending);
    let movable = find_movable(view);
    let (mut staying, leaving) = match split_staying(view, visits, &movable) {
        Ok(split) => split,
        Err(visits) => return visits,
    };
    let withdrawal = match withdrawal::propose(view, (&leaving, coming), &movable) {
        Ok(withdrawal) => withdrawal,
        Err(why) => {
            tell_too_large(planner.turn, pending, why);
            staying.extend(leaving);
            return staying;
        }
    };
    let leaving = leave(planner, pending, leaving);
    for machine in &withdrawal.machines {
        planner.cancel(catalog, *machine);
    }
    question::prepare(planner, catalog, pending, &withdrawal.replanned);
    let question = question::pose_question(planner.view(catalog, pending), &withdrawal);
    if let Err(why) = &question {
        tell_too_large(planner.turn, pending, *why);
    }
    let replaced = question.is_ok_and(|question| {
        let plan = (&mut *planner, &*catalog, &mut *pending);
        replace_plan(plan, &withdrawal, question, domains)
    });
    if !replaced {
        for machine in withdrawal.machines {
            planner.confirm(catalog, machine);
        }
        staying.extend(come_again(planner, pending, leaving));
        return staying;
    }
    Vec::new()
}

/// Looks for a better plan, and puts it in the place of the first. Returns whether it did.
fn replace_plan<'p, 'a>(
    (planner, catalog, pending): (
        &mut Planner<'p, 'a>,
        &Catalog<'p, 'a>,
        &mut PendingGroups<'a>,
    ),
    withdrawal: &Withdrawal,
    (mut problem, nodes): (Problem, IndexVec<FixedIndex, NodeIndex>),
    domains: Domains,
) -> bool {
    if let Domains::Without(key, domain) = domains
        && !problem.close(key, domain)
    {
        return false;
    }
    problem.deals = true;
    let digest = problem.digest();
    if is_known(planner.turn, digest, domains) {
        return false;
    }
    // What the world does not take of pods that were dealt out first may be had without.
    for deals in [true, false] {
        problem.deals = deals;
        let answer = draft::solve(&problem);
        planner.looked = planner.looked.saturating_add(problem.looked.take());
        let Some(answer) = answer else {
            break;
        };
        let mut trial = SecondPlanTrial {
            planner: &mut *planner,
            catalog,
            pending: &mut *pending,
            withdrawal,
            problem: &problem,
        };
        if trial.replace(&answer, &nodes) {
            forget(planner.turn, domains);
            return true;
        }
    }
    remember(planner.turn, digest, domains);
    false
}

/// Warns where pods wait and a better plan for them is not looked for.
fn tell_too_large(turn: &mut DecisionBuilder<'_>, pending: &PendingGroups<'_>, why: NoSecondPlan) {
    let pods = pending.groups.iter().map(PendingGroup::left).sum();
    if why == NoSecondPlan::TooLarge && pods > 0 {
        turn.warn(Warning::TooManyToReplan { pods });
    }
}

/// Whether this question found no better plan before, or none that the world took. It is not asked again as long as nothing has changed:
/// where limits leave pods out for good, every decision would pay for it.
fn is_known(turn: &mut DecisionBuilder<'_>, digest: u64, domains: Domains) -> bool {
    let memory = &mut turn.memory;
    match domains {
        Domains::Open => memory.no_better_plan == Some(digest),
        Domains::WithNodes => memory.no_better_plan_with_nodes == Some(digest),
        Domains::WithMachines => memory.no_better_plan_with_machines == Some(digest),
        Domains::Without(..) => {
            let known = turn.fewer_domains_before.contains(&digest);
            if known {
                memory.no_better_plan_with_fewer_domains.insert(digest);
            }
            known
        }
    }
}

/// A question that found a better plan is asked again.
fn forget(turn: &mut DecisionBuilder<'_>, domains: Domains) {
    match domains {
        Domains::Open => turn.memory.no_better_plan = None,
        Domains::WithNodes => turn.memory.no_better_plan_with_nodes = None,
        Domains::WithMachines => turn.memory.no_better_plan_with_machines = None,
        Domains::Without(..) => {}
    }
}

/// Remembers that this question found no better plan, or none that the world took.
fn remember(turn: &mut DecisionBuilder<'_>, digest: u64, domains: Domains) {
    let memory = &mut turn.memory;
    match domains {
        Domains::Open => memory.no_better_plan = Some(digest),
        Domains::WithNodes => memory.no_better_plan_with_nodes = Some(digest),
        Domains::WithMachines => memory.no_better_plan_with_machines = Some(digest),
        Domains::Without(..) => {
            memory.no_better_plan_with_fewer_domains.insert(digest);
        }
    }
}

/// The second plan, tried in the world.
struct SecondPlanTrial<'r, 'p, 'a> {
    planner: &'r mut Planner<'p, 'a>,
    catalog: &'r Catalog<'p, 'a>,
    pending: &'r mut PendingGroups<'a>,
    withdrawal: &'r Withdrawal,
    problem: &'r Problem,
}

impl SecondPlanTrial<'_, '_, '_> {
    fn view(&self) -> PlanView<'_, '_> {
        self.planner.view(self.catalog, self.pending)
    }

    /// Makes the plan what the answer says, if the world lets it and it is better. Returns whether it did.
    /// Otherwise all is as it was, the machines withdrawn. `nodes` are the places that stayed.
    fn replace(&mut self, answer: &BetterPlan, nodes: &IndexVec<FixedIndex, NodeIndex>) -> bool {
        let machines = &self.withdrawal.machines;
        let old = self.planner.take_off(machines);
        let first = self.planner.planned.machines.next_index();
        let mut undo = Vec::new();
        let placed_lots = self.lay(answer, nodes, &mut undo);
        if let Some(placed_lots) = placed_lots.filter(|lots| self.is_better(first, lots)) {
            self.planner.drop_empty(self.catalog, first);
            self.tell(&placed_lots);
            self.hand_out(&placed_lots);
            self.planner.renew_existing();
            return true;
        }
        for (node, saved) in undo.into_iter().rev() {
            self.planner.world.restore(node, saved);
        }
        self.planner.put_back(self.catalog, first, old, machines);
        false
    }

    /// Opens the machines of an answer and puts the pods on them, as far as the world lets them. Returns how many
    /// pods of which replanned group are at which place; `None` where a machine could not be made.
    fn lay(
        &mut self,
        answer: &BetterPlan,
        nodes: &IndexVec<FixedIndex, NodeIndex>,
        undo: &mut Vec<(NodeIndex, Saved)>,
    ) -> Option<Vec<PlacedLot>> {
        let mut opened = answer.made.with_each(None);
        let mut placed_lots = Vec::new();
        let mut waiting: Vec<(LotIndex, NodeIndex, usize)> = Vec::new();
        for step in &answer.steps {
            let node = match step.to {
                To::Fixed(at) => nodes[at],
                To::Machine(at) => {
                    let node = match opened[at] {
                        Some(node) => node,
                        None => self.open(answer.made[at])?,
                    };
                    *opened[at].insert(node)
                }
            };
            if let Some(min) = self.withdrawal.min_of(step.lot) {
                self.planner.give_reason(node, min.reason);
                continue;
            }
            let count = self.put_some(step.lot, node, step.count, &mut placed_lots, undo);
            if count < step.count {
                waiting.push((step.lot, node, step.count - count));
            }
        }
        self.lay_rest(waiting, &mut placed_lots, undo);
        Some(placed_lots)
    }

    /// Opens a machine of an option of the problem, on an offer. Returns its node.
    fn open(&mut self, (option, offer): (LaunchOptionIndex, OfferIndex)) -> Option<NodeIndex> {
        let (choice, reason) = (self.problem.options[option].choice, CreateReason::Pods);
        let opened = self.planner.open(self.catalog, choice, offer, reason);
        opened.ok()
    }

    /// Puts pods that their places did not take at once: others may have opened them since; else any planned machine
    /// will do.
    fn lay_rest(
        &mut self,
        mut waiting: Vec<(LotIndex, NodeIndex, usize)>,
        placed_lots: &mut Vec<PlacedLot>,
        undo: &mut Vec<(NodeIndex, Saved)>,
    ) {
        let planned = self.planner.planned.machines.iter();
        let planned: Vec<NodeIndex> = planned.map(|planned| planned.node).collect();
        let mut before = usize::MAX;
        while before != waiting.len() && !waiting.is_empty() {
            before = waiting.len();
            for (replanned, place, count) in std::mem::take(&mut waiting) {
                let mut left = count;
                for node in [place].into_iter().chain(planned.iter().copied()) {
                    left -= self.put_some(replanned, node, left, placed_lots, undo);
                    if left == 0 {
                        break;
                    }
                }
                if left > 0 {
                    waiting.push((replanned, place, left));
                }
            }
        }
    }

    /// Puts up to `count` pods of a replanned group on a place. Returns how many.
    fn put_some(
        &mut self,
        replanned: LotIndex,
        node: NodeIndex,
        count: usize,
        placed_lots: &mut Vec<PlacedLot>,
        undo: &mut Vec<(NodeIndex, Saved)>,
    ) -> usize {
        let group = &self.pending.groups[self.withdrawal.replanned[replanned].group];
        let (shape, need) = (group.shape, group.need.as_deref());
        let world = &mut *self.planner.world;
        let mut placed = 0;
        while placed < count {
            let rules = world.rules(shape);
            world.prepare(shape);
            let room = pack::admitted(world, shape, need, node, rules.as_deref());
            let room = usize::try_from(room.unwrap_or(0)).unwrap_or(usize::MAX);
            let some = room.min(count - placed);
            if some == 0 {
                break;
            }
            let mut saved = world.save(node, Resident::of(shape, some as u64));
            world.put(node, shape, some as u64, false);
            saved.with(world.supply(node, need, some as u64));
            undo.push((node, saved));
            placed += some;
        }
        if placed > 0 {
            placed_lots.push(PlacedLot {
                replanned,
                node,
                count: placed,
            });
        }
        placed
    }

    /// Whether what was laid out is better than the first plan. Its machines are those from `first` on.
    fn is_better(&self, first: PlannedIndex, placed_lots: &[PlacedLot]) -> bool {
        let replanned = &self.withdrawal.replanned;
        let left = replanned.indexed().map(|(index, of)| {
            let placed = placed_lots.iter().filter(|lot| lot.replanned == index);
            of.pods.len() - placed.map(|lot| lot.count).sum::<usize>()
        });
        let left: Vec<usize> = left.collect();
        let lots = &self.problem.lots;
        if left.iter().zip(lots).any(|(left, lot)| *left > lot.spare) {
            return false;
        }
        let made = self.planner.planned.machines.tail(first).iter();
        let made = made.filter_map(|planned| {
            let on = placed_lots.iter().filter(|lot| lot.node == planned.node);
            let pods: usize = on.map(|lot| lot.count).sum();
            (pods > 0 || planned.is_for_min()).then_some((planned, pods))
        });
        let made: Vec<_> = made.collect();
        let carries = |node: NodeIndex, group: GroupIndex| {
            let mut on = placed_lots.iter().filter(|lot| lot.node == node);
            on.any(|lot| replanned[lot.replanned].group == group)
        };
        let rank = withdrawal::rank(self.view(), replanned, (&made, &carries), &left);
        rank < self.problem.rank
    }

    /// Says which pods go where, and of those that lost their place why.
    fn hand_out(&mut self, placed_lots: &[PlacedLot]) {
        let replanned = &self.withdrawal.replanned;
        if !self.withdrawal.coming.is_empty() {
            let pods = replanned.iter().flat_map(|of| {
                let group = &self.pending.groups[of.group];
                of.pods.iter().map(|pod| group.pods[*pod].pod)
            });
            bookings::release(self.planner.turn, pods);
        }
        let mut next = replanned.with_each(0);
        for lot in placed_lots {
            let of = &replanned[lot.replanned];
            let pods = &of.pods[next[lot.replanned]..next[lot.replanned] + lot.count];
            next[lot.replanned] += lot.count;
            let group = &self.pending.groups[of.group];
            let Planner {
                turn,
                world,
                planned,
                ..
            } = &mut *self.planner;
            let origin = world.nodes[lot.node].origin.clone();
            let verdict = match origin {
                NodeOrigin::Planned(_) => PodVerdict::Triggers {
                    machine: world.nodes[lot.node].name.clone(),
                    others: group.why.clone(),
                },
                _ => {
                    let new_pods = (group.shape, group.need.clone(), lot.count);
                    world.nodes[lot.node].new_pods.push(new_pods);
                    if matches!(origin, NodeOrigin::Machine(_)) {
                        let pods = pods.iter().map(|pod| group.pods[*pod].pod);
                        bookings::keep(turn, &world.nodes[lot.node].name, pods);
                    }
                    PlacedPods::free(lot.node, lot.count).verdict(world)
                }
            };
            for pod in pods {
                turn.say(group.pods[*pod], &verdict);
                planned.assign(&origin, of.group, pod.0..pod.0 + 1);
            }
        }
        for (of, placed) in replanned.iter().zip(next) {
            if placed < of.placed {
                let taken = |_: ChoiceIndex| false;
                let why = self
                    .view()
                    .explain_refusals(of.group, taken, &Refused::ForOtherPods);
                let verdict = PodVerdict::Held { why };
                for pod in &of.pods[placed..of.placed] {
                    let to_place = self.pending.groups[of.group].pods[*pod];
                    self.planner.turn.say(to_place, &verdict);
                }
            }
            self.pending.replace_placed(of.group, of.placed, placed);
        }
    }

    /// Why the other choices were not taken, for the verdicts on the pods.
    fn tell(&mut self, placed_lots: &[PlacedLot]) {
        for (index, of) in self.withdrawal.replanned.indexed() {
            let planner = &*self.planner;
            let mine = placed_lots.iter().filter(|lot| lot.replanned == index);
            let origins = mine.map(|lot| &planner.world.nodes[lot.node].origin);
            let machines = origins.filter_map(|origin| match origin {
                NodeOrigin::Planned(machine) => Some(planner.planned.machines[*machine].choice),
                _ => None,
            });
            let taken: BTreeSet<ChoiceIndex> = machines.collect();
            let taken = |choice: ChoiceIndex| taken.contains(&choice);
            let why = self
                .view()
                .explain_refusals(of.group, taken, &Refused::NotCheaper);
            self.pending.groups[of.group].why = why;
        }
    }
}
