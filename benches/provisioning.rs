//! From a pending pod to a node that takes it: what of that is our own doing, all that is not the
//! batch window, PVE's clone and its disk's growing, the boot and kubeadm's join.
//!
//! The real daemon in the simulator, in virtual time; every run draws other durations for what is not
//! ours, so that no interval of ours happens to fit. Calls take as long as a real PVE's do.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use common::config::small_machines;
use common::scene::{Scene, calls_by_kind, roomy, simulate};
use common::{Report, Row, note};
use pve_autoscaler::model::time::{Span, Time};
use pve_autoscaler::sim::guests::{GuestSpec, Range};
use pve_autoscaler::sim::pve::{PveSpec, Seen, Timings};
use pve_autoscaler::sim::workload::{Pods, Workload};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// `scale_up.batch_idle`, the default.
const WINDOW: Span = Span::seconds(1);
/// The daemon leads and has seen everything.
const BEGIN: Duration = Duration::from_secs(45);
/// A node takes the pod within this time.
const PATIENCE: Duration = Duration::from_mins(5);
/// The target.
const SHARE_SECONDS: f64 = 1.0;
/// Runs of each kind, unless `--runs N` says otherwise. With `--calls` every run's calls are shown.
const RUNS: u64 = 40;

fn main() -> ExitCode {
    let mut report = Report::new(
        "From a pending pod to a node that takes it: our own share (virtual time, seconds)",
    );
    let mut arguments = std::env::args().skip_while(|argument| argument != "--runs");
    let given = arguments.nth(1).and_then(|runs| runs.parse().ok());
    let runs = given.unwrap_or(RUNS);
    for (calls, timings) in [
        ("none", quick as fn(&mut StdRng) -> Timings),
        ("real", usual),
    ] {
        let mut runs: Vec<Run> = (0..runs).map(|seed| run(seed, timings)).collect();
        runs.sort_by_key(Run::share);
        report.add(row(calls, &runs));
    }
    report.finish()
}

/// What one run showed.
#[derive(Debug)]
struct Run {
    /// Marked unschedulable to bound.
    total: Span,
    /// PVE makes the VM.
    clone: Span,
    /// Power on to the end of cloud-init; QEMU's start in it.
    boot: Span,
    /// `kubeadm join` begins to Ready.
    join: Span,
    /// PVE grows the disk.
    resize: Span,
    /// Calls to PVE.
    calls: usize,
}

impl Run {
    fn share(&self) -> Span {
        let pve = self.clone.0 + self.resize.0;
        Span(self.total.0 - WINDOW.0 - pve - self.boot.0 - self.join.0)
    }
}

fn row(latency: &str, runs: &[Run]) -> Row {
    let seconds = |span: Span| span.to_std().as_secs_f64();
    let mean = |of: fn(&Run) -> Span| {
        let sum: i64 = runs.iter().map(|run| of(run).0).sum();
        seconds(Span(sum / i64::try_from(runs.len()).unwrap_or(1)))
    };
    let worst = runs.last().expect("there were runs");
    let calls: usize = runs.iter().map(|run| run.calls).sum();
    Row::new("provisioning", 1)
        .field("seconds", seconds(worst.share()))
        .field("call_latency", latency)
        .field("runs", runs.len())
        .field("share_median", seconds(runs[runs.len() / 2].share()))
        .field("share_worst", seconds(worst.share()))
        .field("window", seconds(WINDOW))
        .field("clone_mean", mean(|run| run.clone))
        .field("boot_mean", mean(|run| run.boot))
        .field("join_mean", mean(|run| run.join))
        .field("resize_mean", mean(|run| run.resize))
        .field("total_mean", mean(|run| run.total))
        .field("pve_calls_mean", calls / runs.len())
        .at_most("share_worst", SHARE_SECONDS)
}

/// One span for all that is drawn from it.
fn fixed(rng: &mut StdRng, least: i64, most: i64) -> Range {
    let span = Span(rng.random_range(least..=most));
    Range {
        min: span,
        max: span,
    }
}

fn drawn(rng: &mut StdRng, least: u64, most: u64) -> [u64; 2] {
    let millis = rng.random_range(least..=most);
    [millis, millis]
}

/// Calls take no time; cloning and starting do.
fn quick(rng: &mut StdRng) -> Timings {
    Timings {
        allocate_shared: drawn(rng, 300, 1_500),
        clone: drawn(rng, 100, 900),
        start: drawn(rng, 500, 2_000),
        ..Timings::none()
    }
}

/// Calls take what they take on a real host.
fn usual(rng: &mut StdRng) -> Timings {
    Timings {
        allocate_shared: drawn(rng, 300, 1_500),
        clone: drawn(rng, 100, 900),
        start: drawn(rng, 500, 2_000),
        ..Timings::default()
    }
}

fn run(seed: u64, timings: fn(&mut StdRng) -> Timings) -> Run {
    let mut rng = StdRng::seed_from_u64(seed);
    let guests = GuestSpec {
        boot: fixed(&mut rng, 6_000, 25_000),
        cloud_init: fixed(&mut rng, 1_000, 15_000),
        preflight: fixed(&mut rng, 1_500, 5_000),
        ready: fixed(&mut rng, 2_000, 12_000),
        ..GuestSpec::default()
    };
    let pve = PveSpec {
        timings: timings(&mut rng),
        ..roomy()
    };
    let phase = Duration::from_millis(rng.random_range(0..30_000));
    simulate(async {
        let scene = Scene::new(seed, &small_machines(3), pve, guests.clone());
        scene
            .live(async {
                tokio::time::sleep(BEGIN + phase).await;
                measure(&scene, &guests).await
            })
            .await
    })
}

/// Waits for something, looking every millisecond; says when it was.
async fn when(scene: &Scene, what: &str, done: impl Fn() -> bool) -> Time {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        scene.world.clock.now()
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("{what}: not within {} s", PATIENCE.as_secs()))
}

/// When the pod was marked, the token made, the node Ready and the pod bound.
async fn moments(scene: &Scene) -> [Time; 4] {
    let kube = &scene.world.kube;
    let marked = when(scene, "a pod is marked", || {
        !kube.unschedulable().is_empty()
    })
    .await;
    let token = when(scene, "a token is made", || {
        let secrets = kube.objects("v1", "Secret");
        secrets
            .iter()
            .any(|secret| secret["type"] == "bootstrap.kubernetes.io/token")
    })
    .await;
    let ready = when(scene, "a node is Ready", || {
        kube.objects("v1", "Node").iter().any(|node| {
            let conditions = node["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten();
            conditions
                .filter(|is| is["type"] == "Ready")
                .any(|is| is["status"] == "True")
        })
    })
    .await;
    let bound = when(scene, "the pod is bound", || {
        let pods = kube.objects("v1", "Pod");
        pods.iter().any(|pod| !pod["spec"]["nodeName"].is_null())
    })
    .await;
    [marked, token, ready, bound]
}

async fn measure(scene: &Scene, guests: &GuestSpec) -> Run {
    let kube = &scene.world.kube;
    let calls = scene.world.pve.requests().len();
    let workload = Workload::visit("web", 1, Pods::of("1", "1Gi"), Span::minutes(60));
    let [marked, token, ready, bound] = tokio::select! {
        played = workload.play(kube.router()) => panic!("the workload ended early: {played:?}"),
        told = moments(scene) => told,
    };
    let seen = scene.world.pve.requests().split_off(calls);
    let began = |part: &str, after: Time| -> Time {
        let called = |call: &&Seen| call.changing && call.at >= after && call.path.contains(part);
        let call = seen.iter().find(called);
        call.unwrap_or_else(|| panic!("no call of {part}")).at
    };
    let changes = scene.world.pve.changes();
    let ended = |what: &str| -> Time {
        let change = changes.iter().find(|change| change.what == what);
        change
            .unwrap_or_else(|| panic!("no {what} among {changes:?}"))
            .at
    };
    let join = began("/agent/exec", token);
    let inside = Span(guests.boot.min.0 + guests.cloud_init.min.0);
    let start = ended("start").since(began("/status/start", marked));
    let run = Run {
        total: bound.since(marked),
        clone: ended("clone").since(began("/clone", marked)),
        boot: Span(start.0 + inside.0),
        join: ready.since(join),
        resize: ended("resize").since(began("/resize", marked)),
        calls: seen.iter().filter(|call| call.at <= bound).count(),
    };
    if std::env::args().any(|argument| argument == "--calls") {
        note(format!("{run:?}: {:?}", calls_by_kind(&seen)));
        for call in seen.iter().filter(|call| call.at <= bound) {
            note(format!(
                "{:7} {} {}",
                call.at.since(marked).0,
                call.method,
                call.path
            ));
        }
    }
    run
}
