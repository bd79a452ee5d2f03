//! Machines that were made to replace nodes: remembered from the plan until the nodes are gone.
//!
//! The nodes stay as they are until the machine works; if it never does, or the nodes cannot go, they
//! stay for good and no replacement is tried for a while.

use std::sync::Arc;

use crate::brain::turn::Turn;
use crate::brain::view::Standing;
use crate::model::memory::Replacement;
use crate::model::time::Span;

/// A planned machine must show in the view within this time; what begins it may have been refused.
const SHOWN: Span = Span::minutes(1);
/// Once its machine had time to come up, the nodes have this long to go: a disruption budget may
/// stand in the way for a while.
const PATIENCE: Span = Span::minutes(30);
/// Nodes whose replacement came to nothing are let alone for this long, so that machines are not
/// made in vain again and again.
const TRUCE: Span = Span::minutes(6 * 60);

/// Forgets what is done or came to nothing.
pub(in crate::brain) fn tidy(turn: &mut Turn<'_>) {
    let now = turn.now();
    turn.memory.unreplaceable.retain(|_, until| *until > now);
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
    replacements.retain(|machine, replacement| {
        let nodes = &turn.view.snapshot.cluster.nodes;
        replacement
            .nodes
            .retain(|name, uid| nodes.get(name).is_some_and(|node| node.uid == *uid));
        let age = now.since(replacement.planned);
        let Some(known) = turn.view.machines.get(&**machine) else {
            return age < SHOWN;
        };
        let alive = matches!(known.standing, Standing::Coming | Standing::Up);
        let lives = alive && age <= limit;
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
        turn.memory.unreplaceable.insert(node, now + TRUCE);
    }
}

/// The machine that shall replace a node, if one shall.
pub(in crate::brain) fn replacing<'t>(
    turn: &'t Turn<'_>,
    node: &str,
) -> Option<(&'t Arc<str>, &'t Replacement)> {
    turn.memory
        .replacements
        .iter()
        .find(|(_, replacement)| replacement.nodes.contains_key(node))
}

/// Whether a machine works, so that the nodes it replaces may go.
pub(in crate::brain) fn works(turn: &Turn<'_>, machine: &str) -> bool {
    turn.view
        .machines
        .get(machine)
        .is_some_and(|known| known.standing == Standing::Up && known.ready())
}
