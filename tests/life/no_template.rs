//! Machines without a template: PVE makes their VMs of settings, they boot what they find, and join by themselves.

use std::time::Duration;

use pve_autoscaler::model::mark::{Ownership, read};
use pve_autoscaler::sim::faults::{CallCounter, Kill, KillMoment};
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::{Value, json};

use crate::common::{Scene, simulate};
use crate::joining::node;
use crate::{HASTY, visit};
use pve_autoscaler::model::time::Span;

/// The token that lies in the image.
pub(crate) const TOKEN: &str = "golden.0123456789abcdef";

/// A configuration without a template to clone: VMs made of settings, with more lines for these.
pub(crate) fn of_settings(create: &str, more: &str) -> String {
    let file = HASTY.replace(
        "[template.debian]\nvmid = 9000\n",
        &format!(
            "[template.debian]\nbridge = \"vmbr0\"\n[template.debian.create]\nstorage = \"local-lvm\"\n{create}"
        ),
    );
    assert_ne!(file, HASTY);
    file.replace(
        "[scale_up]",
        &format!("[pool.general.join]\nmethod = \"self\"\n{more}[scale_up]"),
    )
}

/// Guests whose image has a token.
pub(crate) fn golden() -> GuestSpec {
    GuestSpec {
        guest_exec: false,
        joins_with: TOKEN.to_owned(),
        ..GuestSpec::default()
    }
}

/// Makes the token that an image, or a machine configuration, has: somebody else than the daemon.
pub(crate) async fn lasting_token(scene: &Scene, token: &str) {
    let (id, secret) = token.split_once('.').expect("a token");
    let body = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {
            "name": format!("bootstrap-token-{id}"), "namespace": "kube-system",
            "labels": {"made-by": "person"},
        },
        "stringData": {
            "token-id": id, "token-secret": secret, "expiration": "2100-01-01T00:00:00Z",
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    });
    let post = http::Request::post("/api/v1/namespaces/kube-system/secrets");
    let made = crate::call(scene, post, body.to_string()).await;
    assert_eq!(made["kind"], "Secret", "{made}");
}

/// A VM whose worker is there from the beginning to its end: one disk, a boot order, a name in its firmware; a node with the labels
/// of its pool; no token of ours, and nobody asks the guest anything.
#[test]
fn a_vm_of_settings_boots_from_the_network_and_joins_by_itself() {
    simulate(async {
        let scene = Scene::new(5, &of_settings("", ""), golden());
        lasting_token(&scene, TOKEN).await;
        let (mut ready, mut vm) = (Value::Null, None);
        let looks = async {
            tokio::time::sleep(Duration::from_secs(112)).await;
            ready = node(&scene);
            vm = scene.world.pve.vm(9100);
            let tokens = scene.world.kube.objects("v1", "Secret");
            assert_eq!(tokens.len(), 1, "the image's own alone: {tokens:?}");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit(), Duration::from_mins(6)) => {}
            () = looks => {}
        }
        let vm = vm.expect("a VM");
        assert_eq!(vm.config["boot"], "order=scsi0;net0");
        assert!(vm.config["scsi0"].contains("size=20G"), "{vm:?}");
        assert_eq!(vm.config["cores"], "2");
        assert_eq!(vm.config["memory"], "4096");
        let Ownership::Marked(mark) = read(&vm.description) else {
            panic!("{vm:?}");
        };
        assert!(!vm.description.contains("token"), "{vm:?}");
        assert_eq!(ready["metadata"]["name"], *mark.machine);
        assert_eq!(ready["status"]["nodeInfo"]["systemUUID"], *vm.uuid);
        let labels = &ready["metadata"]["labels"];
        assert_eq!(labels["pve-autoscaler.io/pool"], "general");
        assert_eq!(labels["node.kubernetes.io/instance-type"], "small");
        assert_eq!(scene.machines_made(), 1);
        scene.nothing_is_left();
        let requests = scene.world.pve.requests();
        let asked = |part: &str| requests.iter().any(|seen| seen.path.contains(part));
        assert!(!asked("/agent/"), "the guest agent was asked");
        assert!(!asked("/clone"), "something was cloned");
    });
}

/// An image grows to what the instance type says, as a template's disk does.
#[test]
fn an_imported_image_grows_to_the_instance_types_disk() {
    simulate(async {
        let image = "local:import/debian.qcow2";
        let create =
            format!("image = \"{image}\"\nbios = \"ovmf\"\nsecure_boot = true\ntpm = true\n");
        let spec = WorldSpec {
            seed: 5,
            config: of_settings(&create, ""),
            guests: golden(),
            pve: PveSpec {
                images: vec![image.to_owned()],
                ..PveSpec::default()
            },
            kube: KubeSpec::default(),
        };
        let scene = Scene::of(spec);
        lasting_token(&scene, TOKEN).await;
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(30));
        scene.live(None, 0, stays, Duration::from_mins(3)).await;
        let vm = scene.world.pve.vm(9100).expect("a VM");
        assert!(vm.config["scsi0"].contains("size=20G"), "{vm:?}");
        assert_eq!(vm.config["bios"], "ovmf");
        let firmware = &vm.config["efidisk0"];
        assert!(firmware.contains("pre-enrolled-keys=1"), "{firmware}");
        assert!(vm.config["tpmstate0"].contains("version=v2.0"), "{vm:?}");
        assert_eq!(vm.config["boot"], "order=scsi0");
        drop(node(&scene));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// There is no template to set an option at: the file's options come to the VM before it starts, and its UUID and name stay.
#[test]
fn a_vm_of_settings_has_the_options_of_the_file() {
    simulate(async {
        let options = "[template.debian.options]\nrng0 = \"source=/dev/urandom\"\ntablet = false\nmachine = \"q35,viommu=virtio\"\n\
            smbios1 = \"manufacturer=Shop\"\n";
        let scene = Scene::new(5, &of_settings(options, ""), golden());
        lasting_token(&scene, TOKEN).await;
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(30));
        scene.live(None, 0, stays, Duration::from_mins(3)).await;
        let vm = scene.world.pve.vm(9100).expect("a VM");
        for (key, value) in [
            ("rng0", "source=/dev/urandom"),
            ("tablet", "0"),
            ("machine", "q35,viommu=virtio"),
        ] {
            assert_eq!(vm.config.get(key).map(String::as_str), Some(value), "{key}");
        }
        let smbios = &vm.config["smbios1"];
        let beginning = "base64=1,manufacturer=U2hvcA==,serial=";
        assert!(smbios.starts_with(beginning), "{smbios}");
        let ready = node(&scene);
        assert_eq!(ready["status"]["nodeInfo"]["systemUUID"], *vm.uuid);
        let labels = &ready["metadata"]["labels"];
        assert_eq!(labels["pve-autoscaler.io/pool"], "general");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Its kubelet tells another system UUID than the VM's: the name alone proves nothing. The node is not taken, and gets neither the
/// pool's labels nor our annotation.
#[test]
fn a_node_with_the_name_and_another_uuid_is_not_taken() {
    simulate(async {
        let scene = Scene::new(5, &of_settings("", ""), golden());
        lasting_token(&scene, TOKEN).await;
        let thief = "0b5f3a6e-0000-4000-8000-0123456789ab";
        scene.world.guests.lie(9100, Some(thief));
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(30));
        scene.live(None, 0, stays, Duration::from_mins(3)).await;
        let nodes = scene.world.kube.objects("v1", "Node");
        let mut lying = nodes
            .iter()
            .filter(|node| node["status"]["nodeInfo"]["systemUUID"] == thief);
        let node = lying.next().expect("it has registered");
        let annotations = &node["metadata"]["annotations"];
        assert_eq!(annotations["pve-autoscaler.io/machine"], Value::Null);
        let labels = &node["metadata"]["labels"];
        assert_eq!(labels["pve-autoscaler.io/pool"], Value::Null);
    });
}

/// The daemon dies at each change that it asks of PVE, before it is sent or after it was carried out, and the machine is made once.
#[test]
fn a_crash_at_any_change_makes_no_second_machine() {
    let file = of_settings("", "");
    let calls = simulate(async {
        let scene = Scene::new(3, &file, golden());
        lasting_token(&scene, TOKEN).await;
        let counter = CallCounter::new(None);
        scene
            .live(Some(&counter), 0, visit(), Duration::from_mins(6))
            .await;
        scene.nothing_is_left();
        counter.seen()
    });
    let changes = calls.iter().enumerate();
    let changes = changes.filter(|(_, name)| !name.starts_with("GET ") && name.contains("/qemu"));
    let changes: Vec<(usize, &String)> = changes.collect();
    assert!(changes.len() >= 4, "{changes:?}");
    for (index, name) in changes {
        for when in [KillMoment::BeforeSending, KillMoment::AfterCarriedOut] {
            let call = index as u64 + 1;
            simulate(async {
                let scene = Scene::new(3, &file, golden());
                lasting_token(&scene, TOKEN).await;
                let counter = CallCounter::new(Some(Kill { call, when }));
                scene
                    .live_and_die(&counter, visit(), Duration::from_mins(30))
                    .await;
                let findings = scene.findings();
                assert!(findings.is_empty(), "{name} {when:?}: {findings:#?}");
                let made = scene.machines_made();
                assert!(made <= 2, "{name} {when:?}: {made}");
                scene.nothing_is_left();
            });
        }
    }
}
