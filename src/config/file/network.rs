//! `[network.NAME]`: where machines get their addresses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hardware::NicModel;
use crate::config::scalar::AddressList;

/// How a guest finds an IPv4 address by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ipv4Source {
    /// By DHCP.
    Dhcp,
}

/// How a guest finds an IPv6 address by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ipv6Source {
    /// From router advertisements (SLAAC).
    Auto,
    /// By DHCPv6.
    Dhcp,
}

/// Addresses for machines: each gets one of its own out of `ranges`, and one out of `ranges6`, and cloud-init sets it. Pools may
/// share a network; ranges of different networks may not overlap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// The IPv4 network with its prefix, such as `192.0.2.0/24`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// The IPv4 addresses that machines get, such as `192.0.2.50-192.0.2.99`. Nothing else should give them out: no DHCP server,
    /// and no person. What is in the configuration of another guest or is an address of a Node is passed over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<AddressList>,
    /// The IPv4 gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Instead of `subnet`: `dhcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Ipv4Source>,
    /// The IPv6 network with its prefix, such as `2001:db8:20::/64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet6: Option<String>,
    /// The IPv6 addresses that machines get, such as `2001:db8:20::100-2001:db8:20::1ff`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges6: Vec<AddressList>,
    /// The IPv6 gateway; often a link-local address such as `fe80::1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway6: Option<String>,
    /// Instead of `subnet6`: `auto` (router advertisements) or `dhcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Source>,
    /// Addresses of either family in the ranges that machines do not get. The network's own and its broadcast address, the
    /// gateways and the name servers are left out by themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<AddressList>,
    /// Asks on the wire who has an address before a machine gets it, from the host of the daemon. One that somebody has is passed
    /// over. Only where that host has an address in the same network does it see every device: see [networks](networks.md).
    pub ask_on_wire: bool,
    /// Name servers. Default: those of the template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// DNS search domain. Default: that of the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searchdomain: Option<String>,
}

/// A further network card of machines: the first of a template's list is `net1`, the next one `net2`. Its address comes from
/// `network` or `ipconfig`, else it is as the template has it. A card that the template does not have is a `virtio` one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetCard {
    /// The card's bridge, or a virtual network.
    pub bridge: Option<String>,
    /// The card's VLAN tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,
    /// Whether it passes through PVE's firewall. Default: it does where it has `security_groups`; else as the template's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<bool>,
    /// Security groups of PVE's firewall that it has, as for `net0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// What it looks like to the guest. Default: as the template has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<NicModel>,
    /// The card's MTU; 1 for the bridge's. PVE starts no VM whose MTU is above its bridge's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65520))]
    pub mtu: Option<u16>,
    /// It gets as many queues as the machine has cores (64 at most).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiqueue: Option<bool>,
    /// How much it sends and receives at most, in MB a second. Default: as the template has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub rate: Option<u32>,
    /// Cloud-init's `ipconfig` of it, such as `ip=dhcp`; no fixed address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipconfig: Option<String>,
    /// The network that gives each machine an address of its own on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}
