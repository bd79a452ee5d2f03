//! What would be done otherwise over a whole record, in numbers.
//!
//! Each decision is made anew on what was seen then: of a machine that was not made then, the next decision knows nothing, and plans it once more.
//! So a machine counts once for the pods that wait for it, on both sides alike; without pods it counts when more are planned than just before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::{DecidedTwice, ReplayOutcome, Replayed};
use crate::model::action::Kind;
use crate::model::cluster::ObjectKey;
use crate::model::decision::Decision;
use crate::model::report::PodVerdict;

/// What was recorded and what is decided now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WasIs<T> {
    /// As it was recorded.
    pub was: T,
    /// As it is decided now.
    pub is: T,
}

/// What all plans of a record come to for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PoolSum {
    /// Machines that are made. One counts once for the pods that wait for it.
    pub made: WasIs<u64>,
    /// What these machines cost an hour, in millionths.
    pub price_per_hour: WasIs<i64>,
    /// Machines that are removed.
    pub removed: WasIs<u64>,
}

/// What comes out otherwise over a whole record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReplaySum {
    /// Decisions that were made anew.
    pub decisions: u64,
    /// Those that come out the same.
    pub same: u64,
    /// Those that come out otherwise.
    pub others: u64,
    /// Those of which this program cannot read what they were made of.
    pub unreadable: u64,
    /// Those that differ and are in no number below: their program wrote them in a form of its own.
    pub not_counted: u64,
    /// Every pool of which a machine is made or removed, in numbers.
    pub pools: BTreeMap<Arc<str>, PoolSum>,
    /// Pods that were kept waiting at some time, by a limit or because no pool can run them.
    pub pods_without_place: WasIs<u64>,
}

/// The plans of one side.
#[derive(Debug, Default)]
struct Side {
    /// Pods that wait and for which a machine was counted.
    served: BTreeSet<ObjectKey>,
    /// Machines without pods that the decision before made, by pool.
    bare: BTreeMap<Arc<str>, u64>,
    removed: BTreeSet<Arc<str>>,
    without_place: BTreeSet<ObjectKey>,
}

/// What one decision adds to a pool.
#[derive(Debug, Default)]
struct Added {
    made: u64,
    price: i64,
    removed: u64,
}

impl Side {
    /// What this decision adds, by pool.
    fn add(
        &mut self,
        decision: &Decision,
        prices: &BTreeMap<Arc<str>, i64>,
        pool_of: &BTreeMap<Arc<str>, Arc<str>>,
    ) -> BTreeMap<Arc<str>, Added> {
        let report = &decision.report;
        self.served.retain(|pod| report.pods.contains_key(pod));
        for (pod, verdict) in &report.pods {
            if let PodVerdict::Held { .. } | PodVerdict::NoCompatiblePool { .. } = verdict {
                self.without_place.insert(pod.clone());
            }
        }
        let mut added: BTreeMap<Arc<str>, Added> = BTreeMap::new();
        let mut bare: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for action in &decision.plan {
            let machine = &action.target.machine;
            match &action.kind {
                Kind::Create(spec) => {
                    let pool: Arc<str> = Arc::from(&*spec.mark.pool);
                    let pods = action.reason.pending_pods();
                    let counts = if pods.is_empty() {
                        let now = bare.entry(pool.clone()).or_default();
                        *now += 1;
                        *now > self.bare.get(&pool).copied().unwrap_or(0)
                    } else {
                        !pods.iter().any(|pod| self.served.contains(pod))
                    };
                    self.served.extend(pods.iter().cloned());
                    if counts {
                        let of = added.entry(pool).or_default();
                        of.made += 1;
                        let price = prices.get(machine).copied().unwrap_or(0);
                        of.price = of.price.saturating_add(price);
                    }
                }
                Kind::Remove { .. } if self.removed.insert(machine.clone()) => {
                    let mark = action.precondition.mark.as_ref();
                    let pool = mark.map(|mark| Arc::from(&*mark.pool));
                    let pool = pool.or_else(|| pool_of.get(machine).cloned());
                    let pool = pool.unwrap_or_else(|| Arc::from("unknown"));
                    added.entry(pool).or_default().removed += 1;
                }
                _ => {}
            }
        }
        self.bare = bare;
        added
    }
}

/// Sums up outcomes, in their order.
#[derive(Debug, Default)]
pub struct Summed {
    sum: ReplaySum,
    was: Side,
    is: Side,
    /// The pools of machines that were made, by name.
    pool_of: BTreeMap<Arc<str>, Arc<str>>,
}

impl Summed {
    /// Adds one decision.
    pub fn add(&mut self, outcome: &ReplayOutcome) {
        let sum = &mut self.sum;
        sum.decisions += 1;
        let differs = match outcome.replayed {
            Replayed::Same => {
                sum.same += 1;
                false
            }
            Replayed::Differs { .. } => {
                sum.others += 1;
                true
            }
            Replayed::Unreadable { .. } => {
                sum.unreadable += 1;
                false
            }
        };
        match &outcome.twice {
            Some(twice) => self.add_both(twice),
            None => self.sum.not_counted += u64::from(differs),
        }
    }

    fn add_both(&mut self, twice: &DecidedTwice) {
        for decision in [&twice.was, &twice.is] {
            for action in &decision.plan {
                if let Kind::Create(spec) = &action.kind {
                    let pool: Arc<str> = Arc::from(&*spec.mark.pool);
                    self.pool_of.insert(action.target.machine.clone(), pool);
                }
            }
        }
        let was = self.was.add(&twice.was, &twice.prices.was, &self.pool_of);
        for (pool, added) in was {
            let of = self.sum.pools.entry(pool).or_default();
            of.made.was += added.made;
            of.price_per_hour.was += added.price;
            of.removed.was += added.removed;
        }
        let is = self.is.add(&twice.is, &twice.prices.is, &self.pool_of);
        for (pool, added) in is {
            let of = self.sum.pools.entry(pool).or_default();
            of.made.is += added.made;
            of.price_per_hour.is += added.price;
            of.removed.is += added.removed;
        }
    }

    /// What all of them come to.
    pub fn sum(mut self) -> ReplaySum {
        self.sum.pods_without_place = WasIs {
            was: self.was.without_place.len() as u64,
            is: self.is.without_place.len() as u64,
        };
        self.sum
    }
}
