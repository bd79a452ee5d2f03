//! Which node is a machine's: whoever lies or edits, no running pod is lost, and what nobody can tell is left
//! alone and said loudly.

use std::collections::BTreeSet;
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::Aim;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::pve::{AdminAct, VmFacts};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use serde_json::{Value, json};

use super::{HASTY, call, events, expect_told};
use crate::common::{Scene, simulate};

/// What somebody does, or takes back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Lie,
    Truth,
}

/// Two pods that each need a machine, for nearly half an hour.
fn two() -> Workload {
    Workload::visit(
        "web",
        2,
        WorkloadPods::of("1500m", "1Gi"),
        Span::minutes(25),
    )
}

/// Our VMs.
fn machines(scene: &Scene) -> Vec<VmFacts> {
    let vms = scene.world.pve.vms().into_iter();
    vms.filter(|vm| (9100..9121).contains(&vm.vmid)).collect()
}

/// UIDs of the pods that run.
async fn running(scene: &Scene) -> BTreeSet<String> {
    let list = call(scene, http::Request::get("/api/v1/pods"), String::new()).await;
    let pods = list["items"].as_array().expect("a list").iter();
    let runs = pods.filter(|pod| pod["status"]["phase"] == "Running");
    let uids = runs.map(|pod| pod["metadata"]["uid"].as_str().expect("a UID").to_owned());
    uids.collect()
}

/// What the daemon's newest report warns of.
fn warnings(scene: &Scene) -> String {
    let turn = scene.world.turns.borrow().clone().expect("it took turns");
    turn.decision.report.warnings.join("\n")
}

/// Somebody edits a VM's configuration file.
fn edit(scene: &Scene, vmid: u32, key: &str, value: Option<&str>) {
    let act = AdminAct::Configure {
        vmid,
        key: key.to_owned(),
        value: value.map(str::to_owned),
    };
    scene.world.pve.administer(&act).expect("it is there");
}

/// Somebody changes a node.
async fn patch(scene: &Scene, node: &str, change: Value) {
    let request = http::Request::patch(format!("/api/v1/nodes/{node}"))
        .header("content-type", "application/merge-patch+json");
    call(scene, request, change.to_string()).await;
}

/// Changes that others than an administrator made to VMs.
fn changes(scene: &Scene) -> usize {
    let changes = scene.world.pve.changes();
    let ours = changes.iter().filter(|change| change.by != "administrator");
    ours.count()
}

/// Lives with two machines in service. In the fifth minute comes the lie, in the twentieth the truth. Between
/// them nothing is done to any machine, and what is wrong is said with `words`; after it all goes its way.
async fn stays_untouched(scene: &Scene, words: &str, act: impl AsyncFn(Turn, &[VmFacts])) {
    let story = async {
        tokio::time::sleep(Duration::from_mins(4)).await;
        let vms = machines(scene);
        let pods = running(scene).await;
        assert_eq!((vms.len(), pods.len()), (2, 2), "two machines in service");
        let before = changes(scene);
        act(Turn::Lie, &vms).await;
        tokio::time::sleep(Duration::from_mins(16)).await;
        assert_eq!(changes(scene), before, "{:#?}", scene.world.pve.changes());
        assert_eq!(running(scene).await, pods, "pods that ran");
        let told = warnings(scene);
        assert!(
            told.contains("left alone") && told.contains(words),
            "{told}"
        );
        let wanted = [
            ("ConfigMap IdentityContradiction: ", words),
            ("Node IdentityContradiction: ", words),
        ];
        expect_told(&events(scene).await, &wanted);
        act(Turn::Truth, &vms).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = scene.live(None, 0, two(), Duration::from_mins(45)) => {}
        () = story => {}
    }
    scene.nothing_is_left();
    assert_eq!(scene.machines_made(), 2);
    assert_eq!(warnings(scene), "");
}

fn scene() -> Scene {
    Scene::new(11, HASTY, GuestSpec::default())
}

/// A kubelet that tells another machine's UUID: the one would lose its VM with all pods on it, the other its
/// node.
#[test]
fn a_kubelet_that_lies_with_anothers_uuid_costs_nobody_a_vm() {
    for (liar, other) in [(0, 1), (1, 0)] {
        simulate(async {
            let scene = scene();
            stays_untouched(&scene, "says that it has the UUID", async |turn, vms| {
                let lie = Some(vms[other].uuid.as_str()).filter(|_| turn == Turn::Lie);
                scene.world.guests.lie(vms[liar].vmid, lie);
            })
            .await;
        });
    }
}

/// Each of two kubelets tells the other's UUID.
#[test]
fn two_kubelets_that_lie_cost_nobody_a_vm() {
    simulate(async {
        let scene = scene();
        stays_untouched(&scene, "has the system UUID", async |turn, vms| {
            for (liar, other) in [(0, 1), (1, 0)] {
                let lie = Some(vms[other].uuid.as_str()).filter(|_| turn == Turn::Lie);
                scene.world.guests.lie(vms[liar].vmid, lie);
            }
        })
        .await;
    });
}

/// A kubelet whose UUID is nobody's.
#[test]
fn a_node_of_the_name_with_another_uuid_keeps_its_vm() {
    simulate(async {
        let scene = scene();
        stays_untouched(&scene, "has the system UUID", async |turn, vms| {
            let lie = "0badcafe-0000-4000-8000-000000000001";
            let lie = Some(lie).filter(|_| turn == Turn::Lie);
            scene.world.guests.lie(vms[0].vmid, lie);
        })
        .await;
    });
}

/// Our annotation on a node names another VM than the one behind it.
#[test]
fn a_node_annotated_with_another_vm_keeps_its_vm() {
    simulate(async {
        let scene = scene();
        stays_untouched(&scene, "is annotated with", async |turn, vms| {
            let of = |vm: &VmFacts| format!("default/{}/{}", vm.vmid, vm.uuid);
            let text = match turn {
                Turn::Lie => of(&vms[1]),
                Turn::Truth => of(&vms[0]),
            };
            let change = json!({"metadata": {"annotations": {"pve-autoscaler.io/machine": text}}});
            patch(&scene, &vms[0].name, change).await;
        })
        .await;
    });
}

/// Somebody edits `smbios1` of a VM whose node is Ready: the node does not look like its own any more, and
/// the pods run on.
#[test]
fn an_edited_uuid_does_not_make_a_working_node_a_vm_without_one() {
    let other = "uuid=0badcafe-0000-4000-8000-000000000001";
    for edited in [Some(other), Some("manufacturer=acme"), None] {
        simulate(async {
            let scene = scene();
            stays_untouched(&scene, "the SMBIOS UUID of VM", async |turn, vms| {
                let vm = &vms[0];
                let right = vm.config.get("smbios1").map(String::as_str);
                let value = if turn == Turn::Lie { edited } else { right };
                edit(&scene, vm.vmid, "smbios1", value);
            })
            .await;
        });
    }
}

/// The same when the daemon has lost its state: the node itself remembers.
#[test]
fn an_edited_uuid_is_seen_without_the_journal_too() {
    simulate(async {
        let scene = scene();
        let begins = tokio::time::Instant::now();
        let story = async {
            let first = Duration::from_mins(4);
            scene.live_until(first, 0).await;
            let vms = machines(&scene);
            let pods = running(&scene).await;
            assert_eq!((vms.len(), pods.len()), (2, 2), "two machines in service");
            std::fs::remove_dir_all(scene.state()).expect("removed");
            std::fs::create_dir(scene.state()).expect("made");
            edit(
                &scene,
                vms[0].vmid,
                "smbios1",
                Some("uuid=0badcafe-0000-4000-8000-000000000001"),
            );
            let before = changes(&scene);
            let rest = async {
                tokio::time::sleep_until(begins + Duration::from_mins(20)).await;
                assert_eq!(changes(&scene), before, "{:#?}", scene.world.pve.changes());
                assert_eq!(running(&scene).await, pods, "pods that ran");
                let told = warnings(&scene);
                assert!(told.contains("0badcafe"), "{told}");
            };
            tokio::select! {
                biased;
                () = scene.live_on(1, |_| {}) => {}
                () = rest => {}
            }
        };
        tokio::select! {
            biased;
            () = story => {}
            () = scene.preside() => {}
            () = scene.play(two()) => {}
        }
        assert!(scene.findings().is_empty(), "{:#?}", scene.findings());
    });
}

/// What is only pending in PVE is not in force: the machine is what it was, and goes in the usual way.
#[test]
fn a_pending_uuid_changes_nothing() {
    simulate(async {
        let scene = scene();
        let story = async {
            tokio::time::sleep(Duration::from_mins(4)).await;
            let vms = machines(&scene);
            let pods = running(&scene).await;
            assert_eq!((vms.len(), pods.len()), (2, 2), "two machines in service");
            let before = changes(&scene);
            for vm in &vms {
                let path = format!("/api2/json/nodes/{}/qemu/{}/config", vm.host, vm.vmid);
                // Tags apply at once, so that the configuration is read again at once. Ours stay: they would be put back.
                let body = "smbios1=uuid%3D0badcafe-0000-4000-8000-000000000001&tags=edited%3Bpve-autoscaler";
                let request = http::Request::put(path)
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(axum::body::Body::from(body));
                let router = scene.world.pve.router_as("root@pam");
                let request = request.expect("a request");
                let answer = tower::ServiceExt::oneshot(router, request).await;
                assert_eq!(answer.expect("an answer").status(), 200);
                let now = scene.world.pve.vm(vm.vmid).expect("it is there");
                assert_eq!(now.uuid, vm.uuid, "it is pending");
            }
            let edited = changes(&scene);
            assert_eq!(edited, before + vms.len());
            tokio::time::sleep(Duration::from_mins(16)).await;
            assert_eq!(changes(&scene), edited, "{:#?}", scene.world.pve.changes());
            assert_eq!(running(&scene).await, pods, "pods that ran");
            assert_eq!(warnings(&scene), "");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, two(), Duration::from_mins(45)) => {}
            () = story => {}
        }
        scene.nothing_is_left();
    });
}

/// Somebody takes the mark out of the notes, and puts it back while it is in quarantine or later: nothing was begun, so
/// nothing goes on.
#[test]
fn notes_that_are_edited_and_put_back_cost_nobody_a_vm() {
    for after in (24_000..40_000).step_by(800) {
        simulate(async {
            let scene = scene();
            let story = async {
                tokio::time::sleep(Duration::from_mins(4)).await;
                let (vms, pods) = (machines(&scene), running(&scene).await);
                assert_eq!((vms.len(), pods.len()), (2, 2), "two machines in service");
                let (vm, before) = (&vms[0], changes(&scene));
                edit(&scene, vm.vmid, "description", Some("mine"));
                // Tags are seen at once, so that the quarantine begins with the next poll. Ours stay: they would be put back.
                edit(&scene, vm.vmid, "tags", Some("mine;pve-autoscaler"));
                while !warnings(&scene).contains("its mark is not in the description of its VM") {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                tokio::time::sleep(Duration::from_millis(after)).await;
                let notes = Some(vm.description.as_str());
                edit(&scene, vm.vmid, "description", notes);
                tokio::time::sleep(Duration::from_mins(6)).await;
                assert_eq!(changes(&scene), before, "put back after {after} ms");
                assert_eq!(running(&scene).await, pods, "put back after {after} ms");
                let said = warnings(&scene);
                assert_eq!(said, "", "what was put back is read again");
            };
            tokio::select! {
                biased;
                () = scene.live(None, 0, two(), Duration::from_mins(20)) => {}
                () = story => {}
            }
            assert!(scene.findings().is_empty(), "{:#?}", scene.findings());
        });
    }
}

/// Somebody empties the description of a working machine: it is left alone and told of for as long as that lasts, and it stays
/// a machine of ours. Nobody else gets its address, though its configuration does not name it any more. When its VM has another
/// UUID, it is theirs.
#[test]
fn an_emptied_description_costs_nobody_a_vm_and_gives_nothing_away() {
    let network = "[network.lan]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50-192.0.2.51\"]\ngateway = \"192.0.2.1\"\n";
    let config = HASTY
        .replace(
            "[instance_type.small]",
            &format!("{network}[instance_type.small]"),
        )
        .replace("max = 3", "max = 3\nnetwork = \"lan\"");
    simulate(async {
        let scene = Scene::new(11, &config, GuestSpec::default());
        let forever = |name, pods| {
            Workload::visit(
                name,
                pods,
                WorkloadPods::of("1500m", "1Gi"),
                Span::minutes(120),
            )
        };
        let story = async {
            tokio::time::sleep(Duration::from_mins(4)).await;
            let (vms, pods) = (machines(&scene), running(&scene).await);
            assert_eq!((vms.len(), pods.len()), (1, 1), "a machine in service");
            let vm = &vms[0];
            let touched = || {
                let changes = scene.world.pve.changes();
                let of_it = changes.iter().filter(|change| change.vmid == vm.vmid);
                of_it.filter(|change| change.by != "administrator").count()
            };
            let before = touched();
            edit(&scene, vm.vmid, "description", None);
            edit(&scene, vm.vmid, "ipconfig0", None);
            tokio::time::sleep(Duration::from_mins(2)).await;
            let line = vm.description.lines().last().expect("a mark");
            let told = warnings(&scene);
            assert!(
                told.contains("its mark is not in the description of its VM")
                    && told.contains(line),
                "{told}"
            );
            let wanted = [
                ("ConfigMap MarkLost: ", "is left alone"),
                ("Node MarkLost: ", "is left alone"),
            ];
            expect_told(&events(&scene).await, &wanted);
            let more = async {
                tokio::time::sleep(Duration::from_mins(12)).await;
            };
            tokio::select! {
                biased;
                () = more => {}
                () = scene.play(forever("more", 2)) => {}
            }
            let all = machines(&scene);
            let of = |key: &str| {
                all.iter()
                    .map(|vm| vm.config.get(key).cloned().unwrap_or_default())
                    .collect::<Vec<_>>()
            };
            assert_eq!(of("ipconfig0"), ["", "ip=192.0.2.51/24,gw=192.0.2.1"]);
            assert_eq!(all[0].uuid, vm.uuid);
            assert!(running(&scene).await.is_superset(&pods), "pods that ran");
            assert_eq!(touched(), before, "{:#?}", scene.world.pve.changes());
            let theirs = "uuid=0badcafe-0000-4000-8000-000000000001";
            edit(&scene, vm.vmid, "smbios1", Some(theirs));
            tokio::time::sleep(Duration::from_mins(8)).await;
            let told = warnings(&scene);
            assert!(
                !told.contains("its mark is not in the description"),
                "{told}"
            );
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, forever("web", 1), Duration::from_hours(1)) => {}
            () = story => {}
        }
    });
}

/// An edit of the notes shows nowhere but in the configuration, and that is read in turns.
#[test]
fn an_edit_of_the_notes_is_noticed_within_a_poll_of_each_machine() {
    simulate(async {
        let scene = scene();
        let story = async {
            tokio::time::sleep(Duration::from_mins(6)).await;
            let vms = machines(&scene);
            assert_eq!(vms.len(), 2, "two machines in service");
            edit(&scene, vms[0].vmid, "description", Some("mine"));
            let (requests, edited) = (scene.world.pve.request_count(), tokio::time::Instant::now());
            let words = format!("machine {}: left alone: its mark is not in", vms[0].name);
            while !warnings(&scene).contains(&words) {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let waited = edited.elapsed();
                assert!(waited < Duration::from_secs(65), "{}", warnings(&scene));
            }
            let asked = scene.world.pve.request_count() - requests;
            assert!(asked <= 9, "{asked} calls in three polls");
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, two(), Duration::from_mins(10)) => {}
            () = story => {}
        }
    });
}

/// The API server is started anew in every second of the end of a machine's spec, and of its removal: it
/// answers 403 for a while, and that costs no machine.
#[test]
fn an_api_server_that_is_started_anew_costs_no_machine() {
    let creations = (58_000..90_000).step_by(2_500);
    let removals = (135_000..185_000).step_by(4_000);
    for at in creations.chain(removals) {
        simulate(async {
            let scene = scene();
            let restarts = async {
                tokio::time::sleep(Duration::from_millis(at)).await;
                scene.world.kube_faults.restart().await;
                std::future::pending::<()>().await;
            };
            let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::seconds(90));
            tokio::select! {
                biased;
                () = scene.live(None, 0, stays, Duration::from_mins(9)) => {}
                () = restarts => {}
            }
            assert_eq!(scene.machines_made(), 1, "restarted after {at} ms");
            let told = events(&scene).await;
            let failed = told.iter().find(|event| event.contains("Failed"));
            assert_eq!(failed, None, "restarted after {at} ms");
            scene.nothing_is_left();
        });
    }
}

/// Tokens cannot be made, and that does not pass: one more machine is tried at once, and then the pool waits, longer each time.
#[test]
fn trouble_that_stays_does_not_make_machines_without_end() {
    let config = HASTY.replace("initial_backoff = \"30s\"", "initial_backoff = \"5m\"");
    assert_ne!(config, HASTY);
    simulate(async {
        let scene = Scene::new(1, &config, GuestSpec::default());
        let secrets = Aim::Refuse("/api/v1/namespaces/kube-system/secrets");
        scene.world.kube_faults.aim(Some(secrets));
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120));
        scene.live(None, 0, stays, Duration::from_mins(75)).await;
        let made = scene.machines_made();
        assert!((2..=5).contains(&made), "{made} machines");
    });
}

/// The state directory is lost, the machine is known by its mark alone, and somebody destroys its VM while it is
/// being taken down: neither its slot nor its node stays.
#[test]
fn a_machine_known_by_its_mark_alone_leaves_nothing_behind() {
    simulate(async {
        let scene = scene();
        let story = async {
            scene.live_until(Duration::from_mins(2), 0).await;
            std::fs::remove_dir_all(scene.state()).expect("removed");
            std::fs::create_dir(scene.state()).expect("made");
            let begun = async {
                while !is_shut_down(&scene) {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            };
            tokio::select! {
                biased;
                () = scene.live_on(1, |_| {}) => {}
                () = begun => {}
            }
            let vms = machines(&scene);
            assert_eq!(vms.len(), 1);
            let act = AdminAct::Destroy { vmid: vms[0].vmid };
            scene.world.pve.administer(&act).expect("it is there");
            scene
                .live(None, 2, Workload::default(), Duration::from_mins(8))
                .await;
        };
        let visit = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(3));
        tokio::select! {
            biased;
            () = story => {}
            () = scene.preside() => {}
            () = scene.play(visit) => {}
        }
        scene.nothing_is_left();
        let asked = scene.world.pve.requests().into_iter();
        let wrong: Vec<_> = asked.filter(|seen| seen.status == Some(400)).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    });
}

/// Whether a VM of ours was asked to shut down.
fn is_shut_down(scene: &Scene) -> bool {
    let changes = scene.world.pve.changes();
    changes
        .iter()
        .any(|change| change.what == "shutdown" || change.what == "stop")
}
