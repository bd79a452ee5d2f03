//! What a fake cluster is like, as data.

use serde::{Deserialize, Serialize};

use crate::model::time::Span;

/// A fake cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubeSpec {
    /// The version the API server and kubeadm's configuration name.
    pub version: String,
    /// Where nodes reach the API server; goes into `cluster-info`.
    pub endpoint: String,
    /// How many changes are kept for watches; older resourceVersions are 410 Gone.
    pub history: usize,
    /// Keep the trace's lines in memory, not only their digest.
    pub keep_trace: bool,
    /// A node is Unknown after this long without a lease renewal (kube-controller-manager's
    /// `--node-monitor-grace-period`: 50 s since 1.32).
    pub node_monitor_grace: Span,
    /// The scheduler tries a pod that it refused again after five minutes alone, or when a nomination ends: so does
    /// kube-scheduler where it misses the event that would help the pod.
    pub scheduler_misses_events: bool,
    /// From a certificate request to its certificate.
    pub signing_latency: Span,
    /// From the deletion of a pod with an attached volume to its detachment.
    pub detach_latency: Span,
    /// The bearer token of cluster-admin.
    pub admin_token: String,
    /// Who else may call, and what they may do.
    pub users: Vec<KubeUserSpec>,
    /// What made the cluster.
    pub distribution: Distribution,
}

/// What made a cluster: what there is for machines that join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// kubeadm: cluster-info, and its own ConfigMaps.
    #[default]
    Kubeadm,
    /// k3s: a supervisor.
    K3s,
    /// RKE2: the same.
    Rke2,
}

impl Distribution {
    /// The name of the supervisor's program.
    pub(super) fn program(self) -> Option<&'static str> {
        match self {
            Distribution::Kubeadm => None,
            Distribution::K3s => Some("k3s"),
            Distribution::Rke2 => Some("rke2"),
        }
    }
}

/// Somebody with a bearer token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubeUserSpec {
    /// User name.
    pub name: String,
    /// Bearer token.
    pub token: String,
    /// Groups; `system:masters` may do everything.
    pub groups: Vec<String>,
    /// What is allowed, as in a ClusterRole.
    pub rules: Vec<PolicyRule>,
}

/// `rbac.authorization.k8s.io/v1 PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolicyRule {
    /// Verbs; `*` is all.
    pub verbs: Vec<String>,
    /// API groups; the core group is empty; `*` is all.
    pub api_groups: Vec<String>,
    /// Resources, with subresources as `pods/eviction`; `*` is all.
    pub resources: Vec<String>,
    /// Names; empty is all.
    pub resource_names: Vec<String>,
    /// The namespace of a Role; empty for a ClusterRole.
    pub namespace: String,
}

impl Default for KubeSpec {
    fn default() -> KubeSpec {
        KubeSpec {
            version: "v1.34.1".to_owned(),
            endpoint: "https://192.0.2.10:6443".to_owned(),
            history: 20_000,
            keep_trace: false,
            node_monitor_grace: Span::seconds(50),
            scheduler_misses_events: false,
            signing_latency: Span(200),
            detach_latency: Span::seconds(4),
            admin_token: "sim-admin-token".to_owned(),
            users: Vec::new(),
            distribution: Distribution::default(),
        }
    }
}
