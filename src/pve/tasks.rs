//! Following a task to its end.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::client::Client;
use super::texts::FailureCause;
use super::transport::{CallEffect, CallError};
use super::types::TaskState;
use super::upid::Upid;
use crate::model::foreign::ForeignText;

/// Polls that may fail one after the other before waiting is given up: about a minute of a host
/// that does not answer, at two seconds and a call's deadline each.
const FAILURES: u32 = 8;

/// How often a task is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The first pause; each next one is twice as long …
    pub first: Duration,
    /// … up to this.
    pub most: Duration,
}

impl Default for Poll {
    /// 100 ms to 2 s: a linked clone takes half a second, a full one minutes.
    fn default() -> Poll {
        Poll {
            first: Duration::from_millis(100),
            most: Duration::from_secs(2),
        }
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// Well.
    Ok,
    /// Well, with warnings in its log.
    Warnings(ForeignText),
    /// Badly, with this text.
    Failed(ForeignText),
}

/// Why a task's end was not seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// It still ran when the time was over.
    #[error("PVE task {upid} has not ended within {within:?}")]
    Deadline {
        /// The task.
        upid: Upid,
        /// The time it had.
        within: Duration,
    },
    /// The task's host knows no such task (any more), or does not answer about it.
    #[error("lost sight of PVE task {upid}: {error}")]
    Lost {
        /// The task.
        upid: Upid,
        /// What the last poll gave.
        error: CallError,
    },
}

impl Client {
    /// Waits until the task ended, at most for `within`. Single failed polls are borne.
    pub async fn wait_task(
        &self,
        upid: &Upid,
        within: Duration,
        poll: Poll,
    ) -> Result<TaskEnd, WaitError> {
        let end = Instant::now() + within;
        let (mut pause, mut failures) = (poll.first, 0u32);
        loop {
            match self.task_status(upid).await {
                Ok(TaskState::Ok) => return Ok(TaskEnd::Ok),
                Ok(TaskState::Warnings(text)) => return Ok(TaskEnd::Warnings(text)),
                Ok(TaskState::Failed(text)) => return Ok(TaskEnd::Failed(text)),
                Ok(TaskState::Running) => failures = 0,
                Err(error) => {
                    failures += 1;
                    let pointless = error.outcome == CallEffect::RefusedByBroker
                        || error.cause() == FailureCause::NoSuchTask
                        || error.status == Some(403);
                    if pointless || failures > FAILURES {
                        return Err(WaitError::Lost {
                            upid: upid.clone(),
                            error,
                        });
                    }
                }
            }
            let now = Instant::now();
            if now >= end {
                return Err(WaitError::Deadline {
                    upid: upid.clone(),
                    within,
                });
            }
            sleep_until((now + pause).min(end)).await;
            pause = (pause * 2).min(poll.most);
        }
    }
}
