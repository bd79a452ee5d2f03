//! What decides where a pod may run: its requests and constraints, as kube-scheduler reads them.
//!
//! Source: `k8s.io/api/core/v1`; a field not listed here does not influence scheduling.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::label_list::LabelList;
use super::reasons::excess::{self, Excess};
use super::resources::Resources;

/// kube-scheduler's name, where nothing else is said.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Labels or annotations, ordered.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Everything about a pod that scheduling and draining read and that pods of one controller
/// usually share. Interned at the edge: equal shapes are one allocation, and so is what they share but for
/// their labels, which is read as if it stood here.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PodShape {
    /// The pod's labels.
    pub labels: LabelList,
    /// The controlling owner reference; pods of one owner share it.
    pub owner: Option<Arc<Owner>>,
    /// All else.
    #[serde(flatten)]
    pub traits: Arc<PodTraits>,
}

/// What there is to a [`PodShape`] besides its labels and its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PodTraits {
    /// Effective request: max of init containers and the sum of containers and sidecars, plus
    /// overhead (KEP-753), with `pods` = 1. Pod-level resources (KEP-2837) are respected.
    pub requests: Resources,
    /// The annotations that autoscaling reads (`cluster-autoscaler.kubernetes.io/*`,
    /// `karpenter.sh/*`, `controller.kubernetes.io/pod-deletion-cost`); no others are kept.
    pub annotations: Labels,
    /// `spec.nodeSelector`.
    pub node_selector: Labels,
    /// `requiredDuringSchedulingIgnoredDuringExecution` node affinity: OR of terms. `None` when
    /// absent; an empty list matches no node.
    pub node_affinity: Option<Vec<NodeTerm>>,
    /// Preferred node affinity terms with weights.
    pub preferred_nodes: Vec<(i32, NodeTerm)>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// Required pod affinity, required anti-affinity.
    pub pod_affinity: Vec<PodTerm>,
    /// Required pod anti-affinity.
    pub pod_anti_affinity: Vec<PodTerm>,
    /// Preferred pod affinity with weights.
    pub preferred_pods: Vec<(i32, PodTerm)>,
    /// Preferred pod anti-affinity with weights.
    pub preferred_anti_pods: Vec<(i32, PodTerm)>,
    /// `spec.topologySpreadConstraints`.
    pub spread: Vec<SpreadConstraint>,
    /// Host ports of all containers, sorted.
    pub host_ports: Vec<HostPort>,
    /// Volumes that constrain the place or block a drain.
    pub volumes: Vec<Volume>,
    /// `spec.priority`.
    pub priority: i32,
    /// Taints that only tolerations with the operators `Gt` and `Lt` speak of. kube-scheduler heeds none of these while
    /// its feature gate `TaintTolerationComparisonOperators` is off, as it is up to 1.37 (KEP-5471).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compared_taints: Vec<Arc<str>>,
    /// `spec.preemptionPolicy` is `Never`.
    pub never_preempts: bool,
    /// `spec.schedulerName`, empty for `default-scheduler`.
    pub scheduler: Arc<str>,
    /// `spec.terminationGracePeriodSeconds`; 30 when absent.
    pub grace_seconds: i64,
    /// `spec.resourceClaims` asks for devices (DRA), which are not modelled.
    pub devices: bool,
    /// `spec.restartPolicy` is `Never` or `OnFailure` and no controller recreates the pod.
    pub run_once: bool,
    /// The constraints were beyond the budget of work of a decision and are not among these; why. Never
    /// read from Kubernetes.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "excess::deserialize_optional"
    )]
    pub left_out: Option<Excess>,
}

impl From<PodTraits> for PodShape {
    /// Without labels and owner.
    fn from(traits: PodTraits) -> PodShape {
        PodShape {
            traits: Arc::new(traits),
            ..PodShape::default()
        }
    }
}

impl Deref for PodShape {
    type Target = PodTraits;

    fn deref(&self) -> &PodTraits {
        &self.traits
    }
}

impl DerefMut for PodShape {
    /// Copies keep what they have.
    fn deref_mut(&mut self) -> &mut PodTraits {
        Arc::make_mut(&mut self.traits)
    }
}

/// The controller of a pod (`ownerReferences[controller=true]`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// Kind, such as `ReplicaSet`.
    pub kind: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
}

/// A node selector term: all requirements hold.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(default, deny_unknown_fields)]
pub struct NodeTerm {
    /// `matchExpressions`, on labels.
    pub expressions: Vec<Requirement>,
    /// `matchFields`; Kubernetes supports `metadata.name` alone.
    pub fields: Vec<Requirement>,
}

/// One selector requirement.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Requirement {
    /// Label key or field path.
    pub key: Arc<str>,
    /// How the values compare.
    pub operator: Operator,
    /// The values; empty for `Exists` and `DoesNotExist`, one integer for `Gt` and `Lt`.
    #[serde(default)]
    pub values: Vec<Arc<str>>,
}

/// Selector operators of node and label selectors.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Operator {
    /// The value is one of the list.
    In,
    /// The value is none of the list, or the key is absent.
    NotIn,
    /// The key is there.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The value is an integer greater than the given one.
    Gt,
    /// The value is an integer less than the given one.
    Lt,
}

/// A node taint.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Taint {
    /// Key.
    pub key: Arc<str>,
    /// Value, empty when absent.
    #[serde(default)]
    pub value: Arc<str>,
    /// Effect.
    pub effect: Effect,
}

/// What a taint does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Effect {
    /// New pods stay away.
    NoSchedule,
    /// New pods stay away when they can.
    PreferNoSchedule,
    /// Running pods leave too.
    NoExecute,
}

/// A toleration.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Toleration {
    /// Key; `None` with `exists` tolerates every key.
    pub key: Option<Arc<str>>,
    /// Operator `Exists` (else `Equal`).
    pub exists: bool,
    /// The value for `Equal`.
    pub value: Arc<str>,
    /// `None` tolerates every effect.
    pub effect: Option<Effect>,
}

/// A label selector; `None` in its place selects nothing, an empty one everything.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(default, deny_unknown_fields)]
pub struct LabelSelector {
    /// `matchLabels`.
    pub labels: Labels,
    /// `matchExpressions`.
    pub expressions: Vec<Requirement>,
}

/// A pod affinity or anti-affinity term.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PodTerm {
    /// Which pods; `None` selects none. `matchLabelKeys` and `mismatchLabelKeys` (KEP-3633) are
    /// merged in by the API server.
    pub selector: Option<LabelSelector>,
    /// The node label whose value is the domain.
    pub topology_key: Arc<str>,
    /// Namespaces by name; empty together with no `namespace_selector` means the pod's own.
    pub namespaces: Vec<Arc<str>>,
    /// Namespaces by label.
    pub namespace_selector: Option<LabelSelector>,
}

/// The node label whose domains are single nodes.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpreadConstraint {
    /// `maxSkew`.
    pub max_skew: i32,
    /// `topologyKey`.
    pub topology_key: Arc<str>,
    /// `whenUnsatisfiable: DoNotSchedule` (else `ScheduleAnyway`).
    pub hard: bool,
    /// Which pods count.
    #[serde(default)]
    pub selector: Option<LabelSelector>,
    /// `minDomains`.
    #[serde(default)]
    pub min_domains: Option<i32>,
    /// `matchLabelKeys`.
    #[serde(default)]
    pub match_label_keys: Vec<Arc<str>>,
    /// `nodeAffinityPolicy: Honor` (the default).
    #[serde(default = "yes")]
    pub honor_affinity: bool,
    /// `nodeTaintsPolicy: Honor` (default is `Ignore`).
    #[serde(default)]
    pub honor_taints: bool,
}

fn yes() -> bool {
    true
}

/// A port taken on the node; with the number 0 a disk that pods of a node do not share.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct HostPort {
    /// `TCP`, `UDP` or `SCTP`; or the disk.
    pub protocol: Arc<str>,
    /// Host IP; empty for `0.0.0.0`. Of a disk that is only read, the pod.
    #[serde(default)]
    pub ip: Arc<str>,
    /// Port number.
    pub port: i32,
}

/// A volume that matters to scheduling or draining.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Volume {
    /// A claim by name, in the pod's namespace.
    Claim(Arc<str>),
    /// A generic ephemeral volume; its claim is `<pod>-<volume>`.
    Ephemeral {
        /// Volume name.
        name: Arc<str>,
        /// Storage class; `None` for the default one.
        class: Option<Arc<str>>,
    },
    /// An `emptyDir` on the node's disk, by volume name.
    EmptyDir(Arc<str>),
    /// A `hostPath`, by volume name.
    HostPath(Arc<str>),
}
