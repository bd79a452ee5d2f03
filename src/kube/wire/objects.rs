//! Everything but pods.

use serde::Deserialize;

use super::pod::PodSpec;
use super::{Map, Meta, NodeSelector, WireCondition, WireQuantity, WireResourceList, WireSelector};

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct WireNode {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) spec: NodeSpec,
    pub(in crate::kube) status: WireNodeStatus,
}

/// A node's specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct NodeSpec {
    #[serde(rename = "providerID")]
    pub(in crate::kube) provider_id: Option<String>,
    pub(in crate::kube) taints: Option<Vec<WireTaint>>,
    pub(in crate::kube) unschedulable: Option<bool>,
}

/// A taint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct WireTaint {
    pub(in crate::kube) key: Option<String>,
    pub(in crate::kube) value: Option<String>,
    pub(in crate::kube) effect: Option<String>,
}

/// A node's status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct WireNodeStatus {
    pub(in crate::kube) capacity: Option<WireResourceList>,
    pub(in crate::kube) allocatable: Option<WireResourceList>,
    pub(in crate::kube) conditions: Option<Vec<WireCondition>>,
    pub(in crate::kube) node_info: Option<NodeSystemInfo>,
    pub(in crate::kube) addresses: Option<Vec<NodeAddress>>,
}

/// One of `status.addresses`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct NodeAddress {
    pub(in crate::kube) address: Option<String>,
}

/// `status.nodeInfo`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct NodeSystemInfo {
    #[serde(rename = "systemUUID")]
    pub(in crate::kube) system_uuid: Option<String>,
    pub(in crate::kube) kubelet_version: Option<String>,
}

/// A DaemonSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct WireDaemonSet {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) spec: DaemonSetSpec,
}

/// A DaemonSet's specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct DaemonSetSpec {
    pub(in crate::kube) template: WirePodTemplate,
}

/// A pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct WirePodTemplate {
    pub(in crate::kube) metadata: Option<Meta>,
    pub(in crate::kube) spec: PodSpec,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct Budget {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) spec: BudgetSpec,
    pub(in crate::kube) status: BudgetStatus,
}

/// `spec` of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct BudgetSpec {
    pub(in crate::kube) selector: Option<WireSelector>,
    pub(in crate::kube) unhealthy_pod_eviction_policy: Option<String>,
}

/// `status` of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct BudgetStatus {
    pub(in crate::kube) disruptions_allowed: Option<i32>,
    pub(in crate::kube) current_healthy: Option<i32>,
    pub(in crate::kube) desired_healthy: Option<i32>,
    pub(in crate::kube) observed_generation: Option<i64>,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct WireClaim {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) spec: ClaimSpec,
    pub(in crate::kube) status: ClaimStatus,
}

/// `spec` of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct ClaimSpec {
    pub(in crate::kube) volume_name: Option<String>,
    pub(in crate::kube) storage_class_name: Option<String>,
    pub(in crate::kube) access_modes: Option<Vec<String>>,
    pub(in crate::kube) resources: Option<ClaimResources>,
    pub(in crate::kube) volume_mode: Option<String>,
    pub(in crate::kube) volume_attributes_class_name: Option<String>,
    pub(in crate::kube) selector: Option<WireSelector>,
}

/// What a claim asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct ClaimResources {
    pub(in crate::kube) requests: Option<WireResourceList>,
}

/// `status` of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct ClaimStatus {
    pub(in crate::kube) phase: Option<String>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct WirePersistentVolume {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) spec: VolumeSpec,
    pub(in crate::kube) status: VolumeStatus,
}

/// `status` of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct VolumeStatus {
    pub(in crate::kube) phase: Option<String>,
}

/// `spec` of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct VolumeSpec {
    pub(in crate::kube) node_affinity: Option<VolumeAffinity>,
    pub(in crate::kube) csi: Option<Csi>,
    pub(in crate::kube) local: Option<serde::de::IgnoredAny>,
    pub(in crate::kube) host_path: Option<serde::de::IgnoredAny>,
    pub(in crate::kube) capacity: Option<WireResourceList>,
    pub(in crate::kube) access_modes: Option<Vec<String>>,
    pub(in crate::kube) storage_class_name: Option<String>,
    pub(in crate::kube) volume_mode: Option<String>,
    pub(in crate::kube) volume_attributes_class_name: Option<String>,
    pub(in crate::kube) claim_ref: Option<ClaimRef>,
}

/// The claim that a volume is for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct ClaimRef {
    pub(in crate::kube) namespace: Option<String>,
    pub(in crate::kube) name: Option<String>,
    pub(in crate::kube) uid: Option<String>,
}

/// A volume's node affinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct VolumeAffinity {
    pub(in crate::kube) required: Option<NodeSelector>,
}

/// A CSI volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct Csi {
    pub(in crate::kube) driver: Option<String>,
    pub(in crate::kube) volume_handle: Option<String>,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct WireStorageClass {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) provisioner: Option<String>,
    pub(in crate::kube) volume_binding_mode: Option<String>,
    pub(in crate::kube) allowed_topologies: Option<Vec<WireTopology>>,
}

/// One of `allowedTopologies`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct WireTopology {
    pub(in crate::kube) match_label_expressions: Option<Vec<TopologyLabel>>,
}

/// A label and its values.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct TopologyLabel {
    pub(in crate::kube) key: Option<String>,
    pub(in crate::kube) values: Option<Vec<String>>,
}

/// A CSIDriver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct CsiDriver {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) spec: CsiDriverSpec,
}

/// `spec` of a CSIDriver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct CsiDriverSpec {
    pub(in crate::kube) storage_capacity: Option<bool>,
}

/// A CSIStorageCapacity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct WireStorageCapacity {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) storage_class_name: Option<String>,
    pub(in crate::kube) node_topology: Option<WireSelector>,
    pub(in crate::kube) capacity: Option<WireQuantity>,
    pub(in crate::kube) maximum_volume_size: Option<WireQuantity>,
}

/// A CSINode.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct CsiNode {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) spec: CsiNodeSpec,
}

/// `spec` of a CSINode.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct CsiNodeSpec {
    pub(in crate::kube) drivers: Option<Vec<NodeDriver>>,
}

/// A driver on a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct NodeDriver {
    pub(in crate::kube) name: Option<String>,
    pub(in crate::kube) allocatable: Option<CsiAllocatable>,
}

/// How many volumes of a driver a node can attach.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct CsiAllocatable {
    pub(in crate::kube) count: Option<i32>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct WireAttachment {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) spec: AttachmentSpec,
}

/// `spec` of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct AttachmentSpec {
    pub(in crate::kube) attacher: Option<String>,
    pub(in crate::kube) node_name: Option<String>,
    pub(in crate::kube) source: AttachmentSource,
}

/// `spec.source` of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct AttachmentSource {
    pub(in crate::kube) persistent_volume_name: Option<String>,
}

/// A PriorityClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct WirePriorityClass {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) value: i32,
    pub(in crate::kube) global_default: Option<bool>,
    pub(in crate::kube) preemption_policy: Option<String>,
}

/// A RuntimeClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct WireRuntimeClass {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) overhead: Option<Overhead>,
    pub(in crate::kube) scheduling: Option<Scheduling>,
}

/// What a runtime class adds to its pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct Overhead {
    pub(in crate::kube) pod_fixed: Option<WireResourceList>,
}

/// Where a runtime class's pods may run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct Scheduling {
    pub(in crate::kube) node_selector: Option<Map>,
    pub(in crate::kube) tolerations: Option<Vec<super::pod::WireToleration>>,
}
