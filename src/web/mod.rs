//! The web server: `/metrics`, `/livez`, `/readyz`.
//!
//! The listener is bound by the caller, before the service says READY. Everything served is plain
//! shared state; nothing here can change anything.

mod health;
pub mod metrics;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use tokio::sync::watch;
use tokio::time::Instant;

pub use health::{Health, LIVE_LIMIT};
pub use metrics::Metrics;
pub use server::serve;

use crate::agent::turn::Turn;
use crate::model::foreign::{self, ForeignText};

/// What the server shows.
#[derive(Clone, Debug)]
pub struct State {
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// How the loop is.
    pub health: watch::Receiver<Health>,
    /// The last turn, from which the gauges are made when somebody asks for them.
    pub turns: watch::Receiver<Option<Arc<Turn>>>,
}

/// OpenMetrics, as Prometheus asks for it.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What everybody else gets: Prometheus' own format, which a browser shows.
const PLAIN_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The way in, for people.
const INDEX: &str = "<!doctype html>
<meta charset=\"utf-8\">
<title>pve-autoscaler</title>
<h1>pve-autoscaler</h1>
<ul>
<li><a href=\"/readyz\">/readyz</a>: can it work? If not, why
<li><a href=\"/livez\">/livez</a>: is the loop turning?
<li><a href=\"/metrics\">/metrics</a>: numbers for Prometheus
</ul>
<p>On the host: <code>pve-autoscaler status</code>, <code>pve-autoscaler plan</code>.
";

/// The routes.
pub fn router(state: State) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(state)
}

async fn index() -> Html<&'static str> {
    Html(INDEX)
}

async fn metrics(
    extract::State(state): extract::State<State>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let turn = state.turns.borrow().clone();
    let open = headers.get_all(header::ACCEPT).iter().any(|accept| {
        let accept = accept.to_str().unwrap_or_default();
        accept.contains("application/openmetrics-text")
    });
    let (kind, text) = if open {
        (METRICS_TYPE, state.metrics.text(turn.as_deref()))
    } else {
        (PLAIN_TYPE, state.metrics.plain_text(turn.as_deref()))
    };
    ([(header::CONTENT_TYPE, kind)], text)
}

async fn livez(extract::State(state): extract::State<State>) -> (StatusCode, String) {
    answer(&state.health.borrow().live(Instant::now()))
}

async fn readyz(extract::State(state): extract::State<State>) -> (StatusCode, String) {
    answer(&state.health.borrow().ready(Instant::now()))
}

/// 200 and `ok`, or 503 and the reasons, one a line.
fn answer(reasons: &[String]) -> (StatusCode, String) {
    if reasons.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        let lines = reasons
            .iter()
            .map(|reason| foreign::line(reason, ForeignText::MAX));
        let mut text = lines.collect::<Vec<String>>().join("\n");
        text.push('\n');
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }
}
