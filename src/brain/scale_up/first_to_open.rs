//! Which new nodes take pods after which others.
//!
//! kube-scheduler puts a pod on any node that takes pods and has room for it. Where other pods must run on that pod's node
//! (required pod affinity within `kubernetes.io/hostname`), a target that comes to a node with room for it alone keeps its
//! followers waiting for good: nothing may move it. A nomination does not prevent that, since the node that it names must be
//! there. So a node that has such room takes pods after the nodes that targets are booked on.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::cluster::Pod;
use model::resources::Resources;
use model::scheduling::{HOSTNAME_LABEL, PodShape, PodTerm};

use crate::constraints::shape::NamespacedShape;
use crate::decision::turn::DecisionBuilder;
use crate::index::{NodeIndex, ShapeId};
use crate::simulation::inter_pod::takes_in;
use crate::simulation::work;
use crate::simulation::world::{NodeOrigin, SimCluster};

/// Entries of the report at most. Those left out take pods as soon as they can.
const MAX_ENTRIES: usize = 10_000;

/// A target that is booked on a node which takes no pods yet.
struct BookedTarget {
    node: NodeIndex,
    shape: ShapeId,
    /// What it and its followers request together.
    asks: Resources,
}

/// Notes in the report, for each node that is on its way up, after which others it takes pods. Only where pods are nominated:
/// else nothing brings a target to the node that it is booked on.
pub(crate) fn order<'a>(turn: &mut DecisionBuilder<'a>, world: &mut SimCluster<'a>) {
    let follows = |pod: &NamespacedShape<'_>| terms(pod.shape).next().is_some();
    let ordered = turn.view.nominates() && world.shapes.iter().any(follows);
    if !ordered || turn.memory.bookings.is_empty() {
        return;
    }
    let targets = targets(turn, world);
    let coming: Vec<NodeIndex> = world
        .nodes
        .indexes()
        .filter(|node| is_coming(world, *node))
        .collect();
    let mut entries = 0;
    for node in coming {
        if targets.is_empty() || entries >= MAX_ENTRIES || work::used_up(turn, world, 0) {
            return;
        }
        let mut after: Vec<Arc<str>> = Vec::new();
        let mut left = world.nodes[node].free.clone();
        let mut all_fit = true;
        for target in targets.iter().filter(|target| target.node != node) {
            world.inter_pod.work(1);
            if !goes_to(world, target.shape, node) {
                continue;
            }
            after.push(world.nodes[target.node].name.clone());
            all_fit &= target.asks.fits(&left);
            left.subtract(&target.asks);
        }
        if !all_fit {
            after.sort();
            after.dedup();
            entries += after.len();
            let name = world.nodes[node].name.clone();
            turn.report.takes_pods_after.insert(name, after);
        }
    }
}

/// Whether a node takes no pods yet.
fn is_coming(world: &SimCluster<'_>, node: NodeIndex) -> bool {
    let node = &world.nodes[node];
    !node.closed && node.origin != NodeOrigin::Node
}

/// Whether kube-scheduler could put a pod of this shape on the node, beside the pods that are booked there.
fn goes_to(world: &mut SimCluster<'_>, shape: ShapeId, node: NodeIndex) -> bool {
    if world.nodes[node].room(world.shapes[shape].shape) == 0 {
        return false;
    }
    world.prepare(shape);
    world.admits(shape, node)
}

/// The targets that wait with their followers for a node that takes no pods yet, in the order of the nodes' names and of shapes.
fn targets<'a>(turn: &DecisionBuilder<'a>, world: &mut SimCluster<'a>) -> Vec<BookedTarget> {
    let booked = booked(turn, world);
    let namespaces = &turn.view.snapshot.cluster.namespaces;
    let mut targets = Vec::new();
    for (node, shapes) in &booked {
        let pod = |id: ShapeId| world.shapes[id];
        let followers: Vec<ShapeId> = shapes
            .keys()
            .copied()
            .filter(|id| terms(pod(*id).shape).next().is_some())
            .collect();
        world.inter_pod.work(followers.len() * shapes.len());
        for (id, count) in shapes {
            let target = pod(*id);
            // A pod comes to no node before its own target, unless it is its own.
            let comes_first = terms(target.shape)
                .all(|term| takes_in(namespaces, term, target.namespace, target));
            if !comes_first {
                continue;
            }
            let mut asks = target.shape.requests.clone();
            let mut followed = false;
            for follower in &followers {
                let of = pod(*follower);
                let follows =
                    terms(of.shape).any(|term| takes_in(namespaces, term, of.namespace, target));
                // One of a kind whose pods follow one another is the target of the others.
                let others = shapes[follower] - u64::from(follower == id);
                if follows && others > 0 {
                    followed = true;
                    add(&mut asks, &of.shape.requests, others);
                }
            }
            if followed {
                let copies = if followers.contains(id) { 1 } else { *count };
                targets.extend((0..copies).map(|_| BookedTarget {
                    node: *node,
                    shape: *id,
                    asks: asks.clone(),
                }));
            }
        }
        if work::used_up(turn, world, 0) {
            break;
        }
    }
    targets
}

/// The pods that wait for nodes which take none yet: how many of each shape, by node. Only of nodes with a pod that must run on
/// another one's.
fn booked<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
) -> BTreeMap<NodeIndex, BTreeMap<ShapeId, u64>> {
    let mut nodes: BTreeMap<&Arc<str>, NodeIndex> = BTreeMap::new();
    for (name, pods) in &turn.memory.bookings {
        let node = world.by_name.get(name).copied();
        if let Some(node) = node.filter(|node| is_coming(world, *node)) {
            nodes.extend(pods.iter().map(|pod| (pod, node)));
        }
    }
    let mut booked: BTreeMap<NodeIndex, BTreeMap<ShapeId, u64>> = BTreeMap::new();
    let mut with_followers: Vec<NodeIndex> = Vec::new();
    if nodes.is_empty() {
        return booked;
    }
    let waiting = |pod: &Pod| pod.node.is_none() && pod.deletion.is_none();
    for (key, pod) in &turn.view.snapshot.cluster.pods {
        let Some(node) = nodes.get(&pod.uid).filter(|_| waiting(pod)) else {
            continue;
        };
        if terms(&pod.shape).next().is_some() {
            with_followers.push(*node);
        }
        let shape = world.intern(&key.namespace, &pod.shape);
        let of_node = booked.entry(*node).or_default();
        *of_node.entry(shape).or_default() += 1;
    }
    with_followers.sort_unstable();
    booked.retain(|node, _| with_followers.binary_search(node).is_ok());
    booked
}

/// The required affinity terms whose domains are single nodes.
fn terms(shape: &PodShape) -> impl Iterator<Item = &PodTerm> {
    let terms = shape.pod_affinity.iter();
    terms.filter(|term| *term.topology_key == *HOSTNAME_LABEL)
}

fn add(sum: &mut Resources, more: &Resources, times: u64) {
    for _ in 0..times {
        sum.add(more);
    }
}
