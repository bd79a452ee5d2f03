//! Days on which a share of PVE's answers comes damaged, whatever damages them: no VM of a colleague's is touched while it
//! lasts, and when it ends all goes its way again.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::FaultPlan;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{AdminAct, GIB, MachineSpec, PveSpec, VmFacts};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;

use crate::HASTY;
use crate::common::{Scene, simulate};
use crate::{networks, pinning};

/// How long answers are damaged.
const DAMAGE: Duration = Duration::from_mins(40);
/// How long the workload lives: on into the time when they are not any more.
const WORKLOAD: Span = Span::minutes(60);
/// From the last damaged answer to the end.
const CALM: Duration = Duration::from_mins(80);
/// How long a pod may wait for its node when no answer is damaged any more.
const PATIENCE: Span = Span::minutes(35);
/// Answers of a thousand that are damaged, by world.
const SHARES: [u16; 3] = [20, 80, 200];
/// VMs of colleagues: in our range, and beside it.
const THEIRS: [u32; 4] = [9100, 9103, 9119, 300];

/// VMs of colleagues, as they were and as they are.
fn theirs(scene: &Scene) -> Vec<VmFacts> {
    let vms = scene.world.pve.vms().into_iter();
    vms.filter(|vm| THEIRS.contains(&vm.vmid)).collect()
}

/// Each of them has what the file has for it besides.
fn add_theirs(scene: &Scene, has: &[(u32, &str, &str)]) {
    for vmid in THEIRS {
        let own = has.iter().filter(|(of, ..)| *of == vmid);
        let own = own.map(|(_, key, value)| ((*key).to_owned(), (*value).to_owned()));
        let name = ("name".to_owned(), format!("shop-{vmid}"));
        let act = AdminAct::AddMachine(MachineSpec {
            vmid,
            host: "pve1".to_owned(),
            container: false,
            template: false,
            running: true,
            storage: "shared".to_owned(),
            disk: 4 * GIB,
            disk_used: GIB,
            cloudinit: false,
            pool: None,
            config: own.chain([name]).collect(),
        });
        scene.world.pve.administer(&act).expect("added");
    }
}

/// What was to change a VM of a colleague's, by its path.
fn touched(scene: &Scene) -> Vec<String> {
    let asked = scene.world.pve.requests().into_iter().filter(|seen| {
        let of = |vmid: &u32| {
            let path = format!("/qemu/{vmid}");
            seen.path.ends_with(&path) || seen.path.contains(&format!("{path}/"))
        };
        seen.changing && THEIRS.iter().any(of)
    });
    let asked = asked.map(|seen| format!("{} {} {}", seen.at, seen.method, seen.path));
    // The broker turned these away: nothing of the daemon's may come so far.
    asked.chain(scene.world.broker.turned_away()).collect()
}

/// Sees that no VM that stays is missing in what the daemon sees.
async fn seen_whole(scene: &Scene, missing: &RefCell<BTreeSet<String>>) {
    let mut turns = scene.world.turns.subscribe();
    let mut seen: BTreeMap<u32, String> = BTreeMap::new();
    while turns.changed().await.is_ok() {
        let Some(turn) = turns.borrow_and_update().clone() else {
            continue;
        };
        let regions = turn.snapshot.regions.values();
        let vms = regions.flat_map(|region| region.vms.keys().copied());
        let vms: BTreeSet<u32> = vms.collect();
        let there = scene.world.pve.vms().into_iter();
        let there: BTreeMap<u32, String> = there.map(|vm| (vm.vmid, vm.uuid)).collect();
        for (vmid, uuid) in &seen {
            if there.get(vmid) == Some(uuid) && !vms.contains(vmid) {
                let found = format!("VM {vmid} is there and is not seen");
                missing.borrow_mut().insert(found);
            }
        }
        let both = there.into_iter().filter(|(vmid, _)| vms.contains(vmid));
        seen.extend(both);
    }
}

/// One world, and what was found wrong with it.
pub(crate) async fn damaged_day(seed: u64, share: u16) -> Vec<String> {
    let scene = Scene::new(seed, HASTY, GuestSpec::default());
    add_theirs(&scene, &[]);
    let workload = Workload::random(seed, WORKLOAD, Span::minutes(1));
    let never = std::future::pending::<()>();
    live_through(&scene, share, workload, never).await
}

/// A world is lived through while answers are damaged, and afterwards, beside somebody who `watches`. What was found wrong.
async fn live_through(
    scene: &Scene,
    share: u16,
    workload: Workload,
    watches: impl Future<Output = ()>,
) -> Vec<String> {
    let before = theirs(scene);
    scene.world.pve_faults.set(FaultPlan {
        damaged: share,
        ..FaultPlan::default()
    });
    let missing = RefCell::default();
    let story = async {
        tokio::time::sleep(DAMAGE).await;
        assert!(scene.world.pve_faults.dealt() > 10, "answers were damaged");
        scene.world.pve_faults.quiet();
        scene.judge().expect_progress(PATIENCE);
        tokio::time::sleep(CALM).await;
    };
    tokio::select! {
        biased;
        ended = scene.world.daemon(scene.state(), None, 0) => {
            panic!("the daemon ended: {}", ended.expect_err("it never ends well"));
        }
        () = scene.preside() => {}
        () = scene.play(workload) => {}
        () = seen_whole(scene, &missing) => {}
        () = watches => {}
        () = story => {}
    }
    let mut findings = scene.findings();
    findings.extend(missing.into_inner());
    findings.extend(scene.judge().at_rest(&BTreeMap::new()));
    findings.extend(touched(scene));
    if theirs(scene) != before {
        findings.push("a VM of a colleague's is not what it was".to_owned());
    }
    if scene.machines_made() == 0 {
        findings.push("no machine was ever made".to_owned());
    }
    findings
}

#[test]
fn damaged_answers_cost_nobody_a_vm_and_pass() {
    std::thread::scope(|scope| {
        for (seed, share) in (40..).zip(SHARES) {
            scope.spawn(move || {
                let findings = simulate(damaged_day(seed, share));
                assert!(findings.is_empty(), "seed {seed}, {share}: {findings:#?}");
            });
        }
    });
}

/// The devices of the mapping on pve1; the last one is a colleague's, by its address.
const CARDS: [&str; 4] = [
    "0000:01:00.0",
    "0000:02:00.0",
    "0000:03:00.0",
    "0000:04:00.0",
];
/// What colleagues' VMs have of what machines get: an address, a device, CPUs.
const TAKEN: [(u32, &str, &str); 4] = [
    (300, "ipconfig0", "ip=192.0.2.51/24,gw=192.0.2.1"),
    (300, "hostpci0", "0000:04:00.0"),
    (9103, "affinity", "8-9"),
    (9119, "ipconfig0", "ip=192.0.2.53/24,gw=192.0.2.1"),
];

/// Machines with an address, CPUs and a device of their own each, and an ISO for cloud-init.
fn scarce_world(seed: u64) -> Scene {
    let config = networks::network("[\"192.0.2.50-192.0.2.59\"]", 3)
        .replace(
            "cores = 2\nmemory = \"4GiB\"",
            "cores = 8\nmemory = \"8GiB\"\npci = [\"gpu\"]\nextended = { \"nvidia.com/gpu\" = 1 }",
        )
        .replace("max = 3", "max = 3\ncpu_pinning = true\nhosts = [\"pve1\"]")
        .replace(
            "[instance_type.small]",
            "[template.debian.cloud_init]\nstorage = \"local\"\n[instance_type.small]",
        );
    let mut pve = PveSpec::default();
    for host in &mut pve.hosts {
        host.numa_nodes = 2;
    }
    let hosts = BTreeMap::from([("pve1".to_owned(), CARDS.map(str::to_owned).into())]);
    pve.mappings.insert("gpu".to_owned(), hosts);
    Scene::of(WorldSpec {
        seed,
        pve,
        kube: KubeSpec::default(),
        guests: GuestSpec {
            device_resource: "nvidia.com/gpu".to_owned(),
            ..GuestSpec::default()
        },
        config: config + &pinning::topology(),
    })
}

/// What two VMs have together now that only one can have.
fn twice(scene: &Scene) -> Vec<String> {
    let mut twice = pinning::shared(scene);
    let (mut addresses, mut devices) = (BTreeMap::new(), 0);
    for vm in scene.world.pve.vms() {
        let value = |key: &str| vm.config.get(key).map(String::as_str).unwrap_or_default();
        let parts = value("ipconfig0").split(',');
        let fixed = parts.filter(|part| part.starts_with("ip") && part.contains('/'));
        for part in fixed {
            if let Some(other) = addresses.insert(part.to_owned(), vm.vmid) {
                twice.push(format!("VMs {other} and {} both have {part}", vm.vmid));
            }
        }
        devices += usize::from(!value("hostpci0").is_empty());
    }
    if devices > CARDS.len() {
        twice.push(format!("{devices} VMs have one of {} devices", CARDS.len()));
    }
    twice
}

/// A day on which machines get what only one can have, while colleagues' VMs have some of it.
async fn scarce_day(seed: u64, share: u16) -> Vec<String> {
    let scene = scarce_world(seed);
    add_theirs(&scene, &TAKEN);
    let found = RefCell::new(BTreeSet::new());
    let watch = async {
        loop {
            found.borrow_mut().extend(twice(&scene));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let pods = WorkloadPods::of("6", "1Gi");
    let workload = Workload::visit("web", 3, pods, WORKLOAD);
    let mut findings = live_through(&scene, share, workload, watch).await;
    findings.extend(found.into_inner());
    findings
}

#[test]
fn damaged_answers_give_nobody_what_another_has() {
    std::thread::scope(|scope| {
        for (seed, share) in (50..).zip(SHARES) {
            scope.spawn(move || {
                let findings = simulate(scarce_day(seed, share));
                assert!(findings.is_empty(), "seed {seed}, {share}: {findings:#?}");
            });
        }
    });
}
