//! The web server: the page, `/metrics`, `/livez`, `/readyz`.
//!
//! The listener is bound by the caller, before the service says READY. Everything served is plain
//! shared state. Beyond the host `access` asks who looks; `acts` hands on what those may do who are logged in.

pub mod access;
mod acts;
mod ask;
mod assets;
mod guard;
mod health;
mod live;
pub mod metrics;
mod server;
#[cfg(test)]
mod tests;
mod view;
mod when;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use acts::Actor;
pub use health::{Health, LIVE_LIMIT};
pub use metrics::Metrics;
pub use server::serve;

use crate::clock::Clock;
use crate::controller::conditions::FoundConditions;
use crate::controller::status::DaemonStatus;
use crate::controller::turn::Turn;
use crate::model::foreign::{self, ForeignText};
use live::Viewers;

/// What the server shows.
#[derive(Clone, Debug)]
pub struct WebState {
    /// The metrics.
    metrics: Arc<Metrics>,
    /// How the loop is.
    health: watch::Receiver<Health>,
    /// The last turn, from which all that is shown is made when somebody asks for it.
    turns: watch::Receiver<Option<Arc<Turn>>>,
    /// Tells the status.
    status: StatusSource,
    /// Tells in which conditions a person must act, for the metrics.
    conditions: Option<ConditionSource>,
    clock: Clock,
    /// How many seconds of the clock pass in one.
    pace: u32,
    viewers: Arc<Viewers>,
    /// Explanations are made one at a time.
    asking: Arc<Semaphore>,
    /// Streams end with the server.
    closing: CancellationToken,
    /// The record of decisions.
    past: Option<Arc<when::Past>>,
    /// Does what those who are logged in ask for.
    actor: Option<acts::Actor>,
    /// Who may look.
    access: access::Access,
    /// What a demonstration serves beside the page: acts on its world.
    acts: Option<Router>,
}

impl WebState {
    /// What a server shows of these.
    pub fn new(
        metrics: Arc<Metrics>,
        health: watch::Receiver<Health>,
        turns: watch::Receiver<Option<Arc<Turn>>>,
        status: StatusSource,
        clock: Clock,
    ) -> WebState {
        WebState {
            metrics,
            health,
            turns,
            status,
            conditions: None,
            clock,
            pace: 1,
            viewers: Arc::default(),
            asking: Arc::new(Semaphore::new(1)),
            closing: CancellationToken::new(),
            past: None,
            actor: None,
            access: access::Access::default(),
            acts: None,
        }
    }

    /// This state in a demonstration: its clock goes `pace` times as fast as a person's, and `acts` serves what
    /// people may do to its world, below `/demo`.
    #[must_use]
    pub fn demonstrated(self, pace: u32, acts: Router) -> WebState {
        let acts = Some(acts);
        WebState { pace, acts, ..self }
    }
}

impl WebState {
    /// This state with what tells in which conditions a person must act.
    #[must_use]
    pub fn watched(self, conditions: ConditionSource) -> WebState {
        let conditions = Some(conditions);
        WebState { conditions, ..self }
    }

    /// This state with the record of decisions in `directory`.
    #[must_use]
    pub fn recorded(self, directory: std::path::PathBuf) -> WebState {
        let past = Some(Arc::new(when::Past::of(directory)));
        WebState { past, ..self }
    }

    /// This state with what those may have done who are logged in.
    #[must_use]
    pub fn acting(self, actor: acts::Actor) -> WebState {
        let actor = Some(actor);
        WebState { actor, ..self }
    }

    /// This state behind what decides who is let in.
    #[must_use]
    pub fn behind(self, access: access::Access) -> WebState {
        WebState { access, ..self }
    }
}

/// Tells the status that `status` shows.
#[derive(Clone)]
pub struct StatusSource(Arc<dyn Fn() -> DaemonStatus + Send + Sync>);

impl StatusSource {
    /// One that asks this.
    pub fn new(ask: impl Fn() -> DaemonStatus + Send + Sync + 'static) -> StatusSource {
        StatusSource(Arc::new(ask))
    }

    fn tell(&self) -> DaemonStatus {
        (self.0)()
    }
}

impl fmt::Debug for StatusSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}

/// Tells in which conditions a person must act now; `None` while nothing is configured.
#[derive(Clone)]
pub struct ConditionSource(Arc<dyn Fn() -> Option<FoundConditions> + Send + Sync>);

impl ConditionSource {
    /// One that asks this.
    pub fn new(ask: impl Fn() -> Option<FoundConditions> + Send + Sync + 'static) -> Self {
        ConditionSource(Arc::new(ask))
    }
}

impl fmt::Debug for ConditionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConditionSource")
    }
}

/// OpenMetrics, as Prometheus asks for it.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What everybody else gets: Prometheus' own format, which a browser shows.
const PLAIN_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Largest body of a request, in bytes.
const MAX_BODY: usize = 128 * 1024;

/// What is served instead of the page to those who are elsewhere.
const INDEX: &str = "<!doctype html>
<meta charset=\"utf-8\">
<title>pve-autoscaler</title>
<h1>pve-autoscaler</h1>
<ul>
<li><a href=\"/readyz\">/readyz</a>: can it work? If not, why
<li><a href=\"/livez\">/livez</a>: is the loop turning?
<li><a href=\"/metrics\">/metrics</a>: numbers for Prometheus
</ul>
<p>The page is served on loopback addresses, or with a login. On the host: <code>pve-autoscaler status</code>,
<code>pve-autoscaler plan</code>.
";

/// The routes. `near`: only who is on this host gets here.
fn router(state: WebState, near: bool) -> Router {
    let page = if near || state.access.wants_login() {
        page(&state)
    } else {
        Router::new().route("/", get(async || Html(INDEX)))
    };
    Router::new()
        .route("/metrics", get(metrics))
        .route_layer(from_fn_with_state(state.clone(), access::metrics_gate))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .merge(page)
        .with_state(state)
}

/// The page and what it asks for.
fn page(state: &WebState) -> Router<WebState> {
    let acts = state.acts.clone();
    let asked = acts.unwrap_or_default().with_state(());
    let asked = asked
        .route("/api/events", get(live::stream))
        .route("/api/find", get(ask::find))
        .route("/api/explain/pod/{namespace}/{name}", get(ask::pod))
        .route("/api/explain/node/{name}", get(ask::node))
        .route("/api/pods/{node}", get(ask::pods_of))
        .route("/api/what-if", post(ask::what_if))
        .route("/api/act", post(acts::act))
        .route("/api/when", get(when::when))
        .route_layer(from_fn_with_state(state.clone(), access::page_gate));
    // The files are the same everywhere, and tell nothing of this installation.
    let mut page = asked
        .route("/api/session", get(access::session))
        .route("/api/login", post(access::log_in))
        .route("/api/logout", post(access::log_out));
    for path in assets::paths() {
        page = page.route(path, get(asset));
    }
    page.route_layer(DefaultBodyLimit::max(MAX_BODY))
        .route_layer(from_fn_with_state(state.clone(), guard::guard))
}

async fn asset(uri: Uri, headers: HeaderMap) -> Response {
    assets::serve(uri.path(), &headers)
}

async fn metrics(
    extract::State(state): extract::State<WebState>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let turn = state.turns.borrow().clone();
    if let Some(ConditionSource(ask)) = &state.conditions {
        let found = ask().unwrap_or_default();
        state.metrics.conditions(&found, state.clock.now());
    }
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

async fn livez(extract::State(state): extract::State<WebState>) -> (StatusCode, String) {
    answer(&state.health.borrow().live(Instant::now()))
}

/// Whether it can work is for everybody to know, why not for those who may look.
async fn readyz(
    extract::State(state): extract::State<WebState>,
    extract::Extension(peer): extract::Extension<server::PeerAddress>,
    headers: HeaderMap,
) -> (StatusCode, String) {
    let reasons = state.health.borrow().ready(Instant::now());
    if reasons.is_empty() || access::tells_reasons(&state, &headers, peer).await {
        return answer(&reasons);
    }
    answer(&["not ready; who is logged in is told why".to_owned()])
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
