//! Sets of models.

use smallvec::{SmallVec, smallvec};

use crate::index::ModelIndex;

/// A set of models of one problem.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::scale_up::grow) struct ModelSet(SmallVec<[u64; 2]>);

/// Models in one word.
const WORD: usize = 64;

impl ModelSet {
    /// None of `count` models.
    pub(in crate::scale_up::grow) fn none(count: usize) -> ModelSet {
        ModelSet(smallvec![0; count.div_ceil(WORD)])
    }

    /// All of `count` models.
    pub(in crate::scale_up::grow) fn all(count: usize) -> ModelSet {
        let mut all = ModelSet::none(count);
        for number in 0..count {
            all.insert(ModelIndex(number));
        }
        all
    }

    /// Adds a model to the set.
    pub(in crate::scale_up::grow) fn insert(&mut self, model: ModelIndex) {
        self.0[model.0 / WORD] |= 1 << (model.0 % WORD);
    }

    /// Leaves a model out.
    pub(in crate::scale_up::grow) fn remove(&mut self, model: ModelIndex) {
        self.0[model.0 / WORD] &= !(1 << (model.0 % WORD));
    }

    /// Whether a model is in it.
    pub(in crate::scale_up::grow) fn has(&self, model: ModelIndex) -> bool {
        self.0[model.0 / WORD] >> (model.0 % WORD) & 1 == 1
    }

    /// Keeps what is in another set too.
    pub(in crate::scale_up::grow) fn keep(&mut self, other: &ModelSet) {
        for (word, kept) in self.0.iter_mut().zip(&other.0) {
            *word &= kept;
        }
    }

    /// Whether two sets share a model.
    pub(in crate::scale_up::grow) fn meets(&self, other: &ModelSet) -> bool {
        let mut both = self.0.iter().zip(&other.0);
        both.any(|(a, b)| a & b != 0)
    }

    /// The first model.
    pub(in crate::scale_up::grow) fn first(&self) -> Option<ModelIndex> {
        self.iter().next()
    }

    /// How many there are.
    pub(in crate::scale_up::grow) fn len(&self) -> usize {
        let ones = self.0.iter().map(|word| word.count_ones() as usize);
        ones.sum()
    }

    /// The models of the set, in order.
    pub(in crate::scale_up::grow) fn iter(&self) -> impl Iterator<Item = ModelIndex> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < WORD).then_some(ModelIndex(index * WORD + bit))
            })
        })
    }
}
