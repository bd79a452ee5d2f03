//! Everything but pods.

use serde::Deserialize;

use super::pod::PodSpec;
use super::{Map, Meta, NodeSelector, WireCondition, WireQuantity, WireResourceList, WireSelector};

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct WireNode {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: NodeSpec,
    pub(in crate::kubernetes) status: WireNodeStatus,
}

/// A node's specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct NodeSpec {
    #[serde(rename = "providerID")]
    pub(in crate::kubernetes) provider_id: Option<String>,
    pub(in crate::kubernetes) taints: Option<Vec<WireTaint>>,
    pub(in crate::kubernetes) unschedulable: Option<bool>,
}

/// A taint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct WireTaint {
    pub(in crate::kubernetes) key: Option<String>,
    pub(in crate::kubernetes) value: Option<String>,
    pub(in crate::kubernetes) effect: Option<String>,
}

/// A node's status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct WireNodeStatus {
    pub(in crate::kubernetes) capacity: Option<WireResourceList>,
    pub(in crate::kubernetes) allocatable: Option<WireResourceList>,
    pub(in crate::kubernetes) conditions: Option<Vec<WireCondition>>,
    pub(in crate::kubernetes) node_info: Option<NodeSystemInfo>,
    pub(in crate::kubernetes) addresses: Option<Vec<NodeAddress>>,
}

/// One of `status.addresses`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct NodeAddress {
    pub(in crate::kubernetes) address: Option<String>,
}

/// `status.nodeInfo`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct NodeSystemInfo {
    #[serde(rename = "systemUUID")]
    pub(in crate::kubernetes) system_uuid: Option<String>,
    pub(in crate::kubernetes) kubelet_version: Option<String>,
}

/// A DaemonSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct WireDaemonSet {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: DaemonSetSpec,
}

/// A DaemonSet's specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct DaemonSetSpec {
    pub(in crate::kubernetes) template: WirePodTemplate,
}

/// A pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct WirePodTemplate {
    pub(in crate::kubernetes) metadata: Option<Meta>,
    pub(in crate::kubernetes) spec: PodSpec,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct Budget {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: BudgetSpec,
    pub(in crate::kubernetes) status: BudgetStatus,
}

/// `spec` of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct BudgetSpec {
    pub(in crate::kubernetes) selector: Option<WireSelector>,
    pub(in crate::kubernetes) unhealthy_pod_eviction_policy: Option<String>,
}

/// `status` of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct BudgetStatus {
    pub(in crate::kubernetes) disruptions_allowed: Option<i32>,
    pub(in crate::kubernetes) current_healthy: Option<i32>,
    pub(in crate::kubernetes) desired_healthy: Option<i32>,
    pub(in crate::kubernetes) observed_generation: Option<i64>,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct WireClaim {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: ClaimSpec,
    pub(in crate::kubernetes) status: ClaimStatus,
}

/// `spec` of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct ClaimSpec {
    pub(in crate::kubernetes) volume_name: Option<String>,
    pub(in crate::kubernetes) storage_class_name: Option<String>,
    pub(in crate::kubernetes) access_modes: Option<Vec<String>>,
    pub(in crate::kubernetes) resources: Option<ClaimResources>,
    pub(in crate::kubernetes) volume_mode: Option<String>,
    pub(in crate::kubernetes) volume_attributes_class_name: Option<String>,
    pub(in crate::kubernetes) selector: Option<WireSelector>,
}

/// What a claim asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct ClaimResources {
    pub(in crate::kubernetes) requests: Option<WireResourceList>,
}

/// `status` of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct ClaimStatus {
    pub(in crate::kubernetes) phase: Option<String>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct WirePersistentVolume {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: VolumeSpec,
    pub(in crate::kubernetes) status: VolumeStatus,
}

/// `status` of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct VolumeStatus {
    pub(in crate::kubernetes) phase: Option<String>,
}

/// `spec` of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct VolumeSpec {
    pub(in crate::kubernetes) node_affinity: Option<VolumeAffinity>,
    pub(in crate::kubernetes) csi: Option<Csi>,
    pub(in crate::kubernetes) local: Option<serde::de::IgnoredAny>,
    pub(in crate::kubernetes) host_path: Option<serde::de::IgnoredAny>,
    pub(in crate::kubernetes) capacity: Option<WireResourceList>,
    pub(in crate::kubernetes) access_modes: Option<Vec<String>>,
    pub(in crate::kubernetes) storage_class_name: Option<String>,
    pub(in crate::kubernetes) volume_mode: Option<String>,
    pub(in crate::kubernetes) volume_attributes_class_name: Option<String>,
    pub(in crate::kubernetes) claim_ref: Option<ClaimRef>,
}

/// The claim that a volume is for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct ClaimRef {
    pub(in crate::kubernetes) namespace: Option<String>,
    pub(in crate::kubernetes) name: Option<String>,
    pub(in crate::kubernetes) uid: Option<String>,
}

/// A volume's node affinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct VolumeAffinity {
    pub(in crate::kubernetes) required: Option<NodeSelector>,
}

/// A CSI volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct Csi {
    pub(in crate::kubernetes) driver: Option<String>,
    pub(in crate::kubernetes) volume_handle: Option<String>,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct WireStorageClass {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) provisioner: Option<String>,
    pub(in crate::kubernetes) volume_binding_mode: Option<String>,
    pub(in crate::kubernetes) allowed_topologies: Option<Vec<WireTopology>>,
}

/// One of `allowedTopologies`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct WireTopology {
    pub(in crate::kubernetes) match_label_expressions: Option<Vec<TopologyLabel>>,
}

/// A label and its values.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct TopologyLabel {
    pub(in crate::kubernetes) key: Option<String>,
    pub(in crate::kubernetes) values: Option<Vec<String>>,
}

/// A CSIDriver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct CsiDriver {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: CsiDriverSpec,
}

/// `spec` of a CSIDriver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct CsiDriverSpec {
    pub(in crate::kubernetes) storage_capacity: Option<bool>,
}

/// A CSIStorageCapacity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct WireStorageCapacity {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) storage_class_name: Option<String>,
    pub(in crate::kubernetes) node_topology: Option<WireSelector>,
    pub(in crate::kubernetes) capacity: Option<WireQuantity>,
    pub(in crate::kubernetes) maximum_volume_size: Option<WireQuantity>,
}

/// A CSINode.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct CsiNode {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: CsiNodeSpec,
}

/// `spec` of a CSINode.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct CsiNodeSpec {
    pub(in crate::kubernetes) drivers: Option<Vec<NodeDriver>>,
}

/// A driver on a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct NodeDriver {
    pub(in crate::kubernetes) name: Option<String>,
    pub(in crate::kubernetes) allocatable: Option<CsiAllocatable>,
}

/// How many volumes of a driver a node can attach.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct CsiAllocatable {
    pub(in crate::kubernetes) count: Option<i32>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct WireAttachment {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: AttachmentSpec,
}

/// `spec` of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct AttachmentSpec {
    pub(in crate::kubernetes) attacher: Option<String>,
    pub(in crate::kubernetes) node_name: Option<String>,
    pub(in crate::kubernetes) source: AttachmentSource,
}

/// `spec.source` of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct AttachmentSource {
    pub(in crate::kubernetes) persistent_volume_name: Option<String>,
}

/// A PriorityClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct WirePriorityClass {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) value: i32,
    pub(in crate::kubernetes) global_default: Option<bool>,
    pub(in crate::kubernetes) preemption_policy: Option<String>,
}

/// A RuntimeClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct WireRuntimeClass {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) overhead: Option<Overhead>,
    pub(in crate::kubernetes) scheduling: Option<Scheduling>,
}

/// What a runtime class adds to its pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct Overhead {
    pub(in crate::kubernetes) pod_fixed: Option<WireResourceList>,
}

/// Where a runtime class's pods may run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct Scheduling {
    pub(in crate::kubernetes) node_selector: Option<Map>,
    pub(in crate::kubernetes) tolerations: Option<Vec<super::pod::WireToleration>>,
}
