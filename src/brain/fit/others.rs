//! What other pods forbid: required affinity and anti-affinity, topology spread.

use super::{Misfit, Place};
use crate::brain::world::{ShapeId, World};

/// The rules that pods of one shape are under because of other pods.
#[derive(Debug)]
pub(in crate::brain) struct Rules {
    why: String,
}

impl Rules {
    /// The rules for a shape; `None` when other pods do not matter to it.
    pub(in crate::brain) fn of(world: &World<'_>, id: ShapeId) -> Option<Rules> {
        let shape = world.shapes[id].shape;
        let bound = !shape.pod_affinity.is_empty()
            || !shape.pod_anti_affinity.is_empty()
            || shape.spread.iter().any(|spread| spread.hard);
        bound.then(|| Rules {
            why: "it depends on where other pods run".to_owned(),
        })
    }

    /// Why the next pod may not go to a place, if it may not.
    pub(in crate::brain) fn misfit(&self, place: Place<'_>) -> Option<Misfit> {
        Some(Misfit::Others(format!("{} ({})", self.why, place.name)))
    }

    /// One more pod of the shape runs there.
    pub(in crate::brain) fn placed(&mut self, _place: Place<'_>) {}
}

impl Rules {
    /// Whether other pods matter to a shape.
    pub(in crate::brain) fn matter(world: &World<'_>, id: ShapeId) -> bool {
        Rules::of(world, id).is_some()
    }

    /// How many pods of the shape may go to one place, at most `limit`.
    pub(in crate::brain) fn most(&self, place: Place<'_>, limit: usize) -> usize {
        if self.misfit(place).is_some() {
            0
        } else {
            limit
        }
    }
}
