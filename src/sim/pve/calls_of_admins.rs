//! The calls by which an administrator sets a cluster up: roles, users, tokens, resource pools, what a storage may hold.

use super::params::{ACCESS_MODIFY, ACL, PRIVILEGES, ROLE, TOKEN, USER};
use super::schema::ParamKind::{Boolean, Format, Text};
use super::schema::{STORAGE, anything, may, must, split, with};
use super::table::{ApiMethod, CallDuration, CallHandler, NeededPrivilege, call};

/// All of them.
pub(super) const CALLS: &[ApiMethod] = &[
    call(
        "GET",
        "/access/roles",
        CallHandler::Roles,
        CallDuration::Read,
        NeededPrivilege::None,
        &[],
    ),
    call(
        "POST",
        "/access/roles",
        CallHandler::RoleAdd,
        CallDuration::Change,
        ACCESS_MODIFY,
        &[&[must("roleid", ROLE), may("privs", PRIVILEGES)]],
    ),
    call(
        "PUT",
        "/access/roles/{roleid}",
        CallHandler::RoleChange,
        CallDuration::Change,
        ACCESS_MODIFY,
        &[&[
            must("roleid", ROLE),
            may("privs", PRIVILEGES),
            with("append", Boolean, "privs"),
        ]],
    ),
    call(
        "GET",
        "/access/users",
        CallHandler::Users,
        CallDuration::Read,
        NeededPrivilege::None,
        &[],
    ),
    call(
        "POST",
        "/access/users",
        CallHandler::UserAdd,
        CallDuration::Change,
        NeededPrivilege::None,
        &[&[
            must("userid", USER),
            may("comment", Text(Some(2_048))),
            may("password", Text(Some(64))),
        ]],
    ),
    call(
        "PUT",
        "/access/acl",
        CallHandler::AclChange,
        CallDuration::Change,
        NeededPrivilege::None,
        &[ACL],
    ),
    call(
        "GET",
        "/access/users/{userid}/token",
        CallHandler::TokenList,
        CallDuration::Read,
        NeededPrivilege::None,
        &[&[must("userid", USER)]],
    ),
    call(
        "POST",
        "/access/users/{userid}/token/{tokenid}",
        CallHandler::TokenAdd,
        CallDuration::Change,
        NeededPrivilege::None,
        &[&[
            must("userid", USER),
            must("tokenid", TOKEN),
            may("privsep", Boolean),
            may("comment", Text(None)),
        ]],
    ),
    call(
        "DELETE",
        "/access/users/{userid}/token/{tokenid}",
        CallHandler::TokenRemove,
        CallDuration::Change,
        NeededPrivilege::None,
        &[&[must("userid", USER), must("tokenid", TOKEN)]],
    ),
    call(
        "PUT",
        "/storage/{storage}",
        CallHandler::StorageChange,
        CallDuration::Change,
        NeededPrivilege::Any("/storage", &["Datastore.Allocate"]),
        &[&[
            must("storage", STORAGE),
            may(
                "content",
                Format("pve-storage-content-list", None, anything),
            ),
            may("digest", Text(Some(64))),
        ]],
    ),
    call(
        "POST",
        "/pools",
        CallHandler::PoolAdd,
        CallDuration::Change,
        NeededPrivilege::None,
        &[&[
            must("poolid", Format("pve-poolid", None, anything)),
            may("comment", Text(None)),
        ]],
    ),
    call(
        "PUT",
        "/pools",
        CallHandler::PoolChange,
        CallDuration::Change,
        NeededPrivilege::None,
        &[&[
            must("poolid", Format("pve-poolid", None, anything)),
            may("comment", Text(None)),
            may("vms", Format("pve-vmid-list", None, vmids)),
            may("allow-move", Boolean),
            may("delete", Boolean),
        ]],
    ),
];

fn vmids(list: &str) -> Result<(), String> {
    let wrong = split(list).find(|vmid| !vmid.parse().is_ok_and(|vmid: u32| vmid >= 100));
    wrong.map_or(Ok(()), |_| {
        Err("value does not look like a valid VM ID".to_owned())
    })
}
