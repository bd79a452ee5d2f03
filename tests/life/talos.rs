//! Talos: machines join by the machine configuration that they find as NoCloud user data.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::{Value, json};

use crate::common::{Scene, simulate};
use crate::joining::node;
use crate::no_template::lasting_token;
use crate::{events, visit};

/// Cluster's token, as `talosctl gen config` makes one.
pub(crate) const TOKEN: &str = "talos1.0123456789abcdef";
/// The recipe: what of a worker's configuration is another for each machine.
const PAGE: &str = include_str!("../../docs/talos.md");

/// The blocks of the page that begin with this line, in order.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    let parts = PAGE.split(&begin).skip(1);
    parts.filter_map(|part| part.split("```").next()).collect()
}

/// The page's machine configuration, with a cluster's token.
pub(crate) fn machine_config() -> String {
    blocks("yaml")[0].replace("CLUSTER-TOKEN", TOKEN)
}

/// The page's configuration of the autoscaler, with short timers, and its machine configuration in a file of this mode.
fn recipe(folder: &Path, mode: u32) -> String {
    let file = folder.join("talos-worker.yaml");
    std::fs::write(&file, machine_config()).expect("written");
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(&file, mode).expect("changed");
    let path = "/etc/pve-autoscaler/talos-worker.yaml";
    let toml = blocks("toml")[0];
    assert!(toml.contains(path), "{toml}");
    let hasty = crate::HASTY.split("[scale_up]").nth(1).expect("timers");
    format!(
        "{}\n[scale_up]{hasty}",
        toml.replace(path, &file.display().to_string())
    )
}

fn world(config: String) -> Scene {
    Scene::of(WorldSpec {
        seed: 5,
        config,
        guests: GuestSpec {
            talos: true,
            guest_exec: false,
            ..GuestSpec::default()
        },
        kube: KubeSpec::default(),
        pve: PveSpec {
            images: vec!["local:import/talos-nocloud-amd64.qcow2".to_owned()],
            ..PveSpec::default()
        },
    })
}

/// The page's recipe, from its blocks: a worker comes, with its name, labels, taints and provider id, and goes. The secret is in no
/// file of ours and, once the node is Ready, on no storage.
#[test]
fn the_recipe_of_the_page_joins_a_worker() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = recipe(folder.path(), 0o600);
    simulate(async {
        let scene = world(file);
        lasting_token(&scene, TOKEN).await;
        let mut ready = Value::Null;
        let mut seen = String::new();
        let looks = async {
            loop {
                for iso in scene.world.pve.isos() {
                    seen = String::from_utf8_lossy(&iso.content).into_owned();
                }
                let nodes = scene.world.kube.objects("v1", "Node");
                let there = nodes.first().is_some_and(|node| {
                    let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
                    node["metadata"]["annotations"]["pve-autoscaler.io/machine"].is_string()
                        && taints == 0
                });
                if there && ready.is_null() {
                    ready = node(&scene);
                    tokio::time::sleep(Duration::from_secs(15)).await;
                    let left = scene.world.pve.isos();
                    assert!(left.is_empty(), "{left:?}");
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit(), Duration::from_mins(8)) => {}
            () = looks => {}
        }
        let name = ready["metadata"]["name"].as_str().expect("it was Ready");
        assert_eq!(ready["spec"]["providerID"], "proxmox://default/9100");
        let labels = &ready["metadata"]["labels"];
        assert_eq!(labels["pve-autoscaler.io/pool"], "talos");
        assert!(seen.contains(&format!("\"local-hostname\":\"{name}\"")));
        assert!(seen.contains(TOKEN) && !seen.contains("vendor-data"));
        scene.nothing_is_left();
        let requests = format!("{:?}", scene.world.pve.requests());
        assert!(!requests.contains("/agent/"), "Talos was asked");
    });
}

/// A file that others may read is no secret: no machine starts with it, and its failure says what to do and nothing of the file.
#[test]
fn a_machine_configuration_that_all_may_read_is_not_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = recipe(folder.path(), 0o644);
    simulate(async {
        let scene = world(file);
        lasting_token(&scene, TOKEN).await;
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(3));
        scene.live(None, 0, stays, Duration::from_mins(4)).await;
        let told = events(&scene).await.join("\n");
        assert!(
            told.contains("has mode 0644; wanted are owner root"),
            "{told}"
        );
        assert!(!told.contains("talos1."), "{told}");
        assert_eq!(
            scene.world.kube.objects("v1", "Node"),
            Vec::<std::sync::Arc<Value>>::new()
        );
        assert_eq!(json!(scene.world.pve.isos().len()), json!(0));
    });
}
