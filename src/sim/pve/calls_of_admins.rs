//! The calls by which an administrator sets a cluster up: roles, users, tokens, resource pools, what a storage may hold.

use super::params::{ACCESS_MODIFY, ACL, PRIVILEGES, ROLE, TOKEN, USER};
use super::schema::Kind::{Boolean, Format, Text};
use super::schema::{STORAGE, anything, may, must, split, with};
use super::table::{Act, Call, Need, Pace, call};

/// All of them.
pub(super) const CALLS: &[Call] = &[
    call(
        "GET",
        "/access/roles",
        Act::Roles,
        Pace::Read,
        Need::None,
        &[],
    ),
    call(
        "POST",
        "/access/roles",
        Act::RoleAdd,
        Pace::Change,
        ACCESS_MODIFY,
        &[&[must("roleid", ROLE), may("privs", PRIVILEGES)]],
    ),
    call(
        "PUT",
        "/access/roles/{roleid}",
        Act::RoleChange,
        Pace::Change,
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
        Act::Users,
        Pace::Read,
        Need::None,
        &[],
    ),
    call(
        "POST",
        "/access/users",
        Act::UserAdd,
        Pace::Change,
        Need::None,
        &[&[
            must("userid", USER),
            may("comment", Text(Some(2_048))),
            may("password", Text(Some(64))),
        ]],
    ),
    call(
        "PUT",
        "/access/acl",
        Act::AclChange,
        Pace::Change,
        Need::None,
        &[ACL],
    ),
    call(
        "GET",
        "/access/users/{userid}/token",
        Act::TokenList,
        Pace::Read,
        Need::None,
        &[&[must("userid", USER)]],
    ),
    call(
        "POST",
        "/access/users/{userid}/token/{tokenid}",
        Act::TokenAdd,
        Pace::Change,
        Need::None,
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
        Act::TokenRemove,
        Pace::Change,
        Need::None,
        &[&[must("userid", USER), must("tokenid", TOKEN)]],
    ),
    call(
        "PUT",
        "/storage/{storage}",
        Act::StorageChange,
        Pace::Change,
        Need::Any("/storage", &["Datastore.Allocate"]),
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
        Act::PoolAdd,
        Pace::Change,
        Need::None,
        &[&[
            must("poolid", Format("pve-poolid", None, anything)),
            may("comment", Text(None)),
        ]],
    ),
    call(
        "PUT",
        "/pools",
        Act::PoolChange,
        Pace::Change,
        Need::None,
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
