//! The first plan: groups are served in order, and each opens machines until all its pods have a place.

use std::ops::Range;

use super::catalog::Catalog;
use super::choose::{self, ChoiceSearch, Pick};
use super::pending::{self, PendingGroups};
use super::planner::Planner;
use super::refusals::SharedRefusals;
use super::trial_node::TrialNode;
use super::type_change::TypeChange;
use super::view::PlanView;
use super::withdrawal;
use crate::index::{GroupIndex, NodeIndex, OfferIndex, PendingPodIndex};
use crate::simulation::inter_pod::Rules;
use crate::simulation::pack;
use crate::simulation::planned::CreateReason;
use crate::simulation::work;
use crate::simulation::world::Saved;
use model::reasons::{Reasons, Refused, Warning};
use model::report::PodVerdict;

/// Steps that serving a group once more counts, which looks at all places and all choices.
const SERVED_AGAIN: usize = 1_000;

/// Pods that came to nodes there are, once machines were planned; or before that to machines on their way.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) group: GroupIndex,
    pub(super) pods: Range<PendingPodIndex>,
    /// Where they found room, and how many.
    pub(super) placed_pods: Vec<(NodeIndex, usize)>,
    /// Where expendable pods give way for one of them each, after the others.
    pub(super) preempting: Vec<NodeIndex>,
    /// What undoes the visit, to be restored last first.
    pub(super) undo: Vec<(NodeIndex, Saved)>,
    /// The pods came before anything was planned, and in any order: they leave one by one. They have no claims.
    pub(super) booked: bool,
}

/// The first plan in the making.
struct FirstPlan<'f, 'p, 'a> {
    planner: &'f mut Planner<'p, 'a>,
    catalog: &'f mut Catalog<'p, 'a>,
    pending: &'f mut PendingGroups<'a>,
    visits: Vec<Visit>,
}

/// Phase: opens machines, one after the other, for the pods that are pending. Returns which of them came to existing nodes
/// in the end, because of others on planned machines.
pub(super) fn open_machines<'p, 'a>(
    planner: &mut Planner<'p, 'a>,
    catalog: &mut Catalog<'p, 'a>,
    pending: &mut PendingGroups<'a>,
) -> Vec<Visit> {
    let mut plan = FirstPlan {
        planner,
        catalog,
        pending,
        visits: Vec::new(),
    };
    plan.serve_all();
    plan.visits
}

/// Planned machines that are looked at for pods that wait in the end, over all groups of one decision: there may be thousands of both.
const MAX_LOOKED_AT: usize = 20_000;

/// Phase: planned machines become larger for pods that still wait, where no machine more may be made for them. The second plan has
/// done that already wherever the question was not too large for it. As there, what pools lack for their `min` comes first.
pub(super) fn enlarge_for_waiting<'p, 'a>(
    planner: &mut Planner<'p, 'a>,
    catalog: &mut Catalog<'p, 'a>,
    pending: &mut PendingGroups<'a>,
) {
    if withdrawal::lacks_for_min(planner.turn) {
        return;
    }
    let waits = |group: &GroupIndex| pending.groups[*group].left() > 0;
    let waiting: Vec<GroupIndex> = pending.groups.indexes().filter(waits).collect();
    let mut plan = FirstPlan {
        planner,
        catalog,
        pending,
        visits: Vec::new(),
    };
    let mut trials = MAX_LOOKED_AT;
    for lead in waiting {
        plan.enlarge_for(lead, &mut trials);
    }
}

impl FirstPlan<'_, '_, '_> {
    /// Makes planned machines larger for the pods of a group, as long as one takes some.
    fn enlarge_for(&mut self, lead: GroupIndex, trials: &mut usize) {
        let rules = self.planner.world.rules(self.pending.groups[lead].shape);
        let rules = rules.as_deref();
        self.catalog.locate(self.planner.world);
        while self.pending.groups[lead].left() > 0 {
            let search = ChoiceSearch::begin(self.view(), lead, rules);
            let Some(pick) = search.find_any_larger(trials) else {
                return;
            };
            let left = self.pending.groups[lead].left();
            if self.realise(lead, &pick, rules).is_err() || self.pending.groups[lead].left() == left
            {
                return;
            }
        }
    }

    /// Serves every group in order. Groups that depend on other pods are tried again as long as
    /// something was placed in between: every round but the last places a pod, so it ends.
    fn serve_all(&mut self) {
        let mut waiting: Vec<GroupIndex> = self.pending.groups.indexes().collect();
        let mut again = false;
        loop {
            let before = self.pending.left();
            let mut refusals = SharedRefusals::default();
            for lead in &waiting {
                if again {
                    if self.is_stranded(*lead) {
                        continue;
                    }
                    self.planner.world.inter_pod.work(SERVED_AGAIN);
                }
                self.serve(*lead, &mut refusals);
            }
            again = true;
            let groups = &self.pending.groups;
            waiting.retain(|lead| groups[*lead].dependent && groups[*lead].left() > 0);
            if waiting.is_empty() || self.pending.left() == before {
                return;
            }
            if work::used_up(self.planner.turn, self.planner.world, 0) {
                return self.leave_out(&waiting);
            }
        }
    }

    /// Whether a group that was refused would be refused again: those that it has affinity to have no place yet.
    fn is_stranded(&mut self, lead: GroupIndex) -> bool {
        let shape = self.pending.groups[lead].shape;
        pack::is_stranded(self.planner.world, shape)
    }

    /// These groups are looked at no more in this decision.
    fn leave_out(&mut self, waiting: &[GroupIndex]) {
        for group in waiting {
            self.refuse(*group, work::chained(), false);
        }
    }

    /// Places all pods of one group: on planned machines first, then on new ones. Where its pods depend on
    /// other pods, existing nodes come before both: a pod that was planned before may satisfy the group's affinity there.
    fn serve(&mut self, lead: GroupIndex, refusals: &mut SharedRefusals) {
        let group = &self.pending.groups[lead];
        let rules = self.planner.world.rules(group.shape);
        let rules = rules.as_deref();
        let need = group.need.as_deref();
        if let Some(to_place) = group.pods.get(group.next).copied()
            && let Some(verdict) = pending::waits_for_claim(self.planner.turn, to_place.key, need)
        {
            return self.planner.turn.say(to_place, &verdict);
        }
        self.catalog.locate(self.planner.world);
        if rules.is_some() && !self.planner.planned.fit_index.is_empty() {
            self.fill_existing(lead);
        }
        self.fill(lead, rules, self.floor(rules));
        while self.pending.groups[lead].left() > 0 {
            let floor = self.floor(rules);
            let chosen = choose::choose(self.view(), lead, rules, refusals);
            let Some(pick) = chosen.pick else {
                return self.refuse(lead, chosen.why, chosen.held);
            };
            self.pending.groups[lead].why = chosen.why;
            if let Err(why) = self.realise(lead, &pick, rules) {
                return self.planner.turn.warn(Warning::NotMade {
                    replacement: false,
                    refused: Box::new(why),
                });
            }
            self.fill(lead, rules, floor);
        }
    }

    fn view(&self) -> PlanView<'_, '_> {
        self.planner.view(self.catalog, self.pending)
    }

    /// Puts pods of a group on planned machines, first fit. With topology spread, each time the emptiest domain has one pod more than
    /// `floor`, `maxSkew` lets one more pod into the other domains, so existing nodes are tried again. Every round but the last places a pod.
    fn fill(&mut self, lead: GroupIndex, rules: Option<&Rules>, mut floor: Option<i64>) {
        loop {
            if self.floor(rules) > floor {
                self.fill_existing(lead);
            }
            floor = self.floor(rules);
            self.fill_planned(lead);
            if self.pending.groups[lead].left() == 0 || self.floor(rules) <= floor {
                return;
            }
        }
    }

    /// How many of the pods that count for a group's topology spread are in the domain that has fewest.
    fn floor(&self, rules: Option<&Rules>) -> Option<i64> {
        let rules = rules.filter(|rules| rules.loosens())?;
        Some(self.planner.world.inter_pod.floor(rules))
    }

    /// Puts pods of a group on existing nodes, first fit.
    fn fill_existing(&mut self, lead: GroupIndex) {
        let group = &self.pending.groups[lead];
        let (shape, left) = (group.shape, group.left());
        let need = group.need.clone();
        let Planner {
            turn,
            world,
            existing,
            ..
        } = &mut *self.planner;
        let mut undo = Vec::new();
        let found = pack::on_existing(
            turn,
            world,
            (shape, need.as_deref()),
            left,
            existing,
            &mut Some(&mut undo),
        );
        if !found.is_empty() {
            let (preempting, placed_pods): (Vec<_>, Vec<_>) =
                found.iter().partition(|one| !one.preempts.is_empty());
            let count: usize = found.iter().map(|of| of.count).sum();
            let next = group.next;
            self.visits.push(Visit {
                group: lead,
                pods: next..PendingPodIndex(next.0 + count),
                placed_pods: placed_pods.iter().map(|of| (of.node, of.count)).collect(),
                preempting: preempting.iter().map(|of| of.node).collect(),
                undo,
                booked: false,
            });
        }
        for placed_pods in found {
            let node = &mut world.nodes[placed_pods.node];
            node.new_pods.push((shape, need.clone(), placed_pods.count));
            let pods = self.pending.take_next(turn, lead, placed_pods.count);
            let verdict = placed_pods.verdict(world);
            for to_place in pods {
                turn.say(to_place, &verdict);
            }
        }
    }

    /// Tells the pods of a group that have no place why.
    fn refuse(&mut self, lead: GroupIndex, why: Reasons, held: bool) {
        let group = &self.pending.groups[lead];
        let verdict = if held {
            PodVerdict::Held { why }
        } else {
            PodVerdict::NoCompatiblePool { why }
        };
        for to_place in group.pods.tail(group.next) {
            self.planner.turn.say(*to_place, &verdict);
        }
    }

    /// Puts pods of a group on machines planned so far, first fit.
    fn fill_planned(&mut self, lead: GroupIndex) {
        let group = &self.pending.groups[lead];
        let (shape, left) = (group.shape, group.left());
        let need = group.need.clone();
        let (world, fit_index) = (
            &mut *self.planner.world,
            &mut self.planner.planned.fit_index,
        );
        for (node, count) in pack::place(world, shape, need.as_deref(), left, fit_index) {
            self.planner.assign_next(self.pending, (lead, count), node);
        }
    }

    /// Opens what was picked, again and again as long as the same filling goes in.
    fn realise(
        &mut self,
        lead: GroupIndex,
        pick: &Pick,
        rules: Option<&Rules>,
    ) -> Result<(), Refused> {
        let fill = self.filling(lead, pick);
        let mut offer = pick.offer;
        loop {
            let node = match pick.instead {
                Some(machine) => {
                    let to = (machine, pick.choice, offer);
                    self.planner.change_type(self.catalog, self.pending, to)
                }
                None => {
                    let reason = CreateReason::Pods;
                    self.planner
                        .open(self.catalog, pick.choice, offer, reason)?
                }
            };
            for (group, count) in &fill {
                let of = &self.pending.groups[*group];
                let world = &mut *self.planner.world;
                world.put(node, of.shape, *count as u64, false);
                world.supply(node, of.need.as_deref(), *count as u64);
                self.planner
                    .assign_next(self.pending, (*group, *count), node);
            }
            let loosened = rules.is_some_and(Rules::loosens);
            if loosened || pick.instead.is_some() {
                return Ok(());
            }
            match next_offer(self.view(), pick, &fill, rules) {
                Some(next) => offer = next,
                None => return Ok(()),
            }
        }
    }

    /// What a pick puts on its node, as groups with how many pods.
    fn filling(&self, lead: GroupIndex, pick: &Pick) -> Vec<(GroupIndex, usize)> {
        let view = self.view();
        let room = match pick.instead {
            None => TrialNode::of_offer(view, pick.choice, pick.offer),
            Some(machine) => {
                TrialNode::of_machine(&TypeChange::new(view, machine, pick.choice, pick.offer))
            }
        };
        room.fill(lead, pick.lead_pods)
    }
}

/// On which offer the same filling goes in once more, if on any.
fn next_offer(
    view: PlanView<'_, '_>,
    pick: &Pick,
    fill: &[(GroupIndex, usize)],
    rules: Option<&Rules>,
) -> Option<OfferIndex> {
    let enough = |(group, count): &(GroupIndex, usize)| view.group(*group).left() >= *count;
    // Each takes other volumes.
    let waits = |(group, _): &(GroupIndex, usize)| {
        let need = view.group(*group).need.as_deref();
        need.is_some_and(|need| !need.waiting.is_empty())
    };
    if !fill.iter().all(enough) || fill.iter().any(waits) {
        return None;
    }
    let choice = view.choice(pick.choice);
    view.limits.pool_admits(view.turn, choice).ok()?;
    view.limits.type_admits(choice, None).ok()?;
    let (lead, count) = *fill.first()?;
    let (next, _) = view.find_host(pick.choice, Some((lead, rules))).ok()?;
    let fits =
        |(group, _): &(GroupIndex, usize)| view.row(*group).fits[choice.index_in_catalog(next)];
    let may = rules.map_or(usize::MAX, |rules| {
        view.count_admitted(rules, pick.choice, next)
    });
    if view.rather_elsewhere(pick.choice, next, (lead, rules)) {
        return None;
    }
    let same = choice.offers[next].free == choice.offers[pick.offer].free;
    (same && may >= count && fill.iter().all(fits)).then_some(next)
}
