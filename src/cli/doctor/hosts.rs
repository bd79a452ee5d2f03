//! The hosts of a pool: whether they are there and may be used, and whether they could hold its machines.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use super::finding::Findings;
use super::region::SeenRegion;
use crate::model::host_bounds::HostBounds;
use crate::model::hosts::HostRules;
use crate::model::policy::{InstanceType, Policy, PoolPolicy};
use crate::model::words;
use crate::pve::{ClusterResources, HostResource};

/// Hosts named as too small in one finding.
const MAX_NAMED: usize = 4;

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
    judge_readiness(seen, name, pool, findings);
    judge_size(seen, name, pool, policy, findings);
}

/// Says that no host of a pool could get a machine now, and why.
fn judge_readiness(
    seen: &ClusterResources,
    name: &str,
    pool: &PoolPolicy,
    findings: &mut Findings,
) {
    let usable = || seen.hosts.iter().filter(|(host, _)| pool.may_use(host));
    let ready = |host: &HostResource| host.online && !host.maintenance;
    // Hosts that the pool names and that are not there are told above.
    let excluded = pool.hosts.is_empty() && usable().next().is_none() && !seen.hosts.is_empty();
    if excluded {
        findings
            .wrong(format!(
                "pool {name}: all hosts are excluded: {}",
                names(seen)
            ))
            .mend(
                "take one that machines may be on out of exclude_hosts of the pool or its region",
            );
    } else if !usable().any(|(_, host)| ready(host)) {
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
}

/// Says which instance types of a pool no host could hold, however empty it is. A pool of which that is all can never have a machine.
fn judge_size(
    seen: &ClusterResources,
    name: &str,
    pool: &PoolPolicy,
    policy: &Policy,
    findings: &mut Findings,
) {
    let usable = || seen.hosts.iter().filter(|(host, _)| pool.may_use(host));
    let region = policy.regions.get(&pool.region);
    // Hosts that are off tell neither memory nor CPUs.
    let told = usable().filter(|(_, host)| host.memory > 0);
    let hosts = told.map(|(host, has)| SizedHost {
        name: host,
        has,
        bounds: region.map_or_else(HostBounds::default, |of| of.bounds_of(host)),
        rules: &pool.host_rules,
    });
    let mut hosts: Vec<SizedHost<'_>> = hosts.collect();
    // The largest first: it is told, however many there are.
    hosts.sort_by_key(|host| std::cmp::Reverse((host.most_memory(), host.has.cpus)));
    let types = pool.instance_types.iter();
    let types = types.filter_map(|kind| policy.instance_types.get_key_value(kind));
    let types: Vec<(&Arc<str>, &InstanceType)> = types.collect();
    let faults = types.iter().map(|kind| size_faults(&hosts, name, *kind));
    let faults: Vec<Vec<SizeFault>> = faults.filter(|of_type| !of_type.is_empty()).collect();
    let further = policy
        .pools
        .get(name)
        .is_some_and(|of| !of.further.is_empty());
    let all_told = usable().count() == hosts.len();
    let never = faults.len() == types.len() && pool.max > 0 && all_told && !further;
    let none = faults.is_empty();
    for SizeFault { text, mend } in faults.into_iter().flatten() {
        let finding = if never {
            findings.wrong(text)
        } else {
            findings.warning(text)
        };
        finding.mend(mend);
    }
    if none && !types.is_empty() && hosts.iter().any(|host| host.has.cpus > 0) {
        let types: Vec<&str> = types.iter().map(|(kind, _)| &***kind).collect();
        findings.fine(format!(
            "pool {name}: a host is large enough for instance type {}",
            words::names(&types)
        ));
    }
}

/// That no host could hold a machine of a type, and what to do.
struct SizeFault {
    text: String,
    mend: String,
}

/// A host with what bounds its machines.
struct SizedHost<'a> {
    name: &'a str,
    has: &'a HostResource,
    bounds: HostBounds,
    rules: &'a HostRules,
}

/// Why a host could hold no machine of a type even without any other guest, and the keys that say so besides its size.
struct HostLack {
    text: String,
    keys: &'static [&'static str],
}

impl SizedHost<'_> {
    fn most_memory(&self) -> i64 {
        self.bounds.most_memory(self.has.memory)
    }

    /// What it lacks for a machine of a type, in the order in which decisions look.
    fn lack(&self, kind: &InstanceType) -> Option<HostLack> {
        let (name, rules) = (self.name, self.rules);
        let cpus = i64::from(self.has.cpus).saturating_mul(1000);
        let asks = i64::from(kind.cores).saturating_mul(1000);
        let lack = |text: String, keys: &'static [&'static str]| Some(HostLack { text, keys });
        if cpus > 0 && asks > cpus {
            let has = words::count(self.has.cpus, "CPU");
            return lack(format!("{name} has {has}"), &[]);
        }
        let most = self.most_memory();
        if kind.memory > most {
            let text = format!("guests of {name} may have {} of memory", words::bytes(most));
            return lack(text, &["host_memory_reserve", "memory_overcommit"]);
        }
        let promised = self.bounds.most_cpu_milli(cpus);
        if let Some(most) = promised.filter(|most| asks > *most) {
            let most = words::cores(most.max(0));
            let text = format!("cores that guests of {name} may have: {most}");
            return lack(text, &["host_cores_reserve", "cpu_overcommit"]);
        }
        let keep = rules.min_free_memory;
        if keep > 0 && self.has.memory.saturating_sub(kind.memory) < keep {
            let (has, keep) = (words::bytes(self.has.memory), words::bytes(keep));
            let text = format!("{name} has {has} of memory, and min_free_memory keeps {keep} free");
            return lack(text, &["min_free_memory"]);
        }
        let keep = rules.min_free_cpu_milli;
        if keep > 0 && cpus == 0 {
            let text =
                format!("PVE does not tell the CPUs of {name}, and min_free_cores keeps some free");
            return lack(text, &["min_free_cores"]);
        }
        if keep > 0 && cpus.saturating_sub(asks) < keep {
            let (has, keep) = (words::count(self.has.cpus, "CPU"), words::cores(keep));
            let text = format!("{name} has {has}, and min_free_cores keeps {keep} free");
            return lack(text, &["min_free_cores"]);
        }
        None
    }
}

/// What to say of an instance type that none of the hosts could hold; nothing where one could, or where none tells its size.
fn size_faults(
    hosts: &[SizedHost<'_>],
    pool: &str,
    (type_name, kind): (&Arc<str>, &InstanceType),
) -> Vec<SizeFault> {
    let lacks: Option<Vec<HostLack>> = hosts.iter().map(|host| host.lack(kind)).collect();
    let Some(lacks) = lacks.filter(|lacks| !lacks.is_empty()) else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    let (memory, with_most) = largest(hosts, SizedHost::most_memory);
    let (cpus, with_most_cpus) = largest(hosts, |host| i64::from(host.has.cpus));
    if kind.memory > memory {
        faults.push(SizeFault {
            text: format!(
                "pool {pool}: no host has the memory for instance type {type_name}: {} MiB wanted, {} MiB at most, on {with_most}",
                kind.memory >> 20,
                memory >> 20
            ),
            mend: format!(
                "less memory in [instance_type.{type_name}], hosts with more in the pool's table, or take the type out of its instance_types; host_memory_reserve is kept of each host"
            ),
        });
    }
    if cpus > 0 && i64::from(kind.cores) > cpus {
        faults.push(SizeFault {
            text: format!(
                "pool {pool}: no host has the CPUs for instance type {type_name}: {} wanted, {cpus} at most, on {with_most_cpus}; PVE starts no VM with more than its host",
                kind.cores
            ),
            mend: format!(
                "cores = {cpus} or less in [instance_type.{type_name}], hosts with more in the pool's table, or take the type out of its instance_types"
            ),
        });
    }
    if faults.is_empty() {
        faults.push(fault_of_lacks(&lacks, pool, (type_name, kind)));
    }
    faults
}

/// How large the largest host is, and its name; of several that are as large the first.
fn largest<'a>(hosts: &[SizedHost<'a>], size: impl Fn(&SizedHost<'a>) -> i64) -> (i64, &'a str) {
    let by_size = hosts.iter().rev().max_by_key(|host| size(host));
    by_size.map_or((0, ""), |host| (size(host), host.name))
}

/// Neither memory nor CPUs alone are it: each host with what it lacks.
fn fault_of_lacks(
    lacks: &[HostLack],
    pool: &str,
    (type_name, kind): (&Arc<str>, &InstanceType),
) -> SizeFault {
    let mut told: Vec<&str> = lacks.iter().map(|lack| &*lack.text).collect();
    told.truncate(MAX_NAMED);
    let mut told = told.join("; ");
    if lacks.len() > MAX_NAMED {
        let _ = write!(told, "; and so on for {} more", lacks.len() - MAX_NAMED);
    }
    let keys: BTreeSet<&str> = lacks.iter().flat_map(|lack| lack.keys).copied().collect();
    let keys: Vec<&str> = keys.into_iter().collect();
    let change = if keys.is_empty() {
        String::new()
    } else {
        format!("another {} for the pool or its region, ", keys.join(" or "))
    };
    SizeFault {
        text: format!(
            "pool {pool}: no host could hold a machine of instance type {type_name} (memory {}, {}), however empty it is: {told}",
            words::bytes(kind.memory),
            words::count(kind.cores, "core")
        ),
        mend: format!(
            "{change}a smaller [instance_type.{type_name}], or hosts with more in the pool's table"
        ),
    }
}

fn names(seen: &ClusterResources) -> String {
    let names: Vec<&str> = seen.hosts.keys().map(|name| &**name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    /// What is said of a pool `small` of machines with 2 cores and 4 GiB on hosts of so many CPUs and GiB, with these lines in the region's
    /// table and in the pool's.
    fn said(hosts: &[(&str, u32, i64)], region: &str, pool: &str) -> Vec<String> {
        let unless_there = |key: &str, line| if pool.contains(key) { "" } else { line };
        let types = unless_there("instance_types =", "instance_types = [\"s\"]\n");
        let max = unless_there("max =", "max = 3\n");
        let text = format!(
            "version = 1\n[proxmox]\nvmids = \"9000-9019\"\n{region}\n[template.debian]\nvmid = 8000\n\
             [instance_type.s]\ncores = 2\nmemory = \"4GiB\"\n[instance_type.m]\ncores = 8\nmemory = \"8GiB\"\n\
             [pool.small]\ntemplate = \"debian\"\n{types}{max}{pool}\n"
        );
        let settings = parse(&text, "test").unwrap_or_else(|e| panic!("{e}"));
        let hosts = hosts.iter().map(|(name, cpus, gib)| {
            let host = HostResource {
                online: *gib > 0,
                cpus: *cpus,
                memory: gib << 30,
                ..HostResource::default()
            };
            (Arc::from(*name), host)
        });
        let seen = ClusterResources {
            hosts: hosts.collect(),
            ..ClusterResources::default()
        };
        let mut findings = Findings::default();
        let pool = &settings.policy.pools["small"];
        judge_size(&seen, "small", pool, &settings.policy, &mut findings);
        findings.0.iter().map(ToString::to_string).collect()
    }

    /// A host that is excluded is no host that is off.
    #[test]
    fn a_pool_of_which_all_hosts_are_excluded_is_told_as_that() {
        let said = |online: bool, exclude: &[&str]| {
            let hosts = ["pve1", "pve2"].map(|name| {
                let host = HostResource {
                    online,
                    ..HostResource::default()
                };
                (Arc::from(name), host)
            });
            let seen = ClusterResources {
                hosts: hosts.into(),
                ..ClusterResources::default()
            };
            let mut pool = PoolPolicy::default();
            let exclude = exclude.iter().map(|name| Arc::from(*name));
            pool.host_rules.exclude = exclude.collect();
            let mut findings = Findings::default();
            judge_readiness(&seen, "small", &pool, &mut findings);
            let said: Vec<String> = findings.0.iter().map(ToString::to_string).collect();
            said.join("\n")
        };
        assert_eq!(
            said(true, &["pve1", "pve2"]),
            "WRONG: pool small: all hosts are excluded: pve1, pve2; take one that machines may be on out of exclude_hosts of the pool or its region"
        );
        assert_eq!(said(true, &["pve1"]), "ok: pool small: hosts pve2");
        let off = said(false, &["pve1"]);
        assert!(
            off.starts_with("WRONG: pool small: none of its hosts is online and out of"),
            "{off}"
        );
    }

    const FITS: &str = "ok: pool small: a host is large enough for instance type s";

    /// Each key that may leave no host, at the last value with which one could still hold a machine, and one step further.
    #[test]
    fn a_pool_that_no_host_could_ever_hold_a_machine_of_is_wrong() {
        let hosts = [("pve1", 4, 16), ("pve2", 2, 8)];
        let head = "WRONG: pool small: no host could hold a machine of instance type s (memory 4Gi, 2 cores), however empty it is: ";
        let tail = "for the pool or its region, a smaller [instance_type.s], or hosts with more in the pool's table";
        for (region, pool, told) in [
            ("", "min_free_memory = \"12GiB\"", None),
            (
                "",
                "min_free_memory = \"13GiB\"",
                Some(
                    "pve1 has 16Gi of memory, and min_free_memory keeps 13Gi free; pve2 has 8Gi of memory, and min_free_memory keeps 13Gi free; another min_free_memory ",
                ),
            ),
            (
                "min_free_memory = \"13GiB\"",
                "min_free_memory = \"1GiB\"",
                None,
            ),
            ("", "min_free_cores = 2", None),
            (
                "",
                "min_free_cores = 2.5",
                Some(
                    "pve1 has 4 CPUs, and min_free_cores keeps 2.5 free; pve2 has 2 CPUs, and min_free_cores keeps 2.5 free; another min_free_cores ",
                ),
            ),
            ("cpu_overcommit = 1\nhost_cores_reserve = 2", "", None),
            (
                "cpu_overcommit = 1\nhost_cores_reserve = 3",
                "",
                Some(
                    "cores that guests of pve1 may have: 1; cores that guests of pve2 may have: 0; another cpu_overcommit or host_cores_reserve ",
                ),
            ),
        ] {
            let wanted = told.map_or(FITS.to_owned(), |told| format!("{head}{told}{tail}"));
            assert_eq!(said(&hosts, region, pool), [wanted], "{region} {pool}");
        }
    }

    /// One host has the memory, another the CPUs.
    #[test]
    fn no_two_hosts_hold_one_machine_together() {
        let told = said(&[("pve1", 1, 64), ("pve2", 8, 5)], "", "");
        assert_eq!(
            told,
            [
                "WRONG: pool small: no host could hold a machine of instance type s (memory 4Gi, 2 cores), however empty it is: \
                 pve1 has 1 CPU; guests of pve2 may have 3Gi of memory; another host_memory_reserve or memory_overcommit for the pool or its region, \
                 a smaller [instance_type.s], or hosts with more in the pool's table"
            ]
        );
        let larger = said(&[("pve1", 1, 64), ("pve2", 8, 6)], "", "");
        assert_eq!(larger, [FITS]);
    }

    /// A type that is too large for every host is told with the largest of them, of memory and of CPUs, wherever its name stands.
    #[test]
    fn a_type_that_is_too_large_is_told_with_the_largest_host() {
        let types = "instance_types = [\"s\", \"m\"]";
        let told = said(&[("pve1", 2, 6), ("pve2", 4, 7), ("pve3", 6, 6)], "", types);
        assert_eq!(told.len(), 2, "{told:?}");
        let of_memory = "warning: pool small: no host has the memory for instance type m: 8192 MiB wanted, 5120 MiB at most, on pve2; less memory in [instance_type.m]";
        assert!(told[0].starts_with(of_memory), "{told:?}");
        let of_cpus = "warning: pool small: no host has the CPUs for instance type m: 8 wanted, 6 at most, on pve3; PVE starts";
        assert!(told[1].starts_with(of_cpus), "{told:?}");
        // With one that keeps its memory for itself the largest is still named, though eight others come before it.
        let mut hosts: Vec<(String, u32, i64)> =
            (1..9).map(|n| (format!("pve{n}"), 4, 16)).collect();
        hosts.push(("pve9".to_owned(), 4, 32));
        let hosts: Vec<(&str, u32, i64)> = hosts
            .iter()
            .map(|(name, cpus, gib)| (&**name, *cpus, *gib))
            .collect();
        let told = said(&hosts, "", "min_free_memory = \"29GiB\"");
        assert!(
            told[0].contains("however empty it is: pve9 has 32Gi of memory, and min_free_memory keeps 29Gi free; pve1 has 16Gi"),
            "{told:?}"
        );
    }

    /// While another type fits, a host that is off may be larger, or the pool is given up, nothing is wrong.
    #[test]
    fn what_is_no_reason_for_no_machine_at_all_is_a_warning() {
        let keep = "min_free_memory = \"13GiB\"";
        let begin = "pool small: no host could hold a machine of instance type";
        for (hosts, pool, wanted) in [
            (&[("pve1", 4, 16)][..], keep, format!("WRONG: {begin} s ")),
            (
                &[("pve1", 4, 16), ("pve2", 0, 0)],
                keep,
                format!("warning: {begin} s "),
            ),
            (
                &[("pve1", 4, 16), ("pve2", 2, 64)],
                "instance_types = [\"s\", \"m\"]",
                "warning: pool small: no host has the CPUs for instance type m: 8 wanted"
                    .to_owned(),
            ),
            (
                &[("pve1", 4, 16)],
                "instance_types = [\"s\"]\nmax = 0\nmin_free_memory = \"13GiB\"",
                format!("warning: {begin} s "),
            ),
        ] {
            let told = said(hosts, "", pool);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].starts_with(&wanted), "{told:?}");
        }
    }
}
