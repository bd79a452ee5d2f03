//! What one node has room for: filled on trial, to learn what it would carry, and filled for good.

use std::sync::Arc;

use super::choose::Pick;
use super::type_change::TypeChange;
use super::view::PlanView;
use crate::constraints::fit::attach::{self, AttachSlots};
use crate::constraints::fit::volumes::VolumeNeed;
use crate::constraints::fit::{self, amounts};
use crate::constraints::free_volumes::VolumeBindings;
use crate::index::{
    CatalogOfferIndex, ChoiceIndex, GroupIndex, ListIndex, OfferIndex, PendingPodIndex, RunIndex,
    indexes_in,
};
use model::resources::Resources;
use model::scheduling::HostPort;

/// What is left of a node that is filled on trial.
#[derive(Debug)]
pub(super) struct TrialNode<'v, 'a> {
    view: PlanView<'v, 'a>,
    free: Resources,
    ports: Vec<HostPort>,
    slots: Option<Arc<AttachSlots>>,
    /// Which offer it is of.
    choice: ChoiceIndex,
    offer: OfferIndex,
    /// Volumes that claims take.
    bindings: VolumeBindings,
}

impl<'v, 'a> TrialNode<'v, 'a> {
    /// The room of an empty node of an offer.
    pub(super) fn of_offer(
        view: PlanView<'v, 'a>,
        choice: ChoiceIndex,
        offer: OfferIndex,
    ) -> TrialNode<'v, 'a> {
        let of = view.choice(choice);
        let at = &of.offers[offer];
        TrialNode {
            view,
            free: at.free.clone(),
            ports: at.ports.clone(),
            slots: of.slots.clone(),
            choice,
            offer,
            bindings: VolumeBindings::default(),
        }
    }

    /// What a planned machine would have left, were it one of another offer.
    pub(super) fn of_machine(then: &TypeChange<'v, 'a>) -> TrialNode<'v, 'a> {
        TrialNode {
            view: then.view,
            free: then.free(),
            ports: then.node().ports.clone(),
            slots: then.slots(),
            choice: then.choice,
            offer: then.offer,
            bindings: VolumeBindings::default(),
        }
    }

    /// Which of a row's answers is about this node.
    fn index_in_catalog(&self) -> CatalogOfferIndex {
        self.view.choice(self.choice).index_in_catalog(self.offer)
    }

    /// Adds to a pick what the node would carry: up to `may` pods of the leading group first, then the others in order,
    /// from the run `others` on. What other pods forbid the others is not asked; so this is how much there may be, not
    /// what will be.
    pub(super) fn count_fill(
        mut self,
        pick: &mut Pick,
        (lead, may): (GroupIndex, usize),
        others: Option<RunIndex>,
    ) {
        let offer = self.index_in_catalog();
        let view = self.view;
        let group = view.group(lead);
        pick.lead_pods = self.fits(lead).min(may).min(group.left());
        if pick.lead_pods == 0 {
            return;
        }
        self.take(pick, lead, pick.lead_pods);
        let runs = view.pending.runs.indexed();
        let skipped = others.map_or(usize::MAX, ListIndex::position);
        for (index, run) in runs.skip(skipped) {
            if self.free.pods <= 0 {
                break;
            }
            let mut left = run.left;
            if index == group.run {
                left -= group.left();
            }
            if left == 0
                || amounts::full(run.asked, &self.free)
                || !view.catalog.rows.get(run.row).fits[offer]
            {
                continue;
            }
            // Of those that share a claim for one pod alone only one finds a place.
            let first = run.groups.start;
            let need = view.group(first).need.as_deref();
            let single = run.alone || need.is_some_and(|need| !need.alone.is_empty());
            let most = if single { 1 } else { left };
            let count = self.fits(first).min(most);
            if count > 0 {
                self.take(pick, first, count);
            }
        }
    }

    /// What goes on the node, as groups with how many pods: `count` pods of the leading group, then those of groups that
    /// other pods do not matter to. The rest comes when its turn comes, and its rules are asked.
    pub(super) fn fill(mut self, lead: GroupIndex, count: usize) -> Vec<(GroupIndex, usize)> {
        let offer = self.index_in_catalog();
        let view = self.view;
        let mut fill = vec![(lead, count)];
        self.use_up(lead, count);
        let runs = view.pending.runs.tail(view.group(lead).run);
        let others = if runs[0].alone {
            view.pending.groups.next_index()
        } else {
            GroupIndex(lead.0 + 1)
        };
        for run in runs {
            if run.left == 0 || !view.catalog.rows.get(run.row).fits[offer] {
                continue;
            }
            for index in indexes_in(run.groups.start.max(others)..run.groups.end) {
                if amounts::full(run.asked, &self.free) {
                    break;
                }
                let group = view.group(index);
                let passed = group.left() == 0 || group.dependent;
                if passed || is_spoken_for(view, index, &fill) {
                    continue;
                }
                let some = self.fits(index).min(group.left());
                if some > 0 {
                    self.use_up(index, some);
                    fill.push((index, some));
                }
            }
        }
        fill
    }

    /// How many pods of a group it has room for.
    fn fits(&self, group: GroupIndex) -> usize {
        let shape = self.view.shape(group).shape;
        let need = self.view.group(group).need.as_deref();
        let full = need.and_then(|need| self.slots.as_ref()?.filter_failure(need));
        if full.is_some() {
            return 0;
        }
        let most = fit::room(shape, &self.free, &self.ports);
        let most = match need.filter(|need| !need.waiting.is_empty()) {
            Some(need) => self.served(need, most, &mut self.bindings.clone()),
            None => most,
        };
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// For how many pods, `limit` at most, the node finds volumes beside those in `bindings`, which is added to.
    fn served(&self, need: &VolumeNeed, limit: u64, bindings: &mut VolumeBindings) -> u64 {
        let at = self.view.choice(self.choice).offers[self.offer].at();
        let world = self.view.world;
        world
            .assumed
            .serve(&world.free_volumes, need, at, limit, bindings)
    }

    /// Puts pods of a group there.
    fn use_up(&mut self, group: GroupIndex, count: usize) {
        let shape = self.view.shape(group).shape;
        amounts::take(&mut self.free, &shape.requests, count as u64);
        self.ports.extend(shape.host_ports.iter().cloned());
        let need = self.view.group(group).need.as_deref();
        attach::take(&mut self.slots, need);
        if let Some(need) = need.filter(|need| !need.waiting.is_empty()) {
            let mut bindings = std::mem::take(&mut self.bindings);
            self.served(need, count as u64, &mut bindings);
            self.bindings = bindings;
        }
    }

    /// Puts pods of a group there, and counts what they are worth.
    fn take(&mut self, pick: &mut Pick, group: GroupIndex, count: usize) {
        self.use_up(group, count);
        let count = i128::try_from(count).unwrap_or(i128::MAX);
        let run = self.view.group(group).run;
        let worth = self.view.pending.runs[run].worth;
        pick.worth = pick.worth.saturating_add(worth.saturating_mul(count));
    }
}

/// Whether a claim of the next pod of a group is for one pod alone and goes to another, perhaps to
/// one of this filling.
fn is_spoken_for(view: PlanView<'_, '_>, group: GroupIndex, fill: &[(GroupIndex, usize)]) -> bool {
    let of = view.group(group);
    let Some(need) = of.need.as_deref().filter(|need| !need.alone.is_empty()) else {
        return false;
    };
    let key = of.pods[of.next].key;
    let shares = |other: GroupIndex| {
        let other = view.group(other);
        let theirs = other.need.as_deref().map(|theirs| &theirs.alone);
        other.pods[PendingPodIndex(0)].key.namespace == key.namespace
            && theirs.is_some_and(|theirs| !theirs.is_disjoint(&need.alone))
    };
    view.turn
        .claim_reservations
        .refusal(key, Some(need))
        .is_some()
        || fill.iter().any(|(other, _)| shares(*other))
}
