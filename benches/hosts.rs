//! Fifty machines asked for at once, over five hosts with storages of their own, two clones at a time on each: how much longer
//! it takes than the simulated hosts themselves need, and whether a lock of PVE's comes in the way.
//!
//! The least time that the hosts need is measured on the same simulator: a driver does only what must be done (clone,
//! configuration, size, start), two clones of each storage at a time, and hears of a task's end in the millisecond it ends.
//! The daemon is given the same hosts, fifty pods that each fill a machine, and its usual ways.

mod common;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use common::scene::{Scene, simulate};
use common::{Report, Row, note};
use pve_autoscaler::model::time::{Span, Time};
use pve_autoscaler::pve::transport::memory::Memory;
use pve_autoscaler::pve::{Client, CloneVm, ConfigUpdate, Upid};
use pve_autoscaler::sim::guests::{GuestSpec, Range};
use pve_autoscaler::sim::pve::{GIB, HostSpec, LOCAL_TEMPLATE, MachineSpec, PveSpec, Timings};
use pve_autoscaler::sim::workload::{Pods, Workload};
use tokio::sync::Semaphore;

const HOSTS: u32 = 5;
const MACHINES: u32 = 50;
const CLONES: usize = 2;
const FIRST_VMID: u32 = 9100;
/// The target.
const RATIO: f64 = 1.1;
/// The daemon leads and has seen everything.
const BEGIN: Duration = Duration::from_secs(45);
/// Nothing takes longer than this.
const PATIENCE: Duration = Duration::from_mins(20);

fn main() -> ExitCode {
    let mut report = Report::new(
        "50 machines at once, five hosts with storages of their own, two clones on each: against what the hosts need (virtual time, seconds)",
    );
    for full in [false, true] {
        let least = simulate(driven(full));
        let took = simulate(lived(full));
        let seconds = |span: Span| span.to_std().as_secs_f64();
        let ratio = |took: Span, least: Span| seconds(took) / seconds(least);
        let row = Row::new("hosts", MACHINES)
            .field("seconds", seconds(took.ready))
            .field("clone", if full { "full" } else { "linked" })
            .field("least", seconds(least.ready))
            .field("ratio", ratio(took.ready, least.ready))
            .field("clones", seconds(took.cloned))
            .field("clones_least", seconds(least.cloned))
            .field("clones_ratio", ratio(took.cloned, least.cloned))
            .field("lock_errors", took.lock_errors)
            .field("failures", took.failures)
            .at_most("ratio", RATIO)
            .at_most("clones_ratio", RATIO)
            .exactly("lock_errors", 0)
            .exactly("failures", 0);
        report.add(row);
    }
    report.finish()
}

/// How long making all fifty machines took, and what went wrong meanwhile.
#[derive(Debug)]
struct Took {
    /// Until the last clone was done.
    cloned: Span,
    /// Until the last node was in service.
    ready: Span,
    /// Tasks of PVE that ended with the words of a lock.
    lock_errors: usize,
    /// Machines that failed, for whatever reason.
    failures: usize,
}

/// One span for what is drawn.
fn fixed(millis: i64) -> Range {
    let span = Span(millis);
    Range {
        min: span,
        max: span,
    }
}

/// Guests of which each takes as long as the others.
fn guests() -> GuestSpec {
    GuestSpec {
        boot: fixed(12_000),
        cloud_init: fixed(5_000),
        preflight: fixed(2_500),
        ready: fixed(6_000),
        ..GuestSpec::default()
    }
}

/// Boot, cloud-init, pre-flight checks and the time to Ready.
const INSIDE: Span = Span(12_000 + 5_000 + 2_500 + 6_000);

/// Five hosts, each with a copy of the template on its own storage; all takes what it takes on the mean.
fn spec() -> PveSpec {
    let usual = PveSpec::default();
    let mut template: Vec<MachineSpec> = usual.machines.clone();
    template.retain(|machine| machine.vmid == LOCAL_TEMPLATE);
    let template = template.pop().expect("the local template");
    let name = |number: u32| format!("pve{number}");
    let host = |number: u32| HostSpec {
        name: name(number),
        cpus: 128,
        memory: 512 * GIB,
        address: format!("192.0.2.{}", 10 + number),
        ..usual.hosts[0].clone()
    };
    let copy = |number: u32| MachineSpec {
        vmid: 8000 + number,
        host: name(number),
        ..template.clone()
    };
    let mean = |range: [u64; 2]| [u64::midpoint(range[0], range[1]); 2];
    let drawn = Timings::default();
    let timings = Timings {
        read: mean(drawn.read),
        change: mean(drawn.change),
        fork: mean(drawn.fork),
        allocate_local: mean(drawn.allocate_local),
        copy_gib: mean(drawn.copy_gib),
        clone: mean(drawn.clone),
        resize: mean(drawn.resize),
        start: mean(drawn.start),
        agent: mean(drawn.agent),
        ..drawn
    };
    PveSpec {
        hosts: (1..=HOSTS).map(host).collect(),
        machines: (1..=HOSTS).map(copy).collect(),
        timings,
        ..usual
    }
}

fn config(full: bool) -> String {
    let clone = if full {
        "clone = \"full\"\nstorage = \"local-lvm\""
    } else {
        ""
    };
    format!(
        "version = 1
[kubernetes]
name = \"bench\"
[proxmox]
vmids = \"{FIRST_VMID}-9299\"
max_clones_per_storage = {CLONES}
[template.debian]
vm_name = \"debian-13-k8s-local\"
{clone}
[instance_type.small]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
[pool.general]
template = \"debian\"
instance_types = [\"small\"]
max = {MACHINES}
[scale_up]
max_in_flight = {MACHINES}
"
    )
}

/// The least time in which the simulated hosts make all machines: a driver does what must be done and nothing else.
async fn driven(full: bool) -> Took {
    let scene = Scene::new(1, &config(full), spec(), guests());
    let pve = &scene.world.pve;
    let client = Client::new(Arc::new(Memory::new(pve.router_as("root@pam"))));
    let turns: Vec<Semaphore> = (0..HOSTS).map(|_| Semaphore::new(CLONES)).collect();
    let began = scene.world.clock.now();
    let machine = |number: u32| {
        let (turns, client, scene) = (&turns, &client, &scene);
        async move {
            let at = number % HOSTS;
            let (host, vmid) = (format!("pve{}", at + 1), FIRST_VMID + number);
            let turn = turns[at as usize].acquire().await.expect("never closed");
            let clone = CloneVm {
                newid: vmid,
                name: format!("m{number}"),
                description: String::new(),
                full: full.then(|| Some("local-lvm".to_owned())),
                target: None,
                pool: None,
            };
            let task = client.clone_vm(&host, 8001 + at, &clone).await;
            ended(scene, &task.expect("a clone")).await;
            drop(turn);
            let cloned = scene.world.clock.now();
            let update = ConfigUpdate {
                set: [("cores", "2"), ("memory", "4096")]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
                ..ConfigUpdate::default()
            };
            let written = client.update_config(&host, vmid, &update).await;
            written.expect("a configuration");
            let size = 20 << 30;
            let grown = client.resize(&host, vmid, "scsi0", size).await;
            if let Some(task) = grown.expect("a size") {
                ended(scene, &task).await;
            }
            let started = client.start(&host, vmid).await.expect("a start");
            ended(scene, &started).await;
            (cloned, scene.world.clock.now())
        }
    };
    let all = futures::future::join_all((0..MACHINES).map(machine)).await;
    let last = |of: fn(&(Time, Time)) -> Time| all.iter().map(of).max().expect("machines");
    Took {
        cloned: last(|times| times.0).since(began),
        ready: Span(last(|times| times.1).since(began).0 + INSIDE.0),
        lock_errors: 0,
        failures: 0,
    }
}

/// Waits until a task has ended, to the millisecond.
async fn ended(scene: &Scene, task: &Upid) {
    let runs = || {
        let running = scene.world.pve.running_tasks();
        running.iter().any(|running| running == task.as_str())
    };
    while runs() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The time in which the daemon makes all machines, from its first call to PVE that changes something.
async fn lived(full: bool) -> Took {
    let scene = Scene::new(1, &config(full), spec(), guests());
    scene
        .live(async {
            tokio::time::sleep(BEGIN).await;
            let pods = Pods::of("1500m", "2Gi");
            let workload = Workload::visit("web", MACHINES, pods, Span::minutes(60));
            tokio::select! {
                played = workload.play(scene.world.kube.router()) => panic!("the workload ended early: {played:?}"),
                took = watch(&scene) => took,
            }
        })
        .await
}

async fn watch(scene: &Scene) -> Took {
    let pve = &scene.world.pve;
    let mut failures = std::collections::BTreeSet::new();
    let waiting = async {
        while scene.nodes_in_service() < MACHINES as usize {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if let Some(turn) = scene.world.turns.borrow().as_deref() {
                for (name, machine) in &turn.snapshot.machines {
                    if let Some(failure) = &machine.failure {
                        failures.insert(format!("{name}: {}", failure.message));
                    }
                }
            }
        }
        scene.world.clock.now()
    };
    let ready = tokio::time::timeout(PATIENCE, waiting).await;
    let ready = ready.expect("all machines are in service in time");
    for failure in &failures {
        note(failure);
    }
    let changes = pve.changes();
    let clones = changes.iter().filter(|change| change.what == "clone");
    let cloned = clones.map(|change| change.at).max().expect("clones");
    let requests = pve.requests();
    let mut asked = requests.iter().filter(|seen| seen.path.ends_with("/clone"));
    let began = asked.next().expect("a clone was asked for").at;
    let words = pve.task_endings();
    let lock_errors = words.iter().filter(|words| words.contains("lock")).count();
    Took {
        cloned: cloned.since(began),
        ready: ready.since(began),
        lock_errors,
        failures: failures.len(),
    }
}
