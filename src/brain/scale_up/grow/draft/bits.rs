//! Sets of small numbers.

use smallvec::{SmallVec, smallvec};

/// A set of numbers below a bound that all sets of a problem share.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::scale_up::grow) struct Bits(SmallVec<[u64; 2]>);

/// Numbers in one word.
const WORD: usize = 64;

impl Bits {
    /// None of the numbers below `bound`.
    pub(in crate::scale_up::grow) fn none(bound: usize) -> Bits {
        Bits(smallvec![0; bound.div_ceil(WORD)])
    }

    /// All numbers below `bound`.
    pub(in crate::scale_up::grow) fn all(bound: usize) -> Bits {
        let mut all = Bits::none(bound);
        for number in 0..bound {
            all.insert(number);
        }
        all
    }

    /// Adds a number to the set.
    pub(in crate::scale_up::grow) fn insert(&mut self, number: usize) {
        self.0[number / WORD] |= 1 << (number % WORD);
    }

    /// Leaves a number out.
    pub(in crate::scale_up::grow) fn remove(&mut self, number: usize) {
        self.0[number / WORD] &= !(1 << (number % WORD));
    }

    /// Whether a number is in it.
    pub(in crate::scale_up::grow) fn has(&self, number: usize) -> bool {
        self.0[number / WORD] >> (number % WORD) & 1 == 1
    }

    /// Keeps what is in another set too.
    pub(in crate::scale_up::grow) fn keep(&mut self, other: &Bits) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
    }

    /// Whether two sets share a number.
    pub(in crate::scale_up::grow) fn meets(&self, other: &Bits) -> bool {
        let mut both = self.0.iter().zip(&other.0);
        both.any(|(a, b)| a & b != 0)
    }

    /// The least number.
    pub(in crate::scale_up::grow) fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// How many there are.
    pub(in crate::scale_up::grow) fn len(&self) -> usize {
        let ones = self.0.iter().map(|word| word.count_ones() as usize);
        ones.sum()
    }

    /// The numbers of the set, the least first.
    pub(in crate::scale_up::grow) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < WORD).then_some(index * WORD + bit)
            })
        })
    }
}
