//! PCI devices of hosts: a pool of machines with a graphics card each.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{AdminAct, MachineSpec, PveSpec};
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadPods, WorkloadStep};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::json;

use crate::HASTY;
use crate::common::{Scene, simulate};
use crate::hosts::{act, made, on, said};

const GPU: &str = "nvidia.com/gpu";

/// Two hosts, one of which has two graphics cards, and a pool for them beside the general one.
fn world(edit: impl FnOnce(&mut PveSpec)) -> Scene {
    let pool = "
[instance_type.card]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
pci = [\"gpu\"]
extended = { \"nvidia.com/gpu\" = 1 }
[pool.cards]
template = \"debian\"
instance_types = [\"card\"]
max = 4
[scale_up]";
    let config = HASTY.replace("[scale_up]", pool.trim_start());
    assert_ne!(config, HASTY);
    let mut pve = PveSpec::default();
    pve.hosts.truncate(2);
    let cards = ["0000:01:00.0", "0000:02:00.0"].map(str::to_owned);
    let hosts = BTreeMap::from([("pve2".to_owned(), cards.into())]);
    pve.mappings.insert("gpu".to_owned(), hosts);
    edit(&mut pve);
    Scene::of(WorldSpec {
        seed: 5,
        pve,
        kube: KubeSpec::default(),
        guests: GuestSpec {
            device_resource: GPU.to_owned(),
            ..GuestSpec::default()
        },
        config,
    })
}

/// Pods that ask for a card each.
fn training() -> WorkloadPods {
    WorkloadPods {
        template: json!({ "spec": { "containers": [{
            "name": "main", "image": "registry.k8s.io/pause:3.10",
            "resources": {
                "requests": { "cpu": "500m", "memory": "512Mi", GPU: "1" },
                "limits": { GPU: "1" },
            },
        }] } }),
        ..WorkloadPods::default()
    }
}

fn train(count: u32) -> Workload {
    Workload::visit("train", count, training(), Span::minutes(120))
}

/// What machines have as `hostpci0`, by VMID.
fn devices(scene: &Scene) -> BTreeMap<u32, Option<String>> {
    let vms = scene.world.pve.vms().into_iter();
    let machines = vms.filter(|vm| (9100..9121).contains(&vm.vmid));
    machines
        .map(|vm| (vm.vmid, vm.config.get("hostpci0").cloned()))
        .collect()
}

/// Three pods ask for a card, two cards are there: two machines, and the third pod waits with the reason. When one of the
/// machines goes its card is free, and another machine gets it.
#[test]
fn as_many_machines_as_there_are_cards_and_a_card_is_free_when_its_machine_is_gone() {
    simulate(async {
        let scene = world(|_| {});
        let mut first = (String::new(), BTreeMap::new());
        let acts = async {
            tokio::time::sleep(Duration::from_mins(5)).await;
            first = (said(&scene), devices(&scene));
            let vmid = *first.1.keys().next().expect("a machine");
            act(&scene, &AdminAct::Destroy { vmid });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, train(3), Duration::from_mins(14)) => {}
            () = acts => {}
        }
        let (said, had) = first;
        assert_eq!(had.len(), 2, "{had:?}");
        assert!(
            had.values()
                .all(|device| device.as_deref() == Some("mapping=gpu"))
        );
        let words = "the mapping gpu has 2 PCI devices on the host pve2, 0 of them free";
        assert!(said.contains(words), "{said}");
        assert!(
            said.contains("the mapping gpu has no PCI device on the host pve1"),
            "{said}"
        );
        let has = devices(&scene);
        assert_eq!(has.len(), 2, "the destroyed one is replaced: {has:?}");
        assert_ne!(has, had);
        assert_eq!(made(&scene), on([("pve2", 2)]));
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let told = &turn.decision.report.devices["default"]["gpu"];
        let hosts: Vec<&str> = told.keys().map(|host| &**host).collect();
        assert_eq!(hosts, ["pve2"]);
        let there = &told["pve2"];
        assert_eq!((there.has, there.free, there.machines.len()), (2, 0, 2));
        assert!(there.machines.values().all(|count| *count == 1));
        let running = scene.world.pve.vms();
        let running = running.iter().filter(|vm| has.contains_key(&vm.vmid));
        assert!(running.into_iter().all(|vm| vm.running));
    });
}

/// A person's VM has a card by its address, and is off: its card is not given away. Pods that ask for none get machines
/// without one.
#[test]
fn a_card_of_somebody_elses_vm_stays_his_and_other_pods_get_plain_machines() {
    simulate(async {
        let scene = world(|pve| {
            pve.machines.push(MachineSpec {
                vmid: 300,
                host: "pve2".to_owned(),
                container: false,
                template: false,
                running: false,
                storage: "shared".to_owned(),
                disk: 1 << 30,
                disk_used: 1 << 20,
                cloudinit: false,
                pool: None,
                config: [
                    ("hostpci0", "0000:02:00,pcie=1"),
                    ("onboot", "0"),
                    ("description", "games"),
                ]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            });
        });
        let mut workload = train(2);
        workload.steps.push(WorkloadStep {
            at: Span::ZERO,
            act: Act::Deploy {
                name: "web".to_owned(),
                replicas: 2,
                pods: WorkloadPods::of("1600m", "1Gi"),
            },
        });
        scene.live(None, 0, workload, Duration::from_mins(6)).await;
        let devices = devices(&scene);
        let carded = devices.values().flatten().count();
        assert_eq!((devices.len(), carded), (3, 1), "{devices:?}");
        let said = said(&scene);
        let words = "the mapping gpu has 2 PCI devices on the host pve2, 0 of them free";
        assert!(said.contains(words), "{said}");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Machines with huge pages for pods: 1 GiB of 4 GiB. The kubelet takes them off its node's memory, so a pod of 3 GiB, which would fit without
/// them, gets no machine, with the reason, before any node has taught it; and pods that ask for pages get machines that they run on.
#[test]
fn huge_pages_for_pods_are_no_memory_of_other_pods() {
    const PAGES: &str = "hugepages-2Mi";
    simulate(async {
        let config = HASTY.replace(
            "disk = \"20GiB\"",
            "disk = \"20GiB\"\nextended = { \"hugepages-2Mi\" = \"1Gi\" }",
        );
        assert_ne!(config, HASTY);
        let guests = GuestSpec {
            extended: [(PAGES.to_owned(), 1 << 30)].into(),
            ..GuestSpec::default()
        };
        let scene = Scene::new(5, &config, guests.clone());
        let large = Workload::visit(
            "large",
            1,
            WorkloadPods::of("500m", "3Gi"),
            Span::minutes(60),
        );
        scene.live(None, 0, large, Duration::from_mins(4)).await;
        assert!(made(&scene).is_empty(), "{:?}", made(&scene));
        let said = said(&scene);
        assert!(said.contains("memory: asks 3Gi"), "{said}");
        let scene = Scene::new(5, &config, guests);
        let pods = WorkloadPods {
            template: json!({ "spec": { "containers": [{
                "name": "main", "image": "registry.k8s.io/pause:3.10",
                "resources": {
                    "requests": { "cpu": "500m", "memory": "2Gi", PAGES: "1Gi" },
                    "limits": { PAGES: "1Gi" },
                },
            }] } }),
            ..WorkloadPods::default()
        };
        let work = Workload::visit("dpdk", 2, pods, Span::minutes(60));
        scene.live(None, 0, work, Duration::from_mins(5)).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        assert_eq!(
            made(&scene).values().sum::<usize>(),
            2,
            "{:?}",
            made(&scene)
        );
        let nodes = scene.world.kube.objects("v1", "Node");
        let machines: Vec<_> = nodes
            .iter()
            .filter(|node| {
                let pages = node["status"]["allocatable"][PAGES].as_str();
                pages.is_some_and(|pages| pages != "0")
            })
            .collect();
        assert_eq!(machines.len(), 2, "{machines:?}");
        for node in machines {
            let amount = |of: &str| node["status"][of]["memory"].as_str().map(str::to_owned);
            let kib =
                |of: &str| amount(of).and_then(|text| text.strip_suffix("Ki")?.parse::<u64>().ok());
            let (all, left) = kib("capacity").zip(kib("allocatable")).expect("amounts");
            // The pages of 1 GiB, and some MiB that the kubelet keeps anyhow.
            let kept = all - left;
            assert!((1 << 20..(1 << 20) + (512 << 10)).contains(&kept), "{node}");
        }
    });
}

/// A card of which two machines can have a part, on one of two hosts, and a pool for them. Each machine has one part.
fn vgpus() -> Scene {
    let pool = "
[instance_type.vgpu]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
pci = [{ mapping = \"vgpu\", mdev = \"nvidia-63\" }]
extended = { \"nvidia.com/gpu\" = 1 }
[pool.cards]
template = \"debian\"
instance_types = [\"vgpu\"]
max = 4
[scale_up]";
    let config = HASTY.replace("[scale_up]", pool.trim_start());
    assert_ne!(config, HASTY);
    let mut pve = PveSpec::default();
    pve.hosts.truncate(2);
    let card = "0000:41:00.0".to_owned();
    let hosts = BTreeMap::from([("pve2".to_owned(), vec![card.clone()])]);
    pve.mappings.insert("vgpu".to_owned(), hosts);
    pve.mdev_mappings.insert("vgpu".to_owned());
    let types = [("nvidia-63", 2), ("nvidia-64", 1)];
    let types = types.map(|(mdev, most)| (mdev.to_owned(), most));
    let cards = BTreeMap::from([(card, types.into())]);
    pve.mediated.insert("pve2".to_owned(), cards);
    Scene::of(WorldSpec {
        seed: 5,
        pve,
        kube: KubeSpec::default(),
        guests: GuestSpec {
            device_resource: GPU.to_owned(),
            ..GuestSpec::default()
        },
        config,
    })
}

/// Three pods ask for a part of a card that makes two: two machines start, and the third pod waits with the reason. When the pods have gone the
/// machines go.
#[test]
fn as_many_machines_as_a_card_has_parts_and_they_go_with_their_pods() {
    simulate(async {
        let scene = vgpus();
        let mut first = (String::new(), BTreeMap::new(), Vec::new());
        let acts = async {
            tokio::time::sleep(Duration::from_mins(6)).await;
            let turn = scene.world.turns.borrow().clone().expect("a turn");
            let told = turn.decision.report.devices["default"]["vgpu,mdev=nvidia-63"].clone();
            let told = told.into_iter().map(|(host, of)| {
                let machines = of.machines.values().sum::<u32>();
                (host.to_string(), of.has, of.free, machines, of.note)
            });
            first = (said(&scene), devices(&scene), told.collect());
            std::future::pending::<()>().await;
        };
        let work = Workload::visit("train", 3, training(), Span::minutes(10));
        tokio::select! {
            biased;
            () = scene.live(None, 0, work, Duration::from_mins(40)) => {}
            () = acts => {}
        }
        let (said, had, told) = first;
        assert_eq!(had.len(), 2, "{had:?}");
        let wanted = Some("mapping=vgpu,mdev=nvidia-63");
        assert!(
            had.values().all(|device| device.as_deref() == wanted),
            "{had:?}"
        );
        let words = "the mapping vgpu has 2 mediated devices nvidia-63 on the host pve2, 0 of them free, one of this type takes 1";
        assert!(said.contains(words), "{said}");
        let words = "the mapping vgpu has no PCI device on the host pve1";
        assert!(said.contains(words), "{said}");
        assert_eq!(told, [("pve2".to_owned(), 2, 0, 2, None)]);
        assert_eq!(scene.findings(), Vec::<String>::new());
        assert!(devices(&scene).is_empty(), "{:?}", devices(&scene));
    });
}
