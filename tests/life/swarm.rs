//! Bad days by seed: calls that fail or get lost on both ways, guests that never come up, backups,
//! power cuts and an administrator with no regard for us, and a daemon that crashes in the middle.
//! Nothing may be lost, doubled or touched that is not ours while it lasts; and once all is well
//! again, what is wanted comes to be and what is not wanted goes.
//!
//! `PVE_AUTOSCALER_SWARM=FIRST..LAST` runs these seeds instead of the few that the suite runs;
//! [`crate::record`] says what one of them tells of itself.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::FaultPlan;
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec};
use pve_autoscaler::sim::pve::{AdminAct, GIB, MachineSpec, VmFacts};
use pve_autoscaler::sim::workload::Workload;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::THREADS;
use crate::common::{Scene, simulate};
use crate::record;

/// The seeds that every run of the suite tries.
const SEEDS: Range<u64> = 0..16;
/// How long things go wrong.
const STORM: Duration = Duration::from_mins(45);
/// How long the workload lives: on into the time when nothing goes wrong any more.
const WORKLOAD: Span = Span::minutes(100);
/// From the storm to the end: an unready machine is given up after twenty minutes, a pool that
/// failed is tried again after five at most, and the last machine leaves after its timers.
const CALM: Duration = Duration::from_mins(150);
/// How long a pod may wait, once nothing goes wrong, for a node that a pool would make: the longest
/// back-off, the time a machine takes that was under way when the storm ended, and one that failed.
const PATIENCE: Span = Span::minutes(35);
/// The range of VMIDs in [`CONFIG`].
const VMIDS: Range<u32> = 9100..9121;
/// A task that waits for a lock has ended by then.
const STILL: Span = Span::minutes(3);
/// Storage of machines that somebody else makes.
const STORAGE: &str = "shared";

/// Some removal was cut short in its last part, in some world.
static CUT_SHORT: AtomicBool = AtomicBool::new(false);

const CONFIG: &str = "
version = 1
[kubernetes]
name = \"swarm\"
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
max_backoff = \"5m\"
[scale_down]
unneeded_time = \"2m\"
delay_after_add = \"1m\"
min_node_age = \"0s\"
delay_after_failure = \"1m\"
quarantine = \"2m\"
";

#[test]
fn bad_days_break_nothing_and_leave_nothing() {
    let seeds = std::env::var("PVE_AUTOSCALER_SWARM").map_or(SEEDS, |text| range(&text));
    let seeds: Vec<u64> = seeds.collect();
    let try_part = |part: usize| -> Vec<String> {
        let mine = seeds.iter().skip(part).step_by(THREADS);
        mine.filter_map(|&seed| {
            let findings = simulate(bad_day(seed));
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
    assert!(
        seeds.len() < SEEDS.count() || CUT_SHORT.load(Ordering::Relaxed),
        "no removal was cut short in its last part"
    );
}

/// The configuration, in every other world with more to say of hosts: nothing that keeps a pod waiting once all is well.
fn config(seed: u64) -> String {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x55);
    if rng.random_bool(0.5) {
        return CONFIG.to_owned();
    }
    let strategies = [
        "spread",
        "max-memory",
        "max-cpu",
        "balanced",
        "round-robin",
        "pack",
    ];
    let strategy = strategies[rng.random_range(0..strategies.len())];
    let mut lines = format!("host_strategy = \"{strategy}\"\n");
    for line in [
        "exclude_hosts = [\"pve3\"]\n",
        "max_per_host = 8\n",
        "cpu_overcommit = 2\nhost_cores_reserve = 2\n",
        "memory_overcommit = 0.9\n",
        "min_free_memory = \"4GiB\"\nmin_free_cores = 1\n",
        "ballooning = \"minimum\"\n",
    ] {
        if rng.random_bool(0.3) {
            lines.push_str(line);
        }
    }
    CONFIG.replace("[template.debian]", &format!("{lines}[template.debian]"))
}

fn range(text: &str) -> Range<u64> {
    let (first, last) = text.split_once("..").expect("FIRST..LAST");
    first.parse().expect("a seed")..last.parse().expect("a seed")
}

/// One bad day, and what was found wrong with it.
async fn bad_day(seed: u64) -> Vec<String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let guests = GuestSpec {
        chances: [
            (GuestFault::JoinFails, 5),
            (GuestFault::JoinHangs, 3),
            (GuestFault::AgentSilent, 5),
            (GuestFault::CloudInitDegraded, 5),
            (GuestFault::NeverReady, 3),
            (GuestFault::SlowBoot, 5),
            (GuestFault::IgnoresShutdown, 10),
        ]
        .into(),
        ..GuestSpec::default()
    };
    let scene = Scene::new(seed, &config(seed), guests);
    scene.world.pve_faults.set(FaultPlan::drawn(seed ^ 0x11));
    scene.world.kube_faults.set(FaultPlan::drawn(seed ^ 0x22));
    let workload = Workload::random(seed, WORKLOAD, Span::minutes(1));
    let killer = StdRng::seed_from_u64(seed ^ 0x44);
    let _listening = record::listen(&scene);
    let story = async {
        tokio::join!(storm(&scene, &mut rng), cut_short(&scene, killer));
        scene.judge().expect_progress(PATIENCE);
        tokio::time::sleep(CALM).await;
    };
    tokio::select! {
        biased;
        () = lives(&scene, seed) => {}
        () = scene.preside() => {}
        () = scene.play(workload) => {}
        () = story => {}
    }
    let mut findings = scene.findings();
    findings.extend(scene.judge().at_rest(&BTreeMap::new()));
    if !findings.is_empty() {
        findings.extend(record::of(&scene));
    }
    findings
}

/// Lives of the daemon, each ended by a crash while the storm lasts.
async fn lives(scene: &Scene, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x33);
    let began = tokio::time::Instant::now();
    for start in 0.. {
        let left = STORM.saturating_sub(began.elapsed());
        let life = Duration::from_secs(rng.random_range(20..900));
        let life = if left.is_zero() { STORM + CALM } else { life };
        let daemon = scene.world.daemon(scene.state(), None, start);
        if let Ok(Err(error)) = tokio::time::timeout(life, daemon).await {
            // systemd starts it again.
            eprintln!("seed {seed}: the daemon ended: {error}");
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

/// Everything that goes wrong beside the calls; in the end all of it is well again.
async fn storm(scene: &Scene, rng: &mut StdRng) {
    let ends = tokio::time::Instant::now() + STORM;
    let mut undo: Vec<(tokio::time::Instant, AdminAct)> = Vec::new();
    while tokio::time::Instant::now() < ends {
        tokio::time::sleep(Duration::from_secs(rng.random_range(5..150))).await;
        let now = tokio::time::Instant::now();
        let (due, rest) = undo.into_iter().partition(|(at, _)| *at <= now);
        undo = rest;
        for (_, act) in due {
            make_well(scene, &act);
        }
        let Some((act, after)) = misfortune(scene, rng) else {
            continue;
        };
        // What is not there cannot suffer.
        if scene.world.pve.administer(&act).is_ok()
            && let Some((seconds, act)) = after
        {
            undo.push((now + Duration::from_secs(seconds), act));
        }
    }
    for (_, act) in undo {
        make_well(scene, &act);
    }
    scene.world.pve_faults.quiet();
    scene.world.kube_faults.quiet();
}

/// Makes well again what went wrong: of a VM only the lock that a backup took, and not another's.
fn make_well(scene: &Scene, act: &AdminAct) {
    if let AdminAct::Lock { vmid, lock: None } = act {
        let vm = scene.world.pve.vm(*vmid);
        if vm.is_none_or(|vm| vm.lock.as_deref() != Some("backup")) {
            return;
        }
    }
    let _ = scene.world.pve.administer(act);
}

/// Kills workers that destroy VMs, wherever they are: what PVE leaves then must go by itself.
async fn cut_short(scene: &Scene, mut rng: StdRng) {
    let ends = tokio::time::Instant::now() + STORM;
    while tokio::time::Instant::now() < ends {
        tokio::time::sleep(Duration::from_millis(rng.random_range(50..2_000))).await;
        let tasks = scene.world.pve.running_tasks();
        let removal = tasks.iter().find(|upid| upid.contains(":qmdestroy:"));
        if let Some(upid) = removal
            && rng.random_bool(0.5)
        {
            let _ = scene
                .world
                .pve
                .administer(&AdminAct::KillTask { upid: upid.clone() });
            let vms = scene.world.pve.vms();
            if vms.iter().any(|vm| vm.lock.as_deref() == Some("destroyed")) {
                CUT_SHORT.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// One act, and what makes it well again after so many seconds.
fn misfortune(scene: &Scene, rng: &mut StdRng) -> Option<(AdminAct, Option<(u64, AdminAct)>)> {
    let machines: Vec<VmFacts> = scene.world.pve.vms();
    let machines: Vec<&VmFacts> = machines
        .iter()
        .filter(|vm| VMIDS.contains(&vm.vmid))
        .collect();
    let machine = machines.choose(rng).map(|vm| vm.vmid);
    let host = ["pve2", "pve3"][rng.random_range(0..2)].to_owned();
    let seconds = rng.random_range(10..400);
    let lock = |lock: Option<&str>, vmid| AdminAct::Lock {
        vmid,
        lock: lock.map(str::to_owned),
    };
    let act = match rng.random_range(0..14) {
        0 => {
            let vmid = machine?;
            let after = (seconds, lock(None, vmid));
            (lock(Some("backup"), vmid), Some(after))
        }
        1 => {
            let vmid = machine?;
            (
                AdminAct::HoldLockFile {
                    vmid,
                    seconds: seconds % 90,
                },
                None,
            )
        }
        2 => {
            let down = AdminAct::HostOnline {
                host: host.clone(),
                online: false,
            };
            (
                down,
                Some((seconds, AdminAct::HostOnline { host, online: true })),
            )
        }
        3 => {
            let on = AdminAct::Maintenance {
                host: host.clone(),
                on: true,
            };
            (
                on,
                Some((seconds, AdminAct::Maintenance { host, on: false })),
            )
        }
        4 => (
            AdminAct::Quorum(false),
            Some((seconds, AdminAct::Quorum(true))),
        ),
        5 => {
            let tasks = scene.world.pve.running_tasks();
            let upid = tasks.choose(rng)?.clone();
            (AdminAct::KillTask { upid }, None)
        }
        6 => (AdminAct::PowerOff { vmid: machine? }, None),
        7 => (AdminAct::Destroy { vmid: machine? }, None),
        8 => (
            AdminAct::Migrate {
                vmid: machine?,
                host,
            },
            None,
        ),
        9 => (stranger(scene, rng.random_range(VMIDS))?, None),
        10 => {
            let fill = |left| AdminAct::Fill {
                storage: STORAGE.to_owned(),
                host: host.clone(),
                left,
            };
            (fill(0), Some((seconds, fill(u64::MAX))))
        }
        11 => {
            let active = |active| AdminAct::StorageActive {
                storage: STORAGE.to_owned(),
                active,
            };
            (active(false), Some((seconds, active(true))))
        }
        12 => {
            let load = |cpu_permille, gib| AdminAct::Load {
                host: host.clone(),
                cpu_permille,
                memory: gib * GIB,
            };
            (load(990, 120), Some((seconds, load(20, 2))))
        }
        _ => {
            let on = AdminAct::Start { vmid: machine? };
            (on, None)
        }
    };
    Some(act)
}

/// A VM of somebody else's that takes one of our VMIDs, but not one of a VM that was changed a moment
/// ago: PVE may have taken a call for that one that waits for its lock, and does to the new one what
/// was meant for the old.
fn stranger(scene: &Scene, vmid: u32) -> Option<AdminAct> {
    let now = scene.world.clock.now();
    let changes = scene.world.pve.changes();
    let mut late = changes.iter().filter(|change| now.since(change.at) < STILL);
    let free = !late.any(|change| change.vmid == vmid);
    free.then(|| foreign(vmid))
}

fn foreign(vmid: u32) -> AdminAct {
    AdminAct::AddMachine(MachineSpec {
        vmid,
        host: "pve1".to_owned(),
        container: false,
        template: false,
        running: true,
        storage: STORAGE.to_owned(),
        disk: 4 * GIB,
        disk_used: GIB,
        cloudinit: false,
        pool: None,
        config: [("name".to_owned(), format!("stranger-{vmid}"))].into(),
    })
}
