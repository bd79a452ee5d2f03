//! Equal strings and equal pod shapes are kept once.
//!
//! Thousands of pods of a few dozen controllers share namespaces, label texts and all that
//! scheduling reads; this is what keeps a pod below a kilobyte.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::scheduling::{Labels, Owner, PodShape, PodTraits};

/// Entries that nobody uses are looked for when a set has doubled since the last time, and not
/// below this size.
const PRUNE_FLOOR: usize = 256;

/// Sets of shared values.
#[derive(Debug)]
pub struct Interner {
    texts: BTreeSet<Arc<str>>,
    /// Pods may each have labels of their own: what else there is to them is shared all the same.
    traits: BTreeSet<Arc<PodTraits>>,
    owners: BTreeSet<Arc<Owner>>,
    shapes: BTreeSet<Arc<PodShape>>,
    prune_texts_at: usize,
    prune_shapes_at: usize,
}

impl Default for Interner {
    fn default() -> Interner {
        Interner {
            texts: BTreeSet::new(),
            traits: BTreeSet::new(),
            owners: BTreeSet::new(),
            shapes: BTreeSet::new(),
            prune_texts_at: PRUNE_FLOOR,
            prune_shapes_at: PRUNE_FLOOR,
        }
    }
}

impl Interner {
    /// The shared form of `text`.
    pub fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        if self.texts.len() >= self.prune_texts_at {
            self.prune();
        }
        let shared: Arc<str> = text.into();
        self.texts.insert(shared.clone());
        shared
    }

    /// Forgets texts that nobody uses.
    pub fn prune(&mut self) {
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.prune_texts_at = (self.texts.len() * 2).max(PRUNE_FLOOR);
    }

    /// The shared form of a label map.
    pub fn labels<'a>(
        &mut self,
        labels: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Labels {
        labels
            .into_iter()
            .map(|(key, value)| (self.text(key), self.text(value)))
            .collect()
    }

    /// The shared form of `shape`.
    pub fn shape(&mut self, mut shape: PodShape) -> Arc<PodShape> {
        match self.traits.get(&shape.traits) {
            Some(known) => shape.traits = known.clone(),
            None => {
                self.traits.insert(shape.traits.clone());
            }
        }
        if let Some(owner) = &mut shape.owner {
            match self.owners.get(owner) {
                Some(known) => *owner = known.clone(),
                None => {
                    self.owners.insert(owner.clone());
                }
            }
        }
        if let Some(known) = self.shapes.get(&shape) {
            return known.clone();
        }
        if self.shapes.len() >= self.prune_shapes_at {
            self.shapes.retain(|kept| Arc::strong_count(kept) > 1);
            self.traits.retain(|kept| Arc::strong_count(kept) > 1);
            self.owners.retain(|kept| Arc::strong_count(kept) > 1);
            self.prune_shapes_at = (self.shapes.len() * 2).max(PRUNE_FLOOR);
        }
        let shared = Arc::new(shape);
        self.shapes.insert(shared.clone());
        shared
    }

    /// How many different texts and shapes are kept.
    pub fn sizes(&self) -> (usize, usize) {
        (self.texts.len(), self.shapes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_unused_ones_go() {
        let mut interner = Interner::default();
        let first = interner.text("kube-system");
        assert!(Arc::ptr_eq(&first, &interner.text("kube-system")));
        let shape = interner.shape(PodShape::default());
        assert!(Arc::ptr_eq(&shape, &interner.shape(PodShape::default())));
        for number in 0..10_000 {
            let _ = interner.text(&number.to_string());
            let traits = PodTraits {
                priority: number,
                ..PodTraits::default()
            };
            let _ = interner.shape(traits.into());
        }
        let (texts, shapes) = interner.sizes();
        assert!(
            texts <= PRUNE_FLOOR && shapes <= PRUNE_FLOOR,
            "{texts} {shapes}"
        );
        assert!(Arc::ptr_eq(&first, &interner.text("kube-system")));
        assert!(Arc::ptr_eq(&shape, &interner.shape(PodShape::default())));
    }
}
