//! One request from admission to answer.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::model::mark::Mark;
use crate::pve::{Method, Outcome, Request, TaskState, Upid, VmConfig};

use super::allow::{self, Call, Needs, Raw};
use super::audit;
use super::forward::{Answer, Sent, Way};
use super::intents::{Cluster, Intent, Intents};
use super::owned;
use super::peer::Peer;
use super::policy::Policy;
use super::removals::Removals;
use super::waits::Waits;

/// A read, whole: shorter than the daemon's own deadline for reads that reach another host.
const READ: Duration = Duration::from_secs(14);
/// A change, with the reads before it: longer than pveproxy's 30 s, shorter than the daemon's 45 s.
const CHANGE: Duration = Duration::from_secs(42);
/// A change is not begun with less than this left of its time.
const LEAST: Duration = Duration::from_secs(5);

/// What goes back to the daemon.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// PVE's own phrase where there is one.
    pub(super) reason: String,
    /// Value of the outcome header.
    pub(super) outcome: &'static str,
    pub(super) body: Vec<u8>,
}

impl Reply {
    fn own(status: u16, outcome: &'static str, message: &str) -> Reply {
        let body = json!({ "data": null, "message": format!("broker: {message}") });
        Reply {
            status,
            reason: String::new(),
            outcome,
            body: body.to_string().into_bytes(),
        }
    }

    /// The broker does not allow it; nothing was sent.
    pub(super) fn refused(why: &str) -> Reply {
        Reply::own(403, "refused-by-broker", why)
    }

    pub(super) fn not_sent(why: &str) -> Reply {
        Reply::own(503, "not-sent", why)
    }

    pub(super) fn of(sent: Sent) -> Reply {
        match sent {
            Sent::Never(why) => Reply::not_sent(&why),
            Sent::Unknown(why) => Reply::own(504, "unknown", &why),
            Sent::Answer(answer) => Reply {
                outcome: match answer.outcome() {
                    None => "done",
                    Some(Outcome::NotSent) => "not-sent",
                    Some(Outcome::Unknown) => "unknown",
                    Some(Outcome::Refused | Outcome::RefusedByBroker) => "refused",
                },
                status: answer.status,
                reason: answer.reason,
                body: answer.body,
            },
        }
    }

    /// The message in the body, for the audit line.
    fn detail(&self) -> String {
        if self.outcome == "done" {
            return String::new();
        }
        let body: Value = serde_json::from_slice(&self.body).unwrap_or(Value::Null);
        let said = body["message"].as_str().unwrap_or_default().trim();
        let text = if said.is_empty() { &self.reason } else { said };
        text.chars().take(400).collect()
    }
}

/// A call that ends here and now, with this answer.
pub(super) type Ends = Reply;

/// The broker behind the socket.
#[derive(Debug)]
pub(super) struct Service {
    policy: RwLock<Arc<Policy>>,
    pub(super) way: Arc<dyn Way>,
    pub(super) intents: Intents,
    pub(super) removals: Removals,
    pub(super) cluster: Cluster,
    pub(super) clock: Clock,
    /// Held from looking whether a VMID is free until its intent is durable.
    cloning: Mutex<()>,
    pve_version: std::sync::Mutex<Option<String>>,
    /// Questions to guests that are repeated.
    waits: Waits,
}

impl Service {
    /// A broker that sends over `way` and keeps what must last in the directory `state`.
    pub(super) fn new(
        policy: Policy,
        way: Arc<dyn Way>,
        state: &Path,
        clock: Clock,
    ) -> Result<Service, String> {
        Ok(Service {
            policy: RwLock::new(Arc::new(policy)),
            way,
            intents: Intents::open(state.join("intents"))?,
            removals: Removals::open(state.join("removals"))?,
            cluster: Cluster::open(state.join("cluster")),
            clock,
            cloning: Mutex::new(()),
            pve_version: std::sync::Mutex::default(),
            waits: Waits::default(),
        })
    }

    /// The policy in force.
    pub(super) fn policy(&self) -> Arc<Policy> {
        let held = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&held)
    }

    /// From now on `policy` is in force.
    pub(super) fn set_policy(&self, policy: Policy) {
        let mut held = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        *held = Arc::new(policy);
    }

    /// Answers one request.
    pub(super) async fn answer(&self, peer: Peer, raw: Raw<'_>) -> Reply {
        self.waits.due(None).iter().for_each(audit::repeated);
        if raw.path == "/broker/info" {
            return self.info(raw).await;
        }
        let policy = self.policy();
        let call = match allow::admit(&policy, raw) {
            Ok(call) => call,
            Err(why) => {
                audit::refused(peer, raw.method, raw.path, &why);
                return Reply::refused(&why);
            }
        };
        let began = Instant::now();
        let reply = match self.make(&policy, &call).await {
            Ok(reply) | Err(reply) => reply,
        };
        if call.changes() || reply.outcome == "refused-by-broker" {
            let (outcome, detail) = (reply.outcome, reply.detail());
            let counted = self.waits.due(Some((&call, outcome, &detail)));
            counted.iter().for_each(audit::repeated);
            if self.waits.note(peer, &call, outcome, &detail) {
                audit::call(peer, &call, outcome, &detail, began.elapsed());
            }
        }
        reply
    }

    async fn make(&self, policy: &Policy, call: &Call) -> Result<Reply, Ends> {
        let whole = if call.rule.needs == Needs::Nothing {
            READ
        } else {
            CHANGE
        };
        let end = Instant::now() + whole;
        let mut request = Request {
            call: call.rule.name,
            method: call.rule.method,
            path: call.path.clone(),
            params: call.params.clone(),
            timeout: whole,
        };
        match call.rule.needs {
            Needs::Nothing => {}
            Needs::Mark | Needs::MarkAndDigest => {
                let (mark, config) = self.ours(policy, call, end).await?;
                if config.lock.as_deref() == Some("clone") && only_unprotects(call) {
                    // A clone of a protected template that was cut short: first the protection goes,
                    // then the VM.
                    let (host, _) = place(call)?;
                    let intent = Intent::new(&mark, host, 0, mark.created);
                    self.dead_clone(policy, host, &intent, end).await?;
                    request.params.push(("skiplock".to_owned(), "1".to_owned()));
                }
                if call.rule.needs == Needs::MarkAndDigest
                    && call.param("digest").is_none()
                    && let Some(digest) = &config.digest
                {
                    request
                        .params
                        .push(("digest".to_owned(), digest.to_string()));
                }
            }
            Needs::Template => return self.clone_vm(policy, call, request, end).await,
            Needs::MarkOrRecord => return self.destroy(policy, call, request, end).await,
        }
        let reply = self.forward(&request, end).await?;
        if call.rule.name == "resources" && reply.outcome == "done" {
            self.saw(&reply.body);
        }
        Ok(reply)
    }

    async fn forward(&self, request: &Request, end: Instant) -> Result<Reply, Ends> {
        if request.method != Method::Get {
            in_time(end)?;
        }
        Ok(Reply::of(self.way.send(request, end).await))
    }

    /// Reads for the broker itself. What PVE answers with an error ends the call with that error:
    /// the change was not sent.
    pub(super) async fn read(
        &self,
        path: &[&str],
        params: &[(&str, &str)],
        end: Instant,
    ) -> Result<Value, Ends> {
        let request = Request {
            call: "broker-read",
            method: Method::Get,
            path: crate::pve::path(path),
            params: params
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            timeout: READ,
        };
        let end = end.min(Instant::now() + READ);
        match self.way.send(&request, end).await {
            Sent::Answer(answer) => data(answer),
            Sent::Never(why) | Sent::Unknown(why) => Err(Reply::not_sent(&format!(
                "cannot look before the call: {why}"
            ))),
        }
    }

    pub(super) async fn config(
        &self,
        host: &str,
        vmid: u32,
        end: Instant,
    ) -> Result<VmConfig, Ends> {
        let id = vmid.to_string();
        let path = ["nodes", host, "qemu", &id, "config"];
        Ok(VmConfig::read(&self.read(&path, &[], end).await?))
    }

    /// The VM in the path with its mark, read now, which is ours.
    async fn ours(
        &self,
        policy: &Policy,
        call: &Call,
        end: Instant,
    ) -> Result<(Mark, VmConfig), Ends> {
        let (host, vmid) = place(call)?;
        if !policy.in_range(vmid) {
            return Err(Reply::refused(&format!(
                "VM {vmid} is outside the configured range"
            )));
        }
        let config = self.config(host, vmid, end).await?;
        let mark = self
            .mark(policy, vmid, &config)
            .and_then(|mark| {
                allow::against::check(policy, call, &mark, &config)?;
                Ok(mark)
            })
            .map_err(|why| Reply::refused(&why))?;
        self.now_ours(&mark)?;
        Ok((mark, config))
    }

    pub(super) fn mark(
        &self,
        policy: &Policy,
        vmid: u32,
        config: &VmConfig,
    ) -> Result<Mark, String> {
        let mark = owned::mark(policy, vmid, config)?;
        self.cluster.check(&mark.cluster)?;
        Ok(mark)
    }

    /// The clone of this VM is over: it carries its mark, so its intent has done its work.
    pub(super) fn now_ours(&self, mark: &Mark) -> Result<(), Ends> {
        let fail = |why: String| Reply::not_sent(&why);
        self.cluster.learn(&mark.cluster).map_err(fail)?;
        // An unreadable intent proves nothing and is in nobody's way here.
        let now = self.clock.now();
        if let Ok(Some(_)) = self.intents.get(mark.vmid, now) {
            self.intents.forget(mark.vmid).map_err(fail)?;
        }
        // The VMID has come to be another machine's: the removal of the one before is over.
        if let Ok(Some(removal)) = self.removals.get(mark.vmid, now)
            && removal.machine != mark.machine
        {
            self.removals.forget(mark.vmid).map_err(fail)?;
        }
        Ok(())
    }

    async fn clone_vm(
        &self,
        policy: &Policy,
        call: &Call,
        request: Request,
        end: Instant,
    ) -> Result<Reply, Ends> {
        let (host, template) = place(call)?;
        let refuse = |why: String| Reply::refused(&why);
        let mark = owned::mark_of_clone(call).map_err(refuse)?;
        self.cluster.check(&mark.cluster).map_err(refuse)?;
        let config = self.config(host, template, end).await?;
        owned::template(policy, template, &config).map_err(refuse)?;
        let (intent, earlier) = self.intend(&mark, host, template, end).await?;
        let sent = self.way.send(&request, end).await;
        match &sent {
            Sent::Answer(answer) if answer.outcome().is_none() => {
                if let Some(task) = task_of(answer) {
                    let with_task = Intent {
                        task: Some(task),
                        ..intent
                    };
                    // Without the task the intent is worth less, not wrong: the clone runs.
                    if let Err(why) = self.intents.record(&with_task) {
                        tracing::error!(why, "the clone's task could not be noted");
                    }
                }
            }
            // It surely was not carried out: whatever appears at that VMID is not ours.
            Sent::Answer(answer) if answer.outcome() == Some(Outcome::Unknown) => {}
            Sent::Answer(_) | Sent::Never(_) => {
                let undone = match &earlier {
                    None => self.intents.forget(mark.vmid),
                    Some(earlier) => self.intents.record(earlier),
                };
                if let Err(why) = undone {
                    tracing::error!(why, "the intent of a refused clone is still there");
                }
            }
            Sent::Unknown(_) => {}
        }
        Ok(Reply::of(sent))
    }

    /// Makes the intent of a clone durable, when its VMID is free. The second value is the one that
    /// the same machine had already (its first attempt's outcome may be open).
    async fn intend(
        &self,
        mark: &Mark,
        host: &str,
        template: u32,
        end: Instant,
    ) -> Result<(Intent, Option<Intent>), Ends> {
        let _one = self.cloning.lock().await;
        let taken = || {
            // The words by which the client knows a taken VMID.
            Reply::refused(&format!("VM {} already exists or is being made", mark.vmid))
        };
        let now = self.clock.now();
        let earlier = self
            .intents
            .get(mark.vmid, now)
            .map_err(|why| Reply::not_sent(&why))?;
        let same = earlier
            .as_ref()
            .is_some_and(|intent| intent.machine == mark.machine && intent.template == template);
        if let Some(intent) = &earlier
            && !same
            && self.may_run(intent, end).await
        {
            return Err(taken());
        }
        let resources = self.read(&["cluster", "resources"], &[], end).await?;
        if owned::exists(&resources, mark.vmid) && !same {
            return Err(taken());
        }
        let intent = Intent::new(mark, host, template, now);
        let fail = |why: String| Reply::not_sent(&why);
        self.intents.record(&intent).map_err(fail)?;
        self.cluster.learn(&mark.cluster).map_err(fail)?;
        Ok((intent, earlier.filter(|_| same)))
    }

    /// Whether the clone of `intent`, another machine's, may still be under way.
    async fn may_run(&self, intent: &Intent, end: Instant) -> bool {
        if self.clock.now().since(intent.asked) >= self.policy().allow.quarantine {
            return false;
        }
        let Some(task) = &intent.task else {
            return true;
        };
        let path = ["nodes", &intent.host, "tasks", task.as_str(), "status"];
        match self.read(&path, &[], end).await {
            Ok(data) => TaskState::read(&data) == TaskState::Running,
            Err(_) => true,
        }
    }

    /// `GET /broker/info`: version, policy, channel, and what is wrong.
    async fn info(&self, raw: Raw<'_>) -> Reply {
        if raw.method != "GET" || raw.query.is_some() || !raw.body.is_empty() {
            return Reply::refused("/broker/info takes a plain GET");
        }
        let mut known = self.known_version();
        if known.is_none() {
            let end = Instant::now() + READ / 2;
            if let Ok(data) = self.read(&["version"], &[], end).await {
                known = data["version"].as_str().map(str::to_owned);
                let mut held = self
                    .pve_version
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                held.clone_from(&known);
            }
        }
        let body = json!({ "data": {
            "version": env!("CARGO_PKG_VERSION"),
            "policy_hash": self.policy().hash,
            "channel": self.way.channel(),
            "pve_version": known,
            "last_error": self.way.last_error(),
        }});
        Reply {
            status: 200,
            reason: String::new(),
            outcome: "done",
            body: body.to_string().into_bytes(),
        }
    }

    fn known_version(&self) -> Option<String> {
        let held = self
            .pve_version
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        held.clone()
    }
}

/// Enough of a change's time is left to make it.
pub(super) fn in_time(end: Instant) -> Result<(), Ends> {
    if end.saturating_duration_since(Instant::now()) < LEAST {
        return Err(Reply::not_sent("the checks before it took all its time"));
    }
    Ok(())
}

/// Whether a call takes a VM's protection off and does nothing else.
fn only_unprotects(call: &Call) -> bool {
    let known = |(key, _): &(String, String)| matches!(&**key, "protection" | "digest");
    call.rule.name == "config"
        && call.param("protection") == Some("0")
        && call.params.iter().all(known)
}

pub(super) fn place(call: &Call) -> Result<(&str, u32), Ends> {
    match (&call.host, call.vmid) {
        (Some(host), Some(vmid)) => Ok((host, vmid)),
        _ => Err(Reply::refused("the path names no VM")),
    }
}

fn data(answer: Answer) -> Result<Value, Ends> {
    match answer.outcome() {
        None => {
            let body: Value = serde_json::from_slice(&answer.body).map_err(|_| {
                Reply::not_sent("cannot look before the call: PVE's answer is no JSON")
            })?;
            Ok(body.get("data").cloned().unwrap_or(Value::Null))
        }
        Some(Outcome::Refused | Outcome::RefusedByBroker) => Err(Reply::of(Sent::Answer(answer))),
        Some(Outcome::NotSent | Outcome::Unknown) => Err(Reply::not_sent(&format!(
            "cannot look before the call: PVE answered {} {}",
            answer.status, answer.reason
        ))),
    }
}

pub(super) fn task_of(answer: &Answer) -> Option<Upid> {
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    body["data"].as_str()?.parse().ok()
}
