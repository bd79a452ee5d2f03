//! What machines are given beside the size of their type: their network card and their weight.

use std::time::Duration;

use pve_autoscaler::sim::guests::GuestSpec;

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
