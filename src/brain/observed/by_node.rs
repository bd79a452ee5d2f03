//! The pods of a snapshot by node, in two walks over their rows and one allocation for all nodes.
//!
//! In a large cluster most of the time goes by waiting for memory: the pods of a node lie far apart. So
//! what all steps ask of every pod is put side by side here, and the pods themselves are looked at where
//! more is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::cluster::Cluster;

use crate::constraints::shape::Keyed;
use crate::constraints::shape::NamespacedShape;
use crate::index::{IndexVec, RunningKindIndex};

/// What is asked of every pod that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningPod {
    /// Index of its namespace and shape in [`ByNode::kinds`].
    pub(crate) kind: RunningKindIndex,
    pub(crate) deleting: bool,
    pub(crate) mirror: bool,
}

/// Pods by node, and those without.
#[derive(Debug, Default)]
pub(crate) struct ByNode<'a> {
    /// The number of each node: those of the snapshot in the order of their names, then others that pods
    /// are bound to.
    numbers: BTreeMap<&'a str, usize>,
    /// Where the pods of each begin; the next one's beginning is their end.
    begins: Vec<usize>,
    /// Node by node; those of one node in the order of their keys.
    bound: Vec<Keyed<'a>>,
    /// What is asked of every pod of `bound`, at that pod's position there: walks over all pods read this and not the pods.
    running: Vec<RunningPod>,
    /// Namespaces and shapes; one may be there more than once.
    pub(crate) kinds: IndexVec<RunningKindIndex, NamespacedShape<'a>>,
    /// Not bound, in the order of their keys.
    pub(crate) unbound: Vec<Keyed<'a>>,
}

impl<'a> ByNode<'a> {
    /// Sorts the pods of a cluster; those that are bound and have ended are left out.
    pub(crate) fn of(cluster: &'a Cluster) -> ByNode<'a> {
        let mut nodes = Nodes::of(cluster);
        let rows = cluster.pods.rows().flat_map(|(rows, _)| rows.all());
        let mut numbers: Vec<Option<u32>> = Vec::with_capacity(cluster.pods.len());
        numbers.extend(rows.map(|row| {
            let node = row.node.as_ref().filter(|_| !row.ended);
            node.and_then(|node| nodes.count(node))
        }));
        // Where the next pod of each node comes.
        let mut next = Vec::with_capacity(nodes.counts.len() + 1);
        let mut end = 0;
        for count in &nodes.counts {
            next.push(end);
            end += count;
        }
        let mut begins = next.clone();
        begins.push(end);
        let mut by_node = ByNode {
            numbers: nodes.known,
            begins,
            ..ByNode::default()
        };
        by_node.sort(cluster, &numbers, next);
        by_node
    }

    fn sort(&mut self, cluster: &'a Cluster, numbers: &[Option<u32>], mut next: Vec<usize>) {
        let end = self.begins.last().copied().unwrap_or(0);
        let mut numbers = numbers.iter();
        for (rows, pods) in cluster.pods.rows() {
            let first = self.kinds.len();
            self.kinds
                .extend(rows.kinds().iter().map(|kind| NamespacedShape {
                    namespace: &kind.namespace,
                    shape: &kind.shape,
                }));
            for ((row, pod), number) in rows.all().iter().zip(pods).zip(&mut numbers) {
                if row.node.is_none() {
                    self.unbound.push(pod);
                }
                let Some(number) = number else {
                    continue;
                };
                let running = RunningPod {
                    kind: RunningKindIndex(first + row.kind),
                    deleting: row.deleting,
                    mirror: row.mirror,
                };
                if self.bound.is_empty() {
                    self.bound = vec![pod; end];
                    self.running = vec![running; end];
                }
                let next = &mut next[*number as usize];
                self.bound[*next] = pod;
                self.running[*next] = running;
                *next += 1;
            }
        }
    }

    /// The number of a node.
    pub(crate) fn number(&self, node: &str) -> Option<usize> {
        self.numbers.get(node).copied()
    }

    /// The pods of a node by its number.
    pub(crate) fn on(&self, number: usize) -> &[Keyed<'a>] {
        &self.bound[self.begins[number]..self.begins[number + 1]]
    }

    /// The pods of a node by its number, with what is asked of every one.
    pub(crate) fn running(&self, number: usize) -> &[RunningPod] {
        &self.running[self.begins[number]..self.begins[number + 1]]
    }

    /// The kinds of which pods run that are not being deleted.
    pub(crate) fn alive(&self) -> impl Iterator<Item = NamespacedShape<'a>> {
        let mut alive = self.kinds.with_each(false);
        for pod in &self.running {
            alive[pod.kind] |= !pod.deleting;
        }
        let kinds = self.kinds.iter().copied().zip(alive);
        kinds.filter(|(_, lives)| *lives).map(|(kind, _)| kind)
    }
}

/// Names of nodes as numbers.
struct Nodes<'a> {
    known: BTreeMap<&'a str, usize>,
    /// Pods of each.
    counts: Vec<usize>,
    /// Numbers by address: equal names are mostly one allocation, and comparing addresses is cheap. Only
    /// ever looked up, never walked: addresses decide nothing.
    seen: Vec<(usize, u32)>,
}

/// Slots for each node among the addresses, so that few share one.
const SLOTS: usize = 4;
/// An address is looked for in so many slots from its own on; where all are taken, its name is looked up.
const PROBES: usize = 4;

impl<'a> Nodes<'a> {
    /// The nodes of a cluster, without pods.
    fn of(cluster: &'a Cluster) -> Nodes<'a> {
        let names = cluster.nodes.keys().map(|name| &**name);
        let slots = (cluster.nodes.len().max(1) * SLOTS).next_power_of_two();
        Nodes {
            known: names.zip(0..).collect(),
            counts: vec![0; cluster.nodes.len()],
            seen: vec![(0, 0); slots + PROBES],
        }
    }

    /// Counts a pod of a node; gives the node's number, of which there are enough.
    fn count(&mut self, name: &'a Arc<str>) -> Option<u32> {
        // No name lies at the address 0, with which the table begins.
        let address = name.as_ptr().addr();
        let slots = self.seen.len() - PROBES;
        let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = usize::try_from(mixed >> u32::BITS).unwrap_or(0) & (slots - 1);
        let mut probed = self.seen[slot..slot + PROBES].iter();
        let number = match probed.position(|(seen, _)| *seen == address || *seen == 0) {
            Some(probe) if self.seen[slot + probe].0 == address => self.seen[slot + probe].1,
            free => {
                let number = self.number(name)?;
                self.seen[slot + free.unwrap_or(0)] = (address, number);
                number
            }
        };
        self.counts[number as usize] += 1;
        Some(number)
    }

    fn number(&mut self, name: &'a str) -> Option<u32> {
        let next = self.counts.len();
        let number = *self.known.entry(name).or_insert(next);
        if number == next {
            self.counts.push(0);
        }
        u32::try_from(number).ok()
    }
}
