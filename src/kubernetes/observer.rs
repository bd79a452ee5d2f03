//! Who is told of every call to the API server, for metrics.

use std::fmt;
use std::time::Duration;

use super::error::KubeError;

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
    /// Not carried out, as may be: there is no such object (404), or not so old a version any more (410).
    Absent,
    /// Not carried out, as may be: somebody else was there first (409), or what was changed is not as it was (422).
    Conflict,
    /// Not carried out, as may be: a disruption budget is spent (429).
    Blocked,
    /// Not carried out: the server said no, with this status.
    Refused(u16),
    /// Nobody knows.
    Unknown,
}

impl CallOutcome {
    /// How a call ended that takes refusals with the `expected` statuses for an answer.
    pub(super) fn of<T>(result: &Result<T, KubeError>, expected: &[u16]) -> CallOutcome {
        match result {
            Ok(_) => CallOutcome::Done,
            Err(KubeError::NotSent { .. }) => CallOutcome::NotSent,
            Err(KubeError::Refused { code, .. }) => match code {
                404 | 410 if expected.contains(code) => CallOutcome::Absent,
                409 | 422 if expected.contains(code) => CallOutcome::Conflict,
                429 if expected.contains(code) => CallOutcome::Blocked,
                code => CallOutcome::Refused(*code),
            },
            Err(KubeError::Unknown { .. }) => CallOutcome::Unknown,
        }
    }

    /// Whether something went wrong, and not only otherwise.
    pub fn is_error(self) -> bool {
        match self {
            CallOutcome::Done
            | CallOutcome::Absent
            | CallOutcome::Conflict
            | CallOutcome::Blocked => false,
            CallOutcome::NotSent | CallOutcome::Refused(_) | CallOutcome::Unknown => true,
        }
    }

    /// A label for metrics: `done`, `absent`, `conflict`, `blocked`, `not_sent`, `refused`, `unknown`.
    pub fn label(self) -> &'static str {
        match self {
            CallOutcome::Done => "done",
            CallOutcome::Absent => "absent",
            CallOutcome::Conflict => "conflict",
            CallOutcome::Blocked => "blocked",
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
