//! The snapshot, indexed: which pods run where, which machine is behind a node, how each machine stands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::cluster::{Node, Pod, PodKey, ReadyStatus};
use crate::model::mark::Ownership;
use crate::model::policy::{InstanceType, LEAVING_TAINT, Policy, PoolPolicy, STARTUP_TAINT};
use crate::model::region::{Busy, Machine, Region, Step};
use crate::model::resources::Resources;
use crate::model::snapshot::Snapshot;
use crate::model::time::Time;

use super::by_node::{ByNode, Running};
use super::claims::Claims;

/// A pod with its key.
pub(super) type Keyed<'a> = (&'a PodKey, &'a Pod);

/// A snapshot with what every step looks up.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) policy: &'a Policy,
    pub(super) now: Time,
    /// The pods: by node, and those that are not bound.
    pods: ByNode<'a>,
    /// Nodes whose pods will soon need another place.
    leaving: BTreeSet<&'a str>,
    /// The most that pods of each DaemonSet ask for, by its UID.
    pub(super) daemon_requests: BTreeMap<&'a str, Resources>,
    /// Our machines, by name.
    pub(super) machines: BTreeMap<&'a str, Known<'a>>,
    /// Node name to machine name.
    pub(super) machine_of: BTreeMap<&'a str, &'a str>,
    /// What claims hold.
    pub(super) claims: Claims<'a>,
}

/// A machine of ours, understood.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) name: &'a Arc<str>,
    pub(super) machine: &'a Machine,
    /// Its pool, if it is still configured.
    pub(super) pool: Option<&'a PoolPolicy>,
    /// Its instance type, if it is still configured.
    pub(super) kind: Option<&'a InstanceType>,
    /// Its node.
    pub(super) node: Option<(&'a Arc<str>, &'a Node)>,
    /// Its region as seen.
    pub(super) region: Option<&'a Region>,
    /// How it stands.
    pub(super) standing: Standing,
}

/// How a machine stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Hands off, and why.
    Untouchable(String),
    /// It is on its way up.
    Coming,
    /// It is on its way up for longer than it may take.
    Overdue,
    /// It failed to become a node.
    Failed,
    /// It is, or was, a working node.
    Up,
    /// It is being taken down, or that was begun.
    Leaving,
    /// It was a working node and the Node object is gone.
    NoNode,
    /// Its VM is gone.
    NoVm,
}

impl<'a> Known<'a> {
    /// Its pool's name.
    pub(super) fn pool_name(&self) -> &'a str {
        &self.machine.mark.pool
    }

    /// The step its journal shows.
    pub(super) fn step(&self) -> Option<Step> {
        self.machine.step.map(|(step, _)| step)
    }

    /// Whether its node is Ready now.
    pub(super) fn ready(&self) -> bool {
        self.node
            .is_some_and(|(_, node)| node.ready.status == ReadyStatus::True)
    }

    /// Whether its removal was begun, nobody is at it, and it can still be taken back: it is decided
    /// on anew.
    pub(super) fn resumable(&self) -> bool {
        let cordoned = self
            .node
            .is_some_and(|(_, node)| node.deletion.is_none() && !has_taint(node, STARTUP_TAINT));
        self.standing == Standing::Leaving
            && !self.busy()
            && cordoned
            && self.machine.vm.is_some()
            && self.step() < Some(Step::Shutdown)
    }

    /// Whether the executor is at work on it.
    pub(super) fn busy(&self) -> bool {
        self.machine.busy.is_some()
    }
}

impl<'a> View<'a> {
    /// Indexes a snapshot.
    pub(super) fn new(snapshot: &'a Snapshot, policy: &'a Policy, now: Time) -> View<'a> {
        let doubled = doubled(snapshot);
        let mut machines = BTreeMap::new();
        let mut machine_of = BTreeMap::new();
        for (name, machine) in &snapshot.machines {
            let known = know(snapshot, policy, now, name, machine, &doubled);
            if let Some((node, _)) = known.node {
                machine_of.insert(&**node, &**name);
            }
            machines.insert(&**name, known);
        }
        let pods = ByNode::of(&snapshot.cluster);
        let mut view = View {
            snapshot,
            policy,
            now,
            daemon_requests: daemon_requests(&pods),
            claims: Claims::new(&snapshot.cluster, policy, &pods.unbound),
            pods,
            leaving: BTreeSet::new(),
            machines,
            machine_of,
        };
        let nodes = snapshot.cluster.nodes.iter();
        view.leaving = nodes
            .filter(|(name, node)| view.goes(name, node))
            .map(|(name, _)| &**name)
            .collect();
        view
    }

    /// The pods that run on a node.
    pub(super) fn pods(&self, node: &str) -> &[Keyed<'a>] {
        self.pods.on(node)
    }

    /// The same pods, with what is asked of every one.
    pub(super) fn running(&self, node: &str) -> &[Running<'a>] {
        self.pods.running(node)
    }

    /// Pods that are not bound, or that run on a node that is leaving, in the order of their keys.
    pub(super) fn without_place(&self) -> Vec<Keyed<'a>> {
        let leaving = self.leaving.iter().flat_map(|name| self.pods(name));
        let mut pods: Vec<Keyed<'a>> = self.pods.unbound.iter().chain(leaving).copied().collect();
        if !self.leaving.is_empty() {
            pods.sort_unstable_by_key(|(key, _)| *key);
        }
        pods
    }

    /// The machine behind a node.
    pub(super) fn behind(&self, node: &str) -> Option<&Known<'a>> {
        self.machine_of
            .get(node)
            .and_then(|name| self.machines.get(name))
    }

    /// Whether pods of this node will soon need another place: it is being removed.
    pub(super) fn leaving(&self, name: &str) -> bool {
        !self.leaving.is_empty() && self.leaving.contains(name)
    }

    fn goes(&self, name: &str, node: &Node) -> bool {
        node.deletion.is_some()
            || has_taint(node, LEAVING_TAINT)
            || self.behind(name).is_some_and(|known| {
                matches!(
                    known.standing,
                    Standing::Leaving | Standing::Failed | Standing::Overdue | Standing::NoVm
                )
            })
    }
}

fn daemon_requests<'a>(pods: &ByNode<'a>) -> BTreeMap<&'a str, Resources> {
    let mut most: BTreeMap<&str, Resources> = BTreeMap::new();
    for pod in pods.all().iter().filter(|pod| !pod.deleting) {
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
pub(super) fn has_taint(node: &Node, key: &str) -> bool {
    node.taints.iter().any(|taint| &*taint.key == key)
}

/// Machine names of ours that more than one VM claims.
fn doubled(snapshot: &Snapshot) -> BTreeSet<&str> {
    let (mut seen, mut doubled) = (BTreeSet::new(), BTreeSet::new());
    let marks = snapshot
        .regions
        .values()
        .flat_map(|region| region.vms.values())
        .filter_map(|vm| match &vm.ownership {
            Some(Ownership::Marked(mark)) => Some(mark),
            _ => None,
        })
        .filter(|mark| Some(&*mark.cluster) == snapshot.cluster_id.as_deref());
    for mark in marks {
        if !seen.insert(&*mark.machine) {
            doubled.insert(&*mark.machine);
        }
    }
    doubled
}

fn know<'a>(
    snapshot: &'a Snapshot,
    policy: &'a Policy,
    now: Time,
    name: &'a Arc<str>,
    machine: &'a Machine,
    doubled: &BTreeSet<&str>,
) -> Known<'a> {
    let pool = policy.pools.get(&*machine.mark.pool);
    let node = machine
        .node
        .as_ref()
        .and_then(|name| snapshot.cluster.nodes.get_key_value(name));
    let mut known = Known {
        name,
        machine,
        pool,
        kind: policy.instance_types.get(&*machine.mark.instance_type),
        node,
        region: snapshot
            .regions
            .get(&machine.region)
            .map(|region| &**region),
        standing: Standing::Coming,
    };
    known.standing = match untouchable(snapshot, &known, doubled) {
        Some(why) => Standing::Untouchable(why),
        None => standing(&known, policy, now, too_early(snapshot, machine)),
    };
    known
}

/// Why a machine must be left alone, if it must.
fn untouchable(snapshot: &Snapshot, known: &Known<'_>, doubled: &BTreeSet<&str>) -> Option<String> {
    let mark = &known.machine.mark;
    if Some(&*mark.cluster) != snapshot.cluster_id.as_deref() {
        return Some(format!("its mark names the cluster {}", mark.cluster));
    }
    if **known.name != *mark.machine {
        return Some(format!("its mark names the machine {}", mark.machine));
    }
    if doubled.contains(&**known.name) {
        return Some("more than one VM carries its mark".to_owned());
    }
    match known
        .region
        .and_then(|region| region.vms.get(&mark.vmid))
        .and_then(|vm| vm.ownership.as_ref())
    {
        Some(Ownership::Damaged(why)) => return Some(format!("its mark is damaged: {why}")),
        Some(Ownership::UnknownVersion(version)) => {
            return Some(format!("its mark has the unknown version {version}"));
        }
        Some(Ownership::Marked(seen)) if seen != mark => {
            return Some("its VM carries another mark than its intent".to_owned());
        }
        _ => {}
    }
    let vm = known.machine.vm.as_ref()?;
    let remains = matches!(vm.lock.as_deref(), Some("clone" | "destroyed"));
    if !(vm.marked || known.machine.intended && remains) {
        return Some("its VM does not carry its mark".to_owned());
    }
    match (&vm.uuid, known.node) {
        (Some(uuid), Some((name, node)))
            if !node.system_uuid.is_empty() && !uuid.eq_ignore_ascii_case(&node.system_uuid) =>
        {
            Some(format!("the UUID of its node {name} is not its VM's"))
        }
        _ => None,
    }
}

/// Whether the region was last read before the machine's present step began: a VM that was cloned
/// since then cannot be in that view, and is not gone.
fn too_early(snapshot: &Snapshot, machine: &Machine) -> bool {
    let source = snapshot
        .sources
        .get(format!("pve/{}", machine.region).as_str());
    match (machine.step, source) {
        (Some((_, since)), Some(source)) => source.as_of < since,
        _ => false,
    }
}

/// `early`: a VM that is not seen may exist nonetheless.
fn standing(known: &Known<'_>, policy: &Policy, now: Time, early: bool) -> Standing {
    let machine = known.machine;
    let step = known.step();
    let leaving = known
        .node
        .is_some_and(|(_, node)| node.deletion.is_some() || has_taint(node, LEAVING_TAINT));
    if machine.busy == Some(Busy::Down) || leaving || step >= Some(Step::Drain) {
        return Standing::Leaving;
    }
    let early = early && machine.vm.is_none();
    if !early && machine.vm.is_none() && (step > Some(Step::Clone) || known.node.is_some()) {
        return Standing::NoVm;
    }
    if known
        .node
        .is_some_and(|(_, node)| step == Some(Step::Done) || initialised(node, known.pool))
    {
        return Standing::Up;
    }
    // Its node is found by its VM's UUID.
    if step == Some(Step::Done) && !early {
        return Standing::NoNode;
    }
    if machine
        .failure
        .as_ref()
        .is_some_and(|failure| failure.step < Step::Done)
    {
        return Standing::Failed;
    }
    if now.since(machine.mark.created) > policy.scale_up.max_provision_time {
        return Standing::Overdue;
    }
    Standing::Coming
}

/// Whether a node has once been made ready for pods: our startup taint is gone, and those of its
/// pool. A node that loses contact later stays initialised.
fn initialised(node: &Node, pool: Option<&PoolPolicy>) -> bool {
    !node.taints.iter().any(|taint| startup(&taint.key, pool))
}

/// Whether a taint goes by itself once the node is initialised.
pub(super) fn startup(key: &str, pool: Option<&PoolPolicy>) -> bool {
    key == STARTUP_TAINT
        || pool.is_some_and(|pool| pool.startup_taints.iter().any(|taint| *taint.key == *key))
}
