//! What the page asks about one thing: the explanation that `explain` gives, the pods of a node, a search. By the last
//! turn, and never by a new one: who looks makes no work for the loop.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::WebState;
use crate::controller::answers::TurnQuestion;
use crate::controller::control::ControlAnswer;
use crate::controller::turn::Turn;
use crate::controller::what_if::{MAX_TEXT, Supposition, suppose};
use crate::controller::wording;
use crate::model::cluster::{ObjectKey, Phase};
use crate::model::report::{NodeVerdict, PodVerdict};
use crate::model::time::Time;

/// Pods, nodes and machines that a search gives at most, of each.
const MAX_FOUND: usize = 50;
/// Pods of a node that are named at most; kubelets take 110 as they come.
const MAX_PODS: usize = 1_000;
/// Longest text that is searched for.
const MAX_SEARCH: usize = 253;
/// A question waits this long for those before it.
const PATIENCE: Duration = Duration::from_secs(10);
/// It waited in vain.
const BUSY: &str = "Too much is asked for at once; ask again.";
/// It could not be made.
const UNMADE: &str = "It was not made; the log says why.";

/// Tells all about one pod.
pub(super) async fn pod(
    Shared(state): Shared<WebState>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    explain(state, TurnQuestion::Pod(ObjectKey::new(namespace, name))).await
}

/// Tells all about one node, or a machine that is to become one.
pub(super) async fn node(Shared(state): Shared<WebState>, Path(name): Path<String>) -> Response {
    explain(state, TurnQuestion::Node(name)).await
}

/// Explanations are computed one at a time, beside the loop.
async fn explain(state: WebState, question: TurnQuestion) -> Response {
    let Some(turn) = state.turns.borrow().clone() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, &state.status.tell().line());
    };
    let Ok(Ok(slot)) = timeout(PATIENCE, state.asking.clone().acquire_owned()).await else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, BUSY);
    };
    let now = state.clock.now();
    let told = tokio::task::spawn_blocking(move || {
        let _held = slot;
        (question.answer(&turn), turn)
    });
    match told.await {
        Ok((ControlAnswer::Ok(story), turn)) => {
            let sentence = sentence(&story, now);
            answer(&json!({"at": turn.at.0, "now": now.0, "sentence": sentence, "story": story}))
        }
        Ok((ControlAnswer::Error(why), _)) => refusal(StatusCode::NOT_FOUND, &why),
        Err(error) => {
            tracing::error!(%error, "an explanation for the page was not made");
            refusal(StatusCode::INTERNAL_SERVER_ERROR, UNMADE)
        }
    }
}

/// The verdict of a story in the words that `explain` and `plan` have for it.
fn sentence(story: &Value, now: Time) -> Option<(String, String)> {
    let verdict = story.get("verdict").filter(|verdict| !verdict.is_null())?;
    if story.get("pod").is_some() {
        let verdict = PodVerdict::deserialize(verdict).ok()?;
        return Some(wording::pod_verdict(&verdict, now));
    }
    let verdict = NodeVerdict::deserialize(verdict).ok()?;
    Some(wording::node_verdict(&verdict, now))
}

/// Decides what the plan would be with more pods or another configuration; nothing is carried out.
pub(super) async fn what_if(
    Shared(state): Shared<WebState>,
    body: Result<Json<Supposition>, JsonRejection>,
) -> Response {
    let supposed = match body {
        Ok(Json(supposed)) => supposed,
        Err(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let why = format!("The manifests are too long: at most {MAX_TEXT} bytes are read.");
            return refusal(StatusCode::BAD_REQUEST, &why);
        }
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.body_text()),
    };
    let Some(turn) = state.turns.borrow().clone() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, &state.status.tell().line());
    };
    let Ok(Ok(slot)) = timeout(PATIENCE, state.asking.clone().acquire_owned()).await else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, BUSY);
    };
    let decided = tokio::task::spawn_blocking(move || {
        let _held = slot;
        (suppose(&turn, &supposed), turn.at)
    });
    match decided.await {
        Ok((Ok(outcome), at)) => answer(&json!({"at": at.0, "outcome": outcome})),
        Ok((Err(why), _)) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &why),
        Err(error) => {
            tracing::error!(%error, "a plan for the page was not made");
            refusal(StatusCode::INTERNAL_SERVER_ERROR, UNMADE)
        }
    }
}

/// A pod of a node.
#[derive(Debug, Serialize)]
struct PodRow<'a> {
    pod: &'a ObjectKey,
    phase: Phase,
    ready: bool,
    leaving: bool,
    since: Time,
    cpu_milli: i64,
    memory: i64,
}

/// The pods of a node.
pub(super) async fn pods_of(Shared(state): Shared<WebState>, Path(name): Path<String>) -> Response {
    let Some(turn) = state.turns.borrow().clone() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, &state.status.tell().line());
    };
    let on = turn.snapshot.cluster.pods.iter();
    let mut on = on.filter(|(_, pod)| pod.node.as_deref() == Some(&*name));
    let rows = on.by_ref().take(MAX_PODS).map(|(key, pod)| PodRow {
        pod: key,
        phase: pod.phase,
        ready: pod.ready,
        leaving: pod.deletion.is_some(),
        since: pod.started.unwrap_or(pod.created),
        cpu_milli: pod.shape.requests.cpu_milli,
        memory: pod.shape.requests.memory,
    });
    let rows: Vec<PodRow<'_>> = rows.collect();
    let more = on.count();
    answer(&json!({"pods": rows, "more": more}))
}

/// What is searched for.
#[derive(Debug, Deserialize)]
pub(super) struct SearchQuery {
    /// A part of a name.
    q: String,
}

/// Names that have a text in them.
#[derive(Debug, Default, Serialize)]
struct SearchHits<'a> {
    pods: Vec<&'a ObjectKey>,
    nodes: Vec<&'a Arc<str>>,
    machines: Vec<&'a Arc<str>>,
    /// There are more than these.
    more: bool,
}

/// Finds pods, nodes and machines by a part of their names.
pub(super) async fn find(
    Shared(state): Shared<WebState>,
    Query(search): Query<SearchQuery>,
) -> Response {
    let Some(turn) = state.turns.borrow().clone() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, &state.status.tell().line());
    };
    if search.q.len() > MAX_SEARCH {
        let why = format!("A name has at most {MAX_SEARCH} letters.");
        return refusal(StatusCode::BAD_REQUEST, &why);
    }
    answer(&found(&turn, &search.q))
}

fn found<'a>(turn: &'a Turn, part: &str) -> SearchHits<'a> {
    let snapshot = &turn.snapshot;
    let mut found = SearchHits::default();
    let (namespace, name) = part.split_once('/').unwrap_or(("", part));
    let is_asked = |key: &ObjectKey| key.name.contains(name) && key.namespace.ends_with(namespace);
    let mut pods = snapshot.cluster.pods.keys().filter(|key| is_asked(key));
    found.pods = pods.by_ref().take(MAX_FOUND).collect();
    let mut nodes = snapshot
        .cluster
        .nodes
        .keys()
        .filter(|node| node.contains(part));
    found.nodes = nodes.by_ref().take(MAX_FOUND).collect();
    let machines = snapshot
        .machines
        .iter()
        .filter(|(_, machine)| machine.node.is_none());
    let mut machines = machines
        .map(|(name, _)| name)
        .filter(|name| name.contains(part));
    found.machines = machines.by_ref().take(MAX_FOUND).collect();
    found.more = pods.next().is_some() || nodes.next().is_some() || machines.next().is_some();
    found
}

/// What was asked for.
pub(super) fn answer(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => json_response(StatusCode::OK, text),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Why there is no answer.
pub(super) fn refusal(status: StatusCode, why: &str) -> Response {
    json_response(status, json!({"error": why}).to_string())
}

fn json_response(status: StatusCode, text: String) -> Response {
    let terms = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, terms, text).into_response()
}
