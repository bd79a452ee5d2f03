//! Pools with more nodes than their `max`: by configuration, or after failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::report::Hold;

use super::turn::Turn;
use super::view::Standing;

/// Nodes and machines of a pool that are there to stay.
pub(super) fn have(turn: &Turn<'_>, pool: &str) -> u32 {
    let count = turn
        .view
        .machines
        .values()
        .filter(|known| known.pool_name() == pool)
        .filter(|known| matches!(known.standing, Standing::Up | Standing::Coming))
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// How many nodes each pool has above its `max`; said in the report.
pub(super) fn by_pool(turn: &mut Turn<'_>) -> BTreeMap<Arc<str>, u32> {
    let mut surplus = BTreeMap::new();
    for (name, pool) in &turn.view.policy.pools {
        let have = have(turn, name);
        let over = have.saturating_sub(pool.max);
        if over == 0 {
            continue;
        }
        turn.report.holds.push(Hold {
            scope: format!("pool {name}"),
            why: format!(
                "it has {have} nodes, its max is {}: {over} are to go, those first that are cheapest to take down",
                pool.max
            ),
            until: None,
        });
        surplus.insert(name.clone(), over);
    }
    surplus
}
