//! Machines that were made with what the file says otherwise now: told, and left as they are or replaced.

use std::sync::Arc;
use std::time::Duration;

use pve_autoscaler::config;
use pve_autoscaler::controller::status::DaemonStatus;
use pve_autoscaler::model::drift::Drift;
use pve_autoscaler::model::region::{Machine, Step};
use pve_autoscaler::model::snapshot::Snapshot;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::pve::{AdminAct, PveSpec};

use crate::HASTY;
use crate::common::{Scene, simulate};
use crate::hosts::{act, fill};
use crate::networks::network;

/// The status and the findings some minutes after two machines that were made by one file find another one.
async fn reloaded(before: &str, after: &str, between: impl Fn(&Scene)) -> (DaemonStatus, Scene) {
    let (status, scene, _) = overlapped(before, after, between).await;
    (status, scene)
}

/// [`reloaded`], and whether a machine was being made while the node of another one was being removed.
async fn overlapped(
    before: &str,
    after: &str,
    between: impl Fn(&Scene),
) -> (DaemonStatus, Scene, bool) {
    let mut scene = Scene::new(5, before, GuestSpec::default());
    tokio::select! {
        biased;
        () = scene.live_until(Duration::from_mins(6), 0) => {}
        () = scene.preside() => {}
        () = scene.play(fill(2)) => {}
    }
    between(&scene);
    scene.world.settings = Arc::new(config::parse(after, "after").expect("it is valid"));
    let mut turns = scene.world.turns.subscribe();
    let mut both = false;
    tokio::select! {
        biased;
        () = scene.live_on(1, |_| {}) => {}
        () = scene.preside() => {}
        () = async {
            while turns.changed().await.is_ok() {
                let turn = turns.borrow_and_update().clone();
                both |= turn.is_some_and(|turn| makes_while_it_removes(&turn.snapshot));
            }
        } => {}
        () = tokio::time::sleep(Duration::from_mins(5)) => {}
    }
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    (DaemonStatus::of(&turn), scene, both)
}

/// Whether a machine is being made, and the node of another one is being removed.
fn makes_while_it_removes(snapshot: &Snapshot) -> bool {
    let step = |machine: &Machine| machine.step.map(|(step, _)| step);
    let mut machines = snapshot.machines.values();
    let made = machines.clone().filter_map(step).any(|at| at < Step::Join);
    made && machines.any(|one| one.node.is_some() && step(one) > Some(Step::Done))
}

#[test]
fn machines_that_drifted_are_told_by_their_parts_and_stay() {
    simulate(async {
        let after = HASTY.replace("vmid = 9000\n", "vmid = 9000\nvlan = 20\n");
        let after = after.replace(
            "min = 0\n",
            "min = 0\nlabels = { \"example.org/a\" = \"b\" }\n",
        );
        let (status, scene) = reloaded(HASTY, &after, |_| {}).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        assert_eq!(scene.machines_made(), 2, "nothing is replaced");
        assert_eq!(status.pools["general"].drifted, 2);
        assert_eq!(status.machines.len(), 2);
        for machine in status.machines.values() {
            let parts = machine.drifted.as_deref();
            assert_eq!(parts, Some(&[Drift::Labels, Drift::Hardware][..]));
        }
    });
}

/// A machine that has another network, gateway or API server than one that is made now, by the part. What it has still is none: its address
/// lies in a range that has grown.
#[test]
fn the_network_and_the_endpoint_of_machines_drift_by_parts_of_their_own() {
    let before = network("[\"192.0.2.50-192.0.2.59\"]", 3);
    let gateway = before.replace("gateway = \"192.0.2.1\"", "gateway = \"192.0.2.3\"");
    let endpoint = before.replace(
        "[scale_up]",
        "[pool.general.join]\nendpoint = \"api.example.org:6443\"\n[scale_up]",
    );
    let forget = |scene: &Scene| {
        for file in std::fs::read_dir(scene.state().join("journal")).expect("a journal") {
            let path = file.expect("a file").path();
            let text = std::fs::read(&path).expect("it is read");
            let mut entry: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            let made_of = entry["made_of"].as_object_mut().expect("hashes");
            assert!(made_of.remove("network").is_some() && made_of.remove("endpoint").is_some());
            std::fs::write(&path, entry.to_string()).expect("written");
        }
    };
    let moved = network("[\"192.0.2.80-192.0.2.89\"]", 3);
    let grown = network("[\"192.0.2.50-192.0.2.89\"]", 3);
    let cases: [(&str, Between<'_>, &[Drift]); 7] = [
        (&gateway, &|_| {}, &[Drift::Network]),
        (HASTY, &|_| {}, &[Drift::Network]),
        (&moved, &|_| {}, &[Drift::Network]),
        (&grown, &|_| {}, &[]),
        (&endpoint, &|_| {}, &[Drift::Endpoint]),
        // An older program made them, which did not know these parts.
        (&gateway, &forget, &[]),
        (&endpoint, &forget, &[]),
    ];
    for (after, between, parts) in cases {
        simulate(async {
            let (status, scene) = reloaded(&before, after, between).await;
            assert_eq!(status.machines.len(), 2);
            for machine in status.machines.values() {
                assert_eq!(machine.drifted.as_deref(), Some(parts), "{after}");
            }
            assert_eq!(scene.machines_made(), 2);
            assert_eq!(scene.findings(), Vec::<String>::new());
        });
    }
}

/// With `replace_drifted` they are replaced, one after the other, and each pod moves once: to a node that has not drifted.
#[test]
fn a_pool_that_asks_for_it_replaces_what_has_drifted() {
    simulate(async {
        let before = HASTY.replace("min = 0\n", "min = 0\nreplace_drifted = true\n");
        // With room for both new machines at once.
        let before = before.replace("max = 3\n", "max = 5\n");
        assert!(before.contains("replace_drifted") && before.contains("max = 5"));
        let after = before.replace("vmid = 9000\n", "vmid = 9000\nvlan = 20\n");
        let (status, scene, both) = overlapped(&before, &after, |_| {}).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        // One that is being removed has drifted still: the next has its turn once that node is gone.
        assert!(!both, "one after the other");
        assert_eq!(status.pools["general"].drifted, 0, "{status:#?}");
        assert_eq!(status.machines.len(), 2, "{:#?}", status.machines);
        assert_eq!(scene.machines_made(), 4, "one new machine for each old one");
        let pods = scene.world.kube.objects("v1", "Pod");
        let running = |pod: &&Arc<serde_json::Value>| pod["status"]["phase"] == "Running";
        assert_eq!(pods.iter().filter(running).count(), 2, "{pods:#?}");
        let nodes = scene.world.kube.objects("v1", "Node");
        assert!(
            nodes
                .iter()
                .all(|node| node["spec"]["unschedulable"] != true)
        );
    });
}

#[test]
fn without_another_file_and_without_a_journal_nothing_drifted() {
    simulate(async {
        let (status, _) = reloaded(HASTY, HASTY, |_| {}).await;
        assert_eq!(status.pools["general"].drifted, 0);
        for machine in status.machines.values() {
            assert_eq!(machine.drifted.as_deref(), Some(&[][..]));
        }
        // An instance on another host knows the machines by their marks alone.
        let after = HASTY.replace("vmid = 9000\n", "vmid = 9000\nvlan = 20\n");
        let lost = |scene: &Scene| {
            std::fs::remove_dir_all(scene.state().join("journal")).expect("it was there");
        };
        let (status, scene) = reloaded(HASTY, &after, lost).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        assert_eq!(status.pools["general"].drifted, 0);
        assert_eq!(status.machines.len(), 2);
        for machine in status.machines.values() {
            assert_eq!(machine.drifted, None, "it is not known");
        }
    });
}

/// What a person does between the two lives.
type Between<'a> = &'a dyn Fn(&Scene);

/// A template that a person made is replaced: under its VMID, or under its name by another VM. The machines that were cloned from
/// the one before have drifted, and those that are cloned from then on have not.
#[test]
fn a_template_that_was_replaced_by_hand_makes_its_machines_drift() {
    let named = HASTY.replace("vmid = 9000\n", "vm_name = \"debian-13-k8s\"\n");
    assert_ne!(named, HASTY);
    let put = |scene: &Scene, vmid: u32, uuid: &str| {
        let machines = PveSpec::default().machines.into_iter();
        let mut new = machines.into_iter().find(|vm| vm.template).expect("it");
        new.vmid = vmid;
        new.config
            .insert("name".to_owned(), "debian-13-k8s".to_owned());
        let smbios = format!("uuid={uuid}");
        new.config.insert("smbios1".to_owned(), smbios);
        act(scene, &AdminAct::AddMachine(new));
    };
    let uuid = "5fd1a1c0-0000-4000-8000-00000000000a";
    let under_its_vmid = |scene: &Scene| {
        act(scene, &AdminAct::Destroy { vmid: 9000 });
        put(scene, 9000, uuid);
    };
    let under_its_name = |scene: &Scene| {
        act(
            scene,
            &AdminAct::Configure {
                vmid: 9000,
                key: "name".to_owned(),
                value: Some("debian-13-k8s-old".to_owned()),
            },
        );
        put(scene, 8999, uuid);
    };
    let only_renamed = |scene: &Scene| {
        act(
            scene,
            &AdminAct::Configure {
                vmid: 9000,
                key: "name".to_owned(),
                value: Some("debian-13-k8s-old".to_owned()),
            },
        );
    };
    let cases: [(&str, Between<'_>, usize); 4] = [
        (HASTY, &under_its_vmid, 2),
        (&named, &under_its_name, 2),
        // Nothing is there to make other machines of.
        (&named, &only_renamed, 0),
        (HASTY, &|_| {}, 0),
    ];
    for (file, between, drifted) in cases {
        simulate(async {
            let (status, scene) = reloaded(file, file, between).await;
            assert_eq!(status.machines.len(), 2);
            let parts = if drifted > 0 {
                vec![Drift::Template]
            } else {
                Vec::new()
            };
            for machine in status.machines.values() {
                assert_eq!(machine.drifted.as_ref(), Some(&parts));
            }
            assert_eq!(scene.findings(), Vec::<String>::new());
        });
    }
}
