//! What the kernel of a host tells of its CPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

use crate::model::cpus::CpuSet;
use crate::model::topology::{HostTopology, NumaNode};

/// Memory of each NUMA node that is left to the host.
const KEPT: i64 = 1 << 30;

/// Reads what the kernel tells below `sys`; CPUs that are off are left out.
pub fn read(sys: &Path) -> anyhow::Result<HostTopology> {
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
        devices: BTreeMap::new(),
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

/// The NUMA nodes that a host's devices of PVE's mappings are in: `mappings` is PVE's `mapping/pci.cfg`, `pci` where the kernel tells of its
/// devices. A device whose node the kernel does not tell is left out.
pub fn devices(mappings: &str, pci: &Path, host: &str) -> BTreeMap<Arc<str>, BTreeSet<usize>> {
    let mut nodes: BTreeMap<Arc<str>, BTreeSet<usize>> = BTreeMap::new();
    let mut mapping = None;
    for line in mappings.lines() {
        if let Some(name) = line.strip_prefix("pci:") {
            mapping = Some(Arc::<str>::from(name.trim()));
            continue;
        }
        let Some(options) = line.trim().strip_prefix("map ") else {
            continue;
        };
        let part = |name: &str| {
            let mut parts = options.split(',').filter_map(|part| part.split_once('='));
            parts
                .find(|(key, _)| key.trim() == name)
                .map(|(_, text)| text.trim())
        };
        let (Some(mapping), Some(path), true) =
            (&mapping, part("path"), part("node") == Some(host))
        else {
            continue;
        };
        // All functions of a device are in one node; several are written with ';' between them.
        for address in path.split(';') {
            let function = if address.contains('.') { "" } else { ".0" };
            let file = pci.join(format!("{address}{function}/numa_node"));
            let node = text(&file).ok().and_then(|node| node.parse::<usize>().ok());
            if let Some(node) = node {
                nodes.entry(mapping.clone()).or_default().insert(node);
            }
        }
    }
    nodes
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What a kernel tells of two sockets with a node and a cache each, of two cores of two threads; CPU 7 is off.
    pub(crate) fn kernel() -> tempfile::TempDir {
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
    fn a_kernel_that_tells_nothing_is_an_error_that_names_the_file() {
        let sys = kernel();
        let gone = sys.path().join("cpu/cpu2/topology/thread_siblings_list");
        std::fs::remove_file(gone).expect("removed");
        let error = read(sys.path()).expect_err("it is not known");
        assert!(format!("{error:#}").contains("cpu2/topology"), "{error:#}");
    }

    #[test]
    fn devices_are_where_the_kernel_says() {
        let directory = tempfile::tempdir().expect("a directory");
        for (address, node) in [
            ("0000:01:00.0", "0"),
            ("0000:41:00.0", "1"),
            ("0000:42:00.1", "1"),
            ("0000:05:00.0", "-1"),
        ] {
            let of = directory.path().join(address);
            std::fs::create_dir_all(&of).expect("made");
            std::fs::write(of.join("numa_node"), format!("{node}\n")).expect("written");
        }
        let mappings = "pci: gpu\n\tdescription two, of one kind\n\tmap id=10de:2204,iommugroup=14,node=pve1,path=0000:01:00\n\
            \tmap id=10de:2204,iommugroup=61,node=pve1,path=0000:41:00;0000:42:00.1\n\n\
            pci: nic\n\tmap id=8086:1572,node=pve2,path=0000:41:00.0\n\n\
            pci: disk\n\tmap id=144d:a80a,node=pve1,path=0000:05:00.0\n\tmap id=144d:a80a,node=pve1,path=0000:99:00.0\n";
        let found = devices(mappings, directory.path(), "pve1");
        assert_eq!(found, [("gpu".into(), [0, 1].into())].into());
        let found = devices(mappings, directory.path(), "pve2");
        assert_eq!(found, [("nic".into(), [1].into())].into());
    }
}
