//! Roles, users, API tokens, resource pools and who may do what where: what an administrator's setup makes (pve-access-control,
//! `PVE/API2/{Role,User,ACL}.pm`). Words of errors as there.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::schema::split;
use super::spec::{AclSpec, PveUserSpec, TokenSpec};
use super::table::CallHandler;
use super::wire::ErrorAnswer;
use super::world::PveWorld;
use super::{CheckedCall, Pve};
use crate::model::time::Time;

impl Pve {
    /// One of the calls below `/access` that are no login, and the change of a storage.
    pub(super) fn account(
        &self,
        act: CallHandler,
        asked: &CheckedCall,
    ) -> Result<Value, ErrorAnswer> {
        match act {
            CallHandler::AclChange => {
                self.need(&asked.caller, asked.text("path"), &["Permissions.Modify"])?;
            }
            CallHandler::TokenList | CallHandler::TokenAdd | CallHandler::TokenRemove
                if asked.caller.user() != asked.text("userid") =>
            {
                self.need(&asked.caller, "/access/groups", &["User.Modify"])?;
            }
            CallHandler::RoleAdd | CallHandler::RoleChange => {
                let release = self.world(|world, _| world.release());
                release.check_privileges(asked.text("privs"))?;
            }
            CallHandler::PoolAdd | CallHandler::PoolChange => {
                let pool = format!("/pool/{}", asked.text("poolid"));
                self.need(&asked.caller, &pool, &["Pool.Allocate"])?;
            }
            CallHandler::UserAdd => {
                let realm = asked.text("userid").rsplit('@').next().unwrap_or_default();
                let realm = format!("/access/realm/{realm}");
                self.need(&asked.caller, &realm, &["Realm.AllocateUser"])?;
                self.need(&asked.caller, "/access/groups", &["User.Modify"])?;
            }
            _ => {}
        }
        self.world(|world, now| match act {
            CallHandler::Roles => Ok(world.role_list()),
            CallHandler::RoleAdd => world.role_add(asked),
            CallHandler::RoleChange => world.role_change(asked),
            CallHandler::Users => Ok(world.user_list()),
            CallHandler::UserAdd => world.user_add(asked),
            CallHandler::AclChange => world.acl_change(asked),
            CallHandler::TokenList => world.token_list(asked),
            CallHandler::TokenAdd => world.token_add(asked),
            CallHandler::TokenRemove => world.token_remove(asked),
            CallHandler::PoolAdd => world.pool_add(asked),
            CallHandler::PoolChange => world.pool_change(asked, now).map_err(|why| {
                // What is thrown under the lock, exceptions for missing rights among it, comes out as text.
                ErrorAnswer::die(format!("update pools failed: {why}"))
            }),
            CallHandler::StorageChange => world.storage_change(asked),
            _ => Err(ErrorAnswer::not_implemented("", "")),
        })
    }
}

impl PveWorld {
    fn role_list(&self) -> Value {
        let rows = self.roles.iter();
        let rows = rows.map(|(name, privileges)| {
            json!({ "roleid": name, "privs": privileges.join(","), "special": 0 })
        });
        json!(rows.collect::<Vec<_>>())
    }

    fn role_add(&mut self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let name = asked.text("roleid").to_owned();
        if name.to_ascii_lowercase().starts_with("pve") {
            let why = "cannot use role ID starting with the (case-insensitive) 'PVE' namespace";
            return Err(ErrorAnswer::parameter("roleid", why));
        }
        if self.roles.contains_key(&name) {
            return Err(ErrorAnswer::die(format!("role '{name}' already exists")));
        }
        self.roles.insert(name, words(asked.text("privs")));
        Ok(Value::Null)
    }

    fn role_change(&mut self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let name = asked.text("roleid");
        let append = asked.text("append") == "1";
        let Some(held) = self.roles.get_mut(name) else {
            return Err(ErrorAnswer::die(format!("role '{name}' does not exist")));
        };
        let mut before = Vec::new();
        if !append {
            std::mem::swap(held, &mut before);
        }
        for privilege in words(asked.text("privs")) {
            if !held.contains(&privilege) {
                held.push(privilege);
            }
        }
        self.follow_role(name, &before);
        Ok(Value::Null)
    }

    /// Whoever was given a role has what it has now, and no more what it had `before`, but for what another role at the same place gives.
    fn follow_role(&mut self, role: &str, before: &[String]) {
        let grants = self.role_grants.clone();
        for (who, path, _) in grants.iter().filter(|(_, _, given)| given == role) {
            let there = grants.iter().filter(|(of, at, _)| of == who && at == path);
            let of_roles = there.filter_map(|(_, _, given)| self.roles.get(given));
            let now: Vec<String> = of_roles.flatten().cloned().collect();
            let Some(acl) = self.acl_of(who) else {
                continue;
            };
            for entry in acl.iter_mut().filter(|entry| entry.path == *path) {
                let gone = |one: &String| before.contains(one) && !now.contains(one);
                entry.privileges.retain(|one| !gone(one));
            }
            grant(acl, path, &now);
        }
    }

    /// What a user or a token was given.
    fn acl_of(&mut self, who: &str) -> Option<&mut Vec<AclSpec>> {
        let users = self.spec.users.iter_mut();
        let users = users.map(|user| (&user.name, &mut user.acl));
        let tokens = self.spec.tokens.iter_mut();
        let tokens = tokens.map(|token| (&token.id, &mut token.acl));
        let mut all = users.chain(tokens);
        all.find(|(name, _)| *name == who).map(|(_, acl)| acl)
    }

    fn user_list(&self) -> Value {
        let rows = self.spec.users.iter();
        let rows = rows.map(|user| json!({ "userid": user.name, "enable": 1, "expire": 0 }));
        json!(rows.collect::<Vec<_>>())
    }

    fn user_add(&mut self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let name = asked.text("userid");
        if self.has_user(name) {
            return Err(ErrorAnswer::die(format!("user '{name}' already exists")));
        }
        self.spec.users.push(PveUserSpec {
            name: name.to_owned(),
            password: asked.text("password").to_owned(),
            acl: Vec::new(),
        });
        Ok(Value::Null)
    }

    fn has_user(&self, name: &str) -> bool {
        self.spec.users.iter().any(|user| user.name == name)
    }

    fn acl_change(&mut self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let mut privileges = Vec::new();
        for role in words(asked.text("roles")) {
            let Some(held) = self.roles.get(&role) else {
                return Err(ErrorAnswer::die(format!("role '{role}' does not exist")));
            };
            privileges.extend(held.iter().cloned());
            let given = words(asked.text("users"));
            let given = given.into_iter().chain(words(asked.text("tokens")));
            let grants = given.map(|who| (who, asked.text("path").to_owned(), role.clone()));
            self.role_grants.extend(grants);
        }
        let path = asked.text("path");
        for name in words(asked.text("users")) {
            let user = self.spec.users.iter_mut().find(|user| user.name == name);
            let Some(user) = user else {
                return Err(ErrorAnswer::die(format!("user '{name}' does not exist")));
            };
            grant(&mut user.acl, path, &privileges);
        }
        for name in words(asked.text("tokens")) {
            let token = self.spec.tokens.iter_mut().find(|token| token.id == name);
            let Some(token) = token else {
                return Err(ErrorAnswer::die(format!("no such token '{name}'")));
            };
            grant(&mut token.acl, path, &privileges);
        }
        Ok(Value::Null)
    }

    fn token_list(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let user = self.known_user(asked)?;
        let of_user = self.spec.tokens.iter().filter_map(|token| {
            let (owner, name) = token.id.split_once('!')?;
            let row = json!({ "tokenid": name, "privsep": u8::from(token.privsep), "expire": 0 });
            (owner == user).then_some(row)
        });
        Ok(json!(of_user.collect::<Vec<_>>()))
    }

    fn known_user<'a>(&self, asked: &'a CheckedCall) -> Result<&'a str, ErrorAnswer> {
        let user = asked.text("userid");
        if self.has_user(user) {
            Ok(user)
        } else {
            Err(ErrorAnswer::die(format!("no such user ('{user}')")))
        }
    }

    fn token_add(&mut self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let user = self.known_user(asked)?;
        let id = format!("{user}!{}", asked.text("tokenid"));
        if self.spec.tokens.iter().any(|token| token.id == id) {
            return Err(ErrorAnswer::parameter("tokenid", "Token already exists."));
        }
        let secret = self.uuid();
        let privsep = asked.given("privsep") != Some("0");
        self.spec.tokens.push(TokenSpec {
            id: id.clone(),
            secret: secret.clone(),
            privsep,
            acl: Vec::new(),
        });
        let info = json!({ "privsep": u8::from(privsep).to_string() });
        Ok(json!({ "full-tokenid": id, "value": secret, "info": info }))
    }

    fn token_remove(&mut self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let user = self.known_user(asked)?;
        let id = format!("{user}!{}", asked.text("tokenid"));
        let before = self.spec.tokens.len();
        self.spec.tokens.retain(|token| token.id != id);
        if self.spec.tokens.len() < before {
            Ok(Value::Null)
        } else {
            Err(ErrorAnswer::die(format!("no such token '{id}'")))
        }
    }

    fn pool_add(&mut self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let name = asked.text("poolid");
        if self.pools.contains_key(name) {
            return Err(ErrorAnswer::die(format!(
                "create pool failed: pool '{name}' already exists"
            )));
        }
        self.pools.insert(name.to_owned(), BTreeSet::new());
        Ok(Value::Null)
    }

    /// `update_pool` of pve-manager's `PVE/API2/Pool.pm`: all of it, or nothing.
    fn pool_change(&mut self, asked: &CheckedCall, now: Time) -> Result<Value, String> {
        if !self.quorate {
            return Err("cfs-lock 'file-user_cfg' error: no quorum!".to_owned());
        }
        let name = asked.text("poolid");
        let mut pools = self.pools.clone();
        if !pools.contains_key(name) {
            return Err(format!("pool '{name}' does not exist"));
        }
        let lacks = |path: String, privileges: &[&str]| {
            let may = self.allowed(&asked.caller, &path, privileges);
            (!may).then(|| {
                let privileges = privileges.join("|");
                format!("403 Permission check failed ({path}, {privileges})")
            })
        };
        for vmid in split(asked.text("vms")).filter_map(|vmid| vmid.parse::<u32>().ok()) {
            let modify = ["Permissions.Modify", "VM.Allocate"];
            if let Some(why) = lacks(format!("/vms/{vmid}"), &modify) {
                return Err(why);
            }
            let holder = pools.iter().find(|(_, members)| members.contains(&vmid));
            let holder = holder.map(|(holder, _)| holder.clone());
            match (holder, asked.flag("delete")) {
                (Some(holder), true) if holder == name => {
                    pools.entry(holder).or_default().remove(&vmid);
                    continue;
                }
                (_, true) => return Err(format!("VM {vmid} is not a pool member")),
                (Some(holder), false) if holder == name => {
                    return Err(format!("VM {vmid} is already a pool member"));
                }
                (Some(holder), false) if !asked.flag("allow-move") => {
                    return Err(format!(
                        "VM {vmid} belongs already to pool '{holder}' and 'allow-move' is not set"
                    ));
                }
                (Some(holder), false) => {
                    if let Some(why) = lacks(format!("/pool/{holder}"), &["Pool.Allocate"]) {
                        return Err(why);
                    }
                    pools.entry(holder).or_default().remove(&vmid);
                }
                (None, false) => {}
            }
            pools.entry(name.to_owned()).or_default().insert(vmid);
        }
        self.pools = pools;
        for vmid in split(asked.text("vms")).filter_map(|vmid| vmid.parse().ok()) {
            self.note(now, &asked.caller.name, vmid, "pool");
        }
        Ok(Value::Null)
    }

    fn storage_change(&mut self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let name = asked.text("storage");
        let Some(storage) = self.storages.get_mut(name) else {
            return Err(ErrorAnswer::die(format!("storage '{name}' does not exist")));
        };
        if let Some(content) = asked.given("content") {
            let mut kinds = words(content);
            kinds.sort();
            storage.content = kinds.join(",");
        }
        Ok(json!({ "storage": name, "type": storage.kind.as_str() }))
    }
}

/// The parts of a list, as PVE separates them.
fn words(list: &str) -> Vec<String> {
    split(list).map(str::to_owned).collect()
}

/// Adds privileges on a path to those that are held there.
fn grant(acl: &mut Vec<AclSpec>, path: &str, privileges: &[String]) {
    let at = match acl.iter().position(|entry| entry.path == path) {
        Some(at) => at,
        None => {
            acl.push(AclSpec {
                path: path.to_owned(),
                privileges: Vec::new(),
            });
            acl.len() - 1
        }
    };
    let held = &mut acl[at].privileges;
    for privilege in privileges {
        if !held.contains(privilege) {
            held.push(privilege.clone());
        }
    }
}
