//! Two PVE clusters under one daemon: `east`, on whose host it is, and `west`, which it reaches by a token. Both have
//! hosts of the same names, templates of the same VMIDs and the same range for machines.

use std::collections::BTreeSet;
use std::time::Duration;

use pve_autoscaler::model::policy::{REGION_LABEL, ZONE_LABEL};
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::{CallCounter, FaultPlan, Kill, KillMoment};
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{Pve, PveSpec};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::Value;

use crate::HASTY;
use crate::cloud_init::{names, silent, with_shared_isos};
use crate::common::{Scene, simulate};

/// The configuration: a pool in each region.
pub(crate) fn config() -> String {
    let west = "
[region.west]
channel = \"token\"
endpoints = [\"https://west.example:8006\"]
token_id = \"scaler@pve!sim\"
token_secret_file = \"/etc/pve-autoscaler/west.token\"
ca_file = \"/etc/pve-autoscaler/west.pem\"
vmids = \"9100-9120\"
[template.debian-west]
region = \"west\"
vmid = 9000
[pool.western]
template = \"debian-west\"
instance_types = [\"small\"]
max = 3
";
    let east = HASTY
        .replace("[proxmox]", "[region.east]")
        .replace("[template.debian]", "[template.debian]\nregion = \"east\"");
    format!("{east}{west}")
}

fn scene(seed: u64) -> Scene {
    scene_of(seed, config())
}

fn scene_of(seed: u64, config: String) -> Scene {
    let cluster = |name: &str| PveSpec {
        cluster: name.to_owned(),
        ..PveSpec::default()
    };
    let spec = WorldSpec {
        seed,
        pve: cluster("east"),
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config,
    };
    Scene::with_regions(spec, [("west".to_owned(), cluster("west"))].into())
}

/// Both clusters have one storage for ISOs, and machines of the same VMIDs come to both at the same time: each has the image that it
/// boots with until it is Ready, and none is left.
#[test]
fn images_of_two_regions_lie_on_one_storage() {
    simulate(async {
        let isos = "storage = \"shared\"\n[instance_type.small]";
        let config = config()
            .replace(
                "[instance_type.small]",
                &format!("[template.debian.cloud_init]\n{isos}"),
            )
            .replace(
                "[pool.western]",
                "[template.debian-west.cloud_init]\nstorage = \"shared\"\n[pool.western.join]\ndelivery = \"cloud-init\"\n[pool.western]",
            )
            .replace(
                "[scale_up]",
                "[pool.general.join]\ndelivery = \"cloud-init\"\n[scale_up]",
            );
        let spec = WorldSpec {
            seed: 16,
            pve: with_shared_isos("east"),
            kube: KubeSpec::default(),
            guests: silent(),
            config,
        };
        let mut west = with_shared_isos("west");
        // What the documents have a token be given for ISOs.
        for of in west.tokens.iter_mut().flat_map(|token| &mut token.acl) {
            let more = [
                "Datastore.Allocate",
                "Datastore.AllocateTemplate",
                "VM.Config.CDROM",
            ];
            of.privileges.extend(more.map(str::to_owned));
        }
        let further = [("west".to_owned(), west)].into();
        let scene = Scene::with_regions(spec, further);
        let west = &scene.world.further["west"].pve;
        scene.world.pve.share_isos(west);
        let mut seen = BTreeSet::new();
        let watch = async {
            loop {
                seen.extend(names(&scene.world.pve));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let pods = WorkloadPods::of("1500m", "1Gi");
        let workload = Workload::visit("web", 5, pods, Span::seconds(240));
        tokio::select! {
            biased;
            () = scene.live(None, 0, workload, Duration::from_mins(14)) => {}
            () = watch => {}
        }
        // One image a machine; that somebody else removed one would be seen in a second one of its VMID, or in a machine that failed.
        assert_eq!(seen.len(), 5, "{seen:?}");
        let vmids = seen.iter().filter_map(|name| name.split('-').nth(2));
        assert!(vmids.collect::<BTreeSet<_>>().len() < 5, "{seen:?}");
        scene.nothing_is_left();
    });
}

fn machines(pve: &Pve) -> BTreeSet<u32> {
    let vms = pve.vms().into_iter().map(|vm| vm.vmid);
    vms.filter(|vmid| (9100..=9120).contains(vmid)).collect()
}

/// The nodes of machines, with region and zone.
fn nodes(scene: &Scene) -> Vec<(String, String)> {
    let label = |node: &Value, key: &str| {
        let value = node["metadata"]["labels"][key].as_str();
        value.unwrap_or_default().to_owned()
    };
    let nodes = scene.world.kube.objects("v1", "Node");
    let of = |node: &Value| (label(node, REGION_LABEL), label(node, ZONE_LABEL));
    let own = nodes
        .iter()
        .filter(|node| node["metadata"]["labels"]["pve-autoscaler.io/pool"].is_string());
    own.map(|node| of(node)).collect()
}

/// Lives for `time`, and looks at the scene after `until`.
async fn live_and_look<T>(
    scene: &Scene,
    workload: Workload,
    until: Duration,
    time: Duration,
    look: impl FnOnce() -> T,
) -> T {
    let mut seen = None;
    let looking = async {
        tokio::time::sleep(until).await;
        seen = Some(look());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = scene.live(None, 0, workload, time) => {}
        () = looking => {}
    }
    seen.expect("the time was long enough")
}

/// Pods come that more than one region's pool must hold; machines of the same VMIDs are made in both, become nodes of
/// their regions, and all go again.
#[test]
fn machines_of_two_regions_come_and_go() {
    simulate(async {
        let scene = scene(11);
        let workload = Workload::visit(
            "web",
            5,
            WorkloadPods::of("1500m", "1Gi"),
            Span::seconds(240),
        );
        let west = &scene.world.further["west"].pve;
        let look = || (machines(&scene.world.pve), machines(west), nodes(&scene));
        let (until, time) = (Duration::from_secs(200), Duration::from_mins(12));
        let (in_east, in_west, nodes) = live_and_look(&scene, workload, until, time, look).await;
        assert_eq!(in_east.len() + in_west.len(), 5, "{in_east:?} {in_west:?}");
        assert!(!in_east.is_empty() && !in_west.is_empty());
        assert!(!in_east.is_disjoint(&in_west), "no VMID is in use twice");
        let of = |region: &str| nodes.iter().filter(|node| node.0 == region).count();
        assert_eq!((of("east"), of("west")), (in_east.len(), in_west.len()));
        scene.nothing_is_left();
    });
}

/// The other region does not answer at all, from before the pods came until they went.
#[test]
fn a_region_that_is_away_stops_nothing_in_the_other() {
    simulate(async {
        let scene = scene(12);
        let west = &scene.world.further["west"];
        west.faults.set(FaultPlan {
            silent: 1000,
            ..FaultPlan::default()
        });
        let workload = Workload::visit(
            "web",
            3,
            WorkloadPods::of("1500m", "1Gi"),
            Span::seconds(240),
        );
        let look = || {
            west.faults.quiet();
            (machines(&scene.world.pve), nodes(&scene))
        };
        let (until, time) = (Duration::from_secs(200), Duration::from_mins(14));
        let (in_east, nodes) = live_and_look(&scene, workload, until, time, look).await;
        assert_eq!((in_east.len(), nodes.len()), (3, 3));
        assert!(machines(&west.pve).is_empty());
        scene.nothing_is_left();
    });
}

/// A region goes away while machines of it serve; it is silent for ten minutes, in which the pods of both go. What is
/// in the other region goes at once, its own machines stay until it is back, and then nothing is left.
#[test]
fn machines_of_a_region_that_went_away_wait_for_it() {
    simulate(async {
        let scene = scene(13);
        let west = &scene.world.further["west"];
        let workload = Workload::visit(
            "web",
            5,
            WorkloadPods::of("1500m", "1Gi"),
            Span::seconds(180),
        );
        let play = async {
            tokio::time::sleep(Duration::from_mins(3)).await;
            let before = machines(&west.pve);
            assert!(!before.is_empty());
            west.faults.set(FaultPlan {
                silent: 1000,
                ..FaultPlan::default()
            });
            tokio::time::sleep(Duration::from_mins(10)).await;
            assert_eq!(machines(&west.pve), before, "nobody can have removed them");
            assert_eq!(machines(&scene.world.pve), BTreeSet::new());
            west.faults.quiet();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, workload, Duration::from_mins(25)) => {}
            () = play => {}
        }
        scene.nothing_is_left();
    });
}

/// The daemon dies at calls all over its life with two regions, and is started again: nothing is lost or doubled.
#[test]
fn a_crash_with_two_regions_loses_nothing() {
    let workload = || {
        Workload::visit(
            "web",
            4,
            WorkloadPods::of("1500m", "1Gi"),
            Span::seconds(90),
        )
    };
    let time = Duration::from_mins(12);
    let calls = simulate(async {
        let scene = scene(14);
        let counter = CallCounter::new(None);
        scene.live(Some(&counter), 0, workload(), time).await;
        scene.nothing_is_left();
        counter.calls()
    });
    assert!(calls > 200, "{calls}");
    // Every nineteenth: the whole life has a few hundred calls.
    for call in (10..calls).step_by(19) {
        let when = if call % 2 == 0 {
            KillMoment::BeforeSending
        } else {
            KillMoment::AfterCarriedOut
        };
        simulate(async {
            let scene = scene(14);
            let counter = CallCounter::new(Some(Kill { call, when }));
            scene.live_and_die(&counter, workload(), time).await;
            let wrong = scene.verdict();
            assert!(wrong.is_empty(), "call {call}, {when:?}: {wrong:#?}");
        });
    }
}

/// Three pods that must be on hosts of their own by zone, and one host may be used in each region: of the name pve1.
#[test]
fn hosts_of_one_name_in_two_regions_are_two_zones() {
    let spread = |pods: u32| {
        let mut each = WorkloadPods::of("100m", "100Mi");
        each.template = serde_json::json!({"spec": {"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": ZONE_LABEL, "whenUnsatisfiable": "DoNotSchedule", "minDomains": pods,
            "labelSelector": {"matchLabels": {"app": "web"}},
        }]}});
        Workload::visit("web", pods, each, Span::minutes(120))
    };
    let live = |zone: &'static str| {
        let hosts = format!("\nhosts = [\"pve1\"]\n{zone}\nvmids");
        let config = config().replace("\nvmids", &hosts);
        simulate(async move {
            let scene = scene_of(15, config);
            scene.live(None, 0, spread(2), Duration::from_mins(6)).await;
            assert_eq!(scene.findings(), Vec::<String>::new());
            let turn = scene.world.turns.borrow().clone().expect("a turn");
            (nodes(&scene), turn.decision.report.warnings.clone())
        })
    };
    let (mut two, warnings) = live("");
    two.sort();
    let zones = |of: &[(String, String)]| of.iter().map(|node| node.1.clone()).collect::<Vec<_>>();
    assert_eq!(zones(&two), ["east.pve1", "west.pve1"]);
    let told = |warnings: &[String]| {
        let mut all = warnings.iter();
        all.any(|warning| warning.contains("for Kubernetes is one zone"))
    };
    assert!(!told(&warnings), "{warnings:?}");
    // As the cloud controller for Proxmox calls them, both are one zone: one pod waits for ever, and the daemon says why.
    let (one, warnings) = live("zone = \"host\"");
    assert!(zones(&one).iter().all(|zone| zone == "pve1"), "{one:?}");
    assert!(told(&warnings), "{warnings:?}");
}

/// One pool over both regions, five machines at most.
fn over_both(west: &str) -> String {
    let config = config();
    let (config, _) = config.split_once("[pool.western]").expect("the pool");
    let config = config
        .replace("max = 3", "max = 5")
        .replace(
            "[pool.general]\ntemplate = \"debian\"",
            "[pool.general]\ntemplates = [\"debian\", \"debian-west\"]",
        )
        .replace("[region.west]", &format!("[region.west]\n{west}"));
    assert!(config.contains("templates = "), "{config}");
    config
}

/// A pool over both regions: at equal prices both get machines, the labels say where each is, and all go again.
#[test]
fn a_pool_over_both_regions_fills_both() {
    for (west, wanted) in [
        ("", [3, 2]),
        ("price_factor = 1.1", [5, 0]),
        ("weight = 1", [0, 5]),
    ] {
        simulate(async {
            let scene = scene_of(16, over_both(west));
            let workload = Workload::visit(
                "web",
                5,
                WorkloadPods::of("1500m", "1Gi"),
                Span::seconds(240),
            );
            let far = &scene.world.further["west"].pve;
            let look = || (machines(&scene.world.pve), machines(far), nodes(&scene));
            let (until, time) = (Duration::from_secs(200), Duration::from_mins(14));
            let (in_east, in_west, nodes) =
                live_and_look(&scene, workload, until, time, look).await;
            assert_eq!([in_east.len(), in_west.len()], wanted, "{west}");
            let of = |region: &str| nodes.iter().filter(|node| node.0 == region).count();
            assert_eq!([of("east"), of("west")], wanted, "{west}");
            scene.nothing_is_left();
        });
    }
}

/// One region goes away while machines of the pool serve in both. More pods come: the other region makes what `max` leaves
/// beside those that are away, and none of these is given up.
#[test]
fn a_pool_over_both_counts_the_machines_of_a_region_that_is_away() {
    simulate(async {
        let scene = scene_of(17, over_both(""));
        let west = &scene.world.further["west"];
        let first = Workload::visit(
            "web",
            4,
            WorkloadPods::of("1500m", "1Gi"),
            Span::minutes(12),
        );
        let play = async {
            tokio::time::sleep(Duration::from_mins(3)).await;
            let before = machines(&west.pve);
            assert_eq!((machines(&scene.world.pve).len(), before.len()), (2, 2));
            west.faults.set(FaultPlan {
                silent: 1000,
                ..FaultPlan::default()
            });
            tokio::time::sleep(Duration::from_secs(30)).await;
            let more = Workload::visit(
                "more",
                3,
                WorkloadPods::of("1500m", "1Gi"),
                Span::minutes(6),
            );
            let _ = more.play(scene.world.kube.router()).await;
            west.faults.quiet();
            std::future::pending::<()>().await;
        };
        let look = async {
            tokio::time::sleep(Duration::from_mins(8)).await;
            assert_eq!(machines(&west.pve).len(), 2, "they are left as they are");
            let east = machines(&scene.world.pve).len();
            assert_eq!(east, 3, "five are the most, and two of them are away");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, first, Duration::from_mins(35)) => {}
            () = play => {}
            () = look => {}
        }
        scene.nothing_is_left();
    });
}
