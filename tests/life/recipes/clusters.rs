//! Several PVE clusters, and several daemons for one.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::sim::pve::{GIB, PveSpec};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};

use super::{
    by_host, deployment, machines, marked, nodes, places, template, until_none_is_left, visit,
    world,
};
use crate::common::{Scene, simulate};
use crate::hosts::on;
use crate::waiting::{until, while_it_lives};

/// `west`, with the token of the file, and a template.
fn west() -> PveSpec {
    let mut pve = PveSpec {
        cluster: "west".to_owned(),
        ..PveSpec::default()
    };
    pve.machines.retain(|machine| !machine.template);
    template(&mut pve, 8000, "debian-13", "pve1", "shared");
    "scaler@pve!autoscaler".clone_into(&mut pve.tokens[0].id);
    pve.pools.push("kubernetes".to_owned());
    pve
}

/// A world in which `east` has room for two machines at most.
fn small_east(page: &str, heading: &str) -> Scene {
    let mut spec = world(page, heading);
    "east".clone_into(&mut spec.pve.cluster);
    spec.pve.hosts.truncate(1);
    spec.pve.hosts[0].memory = 14 * GIB;
    template(&mut spec.pve, 8000, "debian-13", "pve1", "shared");
    Scene::with_regions(spec, BTreeMap::from([("west".to_owned(), west())]))
}

/// One pool over both: what `east` has no room for comes in `west`, in the resource pool of the token.
#[test]
fn a_pool_over_two_clusters_fills_the_first_one_first() {
    simulate(async {
        let scene = small_east("recipes", "Two PVE clusters");
        let west = &scene.world.further["west"].pve;
        let looks = async {
            until(&scene, "all run", 10, || places(&scene, "web").len() == 5).await;
            let (here, there) = (machines(&scene).len(), marked(west.vms()));
            assert_eq!(here + there.len(), 5);
            assert!((1..=2).contains(&here), "{here} in east");
            for vm in there.values() {
                assert_eq!(vm.pool.as_deref(), Some("kubernetes"));
            }
            assert_eq!(nodes(&scene, "workers").len(), 5);
            until_none_is_left(&scene, 60).await;
        };
        while_it_lives(
            &scene,
            visit(5, WorkloadPods::of("1500m", "1Gi"), 12),
            looks,
        )
        .await;
        scene.nothing_is_left();
    });
}

/// A pool for each: the second one only where the first cannot.
#[test]
fn a_pool_in_each_cluster_by_weight() {
    simulate(async {
        let scene = small_east("regions", "Recipe: two clusters");
        let west = &scene.world.further["west"].pve;
        let looks = async {
            until(&scene, "all run", 10, || places(&scene, "web").len() == 4).await;
            let here = machines(&scene).len();
            assert!((1..=2).contains(&here), "{here} in east");
            assert_eq!(nodes(&scene, "east").len(), here);
            assert_eq!(nodes(&scene, "west").len(), 4 - here);
            assert_eq!(marked(west.vms()).len(), 4 - here);
        };
        while_it_lives(
            &scene,
            visit(4, WorkloadPods::of("1500m", "1Gi"), 120),
            looks,
        )
        .await;
    });
}

/// Two daemons with the same file, each with a state of its own. The one that leads dies; half a minute later the other acts. Three
/// nodes on three hosts are there all the while, and at the end.
#[test]
fn the_second_daemon_takes_over() {
    simulate(async {
        let mut spec = world("recipes", "High availability");
        for (vmid, host) in [(8000, "pve1"), (8001, "pve2"), (8002, "pve3")] {
            template(&mut spec.pve, vmid, "debian-13-k8s", host, "local-lvm");
        }
        let scene = Scene::of(spec);
        let other = tempfile::tempdir().expect("a directory");
        let each = || on([("pve1", 1), ("pve2", 1), ("pve3", 1)]);
        let first = async {
            let pods_come = async {
                until(&scene, "three nodes", 5, || {
                    nodes(&scene, "workers").len() == 3
                })
                .await;
                assert_eq!(by_host(&scene), each());
                until(&scene, "pods come", 10, || {
                    let pods = scene.world.kube.objects("v1", "Pod");
                    pods.iter()
                        .any(|pod| pod["metadata"]["labels"]["app"] == "web")
                })
                .await;
            };
            tokio::select! {
                biased;
                ended = scene.world.daemon(scene.state(), None, 0) => panic!("it ended: {ended:?}"),
                () = pods_come => {}
            }
            until(&scene, "the second one makes machines", 2, || {
                machines(&scene).len() > 3
            })
            .await;
            until(&scene, "all run", 6, || places(&scene, "web").len() == 5).await;
            assert!(by_host(&scene).values().all(|count| *count <= 3));
            until(&scene, "three are left, one on each host", 90, || {
                machines(&scene).len() == 3
            })
            .await;
        };
        let second = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let ended = scene.world.daemon(other.path(), None, 100).await;
            panic!("it ended: {ended:?}");
        };
        let pods = WorkloadPods::of("3", "1Gi");
        let late = Workload {
            steps: deployment("web", 5, pods, [5, 25]).into(),
        };
        tokio::select! {
            biased;
            () = first => {}
            () = second => {}
            () = scene.preside() => {}
            () = scene.play(late) => {}
        }
        let findings = scene.findings();
        assert!(findings.is_empty(), "{findings:#?}");
    });
}
