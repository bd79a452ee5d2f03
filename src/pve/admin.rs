//! The calls by which a person's command sets PVE up, and looks at what a token may do: roles, users, tokens, tags, what a storage
//! may hold. The daemon makes none of them, and the broker passes none of them on.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::SecretString;
use serde_json::Value;

use super::calls::{pair, request};
use super::client::Client;
use super::encode::path;
use super::perl::{self, Fields};
use super::transport::{CallEffect, CallError, HttpMethod};
use super::types::deadline;

/// The names of these calls in errors.
pub(super) const CALLS: [&str; 10] = [
    "cluster_options",
    "create_pool",
    "create_role",
    "create_token",
    "create_user",
    "roles",
    "set_acl",
    "set_storage_content",
    "tokens",
    "users",
];

/// Separated as PVE does (`PVE::Tools::split_list`).
fn list(text: &str) -> BTreeSet<String> {
    text.split([',', ';', ' '])
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Which tags a caller may give VMs and take from them, of one without `Sys.Modify` on `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagRules {
    /// `user-allow` of `user-tag-access`: `free` where any tag may be used that is not registered.
    pub user_allow: String,
    /// `user-allow-list` of it.
    pub user_allow_list: BTreeSet<String>,
    /// `registered-tags`: tags for those with `Sys.Modify` on `/`.
    pub registered: BTreeSet<String>,
    /// The tags that the caller may use by name.
    pub allowed: BTreeSet<String>,
}

impl TagRules {
    /// Reads the data of `GET /cluster/options`, of a caller with `Sys.Audit` on `/`: others are told of `allowed-tags` alone.
    pub(super) fn read(data: &Value) -> TagRules {
        let fields = Fields::of(data);
        let users = fields.inner("user-tag-access");
        TagRules {
            user_allow: users.text("user-allow").unwrap_or_else(|| "free".into()),
            user_allow_list: names(users.get("user-allow-list")),
            registered: names(fields.get("registered-tags")),
            allowed: names(fields.get("allowed-tags")),
        }
    }

    /// Whether the caller may give a VM this tag, and take it away (pve-guest-common, `assert_tag_permissions`).
    pub fn allows(&self, tag: &str) -> bool {
        let named = self.user_allow == "free" || self.allowed.contains(tag);
        named && !self.registered.contains(tag)
    }
}

/// The texts of an array; none where it is not there.
fn names(value: Option<&Value>) -> BTreeSet<String> {
    let values = value.and_then(Value::as_array).into_iter().flatten();
    values.filter_map(perl::text).collect()
}

impl Client {
    /// `GET /cluster/options`: which tags the caller may use, if he has `Sys.Audit` on `/`.
    pub async fn tag_rules(&self) -> Result<TagRules, CallError> {
        let at = path(&["cluster", "options"]);
        let asked = self.get("cluster_options", at, vec![], deadline::READ);
        Ok(TagRules::read(&asked.await?))
    }

    /// A change of which the answer says nothing.
    async fn change(
        &self,
        call: &'static str,
        method: HttpMethod,
        at: String,
        params: Vec<(String, String)>,
    ) -> Result<(), CallError> {
        let asked = request(call, method, at, params, deadline::CHANGE);
        self.send(asked).await.map(drop)
    }

    /// `GET /access/roles`: the roles with their privileges.
    pub async fn roles(&self) -> Result<BTreeMap<String, BTreeSet<String>>, CallError> {
        let at = path(&["access", "roles"]);
        let data = self.get("roles", at, vec![], deadline::READ).await?;
        let entries = data.as_array().into_iter().flatten().map(Fields::of);
        let roles = entries.filter_map(|entry| {
            let privileges = list(&entry.text("privs").unwrap_or_default());
            Some((entry.text("roleid")?, privileges))
        });
        Ok(roles.collect())
    }

    /// `POST /access/roles`, or `PUT /access/roles/{role}` where it is `there`: a role has these privileges and no others.
    pub async fn set_role(
        &self,
        role: &str,
        privileges: &BTreeSet<&str>,
        there: bool,
    ) -> Result<(), CallError> {
        let all: Vec<&str> = privileges.iter().copied().collect();
        let privs = pair("privs", all.join(","));
        let (method, at, params) = if there {
            (
                HttpMethod::Put,
                path(&["access", "roles", role]),
                vec![privs],
            )
        } else {
            (
                HttpMethod::Post,
                path(&["access", "roles"]),
                vec![pair("roleid", role), privs],
            )
        };
        self.change("create_role", method, at, params).await
    }

    /// `POST /pools`: a resource pool.
    pub async fn create_pool(&self, pool: &str, comment: &str) -> Result<(), CallError> {
        let at = path(&["pools"]);
        let params = vec![pair("poolid", pool), pair("comment", comment)];
        self.change("create_pool", HttpMethod::Post, at, params)
            .await
    }

    /// `GET /access/users`: the names of the users that the caller may see.
    pub async fn users(&self) -> Result<BTreeSet<String>, CallError> {
        let at = path(&["access", "users"]);
        let data = self.get("users", at, vec![], deadline::READ).await?;
        let entries = data.as_array().into_iter().flatten().map(Fields::of);
        Ok(entries.filter_map(|entry| entry.text("userid")).collect())
    }

    /// `POST /access/users`: a user without a password, who can log in by tokens alone.
    pub async fn create_user(&self, user: &str, comment: &str) -> Result<(), CallError> {
        let at = path(&["access", "users"]);
        let params = vec![pair("userid", user), pair("comment", comment)];
        self.change("create_user", HttpMethod::Post, at, params)
            .await
    }

    /// `PUT /access/acl`: gives a user a role on a path and all below it, and a token of his (`USER!NAME`), if one is named.
    pub async fn grant(
        &self,
        on: &str,
        (user, token): (&str, Option<&str>),
        role: &str,
    ) -> Result<(), CallError> {
        let at = path(&["access", "acl"]);
        let mut params = vec![
            pair("path", on),
            pair("users", user),
            pair("roles", role),
            pair("propagate", "1"),
        ];
        params.extend(token.map(|token| pair("tokens", token)));
        self.change("set_acl", HttpMethod::Put, at, params).await
    }

    /// `GET /access/users/{user}/token`: the names of a user's tokens, and whether a token has privilege separation: it has only those of
    /// its user's rights that it was given itself.
    pub async fn tokens(&self, user: &str) -> Result<BTreeMap<String, bool>, CallError> {
        let at = path(&["access", "users", user, "token"]);
        let data = self.get("tokens", at, vec![], deadline::READ).await?;
        let entries = data.as_array().into_iter().flatten().map(Fields::of);
        let tokens = entries.filter_map(|entry| {
            let separate = entry.text("privsep").is_none() || entry.flag("privsep");
            Some((entry.text("tokenid")?, separate))
        });
        Ok(tokens.collect())
    }

    /// `POST /access/users/{user}/token/{name}`: a token with its user's rights. PVE tells its secret this once.
    pub async fn create_token(&self, user: &str, name: &str) -> Result<SecretString, CallError> {
        let at = path(&["access", "users", user, "token", name]);
        let params = vec![pair("privsep", "0")];
        let asked = request(
            "create_token",
            HttpMethod::Post,
            at,
            params,
            deadline::CHANGE,
        );
        let named = asked.clone();
        let data = self.send(asked).await?;
        let secret = Fields::of(&data).text("value");
        secret.map(SecretString::from).ok_or_else(|| {
            CallError::new(CallEffect::Unknown, "the answer has no value").about(&named)
        })
    }

    /// `PUT /storage/{storage}`: what may lie on a storage, the whole list.
    pub async fn set_storage_content(
        &self,
        storage: &str,
        content: &BTreeSet<String>,
    ) -> Result<(), CallError> {
        let at = path(&["storage", storage]);
        let all: Vec<&str> = content.iter().map(String::as_str).collect();
        let params = vec![pair("content", all.join(","))];
        self.change("set_storage_content", HttpMethod::Put, at, params)
            .await
    }
}
