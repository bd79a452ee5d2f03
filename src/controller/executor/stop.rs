//! Why a step does not go on, and the failure that comes of it.

use std::sync::Arc;

use crate::controller::journal::JournalError;
use crate::model::foreign::ForeignText;
use crate::model::region::{Failure, Step};
use crate::model::time::Time;
use crate::pve::FailureCause;
use crate::pve::transport::CallError;

use super::task::TaskFailure;
use super::transient::{is_transient, is_transient_kube};

/// What was said is told up to this many characters where advice follows, so that no exit cuts that off: an Event's message has a
/// thousand.
const WORDS_BEFORE_ADVICE: usize = 600;

/// Said of a machine whose VM somebody removed.
pub(super) const GONE: &str = "its VM is gone; another machine takes its place";

/// Why a step does not go on.
#[derive(Debug)]
pub(super) enum Stop {
    /// It failed, and the message says what came back.
    Failed(String),
    /// It failed by nobody's fault: another attempt may well succeed at once.
    Transient(String),
    /// It failed one way or the other, and PVE's words tell what to do.
    Advised(Box<AdvisedStop>),
}

/// A stop of which is known what to do about it.
#[derive(Debug)]
pub(super) struct AdvisedStop {
    /// What came back.
    words: String,
    /// What to do. The words are ours.
    advice: String,
    /// It failed by nobody's fault.
    transient: bool,
}

impl Stop {
    fn of(words: String, advice: Option<String>, transient: bool) -> Stop {
        match (advice, transient) {
            (Some(advice), _) => Stop::Advised(Box::new(AdvisedStop {
                words,
                advice,
                transient,
            })),
            (None, true) => Stop::Transient(words),
            (None, false) => Stop::Failed(words),
        }
    }

    /// The stop that a call is which failed for good, while doing `what`.
    pub(super) fn of_call(what: &str, error: &CallError) -> Stop {
        Stop::of(
            format!("{what}: {}", error.words()),
            error.advice.clone(),
            false,
        )
    }

    /// The stop that a failed task of PVE's is. What hits every VM of a cluster or a host (no quorum,
    /// a lock, a host or a worker that went away) is not the fault of the pool.
    pub(super) fn of_task(what: &str, failure: &TaskFailure) -> Stop {
        let cause = failure.cause();
        let transient = cause.passes() || matches!(cause, FailureCause::Interrupted);
        Stop::of_task_as(what, failure, transient)
    }

    /// The stop that a failed task of PVE's is, where the caller knows whose fault it is.
    pub(super) fn of_task_as(what: &str, failure: &TaskFailure, transient: bool) -> Stop {
        let said = failure.words();
        // PVE's own words may begin as ours do: `start failed: …` of a start.
        let ours = format!("{} failed: ", what.trim_start_matches("the "));
        let said = said.strip_prefix(&ours).unwrap_or(&said);
        let words = format!("{what} failed: {said}");
        Stop::of(words, failure.advice().map(str::to_owned), transient)
    }

    /// The stop of a VM that went off after a start that PVE called failed: `message`, and what PVE said of the start.
    pub(super) fn of_failed_start(message: &str, start: &TaskFailure) -> Stop {
        let words = format!(
            "{message}, and PVE had called its start failed: {}",
            start.words()
        );
        Stop::of(words, start.advice().map(str::to_owned), false)
    }

    /// Whether it failed by nobody's fault.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Stop::Failed(_) => false,
            Stop::Transient(_) => true,
            Stop::Advised(stop) => stop.transient,
        }
    }

    /// What it says, with what to do.
    pub(super) fn told(self) -> String {
        match self {
            Stop::Failed(words) | Stop::Transient(words) => words,
            Stop::Advised(stop) => format!("{}; {}", stop.words, stop.advice),
        }
    }

    /// The failure that this stop is.
    pub(super) fn into_failure(self, step: Step, at: Time, host: Option<Arc<str>>) -> Failure {
        let (message, advice, transient) = match self {
            Stop::Failed(words) => (ForeignText::from(words), None, false),
            Stop::Transient(words) => (ForeignText::from(words), None, true),
            Stop::Advised(stop) => {
                let words = ForeignText::from(stop.words).cut(WORDS_BEFORE_ADVICE);
                let message = format!("{words}; {}", stop.advice);
                (message.into(), Some(stop.advice.into()), stop.transient)
            }
        };
        Failure {
            step,
            message,
            advice,
            at,
            transient,
            host,
        }
    }

    /// The failure of work that could not begin.
    pub(super) fn into_lasting_failure(self, step: Step, at: Time) -> Failure {
        Failure {
            transient: false,
            ..self.into_failure(step, at, None)
        }
    }
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Stop {
        let transient = is_transient(&error);
        Stop::of(error.words(), error.advice, transient)
    }
}

impl From<crate::kubernetes::KubeError> for Stop {
    fn from(error: crate::kubernetes::KubeError) -> Stop {
        if is_transient_kube(&error) {
            Stop::Transient(error.to_string())
        } else {
            Stop::Failed(error.to_string())
        }
    }
}

impl From<JournalError> for Stop {
    fn from(error: JournalError) -> Stop {
        Stop::Transient(error.to_string())
    }
}
