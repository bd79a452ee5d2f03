//! Preferences about other pods are weighed last: which planned machine takes which pod, and on
//! which host each machine is made. How many machines there are, their types and their prices stand by
//! then, so that no preference ever costs anything; whatever pods insist on stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::catalog::Catalog;
use super::pending::PendingGroups;
use super::planner::Planner;
use super::type_change::TypeChange;
use super::view::PlanView;
use crate::constraints::fit::node_preferences;
use crate::index::{
    GroupIndex, KeyId, NodeIndex, OfferIndex, PendingPodIndex, PlannedIndex, ShapeId,
};
use crate::simulation::inter_pod::Preferences;
use crate::simulation::inter_pod::topology::{DomainId, FRESH};
use crate::simulation::offer::Offer;
use crate::simulation::pack;
use crate::simulation::planned::PlannedMachine;
use model::hosts::HostStrategy;
use model::policy::PoolPolicy;
use model::report::PodVerdict;

/// Rounds over all planned machines at most: a pod or machine that moves may make another move worthwhile.
const MAX_ROUNDS: usize = 3;
/// Places that one decision looks at for preferences at most: a plan of any size pays a few milliseconds.
const MAX_LOOKS: usize = 20_000;
/// With more groups on new machines than this, what kube-scheduler prefers of its own accord is left to it:
/// this many groups spread over the hosts by themselves.
const MAX_GROUPS_FOR_DEFAULTS: usize = 64;

/// The preferences of groups that have pods on planned machines, and the plan that is changed for them.
struct PreferenceSearch<'s, 'p, 'a> {
    planner: &'s mut Planner<'p, 'a>,
    catalog: &'s Catalog<'p, 'a>,
    pending: &'s PendingGroups<'a>,
    /// Preferences that the pods name.
    own: BTreeMap<GroupIndex, Arc<Preferences>>,
    /// With the scheduler's defaults: for hosts alone, among machines it will see to it itself.
    all: BTreeMap<GroupIndex, Arc<Preferences>>,
    /// Places that may still be looked at.
    looks: usize,
}

/// Phase: meets what preferences can be met with the machines that are planned.
pub(super) fn apply<'p, 'a>(
    planner: &mut Planner<'p, 'a>,
    catalog: &mut Catalog<'p, 'a>,
    pending: &PendingGroups<'a>,
) {
    let (own, all) = find_preferences(planner, pending);
    if all.is_empty() {
        return;
    }
    catalog.locate(planner.world);
    let mut search = PreferenceSearch {
        planner,
        catalog,
        pending,
        own,
        all,
        looks: MAX_LOOKS,
    };
    for _ in 0..MAX_ROUNDS {
        let moved = search.change_machines() | search.change_hosts();
        if !moved {
            return;
        }
    }
}

/// Preferences by group: those that pods on planned machines name, and the same with the scheduler's defaults.
fn find_preferences(
    planner: &mut Planner<'_, '_>,
    pending: &PendingGroups<'_>,
) -> (
    BTreeMap<GroupIndex, Arc<Preferences>>,
    BTreeMap<GroupIndex, Arc<Preferences>>,
) {
    let machines = planner.planned.machines.iter();
    let groups: BTreeSet<GroupIndex> = machines.flat_map(PlannedMachine::groups).collect();
    let own = |group: &GroupIndex| Some((*group, pending.groups[*group].preferences.clone()?));
    let own: BTreeMap<GroupIndex, Arc<Preferences>> = groups.iter().filter_map(own).collect();
    let mut all = own.clone();
    if groups.len() <= MAX_GROUPS_FOR_DEFAULTS {
        for group in groups.into_iter().filter(|group| !own.contains_key(group)) {
            let shape = pending.groups[group].shape;
            let preferences = planner.world.preferences(shape, true);
            all.extend(preferences.map(|preferences| (group, preferences)));
        }
    }
    (own, all)
}

impl PreferenceSearch<'_, '_, '_> {
    fn view(&self) -> PlanView<'_, '_> {
        self.planner.view(self.catalog, self.pending)
    }

    /// The preferences that may move a machine of a pool to another host. Who says which hosts a pool takes first means
    /// more than kube-scheduler's defaults, which spread everything.
    fn for_hosts(&self, pool: &PoolPolicy) -> &BTreeMap<GroupIndex, Arc<Preferences>> {
        match pool.host_rules.strategy {
            HostStrategy::Spread => &self.all,
            _ => &self.own,
        }
    }

    /// Whether one more place may be looked at.
    fn look(&mut self) -> bool {
        self.looks = self.looks.saturating_sub(1);
        self.looks > 0
    }

    /// Moves pods among the planned machines. Returns whether any moved.
    fn change_machines(&mut self) -> bool {
        let mut groups: Vec<GroupIndex> = self.own.keys().copied().collect();
        groups.retain(|group| self.is_mobile(*group));
        let mut moved = false;
        for group in groups {
            self.planner.world.prepare(self.pending.groups[group].shape);
            for machine in self.planner.planned.machines.indexes() {
                while self.planner.planned.machines[machine].has(group)
                    && self.move_pod(group, machine)
                {
                    moved = true;
                }
            }
        }
        moved
    }

    /// Whether pods of a group are taken off a machine and put back without traces: claims and host ports
    /// are not.
    fn is_mobile(&self, group: GroupIndex) -> bool {
        let group = &self.pending.groups[group];
        group.need.is_none()
            && self.planner.world.shapes[group.shape]
                .shape
                .host_ports
                .is_empty()
    }

    /// What one more pod of a group counts on a place, preferences about the node included.
    fn penalty_on(&self, group: GroupIndex, node: NodeIndex) -> i64 {
        let shape = self.planner.world.shapes[self.pending.groups[group].shape].shape;
        let preferences = self.own.get(&group);
        let inter_pod = &self.planner.world.inter_pod;
        let others = preferences.map_or(0, |preferences| {
            inter_pod.penalty(preferences, inter_pod.at(node))
        });
        others.saturating_add(node_preferences::unmet(
            shape,
            self.planner.world.nodes[node].place(),
        ))
    }

    /// Moves one pod of a group from a planned machine to the one that meets most of its preferences, or lets it change places
    /// with another pod. Returns whether it did.
    fn move_pod(&mut self, group: GroupIndex, machine: PlannedIndex) -> bool {
        let shape = self.pending.groups[group].shape;
        let from = self.planner.planned.machines[machine].node;
        // A machine that nothing is left on would be made for nothing.
        let last = self.planner.planned.machines[machine].count() == 1;
        self.planner.world.take(from, shape);
        let here = self.penalty_on(group, from);
        let mut best: Option<(i64, PlannedIndex)> = None;
        let mut full = Vec::new();
        for other in self
            .planner
            .planned
            .machines
            .indexes()
            .filter(|other| *other != machine)
        {
            if here == 0 || !self.look() {
                break;
            }
            let to = self.planner.planned.machines[other].node;
            let there = self.penalty_on(group, to);
            if there >= best.map_or(here, |(best, _)| best) || self.is_pinned(shape, from, to) {
                continue;
            }
            if !last && self.is_admitted(group, to) {
                best = Some((there, other));
            } else {
                full.push(other);
            }
        }
        if let Some((_, other)) = best {
            let to = self.planner.planned.machines[other].node;
            self.planner.world.put(to, shape, 1, false);
            self.transfer(group, machine, other);
            return true;
        }
        let swapped = full
            .into_iter()
            .any(|other| self.exchange_pods(group, (machine, other), here));
        if !swapped {
            self.planner.world.put(from, shape, 1, false);
        }
        swapped
    }

    /// Lets a pod that was taken off the first machine change places with one of the second, if both
    /// together are better off.
    fn exchange_pods(
        &mut self,
        group: GroupIndex,
        (machine, other): (PlannedIndex, PlannedIndex),
        here: i64,
    ) -> bool {
        let (from, to) = (
            self.planner.planned.machines[machine].node,
            self.planner.planned.machines[other].node,
        );
        let shape = self.pending.groups[group].shape;
        let partners: BTreeSet<GroupIndex> =
            self.planner.planned.machines[other].groups().collect();
        for partner in partners {
            let theirs = self.pending.groups[partner].shape;
            if partner == group || !self.is_mobile(partner) || self.is_pinned(theirs, to, from) {
                continue;
            }
            if !self.look() {
                return false;
            }
            // Their pod is asked while this one is away, then this one while theirs is.
            self.planner.world.put(from, shape, 1, false);
            self.planner.world.take(to, theirs);
            let before = here.saturating_add(self.penalty_on(partner, to));
            self.planner.world.take(from, shape);
            let there = self.penalty_on(group, to);
            let fits = self.is_admitted(group, to);
            self.planner.world.put(to, shape, 1, false);
            let after = there.saturating_add(self.penalty_on(partner, from));
            self.planner.world.prepare(theirs);
            if fits && after < before && self.is_admitted(partner, from) {
                self.planner.world.put(from, theirs, 1, false);
                self.transfer(group, machine, other);
                self.transfer(partner, other, machine);
                return true;
            }
            self.planner.world.take(to, shape);
            self.planner.world.put(to, theirs, 1, false);
        }
        false
    }

    fn is_admitted(&mut self, group: GroupIndex, node: NodeIndex) -> bool {
        let shape = self.pending.groups[group].shape;
        let rules = self.planner.world.rules(shape);
        pack::admitted(self.planner.world, shape, None, node, rules.as_deref()).is_some()
    }

    fn is_pinned(&self, shape: ShapeId, here: NodeIndex, there: NodeIndex) -> bool {
        let inter_pod = &self.planner.world.inter_pod;
        inter_pod.pinned(shape, inter_pod.at(here), inter_pod.at(there))
    }

    /// Writes down that a pod of a group goes to another planned machine.
    fn transfer(&mut self, group: GroupIndex, from: PlannedIndex, to: PlannedIndex) {
        let Some(pod) = self.planner.planned.transfer(group, from, to) else {
            return;
        };
        let queue = &self.pending.groups[group];
        let verdict = PodVerdict::Triggers {
            machine: self.planner.world.nodes[self.planner.planned.machines[to].node]
                .name
                .clone(),
            others: queue.why.clone(),
        };
        self.planner
            .turn
            .say(queue.pods[PendingPodIndex(pod)], &verdict);
    }

    /// Moves planned machines to other hosts. Returns whether any moved.
    fn change_hosts(&mut self) -> bool {
        let mut moved = false;
        for machine in self.planner.planned.machines.indexes() {
            let planned = &self.planner.planned.machines[machine];
            let (node, choice) = (planned.node, &self.catalog.choices[planned.choice]);
            let preferences = self.for_hosts(choice.policy);
            if !planned
                .groups()
                .any(|group| preferences.contains_key(&group))
            {
                continue;
            }
            let view = self.view();
            let offers = choice.offers.indexes().filter(|offer| {
                could_be_at(&TypeChange::new(view, machine, planned.choice, *offer))
            });
            let offers: Vec<OfferIndex> = offers.collect();
            if offers.is_empty() || !self.look() {
                continue;
            }
            self.looks = self.looks.saturating_sub(offers.len());
            self.planner.world.close(node);
            let counting = self.for_hosts(choice.policy);
            if let Some(offer) = find_better_host(self.view(), machine, offers, counting) {
                let to = (machine, offer);
                self.planner.relocate(self.catalog, self.pending, to);
                moved = true;
            }
            self.planner.world.reopen(node);
        }
        moved
    }
}

/// Whether a planned machine could be on the host of another offer of its choice, all that other pods
/// matter to apart.
fn could_be_at(then: &TypeChange<'_, '_>) -> bool {
    let (view, planned) = (then.view, then.planned());
    let choice = view.choice(planned.choice);
    let (now, offer) = (&choice.offers[planned.offer], &choice.offers[then.offer]);
    let fits = |group: GroupIndex| {
        view.row(group).fits[choice.index_in_catalog(then.offer)]
            && view.unmet(group, planned.choice, then.offer)
                <= view.unmet(group, planned.choice, planned.offer)
    };
    then.offer != planned.offer
        && view.limits.host_admits(choice, offer).is_ok()
        && same_daemons(now, offer)
        && then.has_room_for_its_pods()
        && planned.groups().all(fits)
}

/// The offer, of these, whose host the pods of a planned machine like best, if they like it better
/// than where the machine is: the groups' preferences in `counting` count. The machine's place is closed.
fn find_better_host(
    view: PlanView<'_, '_>,
    machine: PlannedIndex,
    offers: Vec<OfferIndex>,
    counting: &BTreeMap<GroupIndex, Arc<Preferences>>,
) -> Option<OfferIndex> {
    let planned = &view.planned.machines[machine];
    let choice = view.choice(planned.choice);
    let inter_pod = &view.world.inter_pod;
    let penalty = |offer: OfferIndex| {
        let at = domains_at(view, machine, offer);
        let of = planned.assigned.iter().filter_map(|assigned| {
            let preferences = counting.get(&assigned.group)?;
            let pods = i64::try_from(assigned.pods.len()).unwrap_or(i64::MAX);
            Some(inter_pod.penalty(preferences, at).saturating_mul(pods))
        });
        of.fold(0, i64::saturating_add)
    };
    let here = domains_at(view, machine, planned.offer);
    let residents = &view.world.nodes[planned.node].residents;
    let free_to_go = |offer: &OfferIndex| {
        let there = domains_at(view, machine, *offer);
        let pinned = |shape: ShapeId| inter_pod.pinned(shape, here, there);
        inter_pod.may_move(here, there) && !residents.iter().any(|pods| pinned(pods.shape))
    };
    let now = penalty(planned.offer);
    let better = offers.into_iter().filter_map(|offer| {
        let then = penalty(offer);
        let at = &choice.offers[offer];
        let rank = (then, view.limits.host_rank(choice, at));
        (then < now && free_to_go(&offer)).then_some((rank, offer))
    });
    better.min().map(|(_, offer)| offer)
}

/// The domains that a planned machine would be in on the host of an offer of its choice.
fn domains_at<'v>(
    view: PlanView<'v, '_>,
    machine: PlannedIndex,
    offer: OfferIndex,
) -> impl Fn(KeyId) -> DomainId + Copy + use<'v> {
    let planned = &view.planned.machines[machine];
    let domains = &view.catalog.domains[view.choice(planned.choice).index_in_catalog(offer)];
    let own = view.world.inter_pod.at(planned.node);
    move |key| match domains[key] {
        FRESH => own(key),
        domain => domain,
    }
}

/// Whether the same DaemonSets run on nodes of two offers.
fn same_daemons(a: &Offer<'_>, b: &Offer<'_>) -> bool {
    a.residents.len() == b.residents.len()
        && a.residents.iter().zip(&b.residents).all(|(a, b)| a.same(b))
}
