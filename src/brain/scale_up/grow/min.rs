//! New machines for pools that have less than their `min`.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use model::reasons::{Held, Refused};
use model::report::{Hold, Scope};

use super::catalog::Catalog;
use super::pending::PendingGroups;
use super::planner::Planner;
use super::refusals::OfferRefusal;
use super::view::PlanView;
use crate::decision::turn::DecisionBuilder;
use crate::decision::unread;
use crate::index::{ChoiceIndex, OfferIndex, RowIndex};
use crate::observed::view::{MachinePhase, MachineView};
use crate::scale_up::one_machine;
use crate::simulation::places;
use crate::simulation::planned::CreateReason;

/// How good a choice is: its weight, its price and what it has that was not requested.
type ChoiceRank = (Reverse<i32>, i64, u32);

/// Phase: opens machines for pools that have less than their `min`.
pub(super) fn open_for_min<'a>(
    planner: &mut Planner<'_, 'a>,
    catalog: &Catalog<'_, 'a>,
    pending: &PendingGroups<'a>,
) {
    open_for_min_except(planner, catalog, pending, &BTreeSet::new());
}

/// Phase while a batch of pods is open: the same for pools to which none of these pods could come. Those of the others wait for the batch,
/// since its pods may choose their types.
pub(super) fn open_for_min_without_pods<'a>(
    planner: &mut Planner<'_, 'a>,
    catalog: &Catalog<'_, 'a>,
    pending: &PendingGroups<'a>,
) {
    let rows: BTreeSet<RowIndex> = pending.groups.iter().map(|group| group.row).collect();
    let choices = catalog.choices.indexed();
    let wanted = choices.filter(|(index, _)| {
        let mut rows = rows.iter();
        rows.any(|row| catalog.rows.get(*row).any[*index])
    });
    let wanted = wanted.map(|(_, choice)| choice.pool).collect();
    open_for_min_except(planner, catalog, pending, &wanted);
}

/// Opens the machines for the `min` of all pools but some.
fn open_for_min_except<'a>(
    planner: &mut Planner<'_, 'a>,
    catalog: &Catalog<'_, 'a>,
    pending: &PendingGroups<'a>,
    others: &BTreeSet<&'a Arc<str>>,
) {
    let policy = planner.turn.view.policy;
    let pools = policy.pools.iter();
    for (name, pool) in pools.filter(|(name, _)| !others.contains(name)) {
        let have = count_nodes(planner.turn, name);
        let min = pool.min;
        for _ in have..min {
            let found = find_cheapest(planner.view(catalog, pending), name);
            let opened = found.and_then(|(choice, offer)| {
                let reason = CreateReason::Min { have, min };
                let opened = planner.open(catalog, choice, offer, reason);
                opened.map_err(Arc::new)
            });
            if let Err(refused) = opened {
                let held = Held::BelowMin { have, min, refused };
                let hold = Hold::new(Scope::Pool(name.clone()), held);
                planner.turn.report.holds.push(hold);
                break;
            }
        }
    }
}

/// How many nodes of a pool count for its `min`.
fn count_nodes(turn: &DecisionBuilder<'_>, pool: &Arc<str>) -> u32 {
    let machines = turn.view.machines.values();
    let of_pool = machines.filter(|machine| machine.pool_name() == &**pool);
    // At its `max` the pool gets no other one before one goes.
    let max = turn.view.policy.pools.get(pool).map_or(0, |pool| pool.max);
    let full = of_pool.clone().count() >= max as usize;
    let goes = |machine: &MachineView<'_>| {
        let name = machine.node.map(|(name, _)| name);
        !full && name.is_some_and(|name| turn.outdated.contains(name))
    };
    let have = of_pool.filter(|machine| {
        // One whose drain was interrupted is let go on only where the pool keeps its `min`.
        let stays = matches!(machine.phase, MachinePhase::Up | MachinePhase::Coming);
        // In the place of a node that is given up another one is made.
        (stays || machine.resumable()) && !places::is_given_up(turn, machine) && !goes(machine)
    });
    let unread = unread::find(turn.view.snapshot, turn.view.policy);
    let unread = unread.filter(|unread| unread.pool.0 == pool);
    let dark = unread::nodes(turn).filter(|(name, _)| *name == pool);
    u32::try_from(have.count() + unread.count() + dark.count()).unwrap_or(u32::MAX)
}

/// The choice and offer of one more machine for a pool's `min`: of the highest weight, then the cheapest that limits allow.
fn find_cheapest(
    view: PlanView<'_, '_>,
    pool: &Arc<str>,
) -> Result<(ChoiceIndex, OfferIndex), Arc<Refused>> {
    let choices = view.catalog.choices;
    let of_pool = choices
        .indexes()
        .filter(|index| choices[*index].pool == pool);
    // Of several regions the one of higher weight comes before the price.
    let nothing_wanted = BTreeSet::new();
    let order = of_pool.map(|index| {
        let choice = &choices[index];
        let unrequested = choice.count_unrequested(&nothing_wanted);
        let weight = Reverse(choice.policy.weight);
        ((weight, choice.price, unrequested), index)
    });
    let mut order: Vec<(ChoiceRank, ChoiceIndex)> = order.collect();
    order.sort_unstable();
    let mut refusal = None;
    let find_host = |index: ChoiceIndex| {
        let admitted = view.limits.admits(view.turn, &choices[index]);
        admitted.map_err(OfferRefusal::Held)?;
        view.find_host(index, None).map(|(offer, _)| offer)
    };
    let found =
        one_machine::choose_for_one_machine((choices, view.limits), &order, find_host, |_, why| {
            if let Some(why) = why.filter(|_| refusal.is_none()) {
                refusal = Some(view.explain_refusal(why, None, &mut Vec::new()));
            }
        });
    found.ok_or_else(|| refusal.unwrap_or_else(|| Arc::new(Refused::NoInstanceType)))
}
