//! What other pods forbid: affinity, anti-affinity and topology spread together.

use super::affinity::Affinity;
use super::spread::{self, Spread};
use super::{Misfit, Place};
use crate::brain::world::{ShapeId, World};

/// The rules that pods of one shape are under because of other pods, kept up to date while pods
/// of this shape, and of no other, are placed.
#[derive(Clone, Debug)]
pub(in crate::brain) struct Rules {
    affinity: Affinity,
    spread: Vec<Spread>,
}

impl Rules {
    /// Whether other pods matter to a shape.
    pub(in crate::brain) fn matter(world: &World<'_>, id: ShapeId) -> bool {
        let shape = world.shapes[id].shape;
        shape.spread.iter().any(|spread| spread.hard) || Affinity::matters(world, id)
    }

    /// The rules for a shape; `None` when other pods do not matter to it.
    pub(in crate::brain) fn of(world: &World<'_>, id: ShapeId) -> Option<Rules> {
        Rules::matter(world, id).then(|| Rules {
            affinity: Affinity::of(world, id),
            spread: spread::of(world, id),
        })
    }

    /// Why the next pod may not go to a place, if it may not.
    pub(in crate::brain) fn misfit(&self, place: Place<'_>) -> Option<Misfit> {
        self.affinity
            .misfit(place.labels)
            .or_else(|| self.spread.iter().find_map(|spread| spread.misfit(place)))
    }

    /// One more pod of the shape runs there.
    pub(in crate::brain) fn placed(&mut self, place: Place<'_>) {
        self.affinity.placed(place.labels);
        for spread in &mut self.spread {
            spread.placed(place);
        }
    }

    /// How many pods of the shape may go to one place, at most `limit`.
    pub(in crate::brain) fn most(&self, place: Place<'_>, limit: usize) -> usize {
        let mut rules = self.clone();
        let mut count = 0;
        while count < limit && rules.misfit(place).is_none() {
            rules.placed(place);
            count += 1;
        }
        count
    }
}
