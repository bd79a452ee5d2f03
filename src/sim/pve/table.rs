//! What a call is: path, method, parameters, rights; and how a request finds its call.

use super::schema::Param;
use super::{calls, calls_of_admins, firewall};

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
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
    NextId,
    ClusterTasks,
    HaList,
    HaAdd,
    HaRemove,
    Mappings,
    SecurityGroups,
    FirewallRules,
    FirewallOptions,
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

/// A call that tokens may use.
pub(super) const fn call(
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

/// Every call that the fake knows.
pub(super) fn all() -> impl Iterator<Item = &'static Call> {
    let usual = calls::CALLS.iter().chain(calls_of_admins::CALLS);
    usual.chain(firewall::CALLS)
}

/// The call that a method and a path name, with the path's parameters decoded.
pub(super) fn find(
    method: &str,
    path: &str,
) -> Option<(&'static Call, Vec<(&'static str, String)>)> {
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
