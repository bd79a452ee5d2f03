//! The fake Proxmox VE API.
//!
//! Speaks PVE's true wire under `/api2/json`: parameters, errors, texts, tasks, locks and the
//! oddities of PVE 9.2. It knows the calls in `table` and no others. It shares no type with the
//! client in `crate::pve`. Everything runs on tokio's time and one seeded generator.

mod access;
mod accounts;
mod admin;

mod agent;
mod bridges;
mod calls;
mod calls_of_admins;
mod clone;
mod cluster;
mod config;
mod cpu;
mod create;
mod device_formats;
mod disks;
mod facts;
mod firewall;
mod host_mappings;
mod images;
mod isos;
mod kinds;
mod load;
mod locks;
mod numa;
mod option_rights;
mod options;
mod params;
mod pci;
mod power;
mod reading;
mod releases;
mod remove;
mod schema;
mod serve;

mod spec;
mod start_options;
mod table;
mod tags;
mod tasks;
mod values;
mod wire;
mod world;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use http::{Response, header};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;

use self::access::Caller;
use self::locks::Locks;
use self::table::{ApiMethod, CallDuration, CallHandler, NeededPrivilege};
use self::wire::{ErrorAnswer, ParamValue, ParamValues};
use self::world::PveWorld;
use super::faults::LATE;
use super::guests::Guests;
use crate::clock::Clock;
use crate::model::time::{Span, Time};

pub use self::admin::{AdminAct, Dump};
pub use self::bridges::{BridgeSpec, VNetSpec};
pub use self::facts::{IsoFacts, MachineChange, Seen, VmFacts};
pub use self::firewall::GuestRule as FirewallRule;

pub(super) use self::wire::form_field;

pub use self::kinds::StorageKind;
pub use self::serve::serve;
pub use self::spec::{
    AclSpec, GIB, HostSpec, LOCAL_TEMPLATE, MachineSpec, PveSpec, PveUserSpec, StorageSpec,
    TEMPLATE, Timings, TokenSpec,
};
pub use self::tags::{TagAccess, UserTags};

/// How long after a host's loss the first ones who connect wait in vain, as its address is still known.
const ADDRESS_KNOWN: Span = Span::seconds(60);
/// How long pveproxy tries then (AnyEvent.pm).
const PROXY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it takes until the network says that there is no such neighbour.
const NO_ROUTE: Duration = Duration::from_secs(3);

/// A simulated cluster. Clones are the same cluster.
#[derive(Clone, Debug)]
pub struct Pve {
    inner: Arc<PveInner>,
}

#[derive(Debug)]
struct PveInner {
    world: Mutex<PveWorld>,
    locks: Mutex<Locks>,
    guests: Arc<dyn Guests>,
    clock: Clock,
}

/// What a router is: which host answers, and whom it trusts without credentials.
#[derive(Clone, Debug)]
struct HostDoor {
    pve: Pve,
    host: String,
    trusted: Option<String>,
}

/// A call that passed authentication, rights and parameter checks.
#[derive(Clone, Debug)]
struct CheckedCall {
    caller: Caller,
    /// The host that answers.
    node: String,
    vmid: u32,
    params: ParamValues,
}

impl CheckedCall {
    /// A parameter's text.
    fn given(&self, name: &str) -> Option<&str> {
        match self.params.get(name)? {
            ParamValue::Text(text) | ParamValue::Number(text) => Some(text),
            ParamValue::List(_) => None,
        }
    }

    fn text(&self, name: &str) -> &str {
        self.given(name).unwrap_or_default()
    }

    fn flag(&self, name: &str) -> bool {
        self.given(name) == Some("1")
    }

    fn count(&self, name: &str) -> Option<usize> {
        self.given(name)?.parse().ok()
    }

    fn seconds(&self, name: &str) -> Option<Duration> {
        self.given(name)?.parse().ok().map(Duration::from_secs)
    }
}

impl Pve {
    /// A cluster as `spec` says. The same seed and calls make the same history.
    pub fn new(spec: PveSpec, guests: Arc<dyn Guests>, clock: Clock, seed: u64) -> Pve {
        let world = PveWorld::new(spec, seed, clock.now());
        Pve {
            inner: Arc::new(PveInner {
                world: Mutex::new(world),
                locks: Mutex::new(Locks::default()),
                guests,
                clock,
            }),
        }
    }

    /// The API as the first host serves it, with authentication.
    pub fn router(&self) -> Router {
        self.door(None)
    }

    /// The API for a caller that is trusted to be `user` (such as `root@pam`) when a request
    /// carries no credentials: what stands behind a broker.
    pub fn router_as(&self, user: &str) -> Router {
        self.door(Some(user.to_owned()))
    }

    /// The API as a certain host serves it, with authentication.
    pub fn router_at(&self, host: &str) -> Router {
        self.door_at(host.to_owned(), None)
    }

    fn door(&self, trusted: Option<String>) -> Router {
        let host = self.world(|world, _| world.spec.hosts.first().map(|host| host.name.clone()));
        self.door_at(host.unwrap_or_default(), trusted)
    }

    fn door_at(&self, host: String, trusted: Option<String>) -> Router {
        let door = HostDoor {
            pve: self.clone(),
            host,
            trusted,
        };
        Router::new().fallback(answer).with_state(door)
    }

    fn world<R>(&self, act: impl FnOnce(&mut PveWorld, Time) -> R) -> R {
        let now = self.inner.clock.now();
        let mut world = self
            .inner
            .world
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        act(&mut world, now)
    }

    fn timings(&self) -> Timings {
        self.world(|world, _| world.spec.timings.clone())
    }

    /// Power, for a VM that was started: tells its guest.
    fn guests(&self) -> &Arc<dyn Guests> {
        &self.inner.guests
    }
}

/// Answers one request. What it sets off goes on when the caller loses patience.
async fn answer(State(door): State<HostDoor>, request: Request) -> Response<Body> {
    let seen = door.pve.world(|world, now| world.saw(&request, now));
    let worker = tokio::spawn(async move {
        let result = handle(&door, request, seen).await;
        if let Err(fault) = &result
            && !fault.delay.is_zero()
        {
            tokio::time::sleep(fault.delay).await;
        }
        let status = result.as_ref().map_or_else(|fault| fault.status, |_| 200);
        door.pve.world(|world, _| world.answered(seen, status));
        wire::answer(result)
    });
    match worker.await {
        Ok(response) => response,
        Err(_) => wire::answer(Err(ErrorAnswer::bare(596, "Broken pipe"))),
    }
}

async fn handle(door: &HostDoor, request: Request, seen: u64) -> Result<Value, ErrorAnswer> {
    let method = request.method().as_str().to_owned();
    // The host that is asked is off: its clients get no connection at all, which a router can only
    // show as pveproxy shows it to its own.
    if !door.pve.world(|world, _| world.online(&door.host)) {
        return Err(ErrorAnswer::bare(595, "No route to host"));
    }
    if !matches!(method.as_str(), "GET" | "POST" | "PUT" | "DELETE") {
        return Err(ErrorAnswer::bare(
            501,
            &format!("method '{method}' not available"),
        ));
    }
    let (parts, body) = request.into_parts();
    let Some(path) = parts
        .uri
        .path()
        .strip_prefix("/api2/json")
        .map(str::to_owned)
    else {
        return Err(ErrorAnswer::bare(
            404,
            &format!("No such file '{}'", parts.uri.path()),
        ));
    };
    let caller = door.authenticate(&method, &path, &parts.headers)?;
    door.pve.world(|world, _| world.asked(seen, &caller.name));
    let body = read(body).await?;
    let mut params = wire::urlencoded(parts.uri.query().unwrap_or_default());
    if path.ends_with("/upload") {
        params.extend(
            door.pve
                .sent(parts.headers.get(header::CONTENT_TYPE), &body)?,
        );
    } else if !matches!(method.as_str(), "GET" | "DELETE") {
        params.extend(wire::body(parts.headers.get(header::CONTENT_TYPE), &body)?);
    }
    let path = if path.is_empty() {
        "/".to_owned()
    } else {
        path
    };
    let (call, segments) =
        table::find(&method, &path).ok_or_else(|| ErrorAnswer::not_implemented(&method, &path))?;
    for (name, value) in segments {
        let clash = params.insert(name.to_owned(), ParamValue::Text(value.clone()));
        if clash.is_some_and(|old| old != ParamValue::Text(value)) {
            let why = "duplicate parameter (already defined in URI) with conflicting values!";
            return Err(ErrorAnswer::parameter(name, why));
        }
    }
    if !call.token && caller.is_token() {
        let text = format!("URI '{path}' not available with API token, need proper ticket.");
        return Err(ErrorAnswer::forbidden(text));
    }
    door.pve.run(call, caller, params, &door.host).await
}

async fn read(body: Body) -> Result<Bytes, ErrorAnswer> {
    match Limited::new(body, wire::MAX_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(_) => Err(ErrorAnswer::bare(501, "for data too large")),
    }
}

impl Pve {
    async fn run(
        &self,
        call: &'static ApiMethod,
        caller: Caller,
        params: ParamValues,
        host: &str,
    ) -> Result<Value, ErrorAnswer> {
        let text = |name: &str| match params.get(name) {
            Some(ParamValue::Text(text) | ParamValue::Number(text)) => text.clone(),
            _ => String::new(),
        };
        let release = self.world(|world, _| world.release());
        if let NeededPrivilege::Any(path, privileges) = call.need {
            let path = ["node", "vmid", "storage"]
                .iter()
                .fold(path.to_owned(), |path, name| {
                    path.replace(&format!("{{{name}}}"), &text(name))
                });
            self.need(&caller, &path, &release.asked_for(privileges))?;
        }
        let node = match text("node") {
            node if node.is_empty() || node == "localhost" => host.to_owned(),
            node => node,
        };
        self.reach(&node).await?;
        let params = schema::verify(call.params, release.lacks(call), params)?;
        release.check_change(&params)?;
        let timings = self.timings();
        self.take(match call.pace {
            CallDuration::Read => timings.read,
            CallDuration::Change => timings.change,
            CallDuration::Fork => timings.fork,
        })
        .await;
        let vmid = match params.get("vmid") {
            Some(ParamValue::Text(text) | ParamValue::Number(text)) => {
                text.parse().unwrap_or_default()
            }
            _ => 0,
        };
        self.dispatch(
            call.act,
            CheckedCall {
                caller,
                node,
                vmid,
                params,
            },
        )
        .await
    }

    /// The proxy's way to the host of the path.
    async fn reach(&self, node: &str) -> Result<(), ErrorAnswer> {
        let state = self.world(|world, now| {
            let to = world.hosts.get(node)?;
            Some(to.offline_since.map(|since| now.since(since)))
        });
        match state {
            None => Err(ErrorAnswer::die(format!(
                "hostname lookup '{node}' failed - failed to get address info for: {node}: Name or service not known"
            ))),
            Some(None) => Ok(()),
            Some(Some(gone)) if gone < ADDRESS_KNOWN => {
                tokio::time::sleep(PROXY_TIMEOUT).await;
                Err(ErrorAnswer::bare(595, "Connection timed out"))
            }
            Some(Some(_)) => {
                tokio::time::sleep(NO_ROUTE).await;
                Err(ErrorAnswer::bare(595, "No route to host"))
            }
        }
    }

    async fn dispatch(&self, act: CallHandler, asked: CheckedCall) -> Result<Value, ErrorAnswer> {
        match act {
            CallHandler::VmConfigSet => self.config_set(asked).await,
            CallHandler::AgentCommand
            | CallHandler::AgentPing
            | CallHandler::AgentExec
            | CallHandler::AgentExecStatus
            | CallHandler::AgentOsInfo
            | CallHandler::AgentHostName
            | CallHandler::AgentNetwork
            | CallHandler::AgentInfo
            | CallHandler::AgentTime => self.agent(act, &asked).await,
            CallHandler::StorageDownload => self.download(&asked),
            CallHandler::StorageUpload => self.upload(&asked),
            CallHandler::VolumeRemove => self.remove_volume(&asked),
            CallHandler::VmCreate => self.create(asked),
            CallHandler::VmDestroy => self.destroy(&asked),
            CallHandler::VmConfigSetLater => self.config_set_later(asked).await,
            CallHandler::VmStart => self.start(&asked),
            CallHandler::VmStop => self.stop(&asked),
            CallHandler::VmShutdown => self.shutdown(&asked),
            CallHandler::VmReboot => self.reboot(&asked),
            CallHandler::VmReset => self.reset(&asked),
            CallHandler::VmSuspend => self.pause(&asked, true),
            CallHandler::VmResume => self.pause(&asked, false),
            CallHandler::VmClone => self.clone_vm(&asked),
            CallHandler::VmTemplate => self.template(&asked),
            CallHandler::VmResize => self.resize(&asked),
            CallHandler::VmMigrate => self.migrate_vm(&asked),
            CallHandler::Login => self.login(&asked),
            CallHandler::Tasks => Ok(self.task_list(&asked)),
            CallHandler::ClusterTasks => Ok(self.cluster_tasks(&asked)),
            CallHandler::TaskIndex => self.task_index(&asked),
            CallHandler::TaskStatus => self.task_status(&asked),
            CallHandler::TaskLog => self.task_log(&asked),
            CallHandler::TaskStop => self.task_stop(&asked),
            CallHandler::ContainerConfig => self.container_config(&asked),
            CallHandler::VmConfig
            | CallHandler::VmPending
            | CallHandler::VmCurrent
            | CallHandler::VmFeature
            | CallHandler::VmSnapshots
            | CallHandler::CloudInit
            | CallHandler::CloudInitWrite
            | CallHandler::CloudInitDump => self.vm_read(act, &asked),
            CallHandler::SecurityGroups
            | CallHandler::DatacenterFirewall
            | CallHandler::FirewallRules
            | CallHandler::FirewallOptions
            | CallHandler::FirewallSwitch
            | CallHandler::FirewallRuleAdd
            | CallHandler::FirewallRuleRemove => self.firewall(act, &asked),
            CallHandler::Roles
            | CallHandler::RoleAdd
            | CallHandler::RoleChange
            | CallHandler::Users
            | CallHandler::UserAdd
            | CallHandler::AclChange
            | CallHandler::TokenList
            | CallHandler::TokenAdd
            | CallHandler::TokenRemove
            | CallHandler::PoolAdd
            | CallHandler::PoolChange
            | CallHandler::StorageChange => self.account(act, &asked),
            _ => self.cluster_read(act, &asked),
        }
    }
}

impl PveWorld {
    fn saw(&mut self, request: &Request, now: Time) -> u64 {
        let path = request.uri().path();
        let late = request.headers().get(LATE);
        let under_way = late.and_then(|millis| millis.to_str().ok()?.parse().ok());
        self.seen.push_back(Seen {
            at: now,
            sent: now - Span(under_way.unwrap_or(0)),
            method: request.method().as_str().to_owned(),
            path: path.strip_prefix("/api2/json").unwrap_or(path).to_owned(),
            changing: !matches!(request.method().as_str(), "GET" | "HEAD"),
            late: late.is_some(),
            user: String::new(),
            status: None,
        });
        if self.seen.len() > facts::MAX_SEEN {
            self.seen.pop_front();
        }
        self.requests += 1;
        self.requests
    }

    fn seen_mut(&mut self, number: u64) -> Option<&mut Seen> {
        let back = usize::try_from(self.requests - number).ok()?;
        let at = self.seen.len().checked_sub(back + 1)?;
        self.seen.get_mut(at)
    }

    fn asked(&mut self, number: u64, user: &str) {
        if let Some(seen) = self.seen_mut(number) {
            user.clone_into(&mut seen.user);
        }
    }

    fn answered(&mut self, number: u64, status: u16) {
        if let Some(seen) = self.seen_mut(number) {
            seen.status = Some(status);
        }
    }
}

/// Property strings as PVE writes them: `KEY=VALUE,…`, a part without `=` being the default key's.
fn properties<'a>(text: &'a str, default: &'a str) -> BTreeMap<&'a str, &'a str> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').unwrap_or((default, part)))
        .collect()
}
