//! Pools with more nodes than their `max`: by configuration, or after failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::reasons::Held;
use model::report::{Hold, Scope};

use crate::decision::turn::DecisionBuilder;
use crate::observed::view::MachinePhase;

/// Nodes and machines that are there to stay, by pool.
pub(crate) fn have<'a>(turn: &DecisionBuilder<'a>) -> BTreeMap<&'a str, u32> {
    let mut have = BTreeMap::new();
    for machine in turn.view.machines.values() {
        if matches!(machine.phase, MachinePhase::Up | MachinePhase::Coming) {
            *have.entry(machine.pool_name()).or_insert(0) += 1;
        }
    }
    have
}

/// How many nodes each pool has above its `max`; said in the report.
pub(crate) fn by_pool(turn: &mut DecisionBuilder<'_>) -> BTreeMap<Arc<str>, u32> {
    let mut surplus = BTreeMap::new();
    let all = have(turn);
    for (name, pool) in &turn.view.policy.pools {
        let have = all.get(&**name).copied().unwrap_or(0);
        let over = have.saturating_sub(pool.max);
        if over == 0 {
            continue;
        }
        let held = Held::AboveMax {
            have,
            max: pool.max,
            over,
        };
        let hold = Hold::new(Scope::Pool(name.clone()), held);
        turn.report.holds.push(hold);
        surplus.insert(name.clone(), over);
    }
    surplus
}
