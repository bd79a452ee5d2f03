//! Pods and pod templates (`k8s.io/api/core/v1` `PodSpec`, `PodStatus`).

#![expect(
    clippy::struct_field_names,
    reason = "fields are called what Kubernetes calls them"
)]

use serde::Deserialize;

use super::{Map, Meta, NodeSelector, WireCondition, WireNodeTerm, WireResourceList, WireSelector};

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct WirePod {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: PodSpec,
    pub(in crate::kubernetes) status: PodStatus,
}

/// A pod's specification, or that of a template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct PodSpec {
    pub(in crate::kubernetes) node_name: Option<String>,
    pub(in crate::kubernetes) node_selector: Option<Map>,
    pub(in crate::kubernetes) affinity: Option<WireAffinity>,
    pub(in crate::kubernetes) tolerations: Option<Vec<WireToleration>>,
    pub(in crate::kubernetes) topology_spread_constraints: Option<Vec<Spread>>,
    pub(in crate::kubernetes) containers: Option<Vec<Container>>,
    pub(in crate::kubernetes) init_containers: Option<Vec<Container>>,
    pub(in crate::kubernetes) overhead: Option<WireResourceList>,
    pub(in crate::kubernetes) resources: Option<ResourceRequirements>,
    pub(in crate::kubernetes) volumes: Option<Vec<WireVolume>>,
    pub(in crate::kubernetes) priority: Option<i32>,
    pub(in crate::kubernetes) priority_class_name: Option<String>,
    pub(in crate::kubernetes) runtime_class_name: Option<String>,
    pub(in crate::kubernetes) preemption_policy: Option<String>,
    pub(in crate::kubernetes) scheduler_name: Option<String>,
    pub(in crate::kubernetes) scheduling_gates: Option<Vec<serde::de::IgnoredAny>>,
    pub(in crate::kubernetes) resource_claims: Option<Vec<serde::de::IgnoredAny>>,
    pub(in crate::kubernetes) termination_grace_period_seconds: Option<i64>,
    pub(in crate::kubernetes) restart_policy: Option<String>,
    pub(in crate::kubernetes) host_network: Option<bool>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct Container {
    pub(in crate::kubernetes) name: Option<String>,
    pub(in crate::kubernetes) resources: Option<ResourceRequirements>,
    pub(in crate::kubernetes) ports: Option<Vec<Port>>,
    pub(in crate::kubernetes) restart_policy: Option<String>,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct ResourceRequirements {
    pub(in crate::kubernetes) requests: Option<WireResourceList>,
    pub(in crate::kubernetes) limits: Option<WireResourceList>,
}

/// A container's port.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct Port {
    pub(in crate::kubernetes) host_port: Option<i32>,
    pub(in crate::kubernetes) container_port: Option<i32>,
    #[serde(rename = "hostIP")]
    pub(in crate::kubernetes) host_ip: Option<String>,
    pub(in crate::kubernetes) protocol: Option<String>,
}

/// Affinities.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct WireAffinity {
    pub(in crate::kubernetes) node_affinity: Option<NodeAffinity>,
    pub(in crate::kubernetes) pod_affinity: Option<PodAffinity>,
    pub(in crate::kubernetes) pod_anti_affinity: Option<PodAffinity>,
}

/// Node affinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(in crate::kubernetes) required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(in crate::kubernetes) preferred: Option<Vec<PreferredNode>>,
}

/// A preferred node term.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct PreferredNode {
    pub(in crate::kubernetes) weight: Option<i32>,
    pub(in crate::kubernetes) preference: WireNodeTerm,
}

/// Pod affinity or anti-affinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(in crate::kubernetes) required: Option<Vec<WirePodTerm>>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(in crate::kubernetes) preferred: Option<Vec<PreferredPod>>,
}

/// A pod affinity term.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct WirePodTerm {
    pub(in crate::kubernetes) label_selector: Option<WireSelector>,
    pub(in crate::kubernetes) topology_key: Option<String>,
    pub(in crate::kubernetes) namespaces: Option<Vec<String>>,
    pub(in crate::kubernetes) namespace_selector: Option<WireSelector>,
}

/// A preferred pod affinity term.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct PreferredPod {
    pub(in crate::kubernetes) weight: Option<i32>,
    pub(in crate::kubernetes) pod_affinity_term: WirePodTerm,
}

/// A toleration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct WireToleration {
    pub(in crate::kubernetes) key: Option<String>,
    pub(in crate::kubernetes) operator: Option<String>,
    pub(in crate::kubernetes) value: Option<String>,
    pub(in crate::kubernetes) effect: Option<String>,
}

/// A topology spread constraint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct Spread {
    pub(in crate::kubernetes) max_skew: Option<i32>,
    pub(in crate::kubernetes) topology_key: Option<String>,
    pub(in crate::kubernetes) when_unsatisfiable: Option<String>,
    pub(in crate::kubernetes) label_selector: Option<WireSelector>,
    pub(in crate::kubernetes) min_domains: Option<i32>,
    pub(in crate::kubernetes) match_label_keys: Option<Vec<String>>,
    pub(in crate::kubernetes) node_affinity_policy: Option<String>,
    pub(in crate::kubernetes) node_taints_policy: Option<String>,
}

/// A volume; only the sources that matter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct WireVolume {
    pub(in crate::kubernetes) name: Option<String>,
    pub(in crate::kubernetes) persistent_volume_claim: Option<ClaimSource>,
    pub(in crate::kubernetes) ephemeral: Option<EphemeralSource>,
    pub(in crate::kubernetes) empty_dir: Option<EmptyDir>,
    pub(in crate::kubernetes) host_path: Option<serde::de::IgnoredAny>,
    pub(in crate::kubernetes) gce_persistent_disk: Option<WireDisk>,
    pub(in crate::kubernetes) aws_elastic_block_store: Option<WireDisk>,
    pub(in crate::kubernetes) iscsi: Option<WireDisk>,
    pub(in crate::kubernetes) rbd: Option<WireDisk>,
}

/// What tells a disk from another, whatever its kind; two pods of a node do not share it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct WireDisk {
    pub(in crate::kubernetes) read_only: bool,
    /// GCE.
    pub(in crate::kubernetes) pd_name: String,
    /// AWS.
    #[serde(rename = "volumeID")]
    pub(in crate::kubernetes) volume_id: String,
    /// iSCSI.
    pub(in crate::kubernetes) iqn: String,
    /// RBD.
    pub(in crate::kubernetes) monitors: Vec<String>,
    pub(in crate::kubernetes) pool: Option<String>,
    pub(in crate::kubernetes) image: String,
}

/// A claim by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct ClaimSource {
    pub(in crate::kubernetes) claim_name: Option<String>,
}

/// A generic ephemeral volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct EphemeralSource {
    pub(in crate::kubernetes) volume_claim_template: Option<ClaimTemplate>,
}

/// The claim of an ephemeral volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct ClaimTemplate {
    pub(in crate::kubernetes) spec: ClaimTemplateSpec,
}

/// `spec` of a volume claim template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct ClaimTemplateSpec {
    pub(in crate::kubernetes) storage_class_name: Option<String>,
}

/// An `emptyDir`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct EmptyDir {
    pub(in crate::kubernetes) medium: Option<String>,
}

/// A pod's status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct PodStatus {
    pub(in crate::kubernetes) phase: Option<String>,
    pub(in crate::kubernetes) nominated_node_name: Option<String>,
    pub(in crate::kubernetes) start_time: Option<String>,
    pub(in crate::kubernetes) conditions: Option<Vec<WireCondition>>,
    pub(in crate::kubernetes) container_statuses: Option<Vec<ContainerStatus>>,
    pub(in crate::kubernetes) init_container_statuses: Option<Vec<ContainerStatus>>,
    /// Pod-level resources that are in effect.
    pub(in crate::kubernetes) resources: Option<ResourceRequirements>,
    pub(in crate::kubernetes) allocated_resources: Option<WireResourceList>,
}

/// What the kubelet gave a container (in-place resize, KEP-1287).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubernetes) struct ContainerStatus {
    pub(in crate::kubernetes) name: Option<String>,
    pub(in crate::kubernetes) allocated_resources: Option<WireResourceList>,
    pub(in crate::kubernetes) resources: Option<ResourceRequirements>,
}
