//! The calls that the fake knows: path, method, parameters, rights. What is not here does not exist.

use super::options::OPTIONS;
use super::schema::Kind::{Boolean, Disk, Enum, Format, Integer, List, Pattern, Text};
use super::schema::{
    CONFIG_ID, DNS_NAME, NODE, Param, STORAGE, VMID, anything, key_list, may, must, with,
};

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    Version,
    Login,
    LoginForm,
    Permissions,
    ClusterStatus,
    ClusterResources,
    NextId,
    ClusterTasks,
    HaList,
    HaAdd,
    HaRemove,
    Pools,
    Storages,
    Nodes,
    NodeStatus,
    NodeVersion,
    NodeTime,
    NodeNetwork,
    NodeStorages,
    StorageStatus,
    StorageContent,
    Tasks,
    TaskIndex,
    TaskStop,
    TaskStatus,
    TaskLog,
    VmList,
    VmCreate,
    VmDestroy,
    VmConfig,
    VmConfigSet,
    VmConfigSetLater,
    VmPending,
    VmCurrent,
    VmFeature,
    VmStart,
    VmStop,
    VmShutdown,
    VmReboot,
    VmReset,
    VmSuspend,
    VmResume,
    VmClone,
    VmTemplate,
    VmResize,
    VmMigrate,
    VmSnapshots,
    CloudInit,
    CloudInitWrite,
    CloudInitDump,
    AgentCommand,
    AgentPing,
    AgentExec,
    AgentExecStatus,
    AgentOsInfo,
    AgentHostName,
    AgentNetwork,
    AgentInfo,
    AgentTime,
}

/// What a call needs beforehand; what depends on more than the path is checked by its handler.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// Nobody in particular.
    None,
    /// One of the privileges on a path; `{…}` are parameters.
    Any(&'static str, &'static [&'static str]),
}

/// How long a call takes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Read,
    Change,
    Fork,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) params: &'static [&'static [Param]],
    pub(super) need: Need,
    pub(super) pace: Pace,
    pub(super) act: Act,
    /// API tokens may use it.
    pub(super) token: bool,
}

const fn call(
    method: &'static str,
    path: &'static str,
    act: Act,
    pace: Pace,
    need: Need,
    params: &'static [&'static [Param]],
) -> Call {
    Call {
        method,
        path,
        params,
        need,
        pace,
        act,
        token: true,
    }
}

const ON_NODE: &[Param] = &[must("node", NODE)];
const ON_VM: &[Param] = &[must("node", NODE), must("vmid", VMID)];
const ON_TASK: &[Param] = &[must("node", NODE), must("upid", Text(None))];
const ON_STORAGE: &[Param] = &[must("node", NODE), must("storage", STORAGE)];
const SKIPLOCK: Param = may("skiplock", Boolean);
const DIGEST: Param = may("digest", Text(Some(40)));
const TIMEOUT: Param = may("timeout", Integer(Some(0), None));
const SID: Param = must("sid", Format("pve-ha-resource-or-vm-id", None, anything));

const VM_AUDIT: Need = Need::Any("/vms/{vmid}", &["VM.Audit"]);
const VM_POWER: Need = Need::Any("/vms/{vmid}", &["VM.PowerMgmt"]);
const VM_ALLOCATE: Need = Need::Any("/vms/{vmid}", &["VM.Allocate"]);
const VM_CONFIG: Need = Need::Any(
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
const AGENT_AUDIT: Need = Need::Any(
    "/vms/{vmid}",
    &["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"],
);
const AGENT_ALL: Need = Need::Any("/vms/{vmid}", &["VM.GuestAgent.Unrestricted"]);
const NODE_AUDIT: Need = Need::Any("/nodes/{node}", &["Sys.Audit"]);
const STORAGE_AUDIT: Need = Need::Any(
    "/storage/{storage}",
    &["Datastore.Audit", "Datastore.AllocateSpace"],
);

const CHANGES: &[Param] = &[
    may("delete", Format("pve-configid-list", None, key_list)),
    may("revert", Format("pve-configid-list", None, key_list)),
    with("force", Boolean, "delete"),
    DIGEST,
    SKIPLOCK,
];
const LATER: &[Param] = &[
    may("background_delay", Integer(Some(1), Some(30))),
    may("import-working-storage", STORAGE),
];
const CREATE: &[Param] = &[
    may("storage", STORAGE),
    may("pool", Format("pve-poolid", None, anything)),
    may("start", Boolean),
    may("bwlimit", Integer(Some(0), None)),
];
const CLONE: &[Param] = &[
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
const RESIZE: &[Param] = &[
    must("disk", Disk),
    must(
        "size",
        Pattern(r"\+?\d+(\.\d+)?[KMGT]?", super::disks::is_size),
    ),
    DIGEST,
    SKIPLOCK,
];
const START: &[Param] = &[
    SKIPLOCK,
    TIMEOUT,
    may("force-cpu", Text(None)),
    may("machine", super::schema::Kind::Properties),
];
const STOP: &[Param] = &[
    SKIPLOCK,
    TIMEOUT,
    may("keepActive", Boolean),
    may("overrule-shutdown", Boolean),
    may("migratedfrom", NODE),
];
const SHUTDOWN: &[Param] = &[
    SKIPLOCK,
    TIMEOUT,
    may("keepActive", Boolean),
    may("forceStop", Boolean),
];
const DESTROY: &[Param] = &[
    may("purge", Boolean),
    may("destroy-unreferenced-disks", Boolean),
    SKIPLOCK,
];
const MIGRATE: &[Param] = &[
    must("target", NODE),
    may("online", Boolean),
    may("force", Boolean),
    may("with-local-disks", Boolean),
];
const TASK_FILTER: &[Param] = &[
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
const LOG: &[Param] = &[
    may("start", Integer(Some(0), None)),
    may("limit", Integer(Some(0), None)),
    may("download", Boolean),
];
const HA: &[Param] = &[
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
const TICKET: &[Param] = &[
    must("username", Text(Some(64))),
    must("password", Text(None)),
    may("realm", Format("pve-realm", Some(32), anything)),
    may("otp", Text(None)),
    may("tfa-challenge", Text(None)),
    may("new-format", Boolean),
    with("path", Text(Some(64)), "privs"),
    with("privs", Format("pve-priv-list", Some(64), anything), "path"),
];
const EXEC: &[Param] = &[must("command", List), may("input-data", Text(Some(65_536)))];
const AGENT_COMMANDS: &[&str] = &[
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

/// All calls.
pub(super) const CALLS: &[Call] = &[
    call("GET", "/version", Act::Version, Pace::Read, Need::None, &[]),
    call(
        "GET",
        "/access/ticket",
        Act::LoginForm,
        Pace::Read,
        Need::None,
        &[],
    ),
    Call {
        token: false,
        ..call(
            "POST",
            "/access/ticket",
            Act::Login,
            Pace::Read,
            Need::None,
            &[TICKET],
        )
    },
    call(
        "GET",
        "/access/permissions",
        Act::Permissions,
        Pace::Read,
        Need::None,
        &[&[may("path", Text(None))]],
    ),
    call(
        "GET",
        "/cluster/status",
        Act::ClusterStatus,
        Pace::Read,
        Need::Any("/", &["Sys.Audit"]),
        &[],
    ),
    call(
        "GET",
        "/cluster/resources",
        Act::ClusterResources,
        Pace::Read,
        Need::None,
        &[&[may("type", Enum(&["vm", "storage", "node", "sdn"]))]],
    ),
    call(
        "GET",
        "/cluster/nextid",
        Act::NextId,
        Pace::Read,
        Need::None,
        &[&[may("vmid", VMID)]],
    ),
    call(
        "GET",
        "/cluster/tasks",
        Act::ClusterTasks,
        Pace::Read,
        Need::None,
        &[],
    ),
    call(
        "GET",
        "/cluster/ha/resources",
        Act::HaList,
        Pace::Read,
        Need::Any("/", &["Sys.Audit"]),
        &[&[may("type", Enum(&["ct", "vm"]))]],
    ),
    call(
        "POST",
        "/cluster/ha/resources",
        Act::HaAdd,
        Pace::Change,
        Need::Any("/", &["Sys.Console"]),
        &[HA],
    ),
    call(
        "DELETE",
        "/cluster/ha/resources/{sid}",
        Act::HaRemove,
        Pace::Change,
        Need::Any("/", &["Sys.Console"]),
        &[&[SID, may("purge", Boolean)]],
    ),
    call(
        "GET",
        "/pools",
        Act::Pools,
        Pace::Read,
        Need::None,
        &[&[may("poolid", Format("pve-poolid", None, anything))]],
    ),
    call(
        "GET",
        "/storage",
        Act::Storages,
        Pace::Read,
        Need::None,
        &[&[]],
    ),
    call("GET", "/nodes", Act::Nodes, Pace::Read, Need::None, &[]),
    call(
        "GET",
        "/nodes/{node}/status",
        Act::NodeStatus,
        Pace::Read,
        NODE_AUDIT,
        &[ON_NODE],
    ),
    call(
        "GET",
        "/nodes/{node}/version",
        Act::NodeVersion,
        Pace::Read,
        Need::None,
        &[ON_NODE],
    ),
    call(
        "GET",
        "/nodes/{node}/time",
        Act::NodeTime,
        Pace::Read,
        NODE_AUDIT,
        &[ON_NODE],
    ),
    call(
        "GET",
        "/nodes/{node}/network",
        Act::NodeNetwork,
        Pace::Read,
        Need::None,
        &[ON_NODE],
    ),
    call(
        "GET",
        "/nodes/{node}/storage",
        Act::NodeStorages,
        Pace::Read,
        Need::None,
        &[
            ON_NODE,
            &[
                may("storage", STORAGE),
                may(
                    "content",
                    Format("pve-storage-content-list", None, anything),
                ),
                may("enabled", Boolean),
            ],
        ],
    ),
    call(
        "GET",
        "/nodes/{node}/storage/{storage}/status",
        Act::StorageStatus,
        Pace::Read,
        STORAGE_AUDIT,
        &[ON_STORAGE],
    ),
    call(
        "GET",
        "/nodes/{node}/storage/{storage}/content",
        Act::StorageContent,
        Pace::Read,
        STORAGE_AUDIT,
        &[
            ON_STORAGE,
            &[
                may("content", Format("pve-storage-content", None, anything)),
                may("vmid", VMID),
            ],
        ],
    ),
    call(
        "GET",
        "/nodes/{node}/tasks",
        Act::Tasks,
        Pace::Read,
        Need::None,
        &[ON_NODE, TASK_FILTER],
    ),
    call(
        "GET",
        "/nodes/{node}/tasks/{upid}",
        Act::TaskIndex,
        Pace::Read,
        Need::None,
        &[ON_TASK],
    ),
    call(
        "DELETE",
        "/nodes/{node}/tasks/{upid}",
        Act::TaskStop,
        Pace::Change,
        Need::None,
        &[ON_TASK],
    ),
    call(
        "GET",
        "/nodes/{node}/tasks/{upid}/status",
        Act::TaskStatus,
        Pace::Read,
        Need::None,
        &[ON_TASK],
    ),
    call(
        "GET",
        "/nodes/{node}/tasks/{upid}/log",
        Act::TaskLog,
        Pace::Read,
        Need::None,
        &[ON_TASK, LOG],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu",
        Act::VmList,
        Pace::Read,
        Need::None,
        &[ON_NODE, &[may("full", Boolean)]],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu",
        Act::VmCreate,
        Pace::Fork,
        Need::None,
        &[ON_VM, OPTIONS, CREATE],
    ),
    call(
        "DELETE",
        "/nodes/{node}/qemu/{vmid}",
        Act::VmDestroy,
        Pace::Fork,
        VM_ALLOCATE,
        &[ON_VM, DESTROY],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/config",
        Act::VmConfig,
        Pace::Read,
        VM_AUDIT,
        &[
            ON_VM,
            &[may("current", Boolean), may("snapshot", CONFIG_ID)],
        ],
    ),
    call(
        "PUT",
        "/nodes/{node}/qemu/{vmid}/config",
        Act::VmConfigSet,
        Pace::Change,
        VM_CONFIG,
        &[ON_VM, OPTIONS, CHANGES],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/config",
        Act::VmConfigSetLater,
        Pace::Fork,
        VM_CONFIG,
        &[ON_VM, OPTIONS, CHANGES, LATER],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/pending",
        Act::VmPending,
        Pace::Read,
        VM_AUDIT,
        &[ON_VM],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/status/current",
        Act::VmCurrent,
        Pace::Read,
        VM_AUDIT,
        &[ON_VM],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/feature",
        Act::VmFeature,
        Pace::Read,
        VM_AUDIT,
        &[
            ON_VM,
            &[
                must("feature", Enum(&["snapshot", "clone", "copy"])),
                may("snapname", CONFIG_ID),
            ],
        ],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/start",
        Act::VmStart,
        Pace::Fork,
        VM_POWER,
        &[ON_VM, START],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/stop",
        Act::VmStop,
        Pace::Fork,
        VM_POWER,
        &[ON_VM, STOP],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/shutdown",
        Act::VmShutdown,
        Pace::Fork,
        VM_POWER,
        &[ON_VM, SHUTDOWN],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/reboot",
        Act::VmReboot,
        Pace::Fork,
        VM_POWER,
        &[ON_VM, &[TIMEOUT]],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/reset",
        Act::VmReset,
        Pace::Fork,
        VM_POWER,
        &[ON_VM, &[SKIPLOCK]],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/suspend",
        Act::VmSuspend,
        Pace::Fork,
        VM_POWER,
        &[ON_VM, &[SKIPLOCK]],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/resume",
        Act::VmResume,
        Pace::Fork,
        VM_POWER,
        &[ON_VM, &[SKIPLOCK, may("nocheck", Boolean)]],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/clone",
        Act::VmClone,
        Pace::Fork,
        Need::Any("/vms/{vmid}", &["VM.Clone"]),
        &[ON_VM, CLONE],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/template",
        Act::VmTemplate,
        Pace::Fork,
        VM_ALLOCATE,
        &[ON_VM, &[may("disk", Disk)]],
    ),
    call(
        "PUT",
        "/nodes/{node}/qemu/{vmid}/resize",
        Act::VmResize,
        Pace::Fork,
        Need::Any("/vms/{vmid}", &["VM.Config.Disk"]),
        &[ON_VM, RESIZE],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/migrate",
        Act::VmMigrate,
        Pace::Fork,
        Need::Any("/vms/{vmid}", &["VM.Migrate"]),
        &[ON_VM, MIGRATE],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/snapshot",
        Act::VmSnapshots,
        Pace::Read,
        VM_AUDIT,
        &[ON_VM],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/cloudinit",
        Act::CloudInit,
        Pace::Read,
        VM_AUDIT,
        &[ON_VM],
    ),
    call(
        "PUT",
        "/nodes/{node}/qemu/{vmid}/cloudinit",
        Act::CloudInitWrite,
        Pace::Change,
        Need::Any("/vms/{vmid}", &["VM.Config.Cloudinit"]),
        &[ON_VM],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/cloudinit/dump",
        Act::CloudInitDump,
        Pace::Read,
        VM_AUDIT,
        &[ON_VM, &[must("type", Enum(&["user", "network", "meta"]))]],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/agent",
        Act::AgentCommand,
        Pace::Read,
        AGENT_ALL,
        &[ON_VM, &[must("command", Enum(AGENT_COMMANDS))]],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/agent/ping",
        Act::AgentPing,
        Pace::Read,
        AGENT_AUDIT,
        &[ON_VM],
    ),
    call(
        "POST",
        "/nodes/{node}/qemu/{vmid}/agent/exec",
        Act::AgentExec,
        Pace::Read,
        AGENT_ALL,
        &[ON_VM, EXEC],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/agent/exec-status",
        Act::AgentExecStatus,
        Pace::Read,
        AGENT_ALL,
        &[ON_VM, &[must("pid", Integer(None, None))]],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/agent/get-osinfo",
        Act::AgentOsInfo,
        Pace::Read,
        AGENT_AUDIT,
        &[ON_VM],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/agent/get-host-name",
        Act::AgentHostName,
        Pace::Read,
        AGENT_AUDIT,
        &[ON_VM],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/agent/network-get-interfaces",
        Act::AgentNetwork,
        Pace::Read,
        AGENT_AUDIT,
        &[ON_VM],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/agent/info",
        Act::AgentInfo,
        Pace::Read,
        AGENT_AUDIT,
        &[ON_VM],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/agent/get-time",
        Act::AgentTime,
        Pace::Read,
        AGENT_AUDIT,
        &[ON_VM],
    ),
];

/// The call that a method and a path name, with the path's parameters decoded.
pub(super) fn find(
    method: &str,
    path: &str,
) -> Option<(&'static Call, Vec<(&'static str, String)>)> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    CALLS
        .iter()
        .filter(|call| call.method == method)
        .find_map(|call| Some((call, matches(call.path, &segments)?)))
}

fn matches(pattern: &'static str, segments: &[&str]) -> Option<Vec<(&'static str, String)>> {
    let parts: Vec<&'static str> = pattern.trim_matches('/').split('/').collect();
    if parts.len() != segments.len() {
        return None;
    }
    let mut found = Vec::new();
    for (part, segment) in parts.iter().zip(segments) {
        match part
            .strip_prefix('{')
            .and_then(|part| part.strip_suffix('}'))
        {
            Some(name) => found.push((name, super::wire::decode(segment, false))),
            None if part == segment => {}
            None => return None,
        }
    }
    Some(found)
}
