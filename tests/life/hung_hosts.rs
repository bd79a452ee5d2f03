//! Hosts that hang: PVE lists them as online, and calls to them never end. They hold up nobody but themselves.

use std::cell::RefCell;
use std::time::Duration;

use pve_autoscaler::model::action::Kind;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::Aim;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;
use tokio::time::Instant;

use crate::common::{Scene, simulate};
use crate::hosts::{made, region, said};
use crate::joining::node;

/// Calls below these are never answered.
const ONE: &[&str] = &["/api2/json/nodes/pve2/"];
const TWO: &[&str] = &["/api2/json/nodes/pve2/", "/api2/json/nodes/pve3/"];
/// A pod has its machine planned within this time.
const SOON: Duration = Duration::from_secs(20);

/// Four hosts; the template is on the first.
fn four_hosts(lines: &str) -> Scene {
    let mut pve = PveSpec::default();
    let mut fourth = pve.hosts[2].clone();
    (fourth.name, fourth.address) = ("pve4".to_owned(), "192.0.2.14".to_owned());
    pve.hosts.push(fourth);
    Scene::of(WorldSpec {
        seed: 5,
        pve,
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config: region(lines),
    })
}

/// Pods that each fill a machine, from now on.
async fn deploy(scene: &Scene, name: &str, count: u32, minutes: i64) {
    let pods = WorkloadPods::of("1500m", "1Gi");
    let workload = Workload::visit(name, count, pods, Span::minutes(minutes));
    let told = workload.play(scene.world.kube.router()).await;
    told.expect("the workload plays");
    std::future::pending::<()>().await;
}

/// Actions of plans: when, on which host, and whether it makes a machine.
type Planned = RefCell<Vec<(Instant, String, bool)>>;

/// Writes down what is planned.
async fn watch(scene: &Scene, planned: &Planned) {
    let mut turns = scene.world.turns.subscribe();
    while turns.changed().await.is_ok() {
        let Some(turn) = turns.borrow_and_update().clone() else {
            continue;
        };
        let actions = turn.decision.plan.iter().map(|action| {
            let makes = matches!(action.kind, Kind::Create(_));
            (Instant::now(), action.target.host.to_string(), makes)
        });
        planned.borrow_mut().extend(actions);
    }
    std::future::pending::<()>().await;
}

/// The hosts of the machines that were planned since, and how long the last of so many took.
fn planned_since(planned: &Planned, since: Instant, count: usize) -> (Vec<String>, Duration) {
    let planned = planned.borrow();
    let later = planned
        .iter()
        .filter(|(at, _, makes)| *makes && *at >= since);
    let later: Vec<_> = later.take(count).collect();
    let last = later.last().map_or(Duration::MAX, |(at, ..)| *at - since);
    let hosts = later.iter().map(|(_, host, _)| host.clone());
    (hosts.collect(), last)
}

/// One host and two of four hang from before the start on: a pod that waits at the start and one that comes later have their machines planned
/// on hosts that answer, soon, and it is told why the others get none. When they answer again they are used again.
#[test]
fn hosts_that_hang_hold_up_no_pod() {
    for hung in [ONE, TWO] {
        simulate(async {
            let scene = four_hosts("max_per_host = 1\n");
            let faults = &scene.world.pve_faults;
            faults.aim(Some(Aim::Hang(hung)));
            let planned = Planned::default();
            let begun = Instant::now();
            let story = async {
                tokio::time::sleep(Duration::from_secs(40)).await;
                let (hosts, took) = planned_since(&planned, begun, 1);
                assert!(took <= SOON, "{took:?} {hosts:?}");
                tokio::time::sleep(Duration::from_mins(3)).await;
                let came = Instant::now();
                let later = async {
                    tokio::time::sleep(Duration::from_secs(40)).await;
                    let (hosts, took) = planned_since(&planned, came, 1);
                    assert!(took <= SOON, "{took:?} {hosts:?}");
                };
                tokio::select! {
                    biased;
                    () = deploy(&scene, "later", 1, 120) => {}
                    () = later => {}
                }
                let used = made(&scene);
                let silent = |host: &str| hung.iter().any(|path| path.contains(host));
                assert!(used.keys().all(|host| !silent(host)), "{used:?}");
                let turn = scene.world.turns.borrow().clone().expect("a turn");
                for (host, state) in &turn.decision.report.hosts["default"] {
                    let told = state.notes.join("; ");
                    assert_eq!(told.contains("does not answer"), silent(host), "{told}");
                }
                // More than the healthy hosts hold: who waits is told so.
                let more = async {
                    tokio::time::sleep(Duration::from_mins(2)).await;
                    let why = said(&scene);
                    assert!(why.contains("does not answer"), "{why}");
                    faults.aim(None);
                    tokio::time::sleep(Duration::from_mins(4)).await;
                    let used = made(&scene);
                    assert!(used.contains_key("pve2"), "{used:?}");
                };
                tokio::select! {
                    biased;
                    () = deploy(&scene, "more", 3, 120) => {}
                    () = more => {}
                }
            };
            tokio::select! {
                biased;
                ended = scene.world.daemon(scene.state(), None, 0) => {
                    panic!("the daemon ended: {}", ended.expect_err("it never ends well"));
                }
                () = scene.preside() => {}
                () = watch(&scene, &planned) => {}
                () = deploy(&scene, "first", 1, 120) => {}
                () = story => {}
            }
            assert_eq!(scene.findings(), Vec::<String>::new());
        });
    }
}

/// A host hangs on which a machine of ours is. Its node is not needed any more, and stays as it is until the host answers: then it goes.
#[test]
fn a_machine_on_a_host_that_hangs_is_left_alone() {
    simulate(async {
        let scene = four_hosts("exclude_hosts = [\"pve1\"]\n");
        let planned = Planned::default();
        let story = async {
            tokio::time::sleep(Duration::from_mins(4)).await;
            assert_eq!(made(&scene).get("pve2"), Some(&1), "{:?}", made(&scene));
            let faults = &scene.world.pve_faults;
            faults.aim(Some(Aim::Hang(ONE)));
            // The pod goes in the sixth minute.
            tokio::time::sleep(Duration::from_secs(100)).await;
            let since = Instant::now();
            tokio::time::sleep(Duration::from_mins(6)).await;
            let of_it: Vec<_> = planned.borrow().clone();
            let of_it = of_it.into_iter().filter(|(at, ..)| *at >= since);
            assert_eq!(of_it.collect::<Vec<_>>(), Vec::new());
            assert_eq!(made(&scene).get("pve2"), Some(&1));
            assert_ne!(node(&scene)["spec"]["unschedulable"], true);
            faults.aim(None);
            tokio::time::sleep(Duration::from_mins(6)).await;
        };
        tokio::select! {
            biased;
            ended = scene.world.daemon(scene.state(), None, 0) => {
                panic!("the daemon ended: {}", ended.expect_err("it never ends well"));
            }
            () = scene.preside() => {}
            () = watch(&scene, &planned) => {}
            () = deploy(&scene, "web", 1, 6) => {}
            () = story => {}
        }
        scene.nothing_is_left();
    });
}
