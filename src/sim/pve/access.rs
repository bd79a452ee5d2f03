//! Who asks and what he may do: tickets, CSRF tokens, API tokens, rights.
//!
//! A ticket is `PVE:USER:TIME::SIGNATURE` and a CSRF token `TIME:SIGNATURE`, TIME in eight upper-case
//! hexadecimal digits of seconds. PVE signs with its own keys; here the signature is
//! `base64(SHA-256(ticket_key + what stands before it))` with `ticket_key` of the spec (for the CSRF
//! token: `base64(SHA-256(ticket_key + TIME + ":" + USER))`, unpadded), so that a stand-in for PVE's
//! own code can make one.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::{HeaderMap, header};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::releases::MONITOR;
use super::spec::AclSpec;
use super::wire::{ErrorAnswer, decode};
use super::world::PveWorld;
use super::{CheckedCall, HostDoor, Pve};
use crate::model::time::Time;

/// How long a ticket is good, in seconds (AccessControl.pm).
const TICKET_LIFE: i64 = 7_200;
/// How far in the future a ticket's time may lie, in seconds.
const TICKET_AHEAD: i64 = 300;
/// Every privilege that the fake's calls ask for: what root@pam has.
const PRIVILEGES: &[&str] = &[
    "Datastore.Allocate",
    "Datastore.AllocateSpace",
    "Datastore.AllocateTemplate",
    "Datastore.Audit",
    "Mapping.Audit",
    "Mapping.Modify",
    "Mapping.Use",
    "Permissions.Modify",
    "Pool.Allocate",
    "Pool.Audit",
    "Realm.AllocateUser",
    "SDN.Use",
    "Sys.AccessNetwork",
    "Sys.Audit",
    "Sys.Console",
    "Sys.Modify",
    "User.Modify",
    "VM.Allocate",
    "VM.Audit",
    "VM.Clone",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.GuestAgent.Audit",
    "VM.GuestAgent.Unrestricted",
    "VM.Migrate",
    MONITOR,
    "VM.PowerMgmt",
];

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// `root@pam` or `scaler@pve!sim`; empty before the login.
    pub(super) name: String,
}

impl Caller {
    /// The name without a token's part.
    pub(super) fn user(&self) -> &str {
        self.name.split('!').next().unwrap_or_default()
    }

    pub(super) fn is_token(&self) -> bool {
        self.name.contains('!')
    }

    /// root@pam in person: a token of his is somebody else.
    pub(super) fn is_root(&self) -> bool {
        self.name == "root@pam"
    }
}

impl HostDoor {
    /// Finds out who asks; a change by ticket needs the CSRF token too.
    pub(super) fn authenticate(
        &self,
        method: &str,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Caller, ErrorAnswer> {
        if path == "/access/ticket" {
            return Ok(Caller {
                name: String::new(),
            });
        }
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let authorization = text(header::AUTHORIZATION);
        if let Some(token) = authorization.and_then(|value| value.strip_prefix("PVEAPIToken=")) {
            return self.pve.token(token);
        }
        let cookie = text(header::COOKIE).and_then(|cookies| {
            cookies
                .split(';')
                .find_map(|cookie| cookie.trim().strip_prefix("PVEAuthCookie="))
        });
        let ticket =
            cookie.or_else(|| authorization.and_then(|value| value.strip_prefix("PVEAuthCookie=")));
        let Some(ticket) = ticket else {
            return match &self.trusted {
                Some(user) => Ok(Caller { name: user.clone() }),
                None => Err(ErrorAnswer::unauthorised("No ticket")),
            };
        };
        let name = self
            .pve
            .world(|world, now| world.check_ticket(&decode(ticket, false), now));
        let name = name.ok_or_else(|| ErrorAnswer::unauthorised("Authentication failed!"))?;
        if method != "GET" {
            let csrf = headers
                .get("CSRFPreventionToken")
                .and_then(|value| value.to_str().ok());
            let fine = self
                .pve
                .world(|world, now| csrf.is_some_and(|csrf| world.check_csrf(csrf, &name, now)));
            if !fine {
                return Err(ErrorAnswer::unauthorised(
                    "Permission denied - invalid csrf token",
                ));
            }
        }
        Ok(Caller { name })
    }
}

impl Pve {
    fn token(&self, text: &str) -> Result<Caller, ErrorAnswer> {
        let found = self.world(|world, _| {
            let (id, secret) = text.split_once('=')?;
            let token = world.spec.tokens.iter().find(|token| token.id == id)?;
            (token.secret == secret).then(|| token.id.clone())
        });
        match found {
            Some(name) => Ok(Caller { name }),
            None => Err(ErrorAnswer::unauthorised("Authentication failed!")),
        }
    }

    /// A ticket and CSRF token for a user, as PVE's own code on the host would make them.
    pub fn ticket(&self, user: &str) -> (String, String) {
        self.world(|world, now| (world.make_ticket(user, now), world.make_csrf(user, now)))
    }

    pub(super) fn login(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let name = match asked.given("realm") {
            Some(realm) if !asked.text("username").contains('@') => {
                format!("{}@{realm}", asked.text("username"))
            }
            _ => asked.text("username").to_owned(),
        };
        let password = asked.text("password");
        self.world(|world, now| {
            let known = world.spec.users.iter().any(|user| user.name == name && user.password == password);
            // A ticket serves as password too: that is how one is renewed.
            let renewed = world.check_ticket(password, now).is_some_and(|owner| owner == name);
            if !known && !renewed {
                return Err(ErrorAnswer::login());
            }
            Ok(json!({
                "username": name, "ticket": world.make_ticket(&name, now),
                "CSRFPreventionToken": world.make_csrf(&name, now), "clustername": world.spec.cluster,
                "cap": {},
            }))
        })
    }

    /// Whether the caller has one of the privileges on a path.
    pub(super) fn allowed(&self, caller: &Caller, path: &str, privileges: &[&str]) -> bool {
        self.world(|world, _| world.allowed(caller, path, privileges))
    }

    /// Answers 403 unless the caller has one of the privileges on a path.
    pub(super) fn need(
        &self,
        caller: &Caller,
        path: &str,
        privileges: &[&str],
    ) -> Result<(), ErrorAnswer> {
        if self.allowed(caller, path, privileges) {
            return Ok(());
        }
        Err(ErrorAnswer::forbidden(format!(
            "Permission check failed ({path}, {})",
            privileges.join("|")
        )))
    }

    pub(super) fn permissions(&self, asked: &CheckedCall) -> Value {
        self.world(|world, _| {
            let paths: Vec<String> = match asked.given("path") {
                Some(path) => vec![path.to_owned()],
                None if world.holds_all(&asked.caller) => vec!["/".to_owned()],
                None => world
                    .acl(&asked.caller)
                    .iter()
                    .map(|entry| entry.path.clone())
                    .collect(),
            };
            let held = paths.into_iter().map(|path| {
                let privileges = PRIVILEGES
                    .iter()
                    .filter(|one| world.release().has_privilege(one))
                    .filter(|one| world.allowed(&asked.caller, &path, &[one]));
                let held: serde_json::Map<String, Value> = privileges
                    .map(|one| ((*one).to_owned(), json!(1)))
                    .collect();
                (path, Value::Object(held))
            });
            Value::Object(held.collect())
        })
    }
}

impl PveWorld {
    /// Whether the caller has one of the privileges on a path.
    pub(super) fn allowed(&self, caller: &Caller, path: &str, privileges: &[&str]) -> bool {
        if self.holds_all(caller) {
            return true;
        }
        let acl = self.acl(caller);
        let holds = |path: &str| {
            let above = acl.iter().filter(|entry| {
                entry.path == "/"
                    || entry.path == path
                    || path.starts_with(&format!("{}/", entry.path))
            });
            // The deepest entry decides.
            let deepest = above.max_by_key(|entry| entry.path.len());
            deepest.is_some_and(|entry| {
                entry
                    .privileges
                    .iter()
                    .any(|held| privileges.contains(&held.as_str()))
            })
        };
        holds(path)
            || self
                .pools_of(path)
                .iter()
                .any(|pool| holds(&format!("/pool/{pool}")))
    }

    /// root@pam in person, or a token of his that has his rights (`privsep=0`): no check of rights stops them. What root
    /// alone may set, by his name, the token may not (RPCEnvironment.pm, `permissions`).
    fn holds_all(&self, caller: &Caller) -> bool {
        let mut tokens = self.spec.tokens.iter();
        let whole = tokens.any(|token| token.id == caller.name && !token.privsep);
        caller.is_root() || (caller.user() == "root@pam" && whole)
    }

    /// The pools that a path's VM is in: their rights hold for it as well.
    fn pools_of(&self, path: &str) -> Vec<&String> {
        let vmid = path
            .strip_prefix("/vms/")
            .and_then(|rest| rest.parse::<u32>().ok());
        let pools = self
            .pools
            .iter()
            .filter(|(_, members)| vmid.is_some_and(|vmid| members.contains(&vmid)));
        pools.map(|(name, _)| name).collect()
    }

    pub(super) fn acl(&self, caller: &Caller) -> &[AclSpec] {
        let mut tokens = self.spec.tokens.iter();
        let token = tokens.find(|token| token.id == caller.name);
        let whose = match token {
            Some(token) if token.privsep => return &token.acl,
            _ => caller.user(),
        };
        let user = self
            .spec
            .users
            .iter()
            .find(|user| user.name == whose)
            .map(|user| &user.acl);
        user.map_or(&[], Vec::as_slice)
    }

    fn sign(&self, text: &str) -> [u8; 32] {
        Sha256::digest(format!("{}{text}", self.spec.ticket_key).as_bytes()).into()
    }

    fn make_ticket(&self, user: &str, now: Time) -> String {
        let plain = format!("PVE:{user}:{}", stamp(now));
        format!("{plain}::{}", STANDARD.encode(self.sign(&plain)))
    }

    fn make_csrf(&self, user: &str, now: Time) -> String {
        let time = stamp(now);
        let sum = STANDARD_NO_PAD.encode(self.sign(&format!("{time}:{user}")));
        format!("{time}:{sum}")
    }

    fn check_ticket(&self, ticket: &str, now: Time) -> Option<String> {
        let (plain, signature) = ticket.split_once("::")?;
        let (user, time) = plain.strip_prefix("PVE:")?.rsplit_once(':')?;

        let known = self.spec.users.iter().any(|one| one.name == user);
        let fine = known && is_fresh(time, now) && signature == STANDARD.encode(self.sign(plain));
        fine.then(|| user.to_owned())
    }

    fn check_csrf(&self, token: &str, user: &str, now: Time) -> bool {
        let Some((time, signature)) = token.split_once(':') else {
            return false;
        };
        is_fresh(time, now)
            && signature == STANDARD_NO_PAD.encode(self.sign(&format!("{time}:{user}")))
    }
}

fn stamp(now: Time) -> String {
    let mut text = String::new();
    let _ = write!(text, "{:08X}", now.0 / 1_000);
    text
}

fn is_fresh(time: &str, now: Time) -> bool {
    let Ok(made) = i64::from_str_radix(time, 16) else {
        return false;
    };
    (-TICKET_AHEAD..=TICKET_LIFE).contains(&(now.0 / 1_000 - made))
}
