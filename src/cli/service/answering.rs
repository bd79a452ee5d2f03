//! What the service answers on its control socket.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Shared, notifying};
use crate::agent::answers::{self, Question};
use crate::agent::control::{Answer, Command, Handler};
use crate::agent::turn::Turn;
use crate::model::memory::{Backoff, Memory};
use crate::model::time::Time;
use crate::model::words;
use crate::web::Actor;

/// An answer to `plan` waits this long for a fresh turn.
const PLAN_PATIENCE: Duration = Duration::from_secs(10);

/// Who asks by the control socket, in the log.
const HOST: &str = "a command on the host";

/// Answers the control socket.
pub(super) fn handler(shared: Arc<Shared>) -> Handler {
    Arc::new(move |command| {
        let shared = shared.clone();
        Box::pin(async move { answer(&shared, command, HOST).await })
    })
}

/// Does what a person asks for on the page.
pub(super) fn actor(shared: Arc<Shared>) -> Actor {
    Actor::new(move |command, user| {
        let shared = shared.clone();
        Box::pin(async move { answer(&shared, command, &user).await })
    })
}

/// `by`: who asks, as the log has it.
async fn answer(shared: &Shared, command: Command, by: &str) -> Answer {
    let question = match command {
        Command::Status => return answers::json(&shared.status()),
        Command::Pause { reason } => return paused(shared, Some(&reason), by).await,
        Command::Resume => return paused(shared, None, by).await,
        Command::Retry { pool } => return retried(shared, &pool, by).await,
        Command::NotifyTest { name } => return notifying::test(shared, name.as_deref(), by).await,
        Command::Snapshot => Question::Snapshot,
        Command::Plan => Question::Plan,
        Command::ExplainPod { pod } => Question::Pod(pod),
        Command::ExplainNode { node } => Question::Node(node),
        Command::Names { kind, prefix } => {
            // Names as they were last seen do: whoever presses Tab does not wait for a turn.
            return match &*shared.turns.borrow() {
                Some(turn) => Question::Names(kind, prefix).answer(turn),
                None => answers::json(&[(); 0]),
            };
        }
    };
    match fresh(shared).await {
        Some(turn) => question.answer(&turn),
        None => Answer::Error(shared.status().line()),
    }
}

/// Begins or ends a pause, and answers once it holds for what is decided.
async fn paused(shared: &Shared, reason: Option<&str>, by: &str) -> Answer {
    match shared.state.set_paused(reason) {
        Ok(()) => {
            match reason {
                Some(reason) => tracing::warn!(%reason, by, "paused"),
                None => tracing::info!(by, "resumed"),
            }
            fresh(shared).await;
            Answer::Ok(serde_json::Value::Null)
        }
        Err(error) => Answer::Error(error.to_string()),
    }
}

/// Ends the waits of a pool, and answers once nothing waits any more: what it waited for, in words.
async fn retried(shared: &Shared, name: &str, by: &str) -> Answer {
    let Some(turn) = fresh(shared).await else {
        return Answer::Error(shared.status().line());
    };
    let pools = &turn.settings.policy.pools;
    if !pools.contains_key(name) {
        let names: Vec<&str> = pools.keys().map(|pool| &**pool).collect();
        return Answer::Error(format!(
            "there is no pool {name}; the pools are {}",
            words::names(&names)
        ));
    }
    let waits = waits_of(&turn.decision.memory, name, turn.at);
    if let Err(error) = shared.state.add_retry(name) {
        return Answer::Error(error.to_string());
    }
    tracing::info!(pool = %name, by, "its back-off is ended");
    fresh(shared).await;
    answers::json(&waits)
}

/// What a pool waits for after failures: itself, and on which hosts.
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

/// A turn taken after the question, or the last one if none comes.
async fn fresh(shared: &Shared) -> Option<Arc<Turn>> {
    if !shared.standing().configured {
        return None;
    }
    let mut turns = shared.turns.subscribe();
    turns.mark_unchanged();
    shared.poke.notify_one();
    let _ = timeout(PLAN_PATIENCE, turns.changed()).await;
    turns.borrow().clone()
}
