//! A planned machine may become one of another type: a larger one when that is cheaper than one more
//! machine, and in the end the cheapest that holds what was put on it. Pool and host stay.

use std::sync::Arc;

use super::catalog::Catalog;
use super::pending::PendingGroups;
use super::planner::Planner;
use super::view::PlanView;
use crate::constraints::fit::attach::AttachSlots;
use crate::index::{ChoiceIndex, OfferIndex, PlannedIndex};
use crate::simulation::offer::{Choice, Offer};
use crate::simulation::planned::PlannedMachine;
use crate::simulation::world::SimNode;
use model::resources::Resources;

/// A planned machine as it would be, were it one of another offer.
#[derive(Clone, Copy, Debug)]
pub(super) struct TypeChange<'v, 'a> {
    pub(super) view: PlanView<'v, 'a>,
    pub(super) machine: PlannedIndex,
    pub(super) choice: ChoiceIndex,
    pub(super) offer: OfferIndex,
}

impl<'v, 'a> TypeChange<'v, 'a> {
    pub(super) fn new(
        view: PlanView<'v, 'a>,
        machine: PlannedIndex,
        choice: ChoiceIndex,
        offer: OfferIndex,
    ) -> TypeChange<'v, 'a> {
        TypeChange {
            view,
            machine,
            choice,
            offer,
        }
    }

    /// The machine as one of a choice on the host where it is; `None` where the choice has no offer there.
    pub(super) fn on_same_host(
        view: PlanView<'v, 'a>,
        machine: PlannedIndex,
        choice: ChoiceIndex,
    ) -> Option<TypeChange<'v, 'a>> {
        let planned = &view.planned.machines[machine];
        let host = view.choice(planned.choice).offers[planned.offer].host_index;
        let mut offers = view.choice(choice).offers.indexed();
        let (offer, _) = offers.find(|(_, offer)| offer.host_index == host)?;
        Some(TypeChange::new(view, machine, choice, offer))
    }

    /// The machine as a choice of its pool that costs more, if it could be one: its host has room, limits hold, and nothing that is on it
    /// depends on the type.
    pub(super) fn to_dearer(
        view: PlanView<'v, 'a>,
        machine: PlannedIndex,
        choice: ChoiceIndex,
    ) -> Option<TypeChange<'v, 'a>> {
        let wanted = view.choice(choice);
        let now = view.choice(view.planned.machines[machine].choice);
        if now.pool_index != wanted.pool_index || wanted.price <= now.price {
            return None;
        }
        let then = TypeChange::on_same_host(view, machine, choice)?;
        (then.limits_admit() && then.is_indifferent()).then_some(then)
    }

    pub(super) fn planned(&self) -> &'v PlannedMachine {
        &self.view.planned.machines[self.machine]
    }

    pub(super) fn node(&self) -> &'v SimNode {
        &self.view.world.nodes[self.planned().node]
    }

    /// The choice and offer that the machine is of now.
    fn before(&self) -> (&'v Choice<'a>, &'v Offer<'a>) {
        let planned = self.planned();
        let choice = self.view.choice(planned.choice);
        (choice, &choice.offers[planned.offer])
    }

    /// The choice and offer that the machine would be of.
    fn wanted(&self) -> (&'v Choice<'a>, &'v Offer<'a>) {
        let choice = self.view.choice(self.choice);
        (choice, &choice.offers[self.offer])
    }

    /// What would be free on it.
    pub(super) fn free(&self) -> Resources {
        let mut free = self.wanted().1.free.clone();
        free.subtract(&self.before().1.free);
        free.add(&self.node().free);
        free
    }

    /// What volumes it could attach.
    pub(super) fn slots(&self) -> Option<Arc<AttachSlots>> {
        let now = &self.node().slots;
        let unused = now.as_ref().is_none_or(|slots| slots.unused());
        let slots = if unused { &self.wanted().0.slots } else { now };
        slots.clone()
    }

    /// Whether it would have room for all that is on it.
    pub(super) fn has_room_for_its_pods(&self) -> bool {
        let free = self.free();
        let fixed = [free.cpu_milli, free.memory, free.ephemeral, free.pods];
        fixed.iter().all(|amount| *amount >= 0) && free.extended.values().all(|n| *n >= 0)
    }

    /// Whether limits let it.
    fn limits_admit(&self) -> bool {
        let (before, wanted) = (self.before(), self.wanted());
        let limits = self.view.limits;
        limits.host_admits_instead(wanted, before)
            && limits
                .type_admits(wanted.0, Some(before.0.instance_type))
                .is_ok()
    }

    /// Whether all that is on it may be on it then as well, resources aside.
    fn is_indifferent(&self) -> bool {
        let (planned, view) = (self.planned(), self.view);
        let ((before, _), (wanted, offer)) = (self.before(), self.wanted());
        let (old, new) = (
            before.index_in_catalog(planned.offer),
            wanted.index_in_catalog(self.offer),
        );
        let slots = &self.node().slots;
        let alike =
            before.slots == wanted.slots || slots.as_ref().is_some_and(|slots| slots.unused());
        if !alike || !self.is_supplied() {
            return false;
        }
        let domains = &view.catalog.domains;
        planned.groups().all(|group| view.row(group).fits[new])
            && domains[old] == domains[new]
            && domains[new].len() == view.world.inter_pod.keys()
            && view
                .world
                .inter_pod
                .indifferent(planned.node, &offer.labels)
    }

    /// Whether it would have the volumes that its pods took, and those that are made for them.
    fn is_supplied(&self) -> bool {
        let node = self.node();
        let (now, then) = (node.at(), self.wanted().1.at());
        let needs = self.planned().groups();
        let needs = needs.filter_map(|group| self.view.group(group).need.as_deref());
        let mut alike = needs.flat_map(|need| &need.waiting);
        node.bindings.in_reach(&self.view.world.free_volumes, then)
            && alike.all(|claim| claim.provides(then) || !claim.provides(now))
    }

    /// Whether it would meet as many preferences of its pods.
    fn meets_as_many_preferences(&self) -> bool {
        let planned = self.planned();
        planned.groups().all(|group| {
            let now = self.view.unmet(group, planned.choice, planned.offer);
            self.view.unmet(group, self.choice, self.offer) <= now
        })
    }
}

/// Phase: every planned machine becomes the cheapest type of its pool that holds what was put on it, on the same host.
pub(super) fn shrink_to_fit<'a>(
    planner: &mut Planner<'_, 'a>,
    catalog: &Catalog<'_, 'a>,
    pending: &PendingGroups<'a>,
) {
    let mut order: Vec<ChoiceIndex> = catalog.choices.indexes().collect();
    order.sort_by_key(|choice| (catalog.choices[*choice].price, *choice));
    for machine in planner.planned.machines.indexes() {
        let found = find_cheapest_that_holds(planner.view(catalog, pending), machine, &order);
        if let Some((choice, offer)) = found {
            planner.change_type(catalog, pending, (machine, choice, offer));
        }
    }
}

/// The cheapest choice of its pool that holds what is on a planned machine, meets as many preferences about the node, and costs less than
/// the machine does now; with its offer on the same host. `None` where there is none. `order` has the choices by price.
fn find_cheapest_that_holds(
    view: PlanView<'_, '_>,
    machine: PlannedIndex,
    order: &[ChoiceIndex],
) -> Option<(ChoiceIndex, OfferIndex)> {
    let planned = &view.planned.machines[machine];
    let now = view.choice(planned.choice);
    let cheaper = order.iter().copied();
    let cheaper = cheaper.take_while(|choice| view.choice(*choice).price < now.price);
    let mut same_pool = cheaper.filter(|choice| view.choice(*choice).pool_index == now.pool_index);
    same_pool.find_map(|choice| {
        let then = TypeChange::on_same_host(view, machine, choice)?;
        let fits = then.has_room_for_its_pods()
            && then.limits_admit()
            && then.is_indifferent()
            && then.meets_as_many_preferences();
        fits.then_some((choice, then.offer))
    })
}
