//! What the daemon relies on the broker for, in the simulator: the rules of `crate::broker` that hold however long a call
//! was on its way, by facts of the fake PVE. It shares no code with the broker, nor the daemon's memory: what is kept here
//! lies on the PVE host, whatever becomes of the daemon's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::pve::{Pve, VmFacts, form_field};
use crate::clock::Clock;
use crate::model::action::is_being_made;
use crate::model::time::{Span, Time};

/// What every mark begins with.
const MARK: &str = "pve-autoscaler:v1 ";
/// Most of a body that is looked at: PVE takes no more.
const MOST_BODY: usize = 512 << 10;
/// PVE may begin a clone that it did not answer for so long after it was passed on.
const UNANSWERED: Span = Span::minutes(5);

/// The broker's stand-in. Clones are one.
#[derive(Clone, Debug)]
pub struct Broker {
    pve: Pve,
    clock: Clock,
    /// Most machines by pool.
    pools: BTreeMap<String, usize>,
    /// What it keeps on disk.
    kept: Arc<Mutex<BrokerState>>,
}

#[derive(Debug, Default)]
struct BrokerState {
    /// VMIDs whose removal it passed on.
    removals: BTreeSet<u32>,
    /// Clones that it passed on, by VMID.
    intents: BTreeMap<u32, CloneAttempts>,
    refusals: Vec<CloneRefusal>,
    /// Changes of VMs that are not ours.
    turned_away: Vec<String>,
}

#[derive(Clone, Debug)]
struct CloneAttempts {
    pool: String,
    machine: String,
    /// When its clones were passed on that PVE has not answered.
    unanswered: Vec<Time>,
    /// PVE has answered the last one: what it made of the clone shows.
    answered: bool,
    /// The VM was seen with its mark.
    settled: bool,
}

impl CloneAttempts {
    fn may_come(&self, now: Time) -> bool {
        self.unanswered.iter().any(|at| now.since(*at) < UNANSWERED)
    }
}

/// A clone that was refused because its pool has as many machines as it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneRefusal {
    /// When.
    pub at: Time,
    /// The pool.
    pub pool: String,
    /// The machine that would have been made.
    pub machine: String,
}

impl Broker {
    /// In front of `pve`, for pools of so many machines at most.
    pub(super) fn new(pve: Pve, clock: Clock, pools: BTreeMap<String, usize>) -> Broker {
        Broker {
            pve,
            clock,
            pools,
            kept: Arc::default(),
        }
    }

    /// A router of PVE's as it is behind the broker.
    pub(super) fn wrap(&self, router: Router) -> Router {
        router.layer(from_fn_with_state(self.clone(), pass))
    }

    /// The clones that were refused for their pool's max, oldest first.
    pub fn refusals(&self) -> Vec<CloneRefusal> {
        self.kept().refusals.clone()
    }

    /// The changes that were refused for the VM is not ours, oldest first.
    pub fn turned_away(&self) -> Vec<String> {
        self.kept().turned_away.clone()
    }

    fn kept(&self) -> MutexGuard<'_, BrokerState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a clone, if its pool has room for it. The second value is what was recorded of its VMID before.
    fn intend(&self, form: &str) -> Result<Option<(u32, Option<CloneAttempts>)>, String> {
        let newid = form_field(form, "newid").or_else(|| form_field(form, "vmid"));
        let newid = newid.and_then(|text| text.parse::<u32>().ok());
        let notes = form_field(form, "description").unwrap_or_default();
        let (Some(vmid), Some(mark)) = (newid, mark(&notes)) else {
            return Ok(None);
        };
        let text = |key: &str| mark[key].as_str().unwrap_or_default().to_owned();
        let (pool, machine, at) = (text("pool"), text("machine"), self.clock.now());
        let mut kept = self.kept();
        let there = kept.count(&self.pve, &mark, vmid, at);
        let most = self.pools.get(&pool).copied().unwrap_or(0);
        if there >= most {
            kept.refusals.push(CloneRefusal {
                at,
                pool: pool.clone(),
                machine,
            });
            let have = there + 1;
            return Err(format!(
                "pool {pool} would have {have} machines with those being made, its most is {most}"
            ));
        }
        let earlier = kept.intents.get(&vmid);
        let earlier = earlier.filter(|earlier| earlier.machine == machine);
        let mut unanswered = earlier.map_or_else(Vec::new, |earlier| earlier.unanswered.clone());
        unanswered.push(at);
        let intent = CloneAttempts {
            pool,
            machine,
            unanswered,
            answered: false,
            settled: false,
        };
        Ok(Some((vmid, kept.intents.insert(vmid, intent))))
    }
}

impl BrokerState {
    /// Forgets the clones that are over: those whose VM is gone or is another's, and which cannot come any more.
    fn prune(&mut self, pve: &Pve, now: Time) -> BTreeMap<u32, VmFacts> {
        let vms = pve.vms().into_iter().filter(|vm| !vm.container);
        let vms: BTreeMap<u32, VmFacts> = vms.map(|vm| (vm.vmid, vm)).collect();
        self.intents.retain(|vmid, intent| match vms.get(vmid) {
            Some(vm) => match own_mark(vm) {
                Some(mark) => {
                    let same = mark["machine"] == *intent.machine;
                    intent.settled |= same;
                    same
                }
                // What a clone or a removal under way shows: a lock, and no name. A person's VM has one.
                None => {
                    let lock = vm.lock.as_deref();
                    let made = !intent.settled || !intent.unanswered.is_empty();
                    vm.name.is_empty()
                        && (lock == Some("destroyed") || (is_being_made(lock) && made))
                }
            },
            None if intent.may_come(now) => {
                intent.answered &= !intent.settled;
                intent.settled = false;
                true
            }
            // One that failed, or whose VM somebody destroyed, takes no room.
            None => !intent.settled && intent.answered && pve.being_cloned_since(*vmid).is_some(),
        });
        vms
    }

    /// The machines of the pool that a mark names, but for one VMID: those with a mark of it, and clones that were passed
    /// on and have none yet.
    fn count(&mut self, pve: &Pve, of: &Value, except: u32, now: Time) -> usize {
        let vms = self.prune(pve, now);
        let marked = vms.values().filter(|vm| vm.vmid != except && !vm.template);
        let marked = marked.filter(|vm| {
            own_mark(vm)
                .is_some_and(|mark| mark["pool"] == of["pool"] && mark["cluster"] == of["cluster"])
        });
        let coming = self.intents.iter().filter(|(vmid, intent)| {
            let bare = vms.get(vmid).is_none_or(|vm| own_mark(vm).is_none());
            **vmid != except && of["pool"] == *intent.pool && bare
        });
        marked.count() + coming.count()
    }
}

/// One call.
async fn pass(State(broker): State<Broker>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if *request.method() == Method::GET {
        if path.ends_with("/cluster/resources") {
            broker.kept().prune(&broker.pve, broker.clock.now());
        }
        return next.run(request).await;
    }
    if path.ends_with("/clone") || path.ends_with("/qemu") {
        return clone(&broker, request, next).await;
    }
    if *request.method() == Method::PUT && path.ends_with("/pools") {
        return moved(&broker, request, next).await;
    }
    let vm = path
        .split_once("/qemu/")
        .and_then(|(_, rest)| rest.split('/').next()?.parse().ok())
        .and_then(|vmid| broker.pve.vm(vmid));
    match vm.filter(|vm| !vm.template) {
        Some(vm) => change(&broker, &vm, request, next).await,
        None => next.run(request).await,
    }
}

/// A clone is refused when its pool has no room for it, and is on record before it is passed on.
async fn clone(broker: &Broker, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = read(body).await;
    let intended = match broker.intend(&body) {
        Ok(intended) => intended,
        Err(why) => return refuse(&why),
    };
    let answer = next.run(Request::from_parts(parts, body.into())).await;
    let Some((vmid, earlier)) = intended else {
        return answer;
    };
    // An answer that breaks off is none.
    let (parts, body) = answer.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MOST_BODY).await else {
        return lost();
    };
    let mut kept = broker.kept();
    if parts.status.is_success() {
        if let Some(intent) = kept.intents.get_mut(&vmid) {
            intent.answered = true;
            intent.unanswered.pop();
        }
    } else {
        // It surely was not carried out: whatever appears at that VMID is not ours.
        match earlier {
            Some(earlier) => drop(kept.intents.insert(vmid, earlier)),
            None => drop(kept.intents.remove(&vmid)),
        }
    }
    Response::from_parts(parts, body.into())
}

/// A change of a VM without our mark is refused; the remains of a clone, which lose their protection, and of a removal
/// of ours are destroyed past their lock.
async fn change(broker: &Broker, vm: &VmFacts, request: Request, next: Next) -> Response {
    let removal = request.method() == Method::DELETE;
    let remains = removal
        && vm.lock.as_deref() == Some("destroyed")
        && broker.kept().removals.contains(&vm.vmid);
    let locked = is_being_made(vm.lock.as_deref()) || remains;
    let ours = own_mark(vm).is_some();
    if !locked && !ours && !planted!(MarkNotReRead) {
        let what = format!("{} {}", request.method(), request.uri().path());
        broker.kept().turned_away.push(what);
        return refuse("VM carries no mark");
    }
    if removal && !ours && !remains && !planted!(MarkNotReRead) {
        let mut kept = broker.kept();
        kept.prune(&broker.pve, broker.clock.now());
        if !kept.intents.contains_key(&vm.vmid) {
            return refuse("VM is a clone under way that no intent of ours names");
        }
    }
    if ours && let Some(intent) = broker.kept().intents.get_mut(&vm.vmid) {
        intent.settled = true;
    }
    if removal {
        broker.kept().removals.insert(vm.vmid);
    }
    if !locked || !(removal || request.method() == Method::PUT) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let mut body = read(body).await;
    if removal {
        let query = parts.uri.query();
        let query = query.map_or(String::new(), |query| format!("{query}&"));
        if let Ok(uri) = format!("{}?{query}skiplock=1", parts.uri.path()).parse() {
            parts.uri = uri;
        }
    } else if body.starts_with("protection=0") {
        body.push_str("&skiplock=1");
        // The length was of the body before.
        parts.headers.remove(http::header::CONTENT_LENGTH);
    }
    next.run(Request::from_parts(parts, body.into())).await
}

/// A VM without our mark stays in its resource pool.
async fn moved(broker: &Broker, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = read(body).await;
    let vmid = form_field(&body, "vms").and_then(|vms| vms.parse().ok());
    let vm = vmid.and_then(|vmid| broker.pve.vm(vmid));
    let ours = vm.is_some_and(|vm| !vm.template && own_mark(&vm).is_some());
    if !ours && !planted!(MarkNotReRead) {
        let mut kept = broker.kept();
        kept.turned_away.push("PUT /pools".to_owned());
        return refuse("VM carries no mark");
    }
    next.run(Request::from_parts(parts, body.into())).await
}

async fn read(body: Body) -> String {
    let bytes = axum::body::to_bytes(body, MOST_BODY).await;
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// What the broker answers when PVE's answer never came: nobody knows whether the call was carried out.
fn lost() -> Response {
    let answer = json!({"data": null, "message": "the connection to PVE broke"});
    let status = StatusCode::from_u16(596).unwrap_or(StatusCode::BAD_GATEWAY);
    (status, Json(answer)).into_response()
}

fn refuse(message: &str) -> Response {
    let refusal = json!({"data": null, "message": message});
    (StatusCode::FORBIDDEN, Json(refusal)).into_response()
}

/// The mark that notes end with.
fn mark(notes: &str) -> Option<Value> {
    let line = notes.lines().rfind(|line| !line.trim().is_empty())?;
    serde_json::from_str(line.trim().strip_prefix(MARK)?).ok()
}

/// The mark of a VM, if it names this VM: a copy has its original's.
fn own_mark(vm: &VmFacts) -> Option<Value> {
    mark(&vm.description).filter(|mark| mark["vmid"] == vm.vmid)
}
