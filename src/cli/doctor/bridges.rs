//! The network cards of a template's machines, and what they are plugged into on each host: whether it is there, takes the card's VLAN and
//! has its MTU. PVE looks at all of that only when a machine starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::finding::{Findings, Grade};
use super::region::RegionSeen;
use super::templates::copies;
use crate::config::settings::{NetCardSettings, TemplateSettings};
use crate::model::words;
use crate::pve::{Bridge, BridgeKind, Net, VmConfig};

/// The MTU that stands for the bridge's own.
const AS_THE_BRIDGE: u32 = 1;
/// The MTU of a bridge unless somebody made it larger.
const USUAL_MTU: u32 = 1_500;
/// The longest name of an interface in Linux.
const MAX_NAME: usize = 15;
/// What takes a change of a host's interfaces.
const INTERFACES: &str = "in /etc/network/interfaces of these hosts, then ifreload -a";

/// The bridges of each host that could be asked, by their names.
pub(super) type BridgesOfHosts = BTreeMap<Arc<str>, BTreeMap<String, Bridge>>;

/// A network card of a template's machines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Card {
    /// The card's number, 0 of `net0`.
    pub(super) number: u8,
    /// The bridge or VNet that the card is on.
    pub(super) bridge: String,
    /// The card's VLAN tag; without one its frames have none.
    pub(super) vlan: Option<u16>,
    /// The card's MTU in bytes, where PVE compares it with the bridge's.
    mtu: Option<u32>,
    /// An MTU in bytes that the card's model, which follows, cannot have: PVE passes it over.
    idle_mtu: Option<(u32, String)>,
}

/// The cards that a template's machines come to have: its own, with what the file says of them.
pub(super) fn wanted(seen: &RegionSeen, template: &TemplateSettings) -> BTreeSet<Card> {
    let of_file: BTreeMap<u8, NetCardSettings> = template.cards().collect();
    let configs = copies(seen, template).filter_map(|(vmid, _)| seen.configs.get(vmid));
    let own: Vec<BTreeMap<u8, Net>> = configs.map(VmConfig::cards).collect();
    let without = [BTreeMap::new()];
    // Machines of settings, and those of a template that is not there yet, have what the file says.
    let bases = if own.is_empty() {
        &without[..]
    } else {
        &own[..]
    };
    let cards = bases.iter().flat_map(|own| {
        let numbers: BTreeSet<u8> = own.keys().chain(of_file.keys()).copied().collect();
        let card = |number: u8| card(number, own.get(&number), of_file.get(&number));
        numbers.into_iter().filter_map(card).collect::<Vec<Card>>()
    });
    cards.collect()
}

/// The cards that a template itself has: PVE asks for the right to use their bridges when it is cloned.
pub(super) fn cloned(seen: &RegionSeen, template: &TemplateSettings) -> BTreeSet<Card> {
    let configs = copies(seen, template).filter_map(|(vmid, _)| seen.configs.get(vmid));
    let cards = configs.flat_map(VmConfig::cards);
    let cards = cards.filter_map(|(number, net)| card(number, Some(&net), None));
    cards.collect()
}

/// A card that has a bridge: as it is, and what the file says of it.
fn card(number: u8, own: Option<&Net>, of_file: Option<&NetCardSettings>) -> Option<Card> {
    let bridge = of_file.and_then(|of| of.bridge.clone());
    let bridge = bridge.or_else(|| own?.bridge.clone())?;
    let model = of_file.and_then(|of| of.model);
    let model = model.or_else(|| own.map(|own| &*own.model));
    let said = of_file.and_then(|of| of.mtu).map(u32::from);
    let mtu = said.or_else(|| {
        let mut rest = own?.rest.iter();
        rest.find_map(|(key, value)| value.parse().ok().filter(|_| key == "mtu"))
    });
    let other = model.filter(|model| *model != "virtio");
    Some(Card {
        number,
        bridge,
        vlan: of_file
            .and_then(|of| of.vlan)
            .or_else(|| own.and_then(|own| own.tag)),
        mtu: mtu.filter(|mtu| other.is_none() && *mtu != AS_THE_BRIDGE),
        idle_mtu: mtu.zip(other.map(str::to_owned)),
    })
}

/// What is to be said of a card on a host. The same on several hosts is told once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Remark {
    grade: Grade,
    /// What is seen, up to the names of the hosts.
    text: String,
    /// What comes of it.
    end: &'static str,
    mend: String,
}

/// PVE gives a card up, and the machine with it.
const NO_START: &str = ": PVE starts no machine there";

impl Remark {
    fn wrong(text: String, end: &'static str, mend: String) -> Remark {
        Remark {
            grade: Grade::Wrong,
            text,
            end,
            mend,
        }
    }
}

/// Judges the cards of a template's machines on the hosts that they may come to.
pub(super) fn judge(
    template: &str,
    cards: &BTreeSet<Card>,
    hosts: &[&Arc<str>],
    found: &BridgesOfHosts,
    findings: &mut Findings,
) {
    let looked: Vec<(&str, &BTreeMap<String, Bridge>)> = hosts
        .iter()
        .filter_map(|host| Some((&***host, found.get(*host)?)))
        .collect();
    let bridges: BTreeSet<&str> = cards.iter().map(|card| &*card.bridge).collect();
    for bridge in bridges {
        let (with, without): (Vec<_>, Vec<_>) = looked
            .iter()
            .partition(|(_, bridges)| bridges.contains_key(bridge));
        judge_presence(template, bridge, &[names(&with), names(&without)], findings);
    }
    for card in cards {
        if let Some((mtu, model)) = &card.idle_mtu {
            let number = card.number;
            findings
                .warning(format!(
                    "template {template}: net{number} has MTU {mtu} and is a card of model {model}, and PVE sets it for virtio cards alone: machines start without it, and with a warning"
                ))
                .mend(format!(
                    "a virtio card (in [template.{template}] nic_model of net0, model of a further one), or no mtu there and in the template's own net{number}"
                ));
        }
        let mut remarks: BTreeMap<Remark, Vec<&str>> = BTreeMap::new();
        for (host, bridges) in &looked {
            let Some(bridge) = bridges.get(&card.bridge) else {
                continue;
            };
            let vlan = card
                .vlan
                .and_then(|vlan| of_vlan(card, vlan, bridge, bridges));
            let mtu = card.mtu.and_then(|mtu| of_mtu(template, card, mtu, bridge));
            for remark in vlan.into_iter().chain(mtu) {
                remarks.entry(remark).or_default().push(host);
            }
        }
        for (remark, hosts) in remarks {
            let text = format!(
                "template {template}: {} on {}{}",
                remark.text,
                words::names(&hosts),
                remark.end
            );
            match remark.grade {
                Grade::Fine => findings.fine(text),
                Grade::Wrong => findings.wrong(text).mend(remark.mend),
                Grade::Warning | Grade::Unseen => findings.warning(text).mend(remark.mend),
            }
        }
    }
}

fn names<'a>(hosts: &[&(&'a str, &BTreeMap<String, Bridge>)]) -> Vec<&'a str> {
    hosts.iter().map(|(host, _)| *host).collect()
}

/// Whether the bridge is there at all.
fn judge_presence(
    template: &str,
    bridge: &str,
    [with, without]: &[Vec<&str>; 2],
    findings: &mut Findings,
) {
    if without.is_empty() {
        if !with.is_empty() {
            findings.fine(format!(
                "template {template}: bridge {bridge} on {}",
                with.join(", ")
            ));
        }
        return;
    }
    findings
        .wrong(format!(
            "template {template}: there is no bridge {bridge} that may be used on {}; machines would not start there",
            without.join(", ")
        ))
        .mend("make it, or name the hosts that have it in the pool's hosts");
}

/// What becomes of a card with a VLAN of its own on this bridge of a host (`PVE/Network.pm`, `tap_plug`).
fn of_vlan(
    card: &Card,
    vlan: u16,
    bridge: &Bridge,
    others: &BTreeMap<String, Bridge>,
) -> Option<Remark> {
    let name = &card.bridge;
    let on = format!("net{} has VLAN {vlan} on {name}", card.number);
    if bridge.kind == BridgeKind::Unknown {
        return None;
    }
    if bridge.kind == BridgeKind::VNet {
        return (!bridge.vlan_aware).then(|| {
            Remark::wrong(
                format!("{on}, a VNet that takes no VLANs of cards,"),
                NO_START,
                format!("leave vlan out: the VNet has its own tag. Or pvesh set /cluster/sdn/vnets/{name} --vlanaware 1; pvesh set /cluster/sdn"),
            )
        });
    }
    if bridge.vlan_aware {
        let shut = !bridge.ports.is_empty() && !bridge.passes(vlan);
        return shut.then(|| {
            let ranges = bridge.vlans.iter().map(|(first, last)| {
                if first == last {
                    first.to_string()
                } else {
                    format!("{first}-{last}")
                }
            });
            let ranges: Vec<String> = ranges.collect();
            Remark::wrong(
                format!(
                    "{on}, whose ports let only VLANs {} through",
                    ranges.join(", ")
                ),
                ": machines reach nothing there",
                format!("another vlan, or {vlan} in bridge-vids of {name} {INTERFACES}"),
            )
        });
    }
    Some(of_own_bridge(name, &on, vlan, bridge, others))
}

/// On a bridge that takes no VLANs apart PVE makes one more bridge for the VLAN, over a VLAN interface on each of its ports
/// (`activate_bridge_vlan`).
fn of_own_bridge(
    name: &str,
    on: &str,
    vlan: u16,
    bridge: &Bridge,
    others: &BTreeMap<String, Bridge>,
) -> Remark {
    let unaware = format!("{on}, which takes no VLANs apart");
    let aware = format!("bridge-vlan-aware yes for {name} {INTERFACES}");
    if bridge.ports.is_empty() {
        return Remark::wrong(
            format!("{unaware} and has no port that PVE could do it on,"),
            NO_START,
            format!("{aware}; or a bridge that has a port"),
        );
    }
    let own = format!("{name}v{vlan}");
    let of_ports = bridge.ports.iter().map(|port| format!("{port}.{vlan}"));
    let of_ports: Vec<String> = of_ports.collect();
    let mut made = std::iter::once(&own).chain(&of_ports);
    if let Some(long) = made.find(|made| made.len() > MAX_NAME) {
        return Remark::wrong(
            format!(
                "{unaware}: PVE would make the interface {long} for it, and Linux takes names up to {MAX_NAME} characters,"
            ),
            NO_START,
            aware,
        );
    }
    let taken = of_ports.iter().find_map(|port| {
        let mut others = others.iter();
        let (other, _) = others.find(|(other, of)| **other != own && of.ports.contains(port))?;
        Some((port, other))
    });
    if let Some((port, other)) = taken {
        return Remark::wrong(
            format!("{unaware}: PVE would take {port} for it, which is a port of {other} already,"),
            NO_START,
            format!("bridge = \"{other}\" without vlan; or {aware}"),
        );
    }
    Remark {
        grade: Grade::Fine,
        text: format!("{on}, by PVE's own bridge {own}"),
        end: "",
        mend: String::new(),
    }
}

/// A virtio card with a larger MTU than its bridge has.
fn of_mtu(template: &str, card: &Card, mtu: u32, bridge: &Bridge) -> Option<Remark> {
    let (number, name) = (card.number, &card.bridge);
    let lower = format!(
        "mtu = {AS_THE_BRIDGE} for net{number} in [template.{template}] takes the bridge's own"
    );
    match bridge.mtu() {
        Some(of_bridge) => (mtu > of_bridge).then(|| {
            Remark::wrong(
                format!("net{number} has MTU {mtu}, and {name} has {of_bridge}"),
                NO_START,
                format!("{lower}; or mtu {mtu} for {name} and its ports {INTERFACES}"),
            )
        }),
        None => (mtu > USUAL_MTU).then(|| Remark {
            grade: Grade::Warning,
            text: format!(
                "net{number} has MTU {mtu}, and PVE does not tell that of {name}, which has its ports',"
            ),
            end: ": with a smaller one PVE starts no machine there",
            mend: format!("ip link show {name}, on these hosts, shows it; {lower}"),
        }),
    }
}
