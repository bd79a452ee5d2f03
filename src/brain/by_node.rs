//! The pods of a snapshot by node, in two walks over them and one allocation for all nodes.
//!
//! In a large cluster most of the time goes by waiting for memory: the pods of a node lie far apart. So
//! what all steps ask of every pod is put side by side here, and the pods themselves are looked at where
//! more is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::cluster::Cluster;
use crate::model::scheduling::PodShape;

use super::view::Keyed;

/// How many addresses of node names are remembered: two to the power of this.
const SEEN_BITS: u32 = 14;

/// What is asked of every pod that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running<'a> {
    pub(super) namespace: &'a str,
    pub(super) shape: &'a PodShape,
    pub(super) deleting: bool,
    pub(super) mirror: bool,
}

/// Pods by node, and those without.
#[derive(Debug, Default)]
pub(super) struct ByNode<'a> {
    /// Node by node; those of one node in the order of their keys.
    bound: Vec<Keyed<'a>>,
    /// The same pods at the same positions.
    running: Vec<Running<'a>>,
    /// Where each node's pods begin and end.
    ranges: BTreeMap<&'a str, (usize, usize)>,
    /// Not bound, in the order of their keys.
    pub(super) unbound: Vec<Keyed<'a>>,
}

impl<'a> ByNode<'a> {
    /// Sorts the pods of a cluster; those that are bound and have ended are left out.
    pub(super) fn of(cluster: &'a Cluster) -> ByNode<'a> {
        let mut nodes = Nodes::new();
        let numbers: Vec<Option<u32>> = cluster
            .pods
            .values()
            .map(|pod| {
                let node = pod.node.as_ref().filter(|_| !pod.phase.terminal());
                node.and_then(|node| nodes.count(node))
            })
            .collect();
        // Where the next pod of each node comes.
        let mut next = Vec::with_capacity(nodes.counts.len());
        let mut end = 0;
        for count in &nodes.counts {
            next.push(end);
            end += count;
        }
        let known = nodes.known.into_iter();
        let ranges = known
            .map(|(name, number)| {
                let node = number as usize;
                (name, (next[node], next[node] + nodes.counts[node]))
            })
            .collect();
        let mut by_node = ByNode {
            bound: Vec::new(),
            running: Vec::new(),
            ranges,
            unbound: Vec::new(),
        };
        for ((key, pod), number) in cluster.pods.iter().zip(numbers) {
            if pod.node.is_none() {
                by_node.unbound.push((key, pod));
            }
            let Some(number) = number else {
                continue;
            };
            let running = Running {
                namespace: &key.namespace,
                shape: &pod.shape,
                deleting: pod.deletion.is_some(),
                mirror: pod.mirror,
            };
            if by_node.bound.is_empty() {
                by_node.bound = vec![(key, pod); end];
                by_node.running = vec![running; end];
            }
            let at = next[number as usize];
            by_node.bound[at] = (key, pod);
            by_node.running[at] = running;
            next[number as usize] += 1;
        }
        by_node
    }

    /// The pods of a node.
    pub(super) fn on(&self, node: &str) -> &[Keyed<'a>] {
        let range = self.ranges.get(node);
        range.map_or(&[], |(begin, end)| &self.bound[*begin..*end])
    }

    /// The pods of a node, with what is asked of every one.
    pub(super) fn running(&self, node: &str) -> &[Running<'a>] {
        let range = self.ranges.get(node);
        range.map_or(&[], |(begin, end)| &self.running[*begin..*end])
    }

    /// All that run.
    pub(super) fn all(&self) -> &[Running<'a>] {
        &self.running
    }
}

/// Names of nodes as numbers.
struct Nodes<'a> {
    known: BTreeMap<&'a str, u32>,
    /// Pods of each.
    counts: Vec<usize>,
    /// Numbers by address: equal names are mostly one allocation, and comparing addresses is cheap. Only
    /// ever looked up, never walked: addresses decide nothing.
    seen: Vec<(usize, u32)>,
}

impl<'a> Nodes<'a> {
    fn new() -> Nodes<'a> {
        Nodes {
            known: BTreeMap::new(),
            counts: Vec::new(),
            seen: vec![(0, 0); 1 << SEEN_BITS],
        }
    }

    /// Counts a pod of a node; gives the node's number, of which there are enough.
    fn count(&mut self, name: &'a Arc<str>) -> Option<u32> {
        // No name lies at the address 0, with which the table begins.
        let address = name.as_ptr().addr();
        let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = usize::try_from(mixed >> (u64::BITS - SEEN_BITS)).unwrap_or(0);
        let number = match self.seen[slot] {
            (seen, number) if seen == address => number,
            _ => {
                let next = u32::try_from(self.counts.len()).ok()?;
                let number = *self.known.entry(name).or_insert(next);
                if number == next {
                    self.counts.push(0);
                }
                self.seen[slot] = (address, number);
                number
            }
        };
        self.counts[number as usize] += 1;
        Some(number)
    }
}
