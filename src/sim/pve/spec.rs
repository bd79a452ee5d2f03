//! What a simulated cluster looks like at the start: hosts, storages, machines, users, timings.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::bridges::{BridgeSpecs, VNetSpec};
use super::kinds::StorageKind;
use super::releases::MONITOR;
use super::tags::TagAccess;

/// One gibibyte in bytes.
pub const GIB: u64 = 1 << 30;
/// The VMID of the default template; its disks lie on shared storage.
pub const TEMPLATE: u32 = 9000;
/// The VMID of the default template whose disks lie on a host's own storage.
pub const LOCAL_TEMPLATE: u32 = 9001;

/// A simulated cluster. Every field has a default, so a file names only what differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PveSpec {
    /// The cluster's name; empty for a host that is in none.
    pub cluster: String,
    /// pve-manager's version. A cluster of Proxmox VE 8 refuses what 8 does not know.
    pub version: String,
    /// `next-id` of datacenter.cfg: lower bound (inclusive) and upper bound (exclusive).
    pub next_id: [u32; 2],
    /// The key that signs tickets, see `access`.
    pub ticket_key: String,
    /// Hosts; the API answers on the first.
    pub hosts: Vec<HostSpec>,
    /// Storages.
    pub storages: Vec<StorageSpec>,
    /// Machines that exist at the start.
    pub machines: Vec<MachineSpec>,
    /// Mappings of PCI devices: by name and host the addresses of the devices.
    pub mappings: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// The mappings of PCI devices that are marked for mediated devices (`mdev=1`).
    pub mdev_mappings: BTreeSet<String>,
    /// Devices that make mediated ones: by host and address how many of each type there can be. While one is in use for a type it makes no
    /// others.
    pub mediated: BTreeMap<String, BTreeMap<String, BTreeMap<String, u32>>>,
    /// Mappings of USB devices: by name the hosts that have one.
    pub usb_mappings: BTreeMap<String, Vec<String>>,
    /// Mappings of directories: by name the hosts that have one.
    pub dir_mappings: BTreeMap<String, Vec<String>>,
    /// Pools, by name.
    pub pools: Vec<String>,
    /// Virtual networks of the SDN.
    pub vnets: Vec<VNetSpec>,
    /// Security groups of the firewall, by name.
    pub security_groups: Vec<String>,
    /// VMs whose firewall is switched on at the start.
    pub firewall_on: Vec<u32>,
    /// `enable` of the datacenter's firewall: 0 is off, 1 is on, a point in time in Unix seconds is on for a minute. PVE is installed without
    /// it, which is off.
    pub datacenter_firewall: Option<i64>,
    /// Which tags who may give VMs.
    pub tag_access: TagAccess,
    /// Users who log in with a password. `root@pam` may do everything.
    pub users: Vec<PveUserSpec>,
    /// API tokens.
    pub tokens: Vec<TokenSpec>,
    /// What `download-url` finds: the SHA-256 of what lies there, by URL.
    pub downloads: BTreeMap<String, String>,
    /// Images to import from that lie on every host that has their storage, such as `local:import/talos.qcow2`.
    pub images: Vec<String>,
    /// What becomes of a value that is written to a key of a configuration, whatever it was: PVE writes some in its own way.
    pub makes: BTreeMap<String, String>,
    /// How long things take.
    pub timings: Timings,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// The host's name.
    pub name: String,
    /// Logical CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The host's address in the cluster network.
    pub address: String,
    /// Names of the host's bridges.
    #[serde(default = "bridges")]
    pub bridges: Vec<String>,
    /// What bridges have beside their names; one that is not here is as PVE's installer makes it.
    #[serde(default)]
    pub bridge_specs: BridgeSpecs,
    /// How many seconds its clock is ahead.
    #[serde(default)]
    pub clock_ahead: i64,
    /// How many NUMA nodes the host has.
    #[serde(default = "one")]
    pub numa_nodes: u32,
    /// The flags of its CPUs, as /proc/cpuinfo has them.
    #[serde(default = "cpu_flags")]
    pub cpu_flags: String,
    /// MiB that its kernel can make huge pages of on each NUMA node, those that it set aside at boot among them; absent: all of the
    /// node's memory.
    #[serde(default)]
    pub huge_pages: Option<u64>,
}

fn one() -> u32 {
    1
}

/// What runs `x86-64-v3` and `EPYC-Milan`, and not `x86-64-v4`.
fn cpu_flags() -> String {
    "fpu vme nx pdpe1gb lm pni pclmulqdq ssse3 fma pcid sse4_1 sse4_2 movbe popcnt aes xsave avx f16c rdrand svm abm sse4a fsgsbase \
     bmi1 avx2 smep bmi2 erms invpcid rdseed adx smap clwb sha_ni pku sse2"
        .to_owned()
}

fn bridges() -> Vec<String> {
    vec!["vmbr0".to_owned()]
}

/// A storage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageSpec {
    /// The storage's name.
    pub name: String,
    /// What kind of storage it is.
    pub kind: StorageKind,
    /// Whether all hosts see the same content; network storages and Ceph are shared in any case.
    #[serde(default)]
    pub shared: bool,
    /// Size in bytes (of each host's, when not shared).
    pub total: u64,
    /// Bytes that other things use.
    #[serde(default)]
    pub used: u64,
    /// Bytes that its file system keeps for root.
    #[serde(default)]
    pub kept: u64,
    /// Content types; PVE leaves out those that the type cannot be used for.
    pub content: String,
    /// The hosts that have it; absent: all.
    #[serde(default)]
    pub hosts: Option<Vec<String>>,
    /// Whether it is enabled and mounted.
    #[serde(default = "yes")]
    pub active: bool,
    /// Of ZFS: volumes take what is written, and not their whole size from the start.
    #[serde(default = "yes")]
    pub sparse: bool,
    /// Of ZFS, LVM, thin pools, Ceph, NFS and backup servers: the dataset (`pool`), the volume group (`vgname`), the thin pool
    /// (`thinpool`, in the volume group `pve`), the Ceph pool (`pool`), the file system of CephFS (`fs-name`), the export below `/export`
    /// or the datastore that its volumes lie in; absent: one with the storage's name.
    #[serde(default)]
    pub volumes_in: Option<String>,
    /// Where its files are on the simulator's machine, with `{host}` for the host; absent: files are not looked for.
    #[serde(default)]
    pub files: Option<String>,
}

fn yes() -> bool {
    true
}

/// A machine that exists at the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// VMID.
    pub vmid: u32,
    /// The host whose configuration directory holds it.
    pub host: String,
    /// A container (seen in the resources only) instead of a VM.
    #[serde(default)]
    pub container: bool,
    /// A template: its disks are base images.
    #[serde(default)]
    pub template: bool,
    /// Running at the start.
    #[serde(default)]
    pub running: bool,
    /// Storage of the boot disk and the cloud-init drive.
    pub storage: String,
    /// Size of the boot disk (`scsi0`) in bytes.
    pub disk: u64,
    /// Bytes of it that are written.
    #[serde(default)]
    pub disk_used: u64,
    /// Whether it has a cloud-init drive (`ide2`).
    #[serde(default)]
    pub cloudinit: bool,
    /// The pool it is in.
    #[serde(default)]
    pub pool: Option<String>,
    /// Further configuration, as in the file.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
}

/// What somebody may do where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AclSpec {
    /// Such as `/` or `/pool/k8s`; holds for everything below unless a deeper entry exists.
    pub path: String,
    /// Privileges.
    pub privileges: Vec<String>,
}

/// A user with a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PveUserSpec {
    /// Such as `root@pam`.
    pub name: String,
    /// The simulated password.
    pub password: String,
    /// Rights; `root@pam` needs none.
    #[serde(default)]
    pub acl: Vec<AclSpec>,
}

/// An API token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSpec {
    /// Such as `scaler@pve!sim`.
    pub id: String,
    /// The token's secret, which callers send behind its id.
    pub secret: String,
    /// It has rights of its own; else its user's.
    #[serde(default = "yes")]
    pub privsep: bool,
    /// Rights.
    #[serde(default)]
    pub acl: Vec<AclSpec>,
}

/// How long things take: `[least, most]` in milliseconds, drawn evenly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timings {
    /// A read.
    pub read: [u64; 2],
    /// A synchronous change.
    pub change: [u64; 2],
    /// A call that forks a task, until its UPID.
    pub fork: [u64; 2],
    /// Making a linked clone's overlay or thin snapshot, or an empty volume, with the lock held; local storage.
    pub allocate_local: [u64; 2],
    /// Making a linked clone's overlay or thin snapshot, or an empty volume, on shared storage, with the cluster-wide lock held.
    pub allocate_shared: [u64; 2],
    /// Copying one GiB in a full clone, with no other copy on that storage.
    pub copy_gib: [u64; 2],
    /// The rest of a clone: reading, writing configurations.
    pub clone: [u64; 2],
    /// Resizing a disk.
    pub resize: [u64; 2],
    /// Starting QEMU.
    pub start: [u64; 2],
    /// How long PVE waits for QEMU's start; absent: as long as it makes of the VM's configuration.
    pub start_patience: Option<u64>,
    /// How long a VM runs whose start took longer than that, before QEMU ends by itself; absent: as any other.
    pub overdue_lives: Option<u64>,
    /// Killing QEMU.
    pub stop: [u64; 2],
    /// Turning into a template.
    pub template: [u64; 2],
    /// Destroying.
    pub destroy: [u64; 2],
    /// Moving a VM to another host.
    pub migrate: [u64; 2],
    /// The guest agent's answer.
    pub agent: [u64; 2],
    /// The HA manager's turn.
    pub ha: [u64; 2],
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            read: [12, 15],
            change: [40, 100],
            fork: [40, 90],
            allocate_local: [150, 250],
            allocate_shared: [700, 900],
            copy_gib: [600, 800],
            clone: [100, 200],
            resize: [200, 300],
            start: [600, 1_200],
            start_patience: None,
            overdue_lives: None,
            stop: [400, 600],
            template: [200, 300],
            destroy: [200, 300],
            migrate: [5_000, 15_000],
            agent: [20, 60],
            ha: [2_000, 10_000],
        }
    }
}

impl Timings {
    /// Everything at once: shows what a client's own time is.
    pub fn none() -> Timings {
        Timings {
            read: [0; 2],
            change: [0; 2],
            fork: [0; 2],
            allocate_local: [0; 2],
            allocate_shared: [0; 2],
            copy_gib: [0; 2],
            clone: [0; 2],
            resize: [0; 2],
            start: [0; 2],
            start_patience: None,
            overdue_lives: None,
            stop: [0; 2],
            template: [0; 2],
            destroy: [0; 2],
            migrate: [0; 2],
            agent: [0; 2],
            ha: [0; 2],
        }
    }
}

fn host(number: u8) -> HostSpec {
    HostSpec {
        name: format!("pve{number}"),
        cpus: 32,
        memory: 128 * GIB,
        address: format!("192.0.2.{}", 10 + number),
        bridges: bridges(),
        bridge_specs: BridgeSpecs::new(),
        clock_ahead: 0,
        numa_nodes: one(),
        cpu_flags: cpu_flags(),
        huge_pages: None,
    }
}

fn template(vmid: u32, name: &str, storage: &str) -> MachineSpec {
    let smbios = format!("uuid=5fd1a1c0-0000-4000-8000-{vmid:012}");
    let config = [
        ("name", name),
        ("smbios1", &smbios),
        ("description", "built by hand\ndo not start"),
        ("cores", "2"),
        ("memory", "2048"),
        ("balloon", "1024"),
        ("agent", "1"),
        ("onboot", "1"),
        ("protection", "1"),
        ("ostype", "l26"),
        ("scsihw", "virtio-scsi-single"),
        ("boot", "order=scsi0"),
        ("serial0", "socket"),
        ("vga", "serial0"),
        ("tags", "debian;template"),
        ("ipconfig0", "ip=dhcp"),
        ("ciuser", "debian"),
    ];
    MachineSpec {
        vmid,
        host: "pve1".to_owned(),
        container: false,
        template: true,
        running: false,
        storage: storage.to_owned(),
        disk: 8 * GIB,
        disk_used: 2 * GIB,
        cloudinit: true,
        pool: None,
        config: config
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    }
}

fn foreign(vmid: u32, name: &str, container: bool) -> MachineSpec {
    let config = [
        ("name", name),
        ("cores", "2"),
        ("memory", "2048"),
        ("ostype", "l26"),
    ];
    MachineSpec {
        vmid,
        host: "pve1".to_owned(),
        container,
        template: false,
        running: true,
        storage: "local-lvm".to_owned(),
        disk: 8 * GIB,
        disk_used: 3 * GIB,
        cloudinit: false,
        pool: None,
        config: config
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    }
}

/// The privileges found sufficient for the autoscaler, on `/`; of those for the guest agent a release of PVE counts its own.
fn scaler() -> Vec<AclSpec> {
    let privileges = [
        "VM.Clone",
        "VM.Allocate",
        "VM.Audit",
        "VM.PowerMgmt",
        "VM.Config.CPU",
        "VM.Config.Memory",
        "VM.Config.Disk",
        "VM.Config.Network",
        "VM.Config.Options",
        "VM.Config.Cloudinit",
        "VM.Config.HWType",
        "VM.Migrate",
        "VM.GuestAgent.Audit",
        "VM.GuestAgent.Unrestricted",
        MONITOR,
        "Pool.Audit",
        "Datastore.AllocateSpace",
        "Datastore.Audit",
        "SDN.Use",
        "Sys.Audit",
    ];
    vec![AclSpec {
        path: "/".to_owned(),
        privileges: privileges.map(str::to_owned).into(),
    }]
}

/// A storage of which a twentieth is used.
fn storage(name: &str, kind: StorageKind, shared: bool, total: u64, content: &str) -> StorageSpec {
    StorageSpec {
        name: name.to_owned(),
        kind,
        shared,
        total,
        used: total / 20,
        // As ext4 does.
        kept: if kind == StorageKind::Dir {
            total / 20
        } else {
            0
        },
        content: content.to_owned(),
        hosts: None,
        active: true,
        sparse: true,
        volumes_in: None,
        files: None,
    }
}

impl Default for PveSpec {
    fn default() -> PveSpec {
        PveSpec {
            cluster: "sim".to_owned(),
            version: "9.2.11".to_owned(),
            next_id: [100, 1_000_000],
            ticket_key: "simulated".to_owned(),
            hosts: (1..=3).map(host).collect(),
            storages: vec![
                storage(
                    "local",
                    StorageKind::Dir,
                    false,
                    100 * GIB,
                    "backup,iso,snippets,vztmpl",
                ),
                storage(
                    "local-lvm",
                    StorageKind::LvmThin,
                    false,
                    800 * GIB,
                    "images,rootdir",
                ),
                storage("shared", StorageKind::Nfs, true, 4_000 * GIB, "images"),
            ],
            machines: vec![
                foreign(100, "router", false),
                foreign(101, "dns", true),
                template(TEMPLATE, "debian-13-k8s", "shared"),
                template(LOCAL_TEMPLATE, "debian-13-k8s-local", "local-lvm"),
            ],
            mappings: BTreeMap::new(),
            mdev_mappings: BTreeSet::new(),
            mediated: BTreeMap::new(),
            usb_mappings: BTreeMap::new(),
            dir_mappings: BTreeMap::new(),
            pools: vec!["k8s".to_owned()],
            vnets: Vec::new(),
            security_groups: Vec::new(),
            firewall_on: Vec::new(),
            datacenter_firewall: None,
            tag_access: TagAccess::default(),
            users: vec![PveUserSpec {
                name: "root@pam".to_owned(),
                password: "simulated".to_owned(),
                acl: Vec::new(),
            }],
            tokens: vec![
                TokenSpec {
                    id: "scaler@pve!sim".to_owned(),
                    secret: "00000000-0000-4000-8000-000000000001".to_owned(),
                    privsep: true,
                    acl: scaler(),
                },
                TokenSpec {
                    id: "root@pam!sim".to_owned(),
                    secret: "00000000-0000-4000-8000-000000000002".to_owned(),
                    privsep: true,
                    acl: scaler(),
                },
            ],
            downloads: BTreeMap::new(),
            images: Vec::new(),
            makes: BTreeMap::new(),
            timings: Timings::default(),
        }
    }
}
