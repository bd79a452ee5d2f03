//! Processor time that the daemon uses while much happens: at 1,000 nodes and ten events a second, and for 10,000 pods that
//! come at once.
//!
//! The release program runs as a process, with an API token; the API servers are the simulators, in this process, on
//! real sockets with TLS.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use common::daemon::{self, Channel};
use common::populated::{PODS_PER_NODE, Populated};
use common::process;
use common::services::Service;
use common::{Report, Row, note};
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::workload::{Act, Pods, Step, Workload};

/// Nodes that are there while pods are replaced.
const NODES: usize = 1_000;
/// Pods on each of them.
const PODS: usize = 10;
/// Pods replaced a second: a pod that goes and its successor are some five events, with all that becomes of them.
const REPLACED: u32 = 2;
/// How long that is measured.
const WINDOW: Duration = Duration::from_mins(1);
/// From ready to the beginning of a measurement.
const SETTLING: Duration = Duration::from_secs(45);
/// Target: processor time of the daemon while pods are replaced, in percent of one core.
const CHURN_PERCENT: f64 = 1.0;
/// Nodes that are there when the burst comes.
const FEW: usize = 10;
/// Pods of the burst.
const BURST: u32 = 10_000;
/// Target: processor time of the daemon in the minute after the burst, in seconds.
const BURST_SECONDS: f64 = 2.0;

fn main() -> ExitCode {
    // Which of the two providers of the tree rustls shall use.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut report = Report::new("A busy service (real time, real processes)");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    report.add(runtime.block_on(burst()));
    report.add(runtime.block_on(churn()));
    report.finish()
}

/// 10,000 pods come at once, and machines are made for them.
async fn burst() -> Row {
    let cluster = Populated::begin(FEW, PODS_PER_NODE).await;
    let directory = tempfile::tempdir().expect("a directory");
    let (place, _servers) = daemon::serve(directory.path(), &cluster, Channel::Token).await;
    let running = daemon::start(directory.path(), &place, Channel::Token).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = used(&running[0]);
    let deploy = Act::Deploy {
        name: "burst".to_owned(),
        replicas: BURST,
        pods: Pods::of("30m", "50Mi"),
    };
    let step = Step {
        at: Span::ZERO,
        act: deploy,
    };
    let workload = Workload { steps: vec![step] };
    let played = workload.play(cluster.kube.router()).await;
    played.expect("the workload plays");
    tokio::time::sleep(WINDOW).await;
    let took = used(&running[0]).saturating_sub(before);
    let pods = cluster.kube.objects("v1", "Pod").len() - FEW * PODS_PER_NODE;
    let before = FEW + cluster.pve.vms().iter().filter(|vm| vm.template).count();
    let made = cluster.pve.vms().len().saturating_sub(before);
    note(format!(
        "{pods} pods have come and {made} VMs more are there a minute later"
    ));
    for line in running[0].said().lines().rev().take(3) {
        note(line.to_owned());
    }
    Row::new("burst", u64::from(BURST))
        .field("seconds", WINDOW.as_secs())
        .field("cpu_seconds", took.as_secs_f64())
        .at_most("cpu_seconds", BURST_SECONDS)
}

/// Pods are replaced all the time.
async fn churn() -> Row {
    let cluster = Populated::begin(NODES, PODS).await;
    note(format!("{NODES} nodes, {} pods", NODES * PODS));
    let directory = tempfile::tempdir().expect("a directory");
    let (place, _servers) = daemon::serve(directory.path(), &cluster, Channel::Token).await;
    let running = daemon::start(directory.path(), &place, Channel::Token).await;
    tokio::time::sleep(SETTLING).await;
    let before = used(&running[0]);
    let names: Vec<String> = cluster
        .kube
        .objects("v1", "Pod")
        .iter()
        .filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned))
        .filter(|name| name.starts_with("service-"))
        .collect();
    let turns = u32::try_from(WINDOW.as_secs()).unwrap_or(u32::MAX) * REPLACED;
    let mut tick = tokio::time::interval(Duration::from_secs(1) / REPLACED);
    for name in names.iter().take(turns as usize) {
        tick.tick().await;
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let step = Step {
            at: Span::ZERO,
            act: Act::Remove { path },
        };
        let played = Workload { steps: vec![step] }
            .play(cluster.kube.router())
            .await;
        played.expect("the pod is deleted");
    }
    let took = used(&running[0]).saturating_sub(before);
    Row::new("churn-cpu", NODES)
        .field("seconds", WINDOW.as_secs())
        .field("pods", NODES * PODS)
        .field("replaced", turns)
        .field("cpu_seconds", took.as_secs_f64())
        .field(
            "core_percent",
            100.0 * took.as_secs_f64() / WINDOW.as_secs_f64(),
        )
        .at_most("core_percent", CHURN_PERCENT)
}

fn used(service: &Service) -> Duration {
    let found = process::processor_time(service.pid());
    found.unwrap_or_else(|| panic!("the process ended:\n{}", service.said()))
}
