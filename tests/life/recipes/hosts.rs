//! Hosts: unequal ones, those that shall sleep, those that are used for other things, and what their network is.

use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::pve::{AdminAct, GIB, StorageKind, StorageSpec, VmFacts};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use serde_json::json;

use super::templates::{hosts, storage};
use super::{
    by_host, machines, nodes, places, pods_for, template, until_none_is_left, visit, world,
};
use crate::common::{Scene, simulate};
use crate::hosts::{act, on};
use crate::waiting::{until, while_it_lives};

/// Cards in VLAN 20 behind the firewall with a queue for each core, and a weight for each pool.
#[test]
fn machines_have_a_network_card_of_their_own_kind_and_weight() {
    simulate(async {
        let heading = "A network card of its own kind, and weight where CPUs are short";
        let mut spec = world("hosts", heading);
        for host in &mut spec.pve.hosts {
            host.bridges.push("vmbr1".to_owned());
        }
        template(&mut spec.pve, 8000, "debian-13", "pve1", "shared");
        let scene = Scene::of(spec);
        // A pod that tolerates the taint fits both pools; with the label of `batch` it fits that one alone.
        let asks = json!({"cpu": "3", "memory": "2Gi"});
        let pool = Some(("pve-autoscaler.io/pool", "batch"));
        let batch = pods_for(&asks, "dedicated", pool);
        let looks = async {
            let units = |of: &str| {
                let all = machines(&scene);
                all.values()
                    .filter(|vm| vm.config["cpuunits"] == of)
                    .count()
            };
            until(&scene, "the batch pods run", 10, || {
                places(&scene, "web").len() == 2
            })
            .await;
            assert_eq!((units("100"), units("300")), (2, 0));
            for vm in machines(&scene).values() {
                let card = &vm.config["net0"];
                for part in [
                    "bridge=vmbr1",
                    "tag=20",
                    "firewall=1",
                    "mtu=1400",
                    "queues=4",
                ] {
                    assert!(card.contains(part), "{part} is not in {card}");
                }
            }
            let pods = WorkloadPods::of("3", "2Gi");
            let online = Workload::visit("online", 1, pods, Span::minutes(30));
            tokio::select! {
                () = scene.play(online) => {}
                () = until(&scene, "the other pod runs", 10, || {
                    places(&scene, "online").len() == 1
                }) => {}
            }
            assert_eq!((units("100"), units("300")), (2, 1));
        };
        while_it_lives(&scene, visit(2, batch, 120), looks).await;
    });
}

/// Jobs for cards go to the two hosts that have one; all else stays on the other nodes; the cards' machines go after their last job.
#[test]
fn a_pool_of_graphics_cards_serves_those_that_ask_for_one() {
    const GPU: &str = "nvidia.com/gpu";
    simulate(async {
        let mut spec = world("hosts", "A pool of graphics cards");
        spec.guests.device_resource = GPU.to_owned();
        template(&mut spec.pve, 8000, "debian-13", "pve1", "shared");
        let cards = template(&mut spec.pve, 8100, "cards", "pve1", "shared");
        cards.config.insert("machine".to_owned(), "q35".to_owned());
        let found = ["pve2", "pve3"].map(|host| (host.to_owned(), vec!["0000:01:00.0".to_owned()]));
        spec.pve.mappings.insert("gpu".to_owned(), found.into());
        let scene = Scene::of(spec);
        let asks = json!({"cpu": "4", "memory": "16Gi", GPU: "1"});
        let looks = async {
            until(&scene, "both run", 10, || places(&scene, "web").len() == 2).await;
            assert_eq!(by_host(&scene), on([("pve2", 1), ("pve3", 1)]));
            assert_eq!(nodes(&scene, "cards").len(), 2);
            tokio::time::sleep(Duration::from_mins(12)).await;
            until_none_is_left(&scene, 15).await;
        };
        while_it_lives(&scene, visit(2, pods_for(&asks, GPU, None), 12), looks).await;
        scene.nothing_is_left();
    });
}

/// `tiny2` gets nothing, each ingress machine has a host of its own, and no host promises more than the page allows.
#[test]
fn six_unequal_hosts_are_filled_by_what_they_have() {
    simulate(async {
        let mut spec = world("hosts", "Six unequal hosts");
        let names = ["big1", "big2", "big3", "big4", "tiny1", "tiny2"];
        let ceph = storage("ceph", StorageKind::Rbd, true);
        hosts(&mut spec.pve, &names, ceph);
        let of = |name: &str, kind, hosts: &[&str]| StorageSpec {
            hosts: Some(hosts.iter().map(|host| (*host).to_owned()).collect()),
            ..storage(name, kind, false)
        };
        let zfs = of("local-zfs", StorageKind::ZfsPool, &names[..3]);
        let lvm = of("local-lvm", StorageKind::LvmThin, &names[4..]);
        spec.pve.storages.extend([zfs, lvm]);
        for host in &mut spec.pve.hosts {
            let tiny = host.name.starts_with("tiny");
            (host.cpus, host.memory) = if tiny { (4, 16 * GIB) } else { (16, 128 * GIB) };
        }
        // As the builds of the page leave them: by the first storage of the list that a host has.
        let built = [
            "local-zfs",
            "local-zfs",
            "local-zfs",
            "ceph",
            "local-lvm",
            "local-lvm",
        ];
        for ((vmid, host), storage) in (8000..).zip(names).zip(built) {
            template(&mut spec.pve, vmid, "pve-autoscaler-debian", host, storage);
        }
        let scene = Scene::of(spec);
        let looks = async {
            until(&scene, "all run", 15, || places(&scene, "web").len() == 20).await;
            let all = machines(&scene);
            let hosts = by_host(&scene);
            assert!(!hosts.contains_key("tiny2"), "{hosts:?}");
            for name in &names[..5] {
                let there = all.values().filter(|vm| vm.host == *name);
                let number =
                    |vm: &VmFacts, key: &str| -> u64 { vm.config[key].parse().expect("a number") };
                let (cores, mib) = there.fold((0, 0), |(cores, mib), vm| {
                    (cores + number(vm, "cores"), mib + number(vm, "memory"))
                });
                // Three to one without two cores; nine tenths of the memory without four GiB.
                let big = name.starts_with("big");
                let (most_cores, most) = if big { (42, 128) } else { (6, 16) };
                let most_mib = most * 1024 * 9 / 10 - 4096;
                assert!(cores <= most_cores, "{name}: {cores} cores");
                assert!(mib <= most_mib, "{name}: {mib} MiB");
            }
            let mut ingress: Vec<String> = nodes(&scene, "ingress")
                .iter()
                .map(|node| node["metadata"]["labels"]["topology.kubernetes.io/zone"].to_string())
                .collect();
            ingress.sort_unstable();
            ingress.dedup();
            assert_eq!(ingress.len(), 3, "{ingress:?}");
        };
        while_it_lives(&scene, visit(20, WorkloadPods::of("3", "6Gi"), 120), looks).await;
    });
}

/// Machines fill one host after the other, and are gathered on one when there are fewer.
#[test]
fn hosts_that_shall_sleep_have_no_machine() {
    simulate(async {
        let mut spec = world("hosts", "Hosts that sleep at night");
        template(&mut spec.pve, 8000, "debian-13", "pve1", "shared");
        for host in &mut spec.pve.hosts {
            host.memory = 36 * GIB;
        }
        let scene = Scene::of(spec);
        let looks = async {
            until(&scene, "all run", 10, || places(&scene, "web").len() == 6).await;
            let hosts = by_host(&scene);
            assert_eq!(hosts.len(), 2, "{hosts:?}");
            tokio::time::sleep(Duration::from_mins(30)).await;
            assert_eq!(by_host(&scene).len(), 2);
        };
        while_it_lives(&scene, visit(6, WorkloadPods::of("3", "6Gi"), 120), looks).await;
    });
}

/// The spare host gets machines when the others have no room, and none while somebody works on it.
#[test]
fn a_workstation_gives_what_is_idle() {
    simulate(async {
        let heading = "A host that is used for other things too";
        let mut spec = world("hosts", heading);
        let names = ["pve1", "workstation"];
        hosts(
            &mut spec.pve,
            &names,
            storage("nfs", StorageKind::Nfs, true),
        );
        for host in &mut spec.pve.hosts {
            (host.cpus, host.memory) = if host.name == "pve1" {
                (32, 26 * GIB)
            } else {
                (16, 64 * GIB)
            };
        }
        template(&mut spec.pve, 8000, "debian-13", "pve1", "nfs");
        let scene = Scene::of(spec);
        let work = |cpu_permille: u32, memory: u64| AdminAct::Load {
            host: "workstation".to_owned(),
            cpu_permille,
            memory,
        };
        act(&scene, &work(700, 52 * GIB));
        let looks = async {
            tokio::time::sleep(Duration::from_mins(6)).await;
            let busy = by_host(&scene);
            assert!(!busy.contains_key("workstation"), "{busy:?}");
            let had = busy["pve1"];
            assert!(had < 4, "{busy:?}");
            act(&scene, &work(0, GIB));
            until(&scene, "the idle host helps", 20, || {
                by_host(&scene).get("workstation") == Some(&2)
            })
            .await;
            assert_eq!(by_host(&scene)["pve1"], had);
            tokio::time::sleep(Duration::from_mins(2)).await;
            // The workstation's owner works on it again: its machines stay.
            act(&scene, &work(700, 40 * GIB));
            tokio::time::sleep(Duration::from_mins(10)).await;
            assert_eq!(by_host(&scene).get("workstation"), Some(&2));
        };
        while_it_lives(&scene, visit(6, WorkloadPods::of("3", "6Gi"), 120), looks).await;
    });
}
