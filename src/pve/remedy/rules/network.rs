//! What stands between a machine's card and its network.

use super::{BRIDGE, Rule, VLAN_AWARE, log, say};

const OWN_VLAN: &str = "Linux on {host} has no interface for that VLAN: `journalctl -k` there says why, `modprobe 8021q` whether its kernel has VLANs; let the bridge be VLAN-aware (its panel, System, Network), or take `vlan` from {template_table}";
const VLAN_IDS: &str = "the bridge on {host} does not take that VLAN: `bridge vlan show` there shows what it takes, `bridge-vids` in /etc/network/interfaces says it, and `journalctl -k` names a card that holds no more VLANs";
const LINK: &str = "Linux on {host} refused a network interface of VM {vmid}: `journalctl -k` there says why, and `ip link show` whether one is left from an earlier VM of that number (`ip link delete` removes it)";
const TRUNKS: &str = "let the bridge on {host} be VLAN-aware (its panel, System, Network), or take `trunks` from the card of the template's VM (`qm config`, `qm set`)";

/// The rows. Most of these words come from the script that QEMU calls for each card, so that they stand in the log of the start.
pub(super) const RULES: &[Rule] = &[
    // pve-common src/PVE/Network.pm, `activate_bridge_vlan` and `tap_plug`.
    log("bridge '{bridge}' is not active", BRIDGE),
    log(
        "bridge '{bridge}' is neither a linux nor an OVS bridge",
        "{bridge} on {host} is another kind of interface (`ip -d link show`): set `bridge` in {template_table} to a bridge",
    ),
    log(
        "vlan aware feature need to be enabled to use trunks",
        TRUNKS,
    ),
    log("can't add vlan tag {number} to interface", OWN_VLAN),
    log("unable to add vlan {number} to interface", VLAN_IDS),
    log("unable to add default vlan tags to interface", VLAN_IDS),
    log("failed to remove default vlan tags of", VLAN_IDS),
    // The same file, `ovs_bridge_add_port`.
    log(
        "can't add ovs port '{*}'",
        "Open vSwitch on {host} did not take the port: `systemctl status openvswitch-switch` and `ovs-vsctl show` there say why",
    ),
    // The same file, `iface_create` and its neighbours. A name that is too long has a row of its own.
    log(
        "failed to create interface '{*}' - the interface name {*} is too long",
        VLAN_AWARE,
    ),
    log("failed to create interface", LINK),
    log("failed to set interface options for", LINK),
    log("can't create interface", LINK),
    log("can't enslave", LINK),
    log("can't activate interface", LINK),
    log("interface activation failed", LINK),
    log("unable to enable port isolation on interface", LINK),
    // pve-network src/PVE/Network/SDN/Zones.pm, Zones/Plugin.pm and Vnets.pm.
    say(
        "vnet {bridge} is not allowed on this node",
        "add {host} to the zone of the VNet {bridge} (Datacenter, SDN, Zones), or leave {host} out (`exclude_hosts`)",
    ),
    say(
        "sdn vnet '{bridge}' does not exist",
        "make the VNet {bridge} (Datacenter, SDN, VNets), or correct `bridge` in {template_table}",
    ),
    log(
        "can't find bridge {bridge}",
        "{host} has no interface for the VNet {bridge} yet: apply the SDN (Datacenter, SDN, Apply; `ip link show {bridge}` on {host})",
    ),
    say(
        "can't find any free ip in zone",
        "the subnets of the VNet have no free address: give them a larger DHCP range (Datacenter, SDN, VNets), or remove what is left in its IPAM",
    ),
];
