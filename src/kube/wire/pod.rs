//! Pods and pod templates (`k8s.io/api/core/v1` `PodSpec`, `PodStatus`).

use serde::Deserialize;

use super::{Amounts, Condition, Map, Meta, NodeSelector, NodeTerm, Selector};

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Pod {
    pub(in super::super) metadata: Meta,
    pub(in super::super) spec: PodSpec,
    pub(in super::super) status: PodStatus,
}

/// A pod's specification, or that of a template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct PodSpec {
    pub(in super::super) node_name: Option<String>,
    pub(in super::super) node_selector: Option<Map>,
    pub(in super::super) affinity: Option<Affinity>,
    pub(in super::super) tolerations: Option<Vec<Toleration>>,
    pub(in super::super) topology_spread_constraints: Option<Vec<Spread>>,
    pub(in super::super) containers: Option<Vec<Container>>,
    pub(in super::super) init_containers: Option<Vec<Container>>,
    pub(in super::super) overhead: Option<Amounts>,
    pub(in super::super) resources: Option<ResourceRequirements>,
    pub(in super::super) volumes: Option<Vec<Volume>>,
    pub(in super::super) priority: Option<i32>,
    pub(in super::super) priority_class_name: Option<String>,
    pub(in super::super) runtime_class_name: Option<String>,
    pub(in super::super) preemption_policy: Option<String>,
    pub(in super::super) scheduler_name: Option<String>,
    pub(in super::super) scheduling_gates: Option<Vec<serde::de::IgnoredAny>>,
    pub(in super::super) termination_grace_period_seconds: Option<i64>,
    pub(in super::super) restart_policy: Option<String>,
    pub(in super::super) host_network: Option<bool>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct Container {
    pub(in super::super) name: Option<String>,
    pub(in super::super) resources: Option<ResourceRequirements>,
    pub(in super::super) ports: Option<Vec<Port>>,
    pub(in super::super) restart_policy: Option<String>,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct ResourceRequirements {
    pub(in super::super) requests: Option<Amounts>,
    pub(in super::super) limits: Option<Amounts>,
}

/// A container's port.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct Port {
    pub(in super::super) host_port: Option<i32>,
    pub(in super::super) container_port: Option<i32>,
    #[serde(rename = "hostIP")]
    pub(in super::super) host_ip: Option<String>,
    pub(in super::super) protocol: Option<String>,
}

/// Affinities.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct Affinity {
    pub(in super::super) node_affinity: Option<NodeAffinity>,
    pub(in super::super) pod_affinity: Option<PodAffinity>,
    pub(in super::super) pod_anti_affinity: Option<PodAffinity>,
}

/// Node affinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(in super::super) required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(in super::super) preferred: Option<Vec<PreferredNode>>,
}

/// A preferred node term.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct PreferredNode {
    pub(in super::super) weight: Option<i32>,
    pub(in super::super) preference: NodeTerm,
}

/// Pod affinity or anti-affinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(in super::super) required: Option<Vec<PodTerm>>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(in super::super) preferred: Option<Vec<PreferredPod>>,
}

/// A pod affinity term.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct PodTerm {
    pub(in super::super) label_selector: Option<Selector>,
    pub(in super::super) topology_key: Option<String>,
    pub(in super::super) namespaces: Option<Vec<String>>,
    pub(in super::super) namespace_selector: Option<Selector>,
}

/// A preferred pod affinity term.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct PreferredPod {
    pub(in super::super) weight: Option<i32>,
    pub(in super::super) pod_affinity_term: PodTerm,
}

/// A toleration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Toleration {
    pub(in super::super) key: Option<String>,
    pub(in super::super) operator: Option<String>,
    pub(in super::super) value: Option<String>,
    pub(in super::super) effect: Option<String>,
}

/// A topology spread constraint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct Spread {
    pub(in super::super) max_skew: Option<i32>,
    pub(in super::super) topology_key: Option<String>,
    pub(in super::super) when_unsatisfiable: Option<String>,
    pub(in super::super) label_selector: Option<Selector>,
    pub(in super::super) min_domains: Option<i32>,
    pub(in super::super) match_label_keys: Option<Vec<String>>,
    pub(in super::super) node_affinity_policy: Option<String>,
    pub(in super::super) node_taints_policy: Option<String>,
}

/// A volume; only the sources that matter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct Volume {
    pub(in super::super) name: Option<String>,
    pub(in super::super) persistent_volume_claim: Option<ClaimSource>,
    pub(in super::super) ephemeral: Option<EphemeralSource>,
    pub(in super::super) empty_dir: Option<EmptyDir>,
    pub(in super::super) host_path: Option<serde::de::IgnoredAny>,
}

/// A claim by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct ClaimSource {
    pub(in super::super) claim_name: Option<String>,
}

/// A generic ephemeral volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct EphemeralSource {
    pub(in super::super) volume_claim_template: Option<ClaimTemplate>,
}

/// The claim of an ephemeral volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct ClaimTemplate {
    pub(in super::super) spec: ClaimTemplateSpec,
}

/// Its specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct ClaimTemplateSpec {
    pub(in super::super) storage_class_name: Option<String>,
}

/// An `emptyDir`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct EmptyDir {
    pub(in super::super) medium: Option<String>,
}

/// A pod's status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct PodStatus {
    pub(in super::super) phase: Option<String>,
    pub(in super::super) nominated_node_name: Option<String>,
    pub(in super::super) conditions: Option<Vec<Condition>>,
    pub(in super::super) container_statuses: Option<Vec<ContainerStatus>>,
    pub(in super::super) init_container_statuses: Option<Vec<ContainerStatus>>,
}

/// What the kubelet gave a container (in-place resize, KEP-1287).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct ContainerStatus {
    pub(in super::super) name: Option<String>,
    pub(in super::super) allocated_resources: Option<Amounts>,
    pub(in super::super) resources: Option<ResourceRequirements>,
}
