//! Every host in numbers, with its storages and devices, and names of hosts that do not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::foreign::ForeignText;
use model::hosts;
use model::policy::PoolPolicy;
use model::reasons::{HostNote, Warning};
use model::region::{Host, Region};
use model::report::HostState;

use crate::decision::cpu_book::{self, CpuBook};
use crate::decision::turn::DecisionBuilder;
use crate::lifecycle::backoff::{self, FailedThere};
use crate::observed::reach::{self, CopyRefused};
use crate::report::{devices, own_cpus, storages};
use crate::scale_up::hosts::HostCapacity;
use crate::scale_up::limits::LimitTracker;

/// Writes the hosts into the report.
pub(crate) fn report(turn: &mut DecisionBuilder<'_>) {
    let limits = LimitTracker::of(turn);
    let cpus = CpuBook::of(turn);
    for (name, region) in &turn.view.snapshot.regions {
        if turn.holds.unread_in(name).is_some() {
            continue;
        }
        let mut hosts = Vec::new();
        let users = |host: &str| users(turn, name, host);
        for (host, seen) in &region.hosts {
            let pools = users(host);
            let Some(capacity) = limits.capacity(name, host) else {
                continue;
            };
            let mut notes = notes(turn, (name, host, seen), &pools);
            if seen.online {
                notes.extend(own_cpus_note(turn, (name, host), &pools, &cpus));
            }
            hosts.push((host.clone(), state(seen, capacity, notes)));
        }
        let unknown = unknown(turn, name, region);
        let offline = offline(turn, name, region);
        turn.report
            .hosts
            .insert(name.clone(), hosts.into_iter().collect());
        let untold = without_template(turn, name, region);
        let redefined = redefined_templates(turn, name, region);
        let lacking = region.lacking.iter().map(|part| Warning::Lacking {
            region: name.clone(),
            part: part.clone(),
        });
        let all = offline
            .into_iter()
            .chain(unknown)
            .chain(untold)
            .chain(redefined)
            .chain(lacking);
        for warning in all {
            turn.warn(warning);
        }
    }
    for warning in shared_zones(turn) {
        turn.warn(warning);
    }
    storages::report(turn, &limits);
    devices::report(turn, &limits);
    own_cpus::report(turn, &cpus);
}

/// Hosts that are offline with machines of ours. Without quorum nobody knows which ones are.
fn offline(turn: &DecisionBuilder<'_>, name: &Arc<str>, region: &Region) -> Vec<Warning> {
    let hosts = region.hosts.iter();
    let hosts = hosts.filter(|(_, host)| region.quorate && !host.online);
    let hosts = hosts.map(|(host, _)| {
        let machines = turn.view.snapshot.machines.values();
        let there = machines.filter(|one| one.region == *name && one.host == *host);
        (host, there.filter(|one| one.vm.is_some()).count())
    });
    let with = hosts.filter(|(_, machines)| *machines > 0);
    let with = with.map(|(host, machines)| Warning::HostOffline {
        region: name.clone(),
        host: host.clone(),
        machines,
    });
    with.collect()
}

/// A template that cannot be used, and its fault if it is there and has one.
type TemplateLack = (Arc<str>, Option<ForeignText>);

/// Pools that get no machine in a region, for want of a template on every host that they may use and that is there: by the template and what
/// is wrong with it.
fn without_template(turn: &DecisionBuilder<'_>, name: &str, region: &Region) -> Vec<Warning> {
    let pools = turn.view.policy.pools_in(name);
    let lacking = pools
        .filter(|(_, pool)| pool.max > 0)
        .filter_map(|(pool_name, pool)| {
            let hosts = region.hosts.iter();
            let hosts = hosts.filter(|(host, seen)| seen.online && pool.may_use(host));
            let mut refusals = hosts.map(|(host, _)| reach::copy(region, pool, host).err());
            let is_template = |refusal: &CopyRefused| {
                matches!(
                    refusal,
                    CopyRefused::NoTemplate { .. } | CopyRefused::TemplateFault { .. }
                )
            };
            let first = refusals.next()?.filter(is_template)?;
            let all = refusals.all(|refusal| refusal.as_ref().is_some_and(is_template));
            let fault = match first {
                CopyRefused::TemplateFault { fault } => Some(fault),
                _ => None,
            };
            all.then(|| ((pool.template.clone(), fault), pool_name.clone()))
        });
    let mut pools_by_lack: BTreeMap<TemplateLack, Vec<Arc<str>>> = BTreeMap::new();
    for (lack, pool) in lacking {
        pools_by_lack.entry(lack).or_default().push(pool);
    }
    let warnings = pools_by_lack.into_iter();
    let warnings = warnings.filter_map(|((template, fault), with_it)| {
        let (pool, further_pools) = with_it.split_first()?;
        Some(Warning::NoTemplate {
            pool: pool.clone(),
            further_pools: further_pools.to_vec(),
            region: name.into(),
            template,
            fault,
        })
    });
    warnings.collect()
}

/// Templates that were built from another definition than the file has, and of which some pool's machines would be made now.
fn redefined_templates(
    turn: &DecisionBuilder<'_>,
    name: &Arc<str>,
    region: &Region,
) -> Vec<Warning> {
    let mut found: BTreeMap<&Arc<str>, BTreeSet<&Arc<str>>> = BTreeMap::new();
    for (_, pool) in turn.view.policy.pools_in(name) {
        for host in region.hosts.keys().filter(|host| pool.may_use(host)) {
            if reach::copy(region, pool, host).is_ok_and(|copy| copy.redefined) {
                found.entry(&pool.template).or_default().insert(host);
            }
        }
    }
    let warnings = found
        .into_iter()
        .map(|(template, hosts)| Warning::TemplateRedefined {
            region: name.clone(),
            template: template.clone(),
            hosts: hosts.into_iter().cloned().collect(),
        });
    warnings.collect()
}

/// Zones that hosts of several regions have in common: pods that shall be spread over them are not.
fn shared_zones(turn: &DecisionBuilder<'_>) -> Vec<Warning> {
    let mut zones: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
    for (name, region) in &turn.view.snapshot.regions {
        for host in region.hosts.keys() {
            let zone = turn.view.policy.zone_of(name, host);
            zones.entry(zone).or_default().push(name.clone());
        }
    }
    let shared = zones.into_iter().filter(|(_, regions)| regions.len() > 1);
    let shared = shared.map(|(zone, regions)| Warning::SharedZone { zone, regions });
    shared.collect()
}

/// The pools that may use a host.
fn users<'a>(
    turn: &DecisionBuilder<'a>,
    region: &str,
    host: &str,
) -> Vec<(&'a Arc<str>, &'a PoolPolicy)> {
    let pools = turn.view.policy.pools_in(region);
    pools.filter(|(_, pool)| pool.may_use(host)).collect()
}

fn state(seen: &Host, capacity: &HostCapacity, notes: Vec<HostNote>) -> HostState {
    let (promised, left) = (capacity.promised(), capacity.left());
    let (most_cpu_milli, most_memory) = capacity.most();
    HostState {
        online: seen.online,
        machines: u32::try_from(capacity.machines()).unwrap_or(u32::MAX),
        cpus: seen.cpus,
        promised_cpu_milli: promised.cpu_milli,
        memory: seen.memory,
        promised_memory: promised.memory,
        left_memory: left.memory.max(0),
        most_memory: most_memory.max(0),
        most_cpu_milli: most_cpu_milli.map(|most| most.max(0)),
        notes: notes.iter().map(HostNote::to_string).collect(),
        notes_details: notes,
    }
}

/// Why a host gets nothing, or is taken last.
fn notes(
    turn: &DecisionBuilder<'_>,
    (region, name, seen): (&str, &Arc<str>, &Host),
    pools: &[(&Arc<str>, &PoolPolicy)],
) -> Vec<HostNote> {
    let mut notes = Vec::new();
    if !seen.online {
        notes.push(HostNote::Offline);
    } else if seen.maintenance {
        notes.push(HostNote::Maintenance);
    }
    if let Some(since) = seen.evacuated {
        notes.push(HostNote::Evacuated { since });
    }
    if let Some(why) = &seen.unread {
        notes.push(HostNote::Unread { why: why.clone() });
    }
    if pools.is_empty() {
        notes.push(HostNote::NoPool);
    }
    if seen.online {
        notes.extend(untold_loads(seen, pools));
    }
    for (pool, _) in pools {
        let failed = backoff::find_host_failure(turn, pool, (region, name));
        let why = backoff::find_failure_on(turn, pool, (region, name));
        let Some((failed, why)) = failed.zip(why) else {
            continue;
        };
        let (pool, failure) = ((*pool).clone(), why.clone());
        notes.push(match failed {
            FailedThere::Until(until) => HostNote::BacksOff {
                pool,
                until,
                failure,
            },
            FailedThere::Lately => HostNote::TakenLast { pool, failure },
        });
    }
    notes
}

/// A note for each bound on a load of this host that PVE does not tell.
fn untold_loads(seen: &Host, pools: &[(&Arc<str>, &PoolPolicy)]) -> Vec<HostNote> {
    let load = seen.load.unwrap_or_default();
    let rules = pools.iter().map(|(name, pool)| (*name, &pool.host_rules));
    let untold = hosts::untold_loads(&load, rules);
    let untold = untold
        .into_iter()
        .map(|(key, bounded)| HostNote::LoadUntold {
            bound: key.into(),
            pools: bounded.into_iter().cloned().collect(),
        });
    untold.collect()
}

/// What of a host's CPUs machines can get for themselves, or why none.
fn own_cpus_note(
    turn: &DecisionBuilder<'_>,
    (region, host): (&Arc<str>, &Arc<str>),
    pools: &[(&Arc<str>, &PoolPolicy)],
    book: &CpuBook,
) -> Option<HostNote> {
    let (_, pool) = pools.iter().find(|(_, pool)| pool.pinning.cpus)?;
    if let Err(refusal) = cpu_book::reachable(turn, pool, host) {
        let host = host.clone();
        return Some(HostNote::NoOwnCpus { host, refusal });
    }
    let free = book.at(region, host)?.free();
    Some(HostNote::OwnCpus {
        free: free.len(),
        cpus: free.to_string().into(),
    })
}

/// Hosts that the configuration names and the region does not have.
fn unknown(turn: &DecisionBuilder<'_>, name: &Arc<str>, region: &Region) -> Vec<Warning> {
    if region.hosts.is_empty() {
        return Vec::new();
    }
    // What a pool of several regions names may be a host of another one.
    let elsewhere = |pool: &PoolPolicy, host: &Arc<str>| {
        let mut others = pool.everywhere().filter(|there| there.region != *name);
        others.any(|there| {
            let seen = turn.view.snapshot.regions.get(&there.region);
            seen.is_none_or(|seen| seen.hosts.contains_key(host))
        })
    };
    let pools = turn.view.policy.pools.values();
    let named = pools.filter_map(|pool| Some((pool, pool.at(name)?)));
    let named = named.flat_map(|(pool, there)| {
        let listed = there.hosts.iter().chain(&there.host_rules.exclude);
        listed.filter(move |host| !elsewhere(pool, host))
    });
    let policy = turn.view.policy.regions.get(name);
    let own = policy.into_iter().flat_map(|policy| policy.hosts.keys());
    let missing: BTreeSet<&Arc<str>> = named
        .chain(own)
        .filter(|host| !region.hosts.contains_key(*host))
        .collect();
    let missing = missing.into_iter().map(|host| Warning::UnknownHost {
        region: name.clone(),
        host: host.clone(),
        hosts: region.hosts.keys().cloned().collect(),
    });
    missing.collect()
}
