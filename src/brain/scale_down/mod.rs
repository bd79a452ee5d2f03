//! Nodes that may go: who may be evicted, where their pods would go, what is replaced by what.
//!
//! `README.md` beside this file tells more.

pub(crate) mod candidates;
pub(crate) mod consolidate;
pub(crate) mod drain_rules;
pub(crate) mod evacuate;
pub(crate) mod evicted;
pub(crate) mod given_up;
pub(crate) mod mode;
pub(crate) mod node_budgets;
pub(crate) mod outdated;
pub(crate) mod rehearsal;
pub(crate) mod removal_groups;
pub(crate) mod removals;
pub(crate) mod shrink;
pub(crate) mod surplus;
pub(crate) mod utilization;
