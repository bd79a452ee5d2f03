//! The configuration, resolved: what the program works with after a file was read and checked.
//!
//! The brain gets [`Settings::policy`] and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use super::allow::{BootDiskAllow, BrokerAllow, PoolAllow, TypeAllow};
use super::file::Build;
use super::hardware::Hardware;
pub use super::net_card::NetCardSettings;
use super::new_vm::NewVm;
use super::notification::NotificationSettings;
use super::storage_names::StorageNames;
use crate::model::network::{AddressRange, Family};
use crate::model::policy::Policy;
use crate::model::scheduling::{Labels, Taint};
use crate::model::time::Span;

/// Everything a valid file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// False while the shipped file was not edited (no region or no pool): start, say so, do nothing.
    pub configured: bool,
    /// What the brain reads.
    pub policy: Policy,
    /// Kubernetes.
    pub kubernetes: KubernetesSettings,
    /// The broker.
    pub broker: BrokerSettings,
    /// Regions by name.
    pub regions: BTreeMap<Arc<str>, RegionSettings>,
    /// Templates by name.
    pub templates: BTreeMap<Arc<str>, TemplateSettings>,
    /// Networks by name: what machines get with their addresses.
    pub networks: BTreeMap<Arc<str>, NetworkSettings>,
    /// Pools by name: what the executor needs beyond the policy.
    pub pools: BTreeMap<Arc<str>, PoolSettings>,
    /// Deadlines of a machine's steps.
    pub deadlines: Deadlines,
    /// How nodes leave, whatever their pool.
    pub leaving: Leaving,
    /// The web server.
    pub web: WebSettings,
    /// The record of decisions.
    pub recorder: RecorderSettings,
    /// Who is told when a person must do something, by name.
    pub notifications: Arc<BTreeMap<Arc<str>, NotificationSettings>>,
    /// Where traces go; `None`: there are none.
    pub telemetry: Option<TelemetrySettings>,
    /// What is allowed but looks like a mistake.
    pub warnings: Vec<String>,
    /// The file as it was read.
    pub text: Arc<str>,
}

/// `[kubernetes]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubernetesSettings {
    /// Path of the kubeconfig.
    pub kubeconfig: PathBuf,
    /// Context in it; the current one when absent.
    pub context: Option<String>,
    /// The name that, with kube-system's UID, makes our cluster id.
    pub name: String,
    /// Namespace of the Lease, the status ConfigMap and the Events without an object.
    pub namespace: String,
    /// Whether serving certificates of machines' kubelets are approved.
    pub serving_certificates: bool,
}

/// `[broker]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BrokerSettings {
    /// The broker's socket.
    pub socket: PathBuf,
    /// Group whose members may talk to it.
    pub group: String,
    /// What each region with `channel = "local"` may do; made from regions, pools and templates.
    pub allow: BrokerAllow,
}

/// `[region.NAME]`, or `[proxmox]` for the region `default`.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionSettings {
    /// How the PVE API is reached.
    pub channel: Channel,
    /// How often the region is read while nothing happens.
    pub poll: Span,
    /// Clones of one storage at the same time.
    pub max_clones_per_storage: u32,
}

/// How the PVE API is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Channel {
    /// Through the broker on this host.
    Local,
    /// HTTPS with an API token.
    Token {
        /// `https://host:8006`, tried in turn.
        endpoints: Vec<String>,
        /// `user@realm!name`.
        token_id: String,
        /// File with the secret, readable by the daemon.
        secret_file: PathBuf,
        /// CA bundle to trust.
        ca_file: Option<PathBuf>,
        /// SHA-256 fingerprint of the leaf, as PVE shows it.
        fingerprint: Option<String>,
    },
}

/// `[template.NAME]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateSettings {
    /// Name of the region that the template is in.
    pub region: Arc<str>,
    /// By VMID …
    pub vmid: Option<u32>,
    /// … or by VM name (one copy per host is fine) …
    pub vm_name: Option<String>,
    /// … or by tags, of which it has all, in lower case and sorted; empty otherwise.
    pub tags: Vec<String>,
    /// Full clone instead of a linked one.
    pub full_clone: bool,
    /// Storages of a full clone.
    pub storage: Option<StorageNames>,
    /// The disk that grows; found by the boot order when absent.
    pub boot_disk: Option<String>,
    /// Bridge, VLAN and so on are the template's unless set here: `net0` parameters without MAC.
    pub bridge: Option<String>,
    /// VLAN tag of `net0`.
    pub vlan: Option<u16>,
    /// `firewall` of `net0`.
    pub firewall: Option<bool>,
    /// Security groups of `net0`.
    pub security_groups: Option<Vec<String>>,
    /// Whether the VM's firewall is switched on before the first start; where a card has groups when absent.
    pub vm_firewall: Option<bool>,
    /// `mtu` of `net0`.
    pub mtu: Option<u16>,
    /// `queues` of `net0`: as many as cores, or none; the template's when absent.
    pub multiqueue: Option<bool>,
    /// `rate` of `net0`, in MB a second.
    pub rate: Option<u32>,
    /// Model of `net0`.
    pub nic_model: Option<&'static str>,
    /// Further network cards, `net1` and so on.
    pub nics: Vec<NetCardSettings>,
    /// How machines start, sockets, further disks and so on.
    pub hardware: Hardware,
    /// PVE resource pool.
    pub resource_pool: Option<String>,
    /// `cpu` of the VM, such as `host` or `host,flags=+aes`; the template's when absent.
    pub cpu_type: Option<String>,
    /// `ipconfig0`; the template's when absent.
    pub ipconfig: Option<String>,
    /// `sshkeys`, plain text; empty for none, the template's when absent.
    pub ssh_keys: Option<String>,
    /// `ciuser`.
    pub ci_user: Option<String>,
    /// `nameserver`.
    pub nameserver: Option<String>,
    /// `searchdomain`.
    pub searchdomain: Option<String>,
    /// `ciupgrade`.
    pub ci_upgrade: bool,
    /// All its machines join at their first boot: they need no guest agent.
    pub first_boot: bool,
    /// What cloud-init is told in place of what PVE tells it.
    pub cloud_init: Option<Arc<CloudInitSettings>>,
    /// How it is built, if the program builds it.
    pub build: Option<Arc<Build>>,
    /// What its machines are made of, if no VM is cloned for them.
    pub new_vm: Option<Arc<NewVm>>,
    /// The pools whose machines are made of it, by name.
    pub pools: BTreeMap<Arc<str>, TemplateUser>,
}

/// A pool whose machines are made of a template, as far as it matters to what they inherit of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateUser {
    /// Machines at most.
    pub max: u32,
    /// The network cards that a network gives addresses, by number.
    pub networks: BTreeSet<u8>,
    /// Its machines have huge pages by the pool's own key.
    pub hugepages: bool,
}

/// `[template.NAME.cloud_init]`; the texts with gaps ([`crate::config::cloud_init`]), read from their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudInitSettings {
    /// The storages that the ISOs may come to.
    pub storage: StorageNames,
    /// User data; as PVE makes it when absent.
    pub user_data: Option<String>,
    /// A file with Talos' machine configuration, with gaps, in place of user and vendor data. It is a secret: only its name is here.
    pub machine_config: Option<PathBuf>,
    /// Vendor data.
    pub vendor_data: Option<String>,
    /// Network configuration; as PVE makes it when absent.
    pub network_config: Option<String>,
}

impl TemplateSettings {
    /// The network cards of its machines by number, as far as the file says something of them.
    pub fn cards(&self) -> impl Iterator<Item = (u8, NetCardSettings)> {
        let first = NetCardSettings {
            bridge: self.bridge.clone(),
            vlan: self.vlan,
            firewall: self.firewall,
            groups: self.security_groups.clone(),
            mtu: self.mtu,
            multiqueue: self.multiqueue,
            rate: self.rate,
            model: self.nic_model,
            ipconfig: self.ipconfig.clone(),
            network: None,
        };
        (0..).zip(std::iter::once(first).chain(self.nics.iter().cloned()))
    }

    /// Whether the firewall of a machine's VM is switched on before its first start. Else it is as the template has it.
    pub fn switches_firewall_on(&self) -> bool {
        let grouped = || self.cards().any(|(_, card)| card.has_groups());
        self.vm_firewall.unwrap_or_else(grouped)
    }

    /// Whether the table means a VM, by its VMID or, if the VM is a template, by its name or tags.
    pub fn means(&self, vmid: u32, template: bool, name: &str, tags: &[String]) -> bool {
        self.vmid == Some(vmid)
            || (template && (self.vm_name.as_deref() == Some(name) || has_tags(tags, &self.tags)))
    }
}

/// Whether a VM's tags are at least the wanted ones; PVE may show them in any case. None wanted is no choice.
pub fn has_tags(tags: &[String], wanted: &[String]) -> bool {
    let has = |wanted: &String| tags.iter().any(|tag| tag.eq_ignore_ascii_case(wanted));
    !wanted.is_empty() && wanted.iter().all(has)
}

/// `[network.NAME]`: what machines get of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NetworkSettings {
    /// IPv4.
    pub ipv4: AddressSource,
    /// IPv6.
    pub ipv6: AddressSource,
    /// `nameserver`; the template's when absent.
    pub nameserver: Option<String>,
    /// `searchdomain`; the template's when absent.
    pub searchdomain: Option<String>,
    /// An address is asked for on the wire before a machine gets it. That is the daemon's matter alone: the broker does not look at it.
    #[serde(skip)]
    pub ask_on_wire: bool,
}

/// Where a network card has its addresses of one family from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressSource {
    /// It has none.
    #[default]
    None,
    /// The guest finds one by itself: `dhcp` or `auto`.
    Guest(&'static str),
    /// Out of ranges.
    Ranges {
        /// Bits of the network's prefix.
        prefix: u8,
        /// The gateway.
        gateway: Option<IpAddr>,
        /// In ascending order, no two of which overlap.
        ranges: Vec<AddressRange>,
    },
}

impl AddressSource {
    /// The gateway, where machines get addresses of ranges.
    pub fn gateway(&self) -> Option<IpAddr> {
        match self {
            AddressSource::Ranges { gateway, .. } => *gateway,
            AddressSource::None | AddressSource::Guest(_) => None,
        }
    }

    /// The ranges that machines get an address of.
    pub fn ranges(&self) -> &[AddressRange] {
        match self {
            AddressSource::Ranges { ranges, .. } => ranges,
            AddressSource::None | AddressSource::Guest(_) => &[],
        }
    }
}

impl NetworkSettings {
    /// Whether an address lies in its ranges.
    pub fn contains(&self, address: IpAddr) -> bool {
        let ranges = self.ipv4.ranges().iter().chain(self.ipv6.ranges());
        ranges.into_iter().any(|range| range.contains(address))
    }

    /// PVE's `ipconfigN` of a card that has these addresses.
    ///
    /// # Errors
    /// They are not what the network gives: one of each family that has ranges, out of these.
    pub fn ipconfig(&self, addresses: &[IpAddr]) -> Result<String, String> {
        let mut parts = Vec::new();
        let mut used = 0;
        for (family, source, ip, gw) in [
            (Family::V4, &self.ipv4, "ip", "gw"),
            (Family::V6, &self.ipv6, "ip6", "gw6"),
        ] {
            match source {
                AddressSource::None => {}
                AddressSource::Guest(word) => parts.push(format!("{ip}={word}")),
                AddressSource::Ranges {
                    prefix, gateway, ..
                } => {
                    let mut of_family = addresses
                        .iter()
                        .filter(|address| Family::of(**address) == family);
                    let (Some(address), None) = (of_family.next(), of_family.next()) else {
                        return Err(format!("it has not one address for {ip}="));
                    };
                    if !source.ranges().iter().any(|range| range.contains(*address)) {
                        return Err(format!("{address} is not in the ranges any more"));
                    }
                    parts.push(format!("{ip}={address}/{prefix}"));
                    parts.extend(gateway.map(|gateway| format!("{gw}={gateway}")));
                    used += 1;
                }
            }
        }
        if used != addresses.len() {
            return Err("it has an address that the network does not give".to_owned());
        }
        Ok(parts.join(","))
    }
}

/// What the executor needs of a pool beyond the policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolSettings {
    /// Annotations its nodes carry, with gaps (`model::facts`).
    pub annotations: Labels,
    /// PVE tags of its VMs, for people.
    pub tags: Vec<String>,
    /// Human text above the mark.
    pub description: String,
    /// `cpuunits` of its VMs; the template's when absent.
    pub cpu_units: Option<u32>,
    /// `cpulimit` of its VMs in thousandths of a CPU; the template's when absent.
    pub cpu_limit_milli: Option<i64>,
    /// Bytes that PVE may take back of the memory of its VMs; none when absent.
    pub balloon: Option<i64>,
    /// How its machines join.
    pub join: JoinSettings,
    /// What it sets in the KubeletConfiguration of its nodes.
    pub kubelet: Map<String, Value>,
    /// Drain settings.
    pub drain: DrainSettings,
    /// Taints for the JoinConfiguration (the policy's, kept here for the executor's convenience).
    pub taints: Vec<Taint>,
}

/// How a machine becomes a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinMethod {
    /// `kubeadm join`.
    #[default]
    Kubeadm,
    /// The agent of k3s.
    K3s,
    /// The agent of RKE2.
    Rke2,
    /// A script of the configuration.
    Command {
        /// The script, with gaps (`model::facts`).
        script: String,
        /// A secret for it in place of a bootstrap token.
        secret_file: Option<PathBuf>,
    },
    /// The machine joins by itself: its image, its netboot server or its machine configuration has what it needs.
    Itself,
}

impl JoinMethod {
    /// As it is called where its work is told of.
    pub fn called(&self) -> &'static str {
        match self {
            JoinMethod::Kubeadm => "kubeadm join",
            JoinMethod::K3s => "the start of k3s-agent",
            JoinMethod::Rke2 => "the start of rke2-agent",
            JoinMethod::Command { .. } => "the join command",
            JoinMethod::Itself => "themselves",
        }
    }
}

/// `[pool.NAME.join]`. It stands in the journal too, so that an older document may lack what is added here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JoinSettings {
    /// How its machines join.
    pub method: JoinMethod,
    /// They are told so by cloud-init at their first boot, and not by the guest agent.
    pub at_first_boot: bool,
    /// API server `host:port` that overrides cluster-info's.
    pub endpoint: Option<String>,
    /// Life of the bootstrap token; at most 15 minutes.
    pub token_ttl: Span,
    /// `spec.providerID`, with gaps (`model::facts`).
    pub provider_id: Option<String>,
    /// Extra kubelet arguments.
    pub kubelet_args: BTreeMap<String, String>,
    /// `--ignore-preflight-errors`.
    pub ignore_preflight_errors: Vec<String>,
    /// CRI socket.
    pub cri_socket: Option<String>,
}

impl JoinSettings {
    /// Whether nobody in the guest is asked while the machine joins: it says that it has joined by its node.
    pub fn asks_nobody(&self) -> bool {
        self.at_first_boot || self.method == JoinMethod::Itself
    }
}

/// How a node is drained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrainSettings {
    /// Longest grace period given to a pod (`max-graceful-termination-sec`).
    pub max_grace: Span,
    /// A drain that is not done after this is given up.
    pub timeout: Span,
    /// Wait for volumes to detach at most this long; then the removal is given up.
    pub detach_timeout: Span,
    /// Time for the guest to shut down before the VM is stopped.
    pub shutdown_timeout: Span,
}

/// Deadlines of the steps of bringing a machine up, `[lifecycle]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Deadlines {
    /// The clone task.
    pub clone: Span,
    /// The first configuration write, lock waits and a backup's lock included.
    pub configure: Span,
    /// The resize task.
    pub resize: Span,
    /// The start task.
    pub start: Span,
    /// Until the agent answers.
    pub agent: Span,
    /// Until the operating system is ready.
    pub os: Span,
    /// `kubeadm join`.
    pub join: Span,
    /// Until the node appears.
    pub register: Span,
    /// Until it is initialised.
    pub initialize: Span,
    /// The destroy task.
    pub destroy: Span,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            clone: Span::minutes(10),
            configure: Span::minutes(2),
            resize: Span::minutes(2),
            start: Span::minutes(3),
            agent: Span::minutes(5),
            os: Span::minutes(5),
            join: Span::minutes(5),
            register: Span::minutes(2),
            initialize: Span::minutes(5),
            destroy: Span::minutes(5),
        }
    }
}

/// How a node leaves: what of `[scale_down]` is for the executor.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaving {
    /// Longest wait for the annotations `delay-deletion.cluster-autoscaler.kubernetes.io/*` to go
    /// (`node-deletion-delay-timeout`); zero: they mean nothing.
    pub deletion_delay: Span,
    /// DaemonSet pods of a node without other pods are evicted (`daemonset-eviction-for-empty-nodes`).
    pub evict_daemons_of_empty: bool,
    /// DaemonSet pods of other nodes are evicted (`daemonset-eviction-for-occupied-nodes`).
    pub evict_daemons_of_occupied: bool,
    /// Nodes that get or lose the taint of deletion candidates in a turn (`max-bulk-soft-taint-count`); zero: none has it.
    pub soft_taints_in_a_turn: u32,
}

impl Default for Leaving {
    fn default() -> Leaving {
        Leaving {
            deletion_delay: Span::minutes(2),
            evict_daemons_of_empty: false,
            evict_daemons_of_occupied: true,
            soft_taints_in_a_turn: 10,
        }
    }
}

/// `[recorder]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RecorderSettings {
    /// Whether decisions are recorded.
    pub enabled: bool,
    /// Bytes on disk at most.
    pub max_size: i64,
    /// What is older goes.
    pub max_age: Span,
}

impl Default for RecorderSettings {
    fn default() -> RecorderSettings {
        RecorderSettings {
            enabled: true,
            max_size: 200 << 20,
            max_age: Span::minutes(14 * 24 * 60),
        }
    }
}

/// `[telemetry]`, with an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// Where spans are posted to.
    pub url: String,
    /// A file with headers.
    pub headers_file: Option<PathBuf>,
    /// Whom the collector's certificate is checked by; `None`: by the host's authorities.
    pub ca_file: Option<PathBuf>,
    /// How long a request may take.
    pub timeout: Span,
}

/// `[web]`.
#[derive(Clone, Debug, PartialEq)]
pub struct WebSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The files of its certificate and key, when it speaks TLS.
    pub tls: Option<WebTls>,
    /// The file of those who may log in, when one must.
    pub users_file: Option<PathBuf>,
}

/// The files with which the web server speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebTls {
    /// The certificate with its chain.
    pub certificate: PathBuf,
    /// The private key of that certificate.
    pub key: PathBuf,
}

impl Default for WebSettings {
    fn default() -> WebSettings {
        WebSettings {
            listen: SocketAddr::from(([127, 0, 0, 1], 9808)),
            tls: None,
            users_file: None,
        }
    }
}
