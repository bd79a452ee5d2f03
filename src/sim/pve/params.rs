//! The parameters that calls take, where several share them or they are many; and their rights.

use super::schema::ParamKind;
use super::schema::ParamKind::{Boolean, Disk, Enum, Format, Integer, List, Pattern, Text};
use super::schema::{
    CONFIG_ID, DNS_NAME, NODE, ParamSchema, STORAGE, VMID, anything, key_list, may, must, with,
};
use super::table::NeededPrivilege;

pub(super) const ON_NODE: &[ParamSchema] = &[must("node", NODE)];
pub(super) const ON_VM: &[ParamSchema] = &[must("node", NODE), must("vmid", VMID)];
pub(super) const ON_TASK: &[ParamSchema] = &[must("node", NODE), must("upid", Text(None))];
pub(super) const ON_STORAGE: &[ParamSchema] = &[must("node", NODE), must("storage", STORAGE)];
/// Which interfaces of a host.
pub(super) const INTERFACES: ParamSchema = may(
    "type",
    Enum(&[
        "bridge",
        "bond",
        "eth",
        "alias",
        "vlan",
        "fabric",
        "OVSBridge",
        "OVSBond",
        "OVSPort",
        "OVSIntPort",
        "vnet",
        "any_bridge",
        "any_local_bridge",
        "include_sdn",
    ]),
);
pub(super) const SKIPLOCK: ParamSchema = may("skiplock", Boolean);
pub(super) const DIGEST: ParamSchema = may("digest", Text(Some(40)));
pub(super) const TIMEOUT: ParamSchema = may("timeout", Integer(Some(0), None));
pub(super) const SID: ParamSchema = must("sid", Format("pve-ha-resource-or-vm-id", None, anything));

pub(super) const VM_AUDIT: NeededPrivilege = NeededPrivilege::Any("/vms/{vmid}", &["VM.Audit"]);
pub(super) const VM_POWER: NeededPrivilege = NeededPrivilege::Any("/vms/{vmid}", &["VM.PowerMgmt"]);
pub(super) const VM_ALLOCATE: NeededPrivilege =
    NeededPrivilege::Any("/vms/{vmid}", &["VM.Allocate"]);
pub(super) const VM_CONFIG: NeededPrivilege = NeededPrivilege::Any(
    "/vms/{vmid}",
    &[
        "VM.Config.Disk",
        "VM.Config.CDROM",
        "VM.Config.CPU",
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.HWType",
        "VM.Config.Options",
        "VM.Config.Cloudinit",
    ],
);
pub(super) const AGENT_AUDIT: NeededPrivilege = NeededPrivilege::Any(
    "/vms/{vmid}",
    &["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"],
);
pub(super) const AGENT_ALL: NeededPrivilege =
    NeededPrivilege::Any("/vms/{vmid}", &["VM.GuestAgent.Unrestricted"]);
pub(super) const NODE_AUDIT: NeededPrivilege =
    NeededPrivilege::Any("/nodes/{node}", &["Sys.Audit"]);
pub(super) const STORAGE_AUDIT: NeededPrivilege = NeededPrivilege::Any(
    "/storage/{storage}",
    &["Datastore.Audit", "Datastore.AllocateSpace"],
);

pub(super) const CHANGES: &[ParamSchema] = &[
    may("delete", Format("pve-configid-list", None, key_list)),
    may("revert", Format("pve-configid-list", None, key_list)),
    with("force", Boolean, "delete"),
    DIGEST,
    SKIPLOCK,
];
pub(super) const LATER: &[ParamSchema] = &[
    may("background_delay", Integer(Some(1), Some(30))),
    may("import-working-storage", STORAGE),
];
pub(super) const CREATE: &[ParamSchema] = &[
    may("storage", STORAGE),
    may("pool", Format("pve-poolid", None, anything)),
    may("start", Boolean),
    may("bwlimit", Integer(Some(0), None)),
];
pub(super) const DOWNLOAD: &[ParamSchema] = &[
    must("content", Enum(&["iso", "vztmpl", "import"])),
    must("filename", Text(Some(255))),
    must("url", Pattern("https?://.*", super::images::is_url)),
    with("checksum", Text(None), "checksum-algorithm"),
    with(
        "checksum-algorithm",
        Enum(&["md5", "sha1", "sha224", "sha256", "sha384", "sha512"]),
        "checksum",
    ),
    may("compression", Text(None)),
    may("verify-certificates", Boolean),
];
pub(super) const UPLOAD: &[ParamSchema] = &[
    must("content", Enum(&["iso", "vztmpl", "import"])),
    must("filename", Text(Some(255))),
    may(
        "tmpfilename",
        Pattern("/var/tmp/pveupload-[0-9a-f]+", super::isos::is_upload),
    ),
];
pub(super) const VOLUME: &[ParamSchema] = &[
    must("volume", Text(None)),
    may("storage", STORAGE),
    may("delay", Integer(Some(1), Some(30))),
];
pub(super) const CLONE: &[ParamSchema] = &[
    must("newid", VMID),
    may("name", DNS_NAME),
    may("description", Text(None)),
    may("pool", Format("pve-poolid", None, anything)),
    may("snapname", CONFIG_ID),
    may("storage", STORAGE),
    may("format", Enum(&["raw", "qcow2", "vmdk"])),
    may("full", Boolean),
    may("target", NODE),
    may("bwlimit", Integer(Some(0), None)),
];
pub(super) const RESIZE: &[ParamSchema] = &[
    must("disk", Disk),
    must(
        "size",
        Pattern(r"\+?\d+(\.\d+)?[KMGT]?", super::disks::is_size),
    ),
    DIGEST,
    SKIPLOCK,
];
pub(super) const START: &[ParamSchema] = &[
    SKIPLOCK,
    TIMEOUT,
    may("force-cpu", Text(None)),
    may("machine", super::schema::ParamKind::Properties),
];
pub(super) const STOP: &[ParamSchema] = &[
    SKIPLOCK,
    TIMEOUT,
    may("keepActive", Boolean),
    may("overrule-shutdown", Boolean),
    may("migratedfrom", NODE),
];
pub(super) const SHUTDOWN: &[ParamSchema] = &[
    SKIPLOCK,
    TIMEOUT,
    may("keepActive", Boolean),
    may("forceStop", Boolean),
];
pub(super) const DESTROY: &[ParamSchema] = &[
    may("purge", Boolean),
    may("destroy-unreferenced-disks", Boolean),
    SKIPLOCK,
];
pub(super) const MIGRATE: &[ParamSchema] = &[
    must("target", NODE),
    may("online", Boolean),
    may("force", Boolean),
    may("with-local-disks", Boolean),
];
pub(super) const TASK_FILTER: &[ParamSchema] = &[
    may("source", Enum(&["archive", "active", "all"])),
    may("vmid", VMID),
    may("typefilter", Text(None)),
    may("userfilter", Text(None)),
    may(
        "statusfilter",
        Format("pve-task-status-type-list", None, key_list),
    ),
    may("since", Integer(None, None)),
    may("until", Integer(None, None)),
    may("errors", Boolean),
    may("start", Integer(Some(0), None)),
    may("limit", Integer(Some(0), None)),
];
pub(super) const LOG: &[ParamSchema] = &[
    may("start", Integer(Some(0), None)),
    may("limit", Integer(Some(0), None)),
    may("download", Boolean),
];
pub(super) const HA: &[ParamSchema] = &[
    SID,
    may("type", Enum(&["ct", "vm"])),
    may(
        "state",
        Enum(&["started", "stopped", "enabled", "disabled", "ignored"]),
    ),
    may("comment", Text(Some(4096))),
    may("max_restart", Integer(Some(0), None)),
    may("max_relocate", Integer(Some(0), None)),
];
pub(super) const ROLE: ParamKind = Format("pve-roleid", None, anything);
pub(super) const USER: ParamKind = Format("pve-userid", Some(64), user_id);
pub(super) const TOKEN: ParamKind = Pattern("(?^:[A-Za-z][A-Za-z0-9\\.\\-_]+)", token_name);
pub(super) const PRIVILEGES: ParamKind = Format("pve-priv-list", None, anything);
pub(super) const ACCESS_MODIFY: NeededPrivilege = NeededPrivilege::Any("/access", &["Sys.Modify"]);
pub(super) const ACL: &[ParamSchema] = &[
    must("path", Text(None)),
    must("roles", Format("pve-roleid-list", None, anything)),
    may("users", Format("pve-userid-list", None, anything)),
    may("tokens", Format("pve-tokenid-list", None, anything)),
    may("propagate", Boolean),
];
pub(super) const TICKET: &[ParamSchema] = &[
    must("username", Text(Some(64))),
    must("password", Text(None)),
    may("realm", Format("pve-realm", Some(32), anything)),
    may("otp", Text(None)),
    may("tfa-challenge", Text(None)),
    may("new-format", Boolean),
    with("path", Text(Some(64)), "privs"),
    with("privs", Format("pve-priv-list", Some(64), anything), "path"),
];
pub(super) const EXEC: &[ParamSchema] =
    &[must("command", List), may("input-data", Text(Some(65_536)))];
pub(super) const AGENT_COMMANDS: &[&str] = &[
    "fsfreeze-freeze",
    "fsfreeze-status",
    "fsfreeze-thaw",
    "fstrim",
    "get-fsinfo",
    "get-host-name",
    "get-memory-block-info",
    "get-memory-blocks",
    "get-osinfo",
    "get-time",
    "get-timezone",
    "get-users",
    "get-vcpus",
    "info",
    "network-get-interfaces",
    "ping",
    "shutdown",
    "suspend-disk",
    "suspend-hybrid",
    "suspend-ram",
];

/// `PVE::Auth::Plugin`: a name and a realm.
fn user_id(text: &str) -> Result<(), String> {
    let fine = text.rsplit_once('@').is_some_and(|(name, realm)| {
        !name.is_empty() && !realm.is_empty() && !name.contains([' ', ':', '/'])
    });
    if fine {
        return Ok(());
    }
    Err(format!(
        "value '{text}' does not look like a valid user name"
    ))
}

fn token_name(text: &str) -> bool {
    let rest = text.strip_prefix(|first: char| first.is_ascii_alphabetic());
    rest.is_some_and(|rest| {
        !rest.is_empty()
            && rest
                .chars()
                .all(|one| one.is_ascii_alphanumeric() || ".-_".contains(one))
    })
}
