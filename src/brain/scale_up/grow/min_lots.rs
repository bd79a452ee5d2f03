//! Machines for the `min` of pools in the second plan's question: for each pool a lot that stands for as many of them.
//!
//! What stands for a machine is asked for as a pod is. It asks for nothing but a node of the pool, of any type and on any host, each of which takes
//! one; and no plan leaves one out. So a machine for `min` stays open until the end as one for pods does, and the same search finds which pods it
//! takes, what type that makes it, and where limits let it be.

use super::draft::{LaunchOptionSet, Lot};
use super::withdrawal::MinMachines;
use crate::index::{IndexVec, LotIndex, PoolIndex, indexes_in};
use crate::simulation::inter_pod::Asks;

/// The lots that stand for machines for the `min` of pools.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinLots<'q> {
    /// One for each lot.
    pub(super) mins: &'q [MinMachines],
    /// The number of lots of groups, which come first.
    pub(super) groups: usize,
}

impl<'q> MinLots<'q> {
    /// All lots of the question.
    pub(super) fn all(self) -> impl Iterator<Item = LotIndex> {
        indexes_in(LotIndex(0)..LotIndex(self.groups + self.mins.len()))
    }

    /// By lot of these, whether a new node of a pool could be for it.
    pub(super) fn may(self, pool: PoolIndex) -> impl Iterator<Item = bool> + use<'q> {
        self.mins.iter().map(move |min| min.pool == pool)
    }

    /// What is counted besides resources and volumes, for each lot of these: 1 for a new node of its pool and for what stands for one, else 0.
    /// `None` is a pod, or a place that stays.
    pub(super) fn amounts(self, pool: Option<PoolIndex>) -> impl Iterator<Item = i64> + use<'q> {
        let mins = self.mins.iter();
        mins.map(move |min| i64::from(pool == Some(min.pool)))
    }

    /// The lots, after those of groups: `may` has the options that they may be on. All must ask amounts in the same order.
    pub(super) fn add_to(
        self,
        lots: &mut IndexVec<LotIndex, Lot>,
        may: impl Iterator<Item = LaunchOptionSet>,
    ) {
        // More than all pods together.
        let losses = lots.iter();
        let losses = losses.map(|lot| lot.loss.saturating_mul(lot.count as u128));
        let loss = losses.fold(1, u128::saturating_add);
        let resources = lots.first().map_or(0, |lot| lot.asked.len());
        let none = vec![0; resources.saturating_sub(self.mins.len())];
        for (min, options) in self.mins.iter().zip(may) {
            let asked = none.iter().copied();
            lots.push(Lot {
                asked: asked.chain(self.amounts(Some(min.pool))).collect(),
                count: min.machines,
                spare: 0,
                loss,
                priority: i32::MAX,
                apart: self.all().map(|_| false).collect(),
                may: options,
                asks: Asks::default(),
                zoned: false,
                tied: false,
            });
        }
    }

    /// The lots with how many machines each stands for.
    pub(super) fn counts(self) -> impl Iterator<Item = (LotIndex, usize)> + use<'q> {
        let lots = indexes_in(LotIndex(self.groups)..LotIndex(self.groups + self.mins.len()));
        lots.zip(self.mins.iter().map(|min| min.machines))
    }
}
