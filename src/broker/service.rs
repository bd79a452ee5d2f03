//! One request from admission to answer.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::model::mark::Mark;
use crate::pve::sound::{self, Unsound};
use crate::pve::{CallEffect, HttpMethod, PveRequest, Upid, VmConfig};

use super::allow::{self, AdmittedCall, RawRequest, VmProof};
use super::audit::{self, RefusalAudit};
use super::census::Census;
use super::forward::{ForwardResult, PveAnswer, PveChannel};
use super::gate::{Gate, MemoryShare};
use super::intents::{BoundCluster, CloneIntent, Intents};
use super::owned;
use super::peer::PeerProcess;
use super::policy::BrokerPolicy;
use super::reach::{self, MembersAndTemplates};
use super::removals::RemovalRecords;
use super::waits::CallWaits;

/// A read, whole: shorter than the daemon's own deadline for reads that reach another host.
const READ: Duration = Duration::from_secs(14);
/// A change, with the reads before it: longer than pveproxy's 30 s, shorter than the daemon's 45 s.
const CHANGE: Duration = Duration::from_secs(42);
/// The tag that the daemon's configuration always writes.
const TAG: &str = "pve-autoscaler";
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
    /// What the body takes of the memory for answers, until it was read.
    pub(super) share: Option<MemoryShare>,
}

impl Reply {
    fn own(status: u16, outcome: &'static str, message: &str) -> Reply {
        let body = json!({ "data": null, "message": format!("broker: {message}") });
        Reply {
            status,
            reason: String::new(),
            outcome,
            body: body.to_string().into_bytes(),
            share: None,
        }
    }

    /// The broker does not allow it; nothing was sent.
    pub(super) fn refused(why: &str) -> Reply {
        Reply::own(403, "refused-by-broker", why)
    }

    pub(super) fn not_sent(why: &str) -> Reply {
        Reply::own(503, "not-sent", why)
    }

    pub(super) fn of(sent: ForwardResult) -> Reply {
        match sent {
            ForwardResult::Never(why) => Reply::not_sent(&why),
            ForwardResult::Unknown(why) => Reply::own(504, "unknown", &why),
            ForwardResult::Answer(answer) => Reply {
                outcome: match answer.outcome() {
                    None => "done",
                    Some(CallEffect::NotSent) => "not-sent",
                    Some(CallEffect::Unknown) => "unknown",
                    Some(CallEffect::Refused | CallEffect::RefusedByBroker) => "refused",
                },
                status: answer.status,
                reason: answer.reason,
                body: answer.body,
                share: None,
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
pub(super) struct BrokerService {
    policy: RwLock<Arc<BrokerPolicy>>,
    pub(super) way: Arc<dyn PveChannel>,
    pub(super) intents: Intents,
    pub(super) removals: RemovalRecords,
    pub(super) cluster: BoundCluster,
    pub(super) clock: Clock,
    /// What reads are held against.
    pub(super) known: MembersAndTemplates,
    /// What VMs of the range were seen to be.
    pub(super) census: Census,
    /// Refused calls in the journal.
    pub(super) refusals: RefusalAudit,
    /// Who may be at PVE.
    pub(super) gate: Gate,
    /// Held from counting until the intent is durable.
    pub(super) counting: Mutex<()>,
    pve_version: std::sync::Mutex<Option<String>>,
    /// Questions to guests that are repeated.
    waits: CallWaits,
}

impl BrokerService {
    /// A broker that sends over `way` and keeps what must last in the directory `state`.
    pub(super) fn new(
        policy: BrokerPolicy,
        way: Arc<dyn PveChannel>,
        state: &Path,
        clock: Clock,
    ) -> Result<BrokerService, String> {
        Ok(BrokerService {
            policy: RwLock::new(Arc::new(policy)),
            way,
            intents: Intents::open(state.join("intents"))?,
            removals: RemovalRecords::open(state.join("removals"))?,
            cluster: BoundCluster::open(state.join("cluster")),
            clock,
            known: MembersAndTemplates::default(),
            census: Census::default(),
            refusals: RefusalAudit::default(),
            gate: Gate::default(),
            counting: Mutex::new(()),
            pve_version: std::sync::Mutex::default(),
            waits: CallWaits::default(),
        })
    }

    /// The policy in force.
    pub(super) fn policy(&self) -> Arc<BrokerPolicy> {
        let held = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&held)
    }

    /// From now on `policy` is in force.
    pub(super) fn set_policy(&self, policy: BrokerPolicy) {
        let mut held = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        *held = Arc::new(policy);
        self.known.forget_templates();
    }

    /// Answers one request.
    pub(super) async fn answer(&self, peer: PeerProcess, raw: RawRequest<'_>) -> Reply {
        self.waits.due(None).iter().for_each(audit::repeated);
        if raw.path == "/broker/info" {
            return self.info(peer, raw).await;
        }
        let policy = self.policy();
        let call = match allow::admit(&policy, raw) {
            Ok(call) => call,
            Err(why) => {
                if self.refusals.shown() {
                    audit::refused(peer, raw.method, raw.path, &why);
                }
                return Reply::refused(&why);
            }
        };
        let began = Instant::now();
        let reply = match self.gate.enter(peer, &call.path).await {
            Err(why) => Reply::not_sent(&why),
            Ok(pass) => {
                let mut reply = match self.make(&policy, &call).await {
                    Ok(reply) | Err(reply) => reply,
                };
                reply.share = Some(pass.done(reply.body.len()));
                reply
            }
        };
        let refused = reply.outcome == "refused-by-broker";
        if (call.changes() && !refused) || (refused && self.refusals.shown()) {
            let (outcome, detail) = (reply.outcome, reply.detail());
            let counted = self.waits.due(Some((&call, outcome, &detail)));
            counted.iter().for_each(audit::repeated);
            if self.waits.note(peer, &call, outcome, &detail) {
                audit::call(peer, &call, outcome, &detail, began.elapsed());
            }
        }
        reply
    }

    async fn make(&self, policy: &BrokerPolicy, call: &AdmittedCall) -> Result<Reply, Ends> {
        let whole = match call.rule.needs {
            VmProof::Nothing | VmProof::Reach => READ,
            _ => CHANGE,
        };
        let end = Instant::now() + whole;
        let mut request = PveRequest {
            call: call.rule.name,
            method: call.rule.method,
            path: call.path.clone(),
            params: call.params.clone(),
            multipart: call.rule.name == "upload-iso",
            timeout: whole,
        };
        self.hosts_are_members(call, end).await?;
        let mut changed = None;
        match call.rule.needs {
            VmProof::Nothing => {}
            // Of others' VMs their part in the host's capacity is told, and nothing else.
            VmProof::Reach if call.rule.name == "vm-config" => {
                if !self.reaches(policy, call, end).await? {
                    let reply = self.forward(&request, end).await?;
                    return Ok(BrokerService::promise(policy, reply));
                }
            }
            VmProof::Reach => self.in_reach(policy, call, end).await?,
            VmProof::Iso => self.own_iso(policy, call, end).await?,
            VmProof::Mark | VmProof::MarkAndDigest => {
                let (mark, config, record) = self.ours(policy, call, end).await?;
                if config.lock.as_deref() == Some("clone") && only_unprotects(call) {
                    // A clone of a protected template that was cut short: first the protection goes,
                    // then the VM.
                    let (host, _) = place(call)?;
                    self.dead_clone(policy, host, &record, end).await?;
                    request.params.push(("skiplock".to_owned(), "1".to_owned()));
                } else {
                    BrokerService::unprotected(call, &config, &record)?;
                }
                self.size_allowed(policy, call, (&mark, &config, &record), end)
                    .await?;
                changed = Some(record);
                if call.rule.needs == VmProof::MarkAndDigest
                    && call.param("digest").is_none()
                    && let Some(digest) = &config.digest
                {
                    request
                        .params
                        .push(("digest".to_owned(), digest.to_string()));
                }
            }
            VmProof::MarkOfNamed => {
                let host = self.host_of(call, end).await?;
                drop(self.ours_on(policy, call, &host, end).await?);
            }
            VmProof::OwnRule => self.own_rule(policy, call, end).await?,
            VmProof::Template => return self.clone_vm(policy, call, request, end).await,
            VmProof::Settings => return self.create_vm(policy, call, request, end).await,
            VmProof::MarkOrRecord => return self.destroy(policy, call, request, end).await,
        }
        let reply = self.forward(&request, end).await?;
        if reply.outcome == "done"
            && let Some(record) = changed
        {
            self.configured(call, record);
        }
        Ok(self.read_too(policy, call, reply))
    }

    /// Of a guest's configuration its part in the host's capacity.
    fn promise(policy: &BrokerPolicy, mut reply: Reply) -> Reply {
        if reply.outcome == "done" {
            let Some(body) = reach::promise(policy, &reply.body) else {
                return Reply::not_sent("PVE's configuration of the guest cannot be read");
            };
            reply.body = body;
        }
        reply
    }

    /// What a read tells the broker itself, and what of it is not for the daemon.
    fn read_too(&self, policy: &BrokerPolicy, call: &AdmittedCall, mut reply: Reply) -> Reply {
        if reply.outcome != "done" {
            return reply;
        }
        match call.rule.name {
            "resources" => self.saw(policy, &reply.body),
            "container-config" => return BrokerService::promise(policy, reply),
            "vm-config" => self.read_config(policy, call, &reply.body),
            "disks" | "bridges" | "vnet-zones" | "pools" | "pci-mappings" | "mediated-left"
            | "usb-mappings" | "dir-mappings" | "security-groups" | "firewall-rules"
            | "firewall-options" | "cluster-firewall" => {
                let Some(body) = reach::told(policy, call, &reply.body) else {
                    return Reply::not_sent("PVE's list cannot be read");
                };
                reply.body = body;
            }
            _ => {}
        }
        reply
    }

    /// The daemon reads a VM of the range: the broker learns whose it is.
    fn read_config(&self, policy: &BrokerPolicy, call: &AdmittedCall, body: &[u8]) {
        let Some(vmid) = call.vmid.filter(|vmid| policy.in_range(*vmid)) else {
            return;
        };
        if let Ok(body) = serde_json::from_slice::<Value>(body)
            && sound::config(&body["data"]).is_ok()
        {
            self.noticed(policy, vmid, &VmConfig::read(&body["data"]));
        }
    }

    async fn forward(&self, request: &PveRequest, end: Instant) -> Result<Reply, Ends> {
        if request.method != HttpMethod::Get {
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
        let request = PveRequest {
            call: "broker-read",
            method: HttpMethod::Get,
            path: crate::pve::path(path),
            params: params
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            multipart: false,
            timeout: READ,
        };
        let end = end.min(Instant::now() + READ);
        match self.way.send(&request, end).await {
            ForwardResult::Answer(answer) => data(answer),
            ForwardResult::Never(why) | ForwardResult::Unknown(why) => Err(Reply::not_sent(
                &format!("cannot look before the call: {why}"),
            )),
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
        let data = self.read_sound(&path, &[], end, sound::config).await?;
        Ok(VmConfig::read(&data))
    }

    /// Reads what decides whose a VM is or what is under way: an answer that cannot be read right
    /// ends the call.
    pub(super) async fn read_sound(
        &self,
        path: &[&str],
        params: &[(&str, &str)],
        end: Instant,
        sound: fn(&Value) -> Result<(), Unsound>,
    ) -> Result<Value, Ends> {
        let data = self.read(path, params, end).await?;
        sound(&data).map_err(|why| unusable(path, &why))?;
        Ok(data)
    }

    /// The VM in the path with its mark, read now, which is ours, and what is recorded of it.
    pub(super) async fn ours(
        &self,
        policy: &BrokerPolicy,
        call: &AdmittedCall,
        end: Instant,
    ) -> Result<(Mark, VmConfig, CloneIntent), Ends> {
        let (host, _) = place(call)?;
        self.ours_on(policy, call, host, end).await
    }

    /// The VM that the call is about, which is on this host, with its mark and record, if it is ours.
    async fn ours_on(
        &self,
        policy: &BrokerPolicy,
        call: &AdmittedCall,
        host: &str,
        end: Instant,
    ) -> Result<(Mark, VmConfig, CloneIntent), Ends> {
        let vmid = call.subject();
        let vmid = vmid.ok_or_else(|| Reply::refused("the call names no VM"))?;
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
        let record = self.now_ours(&mark, host, &config)?;
        Ok((mark, config, record))
    }

    pub(super) fn mark(
        &self,
        policy: &BrokerPolicy,
        vmid: u32,
        config: &VmConfig,
    ) -> Result<Mark, String> {
        let mark = owned::mark(policy, vmid, config)?;
        self.cluster.check(&mark.cluster)?;
        Ok(mark)
    }

    /// The clone of this VM is over: it carries its mark, so its intent has done its work. Gives what
    /// is recorded of the machine; of one that was made elsewhere that begins now.
    pub(super) fn now_ours(
        &self,
        mark: &Mark,
        host: &str,
        config: &VmConfig,
    ) -> Result<CloneIntent, Ends> {
        let fail = |why: String| Reply::not_sent(&why);
        self.cluster.learn(&mark.cluster).map_err(fail)?;
        self.census.note(mark.vmid, Some(mark));
        let now = self.clock.now();
        // The VMID has come to be another machine's: the removal of the one before is over.
        if let Ok(Some(removal)) = self.removals.get(mark.vmid, now)
            && removal.machine != mark.machine
        {
            self.removals.forget(mark.vmid).map_err(fail)?;
        }
        // An unreadable record proves nothing and is in nobody's way here.
        let held = self.intents.get(mark.vmid, now).unwrap_or(None);
        let same =
            |record: &CloneIntent| record.machine == mark.machine && record.cluster == mark.cluster;
        let record = match held.filter(same) {
            Some(held) if held.settled => return Ok(held),
            Some(held) => held.settle(),
            // Our configuration always writes this tag.
            None => CloneIntent {
                settled: true,
                configured: config
                    .raw
                    .get("tags")
                    .is_some_and(|tags| tags.split([';', ',', ' ']).any(|tag| tag == TAG)),
                unanswered: Vec::new(),
                ..CloneIntent::new(mark, host, 0, now).on(mark, host)
            },
        };
        self.intents.record(&record).map_err(fail)?;
        Ok(record)
    }

    /// What is protected since we configured it a person protected, and keeps.
    fn unprotected(
        call: &AdmittedCall,
        config: &VmConfig,
        record: &CloneIntent,
    ) -> Result<(), Ends> {
        let protected = config.raw.get("protection").is_some_and(|set| set == "1");
        if call.param("protection").is_none() || !protected || !record.configured {
            return Ok(());
        }
        Err(Reply::refused(&format!(
            "VM {0} is protected in PVE, and not by its template: somebody wants to keep it; `qm set {0} --protection 0` lets it go",
            record.vmid
        )))
    }

    /// The VM was configured or started: what is protected from now on is a person's.
    fn configured(&self, call: &AdmittedCall, record: CloneIntent) {
        let changed = matches!(call.rule.name, "config" | "start") && !only_unprotects(call);
        if !changed || record.configured {
            return;
        }
        let record = CloneIntent {
            configured: true,
            ..record
        };
        if let Err(why) = self.intents.record(&record) {
            tracing::error!(why, "that a VM is configured could not be noted");
        }
    }

    /// `GET /broker/info`: version, policy, channel, the cluster it is bound to, and what is wrong.
    async fn info(&self, peer: PeerProcess, raw: RawRequest<'_>) -> Reply {
        if raw.method != "GET" || raw.query.is_some() || !raw.body.is_empty() {
            return Reply::refused("/broker/info takes a plain GET");
        }
        let mut known = self.known_version();
        if known.is_none()
            && let Ok(_pass) = self.gate.enter(peer, "/version").await
        {
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
            "cluster": self.cluster.learnt(),
        }});
        Reply {
            status: 200,
            reason: String::new(),
            outcome: "done",
            body: body.to_string().into_bytes(),
            share: None,
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
fn only_unprotects(call: &AdmittedCall) -> bool {
    let known = |(key, _): &(String, String)| matches!(&**key, "protection" | "digest");
    call.rule.name == "config"
        && call.param("protection") == Some("0")
        && call.params.iter().all(known)
}

pub(super) fn place(call: &AdmittedCall) -> Result<(&str, u32), Ends> {
    match (&call.host, call.vmid) {
        (Some(host), Some(vmid)) => Ok((host, vmid)),
        _ => Err(Reply::refused("the path names no VM")),
    }
}

fn data(answer: PveAnswer) -> Result<Value, Ends> {
    match answer.outcome() {
        None => {
            let body: Value = serde_json::from_slice(&answer.body).map_err(|_| {
                Reply::not_sent("cannot look before the call: PVE's answer is no JSON")
            })?;
            Ok(body.get("data").cloned().unwrap_or(Value::Null))
        }
        Some(CallEffect::Refused | CallEffect::RefusedByBroker) => {
            Err(Reply::of(ForwardResult::Answer(answer)))
        }
        Some(CallEffect::NotSent | CallEffect::Unknown) => Err(Reply::not_sent(&format!(
            "cannot look before the call: PVE answered {} {}",
            answer.status, answer.reason
        ))),
    }
}

pub(super) fn task_of(answer: &PveAnswer) -> Option<Upid> {
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    body["data"].as_str()?.parse().ok()
}

/// The reply where an answer of PVE's that a call hangs on cannot be used.
pub(super) fn unusable(path: &[&str], why: &str) -> Reply {
    let path = crate::pve::path(path);
    Reply::not_sent(&format!(
        "cannot look before the call: PVE's answer to GET {path} cannot be used: {why}; try again, and look at \
         pveproxy's log if it stays so"
    ))
}
