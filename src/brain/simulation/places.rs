//! Builds the world: every node, every machine under way as its template, and what runs there.

use std::borrow::Cow;
use std::sync::Arc;

use model::cluster::{Node, ReadyStatus};
use model::policy::{InstanceType, PoolPolicy};
use model::resources::Resources;
use model::scheduling::{Labels, PodShape, Taint};
use model::time::{Span, Time};

use crate::constraints::alike::Alike;
use crate::constraints::fit::taints;
use crate::constraints::free_volumes::VolumeBindings;
use crate::constraints::shape::HOSTNAME_LABEL;
use crate::constraints::shape::{NamespacedShape, Resident};
use crate::decision::turn::DecisionBuilder;
use crate::index::{ClassId, IndexVec, NodeIndex, ResidentIndex, RunningKindIndex, ShapeId};
use crate::observed::view::{MachinePhase, MachineView};
use crate::simulation::capacity;
use crate::simulation::offer::{self, Choice, ChoiceList, Daemon};
use crate::simulation::slots;
use crate::simulation::world::{NodeOrigin, SimCluster, SimNode};

/// Everything there is and that is on its way, with what runs on it.
pub(crate) fn build<'a>(turn: &DecisionBuilder<'a>, choices: &ChoiceList<'a>) -> SimCluster<'a> {
    let cluster = &turn.view.snapshot.cluster;
    let evicted = turn.memory.evicted.values().map(|pod| NamespacedShape {
        namespace: &pod.pod.namespace,
        shape: &pod.shape,
    });
    let alike = Alike::of(turn.view.snapshot, evicted.chain(turn.beside));
    let mut world = SimCluster::empty(
        turn.view.snapshot,
        turn.view.policy,
        alike,
        turn.view.claims.free_volumes.clone(),
    );
    world.name(cluster.nodes.keys());
    let mut counting = ResidentCount::new(turn);
    // The nodes come first, so that each has the same index as in the view.
    for (name, node) in &cluster.nodes {
        let index = world.nodes.next_index();
        world.add_named(simulate_node(turn, choices, (index, name), node));
        let residents = counting.residents(turn, &mut world, index);
        world.fill(index, residents);
        let machine = turn.view.machine_at(index);
        if let Some(machine) = machine.filter(|machine| is_expected(turn, machine)) {
            let mut daemons = expected_daemons(turn, machine);
            for resident in &world.nodes[index].residents {
                let pod = world.shapes[resident.shape];
                daemons.retain(|daemon| {
                    *daemon.key.namespace != *pod.namespace || !same_set(daemon.shape, pod.shape)
                });
            }
            for daemon in daemons {
                daemon.put(&mut world, index);
            }
        }
    }
    for machine in turn.view.machines.values() {
        add_machine(&mut world, turn, choices, machine);
    }
    world
}

/// Counts the pods of one node after the other by shape.
struct ResidentCount {
    /// The shapes of the view's kinds, as far as they came.
    ids: IndexVec<RunningKindIndex, Option<ShapeId>>,
    /// By shape and by whether pods are being deleted: on which node such pods came last, and where they
    /// stand among its residents.
    last: IndexVec<ShapeId, [Option<(NodeIndex, ResidentIndex)>; 2]>,
}

impl ResidentCount {
    fn new(turn: &DecisionBuilder<'_>) -> ResidentCount {
        ResidentCount {
            ids: turn.view.kinds().with_each(None),
            last: IndexVec::default(),
        }
    }

    /// What runs on a node, in the order in which it comes.
    fn residents<'a>(
        &mut self,
        turn: &DecisionBuilder<'a>,
        world: &mut SimCluster<'a>,
        node: NodeIndex,
    ) -> IndexVec<ResidentIndex, Resident> {
        let running = turn.view.running_at(node);
        let mut residents: IndexVec<ResidentIndex, Resident> =
            Vec::with_capacity(running.len()).into();
        for pod in running {
            let shape = *self.ids[pod.kind].get_or_insert_with(|| {
                let kind = turn.view.kinds()[pod.kind];
                world.intern(kind.namespace, kind.shape)
            });
            let last = &mut self.last.get_or_grow(shape)[usize::from(pod.deleting)];
            match *last {
                Some((on, at)) if on == node => residents[at].count += 1,
                _ => {
                    let at = residents.push(Resident {
                        deleting: pod.deleting,
                        ..Resident::of(shape, 1)
                    });
                    *last = Some((node, at));
                }
            }
        }
        residents
    }
}

/// A machine without a node takes pods as its template would.
fn add_machine<'a>(
    world: &mut SimCluster<'a>,
    turn: &DecisionBuilder<'a>,
    choices: &ChoiceList<'a>,
    machine: &MachineView<'a>,
) {
    if !is_expected(turn, machine) || machine.node.is_some() {
        return;
    }
    let Some(promise) = promise(turn, choices, machine) else {
        return;
    };
    let index = world.add(SimNode {
        name: machine.name.clone(),
        origin: NodeOrigin::Machine(machine.name.clone()),
        labels: promise.labels.into(),
        taints: promise.taints,
        unschedulable: false,
        class: ClassId(0),
        ready: false,
        closed: false,
        free: promise.allocatable,
        ports: Vec::new(),
        residents: IndexVec::default(),
        slots: slots::promised(turn, machine.pool_name(), machine.instance_type),
        new_pods: Vec::new(),
        bindings: VolumeBindings::default(),
        receives: false,
    });
    for daemon in expected_daemons(turn, machine) {
        daemon.put(world, index);
    }
}

/// Whether a pod is of the DaemonSet with this template.
fn same_set(template: &PodShape, pod: &PodShape) -> bool {
    let sets = template.owner.as_ref().zip(pod.owner.as_ref());
    sets.is_some_and(|(set, owner)| set.uid == owner.uid)
}

/// What a machine on its way will be.
struct Promise {
    labels: Labels,
    /// Taints that stay when the node works.
    taints: Vec<Taint>,
    allocatable: Resources,
}

/// What was promised of a machine: by the terms under which it was made, whatever the configuration
/// says of its pool and its type by now.
fn promise(
    turn: &DecisionBuilder<'_>,
    choices: &ChoiceList<'_>,
    machine: &MachineView<'_>,
) -> Option<Promise> {
    let (pool, instance_type) = (machine.promised()?, machine.instance_type?);
    let offered = offered(choices, machine).filter(|(choice, _)| {
        matches!(pool, Cow::Borrowed(_)) && choice.instance_type == instance_type
    });
    let allocatable = match offered {
        Some((_, offer)) => offer.allocatable.clone(),
        None => {
            let mark = &machine.seen.mark;
            let lesson =
                capacity::lesson_key(&mark.pool, &mark.instance_type, &pool, instance_type);
            let copies = machine
                .region
                .and_then(|region| region.templates.get(&*mark.template));
            let disk = copies
                .and_then(|copies| copies.first())
                .map_or(0, |copy| copy.disk);
            let learned = turn.memory.learned.get(&lesson).cloned();
            learned.unwrap_or_else(|| capacity::predicted(&pool, instance_type, disk))
        }
    };
    Some(Promise {
        labels: labels(turn, &pool, instance_type, machine),
        taints: pool.taints.clone(),
        allocatable,
    })
}

/// The offer that a machine was made from, as it is now.
fn offered<'b, 'a>(
    choices: &'b ChoiceList<'a>,
    machine: &MachineView<'_>,
) -> Option<(&'b Choice<'a>, &'b offer::Offer<'a>)> {
    let mark = &machine.seen.mark;
    let choice = offer::choice_of(choices, mark, &machine.seen.region)?;
    let offer = choice
        .offers
        .iter()
        .find(|offer| *offer.host == machine.seen.host)
        .or(choice.offers.first())?;
    Some((choice, offer))
}

/// The labels that a machine's node will carry, on the host where it is: the pool may not use that host
/// any more, and have no offer there.
fn labels(
    turn: &DecisionBuilder<'_>,
    pool: &PoolPolicy,
    instance_type: &InstanceType,
    machine: &MachineView<'_>,
) -> Labels {
    // A pool that has left the region of the machine.
    let region = &machine.seen.region;
    let left = (pool.region != *region).then(|| PoolPolicy {
        region: region.clone(),
        ..pool.clone()
    });
    let pool = left.as_ref().unwrap_or(pool);
    let pool_name: Arc<str> = machine.pool_name().into();
    let type_name: Arc<str> = machine.seen.mark.instance_type.as_str().into();
    let host = &machine.seen.host;
    let at = offer::NodeAt {
        host,
        zone: &turn.view.policy.zone_of(&pool.region, host),
        name: machine.name,
        vmid: machine.seen.mark.vmid,
    };
    offer::labels(&pool_name, pool, &type_name, instance_type, &at)
}

fn expected_daemons<'a>(turn: &DecisionBuilder<'a>, machine: &MachineView<'a>) -> Vec<Daemon<'a>> {
    let (Some(pool), Some(instance_type)) = (machine.promised(), machine.instance_type) else {
        return Vec::new();
    };
    let labels = labels(turn, &pool, instance_type, machine);
    offer::daemons(turn, &labels, &pool, machine.name)
}

/// How long a node of ours that lost contact still counts as on its way back.
fn patience(turn: &DecisionBuilder<'_>) -> Span {
    turn.view.policy.scale_up.max_provision_time
}

/// Whether a node of ours that is not Ready is expected back: it lost contact a short while ago, and its host is on.
fn expected_back(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>, node: &Node) -> bool {
    let waited = node.ready.since.map(|since| turn.now().since(since));
    waited.is_none_or(|waited| waited <= patience(turn)) && !host_is_off(turn, machine)
}

/// Whether a machine is on its way up and works once it is there. One whose host is off does not go on; it may, when the host is back.
pub(crate) fn is_expected(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> bool {
    machine.phase == MachinePhase::Coming && !host_is_off(turn, machine)
}

/// Whether a machine that was up has a node that is given up: it is not Ready, and not expected back; or a person
/// evacuates its host. Or it was on its way up, and its host is off.
pub(crate) fn is_given_up(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> bool {
    let lost = machine
        .node
        .filter(|(_, node)| node.ready.status != ReadyStatus::True);
    match machine.phase {
        MachinePhase::Coming => !is_expected(turn, machine),
        MachinePhase::Up => {
            lost.is_some_and(|(_, node)| !expected_back(turn, machine, node))
                || evacuated(turn, machine).is_some()
        }
        _ => false,
    }
}

/// Since when a person evacuates the host of a machine.
pub(crate) fn evacuated(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> Option<Time> {
    let region = turn.view.snapshot.regions.get(&machine.seen.region)?;
    region.hosts.get(&machine.seen.host)?.evacuated
}

/// Whether the host of a machine is not silent, as far as that is known.
pub(crate) fn host_answers(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> bool {
    let region = turn.view.snapshot.regions.get(&machine.seen.region);
    let host = region.and_then(|region| region.hosts.get(&machine.seen.host));
    host.is_none_or(|host| !host.silent)
}

/// Whether PVE, with quorum, shows the host of a machine offline.
pub(crate) fn host_is_off(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> bool {
    let region = turn.view.snapshot.regions.get(&machine.seen.region);
    let quorate = region.filter(|region| region.quorate);
    let host = quorate.and_then(|quorate| quorate.hosts.get(&machine.seen.host));
    host.is_some_and(|host| !host.online)
}

fn simulate_node(
    turn: &DecisionBuilder<'_>,
    choices: &ChoiceList<'_>,
    (index, name): (NodeIndex, &Arc<str>),
    node: &Node,
) -> SimNode {
    let machine = turn.view.machine_at(index);
    let phase = machine.map(|machine| &machine.phase);
    let coming = machine.is_some_and(|machine| is_expected(turn, machine));
    let ready = node.ready.status == ReadyStatus::True;
    let lost = phase == Some(&MachinePhase::Up)
        && !ready
        && machine.is_some_and(|machine| expected_back(turn, machine, node));
    let mut simulated = SimNode {
        name: name.clone(),
        origin: NodeOrigin::Node,
        labels: node.labels.clone(),
        taints: node.taints.clone(),
        unschedulable: node.unschedulable,
        class: ClassId(0),
        ready: ready && !coming,
        closed: turn.view.leaving_at(index),
        free: node.allocatable.clone(),
        ports: Vec::new(),
        residents: IndexVec::default(),
        slots: slots::of_node(turn, name, machine.filter(|_| coming)),
        new_pods: Vec::new(),
        bindings: VolumeBindings::default(),
        receives: false,
    };
    if coming || lost {
        let starts = |key: &str| coming && machine.is_some_and(|machine| machine.starts_with(key));
        simulated
            .taints
            .retain(|taint| !(taints::ephemeral(taint) || starts(&taint.key)));
    }
    if let Some(machine) = machine.filter(|_| coming)
        && let Some(promise) = promise(turn, choices, machine)
    {
        simulated.origin = NodeOrigin::Machine(machine.name.clone());
        for (key, value) in promise.labels {
            simulated.labels.entry(key).or_insert(value);
        }
        simulated
            .labels
            .insert(HOSTNAME_LABEL.into(), machine.name.clone());
        for taint in promise.taints {
            if !simulated.taints.contains(&taint) {
                simulated.taints.push(taint);
            }
        }
        simulated.free = capacity::promised(&node.allocatable, &promise.allocatable);
    }
    simulated
}
