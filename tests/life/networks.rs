//! Addresses out of ranges: each machine has one of its own, whoever else has some.

use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::{CallCounter, Kill, KillMoment};
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::pve::{AdminAct, MachineSpec};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use serde_json::Value;

use crate::HASTY;
use crate::common::{Scene, simulate};
use crate::hosts::{act, fill, said};

/// The configuration with a network of these ranges for its pool.
fn network(ranges: &str, max: u32) -> String {
    let network = format!(
        "[network.lan]\nsubnet = \"192.0.2.0/24\"\nranges = {ranges}\ngateway = \"192.0.2.1\"\n\
         subnet6 = \"2001:db8::/64\"\nranges6 = [\"2001:db8::50-2001:db8::5f\"]\nnameservers = [\"192.0.2.2\"]\n"
    );
    HASTY
        .replace(
            "[instance_type.small]",
            &format!("{network}[instance_type.small]"),
        )
        .replace("max = 3", &format!("max = {max}\nnetwork = \"lan\""))
}

/// A guest of somebody else's with more lines in its configuration.
fn guest(vmid: u32, container: bool, key: &str, value: &str) -> AdminAct {
    AdminAct::AddMachine(MachineSpec {
        vmid,
        host: "pve1".to_owned(),
        container,
        template: false,
        running: !container,
        storage: "shared".to_owned(),
        disk: 1 << 30,
        disk_used: 1 << 20,
        cloudinit: false,
        pool: None,
        config: [
            (key.to_owned(), value.to_owned()),
            ("memory".to_owned(), "512".to_owned()),
        ]
        .into(),
    })
}

/// What cloud-init is told in machines of ours, in the order of their VMIDs.
fn told(scene: &Scene) -> Vec<String> {
    let vms = scene.world.pve.vms().into_iter();
    let ours = vms.filter(|vm| (9100..9120).contains(&vm.vmid));
    ours.map(|vm| vm.config.get("ipconfig0").cloned().unwrap_or_default())
        .collect()
}

/// Those of Nodes as Kubernetes shows them.
async fn of_nodes(scene: &Scene) -> Vec<String> {
    let list = crate::call(scene, http::Request::get("/api/v1/nodes"), String::new()).await;
    let nodes = list["items"].as_array().expect("nodes").iter();
    let ours = nodes.filter(|node| {
        node["metadata"]["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("general-"))
    });
    let of = |node: &Value| {
        node["status"]["addresses"][0]["address"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let mut all: Vec<String> = ours.map(of).collect();
    all.sort();
    all
}

/// A VM and a container have addresses in the range: they are passed over. The fourth machine waits, and the pod says why;
/// when the container goes its address is given.
#[test]
fn each_machine_has_an_address_and_a_full_range_is_a_reason() {
    simulate(async {
        let config = network("[\"192.0.2.50-192.0.2.54\"]", 6);
        let scene = Scene::new(5, &config, GuestSpec::default());
        act(
            &scene,
            &guest(300, false, "ipconfig0", "ip=192.0.2.51/24,gw=192.0.2.1"),
        );
        act(
            &scene,
            &guest(301, true, "net0", "name=eth0,bridge=vmbr0,ip=192.0.2.53/24"),
        );
        let mut first = (Vec::new(), Vec::new(), String::new());
        let acts = async {
            tokio::time::sleep(Duration::from_mins(4)).await;
            first = (told(&scene), of_nodes(&scene).await, said(&scene));
            act(&scene, &AdminAct::Destroy { vmid: 301 });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, fill(4), Duration::from_mins(9)) => {}
            () = acts => {}
        }
        let (told_first, nodes, why) = first;
        let wanted = |four: u8, six: u8| {
            format!("ip=192.0.2.{four}/24,gw=192.0.2.1,ip6=2001:db8::{six:x}/64")
        };
        assert_eq!(
            told_first,
            [wanted(50, 0x50), wanted(52, 0x51), wanted(54, 0x52)]
        );
        assert_eq!(nodes, ["192.0.2.50", "192.0.2.52", "192.0.2.54"]);
        assert!(
            why.contains(
                "the network lan has no free address: all of 192.0.2.50-192.0.2.54 are taken"
            ),
            "{why}"
        );
        assert_eq!(told(&scene).last(), Some(&wanted(53, 0x53)));
        let server = |vm: &str| scene.world.pve.vm(9100).expect("there").config[vm].clone();
        assert_eq!(server("nameserver"), "192.0.2.2");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Pods come and go, the daemon dies at one call after another and is started anew: no address is lost, and none given twice.
#[test]
fn addresses_are_freed_and_survive_restarts() {
    for call in [3, 7, 11, 15, 22] {
        simulate(async {
            let config = network("[\"192.0.2.50-192.0.2.51\"]", 3);
            let scene = Scene::new(call, &config, GuestSpec::default());
            let counter = CallCounter::new(Some(Kill {
                call,
                when: KillMoment::AfterCarriedOut,
            }));
            let pods =
                Workload::visit("web", 2, WorkloadPods::of("1500m", "1Gi"), Span::minutes(4));
            scene
                .live_and_die(&counter, pods, Duration::from_mins(20))
                .await;
            scene.nothing_is_left();
            assert!(scene.machines_made() >= 2, "{call}");
        });
    }
}

/// A VM with the address that was chosen comes between the clone and the first write.
pub(super) async fn rival() -> Scene {
    let config = network("[\"192.0.2.50-192.0.2.59\"]", 3);
    let scene = Scene::new(9, &config, GuestSpec::default());
    let acts = async {
        while scene.machines_made() == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        act(&scene, &guest(9119, false, "ipconfig0", "ip=192.0.2.50/24"));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = scene.live(None, 0, fill(1), Duration::from_mins(5)) => {}
        () = acts => {}
    }
    scene
}

#[test]
fn a_machine_gives_way_to_whoever_has_its_address() {
    simulate(async {
        let scene = rival().await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        assert_eq!(
            of_nodes(&scene).await,
            ["192.0.2.51"],
            "made anew with another"
        );
    });
}

/// The first leader's clone is under way, without a mark that anybody could read, when the second one takes over with a state
/// directory of its own and has a machine to make.
#[test]
fn two_leaders_in_a_row_give_no_address_twice() {
    simulate(async {
        let config = network("[\"192.0.2.50-192.0.2.59\"]", 6);
        let scene = Scene::new(31, &config, GuestSpec::default());
        let other = tempfile::tempdir().expect("a directory");
        let lives = async {
            tokio::select! {
                () = scene.live_on(0, |_| {}) => {}
                () = async {
                    while scene.machines_made() == 0 {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                } => {}
            }
            let ended = scene.world.daemon(other.path(), None, 100).await;
            panic!("it ended: {ended:?}");
        };
        tokio::select! {
            biased;
            () = lives => {}
            () = scene.preside() => {}
            () = scene.play(fill(3)) => {}
            () = tokio::time::sleep(Duration::from_mins(9)) => {}
        }
        let mut all = of_nodes(&scene).await;
        let found = all.len();
        all.dedup();
        assert_eq!((found, all.len()), (3, 3), "{all:?}");
        let twice = scene.findings();
        let twice = twice
            .iter()
            .filter(|text| text.contains("have the address"));
        assert_eq!(twice.count(), 0);
    });
}
