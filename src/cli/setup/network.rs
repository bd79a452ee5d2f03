//! Where machines are in the network: bridge, and addresses by DHCP or out of ranges.

use super::answers::{Addresses, SetupAnswers};
use super::choose::{NetworkWanted, Proposal};
use super::free;
use super::hardware;
use super::survey::Survey;
use super::templates::TemplateSource;
use crate::model::words;

/// The network card, and who gives machines their addresses.
pub(super) fn choose(survey: &Survey, answers: &SetupAnswers, proposal: &mut Proposal) {
    bridge(survey, answers, proposal);
    let network = &answers.network;
    let answered = network.addresses.is_some() || network.ranges.is_some();
    let ranges = match network.addresses {
        Some(addresses) => addresses == Addresses::Ranges,
        None => network.ranges.is_some(),
    };
    let why = "a DHCP server gives machines their addresses; \"ranges\" where there is none";
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
    let found = hardware::bridge_net(survey, proposal.wanted.template.bridge.as_deref());
    let subnet = network.subnet.clone();
    let subnet_text = subnet
        .clone()
        .or_else(|| found.map(|(net, _)| net.trunc().to_string()));
    let why = "the network of the bridge, by the hosts' own addresses in it";
    need(
        proposal,
        "network.subnet",
        subnet_text.clone(),
        why,
        subnet.is_some(),
    );
    let free = free_range(survey, subnet_text.as_deref(), proposal);
    let why = "no guest, host or node is known to have one of them; what a DHCP server or another machine uses cannot be seen from here";
    let ranges = network.ranges.as_ref().map(|ranges| ranges.join(", "));
    need(
        proposal,
        "network.ranges",
        ranges.clone().or(free),
        why,
        ranges.is_some(),
    );
    let gateway = found
        .and_then(|(_, gateway)| gateway)
        .map(|address| address.to_string());
    let answered = network.gateway.clone();
    let why = "the hosts' own gateway";
    need(
        proposal,
        "network.gateway",
        answered.clone().or(gateway.clone()),
        why,
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

/// Addresses of the network that nobody is known to have; none where a guest could not be read, which is told.
fn free_range(survey: &Survey, subnet: Option<&str>, proposal: &mut Proposal) -> Option<String> {
    if survey.pve.unread > 0 {
        proposal.notes.push(format!(
            "{} could not be read (their hosts may be off), so that no range is proposed: see that nobody has an address of yours",
            words::count(survey.pve.unread, "guest")
        ));
        return None;
    }
    let mut taken = survey.pve.addresses.clone();
    let nodes = survey.kube.iter().flat_map(|kube| &kube.nodes);
    taken.extend(nodes.flat_map(|node| node.addresses.iter().copied()));
    let (first, last) = free::addresses(subnet?.parse().ok()?, &taken)?;
    Some(format!("{first}-{last}"))
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
    if let Some(bridge) = answered
        .as_ref()
        .filter(|bridge| is_nowhere(survey, bridge))
    {
        proposal.missing.push(format!(
            "network.bridge: no host has {bridge}; on every host: {}",
            names.join(", ")
        ));
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
