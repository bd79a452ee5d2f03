//! Outdated nodes: which they are, and in what order a pool replaces them.
//!
//! Source: Karpenter's drift and expiration, with its order: the oldest first, each with what its pods need beforehand.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::drift::Outdated;
use model::time::Time;

use crate::decision::turn::DecisionBuilder;
use crate::observed::view::{MachinePhase, MachineView};
use crate::scale_down::candidates;

/// The outdated nodes of a pool that may be replaced.
#[derive(Debug, Default)]
pub(crate) struct RolloutQueue {
    /// How many of them may be given up now.
    pub(crate) room: usize,
    /// How many may be given up at once.
    pub(crate) max: u32,
    /// Those whose removal is under way.
    pub(crate) leaving: Vec<Arc<str>>,
    /// Until when its pool backs off, and gives up none.
    pub(crate) backs_off: Option<Time>,
    /// Their names in the order in which they go, with why.
    pub(crate) nodes: Vec<(Arc<str>, Outdated)>,
}

/// A node with what it is sorted by: whether its last removal failed, whether none is begun, when it was made, and its name.
type RankedNode = ((bool, bool, Time, Arc<str>), Outdated);

/// When a machine is as old as its pool lets it become.
fn expires(machine: &MachineView<'_>) -> Option<Time> {
    let age = machine.pool?.rollout.as_ref()?.expire_after?;
    Some(machine.seen.mark.created + age)
}

/// The outdated nodes by pool. A pool that backs off gives up none: its new machines fail. Nodes whose removal was begun come
/// first, then the oldest. Those whose last removal failed come last: it may fail each time, and the others would never have their turn.
pub(crate) fn find(turn: &mut DecisionBuilder<'_>) -> BTreeMap<Arc<str>, RolloutQueue> {
    let mut found: BTreeMap<Arc<str>, Vec<RankedNode>> = BTreeMap::new();
    let mut going: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
    let mut next: Option<Time> = None;
    for machine in turn.view.machines.values() {
        let Some((name, _)) = machine.node else {
            continue;
        };
        let rollout = machine.pool.and_then(|pool| pool.rollout.as_ref());
        let now = turn.now();
        let cause = rollout.and_then(|rollout| Outdated::find(machine.seen, rollout, now));
        let Some(cause) = cause else {
            let expires = expires(machine).filter(|expires| *expires > now);
            next = next.into_iter().chain(expires).min();
            continue;
        };
        let pool: Arc<str> = machine.pool_name().into();
        match machine.phase {
            MachinePhase::Leaving if !machine.resumable() => {
                going.entry(pool).or_default().push(name.clone());
            }
            MachinePhase::Leaving | MachinePhase::Up => {
                let begun = machine.phase == MachinePhase::Leaving;
                let failed = candidates::removal_failed(turn, machine);
                let rank = (failed, !begun, machine.seen.mark.created, name.clone());
                found.entry(pool).or_default().push((rank, cause));
            }
            _ => {}
        }
    }
    if let Some(next) = next {
        turn.wake_at(next);
    }
    let now = turn.now();
    let queues = found.into_iter().map(|(pool, mut nodes)| {
        nodes.sort();
        let policy = turn.view.policy.pools.get(&pool);
        let rollout = policy.and_then(|policy| policy.rollout.as_ref());
        let max = rollout.map_or(0, |rollout| rollout.max_parallel);
        let backoff = turn.memory.backoff.get(&pool);
        let backs_off = backoff.map(|backoff| backoff.until);
        let backs_off = backs_off.filter(|until| *until > now);
        let leaving = going.remove(&pool).unwrap_or_default();
        let room = (max as usize).saturating_sub(leaving.len());
        let queue = RolloutQueue {
            room: if backs_off.is_some() { 0 } else { room },
            max,
            leaving,
            backs_off,
            nodes: nodes
                .into_iter()
                .map(|((_, _, _, name), cause)| (name, cause))
                .collect(),
        };
        (pool, queue)
    });
    queues.collect()
}
