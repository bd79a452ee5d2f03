//! The snapshot, indexed: which pods run where, which machine is behind a node, how each machine stands.

use crate::constraints::fit::volumes::{self, ClaimView, VolumeNeed};
use crate::constraints::shape::Keyed;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::action::is_being_made;
use model::cluster::{Node, ObjectKey, Pod, ReadyStatus};
use model::mark::Ownership;
use model::memory::Memory;
use model::policy::{InstanceType, LEAVING_TAINT, Policy, PoolPolicy, STARTUP_TAINT};
use model::reasons::LeftAlone;
use model::region::{Busy, GuestKind, Machine, Region, Step};
use model::resources::Resources;
use model::snapshot::Snapshot;
use model::time::{Span, Time};

use crate::constraints::claims::Claims;
use crate::constraints::shape::NamespacedShape;
use crate::index::{IndexVec, ListIndex, MachineIndex, NodeIndex, PoolIndex, RunningKindIndex};
use crate::observed::by_node::{ByNode, ByNodeIndex, RunningPod};
use crate::observed::machines::MachineViews;
use crate::observed::provisioning;

/// A snapshot with what every step looks up. Where all nodes are walked over, it is looked up by their indexes.
#[derive(Debug)]
pub(crate) struct SnapshotView<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Time,
    /// The pods: by node, and those that are not bound.
    pods: ByNode<'a>,
    /// Which nodes' pods will soon need another place.
    leaving: IndexVec<NodeIndex, bool>,
    /// The most that pods of each DaemonSet ask for, by its UID.
    pub(crate) daemon_requests: BTreeMap<&'a str, Resources>,
    /// Our machines, by name.
    pub(crate) machines: MachineViews<'a>,
    /// The machines behind nodes.
    machine_of: IndexVec<NodeIndex, Option<MachineIndex>>,
    /// What claims hold.
    pub(crate) claims: Claims<'a>,
}

/// A machine of ours, understood.
#[derive(Debug)]
pub(crate) struct MachineView<'a> {
    pub(crate) name: &'a Arc<str>,
    /// The machine as the snapshot shows it: mark, VM, step and host.
    pub(crate) seen: &'a Machine,
    /// The pool that the machine's mark names; `None` if it is no longer configured.
    pub(crate) pool: Option<&'a PoolPolicy>,
    /// The index of its pool.
    pub(crate) pool_index: Option<PoolIndex>,
    /// The machine's instance type: by the terms it was made under, else as it is configured now; `None` if it is no
    /// longer configured.
    pub(crate) instance_type: Option<&'a InstanceType>,
    /// The machine's Kubernetes node, with its name; `None` where the cluster has no such Node object.
    pub(crate) node: Option<(&'a Arc<str>, &'a Node)>,
    /// The index of its node.
    pub(crate) node_index: Option<NodeIndex>,
    /// What was read of the machine's region; `None` if the snapshot has nothing of it.
    pub(crate) region: Option<&'a Region>,
    /// How long it has been on its way up, the time left out in which no daemon led.
    pub(crate) worked: Span,
    /// How it stands.
    pub(crate) phase: MachinePhase,
    /// Until when it is kept though it failed.
    pub(crate) kept: Option<Time>,
}

/// How a machine stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MachinePhase {
    /// It is left alone, and why.
    Untouchable(LeftAlone),
    /// It is on its way up.
    Coming,
    /// It is on its way up for longer than allowed.
    Overdue,
    /// It failed to become a node.
    Failed,
    /// It is, or was, a working node.
    Up,
    /// It is being taken down, or that was begun.
    Leaving,
    /// It was a working node and the Node object is gone.
    NoNode,
    /// The machine's VM is gone.
    NoVm,
}

impl<'a> MachineView<'a> {
    /// Name of the machine's pool, as its mark has it: that pool may be configured no more.
    pub(crate) fn pool_name(&self) -> &'a str {
        &self.seen.mark.pool
    }

    /// The step its journal shows.
    pub(crate) fn step(&self) -> Option<Step> {
        self.seen.step.map(|(step, _)| step)
    }

    /// Whether it has not come to its end as a node yet. Where its journal is lost, as after a restore without `/var/lib`, the node tells.
    pub(crate) fn is_being_made(&self) -> bool {
        self.step()
            .map_or(self.phase != MachinePhase::Up, |step| step < Step::Done)
    }

    /// The machine's pool with what its terms promised when it was made (labels, taints, reservations, `max_pods`,
    /// architecture), all else as it is configured now; `None` if the pool is no longer configured.
    pub(crate) fn promised(&self) -> Option<Cow<'a, PoolPolicy>> {
        let pool = self.pool?;
        Some(match &self.seen.terms {
            Some(terms) if !terms.agrees(pool) => Cow::Owned(terms.pool(pool)),
            _ => Cow::Borrowed(pool),
        })
    }

    /// Whether its node starts with a taint of this key, which goes by itself once it is initialised.
    pub(crate) fn starts_with(&self, key: &str) -> bool {
        let own = self.seen.terms.as_ref().map(|terms| &terms.startup_taints);
        let taints = own.or(self.pool.map(|pool| &pool.startup_taints));
        key == STARTUP_TAINT
            || taints.is_some_and(|taints| taints.iter().any(|taint| *taint.key == *key))
    }

    /// Whether its node is Ready now.
    pub(crate) fn ready(&self) -> bool {
        self.node
            .is_some_and(|(_, node)| node.ready.status == ReadyStatus::True)
    }

    /// Whether a VM with its VMID runs. A machine has no VM here whose configuration nobody reads (its VMID is outside of the range),
    /// or which shows our intact mark no more; PVE lists it all the same, and no second VM can have its VMID.
    pub(crate) fn runs(&self) -> bool {
        let listed = self
            .region
            .and_then(|region| region.vms.get(&self.seen.mark.vmid));
        let seen = self.seen.vm.as_ref().is_some_and(|vm| vm.running);
        seen || listed.is_some_and(|vm| vm.running)
    }

    /// Whether its removal was begun, no task works on it, and it can still be taken back: scale-down
    /// decides about it again.
    pub(crate) fn resumable(&self) -> bool {
        let cordoned = self
            .node
            .is_some_and(|(_, node)| node.deletion.is_none() && !has_taint(node, STARTUP_TAINT));
        self.phase == MachinePhase::Leaving
            && !self.busy()
            && cordoned
            && self.seen.vm.is_some()
            && self.step() < Some(Step::Shutdown)
    }

    /// Whether the executor is at work on it.
    pub(crate) fn busy(&self) -> bool {
        self.seen.busy.is_some()
    }
}

impl<'a> SnapshotView<'a> {
    /// Whether pods are nominated for the nodes that are made for them: the configuration wants it, and the API server does not refuse it.
    pub(crate) fn nominates(&self) -> bool {
        self.policy.scale_up.nominate_pods && !self.snapshot.nominations_refused
    }

    /// What the claims of `pod` ask; `None` for a pod without claims.
    pub(crate) fn need(&self, key: &ObjectKey, pod: &Pod) -> Option<VolumeNeed> {
        volumes::need(key, pod, self.claim_view())
    }

    /// The claims of the snapshot with what volumes need of it.
    pub(crate) fn claim_view(&self) -> ClaimView<'_> {
        ClaimView {
            cluster: &self.snapshot.cluster,
            claims: &self.claims,
        }
    }

    /// Indexes a snapshot.
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        policy: &'a Policy,
        memory: &Memory,
        now: Time,
    ) -> SnapshotView<'a> {
        let doubled = doubled(snapshot);
        let nodes: IndexVec<NodeIndex, _> = snapshot.cluster.nodes.iter().collect();
        let mut machines: IndexVec<MachineIndex, MachineView<'a>> =
            Vec::with_capacity(snapshot.machines.len()).into();
        let mut machine_of: IndexVec<NodeIndex, Option<MachineIndex>> =
            vec![None; nodes.len()].into();
        // Machines and their nodes mostly have the same names.
        let mut next = NodeIndex(0);
        for named in &snapshot.machines {
            let index = named.1.node.as_ref();
            let index = index.and_then(|name| find(&nodes, name, next));
            let node = index.map(|index| (index, nodes[index]));
            if let Some(index) = index {
                machine_of[index] = Some(machines.next_index());
                next = NodeIndex(index.0 + 1);
            }
            let worked = provisioning::worked(memory, named.0, named.1, now);
            machines.push(know(snapshot, policy, worked, named, node, &doubled));
        }
        super::kept::note(&mut machines, now);
        let pods = ByNode::of(&snapshot.cluster);
        let mut view = SnapshotView {
            snapshot,
            policy,
            now,
            daemon_requests: daemon_requests(&pods),
            claims: Claims::new(&snapshot.cluster, policy, &pods.unbound),
            pods,
            leaving: IndexVec::default(),
            machines: MachineViews::in_order(machines),
            machine_of,
        };
        let leaving = nodes.indexed();
        let leaving = leaving.map(|(index, (_, node))| view.goes(index, node));
        view.leaving = leaving.collect();
        view
    }

    /// The pods that run on a node.
    pub(crate) fn pods(&self, node: &str) -> &[Keyed<'a>] {
        let index = self.pods.index(node);
        index.map_or(&[], |index| self.pods.on(index))
    }

    /// The pods that run on a node of the snapshot.
    pub(crate) fn pods_at(&self, node: NodeIndex) -> &[Keyed<'a>] {
        self.pods.on(ByNodeIndex::of(node))
    }

    /// The pods that run on a node of the snapshot, each with its namespace and shape, in the order of [`SnapshotView::pods_at`].
    pub(crate) fn running_at(&self, node: NodeIndex) -> &[RunningPod] {
        self.pods.running(ByNodeIndex::of(node))
    }

    /// Shapes and namespaces that running pods share, to which each [`RunningPod`] points.
    pub(crate) fn kinds(&self) -> &IndexVec<RunningKindIndex, NamespacedShape<'a>> {
        &self.pods.kinds
    }

    /// The index of a node that is in the snapshot.
    pub(crate) fn node_index(&self, node: &str) -> Option<NodeIndex> {
        let index = NodeIndex(self.pods.index(node)?.position());
        (index < self.machine_of.next_index()).then_some(index)
    }

    /// Pods that are not bound, or that run on a node that is leaving, in the order of their keys.
    pub(crate) fn without_place(&self) -> Vec<Keyed<'a>> {
        let mut pods = self.pods.unbound.clone();
        let leaving = self.leaving.indexed();
        for (node, _) in leaving.filter(|(_, leaving)| **leaving) {
            pods.extend(self.pods_at(node));
        }
        if pods.len() > self.pods.unbound.len() {
            pods.sort_unstable_by_key(|(key, _)| *key);
        }
        pods
    }

    /// The machine behind a node.
    pub(crate) fn machine_of_node(&self, node: &str) -> Option<&MachineView<'a>> {
        self.machine_at(self.node_index(node)?)
    }

    /// The machine behind a node of the snapshot.
    pub(crate) fn machine_at(&self, node: NodeIndex) -> Option<&MachineView<'a>> {
        let machine = *self.machine_of.get(node)?;
        Some(&self.machines[machine?])
    }

    /// Whether pods of this node will soon need another place: it is being removed.
    pub(crate) fn leaving(&self, name: &str) -> bool {
        self.node_index(name)
            .is_some_and(|node| self.leaving_at(node))
    }

    /// Whether pods of a node of the snapshot will soon need another place: it is being removed.
    pub(crate) fn leaving_at(&self, node: NodeIndex) -> bool {
        self.leaving[node]
    }

    fn goes(&self, index: NodeIndex, node: &Node) -> bool {
        node.deletion.is_some()
            || has_taint(node, LEAVING_TAINT)
            || self.machine_at(index).is_some_and(|machine| {
                matches!(
                    machine.phase,
                    MachinePhase::Leaving
                        | MachinePhase::Failed
                        | MachinePhase::Overdue
                        | MachinePhase::NoVm
                )
            })
    }
}

fn daemon_requests<'a>(pods: &ByNode<'a>) -> BTreeMap<&'a str, Resources> {
    let mut most: BTreeMap<&str, Resources> = BTreeMap::new();
    for pod in pods.alive() {
        let owner = pod.shape.owner.as_ref();
        if let Some(owner) = owner.filter(|owner| &*owner.kind == "DaemonSet") {
            let asked = &pod.shape.requests;
            match most.get_mut(&*owner.uid) {
                Some(most) => most.raise_to(asked),
                None => {
                    most.insert(&owner.uid, asked.clone());
                }
            }
        }
    }
    most
}

/// Whether a node carries a taint of this key.
pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    node.taints.iter().any(|taint| &*taint.key == key)
}

/// Machine names of ours that more than one VM claims.
fn doubled(snapshot: &Snapshot) -> BTreeSet<&str> {
    let marks = snapshot
        .regions
        .values()
        .flat_map(|region| region.vms.values())
        .filter_map(|vm| match &vm.ownership {
            Some(Ownership::Marked(mark)) => Some(mark),
            _ => None,
        })
        .filter(|mark| Some(&*mark.cluster) == snapshot.cluster_id.as_deref());
    let mut names: Vec<&str> = marks.map(|mark| mark.machine.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).filter(|pair| pair[0] == pair[1]);
    twice.map(|pair| pair[0]).collect()
}

/// The index of a node among all in the order of their names; it may well be this one.
fn find(
    nodes: &IndexVec<NodeIndex, (&Arc<str>, &Node)>,
    name: &Arc<str>,
    guess: NodeIndex,
) -> Option<NodeIndex> {
    let right = nodes.get(guess).is_some_and(|(node, _)| *node == name);
    if right {
        return Some(guess);
    }
    let found = nodes.binary_search_by(|(node, _)| (*node).cmp(name));
    found.ok().map(NodeIndex)
}

fn know<'a>(
    snapshot: &'a Snapshot,
    policy: &'a Policy,
    worked: Span,
    (name, seen): (&'a Arc<str>, &'a Machine),
    node: Option<(NodeIndex, (&'a Arc<str>, &'a Node))>,
    doubled: &BTreeSet<&str>,
) -> MachineView<'a> {
    let mut pools = policy.pools.iter().enumerate();
    let pool = pools.find(|(_, (pool_name, _))| ***pool_name == *seen.mark.pool);
    let mut machine = MachineView {
        name,
        seen,
        // A pool that has left the region: what it says of others is next best.
        pool: pool.map(|(_, (_, pool))| pool.at(&seen.region).unwrap_or(pool)),
        pool_index: pool.map(|(index, _)| PoolIndex(index)),
        instance_type: match &seen.terms {
            Some(terms) => Some(&terms.kind),
            None => policy.instance_types.get(&*seen.mark.instance_type),
        },
        node: node.map(|(_, node)| node),
        node_index: node.map(|(index, _)| index),
        region: snapshot.regions.get(&seen.region).map(|region| &**region),
        worked,
        phase: MachinePhase::Coming,
        kept: None,
    };
    let outside = outside(policy, &machine);
    machine.phase = match outside.or_else(|| untouchable(snapshot, &machine, doubled)) {
        Some(why) => MachinePhase::Untouchable(why),
        None => {
            let early = seen.vm.is_none() && snapshot.was_read_before(seen);
            phase(&machine, policy, early)
        }
    };
    machine
}

/// A VM that is there and whose VMID is not in the region's range: nobody reads its configuration, and the broker lets nobody touch
/// it. One that is gone is gone: PVE lists all guests.
fn outside(policy: &Policy, machine: &MachineView<'_>) -> Option<LeftAlone> {
    let vmid = machine.seen.mark.vmid;
    let range = policy.regions.get(&machine.seen.region)?;
    if !machine.region?.vms.contains_key(&vmid) {
        return None;
    }
    let (first, last) = (range.vmid_first, range.vmid_last);
    (!(first..=last).contains(&vmid)).then_some(LeftAlone::OutsideRange { vmid, first, last })
}

/// Why a machine must be left alone, if it must.
fn untouchable(
    snapshot: &Snapshot,
    machine: &MachineView<'_>,
    doubled: &BTreeSet<&str>,
) -> Option<LeftAlone> {
    let mark = &machine.seen.mark;
    if Some(&*mark.cluster) != snapshot.cluster_id.as_deref() {
        let cluster = mark.cluster.as_str().into();
        return Some(LeftAlone::OtherCluster { cluster });
    }
    if **machine.name != *mark.machine {
        return Some(LeftAlone::OtherMachine {
            machine: mark.machine.as_str().into(),
        });
    }
    if doubled.contains(&**machine.name) {
        return Some(LeftAlone::SeveralVms);
    }
    let vm = machine.region.and_then(|region| region.vms.get(&mark.vmid));
    match vm.and_then(|vm| vm.ownership.as_ref()) {
        Some(Ownership::Damaged(damage)) => {
            let damage = damage.clone();
            return Some(LeftAlone::DamagedMark { damage });
        }
        Some(Ownership::UnknownVersion(version)) => {
            let version = version.clone();
            return Some(LeftAlone::UnknownVersion { version });
        }
        // With another machine's own mark it is that one's VM, and this one has none.
        Some(Ownership::Marked(seen))
            if seen != mark && (seen.machine == mark.machine || seen.vmid != mark.vmid) =>
        {
            return Some(LeftAlone::OtherMark);
        }
        Some(Ownership::Marked(seen)) if seen == mark => {
            if let Some(vm) = vm.filter(|vm| vm.template) {
                let (vmid, host) = (mark.vmid, vm.host.clone());
                return Some(LeftAlone::MadeTemplate { vmid, host });
            }
        }
        _ => {}
    }
    let lost = machine
        .region
        .and_then(|region| machine.seen.lost_mark(region));
    if let Some(unmarked) = lost {
        return Some(LeftAlone::LostMark {
            vmid: mark.vmid,
            host: unmarked.host.clone(),
            line: mark.line().into(),
        });
    }
    if machine.seen.vm.is_none() && machine.step() >= Some(Step::Done) && unread(machine) {
        return Some(LeftAlone::Unreadable);
    }
    let state = machine.seen.vm.as_ref()?;
    let lock = state.lock.as_deref();
    let remains = is_being_made(lock) || lock == Some("destroyed");
    if !(state.marked || machine.seen.intended && remains) {
        return Some(LeftAlone::NoMark);
    }
    let found = machine.seen.contradiction.as_ref()?;
    Some(LeftAlone::Contradiction {
        contradiction: found.why.clone(),
    })
}

/// Whether a VM has the machine's VMID of which nobody knows whose it is: what was not read is not gone.
fn unread(machine: &MachineView<'_>) -> bool {
    let vms = machine.region.map(|region| &region.vms);
    let vm = vms.and_then(|vms| vms.get(&machine.seen.mark.vmid));
    vm.is_some_and(|vm| vm.kind == GuestKind::Qemu && vm.ownership.is_none())
}

/// `early`: its VM is not seen, and may exist nonetheless.
fn phase(machine: &MachineView<'_>, policy: &Policy, early: bool) -> MachinePhase {
    let seen = machine.seen;
    let step = machine.step();
    let leaving = machine
        .node
        .is_some_and(|(_, node)| node.deletion.is_some() || has_taint(node, LEAVING_TAINT));
    if lost_its_node(machine) {
        return MachinePhase::NoNode;
    }
    if seen.busy == Some(Busy::Down) || leaving || step >= Some(Step::Drain) {
        return MachinePhase::Leaving;
    }
    if !early && seen.vm.is_none() && (step > Some(Step::Clone) || machine.node.is_some()) {
        return MachinePhase::NoVm;
    }
    if machine
        .node
        .is_some_and(|(_, node)| step == Some(Step::Done) || initialised(node, machine))
    {
        return MachinePhase::Up;
    }
    // Its node is found by its VM's UUID. Until the region was read, after a start for instance, it is neither gone nor late.
    if step == Some(Step::Done) {
        return if early {
            MachinePhase::Coming
        } else {
            MachinePhase::NoNode
        };
    }
    if seen
        .failure
        .as_ref()
        .is_some_and(|failure| failure.step < Step::Done)
    {
        return MachinePhase::Failed;
    }
    if machine.worked > policy.scale_up.max_provision_time {
        return MachinePhase::Overdue;
    }
    MachinePhase::Coming
}

/// Whether somebody else took a machine's node away while it was emptied, and nobody empties it any more: its pods may
/// still run.
fn lost_its_node(machine: &MachineView<'_>) -> bool {
    let seen = machine.seen;
    let emptied = matches!(machine.step(), Some(Step::Drain | Step::Detach));
    let vm = seen.vm.as_ref();
    emptied && machine.node.is_none() && seen.busy.is_none() && vm.is_some_and(|vm| vm.marked)
}

/// Whether a node has once been made ready for pods: our startup taint is gone, and those of its
/// pool. A node that loses contact later stays initialised.
fn initialised(node: &Node, machine: &MachineView<'_>) -> bool {
    !node
        .taints
        .iter()
        .any(|taint| machine.starts_with(&taint.key))
}
