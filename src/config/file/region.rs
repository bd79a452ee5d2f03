//! `[broker]`, `[region.NAME]` and `[template.NAME]`: what there is on the Proxmox side.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::build::Build;
use super::cloud_init::CloudInit;
use super::create::Create;
use super::hardware::{DiskOptions, FurtherDisk, NicModel, Startup};
use super::host::OneHost;
use super::network::NetCard;
use super::topology::Topology;
use crate::config::scalar::{
    Cpu, Duration, FreeSpace, Overcommit, Ratio, Size, VmOptionValue, VmidRange,
};
use crate::config::storage_names::StorageNames;
use crate::model::time::Span;

/// The broker. What it lets the daemon do follows from the regions, templates, instance types and
/// pools of this file; the lists here add to that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Broker", default, deny_unknown_fields)]
pub struct BrokerTable {
    /// The broker's socket.
    pub socket: PathBuf,
    /// The group whose members may use it.
    pub group: String,
    /// Storages that disks may be on, besides those of the templates.
    pub storages: Vec<String>,
    /// Bridges that network cards may be on, besides those of the templates.
    pub bridges: Vec<String>,
    /// PVE resource pools that VMs may be put into, besides those of the templates.
    pub resource_pools: Vec<String>,
}

/// How the PVE API is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKind {
    /// Through the broker on this host.
    #[default]
    Local,
    /// Over HTTPS with an API token.
    Token,
}

/// Which memory a VM with ballooning counts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ballooning {
    /// `memory`: what it may have.
    #[default]
    Maximum,
    /// `balloon`: what it keeps.
    Minimum,
}

/// Which of the hosts that will do gets the next machine. Hosts that are offline, in maintenance, excluded or full are passed
/// over in any case, and where none is left no machine is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "HostStrategy", rename_all = "kebab-case")]
pub enum HostStrategyValue {
    /// The one with the fewest machines of the pool, then the one with the most memory that is not promised to guests.
    #[default]
    Spread,
    /// The one with the most memory that is not promised.
    MaxMemory,
    /// The one with the most cores that are not promised.
    MaxCpu,
    /// The one with the largest part of its cores and its memory together that is not promised.
    Balanced,
    /// Each in its turn, by name.
    RoundRobin,
    /// One on which guests run before an empty one, then the one with the least memory left: fills hosts, so that others can sleep.
    Pack,
}

/// What the zones of a region's nodes are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "ZoneNames")]
pub enum ZoneNamesValue {
    /// The host's name.
    #[serde(rename = "host")]
    Host,
    /// The region's name, a dot, the host's name.
    #[serde(rename = "region.host")]
    RegionHost,
}

/// A PVE cluster (or a single host).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Region", default, deny_unknown_fields)]
pub struct RegionTable {
    /// `local`: through the broker on this host, no credentials needed. `token`: over HTTPS with an
    /// API token.
    pub channel: ChannelKind,
    /// For `token`: API endpoints, tried in turn, such as `https://pve1.example:8006`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// For `token`: the token's id, `user@realm!name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// For `token`: the file with the token's secret, readable by the daemon alone. It is read again when it changes, and a new secret
    /// is used once PVE has taken it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_file: Option<PathBuf>,
    /// For `token`: the CA certificate to trust, a copy of `/etc/pve/pve-root-ca.pem`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// For `token`: the SHA-256 fingerprint of the server's certificate, as PVE shows it; instead of
    /// `ca_file`. Each PVE host has a certificate of its own, so that it fits one endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// VMIDs that machines get. Nothing else should use them. At least as many as the pools' `max`. 9999 is
    /// never given to one: the Proxmox CSI plugin names its volumes after that VMID.
    pub vmids: Option<VmidRange>,
    /// The hosts that machines may be on. Default: all.
    pub hosts: Vec<String>,
    /// Hosts that machines are never made on.
    pub exclude_hosts: Vec<String>,
    /// Which of the hosts that will do gets the next machine. `spread`: the one with the fewest machines of the pool, then
    /// with the most memory that no guest is promised; `max-memory`, `max-cpu`: the one with the most of it that no guest is
    /// promised; `balanced`: with the largest part of both; `round-robin`: each in its turn, by name; `pack`: one on which
    /// guests run before an empty one, then the one with the least memory left, so that other hosts can sleep. Hosts that are
    /// offline, in maintenance, excluded or full are passed over, and where none is left no machine is made.
    pub host_strategy: HostStrategyValue,
    /// Machines of all pools on one host, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_per_host: Option<u32>,
    /// Memory of each host that machines may not take.
    pub host_memory_reserve: Size,
    /// CPUs of each host that machines may not take. Counts where `cpu_overcommit` is set.
    pub host_cores_reserve: Cpu,
    /// Memory that guests may be promised on a host: what it has, times this.
    pub memory_overcommit: Overcommit,
    /// What a storage may come to, times its size: what is in use of it, and the disks of machines in full, grown or not. Above
    /// 1 more is promised than there is, and a thin pool or a file system that runs full stops every guest on it. On storages
    /// where a disk takes its space when it is made (`lvm`, `iscsi`) free space alone counts.
    pub storage_overcommit: Overcommit,
    /// Which memory a VM with ballooning is promised: its `maximum`, or the `minimum` that PVE leaves it when the host
    /// runs short.
    pub ballooning: Ballooning,
    /// Guests that are off and start with their host (`onboot`) are promised their size too.
    pub count_onboot: bool,
    /// Cores that guests may be promised on a host: its logical CPUs times this. Default: as many as they like, for guests
    /// share them. No machine ever gets more cores than its host has CPUs: PVE does not start such a VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_overcommit: Option<Overcommit>,
    /// A host gets no machine that would leave it with fewer idle CPUs, by what is in use now; machines that are being made
    /// count in full. Default: no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_cores: Option<Cpu>,
    /// A host gets no machine that would leave it with less free memory, by what is in use now; machines that are being made
    /// count in full. Default: no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_memory: Option<Size>,
    /// A storage gets no machine's disk that would leave it with less free: a size, or a percentage of the storage. Disks that are
    /// being made count in full, and on storages where disks grow what they may all come to (`storage_overcommit`) ends as much
    /// earlier. A storage whose size PVE does not tell gets none. Default: no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_storage: Option<FreeSpace>,
    /// A host of whose CPUs a larger part is in use, on average over the last five minutes, gets no machine; one that does not
    /// tell gets none either. 1 is no bound. Default: no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_load: Option<Ratio>,
    /// A host of whose memory a larger part is in use, on average over the last five minutes and whatever its guests are promised,
    /// gets no machine; one that does not tell gets none either. 1 is no bound. Default: no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory_load: Option<Ratio>,
    /// A host on which something waits for a CPU, for memory or for a disk during a larger part of the time (`some` of the
    /// kernel's PSI, each by itself, on average over the last five minutes) gets no machine. PVE 9 and later tell; below that no
    /// machine is made while this is set. 1 is no bound. Default: no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pressure: Option<Ratio>,
    /// What a machine costs here, times the price of its instance type. Of several regions a pool takes the cheapest. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_factor: Option<Overcommit>,
    /// Added to the `weight` of pools here: of its regions a pool takes the heaviest that can, before the price counts.
    pub weight: i32,
    /// How often PVE is read while nothing happens.
    pub poll: Duration,
    /// Clones from or to one storage at the same time.
    pub max_clones_per_storage: u32,
    /// What the zones of its nodes (`topology.kubernetes.io/zone`) are called. `host`: after the VM's host, as the cloud
    /// controller and the CSI plugin for Proxmox do; `region.host`: such as `east.pve1`, since Kubernetes takes zones of one
    /// name for one zone whatever their region. Default: `host`, and `region.host` where the file has several regions. Nodes
    /// that are there keep the zone they have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<ZoneNamesValue>,
    /// What one of its hosts has otherwise than all: reserves and overcommit, by the host's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(default)]
    pub host: BTreeMap<String, OneHost>,
    /// What the CPUs of its hosts are to each other, by the host's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(default)]
    pub topology: BTreeMap<String, Topology>,
}

/// Linked or full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CloneKind {
    /// Shares the template's disk: made in seconds, needs a storage that can (ZFS, LVM-thin, Ceph, qcow2).
    #[default]
    Linked,
    /// Copies the template's disk.
    Full,
}

/// A VM template: cloud-init, qemu-guest-agent, a container runtime, kubelet and kubeadm installed.
/// What is not set here stays as the template has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Template {
    /// The region that the template is in. Default: the only region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The template's VMID; this, `vm_name` or `tags`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmid: Option<u32>,
    /// The template's VM name; several hosts may each have a copy of this name on local storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_name: Option<String>,
    /// PVE tags that the template has, all of these; several hosts may each have such a copy on local storage. Other
    /// VMs with these tags count only if they are templates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// `linked` shares the template's disk, `full` copies it.
    pub clone: CloneKind,
    /// The storage of a full clone, or a list of storages: a clone comes to the first of it that its host has and that has room. Default: the
    /// template's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageNames>,
    /// The disk that grows to the instance type's `disk`, such as `scsi0`. Default: found by the
    /// boot order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_disk: Option<String>,
    /// Options and limits of the disk that machines boot from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_disk_options: Option<DiskOptions>,
    /// The bridge of `net0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// The VLAN tag of `net0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,
    /// Whether `net0` passes through PVE's firewall. Default: it does where it has `security_groups`; else as the template's. The
    /// VM's rules are the template's, but for `security_groups`: PVE copies them with a clone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<bool>,
    /// Security groups of PVE's firewall that `net0` has, beside those that its template has. Machines that are there follow. An
    /// empty list takes away those that were given so before. Default: they are not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// Whether the firewall of the VM itself is switched on before a machine's first start (PVE's option `enable` of the VM; without
    /// it no rule does anything, with it PVE drops what comes in to cards with `firewall` and no rule accepts). With `false` it is as the template has it. Machines that
    /// are there stay as they are. Default: it is switched on where a card has `security_groups`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_firewall: Option<bool>,
    /// The MTU of `net0`, a `virtio` card; 1 for the bridge's. PVE starts no VM whose MTU is above its bridge's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65520))]
    pub mtu: Option<u16>,
    /// `net0`, a `virtio` card, gets as many queues as the machine has cores (64 at most).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiqueue: Option<bool>,
    /// How much `net0` sends and receives at most, in MB a second, which are 1,048,576 bytes to PVE (119 is a gigabit). Default: as the template has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub rate: Option<u32>,
    /// What `net0` looks like to the guest. Default: as the template has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic_model: Option<NicModel>,
    /// The first three bytes of its machines' MAC addresses, such as `BC:24:11`; the other three come from VMID and card, so that
    /// a VMID has the same address each time. Default: PVE chooses them, behind the prefix that its datacenter options name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_prefix: Option<String>,
    /// Further network cards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub nic: Vec<NetCard>,
    /// Further disks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub disk: Vec<FurtherDisk>,
    /// Whether PVE starts machines when their host does. Without it they stay off until the daemon starts them.
    pub onboot: bool,
    /// When PVE starts and stops them beside its other guests. Default: as the template has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,
    /// The PVE resource pool that machines are put into. Those that are there are moved to it (PVE 8.1 and newer).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<String>,
    /// The CPU model, such as `host` or `x86-64-v3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_type: Option<String>,
    /// CPU flags that machines have beside those of `cpu_type`, or do not have, as PVE writes them: `["+aes", "-pcid"]`. They need a `cpu_type`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpu_flags: Vec<String>,
    /// CPU sockets that the cores of an instance type are divided among. Default: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub sockets: Option<u32>,
    /// Whether the guest sees a NUMA node for each socket, with its part of the memory. Default: as the template has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<bool>,
    /// Options of PVE's for its machines' VMs that have no key here, by PVE's names: `rng0 = "source=/dev/urandom"`,
    /// `watchdog = "model=i6300esb,action=reset"`, `tablet = false`. Those that have a key are errors that name it, and so is what would
    /// let a guest out of its VM (`args`, `hookscript`). More: [machines](machines.md#options-of-pves). Default: as the template has them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(default)]
    pub options: BTreeMap<String, VmOptionValue>,
    /// Cloud-init's `ipconfig0`, such as `ip=dhcp` or `ip=dhcp,ip6=auto`. A fixed address such as
    /// `ip=192.0.2.10/24,gw=192.0.2.1` is one machine's: its template is that of one pool with `max = 1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipconfig: Option<String>,
    /// Public SSH keys for cloud-init's user. An empty list: none, those that the template has go. Default: the template's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_keys: Option<Vec<String>>,
    /// Cloud-init's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ci_user: Option<String>,
    /// Name servers, separated by spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nameserver: Option<String>,
    /// DNS search domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searchdomain: Option<String>,
    /// Whether cloud-init upgrades a machine's packages at its first boot, which takes minutes and may change the kubelet.
    pub ci_upgrade: bool,
    /// What cloud-init is told in place of what PVE tells it. Default: PVE's own drive, with the keys above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,
    /// What its machines are made of without a VM to clone. Default: they are cloned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<Create>,
    /// How `pve-autoscaler template build` makes it. Default: it is made by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
}

impl Default for BrokerTable {
    fn default() -> BrokerTable {
        BrokerTable {
            socket: "/run/pve-autoscaler/pve.sock".into(),
            group: "pve-autoscaler".to_owned(),
            storages: Vec::new(),
            bridges: Vec::new(),
            resource_pools: Vec::new(),
        }
    }
}

impl Default for RegionTable {
    fn default() -> RegionTable {
        RegionTable {
            channel: ChannelKind::Local,
            endpoints: Vec::new(),
            token_id: None,
            token_secret_file: None,
            ca_file: None,
            fingerprint: None,
            vmids: None,
            hosts: Vec::new(),
            exclude_hosts: Vec::new(),
            host_strategy: HostStrategyValue::Spread,
            max_per_host: None,
            host_memory_reserve: Size(2 << 30),
            host_cores_reserve: Cpu(0),
            memory_overcommit: Overcommit(1000),
            storage_overcommit: Overcommit(1000),
            ballooning: Ballooning::Maximum,
            count_onboot: true,
            cpu_overcommit: None,
            min_free_cores: None,
            min_free_memory: None,
            min_free_storage: None,
            max_cpu_load: None,
            max_memory_load: None,
            max_pressure: None,
            price_factor: None,
            weight: 0,
            poll: Duration(Span::seconds(30)),
            max_clones_per_storage: 2,
            zone: None,
            host: BTreeMap::new(),
            topology: BTreeMap::new(),
        }
    }
}
