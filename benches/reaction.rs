//! From a pod that is marked unschedulable to the first changing call to PVE, on a simulator without
//! latency: how much longer than the batch window it takes.
//!
//! In virtual time, where nothing but waiting takes time; and in real time, where thinking does too.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use common::config::small_machines;
use common::scene::{Scene, roomy, simulate};
use common::{Report, Row, note};
use pve_autoscaler::model::time::{Span, Time};
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::pve::{PveSpec, Timings};
use pve_autoscaler::sim::workload::{Act, Pods, Step, Workload};

/// `scale_up.batch_idle`, the default.
const WINDOW: Span = Span::seconds(1);
/// The daemon leads and has seen everything.
const BEGIN: Duration = Duration::from_secs(45);
/// How long is waited for a call.
const PATIENCE: Duration = Duration::from_secs(30);
/// The target, milliseconds beyond the window.
const BEYOND_MS: i64 = 50;
/// Runs in virtual time, each at another phase of whatever has a period.
const RUNS: u32 = 20;
/// Their phases differ by this; prime, so that no period divides it.
const PHASE: Duration = Duration::from_millis(397);
/// Runs in real time.
const REAL_RUNS: u32 = 5;
/// Between the pods of a burst.
const BETWEEN: Span = Span(150);

fn main() -> ExitCode {
    let mut report =
        Report::new("From unschedulable to the first changing call to PVE, without latency");
    for pods in [1, 20] {
        let all: Vec<Reaction> = (0..RUNS)
            .map(|run| simulate(reaction(PHASE * run, pods)))
            .collect();
        report.add(row("virtual", pods, &all));
    }
    note(format!(
        "now in real time, {REAL_RUNS} times {} s",
        BEGIN.as_secs()
    ));
    let real = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let real = real.expect("a runtime");
    let worlds = tokio::task::LocalSet::new();
    let all: Vec<Reaction> = worlds.block_on(&real, async {
        // Side by side, in worlds of their own, at different times.
        let runs: Vec<_> = (0..REAL_RUNS)
            .map(|run| tokio::task::spawn_local(reaction(PHASE * run * 2, 1)))
            .collect();
        let ended = futures::future::join_all(runs).await;
        ended
            .into_iter()
            .map(|run| run.expect("no panic"))
            .collect()
    });
    report.add(row("real", 1, &all));
    report.finish()
}

/// Times of one run.
struct Reaction {
    /// From the last pod's mark to the first changing call, milliseconds.
    took: i64,
    /// From the first pod's mark to the last one's.
    burst: i64,
}

fn row(clock: &str, pods: u32, runs: &[Reaction]) -> Row {
    let mut beyond: Vec<i64> = runs.iter().map(|run| run.took - WINDOW.0).collect();
    beyond.sort_unstable();
    let worst = *beyond.last().expect("there were runs");
    Row::new("reaction", pods)
        .field("seconds", Span(worst + WINDOW.0).to_std().as_secs_f64())
        .field("clock", clock)
        .field("runs", runs.len())
        .field(
            "burst_ms",
            runs.iter().map(|run| run.burst).max().unwrap_or(0),
        )
        .field("window_ms", WINDOW.0)
        .field("beyond_ms_median", beyond[beyond.len() / 2])
        .field("beyond_ms_worst", worst)
        .at_most("beyond_ms_worst", BEYOND_MS)
}

async fn reaction(phase: Duration, pods: u32) -> Reaction {
    let pve = PveSpec {
        timings: Timings::none(),
        ..roomy()
    };
    let scene = Scene::new(1, &small_machines(20), pve, GuestSpec::default());
    scene
        .live(async {
            tokio::time::sleep(BEGIN + phase).await;
            measure(&scene, pods).await
        })
        .await
}

async fn measure(scene: &Scene, pods: u32) -> Reaction {
    let world = &scene.world;
    let steps = (0..pods).map(|number| Step {
        at: Span(BETWEEN.0 * i64::from(number)),
        act: Act::Deploy {
            name: format!("web-{number}"),
            replicas: 1,
            pods: Pods::of("1", "1Gi"),
        },
    });
    let workload = Workload {
        steps: steps.collect(),
    };
    let (mut first, mut last, mut waiting) = (None, Time(0), 0);
    let marks = async {
        loop {
            let now = world.kube.unschedulable().len();
            if now > waiting {
                waiting = now;
                last = world.clock.now();
                first.get_or_insert(last);
            }
            if waiting == usize::try_from(pods).unwrap_or(0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let story = async {
        let (played, ()) = tokio::join!(workload.play(world.kube.router()), marks);
        played.expect("the workload plays");
        loop {
            let call = world.pve.requests().into_iter().find(|seen| seen.changing);
            if let Some(call) = call {
                return call.at;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let called = tokio::time::timeout(PATIENCE, story).await;
    let called = called.expect("a call came");
    Reaction {
        took: called.since(last).0,
        burst: last.since(first.expect("a pod was marked")).0,
    }
}
