//! The pods of a snapshot by node, in two walks over their rows and one allocation for all nodes.
//!
//! In a large cluster most of the time goes by waiting for memory: the pods of a node lie far apart. So
//! what all steps ask of every pod is put side by side here, and the pods themselves are looked at where
//! more is asked.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use model::cluster::Cluster;

use crate::constraints::shape::Keyed;
use crate::constraints::shape::NamespacedShape;
use crate::index::{BoundPodIndex, IndexVec, ListIndex, NodeIndex, RunningKindIndex};

/// What is asked of every pod that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningPod {
    /// Index of its namespace and shape in [`ByNode::kinds`].
    pub(crate) kind: RunningKindIndex,
    pub(crate) deleting: bool,
    pub(crate) mirror: bool,
}

/// Index of a node in [`ByNode`]: those of the snapshot come first, in the order of their names, then others that pods are
/// bound to. There is one for every pod, so it is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByNodeIndex(u32);

impl ByNodeIndex {
    /// The index of a node of the snapshot.
    pub(crate) fn of(node: NodeIndex) -> ByNodeIndex {
        ByNodeIndex::at(node.0)
    }
}

impl ListIndex for ByNodeIndex {
    fn at(position: usize) -> ByNodeIndex {
        ByNodeIndex(u32::try_from(position).unwrap_or(u32::MAX))
    }

    fn position(self) -> usize {
        self.0 as usize
    }
}

/// Pods by node, and those without.
#[derive(Debug, Default)]
pub(crate) struct ByNode<'a> {
    /// The index of each node, by name.
    indexes: BTreeMap<&'a str, ByNodeIndex>,
    /// Where the pods of each begin; the next one's beginning is their end.
    begins: IndexVec<ByNodeIndex, BoundPodIndex>,
    /// Node by node; those of one node in the order of their keys.
    bound: IndexVec<BoundPodIndex, Keyed<'a>>,
    /// For each pod of `bound`, the few facts that walks over all pods need; they are read here, since the pods themselves are scattered in memory.
    running: IndexVec<BoundPodIndex, RunningPod>,
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
        // By pod, in the order of rows.
        let mut places: Vec<Option<ByNodeIndex>> = Vec::with_capacity(cluster.pods.len());
        places.extend(rows.map(|row| {
            let node = row.node.as_ref().filter(|_| !row.ended);
            node.map(|node| nodes.count(node))
        }));
        // Where the next pod of each node comes.
        let mut next: IndexVec<ByNodeIndex, BoundPodIndex> =
            Vec::with_capacity(nodes.counts.len() + 1).into();
        let mut end = BoundPodIndex(0);
        for count in &nodes.counts {
            next.push(end);
            end.0 += count;
        }
        let mut begins = next.clone();
        begins.push(end);
        let mut by_node = ByNode {
            indexes: nodes.known,
            begins,
            ..ByNode::default()
        };
        by_node.sort(cluster, &places, next);
        by_node
    }

    fn sort(
        &mut self,
        cluster: &'a Cluster,
        places: &[Option<ByNodeIndex>],
        mut next: IndexVec<ByNodeIndex, BoundPodIndex>,
    ) {
        let end = self.begins.last().copied().unwrap_or_default();
        let mut places = places.iter();
        for (rows, pods) in cluster.pods.rows() {
            let first = self.kinds.len();
            self.kinds
                .extend(rows.kinds().iter().map(|kind| NamespacedShape {
                    namespace: &kind.namespace,
                    shape: &kind.shape,
                }));
            for ((row, pod), place) in rows.all().iter().zip(pods).zip(&mut places) {
                if row.node.is_none() {
                    self.unbound.push(pod);
                }
                let Some(node) = place else {
                    continue;
                };
                let running = RunningPod {
                    kind: RunningKindIndex(first + row.kind),
                    deleting: row.deleting,
                    mirror: row.mirror,
                };
                if self.bound.is_empty() {
                    self.bound = vec![pod; end.0].into();
                    self.running = vec![running; end.0].into();
                }
                let next = &mut next[*node];
                self.bound[*next] = pod;
                self.running[*next] = running;
                next.0 += 1;
            }
        }
    }

    /// The index of a node, if it is in the snapshot or pods are bound to it.
    pub(crate) fn index(&self, node: &str) -> Option<ByNodeIndex> {
        self.indexes.get(node).copied()
    }

    /// The pods of a node.
    pub(crate) fn on(&self, node: ByNodeIndex) -> &[Keyed<'a>] {
        self.bound.slice(self.range(node))
    }

    /// The pods of a node, with what is asked of every one.
    pub(crate) fn running(&self, node: ByNodeIndex) -> &[RunningPod] {
        self.running.slice(self.range(node))
    }

    /// Where the pods of a node are.
    fn range(&self, node: ByNodeIndex) -> Range<BoundPodIndex> {
        self.begins[node]..self.begins[ByNodeIndex(node.0 + 1)]
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

/// Names of nodes as indexes.
struct Nodes<'a> {
    known: BTreeMap<&'a str, ByNodeIndex>,
    /// Pods of each.
    counts: IndexVec<ByNodeIndex, usize>,
    /// Indexes by address: equal names are mostly one allocation, and comparing addresses is cheap. Only
    /// ever looked up, never walked: addresses decide nothing.
    seen: Vec<(usize, ByNodeIndex)>,
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
            known: names.zip((0..).map(ByNodeIndex)).collect(),
            counts: vec![0; cluster.nodes.len()].into(),
            seen: vec![(0, ByNodeIndex(0)); slots + PROBES],
        }
    }

    /// Counts a pod of a node; gives the node's index.
    fn count(&mut self, name: &'a Arc<str>) -> ByNodeIndex {
        // No name lies at the address 0, with which the table begins.
        let address = name.as_ptr().addr();
        let slots = self.seen.len() - PROBES;
        let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = usize::try_from(mixed >> u32::BITS).unwrap_or(0) & (slots - 1);
        let mut probed = self.seen[slot..slot + PROBES].iter();
        let index = match probed.position(|(seen, _)| *seen == address || *seen == 0) {
            Some(probe) if self.seen[slot + probe].0 == address => self.seen[slot + probe].1,
            free => {
                let index = self.index(name);
                self.seen[slot + free.unwrap_or(0)] = (address, index);
                index
            }
        };
        self.counts[index] += 1;
        index
    }

    fn index(&mut self, name: &'a str) -> ByNodeIndex {
        let next = self.counts.next_index();
        let index = *self.known.entry(name).or_insert(next);
        if index == next {
            self.counts.push(0);
        }
        index
    }
}
