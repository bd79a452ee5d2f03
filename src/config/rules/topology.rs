//! What hosts' CPUs are to each other, and which pools have CPUs and huge pages of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::pools::ResolvedPool;
use super::regions::ResolvedRegions;
use super::{Problems, shared};
use crate::config::file::{self, HugePageSize};
use crate::config::place::KeyPath;
use crate::config::settings::{Channel, TemplateSettings};
use crate::config::syntax;
use crate::model::cpus::CpuSet;
use crate::model::policy::InstanceType;
use crate::model::topology::{HostTopology, HugePages, NumaNode, Pinning, Topologies};

/// Tables of the file by their names.
type TablesByName<T> = BTreeMap<Arc<str>, T>;

const MIB: i64 = 1 << 20;
/// What a list of CPUs must be.
const LIST: &str = "CPUs such as \"0-3,32-35\"";

/// The topologies of a region's hosts.
pub(super) fn of_region(
    region: &file::RegionTable,
    path: &KeyPath,
    problems: &mut Problems,
) -> Topologies {
    let path = path.at("topology");
    let hosts = region.topology.iter().map(|(host, of)| {
        let path = path.at(host);
        problems.unless(syntax::dns_label(&host.to_ascii_lowercase()), &path, || {
            "expected the name of a host as `pvecm nodes` shows it".to_owned()
        });
        (shared(host), Arc::new(topology(of, &path, problems)))
    });
    hosts.collect()
}

fn topology(of: &file::Topology, path: &KeyPath, problems: &mut Problems) -> HostTopology {
    let cores = "the CPUs of each core, such as [\"0,32\", \"1,33\"]";
    let cores = problems.require(of.cores.as_ref(), &path.at("cores"), cores);
    let numa = "the CPUs of each NUMA node, such as [\"0-63\"]";
    let numa = problems.require(of.numa.as_ref(), &path.at("numa"), numa);
    let (Some(cores), Some(numa)) = (cores, numa) else {
        return HostTopology::default();
    };
    let cores = sets(cores, &path.at("cores"), problems);
    let all = cores.iter().fold(CpuSet::new(), |all, core| all.with(core));
    let parts = |key: &str, texts: &[String], problems: &mut Problems| {
        let sets = sets(texts, &path.at(key), problems);
        let named = sets.iter().fold(CpuSet::new(), |all, set| all.with(set));
        problems.unless(named == all, &path.at(key), || {
            let (missing, more) = (all.without(&named), named.without(&all));
            let of = if missing.is_empty() {
                format!("names the CPUs {more}, which cores does not")
            } else {
                format!("does not name the CPUs {missing}, which cores does")
            };
            format!("{of}; `pve-autoscaler host-topology` on the host prints the table")
        });
        sets
    };
    let numa = parts("numa", numa, problems);
    let or = |sets: Vec<CpuSet>, default: Vec<CpuSet>| {
        if sets.is_empty() { default } else { sets }
    };
    let given = |key: &str, texts: &[String], problems: &mut Problems| {
        if texts.is_empty() {
            return Vec::new();
        }
        parts(key, texts, problems)
    };
    let sockets = or(given("sockets", &of.sockets, problems), vec![all.clone()]);
    let caches = or(given("caches", &of.caches, problems), numa.clone());
    check_cores(&cores, &numa, path, problems);
    let memory = &of.numa_memory;
    problems.unless(
        memory.is_empty() || memory.len() == numa.len(),
        &path.at("numa_memory"),
        || {
            format!(
                "expected one size for each of the {} NUMA nodes",
                numa.len()
            )
        },
    );
    let devices = devices(of, numa.len(), path, problems);
    let nodes = numa.into_iter().enumerate().map(|(at, cpus)| NumaNode {
        cpus,
        memory: memory.get(at).map(|size| size.0),
    });
    HostTopology {
        numa: nodes.collect(),
        sockets,
        caches,
        cores,
        reserved: reserved(of, &all, path, problems),
        devices,
    }
}

/// The NUMA nodes that devices are in, by their mapping.
fn devices(
    of: &file::Topology,
    nodes: usize,
    path: &KeyPath,
    problems: &mut Problems,
) -> BTreeMap<Arc<str>, BTreeSet<usize>> {
    let path = path.at("devices");
    let devices = of.devices.iter().map(|(mapping, text)| {
        let list = CpuSet::read(text).unwrap_or_default();
        let list: BTreeSet<usize> = list.iter().map(usize::from).collect();
        let last = list.last().is_some_and(|last| *last < nodes);
        problems.unless(last, &path.at(mapping), || {
            format!("expected numbers of the host's {nodes} NUMA nodes, which begin with 0, such as \"0\"")
        });
        (shared(mapping), list)
    });
    devices.collect()
}

/// Lists of CPUs, none of which is in two of them.
fn sets(texts: &[String], path: &KeyPath, problems: &mut Problems) -> Vec<CpuSet> {
    let mut seen = CpuSet::new();
    let sets = texts.iter().enumerate().map(|(position, text)| {
        let path = path.at(&position);
        let set = if text.is_empty() {
            Some(CpuSet::new())
        } else {
            CpuSet::read(text)
        };
        problems.unless(set.is_some(), &path, || format!("expected {LIST}"));
        let set = set.unwrap_or_default();
        let twice = set.both(&seen);
        problems.unless(twice.is_empty(), &path, || {
            format!("the CPUs {twice} are named twice")
        });
        seen = seen.with(&set);
        set
    });
    sets.collect()
}

/// Threads of a core are of one NUMA node.
fn check_cores(cores: &[CpuSet], numa: &[CpuSet], path: &KeyPath, problems: &mut Problems) {
    for (position, core) in cores.iter().enumerate() {
        let within = core.is_empty() || numa.iter().any(|node| core.within(node));
        problems.unless(within, &path.at("cores").at(&position), || {
            format!("the CPUs {core} are of several NUMA nodes, so they are no core")
        });
    }
}

fn reserved(of: &file::Topology, all: &CpuSet, path: &KeyPath, problems: &mut Problems) -> CpuSet {
    let Some(text) = &of.reserved else {
        return CpuSet::new();
    };
    let path = path.at("reserved");
    let set = CpuSet::read(text);
    problems.unless(set.is_some(), &path, || format!("expected {LIST}"));
    let set = set.unwrap_or_default();
    let other = set.without(all);
    problems.unless(other.is_empty(), &path, || {
        format!("the host has no CPUs {other}")
    });
    set
}

/// What a pool gives its machines for themselves.
pub(super) fn of_pool(pool: &file::Pool) -> Pinning {
    Pinning {
        cpus: pool.cpu_pinning,
        hugepages: pool.hugepages.map(|size| match size {
            HugePageSize::TwoMib => HugePages::TwoMib,
            HugePageSize::OneGib => HugePages::OneGib,
            HugePageSize::Any => HugePages::Any,
        }),
    }
}

/// What pools give their machines, by what PVE lets be and can start.
pub(super) fn check(
    regions: &ResolvedRegions,
    (pools, types, templates): (
        &TablesByName<ResolvedPool>,
        &TablesByName<InstanceType>,
        &TablesByName<TemplateSettings>,
    ),
    problems: &mut Problems,
) {
    for pool in pools.values() {
        let pinning = pool.policy.pinning;
        for there in pool.policy.everywhere() {
            let Some(region) = regions.get(&there.region) else {
                continue;
            };
            let local = region.settings.channel == Channel::Local;
            for (key, set) in [
                ("cpu_pinning", pinning.cpus),
                ("hugepages", pinning.hugepages.is_some()),
            ] {
                problems.unless(!set || local, &pool.path.at(key), || {
                    format!(
                        "PVE lets only root@pam in person set that, and no API token; the region {} is reached with one (channel = \"token\"). Expected a region with channel = \"local\", through the broker",
                        there.region
                    )
                });
            }
            problems.unless(
                !pinning.cpus || !region.policy.topologies.is_empty(),
                &pool.path.at("cpu_pinning"),
                || {
                    format!(
                        "no host of the region {} has a topology, so no machine could be made. Expected a table [{}.topology.HOST] for each host; `pve-autoscaler host-topology` there prints it",
                        there.region, region.path
                    )
                },
            );
            let template = templates.get(&there.template);
            let numa = template.and_then(|template| template.hardware.numa);
            problems.unless(
                numa != Some(false) || pinning.hugepages.is_none(),
                &pool.path.at("hugepages"),
                || {
                    format!(
                        "PVE has huge pages only with NUMA, and template.{} says numa = false",
                        there.template
                    )
                },
            );
            let sockets = template.and_then(|template| template.hardware.sockets);
            check_pages(pool, types, i64::from(sockets.unwrap_or(1)), problems);
        }
    }
}

/// The memory of a pool's types is whole huge pages, and no part of it may be taken.
fn check_pages(
    pool: &ResolvedPool,
    types: &BTreeMap<Arc<str>, InstanceType>,
    sockets: i64,
    problems: &mut Problems,
) {
    let Some(pages) = pool.policy.pinning.hugepages else {
        return;
    };
    let path = pool.path.at("hugepages");
    // Without CPUs of their own PVE divides their memory among the sockets.
    let parts = if pool.policy.pinning.cpus {
        1
    } else {
        sockets.max(1)
    };
    for name in &pool.policy.instance_types {
        let Some(kind) = types.get(name) else {
            continue;
        };
        let whole = kind.memory % (pages.mib() * MIB * parts) == 0;
        problems.unless(whole, &path, || {
            let of = if parts > 1 {
                format!(" on each of {parts} sockets")
            } else {
                String::new()
            };
            format!(
                "the memory of instance type {name}, {}, is not whole pages of {}{of}; PVE would not start its machines",
                crate::model::words::bytes(kind.memory),
                crate::model::words::bytes(pages.mib() * MIB)
            )
        });
    }
    problems.unless(pool.settings.balloon.is_none(), &path, || {
        "memory in huge pages cannot be taken back: expected no balloon = true beside it".to_owned()
    });
}
