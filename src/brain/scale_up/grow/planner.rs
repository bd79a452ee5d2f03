//! The plan in the making: the machines planned so far, the world with them in it, and what limits still leave. Whatever
//! changes the three together is here.

use std::collections::BTreeSet;
use std::ops::Range;

use super::catalog::Catalog;
use super::pending::PendingGroups;
use super::type_change::TypeChange;
use super::view::PlanView;
use crate::constraints::shape::HOSTNAME_LABEL;
use crate::decision::turn::DecisionBuilder;
use crate::index::{ChoiceIndex, GroupIndex, IndexVec, NodeIndex, OfferIndex, PlannedIndex};
use crate::scale_up::limits::LimitTracker;
use crate::simulation::pack::FitIndex;
use crate::simulation::planned::{AssignedPods, CreateReason, PlannedMachine, PlannedMachines};
use crate::simulation::world::{NodeOrigin, SimCluster};
use model::reasons::Refused;
use model::report::PodVerdict;

/// The plan in the making.
#[derive(Debug)]
pub(super) struct Planner<'p, 'a> {
    pub(super) turn: &'p mut DecisionBuilder<'a>,
    pub(super) world: &'p mut SimCluster<'a>,
    pub(super) limits: LimitTracker,
    pub(super) planned: PlannedMachines,
    /// The places there are: pods put on planned machines may open them to others.
    pub(super) existing: FitIndex,
    /// Machines that were looked at for second plans, in this decision.
    pub(super) looked: u64,
}

impl<'p, 'a> Planner<'p, 'a> {
    /// No machine is planned yet.
    pub(super) fn begin(
        turn: &'p mut DecisionBuilder<'a>,
        world: &'p mut SimCluster<'a>,
        existing: FitIndex,
    ) -> Planner<'p, 'a> {
        let limits = LimitTracker::of(turn);
        Planner {
            turn,
            world,
            limits,
            planned: PlannedMachines::begin(),
            existing,
            looked: 0,
        }
    }

    /// What questions are asked of, while nothing changes.
    pub(super) fn view<'v>(
        &'v self,
        catalog: &'v Catalog<'v, 'a>,
        pending: &'v PendingGroups<'a>,
    ) -> PlanView<'v, 'a> {
        PlanView {
            turn: self.turn,
            world: self.world,
            limits: &self.limits,
            planned: &self.planned,
            existing: &self.existing,
            catalog,
            pending,
        }
    }

    /// Opens one machine. Returns its node in the simulated world.
    pub(super) fn open(
        &mut self,
        catalog: &Catalog<'_, 'a>,
        choice: ChoiceIndex,
        offer: OfferIndex,
        reason: CreateReason,
    ) -> Result<NodeIndex, Refused> {
        let chosen = &catalog.choices[choice];
        // Pools share networks: what is left for each of them does not tell what is left for all.
        self.limits.addresses_admit(chosen)?;
        let vmid = self
            .limits
            .vmid(self.turn, &chosen.policy.region)
            .ok_or(Refused::NoFreeVmid)?;
        let (planned, at) = (&mut self.planned, (choice, offer));
        let node = planned
            .add(self.turn, self.world, catalog.choices, at, vmid, reason)
            .ok_or(Refused::NoFreeName)?;
        self.limits.book(chosen, &chosen.offers[offer], vmid);
        Ok(node)
    }

    /// Makes a planned machine one of another type. Returns its node in the simulated world.
    pub(super) fn change_type(
        &mut self,
        catalog: &Catalog<'_, 'a>,
        pending: &PendingGroups<'a>,
        (machine, choice, offer): (PlannedIndex, ChoiceIndex, OfferIndex),
    ) -> NodeIndex {
        let then = TypeChange::new(self.view(catalog, pending), machine, choice, offer);
        let (free, slots) = (then.free(), then.slots());
        let wanted = &catalog.choices[choice];
        let planned = &mut self.planned.machines[machine];
        let before = &catalog.choices[planned.choice];
        let from = &before.offers[planned.offer];
        let node = planned.node;
        (planned.choice, planned.offer) = (choice, offer);
        let to = &wanted.offers[offer];
        self.limits.rebook((wanted, to), (before, from));
        let mut labels = to.labels.clone();
        labels.insert(HOSTNAME_LABEL.into(), self.world.nodes[node].name.clone());
        self.world.nodes[node].slots = slots;
        self.world.become_other(node, labels, free);
        self.planned.raise(machine, self.world);
        node
    }

    /// Moves a planned machine, whose place is closed, to the host of another offer of its choice.
    pub(super) fn relocate(
        &mut self,
        catalog: &Catalog<'_, 'a>,
        pending: &PendingGroups<'a>,
        (machine, offer): (PlannedIndex, OfferIndex),
    ) {
        let planned = &self.planned.machines[machine];
        let (node, choice) = (planned.node, &catalog.choices[planned.choice]);
        let (from, to) = (&choice.offers[planned.offer], &choice.offers[offer]);
        let then = TypeChange::new(self.view(catalog, pending), machine, planned.choice, offer);
        let free = then.free();
        self.limits.relocate(choice, from, to);
        let mut labels = to.labels.clone();
        labels.insert(HOSTNAME_LABEL.into(), self.world.nodes[node].name.clone());
        self.planned.machines[machine].offer = offer;
        self.world.relocate(node, labels, free);
    }

    /// Takes back what limits were booked for a planned machine, and what volumes its pods took.
    pub(super) fn cancel(&mut self, catalog: &Catalog<'_, 'a>, machine: PlannedIndex) {
        let planned = &self.planned.machines[machine];
        let choice = &catalog.choices[planned.choice];
        let offer = &choice.offers[planned.offer];
        self.limits.unbook(choice, offer, planned.vmid);
        let node = planned.node;
        self.world.assumed.revoke(&self.world.nodes[node].bindings);
        self.world.close(node);
    }

    /// Books a planned machine that was cancelled once more.
    pub(super) fn confirm(&mut self, catalog: &Catalog<'_, 'a>, machine: PlannedIndex) {
        let planned = &self.planned.machines[machine];
        let choice = &catalog.choices[planned.choice];
        let offer = &choice.offers[planned.offer];
        self.limits.book(choice, offer, planned.vmid);
        let node = planned.node;
        self.world.reopen(node);
        self.world.assumed.give(&self.world.nodes[node].bindings);
    }

    /// Takes these machines, which are cancelled, off the plan.
    pub(super) fn take_off(&mut self, machines: &[PlannedIndex]) -> Vec<PlannedMachine> {
        let all = std::mem::take(&mut self.planned.machines);
        let gone: BTreeSet<PlannedIndex> = machines.iter().copied().collect();
        let (mut off, mut kept) = (Vec::new(), IndexVec::default());
        for (position, planned) in all.into_vec().into_iter().enumerate() {
            if gone.contains(&PlannedIndex(position)) {
                off.push(planned);
            } else {
                kept.push(planned);
            }
        }
        self.planned.machines = kept;
        self.number();
        off
    }

    /// Cancels all planned machines from this one on, and puts those back at their numbers that were taken off.
    pub(super) fn put_back(
        &mut self,
        catalog: &Catalog<'_, 'a>,
        first: PlannedIndex,
        off: Vec<PlannedMachine>,
        machines: &[PlannedIndex],
    ) {
        for machine in self.planned.machines.indexes_from(first).rev() {
            self.cancel(catalog, machine);
        }
        self.planned.machines.truncate(first);
        for (planned, at) in off.into_iter().zip(machines) {
            self.planned.machines.insert(*at, planned);
        }
        self.number();
    }

    /// A planned machine, by its place in the world, is made for this reason.
    pub(super) fn give_reason(&mut self, node: NodeIndex, reason: CreateReason) {
        if let NodeOrigin::Planned(machine) = self.world.nodes[node].origin {
            self.planned.machines[machine].reason = reason;
        }
    }

    /// Machines from this one on that nothing came to are not made, but for those of a pool's `min`.
    pub(super) fn drop_empty(&mut self, catalog: &Catalog<'_, 'a>, first: PlannedIndex) {
        for machine in self.planned.machines.indexes_from(first).rev() {
            let planned = &self.planned.machines[machine];
            let daemons = &catalog.choices[planned.choice].offers[planned.offer].residents;
            let residents = &self.world.nodes[planned.node].residents;
            let pods: u64 = residents.iter().map(|pods| pods.count).sum();
            if pods <= daemons.len() as u64 && !planned.is_for_min() {
                self.cancel(catalog, machine);
                self.planned.machines.remove(machine);
            }
        }
        self.number();
    }

    /// Numbers the planned machines again.
    fn number(&mut self) {
        let nodes = self.planned.machines.iter().map(|planned| planned.node);
        let nodes: Vec<NodeIndex> = nodes.collect();
        for (position, node) in nodes.iter().enumerate() {
            let machine = PlannedIndex(position);
            self.world.nodes[*node].origin = NodeOrigin::Planned(machine);
        }
        self.planned.fit_index = FitIndex::over(&nodes, self.world);
    }

    /// Indexes the existing places again, after pods left them.
    pub(super) fn renew_existing(&mut self) {
        self.existing = FitIndex::over(self.existing.nodes(), self.world);
    }

    /// The next pods of a group go to a planned node.
    pub(super) fn assign_next(
        &mut self,
        pending: &mut PendingGroups<'a>,
        (group, count): (GroupIndex, usize),
        node: NodeIndex,
    ) {
        let first = pending.groups[group].next;
        let pods = pending.take_next(self.turn, group, count);
        let range: Range<usize> = first.0..first.0 + count;
        let verdict = PodVerdict::Triggers {
            machine: self.world.nodes[node].name.clone(),
            others: pending.groups[group].why.clone(),
        };
        for to_place in &pods {
            self.turn.say(*to_place, &verdict);
        }
        self.planned
            .assign(&self.world.nodes[node].origin, group, range);
    }

    /// Writes the actions of the planned machines.
    pub(super) fn finish(self, catalog: &Catalog<'_, 'a>, pending: &PendingGroups<'a>) {
        self.world.inter_pod.close();
        let mut storages = self.limits.storage_answers();
        let pods = |assigned: &AssignedPods| {
            &(*pending.groups[assigned.group].pods)[assigned.pods.clone()]
        };
        let (turn, choices) = (self.turn, catalog.choices);
        self.planned
            .finish(turn, choices, |ways| storages.of(ways), pods);
    }
}
