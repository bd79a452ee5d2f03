//! An empty node would go while a more expensive one stays because its pods have no place: the other way round
//! is cheaper, and nothing has to be made for it.

use crate::decision::turn::DecisionBuilder;
use crate::index::{IndexVec, UnneededIndex};
use crate::scale_down::candidates::RemovalCandidate;
use crate::scale_down::mode::Mode;
use crate::scale_down::node_budgets::NodeBudgets;
use crate::scale_down::removal_groups::{GroupKind, RemovalGroup};
use crate::scale_down::shrink::{self, KeepReason, Rehearsals};
use crate::simulation::world::SimCluster;
use model::disruption::Cause;
use model::reasons::Kept;

/// Nodes that are tried in one decision at most, those that save most per eviction cost; and empty nodes that each
/// of them is tried on.
const MAX_TRIES: usize = 20;

/// Lets empty nodes stay for more expensive ones that then can go. Returns the candidates that still cannot.
pub(crate) fn plan<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    rehearsals: &mut Rehearsals,
    unneeded: &mut IndexVec<UnneededIndex, RemovalGroup<'a>>,
    stuck: Vec<RemovalCandidate<'a>>,
) -> Vec<RemovalCandidate<'a>> {
    let mut left = Vec::new();
    let mut tries = 0;
    let mut budgets = None;
    for candidate in stuck {
        let wanted = matches!(candidate.mode, Mode::Consolidate)
            && turn
                .view
                .machine_of_node(candidate.name)
                .is_some_and(super::replaces)
            && !candidate.empty()
            && tries < MAX_TRIES
            && may_go(
                turn,
                budgets.get_or_insert_with(|| NodeBudgets::of(turn)),
                &candidate,
            );
        if !wanted {
            left.push(candidate);
            continue;
        }
        tries += 1;
        left.extend(exchanged(turn, world, rehearsals, unneeded, candidate));
    }
    left
}

/// Whether its pool's budgets would let a node go now: for one that has to wait nothing empty stays.
fn may_go(
    turn: &DecisionBuilder<'_>,
    budgets: &NodeBudgets<'_>,
    candidate: &RemovalCandidate<'_>,
) -> bool {
    let Some(machine) = turn.view.machine_of_node(candidate.name) else {
        return false;
    };
    let of_pool = machine.pool.map_or(&[][..], |pool| &pool.budgets);
    let name = machine.pool_name();
    budgets
        .admit(name, of_pool, Cause::Underused, 1, turn.now())
        .is_ok()
}

/// Tries one candidate on each empty node that is cheaper, the cheapest first; gives it back when none
/// will do.
fn exchanged<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    rehearsals: &mut Rehearsals,
    unneeded: &mut IndexVec<UnneededIndex, RemovalGroup<'a>>,
    mut candidate: RemovalCandidate<'a>,
) -> Option<RemovalCandidate<'a>> {
    let mut spares: Vec<UnneededIndex> = unneeded
        .indexes()
        .filter(|index| cheaper(turn, &unneeded[*index], &candidate))
        .collect();
    spares.sort_by_key(|index| (unneeded[*index].nodes[0].price, *index));
    for index in spares.into_iter().take(MAX_TRIES) {
        let empty = unneeded[index].nodes[0].index;
        world.reopen(empty);
        rehearsals.raise(world, &[empty]);
        match rehearsals.attempt(turn, world, RemovalGroup::alone(candidate)) {
            Ok(group) => {
                let spare = unneeded.remove(index);
                let name = group.nodes[0].name;
                let keep = KeepReason::because(Kept::PodsOfDearerMoveHere { node: name.clone() });
                for node in &spare.nodes {
                    shrink::stay(turn, node.name, keep.clone());
                }
                unneeded.push(group);
                return None;
            }
            Err(refused) => {
                world.close(empty);
                candidate = refused.0.into_iter().next()?.0;
            }
        }
    }
    Some(candidate)
}

/// Whether a group is one empty node that goes for consolidation and is cheaper by what the candidate's
/// pool wants.
fn cheaper(
    turn: &DecisionBuilder<'_>,
    group: &RemovalGroup<'_>,
    candidate: &RemovalCandidate<'_>,
) -> bool {
    let [spare] = &group.nodes[..] else {
        return false;
    };
    let how = turn
        .view
        .machine_of_node(candidate.name)
        .and_then(super::of);
    let wanted = how.map_or(i64::MAX, |how| how.min_saving.wanted(candidate.price));
    group.kind == GroupKind::None
        && spare.empty()
        && matches!(spare.mode, Mode::Consolidate)
        && candidate.price.saturating_sub(spare.price) >= wanted
}
