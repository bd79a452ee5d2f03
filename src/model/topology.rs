//! What a host's CPUs are to each other, and what of it machines are given: CPUs of their own, memory of the same NUMA nodes, huge
//! pages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cpus::CpuSet;
use super::policy::{Policy, PoolPolicy};

/// NUMA nodes that a VM can have (qemu-server, `MAX_NUMA`).
pub const MAX_NODES: usize = 8;

/// What the machines of a pool are given of their host's CPUs and memory for themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pinning {
    /// Each has CPUs that no other machine has.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cpus: bool,
    /// The machines' memory is in huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<HugePages>,
}

/// Sizes of huge pages, as PVE has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HugePages {
    /// 2 MiB.
    TwoMib,
    /// 1 GiB.
    OneGib,
    /// 1 GiB where the memory is whole ones and the host has them, else 2 MiB.
    Any,
}

impl HugePages {
    /// PVE's `hugepages`.
    pub fn value(self) -> &'static str {
        match self {
            HugePages::TwoMib => "2",
            HugePages::OneGib => "1024",
            HugePages::Any => "any",
        }
    }

    /// What a machine's memory must be a multiple of, in MiB.
    pub fn mib(self) -> i64 {
        match self {
            HugePages::TwoMib | HugePages::Any => 2,
            HugePages::OneGib => 1024,
        }
    }
}

impl Pinning {
    /// The unit in which memory is divided among NUMA nodes, in MiB.
    pub fn page_mib(&self) -> i64 {
        self.hugepages.map_or(1, HugePages::mib)
    }
}

impl Policy {
    /// Whether machines of some pool in a region have their memory in huge pages, with or without CPUs of their own.
    pub fn pages_in(&self, region: &str) -> bool {
        self.pools_in(region)
            .any(|(_, pool)| pool.pinning.hugepages.is_some())
    }
}

impl PoolPolicy {
    /// How many of its host's NUMA nodes, from the first on, PVE takes the huge pages of a machine from: one for each socket
    /// (qemu-server, `hugepages_topology`). 0 where its memory is in none, or beside CPUs of its own.
    pub fn page_nodes(&self) -> u32 {
        match self.pinning.hugepages {
            Some(_) if !self.pinning.cpus => self.sockets.max(1),
            _ => 0,
        }
    }
}

/// What a host's CPUs are to each other, as its kernel says (`/sys/devices/system/cpu`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTopology {
    /// NUMA nodes in the order of their numbers.
    pub numa: Vec<NumaNode>,
    /// Sockets.
    pub sockets: Vec<CpuSet>,
    /// CPUs that share a last-level cache.
    pub caches: Vec<CpuSet>,
    /// Cores: the CPUs that are threads of one.
    pub cores: Vec<CpuSet>,
    /// CPUs that no machine gets.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub reserved: CpuSet,
    /// Numbers of the NUMA nodes that the host's devices of a mapping are in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<Arc<str>, BTreeSet<usize>>,
}

/// A NUMA node of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumaNode {
    /// The NUMA node's CPUs.
    pub cpus: CpuSet,
    /// Bytes of memory that machines may have of it; `None`: not said, so it is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<i64>,
}

/// A NUMA node of a guest, whose memory is bound to one of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestNode {
    /// First and last of the guest's CPUs in it.
    pub cpus: (usize, usize),
    /// Number of the host's node.
    pub host: usize,
    /// Memory in MiB.
    pub memory_mib: i64,
}

impl GuestNode {
    /// PVE's `numaN`.
    pub fn value(&self) -> String {
        let (first, last) = self.cpus;
        let cpus = if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        };
        let (host, memory) = (self.host, self.memory_mib);
        format!("cpus={cpus},hostnodes={host},memory={memory},policy=bind")
    }
}

impl HostTopology {
    /// All CPUs of the host.
    pub fn cpus(&self) -> CpuSet {
        let all = CpuSet::new();
        self.cores.iter().fold(all, |all, core| all.with(core))
    }

    /// The CPUs that machines may get.
    pub fn usable(&self) -> CpuSet {
        self.cpus().without(&self.reserved)
    }

    /// The NUMA nodes of a guest that has these CPUs and so much memory: one for each of the host's that its CPUs are in, with the
    /// part of the memory that its CPUs are of all. The parts are whole pages and sum up to the memory.
    ///
    /// # Errors
    /// There is no such guest: why.
    pub fn guest_nodes(
        &self,
        cpus: &CpuSet,
        (memory_mib, page_mib): (i64, i64),
    ) -> Result<Vec<GuestNode>, String> {
        let page = page_mib.max(1);
        if memory_mib <= 0 || memory_mib % page != 0 {
            return Err(format!(
                "{memory_mib} MiB of memory are not whole pages of {page} MiB"
            ));
        }
        let parts = self.numa.iter().enumerate();
        let parts = parts.map(|(host, node)| (host, node.cpus.both(cpus).len()));
        let parts: Vec<(usize, usize)> = parts.filter(|(_, count)| *count > 0).collect();
        let all: usize = parts.iter().map(|(_, count)| count).sum();
        if all == 0 || all != cpus.len() {
            return Err(format!("the CPUs {cpus} are not all in NUMA nodes"));
        }
        if parts.len() > MAX_NODES {
            return Err(format!("a VM has at most {MAX_NODES} NUMA nodes"));
        }
        let counts: Vec<usize> = parts.iter().map(|(_, count)| *count).collect();
        let shares = divide_pages(memory_mib / page, &counts);
        let mut first = 0;
        let nodes = parts.into_iter().zip(shares).map(|((host, count), pages)| {
            let node = GuestNode {
                cpus: (first, first + count - 1),
                host,
                memory_mib: pages * page,
            };
            first += count;
            node
        });
        let nodes: Vec<GuestNode> = nodes.collect();
        match nodes.iter().find(|node| node.memory_mib <= 0) {
            Some(node) => Err(format!(
                "{memory_mib} MiB of memory leave none for NUMA node {}",
                node.host
            )),
            None => Ok(nodes),
        }
    }
}

/// Pages of memory divided among NUMA nodes by the CPUs that a guest has in each. The parts are whole pages and sum up to all; where
/// pages are few some nodes get none.
pub fn divide_pages(pages: i64, cpus: &[usize]) -> Vec<i64> {
    let all: usize = cpus.iter().sum();
    let share = |count: usize| {
        let part = i128::from(pages) * (count as i128) / (all.max(1) as i128);
        i64::try_from(part).unwrap_or(0)
    };
    let mut shares: Vec<i64> = cpus.iter().map(|count| share(*count)).collect();
    let left = usize::try_from(pages - shares.iter().sum::<i64>()).unwrap_or(0);
    // What is left over, less than a page for each node, goes first to those that would have none.
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|at| shares[*at] > 0);
    for at in order.into_iter().take(left) {
        shares[at] += 1;
    }
    shares
}

/// Hosts by name, as far as their topology is known.
pub type Topologies = BTreeMap<Arc<str>, Arc<HostTopology>>;

/// What a guest's configuration keeps for it of its host's CPUs and NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pins {
    /// `affinity`; empty: it runs on any.
    #[serde(skip_serializing_if = "CpuSet::is_empty")]
    pub cpus: CpuSet,
    /// Bytes of memory by the host's NUMA nodes that `numaN` binds it to.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub memory: BTreeMap<usize, i64>,
}

impl Pins {
    /// What the keys of a guest's configuration say; `None` where that cannot be read.
    pub fn of<'a>(keys: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Pins> {
        let mut pins = Pins::default();
        for (key, value) in keys {
            if key == "affinity" && !value.trim().is_empty() {
                // PVE takes spaces around a comma, and commas at the end.
                let list: String = value.split_whitespace().collect();
                pins.cpus = CpuSet::read(list.trim_end_matches(','))?;
            } else if is_numa(key) {
                pins.bind(value)?;
            }
        }
        Some(pins)
    }

    fn bind(&mut self, value: &str) -> Option<()> {
        let parts = value.split(',').filter_map(|part| part.split_once('='));
        let part = |name: &str| {
            let mut parts = parts.clone();
            parts.find(|(key, _)| *key == name).map(|(_, text)| text)
        };
        let (hosts, memory) = (part("hostnodes"), part("memory"));
        let (Some(hosts), Some(memory)) = (hosts, memory) else {
            return Some(());
        };
        // Several are written with ';' between them.
        let hosts = CpuSet::read(&hosts.replace(';', ","))?;
        let memory = memory.parse::<i64>().ok()?.checked_mul(1 << 20)?;
        let each = memory / i64::try_from(hosts.len()).ok()?.max(1);
        for host in hosts.iter() {
            let bound = self.memory.entry(usize::from(host)).or_default();
            *bound = bound.saturating_add(each);
        }
        Some(())
    }
}

/// `numa0`, `numa7`.
pub fn is_numa(key: &str) -> bool {
    let number = key.strip_prefix("numa");
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuSet {
        CpuSet::read(text).expect("a list")
    }

    fn two_nodes() -> HostTopology {
        let numa = ["0-7", "8-15"].map(|text| NumaNode {
            cpus: cpus(text),
            memory: None,
        });
        HostTopology {
            numa: numa.into(),
            sockets: vec![cpus("0-15")],
            caches: vec![cpus("0-7"), cpus("8-15")],
            cores: (0..16).map(|cpu| CpuSet::from_iter([cpu])).collect(),
            reserved: cpus("0"),
            devices: BTreeMap::new(),
        }
    }

    #[test]
    fn memory_is_divided_exactly_in_whole_pages() {
        let host = two_nodes();
        let values = |set: &str, memory: i64, page: i64| {
            let nodes = host.guest_nodes(&cpus(set), (memory, page));
            nodes.map(|nodes| nodes.iter().map(GuestNode::value).collect::<Vec<_>>())
        };
        assert_eq!(
            values("2-5", 4096, 1).as_deref(),
            Ok(&["cpus=0-3,hostnodes=0,memory=4096,policy=bind".to_owned()][..])
        );
        let two = values("5-8", 4098, 2).expect("two nodes");
        assert_eq!(
            two,
            [
                "cpus=0-2,hostnodes=0,memory=3074,policy=bind",
                "cpus=3,hostnodes=1,memory=1024,policy=bind"
            ]
        );
        assert!(values("5-8", 4097, 2).is_err(), "no whole page");
        assert!(values("15-16", 4096, 1).is_err(), "no such CPU");
        assert!(values("7-8", 1024, 1024).is_err(), "one page for two nodes");
        let split = values("1-8", 4096, 1024).expect("seven of one node, and one");
        assert!(
            split[0].contains("memory=3072") && split[1].contains("memory=1024"),
            "{split:?}"
        );
    }

    #[test]
    fn what_guests_keep_is_read_as_pve_has_it() {
        let of = |keys: &[(&'static str, &'static str)]| Pins::of(keys.iter().copied());
        let gib = 1 << 30;
        assert_eq!(of(&[("numa", "1"), ("cores", "4")]), Some(Pins::default()));
        let pins = of(&[
            ("affinity", "0-3,8"),
            ("numa0", "cpus=0-1,hostnodes=0,memory=1024,policy=bind"),
            (
                "numa1",
                "cpus=2;3,hostnodes=0-1,memory=2048,policy=interleave",
            ),
            ("numa2", "cpus=4,memory=1024"),
        ]);
        let pins = pins.expect("it is read");
        assert_eq!(pins.cpus, cpus("0-3,8"));
        let spaced = of(&[("affinity", "0 ,2-3,")]).expect("it is read");
        assert_eq!(spaced.cpus, cpus("0,2-3"));
        assert_eq!(pins.memory, [(0, 2 * gib), (1, gib)].into());
        assert_eq!(of(&[("affinity", "x")]), None);
        assert_eq!(of(&[("numa0", "hostnodes=x,memory=1")]), None);
    }

    proptest::proptest! {
        #[test]
        fn parts_of_memory_sum_up(first in 0u16..16, count in 1u16..17, pages in 16i64..10_000, page in 1i64..3) {
            let set: CpuSet = (first..16.min(first + count)).collect();
            let nodes = two_nodes().guest_nodes(&set, (pages * page, page)).expect("nodes");
            proptest::prop_assert_eq!(nodes.iter().map(|node| node.memory_mib).sum::<i64>(), pages * page);
            proptest::prop_assert!(nodes.iter().all(|node| node.memory_mib % page == 0));
            let vcpus: usize = nodes.iter().map(|node| node.cpus.1 - node.cpus.0 + 1).sum();
            proptest::prop_assert_eq!(vcpus, set.len());
        }
    }
}
