//! Words that say little, or that stand behind others which say more: they are looked for last.

use super::{LOG, Rule, log, say, vague};

const MONITOR: &str = "QEMU of VM {vmid} does not answer on {host}, mostly since a storage of it does not (`pvesm status`): once that does, it goes on; `qm status {vmid} --verbose` shows whether QEMU speaks";

/// The rows.
pub(super) const RULES: &[Rule] = &[
    // qemu-server src/PVE/QemuServer.pm, `vmconfig_hotplug_pending`.
    say(
        "hotplug problem - ",
        "QEMU or the guest does not take the change while it runs: `qm pending {vmid}` on {host} shows it, and it counts from the machine's next start on",
    ),
    // qemu-server src/PVE/QMPClient.pm, of the commands of a stop and a shutdown; src/PVE/QemuServer/Monitor.pm.
    say("qmp command 'quit' failed - got timeout", MONITOR),
    say(
        "qmp command 'system_powerdown' failed - got timeout",
        MONITOR,
    ),
    say("unable to connect to VM {vmid} qmp socket - ", MONITOR),
    // pve-common src/PVE/Cmd.pm, `run_command`, and Tools.pm, `lock_file_full`.
    say(
        "command '/usr/bin/kvm -id {vmid} {*}' failed: got timeout",
        "QEMU was not there within the time that PVE gives it, and may come all the same (`qm status {vmid}` on {host}): see how busy {host} is; much memory, huge pages and passed-through devices take long",
    ),
    say(
        "' failed: got timeout",
        "a program that PVE called did not end in time: see how busy {host} is, and which storage does not answer (`pvesm status` there)",
    ),
    say(
        "can't lock file '/{*}' - got timeout",
        "another task on {host} holds that for long: `pvenode task list --source active` there shows it",
    ),
    // The kernel, by way of any program.
    log(
        "Input/output error",
        "a disk of {host}, or the way to it, fails: `journalctl -k` there names it; see `zpool status`, `lvs` or `ceph -s` of what {storage} lies on",
    ),
    // qemu-server src/PVE/QemuServer.pm, `vm_start_nolock`; pve-common src/PVE/Cmd.pm, `run_command`.
    vague("QEMU exited with code {number}", LOG),
    vague("' failed: exit code {number}", LOG),
];
