//! Amounts of all resources that pods ask for: few enough that most lists of them need no allocation.

use std::ops::{Deref, DerefMut, Index, IndexMut};
use std::slice;

use smallvec::{SmallVec, smallvec};

use crate::index::{AmountIndex, ListIndex};

/// Amounts by resource.
#[derive(Clone, Debug, Default)]
pub(super) struct ResourceAmounts(SmallVec<[i64; 6]>);

impl ResourceAmounts {
    /// Nothing, of so many resources.
    pub(super) fn none(resources: usize) -> ResourceAmounts {
        ResourceAmounts(smallvec![0; resources])
    }
}

impl Index<AmountIndex> for ResourceAmounts {
    type Output = i64;

    fn index(&self, resource: AmountIndex) -> &i64 {
        &self.0[resource.position()]
    }
}

impl IndexMut<AmountIndex> for ResourceAmounts {
    fn index_mut(&mut self, resource: AmountIndex) -> &mut i64 {
        &mut self.0[resource.position()]
    }
}

impl Deref for ResourceAmounts {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.0
    }
}

impl DerefMut for ResourceAmounts {
    fn deref_mut(&mut self) -> &mut [i64] {
        &mut self.0
    }
}

impl FromIterator<i64> for ResourceAmounts {
    fn from_iter<A: IntoIterator<Item = i64>>(amounts: A) -> ResourceAmounts {
        ResourceAmounts(amounts.into_iter().collect())
    }
}

impl<'v> IntoIterator for &'v ResourceAmounts {
    type Item = &'v i64;
    type IntoIter = slice::Iter<'v, i64>;

    fn into_iter(self) -> slice::Iter<'v, i64> {
        self.0.iter()
    }
}

impl<'v> IntoIterator for &'v mut ResourceAmounts {
    type Item = &'v mut i64;
    type IntoIter = slice::IterMut<'v, i64>;

    fn into_iter(self) -> slice::IterMut<'v, i64> {
        self.0.iter_mut()
    }
}
