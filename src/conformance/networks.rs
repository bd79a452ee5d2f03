//! Networks of a case: the addresses that machines of pools get, and who has them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::model::network::{AddressRange, Family, NetworkPolicy, NicAddresses};
use crate::model::policy::PoolPolicy;
use crate::model::words;

use super::fields::CaseFields;
use super::nearest;
use super::objects::{name_of, named};
use super::scalars::{several, text};
use super::stage::CaseWorld;
use super::value::{CaseError, CaseValue};

/// Reads `networks: {lan: 192.0.2.10-192.0.2.12}`.
pub(super) fn read(case: &mut CaseFields<'_>, stage: &mut CaseWorld) -> Result<(), CaseError> {
    if let Some(value) = case.take("networks") {
        for (name, item) in named(value)? {
            let (name, network) = network(&item, name.as_ref())?;
            stage.policy.networks.insert(name, network);
        }
    }
    let api = case.with("api_server", addresses)?;
    stage
        .snapshot
        .cluster
        .api_addresses
        .extend(api.into_iter().flatten());
    let of_hosts = case.with("host_addresses", addresses)?;
    let of_hosts: Vec<IpAddr> = of_hosts.unwrap_or_default();
    if let Some(region) = stage.snapshot.regions.values_mut().next() {
        region.host_addresses.extend(of_hosts);
    }
    let networks = &stage.policy.networks;
    let pools = stage.policy.pools.iter();
    let mut named = pools.flat_map(|(pool, of)| of.networks.values().map(move |of| (pool, of)));
    if let Some((pool, unknown)) = named.find(|(_, name)| !networks.contains_key(*name)) {
        let known: Vec<&str> = networks.keys().map(|name| &**name).collect();
        let hint = nearest::hint(unknown, known.iter().copied());
        let known = words::names(&known);
        let text = format!("the pool {pool} names the network {unknown:?}{hint}; known: {known}");
        return Err(case.value().wrong(text));
    }
    Ok(())
}

fn network(
    value: &CaseValue,
    name: Option<&String>,
) -> Result<(Arc<str>, NetworkPolicy), CaseError> {
    if let Some(name) = name.filter(|_| value.map().is_none()) {
        let network = free_of(several(value), Vec::new())?;
        return Ok((name.as_str().into(), network));
    }
    let mut fields = CaseFields::of(value, "a network")?;
    let name = name_of(&mut fields, name, "a network")?;
    let ranges = several(fields.need("ranges")?);
    let exclude = fields.take("exclude").map(several).unwrap_or_default();
    fields.done()?;
    Ok((name.into(), free_of(ranges, exclude)?))
}

/// The ranges in ascending order, without what is excluded.
fn free_of(ranges: Vec<&CaseValue>, exclude: Vec<&CaseValue>) -> Result<NetworkPolicy, CaseError> {
    let mut all: Vec<AddressRange> = Vec::new();
    for value in ranges {
        let range = range(value)?;
        if let Some(other) = all.iter().find(|other| other.overlaps(&range)) {
            return Err(value.wrong(format!("{range} and {other} have addresses in common")));
        }
        all.push(range);
    }
    for value in exclude {
        let without = range(value)?;
        let left = all.iter().flat_map(|range| range.without(&without));
        all = left.collect();
    }
    all.sort();
    Ok(NetworkPolicy { ranges: all })
}

/// `192.0.2.10-192.0.2.12`, or one address.
fn range(value: &CaseValue) -> Result<AddressRange, CaseError> {
    let written = text(value)?;
    let (first, last) = written.split_once('-').unwrap_or((written, written));
    let address = |text: &str| text.trim().parse::<IpAddr>().ok();
    let range = address(first).zip(address(last));
    let range = range.map(|(first, last)| AddressRange { first, last });
    range
        .filter(|of| Family::of(of.first) == Family::of(of.last) && of.first <= of.last)
        .ok_or_else(|| value.expected("addresses such as 192.0.2.10-192.0.2.12"))
}

/// A list of addresses.
pub(super) fn addresses(value: &CaseValue) -> Result<Vec<IpAddr>, CaseError> {
    let items = several(value).into_iter();
    let items = items.map(|item| {
        let address = text(item)?.parse::<IpAddr>();
        address.map_err(|_| item.expected("an address such as 192.0.2.10"))
    });
    items.collect()
}

/// The networks of a pool by the number of the network card: `network: lan` is that of the first.
pub(super) fn of_pool(fields: &mut CaseFields<'_>) -> Result<BTreeMap<u8, Arc<str>>, CaseError> {
    let mut networks = BTreeMap::new();
    if let Some(name) = fields.with("network", text)? {
        networks.insert(0, name.into());
    }
    let Some(value) = fields.take("networks") else {
        return Ok(networks);
    };
    let expected = || value.expected("networks by network card, as {0: lan, 1: storage}");
    for entry in value.map().ok_or_else(expected)? {
        let card = entry.key.parse::<u8>().map_err(|_| expected())?;
        networks.insert(card, text(&entry.value)?.into());
    }
    Ok(networks)
}

/// The addresses of a machine of a pool: these, on the cards whose networks have them; where none are given the
/// next free ones of the pool's networks.
pub(super) fn of_machine(stage: &CaseWorld, pool: &PoolPolicy, given: &[IpAddr]) -> NicAddresses {
    let networks = &stage.policy.networks;
    let mut cards = NicAddresses::new();
    for address in given {
        let has = |name: &Arc<str>| networks.get(name).is_some_and(|of| of.contains(*address));
        let mut of_pool = pool.networks.iter();
        let card = of_pool
            .find(|(_, name)| has(name))
            .map_or(0, |(card, _)| *card);
        cards.entry(card).or_default().push(*address);
    }
    if !given.is_empty() {
        return cards;
    }
    let mut taken = taken(stage);
    for (card, name) in &pool.networks {
        let Some(network) = networks.get(name) else {
            continue;
        };
        for family in network.families() {
            if let Some(address) = network.next(family, None, &taken) {
                taken.insert(address);
                cards.entry(*card).or_default().push(address);
            }
        }
    }
    cards
}

/// The addresses that guests, nodes and machines have.
fn taken(stage: &CaseWorld) -> BTreeSet<IpAddr> {
    let snapshot = &stage.snapshot;
    let regions = snapshot.regions.values();
    let guests = regions.flat_map(|region| region.vms.values());
    let guests = guests.flat_map(|vm| vm.addresses.iter().flatten());
    let nodes = snapshot.cluster.nodes.values();
    let nodes = nodes.flat_map(|node| &node.addresses);
    let machines = snapshot.machines.values();
    let machines = machines.flat_map(|machine| machine.mark.addresses.values().flatten());
    guests.chain(nodes).chain(machines).copied().collect()
}
