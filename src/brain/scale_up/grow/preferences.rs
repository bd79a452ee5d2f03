//! What pods prefer of each other's company is weighed last: which planned machine takes which pod, and on
//! which host each machine is made. How many machines there are, their types and their prices stand by
//! then, so that no preference ever costs anything; whatever pods insist on stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Grower;
use crate::constraints::fit::node_preferences;
use crate::constraints::shape::HOSTNAME_LABEL;
use crate::constraints::shape::ShapeId;
use crate::simulation::company::Preferences;
use crate::simulation::company::topology::{DomainId, FRESH, KeyId};
use crate::simulation::offer::Offer;
use crate::simulation::pack;
use crate::simulation::planned::CreateReason;
use model::hosts::HostStrategy;
use model::policy::PoolPolicy;
use model::report::PodVerdict;

/// Rounds over all planned machines at most: a pod or machine that moves may make another move worth while.
const ROUNDS: usize = 3;
/// Places that one decision looks at for preferences at most: a plan of any size pays a few milliseconds.
const LOOKS: usize = 20_000;
/// With more groups on new machines than this, what kube-scheduler prefers of its own accord is left to it:
/// so many spread over the hosts by themselves.
const USUAL: usize = 64;

/// The preferences of groups that have pods on planned machines.
struct PreferenceSearch {
    /// Preferences that the pods name.
    own: BTreeMap<usize, Arc<Preferences>>,
    /// With the scheduler's defaults: for hosts alone, among machines it will see to it itself.
    all: BTreeMap<usize, Arc<Preferences>>,
    /// Places that may still be looked at.
    looks: usize,
}

impl PreferenceSearch {
    /// The preferences that may move a machine of a pool to another host. Who says which hosts a pool takes first means
    /// more than kube-scheduler's defaults, which spread everything.
    fn for_hosts(&self, pool: &PoolPolicy) -> &BTreeMap<usize, Arc<Preferences>> {
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
}

impl Grower<'_, '_, '_, '_> {
    /// Meets what preferences can be met with the machines that are planned.
    pub(super) fn apply_preferences(&mut self) {
        let mut search = self.preference_search();
        if search.all.is_empty() {
            return;
        }
        self.locate();
        for _ in 0..ROUNDS {
            let moved = self.change_machines(&mut search) | self.change_hosts(&mut search);
            if !moved {
                return;
            }
        }
    }

    fn preference_search(&mut self) -> PreferenceSearch {
        let assigned = self
            .planned
            .machines
            .iter()
            .flat_map(|planned| &planned.assigned);
        let groups: BTreeSet<usize> = assigned.map(|assigned| assigned.group).collect();
        let own = |group: &usize| Some((*group, self.groups[*group].preferences.clone()?));
        let own: BTreeMap<usize, Arc<Preferences>> = groups.iter().filter_map(own).collect();
        let mut all = own.clone();
        if groups.len() <= USUAL {
            for group in groups.into_iter().filter(|group| !own.contains_key(group)) {
                let preferences = self.world.preferences(self.groups[group].shape, true);
                all.extend(preferences.map(|preferences| (group, preferences)));
            }
        }
        PreferenceSearch {
            own,
            all,
            looks: LOOKS,
        }
    }

    /// Moves pods among the planned machines; says whether any moved.
    fn change_machines(&mut self, search: &mut PreferenceSearch) -> bool {
        let mut groups: Vec<usize> = search.own.keys().copied().collect();
        groups.retain(|group| self.mobile(*group));
        let mut moved = false;
        for group in groups {
            self.world.prepare(self.groups[group].shape);
            for machine in 0..self.planned.machines.len() {
                while self.planned.machines[machine].has(group)
                    && self.change(group, machine, search)
                {
                    moved = true;
                }
            }
        }
        moved
    }

    /// Whether pods of a group are taken off a machine and put back without traces: claims and host ports
    /// are not.
    fn mobile(&self, group: usize) -> bool {
        let group = &self.groups[group];
        group.need.is_none() && self.world.shapes[group.shape].shape.host_ports.is_empty()
    }

    /// What one more pod of a group counts on a place, preferences about the node included.
    fn penalty_on(&self, group: usize, bin: usize, search: &PreferenceSearch) -> i64 {
        let shape = self.world.shapes[self.groups[group].shape].shape;
        let preferences = search.own.get(&group);
        let company = &self.world.company;
        let others = preferences.map_or(0, |preferences| {
            company.penalty(preferences, company.at(bin))
        });
        others.saturating_add(node_preferences::unmet(shape, self.world.bins[bin].place()))
    }

    /// Moves one pod of a group from a planned machine to the one it likes best, or lets it change places
    /// with another pod; says whether it did.
    fn change(&mut self, group: usize, machine: usize, search: &mut PreferenceSearch) -> bool {
        let shape = self.groups[group].shape;
        let from = self.planned.machines[machine].bin;
        // A machine that nothing is left on would be made for nothing.
        let last = self.planned.machines[machine].count() == 1;
        self.world.take(from, shape);
        let here = self.penalty_on(group, from, search);
        let mut best: Option<(i64, usize)> = None;
        let mut full = Vec::new();
        for other in (0..self.planned.machines.len()).filter(|other| *other != machine) {
            if here == 0 || !search.look() {
                break;
            }
            let to = self.planned.machines[other].bin;
            let there = self.penalty_on(group, to, search);
            if there >= best.map_or(here, |(best, _)| best) || self.pinned(shape, from, to) {
                continue;
            }
            if !last && self.admitted(group, to) {
                best = Some((there, other));
            } else {
                full.push(other);
            }
        }
        if let Some((_, other)) = best {
            let to = self.planned.machines[other].bin;
            self.world.put(to, shape, 1, false);
            self.transfer(group, machine, other);
            return true;
        }
        let swapped = full
            .into_iter()
            .any(|other| self.swap(group, (machine, other), here, search));
        if !swapped {
            self.world.put(from, shape, 1, false);
        }
        swapped
    }

    /// Lets a pod that was taken off the first machine change places with one of the second, if both
    /// together are better off.
    fn swap(
        &mut self,
        group: usize,
        (machine, other): (usize, usize),
        here: i64,
        search: &mut PreferenceSearch,
    ) -> bool {
        let (from, to) = (
            self.planned.machines[machine].bin,
            self.planned.machines[other].bin,
        );
        let shape = self.groups[group].shape;
        let partners: BTreeSet<usize> = self.planned.machines[other].groups().collect();
        for partner in partners {
            let theirs = self.groups[partner].shape;
            if partner == group || !self.mobile(partner) || self.pinned(theirs, to, from) {
                continue;
            }
            if !search.look() {
                return false;
            }
            // Their pod is asked while this one is away, then this one while theirs is.
            self.world.put(from, shape, 1, false);
            self.world.take(to, theirs);
            let before = here.saturating_add(self.penalty_on(partner, to, search));
            self.world.take(from, shape);
            let there = self.penalty_on(group, to, search);
            let fits = self.admitted(group, to);
            self.world.put(to, shape, 1, false);
            let after = there.saturating_add(self.penalty_on(partner, from, search));
            self.world.prepare(theirs);
            if fits && after < before && self.admitted(partner, from) {
                self.world.put(from, theirs, 1, false);
                self.transfer(group, machine, other);
                self.transfer(partner, other, machine);
                return true;
            }
            self.world.take(to, shape);
            self.world.put(to, theirs, 1, false);
        }
        false
    }

    fn admitted(&mut self, group: usize, bin: usize) -> bool {
        let shape = self.groups[group].shape;
        let rules = self.world.rules(shape);
        pack::admitted(self.world, shape, None, bin, rules.as_deref()).is_some()
    }

    fn pinned(&self, shape: ShapeId, here: usize, there: usize) -> bool {
        let company = &self.world.company;
        company.pinned(shape, company.at(here), company.at(there))
    }

    /// Writes down that a pod of a group goes to another planned machine.
    fn transfer(&mut self, group: usize, from: usize, to: usize) {
        let Some(pod) = self.planned.transfer(group, from, to) else {
            return;
        };
        let queue = &self.groups[group];
        let verdict = PodVerdict::Triggers {
            machine: self.world.bins[self.planned.machines[to].bin].name.clone(),
            others: queue.why.clone(),
        };
        self.turn.say(queue.pods[pod], &verdict);
    }

    /// Moves planned machines to other hosts; says whether any moved.
    fn change_hosts(&mut self, search: &mut PreferenceSearch) -> bool {
        let mut moved = false;
        for machine in 0..self.planned.machines.len() {
            let planned = &self.planned.machines[machine];
            let counting = search.for_hosts(self.choices[planned.choice].policy);
            let preferences = planned.groups().any(|group| counting.contains_key(&group));
            if !preferences || !matches!(planned.reason, CreateReason::Pods) {
                continue;
            }
            let offers: Vec<usize> = (0..self.choices[planned.choice].offers.len())
                .filter(|offer| self.could_be_at(machine, *offer))
                .collect();
            if offers.is_empty() || !search.look() {
                continue;
            }
            let bin = planned.bin;
            self.world.close(bin);
            if let Some(offer) = self.better_host(machine, offers, search) {
                self.move_to(machine, offer);
                moved = true;
            }
            self.world.reopen(bin);
        }
        moved
    }

    /// Whether a planned machine could be on the host of another offer of its choice, all that other pods
    /// matter to apart.
    fn could_be_at(&self, machine: usize, offer: usize) -> bool {
        let planned = &self.planned.machines[machine];
        let choice = &self.choices[planned.choice];
        let (now, then) = (&choice.offers[planned.offer], &choice.offers[offer]);
        let fits = |group: usize| {
            self.row(group).fits[choice.first + offer]
                && self.unmet(group, planned.choice, offer)
                    <= self.unmet(group, planned.choice, planned.offer)
        };
        offer != planned.offer
            && self.ledger.host_admits(choice, then).is_ok()
            && same_daemons(now, then)
            && self.holds(machine, planned.choice, offer)
            && planned.groups().all(fits)
    }

    /// Of these offers the one whose host the pods of a planned machine like best, if they like it better
    /// than where the machine is. Its place is closed.
    fn better_host(
        &self,
        machine: usize,
        offers: Vec<usize>,
        search: &mut PreferenceSearch,
    ) -> Option<usize> {
        let planned = &self.planned.machines[machine];
        let choice = &self.choices[planned.choice];
        search.looks = search.looks.saturating_sub(offers.len());
        let counting = search.for_hosts(choice.policy);
        let penalty = |offer: usize| {
            let at = self.domains_at(machine, offer);
            let of = planned.assigned.iter().filter_map(|assigned| {
                let preferences = counting.get(&assigned.group)?;
                let pods = i64::try_from(assigned.pods.len()).unwrap_or(i64::MAX);
                Some(
                    self.world
                        .company
                        .penalty(preferences, at)
                        .saturating_mul(pods),
                )
            });
            of.fold(0, i64::saturating_add)
        };
        let here = self.domains_at(machine, planned.offer);
        let company = &self.world.company;
        let residents = &self.world.bins[planned.bin].residents;
        let free_to_go = |offer: &usize| {
            let there = self.domains_at(machine, *offer);
            let pinned = |shape: ShapeId| company.pinned(shape, here, there);
            company.may_move(here, there) && !residents.iter().any(|pods| pinned(pods.shape))
        };
        let now = penalty(planned.offer);
        let better = offers.into_iter().filter_map(|offer| {
            let then = penalty(offer);
            let at = &choice.offers[offer];
            let rank = (then, self.ledger.host_rank(choice, at));
            (then < now && free_to_go(&offer)).then_some((rank, offer))
        });
        better.min().map(|(_, offer)| offer)
    }

    /// The domains that a planned machine would be in on the host of an offer of its choice.
    fn domains_at(&self, machine: usize, offer: usize) -> impl Fn(KeyId) -> DomainId + Copy {
        let planned = &self.planned.machines[machine];
        let slot = self.choices[planned.choice].first + offer;
        let own = self.world.company.at(planned.bin);
        move |key| match self.domains[slot][key] {
            FRESH => own(key),
            domain => domain,
        }
    }

    /// Moves a planned machine, whose place is closed, to the host of another offer.
    fn move_to(&mut self, machine: usize, offer: usize) {
        let planned = &self.planned.machines[machine];
        let choice = &self.choices[planned.choice];
        let free = self.free_as(machine, planned.choice, offer);
        let (from, to) = (&choice.offers[planned.offer], &choice.offers[offer]);
        self.ledger.relocate(choice, from, to);
        let bin = planned.bin;
        let mut labels = to.labels.clone();
        labels.insert(HOSTNAME_LABEL.into(), self.world.bins[bin].name.clone());
        self.planned.machines[machine].offer = offer;
        self.world.relocate(bin, labels, free);
    }
}

/// Whether the same DaemonSets run on nodes of two offers.
fn same_daemons(a: &Offer<'_>, b: &Offer<'_>) -> bool {
    a.residents.len() == b.residents.len()
        && a.residents.iter().zip(&b.residents).all(|(a, b)| a.same(b))
}
