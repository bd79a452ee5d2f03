//! What goes together or not at all: the nodes of an atomic pool, and the nodes that one machine
//! replaces. Every other node is a group of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::reasons::Kept;

use crate::decision::turn::DecisionBuilder;
use crate::index::{IndexVec, RemovalGroupIndex};
use crate::observed::view::{MachinePhase, MachineView};
use crate::scale_down::candidates::RemovalCandidate;
use crate::scale_down::mode::Mode;
use crate::scale_down::shrink::KeepReason;

/// Nodes that go together.
#[derive(Debug)]
pub(crate) struct RemovalGroup<'a> {
    pub(crate) kind: GroupKind,
    pub(crate) nodes: Vec<RemovalCandidate<'a>>,
}

impl<'a> RemovalGroup<'a> {
    /// One node, bound to nothing.
    pub(crate) fn alone(node: RemovalCandidate<'a>) -> RemovalGroup<'a> {
        RemovalGroup {
            kind: GroupKind::None,
            nodes: vec![node],
        }
    }
}

/// What binds the nodes of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupKind {
    /// Nothing: the node goes by itself.
    None,
    /// They are all nodes of a pool that goes as a whole.
    Pool(Arc<str>),
    /// This machine replaces them.
    Machine(Arc<str>),
}

impl GroupKind {
    fn of(turn: &DecisionBuilder<'_>, candidate: &RemovalCandidate<'_>) -> GroupKind {
        let machine = turn.view.machine_of_node(candidate.name);
        match (&candidate.mode, machine.filter(|machine| atomic(machine))) {
            (_, Some(machine)) => GroupKind::Pool(machine.pool_name().into()),
            (Mode::Replaced { by, .. }, _) => GroupKind::Machine(by.clone()),
            _ => GroupKind::None,
        }
    }

    /// Why a node stays because another one does.
    pub(crate) fn keep(&self, other: &Arc<str>, why: &Kept) -> KeepReason {
        let (other, kept) = (other.clone(), Box::new(why.clone()));
        KeepReason::because(match self {
            GroupKind::Pool(pool) => Kept::PoolTogether {
                pool: pool.clone(),
                other,
                kept,
            },
            GroupKind::Machine(by) => Kept::ReplacedTogether {
                by: by.clone(),
                other,
                kept,
            },
            GroupKind::None => *kept,
        })
    }
}

fn atomic(machine: &MachineView<'_>) -> bool {
    machine.pool.is_some_and(|pool| pool.atomic)
}

/// Puts candidates into groups, in the order of the first of each. Of an atomic pool that has a node
/// which is no candidate none goes: those come back with the reason.
pub(crate) fn group_nodes<'a>(
    turn: &DecisionBuilder<'a>,
    candidates: Vec<RemovalCandidate<'a>>,
) -> (Vec<RemovalGroup<'a>>, Vec<(Arc<str>, KeepReason)>) {
    let mut groups: IndexVec<RemovalGroupIndex, RemovalGroup<'a>> = IndexVec::default();
    let mut at: BTreeMap<GroupKind, RemovalGroupIndex> = BTreeMap::new();
    for candidate in candidates {
        let kind = GroupKind::of(turn, &candidate);
        let index = match &kind {
            GroupKind::None => groups.next_index(),
            kind => *at.entry(kind.clone()).or_insert(groups.next_index()),
        };
        if index == groups.next_index() {
            groups.push(RemovalGroup {
                kind,
                nodes: vec![candidate],
            });
        } else {
            groups[index].nodes.push(candidate);
        }
    }
    let mut kept = Vec::new();
    groups.retain(|group| {
        let Some(other) = missing(turn, group) else {
            return true;
        };
        for node in &group.nodes {
            let keep = group.kind.keep(&other, &Kept::Needed);
            kept.push((node.name.clone(), keep));
        }
        false
    });
    (groups.into_vec(), kept)
}

/// A node that belongs into the group and is no candidate: a working node of the atomic pool, or another
/// node that the machine replaces.
fn missing(turn: &DecisionBuilder<'_>, group: &RemovalGroup<'_>) -> Option<Arc<str>> {
    let working = |machine: &&MachineView<'_>| match &group.kind {
        GroupKind::None => false,
        GroupKind::Pool(pool) => {
            machine.phase == MachinePhase::Up && *machine.pool_name() == **pool
        }
        GroupKind::Machine(by) => {
            let replacement = turn.memory.replacements.get(by);
            let node = machine.node.map(|(name, _)| name);
            machine.phase == MachinePhase::Up
                && replacement
                    .zip(node)
                    .is_some_and(|(replacement, name)| replacement.nodes.contains_key(name))
        }
    };
    if group.kind == GroupKind::None {
        return None;
    }
    turn.view
        .machines
        .values()
        .filter(working)
        .filter_map(|machine| machine.node)
        .map(|(name, _)| name)
        .find(|name| !group.nodes.iter().any(|node| node.name == *name))
        .cloned()
}
