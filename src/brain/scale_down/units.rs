//! What goes together or not at all: the nodes of an atomic pool, and the nodes that one machine
//! replaces. Every other node is a unit of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::reasons::Kept;

use crate::decision::turn::Turn;
use crate::observed::view::{Known, Standing};
use crate::scale_down::candidates::{Candidate, Mode};
use crate::scale_down::shrink::Keep;

/// Nodes that go together.
#[derive(Debug)]
pub(crate) struct Unit<'a> {
    pub(crate) bond: Bond,
    pub(crate) nodes: Vec<Candidate<'a>>,
}

impl<'a> Unit<'a> {
    /// One node, bound to nothing.
    pub(crate) fn alone(node: Candidate<'a>) -> Unit<'a> {
        Unit {
            bond: Bond::None,
            nodes: vec![node],
        }
    }
}

/// What binds the nodes of a unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Bond {
    /// Nothing.
    None,
    /// They are all nodes of a pool that goes as a whole.
    Pool(Arc<str>),
    /// This machine replaces them.
    Machine(Arc<str>),
}

impl Bond {
    fn of(turn: &Turn<'_>, candidate: &Candidate<'_>) -> Bond {
        let known = turn.view.behind(candidate.name);
        match (&candidate.mode, known.filter(|known| atomic(known))) {
            (_, Some(known)) => Bond::Pool(known.pool_name().into()),
            (Mode::Replaced { by, .. }, _) => Bond::Machine(by.clone()),
            _ => Bond::None,
        }
    }

    /// Why a node stays because another one does.
    pub(crate) fn keep(&self, other: &Arc<str>, why: &Kept) -> Keep {
        let (other, kept) = (other.clone(), Box::new(why.clone()));
        Keep::because(match self {
            Bond::Pool(pool) => Kept::PoolTogether {
                pool: pool.clone(),
                other,
                kept,
            },
            Bond::Machine(by) => Kept::ReplacedTogether {
                by: by.clone(),
                other,
                kept,
            },
            Bond::None => *kept,
        })
    }
}

fn atomic(known: &Known<'_>) -> bool {
    known.pool.is_some_and(|pool| pool.atomic)
}

/// Binds candidates into units, in the order of the first of each. Of an atomic pool that has a node
/// which is no candidate none goes: those come back with the reason.
pub(crate) fn bind<'a>(
    turn: &Turn<'a>,
    candidates: Vec<Candidate<'a>>,
) -> (Vec<Unit<'a>>, Vec<(Arc<str>, Keep)>) {
    let mut units: Vec<Unit<'a>> = Vec::new();
    let mut at: BTreeMap<Bond, usize> = BTreeMap::new();
    for candidate in candidates {
        let bond = Bond::of(turn, &candidate);
        let index = match &bond {
            Bond::None => units.len(),
            bond => *at.entry(bond.clone()).or_insert(units.len()),
        };
        if index == units.len() {
            units.push(Unit {
                bond,
                nodes: vec![candidate],
            });
        } else {
            units[index].nodes.push(candidate);
        }
    }
    let mut kept = Vec::new();
    units.retain(|unit| {
        let Some(other) = missing(turn, unit) else {
            return true;
        };
        for node in &unit.nodes {
            let keep = unit.bond.keep(&other, &Kept::Needed);
            kept.push((node.name.clone(), keep));
        }
        false
    });
    (units, kept)
}

/// A node that belongs into the unit and is no candidate: a working node of the atomic pool, or another
/// node that the machine replaces.
fn missing(turn: &Turn<'_>, unit: &Unit<'_>) -> Option<Arc<str>> {
    let working = |known: &&Known<'_>| match &unit.bond {
        Bond::None => false,
        Bond::Pool(pool) => known.standing == Standing::Up && *known.pool_name() == **pool,
        Bond::Machine(by) => {
            let replacement = turn.memory.replacements.get(by);
            let node = known.node.map(|(name, _)| name);
            known.standing == Standing::Up
                && replacement
                    .zip(node)
                    .is_some_and(|(replacement, name)| replacement.nodes.contains_key(name))
        }
    };
    if unit.bond == Bond::None {
        return None;
    }
    turn.view
        .machines
        .values()
        .filter(working)
        .filter_map(|known| known.node)
        .map(|(name, _)| name)
        .find(|name| !unit.nodes.iter().any(|node| node.name == *name))
        .cloned()
}
