//! Hosts of generated worlds: what they have, what is in use, and which ones pools may use.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::HOSTS;
use crate::tests::lab::{GI, Lab, START};
use model::hosts::{HostCounting, HostRules, HostStrategy, StorageFloor};
use model::region::{GuestKind, Storage, TemplateDisk, Vm};

/// One host.
#[derive(Clone, Copy, Debug)]
pub(in crate::tests) struct HostRecipe {
    cpus: u32,
    /// Percent of its CPUs and of its memory that are in use.
    used: (i64, i64),
    maintenance: bool,
    evacuated: bool,
}

/// What a pool says of hosts.
#[derive(Clone, Debug)]
pub(in crate::tests) struct RulesRecipe {
    strategy: usize,
    exclude: Option<usize>,
    max_per_host: Option<u32>,
    min_free_cores: i64,
    min_free_gib: i64,
    /// Percent of each storage.
    min_free_storage: i64,
}

/// All that a world says of hosts.
#[derive(Clone, Debug)]
pub(in crate::tests) struct HostsRecipe {
    hosts: Vec<HostRecipe>,
    rules: Vec<RulesRecipe>,
    max_per_host: Option<u32>,
    memory_percent: i64,
    cpu_percent: Option<i64>,
    reserve_cores: i64,
    onboot: bool,
    balloon_minimum: bool,
    guests: Vec<GuestRecipe>,
    storages: Option<StoragesRecipe>,
}

/// Size and use in GiB; `None` where a host has not the storage.
type StorageRecipe = Option<(i64, i64)>;

/// Where clones' disks go.
#[derive(Clone, Debug)]
pub(in crate::tests) struct StoragesRecipe {
    /// One for all hosts, or one of the same name on each.
    shared: bool,
    thick: bool,
    /// By host: size and use in GiB; `None` where it is not there.
    hosts: Vec<StorageRecipe>,
    /// GiB of the boot disk and of a second one.
    disks: (i64, i64),
    /// Which of the two may lie on another storage, too, if any, and that storage by host.
    listed: Option<(bool, Vec<StorageRecipe>)>,
    percent: i64,
}

/// Somebody else's guest.
#[derive(Clone, Copy, Debug)]
pub(in crate::tests) struct GuestRecipe {
    host: usize,
    running: bool,
    onboot: bool,
    container: bool,
    cpus: u32,
    gib: i64,
    least: Option<i64>,
}

fn guest() -> impl Strategy<Value = GuestRecipe> {
    let size = (0..16u32, 0..32i64, of(0..16i64));
    let kind = (any::<bool>(), any::<bool>(), any::<bool>());
    (0..3usize, kind, size).prop_map(|(host, (running, onboot, container), size)| GuestRecipe {
        host,
        running,
        onboot,
        container,
        cpus: size.0,
        gib: size.1,
        least: size.2,
    })
}

const STRATEGIES: [HostStrategy; 6] = [
    HostStrategy::Spread,
    HostStrategy::MaxMemory,
    HostStrategy::MaxCpu,
    HostStrategy::Balanced,
    HostStrategy::RoundRobin,
    HostStrategy::Pack,
];

fn host() -> impl Strategy<Value = HostRecipe> {
    let cpus = prop_oneof![3 => Just(64u32), 1 => 0..9u32];
    let states = (prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (cpus, (0..100i64, 0..100i64), states).prop_map(|(cpus, used, (maintenance, evacuated))| {
        HostRecipe {
            cpus,
            used,
            maintenance,
            evacuated,
        }
    })
}

fn rules() -> impl Strategy<Value = RulesRecipe> {
    let rarely = |most: i64| prop_oneof![3 => Just(0i64), 1 => 0..most];
    let bounds = (rarely(16), rarely(16), rarely(60));
    let few = prop_oneof![2 => Just(None), 1 => (1..3u32).prop_map(Some)];
    let exclude = prop_oneof![3 => Just(None), 1 => (0..3usize).prop_map(Some)];
    (0..STRATEGIES.len(), exclude, few, bounds).prop_map(
        |(strategy, exclude, max_per_host, (min_free_cores, min_free_gib, min_free_storage))| {
            RulesRecipe {
                strategy,
                exclude,
                max_per_host,
                min_free_cores,
                min_free_gib,
                min_free_storage,
            }
        },
    )
}

fn storages() -> impl Strategy<Value = StoragesRecipe> {
    let there = prop_oneof![8 => (0..800i64, 0..400i64).prop_map(Some), 1 => Just(None)];
    let disks = (0..60i64, 0..20i64);
    let percent = prop_oneof![2 => Just(100i64), 1 => 50..300i64];
    let listed = of((any::<bool>(), vec(there.clone(), 3)));
    let hosts = vec(there, 3);
    let kinds = (any::<bool>(), any::<bool>());
    (kinds, hosts, disks, listed, percent).prop_map(
        |((shared, thick), hosts, disks, listed, percent)| StoragesRecipe {
            shared,
            thick,
            hosts,
            disks,
            listed,
            percent,
        },
    )
}

/// Hosts that nothing bounds in every other world.
pub(super) fn hosts() -> impl Strategy<Value = Option<HostsRecipe>> {
    let factors = (
        prop_oneof![3 => Just(100i64), 1 => 50..300i64],
        prop_oneof![2 => Just(None), 1 => (50..400i64).prop_map(Some)],
    );
    let guests = (any::<bool>(), any::<bool>(), vec(guest(), 0..4));
    let limits = (of(1..5u32), factors, 0..3i64);
    let all = (
        vec(host(), 3),
        vec(rules(), 3),
        limits,
        guests,
        of(storages()),
    );
    of(
        all.prop_map(|(hosts, rules, limits, guests, storages)| HostsRecipe {
            storages,
            hosts,
            rules,
            max_per_host: limits.0,
            memory_percent: limits.1.0,
            cpu_percent: limits.1.1,
            reserve_cores: limits.2,
            onboot: guests.0,
            balloon_minimum: guests.1,
            guests: guests.2,
        }),
    )
}

/// Puts it into a world.
pub(super) fn apply(lab: &mut Lab, recipe: &HostsRecipe) {
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    for (name, of) in HOSTS.iter().zip(&recipe.hosts) {
        let host = region.hosts.get_mut(*name).expect("there");
        host.cpus = of.cpus;
        host.cpu_used_milli = i64::from(of.cpus) * 10 * of.used.0;
        host.memory_used = host.memory / 100 * of.used.1;
        host.maintenance = of.maintenance;
        host.evacuated = of.evacuated.then_some(START);
    }
    let policy = lab.policy.regions.get_mut("home").expect("home");
    policy.capacity = HostCounting {
        memory_overcommit_permille: recipe.memory_percent * 10,
        cpu_overcommit_permille: recipe.cpu_percent.map(|percent| percent * 10),
        cpu_reserve_milli: recipe.reserve_cores * 1000,
        max_per_host: recipe.max_per_host,
        onboot: recipe.onboot,
        balloon_minimum: recipe.balloon_minimum,
        storage_overcommit_permille: recipe.storages.as_ref().map_or(1000, |of| of.percent * 10),
    };
    if let Some(recipe) = &recipe.storages {
        apply_storages(lab, recipe);
    }
    for (n, guest) in recipe.guests.iter().enumerate() {
        let vm = Vm {
            host: HOSTS[guest.host].into(),
            kind: if guest.container {
                GuestKind::Lxc
            } else {
                GuestKind::Qemu
            },
            running: guest.running,
            onboot: guest.onboot,
            cpus: guest.cpus,
            memory: guest.gib * GI,
            memory_min: guest.least.map(|gib| gib * GI),
            ..Vm::default()
        };
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.insert(500 + u32::try_from(n).expect("few"), vm);
    }
    for (pool, of) in lab.policy.pools.values_mut().zip(&recipe.rules) {
        pool.host_rules = HostRules {
            strategy: STRATEGIES[of.strategy],
            // The configuration refuses a pool that excludes the hosts that it names.
            exclude: of
                .exclude
                .filter(|_| pool.hosts.is_empty())
                .map(|host| HOSTS[host].into())
                .into_iter()
                .collect(),
            max_per_host: of.max_per_host,
            min_free_cpu_milli: of.min_free_cores * 1000,
            min_free_memory: of.min_free_gib * GI,
            min_free_storage: (of.min_free_storage > 0)
                .then_some(StorageFloor::Permille(of.min_free_storage * 10)),
            ..HostRules::default()
        };
    }
}

/// Puts the disks of clones on a storage, and those of machines that are there.
fn apply_storages(lab: &mut Lab, recipe: &StoragesRecipe) {
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    let first = recipe.hosts.iter().flatten().next().copied();
    for (host, of) in HOSTS.iter().zip(&recipe.hosts) {
        let storages = region.storages.entry((*host).into()).or_default();
        // A shared storage has one size.
        let size = if recipe.shared { of.and(first) } else { *of };
        if let Some((total, used)) = size {
            let storage = Storage {
                active: total % 10 != 3,
                shared: recipe.shared,
                free: (total - used).max(0) * GI,
                total: total * GI,
                thick: recipe.thick,
                backing: None,
            };
            storages.insert("fast".into(), storage);
        }
    }
    let disk = |size: i64, boot: bool| TemplateDisk {
        storage: "fast".into(),
        size: size * GI,
        boot,
        ..TemplateDisk::default()
    };
    let mut disks = [disk(recipe.disks.0, true), disk(recipe.disks.1, false)];
    if let Some((boot, hosts)) = &recipe.listed {
        let disk = &mut disks[usize::from(!boot)];
        disk.or = vec!["slow".into()];
        disk.slot = (!boot).then(|| "scsi1".into());
        for (host, of) in HOSTS.iter().zip(hosts) {
            if let Some((total, used)) = of {
                let storage = Storage {
                    active: total % 10 != 3,
                    free: (total - used).max(0) * GI,
                    total: total * GI,
                    ..Storage::default()
                };
                let storages = region.storages.entry((*host).into()).or_default();
                storages.insert("slow".into(), storage);
            }
        }
    }
    for copy in region.templates.values_mut().flatten() {
        copy.disks = disks.to_vec();
    }
    for vm in region.vms.values_mut().filter(|vm| vm.ownership.is_some()) {
        let size = (recipe.disks.0 + recipe.disks.1) * GI;
        vm.disks = [("fast".into(), size)].into();
    }
}
