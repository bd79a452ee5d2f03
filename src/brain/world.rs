//! The cluster as it will be: nodes, machines under way and machines planned, each with what is
//! still free on it. Pods are put into it; nothing is ever read back from the snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::cluster::{Node, Pod, PodKey};
use crate::model::resources::Resources;
use crate::model::scheduling::{HostPort, Labels, PodShape, Taint};
use crate::model::time::Span;

use super::capacity;
use super::fit::volumes::{self, Need};
use super::fit::{self, Misfit, Place, amounts, taints};
use super::offer::{self, Choice, HOSTNAME_LABEL};
use super::turn::Turn;
use super::view::{Known, Standing, startup};

/// Index of a shape in [`World::shapes`].
pub(super) type ShapeId = usize;

/// A shape in a namespace: what filters read of all its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape<'a> {
    pub(super) namespace: &'a str,
    pub(super) shape: &'a PodShape,
}

/// Pods of one shape on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resident {
    pub(super) shape: ShapeId,
    pub(super) count: u64,
    /// Being deleted: it still holds its place and is not counted for spreading.
    pub(super) deleting: bool,
}

/// What stands behind a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// A node that works.
    Node,
    /// A machine of ours on its way up, by name.
    Machine(Arc<str>),
    /// A machine planned now: index into the plan's births.
    Planned(usize),
}

/// One node, now or soon.
#[derive(Clone, Debug)]
pub(super) struct Bin {
    pub(super) name: Arc<str>,
    pub(super) site: Site,
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) unschedulable: bool,
    /// Ready now, so that a drained pod may be sent there.
    pub(super) ready: bool,
    /// It is leaving, or a step has taken it out: nothing may be put there.
    pub(super) closed: bool,
    /// What is left.
    pub(super) free: Resources,
    pub(super) ports: Vec<HostPort>,
    pub(super) residents: Vec<Resident>,
    /// Pods that this decision puts here and that are not bound: shape, claims, how many.
    pub(super) guests: Vec<(ShapeId, Option<Arc<Need>>, usize)>,
    /// Pods of a node that goes shall come here: it must stay.
    pub(super) receives: bool,
}

/// What a simulation changes of a place.
#[derive(Debug)]
pub(super) struct Saved {
    free: Resources,
    ports: usize,
    residents: Vec<Resident>,
}

/// All places, and the shapes of all pods.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) shapes: Vec<Shape<'a>>,
    pub(super) bins: Vec<Bin>,
    pub(super) by_name: BTreeMap<Arc<str>, usize>,
    /// Shapes with required anti-affinity: they keep others out.
    pub(super) averse: Vec<ShapeId>,
    /// Labels of the namespaces.
    pub(super) namespaces: &'a BTreeMap<Arc<str>, Labels>,
    known: BTreeMap<Shape<'a>, ShapeId>,
    /// Shapes by address: equal shapes are mostly one allocation, and comparing addresses is cheap.
    /// Only ever looked up, never walked: addresses decide nothing.
    seen: BTreeMap<(usize, &'a str), ShapeId>,
}

impl Bin {
    /// What filters read of it.
    pub(super) fn place(&self) -> Place<'_> {
        Place {
            name: &self.name,
            labels: &self.labels,
            taints: &self.taints,
            unschedulable: self.unschedulable,
        }
    }

    /// Why a shape may not be here at all, whatever else runs.
    pub(super) fn misfit(&self, shape: &PodShape, need: Option<&Need>) -> Option<Misfit> {
        fit::misfit(shape, self.place()).or_else(|| {
            let new = matches!(self.site, Site::Planned(_));
            need.and_then(|need| volumes::misfit(need, &self.name, &self.labels, new))
        })
    }

    /// How many more pods of a shape there is room for.
    pub(super) fn room(&self, shape: &PodShape) -> u64 {
        fit::room(shape, &self.free, &self.ports)
    }

    /// What [`Bin::restore`] goes back to.
    pub(super) fn save(&self) -> Saved {
        Saved {
            free: self.free.clone(),
            ports: self.ports.len(),
            residents: self.residents.clone(),
        }
    }

    /// Takes back all that was put here since [`Bin::save`].
    pub(super) fn restore(&mut self, saved: Saved) {
        self.free = saved.free;
        self.ports.truncate(saved.ports);
        self.residents = saved.residents;
    }

    /// Puts `count` pods of a shape here.
    pub(super) fn put(&mut self, id: ShapeId, shape: &PodShape, count: u64, deleting: bool) {
        amounts::take(&mut self.free, &shape.requests, count);
        self.ports.extend(shape.host_ports.iter().cloned());
        match self
            .residents
            .iter_mut()
            .find(|r| r.shape == id && r.deleting == deleting)
        {
            Some(resident) => resident.count = resident.count.saturating_add(count),
            None => self.residents.push(Resident {
                shape: id,
                count,
                deleting,
            }),
        }
    }
}

impl<'a> World<'a> {
    /// Everything there is and that is on its way, with what runs on it.
    pub(super) fn build(turn: &Turn<'a>, choices: &[Choice<'a>]) -> World<'a> {
        let mut world = World {
            shapes: Vec::new(),
            bins: Vec::new(),
            by_name: BTreeMap::new(),
            averse: Vec::new(),
            namespaces: &turn.view.snapshot.cluster.namespaces,
            known: BTreeMap::new(),
            seen: BTreeMap::new(),
        };
        for (name, node) in &turn.view.snapshot.cluster.nodes {
            let bin = node_bin(turn, choices, name, node);
            world.add(bin);
            let mut daemons = turn
                .view
                .behind(name)
                .filter(|known| known.standing == Standing::Coming)
                .map(|known| expected_daemons(turn, known))
                .unwrap_or_default();
            for (key, pod) in turn.view.pods(name) {
                world.put_pod(name, key, pod);
                daemons.retain(|(namespace, shape)| {
                    **namespace != key.namespace || !same_set(shape, &pod.shape)
                });
            }
            for (namespace, shape) in daemons {
                let id = world.intern(namespace, shape);
                world.put(name, id, 1);
            }
        }
        for known in turn.view.machines.values() {
            world.add_machine(turn, choices, known);
        }
        world
    }

    /// Adds a place.
    pub(super) fn add(&mut self, bin: Bin) -> usize {
        let index = self.bins.len();
        self.by_name.insert(bin.name.clone(), index);
        self.bins.push(bin);
        index
    }

    /// The id of a shape in a namespace.
    pub(super) fn intern(&mut self, namespace: &'a Arc<str>, shape: &'a Arc<PodShape>) -> ShapeId {
        let address = Arc::as_ptr(shape).addr();
        if let Some(id) = self.seen.get(&(address, &**namespace)) {
            return *id;
        }
        let key = Shape { namespace, shape };
        let next = self.shapes.len();
        let id = *self.known.entry(key).or_insert(next);
        if id == next {
            self.shapes.push(key);
            if !shape.pod_anti_affinity.is_empty() {
                self.averse.push(id);
            }
        }
        self.seen.insert((address, namespace), id);
        id
    }

    /// Puts `count` pods of a shape on the place of this name.
    pub(super) fn put(&mut self, name: &str, id: ShapeId, count: u64) {
        let shape = self.shapes[id].shape;
        if let Some(index) = self.by_name.get(name) {
            self.bins[*index].put(id, shape, count, false);
        }
    }

    /// Puts a pod on the node that kube-scheduler has nominated for it.
    pub(super) fn welcome(&mut self, node: &str, key: &'a PodKey, pod: &'a Pod) {
        self.put_pod(node, key, pod);
        let id = self.intern(&key.namespace, &pod.shape);
        if let Some(index) = self.by_name.get(node) {
            self.bins[*index].guests.push((id, None, 1));
        }
    }

    /// Puts a bound pod on its node.
    pub(super) fn put_pod(&mut self, node: &str, key: &'a PodKey, pod: &'a Pod) {
        let id = self.intern(&key.namespace, &pod.shape);
        if let Some(index) = self.by_name.get(node) {
            self.bins[*index].put(id, &pod.shape, 1, pod.deletion.is_some());
        }
    }

    /// A machine without a node takes pods as its template would.
    fn add_machine(&mut self, turn: &Turn<'a>, choices: &[Choice<'a>], known: &Known<'a>) {
        if known.standing != Standing::Coming || known.node.is_some() {
            return;
        }
        let Some((choice, offer)) = template(choices, known) else {
            return;
        };
        let mut labels = offer.labels.clone();
        labels.insert(HOSTNAME_LABEL.into(), known.name.clone());
        self.add(Bin {
            name: known.name.clone(),
            site: Site::Machine(known.name.clone()),
            labels,
            taints: choice.policy.taints.clone(),
            unschedulable: false,
            ready: false,
            closed: false,
            free: offer.allocatable.clone(),
            ports: Vec::new(),
            residents: Vec::new(),
            guests: Vec::new(),
            receives: false,
        });
        for (namespace, shape) in expected_daemons(turn, known) {
            let id = self.intern(namespace, shape);
            self.put(known.name, id, 1);
        }
    }
}

/// Whether a pod is of a DaemonSet with this template: by its owner where that is known, else by
/// what it is.
fn same_set(template: &PodShape, pod: &PodShape) -> bool {
    let daemon = pod.owner.as_ref().is_some_and(|o| &*o.kind == "DaemonSet");
    let same_owner = match (&template.owner, &pod.owner) {
        (Some(a), Some(b)) => a.uid == b.uid,
        _ => true,
    };
    let labels = template
        .labels
        .iter()
        .all(|(key, value)| pod.labels.get(key) == Some(value));
    daemon && same_owner && labels && template.requests == pod.requests
}

/// The offer that a machine was made from.
fn template<'b, 'a>(
    choices: &'b [Choice<'a>],
    known: &Known<'_>,
) -> Option<(&'b Choice<'a>, &'b offer::Offer<'a>)> {
    let mark = &known.machine.mark;
    let choice = choices
        .iter()
        .find(|choice| **choice.pool == *mark.pool && **choice.type_name == *mark.instance_type)?;
    let offer = choice
        .offers
        .iter()
        .find(|offer| *offer.host == known.machine.host)
        .or(choice.offers.first())?;
    Some((choice, offer))
}

fn expected_daemons<'a>(
    turn: &Turn<'a>,
    known: &Known<'a>,
) -> Vec<(&'a Arc<str>, &'a Arc<PodShape>)> {
    let (Some(pool), Some(kind)) = (known.pool, known.kind) else {
        return Vec::new();
    };
    let pool_name: Arc<str> = known.pool_name().into();
    let type_name: Arc<str> = known.machine.mark.instance_type.as_str().into();
    let host = &known.machine.host;
    let labels = offer::labels(&pool_name, pool, &type_name, kind, host, known.name);
    offer::daemons(turn, &labels, pool, known.name)
}

/// How long a node of ours that lost contact still counts as on its way back.
fn patience(turn: &Turn<'_>) -> Span {
    turn.view.policy.scale_up.max_provision_time
}

fn node_bin(turn: &Turn<'_>, choices: &[Choice<'_>], name: &Arc<str>, node: &Node) -> Bin {
    let known = turn.view.behind(name);
    let standing = known.map(|known| &known.standing);
    let coming = standing == Some(&Standing::Coming);
    let ready = node.ready.status == crate::model::cluster::ReadyStatus::True;
    // A working node of ours that lost contact a short while ago is expected back.
    let lost = standing == Some(&Standing::Up)
        && !ready
        && node
            .ready
            .since
            .is_none_or(|since| turn.now().since(since) <= patience(turn));
    let pool = known.and_then(|known| known.pool);
    let mut bin = Bin {
        name: name.clone(),
        site: Site::Node,
        labels: node.labels.clone(),
        taints: node.taints.clone(),
        unschedulable: node.unschedulable,
        ready: ready && !coming,
        closed: turn.view.leaving(name, node),
        free: node.allocatable.clone(),
        ports: Vec::new(),
        residents: Vec::new(),
        guests: Vec::new(),
        receives: false,
    };
    if coming || lost {
        bin.taints
            .retain(|taint| !(taints::ephemeral(taint) || coming && startup(&taint.key, pool)));
    }
    if let Some(known) = known.filter(|_| coming)
        && let Some((choice, offer)) = template(choices, known)
    {
        bin.site = Site::Machine(known.name.clone());
        for (key, value) in &offer.labels {
            bin.labels
                .entry(key.clone())
                .or_insert_with(|| value.clone());
        }
        bin.labels.insert(HOSTNAME_LABEL.into(), known.name.clone());
        for taint in &choice.policy.taints {
            if !bin.taints.contains(taint) {
                bin.taints.push(taint.clone());
            }
        }
        bin.free = capacity::promised(&node.allocatable, &offer.allocatable);
    }
    bin
}
