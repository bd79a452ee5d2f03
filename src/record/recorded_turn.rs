//! A decision as the loop hands it to the record.

use std::sync::Arc;

use super::change::RecordedState;
use crate::model::decision::Decision;
use crate::model::memory::Memory;
use crate::model::policy::Policy;
use crate::model::snapshot::Snapshot;
use crate::model::time::Time;

/// A decision with all that it was made of.
#[derive(Clone, Debug)]
pub struct RecordedTurn {
    /// Counts decisions since the start.
    pub number: u64,
    /// When.
    pub at: Time,
    /// What was seen.
    pub snapshot: Arc<Snapshot>,
    /// What was wanted.
    pub policy: Arc<Policy>,
    /// What was remembered; `None`: what the decision gives to remember.
    pub memory: Option<Memory>,
    /// What was decided.
    pub decision: Arc<Decision>,
}

impl RecordedTurn {
    /// As it is recorded.
    pub(super) fn state(&self) -> RecordedState<'_> {
        RecordedState {
            snapshot: &self.snapshot,
            policy: &self.policy,
            memory: self.memory.as_ref().unwrap_or(&self.decision.memory),
            decision: &self.decision,
        }
    }

    /// Whether it does and says what another does.
    pub(super) fn says_the_same(&self, other: &RecordedTurn) -> bool {
        let (ours, theirs) = (&self.decision, &other.decision);
        ours.plan == theirs.plan
            && ours.report == theirs.report
            && (Arc::ptr_eq(&self.policy, &other.policy) || self.policy == other.policy)
    }
}
