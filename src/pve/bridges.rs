//! What the network cards of VMs are plugged into on a host: bridges, and VNets of PVE's SDN.
//!
//! PVE tells what stands in the host's file of interfaces, not what the kernel does. Source: `pve-manager` `PVE/API2/Network.pm`,
//! `pve-common` `PVE/Network/Interfaces.pm`, `pve-network` `PVE/Network/SDN.pm` (`get_local_vnets`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use super::calls::{host_path, pair};
use super::client::Client;
use super::encode::path;
use super::perl::Fields;
use super::transport::CallError;
use super::types::deadline;

/// The MTU of a bridge that has no port, and of which nobody said another (the kernel's default).
const KERNELS_MTU: u32 = 1_500;
/// The VLAN of frames without a tag on a bridge that knows VLANs; each port is in it.
const UNTAGGED: u16 = 1;

/// What a bridge is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BridgeKind {
    /// The kernel's own.
    #[default]
    Linux,
    /// Open vSwitch: it takes every VLAN.
    OpenVSwitch,
    /// A virtual network of PVE's SDN, which all hosts of its zone have.
    VNet,
    /// It is not told: a broker of an earlier version tells names alone.
    Unknown,
}

/// A bridge, or a VNet, of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bridge {
    /// What it is.
    pub kind: BridgeKind,
    /// The host's address in the bridge's network, with the network's prefix.
    pub cidr: Option<IpNet>,
    /// The host's IPv6 address in the bridge's network, with the network's prefix.
    pub cidr6: Option<IpNet>,
    /// The host's default gateway, where it is reached through this bridge.
    pub gateway: Option<IpAddr>,
    /// The host's IPv6 default gateway, where it is reached through this bridge.
    pub gateway6: Option<IpAddr>,
    /// Whether it takes frames with VLAN tags apart.
    pub vlan_aware: bool,
    /// The VLANs that its ports let through, both ends of each range; every one where nothing is said.
    pub vlans: Vec<(u16, u16)>,
    /// The bridge's ports: network cards, bonds, VLANs of either. Of a VNet PVE tells none.
    pub ports: Vec<String>,
    /// The bridge's MTU in bytes, where the host's file says it.
    pub configured_mtu: Option<u32>,
}

impl Bridge {
    fn read(fields: Fields<'_>) -> Bridge {
        let text = |key: &str| fields.text(key).unwrap_or_default();
        let words = |key: &str| {
            let text = text(key);
            let words = text.split([' ', ',', ';']).filter(|word| !word.is_empty());
            words.map(str::to_owned).collect::<Vec<String>>()
        };
        let kind = match &*text("type") {
            "OVSBridge" => BridgeKind::OpenVSwitch,
            "vnet" => BridgeKind::VNet,
            "bridge" => BridgeKind::Linux,
            _ => BridgeKind::Unknown,
        };
        let (aware, ports) = match kind {
            BridgeKind::Linux => ("bridge_vlan_aware", "bridge_ports"),
            BridgeKind::OpenVSwitch => ("", "ovs_ports"),
            BridgeKind::VNet => ("vlanaware", ""),
            BridgeKind::Unknown => ("", ""),
        };
        let vlans = words("bridge_vids");
        Bridge {
            kind,
            cidr: text("cidr").parse().ok(),
            cidr6: text("cidr6").parse().ok(),
            gateway: text("gateway").parse().ok(),
            gateway6: text("gateway6").parse().ok(),
            vlan_aware: kind == BridgeKind::OpenVSwitch || fields.flag(aware),
            vlans: vlans.iter().filter_map(|range| vlan_range(range)).collect(),
            ports: words(ports),
            configured_mtu: text("mtu").parse().ok(),
        }
    }

    /// The bridge's MTU in bytes, where it can be known: a bridge without one in the file has the smallest of its ports, of which PVE tells nothing
    /// here.
    pub fn mtu(&self) -> Option<u32> {
        let alone = self.kind == BridgeKind::Linux && self.ports.is_empty();
        self.configured_mtu.or(alone.then_some(KERNELS_MTU))
    }

    /// Whether its ports let a VLAN through, as far as the file says it.
    pub fn passes(&self, vlan: u16) -> bool {
        let within = |(first, last): &(u16, u16)| (*first..=*last).contains(&vlan);
        vlan == UNTAGGED || self.vlans.is_empty() || self.vlans.iter().any(within)
    }

    /// The host's own addresses on it, and the gateways that it reaches by it.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let own = [self.cidr, self.cidr6].into_iter().flatten();
        let own = own.map(|net| net.addr());
        own.chain([self.gateway, self.gateway6].into_iter().flatten())
    }
}

/// `20` or `2-4094`.
fn vlan_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

impl Client {
    /// `GET /nodes/{host}/network`: the bridges of a host, VNets included, that the caller may use.
    pub async fn bridges(&self, host: &str) -> Result<BTreeMap<String, Bridge>, CallError> {
        let at = host_path(host, &["network"])?;
        let bridges = vec![pair("type", "any_bridge")];
        let data = self
            .get("bridges", at, bridges, deadline::READ_HOST)
            .await?;
        Ok(read(&data))
    }

    /// `GET /cluster/sdn/vnets`: the zone of each VNet that the caller may audit. The right to use one is not enough for that.
    pub async fn vnet_zones(&self) -> Result<BTreeMap<String, String>, CallError> {
        let at = path(&["cluster", "sdn", "vnets"]);
        let data = self.get("vnet_zones", at, vec![], deadline::READ).await?;
        let entries = data.as_array().into_iter().flatten().map(Fields::of);
        let found = entries.filter_map(|entry| Some((entry.text("vnet")?, entry.text("zone")?)));
        Ok(found.collect())
    }
}

/// Reads the data of `GET /nodes/{node}/network`.
pub(super) fn read(data: &Value) -> BTreeMap<String, Bridge> {
    let entries = data.as_array().into_iter().flatten().map(Fields::of);
    let found = entries.filter_map(|entry| Some((entry.text("iface")?, Bridge::read(entry))));
    found.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bridges_are_read_as_pve_tells_them() {
        let data = json!([
            {
                "iface": "vmbr0", "type": "bridge", "cidr": "192.0.2.11/24", "gateway": "192.0.2.1", "cidr6": "2001:db8::11/64",
                "bridge_ports": "bond0 eno2", "bridge_vlan_aware": 1, "bridge_vids": "2-99 200,300-310", "mtu": "9000",
            },
            { "iface": "vmbr1", "type": "bridge", "bridge_ports": "" },
            { "iface": "vmbr2", "type": "OVSBridge", "ovs_ports": "eno3" },
            { "iface": "blue", "type": "vnet", "vlanaware": 0 },
        ]);
        let found = read(&data);
        let aware = &found["vmbr0"];
        assert_eq!((aware.mtu(), aware.ports.len()), (Some(9_000), 2));
        let passed = [1, 2, 99, 100, 200, 305, 311].map(|vlan| aware.passes(vlan));
        assert_eq!(passed, [true, true, true, false, true, true, false]);
        let addresses: Vec<String> = aware.addresses().map(|one| one.to_string()).collect();
        assert_eq!(addresses, ["192.0.2.11", "2001:db8::11", "192.0.2.1"]);
        let alone = &found["vmbr1"];
        assert_eq!((alone.vlan_aware, alone.mtu()), (false, Some(1_500)));
        assert!(found["vmbr2"].vlan_aware && found["vmbr2"].mtu().is_none());
        assert_eq!(found["blue"].kind, BridgeKind::VNet);
        assert!(!found["blue"].vlan_aware && found["blue"].mtu().is_none());
    }
}
