//! Days on which a share of PVE's answers comes damaged, whatever damages them: no VM of a colleague's is touched while it
//! lasts, and when it ends all goes its way again.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::FaultPlan;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::pve::{AdminAct, GIB, MachineSpec, VmFacts};
use pve_autoscaler::sim::workload::Workload;

use crate::HASTY;
use crate::common::{Scene, simulate};

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

fn add_theirs(scene: &Scene) {
    for vmid in THEIRS {
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
            config: [("name".to_owned(), format!("shop-{vmid}"))].into(),
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
    add_theirs(&scene);
    let before = theirs(&scene);
    scene.world.pve_faults.set(FaultPlan {
        damaged: share,
        ..FaultPlan::default()
    });
    let missing = RefCell::default();
    let workload = Workload::random(seed, WORKLOAD, Span::minutes(1));
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
        () = seen_whole(&scene, &missing) => {}
        () = story => {}
    }
    let mut findings = scene.findings();
    findings.extend(missing.into_inner());
    findings.extend(scene.judge().at_rest(&BTreeMap::new()));
    findings.extend(touched(&scene));
    if theirs(&scene) != before {
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
