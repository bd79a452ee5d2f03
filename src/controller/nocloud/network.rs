//! The network as PVE's configuration gives it, and as cloud-init is told of it (version 1, as PVE writes it).

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use crate::config::cloud_init::{GapValues, Nic};
use crate::pve::{Net, VmConfig};

/// Cards of a VM at most (qemu-server, `net[n]`).
const MOST_CARDS: u8 = 32;

/// The network cards of a VM, by number up to the last one that there is.
pub fn nics(config: &VmConfig) -> Vec<Nic> {
    let mut nics = Vec::new();
    for number in 0..MOST_CARDS {
        let Some(net) = config.raw.get(&format!("net{number}")) else {
            continue;
        };
        let mac = Net::read(net).mac.unwrap_or_default().to_lowercase();
        let text = config.raw.get(&format!("ipconfig{number}"));
        let nic = Nic::read(mac, text.map(String::as_str));
        nics.resize(usize::from(number), Nic::default());
        nics.push(nic);
    }
    nics
}

/// What PVE would write; nothing where no card has an `ipconfig`: then cloud-init asks DHCP.
pub(super) fn config(words: &GapValues) -> Option<String> {
    let numbered = words.nics.iter().enumerate();
    let cards = numbered.filter_map(|(number, nic)| {
        let subnets = subnets(nic);
        (!subnets.is_empty()).then(|| {
            json!({
                "type": "physical", "name": format!("eth{number}"), "mac_address": nic.mac, "subnets": subnets,
            })
        })
    });
    let mut all: Vec<Value> = cards.collect();
    if all.is_empty() {
        return None;
    }
    let search: Vec<&str> = words.searchdomain.split_whitespace().collect();
    if !(words.nameservers.is_empty() && search.is_empty()) {
        all.push(json!({"type": "nameserver", "address": words.nameservers, "search": search}));
    }
    Some(json!({"version": 1, "config": all}).to_string())
}

fn subnets(nic: &Nic) -> Vec<Value> {
    let mut subnets = Vec::new();
    if nic.dhcp4 {
        subnets.push(json!({"type": "dhcp4"}));
    }
    for text in &nic.addresses {
        let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
        let mut subnet = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => {
                json!({"type": "static", "address": address, "netmask": netmask(prefix)})
            }
            Ok(IpAddr::V6(_)) => json!({"type": "static6", "address": text}),
            Err(_) => continue,
        };
        let gateway = if address.contains(':') {
            &nic.gateway6
        } else {
            &nic.gateway4
        };
        if let Some(gateway) = gateway {
            subnet["gateway"] = json!(gateway);
        }
        subnets.push(subnet);
    }
    if nic.dhcp6 {
        subnets.push(json!({"type": "dhcp6"}));
    }
    if nic.auto6 {
        subnets.push(json!({"type": "ipv6_slaac"}));
    }
    subnets
}

fn netmask(prefix: &str) -> String {
    let bits = prefix.parse::<u32>().unwrap_or(32).min(32);
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    Ipv4Addr::from(mask).to_string()
}
