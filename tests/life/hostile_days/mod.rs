//! Hostile days by seed: persons with kubectl and with PVE's own tools, workloads that are hard to move, spoilt state,
//! wrong clocks and a second installation, while calls on both wires fail, get lost or are carried out late.
//!
//! Each seed draws what happens, when and to whom. Nothing may be lost, doubled or touched that is not ours while it
//! lasts. Then persons put right what only persons can, and what is wanted comes to be and what is not wanted goes.
//!
//! `PVE_AUTOSCALER_HOSTILE=FIRST..LAST` runs these seeds instead of the few that the suite runs.

mod belongings;
mod kubernetes;
mod plan;
mod proxmox;
mod remedy;
mod stage;
mod state;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use pve_autoscaler::config::settings::Settings;
use pve_autoscaler::model::disruption::Rollout;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::FaultPlan;
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::THREADS;
use crate::common::{Scene, simulate};
use crate::record;
use plan::{Act, Day, Planned};
use stage::Stage;

/// The seeds that every run of the suite tries.
const SEEDS: Range<u64> = 0..6;
/// How long things go wrong.
const STORM: Duration = Duration::from_mins(30);
/// How long the workload lives: on into the time when nothing goes wrong any more.
const WORKLOAD: Span = Span::minutes(58);
/// From the storm to the end. The workload is gone after the first third of it; then the last machines go by their
/// timers, one that is not Ready after ten minutes.
const CALM: Duration = Duration::from_mins(80);
/// From the end of the storm to a person's second look at what the daemon says.
const READ: Duration = Duration::from_mins(10);
/// How long a pod may wait, once nothing goes wrong, for a node that a pool would make: the longest back-off, the
/// time a machine takes that was under way when the storm ended, and one that failed.
const PATIENCE: Span = Span::minutes(25);
/// In the end nothing is changed any more for so long.
const REST: Span = Span::minutes(15);
/// Between two looks for somebody whom an act can happen to: an empty node is marked for a second before it goes.
const LOOK: Duration = Duration::from_millis(250);
/// The range of VMIDs in [`CONFIG`].
const VMIDS: Range<u32> = 9100..9121;

const CONFIG: &str = "
version = 1
[kubernetes]
name = \"hostile\"
[proxmox]
vmids = \"9100-9120\"
[template.debian]
vmid = 9000
[template.local]
vmid = 9001
[instance_type.small]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
[instance_type.large]
cores = 8
memory = \"16GiB\"
disk = \"20GiB\"
[pool.general]
template = \"debian\"
instance_types = [\"small\", \"large\"]
min = 0
max = 5
[pool.other]
template = \"local\"
instance_types = [\"small\"]
min = 0
max = 3
[scale_up]
initial_backoff = \"30s\"
max_backoff = \"4m\"
max_node_provision_time = \"8m\"
[scale_down]
unneeded_time = \"90s\"
unready_time = \"10m\"
delay_after_add = \"1m\"
min_node_age = \"0s\"
delay_after_failure = \"1m\"
quarantine = \"2m\"
";

/// Acts that found somebody to happen to, in some world of this run.
static DONE: Mutex<BTreeSet<Act>> = Mutex::new(BTreeSet::new());

#[test]
fn hostile_days_break_nothing_and_leave_nothing() {
    let asked = std::env::var("PVE_AUTOSCALER_HOSTILE");
    let seeds: Vec<u64> = asked.as_deref().map_or(SEEDS, range).collect();
    let try_part = |part: usize| -> Vec<String> {
        let mine = seeds.iter().skip(part).step_by(THREADS);
        mine.filter_map(|&seed| {
            let findings = simulate(hostile_day(seed, |_| {}));
            (!findings.is_empty()).then(|| format!("seed {seed}: {findings:#?}"))
        })
        .collect()
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|part| scope.spawn(move || try_part(part)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if asked.is_err() {
        let done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
        // It needs a removal that takes its time: in some of a hundred days; `tests/life/rescue.rs` tells it by itself.
        let rare = |act: &Act| *act == Act::Kubernetes(kubernetes::Act::Rescue);
        let missing: Vec<Act> = Act::all()
            .filter(|act| !done.contains(act) && !rare(act))
            .collect();
        assert!(missing.is_empty(), "never happened to anybody: {missing:?}");
    }
}

fn range(text: &str) -> Range<u64> {
    let (first, last) = text.split_once("..").expect("FIRST..LAST");
    first.parse().expect("a seed")..last.parse().expect("a seed")
}

/// By the plans alone, without any world: nothing that could be drawn is drawn by nobody.
#[test]
fn every_act_and_every_belonging_is_drawn_by_some_seed() {
    let days: Vec<Day> = SEEDS.map(Day::drawn).collect();
    let acts: BTreeSet<Act> = days
        .iter()
        .flat_map(|day| day.acts.iter().map(|planned| planned.act))
        .collect();
    let missing: Vec<Act> = Act::all().filter(|act| !acts.contains(act)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for belonging in belongings::ALL {
        let with = days
            .iter()
            .filter(|day| day.belongings.contains(&belonging));
        let with = with.count();
        assert!(
            (1..days.len()).contains(&with),
            "{belonging:?} in {with} of {} days",
            days.len()
        );
    }
}

#[test]
fn a_hostile_day_replays_to_the_byte() {
    let trace = || {
        let mut trace = Vec::new();
        simulate(hostile_day(1, |scene| trace = scene.trace()));
        trace
    };
    let (first, second) = (trace(), trace());
    assert!(
        first.len() > 1_000,
        "the trace is too short to say anything"
    );
    assert_eq!(first, second);
}

/// One hostile day, and what was found wrong with it. `look` has the world in its end.
async fn hostile_day(seed: u64, look: impl FnOnce(&Scene)) -> Vec<String> {
    let day = Day::drawn(seed);
    let guests = GuestSpec {
        chances: [
            (GuestFault::JoinFails, 4),
            (GuestFault::AgentSilent, 3),
            (GuestFault::NeverReady, 2),
            (GuestFault::SlowBoot, 4),
            (GuestFault::IgnoresShutdown, 8),
        ]
        .into(),
        ..GuestSpec::default()
    };
    let mut scene = Scene::new(seed, CONFIG, guests);
    if seed % 3 == 2 {
        roll_often(&mut scene);
    }
    let scene = scene;
    let _listening = record::listen(&scene);
    let stage = Stage::new(&scene);
    belongings::stand(&scene, &day);
    for (faults, of) in [
        (&scene.world.pve_faults, 0x11),
        (&scene.world.kube_faults, 0x22),
    ] {
        faults.set(wire(seed ^ of));
    }
    let story = async {
        join_all(day.acts.iter().map(|planned| happens(&stage, planned))).await;
        tokio::time::sleep_until(stage.began + STORM).await;
        scene.world.pve_faults.quiet();
        scene.world.kube_faults.quiet();
        remedy::put_right(&stage).await;
        scene.judge().expect_progress(PATIENCE);
        tokio::time::sleep(READ).await;
        // What began in the storm came to an end, and the daemon has named what it left.
        remedy::put_right(&stage).await;
        tokio::time::sleep_until(stage.began + STORM + CALM).await;
    };
    tokio::select! {
        biased;
        () = stage.lives(seed) => {}
        () = scene.preside() => {}
        () = stage.watch_leaders() => {}
        () = stage.watch_unread() => {}
        () = remedy::bury(&stage) => {}
        () = scene.play(belongings::workload(seed, &day)) => {}
        () = story => {}
    }
    let now = scene.world.clock.now();
    let mut findings = scene.findings();
    findings.extend(scene.left());
    findings.extend(scene.judge().unrest(now, REST));
    if !findings.is_empty() {
        findings.extend(stage.diary());
        findings.extend(record::of(&scene));
    }
    look(&scene);
    findings
}

/// Nodes are outdated as soon as they are a quarter of an hour old; the file allows an hour at least.
fn roll_often(scene: &mut Scene) {
    let mut settings = Settings::clone(&scene.world.settings);
    for pool in settings.policy.pools.values_mut() {
        pool.rollout = Some(Rollout {
            drifted: true,
            expire_after: Some(Span::minutes(15)),
            max_parallel: 1,
        });
    }
    scene.world.settings = Arc::new(settings);
}

/// What goes wrong on a wire: sometimes all kinds of faults, always calls that are carried out late.
fn wire(seed: u64) -> FaultPlan {
    let mut rng = StdRng::seed_from_u64(seed);
    let plan = if rng.random_bool(0.5) {
        FaultPlan::drawn(seed)
    } else {
        FaultPlan::default()
    };
    FaultPlan {
        late: rng.random_range(1..15),
        late_ms: [60_000, 180_000],
        cut_ms: 240_000,
        ..plan
    }
}

/// Does one act, as soon as there is somebody whom it can happen to, and undoes it in time.
async fn happens(stage: &Stage<'_>, planned: &Planned) {
    let ends = stage.began + STORM;
    tokio::time::sleep_until(stage.began + planned.at).await;
    let mut rng = StdRng::seed_from_u64(planned.luck);
    let remedy = loop {
        if let Some(remedy) = planned.act.perform(stage, &mut rng).await {
            break remedy;
        }
        if tokio::time::Instant::now() > ends {
            return;
        }
        tokio::time::sleep(LOOK).await;
    };
    DONE.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(planned.act);
    stage.note(format!("{:?}: to be undone: {remedy:?}", planned.act));
    let undone = tokio::time::Instant::now() + planned.lasts;
    tokio::time::sleep_until(undone.min(ends)).await;
    remedy.apply(stage).await;
    stage.note(format!("{:?}: undone", planned.act));
}
