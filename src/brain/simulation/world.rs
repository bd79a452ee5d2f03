//! The cluster as it will be: nodes, machines under way and machines planned, each with what is
//! still free on it. Pods are put into it; nothing is ever read back from the snapshot.

use crate::constraints::shape::{NamespacedShape, Resident};
use crate::index::{
    ClassId, IndexVec, NodeIndex, PlannedIndex, RequirementsId, ResidentIndex, ShapeId,
};
use std::collections::BTreeMap;
use std::sync::Arc;

use model::cluster::{ObjectKey, Pod};
use model::policy::Policy;
use model::reasons::FilterFailure;
use model::resources::Resources;
use model::scheduling::{HostPort, Labels, PodShape, Taint};
use model::shared::Shared;
use model::snapshot::Snapshot;

use crate::constraints::alike::Alike;
use crate::constraints::fit::attach::{self, AttachSlots};
use crate::constraints::fit::volumes::{self, VolumeNeed};
use crate::constraints::fit::{self, NodeView, amounts};
use crate::constraints::free_volumes::{AssumedBindings, FreeVolumes, VolumeBindings, VolumeNode};
use crate::simulation::bookings::BookedPods;
use crate::simulation::classes::NodeClasses;
use crate::simulation::inter_pod::{InterPodConstraints, Preferences, Rules};
use crate::simulation::preempt::ExpendablePods;

/// What stands behind a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeOrigin {
    /// A node that works.
    Node,
    /// A machine of ours on its way up, by name.
    Machine(Arc<str>),
    /// A machine planned now: index into `PlannedMachines`.
    Planned(PlannedIndex),
}

/// One node, now or soon.
#[derive(Clone, Debug)]
pub(crate) struct SimNode {
    pub(crate) name: Arc<str>,
    pub(crate) origin: NodeOrigin,
    pub(crate) labels: Shared<Labels>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    /// Which class of nodes with equal labels, taints and cordon it is of; set by [`SimCluster::add`].
    pub(crate) class: ClassId,
    /// Ready now, so that a drained pod may be sent there.
    pub(crate) ready: bool,
    /// It is leaving, or a step has taken it out: nothing may be put there. Changed by
    /// [`SimCluster::close`] and [`SimCluster::reopen`] alone.
    pub(crate) closed: bool,
    /// What is left.
    pub(crate) free: Resources,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) residents: IndexVec<ResidentIndex, Resident>,
    /// What volumes it can still attach; `None` when it has no limit.
    pub(crate) slots: Option<Arc<AttachSlots>>,
    /// Pods that this decision puts here and that are not bound: shape, claims, how many.
    pub(crate) new_pods: Vec<(ShapeId, Option<Arc<VolumeNeed>>, usize)>,
    /// Volumes that claims of pods which this decision puts here took.
    pub(crate) bindings: VolumeBindings,
    /// Pods of a node that goes shall come here: it must stay.
    pub(crate) receives: bool,
}

/// A node's state before pods were put on it or taken off it, for [`SimCluster::restore`].
#[derive(Debug)]
pub(crate) enum Saved {
    /// One [`SimCluster::put`].
    Put {
        free: Resources,
        ports: usize,
        pods: Resident,
        slots: Option<Arc<AttachSlots>>,
        /// The volumes that its claims took; `None` where they took none.
        bindings: Option<Box<VolumeBindings>>,
    },
    /// One [`SimCluster::evict`]; where among the residents they were.
    Evicted {
        free: Resources,
        ports: Vec<HostPort>,
        pods: Resident,
        at: ResidentIndex,
    },
}

/// The simulated nodes, by their indexes.
pub(crate) type SimNodes = IndexVec<NodeIndex, SimNode>;

/// The shapes of pods, by their indexes.
pub(crate) type SimShapes<'a> = IndexVec<ShapeId, NamespacedShape<'a>>;

/// All simulated nodes, and the shapes of all pods.
#[derive(Debug)]
pub(crate) struct SimCluster<'a> {
    /// The first pod of each kind that came, for all of them. Only labels that some selector names count.
    pub(crate) shapes: SimShapes<'a>,
    pub(crate) nodes: SimNodes,
    pub(crate) by_name: BTreeMap<Arc<str>, NodeIndex>,
    pub(crate) inter_pod: InterPodConstraints<'a>,
    /// Pods that were put on machines on their way, in that order.
    pub(crate) booked_pods: Vec<BookedPods<'a>>,
    /// What expendable pods hold, by node: see [`preempt`](crate::simulation::preempt).
    pub(crate) expendable_pods: BTreeMap<NodeIndex, ExpendablePods>,
    /// Pods of a lower priority are expendable.
    expendable: i32,
    /// Volumes that claims could have, and those that were given to some.
    pub(crate) free_volumes: Arc<FreeVolumes<'a>>,
    pub(crate) assumed: AssumedBindings,
    classes: NodeClasses<'a>,
    /// What each shape asks of labels and taints.
    requirements: IndexVec<ShapeId, RequirementsId>,
    alike: Alike<'a>,
}

impl SimNode {
    /// What filters read of it.
    pub(crate) fn place(&self) -> NodeView<'_> {
        NodeView {
            name: &self.name,
            labels: &self.labels,
            taints: &self.taints,
            unschedulable: self.unschedulable,
        }
    }

    /// What volumes see of it.
    pub(crate) fn at(&self) -> VolumeNode<'_> {
        VolumeNode {
            name: &self.name,
            labels: &self.labels,
            new: matches!(self.origin, NodeOrigin::Planned(_)),
        }
    }

    /// How many more pods of a shape there is room for.
    pub(crate) fn room(&self, shape: &PodShape) -> u64 {
        fit::room(shape, &self.free, &self.ports)
    }

    /// What one pod of a shape asked is free again: its amounts and its host ports.
    fn give_back(&mut self, shape: &PodShape) {
        amounts::give(&mut self.free, &shape.requests);
        for port in &shape.host_ports {
            if let Some(taken) = self.ports.iter().position(|other| other == port) {
                self.ports.remove(taken);
            }
        }
    }
}

impl<'a> SimCluster<'a> {
    /// No places, no pods.
    pub(crate) fn empty(
        snapshot: &'a Snapshot,
        policy: &'a Policy,
        alike: Alike<'a>,
        free_volumes: Arc<FreeVolumes<'a>>,
    ) -> SimCluster<'a> {
        let namespaces = &snapshot.cluster.namespaces;
        let default_spread = &policy.scale_up.default_spread;
        SimCluster {
            shapes: SimShapes::default(),
            nodes: SimNodes::default(),
            by_name: BTreeMap::new(),
            inter_pod: InterPodConstraints::new(namespaces, default_spread),
            booked_pods: Vec::new(),
            expendable_pods: BTreeMap::new(),
            expendable: policy.scale_up.expendable_priority,
            free_volumes,
            assumed: AssumedBindings::default(),
            classes: NodeClasses::default(),
            requirements: IndexVec::default(),
            alike,
        }
    }

    /// Adds a place on which nothing runs yet.
    pub(crate) fn add(&mut self, node: SimNode) -> NodeIndex {
        let name = node.name.clone();
        let index = self.add_named(node);
        self.by_name.insert(name, index);
        index
    }

    /// The names of the first nodes, in their order: learned all at once, which costs less.
    pub(crate) fn name<'n>(&mut self, names: impl Iterator<Item = &'n Arc<str>>) {
        self.by_name = names.cloned().zip((0..).map(NodeIndex)).collect();
    }

    /// [`SimCluster::add`], of a node that has been named.
    pub(crate) fn add_named(&mut self, mut node: SimNode) -> NodeIndex {
        node.class = self
            .classes
            .class(&node.labels, &node.taints, node.unschedulable);
        self.inter_pod.add_node(&node);
        self.nodes.push(node)
    }

    /// The id of pods that are alike in a namespace.
    pub(crate) fn intern(&mut self, namespace: &'a str, shape: &'a PodShape) -> ShapeId {
        let pod = NamespacedShape { namespace, shape };
        let id = self.alike.kind(pod);
        if id == self.shapes.next_index() {
            self.shapes.push(pod);
            let requirements = self.classes.requirements(shape);
            self.requirements.push(requirements);
            self.inter_pod.add_shape(&self.shapes, &self.nodes);
        }
        id
    }

    /// Whether two pods are of one kind.
    pub(crate) fn same_kind(&self, one: NamespacedShape<'_>, other: NamespacedShape<'_>) -> bool {
        self.alike.same(one, other)
    }

    /// What other pods ask of the place of a pod of a shape; `None` when they do not matter.
    pub(crate) fn rules(&mut self, id: ShapeId) -> Option<Arc<Rules>> {
        self.inter_pod.rules(&self.shapes, &self.nodes, id)
    }

    /// Makes [`SimCluster::admits`] ready for a shape.
    pub(crate) fn prepare(&mut self, id: ShapeId) {
        self.classes.ask(self.requirements[id]);
    }

    /// Whether the filters that look at the node alone let a shape in. See [`SimCluster::prepare`].
    pub(crate) fn admits(&self, id: ShapeId, index: NodeIndex) -> bool {
        self.classes.fits(self.requirements[id], &self.nodes[index])
    }

    /// Whether two shapes ask the same of labels and taints.
    pub(crate) fn requirements(&self, id: ShapeId) -> RequirementsId {
        self.requirements[id]
    }

    /// Whether pods of a shape are expendable.
    pub(crate) fn expendable(&self, id: ShapeId) -> bool {
        self.shapes[id].shape.priority < self.expendable
    }

    /// Why a shape may not be on a place at all, whatever else runs there.
    pub(crate) fn filter_failure(
        &self,
        index: NodeIndex,
        shape: &PodShape,
        need: Option<&VolumeNeed>,
    ) -> Option<FilterFailure> {
        self.filter_failures(index, shape, need).next()
    }

    /// All that keeps a shape off a place, whatever else runs there, in the order of the filters; of volumes the first that is wrong.
    pub(crate) fn filter_failures<'s>(
        &'s self,
        index: NodeIndex,
        shape: &'s PodShape,
        need: Option<&'s VolumeNeed>,
    ) -> impl Iterator<Item = FilterFailure> + use<'s, 'a> {
        let node = &self.nodes[index];
        let volume = std::iter::once_with(move || {
            self.reach_filter_failure(index, need).or_else(|| {
                let why = self
                    .assumed
                    .filter_failure(&self.free_volumes, need?, node.at());
                why.map(|volume| FilterFailure::Volume { volume })
            })
        });
        fit::filter_failures(shape, node.place()).chain(volume.flatten())
    }

    /// Why claims may not be used on a place, whatever else runs there. Volumes that claims could take are
    /// another matter: [`SimCluster::served`].
    pub(crate) fn reach_filter_failure(
        &self,
        index: NodeIndex,
        need: Option<&VolumeNeed>,
    ) -> Option<FilterFailure> {
        let (node, need) = (&self.nodes[index], need?);
        let at = node.at();
        volumes::filter_failure(need, at.name, at.labels, at.new)
            .or_else(|| node.slots.as_ref()?.filter_failure(need))
    }

    /// How many pods, `limit` at most, find volumes on a place for claims that wait.
    pub(crate) fn served(&self, index: NodeIndex, need: Option<&VolumeNeed>, limit: u64) -> u64 {
        let Some(need) = need.filter(|need| !need.waiting.is_empty()) else {
            return limit;
        };
        let at = self.nodes[index].at();
        let mut bindings = VolumeBindings::default();
        self.assumed
            .serve(&self.free_volumes, need, at, limit, &mut bindings)
    }

    /// The claims of pods that come to a place take their volumes, and what counts against its limits.
    pub(crate) fn supply(
        &mut self,
        index: NodeIndex,
        need: Option<&VolumeNeed>,
        count: u64,
    ) -> VolumeBindings {
        let mut bindings = VolumeBindings::default();
        attach::take(&mut self.nodes[index].slots, need);
        if let Some(need) = need.filter(|need| !need.waiting.is_empty()) {
            let at = self.nodes[index].at();
            self.assumed
                .serve(&self.free_volumes, need, at, count, &mut bindings);
            self.assumed.give(&bindings);
            self.nodes[index].bindings.add(&bindings);
        }
        bindings
    }

    /// Puts pods on a place where none are yet, those of each shape at once.
    pub(crate) fn fill(&mut self, index: NodeIndex, residents: IndexVec<ResidentIndex, Resident>) {
        for pods in &residents {
            self.note_expendable(index, pods.shape, pods.count);
            self.hold(index, *pods);
        }
        self.nodes[index].residents = residents;
    }

    /// Puts `count` pods of a shape on a place.
    pub(crate) fn put(&mut self, index: NodeIndex, id: ShapeId, count: u64, deleting: bool) {
        self.note_expendable(index, id, count);
        self.lay(index, id, count, deleting);
    }

    /// Expendable pods come to a place.
    fn note_expendable(&mut self, index: NodeIndex, id: ShapeId, count: u64) {
        if self.expendable(id) {
            let expendable_pods = self.expendable_pods.entry(index).or_default();
            expendable_pods.add(id, &self.shapes[id].shape.requests, count);
        }
    }

    /// What pods on a place take, and that they count for others.
    fn hold(&mut self, index: NodeIndex, pods: Resident) {
        let shape = self.shapes[pods.shape].shape;
        let node = &mut self.nodes[index];
        amounts::take(&mut node.free, &shape.requests, pods.count);
        if !shape.host_ports.is_empty() {
            for _ in 0..pods.count {
                node.ports.extend(shape.host_ports.iter().cloned());
            }
        }
        let (open, count) = (!node.closed, signed(pods.count));
        self.inter_pod
            .put(index, pods.shape, count, pods.deleting, open);
    }

    /// [`SimCluster::put`], of pods that were there before.
    pub(crate) fn lay(&mut self, index: NodeIndex, id: ShapeId, count: u64, deleting: bool) {
        let pods = Resident {
            shape: id,
            count,
            deleting,
        };
        let residents = &mut self.nodes[index].residents;
        let mut here = residents.iter_mut();
        match here.find(|r| r.shape == id && r.deleting == deleting) {
            Some(resident) => resident.count = resident.count.saturating_add(count),
            None => {
                residents.push(pods);
            }
        }
        self.hold(index, pods);
    }

    /// What [`SimCluster::restore`] needs to take back the next [`SimCluster::put`] of these.
    pub(crate) fn save(&self, index: NodeIndex, pods: Resident) -> Saved {
        let node = &self.nodes[index];
        Saved::Put {
            free: node.free.clone(),
            ports: node.ports.len(),
            pods,
            slots: node.slots.clone(),
            bindings: None,
        }
    }

    /// Takes one kind of residents off a place; the volumes they hold stay attached.
    pub(crate) fn evict(&mut self, index: NodeIndex, at: ResidentIndex) -> (Resident, Saved) {
        let node = &mut self.nodes[index];
        let pods = node.residents.remove(at);
        let saved = Saved::Evicted {
            free: node.free.clone(),
            ports: node.ports.clone(),
            pods,
            at,
        };
        let shape = self.shapes[pods.shape].shape;
        for _ in 0..pods.count {
            node.give_back(shape);
        }
        let (open, gone) = (!node.closed, -signed(pods.count));
        self.inter_pod
            .put(index, pods.shape, gone, pods.deleting, open);
        (pods, saved)
    }

    /// Takes back one [`SimCluster::put`] or [`SimCluster::evict`]; several are taken back in the opposite order.
    pub(crate) fn restore(&mut self, index: NodeIndex, saved: Saved) {
        let node = &mut self.nodes[index];
        let (pods, count) = match saved {
            Saved::Put {
                free,
                ports,
                pods,
                slots,
                bindings,
            } => {
                if let Some(bindings) = bindings {
                    self.assumed.revoke(&bindings);
                    node.bindings.remove(&bindings);
                }
                node.free = free;
                node.ports.truncate(ports);
                node.slots = slots;
                let same = |r: &Resident| r.shape == pods.shape && r.deleting == pods.deleting;
                if let Some(at) = node.residents.index_of(same) {
                    let resident = &mut node.residents[at];
                    resident.count = resident.count.saturating_sub(pods.count);
                    if resident.count == 0 {
                        node.residents.remove(at);
                    }
                }
                (pods, -signed(pods.count))
            }
            Saved::Evicted {
                free,
                ports,
                pods,
                at,
            } => {
                node.free = free;
                node.ports = ports;
                node.residents.insert(at, pods);
                (pods, signed(pods.count))
            }
        };
        let open = !node.closed;
        self.inter_pod
            .put(index, pods.shape, count, pods.deleting, open);
    }

    /// Takes a place out, with all that runs there: nothing may be put there, and its pods count for
    /// nobody.
    pub(crate) fn close(&mut self, index: NodeIndex) {
        if !self.nodes[index].closed {
            self.count_residents(index, false);
            self.inter_pod.turn(index, false);
            self.nodes[index].closed = true;
        }
    }

    /// Takes a place in again.
    pub(crate) fn reopen(&mut self, index: NodeIndex) {
        if self.nodes[index].closed {
            self.nodes[index].closed = false;
            self.inter_pod.turn(index, true);
            self.count_residents(index, true);
        }
    }

    fn count_residents(&mut self, index: NodeIndex, open: bool) {
        for resident in &self.nodes[index].residents {
            let count = signed(resident.count);
            let count = if open { count } else { -count };
            self.inter_pod
                .count(index, resident.shape, count, resident.deleting);
        }
    }

    /// A planned place becomes one with other labels and so much free; see [`InterPodConstraints::indifferent`].
    pub(crate) fn become_other(&mut self, index: NodeIndex, labels: Labels, free: Resources) {
        let node = &mut self.nodes[index];
        node.labels = labels.into();
        node.free = free;
        node.class = self
            .classes
            .class(&node.labels, &node.taints, node.unschedulable);
    }

    /// Takes one pod of a shape off a place again. Volumes that its claims took stay attached.
    pub(crate) fn take(&mut self, index: NodeIndex, id: ShapeId) {
        let shape = self.shapes[id].shape;
        let node = &mut self.nodes[index];
        node.give_back(shape);
        let here = |r: &Resident| r.shape == id && !r.deleting;
        if let Some(at) = node.residents.index_of(here) {
            node.residents[at].count -= 1;
            if node.residents[at].count == 0 {
                node.residents.remove(at);
            }
            let open = !node.closed;
            self.inter_pod.put(index, id, -1, false, open);
        }
    }

    /// The preferences of a shape about other pods; see [`InterPodConstraints::preferences`].
    pub(crate) fn preferences(&mut self, id: ShapeId, defaults: bool) -> Option<Arc<Preferences>> {
        self.inter_pod
            .preferences(&self.shapes, &self.nodes, id, defaults)
    }

    /// A closed place becomes one with other labels and so much free.
    pub(crate) fn relocate(&mut self, index: NodeIndex, labels: Labels, free: Resources) {
        self.become_other(index, labels, free);
        self.inter_pod.relocate(index, &self.nodes[index]);
    }

    /// Puts a pod on the node that kube-scheduler has nominated for it.
    pub(crate) fn welcome(
        &mut self,
        name: &str,
        key: &'a ObjectKey,
        pod: &'a Pod,
        need: Option<&VolumeNeed>,
    ) {
        let id = self.intern(&key.namespace, &pod.shape);
        if let Some(index) = self.by_name.get(name).copied() {
            self.put(index, id, 1, pod.deletion.is_some());
            self.supply(index, need, 1);
            let node = &mut self.nodes[index];
            node.new_pods.push((id, need.cloned().map(Arc::new), 1));
        }
    }
}

impl Saved {
    /// Volumes that were taken too.
    pub(crate) fn with(&mut self, given: VolumeBindings) {
        if let Saved::Put { bindings, .. } = self {
            *bindings = (!given.is_empty()).then(|| Box::new(given));
        }
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
