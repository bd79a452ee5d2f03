//! The Kubernetes side of a snapshot: pods, nodes and what constrains them, in compact views.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::foreign::ForeignText;
use super::pods::Pods;
use super::resources::Resources;
use super::scheduling::{Effect, LabelSelector, Labels, NodeTerm, PodShape, Taint, Toleration};
use super::shared::Shared;
use super::time::Time;

/// Everything the decision needs of one Kubernetes cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// Pods that have not ended: an ended pod holds nothing on its node any more.
    pub pods: Pods,
    /// When a pod was last seen to become unschedulable; `None` where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unschedulable_at: Option<Time>,
    /// Nodes by name.
    pub nodes: BTreeMap<Arc<str>, Node>,
    /// DaemonSets: their pods are added to every new node they match.
    pub daemon_sets: BTreeMap<ObjectKey, DaemonSet>,
    /// PodDisruptionBudgets.
    pub budgets: BTreeMap<ObjectKey, DisruptionBudget>,
    /// PersistentVolumeClaims.
    pub claims: BTreeMap<ObjectKey, Claim>,
    /// PersistentVolumes by name.
    pub volumes: BTreeMap<Arc<str>, PersistentVolume>,
    /// StorageClasses by name.
    pub storage_classes: BTreeMap<Arc<str>, StorageClass>,
    /// CSIDrivers by name: whether they publish what they have free (`spec.storageCapacity`).
    pub csi_drivers: BTreeMap<Arc<str>, bool>,
    /// CSIStorageCapacities.
    pub capacities: BTreeMap<ObjectKey, StorageCapacity>,
    /// CSINodes by node name: driver to the number of volumes it can attach.
    pub csi_nodes: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Option<i32>>>,
    /// VolumeAttachments by name.
    pub attachments: BTreeMap<Arc<str>, Attachment>,
    /// Namespace labels by name.
    pub namespaces: BTreeMap<Arc<str>, Labels>,
    /// The addresses at which the API server is reached, where networks give machines addresses: it need be no node's. Machines get none of them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub api_addresses: BTreeSet<IpAddr>,
}

/// Namespace and name of a namespaced object. Serialises as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct ObjectKey {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> ObjectKey {
        ObjectKey {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Serialize for ObjectKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ObjectKey, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (namespace, name) = text
            .split_once('/')
            .ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not namespace/name")))?;
        Ok(ObjectKey::new(namespace, name))
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// What scheduling reads, shared between equal pods.
    pub shape: Arc<PodShape>,
    /// `spec.nodeName`.
    #[serde(default)]
    pub node: Option<Arc<str>>,
    /// `status.nominatedNodeName`.
    #[serde(default)]
    pub nominated: Option<Arc<str>>,
    /// `status.phase`.
    #[serde(default)]
    pub phase: Phase,
    /// `metadata.creationTimestamp`.
    pub created: Time,
    /// `metadata.resourceVersion` as the watch first showed it: the order of pods created in one second, in which
    /// kube-scheduler takes them. 0 where that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub arrival: u64,
    /// `status.startTime`: when its node's kubelet took it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// `metadata.deletionTimestamp`: when the grace period ends.
    #[serde(default)]
    pub deletion: Option<Time>,
    /// The pod's own `deletionGracePeriodSeconds` once it is being deleted.
    #[serde(default)]
    pub deletion_grace_seconds: Option<i32>,
    /// When the condition `PodScheduled=False, reason Unschedulable` began.
    #[serde(default)]
    pub unschedulable_since: Option<Time>,
    /// `PodScheduled=False, reason SchedulingGated`, or scheduling gates in the spec.
    #[serde(default)]
    pub gated: bool,
    /// A static pod's mirror (`kubernetes.io/config.mirror`).
    #[serde(default)]
    pub mirror: bool,
    /// Condition `Ready=True`.
    #[serde(default)]
    pub ready: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A pod's phase.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub enum Phase {
    /// Accepted, not all containers started.
    #[default]
    Pending,
    /// Bound and started.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one badly.
    Failed,
    /// The node cannot be asked.
    Unknown,
}

impl Phase {
    /// Whether the pod has ended and holds nothing on its node any more.
    pub fn terminal(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `status.nodeInfo.systemUUID`, lower case: the SMBIOS UUID of the VM.
    #[serde(default)]
    pub system_uuid: Arc<str>,
    /// `spec.providerID`.
    #[serde(default)]
    pub provider_id: Option<Arc<str>>,
    /// `metadata.creationTimestamp`.
    pub created: Time,
    /// `metadata.deletionTimestamp`.
    #[serde(default)]
    pub deletion: Option<Time>,
    /// Labels.
    #[serde(default)]
    pub labels: Shared<Labels>,
    /// The annotations that autoscaling reads, ours (`pve-autoscaler.io/*`) among them.
    #[serde(default)]
    pub annotations: Shared<Labels>,
    /// `spec.taints`.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    #[serde(default)]
    pub unschedulable: bool,
    /// `status.allocatable`.
    pub allocatable: Resources,
    /// `status.capacity`.
    pub capacity: Resources,
    /// Condition `Ready`: status and since when.
    #[serde(default)]
    pub ready: Readiness,
    /// `status.nodeInfo.kubeletVersion`.
    #[serde(default)]
    pub kubelet_version: Arc<str>,
    /// `status.addresses`: those that are IP addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
}

/// The condition `Ready` of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// `True`, `False` or `Unknown` (also when the condition is absent).
    pub status: ReadyStatus,
    /// `lastTransitionTime`.
    #[serde(default)]
    pub since: Option<Time>,
    /// Why it is not ready, in the kubelet's words: the condition's reason and message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<ForeignText>,
}

/// Values of the `Ready` condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReadyStatus {
    /// Ready.
    True,
    /// The kubelet says it is not.
    False,
    /// The kubelet says nothing.
    #[default]
    Unknown,
}

/// A DaemonSet's pod template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonSet {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// The template's shape; the tolerations that the controller adds are in it.
    pub shape: Arc<PodShape>,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisruptionBudget {
    /// Which pods of its namespace; `None` selects none.
    pub selector: Option<LabelSelector>,
    /// `status.disruptionsAllowed`; 0 when the controller has not observed this generation.
    pub allowed: i32,
    /// `spec.unhealthyPodEvictionPolicy: AlwaysAllow`.
    #[serde(default)]
    pub always_allow_unhealthy: bool,
    /// Whether as many pods are healthy as the budget wants (`status.currentHealthy`, `desiredHealthy`), and
    /// it wants some: one that is not ready may be evicted without spending it.
    #[serde(default)]
    pub healthy: bool,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Claim {
    /// `spec.volumeName` of a bound claim.
    pub volume: Option<Arc<str>>,
    /// `spec.storageClassName`; `None` when absent.
    pub class: Option<Arc<str>>,
    /// `status.phase` is `Bound`.
    pub bound: bool,
    /// `status.phase` is `Lost`.
    pub lost: bool,
    /// Being deleted.
    pub deleting: bool,
    /// `ReadWriteOncePod` is among the access modes.
    pub once_pod: bool,
    /// `volume.kubernetes.io/selected-node`.
    pub selected_node: Option<Arc<str>>,
    /// UID of the object that controls it: of the pod, where it was made for an ephemeral volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Arc<str>>,
    /// The demands on a volume, while the claim names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<Arc<ClaimRequest>>,
}

/// What a claim without a volume asks of one that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimRequest {
    /// The claim's `metadata.uid`: a volume that is kept for a claim may name it.
    pub uid: Arc<str>,
    /// `spec.resources.requests.storage`, in bytes.
    pub storage: i64,
    /// `spec.accessModes`.
    pub modes: Vec<Arc<str>>,
    /// `spec.volumeMode: Block`.
    pub block: bool,
    /// `spec.selector`, over the labels of volumes; `None` where there is none.
    pub selector: Option<LabelSelector>,
    /// `spec.volumeAttributesClassName`; empty where there is none.
    pub attributes: Arc<str>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PersistentVolume {
    /// `spec.nodeAffinity.required`: OR of terms; `None` when absent.
    pub node_affinity: Option<Vec<NodeTerm>>,
    /// The volume's labels for zone and region, old and new: hand-made volumes have them in place of an affinity.
    pub zones: Vec<ZoneLabel>,
    /// CSI driver name.
    pub driver: Option<Arc<str>>,
    /// CSI volume handle: what attach limits count.
    pub handle: Option<Arc<str>>,
    /// A `local` or `hostPath` volume: it lives on one node and nowhere else.
    pub local: bool,
    /// Being deleted.
    pub deleting: bool,
    /// The offer to claims, while the volume is bound to none. Bound, released and failed volumes have none:
    /// they are most, and serve no other claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<Arc<Free>>,
}

/// What a volume that is not bound offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Free {
    /// `spec.storageClassName`; empty where there is none.
    pub class: Arc<str>,
    /// `spec.capacity.storage`, in bytes.
    pub storage: i64,
    /// `spec.accessModes`.
    pub modes: Vec<Arc<str>>,
    /// `spec.volumeMode: Block`.
    pub block: bool,
    /// The labels of the volume.
    pub labels: Labels,
    /// `spec.volumeAttributesClassName`; empty where there is none.
    pub attributes: Arc<str>,
    /// `spec.claimRef`: the only claim that it is for.
    pub claim: Option<ObjectKey>,
    /// `spec.claimRef.uid`; empty where a person has named the claim.
    pub claim_uid: Arc<str>,
    /// `status.phase` is `Available`.
    pub available: bool,
}

/// A volume's label for a zone or a region.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(default, deny_unknown_fields)]
pub struct ZoneLabel {
    /// The label's key.
    pub key: Arc<str>,
    /// The label's values: several are joined by `__` in one label.
    pub values: Vec<Arc<str>>,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageClass {
    /// Provisioner; `kubernetes.io/no-provisioner` for static volumes.
    pub provisioner: Arc<str>,
    /// `volumeBindingMode: WaitForFirstConsumer`.
    pub wait_for_consumer: bool,
    /// `allowedTopologies`: OR of terms.
    pub topologies: Vec<NodeTerm>,
    /// Annotated as the default class.
    pub default: bool,
    /// `metadata.creationTimestamp`; the newest default class wins.
    pub created: Time,
}

/// A CSIStorageCapacity: what a driver has free for volumes of a class (KEP-1472).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageCapacity {
    /// `storageClassName`.
    pub class: Arc<str>,
    /// `nodeTopology`: the nodes that reach it; none where it is absent.
    pub nodes: Option<LabelSelector>,
    /// The largest volume that can be made, in bytes: `maximumVolumeSize`, else `capacity`; `None` where
    /// neither is known, which is as if there were nothing.
    pub largest: Option<i64>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// `spec.nodeName`.
    pub node: Arc<str>,
    /// `spec.source.persistentVolumeName`.
    #[serde(default)]
    pub volume: Option<Arc<str>>,
    /// `spec.attacher`.
    pub driver: Arc<str>,
}

/// Labels for zones and regions, and what the old ones are called now.
const ZONE_KEYS: [(&str, &str); 4] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

impl ZoneLabel {
    /// The zone and region labels among a volume's labels. Source: kube-scheduler's plugin `VolumeZone`.
    pub fn among<'l>(get: impl Fn(&str) -> Option<&'l str>) -> Vec<ZoneLabel> {
        ZONE_KEYS
            .iter()
            .filter_map(|(key, _)| {
                let values: Vec<Arc<str>> = get(key)?
                    .split("__")
                    .map(|part| part.trim().into())
                    .collect();
                // A label with an empty part is no constraint (`LabelZonesToSet`).
                let whole = values.iter().all(|value| !value.is_empty());
                whole.then(|| ZoneLabel {
                    key: (*key).into(),
                    values,
                })
            })
            .collect()
    }

    /// Whether a node with these labels is within it; one without any such label is everywhere.
    pub fn admits(&self, node: &Labels) -> bool {
        if !ZONE_KEYS.iter().any(|(key, _)| node.contains_key(*key)) {
            return true;
        }
        let new = ZONE_KEYS.iter().find(|(key, _)| **key == *self.key);
        let value = node.get(&self.key).or_else(|| node.get(new?.1));
        value.is_some_and(|value| self.values.contains(value))
    }
}

impl Toleration {
    /// Whether this toleration covers `taint` (`component-helpers/scheduling/corev1`).
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) {
            return false;
        }
        match &self.key {
            None => self.exists,
            Some(key) => *key == taint.key && (self.exists || self.value == taint.value),
        }
    }
}

impl Taint {
    /// A `NoSchedule` taint.
    pub fn no_schedule(key: &str, value: &str) -> Taint {
        Taint {
            key: key.into(),
            value: value.into(),
            effect: Effect::NoSchedule,
        }
    }
}
