//! The choices in the order of their prospects: what they cost per worth of the most that they could carry.

use std::collections::BTreeSet;

use crate::index::{ChoiceIndex, IndexVec, PoolIndex, TierIndex};
use crate::simulation::offer::{self, ChoiceList};

/// Choices of equal weight.
#[derive(Debug)]
pub(super) struct Tier {
    /// In the order of the policy.
    pub(super) choices: Vec<ChoiceIndex>,
    /// By price per worth that they hold when full.
    by_ratio: Vec<ChoiceIndex>,
    /// By price alone.
    by_price: Vec<ChoiceIndex>,
}

/// All choices, those of the highest weight first.
#[derive(Debug)]
pub(super) struct CandidateOrder {
    pub(super) tiers: IndexVec<TierIndex, Tier>,
    /// By choice: its price, and an upper bound of the worth of the pods that one node can carry (its free CPU and memory after DaemonSets,
    /// at the default price).
    price_and_most_worth: IndexVec<ChoiceIndex, (i128, i128)>,
    /// By pool: its choices, the cheapest first.
    pools: IndexVec<PoolIndex, Vec<ChoiceIndex>>,
}

/// Whether `a` of `(price, worth)` costs less per worth than `b`, or as much.
fn at_most(a: (i128, i128), b: (i128, i128)) -> bool {
    a.0.saturating_mul(b.1) <= b.0.saturating_mul(a.1)
}

impl CandidateOrder {
    pub(super) fn of(choices: &ChoiceList<'_>) -> CandidateOrder {
        let price_and_most_worth: IndexVec<ChoiceIndex, (i128, i128)> = choices
            .iter()
            .map(|choice| {
                let full = choice.offers.iter().map(|offer| {
                    // One for every pod, whatever it asks; one for rounding.
                    let pods = i128::from(offer.free.pods.max(0));
                    i128::from(offer::price(&offer.free)).saturating_add(pods + 1)
                });
                (i128::from(choice.price), full.max().unwrap_or(1))
            })
            .collect();
        let unrequested: IndexVec<ChoiceIndex, u32> = choices
            .iter()
            .map(|choice| choice.count_unrequested(&BTreeSet::new()))
            .collect();
        let mut weights: Vec<i32> = choices.iter().map(|choice| choice.policy.weight).collect();
        weights.sort_unstable_by_key(|weight| std::cmp::Reverse(*weight));
        weights.dedup();
        let tiers = weights.into_iter().map(|weight| {
            let of = |index: &ChoiceIndex| choices[*index].policy.weight == weight;
            let choices: Vec<ChoiceIndex> = choices.indexes().filter(of).collect();
            let (mut by_ratio, mut by_price) = (choices.clone(), choices.clone());
            by_ratio.sort_by(|one, other| {
                let (a, b) = (price_and_most_worth[*one], price_and_most_worth[*other]);
                let ratio = a.0.saturating_mul(b.1).cmp(&b.0.saturating_mul(a.1));
                ratio.then(unrequested[*one].cmp(&unrequested[*other]))
            });
            by_price.sort_by_key(|choice| (price_and_most_worth[*choice].0, unrequested[*choice]));
            Tier {
                choices,
                by_ratio,
                by_price,
            }
        });
        let tiers = tiers.collect();
        let mut pools: IndexVec<PoolIndex, Vec<ChoiceIndex>> = IndexVec::default();
        for (index, choice) in choices.indexed() {
            pools.get_or_grow(choice.pool_index).push(index);
        }
        for pool in &mut pools {
            pool.sort_by_key(|choice| (choices[*choice].price, unrequested[*choice], *choice));
        }
        CandidateOrder {
            tiers,
            price_and_most_worth,
            pools,
        }
    }

    /// Which tier has the choices of this weight.
    pub(super) fn tier(&self, choices: &ChoiceList<'_>, weight: i32) -> TierIndex {
        let of = |tier: &Tier| {
            let first = tier.choices.first();
            first.is_some_and(|choice| choices[*choice].policy.weight == weight)
        };
        TierIndex(self.tiers.iter().position(of).unwrap_or(0))
    }

    /// The choices of a pool, the cheapest first.
    pub(super) fn choices_by_price(&self, pool: PoolIndex) -> &[ChoiceIndex] {
        self.pools.get(pool).map_or(&[], |choices| choices)
    }

    /// The choices of a tier, those first that cost least per worth they could carry at most, when `total` is
    /// all there is to carry; with that most.
    pub(super) fn walk(
        &self,
        tier: TierIndex,
        total: i128,
    ) -> impl Iterator<Item = (ChoiceIndex, i128)> {
        let Tier {
            by_ratio, by_price, ..
        } = &self.tiers[tier];
        let price_and_most_worth = &self.price_and_most_worth;
        let small = by_ratio.iter().copied();
        let mut small = small
            .filter(move |choice| price_and_most_worth[*choice].1 <= total)
            .map(|choice| (choice, price_and_most_worth[choice].1))
            .peekable();
        let large = by_price.iter().copied();
        let mut large = large
            .filter(move |choice| price_and_most_worth[*choice].1 > total)
            .map(move |choice| (choice, total))
            .peekable();
        std::iter::from_fn(move || {
            let rate = |(choice, most): (ChoiceIndex, i128)| (price_and_most_worth[choice].0, most);
            match (small.peek(), large.peek()) {
                (Some(a), Some(b)) if at_most(rate(*a), rate(*b)) => small.next(),
                (Some(_), None) => small.next(),
                _ => large.next(),
            }
        })
    }

    /// Whether a choice would cost more per worth than the best so far even if it carried `most`. `best` is the cost and the worth of that
    /// one. Its cost is in such parts of a price as a price has `parts` of.
    pub(super) fn cannot_beat(
        &self,
        choice: ChoiceIndex,
        most: i128,
        parts: i128,
        best: (i128, i128),
    ) -> bool {
        let least = self.price_and_most_worth[choice].0.saturating_mul(parts);
        let (cost, worth) = best;
        cost.saturating_mul(most) < least.saturating_mul(worth)
    }
}
