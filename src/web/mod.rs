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
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::watch;
use tokio::time::Instant;

pub use health::{Health, LIVE_LIMIT};
pub use metrics::Metrics;
pub use server::serve;

use crate::agent::turn::Turn;

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

/// The routes.
pub fn router(state: State) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(state)
}

async fn index() -> &'static str {
    "pve-autoscaler\n\n/metrics  numbers for Prometheus\n/livez    is the loop turning?\n/readyz   can it work? if not, why\n"
}

async fn metrics(extract::State(state): extract::State<State>) -> impl IntoResponse {
    let turn = state.turns.borrow().clone();
    let text = state.metrics.text(turn.as_deref());
    ([(header::CONTENT_TYPE, METRICS_TYPE)], text)
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
        let mut text = reasons.join("\n");
        text.push('\n');
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }
}
