//! Storages that disks of machines are on or go to: what is free, what is promised to whom, and what keeps disks off them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::hosts::StorageFloor;
use model::reasons::StorageNote;
use model::region::{Region, RegionName, Storage};
use model::store_states::{StorageShare, StorageState};

use crate::decision::turn::DecisionBuilder;
use crate::index::StorageIndex;
use crate::observed::reach;
use crate::scale_up::limits::LimitTracker;
use crate::scale_up::machine_disks;
use crate::scale_up::storages::StorageRoom;
use crate::scale_up::stores::Stores;
use crate::simulation::disks::StorageIndexes;

/// One pool's use of one storage: the machines that have disks there, what is promised to them, and what a new one takes.
#[derive(Debug, Default)]
struct PoolOnStorage {
    machines: u32,
    /// Bytes of its machines' disks there, in full.
    promised: i64,
    /// Bytes that its smallest machine takes; `None`: no clone of it goes there.
    asks: Option<i64>,
    /// The free space that a new machine of the pool must leave on the storage (`min_free_storage`).
    floor: Option<StorageFloor>,
}

/// The pools of one storage, by name.
type StoragePools = BTreeMap<Arc<str>, PoolOnStorage>;

/// Writes the storages into the report.
pub(crate) fn report(turn: &mut DecisionBuilder<'_>, limits: &LimitTracker) {
    for (name, region) in &turn.view.snapshot.regions {
        if turn.holds.unread_in(name).is_some() {
            continue;
        }
        let (stores, indexes) = limits.stores();
        let storages = &indexes.storages;
        let mut pools: BTreeMap<StorageIndex, StoragePools> = BTreeMap::new();
        add_clones(turn, (stores, storages), (name, region), &mut pools);
        add_machines(turn, storages, name, &mut pools);
        let mut states = BTreeMap::new();
        for (index, places) in find_places(storages, (name, region), &pools) {
            let room = stores.room(index).zip(pools.get(&index));
            if let Some((room, first)) = room.zip(places.first()) {
                let state = state(turn, (name, region), room, &places);
                let key = if state.shared {
                    state.storage.clone()
                } else {
                    format!("{}/{}", first.host, first.name).into()
                };
                states.insert(key, state);
            }
        }
        if !states.is_empty() {
            turn.report.storages.insert(name.clone(), states);
        }
    }
}

/// Notes the storages that clones of pools go to, and what the smallest machine takes there.
fn add_clones(
    turn: &DecisionBuilder<'_>,
    (stores, storages): (&Stores, &StorageIndexes),
    (name, region): (&RegionName, &Region),
    found: &mut BTreeMap<StorageIndex, StoragePools>,
) {
    let policy = turn.view.policy;
    for (pool_name, pool) in policy.pools_in(name).filter(|(_, pool)| pool.max > 0) {
        let types = pool.instance_types.iter();
        let types = types.filter_map(|of| policy.instance_types.get(of));
        let Some(smallest) = types.min_by_key(|of| of.disk) else {
            continue;
        };
        let copies = region.templates.get(&pool.template);
        let floor = pool.host_rules.min_free_storage;
        for host in region.hosts.keys().filter(|host| pool.may_use(host)) {
            let here = copies.into_iter().flatten();
            let here = here.filter(|copy| copy.shared || copy.host == *host);
            for copy in here {
                let usable = |disk| reach::usable(region, (pool, copy), host, disk);
                let ways = storages.layouts((name, host), (copy, smallest), floor, usable);
                let next = stores.first_with_room(&ways);
                for (position, way) in ways.iter().enumerate() {
                    // No machine waits for a storage before the first of its list that has room, nor for one behind that.
                    let is_asked = next.is_none_or(|next| next == position);
                    for disks in &way.disks {
                        let pools = found.entry(disks.storage).or_default();
                        let of = pools.entry(pool_name.clone()).or_default();
                        of.floor = floor;
                        if is_asked {
                            let asks = of.asks.map_or(disks.size, |asks| asks.min(disks.size));
                            of.asks = Some(asks);
                        }
                    }
                }
            }
        }
    }
}

/// Notes the storages that disks of machines are on, or will be on.
fn add_machines(
    turn: &DecisionBuilder<'_>,
    storages: &StorageIndexes,
    region: &RegionName,
    found: &mut BTreeMap<StorageIndex, StoragePools>,
) {
    let machines = turn.view.machines.values();
    for machine in machines.filter(|machine| machine.seen.region == *region) {
        let pool: Arc<str> = machine.seen.mark.pool.as_str().into();
        let mut counted: BTreeSet<StorageIndex> = BTreeSet::new();
        machine_disks::each_of(storages, machine, |disks, _| {
            let pools = found.entry(disks.storage).or_default();
            let of = pools.entry(pool.clone()).or_default();
            of.promised = of.promised.saturating_add(disks.size);
            of.machines += u32::from(counted.insert(disks.storage));
        });
    }
}

/// A storage as one host shows it.
#[derive(Debug)]
struct StoragePlace<'a> {
    host: &'a Arc<str>,
    name: &'a Arc<str>,
    seen: &'a Storage,
}

/// The hosts that show each storage which pools have disks on, or may.
fn find_places<'a>(
    storages: &StorageIndexes,
    (region_name, region): (&RegionName, &'a Region),
    wanted: &BTreeMap<StorageIndex, StoragePools>,
) -> BTreeMap<StorageIndex, Vec<StoragePlace<'a>>> {
    let mut places: BTreeMap<StorageIndex, Vec<StoragePlace<'a>>> = BTreeMap::new();
    for (host, of_host) in &region.storages {
        for (name, seen) in of_host {
            let index = storages.at(region_name, host, name);
            if let Some(index) = index.filter(|index| wanted.contains_key(index)) {
                let place = StoragePlace { host, name, seen };
                places.entry(index).or_default().push(place);
            }
        }
    }
    places
}

/// A storage in numbers; `places` is not empty.
fn state(
    turn: &DecisionBuilder<'_>,
    at: (&RegionName, &Region),
    (room, pools): (&StorageRoom, &StoragePools),
    places: &[StoragePlace<'_>],
) -> StorageState {
    let first = places.first();
    let mut state = StorageState {
        storage: first.map_or_else(|| "".into(), |place| place.name.clone()),
        shared: first.is_some_and(|place| place.seen.shared),
        hosts: places.iter().map(|place| place.host.clone()).collect(),
        ..StorageState::default()
    };
    room.report(&mut state);
    let users = || pools.values().filter(|pool| pool.asks.is_some());
    let left = users().filter_map(|pool| room.left(pool.floor)).max();
    state.left = left.or_else(|| room.left(None));
    let share = |pool: &PoolOnStorage| StorageShare {
        machines: pool.machines,
        promised: pool.promised,
        min_free: pool.floor.map_or(0, |floor| floor.of_total(state.total)),
    };
    let shares = pools.iter().map(|(name, pool)| (name.clone(), share(pool)));
    state.pools = shares.collect();
    let notes = notes(turn, at, (room, pools), places);
    state.notes = notes.iter().map(ToString::to_string).collect();
    state.notes_details = notes;
    state
}

/// The notes of a storage's row: each reason why no machine gets a disk there now, and which other storages share its space.
fn notes(
    turn: &DecisionBuilder<'_>,
    (name, region): (&RegionName, &Region),
    (room, pools): (&StorageRoom, &StoragePools),
    places: &[StoragePlace<'_>],
) -> Vec<StorageNote> {
    let mut notes = Vec::new();
    let wanted = |host: &str| {
        let policies = pools
            .keys()
            .filter_map(|pool| turn.view.policy.pools.get(pool));
        let mut policies = policies.filter_map(|pool| pool.at(name));
        policies.any(|pool| pool.may_use(host))
    };
    let is_online = |host: &str| region.hosts.get(host).is_some_and(|host| host.online);
    let away = places.iter().filter(|place| !place.seen.active);
    let away = away.filter(|place| is_online(place.host) && wanted(place.host));
    let hosts: Vec<Arc<str>> = away.map(|place| place.host.clone()).collect();
    if !hosts.is_empty() {
        notes.push(StorageNote::NotAvailable { hosts });
    }
    let available = places.iter().any(|place| place.seen.active);
    if room.left(None).is_none() && available {
        let bounded = pools.iter().filter(|(_, pool)| pool.floor.is_some());
        notes.push(StorageNote::UnknownSize {
            pools: bounded.map(|(pool, _)| pool.clone()).collect(),
        });
    }
    let short = pools.iter().filter_map(|(pool, of)| {
        let asks = of.asks?;
        (asks > room.left(of.floor)?).then_some((pool, asks))
    });
    let short: Vec<(&Arc<str>, i64)> = short.collect();
    if let Some(asks) = short.iter().map(|(_, asks)| *asks).min() {
        let full_for = short.iter().map(|(pool, _)| (*pool).clone());
        notes.push(StorageNote::NoRoom {
            pools: full_for.collect(),
            asks,
        });
    }
    let with = sharing(region, places);
    if !with.is_empty() {
        let with = with.into_iter().cloned().collect();
        notes.push(StorageNote::SharesSpace { with });
    }
    notes
}

/// The other storages of its hosts that lie in the same pool.
fn sharing<'a>(region: &'a Region, places: &[StoragePlace<'a>]) -> BTreeSet<&'a Arc<str>> {
    let others = places.iter().flat_map(|place| {
        let of_host = region.storages.get(place.host).into_iter().flatten();
        of_host.filter(move |(name, other)| {
            place.seen.backing.is_some()
                && other.backing == place.seen.backing
                && *name != place.name
        })
    });
    others.map(|(name, _)| name).collect()
}
