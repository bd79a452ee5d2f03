//! Answering commands: those that come by the control socket, and those of who is logged in on the page. The service and the
//! demo answer alike; what the service alone can do, it does before it asks here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::agent::answers::{self, TurnQuestion};
use crate::agent::control::{ControlAnswer, ControlCommand};
use crate::agent::state::StateFiles;
use crate::agent::status::DaemonStatus;
use crate::agent::turn::Turn;
use crate::model::memory::{Backoff, Memory};
use crate::model::time::Time;
use crate::model::words;

/// An answer to `retry` waits this long for the turn in which waits end, for which regions are read; with [`PLAN_PATIENCE`] before it, less
/// than the 30 seconds that whoever asks waits for an answer.
const RETRY_PATIENCE: Duration = Duration::from_secs(18);
/// An answer to `plan` waits this long for a fresh turn.
const PLAN_PATIENCE: Duration = Duration::from_secs(10);

/// The parts of a daemon from which commands are answered.
#[derive(Clone)]
pub struct Answering {
    /// The state directory, where a pause and retries lie.
    pub state: StateFiles,
    /// The turns as they come.
    pub turns: watch::Receiver<Option<Arc<Turn>>>,
    /// Asks for a turn.
    pub wake_up: Arc<Notify>,
    /// How things stand.
    pub status: Arc<dyn Fn() -> DaemonStatus + Send + Sync>,
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").finish_non_exhaustive()
    }
}

impl Answering {
    /// Does what is asked, and says what came of it. `by`: who asks, as the log has it.
    pub async fn answer(&self, command: ControlCommand, by: &str) -> ControlAnswer {
        let question = match command {
            ControlCommand::Status => return answers::json(&(self.status)()),
            ControlCommand::Pause { reason } => return self.paused(Some(&reason), by).await,
            ControlCommand::Resume => return self.paused(None, by).await,
            ControlCommand::Retry { pool } => return self.retried(&pool, by).await,
            ControlCommand::NotifyTest { .. } => {
                return ControlAnswer::Error("nobody is notified from here".to_owned());
            }
            ControlCommand::Snapshot => TurnQuestion::Snapshot,
            ControlCommand::Plan => TurnQuestion::Plan,
            ControlCommand::ExplainPod { pod } => TurnQuestion::Pod(pod),
            ControlCommand::ExplainNode { node } => TurnQuestion::Node(node),
            ControlCommand::Names { kind, prefix } => {
                // Names as they were last seen do: whoever presses Tab does not wait for a turn.
                return match &*self.turns.borrow() {
                    Some(turn) => TurnQuestion::Names(kind, prefix).answer(turn),
                    None => answers::json(&[(); 0]),
                };
            }
        };
        match self.fresh().await {
            Some(turn) => question.answer(&turn),
            None => ControlAnswer::Error((self.status)().line()),
        }
    }

    /// Begins or ends a pause, and answers once that holds for what is decided: whether there was one before.
    async fn paused(&self, reason: Option<&str>, by: &str) -> ControlAnswer {
        let before = self.state.paused().is_some();
        if reason.is_none()
            && before
            && let Err(error) = self.state.note_resumed(by)
        {
            return ControlAnswer::Error(error.to_string());
        }
        match self.state.set_paused(reason) {
            Ok(()) => {
                match reason {
                    Some(reason) => tracing::warn!(%reason, by, "paused"),
                    None => tracing::info!(by, "resumed"),
                }
                self.fresh().await;
                ControlAnswer::Ok(before.into())
            }
            Err(error) => ControlAnswer::Error(error.to_string()),
        }
    }

    /// Ends the waits of a pool, and answers once nothing waits any more: what it waited for, in words.
    async fn retried(&self, name: &str, by: &str) -> ControlAnswer {
        let Some(turn) = self.fresh().await else {
            return ControlAnswer::Error((self.status)().line());
        };
        let pools = &turn.settings.policy.pools;
        if !pools.contains_key(name) {
            let names: Vec<&str> = pools.keys().map(|pool| &**pool).collect();
            return ControlAnswer::Error(format!(
                "there is no pool {name}; the pools are {}",
                words::names(&names)
            ));
        }
        let waits = waits_of(&turn.decision.memory, name, turn.at);
        if let Err(error) = self.state.add_retry(name) {
            return ControlAnswer::Error(error.to_string());
        }
        tracing::info!(pool = %name, by, "its back-off is ended");
        // The loop has regions read before waits end.
        let mut turns = self.turns.clone();
        turns.mark_unchanged();
        self.wake_up.notify_one();
        let ended = async { while self.state.has_retries() && turns.changed().await.is_ok() {} };
        let _ = timeout(RETRY_PATIENCE, ended).await;
        answers::json(&waits)
    }

    /// A turn taken after the question, or the last one if none comes; none where nothing is configured.
    async fn fresh(&self) -> Option<Arc<Turn>> {
        if !(self.status)().configured {
            return None;
        }
        let mut turns = self.turns.clone();
        turns.mark_unchanged();
        self.wake_up.notify_one();
        let _ = timeout(PLAN_PATIENCE, turns.changed()).await;
        turns.borrow().clone()
    }
}

/// A pool's back-offs that still run, its own and those of its hosts, each as a phrase such as `its host pve1 until … after: …`.
fn waits_of(memory: &Memory, pool: &str, now: Time) -> Vec<String> {
    let mut waits = Vec::new();
    let mut add = |whom: String, backoff: &Backoff| {
        if backoff.until > now {
            waits.push(format!(
                "{whom} until {} after: {}",
                backoff.until, backoff.message
            ));
        }
    };
    if let Some(backoff) = memory.backoff.get(pool) {
        add("the pool".to_owned(), backoff);
    }
    for (host, backoff) in memory.host_backoff.get(pool).into_iter().flatten() {
        add(format!("its host {host}"), backoff);
    }
    waits
}
