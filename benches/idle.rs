//! What the two services take while nothing happens: memory and processor time, with 100 nodes that
//! are machines of ours and 3,000 pods.
//!
//! The release program runs as processes, started as the units start them; the API servers are the
//! simulators, in this process, on real sockets with TLS. As root the daemon goes through the broker,
//! in the arena of the end-to-end test; then, and otherwise alone, it uses an API token.

mod common;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use common::daemon::{self, Channel, HOST};
use common::populated::{PODS_PER_NODE, Populated};
use common::process::{self, Memory};
use common::services::{self, Service};
use common::{Report, Row, note};

const NODES: usize = 100;
/// How long is measured, unless `--seconds N` says otherwise.
const WINDOW: Duration = Duration::from_mins(2);
/// From ready to the beginning of the measurement. The daemon is ready before it leads: the lease of the one that was measured before it
/// runs out half a minute later, and the first turns of a leader look at everything.
const SETTLING: Duration = Duration::from_secs(90);
/// The targets.
const DAEMON_BYTES: u64 = 20 << 20;
const BROKER_BYTES: u64 = 8 << 20;
const CORE_PERCENT: f64 = 0.1;

fn main() -> ExitCode {
    let broker = services::inside();
    if !broker {
        match services::enter_arena() {
            Ok(never) => match never {},
            Err(why) => note(format!("no broker, the daemon uses an API token: {why}")),
        }
    }
    // Which of the two providers of the tree rustls shall use.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut report =
        Report::new("An idle service with 100 nodes and 3,000 pods (real time, real processes)");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for row in runtime.block_on(idle(broker)) {
        report.add(row);
    }
    report.finish()
}

async fn idle(broker: bool) -> Vec<Row> {
    let directory = tempfile::tempdir().expect("a directory");
    if broker {
        services::furnish(directory.path(), HOST.0, HOST.1, HOST.2);
    }
    let cluster = Populated::begin(NODES, PODS_PER_NODE).await;
    note(format!("{NODES} nodes, {} pods", NODES * PODS_PER_NODE));
    let mut rows = Vec::new();
    if broker {
        rows = measured(directory.path(), &cluster, Setting::Broker).await;
    }
    for setting in [Setting::Token, Setting::Traces] {
        rows.extend(measured(directory.path(), &cluster, setting).await);
    }
    rows
}

/// How the services are set up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    /// Through the broker.
    Broker,
    /// With an API token.
    Token,
    /// With an API token, and a collector of traces.
    Traces,
}

impl Setting {
    fn channel(self) -> Channel {
        match self {
            Setting::Broker => Channel::Broker,
            Setting::Token | Setting::Traces => Channel::Token,
        }
    }
}

/// A collector of traces, which takes whatever comes: its URL.
async fn collector() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("it has one");
    let take = axum::routing::post(async || axum::Json(serde_json::json!({})));
    let router = axum::Router::new().route("/v1/traces", take);
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// Starts the services as this setting has them, and measures them: a row for each process.
async fn measured(directory: &Path, cluster: &Populated, setting: Setting) -> Vec<Row> {
    let channel = setting.channel();
    let (place, _servers) = daemon::serve(directory, cluster, channel).await;
    if setting == Setting::Traces {
        let url = collector().await;
        place.configure(&format!("\n[telemetry]\notlp_endpoint = \"{url}\"\n"));
    }
    let mut running = daemon::start(directory, &place, channel).await;
    tokio::time::sleep(SETTLING).await;
    let window = window();
    let before: Vec<Usage> = running.iter().map(Usage::of).collect();
    let calls = cluster.pve.request_count();
    tokio::time::sleep(window).await;
    let rows = running
        .iter_mut()
        .zip(before)
        .map(|(service, before)| row(service, &before, window, setting))
        .collect();
    note(format!(
        "{} calls to PVE in {} s",
        cluster.pve.request_count() - calls,
        window.as_secs()
    ));
    for service in &running {
        for line in service.said().lines().rev().take(3) {
            note(format!("{}: {line}", service.name()));
        }
    }
    rows
}

fn window() -> Duration {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--seconds");
    let given = arguments.nth(1).and_then(|seconds| seconds.parse().ok());
    given.map_or(WINDOW, Duration::from_secs)
}

/// What a process has used.
struct Usage {
    processor: Duration,
    memory: Memory,
}

impl Usage {
    fn of(service: &Service) -> Usage {
        let pid = service.pid();
        let found = process::processor_time(pid).zip(process::memory(pid));
        let (processor, memory) =
            found.unwrap_or_else(|| panic!("the process ended:\n{}", service.said()));
        Usage { processor, memory }
    }
}

fn row(service: &Service, before: &Usage, window: Duration, setting: Setting) -> Row {
    let after = Usage::of(service);
    let used = after.processor.saturating_sub(before.processor);
    let (workload, most) = match (service.name(), setting) {
        ("pve-autoscaler", Setting::Broker) => ("idle", DAEMON_BYTES),
        ("pve-autoscaler", Setting::Token) => ("idle-token", DAEMON_BYTES),
        ("pve-autoscaler", Setting::Traces) => ("idle-traces", DAEMON_BYTES),
        _ => ("idle-broker", BROKER_BYTES),
    };
    Row::new(workload, NODES)
        .field("seconds", window.as_secs())
        .field("pods", NODES * PODS_PER_NODE)
        .field("rss_bytes", after.memory.resident)
        .field("rss_anon_bytes", after.memory.anonymous)
        .field("peak_bytes", after.memory.peak)
        .field("cpu_seconds", used.as_secs_f64())
        .field(
            "core_percent",
            100.0 * used.as_secs_f64() / window.as_secs_f64(),
        )
        .at_most("rss_bytes", most)
        .at_most("core_percent", CORE_PERCENT)
}
