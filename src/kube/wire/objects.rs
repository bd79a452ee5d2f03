//! Everything but pods.

use serde::Deserialize;

use super::pod::PodSpec;
use super::{Amounts, Condition, Map, Meta, NodeSelector, Selector};

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Node {
    pub(in super::super) metadata: Meta,
    pub(in super::super) spec: NodeSpec,
    pub(in super::super) status: NodeStatus,
}

/// A node's specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct NodeSpec {
    #[serde(rename = "providerID")]
    pub(in super::super) provider_id: Option<String>,
    pub(in super::super) taints: Option<Vec<Taint>>,
    pub(in super::super) unschedulable: Option<bool>,
}

/// A taint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Taint {
    pub(in super::super) key: Option<String>,
    pub(in super::super) value: Option<String>,
    pub(in super::super) effect: Option<String>,
}

/// A node's status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct NodeStatus {
    pub(in super::super) capacity: Option<Amounts>,
    pub(in super::super) allocatable: Option<Amounts>,
    pub(in super::super) conditions: Option<Vec<Condition>>,
    pub(in super::super) node_info: Option<NodeInfo>,
}

/// `status.nodeInfo`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct NodeInfo {
    #[serde(rename = "systemUUID")]
    pub(in super::super) system_uuid: Option<String>,
    pub(in super::super) kubelet_version: Option<String>,
}

/// A DaemonSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct DaemonSet {
    pub(in super::super) metadata: Meta,
    pub(in super::super) spec: DaemonSetSpec,
}

/// A DaemonSet's specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct DaemonSetSpec {
    pub(in super::super) template: Template,
}

/// A pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Template {
    pub(in super::super) metadata: Option<Meta>,
    pub(in super::super) spec: PodSpec,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Budget {
    pub(in super::super) metadata: Meta,
    pub(in super::super) spec: BudgetSpec,
    pub(in super::super) status: BudgetStatus,
}

/// Its specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct BudgetSpec {
    pub(in super::super) selector: Option<Selector>,
    pub(in super::super) unhealthy_pod_eviction_policy: Option<String>,
}

/// Its status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct BudgetStatus {
    pub(in super::super) disruptions_allowed: Option<i32>,
    pub(in super::super) observed_generation: Option<i64>,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Claim {
    pub(in super::super) metadata: Meta,
    pub(in super::super) spec: ClaimSpec,
    pub(in super::super) status: ClaimStatus,
}

/// Its specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct ClaimSpec {
    pub(in super::super) volume_name: Option<String>,
    pub(in super::super) storage_class_name: Option<String>,
    pub(in super::super) access_modes: Option<Vec<String>>,
}

/// Its status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct ClaimStatus {
    pub(in super::super) phase: Option<String>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct PersistentVolume {
    pub(in super::super) metadata: Meta,
    pub(in super::super) spec: VolumeSpec,
}

/// Its specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct VolumeSpec {
    pub(in super::super) node_affinity: Option<VolumeAffinity>,
    pub(in super::super) csi: Option<Csi>,
    pub(in super::super) local: Option<serde::de::IgnoredAny>,
    pub(in super::super) host_path: Option<serde::de::IgnoredAny>,
}

/// A volume's node affinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct VolumeAffinity {
    pub(in super::super) required: Option<NodeSelector>,
}

/// A CSI volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct Csi {
    pub(in super::super) driver: Option<String>,
    pub(in super::super) volume_handle: Option<String>,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct StorageClass {
    pub(in super::super) metadata: Meta,
    pub(in super::super) provisioner: Option<String>,
    pub(in super::super) volume_binding_mode: Option<String>,
    pub(in super::super) allowed_topologies: Option<Vec<Topology>>,
}

/// One of `allowedTopologies`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct Topology {
    pub(in super::super) match_label_expressions: Option<Vec<TopologyLabel>>,
}

/// A label and its values.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct TopologyLabel {
    pub(in super::super) key: Option<String>,
    pub(in super::super) values: Option<Vec<String>>,
}

/// A CSINode.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct CsiNode {
    pub(in super::super) metadata: Meta,
    pub(in super::super) spec: CsiNodeSpec,
}

/// Its specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct CsiNodeSpec {
    pub(in super::super) drivers: Option<Vec<CsiDriver>>,
}

/// A driver on a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct CsiDriver {
    pub(in super::super) name: Option<String>,
    pub(in super::super) allocatable: Option<CsiAllocatable>,
}

/// What it can attach.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct CsiAllocatable {
    pub(in super::super) count: Option<i32>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Attachment {
    pub(in super::super) metadata: Meta,
    pub(in super::super) spec: AttachmentSpec,
}

/// Its specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct AttachmentSpec {
    pub(in super::super) attacher: Option<String>,
    pub(in super::super) node_name: Option<String>,
    pub(in super::super) source: AttachmentSource,
}

/// Its source.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct AttachmentSource {
    pub(in super::super) persistent_volume_name: Option<String>,
}

/// A PriorityClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct PriorityClass {
    pub(in super::super) metadata: Meta,
    pub(in super::super) value: i32,
    pub(in super::super) global_default: Option<bool>,
    pub(in super::super) preemption_policy: Option<String>,
}

/// A RuntimeClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct RuntimeClass {
    pub(in super::super) metadata: Meta,
    pub(in super::super) overhead: Option<Overhead>,
    pub(in super::super) scheduling: Option<Scheduling>,
}

/// What a runtime class adds to its pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct Overhead {
    pub(in super::super) pod_fixed: Option<Amounts>,
}

/// Where a runtime class's pods may run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct Scheduling {
    pub(in super::super) node_selector: Option<Map>,
    pub(in super::super) tolerations: Option<Vec<super::pod::Toleration>>,
}
