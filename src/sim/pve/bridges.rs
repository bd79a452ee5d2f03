//! What network cards are plugged into: bridges of hosts, and VNets of the SDN. Words of errors as PVE's (`PVE/Network.pm`, `PVE/Network/SDN/
//! Zones/Plugin.pm`, qemu-server `print_netdevice_full`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::access::Caller;
use super::tasks::WorkerEnd;
use super::world::{PveWorld, SimHost, SimVm};
use super::{CheckedCall, properties};

/// The MTU of a bridge of which nobody said another, the kernel's default.
const BRIDGE_MTU: u32 = 1500;
/// Smallest MTU of a virtio card but 1, which means the bridge's.
const MIN_MTU: u32 = 576;
/// A name of an interface is shorter than this.
const NAME_LIMIT: usize = 16;
/// What stands before the words of a script that plugs a card in: PVE tells them in the task's log.
pub(super) const UNPLUGGED: &str = "pve-bridge: ";

/// What a bridge has beside its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BridgeSpec {
    /// Whether it takes VLANs apart.
    pub vlan_aware: bool,
    /// The VLANs that its ports let through, such as `2-4094`, where somebody said it.
    pub vids: Option<String>,
    /// The bridge's ports, such as `eno1`.
    pub ports: Vec<String>,
    /// The bridge's MTU in bytes, where somebody said it.
    pub mtu: Option<u32>,
}

impl Default for BridgeSpec {
    /// As PVE's installer makes it.
    fn default() -> BridgeSpec {
        BridgeSpec {
            vlan_aware: false,
            vids: None,
            ports: vec!["eno1".to_owned()],
            mtu: None,
        }
    }
}

/// A virtual network of the SDN, applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VNetSpec {
    /// The VNet's name.
    pub name: String,
    /// The SDN zone that the VNet is of.
    pub zone: String,
    /// Whether cards on it may have VLANs of their own.
    #[serde(default)]
    pub vlan_aware: bool,
    /// The hosts of its zone; all where none is named.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// Bridges with their settings, by their names.
pub(super) type BridgeSpecs = BTreeMap<String, BridgeSpec>;

impl PveWorld {
    fn vnet(&self, name: &str) -> Option<&VNetSpec> {
        self.spec.vnets.iter().find(|vnet| vnet.name == name)
    }

    /// The VNets that the caller may look at. `SDN.Use` is not enough for it.
    pub(super) fn vnets(&self, caller: &Caller) -> Value {
        let seen = self.spec.vnets.iter().filter(|vnet| {
            let path = format!("/sdn/zones/{}/{}", vnet.zone, vnet.name);
            self.allowed(caller, &path, &["SDN.Audit", "SDN.Allocate"])
        });
        let rows = seen.map(|vnet| {
            json!({ "vnet": vnet.name, "zone": vnet.zone, "type": "vnet", "vlanaware": u8::from(vnet.vlan_aware) })
        });
        json!(rows.collect::<Vec<_>>())
    }

    /// Where the right to use what a card is plugged into is asked for: of its bridge, or of its VLAN alone.
    pub(super) fn path_of_card(&self, net: &str) -> Option<String> {
        let options = properties(net, "model");
        let bridge = options.get("bridge")?;
        let zone = self.vnet(bridge).map_or("localnetwork", |vnet| &*vnet.zone);
        Some(match options.get("tag") {
            Some(tag) => format!("/sdn/zones/{zone}/{bridge}/{tag}"),
            None => format!("/sdn/zones/{zone}/{bridge}"),
        })
    }

    /// A host's interfaces, of which this world has bridges and VNets. PVE leaves out those that the caller may not use,
    /// whatever was asked for.
    pub(super) fn network(&self, asked: &CheckedCall) -> Value {
        let kind = asked.given("type");
        let wanted = |kinds: &[&str]| kind.is_none_or(|kind| kinds.contains(&kind));
        let usable = |zone: &str, name: &str| {
            let path = format!("/sdn/zones/{zone}/{name}");
            let (of_either, vlans) = (["SDN.Audit", "SDN.Use"], format!("{path}/"));
            // One VLAN of it is enough to see it (`check_sdn_bridge`).
            let mut acl = self.acl(&asked.caller).iter();
            let of_vlan = acl.any(|entry| {
                let held = &entry.privileges;
                entry.path.starts_with(&vlans) && held.iter().any(|one| of_either.contains(&&**one))
            });
            of_vlan || self.allowed(&asked.caller, &path, &of_either)
        };
        let mut rows = Vec::new();
        let host = self.hosts.get(&asked.node);
        if wanted(&["bridge", "any_bridge", "any_local_bridge", "include_sdn"]) {
            let bridges = host.map_or(&[][..], |host| &host.spec.bridges);
            let bridges = bridges
                .iter()
                .filter(|bridge| usable("localnetwork", bridge));
            let of = host.into_iter();
            rows.extend(
                of.flat_map(|host| bridges.clone().enumerate().map(move |at| row(host, at))),
            );
        }
        if kind.is_some_and(|kind| ["any_bridge", "include_sdn", "vnet"].contains(&kind)) {
            let here = self.spec.vnets.iter().filter(|vnet| {
                let hosts = &vnet.hosts;
                let here = hosts.is_empty() || hosts.contains(&asked.node);
                here && usable(&vnet.zone, &vnet.name)
            });
            rows.extend(here.map(|vnet| {
                json!({
                    "iface": vnet.name, "type": "vnet", "active": "1", "ipam": 0, "vlanaware": u8::from(vnet.vlan_aware),
                })
            }));
        }
        json!(rows)
    }

    /// What PVE says of cards that it makes without the MTU they name (`print_netdevice_full`).
    pub(super) fn card_warnings(&self, vmid: u32) -> Vec<String> {
        let config = self.vms.get(&vmid).map(|vm| &vm.config);
        let cards = config.into_iter().flatten();
        let cards = cards.filter(|(key, _)| {
            let number = key.strip_prefix("net");
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        });
        let ignored = cards.filter_map(|(key, value)| {
            let options = properties(value, "model");
            let mtu = options.get("mtu")?;
            let why = match options.get("bridge") {
                Some(_) if is_virtio(&options) => return None,
                Some(_) => "not using VirtIO",
                None => "no bridge configured",
            };
            Some(format!("netdev {key}: ignoring MTU '{mtu}', {why}"))
        });
        ignored.collect()
    }

    /// Whether the cards of a VM can be made on a host.
    pub(super) fn check_cards(&self, host: &SimHost, vm: &SimVm) -> WorkerEnd {
        for (key, value) in vm.config.iter().filter(|(key, _)| key.starts_with("net")) {
            let options = properties(value, "model");
            let Some(bridge) = options.get("bridge") else {
                continue;
            };
            let vnet = self.vnet(bridge);
            if vnet.is_none() && !host.spec.bridges.iter().any(|one| one == bridge) {
                return Err(format!("bridge '{bridge}' does not exist"));
            }
            let mtu = options.get("mtu").and_then(|mtu| mtu.parse::<u32>().ok());
            if let Some(mtu) = mtu.filter(|mtu| is_virtio(&options) && *mtu != 1) {
                check_mtu(key, mtu, mtu_of(host, bridge))?;
            }
            let tag = options.get("tag").and_then(|tag| tag.parse::<u16>().ok());
            let plugged = match (vnet, tag) {
                (Some(vnet), Some(_)) if !vnet.vlan_aware => {
                    Err(format!("vm vlans are not allowed on vnet {bridge}"))
                }
                (_, None) | (Some(_), Some(_)) => Ok(()),
                (None, Some(tag)) => check_vlan(host, bridge, tag),
            };
            plugged.map_err(|why| format!("{UNPLUGGED}{why}"))?;
        }
        Ok(())
    }
}

/// Whether a card of these options is a paravirtualised one.
fn is_virtio(options: &BTreeMap<&str, &str>) -> bool {
    options.contains_key("virtio") || options.get("model") == Some(&"virtio")
}

/// A bridge as PVE tells it. The first carries the host's own address, as the installer sets it up.
fn row(host: &SimHost, (number, bridge): (usize, &String)) -> Value {
    let spec = spec_of(host, bridge);
    let mut row = json!({
        "iface": bridge, "type": "bridge", "active": 1, "autostart": 1, "method": "manual", "method6": "manual",
        "bridge_ports": spec.ports.join(" "), "bridge_stp": "off", "bridge_fd": "0",
    });
    if spec.vlan_aware {
        row["bridge_vlan_aware"] = json!(1);
    }
    if let Some(vids) = &spec.vids {
        row["bridge_vids"] = json!(vids);
    }
    if let Some(mtu) = spec.mtu {
        row["mtu"] = json!(mtu.to_string());
    }
    let address = host.spec.address.as_str();
    if let Some((net, _)) = address.rsplit_once('.').filter(|_| number == 0) {
        row["method"] = json!("static");
        row["address"] = json!(address);
        row["netmask"] = json!("24");
        row["cidr"] = json!(format!("{address}/24"));
        row["gateway"] = json!(format!("{net}.1"));
    }
    row
}

fn spec_of(host: &SimHost, bridge: &str) -> BridgeSpec {
    let spec = host.spec.bridge_specs.get(bridge);
    spec.cloned().unwrap_or_default()
}

fn mtu_of(host: &SimHost, bridge: &str) -> u32 {
    spec_of(host, bridge).mtu.unwrap_or(BRIDGE_MTU)
}

/// A virtio card on a bridge has no larger MTU than that, nor a tiny one.
fn check_mtu(key: &str, mtu: u32, of_bridge: u32) -> WorkerEnd {
    if mtu < MIN_MTU {
        return Err(format!(
            "netdev {key}: MTU '{mtu}' is smaller than the IP minimum MTU '{MIN_MTU}'"
        ));
    }
    if mtu > of_bridge {
        return Err(format!(
            "netdev {key}: MTU '{mtu}' is bigger than the bridge MTU '{of_bridge}' - adjust the MTU for the network device in the VM \
             configuration, while ensuring that the bridge is configured as desired."
        ));
    }
    Ok(())
}

/// On a bridge that takes no VLANs apart PVE makes one for the VLAN alone, over each of its ports.
fn check_vlan(host: &SimHost, bridge: &str, tag: u16) -> WorkerEnd {
    let spec = spec_of(host, bridge);
    if spec.vlan_aware {
        return Ok(());
    }
    if spec.ports.is_empty() {
        return Err(format!("no physical interface on bridge '{bridge}'"));
    }
    let own = format!("{bridge}v{tag}");
    if own.len() >= NAME_LIMIT {
        return Err(format!("the interface name {own} is too long"));
    }
    for port in &spec.ports {
        let port_of_vlan = format!("{port}.{tag}");
        if port_of_vlan.len() >= NAME_LIMIT {
            return Err(format!(
                "can't add vlan tag {tag} to interface {port} - the interface name {port_of_vlan} is too long"
            ));
        }
        let mut others = host.spec.bridge_specs.iter();
        let there = others.find(|(_, of)| of.ports.contains(&port_of_vlan));
        if let Some((other, _)) = there {
            return Err(format!(
                "interface {port_of_vlan} already exist in bridge {other}"
            ));
        }
    }
    Ok(())
}
