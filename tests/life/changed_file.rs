//! The file is changed while machines boot: they come up as they were planned, and none is made in their place.

use std::sync::Arc;
use std::time::Duration;

use pve_autoscaler::config;
use pve_autoscaler::model::policy::STARTUP_TAINT;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::{GuestSpec, Range};
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::workload::Workload;
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::Value;

use crate::HASTY;
use crate::cloud_init::{first_boot, with_isos};
use crate::common::{Scene, simulate};
use crate::hosts::fill;
use crate::joining::table;
use crate::networks::{network, told};
use crate::pinning;

/// Guests that boot for so long that the file changes meanwhile.
fn slow() -> GuestSpec {
    let boot = Span::minutes(3);
    GuestSpec {
        boot: Range {
            min: boot,
            max: boot,
        },
        ..GuestSpec::default()
    }
}

fn spec(before: &str, guests: GuestSpec) -> WorldSpec {
    WorldSpec {
        seed: 5,
        pve: PveSpec::default(),
        kube: KubeSpec::default(),
        guests,
        config: before.to_owned(),
    }
}

/// Two machines boot when the daemon goes on with another file, until all of them should be nodes.
async fn reloaded(spec: WorldSpec, pods: Workload, after: &str) -> Scene {
    let mut scene = Scene::of(spec);
    tokio::select! {
        biased;
        () = scene.live_until(Duration::from_secs(100), 0) => {}
        () = scene.preside() => {}
        () = scene.play(pods) => {}
    }
    let vms = scene.world.pve.vms().into_iter();
    let boot = vms.filter(|vm| (9100..9121).contains(&vm.vmid) && vm.running);
    assert_eq!(boot.count(), 2);
    assert!(scene.world.kube.objects("v1", "Node").is_empty());
    scene.world.settings = Arc::new(config::parse(after, "after").expect("it is valid"));
    tokio::select! {
        biased;
        () = scene.live_on(1, |_| {}) => {}
        () = scene.preside() => {}
        () = tokio::time::sleep(Duration::from_mins(12)) => {}
    }
    scene
}

/// The two machines became nodes, and no other was made.
fn both_came(scene: &Scene) -> Vec<Arc<Value>> {
    let requests = scene.world.pve.requests();
    let mut destroyed = requests.iter().filter(|seen| seen.method == "DELETE");
    let destroyed = destroyed.find(|seen| seen.path.contains("/qemu/"));
    assert!(destroyed.is_none(), "{destroyed:?}");
    assert_eq!(scene.machines_made(), 2, "one in the place of another");
    let nodes = scene.world.kube.objects("v1", "Node");
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        let taints = node["spec"]["taints"].to_string();
        assert!(!taints.contains(STARTUP_TAINT), "{taints}");
    }
    assert_eq!(scene.findings(), Vec::<String>::new());
    nodes
}

#[test]
fn machines_whose_network_was_taken_out_keep_their_addresses() {
    simulate(async {
        let before = network("[\"192.0.2.50-192.0.2.59\"]", 3);
        let scene = reloaded(spec(&before, slow()), fill(2), HASTY).await;
        both_came(&scene);
        let told = told(&scene);
        assert_eq!(told.len(), 2);
        for (text, last) in told.iter().zip([50, 51]) {
            let address = format!("ip=192.0.2.{last}/24,");
            assert!(text.starts_with(&address), "{told:?}");
        }
    });
}

/// Ranges in which the addresses are not, and another gateway.
#[test]
fn machines_whose_network_became_another_keep_their_addresses() {
    simulate(async {
        let before = network("[\"192.0.2.50-192.0.2.59\"]", 3);
        let after = network("[\"192.0.2.80-192.0.2.89\"]", 3).replace("192.0.2.1\"", "192.0.2.3\"");
        let scene = reloaded(spec(&before, slow()), fill(2), &after).await;
        both_came(&scene);
        for text in told(&scene) {
            assert!(text.contains(",gw=192.0.2.1,"), "{text}");
        }
    });
}

#[test]
fn machines_whose_cpus_are_not_theirs_by_the_file_any_more_keep_them() {
    simulate(async {
        let before = pinning::spec(5, "");
        let config = before.config.clone();
        let after = config.replace("cpu_pinning = true\n", "");
        assert_ne!(after, config);
        let spec = WorldSpec {
            guests: slow(),
            ..before
        };
        let scene = reloaded(spec, pinning::pods(2, 120), &after).await;
        both_came(&scene);
        assert_eq!(pinning::alone(&scene).len(), 2 + 2 * 8);
    });
}

/// A guest whose agent runs no commands was told by cloud-init how it joins: nobody asks its agent.
#[test]
fn machines_that_cloud_init_joins_go_on_so() {
    simulate(async {
        let guests = GuestSpec {
            guest_exec: false,
            ..slow()
        };
        let scene = reloaded(spec(&first_boot(), guests), fill(2), &with_isos("", "")).await;
        both_came(&scene);
    });
}

/// The template has kubeadm alone.
#[test]
fn machines_join_by_the_method_that_they_were_planned_with() {
    simulate(async {
        let after = table(
            "join",
            "method = \"k3s\"\nendpoint = \"k3s.example.org:6443\"\n",
        );
        let scene = reloaded(spec(HASTY, slow()), fill(2), &after).await;
        both_came(&scene);
    });
}

/// Pods were planned with what the kubelet was to keep then.
#[test]
fn kubelets_keep_what_they_were_planned_with() {
    simulate(async {
        let kubelet = |cpu: &str| {
            table(
                "kubelet",
                &format!("kube_reserved = {{ cpu = \"{cpu}\" }}\n"),
            )
        };
        let scene = reloaded(spec(&kubelet("200m"), slow()), fill(2), &kubelet("400m")).await;
        for node in both_came(&scene) {
            assert_eq!(node["status"]["allocatable"]["cpu"], "1800m");
        }
    });
}
