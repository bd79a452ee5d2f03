//! One planted bug for each way in which a new machine's address is not its own.

use super::{Bug, decided, planted, pool, region, spec};
use crate::check::CheckRule;
use model::network::{AddressRange, NetworkPolicy};
use model::on_wire::{AddressHolder, HolderSign};
use model::region::{Step, Vm};

#[test]
fn the_addresses_of_a_new_machine_are_its_own() {
    let address = |last: u8| std::net::IpAddr::from([192, 0, 2, last]);
    let base = pool().pod("web", 100, 100).with(|lab| {
        let range = AddressRange {
            first: address(10),
            last: address(19),
        };
        let ranges = vec![range];
        let network = NetworkPolicy { ranges };
        lab.policy.networks.insert("lan".into(), network);
        let pool = lab.policy.pools.get_mut("p").expect("there");
        pool.networks.insert(0, "lan".into());
    });
    let base = decided(base);
    let rule = |bug: Bug<'_>| planted(&base, CheckRule::Address, bug);
    rule(&|_, action| spec(action).mark.addresses.clear());
    rule(&|_, action| {
        spec(action).mark.addresses.insert(0, vec![address(9)]);
    });
    rule(&|_, action| {
        let both = vec![address(10), address(11)];
        spec(action).mark.addresses.insert(0, both);
    });
    rule(&|_, action| {
        spec(action).mark.addresses.insert(1, vec![address(11)]);
    });
    rule(&|lab, _| lab.policy.networks.clear());
    rule(&|lab, _| {
        let guest = Vm {
            addresses: Some(vec![address(10)]),
            ..Vm::default()
        };
        region(lab).vms.insert(300, guest);
    });
    rule(&|lab, _| {
        *lab = lab.clone().node("n", 1, 1).edit_node("n", |node| {
            node.addresses = vec![address(10)];
        });
    });
    rule(&|lab, _| {
        let holder = AddressHolder {
            sign: HolderSign::Neighbour,
            mac: None,
            seen: lab.now,
            until: lab.now,
        };
        lab.snapshot.on_wire.insert(address(10), holder);
    });
    rule(&|lab, _| {
        let machine = lab.clone().machine("p-other", "p", "one", Step::Clone);
        *lab = machine.edit_machine("p-other", |machine| {
            machine.mark.addresses.insert(0, vec![address(10)]);
            // All else of it is elsewhere.
            machine.mark.vmid = 9500;
        });
        region(lab).vms.remove(&9000);
    });
}
