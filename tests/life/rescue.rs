//! Somebody wants a node back while its machine is being removed.

use std::time::Duration;

use pve_autoscaler::model::policy::LEAVING_TAINT;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::workload::{Act, Step, Workload};
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
    let steps = steps.map(|(at, act)| Step { at, act });
    Workload {
        steps: steps.into(),
    }
}

/// The node is empty, and its machine waits for the volume, when somebody uncordons it and takes our taint off: pods may
/// come from then on, so that the VM keeps its power until the node was emptied anew.
#[test]
fn a_node_that_is_uncordoned_while_it_is_to_go_keeps_its_vm() {
    simulate(async {
        let scene = Scene::of(WorldSpec {
            seed: 3,
            pve: PveSpec::default(),
            kube: KubeSpec {
                detach_latency: Span::seconds(90),
                ..KubeSpec::default()
            },
            guests: GuestSpec::default(),
            config: HASTY.to_owned(),
        });
        let rescues = async {
            let node = loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let nodes = scene.world.kube.objects("v1", "Node");
                let mut marked = nodes.iter();
                let marked = marked.find(|node| node.to_string().contains(LEAVING_TAINT));
                if let Some(node) = marked {
                    break node["metadata"]["name"]
                        .as_str()
                        .expect("a name")
                        .to_owned();
                }
            };
            tokio::time::sleep(Duration::from_secs(20)).await;
            let request = http::Request::patch(format!("/api/v1/nodes/{node}"))
                .header("content-type", "application/merge-patch+json");
            let open = json!({"spec": {"taints": null, "unschedulable": null}});
            crate::patch(&scene, request, open.to_string()).await;
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
