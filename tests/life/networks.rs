//! Addresses out of ranges: each machine has one of its own, whoever else has some.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use pve_autoscaler::controller::status::DaemonStatus;
use pve_autoscaler::model::network::Family;
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
pub(crate) fn network(ranges: &str, max: u32) -> String {
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
pub(crate) fn told(scene: &Scene) -> Vec<String> {
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
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let shown = DaemonStatus::of(&turn).machines;
        assert_eq!(shown.len(), 4);
        for machine in shown.values() {
            let [four, six] = &machine.addresses[&0][..] else {
                panic!("{machine:?}");
            };
            let wanted = format!("ip={four}/24,gw=192.0.2.1,ip6={six}/64");
            let vm = scene.world.pve.vm(machine.vmid).expect("there");
            assert_eq!(vm.config["ipconfig0"], wanted, "what status shows it has");
        }
        let server = |vm: &str| scene.world.pve.vm(9100).expect("there").config[vm].clone();
        assert_eq!(server("nameserver"), "192.0.2.2");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// A network may leave one family to DHCP: that of the other is out of its range.
#[test]
fn a_network_leaves_ipv4_to_dhcp_and_gives_ipv6() {
    let lan = "[network.lan]\nipv4 = \"dhcp\"\nsubnet6 = \"2001:db8::/64\"\nranges6 = [\"2001:db8::50-2001:db8::5f\"]\n";
    let config = HASTY
        .replace(
            "[instance_type.small]",
            &format!("{lan}[instance_type.small]"),
        )
        .replace("max = 3", "max = 3\nnetwork = \"lan\"");
    simulate(async {
        let scene = Scene::new(5, &config, GuestSpec::default());
        scene.live(None, 0, fill(2), Duration::from_mins(5)).await;
        assert_eq!(
            told(&scene),
            ["ip=dhcp,ip6=2001:db8::50/64", "ip=dhcp,ip6=2001:db8::51/64"]
        );
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

/// The configuration with a network of these ranges whose addresses are asked for on the wire.
fn asking(ranges: &str, max: u32) -> String {
    let config = network(ranges, max);
    let asking = config.replace("[network.lan]", "[network.lan]\nask_on_wire = true");
    assert_ne!(asking, config);
    asking
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The messages of all Events.
fn events(scene: &Scene) -> Vec<String> {
    let events = scene.world.kube.objects("v1", "Event");
    let messages = events.iter().map(|event| event["message"].as_str());
    messages.flatten().map(str::to_owned).collect()
}

/// A device has the first address of the range, and nobody in PVE or Kubernetes knows of it.
pub(super) async fn stranger() -> Scene {
    let config = asking("[\"192.0.2.50-192.0.2.59\"]", 3);
    let scene = Scene::new(13, &config, GuestSpec::default());
    let mac = "02:00:5e:10:00:01";
    scene.world.wire.plug_in(ip("192.0.2.50"), mac);
    scene.live(None, 0, fill(1), Duration::from_mins(5)).await;
    scene
}

#[test]
fn an_address_that_somebody_has_on_the_wire_is_passed_over_and_told() {
    simulate(async {
        let scene = stranger().await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        assert_eq!(of_nodes(&scene).await, ["192.0.2.51"]);
        assert_eq!(scene.machines_made(), 1, "nothing was asked of PVE for it");
        assert_eq!(
            scene.world.wire.asked(),
            ["192.0.2.50", "2001:db8::50", "192.0.2.51", "2001:db8::51"].map(ip)
        );
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let four = &turn.decision.report.networks["lan"][&Family::V4];
        let found: Vec<String> = four
            .on_wire
            .iter()
            .map(|(address, holder)| format!("{address} {holder}"))
            .collect();
        let words = "answers on the wire (MAC 02:00:5e:10:00:01)";
        assert_eq!(found, [format!("192.0.2.50 {words}")]);
        assert_eq!(four.free, 8, "the stranger's and the machine's are not");
        let words = format!("192.0.2.50 of the network lan {words}");
        let told = events(&scene);
        assert!(told.iter().any(|text| text.contains(&words)), "{told:#?}");
        assert!(
            turn.decision.memory.backoff.is_empty() && turn.decision.memory.host_backoff.is_empty(),
            "no pool and no host is to blame"
        );
    });
}

/// Both addresses answer: the pod says so, and PVE is asked for nothing. One device goes, and its address is given within the time
/// for which it is remembered.
#[test]
fn a_range_of_which_every_address_answers_is_a_reason() {
    simulate(async {
        let config = asking("[\"192.0.2.50-192.0.2.51\"]", 3);
        let scene = Scene::new(17, &config, GuestSpec::default());
        let wire = &scene.world.wire;
        wire.plug_in(ip("192.0.2.50"), "02:00:5e:10:00:01");
        wire.plug_in(ip("192.0.2.51"), "02:00:5e:10:00:02");
        let mut why = String::new();
        let mut made = usize::MAX;
        let acts = async {
            tokio::time::sleep(Duration::from_mins(4)).await;
            why = said(&scene);
            made = scene.machines_made();
            wire.unplug(ip("192.0.2.51"));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, fill(1), Duration::from_mins(16)) => {}
            () = acts => {}
        }
        assert!(
            why.contains(
                "the network lan has no free address: all of 192.0.2.50-192.0.2.51 are taken, 2 of them were seen in use on the wire"
            ),
            "{why}"
        );
        assert_eq!(made, 0);
        assert_eq!(of_nodes(&scene).await, ["192.0.2.51"]);
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Machines have their addresses themselves, and answer: nobody asks for these any more, after a restart neither.
#[test]
fn an_address_of_a_machine_is_asked_for_once() {
    simulate(async {
        let config = asking("[\"192.0.2.50-192.0.2.59\"]", 3);
        let scene = Scene::new(19, &config, GuestSpec::default());
        scene
            .live_and_stop(Duration::from_mins(4), fill(2), Duration::from_mins(8))
            .await;
        assert_eq!(of_nodes(&scene).await, ["192.0.2.50", "192.0.2.51"]);
        let mut asked = scene.world.wire.asked();
        asked.sort();
        let wanted = ["192.0.2.50", "192.0.2.51", "2001:db8::50", "2001:db8::51"];
        assert_eq!(asked, wanted.map(ip));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// The daemon dies at one call after another while a device has the first address: no machine gets that one, and nothing is left.
#[test]
fn what_is_on_the_wire_is_found_across_restarts() {
    for call in [3, 7, 11, 15, 22] {
        simulate(async {
            let config = asking("[\"192.0.2.50-192.0.2.53\"]", 3);
            let scene = Scene::new(call, &config, GuestSpec::default());
            scene
                .world
                .wire
                .plug_in(ip("192.0.2.50"), "02:00:5e:10:00:01");
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

/// The machine has a card in each of two networks, and one network asks: for the addresses of the other nobody asks. Without the
/// key nobody asks for any.
#[test]
fn only_networks_that_want_it_are_asked() {
    let nic = "[[template.debian.nic]]\nbridge = \"vmbr0\"\nnetwork = \"storage\"\n\
               [network.storage]\nsubnet = \"203.0.113.0/24\"\nranges = [\"203.0.113.10-203.0.113.19\"]\n";
    for asks in [true, false] {
        simulate(async {
            let lan = "[\"192.0.2.50-192.0.2.59\"]";
            let config = if asks {
                asking(lan, 3)
            } else {
                network(lan, 3)
            };
            let config = config.replace("[network.lan]", &format!("{nic}[network.lan]"));
            let scene = Scene::new(23, &config, GuestSpec::default());
            scene.live(None, 0, fill(1), Duration::from_mins(5)).await;
            assert_eq!(scene.machines_made(), 1);
            let asked: BTreeSet<IpAddr> = scene.world.wire.asked().into_iter().collect();
            let wanted: &[&str] = if asks {
                &["192.0.2.50", "2001:db8::50"]
            } else {
                &[]
            };
            assert_eq!(asked, wanted.iter().map(|text| ip(text)).collect());
        });
    }
}
