//! The addresses of networks: which are taken, and which one is next.
//!
//! Taken is what the configuration of any guest names, what a Node, a host or a host's gateway has, where the API server is reached, and what is reserved for a machine of ours: in its
//! mark, in its intent, or in this decision's plan, and what somebody else had when it was asked for on the wire. While the configuration of a guest that may have one of them is not known,
//! a network gives none: what was not read is not free.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::action::{Action, Kind, is_being_made};
use model::mark::Ownership;
use model::memory::Memory;
use model::network::{Family, NetworkPolicy, NicAddresses};
use model::policy::{Policy, PoolPolicy};
use model::reasons::{GuestAt, Refused, UnknownAddresses};
use model::region::{Machine, Region, Vm};

use crate::decision::overlaps::{self, SharedAddresses};
use crate::decision::turn::DecisionBuilder;

/// Guests that are named where the addresses of some are not known.
const NAMED: usize = 3;

/// What is taken, and what hinders each network.
#[derive(Debug, Default)]
pub(crate) struct AddressBook {
    taken: BTreeSet<IpAddr>,
    /// Those of them that somebody had when they were asked for on the wire.
    on_wire: BTreeSet<IpAddr>,
    /// Why a network gives no address now, whatever is free.
    closed: BTreeMap<Arc<str>, UnknownAddresses>,
}

/// How many addresses networks can still give.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeAddresses {
    free: BTreeMap<Arc<str>, u128>,
    closed: BTreeMap<Arc<str>, UnknownAddresses>,
    /// The ranges of a network's scarcest family, as a person writes them.
    ranges: BTreeMap<Arc<str>, Arc<str>>,
    /// How many addresses of these ranges somebody had when they were asked for on the wire.
    on_wire: BTreeMap<Arc<str>, u64>,
    /// The free addresses of each set of networks whose ranges overlap, as those of two regions may: less than the sum of what each has free.
    shared: Vec<SharedAddresses>,
}

impl AddressBook {
    /// Reads what there is and what is planned; nothing where the configuration has no network.
    pub(crate) fn of(turn: &DecisionBuilder<'_>) -> AddressBook {
        let (snapshot, policy) = (turn.view.snapshot, turn.view.policy);
        let mut book = AddressBook::default();
        if policy.networks.is_empty() {
            return book;
        }
        let machines = &snapshot.machines;
        let guests = snapshot
            .regions
            .values()
            .flat_map(|region| region.vms.values());
        let guests = guests.filter(|vm| !vm.template);
        let guests = guests.filter_map(|vm| vm.addresses.as_ref()).flatten();
        let nodes = snapshot.cluster.nodes.values();
        let nodes = nodes.flat_map(|node| &node.addresses);
        let planned = turn.plan.iter().filter_map(|action| match &action.kind {
            Kind::Create(spec) => Some(&spec.mark.addresses),
            _ => None,
        });
        let marks = machines.values().map(|machine| &machine.mark.addresses);
        let reserved = marks.chain(planned).flat_map(BTreeMap::values).flatten();
        let given = |address: &&IpAddr| policy.networks.values().any(|of| of.contains(**address));
        book.on_wire = snapshot.on_wire.keys().filter(given).copied().collect();
        let regions = snapshot.regions.values();
        let hosts = regions.flat_map(|region| &region.host_addresses);
        let fixed = hosts.chain(&snapshot.cluster.api_addresses);
        let all = guests.chain(nodes).chain(fixed);
        let all = all.chain(reserved).chain(&book.on_wire);
        book.taken = all.filter(given).copied().collect();
        for (name, region) in &snapshot.regions {
            let pools = policy.pools_in(name).map(|(_, pool)| pool);
            let networks: BTreeSet<&Arc<str>> =
                pools.flat_map(|pool| pool.networks.values()).collect();
            if networks.is_empty() {
                continue;
            }
            let ours = machines.values().filter(|machine| machine.region == *name);
            let ours: BTreeMap<u32, &Machine> =
                ours.map(|machine| (machine.mark.vmid, machine)).collect();
            if let Some(why) = unknown(region, policy, name, &ours) {
                for network in networks {
                    book.closed.insert(network.clone(), why.clone());
                }
            }
        }
        book
    }

    /// How many addresses each network can give.
    pub(crate) fn count(&self, policy: &Policy) -> FreeAddresses {
        let mut count = FreeAddresses {
            closed: self.closed.clone(),
            ..FreeAddresses::default()
        };
        for (name, network) in &policy.networks {
            let scarce = network
                .families()
                .min_by_key(|family| self.free(network, *family));
            let Some(family) = scarce else { continue };
            count.free.insert(name.clone(), self.free(network, family));
            let ranges = network.words(family).into();
            count.ranges.insert(name.clone(), ranges);
            let on_wire = self.on_wire(network, family).count() as u64;
            count.on_wire.insert(name.clone(), on_wire);
        }
        let shared = Family::ALL.into_iter();
        count.shared = shared
            .flat_map(|family| overlaps::count(policy, &self.taken, family))
            .collect();
        count
    }

    /// Why a machine of a pool cannot have its addresses, where [`AddressBook::take`] gives none.
    pub(crate) fn refuse(&self, policy: &Policy, pool: &PoolPolicy) -> Refused {
        let full = pool.networks.values().filter_map(|name| {
            let network = policy.networks.get(name)?;
            let family = network
                .families()
                .min_by_key(|family| self.free(network, *family))?;
            Some((self.free(network, family), name, network.words(family)))
        });
        let first = full.min_by_key(|(free, ..)| *free);
        let (network, ranges) = match first {
            Some((_, name, ranges)) => (name.clone(), Some(ranges.into())),
            None => ("".into(), None),
        };
        Refused::NetworkFull {
            network,
            ranges,
            on_wire: None,
        }
    }

    /// How many addresses of a family are free.
    pub(crate) fn free(&self, network: &NetworkPolicy, family: Family) -> u128 {
        // A range of a record whose names were hashed may end before it begins: it has no address.
        let ranges = network.of(family).filter(|range| range.first <= range.last);
        let taken = ranges.map(|range| {
            let taken = self.taken.range(range.first..=range.last);
            taken.count() as u128
        });
        network.size(family).saturating_sub(taken.sum())
    }

    /// Addresses of a family that somebody had when they were asked for on the wire.
    pub(crate) fn on_wire(
        &self,
        network: &NetworkPolicy,
        family: Family,
    ) -> impl Iterator<Item = &IpAddr> {
        let of_network =
            move |address: &&IpAddr| Family::of(**address) == family && network.contains(**address);
        self.on_wire.iter().filter(of_network)
    }

    /// Why a network gives no address now, if something hinders it.
    pub(crate) fn closed(&self, network: &str) -> Option<&UnknownAddresses> {
        self.closed.get(network)
    }

    /// Takes an address of each family for every network card of a machine of a pool; `None` where one is missing.
    pub(crate) fn take(
        &mut self,
        turn: &DecisionBuilder<'_>,
        pool: &PoolPolicy,
    ) -> Option<NicAddresses> {
        let mut given = NicAddresses::new();
        for (card, name) in &pool.networks {
            let network = turn.view.policy.networks.get(name)?;
            if self.closed.contains_key(name) {
                return None;
            }
            let mut addresses = Vec::new();
            for family in network.families() {
                let last = last_given(turn, (name, network), family);
                // Addresses that only this network has are given first. Networks whose ranges overlap with it may have no others left than the shared ones.
                let own = overlaps::own_part(turn.view.policy, name, network);
                let own = own.and_then(|own| own.next(family, last, &self.taken));
                let address = own.or_else(|| network.next(family, last, &self.taken))?;
                self.taken.insert(address);
                addresses.push(address);
            }
            given.insert(*card, addresses);
        }
        Some(given)
    }
}

/// The address after which the search for a free one begins: what was given last, else the highest that a machine has, so
/// that an address which has just become free is not the next one that is given.
fn last_given(
    turn: &DecisionBuilder<'_>,
    (name, network): (&Arc<str>, &NetworkPolicy),
    family: Family,
) -> Option<IpAddr> {
    let of_family = |address: &&IpAddr| Family::of(**address) == family;
    let planned = turn.plan.iter().rev().find_map(|action| {
        let Kind::Create(spec) = &action.kind else {
            return None;
        };
        let mut addresses = spec.mark.addresses.values().flatten().filter(of_family);
        addresses.find(|address| network.contains(**address))
    });
    let remembered = || {
        let last = turn.memory.last_addresses.get(name)?;
        last.iter().find(of_family)
    };
    let highest = || {
        let machines = turn.view.snapshot.machines.values();
        let all = machines.flat_map(|machine| machine.mark.addresses.values().flatten());
        let all = all.filter(of_family);
        all.filter(|address| network.contains(**address)).max()
    };
    planned.or_else(remembered).or_else(highest).copied()
}

/// Guests of a region of which it is not known which addresses they have.
fn unknown(
    region: &Region,
    policy: &Policy,
    name: &Arc<str>,
    ours: &BTreeMap<u32, &Machine>,
) -> Option<UnknownAddresses> {
    let range = policy.regions.get(name);
    let in_range =
        |vmid: u32| range.is_some_and(|range| (range.vmid_first..=range.vmid_last).contains(&vmid));
    // What a machine of ours has is reserved for it, whether its VM was read or not.
    let others = region
        .vms
        .iter()
        .filter(|(vmid, vm)| !vm.template && !ours.contains_key(*vmid) && is_online(region, vm));
    // Another leader's clone shows its mark, and with it its addresses, when it is done.
    let is_clone = |vmid: u32, vm: &Vm| {
        in_range(vmid)
            && is_being_made(vm.lock.as_deref())
            && !matches!(vm.ownership, Some(Ownership::Marked(_)))
    };
    let unread = others.filter(|(vmid, vm)| vm.addresses.is_none() || is_clone(**vmid, vm));
    let mut unknown = UnknownAddresses {
        region: name.clone(),
        guests: 0,
        first: Vec::new(),
    };
    for (vmid, vm) in unread {
        unknown.guests += 1;
        if unknown.first.len() < NAMED {
            let host = vm.host.clone();
            unknown.first.push(GuestAt { vmid: *vmid, host });
        }
    }
    (unknown.guests > 0).then_some(unknown)
}

fn is_online(region: &Region, vm: &Vm) -> bool {
    region.hosts.get(&vm.host).is_some_and(|host| host.online)
}

impl FreeAddresses {
    /// Whether one more machine of a pool can have its addresses.
    pub(crate) fn admit(&self, pool: &PoolPolicy) -> Result<(), Refused> {
        for name in pool.networks.values() {
            if let Some(why) = self.closed.get(name) {
                let (network, unknown) = (name.clone(), why.clone());
                return Err(Refused::NetworkClosed { network, unknown });
            }
            let need = cards(pool, name);
            let free = self.free.get(name).copied().unwrap_or(0);
            if free < need {
                let on_wire = self.on_wire.get(name).copied();
                return Err(Refused::NetworkFull {
                    network: name.clone(),
                    ranges: self.ranges.get(name).cloned(),
                    on_wire: on_wire.filter(|count| *count > 0),
                });
            }
        }
        let mut shared = self.shared.iter();
        match shared.find_map(|shared| shared.lacking(pool)) {
            Some(network) => Err(Refused::NetworkFull {
                network: network.clone(),
                ranges: self.ranges.get(network).cloned(),
                on_wire: None,
            }),
            None => Ok(()),
        }
    }

    /// The free addresses of each set of networks whose ranges overlap.
    pub(crate) fn shared(&self) -> &[SharedAddresses] {
        &self.shared
    }

    /// How many addresses a network can still give.
    pub(crate) fn left(&self, network: &str) -> u128 {
        let open = !self.closed.contains_key(network);
        let free = self.free.get(network).filter(|_| open);
        free.copied().unwrap_or(0)
    }

    /// Counts the addresses of one machine as taken.
    pub(crate) fn take(&mut self, pool: &PoolPolicy) {
        for name in pool.networks.values() {
            if let Some(free) = self.free.get_mut(name) {
                *free = free.saturating_sub(1);
            }
        }
        for shared in &mut self.shared {
            shared.take(pool);
        }
    }

    /// Counts the addresses of one machine as free again.
    pub(crate) fn give(&mut self, pool: &PoolPolicy) {
        for name in pool.networks.values() {
            if let Some(free) = self.free.get_mut(name) {
                *free = free.saturating_add(1);
            }
        }
        for shared in &mut self.shared {
            shared.give(pool);
        }
    }
}

/// How many cards of a pool's machine are in a network.
pub(crate) fn cards(pool: &PoolPolicy, network: &Arc<str>) -> u128 {
    let cards = pool.networks.values().filter(|name| *name == network);
    cards.count() as u128
}

/// Keeps which addresses were given last.
pub(crate) fn remember(memory: &mut Memory, plan: &[Action], policy: &Policy) {
    for action in plan {
        let Kind::Create(spec) = &action.kind else {
            continue;
        };
        let pool = policy.pools.get(spec.mark.pool.as_str());
        let Some(pool) = pool.and_then(|pool| pool.at(&action.target.region)) else {
            continue;
        };
        for (card, addresses) in &spec.mark.addresses {
            let Some(network) = pool.networks.get(card) else {
                continue;
            };
            let last = memory.last_addresses.entry(network.clone()).or_default();
            for address in addresses {
                last.retain(|old| Family::of(*old) != Family::of(*address));
                last.push(*address);
            }
        }
    }
}
