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
pub(in crate::kube) struct WirePod {
    pub(in crate::kube) metadata: Meta,
    pub(in crate::kube) spec: PodSpec,
    pub(in crate::kube) status: PodStatus,
}

/// A pod's specification, or that of a template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct PodSpec {
    pub(in crate::kube) node_name: Option<String>,
    pub(in crate::kube) node_selector: Option<Map>,
    pub(in crate::kube) affinity: Option<WireAffinity>,
    pub(in crate::kube) tolerations: Option<Vec<WireToleration>>,
    pub(in crate::kube) topology_spread_constraints: Option<Vec<Spread>>,
    pub(in crate::kube) containers: Option<Vec<Container>>,
    pub(in crate::kube) init_containers: Option<Vec<Container>>,
    pub(in crate::kube) overhead: Option<WireResourceList>,
    pub(in crate::kube) resources: Option<ResourceRequirements>,
    pub(in crate::kube) volumes: Option<Vec<WireVolume>>,
    pub(in crate::kube) priority: Option<i32>,
    pub(in crate::kube) priority_class_name: Option<String>,
    pub(in crate::kube) runtime_class_name: Option<String>,
    pub(in crate::kube) preemption_policy: Option<String>,
    pub(in crate::kube) scheduler_name: Option<String>,
    pub(in crate::kube) scheduling_gates: Option<Vec<serde::de::IgnoredAny>>,
    pub(in crate::kube) resource_claims: Option<Vec<serde::de::IgnoredAny>>,
    pub(in crate::kube) termination_grace_period_seconds: Option<i64>,
    pub(in crate::kube) restart_policy: Option<String>,
    pub(in crate::kube) host_network: Option<bool>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct Container {
    pub(in crate::kube) name: Option<String>,
    pub(in crate::kube) resources: Option<ResourceRequirements>,
    pub(in crate::kube) ports: Option<Vec<Port>>,
    pub(in crate::kube) restart_policy: Option<String>,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct ResourceRequirements {
    pub(in crate::kube) requests: Option<WireResourceList>,
    pub(in crate::kube) limits: Option<WireResourceList>,
}

/// A container's port.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct Port {
    pub(in crate::kube) host_port: Option<i32>,
    pub(in crate::kube) container_port: Option<i32>,
    #[serde(rename = "hostIP")]
    pub(in crate::kube) host_ip: Option<String>,
    pub(in crate::kube) protocol: Option<String>,
}

/// Affinities.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct WireAffinity {
    pub(in crate::kube) node_affinity: Option<NodeAffinity>,
    pub(in crate::kube) pod_affinity: Option<PodAffinity>,
    pub(in crate::kube) pod_anti_affinity: Option<PodAffinity>,
}

/// Node affinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(in crate::kube) required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(in crate::kube) preferred: Option<Vec<PreferredNode>>,
}

/// A preferred node term.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct PreferredNode {
    pub(in crate::kube) weight: Option<i32>,
    pub(in crate::kube) preference: WireNodeTerm,
}

/// Pod affinity or anti-affinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(in crate::kube) required: Option<Vec<WirePodTerm>>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(in crate::kube) preferred: Option<Vec<PreferredPod>>,
}

/// A pod affinity term.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct WirePodTerm {
    pub(in crate::kube) label_selector: Option<WireSelector>,
    pub(in crate::kube) topology_key: Option<String>,
    pub(in crate::kube) namespaces: Option<Vec<String>>,
    pub(in crate::kube) namespace_selector: Option<WireSelector>,
}

/// A preferred pod affinity term.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct PreferredPod {
    pub(in crate::kube) weight: Option<i32>,
    pub(in crate::kube) pod_affinity_term: WirePodTerm,
}

/// A toleration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct WireToleration {
    pub(in crate::kube) key: Option<String>,
    pub(in crate::kube) operator: Option<String>,
    pub(in crate::kube) value: Option<String>,
    pub(in crate::kube) effect: Option<String>,
}

/// A topology spread constraint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct Spread {
    pub(in crate::kube) max_skew: Option<i32>,
    pub(in crate::kube) topology_key: Option<String>,
    pub(in crate::kube) when_unsatisfiable: Option<String>,
    pub(in crate::kube) label_selector: Option<WireSelector>,
    pub(in crate::kube) min_domains: Option<i32>,
    pub(in crate::kube) match_label_keys: Option<Vec<String>>,
    pub(in crate::kube) node_affinity_policy: Option<String>,
    pub(in crate::kube) node_taints_policy: Option<String>,
}

/// A volume; only the sources that matter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct WireVolume {
    pub(in crate::kube) name: Option<String>,
    pub(in crate::kube) persistent_volume_claim: Option<ClaimSource>,
    pub(in crate::kube) ephemeral: Option<EphemeralSource>,
    pub(in crate::kube) empty_dir: Option<EmptyDir>,
    pub(in crate::kube) host_path: Option<serde::de::IgnoredAny>,
    pub(in crate::kube) gce_persistent_disk: Option<WireDisk>,
    pub(in crate::kube) aws_elastic_block_store: Option<WireDisk>,
    pub(in crate::kube) iscsi: Option<WireDisk>,
    pub(in crate::kube) rbd: Option<WireDisk>,
}

/// What tells a disk from another, whatever its kind; two pods of a node do not share it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct WireDisk {
    pub(in crate::kube) read_only: bool,
    /// GCE.
    pub(in crate::kube) pd_name: String,
    /// AWS.
    #[serde(rename = "volumeID")]
    pub(in crate::kube) volume_id: String,
    /// iSCSI.
    pub(in crate::kube) iqn: String,
    /// RBD.
    pub(in crate::kube) monitors: Vec<String>,
    pub(in crate::kube) pool: Option<String>,
    pub(in crate::kube) image: String,
}

/// A claim by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct ClaimSource {
    pub(in crate::kube) claim_name: Option<String>,
}

/// A generic ephemeral volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct EphemeralSource {
    pub(in crate::kube) volume_claim_template: Option<ClaimTemplate>,
}

/// The claim of an ephemeral volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct ClaimTemplate {
    pub(in crate::kube) spec: ClaimTemplateSpec,
}

/// `spec` of a volume claim template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct ClaimTemplateSpec {
    pub(in crate::kube) storage_class_name: Option<String>,
}

/// An `emptyDir`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kube) struct EmptyDir {
    pub(in crate::kube) medium: Option<String>,
}

/// A pod's status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct PodStatus {
    pub(in crate::kube) phase: Option<String>,
    pub(in crate::kube) nominated_node_name: Option<String>,
    pub(in crate::kube) start_time: Option<String>,
    pub(in crate::kube) conditions: Option<Vec<WireCondition>>,
    pub(in crate::kube) container_statuses: Option<Vec<ContainerStatus>>,
    pub(in crate::kube) init_container_statuses: Option<Vec<ContainerStatus>>,
    /// Pod-level resources that are in effect.
    pub(in crate::kube) resources: Option<ResourceRequirements>,
    pub(in crate::kube) allocated_resources: Option<WireResourceList>,
}

/// What the kubelet gave a container (in-place resize, KEP-1287).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kube) struct ContainerStatus {
    pub(in crate::kube) name: Option<String>,
    pub(in crate::kube) allocated_resources: Option<WireResourceList>,
    pub(in crate::kube) resources: Option<ResourceRequirements>,
}
