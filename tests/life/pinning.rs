//! CPUs of hosts for one machine alone: a pool whose machines get some, with their memory beside them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use pve_autoscaler::model::cpus::CpuSet;
use pve_autoscaler::model::drift::Drift;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::{CallCounter, Kill, KillMoment};
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{AdminAct, MachineSpec, PveSpec};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;

use crate::HASTY;
use crate::common::{Scene, simulate};
use crate::hosts::{act, said};

/// Two NUMA nodes of eight cores with two threads: CPU n and n + 16. The first core is reserved.
pub(crate) fn topology() -> String {
    let mut text = "\n[proxmox.topology.pve1]\nnuma = [\"0-7,16-23\", \"8-15,24-31\"]\nreserved = \"0,16\"\ncores = [".to_owned();
    for core in 0..16 {
        let _ = write!(text, "\"{core},{}\", ", core + 16);
    }
    text + "]\n"
}

/// The file of [`world`].
fn config(pool: &str) -> String {
    let config = HASTY
        .replace(
            "cores = 2\nmemory = \"4GiB\"",
            "cores = 8\nmemory = \"8GiB\"",
        )
        .replace(
            "max = 3",
            &format!("max = 6\ncpu_pinning = true\nhosts = [\"pve1\"]\n{pool}"),
        );
    config + &topology()
}

/// A pool of machines with eight CPUs of their own on pve1.
fn world(seed: u64, pool: &str) -> Scene {
    Scene::of(spec(seed, pool))
}

/// What [`world`] is made of.
pub(crate) fn spec(seed: u64, pool: &str) -> WorldSpec {
    let mut pve = PveSpec::default();
    for host in &mut pve.hosts {
        host.numa_nodes = 2;
    }
    WorldSpec {
        seed,
        pve,
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config: config(pool),
    }
}

pub(crate) fn pods(count: u32, minutes: i64) -> Workload {
    Workload::visit(
        "web",
        count,
        WorkloadPods::of("6", "1Gi"),
        Span::minutes(minutes),
    )
}

/// What machines have of a key, by VMID.
fn told(scene: &Scene, key: &str) -> BTreeMap<u32, String> {
    let vms = scene.world.pve.vms().into_iter();
    let machines = vms.filter(|vm| (9100..9121).contains(&vm.vmid));
    let told = machines.map(|vm| (vm.vmid, vm.config.get(key).cloned().unwrap_or_default()));
    told.collect()
}

/// The CPUs of all machines, of which none is in two, and none is reserved.
pub(crate) fn alone(scene: &Scene) -> CpuSet {
    let mut all = CpuSet::read("0,16").expect("the reserved ones");
    for (vmid, text) in told(scene, "affinity") {
        let cpus = CpuSet::read(&text).unwrap_or_else(|| panic!("VM {vmid}: {text:?}"));
        assert_eq!(cpus.len(), 8, "VM {vmid}");
        assert!(cpus.both(&all).is_empty(), "VM {vmid} has {cpus} of {all}");
        all = all.with(&cpus);
    }
    all
}

/// Four pods want a machine each, three have CPUs: one waits with the reason. When a machine goes another one gets its CPUs.
#[test]
fn each_machine_has_cpus_of_its_own_and_who_finds_none_waits() {
    simulate(async {
        let scene = world(5, "hugepages = \"1G\"");
        let mut first = (String::new(), BTreeMap::new());
        let acts = async {
            tokio::time::sleep(Duration::from_mins(5)).await;
            first = (said(&scene), told(&scene, "affinity"));
            alone(&scene);
            let vmid = *first.1.keys().next().expect("a machine");
            act(&scene, &AdminAct::Destroy { vmid });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, pods(4, 120), Duration::from_mins(14)) => {}
            () = acts => {}
        }
        let (said, had) = first;
        let sets: std::collections::BTreeSet<&str> = had.values().map(String::as_str).collect();
        let wanted = ["1-4,17-20", "8-11,24-27", "12-15,28-31"];
        assert_eq!(sets, wanted.into(), "packed");
        let words = "6 CPUs of the host pve1 that no guest has for itself are free, one of this type takes 8";
        assert!(said.contains(words), "{said}");
        alone(&scene);
        let again = told(&scene, "affinity");
        assert_eq!(again.len(), 3, "the destroyed one is replaced: {again:?}");
        assert_ne!(
            again.keys().collect::<Vec<_>>(),
            had.keys().collect::<Vec<_>>()
        );
        for (vmid, node) in told(&scene, "numa0") {
            let host = u8::from(!again[&vmid].starts_with('1') || again[&vmid].starts_with("12"));
            let wanted = format!("cpus=0-7,hostnodes={host},memory=8192,policy=bind");
            assert_eq!(node, wanted, "{}", again[&vmid]);
        }
        assert!(
            told(&scene, "hugepages")
                .values()
                .all(|size| size == "1024")
        );
        let running = scene.world.pve.vms();
        let mut running = running.iter().filter(|vm| again.contains_key(&vm.vmid));
        assert!(running.all(|vm| vm.running));
    });
}

/// The daemon dies at one call after another and is started anew: no CPU is lost, and none given twice.
#[test]
fn cpus_are_freed_and_survive_restarts() {
    for call in [3, 7, 11, 15, 22] {
        simulate(async {
            let scene = world(call, "");
            let counter = CallCounter::new(Some(Kill {
                call,
                when: KillMoment::AfterCarriedOut,
            }));
            let looks = async {
                let mut most = 0;
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let written = told(&scene, "affinity");
                    let written = written.values().filter(|text| !text.is_empty());
                    let sets: Vec<CpuSet> = written.filter_map(|text| CpuSet::read(text)).collect();
                    let all = sets.iter().fold(CpuSet::new(), |all, set| all.with(set));
                    assert_eq!(all.len(), sets.len() * 8, "{sets:?}");
                    most = most.max(sets.len());
                    if most == 3 && sets.is_empty() {
                        std::future::pending::<()>().await;
                    }
                }
            };
            tokio::select! {
                biased;
                () = scene.live_and_die(&counter, pods(3, 4), Duration::from_mins(20)) => {}
                () = looks => {}
            }
            scene.nothing_is_left();
            assert!(scene.machines_made() >= 3, "{call}");
        });
    }
}

/// A person's VM has CPUs for itself and is off: no machine gets them.
#[test]
fn the_cpus_of_somebody_elses_vm_stay_his() {
    simulate(async {
        let scene = world(7, "");
        act(
            &scene,
            &AdminAct::AddMachine(MachineSpec {
                vmid: 300,
                host: "pve1".to_owned(),
                container: false,
                template: false,
                running: false,
                storage: "shared".to_owned(),
                disk: 1 << 30,
                disk_used: 1 << 20,
                cloudinit: false,
                pool: None,
                config: [("affinity", "8-9"), ("onboot", "0")]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            }),
        );
        scene
            .live(None, 0, pods(4, 60), Duration::from_mins(6))
            .await;
        let taken = alone(&scene);
        let sets = told(&scene, "affinity");
        assert_eq!(sets.len(), 3, "{sets:?}");
        let his = CpuSet::read("8-9").expect("a list");
        assert!(taken.both(&his).is_empty(), "{sets:?}");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Machines on one host that have a CPU together, by their configuration.
pub(super) fn shared(scene: &Scene) -> Vec<String> {
    let sets: Vec<(u32, CpuSet)> = told(scene, "affinity")
        .into_iter()
        .filter_map(|(vmid, text)| Some((vmid, CpuSet::read(&text)?)))
        .collect();
    let pairs = sets.iter().enumerate().flat_map(|(at, one)| {
        let later = sets[at + 1..].iter();
        later.map(move |other| (one, other))
    });
    let twice = pairs.filter(|(one, other)| !one.1.both(&other.1).is_empty());
    twice
        .map(|(one, other)| format!("VMs {} and {} have CPUs together", one.0, other.0))
        .collect()
}

/// A VM with CPUs of those that were chosen comes between the clone and the first write.
pub(super) async fn rival() -> Scene {
    let scene = world(9, "");
    let acts = async {
        while scene.machines_made() == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let made = scene.world.pve.vms().into_iter();
        let made: Vec<u32> = made
            .map(|vm| vm.vmid)
            .filter(|vmid| *vmid >= 9100)
            .collect();
        assert_eq!(told(&scene, "affinity")[&made[0]], "", "it has none yet");
        act(
            &scene,
            &AdminAct::AddMachine(MachineSpec {
                vmid: 9120,
                host: "pve1".to_owned(),
                container: false,
                template: false,
                running: true,
                storage: "shared".to_owned(),
                disk: 1 << 30,
                disk_used: 1 << 20,
                cloudinit: false,
                pool: None,
                // One of each set that machines get first.
                config: [("affinity", "1,8,12"), ("onboot", "0")]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            }),
        );
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = scene.live(None, 0, pods(2, 60), Duration::from_mins(6)) => {}
        () = acts => {}
    }
    scene
}

#[test]
fn a_machine_gives_way_to_whoever_has_its_cpus() {
    simulate(async {
        let scene = rival().await;
        assert_eq!(shared(&scene), Vec::<String>::new());
        let sets = told(&scene, "affinity");
        assert_eq!(sets.len(), 3, "two machines and the other VM: {sets:?}");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// The first leader's clone is under way, without a mark that anybody could read, when the second one takes over with a state
/// directory of its own and has machines to make.
#[test]
fn two_leaders_in_a_row_give_no_cpu_twice() {
    simulate(async {
        let scene = world(31, "");
        let other = tempfile::tempdir().expect("a directory");
        let lives = async {
            tokio::select! {
                () = scene.live_on(0, |_| {}) => {}
                () = async {
                    while scene.machines_made() == 0 {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                } => {}
            }
            let ended = scene.world.daemon(other.path(), None, 100).await;
            panic!("it ended: {ended:?}");
        };
        tokio::select! {
            biased;
            () = lives => {}
            () = scene.preside() => {}
            () = scene.play(pods(3, 60)) => {}
            () = tokio::time::sleep(Duration::from_mins(9)) => {}
        }
        assert_eq!(shared(&scene), Vec::<String>::new());
        alone(&scene);
        assert_eq!(told(&scene, "affinity").len(), 3);
    });
}

/// Two NUMA nodes of sixteen CPUs as the file has them for another host: the same numbers, without threads and without a reserve.
fn other_topology(host: &str) -> String {
    let cores: Vec<String> = (0..32).map(|cpu| format!("\"{cpu}\"")).collect();
    let cores = cores.join(", ");
    format!("\n[proxmox.topology.{host}]\nnuma = [\"0-15\", \"16-31\"]\ncores = [{cores}]\n")
}

/// PVE HA or a person moves a machine with CPUs of its own to another host. On a host of which the file knows no CPUs nobody knows
/// what its affinity means; on one that has them in other NUMA nodes its memory is far. It is told, and the machine has drifted; a
/// pool that replaces such machines makes a new one, with CPUs of its own, and the one that left goes.
#[test]
fn a_machine_that_was_moved_away_from_its_cpus_has_drifted() {
    for (host, topologies, why) in [
        (
            "pve2",
            String::new(),
            "the file has no topology of that host",
        ),
        (
            "pve2",
            other_topology("pve2"),
            "its memory is bound to other NUMA nodes there",
        ),
    ] {
        for replaced in [false, true] {
            simulate(async {
                let pool = format!("replace_drifted = {replaced}");
                let mut scene = world(5, &pool);
                let text = config(&pool) + &topologies;
                let settings = pve_autoscaler::config::parse(&text, "file").expect("it is valid");
                scene.world.settings = std::sync::Arc::new(settings);
                let mut early = String::new();
                let acts = async {
                    tokio::time::sleep(Duration::from_mins(5)).await;
                    let host = host.to_owned();
                    act(&scene, &AdminAct::Migrate { vmid: 9100, host });
                    tokio::time::sleep(Duration::from_mins(2)).await;
                    early = warned(&scene);
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    biased;
                    () = scene.live(None, 0, pods(1, 120), Duration::from_mins(25)) => {}
                    () = acts => {}
                }
                // One that is replaced is gone by then.
                assert_eq!(early.contains(why), !replaced, "{why:?} and {early:?}");
                let turn = scene.world.turns.borrow().clone().expect("a turn");
                let machines = turn.snapshot.machines.values();
                let machines: Vec<(String, Vec<Drift>)> = machines
                    .filter_map(|machine| {
                        let drifted = machine.vm.as_ref()?.drifted.clone()?;
                        Some((machine.host.to_string(), drifted))
                    })
                    .collect();
                let expected = if replaced {
                    ("pve1".to_owned(), Vec::new())
                } else {
                    (host.to_owned(), vec![Drift::Cpus])
                };
                assert_eq!(machines, [expected], "{why}");
                assert_eq!(scene.findings(), Vec::<String>::new(), "{why}");
            });
        }
    }
}

/// What the last turn warns of.
fn warned(scene: &Scene) -> String {
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    let warnings = turn.decision.report.warnings.iter();
    let warnings: Vec<String> = warnings.map(ToString::to_string).collect();
    warnings.join("\n")
}
