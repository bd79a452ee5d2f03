//! Why a pod does not run on a node, in the order in which kube-scheduler asks its filters.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::{ObjectKey, ZoneLabel};
use crate::scheduling::{HostPort, LabelSelector, NodeTerm, Taint};

/// The first filter that keeps a pod off a node that is there, or off one that could be made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum FilterFailure {
    /// The node is leaving.
    Leaving,
    /// The node is cordoned.
    Cordoned,
    /// The pod does not tolerate a taint.
    Taint {
        /// The taint.
        taint: Taint,
        /// A toleration of the pod compares the taint's value as a number, for which kube-scheduler needs the feature gate
        /// `TaintTolerationComparisonOperators`.
        compares_numbers: bool,
    },
    /// The node does not have a label of the pod's `nodeSelector`.
    NodeSelector {
        /// The label's key.
        key: Arc<str>,
        /// The value that the pod asks for.
        value: Arc<str>,
    },
    /// The pod's required node affinity does not match.
    NodeAffinity {
        /// One of these terms would have to match.
        terms: Vec<NodeTerm>,
    },
    /// A volume of the pod.
    Volume {
        /// What is wrong with it.
        volume: VolumeFilterFailure,
    },
    /// A host port of the pod is taken; with the port 0 a disk that pods of a node do not share.
    HostPort {
        /// The port.
        port: HostPort,
        /// The DaemonSet whose pod has it on each new node; `None` where a pod of this node has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        daemon_set: Option<ObjectKey>,
    },
    /// The node has too little of a resource.
    Insufficient {
        /// The resource, such as `cpu`, `memory` or `pods`.
        resource: Arc<str>,
        /// What the pod asks: millicores, bytes or a number.
        asked: i64,
        /// What is free, in the unit of `asked`.
        free: i64,
        /// The node could be made, and its DaemonSets' pods are counted; `false` for a node that is there.
        new_node: bool,
    },
    /// A pod there has required anti-affinity against this one.
    AntiAffinityOfOthers {
        /// Topology key of the term.
        key: Arc<str>,
        /// The domain; `None` for one that comes with the node.
        domain: Option<Arc<str>>,
    },
    /// The pod has required anti-affinity against one there.
    AntiAffinity {
        /// Topology key of the term.
        key: Arc<str>,
        /// The domain; `None` for one that comes with the node.
        #[serde(default)]
        domain: Option<Arc<str>>,
        /// By what the term selects pods; empty where it selects none.
        #[serde(default)]
        selectors: Vec<LabelSelector>,
        /// The namespaces that it looks in, where they are named or the pod's own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        namespaces: Vec<Arc<str>>,
    },
    /// The pod's required affinity needs a node with this label.
    AffinityLabel {
        /// Topology key of the term.
        key: Arc<str>,
    },
    /// The pod has required affinity to pods of which none is there.
    Affinity {
        /// Topology key of the term.
        key: Arc<str>,
        /// The domain; `None` for one that comes with the node.
        domain: Option<Arc<str>>,
        /// By what its terms select pods: all of them take in the one that it needs. Empty where one selects none.
        #[serde(default)]
        selectors: Vec<LabelSelector>,
        /// The namespaces that it looks in, where they are named or the pod's own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        namespaces: Vec<Arc<str>>,
        /// No such pod has a place in any domain.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        nowhere: bool,
    },
    /// The pod's topology spread needs a node with this label.
    SpreadLabel {
        /// The label's key.
        key: Arc<str>,
    },
    /// The pod's topology spread (`DoNotSchedule`) would be exceeded.
    Spread {
        /// Topology key of the constraint.
        key: Arc<str>,
        /// The domain; `None` for one that comes with the node.
        domain: Option<Arc<str>>,
        /// Pods in the domain with this one.
        pods: i64,
        /// Pods in the domain that has fewest.
        least: i64,
        /// That domain, where it has a name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        least_domain: Option<Arc<str>>,
        /// No node is in that domain yet, and one could be made there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        least_is_new: bool,
        /// `maxSkew`.
        max_skew: i64,
        /// How many domains there are, where they are fewer than `minDomains`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        domains: Option<usize>,
        /// `minDomains`, where there are fewer domains.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_domains: Option<usize>,
    },
    /// The pod, or a DaemonSet's pod that runs on every new node, has required anti-affinity against the other.
    DaemonSetAntiAffinity {
        /// Topology key of the term.
        key: Arc<str>,
        /// Namespace of the DaemonSet.
        namespace: Arc<str>,
    },
}

/// What is wrong with a pod's volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum VolumeFilterFailure {
    /// The claim is `ReadWriteOncePod` and another pod uses it.
    ClaimInUse {
        /// The claim.
        claim: Arc<str>,
        /// Whoever uses it.
        user: ObjectKey,
    },
    /// The claim is `ReadWriteOncePod` and another pending pod gets it first.
    #[serde(alias = "claim_promised")]
    ClaimReserved {
        /// The claim.
        claim: Arc<str>,
        /// Whoever gets it.
        user: ObjectKey,
    },
    /// There is no such claim.
    NoClaim {
        /// The claim.
        claim: Arc<str>,
    },
    /// An ephemeral volume's claim is there, and was not made for the pod (its controller is not the pod).
    ClaimNotOfPod {
        /// The claim.
        claim: Arc<str>,
    },
    /// The claim is being deleted.
    ClaimDeleted {
        /// The claim.
        claim: Arc<str>,
    },
    /// The claim's phase is `Lost`.
    ClaimLost {
        /// The claim.
        claim: Arc<str>,
    },
    /// The claim names a volume that does not exist.
    NoVolume {
        /// The claim.
        claim: Arc<str>,
        /// The volume.
        volume: Arc<str>,
    },
    /// The claim names a volume and is not bound yet.
    NotBound {
        /// The claim.
        claim: Arc<str>,
        /// The volume.
        volume: Arc<str>,
    },
    /// The claim names a storage class that does not exist.
    NoStorageClass {
        /// The claim.
        claim: Arc<str>,
        /// The class.
        class: Arc<str>,
    },
    /// The claim names no storage class, none is the default, and it is not bound.
    UnboundWithoutClass {
        /// The claim.
        claim: Arc<str>,
    },
    /// The claim is not bound, and its class does not wait for a consumer: no node helps.
    UnboundImmediate {
        /// The claim.
        claim: Arc<str>,
        /// The class.
        class: Arc<str>,
    },
    /// No volume of the class is free, and nothing provisions one.
    NoneFree {
        /// The claim.
        claim: Arc<str>,
        /// The class.
        class: Arc<str>,
        /// What the claim asks, in bytes, where that is known.
        #[serde(default)]
        storage: Option<i64>,
    },
    /// The volume lives on one node, and this is a new one.
    Local {
        /// The volume.
        volume: Arc<str>,
    },
    /// The volume is being deleted: no node is made for it.
    BeingDeleted {
        /// The volume.
        volume: Arc<str>,
    },
    /// The volume belongs to another zone or region.
    Zone {
        /// The label that the node lacks.
        zone: ZoneLabel,
    },
    /// kube-scheduler has chosen another node, and the volume is being made there.
    MadeElsewhere {
        /// The node for which the volume is made.
        node: Arc<str>,
    },
    /// The volume is not reached from the node.
    Unreachable {
        /// One of these terms would have to match.
        terms: Vec<NodeTerm>,
    },
    /// The class's driver says that it has no room for the volume there.
    NoFreeStorage {
        /// What the driver publishes about its free storage.
        storage: NoFreeStorage,
    },
    /// The claim waits for a consumer, and there is no volume for it.
    Unserved {
        /// The claim; `None` where several pods are spoken of.
        #[serde(default)]
        claim: Option<Arc<str>>,
        /// The class.
        class: Arc<str>,
        /// What the claim asks, in bytes.
        storage: i64,
        /// The node; `None` for a new one.
        #[serde(default)]
        node: Option<Arc<str>>,
        /// Other pods of the decision have taken volumes that it could have had.
        taken: bool,
        /// Why none is provisioned either.
        provision: Provision,
    },
    /// The node attaches no more volumes of a driver.
    AttachLimit {
        /// The CSI driver.
        driver: Arc<str>,
        /// More volumes than are attached, that the pod needs.
        more: usize,
        /// What the node attaches at most.
        limit: usize,
        /// How many volumes are attached already.
        used: usize,
    },
}

/// Why no volume is provisioned for a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Provision {
    /// The class has no provisioner.
    Nobody,
    /// It is provisioned elsewhere only.
    Elsewhere {
        /// One of these terms would have to match.
        terms: Vec<NodeTerm>,
    },
    /// The driver has no room there.
    NoFreeStorage {
        /// What the driver publishes about its free storage.
        storage: NoFreeStorage,
    },
}

/// What a driver publishes (`CSIStorageCapacity`) that leaves no room for a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum NoFreeStorage {
    /// Nothing for this class.
    Unpublished {
        /// The class.
        class: Arc<str>,
        /// The volume's size in bytes.
        asked: i64,
    },
    /// Less than the volume takes, wherever that is.
    TooSmall {
        /// The class.
        class: Arc<str>,
        /// The volume's size in bytes.
        asked: i64,
        /// The most that there is in one place, in bytes.
        most: i64,
    },
    /// Enough, in other places.
    Elsewhere {
        /// The class.
        class: Arc<str>,
        /// The volume's size in bytes.
        asked: i64,
        /// Which nodes reach those places.
        places: Vec<LabelSelector>,
    },
}
