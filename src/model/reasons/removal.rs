//! Why a node stays, and why a pod keeps its node from going.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::excess::{Excess, ExcessForm};
use super::filter_failure::FilterFailure;
use super::given_up::{GivenUp, WaitsFor};
use super::held::Hindrance;
use crate::cluster::ObjectKey;
use crate::disruption::{Cause, Share};
use crate::foreign::ForeignText;
use crate::time::{Span, Time};

/// Why a node stays, in cluster-autoscaler's terms: its `UnremovableReason` and, where a pod blocks, its
/// `BlockingPodReason`. Metrics, Events and conformance cases name them so. Nodes that are given up have names of our own.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Unremovable {
    /// All nodes of its pool go together or not at all.
    AtomicScaleDownFailed,
    /// It is to go, and a machine that takes its place comes; not cluster-autoscaler's.
    BeingReplaced,
    /// Somebody else is removing it.
    CurrentlyBeingDeleted,
    /// A pod has local storage.
    LocalStorageRequested,
    /// The least CPU or memory of all pools would not be kept.
    MinimalResourceLimitExceeded,
    /// Nothing is known of it.
    NoNodeInfo,
    /// A pod of it finds no other place.
    NoPlaceToMovePods,
    /// It is to go, and no machine can be made that takes its place; not cluster-autoscaler's.
    NoReplacement,
    /// The most nodes that may leave at a time are leaving.
    NodeGroupMaxDeletionCountReached,
    /// The pool's `min`.
    NodeGroupMinSizeReached,
    /// Not ours to remove.
    NotAutoscaled,
    /// A disruption budget.
    NotEnoughPdb,
    /// No controller makes a pod anew.
    NotReplicated,
    /// A pod's annotation forbids its eviction.
    NotSafeToEvictAnnotation,
    /// The node's pods request more than the threshold.
    NotUnderutilized,
    /// Unneeded, and not for long enough.
    NotUnneededLongEnough,
    /// Any other reason.
    NotUnneededOtherReason,
    /// Not Ready, and not for long enough.
    NotUnreadyLongEnough,
    /// It is to go after others of its pool; not cluster-autoscaler's.
    ReplacedLater,
    /// The node's annotation forbids its removal.
    ScaleDownDisabledAnnotation,
    /// Removing nodes that are not Ready is switched off.
    ScaleDownUnreadyDisabled,
    /// What is needed to judge it could not be worked out.
    UnexpectedError,
    /// A pod of `kube-system` without a disruption budget.
    UnmovableKubeSystemPod,
}

/// Why a node stays.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Kept {
    /// It is to go, whatever it is used for, and stays for now.
    GivenUp {
        /// Why it is to go.
        cause: Box<GivenUp>,
        /// What it waits for.
        waits: Box<WaitsFor>,
    },
    /// The node's VM is off, and besides it stays for another reason.
    PoweredOff {
        /// Since when, and what was done.
        off: PoweredOff,
        /// The other reason.
        kept: Box<Kept>,
    },
    /// The pool is not in the configuration.
    PoolNotConfigured {
        /// The pool.
        pool: Arc<str>,
    },
    /// The machine is left alone.
    LeftAlone {
        /// Why.
        machine: LeftAlone,
    },
    /// It is still coming up.
    ComingUp,
    /// The node's machine failed and is being removed.
    Failed,
    /// The node's machine failed and is kept for a while, to be looked into.
    FailedAndKept {
        /// Until when.
        until: Time,
    },
    /// The node's VM is gone.
    VmGone,
    /// Nothing is known of it.
    Unknown,
    /// Scale-down is switched off, for all or for its pool.
    ScaleDownDisabled,
    /// It is not Ready, and removing such nodes is switched off.
    UnreadyDisabled,
    /// The node's host is offline, or answers no call: nothing of its VM can be removed.
    HostOffline {
        /// The host.
        host: Arc<str>,
    },
    /// It was made to replace these nodes.
    Replacement {
        /// The nodes.
        nodes: Vec<Arc<str>>,
    },
    /// An annotation of the node forbids scale-down.
    DisabledAnnotation {
        /// The annotation.
        annotation: Arc<str>,
    },
    /// The node is annotated as not to be disrupted.
    DoNotDisrupt {
        /// The annotation.
        annotation: Arc<str>,
    },
    /// Another autoscaler's taint says that it removes the node.
    RemovedByOthers {
        /// The taint's key.
        taint: Arc<str>,
    },
    /// The node's pool is never consolidated.
    NeverConsolidated,
    /// Pods run there, and its pool consolidates only empty nodes.
    NotEmpty,
    /// The node's pods request more than the threshold.
    NotUnderutilized {
        /// The resource of which most is requested.
        resource: Arc<str>,
        /// Thousandths of it that are requested.
        requested_permille: i64,
        /// The threshold in thousandths.
        threshold_permille: i64,
        /// The node is Ready.
        ready: bool,
    },
    /// The node does not report how much it has of a resource.
    NotReported {
        /// The resource.
        resource: Arc<str>,
    },
    /// Pods that do not count request all there is of a resource.
    NothingToCount {
        /// The resource.
        resource: Arc<str>,
    },
    /// A pod on it may not be evicted.
    BlockedByPod {
        /// The pod.
        pod: ObjectKey,
        /// Why.
        blocked: Box<Blocked>,
    },
    /// Pending pods are expected on it.
    PodsExpected,
    /// Pods of other nodes that go will move to it.
    PodsMoveHere,
    /// Pods of a node that costs more will move to it.
    PodsOfDearerMoveHere {
        /// The dearer node whose pods move here.
        node: Arc<str>,
    },
    /// A pod finds no other place.
    NoPlace {
        /// The pods that find none are pending and were expected on it.
        expected: bool,
        /// Other ready nodes that stay.
        others: usize,
        /// The first of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nearest: Option<Arc<str>>,
        /// Why that one does not hold the pod.
        #[serde(default, skip_serializing_if = "Option::is_none", alias = "misfit")]
        filter_failure: Option<Box<FilterFailure>>,
    },
    /// The node's pods are spread over domains, and no other node is left in one of them.
    LastOfDomain {
        /// Topology key.
        key: Arc<str>,
        /// The domain.
        domain: Arc<str>,
    },
    /// The node's pods fit elsewhere only in one order, and kube-scheduler may take another.
    OneOrderOnly,
    /// The budget of work of one decision is used up.
    WorkUsedUp,
    /// Enough nodes have become unneeded for now.
    EnoughUnneeded,
    /// It is needed: another node for which it would have to go says so.
    Needed,
    /// All nodes of its pool go together, and another stays.
    PoolTogether {
        /// The pool.
        pool: Arc<str>,
        /// The node that stays.
        other: Arc<str>,
        /// Why that stays.
        kept: Box<Kept>,
    },
    /// One machine replaces it together with a node that stays.
    ReplacedTogether {
        /// The machine.
        by: Arc<str>,
        /// The node that stays.
        other: Arc<str>,
        /// Why that stays.
        kept: Box<Kept>,
    },
    /// Something keeps nodes from being removed at all, or in its region.
    Held {
        /// What.
        hold: Arc<Hindrance>,
    },
    /// Nothing is removed for a while after something else.
    Delayed {
        /// After what.
        after: After,
        /// For how long.
        delay: Span,
        /// Until when.
        until: Time,
    },
    /// The pool would have fewer nodes than its `min`.
    PoolMin {
        /// Nodes that it would keep.
        keeps: u32,
        /// The pool's `min`.
        min: u32,
    },
    /// All pools together would keep too little of something.
    LeastOfAll {
        /// What the limit is of: CPU or memory.
        of: Limit,
        /// Millicores or bytes that they would keep.
        keeps: i64,
        /// Millicores or bytes that they must keep.
        least: i64,
    },
    /// The most nodes that may leave at a time are leaving.
    MaxParallelism {
        /// Nodes that are leaving.
        leaving: u32,
        /// `max_parallelism`.
        max: u32,
    },
    /// The most nodes that may be drained at a time are being drained.
    MaxDrainParallelism {
        /// Nodes that are being drained.
        draining: u32,
        /// `max_drain_parallelism`.
        max: u32,
    },
    /// A budget of its pool lets no further node be disrupted.
    NodeBudget {
        /// What the budget allows.
        allowed: Share,
        /// Nodes of the pool.
        nodes: u32,
        /// What the budget is asked for.
        cause: Cause,
        /// Nodes that are disrupted.
        disrupted: u32,
    },
    /// A disruption budget leaves too few evictions beside other removals.
    BudgetShared {
        /// The PodDisruptionBudget.
        budget: ObjectKey,
        /// Evictions that it has left.
        left: i64,
        /// Evictions that are needed.
        wanted: i64,
    },
    /// It has not been so for long enough.
    NotLongEnough {
        /// In which way the node has been unneeded.
        state: Unneeded,
        /// Since when.
        since: Time,
        /// For how long by now.
        waited: Span,
        /// For how long it must be.
        wanted: Span,
    },
    /// It is not known yet when its pods last changed.
    ChangeUnknown,
    /// A pod came or went there lately, and its pool waits after that (`consolidate_after`).
    PodsChanged {
        /// When.
        since: Time,
        /// Until when the pool waits.
        until: Time,
    },
    /// It is too young.
    TooYoung {
        /// The node's age.
        age: Span,
        /// `min_node_age`.
        least: Span,
    },
}

/// What [`Kept::NotLongEnough`] waits for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Unneeded {
    /// The node is not needed.
    Unneeded,
    /// The node is not Ready.
    Unready,
}

/// After what nothing is removed for a while.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// A node came.
    Addition,
    /// A node went.
    Deletion,
    /// A node's removal failed.
    FailedDeletion,
    /// The daemon began to remember: what was before is not known.
    Beginning,
}

/// What the pools together must keep at least, or may have at most.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// CPU in millicores.
    Cpu,
    /// Memory in bytes.
    Memory,
}

/// Why a pod keeps its node from being removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Blocked {
    /// The pod's constraints are more than one decision looks at.
    TooComplex {
        /// What was counted; in JSON `why` and `excess`.
        #[serde(flatten, with = "super::excess")]
        #[schemars(with = "ExcessForm")]
        excess: Excess,
    },
    /// An annotation of the pod forbids its eviction.
    Annotation {
        /// The annotation.
        annotation: Arc<str>,
        /// The annotation's value.
        value: Arc<str>,
    },
    /// It is in several disruption budgets: the API server refuses to evict it.
    SeveralBudgets {
        /// How many.
        budgets: usize,
    },
    /// A disruption budget has no evictions left.
    Budget {
        /// The PodDisruptionBudget.
        budget: ObjectKey,
        /// Evictions that it allows.
        allowed: i32,
        /// Evictions that are left beside what is planned.
        left: i64,
        /// The pod is not Ready: with `unhealthyPodEvictionPolicy: AlwaysAllow` the budget would not hold it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unready: bool,
    },
    /// It uses devices by ResourceClaim.
    Devices,
    /// No controller makes it anew.
    NoController,
    /// The pod's controller is none of those known to make pods anew.
    CustomController {
        /// The controller's kind.
        kind: Arc<str>,
    },
    /// A young pod of `kube-system` without disruption budget.
    SystemPod {
        /// From this age on it does not block.
        timeout: Span,
        /// The pod's age.
        age: Span,
    },
    /// A volume of it is on the node.
    LocalStorage {
        /// The volume's name in the pod.
        volume: Arc<str>,
    },
}

/// Why a machine is left alone whatever else is decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum LeftAlone {
    /// The VM's mark names another cluster.
    OtherCluster {
        /// The cluster that it names.
        cluster: Arc<str>,
    },
    /// The VM's mark names another machine.
    OtherMachine {
        /// The machine that it names.
        machine: Arc<str>,
    },
    /// More than one VM carries its mark.
    SeveralVms,
    /// The VM's mark is damaged.
    DamagedMark {
        /// What is wrong with it.
        damage: ForeignText,
    },
    /// The VM's mark has a version that this program does not know.
    UnknownVersion {
        /// The version.
        version: ForeignText,
    },
    /// The machine's VM carries another mark than its intent.
    OtherMark,
    /// Somebody made a template of the machine's VM.
    MadeTemplate {
        /// The machine's VMID.
        vmid: u32,
        /// The VM's host.
        host: Arc<str>,
    },
    /// The machine's VM is there, and its configuration could not be read.
    Unreadable,
    /// The machine's VM does not carry the machine's mark.
    NoMark,
    /// The mark of the machine's VM is not in its description any more: by its UUID it is the VM that is remembered.
    LostMark {
        /// The machine's VMID.
        vmid: u32,
        /// The VM's host.
        host: Arc<str>,
        /// The line that was the mark.
        line: Arc<str>,
    },
    /// The machine's VMID is not in the range of its region: nothing may be done with VMs outside of it, and they are not read.
    OutsideRange {
        /// The machine's VMID.
        vmid: u32,
        /// First VMID of the range.
        first: u32,
        /// Last VMID of the range.
        last: u32,
    },
    /// Node and VM contradict each other.
    Contradiction {
        /// What contradicts what.
        contradiction: ForeignText,
    },
}

/// A VM that is off while its Node exists.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct PoweredOff {
    /// Since when it was seen off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When it was started, in vain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// It is being started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starting: bool,
}

impl Unremovable {
    /// The name, as cluster-autoscaler writes it.
    pub fn name(self) -> &'static str {
        match self {
            Unremovable::AtomicScaleDownFailed => "AtomicScaleDownFailed",
            Unremovable::BeingReplaced => "BeingReplaced",
            Unremovable::CurrentlyBeingDeleted => "CurrentlyBeingDeleted",
            Unremovable::LocalStorageRequested => "LocalStorageRequested",
            Unremovable::MinimalResourceLimitExceeded => "MinimalResourceLimitExceeded",
            Unremovable::NoNodeInfo => "NoNodeInfo",
            Unremovable::NoPlaceToMovePods => "NoPlaceToMovePods",
            Unremovable::NoReplacement => "NoReplacement",
            Unremovable::NodeGroupMaxDeletionCountReached => "NodeGroupMaxDeletionCountReached",
            Unremovable::NodeGroupMinSizeReached => "NodeGroupMinSizeReached",
            Unremovable::NotAutoscaled => "NotAutoscaled",
            Unremovable::NotEnoughPdb => "NotEnoughPdb",
            Unremovable::NotReplicated => "NotReplicated",
            Unremovable::NotSafeToEvictAnnotation => "NotSafeToEvictAnnotation",
            Unremovable::NotUnderutilized => "NotUnderutilized",
            Unremovable::NotUnneededLongEnough => "NotUnneededLongEnough",
            Unremovable::NotUnneededOtherReason => "NotUnneededOtherReason",
            Unremovable::NotUnreadyLongEnough => "NotUnreadyLongEnough",
            Unremovable::ReplacedLater => "ReplacedLater",
            Unremovable::ScaleDownDisabledAnnotation => "ScaleDownDisabledAnnotation",
            Unremovable::ScaleDownUnreadyDisabled => "ScaleDownUnreadyDisabled",
            Unremovable::UnexpectedError => "UnexpectedError",
            Unremovable::UnmovableKubeSystemPod => "UnmovableKubeSystemPod",
        }
    }
}

impl Kept {
    /// The reason in cluster-autoscaler's terms.
    pub fn reason(&self) -> Unremovable {
        match self {
            Kept::GivenUp { waits, .. } => waits.reason(),
            Kept::PoweredOff { kept, .. } => kept.reason(),
            Kept::PoolNotConfigured { .. } | Kept::LeftAlone { .. } => Unremovable::NotAutoscaled,
            Kept::Unknown => Unremovable::NoNodeInfo,
            Kept::UnreadyDisabled => Unremovable::ScaleDownUnreadyDisabled,
            Kept::DisabledAnnotation { .. } | Kept::DoNotDisrupt { .. } => {
                Unremovable::ScaleDownDisabledAnnotation
            }
            Kept::RemovedByOthers { .. } => Unremovable::CurrentlyBeingDeleted,
            Kept::NotUnderutilized { .. } => Unremovable::NotUnderutilized,
            Kept::NotReported { .. } | Kept::NothingToCount { .. } => Unremovable::UnexpectedError,
            Kept::BlockedByPod { blocked, .. } => blocked.reason(),
            Kept::PodsMoveHere
            | Kept::NoPlace { .. }
            | Kept::LastOfDomain { .. }
            | Kept::OneOrderOnly => Unremovable::NoPlaceToMovePods,
            Kept::PoolTogether { .. } => Unremovable::AtomicScaleDownFailed,
            Kept::PoolMin { .. } => Unremovable::NodeGroupMinSizeReached,
            Kept::LeastOfAll { .. } => Unremovable::MinimalResourceLimitExceeded,
            Kept::MaxParallelism { .. } | Kept::MaxDrainParallelism { .. } => {
                Unremovable::NodeGroupMaxDeletionCountReached
            }
            Kept::BudgetShared { .. } => Unremovable::NotEnoughPdb,
            Kept::NotLongEnough { state, .. } => match state {
                Unneeded::Unneeded => Unremovable::NotUnneededLongEnough,
                Unneeded::Unready => Unremovable::NotUnreadyLongEnough,
            },
            Kept::ChangeUnknown | Kept::PodsChanged { .. } => Unremovable::NotUnneededLongEnough,
            Kept::ComingUp
            | Kept::Failed
            | Kept::FailedAndKept { .. }
            | Kept::VmGone
            | Kept::HostOffline { .. }
            | Kept::ScaleDownDisabled
            | Kept::Replacement { .. }
            | Kept::NeverConsolidated
            | Kept::NotEmpty
            | Kept::PodsExpected
            | Kept::PodsOfDearerMoveHere { .. }
            | Kept::WorkUsedUp
            | Kept::EnoughUnneeded
            | Kept::Needed
            | Kept::ReplacedTogether { .. }
            | Kept::Held { .. }
            | Kept::Delayed { .. }
            | Kept::NodeBudget { .. }
            | Kept::TooYoung { .. } => Unremovable::NotUnneededOtherReason,
        }
    }
}

impl Blocked {
    /// The reason in cluster-autoscaler's terms.
    pub fn reason(&self) -> Unremovable {
        match self {
            Blocked::TooComplex { .. } | Blocked::Devices => Unremovable::UnexpectedError,
            Blocked::Annotation { .. } => Unremovable::NotSafeToEvictAnnotation,
            Blocked::SeveralBudgets { .. } | Blocked::Budget { .. } => Unremovable::NotEnoughPdb,
            Blocked::NoController | Blocked::CustomController { .. } => Unremovable::NotReplicated,
            Blocked::SystemPod { .. } => Unremovable::UnmovableKubeSystemPod,
            Blocked::LocalStorage { .. } => Unremovable::LocalStorageRequested,
        }
    }
}
