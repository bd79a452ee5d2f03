//! A model of a cluster for a day of churn: its state is the snapshot that a decision is made on,
//! and time passes in steps. A scheduler that spreads, machines that take a minute, drains that take
//! none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pve_autoscaler::model::cluster::{
    Cluster, Node, ObjectKey, Phase, Pod, Readiness, ReadyStatus,
};
use pve_autoscaler::model::mark::{Mark, Ownership};
use pve_autoscaler::model::policy::{InstanceType, Policy, PoolPolicy, RegionPolicy, ScaleUp};
use pve_autoscaler::model::region::{
    Busy, Host, Machine, MachineVm, Region, Step, TemplateCopy, Vm,
};
use pve_autoscaler::model::resources::Resources;
use pve_autoscaler::model::scheduling::{Labels, Owner, PodShape, PodTraits};
use pve_autoscaler::model::shared::Shared;
use pve_autoscaler::model::snapshot::{self, Lease, Snapshot, SourceState};
use pve_autoscaler::model::time::{Span, Time};
use rand::RngExt as _;
use rand::rngs::StdRng;

const GIB: i64 = 1 << 30;
/// A node: cores, memory, pods.
const CORES: u32 = 16;
const MEMORY: i64 = 64 * GIB;
const MAX_PODS: u32 = 110;
/// From the order to a Ready node, for every policy.
pub(crate) const MAKING: Span = Span::seconds(60);
/// Pods by millicores, memory, and how many of a hundred are such.
const CLASSES: [(i64, i64, u32); 5] = [
    (250, GIB / 2, 40),
    (500, GIB, 30),
    (1_000, 2 * GIB, 15),
    (2_000, 8 * GIB, 10),
    (4_000, 16 * GIB, 5),
];
const POOL: &str = "pool";
const TYPE: &str = "node";
const REGION: &str = "home";
const MOST_NODES: u32 = 1_000;

/// What happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) created: usize,
    pub(crate) deleted: usize,
    pub(crate) evicted: usize,
    /// Milliseconds, summed over pods and over nodes (in the making ones too).
    pub(crate) pending: i64,
    pub(crate) node_time: i64,
}

/// The cluster.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) snapshot: Snapshot,
    pub(crate) policy: Policy,
    pub(crate) tally: Tally,
    /// Machines being made: when they are Ready.
    making: BTreeMap<Arc<str>, Time>,
    /// What is left of each node.
    free: BTreeMap<Arc<str>, Resources>,
    waiting: Vec<ObjectKey>,
    shapes: Vec<(Arc<PodShape>, u32)>,
    serial: u64,
}

impl Model {
    /// A cluster of `nodes` nodes without pods.
    pub(crate) fn new(nodes: u32, now: Time) -> Model {
        let shapes = CLASSES.iter().enumerate().map(|(number, class)| {
            let (cpu_milli, memory, share) = *class;
            (Arc::new(shape(number, cpu_milli, memory)), share)
        });
        let mut model = Model {
            snapshot: empty(now),
            policy: policy(),
            tally: Tally::default(),
            making: BTreeMap::new(),
            free: BTreeMap::new(),
            waiting: Vec::new(),
            shapes: shapes.collect(),
            serial: 0,
        };
        for number in 0..nodes {
            model.order(&format!("first-{number:04}"), 1_000 + number, "pve1", now);
        }
        model.making.values_mut().for_each(|ready| *ready = now);
        model.pass(now);
        model.tally = Tally::default();
        model
    }

    /// CPU that nodes have, and that pods on them or waiting ask for.
    pub(crate) fn cpu(&self) -> (i64, i64) {
        let nodes = i64::try_from(self.free.len()).unwrap_or(0) * i64::from(CORES) * 1_000;
        let pods = self.snapshot.cluster.pods.values();
        (nodes, pods.map(|pod| pod.shape.requests.cpu_milli).sum())
    }

    /// Nodes, and nodes in the making.
    pub(crate) fn nodes(&self) -> (usize, usize) {
        (self.free.len(), self.making.len())
    }

    /// Pods that wait, and the CPU they ask for.
    pub(crate) fn pending(&self) -> (usize, i64) {
        let cpu = |key: &ObjectKey| self.snapshot.cluster.pods[key].shape.requests.cpu_milli;
        (self.waiting.len(), self.waiting.iter().map(cpu).sum())
    }

    /// The node with the least CPU in use.
    pub(crate) fn emptiest(&self) -> Option<Arc<str>> {
        let nodes = self.free.iter();
        let emptiest = nodes.max_by_key(|(_, free)| free.cpu_milli);
        emptiest.map(|(name, _)| name.clone())
    }

    /// When a machine comes up next.
    pub(crate) fn next_ready(&self) -> Option<Time> {
        self.making.values().min().copied()
    }

    /// A pod comes.
    pub(crate) fn arrive(&mut self, rng: &mut StdRng, now: Time) {
        let mut drawn = rng.random_range(0..100_u32);
        let shapes = self.shapes.iter();
        let shape = shapes.clone().find(|(_, share)| {
            let found = drawn < *share;
            drawn = drawn.saturating_sub(*share);
            found
        });
        let shape = shape.map_or_else(|| self.shapes[0].0.clone(), |(shape, _)| shape.clone());
        self.serial += 1;
        let key = ObjectKey::new("default", format!("pod-{:08}", self.serial));
        let pod = Pod {
            uid: format!("uid-{}", self.serial).into(),
            shape,
            node: None,
            nominated: None,
            phase: Phase::Pending,
            created: now,
            arrival: 0,
            started: None,
            deletion: None,
            deletion_grace_seconds: None,
            unschedulable_since: Some(now),
            gated: false,
            mirror: false,
            ready: false,
        };
        self.snapshot.cluster.pods.insert(key.clone(), pod);
        self.waiting.push(key);
    }

    /// Any pod goes.
    pub(crate) fn depart(&mut self, rng: &mut StdRng) {
        let pods = &mut self.snapshot.cluster.pods;
        if pods.is_empty() {
            return;
        }
        let nth = rng.random_range(0..pods.len());
        let key = pods
            .keys()
            .nth(nth)
            .cloned()
            .expect("it is below the length");
        let gone = pods.remove(&key).expect("it was found");
        match gone.node.and_then(|node| self.free.get_mut(&node)) {
            Some(free) => free.add(&gone.shape.requests),
            None => self.waiting.retain(|waiting| *waiting != key),
        }
    }

    /// Time passes: what waited or stood is counted, machines come up, pods find their places.
    pub(crate) fn pass(&mut self, now: Time) {
        let passed = now.since(self.snapshot.taken).0;
        let count = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
        self.tally.pending += passed * count(self.waiting.len());
        self.tally.node_time += passed * count(self.free.len() + self.making.len());
        self.snapshot.taken = now;
        for source in self.snapshot.sources.values_mut() {
            source.as_of = now;
        }
        let ready: Vec<Arc<str>> = self
            .making
            .iter()
            .filter(|(_, ready)| **ready <= now)
            .map(|(name, _)| name.clone())
            .collect();
        for name in ready {
            self.making.remove(&name);
            self.comes_up(&name, now);
        }
        self.schedule(now);
    }

    /// Every waiting pod that fits goes to the node with the most CPU left, as kube-scheduler's
    /// default spreads; larger pods first.
    fn schedule(&mut self, now: Time) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let pods = &mut self.snapshot.cluster.pods;
        waiting.sort_by_key(|key| std::cmp::Reverse(pods[key].shape.requests.cpu_milli));
        waiting.retain(|key| {
            let Some(pod) = pods.get_mut(key) else {
                return false;
            };
            let asks = &pod.shape.requests;
            let fits = |free: &Resources| {
                free.cpu_milli >= asks.cpu_milli && free.memory >= asks.memory && free.pods >= 1
            };
            let nodes = self.free.iter_mut().filter(|(_, free)| fits(free));
            let Some((name, free)) = nodes.max_by_key(|(_, free)| free.cpu_milli) else {
                pod.unschedulable_since.get_or_insert(now);
                return true;
            };
            free.subtract(asks);
            pod.node = Some(name.clone());
            pod.phase = Phase::Running;
            pod.ready = true;
            pod.unschedulable_since = None;
            false
        });
        self.waiting = waiting;
    }

    /// A machine is ordered.
    pub(crate) fn order(&mut self, name: &str, vmid: u32, host: &str, now: Time) {
        let name: Arc<str> = name.into();
        let mark = Mark {
            cluster: "uid/bench".to_owned(),
            machine: name.to_string(),
            vmid,
            pool: POOL.to_owned(),
            instance_type: TYPE.to_owned(),
            template: "debian".to_owned(),
            token: "abcdef".to_owned(),
            created: now,
            addresses: BTreeMap::new(),
            cpus: pve_autoscaler::model::cpus::CpuSet::new(),
            unknown: [].into(),
        };
        let mark = Shared::from(mark);
        let vm = Vm {
            host: host.into(),
            name: name.clone(),
            running: true,
            cpus: CORES,
            memory: MEMORY,
            ownership: Some(Ownership::Marked(mark.clone())),
            ..Vm::default()
        };
        self.region().vms.insert(vmid, vm);
        let machine = Machine {
            terms: None,
            region: REGION.into(),
            host: host.into(),
            mark,
            storages: pve_autoscaler::model::chosen_storages::ChosenStorages::default(),
            intended: true,
            vm: Some(MachineVm {
                ha: false,
                running: true,
                lock: None,
                marked: true,
                uuid: Some(format!("uuid-{name}").into()),
                digest: None,
                differs: Vec::new(),
                drifted: None,
            }),
            node: None,
            contradiction: None,
            remembered: None,
            step: Some((Step::Agent, now)),
            failure: None,
            busy: Some(Busy::Up),
        };
        self.snapshot.machines.insert(name.clone(), machine);
        self.making.insert(name, now + MAKING);
        self.tally.created += 1;
    }

    fn comes_up(&mut self, name: &Arc<str>, now: Time) {
        let Some(machine) = self.snapshot.machines.get_mut(name) else {
            return;
        };
        machine.node = Some(name.clone());
        machine.step = Some((Step::Done, now));
        machine.busy = None;
        let node = node(name, &machine.host, now);
        self.free.insert(name.clone(), node.allocatable.clone());
        self.snapshot.cluster.nodes.insert(name.clone(), node);
    }

    /// A machine goes; its pods wait for another place.
    pub(crate) fn remove(&mut self, name: &Arc<str>, now: Time) {
        let Some(machine) = self.snapshot.machines.remove(name) else {
            return;
        };
        self.region().vms.remove(&machine.mark.vmid);
        self.making.remove(name);
        self.free.remove(name);
        self.snapshot.cluster.nodes.remove(name);
        for (key, pod) in &mut self.snapshot.cluster.pods {
            if pod.node.as_ref() == Some(name) {
                pod.node = None;
                pod.phase = Phase::Pending;
                pod.ready = false;
                pod.unschedulable_since = Some(now);
                self.waiting.push(key.clone());
                self.tally.evicted += 1;
            }
        }
        self.tally.deleted += 1;
    }

    fn region(&mut self) -> &mut Region {
        self.snapshot.regions.entry(REGION.into()).or_default()
    }
}

fn shape(number: usize, cpu_milli: i64, memory: i64) -> PodShape {
    let app: Arc<str> = format!("app-{number}").into();
    let traits = PodTraits {
        requests: Resources {
            cpu_milli,
            memory,
            pods: 1,
            ..Resources::default()
        },
        grace_seconds: 30,
        ..PodTraits::default()
    };
    PodShape {
        labels: [("app".into(), app.clone())].into(),
        owner: Some(Arc::new(Owner {
            kind: "ReplicaSet".into(),
            name: app.clone(),
            uid: format!("uid-{app}").into(),
        })),
        traits: Arc::new(traits),
    }
}

fn node(name: &Arc<str>, host: &Arc<str>, now: Time) -> Node {
    let capacity = Resources {
        cpu_milli: i64::from(CORES) * 1_000,
        memory: MEMORY,
        ephemeral: 40 * GIB,
        pods: i64::from(MAX_PODS),
        ..Resources::default()
    };
    let labels = [
        ("kubernetes.io/hostname", &**name),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", TYPE),
        ("pve-autoscaler.io/pool", POOL),
        ("topology.kubernetes.io/zone", host),
        ("topology.kubernetes.io/region", REGION),
    ];
    Node {
        uid: format!("uid-{name}").into(),
        system_uuid: format!("uuid-{name}").into(),
        provider_id: None,
        created: now,
        deletion: None,
        labels: labels
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect::<Labels>()
            .into(),
        annotations: Labels::new().into(),
        taints: Vec::new(),
        unschedulable: false,
        allocatable: capacity.clone(),
        capacity,
        ready: Readiness {
            status: ReadyStatus::True,
            since: Some(now),
            why: None,
        },
        kubelet_version: "v1.34.1".into(),
        addresses: Vec::new(),
    }
}

/// All defaults, but for the batch window, which is shorter than a step, and the limits.
fn policy() -> Policy {
    let pool = PoolPolicy {
        region: REGION.into(),
        template: "debian".into(),
        instance_types: vec![TYPE.into()],
        max: MOST_NODES,
        max_pods: MAX_PODS,
        arch: "amd64".into(),
        ..PoolPolicy::default()
    };
    let size = InstanceType {
        cores: CORES,
        memory: MEMORY,
        disk: 40 * GIB,
        ..InstanceType::default()
    };
    let region = RegionPolicy::of_vmids(1_000, 999_999);
    Policy {
        regions: BTreeMap::from([(REGION.into(), region)]),
        instance_types: BTreeMap::from([(TYPE.into(), size)]),
        pools: BTreeMap::from([(POOL.into(), pool)]),
        scale_up: ScaleUp {
            max_in_flight: 100,
            ..ScaleUp::default()
        },
        ..Policy::default()
    }
}

fn empty(now: Time) -> Snapshot {
    let mut region = Region {
        quorate: true,
        ..Region::default()
    };
    for name in ["pve1", "pve2", "pve3"] {
        let host = Host {
            online: true,
            cpus: 64,
            memory: 1 << 58,
            memory_used: 0,
            ..Host::default()
        };
        region.hosts.insert(name.into(), host);
    }
    let copy = TemplateCopy {
        fault: None,
        shared_addresses: BTreeMap::new(),
        bridges: BTreeSet::new(),
        uuid: None,
        redefined: false,
        vmid: 100,
        host: "pve1".into(),
        shared: true,
        tied: None,
        disk: 20 * GIB,
        disks: Vec::new(),
    };
    region.templates.insert("debian".into(), vec![copy]);
    let state = SourceState {
        complete: true,
        as_of: now,
        error: None,
        cause: None,
    };
    let sources = ["kube/pods", "kube/nodes", "pve/home"];
    Snapshot {
        version: snapshot::VERSION,
        taken: now,
        cluster_id: Some("uid/bench".into()),
        sources: sources.map(|name| (Arc::from(name), state.clone())).into(),
        cluster: Cluster::default(),
        regions: BTreeMap::from([(REGION.into(), region.into())]),
        machines: BTreeMap::new(),
        leader: true,
        lease: Lease::default(),
        cluster_id_error: None,
        paused: None,
        awake: None,
        former: BTreeMap::new(),
        on_wire: BTreeMap::new(),
        nominations_refused: false,
    }
}
