//! `[instance_type.NAME]` and `[pool.NAME]`: what nodes there may be.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kubelet::Kubelet;
use super::region::HostStrategyValue;
use super::topology::HugePageSize;

use crate::config::scalar::{
    Amount, Cpu, Duration, FreeSpace, MinSaving, NodeCount, PciText, Price, Ratio, Schedule, Size,
    TaintText,
};
use crate::model::time::Span;

/// A VM size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "InstanceType", default, deny_unknown_fields)]
pub struct InstanceTypeTable {
    /// Cores of the VM.
    #[schemars(range(min = 1, max = 4096))]
    pub cores: Option<u32>,
    /// Memory of the VM, in whole MiB.
    pub memory: Option<Size>,
    /// Size of the boot disk, in whole GiB. Default: the template's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Size>,
    /// Extended resources that a node of it offers, such as `"nvidia.com/gpu" = 1`. Huge pages among them (`"hugepages-2Mi" = "1Gi"`) are taken
    /// off its memory, as a kubelet does ([machines](machines.md#huge-pages-for-pods)).
    pub extended: BTreeMap<String, Amount>,
    /// PCI devices that a VM of it gets of its host, each by the mapping that PVE has it in (Datacenter, Resource Mappings), with
    /// PVE's options behind it: `"gpu"`, `"gpu,pcie=1,x-vga=1"`. A part of a card (vGPU) is a table with the type of mediated device:
    /// `{ mapping = "vgpu", mdev = "nvidia-63" }`, and `pcie`, `x-vga` or `rombar` where they are wanted. See
    /// [hosts](hosts.md#pci-devices).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pci: Vec<PciText>,
    /// Labels that a node of it carries. A value may have [gaps](joining.md#gaps), such as `"{{ host }}"`.
    pub labels: BTreeMap<String, String>,
    /// Price of one node per hour, in any currency. Default: by cores and memory; a PCI device is dearer than both can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Volumes that a node of it can attach, by CSI driver, for a pool that has no node yet.
    pub attach_limits: BTreeMap<String, i32>,
}

/// A pool of nodes that may stand for one another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// The region that the pool's machines are in. Default: those of its templates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The template its machines are cloned from; this or `templates`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// In place of `template`: one of each region that its machines may be in, for a pool over [several PVE
    /// clusters](regions.md). `min` and `max` are those of the whole pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<String>,
    /// The network that gives its machines their addresses: each gets one of its own on the first network card, instead of what
    /// the template's `ipconfig` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The instance types its machines may have. The name of an [`[instance_matrix.NAME]`](#instance_matrixname) stands for all of
    /// its types.
    #[schemars(length(min = 1))]
    pub instance_types: Option<Vec<String>>,
    /// The hosts it may use. Default: those of the region.
    pub hosts: Vec<String>,
    /// Hosts it does not use, besides those that the region excludes.
    pub exclude_hosts: Vec<String>,
    /// Which of its hosts gets the next machine. Default: as the region says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_strategy: Option<HostStrategyValue>,
    /// Machines of the pool on one host, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_per_host: Option<u32>,
    /// A host gets no machine that would leave it with fewer idle CPUs, by what is in use now. Default: as the region says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_cores: Option<Cpu>,
    /// A host gets no machine that would leave it with less free memory, by what is in use now. Default: as the region says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_memory: Option<Size>,
    /// A storage gets no disk of its machines that would leave it with less free: a size, or a percentage of the storage.
    /// Default: as the region says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_storage: Option<FreeSpace>,
    /// A host of whose CPUs a larger part is in use, on average over the last five minutes, gets no machine. 1 is no bound.
    /// Default: as the region says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_load: Option<Ratio>,
    /// A host of whose memory a larger part is in use, on average over the last five minutes, gets no machine. 1 is no bound.
    /// Default: as the region says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory_load: Option<Ratio>,
    /// A host on which something waits for a CPU, for memory or for a disk during a larger part of the time gets no machine
    /// (PVE 9). 1 is no bound. Default: as the region says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pressure: Option<Ratio>,
    /// Nodes to keep. One that is not Ready for longer than `scale_up.max_node_provision_time`, or whose host is off, does not
    /// count: another one is made, of the cheapest type, or of a larger one where pods that wait then call for it.
    pub min: u32,
    /// Nodes at most.
    pub max: Option<u32>,
    /// CPU of all its VMs together, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu: Option<Cpu>,
    /// Memory of all its VMs together, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<Size>,
    /// When several pools would do, the heaviest is taken, whatever it costs; a lighter one where the heavier may make no machine.
    pub weight: i32,
    /// Labels its nodes carry. A value may have [gaps](joining.md#gaps), such as `"{{ host }}"`.
    pub labels: BTreeMap<String, String>,
    /// Annotations its nodes carry. A value may have [gaps](joining.md#gaps). Nodes that are there [follow](machines.md#changing-the-file-under-machines-that-run).
    pub annotations: BTreeMap<String, String>,
    /// Taints its nodes carry, such as `"dedicated=gpu:NoSchedule"`.
    pub taints: Vec<TaintText>,
    /// Taints its nodes carry at first and that something else (a CNI for instance) takes away.
    /// The node is not in use before.
    pub startup_taints: Vec<TaintText>,
    /// What pods cannot have of a node's size.
    #[schemars(default)]
    pub reserved: ReservedTable,
    /// The kubelet's `maxPods`; its nodes get it. Default: 110, and they are told nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_pods: Option<u32>,
    /// Volumes that a node of it can attach, by CSI driver, whatever its type, while none has said so.
    pub attach_limits: BTreeMap<String, i32>,
    /// `kubernetes.io/arch` of its nodes.
    pub arch: String,
    /// Tags of its VMs in PVE, for people.
    pub tags: Vec<String>,
    /// Text in the VMs' description, above the mark.
    pub description: String,
    /// The weight of its VMs when a host's CPUs are short (PVE's `cpuunits`), beside 100 of a VM that has none. Default: the
    /// template's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub cpu_units: Option<u32>,
    /// CPU time that each of its VMs gets at most, in CPUs (PVE's `cpulimit`), however idle its host is. Pods are promised the
    /// cores of its type all the same. Default: the template's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<Cpu>,
    /// Each of its machines has CPUs of its host that no other machine has, as many as its type has cores (PVE's `affinity`), and on hosts with
    /// several NUMA nodes its memory beside them. Which: as the kubelet's static CPU manager would choose. Needs a
    /// [topology](#regionnametopologyhost) of each host, and `channel = "local"`. See [machines](machines.md#cpus-of-their-own).
    pub cpu_pinning: bool,
    /// The memory of its machines is in huge pages of this size, which the host gets together when they start. Needs `channel = "local"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<HugePageSize>,
    /// PVE may take back memory of its VMs while their host runs short (ballooning): as much as is kept from pods by
    /// `kubelet.kube_reserved` and `kubelet.system_reserved`, and nothing that pods are promised. Keep more from them than the
    /// system needs. Default: it takes none.
    pub balloon: bool,
    /// How many of its machines that failed are kept, to be looked into; they count for `max` and take their room on the host.
    #[schemars(range(max = 10))]
    pub keep_failed: u32,
    /// A machine that is kept by `keep_failed` is removed this long after it failed, or when somebody switches its VM off.
    pub keep_failed_for: Duration,
    /// Settings of its kubelets.
    #[schemars(default)]
    pub kubelet: Kubelet,
    /// How machines become nodes.
    #[schemars(default)]
    pub join: Join,
    /// How nodes are emptied.
    #[schemars(default)]
    pub drain: Drain,
    /// Where this pool differs from `[scale_down]`.
    #[schemars(default)]
    pub scale_down: PoolScaleDown,
    /// The pool's nodes are removed all together or not at all.
    pub atomic: bool,
    /// Which of its nodes are consolidated. Default: nodes are removed as cluster-autoscaler does, for
    /// requests up to `utilization_threshold`, and none is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consolidation: Option<ConsolidationKind>,
    /// A node is consolidated when no pod came to it or left it for this long. Default: `"5m"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consolidate_after: Option<Duration>,
    /// A node is replaced when that saves at least this. Default: `"10%"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_saving: Option<MinSaving>,
    /// A node whose machine has [drifted](machines.md#drift) is replaced: a new machine is made for the pods that fit nowhere else,
    /// and for `min`, and the node goes when all its pods have a place.
    pub replace_drifted: bool,
    /// A node that is older than this is replaced in the same way; at least `"1h"`. Default: nodes may become as old as they like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<Duration>,
    /// How many of its nodes are replaced at once because they have drifted or are too old, the oldest first.
    #[schemars(range(min = 1))]
    pub max_rollout_parallelism: u32,
    /// How many of its nodes may be removed or replaced at once; nodes that are leaving or not Ready
    /// count. The tightest budget wins. Without one, `max_parallelism` alone limits.
    #[schemars(default)]
    pub budget: Vec<NodeBudgetTable>,
}

/// Which nodes of a pool are consolidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ConsolidationKind {
    /// None: nodes that work stay.
    Never,
    /// Those that no pod needs.
    WhenEmpty,
    /// Those too whose pods fit elsewhere, and those that one cheaper machine can replace.
    WhenUnderused,
}

/// How many nodes of a pool may be removed or replaced at once, always or at certain times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "NodeBudget", default, deny_unknown_fields)]
pub struct NodeBudgetTable {
    /// A number of nodes, or a part of the pool's nodes (`10%`), rounded up.
    pub nodes: Option<NodeCount>,
    /// When the budget begins to hold, in UTC. Default: it holds always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// For how long it holds from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// For which nodes it holds: those that are `"empty"`, those that are `"underused"`, those that are replaced since they are
    /// `"outdated"`. Default: all.
    pub reasons: Vec<BudgetReason>,
}

/// Why a node that works is removed or replaced.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetReason {
    /// No pod needs it.
    Empty,
    /// The node's pods do well elsewhere.
    Underused,
    /// It has drifted, or is older than `expire_after`.
    Outdated,
}

/// The way from a VM's size to a node's allocatable. Only a pool without a node needs it: what the
/// first node really offers is learned from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Reserved", default, deny_unknown_fields)]
pub struct ReservedTable {
    /// The guest's kernel and firmware keep this much of the memory, and `kernel_memory_share` of it.
    pub kernel_memory: Size,
    /// Share of the memory that the guest's kernel keeps, on top of `kernel_memory`.
    pub kernel_memory_share: Ratio,
    /// CPU of `kubeReserved` and `systemReserved` together. Default: what `kubelet` says of them.
    pub cpu: Cpu,
    /// Memory of `kubeReserved` and `systemReserved` together. Default: what `kubelet` says of them.
    pub memory: Size,
    /// The kubelet's `evictionHard` for `memory.available`.
    pub eviction_memory: Size,
    /// Share of the disk that pods cannot have: file system, image and the kubelet's eviction limit.
    pub disk_share: Ratio,
}

/// How machines become nodes, with a token made for each: [joining](joining.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Join {
    /// What joins them.
    pub method: Method,
    /// How a machine is told to join.
    pub delivery: Delivery,
    /// For `"command"`: the script that the guest's shell runs, with [gaps](joining.md#any-other-command).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// For `"command"`: a file of this host with a secret that the command gets in place of a bootstrap token. Owner root, group
    /// pve-autoscaler, mode 0640.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// The API server (for k3s and RKE2 the server that agents register with) as `host:port`. Default: for kubeadm the one that the
    /// ConfigMap cluster-info names, else the kubeconfig's, for RKE2 with port 9345.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Life of the bootstrap token; it is deleted right after the join. At most 15 minutes.
    pub token_ttl: Duration,
    /// `spec.providerID` of its nodes, with [gaps](joining.md#gaps): `"proxmox://{{ region }}/{{ vmid }}"` is what Proxmox's cloud
    /// controller manager writes. Default: none is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Further arguments of the kubelet, such as `cpu-cfs-quota`, with [gaps](joining.md#gaps): `node-ip = "{{ nics[1].ips[0] }}"` makes the
    /// second card's address [the node's](joining.md#which-address-is-the-nodes). What has a key of its own (`max_pods`,
    /// `[pool.NAME.kubelet]`) is set there: plans count with keys.
    pub kubelet_args: BTreeMap<String, String>,
    /// Preflight errors of kubeadm to ignore.
    pub ignore_preflight_errors: Vec<String>,
    /// The container runtime's socket. Default: what kubeadm finds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cri_socket: Option<String>,
}

/// What makes a node of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// `kubeadm join`.
    Kubeadm,
    /// The agent of k3s.
    K3s,
    /// The agent of RKE2.
    Rke2,
    /// A script.
    Command,
    /// Nothing that this program tells it: the image, the netboot server or the machine configuration has what it needs, and no
    /// token is made: [machines that join by themselves](joining.md#machines-that-join-by-themselves).
    #[serde(rename = "self")]
    Itself,
}

/// How a machine is told to join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// By a command of the guest agent (guest-exec), once the guest has booted.
    #[default]
    GuestAgent,
    /// By cloud-init at its first boot: for guests whose agent refuses commands, or that have none. The template needs a
    /// `[template.NAME.cloud_init]`.
    CloudInit,
}

/// How nodes are emptied and VMs stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// A pod gets its own grace period, but at most this.
    pub max_graceful_termination: Duration,
    /// A drain that is not done after this long is given up and the node is used again.
    pub timeout: Duration,
    /// Volumes must be detached after this long; else the removal is given up.
    pub detach_timeout: Duration,
    /// A guest that has not shut down after this long is stopped.
    pub shutdown_timeout: Duration,
}

/// Where a pool differs from `[scale_down]`. What is not set is as it is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolScaleDown {
    /// Whether nodes of this pool are removed for being underused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// A node is a candidate while pods request no more than this share of its CPU and memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_threshold: Option<Ratio>,
    /// A candidate goes after it was unneeded for this long without a gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unneeded_time: Option<Duration>,
    /// A node that is not Ready goes after this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unready_time: Option<Duration>,
    /// Whether nodes that are not Ready are removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unready_enabled: Option<bool>,
    /// A node younger than this stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_node_age: Option<Duration>,
    /// Nodes with pods of kube-system stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_nodes_with_system_pods: Option<bool>,
    /// Nodes with pods that use `emptyDir` or `hostPath` stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_nodes_with_local_storage: Option<bool>,
    /// Nodes with pods that no well-known controller owns stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_nodes_with_custom_controller_pods: Option<bool>,
    /// DaemonSet pods do not count as utilisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_daemonsets_utilization: Option<bool>,
    /// Static pods do not count as utilisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_mirror_pods_utilization: Option<bool>,
    /// A kube-system pod without a disruption budget holds its node only for this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocking_system_pod_disruption_timeout: Option<Duration>,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            region: None,
            template: None,
            templates: Vec::new(),
            network: None,
            instance_types: None,
            hosts: Vec::new(),
            exclude_hosts: Vec::new(),
            host_strategy: None,
            max_per_host: None,
            min_free_cores: None,
            min_free_memory: None,
            min_free_storage: None,
            max_cpu_load: None,
            max_memory_load: None,
            max_pressure: None,
            min: 0,
            max: None,
            max_cpu: None,
            max_memory: None,
            weight: 0,
            attach_limits: BTreeMap::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            reserved: ReservedTable::default(),
            max_pods: None,
            kubelet: Kubelet::default(),
            arch: "amd64".to_owned(),
            tags: vec!["pve-autoscaler".to_owned()],
            description: String::new(),
            cpu_units: None,
            cpu_limit: None,
            cpu_pinning: false,
            hugepages: None,
            balloon: false,
            keep_failed: 0,
            keep_failed_for: Duration(Span::minutes(60)),
            join: Join::default(),
            drain: Drain::default(),
            scale_down: PoolScaleDown::default(),
            atomic: false,
            consolidation: None,
            consolidate_after: None,
            min_saving: None,
            replace_drifted: false,
            expire_after: None,
            max_rollout_parallelism: 1,
            budget: Vec::new(),
        }
    }
}

impl Default for ReservedTable {
    /// On the safe side for Debian and Ubuntu guests between 2 and 64 GiB, with a kubelet as kubeadm
    /// sets it up (nothing reserved, eviction below 100Mi).
    fn default() -> ReservedTable {
        ReservedTable {
            kernel_memory: Size(96 << 20),
            kernel_memory_share: Ratio(20),
            cpu: Cpu(0),
            memory: Size(0),
            eviction_memory: Size(100 << 20),
            disk_share: Ratio(150),
        }
    }
}

/// Longest life of a bootstrap token.
pub(crate) const MAX_TOKEN_TTL: Span = Span::minutes(15);

impl Default for Join {
    fn default() -> Join {
        Join {
            method: Method::Kubeadm,
            delivery: Delivery::GuestAgent,
            command: None,
            secret_file: None,
            endpoint: None,
            token_ttl: Duration(MAX_TOKEN_TTL),
            provider_id: None,
            kubelet_args: BTreeMap::new(),
            ignore_preflight_errors: Vec::new(),
            cri_socket: None,
        }
    }
}

impl Default for Drain {
    fn default() -> Drain {
        Drain {
            max_graceful_termination: Duration(Span::minutes(10)),
            timeout: Duration(Span::minutes(30)),
            detach_timeout: Duration(Span::minutes(6)),
            shutdown_timeout: Duration(Span::minutes(3)),
        }
    }
}
