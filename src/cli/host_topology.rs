//! `host-topology`: what the CPUs of this host are to each other, as the table of the configuration that pools with `cpu_pinning` need.
//!
//! PVE's API tells the number of CPUs and sockets and nothing more, so the kernel is asked, on each host.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;

use super::args::HostTopologyOptions;
use super::{Failure, print};
use crate::model::cpus::CpuSet;
use crate::model::topology::{HostTopology, NumaNode};

/// Where the kernel tells of its CPUs.
pub(super) const SYS: &str = "/sys/devices/system";
/// Memory of each NUMA node that is left to the host.
const KEPT: i64 = 1 << 30;
/// Lists in one line of the table.
const IN_A_LINE: usize = 8;

/// The name of a region or a host: letters, digits and hyphens, as PVE and a key of the configuration have them.
pub(super) fn word(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if text.is_empty() || text.len() > 63 || !text.chars().all(fits) {
        return Err(
            "expected letters, digits and hyphens, at most 63, such as pve1; without a domain"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// Prints the table of this host.
pub(super) fn run(options: &HostTopologyOptions) -> Result<(), Failure> {
    let mut topology = read(&options.sys)?;
    let host = match &options.host {
        Some(host) => host.clone(),
        None => name()?,
    };
    topology.reserved = match &options.reserved {
        Some(text) => CpuSet::read(text).with_context(|| {
            format!("cannot read --reserved {text:?}; expected CPUs such as 0,32 or 0-3")
        })?,
        None => topology.cores.first().cloned().unwrap_or_default(),
    };
    let missing = topology.reserved.without(&topology.cpus());
    if !missing.is_empty() {
        let all = topology.cpus();
        return Err(anyhow::anyhow!(
            "cannot reserve the CPUs {missing}: {host} has {all}; give --reserved some of those"
        )
        .into());
    }
    print(&table(&options.region, &host, &topology))
}

/// The name under which PVE knows this host.
pub(super) fn name() -> anyhow::Result<String> {
    let name = nix::unistd::gethostname().context("cannot tell the name of this host")?;
    let name = name.to_string_lossy();
    let first = name.split('.').next().unwrap_or_default();
    anyhow::ensure!(
        !first.is_empty(),
        "cannot tell the name of this host; name it with --host"
    );
    Ok(first.to_owned())
}

/// Reads what the kernel tells below `sys`; CPUs that are off are left out.
pub(super) fn read(sys: &Path) -> anyhow::Result<HostTopology> {
    let online = list(&sys.join("cpu/online"))?;
    let (mut cores, mut sockets, mut caches) = (
        BTreeSet::new(),
        BTreeMap::<String, CpuSet>::new(),
        BTreeSet::new(),
    );
    for cpu in online.iter() {
        let of = sys.join(format!("cpu/cpu{cpu}"));
        let core = list(&of.join("topology/thread_siblings_list"))?.both(&online);
        cores.insert(by_first(core));
        let socket = text(&of.join("topology/physical_package_id"))?;
        sockets.entry(socket).or_default().insert(cpu);
        let cache = last_cache(&of.join("cache"))?;
        caches.extend(cache.map(|cache| by_first(cache.both(&online))));
    }
    let sets = |sets: BTreeSet<(u16, CpuSet)>| sets.into_iter().map(|(_, set)| set).collect();
    let mut sockets: Vec<CpuSet> = sockets.into_values().collect();
    sockets.sort_by_key(|socket| socket.iter().next());
    let numa = nodes(&sys.join("node"), &online)?;
    let mut topology = HostTopology {
        cores: sets(cores),
        sockets,
        caches: sets(caches),
        numa,
        reserved: CpuSet::new(),
    };
    let cached = topology.caches.iter();
    let cached = cached.fold(CpuSet::new(), |all, cache| all.with(cache));
    if cached != online {
        // Some virtual machines show no cache: then those of a node count as one, as where the file says nothing.
        let nodes = topology.numa.iter().map(|node| node.cpus.clone());
        topology.caches = nodes.filter(|cpus| !cpus.is_empty()).collect();
    }
    Ok(topology)
}

fn by_first(set: CpuSet) -> (u16, CpuSet) {
    let first = set.iter().next().unwrap_or_default();
    (first, set)
}

/// The CPUs that share the last level of a CPU's caches.
fn last_cache(caches: &Path) -> anyhow::Result<Option<CpuSet>> {
    let Ok(entries) = std::fs::read_dir(caches) else {
        return Ok(None);
    };
    let mut last: Option<(u32, CpuSet)> = None;
    for entry in entries.flatten() {
        let path = entry.path();
        if !entry.file_name().to_string_lossy().starts_with("index") {
            continue;
        }
        let level: u32 = text(&path.join("level"))?.parse().unwrap_or(0);
        if last.as_ref().is_none_or(|(known, _)| *known < level) {
            last = Some((level, list(&path.join("shared_cpu_list"))?));
        }
    }
    Ok(last.map(|(_, cpus)| cpus))
}

/// The NUMA nodes in the order of their numbers; a number that is not there has no CPUs.
fn nodes(path: &Path, online: &CpuSet) -> anyhow::Result<Vec<NumaNode>> {
    let there = list(&path.join("online"))?;
    let last = there.iter().last().unwrap_or(0);
    let mut nodes = Vec::new();
    for number in 0..=last {
        let of = path.join(format!("node{number}"));
        if !there.contains(number) {
            nodes.push(NumaNode::default());
            continue;
        }
        let cpus = text(&of.join("cpulist"))?;
        let cpus = CpuSet::read(&cpus).unwrap_or_default().both(online);
        let memory = text(&of.join("meminfo"))?;
        let total = memory.lines().find(|line| line.contains("MemTotal:"));
        let kib = total.and_then(|line| line.split_whitespace().rev().nth(1)?.parse::<i64>().ok());
        let kib = kib.with_context(|| format!("{} tells no MemTotal", of.display()))?;
        nodes.push(NumaNode {
            cpus,
            memory: Some((kib.saturating_mul(1024) - KEPT).max(0) >> 20 << 20),
        });
    }
    Ok(nodes)
}

fn text(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read what the kernel tells in {}", path.display()))?;
    Ok(text.trim().to_owned())
}

fn list(path: &Path) -> anyhow::Result<CpuSet> {
    let text = text(path)?;
    CpuSet::read(&text).with_context(|| format!("{} is no list: {text:?}", path.display()))
}

/// The table as the configuration has it.
fn table(region: &str, host: &str, topology: &HostTopology) -> String {
    let mut text = String::new();
    let region = match region {
        "default" => "proxmox".to_owned(),
        region => format!("region.{region}"),
    };
    let _ = writeln!(text, "[{region}.topology.{host}]");
    let quoted = |set: &CpuSet| format!("\"{set}\"");
    let numa: Vec<String> = topology.numa.iter().map(|of| quoted(&of.cpus)).collect();
    let of = |sets: &[CpuSet]| sets.iter().map(quoted).collect::<Vec<String>>();
    write_list(&mut text, "sockets", &of(&topology.sockets));
    write_list(&mut text, "numa", &numa);
    let memory = topology.numa.iter().map(|of| {
        let mib = of.memory.unwrap_or(0) >> 20;
        format!("\"{mib}MiB\"")
    });
    let memory: Vec<String> = memory.collect();
    text.push_str(
        "# What a node has, but for 1 GiB. Leave out more for guests that are bound to none.\n",
    );
    write_list(&mut text, "numa_memory", &memory);
    write_list(&mut text, "caches", &of(&topology.caches));
    write_list(&mut text, "cores", &of(&topology.cores));
    text.push_str("# For PVE itself and for guests without CPUs of their own, which run on all.\n");
    let _ = writeln!(text, "reserved = \"{}\"", topology.reserved);
    text
}

fn write_list(text: &mut String, key: &str, items: &[String]) {
    if items.len() <= IN_A_LINE {
        let _ = writeln!(text, "{key} = [{}]", items.join(", "));
        return;
    }
    let _ = writeln!(text, "{key} = [");
    for line in items.chunks(IN_A_LINE) {
        let _ = writeln!(text, "    {},", line.join(", "));
    }
    text.push_str("]\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a kernel tells of two sockets with a node and a cache each, of two cores of two threads; CPU 7 is off.
    fn kernel() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |path: String, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, format!("{text}\n")).expect("written");
        };
        write("cpu/online".to_owned(), "0-6");
        write("node/online".to_owned(), "0,2");
        for cpu in 0..8 {
            let core = cpu % 4;
            let socket = core / 2;
            let of = format!("cpu/cpu{cpu}");
            let siblings = format!("{core},{}", core + 4);
            write(format!("{of}/topology/thread_siblings_list"), &siblings);
            write(
                format!("{of}/topology/physical_package_id"),
                &socket.to_string(),
            );
            let shared = ["0-1,4-5", "2-3,6-7"][socket];
            for (index, level, list) in
                [(0, "1", &*siblings), (3, "3", shared), (2, "2", &siblings)]
            {
                write(format!("{of}/cache/index{index}/level"), level);
                write(format!("{of}/cache/index{index}/shared_cpu_list"), list);
            }
        }
        for (node, list) in [(0, "0-1,4-5"), (2, "2-3,6-7")] {
            write(format!("node/node{node}/cpulist"), list);
            let memory = format!("Node {node} MemTotal:  33554432 kB\nNode {node} MemFree: 1 kB");
            write(format!("node/node{node}/meminfo"), &memory);
        }
        directory
    }

    #[test]
    fn what_is_printed_is_what_the_kernel_says_and_the_file_takes_it() {
        let sys = kernel();
        let mut topology = read(sys.path()).expect("it is read");
        let texts = |sets: &[CpuSet]| sets.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&topology.cores), ["0,4", "1,5", "2,6", "3"]);
        assert_eq!(texts(&topology.sockets), ["0-1,4-5", "2-3,6"]);
        assert_eq!(texts(&topology.caches), ["0-1,4-5", "2-3,6"]);
        let nodes: Vec<CpuSet> = topology.numa.iter().map(|node| node.cpus.clone()).collect();
        assert_eq!(texts(&nodes), ["0-1,4-5", "", "2-3,6"]);
        topology.reserved = CpuSet::from_iter([0, 4]);
        for (region, header) in [("default", "[proxmox]"), ("home", "[region.home]")] {
            let file = format!(
                "version = 1\n{header}\nvmids = \"9000-9019\"\n[template.debian]\nvmid = 8000\n[instance_type.s]\ncores = 2\n\
                 memory = \"4GiB\"\n[pool.small]\ntemplate = \"debian\"\ninstance_types = [\"s\"]\nmax = 3\ncpu_pinning = true\n{}",
                table(region, "pve1", &topology)
            );
            let settings = crate::config::parse(&file, "test.toml");
            let settings = settings.unwrap_or_else(|e| panic!("{e}\n{file}"));
            let policy = &settings.policy.regions[region];
            // A node that is not there has no memory that could be printed.
            topology.numa[1].memory = Some(0);
            assert_eq!(*policy.topologies["pve1"], topology, "{file}");
        }
    }

    #[test]
    fn a_kernel_that_tells_nothing_is_an_error_that_names_the_file() {
        let sys = kernel();
        let gone = sys.path().join("cpu/cpu2/topology/thread_siblings_list");
        std::fs::remove_file(gone).expect("removed");
        let error = read(sys.path()).expect_err("it is not known");
        assert!(format!("{error:#}").contains("cpu2/topology"), "{error:#}");
    }
}
