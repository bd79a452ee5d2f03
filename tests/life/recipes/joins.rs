//! How machines join: k3s, by themselves after a boot from the network, Talos, and as kproximate's did.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use pve_autoscaler::sim::kube::Distribution;
use pve_autoscaler::sim::pve::GIB;
use pve_autoscaler::sim::workload::WorkloadPods;
use serde_json::json;

use super::{
    by_host, machines, nodes, places, recipe, template, until_none_is_left, visit, world, world_of,
};
use crate::common::{Scene, simulate};
use crate::no_template::lasting_token;
use crate::talos;
use crate::waiting::{until, while_it_lives};

/// Agents join with a token of their own, and keep back what the file says.
#[test]
fn agents_of_k3s_join() {
    simulate(async {
        let mut spec = world("recipes", "k3s");
        spec.kube.distribution = Distribution::K3s;
        spec.guests.kubeadm = String::new();
        spec.guests.k3s = "v1.34.1+k3s1".to_owned();
        template(&mut spec.pve, 8000, "debian-13-k3s", "pve1", "shared");
        let scene = Scene::of(spec);
        let looks = async {
            until(&scene, "both run", 10, || places(&scene, "web").len() == 2).await;
            let nodes = nodes(&scene, "agents");
            assert_eq!(nodes.len(), 2);
            for node in nodes {
                assert_eq!(node["status"]["allocatable"]["cpu"], "1800m");
                let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str();
                assert!(version.is_some_and(|it| it.contains("k3s")), "{version:?}");
            }
            until_none_is_left(&scene, 60).await;
            let tokens = scene.world.kube.objects("v1", "Secret");
            assert!(tokens.is_empty(), "{tokens:?}");
        };
        while_it_lives(
            &scene,
            visit(2, WorkloadPods::of("1500m", "1Gi"), 12),
            looks,
        )
        .await;
        scene.nothing_is_left();
    });
}

/// An empty disk, the network after it in the boot order, and a worker that joins with what its image has.
#[test]
fn a_machine_boots_from_the_network() {
    const TOKEN: &str = "golden.0123456789abcdef";
    simulate(async {
        let mut spec = world("recipes", "Booted from the network, without a template");
        spec.guests.guest_exec = false;
        spec.guests.joins_with = TOKEN.to_owned();
        let scene = Scene::of(spec);
        lasting_token(&scene, TOKEN).await;
        let looks = async {
            until(&scene, "it runs", 15, || places(&scene, "web").len() == 1).await;
            let all = machines(&scene);
            let vm = all.values().next().expect("a machine");
            assert_eq!(vm.config["boot"], "order=scsi0;net0");
            assert_eq!(vm.config["bios"], "ovmf");
            assert!(vm.config["scsi0"].contains("size=32G"), "{vm:?}");
            assert!(vm.config["net0"].contains("tag=20"), "{vm:?}");
            assert!(!vm.config.contains_key("ide2"), "{vm:?}");
            assert_eq!(nodes(&scene, "bare").len(), 1);
            until_none_is_left(&scene, 60).await;
        };
        while_it_lives(&scene, visit(1, WorkloadPods::of("1", "1Gi"), 20), looks).await;
        scene.nothing_is_left();
    });
}

/// The page's file with the machine configuration of the page about Talos, which lies where the file says.
#[test]
fn talos_joins_by_its_machine_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("talos-worker.yaml");
    std::fs::write(&secret, talos::machine_config()).expect("written");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&secret, mode).expect("changed");
    let path = "/etc/pve-autoscaler/talos-worker.yaml";
    let file = recipe("recipes", "Talos");
    assert!(file.contains(path), "{file}");
    simulate(async {
        let mut spec = world_of(file.replace(path, &secret.display().to_string()));
        spec.guests.talos = true;
        spec.guests.guest_exec = false;
        let image = "local:import/talos-nocloud-amd64.qcow2";
        spec.pve.images.push(image.to_owned());
        let scene = Scene::of(spec);
        lasting_token(&scene, talos::TOKEN).await;
        let looks = async {
            until(&scene, "it runs", 10, || places(&scene, "web").len() == 1).await;
            let all = machines(&scene);
            let vm = all.values().next().expect("a machine");
            assert!(vm.config["scsi0"].contains("size=20G"), "{vm:?}");
            let nodes = nodes(&scene, "talos");
            let id = json!(format!("proxmox://default/{}", vm.vmid));
            assert_eq!(nodes[0]["spec"]["providerID"], id);
            until_none_is_left(&scene, 60).await;
            assert!(scene.world.pve.isos().is_empty());
        };
        while_it_lives(&scene, visit(1, WorkloadPods::of("1", "1Gi"), 20), looks).await;
        scene.nothing_is_left();
    });
}

/// The file that `migrate` makes: full clones of kproximate's template, not on the host that was excluded, with what it left free.
#[test]
fn what_moved_from_kproximate_runs() {
    simulate(async {
        let mut spec = world("moving", "From kproximate");
        template(&mut spec.pve, 8000, "ubuntu-24.04-k8s", "pve1", "shared");
        for host in &mut spec.pve.hosts {
            host.memory = 20 * GIB;
        }
        let scene = Scene::of(spec);
        let looks = async {
            until(&scene, "some run", 10, || places(&scene, "web").len() >= 3).await;
            tokio::time::sleep(Duration::from_mins(5)).await;
            let hosts = by_host(&scene);
            assert!(!hosts.contains_key("pve3"), "{hosts:?}");
            // The router and the dns server have four GiB of pve1; eight stay free on each.
            assert!(hosts["pve1"] <= 2 && hosts["pve2"] <= 3, "{hosts:?}");
            for vm in machines(&scene).values() {
                assert!(!vm.config["scsi0"].contains("base-"), "{vm:?}");
            }
            for node in nodes(&scene, "kp-node") {
                let labels = &node["metadata"]["labels"];
                let zone = labels["topology.kubernetes.io/zone"]
                    .as_str()
                    .expect("a host");
                assert_eq!(labels["rack"], json!(format!("rack-of-{zone}")));
            }
            until_none_is_left(&scene, 60).await;
        };
        while_it_lives(
            &scene,
            visit(6, WorkloadPods::of("1500m", "1Gi"), 20),
            looks,
        )
        .await;
        scene.nothing_is_left();
    });
}
