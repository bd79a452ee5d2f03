//! The world of a case as it stands: snapshot, policy, memory and the time, and how it changes when
//! time passes or a plan is carried out.
//!
//! Carrying out is the simplest there is: a planned machine is a Ready node at once, a removed one is
//! gone, pods stand where the plan saw them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::brain::explain::Asked;
use crate::brain::{LowerBound, inspect};
use crate::model::action::{Action, CreateSpec, Kind};
use crate::model::cluster::{Cluster, Node, ObjectKey, Phase, Pod, Readiness, ReadyStatus};
use crate::model::cpus::CpuSet;
use crate::model::decision::Decision;
use crate::model::drift::Drift;
use crate::model::mark::{Mark, Ownership};
use crate::model::memory::{self, Memory};
use crate::model::network::NicAddresses;
use crate::model::pci::PciDevice;
use crate::model::policy::{LEAVING_TAINT, Policy, RegionPolicy, STARTUP_TAINT, Terms, ZONE_LABEL};
use crate::model::region::{GuestKind, Machine, MachineVm, Region, Step, Vm};
use crate::model::report::PodVerdict;
use crate::model::scheduling::Owner;
use crate::model::shared::Shared;
use crate::model::snapshot::{self, Lease, Snapshot, SourceState};
use crate::model::time::{Span, Time};
use crate::model::topology::Pins;

use super::admission::CaseClasses;
use super::budgets::CaseBudget;
use super::pools::CaseNames;
use super::settings;
use super::templates::{self, CaseTemplate};

/// The region of a case that names none.
pub(super) const REGION: &str = "home";
/// The template of pools that name none.
pub(super) const TEMPLATE: &str = "template";
/// Disk of a template of which a case does not say how large it is, and so of every node of a type without one.
pub(super) const DISK: i64 = 100 << 30;
const CLUSTER: &str = "uid/cases";
const TEMPLATE_VMID: u32 = 100;
/// The first VMID for machines.
const OURS: u32 = 1_000;
/// What time it is where a case does not say.
const START: Time = Time(1_795_000_000_000);
/// How long ago the memory began where a case does not say.
const REMEMBERED: Span = Span::minutes(24 * 60);
/// The sources that a decision wants to be fresh.
const SOURCES: [&str; 4] = [
    "kube/pods",
    "kube/nodes",
    "kube/daemonsets",
    "kube/poddisruptionbudgets",
];

/// The world of a case.
#[derive(Clone, Debug)]
pub(super) struct CaseWorld {
    pub(super) snapshot: Snapshot,
    pub(super) policy: Policy,
    pub(super) memory: Memory,
    pub(super) now: Time,
    pub(super) names: CaseNames,
    /// Sources that the case sets itself and that do not become fresh with time.
    pub(super) fixed: BTreeSet<Arc<str>>,
    /// What pods may name.
    pub(super) classes: CaseClasses,
    /// Disruption budgets whose status follows from the pods.
    pub(super) budgets: Vec<CaseBudget>,
    /// Templates by name.
    pub(super) templates: BTreeMap<Arc<str>, CaseTemplate>,
}

/// What a machine has for itself: addresses, CPUs of its host.
#[derive(Clone, Debug, Default)]
pub(super) struct MachineOwn {
    pub(super) addresses: NicAddresses,
    pub(super) cpus: CpuSet,
    /// What it was made with that the configuration says otherwise now.
    pub(super) drifted: Option<Vec<Drift>>,
}

/// A machine to be put on the stage.
#[derive(Clone, Debug)]
pub(super) struct Cast {
    pub(super) name: Arc<str>,
    pub(super) pool: String,
    pub(super) kind: String,
    pub(super) region: Arc<str>,
    pub(super) host: Arc<str>,
    pub(super) step: Step,
    pub(super) created: Time,
}

impl CaseWorld {
    /// An empty world.
    pub(super) fn new() -> CaseWorld {
        let region = RegionPolicy::of_vmids(OURS, 9_999_999);
        let mut stage = CaseWorld {
            snapshot: Snapshot {
                version: snapshot::VERSION,
                taken: START,
                cluster_id: Some(CLUSTER.into()),
                sources: BTreeMap::new(),
                cluster: Cluster::default(),
                regions: BTreeMap::from([(REGION.into(), Region::default().into())]),
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
                regions: BTreeMap::from([(REGION.into(), region)]),
                scale_up: settings::scale_up(),
                ..Policy::default()
            },
            memory: Memory {
                version: memory::VERSION,
                began: Some(START - REMEMBERED),
                ..Memory::default()
            },
            now: START,
            names: CaseNames::default(),
            fixed: BTreeSet::new(),
            classes: CaseClasses::default(),
            budgets: Vec::new(),
            templates: BTreeMap::new(),
        };
        stage.region().quorate = true;
        stage.refresh();
        stage
    }

    /// The clock of the case; only before anything has a time.
    pub(super) fn set_clock(&mut self, now: Time) {
        self.now = now;
        self.memory.began = Some(now - REMEMBERED);
        self.refresh();
    }

    /// The usual region.
    pub(super) fn region(&mut self) -> &mut Region {
        self.region_of(REGION)
    }

    fn region_of(&mut self, name: &str) -> &mut Region {
        self.snapshot.regions.entry(name.into()).or_default()
    }

    /// A region was seen so long ago. What was seen long ago stays so.
    pub(super) fn see(&mut self, region: &str, ago: Span) {
        let name: Arc<str> = format!("pve/{region}").into();
        let state = SourceState {
            complete: true,
            as_of: self.now - ago,
            error: None,
            cause: None,
        };
        self.snapshot.sources.insert(name.clone(), state);
        if ago > Span::ZERO {
            self.fixed.insert(name);
        }
    }

    /// The copies of the templates are where the case has them.
    pub(super) fn place_templates(&mut self, region: &str) {
        let region = self.snapshot.regions.entry(region.into()).or_default();
        templates::place(&self.templates, region);
    }

    /// A running VM that is not ours and has this much memory.
    pub(super) fn add_others(&mut self, host: &Arc<str>, memory: i64) {
        let vm = Vm {
            host: host.clone(),
            name: format!("others-on-{host}").into(),
            running: true,
            memory,
            addresses: Some(Vec::new()),
            devices: Some(Vec::new()),
            pins: Some(Pins::default()),
            ..Vm::default()
        };
        let region = self.region();
        let vmid = free_vmid(region);
        region.vms.extend(vmid.map(|vmid| (vmid, vm)));
    }

    fn refresh(&mut self) {
        self.snapshot.taken = self.now;
        let regions = self.snapshot.regions.keys();
        let regions = regions.map(|name| Arc::from(format!("pve/{name}")));
        let names: Vec<Arc<str>> = SOURCES.map(Arc::from).into_iter().chain(regions).collect();
        for name in names {
            if self.fixed.contains(&name) {
                continue;
            }
            let state = SourceState {
                complete: true,
                as_of: self.now,
                error: None,
                cause: None,
            };
            self.snapshot.sources.insert(name, state);
        }
    }

    /// Time passes.
    pub(super) fn advance(&mut self, span: Span) {
        self.now = self.now + span;
        self.refresh();
    }

    /// The lowest VMID that nothing has.
    fn free_vmid(&self) -> u32 {
        let regions = self.snapshot.regions.values();
        let used: BTreeSet<u32> = regions
            .flat_map(|region| region.vms.keys().copied())
            .chain(self.snapshot.machines.values().map(|m| m.mark.vmid))
            .collect();
        (OURS..u32::MAX)
            .find(|vmid| !used.contains(vmid))
            .unwrap_or(u32::MAX)
    }

    /// Puts a machine on the stage, with a running VM.
    pub(super) fn add_machine(&mut self, cast: &Cast, own: MachineOwn) {
        let known = self.snapshot.machines.get(&cast.name).map(|m| m.mark.vmid);
        let vmid = known.unwrap_or_else(|| self.free_vmid());
        let mark = Mark {
            cluster: CLUSTER.to_owned(),
            machine: cast.name.to_string(),
            vmid,
            pool: cast.pool.clone(),
            instance_type: cast.kind.clone(),
            template: self.template_of(&cast.pool).to_string(),
            token: format!("{vmid:0>6}"),
            created: cast.created,
            addresses: own.addresses,
            cpus: own.cpus,
            unknown: [].into(),
        };
        self.machine_of(mark, (&cast.region, &cast.host), cast.step);
        let machine = self.snapshot.machines.get_mut(&cast.name);
        if let Some(vm) = machine.and_then(|machine| machine.vm.as_mut()) {
            vm.drifted = own.drifted;
        }
    }

    /// The template of a pool; of one whose template is missing the usual one.
    fn template_of(&self, pool: &str) -> Arc<str> {
        let template = self.policy.pools.get(pool).map(|pool| &pool.template);
        let known = template.filter(|name| self.templates.contains_key(*name));
        known.map_or_else(|| TEMPLATE.into(), Clone::clone)
    }

    fn machine_of(&mut self, mark: Mark, (region, host): (&Arc<str>, &Arc<str>), step: Step) {
        let mark = Shared::from(mark);
        let kind = self.policy.instance_types.get(mark.instance_type.as_str());
        let (cpus, memory) = kind.map_or((0, 0), |kind| (kind.cores, kind.memory));
        let devices = kind.iter().flat_map(|kind| &kind.pci);
        let devices = devices.map(PciDevice::taken).collect();
        // The journal of a machine on its way has the terms under which it was planned.
        let planned = kind.filter(|_| step < Step::Done);
        let pool = self.policy.pools.get(mark.pool.as_str());
        let terms = planned
            .zip(pool)
            .map(|(kind, pool)| Arc::new(Terms::of(pool, kind)));
        let name: Arc<str> = mark.machine.as_str().into();
        let vm = Vm {
            ha: false,
            host: host.clone(),
            kind: GuestKind::Qemu,
            name: name.clone(),
            running: true,
            template: false,
            lock: None,
            cpus,
            memory,
            memory_min: None,
            onboot: false,
            uuid: Some(uuid(&name)),
            ownership: Some(Ownership::Marked(mark.clone())),
            addresses: Some(mark.addresses.values().flatten().copied().collect()),
            devices: Some(devices),
            pins: Some(Pins {
                cpus: mark.cpus.clone(),
                memory: BTreeMap::new(),
            }),
            ..Vm::default()
        };
        self.region_of(region).vms.insert(mark.vmid, vm);
        let created = mark.created;
        let machine = Machine {
            terms,
            region: region.clone(),
            host: host.clone(),
            mark,
            storages: crate::model::chosen_storages::ChosenStorages::default(),
            intended: true,
            vm: Some(MachineVm {
                ha: false,
                running: true,
                lock: None,
                marked: true,
                uuid: Some(uuid(&name)),
                digest: None,
                differs: Vec::new(),
                drifted: None,
            }),
            node: None,
            contradiction: None,
            remembered: None,
            step: Some((step, created)),
            failure: None,
            busy: None,
        };
        self.snapshot.machines.insert(name, machine);
    }

    /// The node of a machine on the stage, as its pool and type make it.
    pub(super) fn node_for(&self, cast: &Cast) -> Option<Node> {
        let template = inspect::node_template(
            &self.snapshot,
            &self.policy,
            &cast.pool,
            &cast.kind,
            (&cast.region, &cast.host),
            &cast.name,
        )?;
        Some(Node {
            uid: format!("uid-{}", cast.name).into(),
            system_uuid: uuid(&cast.name),
            provider_id: None,
            created: cast.created,
            deletion: None,
            labels: template.labels.into(),
            annotations: Shared::default(),
            taints: template.taints,
            unschedulable: false,
            capacity: template.allocatable.clone(),
            allocatable: template.allocatable,
            ready: Readiness {
                status: ReadyStatus::True,
                since: Some(cast.created),
                why: None,
            },
            kubelet_version: "v1.34.1".into(),
            addresses: Vec::new(),
        })
    }

    /// Decides, and remembers what the decision remembers. Gives the lower bound of the decision too.
    pub(super) fn decide(&mut self) -> (Decision, LowerBound) {
        let decision = crate::brain::decide(&self.snapshot, &self.policy, &self.memory, self.now);
        let bound = crate::brain::lower_bound(Asked {
            snapshot: &self.snapshot,
            policy: &self.policy,
            memory: &self.memory,
            decision: &decision,
            now: self.now,
        });
        self.memory = decision.memory.clone();
        (decision, bound)
    }

    /// Carries a plan out.
    pub(super) fn apply(&mut self, decision: &Decision) {
        for action in &decision.plan {
            self.act(action);
        }
        for (key, verdict) in &decision.report.pods {
            let place = match verdict {
                PodVerdict::FitsNode { node, preempts } => {
                    for victim in preempts.keys() {
                        self.preempt(victim);
                    }
                    node
                }
                PodVerdict::FitsMachine { machine } | PodVerdict::Triggers { machine, .. } => {
                    machine
                }
                _ => continue,
            };
            if self.snapshot.cluster.nodes.contains_key(place) {
                self.bind(key, place);
            }
        }
    }

    /// A pod is preempted; its controller makes another.
    fn preempt(&mut self, key: &ObjectKey) {
        let now = self.now;
        let pods = &mut self.snapshot.cluster.pods;
        let Some(pod) = pods.get_mut(key) else {
            return;
        };
        if pod.shape.owner.is_none() || pod.deletion.is_some() {
            pods.remove(key);
            return;
        }
        pod.node = None;
        pod.phase = Phase::Pending;
        pod.created = now;
        pod.started = None;
        pod.unschedulable_since = Some(now);
        pod.ready = false;
    }

    fn bind(&mut self, key: &ObjectKey, node: &Arc<str>) {
        if let Some(pod) = self.snapshot.cluster.pods.get_mut(key) {
            pod.node = Some(node.clone());
            pod.nominated = None;
            pod.phase = Phase::Running;
            pod.unschedulable_since = None;
            pod.ready = true;
        }
    }

    fn act(&mut self, action: &Action) {
        let name = &action.target.machine;
        match &action.kind {
            Kind::Create(spec) => self.create(spec, action),
            Kind::Continue => self.arrive(name),
            Kind::Remove { .. } => self.remove(action),
            Kind::Release => {
                if let Some(machine) = self.snapshot.machines.get_mut(name) {
                    machine.step = Some((Step::Done, self.now));
                }
                if let Some(node) = self.snapshot.cluster.nodes.get_mut(name) {
                    node.unschedulable = false;
                    node.taints.retain(|taint| &*taint.key != LEAVING_TAINT);
                }
            }
            Kind::DeleteNode => {
                self.snapshot.cluster.nodes.remove(name);
            }
            Kind::DeletePlaceholder | Kind::DropIntent => {
                let region = &action.target.region;
                self.region_of(region).vms.remove(&action.target.vmid);
                self.snapshot.machines.remove(name);
            }
            Kind::Relabel => {
                if let Some(node) = self.snapshot.cluster.nodes.get_mut(name) {
                    node.taints.retain(|taint| *taint.key != *STARTUP_TAINT);
                    let (region, host) = (&action.target.region, &action.target.host);
                    let zone = self.policy.zone_of(region, host);
                    node.labels.insert(ZONE_LABEL.into(), zone);
                }
            }
            // Its VM runs, or has what the file says: cases do not show that.
            Kind::Start | Kind::Update => {}
        }
    }

    fn create(&mut self, spec: &CreateSpec, action: &Action) {
        let at = (&action.target.region, &action.target.host);
        self.machine_of(spec.mark.clone(), at, Step::Start);
        templates::note_storages(&mut self.snapshot, spec, &action.target.machine);
        self.arrive(&action.target.machine);
        // Pods of nodes that are leaving come here too; they are bound and have no verdict. Those of a node that is given up run there until that goes.
        let given_up = action.reason.given_up();
        for key in action.reason.pending_pods() {
            let pod = self.snapshot.cluster.pods.get(key);
            let node = pod.and_then(|pod| pod.node.as_ref()).zip(given_up);
            if !node.is_some_and(|(node, given_up)| given_up.contains_key(node)) {
                self.bind(key, &action.target.machine);
            }
        }
    }

    /// A machine on its way up is a Ready node now.
    pub(super) fn arrive(&mut self, name: &Arc<str>) {
        let now = self.now;
        let Some(machine) = self.snapshot.machines.get_mut(name) else {
            return;
        };
        machine.step = Some((Step::Done, now));
        machine.node = Some(name.clone());
        machine.busy = None;
        let cast = Cast {
            name: name.clone(),
            pool: machine.mark.pool.clone(),
            kind: machine.mark.instance_type.clone(),
            region: machine.region.clone(),
            host: machine.host.clone(),
            step: Step::Done,
            created: now,
        };
        if let Some(vm) = machine.vm.as_mut() {
            vm.running = true;
        }
        let Some(node) = self.node_for(&cast) else {
            return;
        };
        self.snapshot.cluster.nodes.insert(name.clone(), node);
        self.start_daemons(name);
    }

    /// Machines that the executor is bringing up are nodes now.
    pub(super) fn arrive_all(&mut self) {
        let coming: Vec<Arc<str>> = self
            .snapshot
            .machines
            .iter()
            .filter(|(_, machine)| machine.busy == Some(crate::model::region::Busy::Up))
            .map(|(name, _)| name.clone())
            .collect();
        for name in coming {
            self.arrive(&name);
        }
    }

    fn start_daemons(&mut self, node: &Arc<str>) {
        let sets = self.snapshot.cluster.daemon_sets.clone();
        for (key, set) in sets {
            if !inspect::daemon_fits(&self.snapshot, &set.shape, node) {
                continue;
            }
            let mut shape = (*set.shape).clone();
            shape.owner = Some(Arc::new(Owner {
                kind: "DaemonSet".into(),
                name: key.name.clone(),
                uid: set.uid.clone(),
            }));
            let name = format!("{}-{node}", key.name);
            let pod = Pod {
                uid: format!("uid-{name}").into(),
                shape: Arc::new(shape),
                node: Some(node.clone()),
                nominated: None,
                phase: Phase::Running,
                created: self.now,
                arrival: 0,
                started: Some(self.now),
                deletion: None,
                deletion_grace_seconds: None,
                unschedulable_since: None,
                gated: false,
                mirror: false,
                ready: true,
            };
            let key = ObjectKey::new(key.namespace.clone(), name);
            self.snapshot.cluster.pods.insert(key, pod);
        }
    }

    /// A node goes; its pods run where the plan saw them land, or wait. What no controller makes anew,
    /// or only for this node, is gone.
    fn remove(&mut self, action: &Action) {
        let name = &action.target.machine;
        let region = &action.target.region;
        self.region_of(region).vms.remove(&action.target.vmid);
        self.snapshot.machines.remove(name);
        self.snapshot.cluster.nodes.remove(name);
        self.memory.unneeded_since.remove(name);
        let now = self.now;
        let landing = &action.precondition.landing;
        self.snapshot.cluster.pods.retain(|_, pod| {
            let of_node = pod
                .shape
                .owner
                .as_ref()
                .is_none_or(|o| &*o.kind == "DaemonSet");
            !(pod.node.as_ref() == Some(name) && (of_node || pod.mirror || pod.deletion.is_some()))
        });
        for (key, pod) in &mut self.snapshot.cluster.pods {
            if pod.node.as_ref() != Some(name) {
                continue;
            }
            pod.created = now;
            pod.started = Some(now);
            if let Some(node) = landing.get(key) {
                pod.node = Some(node.clone());
                continue;
            }
            pod.node = None;
            pod.phase = Phase::Pending;
            pod.ready = false;
            pod.unschedulable_since = Some(now);
        }
    }
}

/// The lowest VMID that no guest has and no machine gets.
pub(super) fn free_vmid(region: &Region) -> Option<u32> {
    (TEMPLATE_VMID..OURS).find(|vmid| !region.vms.contains_key(vmid))
}

/// The UUID of a machine's VM.
pub(super) fn uuid(name: &str) -> Arc<str> {
    format!("uuid-{name}").into()
}
