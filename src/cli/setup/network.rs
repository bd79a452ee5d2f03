//! Where machines are in the network: bridge, and addresses by DHCP or out of ranges.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::answers::{Addresses, SetupAnswers};
use super::choose::{NetworkWanted, Proposal};
use super::free;
use super::hardware;
use super::survey::Survey;
use super::templates::TemplateSource;
use crate::config::scalar::AddressList;
use crate::kubernetes::server_address;
use crate::model::words;

/// Addresses that one note names.
const MAX_NAMED: usize = 10;

/// The network card, and who gives machines their addresses.
pub(super) fn choose(survey: &Survey, answers: &SetupAnswers, proposal: &mut Proposal) {
    bridge(survey, answers, proposal);
    let network = &answers.network;
    let answered = network.addresses.is_some() || network.ranges.is_some();
    let former = survey.ours.addresses();
    let ranges = match network.addresses {
        Some(addresses) => addresses == Addresses::Ranges,
        None => network.ranges.is_some() || !former.is_empty(),
    };
    let why = match former.first() {
        Some(address) => {
            format!(
                "machines of ours have addresses out of ranges, by their marks, such as {address}"
            )
        }
        None => "a DHCP server gives machines their addresses; \"ranges\" where there is none"
            .to_owned(),
    };
    let value = if ranges { "ranges" } else { "dhcp" };
    proposal.choose("network.addresses", value, why, answered);
    proposal.ask();
    if !ranges {
        return;
    }
    ranges_of(survey, answers, proposal);
}

/// The network, its free addresses, its gateway and name servers.
fn ranges_of(survey: &Survey, answers: &SetupAnswers, proposal: &mut Proposal) {
    let network = &answers.network;
    let of_bridge = hardware::bridge_net(survey, proposal.wanted.template.bridge.as_deref());
    let subnet = network.subnet.clone();
    let subnet_text = subnet
        .clone()
        .or_else(|| of_bridge.map(|(net, _)| net.trunc().to_string()));
    let why = "the network of the bridge, by the hosts' own addresses in it";
    need(
        proposal,
        "network.subnet",
        subnet_text.clone(),
        why,
        subnet.is_some(),
    );
    let found = free_ranges((survey, answers), subnet_text.as_deref(), proposal);
    proposal.notes.extend(note_taken(survey, answers));
    let why = if found.as_ref().is_none_or(|free| !free.of_ours) {
        "no guest, host, node or API server is known to have one of them; what a DHCP server or another machine uses cannot be seen from here"
    } else {
        "machines of ours have addresses in it, by their marks, and no other guest, host, node or API server is known to have one; what a DHCP server or another machine \
         uses cannot be seen from here"
    };
    let ranges = network.ranges.as_ref().map(|ranges| ranges.join(", "));
    need(
        proposal,
        "network.ranges",
        ranges.clone().or(found.map(|free| free.shown)),
        why,
        ranges.is_some(),
    );
    let gateway = of_bridge
        .and_then(|(_, gateway)| gateway)
        .map(|address| address.to_string());
    let answered = network.gateway.clone();
    need(
        proposal,
        "network.gateway",
        answered.clone().or(gateway.clone()),
        "the hosts' own gateway",
        answered.is_some(),
    );
    let servers = network
        .nameservers
        .as_ref()
        .map(|servers| servers.join(", "));
    let why = "the gateway, as small networks have it";
    let shown = servers.clone().or(answered).or(gateway);
    need(
        proposal,
        "network.nameservers",
        shown,
        why,
        servers.is_some(),
    );
    let list = |key: &str| {
        let value = proposal.choices.iter().find(|choice| choice.key == key);
        let parts = value
            .into_iter()
            .flat_map(|choice| choice.value.split(", "));
        parts.map(str::to_owned).collect::<Vec<String>>()
    };
    let one = |key: &str| list(key).first().cloned().unwrap_or_default();
    proposal.wanted.network = Some(NetworkWanted {
        subnet: one("network.subnet"),
        ranges: list("network.ranges"),
        gateway: one("network.gateway"),
        nameservers: list("network.nameservers"),
    });
}

/// Ranges of addresses that are proposed.
#[derive(Debug)]
struct FreeRanges {
    shown: String,
    /// Machines of ours have addresses in them.
    of_ours: bool,
}

/// Addresses of the network that nobody is known to have, those of our machines among them; none where a guest could not be read, which is
/// told.
fn free_ranges(
    (survey, answers): (&Survey, &SetupAnswers),
    subnet: Option<&str>,
    proposal: &mut Proposal,
) -> Option<FreeRanges> {
    if !survey.pve.unread.is_empty() {
        proposal.notes.push(format!(
            "{} could not be read (their hosts may be off), so that no range is proposed: see that nobody has an address of yours",
            words::count(survey.pve.unread.len(), "guest")
        ));
        return None;
    }
    let net = subnet?.parse().ok()?;
    let (former, taken) = (survey.ours.addresses(), taken(survey, answers));
    let mut ranges = free::around_addresses(net, &former, &taken);
    let of_ours = !ranges.is_empty();
    if !of_ours {
        ranges.push(free::addresses(net, &taken)?);
    }
    let shown = ranges.iter().map(|(first, last)| format!("{first}-{last}"));
    Some(FreeRanges {
        shown: shown.collect::<Vec<_>>().join(", "),
        of_ours,
    })
}

/// Addresses in the answered ranges that others are known to have, told with whose they are.
fn note_taken(survey: &Survey, answers: &SetupAnswers) -> Option<String> {
    let ranges = answers.network.ranges.as_ref()?;
    let lists = ranges.iter().filter_map(|range| AddressList::parse(range));
    let lists: Vec<AddressList> = lists.collect();
    let lies = |address: &IpAddr| lists.iter().any(|list| list.0.contains(*address));
    let api = api(survey, answers);
    let within: Vec<String> = taken(survey, answers)
        .into_iter()
        .filter(lies)
        .map(|address| {
            let whose = if api.contains(&address) {
                " (the API server's)"
            } else {
                ""
            };
            format!("{address}{whose}")
        })
        .collect();
    let first = within.iter().take(MAX_NAMED);
    let more = within.len().saturating_sub(MAX_NAMED);
    let more = (more > 0).then(|| format!("{more} more"));
    let named = words::names(first.cloned().chain(more));
    (!within.is_empty()).then(|| {
        format!(
            "network.ranges: a host, a guest, a node or the API server has {named}: machines get none of them; ranges without them say what is free"
        )
    })
}

/// The addresses at which the API server is reached, or will be by the answers.
fn api(survey: &Survey, answers: &SetupAnswers) -> BTreeSet<IpAddr> {
    let answered = answers.kubernetes.server.iter();
    let found = survey.kube.iter();
    let named = answered.chain(found.clone().map(|kube| &kube.server));
    let literal = named.filter_map(|server| server_address::literal(server));
    let resolved = found.flat_map(|kube| kube.api.iter().copied());
    literal.chain(resolved).collect()
}

/// Addresses that others are known to have: hosts, guests, nodes, the API server. A machine of ours has what its mark reserves for it.
fn taken(survey: &Survey, answers: &SetupAnswers) -> BTreeSet<IpAddr> {
    let former: BTreeSet<IpAddr> = survey
        .ours
        .addresses()
        .into_iter()
        .map(IpAddr::V4)
        .collect();
    let marked = survey.pve.marked.iter();
    let of_marked = marked.flat_map(|(vmid, config)| {
        let is_ours = survey.ours.has(*vmid);
        let addresses = config.addresses().into_iter();
        addresses
            .filter(|address| !(is_ours && former.contains(address)))
            .collect::<Vec<_>>()
    });
    let nodes = survey.kube.iter().flat_map(|kube| &kube.nodes);
    let of_nodes = nodes.flat_map(|node| node.addresses.iter().copied());
    let of_nodes = of_nodes.filter(|address| !former.contains(address));
    let of_others = survey.pve.addresses.iter().copied();
    let all = of_others.chain(of_marked).chain(of_nodes);
    all.chain(api(survey, answers)).collect()
}

/// A choice without which there is no network.
fn need(
    proposal: &mut Proposal,
    key: &'static str,
    value: Option<String>,
    why: &str,
    answered: bool,
) {
    match value {
        Some(value) => proposal.choose(key, value, why, answered),
        None => {
            proposal.choose(key, "", "nothing was found to go by", false);
            proposal.missing.push(format!("{key}: machines get their addresses out of ranges, and nothing was found to choose it by"));
        }
    }
    proposal.ask();
}

/// Tags of VLANs.
const VLANS: std::ops::RangeInclusive<u16> = 1..=4094;

/// Whether the bridges of hosts are known, and none has this one.
fn is_nowhere(survey: &Survey, bridge: &str) -> bool {
    let hosts = &survey.pve.bridges;
    !hosts.is_empty() && !hosts.values().any(|bridges| bridges.contains_key(bridge))
}

/// Says so where no host has the bridge that is answered.
pub(super) fn check_bridge(survey: &Survey, answers: &SetupAnswers, proposal: &mut Proposal) {
    let answered = answers.network.bridge.as_deref();
    if let Some(bridge) = answered.filter(|bridge| is_nowhere(survey, bridge)) {
        let everywhere: Vec<String> = hardware::bridges(survey).into_iter().collect();
        proposal.missing.push(format!(
            "network.bridge: no host has {bridge}; on every host: {}",
            everywhere.join(", ")
        ));
    }
}

fn bridge(survey: &Survey, answers: &SetupAnswers, proposal: &mut Proposal) {
    let answered = answers.network.bridge.clone();
    proposal.wanted.template.vlan = answers.network.vlan;
    let builds = matches!(proposal.wanted.template.source, TemplateSource::Build(_));
    if answered.is_none() && !builds {
        // A template that is there has a card, and its bridge is the one that fits it.
        return;
    }
    let everywhere = hardware::bridges(survey);
    let names: Vec<&str> = everywhere.iter().map(String::as_str).collect();
    let found = if everywhere.contains("vmbr0") {
        Some("vmbr0".to_owned())
    } else {
        everywhere.first().cloned()
    };
    if let Some(vlan) = answers.network.vlan.filter(|vlan| !VLANS.contains(vlan)) {
        let why = format!("network.vlan: {vlan} is no VLAN tag; expected 1 to 4094");
        proposal.missing.push(why);
    }
    check_bridge(survey, answers, proposal);
    if answered
        .as_deref()
        .is_some_and(|bridge| is_nowhere(survey, bridge))
    {
        return;
    }
    let Some(bridge) = answered.clone().or(found) else {
        proposal
            .missing
            .push("network.bridge: no bridge is there on every host that is online".to_owned());
        return;
    };
    let why = match names.len() {
        1 => "the only bridge that every host has".to_owned(),
        _ => format!(
            "every host has it; also on every host: {}",
            names.join(", ")
        ),
    };
    proposal.choose("network.bridge", &*bridge, why, answered.is_some());
    if names.len() > 1 {
        proposal.ask();
    }
    proposal.wanted.template.bridge = Some(bridge);
}
