//! The hosts of a pool: whether they are there and may be used, and whether they could hold its machines.

use super::finding::Findings;
use super::region::SeenRegion;
use crate::model::policy::{Policy, PoolPolicy};
use crate::model::words;
use crate::pve::{ClusterResources, HostResource};

/// Says what is wrong with the hosts of a region's pools.
pub(super) fn look(region: &SeenRegion, findings: &mut Findings) {
    let policy = &region.region.here.settings.policy;
    let name = &*region.region.name;
    for (pool, of) in policy.pools_in(name) {
        judge_pool(&region.seen.resources, pool, of, policy, findings);
    }
    let seen = &region.seen.resources;
    let own = policy.regions.get(name).map(|of| of.hosts.keys());
    for host in own.into_iter().flatten() {
        if !seen.hosts.contains_key(host) {
            findings
                .wrong(format!("there is no host {host}, which has a table of its own"))
                .mend(format!(
                    "the hosts are {}; name one of them in the region's table host.HOST, or take it out",
                    names(seen)
                ));
        }
    }
}

/// Says what is wrong with the hosts of a pool.
pub(super) fn judge_pool(
    seen: &ClusterResources,
    name: &str,
    pool: &PoolPolicy,
    policy: &Policy,
    findings: &mut Findings,
) {
    let several = policy.pools.get(name);
    let several = several.is_some_and(|of| !of.further.is_empty());
    for host in &pool.hosts {
        match seen.hosts.get(host) {
            None if several => findings.fine(format!(
                "pool {name}: host {host} is not in {}, and the pool has other regions",
                pool.region
            )),
            None => {
                findings
                    .wrong(format!("pool {name}: there is no host {host}"))
                    .mend(format!("the hosts are {}; name some in hosts", names(seen)));
            }
            Some(_) if !pool.may_use(host) => {
                findings.fine(format!("pool {name}: host {host} is excluded"));
            }
            Some(seen) if !seen.online => {
                findings
                    .warning(format!("pool {name}: host {host} is offline"))
                    .mend("start it, or take it out of the pool's hosts; `pvecm status` on another host shows who is there");
            }
            Some(seen) if seen.maintenance => {
                findings
                    .warning(format!("pool {name}: host {host} is in maintenance"))
                    .mend(format!(
                        "ha-manager crm-command node-maintenance disable {host}"
                    ));
            }
            Some(_) => findings.fine(format!("pool {name}: host {host}")),
        }
    }
    for host in &pool.host_rules.exclude {
        if !several && !seen.hosts.contains_key(host) {
            findings
                .wrong(format!("pool {name}: there is no host {host} to exclude"))
                .mend(format!(
                    "the hosts are {}; name one of them in exclude_hosts, or none",
                    names(seen)
                ));
        }
    }
    let usable = || seen.hosts.iter().filter(|(host, _)| pool.may_use(host));
    let ready = |host: &HostResource| host.online && !host.maintenance;
    if !usable().any(|(_, host)| ready(host)) {
        findings
            .wrong(format!(
                "pool {name}: none of its hosts is online and out of maintenance"
            ))
            .mend(format!(
                "start one, `ha-manager crm-command node-maintenance disable HOST`, or name others in hosts; the hosts are {}",
                names(seen)
            ));
    } else if pool.hosts.is_empty() {
        let usable: Vec<&str> = usable().map(|(host, _)| &**host).collect();
        findings.fine(format!("pool {name}: hosts {}", usable.join(", ")));
    }
    judge_size(seen, name, pool, policy, findings);
}

/// Says which instance types of a pool no host is large enough for.
fn judge_size(
    seen: &ClusterResources,
    name: &str,
    pool: &PoolPolicy,
    policy: &Policy,
    findings: &mut Findings,
) {
    let usable = || seen.hosts.iter().filter(|(host, _)| pool.may_use(host));
    let region = policy.regions.get(&pool.region);
    let bounds = |host: &str| region.map(|region| region.bounds_of(host));
    // Hosts that are off tell neither memory nor CPUs.
    let told = usable().filter(|(_, host)| host.memory > 0);
    let memory = told.map(|(name, host)| {
        let bounds = bounds(name).unwrap_or_default();
        bounds.most_memory(host.memory)
    });
    let memory = memory.max();
    let cpus = usable().map(|(_, host)| host.cpus).max().unwrap_or(0);
    let before = findings.0.len();
    for name_of_type in &pool.instance_types {
        let Some(kind) = policy.instance_types.get(name_of_type) else {
            continue;
        };
        if let Some(memory) = memory.filter(|memory| kind.memory > *memory) {
            findings
                .warning(format!(
                    "pool {name}: no host has the memory for instance type {name_of_type}: {} MiB wanted, {} MiB at most",
                    kind.memory >> 20,
                    memory >> 20
                ))
                .mend(format!(
                    "less memory in [instance_type.{name_of_type}], hosts with more in the pool's table, or take the type out of its instance_types; host_memory_reserve is kept of each host"
                ));
        }
        if cpus > 0 && kind.cores > cpus {
            findings
                .warning(format!(
                    "pool {name}: no host has the CPUs for instance type {name_of_type}: {} wanted, {cpus} at most; PVE starts no VM with more than its host",
                    kind.cores
                ))
                .mend(format!(
                    "cores = {cpus} or less in [instance_type.{name_of_type}], hosts with more in the pool's table, or take the type out of its instance_types"
                ));
        }
    }
    if findings.0.len() == before && !pool.instance_types.is_empty() && cpus > 0 {
        let types: Vec<&str> = pool.instance_types.iter().map(|kind| &**kind).collect();
        findings.fine(format!(
            "pool {name}: a host is large enough for instance type {}",
            words::names(&types)
        ));
    }
}

fn names(seen: &ClusterResources) -> String {
    let names: Vec<&str> = seen.hosts.keys().map(|name| &**name).collect();
    names.join(", ")
}
