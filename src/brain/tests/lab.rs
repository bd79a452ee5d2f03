//! Small worlds for tests, built in a line or two each.
//!
//! Unless a test says otherwise: one region `home` with the hosts pve1, pve2 and pve3 of 4 TiB each, one
//! shared template, nothing reserved on nodes, batch windows of zero, all views fresh, and a memory
//! that began a day ago.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::action::Kind;
use model::chosen_storages::ChosenStorages;
use model::cluster::{
    Cluster, DaemonSet, DisruptionBudget, Node, ObjectKey, Phase, Pod, Readiness, ReadyStatus,
};
use model::decision::Decision;
use model::mark::{Mark, Ownership};
use model::memory::{self, Memory};
use model::policy::{
    InstanceType, Policy, PoolPolicy, RegionPolicy, STARTUP_TAINT, ScaleDown, ScaleUp,
};
use model::region::{GuestKind, Host, Machine, MachineVm, Region, Step, TemplateCopy, Vm};
use model::report::{NodeVerdict, PodVerdict};
use model::resources::Resources;
use model::scheduling::{LabelSelector, Labels, Owner, PodShape, PodTraits, Taint};
use model::snapshot::{self, Lease, Snapshot, SourceState};
use model::time::{Span, Time};

pub(crate) const MI: i64 = 1 << 20;
pub(crate) const GI: i64 = 1 << 30;
pub(crate) const CLUSTER: &str = "uid/home";
pub(crate) const START: Time = Time(1_795_000_000_000);

/// A small world and what is wanted and remembered of it.
#[derive(Clone, Debug)]
pub(crate) struct Lab {
    pub(crate) snapshot: Snapshot,
    pub(crate) policy: Policy,
    pub(crate) memory: Memory,
    pub(crate) now: Time,
}

/// Three hosts and a template.
fn home() -> Region {
    let mut region = Region {
        quorate: true,
        ..Region::default()
    };
    for name in ["pve1", "pve2", "pve3"] {
        let host = Host {
            online: true,
            cpus: 64,
            memory: 4096 * GI,
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
    let template = Vm {
        host: "pve1".into(),
        name: "debian".into(),
        template: true,
        ..Vm::default()
    };
    region.vms.insert(100, template);
    region
}

/// An empty world.
pub(crate) fn lab() -> Lab {
    let mut lab = Lab {
        snapshot: Snapshot {
            version: snapshot::VERSION,
            taken: START,
            cluster_id: Some(CLUSTER.into()),
            sources: BTreeMap::new(),
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
        policy: Policy {
            regions: BTreeMap::from([("home".into(), RegionPolicy::of_vmids(9000, 19_999))]),
            scale_up: ScaleUp {
                batch_idle: Span::ZERO,
                batch_max: Span::ZERO,
                max_in_flight: 10_000,
                ..ScaleUp::default()
            },
            scale_down: ScaleDown::default(),
            ..Policy::default()
        },
        memory: Memory {
            version: memory::VERSION,
            began: Some(START - Span::minutes(24 * 60)),
            ..Memory::default()
        },
        now: START,
    };
    lab.refresh();
    lab
}

impl Lab {
    /// All sources are as of now.
    pub(crate) fn refresh(&mut self) {
        self.snapshot.taken = self.now;
        let regions = self.snapshot.regions.keys();
        let regions = regions.map(|name| format!("pve/{name}"));
        let kube = ["pods", "nodes", "daemonsets", "poddisruptionbudgets"];
        let kube = kube.map(|kind| format!("kube/{kind}"));
        let names: Vec<String> = kube.into_iter().chain(regions).collect();
        for name in names {
            self.snapshot.sources.insert(
                name.into(),
                SourceState {
                    complete: true,
                    as_of: self.now,
                    error: None,
                    cause: None,
                },
            );
        }
    }

    /// Time passes; views stay fresh.
    pub(crate) fn after(mut self, span: Span) -> Lab {
        self.now = self.now + span;
        self.refresh();
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Lab)) -> Lab {
        change(&mut self);
        self
    }

    /// An instance type of `cores` and `mib` of memory.
    pub(crate) fn kind(mut self, name: &str, cores: u32, mib: i64) -> Lab {
        self.policy.instance_types.insert(
            name.into(),
            InstanceType {
                cores,
                memory: mib * MI,
                ..InstanceType::default()
            },
        );
        self
    }

    pub(crate) fn edit_kind(mut self, name: &str, change: impl FnOnce(&mut InstanceType)) -> Lab {
        change(
            self.policy
                .instance_types
                .get_mut(name)
                .expect("a type of this name"),
        );
        self
    }

    /// A pool of these types, 0 to 1000 nodes of 110 pods.
    pub(crate) fn pool(mut self, name: &str, kinds: &[&str]) -> Lab {
        self.policy.pools.insert(
            name.into(),
            PoolPolicy {
                region: "home".into(),
                template: "debian".into(),
                instance_types: kinds.iter().map(|kind| Arc::from(*kind)).collect(),
                max: 1000,
                max_pods: 110,
                arch: "amd64".into(),
                ..PoolPolicy::default()
            },
        );
        self
    }

    pub(crate) fn edit_pool(mut self, name: &str, change: impl FnOnce(&mut PoolPolicy)) -> Lab {
        change(
            self.policy
                .pools
                .get_mut(name)
                .expect("a pool of this name"),
        );
        self
    }

    /// A pod that kube-scheduler found no place for.
    pub(crate) fn pod(mut self, name: &str, milli: i64, mib: i64) -> Lab {
        let pod = Pod {
            uid: format!("uid-{name}").into(),
            shape: Arc::new(shape(name, milli, mib)),
            node: None,
            nominated: None,
            phase: Phase::Pending,
            created: self.now,
            arrival: 0,
            started: None,
            deletion: None,
            deletion_grace_seconds: None,
            unschedulable_since: Some(self.now),
            gated: false,
            mirror: false,
            ready: false,
        };
        self.snapshot
            .cluster
            .pods
            .insert(ObjectKey::new("default", name), pod);
        self
    }

    /// `count` equal pods, `NAME-0` and on.
    pub(crate) fn pods(mut self, name: &str, count: usize, milli: i64, mib: i64) -> Lab {
        for index in 0..count {
            self = self.pod(&format!("{name}-{index}"), milli, mib);
        }
        self
    }

    /// A running pod of a ReplicaSet on a node.
    pub(crate) fn bound(self, name: &str, node: &str, milli: i64, mib: i64) -> Lab {
        self.pod(name, milli, mib).edit(name, |pod| {
            pod.node = Some(node.into());
            pod.phase = Phase::Running;
            pod.unschedulable_since = None;
            pod.ready = true;
        })
    }

    /// Changes a pod.
    pub(crate) fn edit(mut self, name: &str, change: impl FnOnce(&mut Pod)) -> Lab {
        let pods = &mut self.snapshot.cluster.pods;
        let pod = pods.get_mut(&ObjectKey::new("default", name));
        change(pod.expect("a pod of this name"));
        self
    }

    /// Changes a pod's shape.
    pub(crate) fn shape(self, name: &str, change: impl FnOnce(&mut PodShape)) -> Lab {
        self.edit(name, |pod| change(Arc::make_mut(&mut pod.shape)))
    }

    /// Changes the shape of every pod whose name begins like this.
    pub(crate) fn shapes(mut self, prefix: &str, change: impl Fn(&mut PodShape)) -> Lab {
        for (key, pod) in &mut self.snapshot.cluster.pods {
            if key.name.starts_with(prefix) {
                change(Arc::make_mut(&mut pod.shape));
            }
        }
        self
    }

    /// A DaemonSet.
    pub(crate) fn daemon(mut self, name: &str, milli: i64, mib: i64) -> Lab {
        let mut shape = shape(name, milli, mib);
        shape.owner = Some(owner("DaemonSet", name));
        self.snapshot.cluster.daemon_sets.insert(
            ObjectKey::new("kube-system", name),
            DaemonSet {
                uid: format!("uid-{name}").into(),
                shape: Arc::new(shape),
            },
        );
        self
    }

    /// A ready node that is not ours, a day old.
    pub(crate) fn node(mut self, name: &str, milli: i64, mib: i64) -> Lab {
        let node = Node {
            uid: format!("uid-{name}").into(),
            system_uuid: format!("uuid-{name}").into(),
            provider_id: None,
            created: self.now - Span::minutes(24 * 60),
            deletion: None,
            labels: Labels::from([("kubernetes.io/hostname".into(), name.into())]).into(),
            annotations: Labels::new().into(),
            taints: Vec::new(),
            unschedulable: false,
            allocatable: Resources {
                cpu_milli: milli,
                memory: mib * MI,
                ephemeral: 20 * GI,
                pods: 110,
                ..Resources::default()
            },
            capacity: Resources::default(),
            ready: Readiness {
                status: ReadyStatus::True,
                since: None,
                why: None,
            },
            kubelet_version: "v1.34.1".into(),
            addresses: Vec::new(),
        };
        self.snapshot.cluster.nodes.insert(name.into(), node);
        self
    }

    pub(crate) fn edit_node(mut self, name: &str, change: impl FnOnce(&mut Node)) -> Lab {
        change(
            self.snapshot
                .cluster
                .nodes
                .get_mut(name)
                .expect("a node of this name"),
        );
        self
    }

    /// A working node of ours on pve1, with its machine and VM, a day old.
    pub(crate) fn ours(self, name: &str, pool: &str, kind: &str) -> Lab {
        let mut lab = self.machine(name, pool, kind, Step::Done);
        lab.register(name, true);
        let day = Span::minutes(24 * 60);
        let made = lab.now - day;
        let node = lab.snapshot.cluster.nodes.get_mut(name).expect("just made");
        node.created = made;
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        lab.snapshot
            .machines
            .get_mut(name)
            .expect("made")
            .mark
            .created = made;
        let mark = lab.snapshot.machines[name].mark.clone();
        let vm = region.vms.get_mut(&mark.vmid).expect("made");
        vm.ownership = Some(Ownership::Marked(mark));
        lab
    }

    /// A machine of ours without a node, at a step, with a running VM.
    pub(crate) fn machine(mut self, name: &str, pool: &str, kind: &str, step: Step) -> Lab {
        let vmid = self.free_vmid();
        let mark = Mark {
            cluster: CLUSTER.into(),
            machine: name.into(),
            vmid,
            pool: pool.into(),
            instance_type: kind.into(),
            template: "debian".into(),
            token: format!("{vmid:0>6}"),
            created: self.now,
            addresses: BTreeMap::new(),
            cpus: model::cpus::CpuSet::new(),
            unknown: [].into(),
        };
        let machine = Machine {
            terms: None,
            region: "home".into(),
            host: "pve1".into(),
            mark: mark.into(),
            storages: ChosenStorages::default(),
            intended: true,
            vm: None,
            node: None,
            contradiction: None,
            remembered: None,
            step: Some((step, self.now)),
            failure: None,
            busy: None,
        };
        self.snapshot.machines.insert(name.into(), machine);
        self.clone_vm(name);
        self
    }

    fn free_vmid(&self) -> u32 {
        let used = |vmid: &u32| {
            self.snapshot.regions["home"].vms.contains_key(vmid)
                || self
                    .snapshot
                    .machines
                    .values()
                    .any(|m| m.mark.vmid == *vmid)
        };
        (9000..20_000).find(|vmid| !used(vmid)).expect("a free one")
    }

    /// The machine's VM is there, marked and running.
    pub(crate) fn clone_vm(&mut self, name: &str) {
        let machine = self.snapshot.machines.get_mut(name).expect("a machine");
        machine.vm = Some(MachineVm {
            ha: false,
            running: true,
            lock: None,
            marked: true,
            uuid: Some(format!("uuid-{name}").into()),
            digest: None,
            differs: Vec::new(),
            drifted: None,
        });
        let kind = &self.policy.instance_types[machine.mark.instance_type.as_str()];
        let vm = Vm {
            ha: false,
            host: machine.host.clone(),
            kind: GuestKind::Qemu,
            name: name.into(),
            running: true,
            template: false,
            lock: None,
            cpus: kind.cores,
            memory: kind.memory,
            memory_min: None,
            onboot: false,
            uuid: Some(format!("uuid-{name}").into()),
            ownership: Some(Ownership::Marked(machine.mark.clone())),
            trial_of: None,
            disks: BTreeMap::new(),
            unread: None,
            addresses: Some(Vec::new()),
            devices: Some(Vec::new()),
            pins: Some(model::topology::Pins::default()),
        };
        let region = self.snapshot.regions.get_mut("home").expect("home");
        region.vms.insert(machine.mark.vmid, vm);
    }

    /// The machine's node registers with all that was promised; initialised or with startup taints.
    pub(crate) fn register(&mut self, name: &str, initialised: bool) {
        let machine = self.snapshot.machines.get_mut(name).expect("a machine");
        let mark = machine.mark.clone();
        let host = machine.host.clone();
        machine.node = Some(name.into());
        let step = if initialised {
            Step::Done
        } else {
            Step::Initialize
        };
        machine.step = Some((step, self.now));
        let pool = self.policy.pools[mark.pool.as_str()].clone();
        let kind = self.policy.instance_types[mark.instance_type.as_str()].clone();
        let (now, max_pods) = (self.now, pool.max_pods);
        *self = self.clone().node(name, 0, 0).edit_node(name, |node| {
            node.created = now;
            node.allocatable = Resources {
                cpu_milli: i64::from(kind.cores) * 1000 - pool.reserved.cpu_milli,
                memory: kind.memory - pool.reserved.memory,
                ephemeral: if kind.disk > 0 { kind.disk } else { 20 * GI },
                pods: i64::from(max_pods),
                ..kind.capacity()
            };
            node.labels = kind.labels.clone().into();
            node.labels.extend(pool.labels.clone());
            for (key, value) in [
                ("pve-autoscaler.io/pool", mark.pool.as_str()),
                ("node.kubernetes.io/instance-type", &mark.instance_type),
                ("topology.kubernetes.io/zone", &host),
                ("topology.kubernetes.io/region", "home"),
                ("kubernetes.io/hostname", name),
                ("kubernetes.io/os", "linux"),
                ("kubernetes.io/arch", &pool.arch),
            ] {
                node.labels.insert(key.into(), value.into());
            }
            node.taints.clone_from(&pool.taints);
            if !initialised {
                node.taints.push(Taint::no_schedule(STARTUP_TAINT, ""));
                node.taints.extend(pool.startup_taints.clone());
            }
        });
    }

    /// A node of ours stands on this host, which is its zone.
    pub(crate) fn on_host(mut self, name: &str, host: &str) -> Lab {
        let machine = self.snapshot.machines.get_mut(name).expect("a machine");
        machine.host = host.into();
        let region = self.snapshot.regions.get_mut("home").expect("home");
        let vm = region.vms.get_mut(&machine.mark.vmid);
        vm.expect("a VM").host = host.into();
        self.edit_node(name, |node| {
            node.labels
                .insert("topology.kubernetes.io/zone".into(), host.into());
        })
    }

    pub(crate) fn edit_machine(mut self, name: &str, change: impl FnOnce(&mut Machine)) -> Lab {
        change(
            self.snapshot
                .machines
                .get_mut(name)
                .expect("a machine of this name"),
        );
        self
    }

    /// A disruption budget over pods with the label `app`.
    pub(crate) fn budget(mut self, name: &str, app: &str, allowed: i32) -> Lab {
        self.snapshot.cluster.budgets.insert(
            ObjectKey::new("default", name),
            DisruptionBudget {
                selector: Some(LabelSelector {
                    labels: Labels::from([("app".into(), app.into())]),
                    ..LabelSelector::default()
                }),
                allowed,
                always_allow_unhealthy: false,
                healthy: false,
            },
        );
        self
    }
}

/// A pod's shape, of a ReplicaSet named like the pod without its number.
pub(crate) fn shape(name: &str, milli: i64, mib: i64) -> PodShape {
    let app = name.rsplit_once('-').map_or(name, |(app, _)| app);
    let traits = PodTraits {
        requests: Resources {
            cpu_milli: milli,
            memory: mib * MI,
            pods: 1,
            ..Resources::default()
        },
        grace_seconds: 30,
        ..PodTraits::default()
    };
    PodShape {
        labels: [("app".into(), app.into())].into(),
        owner: Some(owner("ReplicaSet", app)),
        traits: Arc::new(traits),
    }
}

pub(crate) fn owner(kind: &str, name: &str) -> Arc<Owner> {
    Arc::new(Owner {
        kind: kind.into(),
        name: name.into(),
        uid: format!("uid-{kind}-{name}").into(),
    })
}

/// The instance types that a plan makes, sorted.
pub(crate) fn made(decision: &Decision) -> Vec<String> {
    let mut kinds: Vec<String> = decision
        .plan
        .iter()
        .filter_map(|action| match &action.kind {
            Kind::Create(spec) => Some(spec.mark.instance_type.clone()),
            _ => None,
        })
        .collect();
    kinds.sort();
    kinds
}

/// The nodes that a plan takes down, sorted.
pub(crate) fn removed(decision: &Decision) -> Vec<String> {
    let mut nodes: Vec<String> = decision
        .plan
        .iter()
        .filter(|action| matches!(action.kind, Kind::Remove { .. }))
        .map(|action| action.target.machine.to_string())
        .collect();
    nodes.sort();
    nodes
}

/// The verdict on a pod of the namespace `default`.
pub(crate) fn verdict<'a>(decision: &'a Decision, pod: &str) -> &'a PodVerdict {
    &decision.report.pods[&ObjectKey::new("default", pod)]
}

/// The reason for which a node is kept.
pub(crate) fn kept<'a>(decision: &'a Decision, node: &str) -> &'a str {
    match &decision.report.nodes[node] {
        NodeVerdict::Kept { reason, .. } => reason.name(),
        NodeVerdict::NotAutoscaled => "NotAutoscaled",
        NodeVerdict::Unread { .. } => "unread",
        NodeVerdict::Leaving { .. } => "leaving",
        NodeVerdict::Replaced { .. } => "replaced",
    }
}

/// Why no pool is compatible with a pod, or why it is held, for one choice.
pub(crate) fn why(decision: &Decision, pod: &str, choice: &str) -> String {
    match verdict(decision, pod) {
        PodVerdict::NoCompatiblePool { why } | PodVerdict::Held { why } => {
            why.get(choice).map(ToString::to_string).unwrap_or_default()
        }
        other => panic!("{pod}: {other:?}"),
    }
}
