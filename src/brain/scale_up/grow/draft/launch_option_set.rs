//! Sets of options.

use smallvec::{SmallVec, smallvec};

use crate::index::LaunchOptionIndex;

/// A set of options of one problem.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::scale_up::grow) struct LaunchOptionSet(SmallVec<[u64; 2]>);

/// Options in one word.
const WORD: usize = 64;

impl LaunchOptionSet {
    /// None of `count` options.
    pub(in crate::scale_up::grow) fn none(count: usize) -> LaunchOptionSet {
        LaunchOptionSet(smallvec![0; count.div_ceil(WORD)])
    }

    /// All of `count` options.
    pub(in crate::scale_up::grow) fn all(count: usize) -> LaunchOptionSet {
        let mut all = LaunchOptionSet::none(count);
        for number in 0..count {
            all.insert(LaunchOptionIndex(number));
        }
        all
    }

    /// Adds an option to the set.
    pub(in crate::scale_up::grow) fn insert(&mut self, option: LaunchOptionIndex) {
        self.0[option.0 / WORD] |= 1 << (option.0 % WORD);
    }

    /// Leaves an option out.
    pub(in crate::scale_up::grow) fn remove(&mut self, option: LaunchOptionIndex) {
        self.0[option.0 / WORD] &= !(1 << (option.0 % WORD));
    }

    /// Whether an option is in it.
    pub(in crate::scale_up::grow) fn has(&self, option: LaunchOptionIndex) -> bool {
        self.0[option.0 / WORD] >> (option.0 % WORD) & 1 == 1
    }

    /// Keeps what is in another set too.
    pub(in crate::scale_up::grow) fn intersect(&mut self, other: &LaunchOptionSet) {
        for (word, kept) in self.0.iter_mut().zip(&other.0) {
            *word &= kept;
        }
    }

    /// Whether two sets share an option.
    pub(in crate::scale_up::grow) fn meets(&self, other: &LaunchOptionSet) -> bool {
        let mut both = self.0.iter().zip(&other.0);
        both.any(|(a, b)| a & b != 0)
    }

    /// The first option.
    pub(in crate::scale_up::grow) fn first(&self) -> Option<LaunchOptionIndex> {
        self.iter().next()
    }

    /// How many there are.
    pub(in crate::scale_up::grow) fn len(&self) -> usize {
        let ones = self.0.iter().map(|word| word.count_ones() as usize);
        ones.sum()
    }

    /// The options of the set, in order.
    pub(in crate::scale_up::grow) fn iter(&self) -> impl Iterator<Item = LaunchOptionIndex> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < WORD).then_some(LaunchOptionIndex(index * WORD + bit))
            })
        })
    }
}
