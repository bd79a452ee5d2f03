//! Pools: the first one, several, with devices, with CPUs of their own, with addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pve_autoscaler::model::cpus::CpuSet;
use pve_autoscaler::sim::pve::GIB;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use serde_json::json;

use super::{
    PAGES, by_host, deployment, machines, nodes, places, pods_for, template, until_none_is_left,
    visit, world,
};
use crate::common::{Scene, simulate};
use crate::hosts::{on, said};
use crate::waiting::{until, while_it_lives};

const GPU: &str = "nvidia.com/gpu";

/// The part of the page of recipes between two texts: a word of a command that it tells to type.
fn typed(before: &str, after: &str) -> &'static str {
    let (_, rest) = PAGES[0].1.split_once(before).expect("it is typed");
    rest.split_once(after).expect("it goes on").0
}

/// The commands of the page bring as many pods, all of them run, and the nodes go when they are deleted.
#[test]
fn the_first_node_comes_and_goes() {
    let count = typed("--replicas=", "\n").parse().expect("a number");
    let cpu = typed("--requests=cpu=", ",");
    let memory = typed(&format!("--requests=cpu={cpu},memory="), "\n");
    simulate(async {
        let mut spec = world("recipes", "First node");
        template(&mut spec.pve, 8000, "debian-13", "pve1", "shared");
        let scene = Scene::of(spec);
        let looks = async {
            until(&scene, "all pods run", 5, || {
                places(&scene, "web").len() == count as usize
            })
            .await;
            assert!((2..=5).contains(&machines(&scene).len()));
            tokio::time::sleep(Duration::from_mins(10)).await;
            // Ten minutes, as the page says, and the time of the removals themselves.
            until_none_is_left(&scene, 15).await;
        };
        let pods = visit(count, WorkloadPods::of(cpu, memory), 10);
        while_it_lives(&scene, pods, looks).await;
        scene.nothing_is_left();
    });
}

/// Three ingress nodes on three hosts without any pod; batch pods on machines of their own, which go soon after their last pod; all else in
/// the general pool.
#[test]
fn several_pools_have_their_own_pods() {
    const ROLE: &str = "example.com/role";
    simulate(async {
        let mut spec = world("recipes", "Several pools");
        template(&mut spec.pve, 8000, "debian-13", "pve1", "shared");
        let scene = Scene::of(spec);
        let asks = json!({"cpu": "6", "memory": "8Gi"});
        let batch = pods_for(&asks, ROLE, Some((ROLE, "batch")));
        let steps = [
            deployment("web", 6, WorkloadPods::of("800m", "1Gi"), [5, 50]),
            deployment("batch", 3, batch, [5, 25]),
        ];
        let workload = Workload {
            steps: steps.concat(),
        };
        let looks = async {
            let each = || on([("pve1", 1), ("pve2", 1), ("pve3", 1)]);
            until(&scene, "ingress nodes without a pod", 5, || {
                nodes(&scene, "ingress").len() == 3
            })
            .await;
            assert_eq!(by_host(&scene), each());
            until(&scene, "all pods run", 10, || {
                places(&scene, "web").len() == 6 && places(&scene, "batch").len() == 3
            })
            .await;
            let of = |pool: &str| -> BTreeSet<String> {
                let all = nodes(&scene, pool).into_iter();
                all.filter_map(|node| Some(node["metadata"]["name"].as_str()?.to_owned()))
                    .collect()
            };
            let on_nodes = |app: &str| BTreeSet::from_iter(places(&scene, app));
            assert_eq!(on_nodes("batch"), of("batch"));
            assert_eq!(on_nodes("batch").len(), 3, "eight cores each");
            assert_eq!(on_nodes("web"), of("general"));
            let units: Vec<String> = machines(&scene)
                .into_values()
                .filter(|vm| vm.config["cores"] == "8" && of("batch").contains(&vm.name))
                .map(|vm| vm.config["cpuunits"].clone())
                .collect();
            assert_eq!(units, ["50"; 3]);
            until(&scene, "the batch pods are gone", 25, || {
                places(&scene, "batch").is_empty()
            })
            .await;
            until(&scene, "their nodes go at once", 3, || {
                of("batch").is_empty()
            })
            .await;
            assert_eq!(places(&scene, "web").len(), 6);
            until(&scene, "the ingress nodes are left", 60, || {
                machines(&scene).len() == 3 && by_host(&scene) == each()
            })
            .await;
        };
        while_it_lives(&scene, workload, looks).await;
    });
}

/// What cluster-autoscaler's flags become: nodes come for the pods and go five minutes after the last of them, and one stays.
#[test]
fn what_moved_from_cluster_autoscaler_runs() {
    const GROUP: &str = "example.com/group";
    simulate(async {
        let mut spec = world("recipes", "Moving from cluster-autoscaler");
        template(&mut spec.pve, 8000, "debian-13", "pve1", "shared");
        let scene = Scene::of(spec);
        let asks = json!({"cpu": "1500m", "memory": "2Gi"});
        let web = pods_for(&asks, GROUP, Some((GROUP, "workers")));
        let workload = Workload {
            steps: deployment("web", 12, web, [15, 40]).to_vec(),
        };
        let looks = async {
            until(&scene, "the node of the min", 10, || {
                nodes(&scene, "workers").len() == 1
            })
            .await;
            until(&scene, "all pods run", 20, || {
                places(&scene, "web").len() == 12
            })
            .await;
            // Four cores have room for two of them.
            assert_eq!(machines(&scene).len(), 6);
            until(&scene, "the pods are gone", 40, || {
                places(&scene, "web").is_empty()
            })
            .await;
            tokio::time::sleep(Duration::from_mins(4)).await;
            assert_eq!(machines(&scene).len(), 6, "five minutes are not over");
            // By the default they would go after ten.
            until(&scene, "one is left", 5, || machines(&scene).len() == 1).await;
            tokio::time::sleep(Duration::from_mins(15)).await;
            assert_eq!(nodes(&scene, "workers").len(), 1, "it stays for the min");
        };
        while_it_lives(&scene, workload, looks).await;
    });
}

/// Two hosts have a card each: two pods have one, the third waits and is told why. What asks for none comes to no card.
#[test]
fn devices_are_passed_through() {
    simulate(async {
        let mut spec = world("recipes", "GPU pool");
        spec.guests.device_resource = GPU.to_owned();
        template(&mut spec.pve, 8000, "debian-13", "pve1", "shared");
        let with_driver = template(&mut spec.pve, 8010, "debian-13-gpu", "pve1", "shared");
        let config = &mut with_driver.config;
        config.insert("machine".to_owned(), "q35".to_owned());
        for host in &mut spec.pve.hosts {
            host.memory = 256 * GIB;
        }
        let card = |address: &str| vec![address.to_owned()];
        let cards = [("pve1", "0000:01:00.0"), ("pve2", "0000:81:00.0")];
        let cards = cards.map(|(host, address)| (host.to_owned(), card(address)));
        spec.pve.mappings.insert("gpu".to_owned(), cards.into());
        let scene = Scene::of(spec);
        let asks = json!({"cpu": "4", "memory": "8Gi", GPU: "1"});
        let training = pods_for(&asks, GPU, None);
        let steps = [
            deployment("training", 3, training, [0, 60]),
            deployment("web", 2, WorkloadPods::of("1", "1Gi"), [0, 60]),
        ];
        let workload = Workload {
            steps: steps.concat(),
        };
        let looks = async {
            until(&scene, "two have a card", 10, || {
                places(&scene, "training").len() == 2 && places(&scene, "web").len() == 2
            })
            .await;
            tokio::time::sleep(Duration::from_mins(5)).await;
            let all = machines(&scene).into_values();
            let with: BTreeMap<String, String> = all
                .filter_map(|vm| Some((vm.host.clone(), vm.config.get("hostpci0")?.clone())))
                .collect();
            let wanted =
                ["pve1", "pve2"].map(|host| (host.to_owned(), "mapping=gpu,pcie=1".into()));
            assert_eq!(with, BTreeMap::from(wanted));
            assert_eq!(nodes(&scene, "gpu").len(), 2);
            assert_eq!(nodes(&scene, "workers").len(), 1, "for what needs no card");
            let said = said(&scene);
            assert!(said.contains("device"), "{said}");
        };
        while_it_lives(&scene, workload, looks).await;
    });
}

/// Three machines have eight CPUs each for themselves, none of them the host's own, and their memory in large pages beside them.
#[test]
fn a_low_latency_pool_is_pinned() {
    simulate(async {
        let mut spec = world("recipes", "Pinned low-latency pool");
        for host in &mut spec.pve.hosts {
            host.numa_nodes = 2;
        }
        template(&mut spec.pve, 8000, "debian-13", "pve1", "shared");
        let scene = Scene::of(spec);
        let label = "example.com/latency";
        let asks = json!({"cpu": "6", "memory": "4Gi"});
        let pods = pods_for(&asks, label, Some((label, "low")));
        let looks = async {
            until(&scene, "three run", 10, || places(&scene, "web").len() == 3).await;
            tokio::time::sleep(Duration::from_mins(5)).await;
            assert_eq!(by_host(&scene), on([("pve1", 3)]));
            let mut taken = CpuSet::read("0-1,16-17").expect("the reserved ones");
            for (vmid, vm) in machines(&scene) {
                let cpus = CpuSet::read(&vm.config["affinity"]).expect("a set");
                assert_eq!(cpus.len(), 8, "VM {vmid}");
                assert!(cpus.both(&taken).is_empty(), "VM {vmid} has {cpus}");
                taken = taken.with(&cpus);
                assert_eq!(vm.config["hugepages"], "1024");
                assert!(vm.config["numa0"].contains("policy=bind"), "{vm:?}");
                assert_eq!(vm.config["cpu"], "host");
            }
            for node in nodes(&scene, "lowlatency") {
                assert_eq!(node["status"]["allocatable"]["cpu"], "7");
            }
        };
        while_it_lives(&scene, visit(4, pods, 120), looks).await;
    });
}

/// Cards in the VLAN, and addresses one after the other out of the range.
#[test]
fn addresses_in_a_vlan_are_static() {
    simulate(async {
        let mut spec = world("recipes", "Static addresses in a VLAN");
        for host in &mut spec.pve.hosts {
            host.bridges.push("vmbr1".to_owned());
        }
        template(&mut spec.pve, 8000, "debian-13", "pve1", "shared");
        let scene = Scene::of(spec);
        let looks = async {
            until(&scene, "all run", 10, || places(&scene, "web").len() == 3).await;
            let all = machines(&scene);
            let wanted =
                ["50", "51", "52"].map(|last| format!("ip=192.0.2.{last}/24,gw=192.0.2.1"));
            let told: Vec<&String> = all.values().map(|vm| &vm.config["ipconfig0"]).collect();
            assert_eq!(told, wanted.each_ref());
            for vm in all.values() {
                let card = &vm.config["net0"];
                assert!(
                    card.contains("bridge=vmbr1") && card.contains("tag=20"),
                    "{card}"
                );
                assert_eq!(vm.config["nameserver"], "192.0.2.1");
                assert_eq!(vm.config["searchdomain"], "home.example");
            }
            let addresses: BTreeSet<String> = nodes(&scene, "workers")
                .iter()
                .map(|node| node["status"]["addresses"][0]["address"].to_string())
                .collect();
            let wanted = ["50", "51", "52"].map(|last| format!("\"192.0.2.{last}\""));
            assert_eq!(addresses, wanted.into());
            until_none_is_left(&scene, 60).await;
        };
        while_it_lives(
            &scene,
            visit(3, WorkloadPods::of("1500m", "1Gi"), 12),
            looks,
        )
        .await;
        scene.nothing_is_left();
    });
}
