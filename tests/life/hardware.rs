//! What machines are given beside the size of their type: their network card and their weight.

use std::time::Duration;

use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::world::WorldSpec;

use crate::HASTY;
use crate::common::{Scene, simulate};
use crate::hosts::fill;

/// The configuration with more lines for the template and for the pool.
fn config(template: &str, pool: &str) -> String {
    let text = HASTY.replace("vmid = 9000\n", &format!("vmid = 9000\n{template}"));
    text.replace("min = 0\n", &format!("min = 0\n{pool}"))
}

/// Two machines' worth of pods, and what the VMs look like some minutes later.
async fn live(config: &str) -> Scene {
    let scene = Scene::new(5, config, GuestSpec::default());
    let time = Duration::from_mins(5);
    scene.live(None, 0, fill(2), time).await;
    scene
}

#[test]
fn machines_get_their_network_card_and_weight_before_they_start() {
    let card = "vlan = 20\nfirewall = true\nmtu = 1400\nmultiqueue = true\n";
    simulate(async {
        let scene = live(&config(card, "cpu_units = 300\n")).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let vms = scene.world.pve.vms();
        let machines: Vec<_> = vms.iter().filter(|vm| vm.vmid >= 9100).collect();
        assert_eq!(machines.len(), 2, "{machines:?}");
        for vm in machines {
            assert!(vm.running, "{vm:?}");
            assert_eq!(vm.config["cpuunits"], "300");
            let (model, rest) = vm.config["net0"].split_once(',').expect("a card");
            assert!(model.starts_with("virtio="), "{model}");
            assert_eq!(rest, "bridge=vmbr0,firewall=1,mtu=1400,queues=2,tag=20");
        }
    });
}

/// A card for storage beside the first one: each machine has it before it starts, with an address of its own on it.
#[test]
fn machines_get_further_cards_with_addresses_of_their_own() {
    let cards = "
[[template.debian.nic]]
bridge = \"vmbr1\"
vlan = 30
network = \"storage\"
[[template.debian.nic]]
bridge = \"vmbr0\"
ipconfig = \"ip=dhcp\"
[network.storage]
subnet = \"192.0.2.0/24\"
ranges = [\"192.0.2.50-192.0.2.59\"]
[instance_type.small]";
    let config = HASTY.replace("[instance_type.small]", cards.trim_start());
    assert_ne!(config, HASTY);
    simulate(async {
        let mut pve = PveSpec::default();
        for host in &mut pve.hosts {
            host.bridges.push("vmbr1".to_owned());
        }
        let scene = Scene::of(WorldSpec {
            seed: 5,
            pve,
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config,
        });
        let time = Duration::from_mins(5);
        scene.live(None, 0, fill(2), time).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let vms = scene.world.pve.vms();
        let machines: Vec<_> = vms.iter().filter(|vm| vm.vmid >= 9100).collect();
        assert_eq!(machines.len(), 2, "{machines:?}");
        let mut addresses = Vec::new();
        for vm in machines {
            assert!(vm.running, "{vm:?}");
            let card = |key: &str| {
                let (model, rest) = vm.config[key].split_once(',').expect("a card");
                assert!(model.starts_with("virtio="), "{model}");
                rest.to_owned()
            };
            assert_eq!(card("net1"), "bridge=vmbr1,tag=30");
            assert_eq!(card("net2"), "bridge=vmbr0");
            assert_eq!(vm.config["ipconfig2"], "ip=dhcp");
            addresses.push(vm.config["ipconfig1"].clone());
        }
        addresses.sort();
        assert_eq!(addresses, ["ip=192.0.2.50/24", "ip=192.0.2.51/24"]);
    });
}

/// PVE starts no VM whose MTU is above its bridge's: nothing runs, nothing is left over, and PVE's words are told.
#[test]
fn an_mtu_above_the_bridges_is_said_in_pves_words() {
    simulate(async {
        let scene = live(&config("mtu = 9000\n", "")).await;
        let vms = scene.world.pve.vms();
        let running = vms.iter().any(|vm| vm.vmid >= 9100 && vm.running);
        assert!(!running, "{vms:?}");
        let words = "MTU '9000' is bigger than the bridge MTU '1500'";
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let said = format!("{:?}", turn.decision.report);
        assert!(said.contains(words), "{said}");
    });
}
