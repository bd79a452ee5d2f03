//! What the counters and histograms are told.

use std::time::Duration;

use super::Metrics;
use super::gauges::name;
use crate::controller::conditions::FoundConditions;
use crate::model::action::{Action, Kind, Reason};
use crate::model::region::{Failure, Step};
use crate::model::time::{Span, Time};

/// cluster-autoscaler's types of errors, as far as they happen here.
const ERRORS: [&str; 5] = [
    "apiCallError",
    "cloudProviderError",
    "configurationError",
    "internalError",
    "transientError",
];
/// cluster-autoscaler's words for why a node went.
const REMOVALS: [&str; 5] = ["empty", "failed", "other", "underutilized", "unready"];

impl Metrics {
    /// Counters begin at zero: the first failure is an increase only of what was there before.
    pub(super) fn begin(&self) {
        for kind in ERRORS {
            drop(self.errors.get_or_create(&vec![("type", kind.to_owned())]));
        }
        for reason in REMOVALS {
            let series = vec![("reason", reason.to_owned())];
            drop(self.scaled_down.get_or_create(&series));
        }
        for result in ["succeeded", "failed"] {
            let series = vec![("eviction_result", result.to_owned())];
            drop(self.evicted.get_or_create(&series));
        }
        for step in Step::ALL {
            if step < Step::Done {
                let series = vec![("reason", name(&step))];
                drop(self.failed_scale_ups.get_or_create(&series));
            } else if step > Step::Done {
                let series = vec![("step", name(&step))];
                drop(self.failed_scale_downs.get_or_create(&series));
            }
        }
        for call in crate::pve::CALLS {
            self.pve_call_known(call);
        }
        self.call_times_known();
        self.trace_spans(0, 0);
        drop(
            self.turns
                .get_or_create(&vec![("function", "main".to_owned())]),
        );
    }

    /// A turn of the loop ended after `took`.
    pub fn turned(&self, took: Duration) {
        let series = vec![("function", "main".to_owned())];
        self.turns
            .get_or_create(&series)
            .observe(took.as_secs_f64());
    }

    /// A step of a machine's life ended after `took`.
    pub fn step(&self, step: Step, took: Span, ok: bool) {
        let series = vec![("phase", name(&step)), ("outcome", outcome(ok))];
        self.phases
            .get_or_create(&series)
            .observe(took.to_std().as_secs_f64());
    }

    /// An eviction was answered.
    pub fn evicted(&self, ok: bool) {
        let result = if ok { "succeeded" } else { "failed" };
        self.evicted
            .get_or_create(&vec![("eviction_result", result.to_owned())])
            .inc();
    }

    /// Decisions and events could not be recorded.
    pub fn not_recorded(&self, many: u64) {
        self.record_lost.inc_by(many);
    }

    /// How many decisions and events could not be recorded since the start.
    pub fn not_recorded_so_far(&self) -> u64 {
        self.record_lost.get()
    }

    /// Counts spans of traces that were sent, and that were lost.
    pub fn trace_spans(&self, sent: u64, lost: u64) {
        for (outcome, many) in [("sent", sent), ("lost", lost)] {
            let series = vec![("outcome", outcome.to_owned())];
            self.spans.get_or_create(&series).inc_by(many);
        }
    }

    /// A notice was sent, or could not be.
    pub fn notified(&self, notification: &str, ok: bool) {
        for (outcome, many) in [
            (outcome(true), u64::from(ok)),
            (outcome(false), u64::from(!ok)),
        ] {
            let series = vec![
                ("notification", notification.to_owned()),
                ("outcome", outcome),
            ];
            self.notifications.get_or_create(&series).inc_by(many);
        }
    }

    /// An action came to its end.
    pub fn ended(&self, action: &Action, failure: Option<&Failure>) {
        match (&action.kind, failure) {
            (Kind::Create(_) | Kind::Continue, None) => {
                self.scaled_up.inc();
            }
            (Kind::Create(_) | Kind::Continue, Some(failure)) => {
                self.failed_scale_ups
                    .get_or_create(&vec![("reason", name(&failure.step))])
                    .inc();
                self.error(if failure.transient {
                    "transientError"
                } else {
                    "cloudProviderError"
                });
            }
            (Kind::Remove { .. }, None) => {
                self.scaled_down
                    .get_or_create(&vec![("reason", removal(&action.reason).to_owned())])
                    .inc();
            }
            (Kind::Remove { .. }, Some(failure)) => {
                self.failed_scale_downs
                    .get_or_create(&vec![("step", name(&failure.step))])
                    .inc();
                self.error(if failure.transient {
                    "transientError"
                } else {
                    "cloudProviderError"
                });
            }
            (_, None) => {}
            (_, Some(_)) => self.error("internalError"),
        }
    }

    /// An error of one of cluster-autoscaler's types.
    pub(super) fn error(&self, kind: &str) {
        self.errors
            .get_or_create(&vec![("type", kind.to_owned())])
            .inc();
    }

    /// When the kubeconfig's client certificate ends; `None` without one.
    pub fn kubeconfig_expires(&self, at: Option<Time>) {
        self.gauges.kubeconfig_expires(at);
    }

    /// Whether the configuration file, as it is now, is valid. A wrong one counts as an error.
    pub fn config_valid(&self, valid: bool) {
        self.gauges.config_valid(valid);
        if !valid {
            self.error("configurationError");
        }
    }

    /// In which conditions a person must act. What is unknown stays as it was.
    pub fn conditions(&self, found: &FoundConditions, now: Time) {
        self.gauges.conditions(found, now);
    }

    /// Whether the broker runs with the same policy as the daemon.
    pub fn policies_agree(&self, agree: bool) {
        self.gauges.policies_agree(agree);
    }
}

fn outcome(ok: bool) -> String {
    if ok { "done" } else { "failed" }.to_owned()
}

/// cluster-autoscaler's words for why a node went.
fn removal(reason: &Reason) -> &'static str {
    match reason {
        Reason::Unneeded {
            utilization_permille: 0,
            ..
        } => "empty",
        Reason::Unneeded { .. } | Reason::Consolidated { .. } | Reason::Replaced { .. } => {
            "underutilized"
        }
        Reason::Unready { .. } => "unready",
        Reason::Failed { .. } | Reason::NoNode | Reason::DeadClone => "failed",
        _ => "other",
    }
}
