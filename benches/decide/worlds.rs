//! The worlds of the workloads, and how to read a decision on them.
//!
//! W1 is the generator of Karpenter's `scheduling_benchmark_test.go`, W2 cluster-autoscaler's
//! `BenchmarkBinpackingEstimate`, W3 the shapes of its `BenchmarkFilterOutSchedulable`; rebuilt from
//! what they say, with another source of chance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pve_autoscaler::brain::explain::Asked;
use pve_autoscaler::brain::{LowerBound, decide, lower_bound};
use pve_autoscaler::model::action::Kind;
use pve_autoscaler::model::cluster::{
    Cluster, Node, ObjectKey, Phase, Pod, Readiness, ReadyStatus,
};
use pve_autoscaler::model::decision::Decision;
use pve_autoscaler::model::mark::{Mark, Ownership};
use pve_autoscaler::model::memory::{self, Memory};
use pve_autoscaler::model::policy::{
    InstanceType, Policy, PoolPolicy, RegionPolicy, ScaleDown, ScaleUp,
};
use pve_autoscaler::model::region::{Host, Machine, MachineVm, Region, Step, TemplateCopy, Vm};
use pve_autoscaler::model::resources::Resources;
use pve_autoscaler::model::scheduling::{
    LabelSelector, Labels, Owner, PodShape, PodTerm, PodTraits, SpreadConstraint,
};
use pve_autoscaler::model::shared::Shared;
use pve_autoscaler::model::snapshot::{self, Lease, Snapshot, SourceState};
use pve_autoscaler::model::time::{Span, Time};

pub(crate) const MI: i64 = 1 << 20;
pub(crate) const GI: i64 = 1 << 30;
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
const NOW: Time = Time(1_795_000_000_000);

/// A view with what is wanted of it.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) snapshot: Snapshot,
    pub(crate) policy: Policy,
    pub(crate) memory: Memory,
    /// One text for all pods, as the daemon keeps equal texts once.
    namespace: Arc<str>,
}

/// What a decision came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) nodes: usize,
    /// Pods for which there is, or will be, a place.
    pub(crate) placed: usize,
    /// Pods without.
    pub(crate) left: usize,
}

impl World {
    /// One more pod waits.
    pub(crate) fn one_more(&mut self) {
        let shape = Arc::new(shape("one-more", 100, GI));
        self.pod("one-more", &shape, None);
    }

    /// This world with a label of each pod's own, as Jobs and StatefulSets give them. What else there is to pods stays
    /// shared, as the daemon shares it.
    pub(crate) fn numbered(mut self) -> World {
        for (key, pod) in &mut self.snapshot.cluster.pods {
            let mut shape = PodShape::clone(&pod.shape);
            shape.labels.insert("own".into(), key.name.clone());
            pod.shape = Arc::new(shape);
        }
        self
    }

    pub(crate) fn decide(&self) -> Decision {
        decide(&self.snapshot, &self.policy, &self.memory, NOW)
    }

    /// The lower bound of a decision on this world: machines and price that any plan for the same pods needs.
    pub(crate) fn lower_bound(&self, decision: &Decision) -> LowerBound {
        lower_bound(Asked {
            snapshot: &self.snapshot,
            policy: &self.policy,
            memory: &self.memory,
            decision,
            now: NOW,
        })
    }

    /// A turn of the daemon's loop: the view is copied, decided on, and given back.
    pub(crate) fn turn(&self) -> Decision {
        let snapshot = self.snapshot.clone();
        decide(&snapshot, &self.policy, &self.memory, NOW)
    }
}

pub(crate) fn outcome(decision: &Decision) -> Outcome {
    let creates = |kind: &Kind| matches!(kind, Kind::Create(_));
    let nodes = decision.plan.iter().filter(|a| creates(&a.kind)).count();
    let verdicts = decision.report.pods.values();
    let placed = verdicts.filter(|verdict| verdict.is_placed()).count();
    Outcome {
        nodes,
        placed,
        left: decision.report.pods.len() - placed,
    }
}

/// Chance from a seed (splitmix64).
pub(crate) struct SeededRng(pub(crate) u64);

impl SeededRng {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let chance = z ^ (z >> 31);
        usize::try_from(chance % n as u64).unwrap_or(0)
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Three hosts of any size, and a template.
fn home() -> Region {
    let mut region = Region {
        quorate: true,
        ..Region::default()
    };
    for name in ["pve1", "pve2", "pve3"] {
        let host = Host {
            online: true,
            // As many as the largest type: PVE starts no VM with more cores than its host has CPUs.
            cpus: 512,
            memory: 1 << 58,
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
        disk: 20 * GI,
        disks: Vec::new(),
    };
    region.templates.insert("debian".into(), vec![copy]);
    region
}

/// Three hosts of any size, one pool of these types, limits that do not bind.
pub(crate) fn world(types: Vec<(String, InstanceType)>, max_pods: u32) -> World {
    let pool = PoolPolicy {
        region: "home".into(),
        template: "debian".into(),
        instance_types: types.iter().map(|(name, _)| name.as_str().into()).collect(),
        max: 1_000_000,
        max_pods,
        arch: "amd64".into(),
        ..PoolPolicy::default()
    };
    let policy = Policy {
        regions: BTreeMap::from([("home".into(), RegionPolicy::of_vmids(1000, 999_999_999))]),
        instance_types: types
            .into_iter()
            .map(|(name, kind)| (name.into(), kind))
            .collect(),
        pools: BTreeMap::from([("pool".into(), pool)]),
        scale_up: ScaleUp {
            batch_idle: Span::ZERO,
            batch_max: Span::ZERO,
            max_in_flight: 1_000_000,
            ..ScaleUp::default()
        },
        ..Policy::default()
    };
    let state = SourceState {
        complete: true,
        as_of: NOW,
        error: None,
        cause: None,
    };
    let sources =
        ["kube/pods", "kube/nodes", "pve/home"].map(|name| (Arc::from(name), state.clone()));
    World {
        snapshot: Snapshot {
            version: snapshot::VERSION,
            taken: NOW,
            cluster_id: Some("uid/bench".into()),
            sources: BTreeMap::from(sources),
            cluster: Cluster::default(),
            regions: BTreeMap::from([("home".into(), home().into())]),
            machines: BTreeMap::new(),
            leader: true,
            lease: Lease::default(),
            cluster_id_error: None,
            paused: None,
            awake: None,
            former: BTreeMap::new(),
            on_wire: BTreeMap::new(),
            nominations_refused: false,
        },
        policy,
        memory: Memory {
            version: memory::VERSION,
            began: Some(NOW - Span::minutes(24 * 60)),
            ..Memory::default()
        },
        namespace: "default".into(),
    }
}

pub(crate) fn shape(app: &str, milli: i64, memory: i64) -> PodShape {
    let traits = PodTraits {
        requests: Resources {
            cpu_milli: milli,
            memory,
            pods: 1,
            ..Resources::default()
        },
        grace_seconds: 30,
        ..PodTraits::default()
    };
    PodShape {
        labels: [("app".into(), app.into())].into(),
        owner: Some(Arc::new(Owner {
            kind: "ReplicaSet".into(),
            name: app.into(),
            uid: format!("uid-{app}").into(),
        })),
        traits: Arc::new(traits),
    }
}

impl World {
    /// A pod that waits, or runs on a node.
    pub(crate) fn pod(&mut self, name: &str, shape: &Arc<PodShape>, node: Option<&Arc<str>>) {
        self.pod_in(self.namespace.clone(), name, shape, node);
    }

    /// A pod in a namespace of its own choice, which waits, or runs on a node.
    pub(crate) fn pod_in(
        &mut self,
        namespace: Arc<str>,
        name: &str,
        shape: &Arc<PodShape>,
        node: Option<&Arc<str>>,
    ) {
        let pod = Pod {
            uid: format!("uid-{name}").into(),
            shape: shape.clone(),
            node: node.cloned(),
            nominated: None,
            phase: if node.is_some() {
                Phase::Running
            } else {
                Phase::Pending
            },
            created: NOW - Span::seconds(60),
            arrival: 0,
            started: None,
            deletion: None,
            deletion_grace_seconds: None,
            unschedulable_since: node.is_none().then_some(NOW),
            gated: false,
            mirror: false,
            ready: node.is_some(),
        };
        let key = ObjectKey::new(namespace, name);
        self.snapshot.cluster.pods.insert(key, pod);
    }

    fn node(&mut self, name: &str, milli: i64, memory: i64, host: &str) -> Arc<str> {
        let allocatable = Resources {
            cpu_milli: milli,
            memory,
            ephemeral: 20 * GI,
            pods: 110,
            ..Resources::default()
        };
        let labels = [
            (HOSTNAME, name),
            (ZONE, host),
            ("kubernetes.io/arch", "amd64"),
            ("kubernetes.io/os", "linux"),
            ("node.kubernetes.io/instance-type", "type-0000"),
            ("pve-autoscaler.io/pool", "pool"),
            ("topology.kubernetes.io/region", "home"),
        ];
        let node = Node {
            uid: format!("uid-{name}").into(),
            system_uuid: format!("uuid-{name}").into(),
            provider_id: None,
            created: NOW - Span::minutes(24 * 60),
            deletion: None,
            labels: labels
                .into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect::<Labels>()
                .into(),
            annotations: Labels::new().into(),
            taints: Vec::new(),
            unschedulable: false,
            capacity: allocatable.clone(),
            allocatable,
            ready: Readiness {
                status: ReadyStatus::True,
                since: None,
                why: None,
            },
            kubelet_version: "v1.34.1".into(),
            addresses: Vec::new(),
        };
        let name: Arc<str> = name.into();
        self.snapshot.cluster.nodes.insert(name.clone(), node);
        name
    }

    /// The machine behind a node.
    fn machine(&mut self, name: &Arc<str>, vmid: u32, host: &str) {
        let mark = Mark {
            cluster: "uid/bench".into(),
            machine: name.to_string(),
            vmid,
            pool: "pool".into(),
            instance_type: "type-0000".into(),
            template: "debian".into(),
            token: format!("{vmid:0>6}"),
            created: NOW - Span::minutes(24 * 60),
            addresses: BTreeMap::new(),
            cpus: pve_autoscaler::model::cpus::CpuSet::new(),
            unknown: [].into(),
        };
        let mark = Shared::from(mark);
        let kind = &self.policy.instance_types["type-0000"];
        let vm = Vm {
            host: host.into(),
            name: name.clone(),
            running: true,
            cpus: kind.cores,
            memory: kind.memory,
            ownership: Some(Ownership::Marked(mark.clone())),
            ..Vm::default()
        };
        let region = self.snapshot.regions.get_mut("home").expect("home");
        region.vms.insert(vmid, vm);
        let machine = Machine {
            terms: None,
            region: "home".into(),
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
            node: Some(name.clone()),
            contradiction: None,
            remembered: None,
            step: Some((Step::Done, NOW - Span::minutes(24 * 60))),
            failure: None,
            busy: None,
        };
        self.snapshot.machines.insert(name.clone(), machine);
    }
}

pub(crate) fn selector(key: &str, value: &str) -> LabelSelector {
    LabelSelector {
        labels: Labels::from([(key.into(), value.into())]),
        ..LabelSelector::default()
    }
}

pub(crate) fn spread(key: &str, selected: &str) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        topology_key: key.into(),
        hard: true,
        selector: Some(selector("my-label", selected)),
        min_domains: None,
        match_label_keys: Vec::new(),
        honor_affinity: true,
        honor_taints: false,
    }
}

/// W1: 400 types from 1 core with 2 GiB on, priced by both, three zones, and pods of five classes.
pub(crate) fn diverse(pods: usize) -> World {
    let types = (1..=400u32).map(|i| {
        let kind = InstanceType {
            cores: i,
            memory: i64::from(i) * 2 * GI,
            price: Some(i64::from(i) * (100_000 + 214_748)),
            ..InstanceType::default()
        };
        (format!("type-{i:0>4}"), kind)
    });
    let mut world = world(types.collect(), 4000);
    let pool = world.policy.pools.get_mut("pool").expect("the pool");
    pool.reserved.cpu_milli = 100;
    pool.reserved.memory = 10 * MI;
    let mut rng = SeededRng(42);
    let mut known: BTreeMap<PodShape, Arc<PodShape>> = BTreeMap::new();
    for n in 0..pods {
        let shape = diverse_shape(&mut rng, n * 5 / pods.max(1));
        let shape = known
            .entry(shape)
            .or_insert_with_key(|shape| Arc::new(shape.clone()))
            .clone();
        world.pod(&format!("pod-{n:0>6}"), &shape, None);
    }
    world
}

fn diverse_shape(rng: &mut SeededRng, class: usize) -> PodShape {
    const LETTERS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
    let milli = rng.of(&[100, 250, 500, 1000, 1500]);
    let memory = rng.of(&[100, 256, 512, 1024, 2048, 4096]) * MI;
    let mut shape = shape("bench", milli, memory);
    shape.labels = [("my-label".into(), rng.of(&LETTERS).into())].into();
    match class {
        0 => {}
        1 => shape.spread.push(spread(ZONE, rng.of(&LETTERS))),
        2 => shape.spread.push(spread(HOSTNAME, rng.of(&LETTERS))),
        3 => {
            let letter = rng.of(&LETTERS);
            shape.labels = [("my-affininity".into(), letter.into())].into();
            shape.pod_affinity.push(PodTerm {
                selector: Some(selector("my-affininity", letter)),
                topology_key: ZONE.into(),
                ..PodTerm::default()
            });
        }
        _ => {
            shape.labels = [("app".into(), "nginx".into())].into();
            shape.pod_anti_affinity.push(PodTerm {
                selector: Some(selector("app", "nginx")),
                topology_key: HOSTNAME.into(),
                ..PodTerm::default()
            });
        }
    }
    shape
}

/// W2: many small pods of two sizes on nodes of one size.
pub(crate) fn binpacking(small: usize, large: usize) -> World {
    let kind = InstanceType {
        cores: 1,
        memory: 5000 * MI,
        ..InstanceType::default()
    };
    let mut world = world(vec![("type-0000".to_owned(), kind)], 100);
    let shapes = [
        (Arc::new(shape("small", 50, 100)), small),
        (Arc::new(shape("large", 95, 190)), large),
    ];
    for (shape, count) in shapes {
        let app = shape.labels["app"].clone();
        for n in 0..count {
            world.pod(&format!("{app}-{n:0>6}"), &shape, None);
        }
    }
    world
}

/// W3: pods of some shapes that fit neither on the nodes there are nor on one of ours.
pub(crate) fn no_compatible_pool(nodes: usize, pods: usize, shapes: usize) -> World {
    let kind = InstanceType {
        cores: 1,
        memory: 2 * GI,
        ..InstanceType::default()
    };
    let mut world = world(vec![("type-0000".to_owned(), kind)], 110);
    let running = Arc::new(shape("running", 1000, 1 << 20));
    for n in 0..nodes {
        let node = world.node(&format!("node-{n:0>5}"), 2000, 4 * GI, "pve1");
        world.pod(&format!("running-{n:0>6}"), &running, Some(&node));
    }
    let waiting: Vec<Arc<PodShape>> = (0..shapes)
        .map(|n| Arc::new(shape(&format!("waiting-{n}"), 1001, 2_000_000)))
        .collect();
    for n in 0..pods {
        world.pod(&format!("waiting-{n:0>6}"), &waiting[n % shapes], None);
    }
    world
}

/// W4: a large cluster of ours at work, 30 pods a node of 500 workloads, some with rules about
/// others, and a few pods that wait.
pub(crate) fn large(nodes: usize) -> World {
    let kind = InstanceType {
        cores: 16,
        memory: 64 * GI,
        ..InstanceType::default()
    };
    let mut world = world(vec![("type-0000".to_owned(), kind)], 110);
    let workloads: Vec<Arc<PodShape>> = (0..500)
        .map(|n| {
            let app = format!("app-{n}");
            let mut shape = shape(&app, 300 + n % 5 * 50, (1 + n % 3) * GI);
            match n % 10 {
                0 => shape.pod_anti_affinity.push(PodTerm {
                    selector: Some(selector("app", &app)),
                    topology_key: HOSTNAME.into(),
                    ..PodTerm::default()
                }),
                1 => shape.spread.push(SpreadConstraint {
                    selector: Some(selector("app", &app)),
                    max_skew: 1000,
                    ..spread(ZONE, "a")
                }),
                _ => {}
            }
            Arc::new(shape)
        })
        .collect();
    for n in 0..nodes {
        let host = ["pve1", "pve2", "pve3"][n % 3];
        let node = world.node(&format!("pool-{n:0>5}"), 16_000, 64 * GI, host);
        let vmid = 1000 + u32::try_from(n).unwrap_or(0);
        world.machine(&node, vmid, host);
        for k in 0..30 {
            let app = (n * 30 + k) % 500;
            let name = format!("app-{app}-{n:0>5}");
            world.pod(&name, &workloads[app], Some(&node));
        }
    }
    for n in 0..20 {
        world.pod(&format!("waiting-{n}"), &workloads[n * 7], None);
    }
    world
}

/// W5: cluster-autoscaler's `BenchmarkRunOnceScaleDown`: 40 pods a node that ask for two fifths of it,
/// so that three fifths of the nodes can go; everything may go at once.
pub(crate) fn idle(nodes: usize) -> World {
    let kind = InstanceType {
        cores: 10,
        memory: 10_000 * MI,
        ..InstanceType::default()
    };
    let mut world = world(vec![("type-0000".to_owned(), kind)], 110);
    let all = u32::try_from(nodes).unwrap_or(u32::MAX);
    world.policy.scale_down = ScaleDown {
        unneeded_time: Span::ZERO,
        delay_after_add: Span::ZERO,
        max_parallel: all,
        max_parallel_drain: all,
        ..ScaleDown::default()
    };
    let workloads: Vec<Arc<PodShape>> = (0..20)
        .map(|n| Arc::new(shape(&format!("app-{n}"), 100, 100 * MI)))
        .collect();
    for n in 0..nodes {
        let host = ["pve1", "pve2", "pve3"][n % 3];
        let node = world.node(&format!("pool-{n:0>5}"), 10_000, 10_000 * MI, host);
        world.machine(&node, 1000 + u32::try_from(n).unwrap_or(0), host);
        for k in 0..40 {
            let name = format!("app-{}-{n:0>5}-{k}", k % 20);
            world.pod(&name, &workloads[k % 20], Some(&node));
        }
        if let Some(node) = world.snapshot.cluster.nodes.get_mut(&node) {
            node.allocatable.pods = 1000;
        }
    }
    world
}

/// How many machines a decision takes down.
pub(crate) fn removed(decision: &Decision) -> usize {
    let goes = |kind: &Kind| matches!(kind, Kind::Remove { .. });
    decision.plan.iter().filter(|a| goes(&a.kind)).count()
}
