//! `[network.NAME]`: what addresses machines get, and what cannot be right about it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::pools::ResolvedPool;
use super::templates::SEARCH_DOMAINS;
use super::{Problems, ipconfig, name, shared};
use crate::config::file::{self, ConfigFile, Ipv6Source, Method};
use crate::config::place::KeyPath;
use crate::config::scalar::{AddressList, read_net};
use crate::config::settings::{AddressSource, NetworkSettings, TemplateSettings};
use crate::config::syntax;
use crate::model::network::{AddressRange, Family, NetworkPolicy};
use crate::model::policy::PoolPolicy;
use crate::model::words;

/// A network, read.
#[derive(Clone, Debug, Default)]
pub(super) struct ResolvedNetwork {
    pub(super) policy: NetworkPolicy,
    pub(super) settings: NetworkSettings,
}

/// The networks by name.
pub(super) type Networks = BTreeMap<Arc<str>, ResolvedNetwork>;

/// The keys of a family, with what they say.
struct Keys<'f> {
    family: Family,
    subnet: (&'static str, Option<&'f str>),
    ranges: (&'static str, &'f [AddressList]),
    gateway: (&'static str, Option<&'f str>),
    /// What a guest does by itself instead.
    word: (&'static str, Option<&'static str>),
}

fn keys(network: &file::Network) -> [Keys<'_>; 2] {
    let six = network.ipv6.map(|source| match source {
        Ipv6Source::Auto => "auto",
        Ipv6Source::Dhcp => "dhcp",
    });
    [
        Keys {
            family: Family::V4,
            subnet: ("subnet", network.subnet.as_deref()),
            ranges: ("ranges", &network.ranges),
            gateway: ("gateway", network.gateway.as_deref()),
            word: ("ipv4", network.ipv4.map(|_| "dhcp")),
        },
        Keys {
            family: Family::V6,
            subnet: ("subnet6", network.subnet6.as_deref()),
            ranges: ("ranges6", &network.ranges6),
            gateway: ("gateway6", network.gateway6.as_deref()),
            word: ("ipv6", six),
        },
    ]
}

/// Reads the networks of a file.
pub(super) fn networks(file: &ConfigFile, problems: &mut Problems) -> Networks {
    let mut networks = Networks::new();
    for (key, network) in &file.network {
        let path = KeyPath::default().at("network").at(key);
        name(&path, key, 63, problems);
        let nameservers = nameservers(network, &path, problems);
        problems.text(
            &path.at("searchdomain"),
            network.searchdomain.as_deref(),
            syntax::search_domains,
            SEARCH_DOMAINS,
        );
        let [four, six] =
            keys(network).map(|keys| source(&keys, network, &nameservers, &path, problems));
        let ranges = [&four, &six].into_iter().flat_map(AddressSource::ranges);
        let policy = NetworkPolicy {
            ranges: ranges.copied().collect(),
        };
        if policy.ranges.is_empty() && network.ranges.is_empty() && network.ranges6.is_empty() {
            problems.add(
                &path.at("ranges"),
                "is missing; expected the addresses that machines get, such as [\"192.0.2.50-192.0.2.99\"]",
            );
        }
        let settings = NetworkSettings {
            ipv4: four,
            ipv6: six,
            nameserver: (!nameservers.is_empty()).then(|| {
                let texts: Vec<String> = nameservers.iter().map(ToString::to_string).collect();
                texts.join(" ")
            }),
            searchdomain: network.searchdomain.clone(),
            ask_on_wire: network.ask_on_wire,
        };
        networks.insert(shared(key), ResolvedNetwork { policy, settings });
    }
    networks
}

fn nameservers(network: &file::Network, path: &KeyPath, problems: &mut Problems) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for (position, text) in network.nameservers.iter().enumerate() {
        match text.parse() {
            Ok(address) => found.push(address),
            Err(_) => problems.add(
                &path.at("nameservers").at(&position),
                "expected an IP address",
            ),
        }
    }
    found
}

/// What a network gives its machines of one family.
fn source(
    keys: &Keys<'_>,
    network: &file::Network,
    nameservers: &[IpAddr],
    path: &KeyPath,
    problems: &mut Problems,
) -> AddressSource {
    let (subnet_key, subnet) = keys.subnet;
    let (ranges_key, ranges) = keys.ranges;
    let (gateway_key, gateway) = keys.gateway;
    let Some(subnet) = subnet else {
        if !ranges.is_empty() {
            problems.add(
                &path.at(subnet_key),
                format!("is missing; expected the network of {ranges_key} with its prefix"),
            );
        } else if gateway.is_some() {
            problems.add(
                &path.at(gateway_key),
                format!("is of use only with {subnet_key} and {ranges_key}"),
            );
        }
        return keys
            .word
            .1
            .map_or(AddressSource::None, AddressSource::Guest);
    };
    problems.unless(keys.word.1.is_none(), &path.at(keys.word.0), || {
        format!("expected either this or {subnet_key}")
    });
    let net = match net(keys.family, subnet) {
        Ok(net) => net,
        Err(why) => {
            problems.add(&path.at(subnet_key), why);
            return AddressSource::None;
        }
    };
    if ranges.is_empty() {
        problems.add(
            &path.at(ranges_key),
            format!("is missing; expected the addresses of {net} that machines get"),
        );
    }
    let gateway = gateway.and_then(|text| {
        let found = ipconfig::gateway(keys.family, text, Some(net));
        found
            .map_err(|why| problems.add(&path.at(gateway_key), why))
            .ok()
    });
    let named = gateway.iter().chain(nameservers).copied();
    let own = named.chain([net.network()]).map(single);
    let broadcast = (keys.family == Family::V4).then(|| single(net.broadcast()));
    let mut cut: Vec<AddressRange> = own.chain(broadcast).collect();
    if !has_own_addresses(net) {
        // Both addresses of a link of two, and the one of a single host, are machines'.
        cut.retain(|cut| cut.first != net.network() && cut.first != net.broadcast());
    }
    cut.extend(network.exclude.iter().map(|list| list.0));
    let ranges = free_ranges(net, (ranges_key, ranges), &cut, path, problems);
    AddressSource::Ranges {
        prefix: net.prefix_len(),
        gateway,
        ranges,
    }
}

/// Whether the first address of a net is the net's own, and the last one its broadcast address.
fn has_own_addresses(net: IpNet) -> bool {
    net.max_prefix_len() - net.prefix_len() >= 2
}

fn single(address: IpAddr) -> AddressRange {
    AddressRange {
        first: address,
        last: address,
    }
}

/// `192.0.2.0/24`: a network, not one of its addresses.
fn net(family: Family, text: &str) -> Result<IpNet, String> {
    let (shortest, example) = match family {
        Family::V4 => (ipconfig::SHORTEST, "192.0.2.0/24"),
        Family::V6 => (ipconfig::SHORTEST, "2001:db8::/64"),
    };
    if let (None, Ok(net)) = (read_net(text), text.parse::<IpNet>()) {
        return Err(format!(
            "has leading zeros, which some programs take for octal numbers; expected {net}, if that is meant"
        ));
    }
    let net: IpNet = read_net(text)
        .filter(|net: &IpNet| Family::of(net.addr()) == family && net.prefix_len() >= shortest)
        .ok_or_else(|| {
            format!(
                "expected a network with a prefix of {shortest} bits or more, such as {example}"
            )
        })?;
    if net.trunc() != net {
        return Err(format!(
            "is an address of the network {}: expected that",
            net.trunc()
        ));
    }
    Ok(net)
}

/// The ranges in order, without what is cut out of them.
fn free_ranges(
    net: IpNet,
    (key, ranges): (&str, &[AddressList]),
    cut: &[AddressRange],
    path: &KeyPath,
    problems: &mut Problems,
) -> Vec<AddressRange> {
    let mut free: Vec<AddressRange> = Vec::new();
    for (position, list) in ranges.iter().enumerate() {
        let at = path.at(key).at(&position);
        let range = list.0;
        let inside = net.contains(&range.first) && net.contains(&range.last);
        problems.unless(inside, &at, || format!("expected an address within {net}"));
        let before = ranges[..position].iter();
        if let Some(other) = before
            .map(|list| list.0)
            .find(|other| other.overlaps(&range))
        {
            problems.add(&at, format!("overlaps {other}"));
        }
        if !inside {
            continue;
        }
        let mut left = vec![range];
        for cut in cut {
            left = left.iter().flat_map(|range| range.without(cut)).collect();
        }
        free.extend(left);
    }
    if free.is_empty() && !ranges.is_empty() {
        problems.add(
            &path.at(key),
            "no address is left for a machine: the network's own, the broadcast address, gateway, name servers and what exclude names are left out",
        );
    }
    free.sort();
    free
}

/// The networks of a pool's cards, by the number of the card: the pool names that of the first, its template those of others.
pub(super) fn of_pool(
    pool: &file::Pool,
    template: Option<(&Arc<str>, &TemplateSettings)>,
    networks: &Networks,
    path: &KeyPath,
    problems: &mut Problems,
) -> BTreeMap<u8, Arc<str>> {
    let first = pool.network.as_deref();
    let mut named: Vec<(u8, &str, KeyPath)> = Vec::new();
    named.extend(first.map(|name| (0, name, path.at("network"))));
    if let Some((name, template)) = template {
        for (card, nic) in (1..).zip(&template.nics) {
            let at = KeyPath::default().at("template").at(name).at("nic");
            let at = at.at(&(usize::from(card) - 1)).at("network");
            let network = nic.network.as_deref();
            named.extend(network.map(|name| (card, name, at)));
        }
    }
    let found = named.into_iter().filter_map(|(card, name, at)| {
        let found = networks.get_key_value(name);
        problems.unless(found.is_some(), &at, || {
            format!("there is no table [network.{name}]")
        });
        found.map(|(name, _)| (card, name.clone()))
    });
    found.collect()
}

/// What networks and the cards in them cannot mean together.
pub(super) fn check(
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    (pools, networks): (&BTreeMap<Arc<str>, ResolvedPool>, &Networks),
    problems: &mut Problems,
) {
    check_overlaps(networks, pools, problems);
    check_cards(templates, (pools, networks), problems);
}

/// Networks whose machines may meet give no address twice.
fn check_overlaps(
    networks: &Networks,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    problems: &mut Problems,
) {
    let regions = |name: &Arc<str>| -> BTreeSet<&Arc<str>> {
        let pools = pools.values().flat_map(|pool| pool.policy.everywhere());
        let pools = pools.filter(|pool| pool.networks.values().any(|network| network == name));
        pools.map(|pool| &pool.region).collect()
    };
    for (position, (name, network)) in networks.iter().enumerate() {
        for (other_name, other) in networks.iter().take(position) {
            let (mine, others) = (regions(name), regions(other_name));
            // Two clusters of hosts may well have a private network each.
            if !mine.is_empty() && !others.is_empty() && mine.is_disjoint(&others) {
                continue;
            }
            for family in Family::ALL {
                let mut mine = network.policy.of(family);
                let found = mine.find_map(|range| {
                    let mut others = other.policy.of(family);
                    others
                        .find(|other| other.overlaps(range))
                        .map(|other| (range, other))
                });
                if let Some((range, other)) = found {
                    let key = if family == Family::V4 {
                        "ranges"
                    } else {
                        "ranges6"
                    };
                    problems.add(
                        &KeyPath::default().at("network").at(name).at(key),
                        format!("{range} overlaps {other} of network {other_name}: an address would be given twice; pools may share one network"),
                    );
                }
            }
        }
    }
}

/// A card of a pool's machines, as far as the file gives it addresses.
struct AddressedCard<'f> {
    number: u8,
    /// The network of its addresses; its `ipconfig` gives it others.
    network: Option<&'f Arc<str>>,
    /// The key that names its network, or its `ipconfig`.
    key: KeyPath,
    /// The keys of its gateways, by family.
    gateways: BTreeMap<Family, KeyPath>,
}

/// The cards of machines that a pool makes of a template.
fn addressed_cards<'f>(
    pool: &ResolvedPool,
    there: &'f PoolPolicy,
    template: &TemplateSettings,
    networks: &'f Networks,
) -> Vec<AddressedCard<'f>> {
    let of_template = KeyPath::default().at("template").at(&there.template);
    let cards = template.cards().filter_map(|(number, card)| {
        let table = match number.checked_sub(1) {
            None => of_template.clone(),
            Some(further) => of_template.at("nic").at(&further),
        };
        let network = there.networks.get(&number);
        let (key, gateways): (KeyPath, BTreeMap<Family, KeyPath>) = if let Some(name) = network {
            let settings = &networks.get(name)?.settings;
            let path = KeyPath::default().at("network").at(name);
            let keys = [
                (Family::V4, &settings.ipv4, "gateway"),
                (Family::V6, &settings.ipv6, "gateway6"),
            ];
            let keys = keys.into_iter();
            let keys = keys.filter_map(|(family, source, key)| {
                source.gateway().map(|_| (family, path.at(key)))
            });
            let named_by = if number == 0 { &pool.path } else { &table };
            (named_by.at("network"), keys.collect())
        } else {
            let key = table.at("ipconfig");
            let families = ipconfig::gateway_families(card.ipconfig.as_deref()?);
            let keys = families.map(|family| (family, key.clone())).collect();
            (key, keys)
        };
        Some(AddressedCard {
            number,
            network,
            key,
            gateways,
        })
    });
    cards.collect()
}

/// A machine has one default route of each family, and one card in a network: of two gateways the guest takes either, and from two cards in
/// one network it answers by the wrong one.
fn check_cards(
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    (pools, networks): (&BTreeMap<Arc<str>, ResolvedPool>, &Networks),
    problems: &mut Problems,
) {
    // What several pools of one template say together is told once.
    let mut found = BTreeSet::new();
    let places = pools.values();
    let places = places.flat_map(|pool| pool.policy.everywhere().map(move |there| (pool, there)));
    for (pool, there) in places {
        let Some(template) = templates.get(&there.template) else {
            continue;
        };
        let own = template.cloud_init.as_ref();
        let own = own.is_some_and(|texts| texts.network_config.is_some());
        let cards = addressed_cards(pool, there, template, networks);
        for (position, card) in cards.iter().enumerate() {
            let before = &cards[..position];
            let mut same = before.iter().filter(|other| other.network.is_some());
            if let Some(other) = same.find(|other| other.network == card.network) {
                let why = format!(
                    "is the network of net{} too ({}): a machine with two cards in one network answers by either; expected another network",
                    other.number, other.key
                );
                found.insert((card.key.clone(), why));
                continue;
            }
            // With a text of its own cloud-init is told other routes.
            for (family, gateway) in card.gateways.iter().filter(|_| !own) {
                let mut first = before.iter().filter_map(|other| {
                    let gateway = other.gateways.get(family)?;
                    Some((other.number, gateway))
                });
                if let Some((number, first)) = first.next() {
                    let why = format!(
                        "net{} would get a gateway ({gateway}) beside that of net{number} ({first}): a machine has one default route; leave one of the two gateways out",
                        card.number
                    );
                    found.insert((card.key.clone(), why));
                }
            }
        }
    }
    for (path, why) in found {
        problems.add(&path, why);
    }
}

/// What is allowed and looks like a mistake.
pub(super) fn warn(
    file: &ConfigFile,
    (networks, pools): (&Networks, &BTreeMap<Arc<str>, ResolvedPool>),
    warnings: &mut Vec<String>,
) {
    warn_of_certificates(file, pools, warnings);
    for (name, network) in networks {
        let users: Vec<&Arc<str>> = pools
            .iter()
            .filter(|(_, pool)| pool.policy.networks.values().any(|of| of == name))
            .map(|(pool, _)| pool)
            .collect();
        if users.is_empty() {
            warnings.push(format!("network.{name}: no pool uses it"));
            continue;
        }
        let cards = |pool: &&Arc<str>| {
            let policy = &pools[*pool].policy;
            let cards = policy.networks.values().filter(|of| *of == name).count();
            u128::from(policy.max) * cards as u128
        };
        let wanted: u128 = users.iter().map(cards).sum();
        for family in network.policy.families() {
            let size = network.policy.size(family);
            if size < wanted {
                let key = if family == Family::V4 {
                    "ranges"
                } else {
                    "ranges6"
                };
                warnings.push(format!(
                    "network.{name}.{key}: {} for {wanted} that the machines of {} may need at their max; the last ones will wait",
                    words::count(usize::try_from(size).unwrap_or(usize::MAX), "address"),
                    words::names(users.iter()),
                ));
            }
        }
    }
}

/// Pools whose kubelets get no serving certificate, since PVE does not know which addresses their machines have. Of k3s and RKE2 the
/// servers give them.
fn warn_of_certificates(
    file: &ConfigFile,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    warnings: &mut Vec<String>,
) {
    let asks = |name: &Arc<str>| {
        let written = file.pool.get(&**name);
        written.is_some_and(|pool| !matches!(pool.join.method, Method::K3s | Method::Rke2))
    };
    let without: Vec<&Arc<str>> = pools
        .iter()
        .filter(|(name, pool)| {
            let mut policies = pool.policy.everywhere();
            policies.any(|of| of.networks.is_empty()) && asks(name)
        })
        .map(|(name, _)| name)
        .collect();
    if file.kubernetes.serving_certificates && !without.is_empty() {
        warnings.push(format!(
            "kubernetes.serving_certificates = true: PVE does not know the addresses of machines of {}, as with DHCP, and no certificate \
             with an address is approved there; a network with ranges changes that",
            words::names(without.iter())
        ));
    }
}
