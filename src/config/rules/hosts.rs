//! Hosts: which ones the pools of a region use, in which order, and how their capacity is counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Problems, each, shared};
use crate::config::file::{self, ConfigFile};
use crate::config::place::KeyPath;
use crate::config::scalar::{FreeSpace, Overcommit, Ratio};
use crate::config::syntax;
use crate::model::host_bounds::HostOverrides;
use crate::model::hosts::{HostCounting, HostRules, HostStrategy, LoadKind};
use crate::model::policy::{Policy, PoolPolicy};
use crate::model::words;

/// What a region says of its hosts, for its pools.
#[derive(Debug, Default)]
pub(super) struct RegionHosts {
    only: Vec<String>,
    rules: HostRules,
}

/// What a region says of its hosts.
pub(super) fn of_region(
    region: &file::RegionTable,
    path: &KeyPath,
    problems: &mut Problems,
) -> RegionHosts {
    names(&region.hosts, &path.at("hosts"), problems);
    names(&region.exclude_hosts, &path.at("exclude_hosts"), problems);
    at_least_one(region.max_per_host, path, problems);
    let left = |host: &String| !region.exclude_hosts.contains(host);
    problems.unless(
        region.hosts.is_empty() || region.hosts.iter().any(left),
        &path.at("exclude_hosts"),
        || {
            format!(
                "all hosts of the region are excluded ({}); expected one of them not among exclude_hosts",
                region.hosts.join(", ")
            )
        },
    );
    RegionHosts {
        only: region.hosts.clone(),
        rules: HostRules {
            strategy: strategy(region.host_strategy),
            exclude: region
                .exclude_hosts
                .iter()
                .map(|host| shared(host))
                .collect(),
            // That of the region counts machines of all pools.
            max_per_host: None,
            min_free_cpu_milli: region.min_free_cores.map_or(0, |cpu| cpu.0),
            min_free_memory: region.min_free_memory.map_or(0, |size| size.0),
            min_free_storage: region.min_free_storage.and_then(FreeSpace::bound),
            max_cpu_load: bound(region.max_cpu_load),
            max_memory_load: bound(region.max_memory_load),
            max_pressure: bound(region.max_pressure),
        },
    }
}

/// How the capacity of a region's hosts is counted.
pub(super) fn counting(region: &file::RegionTable) -> HostCounting {
    HostCounting {
        memory_overcommit_permille: region.memory_overcommit.0,
        cpu_overcommit_permille: region.cpu_overcommit.map(|factor| factor.0),
        cpu_reserve_milli: region.host_cores_reserve.0,
        storage_overcommit_permille: region.storage_overcommit.0,
        max_per_host: region.max_per_host,
        onboot: region.count_onboot,
        balloon_minimum: region.ballooning == file::Ballooning::Minimum,
    }
}

/// What a region says of single hosts otherwise than of all.
pub(super) fn overrides(
    region: &file::RegionTable,
    path: &KeyPath,
    problems: &mut Problems,
) -> BTreeMap<Arc<str>, HostOverrides> {
    let path = path.at("host");
    let hosts = region.host.iter().map(|(host, of)| {
        let path = path.at(host);
        problems.unless(syntax::dns_label(&host.to_ascii_lowercase()), &path, || {
            "expected the name of a host as `pvecm nodes` shows it".to_owned()
        });
        let known = region.hosts.is_empty() || region.hosts.contains(host);
        problems.unless(known, &path, || {
            format!("the region's hosts are {}", region.hosts.join(", "))
        });
        let own = HostOverrides {
            memory_reserve: of.host_memory_reserve.map(|size| size.0),
            cpu_reserve_milli: of.host_cores_reserve.map(|cpu| cpu.0),
            memory_overcommit_permille: of.memory_overcommit.map(|factor| factor.0),
            cpu_overcommit_permille: of.cpu_overcommit.map(|factor| factor.0),
        };
        (shared(host), own)
    });
    hosts.collect()
}

/// What a pool says of its hosts.
pub(super) fn of_pool(pool: &file::Pool, path: &KeyPath, problems: &mut Problems) -> HostRules {
    names(&pool.hosts, &path.at("hosts"), problems);
    names(&pool.exclude_hosts, &path.at("exclude_hosts"), problems);
    at_least_one(pool.max_per_host, path, problems);
    HostRules {
        exclude: pool.exclude_hosts.iter().map(|host| shared(host)).collect(),
        max_per_host: pool.max_per_host,
        ..HostRules::default()
    }
}

/// Completes what a pool says with what its region says, and says where the two leave no host.
pub(super) fn complete(
    policy: &mut PoolPolicy,
    pool: &file::Pool,
    region: &RegionHosts,
    path: &KeyPath,
    problems: &mut Problems,
) {
    let hosts = path.at("hosts");
    for (index, host) in pool.hosts.iter().enumerate() {
        let excluded = region.rules.exclude.iter().any(|other| **other == **host);
        let at = hosts.at(&index);
        problems.unless(!excluded, &at, || {
            format!("the region excludes {host}; expected another host, or {host} not among its exclude_hosts")
        });
        let known = region.only.is_empty() || region.only.contains(host);
        problems.unless(known, &at, || {
            format!("the region's hosts are {}", region.only.join(", "))
        });
    }
    if policy.hosts.is_empty() {
        policy.hosts = region.only.iter().map(|host| shared(host)).collect();
    }
    let rules = &mut policy.host_rules;
    rules.exclude.extend(region.rules.exclude.iter().cloned());
    rules.exclude.sort();
    rules.exclude.dedup();
    rules.strategy = pool.host_strategy.map_or(region.rules.strategy, strategy);
    let own = pool.min_free_cores.map(|cpu| cpu.0);
    rules.min_free_cpu_milli = own.unwrap_or(region.rules.min_free_cpu_milli);
    let own = pool.min_free_memory.map(|size| size.0);
    rules.min_free_memory = own.unwrap_or(region.rules.min_free_memory);
    let own = pool.min_free_storage.map(FreeSpace::bound);
    rules.min_free_storage = own.unwrap_or(region.rules.min_free_storage);
    let own = |own: Option<Ratio>, region: Option<i64>| own.map_or(region, |own| bound(Some(own)));
    rules.max_cpu_load = own(pool.max_cpu_load, region.rules.max_cpu_load);
    rules.max_memory_load = own(pool.max_memory_load, region.rules.max_memory_load);
    rules.max_pressure = own(pool.max_pressure, region.rules.max_pressure);
    // Hosts that the pool names and the region excludes are said above.
    let own = |host: &&Arc<str>| !region.rules.exclude.contains(*host);
    let left = !policy.hosts.iter().any(|host| own(&host))
        || policy.hosts.iter().any(|host| policy.may_use(host));
    problems.unless(
        policy.hosts.is_empty() || left,
        &path.at("exclude_hosts"),
        || {
            format!(
                "all hosts that the pool may use are excluded ({}); expected one of them not among exclude_hosts",
                policy.hosts.join(", ")
            )
        },
    );
}

/// The most of a load in thousandths; 1 bounds nothing.
fn bound(most: Option<Ratio>) -> Option<i64> {
    most.map(|most| most.0).filter(|most| *most < 1000)
}

/// More memory than this is promised by mistake: a percentage was meant.
const ODD_OVERCOMMIT: i64 = 3000;

/// What is allowed and does nothing, or cannot be kept.
pub(super) fn warn(file: &ConfigFile, policy: &Policy, warnings: &mut Vec<String>) {
    let own = file
        .proxmox
        .iter()
        .map(|region| ("proxmox".to_owned(), region));
    let named = file.region.iter();
    let named = named.map(|(name, region)| (format!("region.{name}"), region));
    for (path, region) in own.chain(named) {
        let bounded =
            |of: &file::OneHost| of.cpu_overcommit.is_some() && of.host_cores_reserve.is_none();
        let counts = region.cpu_overcommit.is_some() || region.host.values().any(bounded);
        if region.host_cores_reserve.0 > 0 && !counts {
            warnings.push(format!(
                "{path}.host_cores_reserve: has no effect without cpu_overcommit; cpu_overcommit = 1 promises each CPU once"
            ));
        }
        warn_of_factor(&path, region.memory_overcommit, warnings);
        for (host, of) in &region.host {
            warn_of_host(&format!("{path}.host.{host}"), (region, host), of, warnings);
        }
    }
    for (name, pool) in &policy.pools {
        for kind in [LoadKind::Cpu, LoadKind::Memory] {
            if pool.host_rules.most(kind) == Some(0) && pool.max > 0 {
                warnings.push(format!(
                    "pool.{name}: {} = 0 lets the pool make no machine, since each host that runs has some in use; a share such as 0.8 is meant",
                    kind.key()
                ));
            }
        }
        warnings.extend(warn_of_reach(name, pool, policy));
    }
}

/// More machines than `max_per_host`, the pool's or its region's, lets the hosts hold that the file names. Where a region of the pool
/// names none, or bounds nothing, the file does not say how many that are.
fn warn_of_reach(name: &str, pool: &PoolPolicy, policy: &Policy) -> Option<String> {
    let mut machines = 0_u64;
    let (mut ways, mut of_pool) = (Vec::new(), false);
    for there in pool.everywhere() {
        let hosts = there.hosts.iter().filter(|host| there.may_use(host));
        let hosts = hosts.count();
        let own = there.host_rules.max_per_host;
        let region = policy.regions.get(&there.region);
        let of_region = region.and_then(|region| region.capacity.max_per_host);
        let most = own.into_iter().chain(of_region).min()?;
        if hosts == 0 {
            return None;
        }
        machines = machines.saturating_add((hosts as u64).saturating_mul(u64::from(most)));
        let way = format!("{most} on each of {}", words::count(hosts, "host"));
        if own == Some(most) {
            of_pool = true;
            ways.push(way);
        } else {
            ways.push(format!(
                "{way} (max_per_host of the region {})",
                there.region
            ));
        }
    }
    let key = match machines {
        few if few < u64::from(pool.min) => "min",
        few if few < u64::from(pool.max) => "max",
        _ => return None,
    };
    Some(format!(
        "pool.{name}.{}: {} {} {}, {key} is never reached",
        if of_pool { "max_per_host" } else { key },
        ways.join(" and "),
        if machines == 1 { "is" } else { "are" },
        words::count(machines, "machine")
    ))
}

/// What one host's own table says in vain, or by mistake.
fn warn_of_host(
    path: &str,
    (region, host): (&file::RegionTable, &String),
    of: &file::OneHost,
    warnings: &mut Vec<String>,
) {
    if region.exclude_hosts.contains(host) {
        warnings.push(format!(
            "{path}: has no effect, since exclude_hosts names {host}: no machine is made there"
        ));
    }
    let reserves = of.host_cores_reserve.is_some_and(|cpu| cpu.0 > 0);
    let bounded = of.cpu_overcommit.or(region.cpu_overcommit).is_some();
    if reserves && !bounded {
        warnings.push(format!(
            "{path}.host_cores_reserve: has no effect without cpu_overcommit, here or for the region; cpu_overcommit = 1 promises each CPU once"
        ));
    }
    if let Some(factor) = of.memory_overcommit {
        warn_of_factor(path, factor, warnings);
    }
}

fn warn_of_factor(path: &str, factor: Overcommit, warnings: &mut Vec<String>) {
    if factor.0 > ODD_OVERCOMMIT {
        warnings.push(format!(
            "{path}.memory_overcommit: {factor} promises guests {factor} times the memory that a host has; 0.9 is 90 %"
        ));
    }
}

fn names(hosts: &[String], path: &KeyPath, problems: &mut Problems) {
    each(
        hosts,
        path,
        |host| syntax::dns_label(&host.to_ascii_lowercase()),
        "a PVE host's name as `pvecm nodes` shows it, one word without a domain or a wildcard",
        problems,
    );
}

fn at_least_one(most: Option<u32>, path: &KeyPath, problems: &mut Problems) {
    problems.unless(most != Some(0), &path.at("max_per_host"), || {
        "expected at least 1; exclude_hosts keeps machines off a host".to_owned()
    });
}

fn strategy(of: file::HostStrategyValue) -> HostStrategy {
    match of {
        file::HostStrategyValue::Spread => HostStrategy::Spread,
        file::HostStrategyValue::MaxMemory => HostStrategy::MaxMemory,
        file::HostStrategyValue::MaxCpu => HostStrategy::MaxCpu,
        file::HostStrategyValue::Balanced => HostStrategy::Balanced,
        file::HostStrategyValue::RoundRobin => HostStrategy::RoundRobin,
        file::HostStrategyValue::Pack => HostStrategy::Pack,
    }
}
