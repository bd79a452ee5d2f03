//! Who is told of every call to the API server, for metrics.

use std::fmt;
use std::time::Duration;

/// Is told of every call that ended, for metrics.
pub trait CallObserver: Send + Sync + fmt::Debug {
    /// A call ended. Watches are told when their headers came, or did not.
    fn called(&self, verb: &'static str, kind: &'static str, outcome: CallOutcome, took: Duration);
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallOutcome {
    /// 2xx.
    Done,
    /// Not carried out: it never left.
    NotSent,
    /// Not carried out: the server said no, with this status.
    Refused(u16),
    /// Nobody knows.
    Unknown,
}

impl CallOutcome {
    /// A label for metrics: `done`, `not_sent`, `refused`, `unknown`.
    pub fn label(self) -> &'static str {
        match self {
            CallOutcome::Done => "done",
            CallOutcome::NotSent => "not_sent",
            CallOutcome::Refused(_) => "refused",
            CallOutcome::Unknown => "unknown",
        }
    }
}

/// An observer that looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl CallObserver for Unobserved {
    fn called(&self, _: &'static str, _: &'static str, _: CallOutcome, _: Duration) {}
}
