//! What cloud-init is told on an ISO of the machine's own, and machines that join by it where the guest agent runs no commands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::pve::transport::memory::RouterTransport;
use pve_autoscaler::pve::{Client, ConfigUpdate, IsoOwner, iso_name};
use pve_autoscaler::sim::faults::{CallCounter, Kill, KillMoment};
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::{Distribution, KubeSpec};
use pve_autoscaler::sim::pve::{AdminAct, Pve, PveSpec};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::Value;

use crate::common::{Scene, simulate};
use crate::hosts::act;
use crate::joining::{node, table};
use crate::{HASTY, events, expect_told, visit};

/// A configuration with ISOs for cloud-init, with more lines for their table, and more for the pool's joins.
pub(crate) fn with_isos(texts: &str, join: &str) -> String {
    let file = HASTY.replace(
        "[instance_type.small]",
        &format!("[template.debian.cloud_init]\nstorage = \"local\"\n{texts}[instance_type.small]"),
    );
    file.replace(
        "[scale_up]",
        &format!("[pool.general.join]\n{join}[scale_up]"),
    )
}

/// Machines join at their first boot.
pub(crate) fn first_boot() -> String {
    with_isos("", "delivery = \"cloud-init\"\n")
}

/// Guests whose agent runs no commands, as in RHEL 10.
pub(crate) fn silent() -> GuestSpec {
    GuestSpec {
        guest_exec: false,
        ..GuestSpec::default()
    }
}

/// All files that were seen on ISOs while `scene` lives, and the ISOs' names.
async fn watch(scene: &Scene, seen: &mut BTreeSet<String>, texts: &mut Vec<String>) {
    loop {
        for iso in scene.world.pve.isos() {
            let new = seen.insert(format!("{} {}", iso.host, iso.volume));
            if new {
                texts.push(String::from_utf8_lossy(&iso.content).into_owned());
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What the VMs' configurations hold now, and every request that went to PVE.
fn shown(scene: &Scene) -> String {
    let requests = scene.world.pve.requests();
    let vms = scene.world.pve.vms();
    format!("{vms:?} {requests:?}")
}

#[test]
fn a_guest_whose_agent_runs_no_commands_joins_at_its_first_boot() {
    simulate(async {
        let scene = Scene::new(5, &first_boot(), silent());
        let (mut seen, mut texts) = (BTreeSet::new(), Vec::new());
        let mut ready = Value::Null;
        let looks = async {
            // Before the sweep, which comes two minutes after the start: nothing is left for it.
            tokio::time::sleep(Duration::from_secs(112)).await;
            ready = node(&scene);
            assert!(
                scene.world.pve.isos().is_empty(),
                "{:?}",
                scene.world.pve.isos()
            );
            assert!(!shown(&scene).contains(".iso,"), "{}", shown(&scene));
            let tokens = scene.world.kube.objects("v1", "Secret");
            assert!(tokens.is_empty(), "{tokens:?}");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit(), Duration::from_mins(6)) => {}
            () = watch(&scene, &mut seen, &mut texts) => {}
            () = looks => {}
        }
        let labels = &ready["metadata"]["labels"];
        assert_eq!(labels["pve-autoscaler.io/pool"], "general");
        assert_eq!(scene.machines_made(), 1);
        scene.nothing_is_left();
        let requests = scene.world.pve.requests();
        let asked = requests.iter().any(|seen| seen.path.contains("/agent/"));
        assert!(!asked, "the guest agent was asked");
        // One image, on the machine's host, of its VMID.
        let names: Vec<&String> = seen.iter().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(names[0].starts_with("pve"), "{names:?}");
        assert!(
            names[0].contains(" local:iso/pve-autoscaler-9100-"),
            "{names:?}"
        );
        let text = texts.join("");
        assert!(text.contains("\"local-hostname\":\"general-"), "{text}");
        assert!(text.contains("\"package_upgrade\":false"), "{text}");
    });
}

/// What to do stands in the failure, and the configuration that does it is the one above.
#[test]
fn an_agent_that_runs_no_commands_says_what_to_do() {
    simulate(async {
        let scene = Scene::new(5, HASTY, silent());
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(3));
        scene.live(None, 0, stays, Duration::from_mins(4)).await;
        let wanted = "delivery = \"cloud-init\" in [pool.general.join]";
        expect_told(&events(&scene).await, &[("", wanted)]);
    });
}

#[test]
fn agents_of_k3s_join_at_their_first_boot() {
    for (method, guests, distribution) in [
        (
            "k3s",
            GuestSpec {
                k3s: "v1.34.1+k3s1".to_owned(),
                kubeadm: String::new(),
                ..silent()
            },
            Distribution::K3s,
        ),
        (
            "rke2",
            GuestSpec {
                rke2: "v1.33.5+rke2r1".to_owned(),
                kubeadm: String::new(),
                ..silent()
            },
            Distribution::Rke2,
        ),
    ] {
        simulate(async {
            let join = format!("delivery = \"cloud-init\"\nmethod = \"{method}\"\n");
            let scene = Scene::of(WorldSpec {
                seed: 6,
                pve: PveSpec::default(),
                kube: KubeSpec {
                    distribution,
                    ..KubeSpec::default()
                },
                guests,
                config: with_isos("", &join),
            });
            scene.live(None, 0, visit(), Duration::from_mins(6)).await;
            assert_eq!(scene.machines_made(), 1, "{method}");
            scene.nothing_is_left();
        });
    }
}

/// The settings of kubelets, old kubeadms and commands: what the guest agent would hand over, cloud-init does.
#[test]
fn a_first_boot_knows_every_version_and_method() {
    let command = "delivery = \"cloud-init\"\nmethod = \"command\"\ncommand = \"sim-agent --name {{ machine }} --taints {{ taints }}\"\n";
    let kubeadm = "delivery = \"cloud-init\"\n";
    for (version, join, made) in [
        ("v1.24.17", kubeadm, 1),
        ("v1.29.3", kubeadm, 1),
        ("v1.30.0", kubeadm, 1),
        ("v1.36.2", kubeadm, 1),
        ("v1.34.1", command, 1),
    ] {
        simulate(async {
            let guests = GuestSpec {
                kubeadm: version.to_owned(),
                ..silent()
            };
            let scene = Scene::new(5, &with_isos("", join), guests);
            scene.live(None, 0, visit(), Duration::from_mins(6)).await;
            assert_eq!(scene.machines_made(), made, "{version} {join}");
            scene.nothing_is_left();
        });
    }
    let settings = table("kubelet", "kube_reserved = { cpu = \"300m\" }\n").replace(
        "[instance_type.small]",
        "[template.debian.cloud_init]\nstorage = \"local\"\n[instance_type.small]",
    );
    let settings = settings.replace(
        "[scale_up]",
        &format!("[pool.general.join]\n{kubeadm}[scale_up]"),
    );
    simulate(async {
        let scene = Scene::new(5, &settings, silent());
        scene.live(None, 0, visit(), Duration::from_mins(6)).await;
        scene.nothing_is_left();
        assert_eq!(scene.machines_made(), 1);
    });
}

const TEXTS: &str = r#"
user_data = """
#cloud-config
fqdn: {{ machine }}.example.org
write_files:
- path: /etc/where
  content: "{{ pool }}/{{ instance_type }} is {{ vmid }} on {{ host }} in {{ zone }} of {{ region }}"
"""
vendor_data = """
#!/bin/sh
echo {{ machine }}
"""
network_config = """
version: 2
ethernets:
{% for nic in nics %}
  nic{{ loop.index0 }}:
    match: { macaddress: "{{ nic.mac }}" }
    dhcp4: {{ nic.dhcp4 }}
{% endfor %}
"""
"#;

/// The same texts in files beside the configuration, and the lines that name them.
fn in_files(folder: &std::path::Path) -> String {
    let texts: toml::Table = toml::from_str(TEXTS).expect("TOML");
    let lines = texts.iter().map(|(key, text)| {
        let path = folder.join(key);
        std::fs::write(&path, text.as_str().expect("a text")).expect("written");
        format!("{key}_file = {:?}\n", path.display().to_string())
    });
    lines.collect()
}

/// A person's texts come to the guest, filled in, also where the guest agent joins it, whether they are in the configuration or in files
/// that it names.
#[test]
fn texts_of_the_configuration_reach_the_guest() {
    let folder = tempfile::tempdir().expect("a folder");
    for lines in [TEXTS.to_owned(), in_files(folder.path())] {
        simulate(async {
            let scene = Scene::new(5, &with_isos(&lines, ""), GuestSpec::default());
            let (mut seen, mut texts) = (BTreeSet::new(), Vec::new());
            tokio::select! {
                biased;
                () = scene.live(None, 0, visit(), Duration::from_mins(6)) => {}
                () = watch(&scene, &mut seen, &mut texts) => {}
            }
            scene.nothing_is_left();
            assert_eq!(scene.machines_made(), 1);
            let text = texts.join("");
            let host = seen
                .iter()
                .next()
                .expect("one")
                .split(' ')
                .next()
                .expect("a host");
            let wanted = format!("\"general/small is 9100 on {host} in {host} of default\"");
            for part in [&*wanted, "dhcp4: True", "nic0:", "fqdn: general-"] {
                assert!(text.contains(part), "no {part} by {lines}: {text}");
            }
            // A shell script and ours, in base64.
            assert!(text.contains("Content-Type: text/plain; charset"), "{text}");
        });
    }
}

/// Somebody stops a VM while it boots for the first time: it starts again with an image of its own, and a token that counts.
#[test]
fn a_first_boot_that_is_cut_short_is_begun_again() {
    simulate(async {
        let scene = Scene::new(5, &first_boot(), silent());
        let mut offs = 0;
        let stops = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let vms = scene.world.pve.vms().into_iter();
                let mut ours = vms.filter(|vm| vm.running && (9100..9121).contains(&vm.vmid));
                if let Some(vm) = ours.next().filter(|_| offs == 0) {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    act(&scene, &AdminAct::PowerOff { vmid: vm.vmid });
                    offs += 1;
                }
            }
        };
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(4));
        tokio::select! {
            biased;
            () = scene.live(None, 0, stays, Duration::from_mins(12)) => {}
            () = stops => {}
        }
        assert_eq!(offs, 1);
        scene.nothing_is_left();
    });
}

/// The daemon dies at each call around the first boot, and is started again: nothing is left, no image and no token.
#[test]
fn a_crash_at_any_call_of_a_first_boot_leaves_nothing() {
    let calls = simulate(async {
        let scene = Scene::new(3, &first_boot(), silent());
        let counter = CallCounter::new(None);
        scene
            .live(Some(&counter), 0, visit(), Duration::from_mins(6))
            .await;
        scene.nothing_is_left();
        counter.seen()
    });
    let mut tried = BTreeMap::new();
    for (index, name) in calls.iter().enumerate() {
        let about = [
            "upload",
            "content",
            "secrets",
            "/config",
            "status/start",
            "/qemu/9100",
        ];
        if name.starts_with("GET ") || !about.iter().any(|part| name.contains(part)) {
            continue;
        }
        for when in [KillMoment::BeforeSending, KillMoment::AfterCarriedOut] {
            let call = index as u64 + 1;
            let findings = simulate(async {
                let scene = Scene::new(3, &first_boot(), silent());
                let counter = CallCounter::new(Some(Kill { call, when }));
                scene
                    .live_and_die(&counter, visit(), Duration::from_mins(16))
                    .await;
                scene.verdict()
            });
            assert!(findings.is_empty(), "{when:?} {name}: {findings:?}");
            *tried.entry(name.clone()).or_insert(0) += 1;
        }
    }
    let kinds = ["upload", "content"].map(|part| tried.keys().any(|name| name.contains(part)));
    assert!(kinds.iter().all(|seen| *seen), "{tried:?}");
}

/// PVE as its administrator reaches it.
pub(crate) fn administrator(pve: &Pve) -> Client {
    Client::new(Arc::new(RouterTransport::new(pve.router_as("root@pam"))))
}

/// The name of an image of this installation's in a region.
pub(crate) fn own_name(scene: &Scene, region: &str, vmid: u32) -> String {
    let spaces = scene.world.kube.objects("v1", "Namespace");
    let mut uids = spaces.iter().filter_map(|space| {
        let about = &space["metadata"];
        about["uid"]
            .as_str()
            .filter(|_| about["name"] == "kube-system")
    });
    let uid = uids.next().expect("there is kube-system");
    iso_name(
        &IsoOwner::of(&format!("{uid}/test"), region),
        vmid,
        b"an image",
    )
}

/// The names of all images, in their order.
pub(crate) fn names(pve: &Pve) -> Vec<String> {
    let isos = pve.isos().into_iter();
    let named = isos.map(|iso| iso.volume.split_once(":iso/").expect("an ISO").1.to_owned());
    named.collect::<BTreeSet<_>>().into_iter().collect()
}

/// An image of a VM that is gone, and nobody knows of: it is swept away. Those of others stay: another cluster's or region's of the same
/// VMID, and what an older version brought, of which nothing says whose it is.
#[test]
fn what_nobody_needs_is_swept_away() {
    simulate(async {
        let scene = Scene::new(5, &first_boot(), silent());
        let client = administrator(&scene.world.pve);
        let left = own_name(&scene, "default", 9105);
        let of_west = own_name(&scene, "west", 9105);
        let others = [
            "debian-13.iso",
            "pve-autoscaler-7000-0123456789abcdef.iso",
            "pve-autoscaler-9105-0123456789ab-0123456789abcdef.iso",
            "pve-autoscaler-9105-0123456789abcdef.iso",
            &of_west,
        ];
        for name in [&*left].iter().chain(&others) {
            let sent = client.upload_iso("pve2", "local", name, b"an image").await;
            sent.expect("it is sent");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(names(&scene.world.pve).len(), 6);
        let none = Workload::visit("none", 0, WorkloadPods::of("1", "1Gi"), Span::minutes(1));
        scene.live(None, 0, none, Duration::from_mins(4)).await;
        let mut wanted = others.map(str::to_owned);
        wanted.sort();
        assert_eq!(names(&scene.world.pve), wanted);
    });
}

/// Hosts that have no storage for ISOs in common: pve1 has `local`, the others `files`.
fn of_unequal_hosts() -> Scene {
    let mut pve = PveSpec::default();
    let local = pve.storages.iter_mut().find(|of| of.name == "local");
    let local = local.expect("it is there");
    local.hosts = Some(vec!["pve1".to_owned()]);
    let mut files = local.clone();
    files.hosts = Some(vec!["pve2".to_owned(), "pve3".to_owned()]);
    "files".clone_into(&mut files.name);
    pve.storages.push(files);
    let config = first_boot().replace("storage = \"local\"", "storage = [\"files\", \"local\"]");
    Scene::of(WorldSpec {
        seed: 5,
        pve,
        kube: KubeSpec::default(),
        guests: silent(),
        config,
    })
}

/// One file for hosts with different storages: each machine's image comes to the first of the list that its host has, is taken away from there, and
/// what is left on either is swept away.
#[test]
fn images_come_to_the_storage_of_the_list_that_their_host_has() {
    simulate(async {
        let scene = of_unequal_hosts();
        let three = WorkloadPods::of("1500m", "1Gi");
        let three = Workload::visit("web", 3, three, Span::seconds(90));
        let (mut seen, mut texts) = (BTreeSet::new(), Vec::new());
        tokio::select! {
            biased;
            () = scene.live(None, 0, three, Duration::from_mins(8)) => {}
            () = watch(&scene, &mut seen, &mut texts) => {}
        }
        assert_eq!(scene.machines_made(), 3);
        let places: BTreeSet<&str> = seen
            .iter()
            .filter_map(|image| image.split(":iso/").next())
            .collect();
        let wanted = ["pve1 local", "pve2 files", "pve3 files"];
        assert_eq!(places, BTreeSet::from(wanted), "{seen:?}");
        assert_eq!(names(&scene.world.pve), [""; 0]);
        scene.nothing_is_left();
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
    simulate(async {
        let scene = of_unequal_hosts();
        let client = administrator(&scene.world.pve);
        let left = own_name(&scene, "default", 9105);
        for (host, storage) in [("pve1", "local"), ("pve2", "files"), ("pve3", "files")] {
            for name in [&*left, "debian-13.iso"] {
                let sent = client.upload_iso(host, storage, name, b"an image").await;
                sent.expect("it is sent");
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(scene.world.pve.isos().len(), 6);
        let none = Workload::visit("none", 0, WorkloadPods::of("1", "1Gi"), Span::minutes(1));
        scene.live(None, 0, none, Duration::from_mins(4)).await;
        assert_eq!(scene.world.pve.isos().len(), 3);
        assert_eq!(names(&scene.world.pve), ["debian-13.iso"]);
    });
}

/// A storage for ISOs that another installation has, too, with machines of the same VMIDs: a machine of ours comes, gets Ready, and goes,
/// and so does an hour's sweep, and the other's images are there all the while.
#[test]
fn images_of_another_installation_stay_on_a_shared_storage() {
    simulate(async {
        let config = first_boot().replace("storage = \"local\"", "storage = \"shared\"");
        let scene = Scene::of(WorldSpec {
            seed: 5,
            pve: with_shared_isos("sim"),
            kube: KubeSpec::default(),
            guests: silent(),
            config,
        });
        let client = administrator(&scene.world.pve);
        let others = [
            "pve-autoscaler-9100-0123456789ab-0123456789abcdef.iso",
            "pve-autoscaler-9100-0123456789abcdef.iso",
        ];
        for name in others {
            let sent = client.upload_iso("pve2", "shared", name, b"an image").await;
            sent.expect("it is sent");
        }
        let (mut seen, mut texts) = (BTreeSet::new(), Vec::new());
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit(), Duration::from_mins(70)) => {}
            () = watch(&scene, &mut seen, &mut texts) => {}
        }
        assert_eq!(scene.machines_made(), 1);
        // The machine had one of its own.
        assert_eq!(seen.len(), 3, "{seen:?}");
        assert_eq!(names(&scene.world.pve), others.map(str::to_owned));
    });
}

/// A cluster whose shared storage takes ISOs.
pub(crate) fn with_shared_isos(name: &str) -> PveSpec {
    let mut spec = PveSpec {
        cluster: name.to_owned(),
        ..PveSpec::default()
    };
    let shared = spec.storages.iter_mut().find(|of| of.name == "shared");
    shared.expect("it is there").content.push_str(",iso");
    spec
}

/// An older version brought the image, whose name has the VMID alone: the VM has it in a drive, and so it goes as ever.
#[test]
fn an_image_that_an_older_version_brought_goes_with_its_vms_proof() {
    const OLD: &str = "pve-autoscaler-9100-0123456789abcdef.iso";
    simulate(async {
        let config = first_boot().replace("storage = \"local\"", "storage = \"shared\"");
        let scene = Scene::of(WorldSpec {
            seed: 5,
            pve: with_shared_isos("sim"),
            kube: KubeSpec::default(),
            guests: silent(),
            config,
        });
        let client = administrator(&scene.world.pve);
        let sent = client.upload_iso("pve2", "shared", OLD, b"an image").await;
        sent.expect("it is sent");
        let mut put = false;
        let puts = async {
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let vms = scene.world.pve.vms().into_iter();
                let mut running = vms.filter(|vm| vm.vmid == 9100 && vm.running);
                let Some(vm) = running.next().filter(|_| !put) else {
                    continue;
                };
                let mut drives = vm
                    .config
                    .iter()
                    .filter(|(_, drive)| drive.contains(":iso/"));
                let (drive, _) = drives.next().expect("it starts with its image");
                let set = [(drive.clone(), format!("shared:iso/{OLD},media=cdrom"))];
                let update = ConfigUpdate {
                    set: set.into(),
                    ..ConfigUpdate::default()
                };
                put = client.update_config(&vm.host, 9100, &update).await.is_ok();
            }
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit(), Duration::from_mins(6)) => {}
            () = puts => {}
        }
        assert!(put, "the VM has it");
        assert_eq!(scene.machines_made(), 1);
        assert_eq!(names(&scene.world.pve), Vec::<String>::new());
        scene.nothing_is_left();
    });
}
