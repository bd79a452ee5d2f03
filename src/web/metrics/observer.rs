//! The metrics hear what the executor does.

use std::time::Duration;

use super::Metrics;
use crate::controller::executor::Observer;
use crate::controller::journal::JournalEntry;
use crate::model::action::Action;
use crate::model::region::{Failure, Step};
use crate::model::time::Span;

impl Observer for Metrics {
    fn begun(&self, _: &Action, _: Option<&JournalEntry>) {}

    fn step(&self, _: &str, step: Step, took: Span, failure: Option<&Failure>) {
        Metrics::step(self, step, took, failure.is_none());
    }

    fn evicted(&self, ok: bool) {
        Metrics::evicted(self, ok);
    }

    fn not_recorded(&self, many: u64) {
        Metrics::not_recorded(self, many);
    }

    fn turned(&self, took: Duration) {
        Metrics::turned(self, took);
    }

    fn ended(&self, action: &Action, failure: Option<&Failure>) {
        Metrics::ended(self, action, failure);
    }
}
