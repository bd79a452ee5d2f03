//! Somebody wants a node back while its machine is being removed.

use std::time::Duration;

use pve_autoscaler::model::policy::LEAVING_TAINT;
use pve_autoscaler::model::region::{Busy, Machine, Step as Reached};
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::{Aim, FaultPlan};
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec};
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{AdminAct, PveSpec};
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadPods, WorkloadStep};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::json;

use crate::common::{Scene, simulate};
use crate::{HASTY, events};

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";

/// A pod with a volume, for two minutes.
fn volume() -> Workload {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [
                    {"name": "db", "image": "x", "resources": {"requests": {"cpu": "1"}}},
                ]},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "standard",
                "resources": {"requests": {"storage": "1Gi"}},
            }}],
        },
    });
    let path = SETS.to_owned();
    let (create, path) = (Act::Create { path, object }, format!("{SETS}/db"));
    let steps = [
        (Span::ZERO, create),
        (Span::minutes(2), Act::Remove { path }),
    ];
    let steps = steps.map(|(at, act)| WorkloadStep { at, act });
    Workload {
        steps: steps.into(),
    }
}

/// Volumes take a minute and a half to go.
fn slow_volumes() -> WorldSpec {
    WorldSpec {
        seed: 3,
        pve: PveSpec::default(),
        kube: KubeSpec {
            detach_latency: Span::seconds(90),
            ..KubeSpec::default()
        },
        guests: GuestSpec::default(),
        config: HASTY.replace("quarantine = \"30s\"", "quarantine = \"3m\""),
    }
}

/// The name of the first node that is to go.
async fn marked(scene: &Scene) -> String {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let nodes = scene.world.kube.objects("v1", "Node");
        let mut marked = nodes.iter();
        if let Some(node) = marked.find(|node| node.to_string().contains(LEAVING_TAINT)) {
            let name = node["metadata"]["name"].as_str();
            return name.expect("a name").to_owned();
        }
    }
}

/// The node is empty, and its machine waits for the volume, when somebody uncordons it and takes our taint off: pods may
/// come from then on, so that the VM keeps its power until the node was emptied anew.
#[test]
fn a_node_that_is_uncordoned_while_it_is_to_go_keeps_its_vm() {
    rescued(&async |scene: &Scene, node: &str| {
        tokio::time::sleep(Duration::from_secs(20)).await;
        uncordon(scene, node).await;
    });
}

/// Who types `kubectl uncordon` does not know of our taint: it goes by itself, within seconds.
#[test]
fn an_uncordon_alone_takes_a_node_back() {
    rescued(&async |scene: &Scene, node: &str| {
        tokio::time::sleep(Duration::from_secs(20)).await;
        kubectl_uncordon(scene, node).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!leaves(scene, node));
    });
}

/// The shutdown was sent and not answered when somebody uncordons the node, and it is carried out two minutes later. Until
/// then no pod comes to the node, also when the daemon was killed meanwhile; the VM is started again.
#[test]
fn a_node_is_not_given_back_while_a_shutdown_may_still_come() {
    for killed in [false, true] {
        simulate(not_given_back(killed));
    }
}

/// PVE took the shutdown, and the guest is slow to obey when somebody uncordons the node: it may go off at any moment.
#[test]
fn a_node_is_not_given_back_while_its_guest_may_still_shut_down() {
    simulate(async {
        let guests = GuestSpec {
            fates: [(0, GuestFault::IgnoresShutdown)].into(),
            ..GuestSpec::default()
        };
        let config = format!("{HASTY}[pool.general.drain]\nshutdown_timeout = \"20s\"\n");
        let scene = Scene::new(5, &config, guests);
        let rescue = async {
            let node = marked(&scene).await;
            let asked = || {
                let tasks = scene.world.pve.running_tasks();
                tasks.into_iter().any(|upid| upid.contains(":qmshutdown:"))
            };
            while !asked() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            kubectl_uncordon(&scene, &node).await;
            for _ in 0..200 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert!(leaves(&scene, &node), "it takes pods again");
            }
        };
        let visit = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::seconds(90));
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit, Duration::from_mins(25)) => panic!("no shutdown was sent"),
            () = rescue => {}
        }
        assert!(
            scene
                .world
                .pve
                .vms()
                .iter()
                .any(|vm| vm.vmid == 9100 && vm.running)
        );
        assert!(scene.findings().is_empty(), "{:#?}", scene.findings());
    });
}

async fn not_given_back(killed: bool) {
    let scene = Scene::new(5, HASTY, GuestSpec::default());
    let faults = &scene.world.pve_faults;
    let kube = &scene.world.kube;
    faults.aim(Some(Aim::Delay("/status/shutdown", Duration::from_mins(2))));
    let leads_again = tokio::sync::Notify::new();
    let sent = async {
        let node = marked(&scene).await;
        let sent = || {
            let turn = scene.world.turns.borrow().clone();
            let machines = turn.map(|turn| turn.snapshot.machines.clone());
            let steps = machines.into_iter().flatten();
            let mut steps = steps.filter_map(|(_, machine)| machine.step);
            steps.any(|(step, _)| step == Reached::Shutdown)
        };
        while !sent() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        node
    };
    let rescues = async |node: String| {
        kubectl_uncordon(&scene, &node).await;
        let pods = Workload::visit("late", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(9));
        tokio::time::sleep(Duration::from_secs(50)).await;
        assert!(leaves(&scene, &node), "it takes pods again");
        pods.play(kube.router()).await.expect("it plays");
        std::future::pending::<()>().await;
    };
    let visit = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::seconds(90));
    let rest = Duration::from_mins(25);
    if killed {
        let node = tokio::select! {
            biased;
            () = scene.live(None, 0, visit, rest) => panic!("no shutdown was sent"),
            node = sent => node,
        };
        let late = async {
            // A backup keeps the next life from another shutdown until the node is uncordoned.
            let vms = scene.world.pve.vms();
            let vm = vms.iter().find(|vm| vm.name == node).expect("its VM");
            let lock = |lock: Option<&str>| {
                let lock = lock.map(str::to_owned);
                let act = AdminAct::Lock {
                    vmid: vm.vmid,
                    lock,
                };
                scene.world.pve.administer(&act).expect("it is there");
            };
            lock(Some("backup"));
            leads_again.notified().await;
            tokio::time::sleep(Duration::from_secs(20)).await;
            let unlock = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                lock(None);
            };
            tokio::join!(unlock, rescues(node.clone()));
        };
        tokio::select! {
            biased;
            () = scene.live_on(1, |_| leads_again.notify_one()) => {}
            () = scene.preside() => {}
            () = late => {}
            () = tokio::time::sleep(rest) => {}
        }
    } else {
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit, rest) => {}
            () = async { rescues(sent.await).await } => {}
        }
    }
    let told = events(&scene).await;
    let words = "somebody uncordoned node";
    assert!(told.iter().any(|event| event.contains(words)), "{told:#?}");
    scene.nothing_is_left();
}

/// No pod is asked to go any more from a node that somebody uncordoned.
#[test]
fn an_uncordon_ends_the_evictions() {
    simulate(async {
        let scene = Scene::new(21, HASTY, GuestSpec::default());
        let faults = &scene.world.kube_faults;
        faults.set(FaultPlan {
            eviction_busy_s: Some(1),
            ..FaultPlan::default()
        });
        let rescues = async {
            let node = marked(&scene).await;
            tokio::time::sleep(Duration::from_secs(15)).await;
            kubectl_uncordon(&scene, &node).await;
            let refused = faults.dealt();
            assert!(refused > 0, "nothing was to be evicted");
            tokio::time::sleep(Duration::from_secs(15)).await;
            assert!(!leaves(&scene, &node));
            // One round may have been under way.
            let more = faults.dealt() - refused;
            assert!(more <= 13, "{more} evictions after it was uncordoned");
            faults.quiet();
            std::future::pending::<()>().await;
        };
        let drained = crate::tenant::drained();
        tokio::select! {
            biased;
            () = scene.live(None, 0, drained, Duration::from_mins(10)) => {}
            () = rescues => {}
        }
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// The API server tells what pods there are at the twentieth try: what it had said of the node before holds no more.
#[test]
fn what_was_read_of_a_node_long_before_takes_no_vm_its_power() {
    rescued(&async |scene: &Scene, node: &str| {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let faults = &scene.world.kube_faults;
        faults.aim(Some(Aim::Refuse("/api/v1/pods")));
        // The volume is detached by then.
        tokio::time::sleep(Duration::from_secs(100)).await;
        uncordon(scene, node).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        faults.aim(None);
    });
}

/// The daemon is away when somebody wants the node back, and deletes it then: what ran on it may run on. A removal that
/// was begun is none any more that may go on at once.
#[test]
fn a_node_that_is_deleted_while_it_is_emptied_leaves_its_vm_for_the_quarantine() {
    simulate(async {
        let scene = Scene::of(slow_volumes());
        let story = async {
            let node = tokio::select! {
                () = scene.live_on(0, |_| {}) => panic!("it ended"),
                node = marked(&scene) => node,
            };
            uncordon(&scene, &node).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            let request = http::Request::delete(format!("/api/v1/nodes/{node}"));
            crate::patch(&scene, request, String::new()).await;
            let again = scene.live_on(1, |_| {});
            let _ = tokio::time::timeout(Duration::from_mins(8), again).await;
        };
        tokio::select! {
            biased;
            () = story => {}
            () = scene.preside() => {}
            () = scene.play(volume()) => {}
        }
        scene.nothing_is_left();
    });
}

/// The API server does not tell the node that is to be emptied, until it is gone.
#[test]
fn a_node_that_is_deleted_before_it_is_emptied_leaves_its_vm_for_the_quarantine() {
    simulate(async {
        let scene = Scene::of(slow_volumes());
        let faults = &scene.world.kube_faults;
        let machine = || {
            let turn = scene.world.turns.borrow().clone()?;
            let (name, machine) = turn.snapshot.machines.first_key_value()?;
            Some((name.to_string(), machine.clone()))
        };
        let until = async |wanted: &dyn Fn(&Machine) -> bool| loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            if let Some((name, _)) = machine().filter(|(_, machine)| wanted(machine)) {
                return name;
            }
        };
        let story = async {
            until(&|machine| machine.step.is_some_and(|(step, _)| step == Reached::Done)).await;
            faults.aim(Some(Aim::Refuse("/api/v1/nodes/")));
            let node = until(&|machine| machine.busy == Some(Busy::Down)).await;
            let request = http::Request::delete(format!("/api/v1/nodes/{node}"));
            crate::patch(&scene, request, String::new()).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            faults.aim(None);
            std::future::pending::<()>().await;
        };
        let visit = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::seconds(90));
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit, Duration::from_mins(14)) => {}
            () = story => {}
        }
        scene.nothing_is_left();
    });
}

/// `kubectl uncordon NODE`.
async fn kubectl_uncordon(scene: &Scene, node: &str) {
    let request = http::Request::patch(format!("/api/v1/nodes/{node}"))
        .header("content-type", "application/merge-patch+json");
    let open = json!({"spec": {"unschedulable": null}});
    crate::patch(scene, request, open.to_string()).await;
}

/// Whether the node carries our taint.
fn leaves(scene: &Scene, node: &str) -> bool {
    let nodes = scene.world.kube.objects("v1", "Node");
    let mut marked = nodes.iter();
    marked.any(|of| of["metadata"]["name"] == node && of.to_string().contains(LEAVING_TAINT))
}

async fn uncordon(scene: &Scene, node: &str) {
    let request = http::Request::patch(format!("/api/v1/nodes/{node}"))
        .header("content-type", "application/merge-patch+json");
    let open = json!({"spec": {"taints": null, "unschedulable": null}});
    crate::patch(scene, request, open.to_string()).await;
}

/// A machine is to go, somebody does something from the moment on in which its node is marked, and it is given up.
fn rescued(does: &impl AsyncFn(&Scene, &str)) {
    simulate(async {
        let scene = Scene::of(slow_volumes());
        let rescues = async {
            let node = marked(&scene).await;
            does(&scene, &node).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, volume(), Duration::from_mins(14)) => {}
            () = rescues => {}
        }
        let told = events(&scene).await;
        let words = "somebody uncordoned node";
        assert!(told.iter().any(|event| event.contains(words)), "{told:#?}");
        scene.nothing_is_left();
        assert_eq!(scene.machines_made(), 1);
    });
}
