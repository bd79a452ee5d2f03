//! Numbers that are given once: addresses of networks and VMIDs of regions, for a search that takes and gives back many.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::policy::{Policy, PoolPolicy};

use crate::decision::addresses::{FreeAddresses, cards};
use crate::decision::overlaps::SharedAddresses;
use crate::index::{IndexVec, ListIndex as _, NumberIndex, PoolRegionIndex};

/// How many numbers are free.
#[derive(Clone, Debug, Hash)]
pub(crate) struct NumberRooms {
    /// Addresses of each network that pools name, then what overlapping networks have together, then VMIDs of each region.
    free: IndexVec<NumberIndex, i64>,
    /// Where the overlapping networks begin.
    first_shared: NumberIndex,
    /// Where the regions begin.
    first_region: NumberIndex,
}

/// What one machine of a pool takes of one kind of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NumberDemand {
    of: NumberIndex,
    count: i64,
}

/// By pool and region: what one machine takes of each kind of numbers.
pub(crate) type NumberDemands = IndexVec<PoolRegionIndex, Vec<NumberDemand>>;

impl NumberRooms {
    /// What is free, and what machines of each pool take in each of its regions. `vmids`: how many are free in each region.
    pub(crate) fn of(
        policy: &Policy,
        addresses: &FreeAddresses,
        vmids: &BTreeMap<&Arc<str>, u64>,
    ) -> (NumberRooms, NumberDemands) {
        let pools = || policy.pools.values().flat_map(PoolPolicy::everywhere);
        let networks: BTreeSet<&Arc<str>> =
            pools().flat_map(|pool| pool.networks.values()).collect();
        let regions: BTreeSet<&Arc<str>> = pools().map(|pool| &pool.region).collect();
        let of_networks = networks.iter().map(|name| addresses.left(name));
        let of_regions = regions.iter();
        let of_regions = of_regions.map(|name| u128::from(vmids.get(*name).copied().unwrap_or(0)));
        let of_shared = addresses.shared().iter().map(SharedAddresses::free);
        let free = of_networks.chain(of_shared).chain(of_regions);
        let rooms = NumberRooms {
            free: free
                .map(|free| i64::try_from(free).unwrap_or(i64::MAX))
                .collect(),
            first_shared: NumberIndex::at(networks.len()),
            first_region: NumberIndex::at(networks.len() + addresses.shared().len()),
        };
        let demand = |pool: &PoolPolicy| {
            let addresses_wanted = networks.iter().map(|name| cards(pool, name));
            let one_there = |name: &&Arc<str>| u128::from(**name == pool.region);
            let shared = addresses.shared().iter().map(|shared| shared.need(pool));
            let counts = addresses_wanted.chain(shared);
            let counts = counts.chain(regions.iter().map(one_there));
            let counts = rooms.free.indexes().zip(counts);
            let demands = counts.map(|(of, count)| NumberDemand {
                of,
                count: i64::try_from(count).unwrap_or(i64::MAX),
            });
            demands.filter(|demand| demand.count > 0).collect()
        };
        let demands = pools().map(demand).collect();
        (rooms, demands)
    }

    /// There are no numbers for more machines than these, whatever their pools.
    pub(crate) fn most(&self, demands: &NumberDemands) -> u64 {
        let sum = |free: &[i64]| {
            let free = free.iter().map(|free| u64::try_from(*free).unwrap_or(0));
            free.fold(0, u64::saturating_add)
        };
        let (numbered, regions) = self.free.split_at(self.first_region.position());
        let (networks, _) = numbered.split_at(self.first_shared.position());
        let in_network = |wanted: &Vec<NumberDemand>| {
            let mut wanted = wanted.iter();
            wanted.any(|demand| demand.of < self.first_region)
        };
        let vmids = sum(regions);
        if demands.iter().all(in_network) {
            vmids.min(sum(networks))
        } else {
            vmids
        }
    }

    /// There are no numbers for more machines than these of one pool, in all of its regions.
    pub(crate) fn most_of_pool<'d>(
        &self,
        regions: impl IntoIterator<Item = &'d Vec<NumberDemand>>,
    ) -> u64 {
        let in_region = |demands: &Vec<NumberDemand>| {
            let machines = demands.iter().map(|demand| {
                let machines = self.free[demand.of] / demand.count.max(1);
                u64::try_from(machines).unwrap_or(0)
            });
            machines.min().unwrap_or(u64::MAX)
        };
        let regions = regions.into_iter().map(in_region);
        regions.fold(0, u64::saturating_add)
    }

    /// Whether one more machine that takes these can have its numbers.
    pub(crate) fn admits(&self, demands: &[NumberDemand]) -> bool {
        let enough = |demand: &NumberDemand| self.free[demand.of] >= demand.count;
        demands.iter().all(enough)
    }

    /// Counts the numbers of one machine as taken.
    pub(crate) fn take(&mut self, demands: &[NumberDemand]) {
        for demand in demands {
            let free = &mut self.free[demand.of];
            *free = free.wrapping_sub(demand.count);
        }
    }

    /// Counts the numbers of one machine as free again.
    pub(crate) fn give(&mut self, demands: &[NumberDemand]) {
        for demand in demands {
            let free = &mut self.free[demand.of];
            *free = free.wrapping_add(demand.count);
        }
    }
}
