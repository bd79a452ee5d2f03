//! Consolidation of the pools that ask for it: nodes go whose pods fit elsewhere, or are replaced by
//! one cheaper machine. Source: Karpenter's `pkg/controllers/disruption`.
//!
//! * `quiet`: since when nothing came to a node or left it.
//! * `cost`: what it costs to move a node's pods, and what a node costs.
//! * `exchange`: an empty cheap node stays so that an expensive one can go.
//! * `intents`: machines that were made to replace nodes, from the plan to the removal.
//! * `trial`: nodes gone, their pods on what is left and one cheaper machine.
//! * `search`: which nodes one machine could replace; found twice, it is made.

pub(crate) mod cost;
pub(crate) mod exchange;
pub(crate) mod intents;
pub(crate) mod quiet;
pub(crate) mod search;
pub(crate) mod trial;

use model::disruption::{Consolidation, ConsolidationPolicy};
use model::time::Span;

use crate::observed::view::MachineView;

/// What was found must be found again after this long before anything is done (Karpenter's
/// `consolidationTTL`).
pub(crate) const SECOND_LOOK: Span = Span::seconds(15);

/// How the pool of a machine is consolidated, if it is.
pub(crate) fn of<'a>(machine: &MachineView<'a>) -> Option<&'a Consolidation> {
    machine.pool.and_then(|pool| pool.consolidation.as_ref())
}

/// Whether its nodes may be replaced.
pub(crate) fn replaces(machine: &MachineView<'_>) -> bool {
    of(machine).is_some_and(|how| how.policy == ConsolidationPolicy::WhenUnderused)
}
