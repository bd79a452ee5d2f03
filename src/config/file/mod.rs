//! The file as it is written: one type per table. The comments here are the reference manual
//! (`docs/configuration.md`) and the JSON schema's descriptions.

mod build;
mod cloud_init;
mod create;
mod hardware;
mod host;
mod kubelet;
mod matrix;
mod network;
mod notification;
mod pool;
mod region;
mod telemetry;
mod topology;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use build::{Build, BuildAgent, BuildMethod, BuildNic, Chipset, Firmware, ScsiController};
pub use cloud_init::CloudInit;
pub use create::{BootDevice, Create};
pub use hardware::{DiskAio, DiskCache, DiskOptions, FurtherDisk, NicModel, Startup};
pub use host::OneHost;
pub use kubelet::{
    CpuManagerPolicy, Kubelet, KubeletReserved, Swap, TopologyManagerPolicy, TopologyManagerScope,
};
pub use matrix::InstanceMatrix;
pub use network::{Ipv4Source, Ipv6Source, NetCard, Network};
pub use notification::{Notification, NotificationFormat, NotificationKind, QuietHours};
pub(crate) use pool::MAX_TOKEN_TTL;
pub use pool::{
    BudgetReason, ConsolidationKind, Delivery, Drain, InstanceTypeTable, Join, Method,
    NodeBudgetTable, Pool, PoolScaleDown, ReservedTable,
};
pub use region::{
    Ballooning, BrokerTable, ChannelKind, CloneKind, HostStrategyValue, RegionTable, Template,
    ZoneNamesValue,
};
pub use telemetry::Telemetry;
pub use topology::{HugePageSize, Topology};

use super::scalar::{Cpu, Duration, Ratio, Size};
use super::settings;
use crate::model::policy;
use crate::model::scheduling::SpreadConstraint;

/// The configuration of pve-autoscaler, `/etc/pve-autoscaler.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "File", default, deny_unknown_fields)]
#[schemars(title = "pve-autoscaler.toml")]
pub struct ConfigFile {
    /// Version of the format. Always 1.
    #[schemars(range(min = 1, max = 1))]
    pub version: Option<i64>,
    /// The Kubernetes cluster.
    #[schemars(default)]
    pub kubernetes: Kubernetes,
    /// The broker: the small root process through which the daemon reaches PVE on this host.
    #[schemars(default)]
    pub broker: BrokerTable,
    /// The PVE cluster, when there is one: the same as `[region.default]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxmox: Option<RegionTable>,
    /// PVE clusters by name. The name becomes the label `topology.kubernetes.io/region`.
    #[schemars(default)]
    pub region: BTreeMap<String, RegionTable>,
    /// VM templates by name.
    #[schemars(default)]
    pub template: BTreeMap<String, Template>,
    /// Networks that give machines addresses, by name.
    #[schemars(default)]
    pub network: BTreeMap<String, Network>,
    /// VM sizes by name. The name becomes the label `node.kubernetes.io/instance-type`.
    #[schemars(default)]
    pub instance_type: BTreeMap<String, InstanceTypeTable>,
    /// VM sizes by cores and memory, many in one table, by the beginning of their names.
    #[schemars(default)]
    pub instance_matrix: BTreeMap<String, InstanceMatrix>,
    /// Node pools by name. Nodes are called `NAME-xxxxx`.
    #[schemars(default)]
    pub pool: BTreeMap<String, Pool>,
    /// How to grow.
    #[schemars(default)]
    pub scale_up: ScaleUpTable,
    /// How to shrink. Keys and defaults are cluster-autoscaler's flags.
    #[schemars(default)]
    pub scale_down: ScaleDownTable,
    /// What the VMs of all pools together must keep and may have.
    #[schemars(default)]
    pub limits: Limits,
    /// How long each step of a machine's way to a working node may take.
    #[schemars(default)]
    pub lifecycle: Lifecycle,
    /// The web server with the page, `/metrics`, `/livez` and `/readyz`.
    #[schemars(default)]
    pub web: Web,
    /// The record of decisions in the state directory, for `history` and `replay`.
    #[schemars(default)]
    pub recorder: Recorder,
    /// Who is told when a person must do something, by name.
    #[schemars(default)]
    pub notification: BTreeMap<String, Notification>,
    /// Traces of machines' lives, for OpenTelemetry.
    #[schemars(default)]
    pub telemetry: Telemetry,
}

/// The Kubernetes cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Kubernetes {
    /// The kubeconfig, owned by root:pve-autoscaler, mode 0640. It is read again when it changes.
    /// `pve-autoscaler kubeconfig` makes one.
    pub kubeconfig: PathBuf,
    /// The context in the kubeconfig. Default: its current context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Together with the UID of the namespace kube-system this name makes the cluster id that
    /// every VM carries in its mark. Changing it disowns the VMs there are.
    pub name: String,
    /// Namespace of the Lease and of the status ConfigMap.
    pub namespace: String,
    /// Approve the serving certificates that kubelets of machines ask for (`serverTLSBootstrap`), where name and addresses are those of
    /// the machine's VM: see [serving certificates](joining.md#serving-certificates). It needs rights that `rbac.yaml` does not have.
    pub serving_certificates: bool,
}

/// How to grow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "ScaleUp", default, deny_unknown_fields)]
pub struct ScaleUpTable {
    /// Pending pods are gathered into a batch; it is planned for when none came for this long.
    pub batch_idle: Duration,
    /// A batch is planned for at the latest this long after its first pod. Machines for the `min` of pools to which its pods could come wait
    /// with it, since these may choose their types.
    pub batch_max: Duration,
    /// Pods of a lower priority never cause a node.
    pub expendable_pods_priority_cutoff: i32,
    /// Nodes of the whole cluster at most, other nodes included; 0 for no limit.
    pub max_nodes_total: u32,
    /// Machines being made at the same time, over all pools.
    pub max_in_flight: u32,
    /// A machine that is not a working node after this long has failed and is removed. The time in which it waits for its turn to clone
    /// (`max_clones_per_storage`) does not count.
    pub max_node_provision_time: Duration,
    /// A pool waits this long after a failure. A failure after that, within `backoff_reset_timeout`, doubles the time, up to `max_backoff`; one
    /// while it waits does not: it then waits for the same time from that failure on. After a clone or a start that failed it waits with that
    /// host alone, and goes on with its other hosts.
    pub initial_backoff: Duration,
    /// The longest back-off of a pool, and of a host.
    pub max_backoff: Duration,
    /// A back-off is forgotten after this long without a failure.
    pub backoff_reset_timeout: Duration,
    /// No machine is made on a view of Kubernetes or PVE older than this.
    pub max_view_age: Duration,
    /// A pod younger than this calls for no node. Its annotation `cluster-autoscaler.kubernetes.io/pod-scale-up-delay` may ask for more.
    pub new_pod_scale_up_delay: Duration,
    /// Pods are nominated (`status.nominatedNodeName`) for the node that was made for them, right before it takes
    /// pods: kube-scheduler tries it first and keeps their room against pods of no higher priority.
    pub nominate_pods: bool,
    /// The `defaultConstraints` of kube-scheduler's `PodTopologySpread`, if its configuration has a list:
    /// spread constraints of a controller's pods that name none themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub default_spread: Vec<DefaultSpread>,
}

/// A default spread constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DefaultSpread {
    /// How far the numbers of pods of two domains may differ.
    pub max_skew: i32,
    /// The node label whose values are the domains.
    pub topology_key: String,
    /// Whether a pod rather waits.
    pub when_unsatisfiable: WhenUnsatisfiable,
}

/// What becomes of a pod whose spread constraint no node meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhenUnsatisfiable {
    /// It waits.
    DoNotSchedule,
    /// It runs all the same.
    ScheduleAnyway,
}

impl DefaultSpread {
    fn policy(&self) -> SpreadConstraint {
        SpreadConstraint {
            max_skew: self.max_skew,
            topology_key: self.topology_key.as_str().into(),
            hard: self.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule,
            selector: None,
            min_domains: None,
            match_label_keys: Vec::new(),
            honor_affinity: true,
            honor_taints: false,
        }
    }
}

/// How to shrink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "ScaleDown", default, deny_unknown_fields)]
pub struct ScaleDownTable {
    /// Whether nodes are removed for being underused.
    pub enabled: bool,
    /// A node is a candidate while pods request no more than this share of its CPU and memory.
    pub utilization_threshold: Ratio,
    /// A candidate goes after it was unneeded for this long without a gap.
    pub unneeded_time: Duration,
    /// A node that is not Ready goes after this long.
    pub unready_time: Duration,
    /// Whether nodes that are not Ready are removed.
    pub unready_enabled: bool,
    /// No removal before this long after a node came.
    pub delay_after_add: Duration,
    /// No removal before this long after a removal.
    pub delay_after_delete: Duration,
    /// No removal before this long after a failed removal.
    pub delay_after_failure: Duration,
    /// A node younger than this stays.
    pub min_node_age: Duration,
    /// Nodes being removed at the same time.
    pub max_parallelism: u32,
    /// Nodes being removed at the same time that have pods to move.
    pub max_drain_parallelism: u32,
    /// This many nodes may always be unready. Nodes of ours whose VM PVE shows to be gone or switched off do not
    /// count.
    pub ok_total_unready_count: u32,
    /// When more than `ok_total_unready_count` nodes and more than this percentage of all nodes are
    /// unready, nothing is added or removed.
    pub max_total_unready_percentage: u32,
    /// Nodes with pods of kube-system stay, unless a disruption budget covers those pods.
    pub skip_nodes_with_system_pods: bool,
    /// Nodes with pods that use `emptyDir` or `hostPath` stay.
    pub skip_nodes_with_local_storage: bool,
    /// Nodes with pods that no well-known controller owns stay.
    pub skip_nodes_with_custom_controller_pods: bool,
    /// DaemonSet pods do not count as utilisation.
    pub ignore_daemonsets_utilization: bool,
    /// Static pods do not count as utilisation.
    pub ignore_mirror_pods_utilization: bool,
    /// A kube-system pod without a disruption budget holds its node only for this long.
    pub blocking_system_pod_disruption_timeout: Duration,
    /// The pods of DaemonSets are evicted, too, when a node goes that has no other pods. A pod's annotation
    /// `cluster-autoscaler.kubernetes.io/enable-ds-eviction` counts before this.
    pub daemonset_eviction_for_empty_nodes: bool,
    /// The pods of DaemonSets are evicted, too, when a node goes whose other pods move.
    pub daemonset_eviction_for_occupied_nodes: bool,
    /// An emptied node with an annotation `delay-deletion.cluster-autoscaler.kubernetes.io/…` waits this long for
    /// the annotation to go, then its machine goes all the same. `0s`: the annotation means nothing.
    pub node_deletion_delay_timeout: Duration,
    /// Nodes that may go soon, for they are unneeded or their host is evacuated, have a `PreferNoSchedule` taint
    /// (`pve-autoscaler.io/deletion-candidate`): kube-scheduler puts pods on others first. So many nodes at most get or lose it at a time;
    /// `0`: none has it.
    pub max_bulk_soft_taint_count: u32,
    /// Only as many nodes become unneeded at once as could be removed by `unneeded_time` with
    /// `max_parallelism` removals in each such interval, and twice `max_parallelism` more than before.
    pub scan_interval: Duration,
    /// Nothing is removed on a view older than this.
    pub max_view_age: Duration,
    /// What looks orphaned or half made is left alone for this long before it is removed.
    pub quarantine: Duration,
}

/// What the VMs of all pools together must keep and may have. Other nodes do not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// No node is removed when less CPU than this would be left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_cpu: Option<Cpu>,
    /// No node is removed when less memory than this would be left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_memory: Option<Size>,
    /// No machine is made that would bring more CPU than this together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu: Option<Cpu>,
    /// No machine is made that would bring more memory than this together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<Size>,
}

impl Limits {
    /// As the brain reads it.
    pub fn policy(&self) -> policy::Totals {
        policy::Totals {
            min_cpu_milli: self.min_cpu.map_or(0, |cpu| cpu.0),
            min_memory: self.min_memory.map_or(0, |size| size.0),
            max_cpu_milli: self.max_cpu.map(|cpu| cpu.0),
            max_memory: self.max_memory.map(|size| size.0),
        }
    }
}

/// How long each step may take before the machine has failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Lifecycle {
    /// The clone, waiting for a storage's lock included. Full clones of large disks need more.
    pub clone: Duration,
    /// The first write of its configuration, waiting for a backup's lock included.
    pub configure: Duration,
    /// Growing the boot disk.
    pub resize: Duration,
    /// Starting the VM.
    pub start: Duration,
    /// Until the guest agent answers.
    pub agent: Duration,
    /// Until cloud-init and systemd say that the system is ready.
    pub os: Duration,
    /// `kubeadm join`.
    pub join: Duration,
    /// Until the node is seen in Kubernetes.
    pub register: Duration,
    /// Until the node is Ready and its startup taints are gone.
    pub initialize: Duration,
    /// Destroying the VM.
    pub destroy: Duration,
}

/// The web server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Web {
    /// Where it listens. An address that is no loopback address wants the three keys below.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// The certificate with its chain, in PEM. It is served over HTTPS from then on. A renewed one is taken up within seconds,
    /// without a reload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's private key, in PEM, of root with group pve-autoscaler and mode 0640.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Who may look: a line `NAME:HASH` a person, as `pve-autoscaler web-password NAME` writes it, or `htpasswd -B`. With it
    /// the page wants a login, and `/metrics` the same names and passwords by basic authentication. A change is taken up
    /// within seconds, without a reload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users_file: Option<PathBuf>,
}

/// The record of decisions: what was seen, decided and done, compressed, in the state directory. It has names of pods and nodes and no secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Recorder {
    /// Whether decisions are recorded.
    pub enabled: bool,
    /// The record takes at most this much on disk; the oldest part goes.
    pub max_size: Size,
    /// What is older than this goes.
    pub max_age: Duration,
}

impl Default for Recorder {
    fn default() -> Recorder {
        let recorder = settings::RecorderSettings::default();
        Recorder {
            enabled: recorder.enabled,
            max_size: Size(recorder.max_size),
            max_age: Duration(recorder.max_age),
        }
    }
}

impl Recorder {
    /// As the daemon reads it.
    pub fn settings(&self) -> settings::RecorderSettings {
        settings::RecorderSettings {
            enabled: self.enabled,
            max_size: self.max_size.0,
            max_age: self.max_age.0,
        }
    }
}

impl Default for Kubernetes {
    fn default() -> Kubernetes {
        Kubernetes {
            kubeconfig: "/etc/pve-autoscaler/kubeconfig".into(),
            context: None,
            name: "default".to_owned(),
            namespace: "kube-system".to_owned(),
            serving_certificates: false,
        }
    }
}

impl Default for ScaleUpTable {
    fn default() -> ScaleUpTable {
        let policy = policy::ScaleUp::default();
        ScaleUpTable {
            batch_idle: Duration(policy.batch_idle),
            batch_max: Duration(policy.batch_max),
            expendable_pods_priority_cutoff: policy.expendable_priority,
            max_nodes_total: policy.max_nodes_total,
            max_in_flight: policy.max_in_flight,
            max_node_provision_time: Duration(policy.max_provision_time),
            initial_backoff: Duration(policy.backoff_first),
            max_backoff: Duration(policy.backoff_max),
            backoff_reset_timeout: Duration(policy.backoff_reset),
            max_view_age: Duration(policy.max_view_age),
            new_pod_scale_up_delay: Duration(policy.new_pod_delay),
            nominate_pods: policy.nominate_pods,
            default_spread: Vec::new(),
        }
    }
}

impl ScaleUpTable {
    /// As the brain reads it.
    pub fn policy(&self) -> policy::ScaleUp {
        policy::ScaleUp {
            batch_idle: self.batch_idle.0,
            batch_max: self.batch_max.0,
            expendable_priority: self.expendable_pods_priority_cutoff,
            max_nodes_total: self.max_nodes_total,
            max_in_flight: self.max_in_flight,
            max_provision_time: self.max_node_provision_time.0,
            backoff_first: self.initial_backoff.0,
            backoff_max: self.max_backoff.0,
            backoff_reset: self.backoff_reset_timeout.0,
            max_view_age: self.max_view_age.0,
            new_pod_delay: self.new_pod_scale_up_delay.0,
            nominate_pods: self.nominate_pods,
            default_spread: self
                .default_spread
                .iter()
                .map(DefaultSpread::policy)
                .collect(),
        }
    }
}

impl Default for ScaleDownTable {
    fn default() -> ScaleDownTable {
        let policy = policy::ScaleDown::default();
        let leaving = settings::Leaving::default();
        ScaleDownTable {
            enabled: policy.enabled,
            utilization_threshold: Ratio(policy.utilization_threshold_permille),
            unneeded_time: Duration(policy.unneeded_time),
            unready_time: Duration(policy.unready_time),
            unready_enabled: policy.unready_enabled,
            delay_after_add: Duration(policy.delay_after_add),
            delay_after_delete: Duration(policy.delay_after_delete),
            delay_after_failure: Duration(policy.delay_after_failure),
            min_node_age: Duration(policy.min_node_age),
            max_parallelism: policy.max_parallel,
            max_drain_parallelism: policy.max_parallel_drain,
            ok_total_unready_count: policy.ok_total_unready,
            max_total_unready_percentage: policy.max_total_unready_percent,
            skip_nodes_with_system_pods: policy.skip_system_pods,
            skip_nodes_with_local_storage: policy.skip_local_storage,
            skip_nodes_with_custom_controller_pods: policy.skip_custom_controllers,
            ignore_daemonsets_utilization: policy.ignore_daemonsets,
            ignore_mirror_pods_utilization: policy.ignore_mirrors,
            blocking_system_pod_disruption_timeout: Duration(policy.system_pod_timeout),
            daemonset_eviction_for_empty_nodes: leaving.evict_daemons_of_empty,
            daemonset_eviction_for_occupied_nodes: leaving.evict_daemons_of_occupied,
            node_deletion_delay_timeout: Duration(leaving.deletion_delay),
            max_bulk_soft_taint_count: leaving.soft_taints_in_a_turn,
            scan_interval: Duration(policy.scan_interval),
            max_view_age: Duration(policy.max_view_age),
            quarantine: Duration(policy.quarantine),
        }
    }
}

impl ScaleDownTable {
    /// As the executor reads it.
    pub fn leaving(&self) -> settings::Leaving {
        settings::Leaving {
            deletion_delay: self.node_deletion_delay_timeout.0,
            evict_daemons_of_empty: self.daemonset_eviction_for_empty_nodes,
            evict_daemons_of_occupied: self.daemonset_eviction_for_occupied_nodes,
            soft_taints_in_a_turn: self.max_bulk_soft_taint_count,
        }
    }

    /// As the brain reads it.
    pub fn policy(&self) -> policy::ScaleDown {
        policy::ScaleDown {
            enabled: self.enabled,
            utilization_threshold_permille: self.utilization_threshold.0,
            unneeded_time: self.unneeded_time.0,
            unready_time: self.unready_time.0,
            unready_enabled: self.unready_enabled,
            delay_after_add: self.delay_after_add.0,
            delay_after_delete: self.delay_after_delete.0,
            delay_after_failure: self.delay_after_failure.0,
            min_node_age: self.min_node_age.0,
            max_parallel: self.max_parallelism,
            max_parallel_drain: self.max_drain_parallelism,
            ok_total_unready: self.ok_total_unready_count,
            max_total_unready_percent: self.max_total_unready_percentage,
            skip_system_pods: self.skip_nodes_with_system_pods,
            skip_local_storage: self.skip_nodes_with_local_storage,
            skip_custom_controllers: self.skip_nodes_with_custom_controller_pods,
            ignore_daemonsets: self.ignore_daemonsets_utilization,
            ignore_mirrors: self.ignore_mirror_pods_utilization,
            system_pod_timeout: self.blocking_system_pod_disruption_timeout.0,
            scan_interval: self.scan_interval.0,
            max_view_age: self.max_view_age.0,
            quarantine: self.quarantine.0,
        }
    }
}

impl Default for Lifecycle {
    fn default() -> Lifecycle {
        let deadlines = settings::Deadlines::default();
        Lifecycle {
            clone: Duration(deadlines.clone),
            configure: Duration(deadlines.configure),
            resize: Duration(deadlines.resize),
            start: Duration(deadlines.start),
            agent: Duration(deadlines.agent),
            os: Duration(deadlines.os),
            join: Duration(deadlines.join),
            register: Duration(deadlines.register),
            initialize: Duration(deadlines.initialize),
            destroy: Duration(deadlines.destroy),
        }
    }
}

impl Lifecycle {
    /// As the executor reads it.
    pub fn deadlines(&self) -> settings::Deadlines {
        settings::Deadlines {
            clone: self.clone.0,
            configure: self.configure.0,
            resize: self.resize.0,
            start: self.start.0,
            agent: self.agent.0,
            os: self.os.0,
            join: self.join.0,
            register: self.register.0,
            initialize: self.initialize.0,
            destroy: self.destroy.0,
        }
    }
}

impl Default for Web {
    fn default() -> Web {
        Web {
            listen: settings::WebSettings::default().listen,
            tls_certificate: None,
            tls_key: None,
            users_file: None,
        }
    }
}
