//! All that can be said of one pod or one node: the answer to `explain`.
//!
//! Made only when somebody asks, by the same steps that decide; a decision itself carries one
//! verdict a pod and a node ([`super::report`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::chosen_storages::ChosenStorages;
use super::cluster::{ObjectKey, Phase};
use super::cpus::CpuSet;
use super::foreign::ForeignText;
use super::host_choice::HostDecision;
use super::network::NicAddresses;
use super::reasons::{FateReason, FilterFailure, Refusals, Unremovable, told};
use super::region::{Failure, Step};
use super::report::{GoesOnceUp, Hold, NodeVerdict, PodVerdict};
use super::resources::Resources;
use super::time::Time;
use super::words;

/// One pod, tried on everything there is and everything that could be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PodStory {
    /// The pod.
    pub pod: ObjectKey,
    /// The node it is bound to.
    #[serde(default)]
    pub bound: Option<Arc<str>>,
    /// `status.phase`.
    pub phase: Phase,
    /// `spec.priority`.
    pub priority: i32,
    /// The pod's effective request.
    pub asks: Resources,
    /// What the decision made of it; `None` for a bound pod that nobody moves.
    #[serde(default)]
    pub verdict: Option<PodVerdict>,
    /// What becomes of the node that it is on and of the pod with it, where that node is to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_to_go: Option<NodeToGo>,
    /// What a new machine of each pool, instance type and host would be to it.
    pub offers: Vec<OfferAnswer>,
    /// What each node and machine under way is to it now, all other pods placed.
    pub nodes: Vec<NodeAnswer>,
    /// What each machine that the decision makes is to it, all other pods placed; for a pod that waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub planned: Vec<PlannedAnswer>,
    /// What would have to change for a machine, for a pod that has no place; each of them is enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// What holds the brain back from adding nodes.
    pub holds: Vec<Hold>,
    /// The node or machine that its preferences are weighed at: where it runs, or where the decision has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Arc<str>>,
    /// The pod's preferences (soft constraints), and whether each is met there once the whole decision is carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferences: Vec<PreferenceAnswer>,
}

/// The node that a pod runs on, where that is to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeToGo {
    /// Why it is to go, or why it stays for now.
    pub verdict: NodeVerdict,
    /// What becomes of the pod when it goes.
    pub fate: PodFate,
}

/// One preference of a pod, at the place that the decision has for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreferenceAnswer {
    /// What the preference is about.
    pub kind: PreferenceKind,
    /// The preference in words.
    pub preference: String,
    /// The preference's weight, 1 to 100, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// Whether it is met.
    pub met: bool,
    /// For spreading: the pods of each domain that the pod could be in, itself included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pods: BTreeMap<Arc<str>, i64>,
    /// Why it is not met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a preference is about.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PreferenceKind {
    /// Preferred node affinity.
    NodeAffinity,
    /// A `PreferNoSchedule` taint that it does not tolerate.
    Taint,
    /// Preferred pod affinity.
    PodAffinity,
    /// Preferred pod anti-affinity.
    PodAntiAffinity,
    /// Topology spread with `ScheduleAnyway`.
    TopologySpread,
    /// kube-scheduler's own default spread over zones; said only where it is not met.
    DefaultSpread,
}

/// What a new machine would be to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OfferAnswer {
    /// The pool.
    pub pool: Arc<str>,
    /// The instance type.
    pub instance_type: Arc<str>,
    /// The region, where the pool is in several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Arc<str>>,
    /// The host; empty when the region shows none that the pool may use.
    pub host: Arc<str>,
    /// Price of one node in millionths per hour.
    pub price: i64,
    /// What a pod finds there after DaemonSets.
    pub free: Resources,
    /// The first predicate that fails, with numbers; `None` when the pod would run there. In JSON `filter_failure` and
    /// `filter_failure_details`.
    #[serde(flatten, with = "told::filter_failure")]
    #[schemars(with = "told::FilterFailureForm")]
    pub filter_failure: Option<FilterFailure>,
    /// What fails beside the first. In JSON `further_filter_failures` and `further_filter_failures_details`, where there is any.
    #[serde(flatten, with = "told::further_filter_failures")]
    #[schemars(with = "told::FurtherFilterFailuresForm")]
    pub further: Vec<FilterFailure>,
    /// What keeps such a machine from being made now (limits, back-off, host), fitting or not. In JSON `held` and
    /// `held_details`.
    #[serde(flatten, with = "told::held")]
    #[schemars(with = "told::HeldForm")]
    pub held: Option<Refusals>,
}

/// What a node there is, or a machine under way, is to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeAnswer {
    /// The node's or machine's name.
    pub name: Arc<str>,
    /// It is on its way up.
    pub coming: bool,
    /// What is free.
    pub free: Resources,
    /// The first predicate that fails, with numbers; `None` when the pod would run there. In JSON `filter_failure` and
    /// `filter_failure_details`.
    #[serde(flatten, with = "told::filter_failure")]
    #[schemars(with = "told::FilterFailureForm")]
    pub filter_failure: Option<FilterFailure>,
    /// What fails beside the first. In JSON `further_filter_failures` and `further_filter_failures_details`, where there is any.
    #[serde(flatten, with = "told::further_filter_failures")]
    #[schemars(with = "told::FurtherFilterFailuresForm")]
    pub further: Vec<FilterFailure>,
    /// Expendable pods that kube-scheduler would preempt for it, with their priorities.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub preempts: BTreeMap<ObjectKey, i32>,
}

/// What a machine that the decision makes is to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedAnswer {
    /// The machine's name.
    pub name: Arc<str>,
    /// The pool.
    pub pool: Arc<str>,
    /// The instance type.
    pub instance_type: Arc<str>,
    /// The region, where the pool is in several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Arc<str>>,
    /// The host.
    pub host: Arc<str>,
    /// The decision has the pod there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// What is free beside the other pods that go there.
    pub free: Resources,
    /// The first predicate that fails, with numbers; `None` when the pod would run there. In JSON `filter_failure` and
    /// `filter_failure_details`.
    #[serde(flatten, with = "told::filter_failure")]
    #[schemars(with = "told::FilterFailureForm")]
    pub filter_failure: Option<FilterFailure>,
    /// What fails beside the first. In JSON `further_filter_failures` and `further_filter_failures_details`, where there is any.
    #[serde(flatten, with = "told::further_filter_failures")]
    #[schemars(with = "told::FurtherFilterFailuresForm")]
    pub further: Vec<FilterFailure>,
}

/// One node: whether it could go, and what stands in the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeStory {
    /// The node.
    pub node: Arc<str>,
    /// The machine behind it.
    #[serde(default)]
    pub machine: Option<MachineFacts>,
    /// Regions that the configuration has; with one alone nobody needs to be told which it is.
    #[serde(default)]
    pub regions: usize,
    /// What the decision says of it.
    #[serde(default)]
    pub verdict: Option<NodeVerdict>,
    /// Why the machine is to go as soon as it works, where it is on its way up and no node yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<GoesOnceUp>,
    /// The machine that is on its way in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<MachineFacts>,
    /// What would have to change for a machine in its place, where it is to go and none can be made; each of them is enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Unneeded without a gap since; `null` where it is to go for another reason.
    #[serde(default)]
    pub unneeded_since: Option<Time>,
    /// Thousandths requested of what is allocatable, by resource.
    pub requested_permille: BTreeMap<Arc<str>, i64>,
    /// Every pod on it, and what would become of it.
    pub pods: Vec<PodFate>,
    /// Pending pods that are expected on it.
    pub expected: Vec<ObjectKey>,
    /// What holds the brain back from removing nodes.
    pub holds: Vec<Hold>,
}

/// The machine behind a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineFacts {
    /// The machine's name.
    pub name: Arc<str>,
    /// The machine's pool.
    pub pool: Arc<str>,
    /// The machine's instance type.
    pub instance_type: Arc<str>,
    /// The machine's region.
    #[serde(default)]
    pub region: Arc<str>,
    /// The machine's host.
    pub host: Arc<str>,
    /// The CPUs of its host that it has for itself; absent where it runs on any.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub cpus: CpuSet,
    /// The addresses of ours that it has, by the number of the network card; absent where it has none.
    #[serde(default, skip_serializing_if = "NicAddresses::is_empty")]
    pub addresses: NicAddresses,
    /// The VMID.
    pub vmid: u32,
    /// What its VM was made of.
    #[serde(default)]
    pub made_of: MachineParts,
    /// How it stands, in words.
    pub standing: String,
    /// The decision that made it, with why it came to its host; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<HostDecision>,
    /// The host of the instance that led when it was made, where that was another one: the decision is in that one's record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<Arc<str>>,
    /// The step it is in, and since when; absent where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<(Step, Time)>,
    /// What the work on it waits for at this moment. The daemon alone knows, a saved view does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<ForeignText>,
    /// What went wrong with it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// What a machine's VM was made of, by its mark and its intent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MachineParts {
    /// The template: the VM that was cloned, or the settings, as the configuration calls it.
    pub template: Arc<str>,
    /// The storages of its disks, where the file lists several to choose from.
    #[serde(skip_serializing_if = "ChosenStorages::is_empty")]
    pub storages: ChosenStorages,
    /// How many PCI devices it got, by mapping.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<Arc<str>, u32>,
}

impl fmt::Display for MachineParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "template {}", self.template)?;
        if let Some(storage) = &self.storages.own {
            write!(f, ", its disks on {storage}")?;
        }
        for (slot, storage) in &self.storages.further {
            write!(f, ", {slot} on {storage}")?;
        }
        for (mapping, count) in &self.devices {
            write!(f, ", {} of {mapping}", words::count(*count, "PCI device"))?;
        }
        Ok(())
    }
}

/// What becomes of a pod when its node goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PodFate {
    /// The pod.
    pub pod: ObjectKey,
    /// What becomes of it.
    pub fate: PodOutcome,
    /// Why; in JSON `why` and `details`.
    #[serde(flatten, with = "told::maybe_why")]
    #[schemars(with = "told::MaybeWhyForm<FateReason>")]
    pub why: Option<FateReason>,
}

/// What becomes of a pod, in a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "does")]
pub enum PodOutcome {
    /// It does not matter: static, of a DaemonSet, long dead.
    Stays,
    /// It goes, and nothing that must be placed comes for it.
    Goes,
    /// It is being deleted already, and goes by itself.
    Terminates,
    /// It, or its successor, would land there.
    Moves {
        /// The node.
        to: Arc<str>,
    },
    /// It finds no other place.
    Unplaced,
    /// It forbids the removal, by cluster-autoscaler's `BlockingPodReason`.
    Blocks {
        /// The reason.
        reason: Unremovable,
    },
}
