//! What a person should look at, though nothing is on hold for it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::refused::{HostRefused, Refused};
use super::removal::LeftAlone;
use crate::cpus::CpuSet;
use crate::foreign::ForeignText;
use crate::in_place::Difference;
use crate::lacking::LackingPart;
use crate::time::Time;

/// A VM of a region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct VmAt {
    /// The region.
    pub region: Arc<str>,
    /// The VM's VMID.
    pub vmid: u32,
    /// The VM's name.
    pub name: Arc<str>,
}

/// What a person should look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Warning {
    /// The journal has machines of another cluster.
    FormerCluster {
        /// The former cluster's id.
        cluster: Arc<str>,
        /// How many machines.
        machines: usize,
    },
    /// Running machines have lost their Node, so many that this is taken for a fault of the API server's.
    NodesLost {
        /// How many have lost it.
        lost: usize,
        /// How many machines run.
        running: usize,
    },
    /// A machine lost its Node, its mark or its VM, and is in quarantine.
    Quarantined {
        /// The machine.
        machine: Arc<str>,
        /// What the machine lost.
        lost: Lost,
    },
    /// A machine is left alone.
    LeftAlone {
        /// The machine.
        machine: Arc<str>,
        /// Why.
        left_alone: LeftAlone,
    },
    /// A machine's pool is not in the configuration any more.
    PoolGone {
        /// The machine.
        machine: Arc<str>,
        /// The machine's pool.
        pool: Arc<str>,
    },
    /// A machine failed and is kept to be looked into (`keep_failed`).
    FailedAndKept {
        /// The machine.
        machine: Arc<str>,
        /// The machine's VMID.
        vmid: u32,
        /// The machine's host.
        host: Arc<str>,
        /// How it failed.
        failure: ForeignText,
        /// Until when it is kept.
        until: Time,
    },
    /// A machine failed and is kept, because its node's annotation asks for that.
    FailedAndAnnotated {
        /// The machine.
        machine: Arc<str>,
        /// How it failed.
        failure: ForeignText,
        /// The annotation.
        annotation: Arc<str>,
    },
    /// The nodes of a pool offer much less than is reckoned from its file: pods for which that is too little get no machine.
    NodesOfferLess {
        /// The pool.
        pool: Arc<str>,
        /// The instance type.
        instance_type: Arc<str>,
        /// CPU that its nodes offered, in millicores.
        cpu_milli: i64,
        /// Memory that they offered, in bytes.
        memory: i64,
        /// CPU that is reckoned, in millicores.
        reckoned_cpu_milli: i64,
        /// Memory that is reckoned, in bytes.
        reckoned_memory: i64,
    },
    /// What the file says of a machine's VM cannot be written, and is not written again.
    NotUpdated {
        /// The machine.
        machine: Arc<str>,
        /// What differs.
        differences: Vec<Difference>,
    },
    /// A machine's VM is off, and is not started.
    PoweredOff {
        /// The machine.
        machine: Arc<str>,
        /// The machine's VMID.
        vmid: u32,
        /// The machine's host.
        host: Arc<str>,
        /// Since when it is off.
        since: Time,
        /// When it was started, in vain; none where the HA manager has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started: Option<Time>,
    },
    /// A host with machines is offline.
    HostOffline {
        /// The host's region.
        region: Arc<str>,
        /// The host.
        host: Arc<str>,
        /// How many machines it has.
        machines: usize,
    },
    /// kube-scheduler has looked at no pod for minutes, though some wait for it.
    SchedulerSilent {
        /// How many pods wait for it.
        pods: usize,
    },
    /// A node says it is ours, and no machine is behind it.
    OrphanNode {
        /// The node.
        node: Arc<str>,
        /// What becomes of it.
        orphan: Orphan,
    },
    /// A VM's mark is damaged.
    DamagedMark {
        /// The VM.
        vm: VmAt,
        /// The damage.
        damage: ForeignText,
    },
    /// A VM's mark has a version that this program does not read.
    UnknownMark {
        /// The VM.
        vm: VmAt,
        /// The version.
        version: ForeignText,
    },
    /// A VM in our range belongs to another cluster.
    OtherCluster {
        /// The VM.
        vm: VmAt,
        /// The cluster's id.
        cluster: Arc<str>,
    },
    /// A VM carries the mark of another one: somebody copied that.
    CopiedMark {
        /// The VM.
        vm: VmAt,
        /// The VMID that the mark names.
        original: u32,
        /// The machine that it names.
        machine: Arc<str>,
    },
    /// A VM in our range is what an interrupted removal left.
    HalfDestroyed {
        /// The VM.
        vm: VmAt,
        /// The VM's host.
        host: Arc<str>,
    },
    /// A VM in our range was made by `pve-autoscaler template try`.
    TrialVm {
        /// The VM.
        vm: VmAt,
        /// The template that is tried.
        template: Arc<str>,
    },
    /// A VM in our range is somebody else's.
    ForeignVm {
        /// The VM.
        vm: VmAt,
        /// It is being cloned or made: whose it is shows for certain when that has ended.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        being_made: bool,
    },
    /// A VM's configuration could not be read since the start; its name tells its pool.
    UnreadMachine {
        /// The VM.
        vm: VmAt,
        /// The machine's host.
        host: Arc<str>,
        /// The pool that it is counted to.
        pool: Arc<str>,
    },
    /// Neither the configuration of a VM nor its name could be read since the start.
    UnreadVm {
        /// The region.
        region: Arc<str>,
        /// The VM's VMID.
        vmid: u32,
        /// The VM's host.
        host: Arc<str>,
    },
    /// PVE's row of a guest cannot be read: it counts as there, as it was seen last.
    UnreadRow {
        /// The VM or container.
        vm: VmAt,
        /// Where it is; empty where nobody knows.
        host: Arc<str>,
        /// Why.
        why: ForeignText,
    },
    /// PVE does not tell what a host has or what of it is taken, or the host answers no call: it gets no machine.
    UnreadHost {
        /// The region.
        region: Arc<str>,
        /// The host.
        host: Arc<str>,
        /// Why.
        why: ForeignText,
    },
    /// Pods of some namespaces are left out, because their constraints are too complex.
    TooComplex {
        /// The first namespaces.
        namespaces: Vec<Arc<str>>,
        /// How many more there are.
        more: usize,
    },
    /// Pods wait, and a plan that places more of them is not looked for: the question is too large for one decision.
    TooManyToReplan {
        /// How many pods wait.
        pods: usize,
    },
    /// The API server refuses to have pods nominated for the nodes that are made for them.
    NominationsRefused,
    /// A machine that was to be made is not, for a reason that came up while it was planned.
    NotMade {
        /// It was to replace nodes.
        replacement: bool,
        /// Why it is not made.
        refused: Box<Refused>,
    },
    /// Hosts of several regions are one zone for Kubernetes.
    SharedZone {
        /// The zone.
        zone: Arc<str>,
        /// The regions.
        regions: Vec<Arc<str>>,
    },
    /// No host that some pools may use in a region has their template such that a machine could be made of it. Once for each template and
    /// what is wrong with it.
    NoTemplate {
        /// The pool, the first by name where there are several.
        pool: Arc<str>,
        /// The other pools of this template that get no machine for the same reason.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        further_pools: Vec<Arc<str>>,
        /// The region.
        region: Arc<str>,
        /// The pool's template there.
        template: Arc<str>,
        /// What is wrong with the one that there is; `None`: there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<ForeignText>,
    },
    /// Machines are made of a template that was built from another definition than the file has now.
    TemplateRedefined {
        /// The region.
        region: Arc<str>,
        /// The template.
        template: Arc<str>,
        /// The hosts on which machines are made of it.
        hosts: Vec<Arc<str>>,
    },
    /// A machine does not have the CPUs for itself that its affinity names: its VM was migrated, or another guest has them too.
    LostCpus {
        /// The machine.
        machine: Arc<str>,
        /// The host that its VM is on.
        host: Arc<str>,
        /// The CPUs that its affinity names.
        cpus: CpuSet,
        /// Those of them that another guest's affinity names too.
        #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
        shared: CpuSet,
        /// That guest's VMID.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        with: Option<u32>,
        /// Those of them that the host does not have, or keeps for itself, by its topology in the file.
        #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
        lacking: CpuSet,
        /// The file has no topology of the host: nobody knows which CPUs these are there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        untold: bool,
        /// The machine's memory is bound to other NUMA nodes of the host than these CPUs are in.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        far: bool,
    },
    /// The configuration names a host that its region does not have.
    UnknownHost {
        /// The region.
        region: Arc<str>,
        /// The host.
        host: Arc<str>,
        /// The hosts that there are.
        hosts: Vec<Arc<str>>,
    },
    /// Machines have something by the file that their PVE cluster does not have, or does not let them have.
    Lacking {
        /// The region.
        region: Arc<str>,
        /// What it is, and whose machines have it.
        part: LackingPart,
    },
}

/// What a machine lost.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// The machine lost its Node.
    Node,
    /// The machine lost its VM.
    Vm,
    /// The mark of its VM.
    Mark,
}

/// What becomes of a node without a machine.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Orphan {
    /// What the node claims cannot be checked.
    Unchecked,
    /// It is left alone.
    LeftAlone,
    /// It was deleted, and a finalizer keeps it.
    Deleted,
    /// The node's VM is gone; the node is in quarantine, and deleted after it.
    Quarantined,
}

/// Why a host gets no new machine, or is taken last; what it has for one machine alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum HostNote {
    /// It is offline.
    Offline,
    /// It is in maintenance.
    Maintenance,
    /// A person evacuates it.
    Evacuated {
        /// Since when.
        since: Time,
    },
    /// PVE does not tell what the host has or what of it is taken, or the host answers no call.
    Unread {
        /// Why.
        why: ForeignText,
    },
    /// No pool may use it.
    NoPool,
    /// A pool makes nothing there for a while, after a failure.
    BacksOff {
        /// The pool.
        pool: Arc<str>,
        /// Until when.
        until: Time,
        /// What failed.
        failure: ForeignText,
    },
    /// A pool takes it last, after a failure.
    TakenLast {
        /// The pool.
        pool: Arc<str>,
        /// What failed.
        failure: ForeignText,
    },
    /// Pools bound how loaded it may be, and PVE does not tell that of it: they make nothing there.
    LoadUntold {
        /// The key of the configuration that bounds it.
        bound: Arc<str>,
        /// The pools.
        pools: Vec<Arc<str>>,
    },
    /// How many CPUs of the host machines can get for themselves.
    OwnCpus {
        /// How many.
        free: usize,
        /// Which, such as `2-7,18-23`.
        cpus: Arc<str>,
    },
    /// No machine gets CPUs of it for itself, however many are free.
    NoOwnCpus {
        /// The host.
        host: Arc<str>,
        /// Why.
        refusal: HostRefused,
    },
}

/// What keeps disks of machines off a storage, or explains its numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum StorageNote {
    /// It is not available on hosts that are online and on which pools may have machines.
    NotAvailable {
        /// The hosts.
        hosts: Vec<Arc<str>>,
    },
    /// PVE does not tell its size.
    UnknownSize {
        /// Pools that leave a part of it free (`min_free_storage`), and so make nothing there.
        pools: Vec<Arc<str>>,
    },
    /// Pools find no room on it for the disks of one more machine.
    NoRoom {
        /// The pools.
        pools: Vec<Arc<str>>,
        /// Bytes that the smallest of these machines takes of it.
        asks: i64,
    },
    /// It shares its space with other storages: disks on them count here, too.
    SharesSpace {
        /// The others.
        with: Vec<Arc<str>>,
    },
}

impl StorageNote {
    /// Whether it says why machines do not get a disk there.
    pub fn is_in_the_way(&self) -> bool {
        !matches!(self, StorageNote::SharesSpace { .. })
    }
}
