//! All that is scarce in two PVE clusters at once: CPUs of their own, PCI devices, lists of storages, ISOs for cloud-init and one network's
//! addresses. Hosts, templates, mappings and storages have the same names in both, and the ranges for machines the same VMIDs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pve_autoscaler::config;
use pve_autoscaler::controller::state::StateFiles;
use pve_autoscaler::controller::status::DaemonStatus;
use pve_autoscaler::model::cpus::CpuSet;
use pve_autoscaler::model::drift::Drift;
use pve_autoscaler::model::region::RegionName;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{Pve, PveSpec, StorageKind, VmFacts};
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadKind, WorkloadPods, WorkloadStep};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::json;

use crate::common::{Scene, simulate};
use crate::pinning::topology;

const GPU: &str = "nvidia.com/gpu";

/// The tables of a region: its template, and a pool for each thing.
fn tables(region: &str) -> String {
    format!(
        "[template.debian-{region}]
region = \"{region}\"
vmid = 9000
[template.debian-{region}.cloud_init]
storage = \"local\"
[[template.debian-{region}.disk]]
storage = [\"tank\", \"local-lvm\"]
size = \"10GiB\"
[pool.plain-{region}]
template = \"debian-{region}\"
instance_types = [\"small\"]
network = \"lan\"
max = 4
[pool.cards-{region}]
template = \"debian-{region}\"
instance_types = [\"card\"]
network = \"lan\"
max = 3
"
    )
}

fn file() -> String {
    let topology = topology().replace("proxmox.topology", "region.east.topology");
    format!(
        "version = 1
[kubernetes]
name = \"test\"
[region.east]
vmids = \"9100-9120\"
{topology}
[region.west]
channel = \"token\"
endpoints = [\"https://west.example:8006\"]
token_id = \"scaler@pve!sim\"
token_secret_file = \"/etc/pve-autoscaler/west.token\"
ca_file = \"/etc/pve-autoscaler/west.pem\"
vmids = \"9100-9120\"
[network.lan]
subnet = \"192.0.2.0/24\"
ranges = [\"192.0.2.50-192.0.2.69\"]
gateway = \"192.0.2.1\"
nameservers = [\"192.0.2.2\"]
[instance_type.small]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
[instance_type.own]
cores = 8
memory = \"8GiB\"
disk = \"20GiB\"
[instance_type.card]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
pci = [\"gpu\"]
extended = {{ \"{GPU}\" = 1 }}
{}{}[pool.own]
template = \"debian-east\"
instance_types = [\"own\"]
cpu_pinning = true
hosts = [\"pve1\"]
network = \"lan\"
max = 2
[scale_up]
initial_backoff = \"30s\"
[scale_down]
unneeded_time = \"20s\"
delay_after_add = \"10s\"
min_node_age = \"0s\"
delay_after_failure = \"10s\"
quarantine = \"30s\"
",
        tables("east"),
        tables("west")
    )
}

/// A PVE cluster with a graphics card on pve1 and one on pve2, of the same addresses, and a storage that pve1 lacks.
fn cluster(name: &str) -> PveSpec {
    let mut pve = PveSpec {
        cluster: name.to_owned(),
        ..PveSpec::default()
    };
    for host in &mut pve.hosts {
        host.numa_nodes = 2;
    }
    let card = || vec!["0000:01:00.0".to_owned()];
    let hosts = ["pve1", "pve2"].map(|host| (host.to_owned(), card()));
    pve.mappings.insert("gpu".to_owned(), hosts.into());
    let local = pve.storages.iter().find(|of| of.name == "local-lvm");
    let mut tank = local.expect("there").clone();
    tank.kind = StorageKind::ZfsPool;
    tank.hosts = Some(["pve2", "pve3"].map(str::to_owned).into());
    "tank".clone_into(&mut tank.name);
    pve.storages.push(tank);
    for of in pve.tokens.iter_mut().flat_map(|token| &mut token.acl) {
        let more = [
            "Mapping.Use",
            "Datastore.Allocate",
            "Datastore.AllocateTemplate",
            "VM.Config.CDROM",
        ];
        of.privileges.extend(more.map(str::to_owned));
    }
    pve
}

fn scene(seed: u64, config: String) -> Scene {
    let spec = WorldSpec {
        seed,
        pve: cluster("east"),
        kube: KubeSpec::default(),
        guests: GuestSpec {
            device_resource: GPU.to_owned(),
            ..GuestSpec::default()
        },
        config,
    };
    Scene::with_regions(spec, [("west".to_owned(), cluster("west"))].into())
}

/// Pods for every pool of both regions: they come, stay for a quarter of an hour, and go.
fn visit() -> Workload {
    let train = WorkloadPods {
        template: json!({ "spec": { "containers": [{
            "name": "main", "image": "registry.k8s.io/pause:3.10",
            "resources": {
                "requests": { "cpu": "500m", "memory": "512Mi", GPU: "1" },
                "limits": { GPU: "1" },
            },
        }] } }),
        ..WorkloadPods::default()
    };
    let all = [
        ("web", 12, WorkloadPods::of("1500m", "1Gi")),
        ("fast", 2, WorkloadPods::of("6", "1Gi")),
        ("train", 3, train),
    ];
    let steps = all.into_iter().flat_map(|(name, replicas, pods)| {
        let name = name.to_owned();
        let deploy = Act::Deploy {
            name: name.clone(),
            replicas,
            pods,
        };
        let kind = WorkloadKind::Deployment;
        [
            (Span::seconds(0), deploy),
            (Span::minutes(15), Act::Delete { kind, name }),
        ]
    });
    let steps = steps.map(|(at, act)| WorkloadStep { at, act });
    Workload {
        steps: steps.collect(),
    }
}

fn machines(pve: &Pve) -> Vec<VmFacts> {
    let vms = pve.vms().into_iter();
    vms.filter(|vm| (9100..=9120).contains(&vm.vmid)).collect()
}

/// What is given out twice: of addresses in both clusters together, of CPUs and devices on each host.
fn given_twice(clusters: &[(&str, &Pve)]) -> Vec<String> {
    let mut twice = Vec::new();
    let mut addresses: BTreeSet<String> = BTreeSet::new();
    for (region, pve) in clusters {
        let mut cpus: BTreeMap<String, CpuSet> = BTreeMap::new();
        let mut cards: BTreeMap<String, usize> = BTreeMap::new();
        for vm in machines(pve) {
            let at = format!("{region} VM {} on {}", vm.vmid, vm.host);
            let given = vm.config.get("ipconfig0").map_or("", String::as_str);
            let address = given.split(',').find(|part| part.starts_with("ip="));
            if let Some(address) = address.filter(|part| part.contains("192.0.2."))
                && !addresses.insert(address.to_owned())
            {
                twice.push(format!("{at}: {address}"));
            }
            if let Some(own) = vm
                .config
                .get("affinity")
                .and_then(|text| CpuSet::read(text))
            {
                let taken = cpus.entry(vm.host.clone()).or_default();
                if !own.both(taken).is_empty() {
                    twice.push(format!("{at}: CPUs {own} of {taken}"));
                }
                *taken = taken.with(&own);
            }
            if vm.config.contains_key("hostpci0") {
                let taken = cards.entry(vm.host.clone()).or_default();
                *taken += 1;
                if *taken > 1 || vm.host == "pve3" {
                    twice.push(format!("{at}: a card too many"));
                }
            }
        }
    }
    twice
}

/// How many machines of a cluster have a key.
fn having(pve: &Pve, key: &str) -> usize {
    let all = machines(pve).into_iter();
    all.filter(|vm| vm.config.contains_key(key)).count()
}

/// The storages of further disks, by host.
fn further_disks(pve: &Pve) -> BTreeSet<(String, String)> {
    let all = machines(pve).into_iter();
    let all = all.filter_map(|vm| {
        let disk = vm.config.get("scsi1")?;
        let storage = disk.split(':').next()?;
        Some((vm.host.clone(), storage.to_owned()))
    });
    all.collect()
}

/// What was seen while a story went on.
#[derive(Debug, Default)]
struct Seen {
    twice: Vec<String>,
    isos: BTreeMap<&'static str, BTreeSet<String>>,
}

/// Looks at both clusters each second, for ever.
async fn watch(scene: &Scene, seen: &mut Seen) {
    let west = &scene.world.further["west"].pve;
    loop {
        let both = [("east", &scene.world.pve), ("west", west)];
        seen.twice.extend(given_twice(&both));
        for (region, pve) in both {
            let isos = pve.isos().into_iter();
            let names = isos.map(|iso| format!("{} {}", iso.host, iso.volume));
            seen.isos.entry(region).or_default().extend(names);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Machines of every kind come in both clusters; a host of one of them is evacuated, and that of its name in the other keeps its machines; then all go. No
/// address, CPU or device is ever given out twice, and no cluster's ISOs are taken for the other's.
#[test]
fn machines_with_all_that_is_scarce_come_and_go_in_two_regions() {
    simulate(async {
        // An evacuation makes machines that no pod waits for, in either cluster. The judge of a cluster takes such from
        // pools that replace nodes alone.
        let mut config = file();
        for pool in ["plain-east", "cards-east", "plain-west", "cards-west"] {
            let head = format!("[pool.{pool}]\n");
            config = config.replace(&head, &format!("{head}replace_drifted = true\n"));
        }
        let scene = scene(21, config);
        let west = &scene.world.further["west"].pve;
        let east = &scene.world.pve;
        let mut seen = Seen::default();
        let plain_on = |pve: &Pve, host: &str| {
            let all = machines(pve).into_iter();
            let there = all.filter(|vm| vm.host == host && !vm.config.contains_key("hostpci0"));
            there.map(|vm| vm.vmid).collect::<BTreeSet<u32>>()
        };
        let play = async {
            tokio::time::sleep(Duration::from_mins(6)).await;
            assert_eq!(having(east, "affinity"), 2, "{:?}", machines(east));
            assert_eq!(having(west, "affinity"), 0);
            assert_eq!(having(east, "hostpci0") + having(west, "hostpci0"), 3);
            assert!(having(east, "hostpci0") > 0 && having(west, "hostpci0") > 0);
            for pve in [east, west] {
                let wanted = |host: &str| if host == "pve1" { "local-lvm" } else { "tank" };
                let disks = further_disks(pve);
                assert!(!disks.is_empty());
                assert!(
                    disks.iter().all(|(host, storage)| storage == wanted(host)),
                    "{disks:?}"
                );
            }
            let vmids = |pve: &Pve| machines(pve).iter().map(|vm| vm.vmid).collect();
            let (in_east, in_west): (BTreeSet<u32>, BTreeSet<u32>) = (vmids(east), vmids(west));
            assert!(!in_east.is_disjoint(&in_west), "no VMID is in use twice");
            // The pinned pool has no other host than pve1.
            let both = ["pve2", "pve3"]
                .into_iter()
                .find(|host| !plain_on(east, host).is_empty() && !plain_on(west, host).is_empty());
            let host = both.unwrap_or_else(|| {
                let where_they_are = [east, west].map(|pve| {
                    let all = machines(pve).into_iter();
                    all.map(|vm| format!("{} {}", vm.host, vm.name))
                        .collect::<Vec<String>>()
                });
                panic!("no host has machines in both clusters: {where_they_are:?}")
            });
            let before = plain_on(west, host);
            let files = StateFiles::open(scene.state()).expect("it is there");
            let region: RegionName = "east".into();
            let now = scene.world.clock.now();
            assert!(files.evacuate(&region, host, now).expect("noted"));
            tokio::time::sleep(Duration::from_mins(8)).await;
            assert_eq!(plain_on(east, host), BTreeSet::new());
            assert!(
                before.is_subset(&plain_on(west, host)),
                "of the other cluster's {host} something went: {before:?}"
            );
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit(), Duration::from_mins(35)) => {}
            () = play => {}
            () = watch(&scene, &mut seen) => {}
        }
        assert_eq!(seen.twice, Vec::<String>::new());
        assert!(
            seen.isos.values().all(|isos| isos.len() >= 2),
            "{:?}",
            seen.isos
        );
        scene.nothing_is_left();
    });
}

/// The file changes for one cluster's template alone: the machines of that cluster have drifted, and those of the other, which have the same
/// VMIDs on hosts of the same names, have not.
#[test]
fn machines_drift_in_the_region_that_changed() {
    simulate(async {
        let mut scene = scene(22, file());
        tokio::select! {
            biased;
            () = scene.live_until(Duration::from_mins(6), 0) => {}
            () = scene.preside() => {}
            () = scene.play(visit()) => {}
        }
        let after = file().replace(
            "region = \"west\"\nvmid = 9000\n",
            "region = \"west\"\nvmid = 9000\nvlan = 20\n",
        );
        assert_ne!(after, file());
        scene.world.settings = Arc::new(config::parse(&after, "after").expect("it is valid"));
        tokio::select! {
            biased;
            () = scene.live_on(1, |_| {}) => {}
            () = scene.preside() => {}
            () = tokio::time::sleep(Duration::from_mins(4)) => {}
        }
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let status = DaemonStatus::of(&turn);
        let mut of: BTreeMap<String, usize> = BTreeMap::new();
        for machine in status.machines.values() {
            let drifted = machine.drifted.as_deref().unwrap_or_default();
            let wanted: &[Drift] = match &*machine.region {
                "west" => &[Drift::Hardware],
                _ => &[],
            };
            assert_eq!(drifted, wanted, "{machine:?}");
            *of.entry(machine.region.to_string()).or_default() += 1;
        }
        assert!(of.len() == 2, "{of:?}");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}
