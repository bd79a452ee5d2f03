//! Which CPUs of a host a machine gets for itself: packed as the kubelet's static CPU manager packs containers
//! (`pkg/kubelet/cm/cpumanager/cpu_assignment.go`, with uncore caches preferred), with its memory beside them.
//!
//! One NUMA node where it fits, one that its PCI devices are in before others, that with the fewest CPUs left; else the fewest nodes, of one socket if that needs no more. In a node
//! one last-level cache, else whole caches before parts of them; everywhere whole cores before threads of cores, and of
//! cores those whose other thread is taken first. Of what is alike the lowest number.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::cpus::CpuSet;
use model::topology::{HostTopology, MAX_NODES, divide_pages};

use crate::index::{IndexVec, NumaIndex, SocketIndex, indexes_in};

/// What one machine takes of a host's CPUs and NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CpuDemand {
    /// CPUs.
    pub(crate) cpus: u32,
    /// Bytes of memory.
    pub(crate) memory: i64,
    /// The unit in which memory is divided, in MiB.
    pub(crate) page_mib: i64,
    /// The NUMA nodes that its PCI devices are in, one bit each: it is there if it fits there.
    pub(crate) near: u64,
    /// How many NUMA nodes, from the first on, have an equal part each of a machine's huge pages. 0 where the machine has CPUs for itself:
    /// its memory is beside these.
    pub(crate) page_nodes: u32,
}

impl CpuDemand {
    /// Whether its PCI devices are elsewhere.
    fn is_far(self, node: NumaIndex) -> bool {
        let bit = u32::try_from(node.0)
            .ok()
            .and_then(|node| 1u64.checked_shl(node));
        self.near != 0 && self.near & bit.unwrap_or(0) == 0
    }

    /// Whether its memory is whole pages, of which each of these NUMA nodes gets one at least: PVE takes no node without memory.
    fn is_divisible(self, parts: &NumaCpus) -> bool {
        let (memory_mib, page) = (self.memory >> 20, self.page_mib.max(1));
        let counts: Vec<usize> = parts.iter().map(|(_, count)| *count).collect();
        let shares = divide_pages(memory_mib / page, &counts);
        memory_mib % page == 0 && shares.iter().all(|pages| *pages > 0)
    }

    /// Bytes that so many of its CPUs have beside them, at most; without CPUs, what each of its NUMA nodes has.
    fn share(self, cpus: usize) -> i64 {
        if self.page_nodes > 0 {
            return self.memory / i64::from(self.page_nodes);
        }
        let page = i128::from(self.page_mib.max(1)) << 20;
        let all = i128::from(self.cpus.max(1));
        let pages = (i128::from(self.memory) * cpus as i128 + all * page - 1) / (all * page);
        i64::try_from(pages * page).unwrap_or(i64::MAX)
    }
}

/// What is free of a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct NodeRoom {
    socket: SocketIndex,
    cpus: usize,
    /// Bytes, where that is counted.
    memory: Option<i64>,
    /// The wanted CPUs of the node are not of whole cores.
    broken: bool,
}

/// How many CPUs of which NUMA nodes.
pub(crate) type NumaCpus = Vec<(NumaIndex, usize)>;

/// How many CPUs of its NUMA nodes a host has free, and how much memory: enough to know whether a machine fits.
#[derive(Clone, Debug, Hash)]
pub(crate) struct CpuCounts(IndexVec<NumaIndex, NodeRoom>);

impl CpuCounts {
    /// How many CPUs are free.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|node| node.cpus).sum()
    }

    /// Bytes that are left of each NUMA node, where that is counted.
    pub(crate) fn memory(&self) -> Vec<Option<i64>> {
        self.0.iter().map(|node| node.memory).collect()
    }

    /// The NUMA nodes that one more machine is in; `None` where it fits nowhere.
    pub(crate) fn place(&self, demand: CpuDemand) -> Option<NumaCpus> {
        if demand.page_nodes > 0 {
            return self.first_nodes(demand);
        }
        let wanted = demand.cpus as usize;
        if wanted == 0 || self.count() < wanted {
            return None;
        }
        let nodes = self.0.indexed();
        let one = nodes.filter(|(_, node)| node.holds(demand, wanted));
        let one = one.min_by_key(|(at, node)| (demand.is_far(*at), node.broken, node.cpus, *at));
        let parts = match one {
            Some((at, _)) => Some(vec![(at, wanted)]),
            None => self.several(demand),
        };
        parts.filter(|parts| demand.is_divisible(parts))
    }

    /// The NUMA nodes that PVE takes huge pages from for a machine without CPUs of its own; `None` where they are not there, or have too
    /// little memory.
    fn first_nodes(&self, demand: CpuDemand) -> Option<NumaCpus> {
        let mut nodes = (0..demand.page_nodes as usize).map(NumaIndex);
        nodes.try_fold(NumaCpus::new(), |mut parts, at| {
            let node = self.0.get(at)?;
            parts.push((at, 0));
            node.holds(demand, 0).then_some(parts)
        })
    }

    /// Several NUMA nodes: of one socket where that takes no more of them.
    fn several(&self, demand: CpuDemand) -> Option<NumaCpus> {
        let all = || self.0.indexes().filter(|at| self.0[*at].cpus > 0);
        let last = self.0.iter().map(|node| node.socket).max();
        let sockets = indexes_in(SocketIndex(0)..SocketIndex(last.unwrap_or_default().0 + 1));
        let of_socket = |socket| all().filter(move |at| self.0[*at].socket == socket);
        let groups = sockets.map(|socket| of_socket(socket).collect::<Vec<NumaIndex>>());
        let groups = groups.chain([all().collect()]);
        let placed = groups.filter_map(|group| self.of_group(demand, group));
        // The first of those that are alike.
        placed.min_by_key(Vec::len)
    }

    /// The fewest of these NUMA nodes: all CPUs of each but one, which is the smallest that holds the rest.
    fn of_group(&self, demand: CpuDemand, mut group: Vec<NumaIndex>) -> Option<NumaCpus> {
        group.sort_by_key(|at| (std::cmp::Reverse(self.0[*at].cpus), *at));
        let (mut parts, mut left) = (NumaCpus::new(), demand.cpus as usize);
        while left > 0 {
            if parts.len() == MAX_NODES {
                return None;
            }
            let last = group.iter().filter(|at| self.0[**at].holds(demand, left));
            let last = last.min_by_key(|at| (self.0[**at].cpus, **at));
            if let Some(at) = last {
                parts.push((*at, left));
                return Some(parts);
            }
            let whole = group.iter().position(|at| {
                let node = &self.0[*at];
                node.cpus <= left && node.holds(demand, node.cpus)
            });
            let at = group.remove(whole?);
            parts.push((at, self.0[at].cpus));
            left -= self.0[at].cpus;
        }
        None
    }

    /// Takes what [`CpuCounts::place`] said.
    pub(crate) fn take(&mut self, demand: CpuDemand, parts: &NumaCpus) {
        self.change(demand, parts, usize::saturating_sub, 1);
    }

    /// Gives that back.
    pub(crate) fn give(&mut self, demand: CpuDemand, parts: &NumaCpus) {
        self.change(demand, parts, usize::saturating_add, -1);
    }

    fn change(
        &mut self,
        demand: CpuDemand,
        parts: &NumaCpus,
        cpus: fn(usize, usize) -> usize,
        times: i64,
    ) {
        for (at, part) in parts {
            let node = &mut self.0[*at];
            node.cpus = cpus(node.cpus, *part);
            let share = demand.share(*part).saturating_mul(times);
            node.memory = node.memory.map(|left| left.saturating_sub(share));
        }
    }
}

impl NodeRoom {
    /// Whether it has so many CPUs, and the memory beside them.
    fn holds(&self, demand: CpuDemand, cpus: usize) -> bool {
        let enough = |left: i64| left >= demand.share(cpus);
        self.cpus >= cpus && self.memory.is_none_or(enough)
    }
}

/// What is free on a host for machines alone.
#[derive(Clone, Debug)]
pub(crate) struct FreeCpus {
    topology: Arc<HostTopology>,
    usable: CpuSet,
    free: CpuSet,
    /// Bytes that are left of NUMA nodes, where that is counted.
    memory: BTreeMap<NumaIndex, i64>,
}

impl FreeCpus {
    /// All that a host has.
    pub(crate) fn of(topology: &Arc<HostTopology>) -> FreeCpus {
        let nodes = topology.numa.iter().enumerate();
        let usable = topology.usable();
        FreeCpus {
            free: usable.clone(),
            usable,
            memory: nodes
                .filter_map(|(at, node)| Some((NumaIndex(at), node.memory?)))
                .collect(),
            topology: topology.clone(),
        }
    }

    /// What the host's CPUs are to each other.
    pub(crate) fn topology(&self) -> &HostTopology {
        &self.topology
    }

    /// The CPUs that are free.
    pub(crate) fn free(&self) -> &CpuSet {
        &self.free
    }

    /// How many are free where.
    pub(crate) fn counts(&self) -> CpuCounts {
        let nodes = self.topology.numa.iter().enumerate();
        let nodes = nodes.map(|(at, node)| {
            let mut sockets = self.topology.sockets.iter();
            NodeRoom {
                socket: sockets
                    .position(|socket| node.cpus.within(socket))
                    .map_or(SocketIndex(0), SocketIndex),
                cpus: node.cpus.both(&self.free).len(),
                memory: self.memory.get(&NumaIndex(at)).copied(),
                broken: false,
            }
        });
        CpuCounts(nodes.collect())
    }

    /// These CPUs are taken.
    pub(crate) fn take(&mut self, cpus: &CpuSet) {
        self.free = self.free.without(cpus);
    }

    /// Takes memory of a NUMA node.
    pub(crate) fn take_memory(&mut self, node: NumaIndex, bytes: i64) {
        if let Some(left) = self.memory.get_mut(&node) {
            *left = left.saturating_sub(bytes);
        }
    }

    /// A machine takes these CPUs and its memory beside them; without CPUs, its huge pages.
    pub(crate) fn take_all(&mut self, demand: CpuDemand, cpus: &CpuSet) {
        self.take(cpus);
        if cpus.is_empty() {
            for node in 0..demand.page_nodes as usize {
                self.take_memory(NumaIndex(node), demand.share(0));
            }
            return;
        }
        let memory = (demand.memory >> 20, demand.page_mib);
        let nodes = self.topology.guest_nodes(cpus, memory);
        for node in nodes.unwrap_or_default() {
            let bytes = node.memory_mib.saturating_mul(1 << 20);
            self.take_memory(NumaIndex(node.host), bytes);
        }
    }

    /// The CPUs that one more machine gets; `None` where none are left for it, or no memory beside them.
    pub(crate) fn place(&self, demand: CpuDemand) -> Option<CpuSet> {
        let wanted = demand.cpus as usize;
        let free_of = |at: NumaIndex| self.topology.numa[at.0].cpus.both(&self.free);
        let mut counts = self.counts();
        for at in counts.0.indexes() {
            let node = &mut counts.0[at];
            node.broken = node.cpus >= wanted && !self.whole(&free_of(at), wanted);
        }
        let parts = counts.place(demand)?;
        let sets = parts.into_iter();
        let sets = sets.map(|(at, count)| self.pack(&free_of(at), count));
        let set = sets.fold(CpuSet::new(), |all, set| all.with(&set));
        // Too few pages for so many NUMA nodes: PVE takes no node without memory.
        let memory = (demand.memory >> 20, demand.page_mib);
        self.topology
            .guest_nodes(&set, memory)
            .is_ok()
            .then_some(set)
    }

    /// CPUs of these, which are at least as many as wanted: of one cache, else whole caches and the rest.
    fn pack(&self, free: &CpuSet, wanted: usize) -> CpuSet {
        let (mut taken, mut free, mut left) = (CpuSet::new(), free.clone(), wanted);
        while left > 0 {
            let caches = self.topology.caches.iter();
            let parts = caches.map(|cache| (cache, cache.both(&free)));
            let parts: Vec<(&CpuSet, CpuSet)> =
                parts.filter(|(_, part)| !part.is_empty()).collect();
            let one = parts.iter().filter(|(_, part)| self.whole(part, left));
            if let Some((_, part)) = one.min_by_key(|(_, part)| part.len()) {
                return taken.with(&self.cores(part, left).0);
            }
            let unused = |cache: &CpuSet, part: &CpuSet| cache.both(&self.usable) == *part;
            let whole = parts.iter().filter(|(cache, part)| {
                let cores = self.cores(part, part.len()).1 == 0;
                part.len() <= left && unused(cache, part) && cores
            });
            let largest = whole.min_by_key(|(_, part)| std::cmp::Reverse(part.len()));
            let Some((_, part)) = largest else {
                break;
            };
            taken = taken.with(part);
            free = free.without(part);
            left -= part.len();
        }
        taken.with(&self.cores(&free, left).0)
    }

    /// Whether so many of these CPUs can be had as whole cores, but for what is less than one.
    fn whole(&self, free: &CpuSet, wanted: usize) -> bool {
        let widest = self.topology.cores.iter().map(CpuSet::len).max();
        let rest = wanted % widest.unwrap_or(1).max(1);
        free.len() >= wanted && self.cores(free, wanted).1 <= rest
    }

    /// Picks `wanted` of the free CPUs, whole cores first, and says how many of them are not of whole cores.
    fn cores(&self, free: &CpuSet, wanted: usize) -> (CpuSet, usize) {
        let (mut taken, mut left) = (CpuSet::new(), wanted);
        for core in &self.topology.cores {
            if core.len() <= left && core.within(free) {
                taken = taken.with(core);
                left -= core.len();
            }
        }
        let threads = left;
        let cores = self.topology.cores.iter();
        let parts = cores.map(|core| core.both(free).without(&taken));
        let mut parts: Vec<CpuSet> = parts.filter(|part| !part.is_empty()).collect();
        // Cores of which less is free first: whole ones stay whole.
        parts.sort_by_key(CpuSet::len);
        let rest: CpuSet = parts
            .iter()
            .flat_map(|part| part.iter().collect::<Vec<u16>>())
            .take(left)
            .collect();
        (taken.with(&rest), threads)
    }
}
