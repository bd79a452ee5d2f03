//! `[pool.NAME.kubelet]`: settings of the kubelets of a pool, under the names of its KubeletConfiguration.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::scalar::{Cpu, Duration, Size, Threshold};

/// Settings of the kubelet, under the names of its KubeletConfiguration. What is not set is as the cluster's own configuration says.
/// How they get there: [joining](joining.md#settings-of-the-kubelet).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Kubelet {
    /// What is kept for the kubelet and the container runtime. It takes the place of `reserved.cpu` and `reserved.memory`.
    #[schemars(default)]
    pub kube_reserved: KubeletReserved,
    /// What is kept for the system. It takes the place of `reserved.cpu` and `reserved.memory`.
    #[schemars(default)]
    pub system_reserved: KubeletReserved,
    /// Whether containers of Guaranteed pods that ask for whole CPUs get CPUs of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_manager_policy: Option<CpuManagerPolicy>,
    /// Options of that policy, such as `full-pcpus-only = "true"`.
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    /// How CPUs, memory and devices of a pod must lie in NUMA nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_manager_policy: Option<TopologyManagerPolicy>,
    /// What is aligned together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_manager_scope: Option<TopologyManagerScope>,
    /// Pods are evicted at once below these, by signal (`"memory.available"`). Signals that are not named keep the kubelet's
    /// defaults. `memory.available` takes the place of `reserved.eviction_memory`.
    pub eviction_hard: BTreeMap<String, Threshold>,
    /// Pods are evicted below these for longer than `eviction_soft_grace_period` says.
    pub eviction_soft: BTreeMap<String, Threshold>,
    /// For how long a soft threshold must be passed, by signal.
    pub eviction_soft_grace_period: BTreeMap<String, Duration>,
    /// The longest grace period of pods that a soft threshold evicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_max_pod_grace_period: Option<Duration>,
    /// What a kubelet does with swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// Addresses of the cluster's DNS, three at most.
    #[schemars(length(max = 3))]
    pub cluster_dns: Vec<String>,
    /// Images are deleted when the disk is fuller than this percentage.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub image_gc_high_threshold_percent: Option<u32>,
    /// Images are deleted until the disk is no fuller than this percentage.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub image_gc_low_threshold_percent: Option<u32>,
    /// For how long the kubelet holds up a shutdown to end pods well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_grace_period: Option<Duration>,
    /// The part of it that is for critical pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_grace_period_critical_pods: Option<Duration>,
    /// Sysctls that pods may set though they are not safe, such as `"net.core.somaxconn"` or `"net.ipv4.*"`.
    pub allowed_unsafe_sysctls: Vec<String>,
}

/// What is kept back from pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KubeletReserved {
    /// CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral_storage: Option<Size>,
    /// Process ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// `cpuManagerPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CpuManagerPolicy {
    /// All share all CPUs.
    None,
    /// Whole CPUs for containers of Guaranteed pods that ask for whole ones.
    Static,
}

/// `topologyManagerPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyManagerPolicy {
    /// However it comes.
    None,
    /// Together where that can be.
    BestEffort,
    /// Together in as few NUMA nodes as could be, or the pod fails.
    Restricted,
    /// In one NUMA node, or the pod fails.
    SingleNumaNode,
}

/// `topologyManagerScope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyManagerScope {
    /// Each container.
    Container,
    /// All containers of a pod.
    Pod,
}

/// `failSwapOn` and `memorySwap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Swap {
    /// A kubelet does not start where there is swap.
    Fail,
    /// A kubelet starts, and pods get none.
    None,
    /// Burstable pods get some, by their memory requests. A template that is built has none unless its `commands` make it.
    Limited,
}
