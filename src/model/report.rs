//! Why: for every pending pod, every node and every pool, and what holds the whole back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster::ObjectKey;
use super::foreign::ForeignText;
use super::host_choice::HostChoice;
use super::network::Family;
use super::on_wire::AddressHolder;
use super::reasons::{
    GivenUp, Held, Hindrance, HostNote, Ignored, Kept, Reasons, Removed, Replacing,
    UnknownAddresses, Unremovable, Warning, told,
};
use super::store_states::{DeviceStates, OwnCpuStates, StorageStates};
use super::time::Time;
use super::words;

/// The reasons of one decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// What keeps the brain from acting at all or in part: stale views, no quorum, pause, an unhealthy cluster.
    pub holds: Vec<Hold>,
    /// Sources that were not read since the start, and `the cluster id`: of what depends on them nothing
    /// is said.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unread: BTreeSet<Arc<str>>,
    /// Every pod that is not bound.
    pub pods: BTreeMap<ObjectKey, PodVerdict>,
    /// Every node, ours or not.
    pub nodes: BTreeMap<Arc<str>, NodeVerdict>,
    /// Every pool.
    pub pools: BTreeMap<Arc<str>, PoolState>,
    /// By name every machine that is on its way up. Those that this decision makes are in its plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub coming: BTreeMap<Arc<str>, ComingMachine>,
    /// By region, every host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<Arc<str>, BTreeMap<Arc<str>, HostState>>,
    /// By region, every storage that disks of machines are on or go to: a shared one under its name, any other under `HOST/NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub storages: StorageStates,
    /// By region, mapping and host the PCI devices of the mappings that instance types name; mediated ones by mapping and type, as `vgpu,mdev=nvidia-63`. A mapping that PVE does not show has no host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: DeviceStates,
    /// By region, host and number of the NUMA node the CPUs that machines can get for themselves, where some pool's machines get some.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub own_cpus: OwnCpuStates,
    /// Every network, by family.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<Arc<str>, BTreeMap<Family, NetworkState>>,
    /// What a person should look at: damaged marks, foreign VMs in our range, orphans in quarantine.
    pub warnings: Vec<String>,
    /// The entries of `warnings` with their codes and numbers, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings_details: Vec<Warning>,
    /// The machines that this decision makes for pods and pools in numbers; `None` when it makes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<Growth>,
    /// By the name of each machine that this decision makes why it comes to its host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub chosen_hosts: BTreeMap<Arc<str>, HostChoice>,
    /// By the name of each node that takes no pods yet the nodes after which it does: pods that others must run beside are booked on
    /// these, and would come to it without room for the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub takes_pods_after: BTreeMap<Arc<str>, Vec<Arc<str>>>,
}

/// The name of the cluster's id among what was not read yet.
pub const CLUSTER_ID: &str = "the cluster id";

impl Report {
    /// Whether Kubernetes was read since the start: all its sources, and whose cluster it is.
    pub fn knows_kubernetes(&self) -> bool {
        let of_kubernetes = |name: &Arc<str>| !name.starts_with("pve/");
        !self.unread.iter().any(of_kubernetes)
    }
}

/// New machines: how many, and at what price. Machines that replace others are not among them.
///
/// A field that is not known here is passed over: records of versions before this one have `lower_bound`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// How many.
    pub nodes: u32,
    /// The price of these machines in millionths per hour, as configured or by CPU and memory.
    pub price: i64,
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machines = match self.nodes {
            1 => "one machine".to_owned(),
            many => format!("{many} machines"),
        };
        write!(
            f,
            "New: {machines} at {} an hour.",
            words::price(self.price)
        )
    }
}

/// What a [`Hold`] keeps back. In JSON, in the metric `holds` and on the terminal it is this text: `everything`,
/// `scale-up`, `scale-down`, `region NAME` or `pool NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub enum Scope {
    /// `everything`: no action is planned at all.
    Everything,
    /// `scale-up`: no machine is made.
    ScaleUp,
    /// `scale-down`: no node is removed.
    ScaleDown,
    /// `region NAME`: what concerns machines in this region.
    Region(Arc<str>),
    /// `pool NAME`: what concerns machines of this pool.
    Pool(Arc<str>),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Everything => f.write_str("everything"),
            Scope::ScaleUp => f.write_str("scale-up"),
            Scope::ScaleDown => f.write_str("scale-down"),
            Scope::Region(name) => write!(f, "region {name}"),
            Scope::Pool(name) => write!(f, "pool {name}"),
        }
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> String {
        scope.to_string()
    }
}

impl TryFrom<String> for Scope {
    type Error = String;

    fn try_from(text: String) -> Result<Scope, String> {
        match (text.as_str(), text.split_once(' ')) {
            ("everything", _) => Ok(Scope::Everything),
            ("scale-up", _) => Ok(Scope::ScaleUp),
            ("scale-down", _) => Ok(Scope::ScaleDown),
            (_, Some(("region", name))) => Ok(Scope::Region(name.into())),
            (_, Some(("pool", name))) => Ok(Scope::Pool(name.into())),
            _ => Err(format!("{text:?} is no scope of a hold")),
        }
    }
}

/// What keeps the brain from acting, in full or in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "HoldForm", from = "HoldForm")]
#[schemars(with = "HoldForm")]
pub struct Hold {
    /// What is on hold.
    pub scope: Scope,
    /// Why, and the fault behind it.
    pub why: Arc<Hindrance>,
    /// When it may end, if that is known.
    pub until: Option<Time>,
}

/// A hold in JSON: `why` is the whole sentence, `cause` the fault that it ends with, `details` the reason alone.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Hold")]
struct HoldForm {
    /// What is on hold: `everything`, `scale-up`, `scale-down`, `region NAME` or `pool NAME`.
    scope: Scope,
    /// The whole sentence.
    #[serde(skip_deserializing)]
    why: String,
    /// The reason, without the fault behind it.
    details: Held,
    /// The fault with which the sentence ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<Arc<str>>,
    /// When it may end, if that is known.
    #[serde(default)]
    until: Option<Time>,
}

impl From<Hold> for HoldForm {
    fn from(hold: Hold) -> HoldForm {
        HoldForm {
            why: hold.why.to_string(),
            scope: hold.scope,
            details: hold.why.held.clone(),
            cause: hold.why.cause.clone(),
            until: hold.until,
        }
    }
}

impl From<HoldForm> for Hold {
    fn from(form: HoldForm) -> Hold {
        Hold {
            scope: form.scope,
            why: Arc::new(Hindrance {
                held: form.details,
                cause: form.cause,
            }),
            until: form.until,
        }
    }
}

impl Hold {
    /// A hold for a reason that has no fault behind it.
    pub fn new(scope: Scope, why: Held) -> Hold {
        Hold {
            scope,
            why: Arc::new(why.into()),
            until: None,
        }
    }
}

/// What becomes of a pod that is not bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum PodVerdict {
    /// It fits on a node there is; kube-scheduler will see.
    FitsNode {
        /// The node.
        node: Arc<str>,
        /// Expendable pods of that node that kube-scheduler will preempt for it, with their priorities.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        preempts: BTreeMap<ObjectKey, i32>,
    },
    /// It fits on a machine that is on its way.
    FitsMachine {
        /// The machine.
        machine: Arc<str>,
    },
    /// A machine is planned for it now.
    Triggers {
        /// The machine.
        machine: Arc<str>,
        /// Why the other pools and types lost or failed, by `pool/type`; in JSON `others` and `others_details`.
        #[serde(flatten, with = "told::others")]
        #[schemars(with = "told::OthersForm")]
        others: Reasons,
    },
    /// It waits for its batch to close.
    Batched {
        /// At the latest.
        until: Time,
    },
    /// A node would help but may not be made now: limits, back-off, host capacity.
    Held {
        /// Why, by `pool/type`; in JSON `why` and `details`.
        #[serde(flatten, with = "told::whys")]
        #[schemars(with = "told::WhysForm")]
        why: Reasons,
    },
    /// No machine that the pools allow could ever run it.
    NoCompatiblePool {
        /// The first predicate that fails, with numbers, by `pool/type`; in JSON `why` and `details`.
        #[serde(flatten, with = "told::whys")]
        #[schemars(with = "told::WhysForm")]
        why: Reasons,
    },
    /// It is not our business: gated, expendable, a DaemonSet's, another scheduler's, too young.
    Ignored {
        /// Why; in JSON `why` and `details`.
        #[serde(flatten, with = "told::why")]
        #[schemars(with = "told::WhyForm<Ignored>")]
        why: Ignored,
    },
    /// Nothing can be said of it before that was read.
    Unread {
        /// What was not read yet, and why; in JSON `why` and `details`.
        #[serde(flatten, with = "told::why")]
        #[schemars(with = "told::WhyForm<Arc<Hindrance>>")]
        why: Arc<Hindrance>,
    },
}

impl PodVerdict {
    /// The verdict's name, as in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            PodVerdict::FitsNode { .. } => "fits_node",
            PodVerdict::FitsMachine { .. } => "fits_machine",
            PodVerdict::Triggers { .. } => "triggers",
            PodVerdict::Batched { .. } => "batched",
            PodVerdict::Held { .. } => "held",
            PodVerdict::NoCompatiblePool { .. } => "no_compatible_pool",
            PodVerdict::Ignored { .. } => "ignored",
            PodVerdict::Unread { .. } => "unread",
        }
    }

    /// Whether there is a place for the pod, or will be on a machine that is on its way or planned.
    pub fn is_placed(&self) -> bool {
        matches!(
            self,
            PodVerdict::FitsNode { .. }
                | PodVerdict::FitsMachine { .. }
                | PodVerdict::Triggers { .. }
        )
    }

    /// It fits on a node as it is.
    pub fn fits_node(node: Arc<str>) -> PodVerdict {
        PodVerdict::FitsNode {
            node,
            preempts: BTreeMap::new(),
        }
    }
}

/// Why a node is kept or goes. Reasons carry cluster-autoscaler's names (`UnremovableReason`,
/// `BlockingPodReason`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum NodeVerdict {
    /// Not a node of ours.
    NotAutoscaled,
    /// Nothing can be said of it before that was read.
    Unread {
        /// What was not read yet, and why; in JSON `why` and `details`.
        #[serde(flatten, with = "told::why")]
        #[schemars(with = "told::WhyForm<Arc<Hindrance>>")]
        why: Arc<Hindrance>,
    },
    /// It stays.
    Kept {
        /// The rule, such as `NotUnderutilized` or `NoPlaceToMovePods`.
        reason: Unremovable,
        /// The rule with numbers; in JSON `why` and `details`.
        #[serde(flatten, with = "told::why")]
        #[schemars(with = "told::WhyForm<Kept>")]
        why: Kept,
        /// The pod that blocks, if one does.
        #[serde(default)]
        pod: Option<ObjectKey>,
        /// When to look again, if that is known.
        #[serde(default)]
        until: Option<Time>,
    },
    /// It is being removed, or its removal is planned now.
    Leaving {
        /// Why; in JSON `why` and `details`.
        #[serde(flatten, with = "told::why")]
        #[schemars(with = "told::WhyForm<Removed>")]
        why: Removed,
        /// Where its pods would go.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        moves: BTreeMap<ObjectKey, Arc<str>>,
    },
    /// It works until the machine that shall replace it does.
    Replaced {
        /// The machine.
        by: Arc<str>,
        /// Why, with what it saves; in JSON `why` and `details`.
        #[serde(flatten, with = "told::why")]
        #[schemars(with = "told::WhyForm<Replacing>")]
        why: Replacing,
        /// Where its pods would go; those not named go to the machine.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        moves: BTreeMap<ObjectKey, Arc<str>>,
        /// Why the other pools and types lost, by `pool/type`; in JSON `others` and `others_details`.
        #[serde(flatten, with = "told::others")]
        #[schemars(with = "told::OthersForm")]
        others: Reasons,
    },
}

/// A pool in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolState {
    /// The pool's `min`.
    pub min: u32,
    /// The pool's `max`.
    pub max: u32,
    /// Initialised nodes.
    pub ready: u32,
    /// Machines on their way up.
    pub coming: u32,
    /// Machines on their way down.
    pub leaving: u32,
    /// Failed machines that are kept to be looked into, and until when; they are not among the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept: BTreeMap<Arc<str>, Time>,
    /// Nodes that are not Ready.
    pub unready: u32,
    /// How many of the pool's nodes have drifted: they were made with what the file says otherwise now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drifted: u32,
    /// The numbers of its nodes are not known yet: what they are counted from was not read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
    /// Back-off, if one runs.
    #[serde(default)]
    pub backoff_until: Option<Time>,
    /// The failure that began the back-off.
    #[serde(default)]
    pub backoff_message: Option<ForeignText>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A machine that is on its way up: of what it is made, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComingMachine {
    /// The machine's pool.
    pub pool: Arc<str>,
    /// The machine's instance type.
    pub instance_type: Arc<str>,
    /// The machine's region.
    pub region: Arc<str>,
    /// The machine's host.
    pub host: Arc<str>,
    /// The machine's VMID.
    pub vmid: u32,
    /// Why it is to go as soon as it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<GoesOnceUp>,
}

/// Why a machine that is on its way up is to go as soon as it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GoesOnceUp {
    /// Why; in JSON `why` and `details`.
    #[serde(flatten, with = "told::why")]
    #[schemars(with = "told::WhyForm<GivenUp>")]
    pub why: GivenUp,
}

/// A host in numbers, as new machines find it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostState {
    /// It is online.
    pub online: bool,
    /// Machines on it, of all pools.
    pub machines: u32,
    /// Logical CPUs; 0 when unknown.
    pub cpus: u32,
    /// CPU in millicores that its guests are promised.
    pub promised_cpu_milli: i64,
    /// Memory in bytes; 0 when unknown.
    pub memory: i64,
    /// Memory in bytes that its guests are promised.
    pub promised_memory: i64,
    /// Memory in bytes that may still be promised.
    pub left_memory: i64,
    /// Memory in bytes that guests may be promised, all of them together: what it has, by `memory_overcommit`, without
    /// `host_memory_reserve`.
    #[serde(default)]
    pub most_memory: i64,
    /// CPU in millicores that guests may be promised, all of them together (`cpu_overcommit`, `host_cores_reserve`); `None`: as much
    /// as they like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_cpu_milli: Option<i64>,
    /// Why it gets nothing, or is taken last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The first entries of `notes` with their codes and numbers, in the same order; the daemon's own on the pinning service, at the end, has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes_details: Vec<HostNote>,
}

/// The addresses of a network, of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkState {
    /// The ranges, as a person writes them.
    pub ranges: String,
    /// How many addresses machines may get.
    pub size: u64,
    /// How many addresses of the network are free; machines that are planned now have theirs.
    pub free: u64,
    /// Why none is given now, whatever is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whose addresses are not known: what the note says, in fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note_details: Option<UnknownAddresses>,
    /// Addresses that somebody had when they were last asked for on the wire, and who. They are not free.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub on_wire: BTreeMap<IpAddr, AddressHolder>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_read_as_it_is_written() {
        let scopes = [
            (Scope::Everything, "everything"),
            (Scope::ScaleUp, "scale-up"),
            (Scope::ScaleDown, "scale-down"),
            (Scope::Region("default".into()), "region default"),
            (Scope::Pool("workers".into()), "pool workers"),
        ];
        for (scope, text) in scopes {
            assert_eq!(serde_json::to_value(&scope).expect("plain data"), text);
            assert_eq!(Scope::try_from(text.to_owned()), Ok(scope));
        }
        assert!(Scope::try_from("somewhere".to_owned()).is_err());
    }
}
