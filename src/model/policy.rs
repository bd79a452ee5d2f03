//! What is wanted: the configuration as the brain reads it, resolved and validated.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::disruption::{Consolidation, NodeBudget, Rollout};
use super::host_bounds::HostOverrides;
use super::hosts::{HostCounting, HostRules};
use super::network::NetworkPolicy;
use super::pci::PciDevice;
use super::region::RegionName;
use super::resources::Resources;
use super::scheduling::{Labels, SpreadConstraint, Taint};
use super::time::Span;
use super::topology::{Pinning, Topologies};

/// The label that every node of ours carries: its pool's name.
pub const POOL_LABEL: &str = "pve-autoscaler.io/pool";
/// The label with the instance type, `node.kubernetes.io/instance-type` as everybody expects it.
pub const INSTANCE_TYPE_LABEL: &str = "node.kubernetes.io/instance-type";
/// The well-known zone label: the PVE host.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// On every node of ours once it is initialised: `region/vmid/uuid` of its VM.
pub const MACHINE_ANNOTATION: &str = "pve-autoscaler.io/machine";
/// The well-known region label: the PVE cluster.
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
/// The startup taint that a joining node carries until it is initialised.
pub const STARTUP_TAINT: &str = "pve-autoscaler.io/uninitialized";
/// The taint of a node that is leaving; its value is the Unix time it was set.
pub const LEAVING_TAINT: &str = "pve-autoscaler.io/leaving";
/// The `PreferNoSchedule` taint of a node that may go soon: pods go there last. cluster-autoscaler's is
/// `DeletionCandidateOfClusterAutoscaler`.
pub const CANDIDATE_TAINT: &str = "pve-autoscaler.io/deletion-candidate";

/// Everything the brain must know of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Regions by name.
    pub regions: BTreeMap<RegionName, RegionPolicy>,
    /// Instance types by name.
    pub instance_types: BTreeMap<Arc<str>, InstanceType>,
    /// Pools by name.
    pub pools: BTreeMap<Arc<str>, PoolPolicy>,
    /// Networks with addresses for machines, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<Arc<str>, NetworkPolicy>,
    /// How to grow.
    pub scale_up: ScaleUp,
    /// How to shrink.
    pub scale_down: ScaleDown,
    /// What all nodes of ours together must keep and may have.
    #[serde(default)]
    pub totals: Totals,
}

impl Policy {
    /// Whether some machines in a region get CPUs of their own.
    pub fn pins_in(&self, region: &str) -> bool {
        self.pools_in(region).any(|(_, pool)| pool.pinning.cpus)
    }

    /// Whether some pool in a region bounds how loaded its hosts may be.
    pub fn loads_in(&self, region: &str) -> bool {
        self.pools_in(region)
            .any(|(_, pool)| pool.host_rules.bounds_load())
    }

    /// The pools that may have machines in a region, as they are there.
    pub fn pools_in(&self, region: &str) -> impl Iterator<Item = (&Arc<str>, &PoolPolicy)> {
        let all = self.pools.iter();
        all.filter_map(move |(name, pool)| Some((name, pool.at(region)?)))
    }

    /// What of a price is paid in a region.
    pub fn price_in(&self, region: &str, price: i64) -> i64 {
        match self.regions.get(region).and_then(|of| of.price_permille) {
            None => price,
            Some(permille) => {
                let price = i128::from(price) * i128::from(permille) / 1000;
                i64::try_from(price).unwrap_or(i64::MAX)
            }
        }
    }

    /// What the zone of nodes on this host is called (`topology.kubernetes.io/zone`).
    pub fn zone_of(&self, region: &str, host: &Arc<str>) -> Arc<str> {
        let names = self.regions.get(region).map(|region| region.zones);
        names.unwrap_or_default().zone_of(region, host)
    }
}

/// Floors and ceilings over the VMs of all pools (`cores-total`, `memory-total`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Totals {
    /// CPU in millicores that is kept.
    pub min_cpu_milli: i64,
    /// Memory in bytes that is kept.
    pub min_memory: i64,
    /// CPU in millicores at most.
    pub max_cpu_milli: Option<i64>,
    /// Memory in bytes at most.
    pub max_memory: Option<i64>,
}

/// The VMID that no machine gets: the Proxmox CSI plugin names every volume after it (`vm-9999-pvc-…`,
/// `vmID` in its controller, not to be changed), and PVE destroys a VM's volumes by that number.
pub const VOLUMES_VMID: u32 = 9999;

/// Limits of a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionPolicy {
    /// First VMID we may use.
    pub vmid_first: u32,
    /// Last VMID we may use.
    pub vmid_last: u32,
    /// Memory in bytes of each host that machines may not take.
    pub host_memory_reserve: i64,
    /// How the capacity of its hosts is counted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub capacity: HostCounting,
    /// Hosts of which the configuration says otherwise, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<Arc<str>, HostOverrides>,
    /// What the zones of its nodes are called.
    #[serde(default, skip_serializing_if = "is_default")]
    pub zones: ZoneNames,
    /// What a machine here costs, in thousandths of its type's price; `None`: its type's price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_permille: Option<i64>,
    /// What its hosts' CPUs are to each other, as far as the configuration says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub topologies: Topologies,
}

/// What the zone of a node is called, which is the host of its VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneNames {
    /// The host's name, as the cloud controller and the CSI plugin for Proxmox call it.
    #[default]
    Host,
    /// `REGION.HOST`: Kubernetes takes zones of one name for one zone, whatever region they are in.
    RegionHost,
}

/// A label's value has at most this many characters.
const LABEL_VALUE: usize = 63;

impl ZoneNames {
    /// What the zone of nodes on this host is called. Of a region's name as much stands there as a label's value has room for.
    pub fn zone_of(self, region: &str, host: &Arc<str>) -> Arc<str> {
        match self {
            ZoneNames::Host => host.clone(),
            ZoneNames::RegionHost => {
                let room = LABEL_VALUE.saturating_sub(host.len() + 1);
                let region: String = region.chars().take(room).collect();
                match region.trim_end_matches(['-', '_', '.']) {
                    "" => host.clone(),
                    region => format!("{region}.{host}").into(),
                }
            }
        }
    }
}

impl RegionPolicy {
    /// A region with these VMIDs, whose hosts are counted as PVE counts them by default.
    pub fn of_vmids(first: u32, last: u32) -> RegionPolicy {
        RegionPolicy {
            vmid_first: first,
            vmid_last: last,
            host_memory_reserve: 0,
            capacity: HostCounting::default(),
            hosts: BTreeMap::new(),
            zones: ZoneNames::default(),
            price_permille: None,
            topologies: Topologies::new(),
        }
    }
}

/// A VM size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceType {
    /// Logical CPUs of the VM.
    pub cores: u32,
    /// Memory of the VM in bytes.
    pub memory: i64,
    /// Size of the boot disk in bytes; 0 keeps the template's.
    pub disk: i64,
    /// Extended resources a node of it offers, such as `nvidia.com/gpu`.
    #[serde(default)]
    pub extended: BTreeMap<Arc<str>, i64>,
    /// PCI devices of its host that a VM of it gets, `hostpci0` and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pci: Vec<PciDevice>,
    /// Labels that a node of it carries.
    #[serde(default)]
    pub labels: Labels,
    /// Price of one node in millionths per hour; `None` for the default by memory, CPU and devices.
    #[serde(default)]
    pub price: Option<i64>,
    /// Volumes that a node of it can attach, by CSI driver.
    #[serde(default)]
    pub attach_limits: BTreeMap<Arc<str>, i32>,
}

/// A node pool. What it says is for its first region; in each further one it may have another template, other hosts and
/// another weight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolPolicy {
    /// The pool's region; where it has several, the first by name.
    pub region: RegionName,
    /// The pool as it is in its further regions. Limits (`min`, `max`, ceilings, budgets) are those of the whole, and alike.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub further: BTreeMap<RegionName, PoolPolicy>,
    /// The template its machines are cloned from.
    pub template: Arc<str>,
    /// The pool's instance types, in the order given.
    pub instance_types: Vec<Arc<str>>,
    /// Hosts it may use; empty for all of the region.
    #[serde(default)]
    pub hosts: Vec<Arc<str>>,
    /// Which of them it uses, and in which order.
    #[serde(default, skip_serializing_if = "is_default")]
    pub host_rules: HostRules,
    /// The networks that give its machines addresses, by the number of the network card.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<u8, Arc<str>>,
    /// What its machines are given of their host's CPUs and memory for themselves.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pinning: Pinning,
    /// CPU sockets of its machines; 0 for one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sockets: u32,
    /// Nodes to keep.
    pub min: u32,
    /// Nodes at most.
    pub max: u32,
    /// Ceiling of CPU in millicores over its nodes' VMs.
    #[serde(default)]
    pub max_cpu_milli: Option<i64>,
    /// Ceiling of memory in bytes over its nodes' VMs.
    #[serde(default)]
    pub max_memory: Option<i64>,
    /// Volumes that a node of it can attach, by CSI driver, whatever its type.
    #[serde(default)]
    pub attach_limits: BTreeMap<Arc<str>, i32>,
    /// The heavier pool wins when several would do.
    #[serde(default)]
    pub weight: i32,
    /// Labels its nodes carry.
    #[serde(default)]
    pub labels: Labels,
    /// Taints its nodes keep.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// Taints its nodes carry only until something else takes them away (a CNI's for example).
    #[serde(default)]
    pub startup_taints: Vec<Taint>,
    /// What kubelet and system keep of a node's capacity.
    pub reserved: Reserved,
    /// `maxPods` of the kubelet.
    pub max_pods: u32,
    /// Nothing of this pool is removed for being underused.
    #[serde(default)]
    pub scale_down_disabled: bool,
    /// The pool's own scale-down settings, where they differ from the general ones.
    #[serde(default)]
    pub scale_down: Option<ScaleDown>,
    /// How its nodes are consolidated; `None` removes as cluster-autoscaler does and replaces nothing.
    #[serde(default)]
    pub consolidation: Option<Consolidation>,
    /// Disruption budgets: how many of the pool's nodes may be disrupted at once.
    #[serde(default)]
    pub budgets: Vec<NodeBudget>,
    /// How its outdated nodes are replaced; `None`: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The pool's nodes go all together or not at all.
    #[serde(default)]
    pub atomic: bool,
    /// `kubernetes.io/arch` of its nodes.
    pub arch: Arc<str>,
    /// How failed machines are kept to be looked into; `None`: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_failed: Option<KeepFailed>,
    /// The pool's machines join by themselves: no bootstrap token is made for them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub joins_itself: bool,
}

/// How failed machines of a pool are kept, so that a person can look into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepFailed {
    /// The most failed machines that are kept at a time.
    pub machines: u32,
    /// For how long after each failed.
    pub how_long: Span,
}

impl PoolPolicy {
    /// The pool as it is in a region, if it may have machines there.
    pub fn at(&self, region: &str) -> Option<&PoolPolicy> {
        if *self.region == *region {
            return Some(self);
        }
        self.further.get(region)
    }

    /// The pool as it is in each of its regions, in the order of their names.
    pub fn everywhere(&self) -> impl Iterator<Item = &PoolPolicy> {
        std::iter::once(self).chain(self.further.values())
    }

    /// The pool as it is where its machines are made of this template.
    pub fn of_template(&self, template: &str) -> Option<&PoolPolicy> {
        self.everywhere().find(|there| *there.template == *template)
    }

    /// What memory calls a host of a region: hosts of two regions may have one name.
    pub fn host_key(&self, region: &str, host: &Arc<str>) -> Arc<str> {
        if self.further.is_empty() {
            return host.clone();
        }
        format!("{region}.{host}").into()
    }

    /// Whether its machines may be on a host of this name.
    pub fn may_use(&self, host: &str) -> bool {
        let named = |hosts: &[Arc<str>]| hosts.iter().any(|name| **name == *host);
        (self.hosts.is_empty() || named(&self.hosts)) && !named(&self.host_rules.exclude)
    }
}

/// The way from a VM's size to a node's allocatable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    /// Kernel, firmware and balloon take this much of the VM's memory, in bytes plus …
    pub kernel_memory: i64,
    /// … this many thousandths of it.
    pub kernel_memory_permille: i64,
    /// `kubeReserved` + `systemReserved` CPU in millicores.
    pub cpu_milli: i64,
    /// `kubeReserved` + `systemReserved` memory in bytes.
    pub memory: i64,
    /// `evictionHard` `memory.available` in bytes (the kubelet's default is 100Mi).
    pub eviction_memory: i64,
    /// Thousandths of the disk that pods cannot have: file system, image and `nodefs` eviction.
    pub disk_permille: i64,
}

/// How to grow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleUp {
    /// A batch is planned when nothing new came for this long …
    pub batch_idle: Span,
    /// … and at the latest after this long.
    pub batch_max: Span,
    /// Pods of a lower priority never cause a node (`expendable-pods-priority-cutoff`).
    pub expendable_priority: i32,
    /// A pod calls for no node before it is this old (`new-pod-scale-up-delay`).
    #[serde(default)]
    pub new_pod_delay: Span,
    /// Ceiling of all nodes, ours and others' (`max-nodes-total`); 0 for none.
    pub max_nodes_total: u32,
    /// Machines being made at the same time over all pools.
    pub max_in_flight: u32,
    /// A machine that is not initialised after this long has failed (`max-node-provision-time`).
    pub max_provision_time: Span,
    /// First back-off of a pool after a failure (`initial-node-group-backoff-duration`).
    pub backoff_first: Span,
    /// Longest back-off.
    pub backoff_max: Span,
    /// Back-off is forgotten after this long without a failure.
    pub backoff_reset: Span,
    /// No decision on a view older than this.
    pub max_view_age: Span,
    /// Spread constraints of pods of a controller that name none themselves (kube-scheduler's
    /// `defaultConstraints` of `PodTopologySpread`); selectors are left out, as there.
    #[serde(default)]
    pub default_spread: Vec<SpreadConstraint>,
    /// Pods are nominated for the nodes that are made for them; else plans are laid out for the order in which
    /// kube-scheduler takes pods.
    #[serde(default = "yes")]
    pub nominate_pods: bool,
}

/// How to shrink; cluster-autoscaler's flags of the same names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleDown {
    /// Off switch.
    pub enabled: bool,
    /// Thousandths of allocatable requested below which a node is a candidate.
    pub utilization_threshold_permille: i64,
    /// Unneeded for this long.
    pub unneeded_time: Span,
    /// Unready for this long.
    pub unready_time: Span,
    /// Nodes that are not Ready are removed too (`scale-down-unready-enabled`).
    #[serde(default = "yes")]
    pub unready_enabled: bool,
    /// Not before this long after an addition.
    pub delay_after_add: Span,
    /// … a deletion.
    pub delay_after_delete: Span,
    /// … a failed deletion.
    pub delay_after_failure: Span,
    /// A node younger than this stays.
    pub min_node_age: Span,
    /// Nodes being removed at once.
    pub max_parallel: u32,
    /// The most nodes that are drained at a time; they count for `max_parallel` too.
    pub max_parallel_drain: u32,
    /// Cluster health: this many unready nodes are always fine (`ok-total-unready-count`) …
    pub ok_total_unready: u32,
    /// … beyond that, at most this percentage (`max-total-unready-percentage`).
    pub max_total_unready_percent: u32,
    /// `skip-nodes-with-system-pods`.
    pub skip_system_pods: bool,
    /// `skip-nodes-with-local-storage`.
    pub skip_local_storage: bool,
    /// `skip-nodes-with-custom-controller-pods`.
    pub skip_custom_controllers: bool,
    /// DaemonSet pods count for nothing in the utilisation (`ignore-daemonsets-utilization`).
    pub ignore_daemonsets: bool,
    /// Static pods count for nothing in the utilisation (`ignore-mirror-pods-utilization`).
    #[serde(default)]
    pub ignore_mirrors: bool,
    /// A kube-system pod without a budget blocks only while younger than this.
    pub system_pod_timeout: Span,
    /// cluster-autoscaler's `scan-interval`: how many nodes become unneeded at once is bounded by
    /// the removals that `unneeded_time` has time for at one loop an interval.
    #[serde(default = "scan_interval")]
    pub scan_interval: Span,
    /// Nothing is removed on a view older than this.
    pub max_view_age: Span,
    /// A half-made or orphaned thing is left alone for this long before it is removed.
    pub quarantine: Span,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn yes() -> bool {
    true
}

fn scan_interval() -> Span {
    Span::seconds(10)
}

impl Default for ScaleUp {
    fn default() -> ScaleUp {
        ScaleUp {
            batch_idle: Span::seconds(1),
            batch_max: Span::seconds(10),
            expendable_priority: -10,
            new_pod_delay: Span::ZERO,
            max_nodes_total: 0,
            max_in_flight: 10,
            max_provision_time: Span::minutes(15),
            backoff_first: Span::minutes(5),
            backoff_max: Span::minutes(30),
            backoff_reset: Span::minutes(180),
            max_view_age: Span::minutes(3),
            default_spread: Vec::new(),
            nominate_pods: true,
        }
    }
}

impl Default for ScaleDown {
    fn default() -> ScaleDown {
        ScaleDown {
            enabled: true,
            utilization_threshold_permille: 500,
            unneeded_time: Span::minutes(10),
            unready_time: Span::minutes(20),
            unready_enabled: true,
            delay_after_add: Span::minutes(10),
            delay_after_delete: Span::ZERO,
            delay_after_failure: Span::minutes(3),
            min_node_age: Span::minutes(10),
            max_parallel: 10,
            max_parallel_drain: 1,
            ok_total_unready: 3,
            max_total_unready_percent: 45,
            skip_system_pods: true,
            skip_local_storage: true,
            skip_custom_controllers: true,
            ignore_daemonsets: false,
            ignore_mirrors: false,
            system_pod_timeout: Span::minutes(60),
            scan_interval: scan_interval(),
            max_view_age: Span::minutes(3),
            quarantine: Span::minutes(5),
        }
    }
}

/// What the configuration promised of a machine when it was planned. It holds for that machine for
/// ever: a changed configuration is for those that are made after.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The machine's instance type: sizes, labels, price.
    pub kind: InstanceType,
    /// The labels of the machine's pool.
    #[serde(default)]
    pub labels: Labels,
    /// The taints of the machine's pool.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// The startup taints of the machine's pool.
    #[serde(default)]
    pub startup_taints: Vec<Taint>,
    /// What kubelet and system keep.
    pub reserved: Reserved,
    /// `maxPods` of its kubelet.
    pub max_pods: u32,
    /// `kubernetes.io/arch` of its node.
    pub arch: Arc<str>,
}

impl Terms {
    /// The terms of a machine that a pool makes of an instance type now.
    pub fn of(pool: &PoolPolicy, kind: &InstanceType) -> Terms {
        Terms {
            kind: kind.clone(),
            labels: pool.labels.clone(),
            taints: pool.taints.clone(),
            startup_taints: pool.startup_taints.clone(),
            reserved: pool.reserved.clone(),
            max_pods: pool.max_pods,
            arch: pool.arch.clone(),
        }
    }

    /// Whether the pool says the same now.
    pub fn agrees(&self, now: &PoolPolicy) -> bool {
        self.labels == now.labels
            && self.taints == now.taints
            && self.startup_taints == now.startup_taints
            && self.reserved == now.reserved
            && self.max_pods == now.max_pods
            && self.arch == now.arch
    }

    /// The pool as it was for a machine with these terms; all else is as it is now.
    pub fn pool(&self, now: &PoolPolicy) -> PoolPolicy {
        PoolPolicy {
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            startup_taints: self.startup_taints.clone(),
            reserved: self.reserved.clone(),
            max_pods: self.max_pods,
            arch: self.arch.clone(),
            ..now.clone()
        }
    }
}

impl InstanceType {
    /// What a VM of this type has, before anything is reserved; extended resources included.
    pub fn capacity(&self) -> Resources {
        Resources {
            cpu_milli: i64::from(self.cores).saturating_mul(1000),
            memory: self.memory,
            ephemeral: self.disk,
            pods: 0,
            extended: self.extended.clone(),
        }
    }
}
