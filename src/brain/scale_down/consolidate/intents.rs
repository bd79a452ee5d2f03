//! Machines that were made to replace nodes: remembered from the plan until the nodes are gone.
//!
//! The nodes stay as they are until the machine works; if it never does, or the nodes cannot go, they
//! stay for good and no replacement is tried for a while. The same where it saves too little by then:
//! prices may have changed, or one of several nodes vanished. That is asked until the first node goes.
//! From then on the machine stays for the pods that came to it, its price is spent, and each
//! node that goes after saves all it costs.

use std::sync::Arc;

use super::{cost, replaces, trial};
use crate::decision::turn::DecisionBuilder;
use crate::observed::view::{MachinePhase, MachineView};
use model::action::Reason;
use model::memory::Replacement;
use model::time::Span;

/// A planned machine must show in the view within this time; what begins it may have been refused.
const SHOWN: Span = Span::minutes(1);
/// Once its machine had time to come up, the nodes have this long to go: a disruption budget may
/// stand in the way for a while.
const PATIENCE: Span = Span::minutes(30);
/// Nodes whose replacement came to nothing are let alone for this long, so that machines are not
/// made in vain again and again.
const RETRY_AFTER_FAILED_REPLACEMENT: Span = Span::minutes(6 * 60);

/// Forgets what is done or came to nothing.
pub(crate) fn tidy(turn: &mut DecisionBuilder<'_>) {
    let now = turn.now();
    turn.memory.unreplaceable.retain(|_, until| *until > now);
    for until in turn.memory.unreplaceable.values_mut() {
        // A clock that was set back makes no truce longer.
        *until = (*until).min(now + RETRY_AFTER_FAILED_REPLACEMENT);
    }
    if !turn.holds.may_observe() {
        return;
    }
    let limit = turn
        .view
        .policy
        .scale_up
        .max_provision_time
        .0
        .saturating_add(PATIENCE.0);
    let limit = Span(limit);
    let mut replacements = std::mem::take(&mut turn.memory.replacements);
    let mut given_up = Vec::new();
    replacements.retain(|made, replacement| {
        let nodes = &turn.view.snapshot.cluster.nodes;
        replacement
            .nodes
            .retain(|name, uid| nodes.get(name).is_some_and(|node| node.uid == *uid));
        let age = now.since(replacement.planned);
        let Some(machine) = turn.view.machines.get(made) else {
            return age < SHOWN;
        };
        let stays = |name: &Arc<str>| {
            let behind = turn.view.machine_of_node(name);
            behind.is_some_and(|behind| behind.phase == MachinePhase::Up)
        };
        replacement.gone.retain(|name| !stays(name));
        let alive = matches!(machine.phase, MachinePhase::Coming | MachinePhase::Up);
        let pays = !works(turn, made) || find_rest(turn, made, replacement, None).is_some();
        let lives = alive && age <= limit && pays;
        if !lives {
            given_up.extend(replacement.nodes.keys().cloned());
        }
        lives && !replacement.nodes.is_empty()
    });
    for replacement in replacements.values() {
        turn.wake_at(replacement.planned + limit + Span(1));
    }
    turn.memory.replacements = replacements;
    for node in given_up {
        turn.memory
            .unreplaceable
            .insert(node, now + RETRY_AFTER_FAILED_REPLACEMENT);
    }
}

/// The machine that shall replace a node, if one shall.
pub(crate) fn find_replacing<'t>(
    turn: &'t DecisionBuilder<'_>,
    node: &str,
) -> Option<(&'t Arc<str>, &'t Replacement)> {
    turn.memory
        .replacements
        .iter()
        .find(|(_, replacement)| replacement.nodes.contains_key(node))
}

/// What is left to do of a replacement.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    /// What that saves, in millionths per hour.
    pub(crate) saving: i64,
    /// The nodes that are to go yet, without the one it was asked for.
    pub(crate) others: Vec<Arc<str>>,
    /// Nodes that went, or are going.
    pub(crate) gone: Vec<Arc<str>>,
}

/// What is left to do of a replacement, if that is worth while by the prices of today; for a node of
/// it whether or not that is going.
pub(crate) fn find_rest(
    turn: &DecisionBuilder<'_>,
    machine: &str,
    replacement: &Replacement,
    node: Option<&str>,
) -> Option<Rest> {
    let apart = |name: &&Arc<str>| node != Some(&***name);
    let gone: Vec<Arc<str>> = replacement.gone.iter().filter(apart).cloned().collect();
    let left = replacement.nodes.keys().filter(|name| !gone.contains(name));
    let left: Vec<&Arc<str>> = left.collect();
    let olds = left
        .iter()
        .filter_map(|name| turn.view.machine_of_node(name));
    let olds: Vec<&MachineView<'_>> = olds.collect();
    let price = olds.iter().map(|old| cost::price(turn.view.policy, old));
    let price = price.fold(0i64, i64::saturating_add);
    let others = left.into_iter().filter(apart).cloned().collect();
    let made = turn.view.machines.get(machine)?;
    let (saving, wanted) = if !gone.is_empty() {
        (price, 1)
    } else if made.instance_type.is_some() {
        (
            price.saturating_sub(cost::price(turn.view.policy, made)),
            trial::sum_min_savings(turn.view.policy, &olds),
        )
    } else {
        // Of a machine whose type is gone nobody knows what it costs.
        return None;
    };
    let pays = saving >= wanted && olds.iter().all(|old| replaces(old));
    (pays || olds.is_empty()).then_some(Rest {
        saving,
        others,
        gone,
    })
}

/// A node goes: if for the machine that replaces it, that machine stays.
pub(crate) fn goes(turn: &mut DecisionBuilder<'_>, node: &Arc<str>, reason: &Reason) {
    if let Reason::Replaced { by, .. } = reason
        && let Some(replacement) = turn.memory.replacements.get_mut(by)
    {
        replacement.gone.insert(node.clone());
    }
}

/// Whether a machine works, so that the nodes it replaces may go.
pub(crate) fn works(turn: &DecisionBuilder<'_>, name: &str) -> bool {
    turn.view
        .machines
        .get(name)
        .is_some_and(|machine| machine.phase == MachinePhase::Up && machine.ready())
}
