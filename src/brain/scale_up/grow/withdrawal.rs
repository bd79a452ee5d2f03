//! What of the first plan is given up for the second one to be made of: its machines, with the pods on them and those without a place.
//!
//! A machine for a pool's `min` is given up as one for pods is. The second plan has as many machines of its pool as were given up, of
//! whatever types, so that pods may choose its type: [`super::question`] asks for such a machine as for a pod that any machine of the
//! pool holds, and none holds a second time.

use std::collections::BTreeMap;

use super::draft::Rank;
use super::first_plan::Visit;
use super::question;
use super::view::PlanView;
use crate::decision::turn::DecisionBuilder;
use crate::index::{
    GroupIndex, IndexVec, ListIndex, LotIndex, NodeIndex, PendingPodIndex, PlannedIndex, PoolIndex,
    RowIndex, TierIndex, indexes_in,
};
use crate::simulation::offer::Choice;
use crate::simulation::planned::{CreateReason, PlannedMachine};
use model::reasons::Held;

/// Plans for more pods, or more groups, stay as they are.
const MAX_PODS: usize = 10_000;
const MAX_GROUPS: usize = 4_000;

/// A group whose pods the second plan may place elsewhere.
#[derive(Debug)]
pub(super) struct ReplannedGroup {
    pub(super) group: GroupIndex,
    /// The group's pods on machines that are withdrawn, and those without a place.
    pub(super) pods: Vec<PendingPodIndex>,
    /// The number of `pods` that have a place in the first plan; they come first in the list.
    pub(super) placed: usize,
    /// Bounds while every pod has a place: the tier of lowest weight they may be in, and the largest weight of unmet preferences about the node.
    pub(super) tier: TierIndex,
    pub(super) unmet: i64,
}

/// Machines for the `min` of a pool that the second plan makes instead of the first: as many of the pool.
#[derive(Debug)]
pub(super) struct MinMachines {
    /// The pool's place in the policy.
    pub(super) pool: PoolIndex,
    pub(super) machines: usize,
    /// Why they are made, the pods that come to them aside.
    pub(super) reason: CreateReason,
}

/// What of the first plan is given up for the second, and the rank of the first.
#[derive(Debug)]
pub(super) struct Withdrawal {
    /// The planned machines that are given up.
    pub(super) machines: Vec<PlannedIndex>,
    pub(super) replanned: IndexVec<LotIndex, ReplannedGroup>,
    /// The machines that are for the `min` of pools, in the order of the policy.
    pub(super) mins: Vec<MinMachines>,
    /// Machines on their way that pods may go to, or stay on.
    pub(super) coming: Vec<NodeIndex>,
    /// What a second plan must be better than.
    pub(super) rank: Rank,
}

impl Withdrawal {
    /// The `min` that a lot stands for, where it stands for no group: those of groups come first.
    pub(super) fn min_of(&self, lot: LotIndex) -> Option<&MinMachines> {
        let after = lot.position().checked_sub(self.replanned.len())?;
        self.mins.get(after)
    }
}

/// Why there is no second plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoSecondPlan {
    /// There is nothing to be planned anew, or nothing it could go to.
    Nothing,
    /// It would be too much for one decision.
    TooLarge,
}

/// What is given up for the second plan.
///
/// # Errors
///
/// Nothing is, or it would be too much.
pub(super) fn propose(
    view: PlanView<'_, '_>,
    (visits, coming): (&[Visit], Vec<NodeIndex>),
    movable: &IndexVec<GroupIndex, bool>,
) -> Result<Withdrawal, NoSecondPlan> {
    let groups = movable.iter().filter(|movable| **movable).count();
    if groups > MAX_GROUPS {
        return Err(NoSecondPlan::TooLarge);
    }
    let machines = find_withdrawable(view, movable).ok_or(NoSecondPlan::Nothing)?;
    let replanned = find_replanned(view, visits, &machines, movable);
    let pods: usize = replanned.iter().map(|of| of.pods.len()).sum();
    if pods == 0 {
        return Err(NoSecondPlan::Nothing);
    }
    if pods > MAX_PODS {
        return Err(NoSecondPlan::TooLarge);
    }
    let mut rank = rank_first(view, &machines, &replanned);
    if !view.turn.view.nominates() {
        // What a plan costs in the end is more than its price, and is not known of this one.
        rank.price = i128::MAX;
    }
    Ok(Withdrawal {
        mins: count_for_min(view, &machines),
        machines,
        replanned,
        coming,
        rank,
    })
}

/// Whether a pool lacks machines for its `min` that could not be opened: larger ones for others could take the room that they wait for.
pub(super) fn lacks_for_min(turn: &DecisionBuilder<'_>) -> bool {
    let mut holds = turn.report.holds.iter();
    holds.any(|hold| matches!(hold.why.held, Held::BelowMin { .. }))
}

/// The planned machines that may be given up, all their pods being free to go; `None` where nothing is to be
/// laid out.
fn find_withdrawable(
    view: PlanView<'_, '_>,
    movable: &IndexVec<GroupIndex, bool>,
) -> Option<Vec<PlannedIndex>> {
    // What a pool lacks that could not be opened is nowhere in the question: more expensive types for other pods could take its room.
    let lacking = lacks_for_min(view.turn);
    // Whether a pod of such a group waits, by row.
    let mut rows: BTreeMap<RowIndex, bool> = BTreeMap::new();
    for (_, of) in view
        .pending
        .groups
        .indexed()
        .filter(|(group, _)| movable[*group])
    {
        *rows.entry(of.row).or_default() |= of.left() > 0;
    }
    let left = rows.values().any(|waits| *waits);
    let rows = MinRows { view, rows: &rows };
    let mut known: BTreeMap<PoolIndex, MinPods> = BTreeMap::new();
    let mut may_go = |planned: &PlannedMachine| {
        if !planned.is_for_min() {
            return true;
        }
        let pool = view.choice(planned.choice).pool_index;
        let pods = || *known.entry(pool).or_insert_with(|| rows.pods_of(pool));
        !lacking && rows.may_go(planned, pods)
    };
    let machines = view.planned.machines.indexes().filter(|machine| {
        let planned = &view.planned.machines[*machine];
        planned.groups().all(|group| movable[group]) && may_go(planned)
    });
    let machines: Vec<PlannedIndex> = machines.collect();
    (left || !machines.is_empty()).then_some(machines)
}

/// The rows of groups that may be laid out anew, each with whether a pod of one waits.
#[derive(Clone, Copy)]
struct MinRows<'r, 'v, 'a> {
    view: PlanView<'v, 'a>,
    rows: &'r BTreeMap<RowIndex, bool>,
}

/// The pods that could be on a machine of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MinPods {
    None,
    /// Some could, and have a place.
    Placed,
    /// One of those that could waits.
    Waiting,
}

impl MinRows<'_, '_, '_> {
    /// Whether pods of a row could be on a machine of one of these choices.
    fn could_be(&self, row: RowIndex, of: impl Fn(&Choice<'_>) -> bool) -> bool {
        let any = &self.view.catalog.rows.get(row).any;
        let mut choices = self.view.catalog.choices.indexed();
        choices.any(|(index, choice)| any[index] && of(choice))
    }

    fn pods_of(&self, pool: PoolIndex) -> MinPods {
        let mut pods = MinPods::None;
        for (row, waits) in self.rows {
            if self.could_be(*row, |choice| choice.pool_index == pool) {
                if *waits {
                    return MinPods::Waiting;
                }
                pods = MinPods::Placed;
            }
        }
        pods
    }

    /// Whether a machine for the `min` of its pool is laid out anew: one of the pods that could be on the pool's machines waits, or some
    /// could be and none of those on this machine could be in a heavier pool that limits allow one more machine. For the weight's sake
    /// such a pod would get a machine more there, while this one is made in any case, and takes pods as a node that is there does. Pods
    /// that are in the heavier pool already stay there, whatever becomes of this machine.
    fn may_go(&self, planned: &PlannedMachine, pods: impl FnOnce() -> MinPods) -> bool {
        let weight = self.view.choice(planned.choice).policy.weight;
        let heavier = |choice: &Choice<'_>| {
            choice.policy.weight > weight && self.view.limits.admits(self.view.turn, choice).is_ok()
        };
        match pods() {
            MinPods::None => false,
            MinPods::Waiting => true,
            MinPods::Placed => !planned
                .groups()
                .any(|group| self.could_be(self.view.pending.groups[group].row, heavier)),
        }
    }
}

/// How many of these machines are for the `min` of which pool.
fn count_for_min(view: PlanView<'_, '_>, machines: &[PlannedIndex]) -> Vec<MinMachines> {
    let mut mins: BTreeMap<PoolIndex, MinMachines> = BTreeMap::new();
    for machine in machines {
        let planned = &view.planned.machines[*machine];
        if !planned.is_for_min() {
            continue;
        }
        let pool = view.choice(planned.choice).pool_index;
        let min = mins.entry(pool).or_insert(MinMachines {
            pool,
            machines: 0,
            reason: planned.reason,
        });
        min.machines += 1;
    }
    mins.into_values().collect()
}

/// The groups whose pods the second plan places when these machines are withdrawn.
fn find_replanned(
    view: PlanView<'_, '_>,
    visits: &[Visit],
    machines: &[PlannedIndex],
    movable: &IndexVec<GroupIndex, bool>,
) -> IndexVec<LotIndex, ReplannedGroup> {
    let groups = view.pending.groups.indexes();
    let groups = groups.filter(|group| movable[*group]);
    let mut all: Vec<ReplannedGroup> = groups
        .map(|group| ReplannedGroup {
            group,
            pods: Vec::new(),
            placed: 0,
            tier: TierIndex(0),
            unmet: 0,
        })
        .collect();
    let at: Vec<GroupIndex> = all.iter().map(|replanned| replanned.group).collect();
    let withdrawn = machines.iter();
    for planned in withdrawn.map(|machine| &view.planned.machines[*machine]) {
        let tier = view.tier(planned.choice);
        for assigned in &planned.assigned {
            let Ok(index) = at.binary_search(&assigned.group) else {
                continue;
            };
            let unmet = view.unmet(assigned.group, planned.choice, planned.offer);
            let replanned = &mut all[index];
            replanned
                .pods
                .extend(assigned.pods.clone().map(PendingPodIndex));
            replanned.unmet = replanned.unmet.max(unmet);
            replanned.tier = replanned.tier.max(tier);
        }
    }
    for visit in visits {
        if let Ok(index) = at.binary_search(&visit.group) {
            all[index].pods.extend(indexes_in(visit.pods.clone()));
        }
    }
    let left = all
        .iter()
        .any(|replanned| view.group(replanned.group).left() > 0);
    for replanned in &mut all {
        replanned.placed = replanned.pods.len();
        // Where pods have no place, that comes before preferences and weights.
        if left || replanned.placed == 0 {
            (replanned.tier, replanned.unmet) = (TierIndex(usize::MAX), i64::MAX);
        }
        replanned.pods.sort_unstable();
        let group = view.group(replanned.group);
        replanned.pods.extend(group.pods.indexes_from(group.next));
    }
    all.retain(|replanned| !replanned.pods.is_empty());
    all.into()
}

/// What the first plan is compared by.
fn rank_first(
    view: PlanView<'_, '_>,
    machines: &[PlannedIndex],
    replanned: &[ReplannedGroup],
) -> Rank {
    let made = machines.iter().map(|machine| {
        let planned = &view.planned.machines[*machine];
        (planned, planned.count())
    });
    let made: Vec<_> = made.collect();
    let left = replanned.iter().map(|of| of.pods.len() - of.placed);
    let left: Vec<usize> = left.collect();
    let carries = |node: NodeIndex, group: GroupIndex| {
        let mut on = made.iter().filter(|(planned, _)| planned.node == node);
        on.any(|(planned, _)| planned.groups().any(|of| of == group))
    };
    rank(view, replanned, (&made, &carries), &left)
}

/// Whether the machine at a place carries pods of a group.
pub(super) type Carries<'c> = dyn Fn(NodeIndex, GroupIndex) -> bool + 'c;

/// What a plan is compared by: machines with how many pods and whether one carries pods of a group, and by replanned group how many have no
/// place.
pub(super) fn rank(
    view: PlanView<'_, '_>,
    replanned: &[ReplannedGroup],
    (made, carries): (&[(&PlannedMachine, usize)], &Carries<'_>),
    left: &[usize],
) -> Rank {
    let losses = question::count_losses(view, replanned);
    let lost = replanned.iter().zip(left).map(|(of, left)| {
        let loss = losses.get(&view.priority(of.group)).copied().unwrap_or(1);
        loss.saturating_mul(*left as u128)
    });
    let price = |planned: &PlannedMachine| i128::from(view.choice(planned.choice).price);
    let unrequested =
        |planned: &PlannedMachine| question::count_unrequested(view, planned.choice, replanned);
    let inter_pod = &view.world.inter_pod;
    let uneven = |of: &ReplannedGroup| {
        let nodes = made.iter().map(|(planned, _)| planned.node);
        let nodes: Vec<NodeIndex> = nodes.filter(|node| carries(*node, of.group)).collect();
        let rules = inter_pod.known_rules(view.group(of.group).shape);
        rules.map_or(0, |rules| inter_pod.uneven(rules, &nodes))
    };
    let made = || made.iter();
    let lost = lost.fold(0, u128::saturating_add);
    Rank {
        lost,
        uneven: match lost {
            0 => replanned.iter().map(uneven).sum(),
            _ => 0,
        },
        weight_loss: made()
            .map(|(planned, pods)| {
                // The `min` of its pool counts as a pod does.
                let pods = pods + usize::from(planned.is_for_min());
                pods * view.tier(planned.choice).0
            })
            .sum(),
        price: made().map(|(planned, _)| price(planned)).sum(),
        machines: made().count(),
        unrequested: made()
            .map(|(planned, _)| u64::from(unrequested(planned)))
            .sum(),
    }
}
