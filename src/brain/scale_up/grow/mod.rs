//! New machines: for pools below their `min`, and for pods that fit nowhere.
//!
//! [`plan`] lists the phases. The first plan is greedy: the first group in order (priority, then whether every pod needs
//! a node of its own, then the worth of one pod) opens a node of the choice that carries most for its price, and other groups fill it up.
//! The same node is opened again as long as the same filling goes in; then the choice is made anew. Weight of the pool comes before price. A planned machine may still become a
//! larger one, and in the end becomes the cheapest that holds what was put on it. The second plan is made of all machines
//! at once, and replaces the first one where it is better. Limits are booked as it goes.

mod candidate_order;
mod catalog;
mod choose;
mod closed_domains;
pub(crate) mod domains;
mod draft;
mod first_plan;
mod fit_matrix;
mod larger;
mod min;
mod min_lots;
mod not_taken;
mod of_this_plan;
mod on_their_way;
mod one_domain;
mod pending;
mod planner;
mod preferences;
mod question;
mod refusals;
mod regions;
mod second_plan;
mod trial_node;
mod type_change;
mod view;
mod visits;
mod withdrawal;

use crate::decision::turn::DecisionBuilder;
use crate::scale_up::batch;
use crate::simulation::demand::Group;
use crate::simulation::offer::ChoiceList;
use crate::simulation::pack::FitIndex;
use crate::simulation::world::SimCluster;
use catalog::Catalog;
use pending::PendingGroups;
use planner::Planner;

/// Plans the machines to make. `groups` are the pods that fit on nothing there is (`existing`).
pub(crate) fn plan<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    choices: &ChoiceList<'a>,
    groups: Vec<Group<'a>>,
    existing: FitIndex,
) {
    let mut catalog = Catalog::of(choices);
    let mut pending = PendingGroups::sort_out(turn, world, &mut catalog, groups);
    let mut planner = Planner::begin(turn, world, existing);
    if let Some(until) = batch::update(planner.turn, pending.uids()) {
        min::open_for_min_without_pods(&mut planner, &catalog, &pending);
        pending.wait(planner.turn, until);
    } else {
        min::open_for_min(&mut planner, &catalog, &pending);
        let visits = first_plan::open_machines(&mut planner, &mut catalog, &mut pending);
        // Machines for a pool's `min` may be all that is planned.
        catalog.locate(planner.world);
        type_change::shrink_to_fit(&mut planner, &catalog, &pending);
        second_plan::repack(&mut planner, &mut catalog, &mut pending, visits);
        first_plan::enlarge_for_waiting(&mut planner, &mut catalog, &mut pending);
        preferences::apply(&mut planner, &mut catalog, &pending);
        not_taken::tell(&mut planner, &catalog, &pending);
        of_this_plan::tell(&mut planner, &pending);
    }
    planner.finish(&catalog, &pending);
}
