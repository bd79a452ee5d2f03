//! What comes out of the brain.

use serde::{Deserialize, Serialize};

use super::action::Action;
use super::memory::Memory;
use super::report::Report;
use super::time::Time;

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// What to do now, in this order. Empty in a steady state.
    pub plan: Vec<Action>,
    /// Why, for every pod, node and pool.
    pub report: Report,
    /// What to remember.
    pub memory: Memory,
    /// When to decide again at the latest even if nothing changes: the next timer that ends.
    pub wake: Option<Time>,
}
