//! How many nodes of a pool may be disrupted at once, by the pool's own budgets.
//!
//! Source: Karpenter's `NodePool.spec.disruption.budgets`: nodes that are leaving or not Ready count
//! as disrupted, percentages are of the working nodes and rounded up, the tightest budget wins.

use std::collections::BTreeMap;

use model::disruption::{Cause, NodeBudget};
use model::reasons::Kept;
use model::time::Time;

use crate::decision::turn::DecisionBuilder;
use crate::observed::view::MachinePhase;
use crate::scale_down::consolidate::intents;

/// The pools' nodes: how many there are, and how many are disrupted.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeBudgets<'a> {
    pools: BTreeMap<&'a str, PoolDisruption>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PoolDisruption {
    nodes: u32,
    disrupted: u32,
}

/// A budget that leaves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) why: Kept,
    /// When its window closes, if it has one.
    pub(crate) until: Option<Time>,
}

impl<'a> NodeBudgets<'a> {
    /// Counts the nodes there are. Machines on their way up are no nodes yet.
    pub(crate) fn of(turn: &DecisionBuilder<'a>) -> NodeBudgets<'a> {
        let mut pools: BTreeMap<&str, PoolDisruption> = BTreeMap::new();
        for machine in turn.view.machines.values() {
            let Some((name, _)) = machine.node else {
                continue;
            };
            let disrupted = match machine.phase {
                // One whose drain was interrupted is cordoned until it is released.
                MachinePhase::Leaving => true,
                MachinePhase::Up => {
                    !machine.ready() || intents::find_replacing(turn, name).is_some()
                }
                _ => continue,
            };
            let pool = pools.entry(machine.pool_name()).or_default();
            pool.nodes += 1;
            pool.disrupted += u32::from(disrupted);
        }
        NodeBudgets { pools }
    }

    /// Whether `more` nodes of a pool may be disrupted for this cause.
    pub(crate) fn admit(
        &self,
        pool: &str,
        budgets: &[NodeBudget],
        cause: Cause,
        more: u32,
        now: Time,
    ) -> Result<(), Spent> {
        let has = self.pools.get(pool).copied().unwrap_or_default();
        for budget in budgets {
            let Some(until) = budget.holds(cause, now) else {
                continue;
            };
            let allowed = budget.nodes.of(has.nodes);
            if has.disrupted.saturating_add(more) > allowed {
                let why = Kept::NodeBudget {
                    allowed: budget.nodes,
                    nodes: has.nodes,
                    cause,
                    disrupted: has.disrupted,
                };
                return Err(Spent { why, until });
            }
        }
        Ok(())
    }

    /// One more node of a pool is disrupted.
    pub(crate) fn take(&mut self, pool: &'a str) {
        self.pools.entry(pool).or_default().disrupted += 1;
    }
}
