//! What a call is: path, method, parameters, rights; and how a request finds its call.

use super::schema::ParamSchema;
use super::{calls, calls_of_admins, firewall, pci, tags};

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallHandler {
    Version,
    Login,
    LoginForm,
    Permissions,
    Roles,
    RoleAdd,
    RoleChange,
    Users,
    UserAdd,
    AclChange,
    TokenList,
    TokenAdd,
    TokenRemove,
    StorageChange,
    ClusterStatus,
    ClusterResources,
    ClusterOptions,
    NextId,
    ClusterTasks,
    HaList,
    HaAdd,
    HaRemove,
    Mappings,
    MediatedLeft,
    UsbMappings,
    DirMappings,
    VNets,
    SecurityGroups,
    DatacenterFirewall,
    FirewallRules,
    FirewallOptions,
    FirewallSwitch,
    FirewallRuleAdd,
    FirewallRuleRemove,
    Pools,
    PoolAdd,
    PoolChange,
    Storages,
    Nodes,
    NodeStatus,
    NodeVersion,
    NodeTime,
    NodeLoad,
    NodeNetwork,
    NodeStorages,
    StorageStatus,
    StorageContent,
    StorageDownload,
    StorageUpload,
    VolumeRemove,
    Tasks,
    TaskIndex,
    TaskStop,
    TaskStatus,
    TaskLog,
    VmList,
    VmCreate,
    VmDestroy,
    ContainerConfig,
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
pub(super) enum NeededPrivilege {
    /// Nobody in particular.
    None,
    /// One of the privileges on a path; `{…}` are parameters.
    Any(&'static str, &'static [&'static str]),
}

/// How long a call takes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallDuration {
    Read,
    Change,
    Fork,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub(super) struct ApiMethod {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) params: &'static [&'static [ParamSchema]],
    pub(super) need: NeededPrivilege,
    pub(super) pace: CallDuration,
    pub(super) act: CallHandler,
    /// API tokens may use it.
    pub(super) token: bool,
}

/// A call that tokens may use.
pub(super) const fn call(
    method: &'static str,
    path: &'static str,
    act: CallHandler,
    pace: CallDuration,
    need: NeededPrivilege,
    params: &'static [&'static [ParamSchema]],
) -> ApiMethod {
    ApiMethod {
        method,
        path,
        params,
        need,
        pace,
        act,
        token: true,
    }
}

/// Every call that the fake knows.
pub(super) fn all() -> impl Iterator<Item = &'static ApiMethod> {
    let usual = calls::CALLS.iter().chain(calls_of_admins::CALLS);
    let more = usual.chain(firewall::CALLS).chain(tags::CALLS);
    more.chain(pci::CALLS)
}

/// The call that a method and a path name, with the path's parameters decoded.
pub(super) fn find(
    method: &str,
    path: &str,
) -> Option<(&'static ApiMethod, Vec<(&'static str, String)>)> {
    let mut segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    // What follows is one volume's name, with the slash in it (`fragmentDelimiter` of PVE's storage API).
    let joined = match segments[..] {
        ["nodes", _, "storage", _, "content", storage, name] => format!("{storage}/{name}"),
        _ => String::new(),
    };
    if !joined.is_empty() {
        segments.truncate(5);
        segments.push(&joined);
    }
    all()
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
