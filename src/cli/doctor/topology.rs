//! CPUs that machines get for themselves: whether the topology that the file has of hosts is theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::finding::Findings;
use super::region::SeenRegion;
use crate::cli::host_topology;
use crate::config::settings::Channel;
use crate::model::topology::HostTopology;
use crate::model::words;
use crate::pinning::{self, topology};

/// How the table is made anew.
const ANEW: &str = "run `pve-autoscaler host-topology` on the host and put what it prints in the place of the table";

/// Looks at the topologies of a region's hosts, where machines there get CPUs of their own.
pub(super) fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let (name, settings) = (&*region.name, &*region.here.settings);
    if !settings.policy.pins_in(name) {
        return;
    }
    let Some(policy) = settings.policy.regions.get(name) else {
        return;
    };
    let local = settings.regions.get(name);
    let local = local.is_some_and(|region| region.channel == Channel::Local);
    let here = host_topology::name().ok().filter(|_| local);
    let used = |host: &str| {
        let mut pools = settings.policy.pools_in(name);
        pools.any(|(_, pool)| pool.pinning.cpus && pool.may_use(host))
    };
    for (host, of) in &seen.resources.hosts {
        if !used(host) {
            continue;
        }
        let Some(topology) = policy.topologies.get(host) else {
            let text = format!(
                "host {host}: the file has no topology of it, so no machine with CPUs of its own is made there"
            );
            findings.warning(text).mend(ANEW);
            continue;
        };
        if of.online {
            judge((host, of.cpus), topology, findings);
        } else {
            findings.unseen(format!(
                "host {host} is offline: its CPUs cannot be compared"
            ));
        }
        if here.as_deref() == Some(&**host) {
            compare(host, topology, Path::new(host_topology::SYS), findings);
            let pinned = settings.policy.pools_in(name);
            let pinned = pinned.filter(|(_, pool)| pool.pinning.cpus && pool.may_use(host));
            let types = pinned.flat_map(|(_, pool)| &pool.instance_types);
            let types = types.filter_map(|kind| settings.policy.instance_types.get(kind));
            let wanted = types.flat_map(|kind| kind.pci.iter().map(|device| &*device.mapping));
            // Who may not read it does not learn it; a host without mappings has no such file.
            if let Ok(mappings) = std::fs::read_to_string(host_topology::MAPPINGS) {
                let kernel = topology::devices(&mappings, Path::new(host_topology::PCI), host);
                compare_devices((host, topology), &kernel, wanted.collect(), findings);
            }
            placed(&pinning::Roots::default(), findings);
        }
    }
    for host in policy.topologies.keys() {
        if !seen.resources.hosts.contains_key(host) {
            findings
                .warning(format!(
                    "region {name}: it has no host {host}, of which the file has a topology"
                ))
                .mend("take the table out, or write the host's name as PVE has it");
        }
    }
}

/// Whether somebody places vCPUs on this host; that nobody does is as it should be where nobody asked for it.
fn placed(roots: &pinning::Roots, findings: &mut Findings) {
    match pinning::PinningReport::read(roots, crate::clock::Clock::System.now()) {
        Ok(Some(report)) => match report.problems().next() {
            None => findings.fine(report.summary()),
            Some(problem) => {
                let text = format!("{}: {problem}", report.summary());
                findings.warning(text).mend("pve-autoscaler host-pinning --show");
            }
        },
        Ok(None) => findings.fine(
            "vCPUs are where PVE put them, among their machine's CPUs (pve-autoscaler-pinning.service does not run on this host)",
        ),
        Err(why) => findings
            .warning(why)
            .mend("systemctl status pve-autoscaler-pinning.service"),
    }
}

/// The number of CPUs is what PVE says.
fn judge((host, has): (&str, u32), topology: &HostTopology, findings: &mut Findings) {
    let (listed, usable) = (topology.cpus().len(), topology.usable().len());
    if listed == has as usize {
        let nodes = words::count(topology.numa.len(), "NUMA node");
        findings.fine(format!(
            "host {host}: {usable} of {} are for machines alone, in {nodes}",
            words::count(listed, "CPU")
        ));
    } else {
        findings
            .wrong(format!(
                "host {host}: the file's topology has {}, PVE says {has}",
                words::count(listed, "CPU")
            ))
            .mend(ANEW);
    }
}

/// Of this host the kernel can be asked.
fn compare(host: &str, topology: &HostTopology, sys: &Path, findings: &mut Findings) {
    let read = match topology::read(sys) {
        Ok(read) => read,
        Err(error) => {
            findings.unseen(format!("host {host}: its topology: {error:#}"));
            return;
        }
    };
    let parts = |of: &HostTopology| {
        let numa: Vec<_> = of.numa.iter().map(|node| node.cpus.clone()).collect();
        let sorted = |sets: &[crate::model::cpus::CpuSet]| {
            let mut sets = sets.to_vec();
            sets.sort();
            sets
        };
        [
            numa,
            sorted(&of.cores),
            sorted(&of.sockets),
            sorted(&of.caches),
        ]
    };
    let (file, kernel) = (parts(topology), parts(&read));
    let keys = ["numa", "cores", "sockets", "caches"];
    let differ = keys.into_iter().zip(file.iter().zip(&kernel));
    let differ = differ.filter(|(_, (file, kernel))| file != kernel);
    let differ: Vec<&str> = differ.map(|(key, _)| key).collect();
    // What the file leaves out is one socket, and a cache for each NUMA node.
    let all = topology.cpus();
    let numa: Vec<_> = topology.numa.iter().map(|node| &node.cpus).collect();
    let left_out = |key: &&str| match *key {
        "sockets" => topology.sockets == [all.clone()],
        "caches" => topology.caches.iter().collect::<Vec<_>>() == numa,
        _ => false,
    };
    if !differ.is_empty() && differ.iter().all(left_out) {
        findings
            .warning(format!(
                "host {host}: the file's topology has no {}, by which CPUs could be packed closer",
                differ.join(", ")
            ))
            .mend(ANEW);
    } else if !differ.is_empty() {
        findings
            .wrong(format!(
                "host {host}: the file's topology is not what the kernel says: {} differ",
                differ.join(", ")
            ))
            .mend(ANEW);
    }
}

/// The NUMA nodes of the devices that machines with CPUs of their own get.
fn compare_devices(
    (host, topology): (&str, &HostTopology),
    kernel: &BTreeMap<Arc<str>, BTreeSet<usize>>,
    wanted: BTreeSet<&str>,
    findings: &mut Findings,
) {
    for mapping in wanted {
        let (file, kernel) = (topology.devices.get(mapping), kernel.get(mapping));
        let said = match (file, kernel) {
            (None, Some(_)) => {
                "the file's topology does not say in which NUMA nodes its devices are, so machines may get CPUs far from them"
            }
            (Some(file), Some(kernel)) if file != kernel => {
                "the kernel says that its devices are in other NUMA nodes than the file's topology"
            }
            _ => continue,
        };
        findings
            .warning(format!("host {host}: mapping {mapping}: {said}"))
            .mend(ANEW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_are_elsewhere_are_told() {
        let nodes = |all: &[(&str, usize)]| -> BTreeMap<Arc<str>, BTreeSet<usize>> {
            let nodes = all
                .iter()
                .map(|(mapping, node)| ((*mapping).into(), [*node].into()));
            nodes.collect()
        };
        let said = |file: &[(&str, usize)], kernel: &[(&str, usize)]| {
            let of = HostTopology {
                devices: nodes(file),
                ..topology()
            };
            let mut findings = Findings::default();
            compare_devices(("pve1", &of), &nodes(kernel), ["gpu"].into(), &mut findings);
            let texts = findings.0.iter().map(|finding| &*finding.text);
            texts.collect::<Vec<_>>().join("; ")
        };
        assert_eq!(said(&[("gpu", 1)], &[("gpu", 1), ("nic", 0)]), "");
        assert_eq!(said(&[], &[("nic", 0)]), "");
        let text = said(&[], &[("gpu", 1)]);
        assert!(
            text.contains("mapping gpu: the file's topology does not say"),
            "{text}"
        );
        let text = said(&[("gpu", 0)], &[("gpu", 1)]);
        assert!(
            text.contains("the kernel says that its devices are in other"),
            "{text}"
        );
    }
    use crate::model::cpus::CpuSet;
    use crate::model::topology::NumaNode;

    fn topology() -> HostTopology {
        let all: CpuSet = (0..4).collect();
        HostTopology {
            numa: vec![NumaNode {
                cpus: all.clone(),
                memory: None,
            }],
            sockets: vec![all.clone()],
            caches: vec![all],
            cores: (0..4).map(|cpu| CpuSet::from_iter([cpu])).collect(),
            reserved: CpuSet::from_iter([0]),
            devices: BTreeMap::new(),
        }
    }

    #[test]
    fn another_number_of_cpus_is_wrong() {
        let mut findings = Findings::default();
        judge(("pve1", 4), &topology(), &mut findings);
        judge(("pve1", 8), &topology(), &mut findings);
        let words: Vec<&str> = findings
            .0
            .iter()
            .map(|finding| finding.grade.word())
            .collect();
        assert_eq!(words, ["ok", "WRONG"]);
        assert!(
            findings.0[0].text.contains("3 of 4 CPUs"),
            "{:?}",
            findings.0
        );
    }
}
