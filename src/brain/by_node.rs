//! The pods of a snapshot by node, in two walks over them and one allocation for all nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::cluster::Cluster;

use super::view::Keyed;

/// How many addresses of node names are remembered: two to the power of this.
const SEEN_BITS: u32 = 14;

/// Pods by node, and those without.
#[derive(Debug, Default)]
pub(super) struct ByNode<'a> {
    /// Node by node; those of one node in the order of their keys.
    bound: Vec<Keyed<'a>>,
    /// Where each node's pods begin and end.
    ranges: BTreeMap<&'a str, (usize, usize)>,
    /// Not bound, in the order of their keys.
    pub(super) unbound: Vec<Keyed<'a>>,
}

impl<'a> ByNode<'a> {
    /// Sorts the pods of a cluster; those that are bound and have ended are left out.
    pub(super) fn of(cluster: &'a Cluster) -> ByNode<'a> {
        let mut nodes = Nodes::new();
        let mut unbound = Vec::new();
        let mut bound = Vec::with_capacity(cluster.pods.len());
        for (key, pod) in &cluster.pods {
            match &pod.node {
                None => unbound.push((key, pod)),
                Some(_) if pod.phase.terminal() => {}
                Some(node) => bound.push((nodes.count(node), (key, pod))),
            }
        }
        let Nodes { known, counts, .. } = nodes;
        // Where the next pod of each node comes.
        let mut next = Vec::with_capacity(counts.len());
        let mut end = 0;
        for count in &counts {
            next.push(end);
            end += count;
        }
        let ranges = known
            .into_iter()
            .map(|(name, node)| (name, (next[node], next[node] + counts[node])))
            .collect();
        let mut sorted = match bound.first() {
            Some((_, pod)) => vec![*pod; bound.len()],
            None => Vec::new(),
        };
        for (node, pod) in bound {
            sorted[next[node]] = pod;
            next[node] += 1;
        }
        ByNode {
            bound: sorted,
            ranges,
            unbound,
        }
    }

    /// The pods of a node.
    pub(super) fn on(&self, node: &str) -> &[Keyed<'a>] {
        let range = self.ranges.get(node);
        range.map_or(&[], |(begin, end)| &self.bound[*begin..*end])
    }

    /// All that are bound.
    pub(super) fn bound(&self) -> &[Keyed<'a>] {
        &self.bound
    }
}

/// Names of nodes as numbers.
struct Nodes<'a> {
    known: BTreeMap<&'a str, usize>,
    /// Pods of each.
    counts: Vec<usize>,
    /// Numbers by address: equal names are mostly one allocation, and comparing addresses is cheap. Only
    /// ever looked up, never walked: addresses decide nothing.
    seen: Vec<(usize, usize)>,
}

impl<'a> Nodes<'a> {
    fn new() -> Nodes<'a> {
        Nodes {
            known: BTreeMap::new(),
            counts: Vec::new(),
            seen: vec![(0, 0); 1 << SEEN_BITS],
        }
    }

    /// Counts a pod of a node; gives the node's number.
    fn count(&mut self, name: &'a Arc<str>) -> usize {
        // No name lies at the address 0, with which the table begins.
        let address = name.as_ptr().addr();
        let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = usize::try_from(mixed >> (u64::BITS - SEEN_BITS)).unwrap_or(0);
        let number = match self.seen[slot] {
            (seen, number) if seen == address => number,
            _ => {
                let next = self.counts.len();
                let number = *self.known.entry(name).or_insert(next);
                if number == next {
                    self.counts.push(0);
                }
                self.seen[slot] = (address, number);
                number
            }
        };
        self.counts[number] += 1;
        number
    }
}
