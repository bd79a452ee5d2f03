//! What PVE does not tell of a region, or tells so that nobody can read it: it costs the guest or the host that it is of.

use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::Spoilt;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::pve::{AdminAct, GIB, MachineSpec};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use serde_json::{Value, json};

use crate::common::{Scene, simulate};
use crate::hosts::{act, fill, made, on, region, said};

/// What the newest report warns of.
fn warnings(scene: &Scene) -> String {
    let turn = scene.world.turns.borrow().clone().expect("it took turns");
    turn.decision.report.warnings.join("\n")
}

fn spoilt(id: &str, key: &'static str, value: Value) -> Spoilt {
    Spoilt {
        id: id.to_owned(),
        key,
        value,
    }
}

/// A VM of somebody else's that runs on a host.
fn theirs(vmid: u32, host: &str) -> AdminAct {
    AdminAct::AddMachine(MachineSpec {
        vmid,
        host: host.to_owned(),
        container: false,
        template: false,
        running: true,
        storage: "shared".to_owned(),
        disk: 4 * GIB,
        disk_used: GIB,
        cloudinit: false,
        pool: None,
        config: [("name".to_owned(), format!("shop-{vmid}"))].into(),
    })
}

/// Lives for `time` with pods that each fill a machine, while `story` is told.
async fn live(scene: &Scene, pods: u32, time: Duration, story: impl Future<Output = ()>) {
    let story = async {
        story.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = scene.live(None, 0, fill(pods), time) => {}
        () = story => {}
    }
}

/// The host of a machine burns down and is taken out of the cluster (`pvecm delnode`): PVE has no row of it any more, and its pod
/// waits no longer than for a host that is off.
#[test]
fn a_host_without_any_row_is_off_and_frees_its_pods() {
    simulate(async {
        let scene = Scene::new(5, &region(""), GuestSpec::default());
        let story = async {
            tokio::time::sleep(Duration::from_mins(4)).await;
            let host = made(&scene).into_keys().next().expect("a machine");
            let off = AdminAct::HostOnline {
                host: host.clone(),
                online: false,
            };
            act(&scene, &off);
            act(&scene, &AdminAct::RemoveHost { host });
            tokio::time::sleep(Duration::from_mins(9)).await;
            assert_eq!(scene.machines_made(), 2, "{}", warnings(&scene));
        };
        live(&scene, 1, Duration::from_mins(14), story).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Its host goes offline while a machine boots or joins: its pod does not wait until the machine has taken too long, and another one is
/// made elsewhere.
#[test]
fn a_machine_on_its_way_on_a_host_that_goes_off_frees_its_pods() {
    simulate(async {
        for seconds in [8, 15] {
            let scene = Scene::new(5, &region(""), GuestSpec::default());
            let story = async {
                while made(&scene).is_empty() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                let host = made(&scene).into_keys().next().expect("a machine");
                let nodes = scene.world.kube.objects("v1", "Node").len();
                let off = AdminAct::HostOnline {
                    host,
                    online: false,
                };
                act(&scene, &off);
                tokio::time::sleep(Duration::from_mins(2)).await;
                let told = format!("after {seconds} s, {nodes} nodes: {}", warnings(&scene));
                assert_eq!(scene.machines_made(), 2, "{told}");
            };
            live(&scene, 1, Duration::from_mins(6), story).await;
            assert_eq!(scene.findings(), Vec::<String>::new(), "after {seconds} s");
        }
    });
}

/// Nobody can read how much memory a VM of somebody else's has: its host gets no machine, the others do, and it is said. When
/// it can be read, its host gets one.
#[test]
fn a_guest_that_cannot_be_read_closes_its_host_alone() {
    simulate(async {
        for value in [json!(-1), json!([]), json!(u64::MAX)] {
            let scene = Scene::new(5, &region("max_per_host = 1\n"), GuestSpec::default());
            act(&scene, &theirs(300, "pve2"));
            let faults = &scene.world.pve_faults;
            faults.spoil(vec![spoilt("qemu/300", "maxmem", value.clone())]);
            let story = async {
                tokio::time::sleep(Duration::from_mins(4)).await;
                assert_eq!(made(&scene), on([("pve1", 1), ("pve3", 1)]), "{value}");
                let (told, why) = (warnings(&scene), said(&scene));
                assert!(
                    told.contains("(shop-300) on pve2: PVE's row of it cannot be read"),
                    "{told}"
                );
                assert!(
                    why.contains("nobody knows how much of the host pve2 is free"),
                    "{why}"
                );
                faults.spoil(Vec::new());
                tokio::time::sleep(Duration::from_mins(4)).await;
                assert_eq!(made(&scene).get("pve2"), Some(&1), "{value}");
                assert_eq!(warnings(&scene), "");
            };
            live(&scene, 3, Duration::from_mins(9), story).await;
            assert_eq!(scene.findings(), Vec::<String>::new());
        }
    });
}

/// The same of a host's own row, whatever of it is damaged.
#[test]
fn a_host_that_cannot_be_read_costs_the_others_nothing() {
    simulate(async {
        for (key, value) in [
            ("maxmem", json!(1e300)),
            ("status", Value::Null),
            ("node", json!("")),
        ] {
            let scene = Scene::new(5, &region("max_per_host = 1\n"), GuestSpec::default());
            let faults = &scene.world.pve_faults;
            faults.spoil(vec![spoilt("node/pve2", key, value)]);
            let story = async {
                tokio::time::sleep(Duration::from_mins(4)).await;
                assert_eq!(made(&scene), on([("pve1", 1), ("pve3", 1)]), "{key}");
                let told = warnings(&scene);
                assert!(
                    told.contains("host pve2: nobody knows how much of it is free"),
                    "{told}"
                );
                faults.spoil(Vec::new());
            };
            live(&scene, 3, Duration::from_mins(8), story).await;
            assert_eq!(made(&scene).get("pve2"), Some(&1), "{key}");
            assert_eq!(scene.findings(), Vec::<String>::new());
        }
    });
}

/// A machine of ours whose row cannot be read stays a machine, its pod runs on, and others come and go. It is removed when its
/// row can be read again.
#[test]
fn a_machine_that_cannot_be_read_stays_ours() {
    simulate(async {
        for (key, value) in [
            ("node", Value::Null),
            ("status", json!({})),
            ("vmid", json!("x")),
        ] {
            let scene = Scene::new(5, &region(""), GuestSpec::default());
            let brief = |name: &str, minutes: i64| {
                Workload::visit(
                    name,
                    1,
                    WorkloadPods::of("1500m", "1Gi"),
                    Span::minutes(minutes),
                )
            };
            let story = async {
                tokio::time::sleep(Duration::from_mins(4)).await;
                let ours = scene.world.pve.vms().into_iter();
                let mut ours = ours.filter(|vm| (9100..9121).contains(&vm.vmid));
                let vm = ours.next().expect("a machine");
                let faults = &scene.world.pve_faults;
                faults.spoil(vec![spoilt(
                    &format!("qemu/{}", vm.vmid),
                    key,
                    value.clone(),
                )]);
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(Duration::from_mins(12)) => {}
                    () = scene.play(brief("more", 5)) => {}
                }
                assert_eq!(scene.machines_made(), 2, "the other pod has its machine");
                let there = scene.world.pve.vm(vm.vmid).expect("it is there");
                assert_eq!(there.uuid, vm.uuid);
                let told = warnings(&scene);
                let said = format!("VM {} ({})", vm.vmid, vm.name);
                assert!(
                    told.contains(&said) && told.contains("cannot be read"),
                    "{told}"
                );
                faults.spoil(Vec::new());
            };
            let story = async {
                story.await;
                std::future::pending::<()>().await;
            };
            let time = Duration::from_mins(45);
            tokio::select! {
                biased;
                () = scene.live(None, 0, brief("web", 25), time) => {}
                () = story => {}
            }
            scene.nothing_is_left();
            assert_eq!(scene.findings(), Vec::<String>::new(), "{key}");
        }
    });
}
