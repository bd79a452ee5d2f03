//! A planned machine may become one of another type: a larger one when that is cheaper than one more
//! machine, and in the end the cheapest that holds what was put on it. Pool and host stay.

use std::sync::Arc;

use super::Grower;
use crate::constraints::fit::attach::Slots;
use crate::constraints::shape::HOSTNAME_LABEL;
use crate::simulation::offer::Offer;
use crate::simulation::planned::{CreateReason, PlannedMachine};
use model::resources::Resources;

impl Grower<'_, '_, '_, '_> {
    /// On which offer a planned machine could become a dearer choice of its pool, if it could: its host
    /// has room, limits hold, and nothing that is on it depends on the type.
    pub(super) fn may_become(&self, machine: usize, choice: usize) -> Option<usize> {
        let wanted = &self.choices[choice];
        let planned = &self.planned.machines[machine];
        let now = &self.choices[planned.choice];
        if now.pool_slot != wanted.pool_slot || wanted.price <= now.price {
            return None;
        }
        let offer = self.same_host(machine, choice)?;
        let admitted = self.limits_admit(machine, choice, offer);
        (admitted && self.indifferent(machine, choice, offer)).then_some(offer)
    }

    /// The offer of a choice on the host of a planned machine.
    pub(super) fn same_host(&self, machine: usize, choice: usize) -> Option<usize> {
        let planned = &self.planned.machines[machine];
        let slot = self.choices[planned.choice].offers[planned.offer].host_slot;
        let offers = &self.choices[choice].offers;
        offers.iter().position(|offer| offer.host_slot == slot)
    }

    /// Whether all that is on a planned machine may be on one of this offer as well, resources aside.
    fn indifferent(&self, machine: usize, choice: usize, offer: usize) -> bool {
        let planned = &self.planned.machines[machine];
        let wanted = &self.choices[choice];
        let (old, new) = (
            self.choices[planned.choice].first + planned.offer,
            wanted.first + offer,
        );
        let slots = &self.world.bins[planned.bin].slots;
        let alike = self.choices[planned.choice].slots == wanted.slots
            || slots.as_ref().is_some_and(|slots| slots.unused());
        if !alike {
            return false;
        }
        if !self.supplied(planned, &wanted.offers[offer]) {
            return false;
        }
        let mut groups = planned.assigned.iter().map(|assigned| assigned.group);
        let keys = self.world.company.keys();
        groups.all(|group| self.row(group).fits[new])
            && self.domains[old][..] == self.domains[new][..]
            && self.domains[new].len() == keys
            && self
                .world
                .company
                .indifferent(planned.bin, &wanted.offers[offer].labels)
    }

    /// Whether a planned machine would have the volumes that its pods took, and those that are made for them,
    /// if it were of this offer.
    fn supplied(&self, planned: &PlannedMachine, offer: &Offer<'_>) -> bool {
        let bin = &self.world.bins[planned.bin];
        let (now, then) = (bin.at(), offer.at());
        let needs = planned.groups();
        let needs = needs.filter_map(|group| self.groups[group].need.as_deref());
        let mut alike = needs.flat_map(|need| &need.waiting);
        bin.gift.in_reach(&self.world.stock, then)
            && alike.all(|claim| claim.provides(then) || !claim.provides(now))
    }

    /// What volumes a planned machine could attach if it were of this choice.
    pub(super) fn slots_as(&self, bin: usize, choice: usize) -> Option<Arc<Slots>> {
        let now = &self.world.bins[bin].slots;
        let unused = now.as_ref().is_none_or(|slots| slots.unused());
        let slots = if unused {
            &self.choices[choice].slots
        } else {
            now
        };
        slots.clone()
    }

    /// What would be free on a planned machine if it were of this offer.
    pub(super) fn free_as(&self, machine: usize, choice: usize, offer: usize) -> Resources {
        let planned = &self.planned.machines[machine];
        let mut free = self.choices[choice].offers[offer].free.clone();
        let now = &self.choices[planned.choice].offers[planned.offer].free;
        free.subtract(now);
        free.add(&self.world.bins[planned.bin].free);
        free
    }

    /// Whether a planned machine would meet as many preferences of its pods if it were of this offer.
    fn pleases(&self, machine: usize, choice: usize, offer: usize) -> bool {
        let planned = &self.planned.machines[machine];
        planned.assigned.iter().all(|assigned| {
            let now = self.unmet(assigned.group, planned.choice, planned.offer);
            self.unmet(assigned.group, choice, offer) <= now
        })
    }

    /// Makes a planned machine one of this offer; says its place in the world.
    pub(super) fn enlarge(&mut self, machine: usize, choice: usize, offer: usize) -> usize {
        let free = self.free_as(machine, choice, offer);
        let slots = self.slots_as(self.planned.machines[machine].bin, choice);
        let wanted = &self.choices[choice];
        let planned = &mut self.planned.machines[machine];
        let before = &self.choices[planned.choice];
        let from = &before.offers[planned.offer];
        let bin = planned.bin;
        (planned.choice, planned.offer) = (choice, offer);
        let to = &wanted.offers[offer];
        self.ledger.rebook((wanted, to), (before, from));
        let mut labels = wanted.offers[offer].labels.clone();
        let name = self.world.bins[bin].name.clone();
        labels.insert(HOSTNAME_LABEL.into(), name);
        self.world.bins[bin].slots = slots;
        self.world.become_other(bin, labels, free);
        self.planned.lane.raise(machine, self.world);
        bin
    }

    /// In the end every machine that was planned for pods becomes the cheapest type of its pool that
    /// holds what was put on it.
    pub(super) fn shrink_to_fit(&mut self) {
        let mut order: Vec<usize> = (0..self.choices.len()).collect();
        order.sort_by_key(|choice| (self.choices[*choice].price, *choice));
        for machine in 0..self.planned.machines.len() {
            let planned = &self.planned.machines[machine];
            if !matches!(planned.reason, CreateReason::Pods) {
                continue;
            }
            let now = &self.choices[planned.choice];
            let cheaper = order.iter().copied();
            let cheaper = cheaper.take_while(|choice| self.choices[*choice].price < now.price);
            let found = cheaper
                .filter(|choice| self.choices[*choice].pool_slot == now.pool_slot)
                .find_map(|choice| {
                    let offer = self.same_host(machine, choice)?;
                    let fits = self.holds(machine, choice, offer)
                        && self.limits_admit(machine, choice, offer)
                        && self.indifferent(machine, choice, offer)
                        && self.pleases(machine, choice, offer);
                    fits.then_some((choice, offer))
                });
            if let Some((choice, offer)) = found {
                self.enlarge(machine, choice, offer);
            }
        }
    }

    /// Whether limits let a planned machine become one of this choice.
    fn limits_admit(&self, machine: usize, choice: usize, offer: usize) -> bool {
        let planned = &self.planned.machines[machine];
        let before = &self.choices[planned.choice];
        let from = &before.offers[planned.offer];
        let wanted = &self.choices[choice];
        let to = &wanted.offers[offer];
        let ledger = &self.ledger;
        ledger.host_admits_instead((wanted, to), (before, from))
            && ledger.type_admits(wanted, Some(before.kind)).is_ok()
    }

    /// Whether an offer has room for all that is on a planned machine.
    pub(super) fn holds(&self, machine: usize, choice: usize, offer: usize) -> bool {
        let free = self.free_as(machine, choice, offer);
        let fixed = [free.cpu_milli, free.memory, free.ephemeral, free.pods];
        fixed.iter().all(|amount| *amount >= 0) && free.extended.values().all(|n| *n >= 0)
    }
}
