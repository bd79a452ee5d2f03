//! The fake PVE on the network: `pve-autoscaler sim pve`.
//!
//! Beside `/api2/json` it has `/sim/…` for drivers: `GET /sim/world` (everything there is),
//! `POST /sim/act` (what an administrator does, see [`AdminAct`]), `GET` and `PUT /sim/faults`.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::{Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};

use super::admin::{AdminAct, Dump};
use super::{Pve, PveSpec};
use crate::bounded_file;
use crate::clock::Clock;
use crate::sim::faults::{FaultPlan, Faults, Style};
use crate::sim::guests::Guests;
use crate::sim::guests::none::NoGuests;
use crate::sim::guests::program::ProgramGuests;
use crate::sim::listen::{Listener, Tls};
use crate::simulator_args::PveOptions;

/// Boot of guests with nothing in them.
const EMPTY_BOOT: Duration = Duration::from_secs(2);
/// Shutdown of guests with nothing in them.
const EMPTY_SHUTDOWN: Duration = Duration::from_secs(1);
/// How many requests pveproxy answers on a connection (AnyEvent.pm).
const REQUESTS_A_CONNECTION: u64 = 100;
/// How long the guests get to go when the simulator ends.
const GUESTS_STOP: Duration = Duration::from_secs(90);

/// Serves until SIGINT or SIGTERM. Prints where, and the certificate's fingerprint, once it listens.
pub async fn serve(options: PveOptions) -> anyhow::Result<()> {
    let spec = match &options.spec {
        None => PveSpec::default(),
        Some(path) => {
            let text = bounded_file::read_text(path, bounded_file::WORLD)
                .with_context(|| format!("reading {}", path.display()))?;
            serde_json::from_str(&text)
                .with_context(|| format!("reading the world in {}", path.display()))?
        }
    };
    let tls = match (&options.tls_cert, &options.tls_key) {
        (Some(certificate), Some(key)) => Tls::from_files(certificate, key)?,
        _ => Tls::self_signed(&["localhost", "127.0.0.1", "::1", host_of(&options.listen)])?,
    };
    let programs = options.guest_program.as_ref().map(|program| {
        let own =
            || std::env::temp_dir().join(format!("pve-autoscaler-guests-{}", std::process::id()));
        ProgramGuests::new(
            program.clone(),
            options.guest_dir.clone().unwrap_or_else(own),
        )
    });
    let guests: Arc<dyn Guests> = match &programs {
        Some(programs) => Arc::new(programs.clone()),
        None => Arc::new(NoGuests::new(EMPTY_BOOT, EMPTY_SHUTDOWN)),
    };
    let pve = Pve::new(spec, guests, Clock::System, options.seed);
    let faults = Faults::new(options.seed);
    let fingerprint = tls.fingerprint();
    let listener = Listener::bind(&options.listen, Some(tls))
        .await
        .with_context(|| format!("listening on {}", options.listen))?
        .closing_after(REQUESTS_A_CONNECTION);
    let mut terminate = signal(SignalKind::terminate())?;
    let url = listener.url()?;
    writeln!(
        std::io::stdout(),
        "listening on {url}\nfingerprint {fingerprint}"
    )?;
    let router = faults
        .wrap(pve.router(), Style::Pve)
        .merge(driver(&pve, &faults));
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
        () = listener.serve(router) => {}
    }
    if let Some(programs) = programs {
        let _ = tokio::time::timeout(GUESTS_STOP, programs.stop_all()).await;
    }
    Ok(())
}

/// The host of `HOST:PORT`.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

#[derive(Clone, Debug)]
struct Driver {
    pve: Pve,
    faults: Faults,
}

/// The routes for drivers.
pub(super) fn driver(pve: &Pve, faults: &Faults) -> Router {
    Router::new()
        .route("/sim/world", get(world))
        .route("/sim/act", post(act))
        .route("/sim/faults", get(faults_now).put(set_faults))
        .with_state(Driver {
            pve: pve.clone(),
            faults: faults.clone(),
        })
}

#[derive(Debug, Deserialize)]
struct DumpDepth {
    #[serde(default)]
    requests: usize,
}

async fn world(State(driver): State<Driver>, Query(depth): Query<DumpDepth>) -> Json<Dump> {
    Json(driver.pve.dump(depth.requests))
}

async fn act(
    State(driver): State<Driver>,
    Json(act): Json<AdminAct>,
) -> Result<Json<()>, (StatusCode, String)> {
    match driver.pve.administer(&act) {
        Ok(()) => Ok(Json(())),
        Err(words) => Err((StatusCode::CONFLICT, words)),
    }
}

async fn faults_now(State(driver): State<Driver>) -> Json<FaultPlan> {
    Json(driver.faults.plan())
}

async fn set_faults(State(driver): State<Driver>, Json(plan): Json<FaultPlan>) -> Json<()> {
    driver.faults.set(plan);
    Json(())
}
