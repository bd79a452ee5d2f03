//! Which hosts get machines: strategies, hosts that are left out, and what is in use.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::model::policy::ZONE_LABEL;
use pve_autoscaler::model::report::PodVerdict;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{AdminAct, MachineSpec, PveSpec};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;

use crate::HASTY;
use crate::common::{Scene, simulate};

/// The configuration with more lines for the region.
pub(crate) fn region(lines: &str) -> String {
    let text = HASTY.replace("[template.debian]", &format!("{lines}[template.debian]"));
    text.replace("max = 3", "max = 6")
}

/// Pods that each fill a machine, and stay.
pub(crate) fn fill(count: u32) -> Workload {
    Workload::visit(
        "web",
        count,
        WorkloadPods::of("1500m", "1Gi"),
        Span::minutes(120),
    )
}

pub(crate) fn act(scene: &Scene, act: &AdminAct) {
    scene.world.pve.administer(act).expect("it is possible");
}

fn maintenance(scene: &Scene, host: &str, on: bool) {
    let host = host.to_owned();
    act(scene, &AdminAct::Maintenance { host, on });
}

/// How many machines are on which host.
pub(crate) fn made(scene: &Scene) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for vm in scene.world.pve.vms() {
        if (9100..9121).contains(&vm.vmid) {
            *made.entry(vm.host).or_default() += 1;
        }
    }
    made
}

pub(crate) fn on<const N: usize>(hosts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    let hosts = hosts.into_iter();
    hosts
        .map(|(host, count)| (host.to_owned(), count))
        .collect()
}

/// What the last turn says of the pod that waits, if one does.
pub(crate) fn said(scene: &Scene) -> String {
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    let mut verdicts = turn.decision.report.pods.values();
    verdicts
        .find_map(|verdict| match verdict {
            PodVerdict::Held { why } | PodVerdict::NoCompatiblePool { why } => {
                Some(why.values().map(ToString::to_string).collect())
            }
            _ => None,
        })
        .unwrap_or_default()
}

/// Machines for so many pods, five minutes later.
async fn spread_over(config: &str, pods: u32) -> (Scene, BTreeMap<String, usize>) {
    let scene = Scene::new(5, config, GuestSpec::default());
    let time = Duration::from_mins(5);
    scene.live(None, 0, fill(pods), time).await;
    assert_eq!(scene.findings(), Vec::<String>::new());
    let made = made(&scene);
    (scene, made)
}

#[test]
fn machines_are_spread_packed_or_made_in_turn_as_the_file_says() {
    simulate(async {
        let (_, made) = spread_over(&region(""), 3).await;
        assert_eq!(made, on([("pve1", 1), ("pve2", 1), ("pve3", 1)]));
        let (_, made) = spread_over(&region("host_strategy = \"pack\"\n"), 3).await;
        assert_eq!(made.len(), 1, "{made:?}");
        let (_, made) = spread_over(&region("host_strategy = \"round-robin\"\n"), 4).await;
        assert_eq!(made, on([("pve1", 2), ("pve2", 1), ("pve3", 1)]));
    });
}

#[test]
fn a_host_that_is_excluded_gets_no_machine_however_full_the_others_are() {
    simulate(async {
        let lines = "exclude_hosts = [\"pve1\"]\nmax_per_host = 2\n";
        let (scene, made) = spread_over(&region(lines), 5).await;
        assert_eq!(made, on([("pve2", 2), ("pve3", 2)]));
        let said = said(&scene);
        assert!(
            said.contains("the region's max_per_host allows no more"),
            "{said}"
        );
    });
}

/// Two of three hosts have not the bridge of the template's card: they get no machine at all, not one that fails at its start, and who waits
/// for want of a host is told so.
#[test]
fn a_host_without_the_bridge_gets_no_machine() {
    simulate(async {
        let mut pve = PveSpec::default();
        for host in &mut pve.hosts[..2] {
            host.bridges = vec!["vmbr7".to_owned()];
        }
        let scene = Scene::of(WorldSpec {
            seed: 5,
            pve,
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config: region("max_per_host = 2\n"),
        });
        scene.live(None, 0, fill(3), Duration::from_mins(5)).await;
        assert_eq!(made(&scene), on([("pve3", 2)]));
        assert_eq!(scene.machines_made(), 2, "none was tried elsewhere");
        let said = said(&scene);
        for host in ["pve1", "pve2"] {
            let wanted = format!("the host {host} has no bridge vmbr0");
            assert!(said.contains(&wanted), "{said}");
        }
        // Each host was asked once at first, and those that lack it about once a minute since: not in every poll.
        let requests = scene.world.pve.requests();
        let asked = |host: &str| {
            let path = format!("/nodes/{host}/network");
            requests
                .iter()
                .filter(|seen| seen.path.ends_with(&path))
                .count()
        };
        assert_eq!(asked("pve3"), 1);
        for host in ["pve1", "pve2"] {
            assert!((2..=7).contains(&asked(host)), "{host}: {}", asked(host));
        }
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// One host keeps nearly all of its memory back by a table of its own, and the other two have all machines; a table of a host that there
/// is not is told.
#[test]
fn a_host_has_reserves_of_its_own() {
    simulate(async {
        let lines = "[proxmox.host.pve1]\nhost_memory_reserve = \"127GiB\"\n\
                     [proxmox.host.pve9]\nmemory_overcommit = 2\n";
        let (scene, made) = spread_over(&region(lines), 4).await;
        assert_eq!(made, on([("pve2", 2), ("pve3", 2)]));
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let report = &turn.decision.report;
        let hosts = &report.hosts["default"];
        let most = ["pve1", "pve2"].map(|host| hosts[host].most_memory >> 30);
        // Without a table of its own a host keeps the region's 2 GiB back.
        assert_eq!(most, [1, 126]);
        let told = report.warnings.join("\n");
        assert!(told.contains("names the host pve9"), "{told}");
    });
}

/// A guest of somebody else's: 100 of the 128 GiB of its host, off, and whether it starts with its host.
fn guest(vmid: u32, host: &str, container: bool, onboot: bool) -> AdminAct {
    let config = [
        ("memory", "102400".to_owned()),
        ("onboot", u8::from(onboot).to_string()),
        ("description", "none of your business".to_owned()),
    ];
    AdminAct::AddMachine(MachineSpec {
        vmid,
        host: host.to_owned(),
        container,
        template: false,
        running: false,
        storage: "shared".to_owned(),
        disk: 1 << 30,
        disk_used: 1 << 20,
        cloudinit: false,
        pool: None,
        config: config.map(|(key, value)| (key.to_owned(), value)).into(),
    })
}

/// Guests that are off and come with their host keep their memory, VMs and containers; what is edited later counts later.
#[test]
fn guests_that_start_with_their_host_keep_their_memory() {
    simulate(async {
        // Without them pve2 has the most memory left: a router runs on pve1.
        for (onboot, host) in [(true, "pve3"), (false, "pve2")] {
            let scene = Scene::new(
                5,
                &region("host_strategy = \"max-memory\"\n"),
                GuestSpec::default(),
            );
            act(&scene, &guest(300, "pve1", false, onboot));
            act(&scene, &guest(301, "pve2", true, onboot));
            act(&scene, &guest(302, "pve3", false, false));
            let time = Duration::from_mins(5);
            scene.live(None, 0, fill(1), time).await;
            assert_eq!(made(&scene), on([(host, 1)]), "{onboot}");
            assert_eq!(scene.findings(), Vec::<String>::new());
            // Each is read once, not with every poll.
            let requests = scene.world.pve.requests();
            let of = |path: &str| {
                requests
                    .iter()
                    .filter(|seen| seen.path.ends_with(path))
                    .count()
            };
            assert_eq!((of("/qemu/300/config"), of("/lxc/301/config")), (1, 1));
        }
    });
}

/// A VM with ballooning counts with all that it may have, or with what PVE leaves it at least where the file says so.
#[test]
fn a_vm_with_ballooning_counts_as_the_file_says() {
    let guest = |vmid: u32, host: &str, gib: u32, least: Option<u32>| {
        let balloon = least.map(|gib| ("balloon".to_owned(), (gib << 10).to_string()));
        let memory = ("memory".to_owned(), (gib << 10).to_string());
        AdminAct::AddMachine(MachineSpec {
            vmid,
            host: host.to_owned(),
            container: false,
            template: false,
            running: true,
            storage: "shared".to_owned(),
            disk: 1 << 30,
            disk_used: 1 << 20,
            cloudinit: false,
            pool: None,
            config: std::iter::once(memory).chain(balloon).collect(),
        })
    };
    for (ballooning, host) in [("minimum", "pve2"), ("maximum", "pve3")] {
        simulate(async {
            let lines = format!("host_strategy = \"max-memory\"\nballooning = \"{ballooning}\"\n");
            let scene = Scene::new(5, &region(&lines), GuestSpec::default());
            act(&scene, &guest(300, "pve1", 60, None));
            act(&scene, &guest(301, "pve2", 100, Some(1)));
            act(&scene, &guest(302, "pve3", 30, None));
            let time = Duration::from_mins(5);
            scene.live(None, 0, fill(1), time).await;
            assert_eq!(made(&scene), on([(host, 1)]), "{ballooning}");
            assert_eq!(scene.findings(), Vec::<String>::new());
        });
    }
}

/// While a clone is copied PVE shows the VM on the template's host. It counts where it will be: the next machine finds that
/// host taken.
#[test]
fn a_machine_that_is_being_cloned_counts_on_the_host_it_goes_to() {
    simulate(async {
        let lines = "hosts = [\"pve2\", \"pve3\"]\nmax_per_host = 1\nhost_strategy = \"pack\"\n";
        let mut pve = PveSpec::default();
        pve.timings.clone = [60_000, 61_000];
        let scene = Scene::of(WorldSpec {
            seed: 5,
            pve,
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config: region(lines),
        });
        let second = async {
            tokio::time::sleep(Duration::from_secs(25)).await;
            let pods = Workload::visit(
                "late",
                1,
                WorkloadPods::of("1500m", "1Gi"),
                Span::minutes(120),
            );
            scene.play(pods).await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, fill(1), Duration::from_mins(8)) => {}
            () = second => {}
        }
        assert_eq!(made(&scene), on([("pve2", 1), ("pve3", 1)]));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// A host in maintenance gets nothing, and when all are the pod says so; when one comes back its machine is made there.
#[test]
fn hosts_in_maintenance_get_machines_when_they_are_back() {
    simulate(async {
        let scene = Scene::new(5, &region(""), GuestSpec::default());
        for host in ["pve1", "pve2", "pve3"] {
            maintenance(&scene, host, true);
        }
        let mut first = (String::new(), BTreeMap::new());
        let acts = async {
            tokio::time::sleep(Duration::from_mins(2)).await;
            first = (said(&scene), made(&scene));
            maintenance(&scene, "pve3", false);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, fill(1), Duration::from_mins(6)) => {}
            () = acts => {}
        }
        assert!(first.0.contains("is in maintenance"), "{}", first.0);
        assert_eq!(first.1, on([]));
        assert_eq!(made(&scene), on([("pve3", 1)]));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Something else on a host uses its memory: no machine is made there as long as it does.
#[test]
fn a_host_whose_memory_is_in_use_gets_its_machine_later() {
    simulate(async {
        let scene = Scene::new(
            5,
            &region("hosts = [\"pve2\"]\nmin_free_memory = \"8GiB\"\nmin_free_cores = 2\n"),
            GuestSpec::default(),
        );
        let load = |cpu_permille: u32, memory: u64| AdminAct::Load {
            host: "pve2".to_owned(),
            cpu_permille,
            memory,
        };
        let memory = 120 << 30;
        act(&scene, &load(10, memory));
        let mut told = Vec::new();
        let acts = async {
            tokio::time::sleep(Duration::from_mins(2)).await;
            told.push((said(&scene), made(&scene).len()));
            act(&scene, &load(960, 2 << 30));
            tokio::time::sleep(Duration::from_mins(2)).await;
            told.push((said(&scene), made(&scene).len()));
            act(&scene, &load(10, 2 << 30));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, fill(1), Duration::from_mins(10)) => {}
            () = acts => {}
        }
        assert!(told[0].0.contains("min_free_memory keeps 8Gi"), "{told:?}");
        assert!(told[1].0.contains("min_free_cores keeps 2"), "{told:?}");
        assert_eq!((told[0].1, told[1].1), (0, 0), "{told:?}");
        assert_eq!(made(&scene), on([("pve2", 1)]));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Somebody migrates a machine: it stays a machine, and its node says where it is.
#[test]
fn the_zone_of_a_node_follows_its_vm_to_another_host() {
    simulate(async {
        let scene = Scene::new(5, &region("hosts = [\"pve1\"]\n"), GuestSpec::default());
        let zones = || {
            let nodes = scene.world.kube.objects("v1", "Node");
            let zones = nodes.iter().filter_map(|node| {
                let name = node["metadata"]["name"].as_str()?;
                let zone = node["metadata"]["labels"][ZONE_LABEL].as_str()?;
                name.starts_with("general-").then(|| zone.to_owned())
            });
            zones.collect::<Vec<String>>()
        };
        let mut before = Vec::new();
        let acts = async {
            tokio::time::sleep(Duration::from_mins(4)).await;
            before = zones();
            let host = "pve3".to_owned();
            act(&scene, &AdminAct::Migrate { vmid: 9100, host });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, fill(1), Duration::from_mins(6)) => {}
            () = acts => {}
        }
        assert_eq!(
            (before, zones()),
            (vec!["pve1".to_owned()], vec!["pve3".to_owned()])
        );
        assert_eq!(made(&scene), on([("pve3", 1)]));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// No VM of the template can be started anywhere: each host is tried, and then the pool waits. PVE shows a clone for another host
/// on its template's host until the cluster has heard of its move.
#[test]
fn a_fault_of_every_start_is_tried_once_on_each_host() {
    let config = HASTY
        .replace("vmid = 9000", "vmid = 9000\nbridge = \"vmbr9\"")
        .replace("initial_backoff = \"30s\"", "");
    simulate(async {
        let scene = Scene::new(7, &config, GuestSpec::default());
        scene.live(None, 0, fill(1), Duration::from_mins(4)).await;
        assert_eq!(scene.machines_made(), 3);
    });
}

/// A host is loaded for long: it gets no machine until it is not any more, whichever of its bounds it is. A peak of a minute
/// closes nothing.
#[test]
fn a_loaded_host_gets_its_machine_later_and_a_peak_closes_none() {
    let cpu = |permille| AdminAct::Load {
        host: "pve2".to_owned(),
        cpu_permille: permille,
        memory: 2 << 30,
    };
    let memory = |memory| AdminAct::Load {
        host: "pve2".to_owned(),
        cpu_permille: 20,
        memory,
    };
    let waits = |permille| AdminAct::Pressure {
        host: "pve2".to_owned(),
        permille: [0, 0, permille],
    };
    simulate(async {
        for (key, loaded, idle, why) in [
            (
                "max_cpu_load",
                cpu(950),
                cpu(100),
                "95 % of its CPUs are in use on average, and max_cpu_load allows 50 %",
            ),
            (
                "max_memory_load",
                memory(100 << 30),
                memory(2 << 30),
                "of its memory is in use on average, and max_memory_load",
            ),
            (
                "max_pressure",
                waits(700),
                waits(0),
                "70 % of the time something waits for a disk on average, and max_pressure",
            ),
        ] {
            let config = region(&format!("hosts = [\"pve2\"]\n{key} = 0.5\n"));
            let scene = Scene::new(5, &config, GuestSpec::default());
            act(&scene, &loaded);
            let mut told = Vec::new();
            let acts = async {
                // Ten minutes of load before anybody needs a machine.
                tokio::time::sleep(Duration::from_mins(14)).await;
                told.push((said(&scene), made(&scene)));
                act(&scene, &idle);
                tokio::time::sleep(Duration::from_mins(10)).await;
                told.push((said(&scene), made(&scene)));
                // A peak, and a pod that comes in it.
                act(&scene, &loaded);
                tokio::time::sleep(Duration::from_mins(1)).await;
                act(&scene, &idle);
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(Duration::from_mins(4)) => {}
                    () = scene.play(Workload::visit("more", 1, WorkloadPods::of("1500m", "1Gi"), Span::minutes(60))) => {}
                }
                told.push((said(&scene), made(&scene)));
                std::future::pending::<()>().await;
            };
            let late = async {
                tokio::time::sleep(Duration::from_mins(10)).await;
                scene.play(fill(1)).await;
            };
            tokio::select! {
                biased;
                () = scene.live(None, 0, Workload { steps: Vec::new() }, Duration::from_mins(30)) => {}
                () = acts => {}
                () = late => {}
            }
            assert!(told[0].0.contains(why), "{key}: {told:?}");
            assert_eq!(told[0].1, on([]), "{key}");
            assert_eq!(told[1].1, on([("pve2", 1)]), "{key}: {told:?}");
            assert_eq!(told[2].1, on([("pve2", 2)]), "{key}: {told:?}");
            assert_eq!(scene.findings(), Vec::<String>::new());
        }
    });
}

/// PVE 8 tells no pressure: a bound on it lets no machine be made, and the pod says why.
#[test]
fn a_load_that_nobody_tells_is_too_much() {
    simulate(async {
        let scene = Scene::of(WorldSpec {
            seed: 5,
            pve: PveSpec {
                version: "8.4.14".to_owned(),
                ..PveSpec::default()
            },
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config: region("max_pressure = 0.9\n"),
        });
        scene.live(None, 0, fill(1), Duration::from_mins(6)).await;
        let said = said(&scene);
        assert!(
            said.contains("PVE does not tell, and max_pressure allows"),
            "{said}"
        );
        assert_eq!(made(&scene), on([]));
    });
}
