//! Networks whose ranges overlap, as those of two regions may: an address that several of them have is given once.
//!
//! What some networks can give together is less than the sum of what each can give. A plan has an address for each of its machines where no
//! such set of networks is asked for more than that (Hall's theorem), so that each set is a limit of its own.

use core::net::IpAddr;
use std::collections::BTreeSet;
use std::sync::Arc;

use model::network::{AddressRange, Family, NetworkPolicy, number};
use model::policy::{Policy, PoolPolicy};

/// Overlapping networks of which every set of two or more is counted: 57 sets at most. Where more overlap, each pair is counted and the set of all:
/// a plan may then have a machine more than there are addresses, which is not made.
const EACH_SET: usize = 6;
/// Overlapping networks that are counted, at most: each is a bit of a `u64`.
const MAX_NETWORKS: usize = 64;

/// How many addresses some overlapping networks of one family can give together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedAddresses {
    networks: Vec<Arc<str>>,
    free: u128,
}

impl SharedAddresses {
    /// How many addresses are free.
    pub(crate) fn free(&self) -> u128 {
        self.free
    }

    /// How many of them a machine of a pool takes.
    pub(crate) fn need(&self, pool: &PoolPolicy) -> u128 {
        let cards = pool.networks.values();
        cards.filter(|name| self.networks.contains(name)).count() as u128
    }

    /// The network of a pool that has no address for one more machine, since others of these took it.
    pub(crate) fn lacking<'p>(&self, pool: &'p PoolPolicy) -> Option<&'p Arc<str>> {
        let mut cards = pool.networks.values();
        let first = cards.find(|name| self.networks.contains(name))?;
        (self.free < self.need(pool)).then_some(first)
    }

    /// Counts the addresses of one machine as taken.
    pub(crate) fn take(&mut self, pool: &PoolPolicy) {
        self.free = self.free.saturating_sub(self.need(pool));
    }

    /// Counts the addresses of one machine as free again.
    pub(crate) fn give(&mut self, pool: &PoolPolicy) {
        self.free = self.free.saturating_add(self.need(pool));
    }
}

/// What sets of overlapping networks can give together, where that is less than the sum of what each can.
pub(crate) fn count(
    policy: &Policy,
    taken: &BTreeSet<IpAddr>,
    family: Family,
) -> Vec<SharedAddresses> {
    let overlapping: Vec<(&Arc<str>, &NetworkPolicy)> = policy
        .networks
        .iter()
        .filter(|(name, network)| overlaps_another(policy, name, network, family))
        .take(MAX_NETWORKS)
        .collect();
    if overlapping.len() < 2 {
        return Vec::new();
    }
    let parts = cut(&overlapping, taken, family);
    let free_of = |set: u64| -> u128 {
        let of_set = parts.iter().filter(|(by, _)| by & set != 0);
        of_set.fold(0, |sum: u128, (_, free)| sum.saturating_add(*free))
    };
    let alone = |set: u64| -> u128 {
        let members = (0..overlapping.len()).filter(|at| set & (1 << at) != 0);
        members.fold(0, |sum: u128, at| sum.saturating_add(free_of(1 << at)))
    };
    let sets = list_sets(overlapping.len());
    let limiting = sets
        .into_iter()
        .map(|set| (set, free_of(set)))
        .filter(|(set, free)| *free < alone(*set));
    limiting
        .map(|(set, free)| {
            let members = overlapping.iter().enumerate();
            let members = members.filter(|(at, _)| set & (1 << at) != 0);
            SharedAddresses {
                networks: members.map(|(_, (name, _))| (*name).clone()).collect(),
                free,
            }
        })
        .collect()
}

/// The sets of two or more of so many networks that are looked at, as bits.
fn list_sets(networks: usize) -> Vec<u64> {
    let all = u64::MAX >> (MAX_NETWORKS - networks.clamp(1, MAX_NETWORKS));
    if networks <= EACH_SET {
        return (1..=all).filter(|set| set.count_ones() > 1).collect();
    }
    let pairs = (0..networks).flat_map(|at| (0..at).map(move |other| (1 << at) | (1 << other)));
    pairs.chain([all]).collect()
}

/// The addresses of networks cut where a range begins or ends: by whom each part can be given, as bits, and how many of it are free.
fn cut(
    networks: &[(&Arc<str>, &NetworkPolicy)],
    taken: &BTreeSet<IpAddr>,
    family: Family,
) -> Vec<(u64, u128)> {
    let mut edges = BTreeSet::new();
    for (_, network) in networks {
        for range in list_ranges(network, family) {
            edges.insert(number(range.first));
            edges.insert(number(range.last).saturating_add(1));
        }
    }
    let edges: Vec<u128> = edges.into_iter().collect();
    let mut parts = Vec::new();
    for pair in edges.windows(2) {
        let &[first, next] = pair else { continue };
        let (from, to) = (family.address(first), family.address(next - 1));
        let mut by = 0;
        for (at, (_, network)) in networks.iter().enumerate() {
            by |= u64::from(network.contains(from)) << at;
        }
        if by != 0 {
            let used = taken.range(from..=to).count() as u128;
            parts.push((by, (next - first).saturating_sub(used)));
        }
    }
    parts
}

/// The ranges of a family. One of a record whose names were hashed may end before it begins: it has no address.
fn list_ranges(network: &NetworkPolicy, family: Family) -> impl Iterator<Item = &AddressRange> {
    let ranges = network.of(family);
    ranges.filter(|range| range.first <= range.last)
}

fn overlaps_another(
    policy: &Policy,
    name: &Arc<str>,
    network: &NetworkPolicy,
    family: Family,
) -> bool {
    let mut others = policy.networks.iter().filter(|(other, _)| *other != name);
    others.any(|(_, other)| {
        list_ranges(network, family)
            .any(|range| list_ranges(other, family).any(|theirs| range.overlaps(theirs)))
    })
}

/// What a network alone can give; `None` where it overlaps no other.
pub(crate) fn own_part(
    policy: &Policy,
    name: &Arc<str>,
    network: &NetworkPolicy,
) -> Option<NetworkPolicy> {
    let mut families = Family::ALL.into_iter();
    families.find(|family| overlaps_another(policy, name, network, *family))?;
    let mut ranges = network.ranges.clone();
    let others = policy.networks.iter().filter(|(other, _)| *other != name);
    for theirs in others.flat_map(|(_, other)| &other.ranges) {
        ranges = ranges.iter().flat_map(|own| own.without(theirs)).collect();
    }
    Some(NetworkPolicy { ranges })
}
