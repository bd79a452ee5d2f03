//! Every pool in numbers, and the pools that hold back.

use std::sync::Arc;

use model::report::{Hold, PoolState, Scope};

use crate::decision::turn::Turn;
use crate::lifecycle::backoff;
use crate::observed::view::Standing;

/// Writes the pools into the report.
pub(crate) fn report(turn: &mut Turn<'_>) {
    let policy = turn.view.policy;
    for (name, pool) in &policy.pools {
        let mut state = PoolState {
            min: pool.min,
            max: pool.max,
            ..PoolState::default()
        };
        state.unread = turn.holds.unread_in(&pool.region).is_some();
        for known in turn.view.machines.values() {
            if state.unread || known.pool_name() != &**name {
                continue;
            }
            match known.standing {
                Standing::Up if known.ready() => state.ready += 1,
                Standing::Up | Standing::NoVm => state.unready += 1,
                Standing::Coming => state.coming += 1,
                Standing::Leaving | Standing::Failed | Standing::Overdue | Standing::NoNode => {
                    state.leaving += 1;
                }
                Standing::Untouchable(_) => {}
            }
        }
        if let Some(until) = backoff::until(turn, name) {
            state.backoff_until = Some(until);
            state.backoff_message = backoff::failure(turn, name).cloned();
            turn.report.holds.push(Hold {
                scope: Scope::Pool(name.clone()),
                why: state.backoff_message.clone().map_or_else(
                    || {
                        "it has machines from before the memory began and none of them works"
                            .to_owned()
                    },
                    |message| format!("it backs off after a failure: {message}"),
                ),
                until: Some(until),
                cause: None,
            });
            turn.wake_at(until);
        }
        turn.report.pools.insert(Arc::clone(name), state);
    }
}
