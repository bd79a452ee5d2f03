//! What a pool lets be done to its working nodes for the sake of order and cost: consolidation and
//! disruption budgets. Source: Karpenter's `NodePool.spec.disruption`.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cron::Cron;
use super::time::{Span, Time};

/// How a pool's nodes are consolidated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consolidation {
    /// Which nodes.
    pub policy: ConsolidationPolicy,
    /// Not before this long after a pod came to the node or left it (`consolidateAfter`).
    pub after: Span,
    /// A replacement must save at least this.
    #[serde(default)]
    pub min_saving: Saving,
}

/// Which nodes are consolidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConsolidationPolicy {
    /// None: a node that works stays.
    Never,
    /// Nodes that no pod needs.
    WhenEmpty,
    /// Nodes that no pod needs, and nodes whose pods fit elsewhere, or on fewer or cheaper machines.
    WhenUnderused,
}

/// A part of a price, or a price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Saving {
    /// Thousandths of what is replaced.
    pub permille: i64,
    /// Millionths per hour.
    pub price: i64,
}

impl Saving {
    /// What must be saved at least on nodes of this price; more than nothing in any case.
    pub fn wanted(self, price: i64) -> i64 {
        // Rounded up: a promise is not kept by less.
        let share = (i128::from(price.max(0)) * i128::from(self.permille.max(0)) + 999) / 1000;
        i64::try_from(share)
            .unwrap_or(i64::MAX)
            .max(self.price)
            .max(1)
    }
}

/// How many nodes of a pool may be disrupted at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeBudget {
    /// How many nodes at once.
    pub nodes: Share,
    /// When it holds; `None` for always.
    #[serde(default)]
    pub window: Option<Window>,
    /// For which causes it holds; empty for all.
    #[serde(default)]
    pub causes: BTreeSet<Cause>,
}

/// A number of nodes, or a part of a pool.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// A number of nodes.
    Nodes(u32),
    /// Per cent of the pool's nodes, rounded up.
    Percent(u32),
}

/// Times at which a budget holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// When it opens.
    pub schedule: Cron,
    /// For how long it is open.
    pub duration: Span,
}

/// Why a working node is disrupted.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// No pod needs it.
    Empty,
    /// The node's pods do well elsewhere.
    Underused,
    /// It has drifted, or is older than its pool lets it become.
    Outdated,
}

/// How a pool's outdated nodes are replaced by new ones, one after the other.
///
/// Source: Karpenter's drift and `expireAfter`; Cluster API's rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollout {
    /// Nodes whose machines have drifted are replaced.
    pub drifted: bool,
    /// Nodes whose machines are older than this are replaced.
    #[serde(default)]
    pub expire_after: Option<Span>,
    /// How many of them are replaced at the same time.
    pub max_parallel: u32,
}

impl Share {
    /// How many nodes the share is in a pool of `nodes`.
    pub fn of(self, nodes: u32) -> u32 {
        match self {
            Share::Nodes(count) => count,
            Share::Percent(percent) => {
                let part = (u64::from(nodes) * u64::from(percent)).div_ceil(100);
                u32::try_from(part).unwrap_or(u32::MAX)
            }
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Share::Nodes(count) => write!(f, "{count}"),
            Share::Percent(percent) => write!(f, "{percent} %"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Empty => "empty",
            Cause::Underused => "underused",
            Cause::Outdated => "outdated",
        })
    }
}

impl NodeBudget {
    /// Whether it holds at `now`, for this cause; until when, where it has a window.
    pub fn holds(&self, cause: Cause, now: Time) -> Option<Option<Time>> {
        if !self.causes.is_empty() && !self.causes.contains(&cause) {
            return None;
        }
        match &self.window {
            None => Some(None),
            Some(window) => window
                .schedule
                .last(now, window.duration)
                .map(|opened| Some(opened + window.duration)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up() {
        assert_eq!(Share::Percent(10).of(1), 1);
        assert_eq!(Share::Percent(10).of(11), 2);
        assert_eq!(Share::Percent(100).of(10), 10);
        assert_eq!(Share::Percent(0).of(10), 0);
        assert_eq!(Share::Nodes(3).of(1), 3);
        assert_eq!(Share::Percent(u32::MAX).of(u32::MAX), u32::MAX);
    }

    #[test]
    fn a_saving_is_never_nothing() {
        assert_eq!(Saving::default().wanted(100), 1);
        let tenth = Saving {
            permille: 100,
            price: 0,
        };
        assert_eq!(tenth.wanted(1000), 100);
        assert_eq!(tenth.wanted(1001), 101);
        assert_eq!(tenth.wanted(i64::MAX), i64::MAX / 10 + 1);
        let price = Saving {
            permille: 0,
            price: 50,
        };
        assert_eq!(price.wanted(i64::MIN), 50);
    }

    #[test]
    fn a_window_is_open_from_its_schedule_for_its_duration() {
        let budget = NodeBudget {
            nodes: Share::Nodes(0),
            window: Some(Window {
                schedule: "0 9 * * *".parse().expect("a schedule"),
                duration: Span::minutes(60),
            }),
            causes: BTreeSet::from([Cause::Empty]),
        };
        let nine = Time(9 * 3_600_000);
        let until = nine + Span::minutes(60);
        assert_eq!(budget.holds(Cause::Empty, nine), Some(Some(until)));
        assert_eq!(
            budget.holds(Cause::Empty, until - Span(1)),
            Some(Some(until))
        );
        assert_eq!(budget.holds(Cause::Empty, until), None);
        assert_eq!(budget.holds(Cause::Empty, nine - Span(1)), None);
        assert_eq!(budget.holds(Cause::Underused, nine), None);
    }
}
