//! PVE's words, and what to do: the table behind `docs/operations.md`, "What PVE says, and what to do".
//!
//! Each row names the file of PVE 9.2 that writes the words (qemu-server 9.2.6, pve-common 9.2.1, pve-storage 9.1.7, pve-manager
//! 9.2.11, pve-cluster 9.1.6, pve-access-control 9.1.1), or the program that PVE passes on. Where two rows fit, the first counts: special
//! words stand before those that they have in them, and `general` is last. `texts.txt` has texts as PVE writes them, each with what it gets.

mod cluster;
mod general;
mod hardware;
mod images;
mod network;
mod storages;

/// PVE's words, and what to do about them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The words, with gaps.
    pub(super) says: &'static str,
    /// One sentence, with gaps that the words or the context fill.
    pub(super) todo: &'static str,
    /// The words say that something went wrong, and not what: the task's log may say more.
    pub(super) vague: bool,
    /// The words stand in a task's log, and mean the same there.
    pub(super) in_logs: bool,
}

/// Words of an answer, or of a task's last line.
const fn say(says: &'static str, todo: &'static str) -> Rule {
    Rule {
        says,
        todo,
        vague: false,
        in_logs: false,
    }
}

/// Words that count in a task's log, too.
const fn log(says: &'static str, todo: &'static str) -> Rule {
    Rule {
        in_logs: true,
        ..say(says, todo)
    }
}

/// Words that say little.
const fn vague(says: &'static str, todo: &'static str) -> Rule {
    Rule {
        vague: true,
        ..say(says, todo)
    }
}

const SPACE: &str = "free space on {storage} of {host} (`pvesm status` shows how full it is, `pvesm list {storage}` what lies there), or have machines made on another one (`storage` in {template_table})";
const WATCHED: &str = "a client has the image open, or crashed less than a minute ago: `rbd status POOL/IMAGE` names its address; end it there (a QEMU that was left, `rbd showmapped`), and where the VM is gone already `pvesm free VOLUME` removes the disk (`pvesm list {storage} --vmid {vmid}`)";
const LEFT: &str = "a disk of an earlier VM is left: `pvesm list {storage}` on {host} shows it, and where `qm list` has no VM of that number, `pvesm free VOLUME` removes it";
const QUORUM: &str = "`pvecm status` on a host says who is missing: bring those hosts or their network back; it goes on by itself once the cluster is quorate";
const DEVICE: &str = "stop VM {vmid} or take the device from it, or add devices to the mapping (Datacenter, Resource Mappings)";
const CPU_TYPE: &str = "set `cpu_type` in {template_table} to one that `pvesh get /nodes/{host}/capabilities/qemu/cpu` lists, or define it on the cluster (/etc/pve/virtual-guest/cpu-models.conf)";
const LOCKED: &str = "it ends with the task that holds it; where `pvenode task list --source active --vmid {vmid}` on {host} shows none, `qm unlock {vmid}` there takes the lock away";
const VMIDS: &str = "give the region `vmids` that nobody else uses: another VM has that number";
const CONTENT: &str = "add {content} to the content of {storage} (Datacenter, Storage), or name another storage in {template_table}";
const FIRMWARE: &str =
    "reinstall the firmware on {host}: `apt install --reinstall pve-edk2-firmware-ovmf`";
const PAGES: &str = "set more huge pages aside on {host} when it boots (`hugepages=` on the kernel's command line; memory that is in use is too scattered later), say in `numa_memory` of its topology how much that is, so that no more machines are planned there, or take `hugepages` from {pool_table}";
const HUGE: &str = "take `hugepages` from {pool_table} and from the template's VM, or leave {host} out (`exclude_hosts`)";
const OLD: &str =
    "update {host}, or let `qm config` of the template have a `machine` without a version";
const LOG: &str = "the task's log says why: `pvenode task list --vmid {vmid} --errors` on {host} finds it, `pvenode task log UPID` shows it";
const VLAN_AWARE: &str = "let the bridge on {host} be VLAN-aware (its panel, System, Network), or take `vlan` from {template_table}";
const WHOLE: &str = "give the pool instance types whose `memory` is a multiple of the huge page, or smaller `hugepages` in {pool_table}";
const NUMA: &str =
    "give `numa0` and its like of the template's VM a `policy` (`qm set`), or take them away";
const LOCKS: &str = "others hold the lock of {storage} for long: let less be made on it at a time (`max_clones_per_storage` of the region), and see whether it answers (`pvesm status`)";
const BRIDGE: &str = "make {bridge} on {host} (its panel, System, Network), or set `bridge` in {template_table} to one that {host} has, or leave {host} out (`exclude_hosts`)";
const IOMMU: &str = "switch the IOMMU on, in the firmware of {host} and on its kernel's command line (`intel_iommu=on` on Intel), or leave it out (`exclude_hosts`)";
const GONE_DEVICE: &str = "the device is not in {host} any more (`lspci`): edit the mapping (Datacenter, Resource Mappings)";
const BUSY: &str = "a process on {host} has the disk open: `fuser -v` on its /dev/zvol/ path and `lsblk` there show it (a backup, LVM or partitions of the guest that the host has taken up); end it, and where the VM is gone already `pvesm free VOLUME` removes the disk (`pvesm list {storage} --vmid {vmid}`)";

/// What each status of PVE's proxy means, where its words do not tell.
pub(super) const STATUSES: &[(u16, &str)] = &[
    // pve-http-server src/PVE/APIServer/AnyEvent.pm, `proxy_request`: codes of AnyEvent::HTTP.
    (
        595,
        "the PVE host that was asked does not reach {host}: see whether that runs (`pvecm status`), and on it `systemctl status pveproxy pvedaemon`",
    ),
    (
        596,
        "{host} did not answer within 30 seconds, or broke off: see how busy it is, and on it `systemctl status pveproxy pvedaemon`",
    ),
    (
        599,
        "{host} gave no answer that can be read: on it `systemctl status pveproxy pvedaemon`",
    ),
];

/// All rows, in the order in which they are looked for.
pub(super) fn all() -> impl Iterator<Item = &'static Rule> {
    let special = [
        cluster::RULES,
        network::RULES,
        hardware::RULES,
        storages::RULES,
        images::RULES,
    ];
    let parts = special.into_iter().chain([RULES, general::RULES]);
    parts.flatten()
}

/// The rows that are in no part of their own.
const RULES: &[Rule] = &[
    // The whole cluster.
    // pve-cluster src/PVE/Cluster.pm, `check_cfs_quorum` and `cfs_lock`; pve-common src/PVE/File.pm under /etc/pve.
    say("cluster not ready - no quorum", QUORUM),
    say("error: no quorum!", QUORUM),
    say(
        "unable to open file '/etc/pve/{*}' - Permission denied",
        QUORUM,
    ),
    // pve-cluster src/PVE/Cluster.pm, `check_node_exists`.
    say(
        "no such cluster node '{host}'",
        "`pvecm nodes` shows the hosts there are: correct `hosts` in the file, and take a host that is gone from it",
    ),
    // pve-common src/PVE/Network.pm, `get_ip_from_hostname` and its callers.
    say(
        "hostname lookup '{host}' failed",
        "no host of the cluster knows {host}: `pvecm nodes` shows the names there are, and /etc/hosts on them must have each",
    ),
    // pve-http-server src/PVE/APIServer/AnyEvent.pm; pve-common src/PVE/JSONSchema.pm.
    say(
        "Method '{*}' not implemented",
        "PVE on {host} does not know this call: it is too old (`pveversion`)",
    ),
    say(
        "property is not defined in schema",
        "PVE on {host} does not know this setting: update it (`pveversion`), or take the setting from the file",
    ),
    // Privileges.
    // pve-access-control src/PVE/RPCEnvironment.pm, `check_pool_exist`; pve-common src/PVE/Exception.pm.
    say(
        "Permission check failed (pool '{resource_pool}' does not exist)",
        "make the resource pool (`pvesh create /pools --poolid {resource_pool}`), or correct `resource_pool` in {template_table}",
    ),
    // pve-guest-common src/PVE/GuestHelpers.pm, `assert_tag_permissions`.
    say(
        "Permission check failed (/, Sys.Modify for modifying tag '{tag}')",
        "the datacenter's options keep the tag {tag} from the API token (`registered-tags`, `user-tag-access`; `pve-autoscaler doctor` says what to type): let all use it, or take it from `tags` in {pool_table}; a tag of the template's VM that the pool does not name is taken from its machines, and counts as well",
    ),
    say(
        "Permission check failed (/vms/{vmid}, {privileges})",
        "give the API token a role with {privileges} on the machine's resource pool (`pveum acl modify /pool/POOL --tokens TOKEN --roles ROLE`, and the same for its user with `--users`), or on /vms where it has none: a right on /vms/{vmid} itself goes with that VM, so that it is of use for a template's alone; `pve-autoscaler doctor` says what is missing where",
    ),
    say(
        "Permission check failed ({path}, {privileges})",
        "give the API token a role with {privileges} on {path} (`pveum acl modify {path} --tokens TOKEN --roles ROLE`, and the same for its user with `--users`); docs/operations.md#without-the-broker-rights-of-an-api-token lists all that it needs",
    ),
    say(
        "Permission check failed",
        "give the API token and its user the privilege; docs/operations.md#without-the-broker-rights-of-an-api-token lists all, and `pve-autoscaler doctor` says which are missing",
    ),
    // pve-manager PVE/API2/Pool.pm, PVE/API2Tools.pm.
    say(
        "pool '{resource_pool}' does not exist",
        "make the resource pool (`pvesh create /pools --poolid {resource_pool}`), or correct `resource_pool` in {template_table}",
    ),
    say(
        "belongs already to pool '{resource_pool}' and 'allow-move' is not set",
        "take the VM out of its resource pool (`pvesh set /pools/{resource_pool} --vms {vmid} --delete 1`), or name that one as `resource_pool` in {template_table}",
    ),
    // qemu-server src/PVE/API2/Qemu.pm, `check_vm_modify_config_perm` and its neighbours.
    say(
        "only root can set '{option}' config",
        "an API token may not set {option}: let the daemon reach this region through the broker (`channel = \"local\"`, on a host of it), or do without",
    ),
    say(
        "only root can modify '{option}' config",
        "an API token may not set {option}: let the daemon reach this region through the broker (`channel = \"local\"`, on a host of it), or do without",
    ),
    // Locks.
    // pve-guest-common src/PVE/AbstractConfig.pm, `check_lock`.
    say("VM is locked (backup)", LOCKED),
    say("VM is locked (migrate)", LOCKED),
    say("VM is locked (snapshot)", LOCKED),
    say("VM is locked (snapshot-delete)", LOCKED),
    say("VM is locked (rollback)", LOCKED),
    say("VM is locked (suspending)", LOCKED),
    // pve-common src/PVE/Tools.pm, `lock_file_full`.
    say(
        "can't lock file '/var/lock/qemu-server/lock-{vmid}.conf'",
        "another task works on VM {vmid} (`pvenode task list --source active --vmid {vmid}` on {host} shows it): it goes on when that has ended",
    ),
    // pve-cluster src/PVE/Cluster.pm, `cfs_lock`.
    say("cfs-lock 'storage-{storage}' error", LOCKS),
    // VMIDs.
    // qemu-server src/PVE/API2/Qemu.pm, `clone_vm` and `create_vm`; pve-common src/PVE/File.pm, the rename under /etc/pve.
    say("config file already exists", VMIDS),
    say("VM {vmid} already exists", VMIDS),
    say(
        "close (rename) atomic file '/etc/pve/nodes/{*}' failed: File exists",
        VMIDS,
    ),
    // The network.
    // pve-common src/PVE/Network.pm, `read_bridge_mtu`.
    say("bridge '{bridge}' does not exist", BRIDGE),
    // pve-common src/PVE/Network.pm, `tap_plug`, and pve-network src/PVE/Network/SDN/Vnets.pm.
    log(
        "vm vlans are not allowed on vnet {bridge}",
        "take `vlan` from {template_table}, or let the VNet {bridge} be VLAN-aware (Datacenter, SDN, VNets)",
    ),
    log(
        "no physical interface on bridge '{bridge}'",
        "let {bridge} on {host} be VLAN-aware or give it a port (its panel, System, Network), or take `vlan` from {template_table}",
    ),
    log("the interface name {*} is too long", VLAN_AWARE),
    log("interface {*} already exist in bridge {bridge}", VLAN_AWARE),
    // qemu-server src/PVE/QemuServer.pm, `print_netdevice_full`.
    say(
        "MTU '{*}' is bigger than the bridge MTU '{number}'",
        "set `mtu` in {template_table} to {number} at most, or give the bridge on {host} a larger MTU",
    ),
    say(
        "MTU '{*}' is smaller than the IP minimum MTU '{number}'",
        "set `mtu` in {template_table} to {number} at least",
    ),
    // pve-firewall src/PVE/Firewall.pm, `generate_group_rules` and `verify_rule`.
    say(
        "no such security group '{group}'",
        "make the security group (Datacenter, Firewall, Security Group), or take {group} from `security_groups` in {template_table}",
    ),
    // CPUs and memory.
    // qemu-server src/PVE/QemuServer.pm, `config_to_command`.
    say(
        "MAX {number} vcpus allowed per VM on this node",
        "give the pool instance types of at most {number} `cores`, or leave {host} out (`exclude_hosts` in {pool_table})",
    ),
    say(
        "KVM virtualisation configured, but not available",
        "switch virtualisation on in the firmware of {host} (VT-x or AMD-V; nested, where it is a VM itself), or leave it out (`exclude_hosts`)",
    ),
    say(
        "is too old to run machine type '{*}', please upgrade node '{host}'",
        OLD,
    ),
    // qemu-server src/PVE/QemuServer/CPUConfig.pm.
    say("Built-in cputype '{cputype}' is not defined", CPU_TYPE),
    say("Custom cputype '{cputype}' not found", CPU_TYPE),
    say("CPU model '{cputype}' does not exist", CPU_TYPE),
    say(
        "VM-specific CPU flags must be a subset of",
        "take from `cpu_flags` in {template_table} what PVE's words do not list",
    ),
    // QEMU, with `enforce`.
    log(
        "Host doesn't support requested features",
        "set `cpu_type` in {template_table} to one that the CPU of every host has (`pve-autoscaler doctor` names one), or leave {host} out (`exclude_hosts`)",
    ),
    // qemu-server src/PVE/QemuServer/Memory.pm.
    say(
        "host NUMA node{number} doesn't exist",
        "correct the region's topology table of {host} by what `pve-autoscaler host-topology` prints there, or `numa0` and its like of the template's VM (`qm config`)",
    ),
    say(
        "total memory for NUMA nodes must be equal to vm static memory",
        "take `numa0` and its like from the template's VM (`qm set VMID --delete numa0`): machines have other memory than it",
    ),
    say(
        "numa needs to be enabled to use hugepages",
        "set `numa = true` in {template_table}, or take the huge pages away (`hugepages` in {pool_table} or of the template's VM)",
    ),
    say(
        "missing NUMA node{number} memory value",
        "give `numa{number}` of the template's VM a `memory`, or take it away (`qm set VMID --delete numa{number}`)",
    ),
    say("you need to define a policy for hostnode", NUMA),
    say("numa hostnodes need to be defined to use hugepages", NUMA),
    say(
        "more than 1 hostnode value in numa node is not supported when hugepages are enabled",
        "give each of `numa0` and its like of the template's VM one node of the host in `hostnodes`, or take them away (`qm set`)",
    ),
    say("hugepage allocation failed", PAGES),
    // QEMU, when the pages are gone that PVE found.
    log("unable to map backing store for guest RAM", PAGES),
    say("your system doesn't support hugepages", HUGE),
    say("host only supports 1024 GB hugepages", HUGE),
    say("is not a multiple of the requested hugepages size", WHOLE),
    say(
        "is not a positive even integer; cannot use for hugepages",
        WHOLE,
    ),
    // QEMU, when the host has no memory left.
    log(
        "cannot set up guest memory '{*}': Cannot allocate memory",
        "free memory on {host}, or let the region plan with less of it (`host_memory_reserve`, `memory_overcommit`)",
    ),
    // pve-common src/PVE/JSONSchema.pm, format `pve-cpuset`.
    say(
        "unable to parse cpuset option",
        "correct the CPUs in the region's topology table by what `pve-autoscaler host-topology` prints on {host}, or `affinity` of the template's VM",
    ),
    // PCI devices.
    // qemu-server src/PVE/QemuServer/PCI.pm.
    say("PCI device '{*}' already in use by VMID '{vmid}'", DEVICE),
    say(
        "PCI device '{*}' already in use by running VMID '{vmid}'",
        DEVICE,
    ),
    say(
        "PCI device '{*}' is currently reserved for use by VMID '{vmid}'",
        DEVICE,
    ),
    say(
        "could not find a free device for '{option}'",
        "every device of the mapping is in use on {host}: add devices to it (Datacenter, Resource Mappings), or let fewer machines be made there (`max_per_host` in {pool_table})",
    ),
    say(
        "PCI device mapping not found for '{mapping}'",
        "map the device on {host} (Datacenter, Resource Mappings), correct `pci` of the instance type, or leave {host} out (`exclude_hosts`)",
    ),
    say(
        "PCI device mapping invalid",
        "edit the mapping for {host} (Datacenter, Resource Mappings): the device there is another than was mapped",
    ),
    say("no PCI device found for '{*}'", GONE_DEVICE),
    say(
        "q35 machine model is not enabled",
        "make the template a q35 machine (`machine = \"q35\"` where it is built or created; `qm set VMID --machine q35` on it), or take `pcie=1` from `pci` of the instance type",
    ),
    say("cannot prepare PCI pass-through, IOMMU not present", IOMMU),
    say(
        "device '{*}' assigned more than once",
        "correct `pci` of the instance type: it names one device twice",
    ),
    // Storages.
    // pve-storage src/PVE/Storage.pm, `storage_config`, `storage_check_enabled` and `activate_storage`.
    say(
        "storage '{storage}' does not exist",
        "`pvesm status` shows the storages there are: correct the name in {template_table}",
    ),
    say(
        "storage '{storage}' is not available on node '{host}'",
        "add {host} to the hosts of {storage} (Datacenter, Storage), or leave it out (`exclude_hosts`)",
    ),
    say(
        "storage '{storage}' is disabled",
        "switch it on (`pvesm set {storage} --disable 0`), or name another storage in {template_table}",
    ),
    say(
        "storage '{storage}' is not online",
        "see to the server behind {storage}, and from {host} to the way there (`pvesm status`)",
    ),
    say(
        "connection check for storage '{storage}' failed",
        "see to the server behind {storage}, and from {host} to the way there (`pvesm status`)",
    ),
    say(
        "could not activate storage '{storage}'",
        "`zpool status` on {host}: the pool behind {storage} is not imported, or lacks a device",
    ),
    say(
        "unable to activate storage '{storage}'",
        "mount what {storage} lies on, on {host} (`findmnt`, `pvesm status`)",
    ),
    say(
        "no such volume group",
        "`vgs` on {host} shows the volume groups there are: let the storage be offered only where its own is (Datacenter, Storage, Nodes)",
    ),
    // qemu-server src/PVE/API2/Qemu.pm and QemuServer.pm; pve-storage src/PVE/API2/Storage/Status.pm.
    say(
        "storage '{storage}' does not support vm images",
        "add `images` to the content of {storage} (Datacenter, Storage), or name another storage in {template_table}",
    ),
    say(
        "storage '{storage}' does not support content-type '{content}'",
        CONTENT,
    ),
    say(
        "storage '{storage}' is not configured for content-type '{content}'",
        CONTENT,
    ),
    say(
        "storage '{storage}' does not support '{content}' content",
        CONTENT,
    ),
    say(
        "content type '{content}' is not available on storage '{storage}'",
        CONTENT,
    ),
    // pve-storage src/PVE/API2/Storage/Status.pm and Storage.pm.
    say(
        "can't upload to storage type '{*}'",
        "name a storage of files (a directory, BTRFS, NFS, CIFS, CephFS) as `storage` of cloud_init in {template_table}",
    ),
    // pve-storage src/PVE/Storage/ISCSIPlugin.pm
    log(
        "can't allocate space in iscsi storage",
        "name another storage in {template_table}: on iSCSI there are the LUNs of its target, and PVE makes none",
    ),
    say(
        "Only root can pass arbitrary filesystem paths",
        "write the volume in {template_table} as STORAGE:PATH: a path to a file is for root alone",
    ),
    // qemu-img, pve-storage's own words, `lvcreate` and `zfs`.
    log("No space left on device", SPACE),
    log("zfs error: cannot create '{*}': out of space", SPACE),
    log(
        "zfs error: cannot create snapshot '{*}': out of space",
        SPACE,
    ),
    log("size is greater than available space", SPACE),
    log("not enough free space (", SPACE),
    log("has insufficient free space", SPACE),
    log(
        "Cannot create new thin volume, free space in thin pool",
        SPACE,
    ),
    // pve-storage src/PVE/Storage/Plugin.pm; qemu-server src/PVE/QemuServer/Cloudinit.pm at a start.
    say(
        "volume '{storage}:snippets/{*}' does not exist",
        "put that file into the folder `snippets` of {storage} on {host}: PVE brings it to no other host",
    ),
    say(
        "volume '{storage}:iso/{*}' does not exist",
        "put that ISO on {storage} of {host}, or name another in {template_table}",
    ),
    say(
        "volume '{storage}:{*}' does not exist",
        "a disk of the template or of the machine is gone from {storage} (`pvesm list {storage}` on {host}): build the template anew (`pve-autoscaler template build`) if it is the template's",
    ),
    say(
        "unable to parse volume ID",
        "correct the volume in {template_table} (`volume`, `image`, `iso`): it is written STORAGE:PATH, as `pvesm list STORAGE` shows it",
    ),
    // pve-storage src/PVE/Storage/Plugin.pm, LvmThinPlugin.pm (`lvcreate`), ZFSPoolPlugin.pm (`zfs`), RBDPlugin.pm (`rbd`).
    say("disk image '{*}' already exists", LEFT),
    say(
        "lvcreate '{*}' error: {*} already exists in volume group",
        LEFT,
    ),
    say(
        "zfs error: cannot create '{*}': dataset already exists",
        LEFT,
    ),
    say("rbd create '{*}' error: {*} File exists", LEFT),
    // pve-storage src/PVE/Storage/ZFSPoolPlugin.pm, `zfs_delete_zvol`, after six tries; RBDPlugin.pm, `free_image`: the last line of `rbd rm`,
    // which writes both. A destroyed VM's disk that stays is a warning of the task (qemu-server src/PVE/QemuServer.pm, `destroy_vm`).
    log("zfs error: cannot destroy '{*}': dataset is busy", BUSY),
    log("rbd: error: image still has watchers", WATCHED),
    log(
        "This means the image is still open or the client using it crashed",
        WATCHED,
    ),
    // Clones.
    // qemu-server src/PVE/API2/Qemu.pm, `clone_vm`.
    say(
        "parameter '{option}' not allowed for linked clones",
        "set `clone = \"full\"` in {template_table}, or take `{option}` from it",
    ),
    say(
        "Linked clone feature is not supported for",
        "set `clone = \"full\"` in {template_table}, or have the template on a storage that makes linked clones (ZFS, LVM-thin, Ceph RBD, BTRFS, files in a directory)",
    ),
    say(
        "Full clone feature is not supported for",
        "the storage cannot copy that disk of the template: move the disk to another storage (`qm disk move`)",
    ),
    say(
        "can't clone VM to node '{host}' (VM uses local storage)",
        "have a copy of the template on {host} (`pve-autoscaler template build` makes one per host), or all its disks, the cloud-init drive too, on shared storage",
    ),
    say(
        "can't clone to non-shared storage '{storage}'",
        "name a shared storage as `storage` in {template_table}, or have a copy of the template on each host",
    ),
    say(
        "is still in use by linked clone",
        "the template goes when the machines are gone that were made of it: `qm list` on its host",
    ),
    // VMs and templates.
    // qemu-server src/PVE/API2/Qemu.pm and QemuServer.pm.
    say(
        "shrinking disks is not supported",
        "give the instance types of the pool a `disk` that is at least as large as the template's",
    ),
    say(
        "disk '{disk}' does not exist",
        "set `boot_disk` in {template_table} to a disk that the template's VM has (`qm config`)",
    ),
    say(
        "you can't resize a cdrom",
        "set `boot_disk` in {template_table} to a disk that the template's VM has (`qm config`): it names a CD drive",
    ),
    say(
        "can't remove VM {vmid} - protection mode enabled",
        "`qm set {vmid} --protection 0` on {host}, if it is to go",
    ),
    say(
        "used in HA resources",
        "`ha-manager remove vm:{vmid}`: machines of pve-autoscaler do not belong to the HA manager",
    ),
    // pve-common src/PVE/Systemd.pm, `systemd_call`, by way of `vm_start_nolock`, which waits 20 s for the scope to be gone.
    say(
        "timeout waiting on systemd",
        "an earlier QEMU of VM {vmid} has not ended on {host}: `systemctl status {vmid}.scope` there shows it, and it mostly waits for a storage that does not answer (`pvesm status`); the VM starts once that is gone",
    ),
    say(
        "VM is paused - cannot shutdown",
        "`qm resume {vmid}` on {host}",
    ),
    say(
        "VM quit/powerdown failed",
        "the guest did not shut down in time: `shutdown_timeout` in [pool.NAME.drain] gives it longer, and then it is stopped",
    ),
    say(
        "No cloudinit drive found",
        "give the template's VM a cloud-init drive (`qm set VMID --ide2 STORAGE:cloudinit`)",
    ),
    say(
        "Cloud-Init sum of snippets too big",
        "shorten `user_data` and `vendor_data` in {template_table}: they may have 3 MiB together",
    ),
    say(
        "SSH public key validation error",
        "correct `ssh_keys` in {template_table}: `ssh-keygen -l -f FILE` says of each line whether it is a public key",
    ),
    say(
        "tags: invalid format",
        "correct `tags` in {pool_table}: letters, digits and `_-+.` alone",
    ),
    say(
        "ipconfig0: invalid format",
        "correct `ipconfig` in {template_table}, or the addresses of the pool's `network`",
    ),
    // qemu-server src/PVE/QemuServer/OVMF.pm, and QemuServer.pm, `start_swtpm`.
    say("EFI base image '{*}' not found", FIRMWARE),
    say("EFI vars image '{*}' not found", FIRMWARE),
    say(
        "efidisk format must be specified",
        "make the EFI disk of the template's VM anew (`qm set VMID --efidisk0 STORAGE:1,efitype=4m`)",
    ),
    say(
        "failed to start swtpm",
        "see on {host} whether swtpm is whole (`apt install --reinstall swtpm swtpm-tools`)",
    ),
    // qemu-server src/PVE/QemuServer/Agent.pm.
    say(
        "QEMU guest agent is not running",
        "the template needs qemu-guest-agent, installed and enabled in the guest; `pve-autoscaler template try` shows whether it answers",
    ),
    say(
        "No QEMU guest agent configured",
        "switch the agent on in the template's VM: `qm set VMID --agent enabled=1`",
    ),
    // qemu-ga, by way of PVE/QemuServer/Agent.pm.
    say(
        "Agent error: {*} has been disabled",
        "let the guest's agent run commands: `guest-exec` must not be in BLOCK_RPCS, or must be in allow-rpcs, of its configuration in the template",
    ),
];
