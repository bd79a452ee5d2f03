//! What PVE's error texts mean.
//!
//! PVE answers nearly every failure with status 500 (or a failed task) and a text: the text is all
//! there is to tell "gone" from "locked". Every text the program knows stands here and nowhere
//! else, with the file and line of PVE 9.2 that writes it (qemu-server 9.2.6, pve-common 9.2.1,
//! pve-cluster 9.1.6, pve-guest-common 6.0, pve-manager 9.2.11).

use std::borrow::Cow;

use crate::model::foreign;

/// A command that failed is told in full up to this many characters, `qemu-img` with its files for instance …
const COMMAND_WHOLE: usize = 400;
/// … and of a longer one this many.
const COMMAND_TOLD: usize = 60;

/// What PVE said. Where it passes on what a guest or a program said, that is UTF-8 taken for Latin-1.
pub(super) fn told(text: &str) -> String {
    shorten_command(&foreign::from_latin1(text)).into_owned()
}

/// The text without the most of a long command in it. PVE names a command that failed, with all its arguments, before it says why
/// (`command '…' failed: got timeout`, pve-common src/PVE/Cmd.pm:317). QEMU's has thousands of characters: what bounds a text from
/// others would cut the reason off, which tells whether the VM may run all the same.
fn shorten_command(text: &str) -> Cow<'_, str> {
    let start = text.split_once("command '");
    let Some((before, (command, why))) =
        start.and_then(|(before, rest)| Some((before, rest.rsplit_once("' failed: ")?)))
    else {
        return Cow::Borrowed(text);
    };
    if command.chars().count() <= COMMAND_WHOLE {
        return Cow::Borrowed(text);
    }
    let kept: String = command.chars().take(COMMAND_TOLD).collect();
    Cow::Owned(format!("{before}command '{kept} …' failed: {why}"))
}

/// What a PVE failure is about, read from its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The VM's configuration does not exist, or not on the host in the path (VMs move): look in
    /// the resources before concluding that it is gone.
    Gone,
    /// The configuration is locked, by `backup`, `clone`, `migrate`, `snapshot` ….
    Locked(String),
    /// The VM's own lock file was held for the 10 seconds that PVE waits.
    LockTimeout,
    /// A storage's or another cluster-wide lock was not had in time.
    StorageLock,
    /// The VMID exists already, here or on another host.
    VmidTaken,
    /// A disk file of that VMID was left over by an earlier VM.
    DiskExists,
    /// The guest agent does not answer.
    AgentNotRunning,
    /// The VM's configuration has no `agent`.
    AgentNotConfigured,
    /// The agent answered with an error of its own.
    Agent(String),
    /// The result of a guest command was read before (it can be read once), or never was.
    ExecForgotten,
    /// The VM does not run.
    NotRunning,
    /// The VM runs already.
    AlreadyRunning,
    /// The VM runs and so cannot be destroyed.
    StillRunning,
    /// A shutdown's time passed and the guest still runs.
    ShutdownTimeout,
    /// The task was stopped by somebody, a stop that overrules a shutdown for instance.
    Interrupted,
    /// The cluster has no quorum: nothing can be changed.
    NoQuorum,
    /// `protection` is set.
    Protected,
    /// The configuration's digest is another: somebody changed it in between.
    Changed,
    /// The VM is managed by HA.
    HighAvailability,
    /// No task has this id (any more).
    NoSuchTask,
    /// The disk is larger already.
    Shrink,
    /// The VM is in the resource pool already.
    PoolMember,
    /// A clone that needs another storage or host than is possible.
    CloneImpossible,
    /// The host in the path is unknown or cannot be reached.
    HostUnreachable,
    /// PVE waited for something in vain; whether it happened is not known.
    Timeout,
    /// Something else.
    Other,
}

impl FailureCause {
    /// Reads `text`: an error's message or a failed task's exit status. Total: what is not known is
    /// [`FailureCause::Other`].
    pub fn of(text: &str) -> FailureCause {
        let text = text.trim();
        locked(text)
            .or_else(|| agent(text))
            .or_else(|| known(text))
            .or_else(|| beside(text))
            .unwrap_or(FailureCause::Other)
    }

    /// Whether the same call can succeed a little later without anybody doing anything.
    pub fn passes(&self) -> bool {
        match self {
            FailureCause::Locked(_)
            | FailureCause::LockTimeout
            | FailureCause::StorageLock
            | FailureCause::NoQuorum
            | FailureCause::HostUnreachable
            | FailureCause::Timeout
            | FailureCause::Changed => true,
            FailureCause::Gone
            | FailureCause::VmidTaken
            | FailureCause::DiskExists
            | FailureCause::AgentNotRunning
            | FailureCause::AgentNotConfigured
            | FailureCause::Agent(_)
            | FailureCause::ExecForgotten
            | FailureCause::NotRunning
            | FailureCause::AlreadyRunning
            | FailureCause::StillRunning
            | FailureCause::ShutdownTimeout
            | FailureCause::Interrupted
            | FailureCause::Protected
            | FailureCause::HighAvailability
            | FailureCause::NoSuchTask
            | FailureCause::Shrink
            | FailureCause::PoolMember
            | FailureCause::CloneImpossible
            | FailureCause::Other => false,
        }
    }
}

/// pve-guest-common src/PVE/AbstractConfig.pm:339, `VM is locked (backup)`.
fn locked(text: &str) -> Option<FailureCause> {
    let (_, rest) = text.split_once("VM is locked (")?;
    let (kind, _) = rest.split_once(')')?;
    Some(FailureCause::Locked(kind.to_owned()))
}

fn agent(text: &str) -> Option<FailureCause> {
    // qemu-server src/PVE/QemuServer/Agent.pm:110 and :112.
    if text.contains("No QEMU guest agent configured") {
        return Some(FailureCause::AgentNotConfigured);
    }
    if text.contains("QEMU guest agent is not running") {
        return Some(FailureCause::AgentNotRunning);
    }
    // qemu-server src/PVE/QemuServer/Agent.pm:94 and :96 before QEMU's own words; the agent's text
    // for a result that was read already is `PID ld does not exist`.
    let (_, said) = text.split_once("Agent error: ")?;
    if said.starts_with("PID ") && said.contains("does not exist") {
        return Some(FailureCause::ExecForgotten);
    }
    Some(FailureCause::Agent(said.trim().to_owned()))
}

/// What stands beside a VM's configuration: its firewall, its resource pool, and volumes without a file.
fn beside(text: &str) -> Option<FailureCause> {
    let has = |part: &str| text.contains(part);
    match () {
        // pve-common src/PVE/Tools.pm, `assert_if_modified`, and PVE/API2/Firewall/Rules.pm of pve-firewall.
        () if has("detected modified configuration") || has("no rule at position") => {
            Some(FailureCause::Changed)
        }
        // pve-manager PVE/API2/Pool.pm, `update_pool`.
        () if has("is already a pool member") => Some(FailureCause::PoolMember),
        // pve-storage src/PVE/Storage/LvmThinPlugin.pm, LVMPlugin.pm, ZFSPoolPlugin.pm and RBDPlugin.pm: the words of lvcreate, zfs and rbd.
        () if has("lvcreate '") && has("already exists in ") => Some(FailureCause::DiskExists),
        () if has("zfs error: cannot create '") && has("dataset already exists") => {
            Some(FailureCause::DiskExists)
        }
        () if has("rbd create '") && has("File exists") => Some(FailureCause::DiskExists),
        () => None,
    }
}

fn known(text: &str) -> Option<FailureCause> {
    use FailureCause::{Interrupted, Timeout};
    let has = |part: &str| text.contains(part);
    let cause = match () {
        // pve-cluster src/PVE/Cluster.pm:129, and inside `cfs-lock '…' error: no quorum!`.
        () if has("no quorum") => FailureCause::NoQuorum,
        // pve-cluster src/PVE/Cluster.pm:628, inside `cfs-lock 'storage-…' error: …`.
        () if has("got lock request timeout") || has("cfs-lock '") => FailureCause::StorageLock,
        // pve-common src/PVE/Tools.pm:264.
        () if has("can't lock file") => FailureCause::LockTimeout,
        // pve-common src/PVE/File.pm:98: the rename that makes VMIDs unique in the cluster.
        () if has("close (rename) atomic file") && has("File exists") => FailureCause::VmidTaken,
        // qemu-server src/PVE/API2/Qemu.pm:4502; pve-cluster src/PVE/Cluster.pm `check_vmid_unused`.
        () if has("config file already exists") => FailureCause::VmidTaken,
        () if has("VM ") && has(" already exists") && !has("disk image") => FailureCause::VmidTaken,
        // pve-storage src/PVE/Storage/Plugin.pm, a file of that name.
        () if has("disk image") && has("already exists") => FailureCause::DiskExists,
        // pve-guest-common src/PVE/AbstractConfig.pm:57.
        () if has("Configuration file '") && has("does not exist") => FailureCause::Gone,
        // qemu-server src/PVE/QemuConfig.pm by way of AbstractConfig.pm: a VM that is nowhere.
        () if has("unable to find configuration file for VM") => FailureCause::Gone,
        // pve-common src/PVE/File.pm:60 under /etc/pve.
        () if has("unable to open file '/etc/pve/") && has("Permission denied") => {
            FailureCause::NoQuorum
        }
        // pve-guest-common src/PVE/AbstractConfig.pm:393.
        () if has("protection mode enabled") => FailureCause::Protected,
        // qemu-server src/PVE/API2/Qemu.pm:2211 and :6006.
        () if has("checksum mismatch (file change") => FailureCause::Changed,
        // qemu-server src/PVE/API2/Qemu.pm:2842.
        () if has("is running - destroy failed") => FailureCause::StillRunning,
        // qemu-server src/PVE/QemuServer.pm:5531.
        () if has("already running") => FailureCause::AlreadyRunning,
        // qemu-server src/PVE/QemuServer.pm:6295 and :6310.
        () if has("VM quit/powerdown failed") => FailureCause::ShutdownTimeout,
        // qemu-server src/PVE/QemuServer/Agent.pm:111.
        () if has("VM ") && has("is not running") => FailureCause::NotRunning,
        // qemu-server src/PVE/API2/Qemu.pm, destroy of a VM in HA without purge.
        () if has("used in HA resources") => FailureCause::HighAvailability,
        // pve-manager PVE/API2/Tasks.pm:316 and :517.
        () if has("no such task") => FailureCause::NoSuchTask,
        // qemu-server src/PVE/API2/Qemu.pm, `resize_vm`.
        () if has("shrinking disks is not supported") => FailureCause::Shrink,
        // qemu-server src/PVE/API2/Qemu.pm, `clone_vm`.
        () if has("can't clone ")
            || has("not allowed for linked clones")
            || has("Linked clone feature is not supported") =>
        {
            FailureCause::CloneImpossible
        }
        // pve-common src/PVE/RESTEnvironment.pm, a worker that was told to end.
        () if has("received interrupt") || has("interrupted by signal") => Interrupted,
        // pve-common src/PVE/UPID.pm:91: a worker that died without a last line, with its host mostly.
        () if text == "unexpected status" || text == "it stopped without a status" => Interrupted,
        // pve-cluster, the name in the path.
        () if has("hostname lookup '") => FailureCause::HostUnreachable,
        // qemu-server src/PVE/QMPClient.pm, `cmd` and `open_connection`: QEMU takes one client at a time,
        // and a late answer of an earlier command confuses the next.
        () if has(" qga command '") || has("unable to open monitor socket") => Timeout,
        // qemu-server src/PVE/QemuServer/Monitor.pm, `qmp_cmd`.
        () if has("VM ") && has(" not running") => FailureCause::NotRunning,
        // qemu-server src/PVE/QMPClient.pm:503.
        () if has("got timeout") => FailureCause::Timeout,
        () => return None,
    };
    Some(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use FailureCause as Cause;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn pves_texts_are_told_apart() {
        let table = [
            ("VM is locked (backup)\n", Cause::Locked("backup".into())),
            (
                "can't lock file '/var/lock/qemu-server/lock-125.conf' - got timeout",
                Cause::LockTimeout,
            ),
            (
                "clone failed: cfs-lock 'storage-ceph' error: got lock request timeout",
                Cause::StorageLock,
            ),
            (
                "unable to create VM 140: config file already exists",
                Cause::VmidTaken,
            ),
            ("VM 140 already exists", Cause::VmidTaken),
            (
                "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/131.conf' failed: File exists",
                Cause::VmidTaken,
            ),
            (
                "unable to create VM 9100 - VM 9100 already exists on node 'pve1'",
                Cause::VmidTaken,
            ),
            (
                "disk image '/var/lib/vz/images/9/vm-9-disk-0.qcow2' already exists",
                Cause::DiskExists,
            ),
            (
                "clone failed: lvcreate 'pve/vm-9-cloudinit' error:   Logical Volume \"vm-9-cloudinit\" already exists in volume group \"pve\"",
                Cause::DiskExists,
            ),
            (
                "clone failed: zfs error: cannot create 'rpool/data/vm-9-cloudinit': dataset already exists",
                Cause::DiskExists,
            ),
            (
                "clone failed: rbd create 'vm-9-cloudinit' error: rbd: create error: (17) File exists",
                Cause::DiskExists,
            ),
            (
                "Configuration file 'nodes/pve1/qemu-server/131.conf' does not exist",
                Cause::Gone,
            ),
            ("cluster not ready - no quorum?", Cause::NoQuorum),
            (
                "clone failed: cfs-lock 'storage-shared' error: no quorum!",
                Cause::NoQuorum,
            ),
            (
                "unable to open file '/etc/pve/nodes/p/qemu-server/101.conf.tmp.158' - Permission denied",
                Cause::NoQuorum,
            ),
            (
                "can't remove VM 120 - protection mode enabled",
                Cause::Protected,
            ),
            (
                "checksum mismatch (file change by other user?)",
                Cause::Changed,
            ),
            ("VM 123 is running - destroy failed", Cause::StillRunning),
            ("VM 123 already running", Cause::AlreadyRunning),
            (
                "VM quit/powerdown failed - got timeout",
                Cause::ShutdownTimeout,
            ),
            ("VM 9 is not running", Cause::NotRunning),
            (
                "update pools failed: VM 9100 is already a pool member",
                Cause::PoolMember,
            ),
            (
                "detected modified configuration - file changed by other user? Try again.",
                Cause::Changed,
            ),
            (
                "update pools failed: cfs-lock 'file-user_cfg' error: no quorum!",
                Cause::NoQuorum,
            ),
            ("QEMU guest agent is not running", Cause::AgentNotRunning),
            ("No QEMU guest agent configured", Cause::AgentNotConfigured),
            ("Agent error: PID ld does not exist", Cause::ExecForgotten),
            (
                "Agent error: command disabled",
                Cause::Agent("command disabled".into()),
            ),
            ("no such task", Cause::NoSuchTask),
            ("shrinking disks is not supported", Cause::Shrink),
            (
                "can't clone VM to node 'pve2' (VM uses local storage)",
                Cause::CloneImpossible,
            ),
            ("received interrupt", Cause::Interrupted),
            ("unexpected status", Cause::Interrupted),
            (
                "VM 9 qga command 'guest-exec' failed - got timeout",
                Cause::Timeout,
            ),
            ("QEMU exited with code 1", Cause::Other),
            ("", Cause::Other),
        ];
        for (text, cause) in table {
            assert_eq!(Cause::of(text), cause, "{text}");
        }
    }

    #[test]
    fn a_long_command_hides_no_reason() {
        let qemu = format!(
            "/usr/bin/kvm -id 9002 -name 'a,debug-threads=on' {}",
            "-device 'pci-bridge' ".repeat(200)
        );
        let text = format!("start failed: command '{qemu}' failed: got timeout");
        let shown = told(&text);
        assert!(shown.chars().count() < 200, "{shown}");
        assert!(
            shown.starts_with("start failed: command '/usr/bin/kvm -id 9002 "),
            "{shown}"
        );
        assert!(shown.ends_with(" …' failed: got timeout"), "{shown}");
        assert_eq!(Cause::of(&shown), Cause::Timeout);
        for whole in [
            "command 'qemu-img info x' failed: exit code 1",
            "command 'not ended",
            "QEMU exited with code 1",
            "",
        ] {
            assert_eq!(told(whole), whole);
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_told_begins_and_ends_alike(text in "\\PC{0,20}(command ')?\\PC{0,600}(' failed: )?\\PC{0,20}") {
            let shown = shorten_command(&text);
            proptest::prop_assert!(shown.chars().count() <= text.chars().count());
            proptest::prop_assert_eq!(shown.chars().next(), text.chars().next());
            proptest::prop_assert_eq!(shown.chars().last(), text.chars().last());
        }

        #[test]
        fn any_text_has_a_cause(text in "\\PC{0,80}") {
            let _ = Cause::of(&text);
            let _ = Cause::of(&format!("VM is locked ({text}"));
            let _ = Cause::of(&format!("Agent error: {text}"));
        }
    }
}
