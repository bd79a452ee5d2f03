//! PVE itself: its cluster file system, its workers, tokens and users, systemd, the HA manager, hook scripts.

use super::{LOCKS, QUORUM, Rule, say};

const PMXCFS: &str = "pmxcfs does not work on {host}, and /etc/pve is not there without it: `systemctl status pve-cluster corosync` and `journalctl -u pve-cluster` on {host} say why";
const WORKER: &str = "PVE could not begin the task on {host}: `journalctl -u pvedaemon` there says why; mostly /var/log is full (`df -h /var/log`), or there is no memory left (`free -h`)";
const MOVED: &str = "the configuration of VM {vmid} could not be brought to {host}: `pvecm status` says whether the cluster is quorate, and `ls /etc/pve/nodes/{host}/qemu-server` whether one is there already";
const HA: &str =
    "`ha-manager remove vm:{vmid}`: machines of pve-autoscaler do not belong to the HA manager";

/// The rows.
pub(super) const RULES: &[Rule] = &[
    // pve-cluster src/PVE/Cluster.pm, `check_cfs_is_mounted`, `ipcc_send_rec` and `cfs_lock`; pve-access-control src/PVE/RPCEnvironment.pm,
    // `init_request`; pve-common src/PVE/File.pm under /etc/pve.
    say("pve configuration filesystem (pmxcfs) not mounted", PMXCFS),
    say("ipcc_send_rec[{number}] failed", PMXCFS),
    say("pve cluster filesystem not online", PMXCFS),
    say("Unable to load access control list: ", PMXCFS),
    say(
        "unable to open file '/etc/pve/{*}' - Transport endpoint is not connected",
        PMXCFS,
    ),
    say(
        "unable to open file '/etc/pve/{*}' - Input/output error",
        PMXCFS,
    ),
    say(
        "close (rename) atomic file '/etc/pve/{*}' failed: Permission denied",
        QUORUM,
    ),
    // The same file of PVE 8.
    say("' operation: no quorum!", QUORUM),
    say(
        "cfs-locked 'storage-{storage}' operation: got lock request timeout",
        LOCKS,
    ),
    // Of both.
    say("'storage-{storage}'-locked command timed out", LOCKS),
    // pve-common src/PVE/Tools.pm, `lock_file_full`, for storages of one host (pve-storage src/PVE/Storage/Plugin.pm, `cluster_lock_storage`).
    say(
        "can't lock file '/var/lock/pve-manager/pve-storage-{storage}'",
        LOCKS,
    ),
    // pve-guest-common src/PVE/AbstractConfig.pm, `move_config_to_node`; qemu-server src/PVE/API2/Qemu.pm, `clone_vm`.
    say("failed to move config file to node '{host}'", MOVED),
    say("Failed to move config to node '{host}'", MOVED),
    // pve-manager PVE/HTTPServer.pm, `remote_node_ip` for the proxy.
    say(
        "unable to get remote IP address for node '{host}'",
        "PVE knows no address of {host}: `pvecm status` shows the members, and /etc/hosts on each host must have {host}",
    ),
    // pve-common src/PVE/RESTEnvironment.pm, `fork_worker`.
    say(
        "unable to fork worker",
        "{host} has no room for another process: see its memory (`free -h`, `journalctl -k`) and how many tasks pvedaemon has (`systemctl status pvedaemon`)",
    ),
    say("starting worker failed", WORKER),
    say("got no worker upid", WORKER),
    say("got strange worker upid", WORKER),
    say("unable to read process start time", WORKER),
    say("parent setup error", WORKER),
    // pve-access-control src/PVE/AccessControl.pm, `verify_token`, `check_user_enabled`, `check_token_exist`.
    say(
        "invalid token value!",
        "the secret in `token_secret_file` of the region is not the token's: PVE shows it once, when the token is made (`pveum user token remove USER NAME` and `pveum user token add USER NAME` make another); the daemon reads the file again",
    ),
    say(
        "no such token '{*}' for user",
        "`pveum user token list USER` on a host of the region shows the tokens there are: correct `token_id` in the file, or make the token (`pveum user token add`) and give it its rights",
    ),
    say(
        "token '{*}' access expired",
        "`pveum user token modify USER NAME --expire 0` on a host of the region lets the token hold without an end",
    ),
    say(
        "user '{*}' access expired",
        "`pveum user modify USER --expire 0` on a host of the region lets the token's user hold without an end",
    ),
    say(
        "user '{*}' is disabled",
        "`pveum user modify USER --enable 1` on a host of the region switches the token's user on",
    ),
    say(
        "no such user ('",
        "`pveum user list` on a host of the region shows the users there are: correct `token_id` in the file, or make the user, its token and their rights",
    ),
    // pve-common src/PVE/Systemd.pm, `enter_systemd_scope`, and what systemd answers it by D-Bus.
    say(
        "org.freedesktop.systemd1.UnitExists",
        "the scope of an earlier QEMU of VM {vmid} is left on {host}: `systemctl status {vmid}.scope` there shows what is in it, and `systemctl stop {vmid}.scope` ends it, where `qm status {vmid}` says that the VM is stopped",
    ),
    say(
        "systemd job failed",
        "systemd on {host} made no scope for VM {vmid}: `journalctl -u {vmid}.scope` and `systemctl status qemu.slice` there say why",
    ),
    // pve-ha-manager, by way of qemu-server src/PVE/API2/Qemu.pm: a start, stop or shutdown of what the HA manager has.
    say("command 'ha-manager {*}' failed", HA),
    // pve-guest-common src/PVE/GuestHelpers.pm, `exec_hookscript` and `check_hookscript`.
    say(
        "hookscript error for {vmid} on",
        "the template's VM has a hook script that fails on {host}, is not there or may not be run (`qm config`; it lies in the folder `snippets` of its storage): put that right, or take it away (`qm set VMID --delete hookscript`)",
    ),
];
