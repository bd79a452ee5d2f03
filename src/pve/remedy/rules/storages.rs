//! Storages: what they lie on, and the way to it.

use super::{BUSY, Rule, SPACE, log, say};

const ZPOOL: &str = "`zpool list` and `zfs list` on {host} show what there is: import the pool that {storage} lies on (`zpool import`), correct its name (Datacenter, Storage), or offer the storage only on the hosts that have it (Nodes)";
const LV: &str = "`lvs -a` on {host} shows what state the volume and its thin pool are in, and `vgchange -ay` says what is in the way of {storage}";
const THIN: &str = "the thin pool of {storage} is damaged: on {host} stop what uses it and run `lvconvert --repair VG/POOL` (`man lvmthin`, Metadata check and repair), or leave {host} out (`exclude_hosts`) until then";
const VG: &str = "`vgs` on {host} shows the volume groups there are: let the storage be offered only where its own is (Datacenter, Storage, Nodes)";
const CEPH: &str = "{host} does not reach the Ceph cluster of {storage}: `ceph -s` there says so of PVE's own (`systemctl status ceph.target`); for another cluster see `monhost` of the storage, the way to its monitors and the keyring in /etc/pve/priv/ceph";
const CREDENTIALS: &str = "the server of {storage} does not take the user or the password: `pvesm set {storage} --username USER --password` asks for another";
const MOUNT: &str = "{host} cannot mount {storage}: see to its server and the way there (`pvesm status`; `showmount -e SERVER`, for CIFS `pvesm scan cifs SERVER`), and `journalctl -k` on {host}";
const PORTAL: &str = "{host} does not reach the iSCSI target of {storage}, or is not let in: see to its portal and the way there (`pvesm scan iscsi PORTAL`; `iscsiadm -m session` on {host})";
const LUN: &str = "{host} does not see that LUN: `iscsiadm -m session -P 3` and `lsblk` there show which it sees; let the target offer it to {host}, and `iscsiadm -m session --rescan`";
const HANGS: &str = "`zpool status` and `zpool iostat -v 5 2` on {host} show whether the pool of {storage} is well and how busy it is: a device that fails or a scrub may hold it up";
const OPEN: &str = "another process has that disk open: `fuser -v PATH` on {host} shows it (a QEMU that was left, a backup, a qemu-img); on a shared storage it may be on another host";

/// The rows.
pub(super) const RULES: &[Rule] = &[
    // ZFS: pve-storage src/PVE/Storage/ZFSPoolPlugin.pm, and what `zfs` and `zpool` say.
    log(
        "timeout: no zvol device link for '{*}' found",
        "udev on {host} is behind with the links in /dev/zvol: `udevadm settle` there waits for them, `udevadm trigger --subsystem-match=block` makes them anew; where it comes again, see how busy {host} is (`zpool iostat -v 5 2`)",
    ),
    log(
        "pool I/O is currently suspended",
        "a device of the pool of {storage} is gone: `zpool status` on {host} names it, and `zpool clear POOL` lets the pool go on once the device is back",
    ),
    log(
        "zfs error: cannot open '{*}': dataset does not exist",
        ZPOOL,
    ),
    log("zfs error: cannot open '{*}': no such pool", ZPOOL),
    log(
        "zfs error: cannot import '{*}': no such pool available",
        ZPOOL,
    ),
    log("zfs error: cannot create '{*}': no such pool", ZPOOL),
    log(
        "zfs error: cannot create '{*}': parent does not exist",
        ZPOOL,
    ),
    log(
        "The ZFS modules are not loaded",
        "`modprobe zfs` on {host} says why not: a kernel that is none of PVE's, or one that was removed by an update since {host} booted (`uname -r`)",
    ),
    say("command 'zfs {*}' failed: got timeout", HANGS),
    say("command 'zpool {*}' failed: got timeout", HANGS),
    // LVM: pve-storage src/PVE/Storage/LVMPlugin.pm and LvmThinPlugin.pm, and what LVM says.
    log("Manual repair required!", THIN),
    log("transaction_id is {number}, while expected", THIN),
    log("Volume group \"{*}\" not found", VG),
    log("Cannot process volume group", VG),
    log("Insufficient free space: {*} extents needed", SPACE),
    say(
        "no such logical volume",
        "`lvs` on {host} shows the thin pools there are: correct the thin pool of {storage} (Datacenter, Storage), or offer it only on the hosts that have it (Nodes)",
    ),
    say("activating LV '{*}' failed", LV),
    say("can't activate LV '{*}'", LV),
    say("can't refresh LV '{*}'", LV),
    log("Logical volume {*} in use.", BUSY),
    say(
        "command '/sbin/{*}' failed: got timeout",
        "LVM on {host} does not answer, mostly since a disk or a LUN that it looks at does not: `journalctl -k` and `lsblk` there show which",
    ),
    // Ceph: pve-storage src/PVE/Storage/RBDPlugin.pm, whose error is the last line of `rbd`.
    log("couldn't connect to the cluster", CEPH),
    log("authenticate timed out", CEPH),
    log("failed to fetch mon config", CEPH),
    say("command '/usr/bin/rbd {*}' failed: got timeout", CEPH),
    log(
        "error opening pool '{*}': (2) No such file or directory",
        "`ceph osd pool ls` shows the pools there are: correct the pool of {storage} (Datacenter, Storage)",
    ),
    say(
        "can't map rbd volume",
        "the kernel of {host} did not take the image: `journalctl -k` there says why (monitors that it does not reach, features of the image that it does not know), `rbd showmapped` what is mapped; without `krbd` on {storage} QEMU opens it itself",
    ),
    say(
        "could not disable krbd-incompatible image features",
        "`rbd info POOL/IMAGE` shows the image's features: take those away that the kernel of {host} lacks (`rbd feature disable`), or take `krbd` from {storage} (Datacenter, Storage)",
    ),
    // NFS, CIFS and CephFS: their plugins' `mount error`, and what mount.nfs, mount.cifs, smbclient and the kernel say.
    say(
        "access denied by server while mounting",
        "the server of {storage} does not let {host} mount it: add the address of {host} to the export (`showmount -e SERVER` shows whom it lets in)",
    ),
    say("mount error: mount error(13)", CREDENTIALS),
    say("NT_STATUS_LOGON_FAILURE", CREDENTIALS),
    say("NT_STATUS_ACCESS_DENIED", CREDENTIALS),
    say("mount error: ", MOUNT),
    log(
        "Stale file handle",
        "what {host} has mounted for {storage} is another at the server by now: `umount -f -l /mnt/pve/{storage}` on {host} takes it away, and PVE mounts it again",
    ),
    log(
        "Disk quota exceeded",
        "the quota of what {storage} lies on is used up (on ZFS `zfs get quota,refquota`; of NFS and CIFS the server's): raise it, or remove what nobody needs (`pvesm list {storage}` on {host})",
    ),
    log(
        "Read-only file system",
        "a file system on {host} can only be read, mostly since its disk failed: `findmnt -o TARGET,OPTIONS` and `journalctl -k` there show which and since when",
    ),
    // iSCSI: pve-storage src/PVE/Storage/ISCSIPlugin.pm.
    say(
        "error: no iscsi support - please install open-iscsi",
        "`apt install open-iscsi` on {host}, or offer {storage} only on the hosts that have it (Datacenter, Storage, Nodes)",
    ),
    say("command '/usr/bin/iscsiadm {*}' failed", PORTAL),
    say("failed to get realpath for '/dev/disk/by-id/{*}'", LUN),
    say("' is not a block device", LUN),
    say("' not part of target '", LUN),
    // BTRFS: pve-storage src/PVE/Storage/BTRFSPlugin.pm.
    say(
        "is not a btrfs file system",
        "mount the BTRFS file system that {storage} lies on, on {host} (`findmnt -t btrfs`), or make the storage one of type Directory",
    ),
    say(
        "command 'btrfs {*}' failed",
        "`btrfs device stats` and `btrfs filesystem usage` of what {storage} lies on, on {host}, show whether it is well and has room (metadata, too), and `journalctl -k` the rest",
    ),
    // QEMU's block layer, of files, in the log of a start, a clone or an import.
    log("Failed to get \"write\" lock", OPEN),
    log("Failed to get shared \"write\" lock", OPEN),
];
