//! Phase `tell`: why the other choices were not taken, told of the plan that stands.
//!
//! The first plan notes reasons while it opens machines. Types change after that, and with the second plan whole machines: a reason of
//! before might name the very type that a pod's machine is of now, or a limit that its own machine reaches.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::catalog::Catalog;
use super::pending::PendingGroups;
use super::planner::Planner;
use super::refusals::{OfferRefusal, RefusalLog, SharedRefusals};
use super::view::PlanView;
use crate::index::{ChoiceIndex, GroupIndex, IndexVec, PendingPodIndex, PlannedIndex, RowIndex};
use crate::simulation::pack::RefusalsByChoice;
use model::reasons::{Reasons, Refusals, Refused};
use model::report::PodVerdict;

/// By choice: what is against it in the place of a machine of the plan, whatever the pods.
type AgainstChoices = IndexVec<ChoiceIndex, Option<Arc<Refused>>>;

/// What the reasons of a group's pods on a machine depend on: the group's row, the machine's choice, whether that is the choice which the
/// first plan took, and what other pods have against which choice.
type ReasonsKey = (
    RowIndex,
    ChoiceIndex,
    bool,
    Vec<(ChoiceIndex, Arc<Refused>)>,
);

/// What is told already.
#[derive(Default)]
struct Told {
    against: BTreeMap<ChoiceIndex, AgainstChoices>,
    reasons: BTreeMap<ReasonsKey, Reasons>,
    shared: SharedRefusals,
}

/// Says of each pod on a planned machine why other choices were not taken. A pod that fills up a machine which was made for others is told
/// only which choices could not run it, as before.
pub(super) fn tell<'a>(
    planner: &mut Planner<'_, 'a>,
    catalog: &Catalog<'_, 'a>,
    pending: &PendingGroups<'a>,
) {
    let mut told = Told::default();
    for machine in planner.planned.machines.indexes() {
        let planned = &planner.planned.machines[machine];
        let (own, node) = (planned.choice, planned.node);
        let assigned = planned.assigned.clone();
        for one in assigned {
            let group = one.group;
            let row = catalog.rows.get(pending.groups[group].row);
            if one.pods.is_empty() || pending.groups[group].why.len() == row.why.len() {
                continue;
            }
            told.against
                .entry(own)
                .or_insert_with(|| find_against(planner, catalog, pending, machine));
            let others = told.reasons(planner.view(catalog, pending), group, own);
            let verdict = PodVerdict::Triggers {
                machine: planner.world.nodes[node].name.clone(),
                others,
            };
            for pod in one.pods {
                let to_place = pending.groups[group].pods[PendingPodIndex(pod)];
                planner.turn.say(to_place, &verdict);
            }
        }
    }
}

/// What weights and limits have against each choice in the place of a machine. The machine itself does not count for limits meanwhile.
fn find_against<'a>(
    planner: &mut Planner<'_, 'a>,
    catalog: &Catalog<'_, 'a>,
    pending: &PendingGroups<'a>,
    machine: PlannedIndex,
) -> AgainstChoices {
    let planned = &planner.planned.machines[machine];
    let (own, vmid) = (&catalog.choices[planned.choice], planned.vmid);
    let offer = &own.offers[planned.offer];
    let tier = planner.view(catalog, pending).tier(planned.choice);
    planner.limits.unbook(own, offer, vmid);
    let view = planner.view(catalog, pending);
    let choices = catalog.choices.indexed();
    let against = choices.map(|(index, choice)| {
        if view.tier(index) > tier {
            let pool = own.pool.clone();
            return Some(Refused::WeighsLess { pool }.into());
        }
        let limit = view.limits.admits(view.turn, choice);
        let limit = limit.map_err(OfferRefusal::Held);
        match limit.and_then(|()| view.find_host(index, None)) {
            Err(OfferRefusal::Held(refused)) => Some(refused.into()),
            _ => None,
        }
    });
    let against = against.collect();
    planner.limits.book(own, offer, vmid);
    against
}

impl Told {
    /// Why pods of a group that are on a machine of a choice are on none of the others.
    fn reasons(&mut self, view: PlanView<'_, '_>, group: GroupIndex, own: ChoiceIndex) -> Reasons {
        let (choices, of) = (view.catalog.choices, view.group(group));
        let by_pods = list_by_pods(view, group, own);
        let first = is_first_choice(&of.why, &choices[own].label);
        let key = (of.row, own, first, by_pods);
        if let Some(known) = self.reasons.get(&key) {
            return known.clone();
        }
        let dearer: Arc<Refused> = Arc::new(if first {
            let winner = choices[own].label.clone();
            Refused::CarriesLess { winner }
        } else {
            Refused::NotCheaper
        });
        let (row, tier) = (view.row(group), view.tier(own));
        let against = self.against.get(&own);
        let cheaper = Arc::new(Refused::NotCheaper);
        let mut log = RefusalLog::default();
        for choice in choices
            .indexes()
            .filter(|choice| *choice != own && row.any[*choice])
        {
            let of_pods = key.3.iter().find(|(other, _)| *other == choice);
            let refused = against.and_then(|against| against[choice].as_ref());
            let refused = refused.or(of_pods.map(|(_, why)| why));
            // A pool of higher weight was not compared by its price.
            let otherwise = if view.tier(choice) == tier {
                &dearer
            } else {
                &cheaper
            };
            log.say(choices, choice, refused.unwrap_or(otherwise));
        }
        let reasons = self.shared.reasons(choices, of.row, &row.why, &log);
        self.reasons.insert(key, reasons.clone());
        reasons
    }
}

/// Whether the first plan took this choice, and said so of those that carry less for their price.
fn is_first_choice(why: &RefusalsByChoice, label: &Arc<str>) -> bool {
    let mut all = why.values().flat_map(Refusals::iter);
    all.any(|refused| matches!(&**refused, Refused::CarriesLess { winner } if winner == label))
}

/// What other pods had against choices when the group's machine was chosen.
fn list_by_pods(
    view: PlanView<'_, '_>,
    group: GroupIndex,
    own: ChoiceIndex,
) -> Vec<(ChoiceIndex, Arc<Refused>)> {
    let (row, why) = (view.row(group), &view.group(group).why);
    let choices = view.catalog.choices.indexed();
    let others = choices.filter(|(index, _)| *index != own && row.any[*index]);
    let found = others.filter_map(|(index, choice)| {
        let mut refusals = why.get(&choice.label)?.iter();
        let refused =
            refusals.find(|refused| matches!(***refused, Refused::FilterFailure { .. }))?;
        Some((index, refused.clone()))
    });
    found.collect()
}
