//! No machine of ours runs with an address that another guest has too, or a device on the wire.

use std::collections::BTreeMap;

use super::Judge;
use crate::model::time::Time;
use crate::sim::pve::VmFacts;

impl Judge {
    /// Looks at every guest's fixed addresses, as its configuration gives them.
    pub(super) fn look_at_addresses(&mut self, now: Time, ours: &[VmFacts]) {
        let mut holders: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for guest in self.pve.vms().iter().filter(|guest| !guest.template) {
            for address in fixed(guest) {
                holders.entry(address).or_default().push(guest.vmid);
            }
        }
        for vm in ours.iter().filter(|vm| vm.running) {
            for address in fixed(vm) {
                let device = address.parse().ok().and_then(|ip| self.wire.mac(ip));
                if let Some(mac) = device {
                    self.find(format!(
                        "{now}: the machine {} has the address {address}, and so has the device {mac} on the wire",
                        vm.vmid
                    ));
                }
            }
        }
        let runs = |vmid: &u32| ours.iter().any(|vm| vm.vmid == *vmid && vm.running);
        for (address, guests) in holders.iter().filter(|(_, guests)| guests.len() > 1) {
            if guests.iter().any(runs) {
                self.find(format!(
                    "{now}: the guests {guests:?} have the address {address}"
                ));
            }
        }
    }
}

fn fixed(guest: &VmFacts) -> Vec<String> {
    let stem = if guest.container { "net" } else { "ipconfig" };
    let values = guest.config.iter().filter(|(key, _)| key.starts_with(stem));
    let parts = values.flat_map(|(_, value)| value.split(','));
    let addresses = parts.filter_map(|part| {
        let (key, address) = part.split_once('=')?;
        let (address, _) = address.split_once('/')?;
        matches!(key, "ip" | "ip6").then(|| address.to_owned())
    });
    addresses.collect()
}
