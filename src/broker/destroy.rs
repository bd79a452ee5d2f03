//! Destroying: whether a VM may be destroyed at all, whether past its lock, and that it is known
//! afterwards that we did.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tokio::time::Instant;

use crate::model::action::{CLONE_LOCK, is_being_made};
use crate::model::mark::{Mark, Ownership};
use crate::model::time::Span;
use crate::pve::{CallEffect, PveRequest, Task, TaskState, Upid, VmConfig, rows, sound};

use super::allow::AdmittedCall;
use super::census;
use super::forward::ForwardResult;
use super::intents::CloneIntent;
use super::owned;
use super::policy::BrokerPolicy;
use super::removals::{self, Removal};
use super::service::{BrokerService, Ends, Reply, in_time, place, task_of};

/// A reading of the region shows a clone that PVE has begun so long ago, wherever it was asked.
const SETTLED: Span = Span::minutes(1);
/// Tasks asked for when a locked VM is to go.
const TASKS: usize = 500;

impl BrokerService {
    /// Destroys the VM in the path, if it may be, and only after the removal is recorded: of a VM
    /// whose removal is cut short nothing is left to know it by.
    pub(super) async fn destroy(
        &self,
        policy: &BrokerPolicy,
        call: &AdmittedCall,
        mut request: PveRequest,
        end: Instant,
    ) -> Result<Reply, Ends> {
        let (host, vmid) = place(call)?;
        let (removal, past_lock) = self.may_destroy(policy, host, vmid, end).await?;
        if past_lock {
            request.params.push(("skiplock".to_owned(), "1".to_owned()));
        }
        in_time(end)?;
        // One that cannot be read proves nothing, and is written anew.
        let earlier = self.removals.get(vmid, self.clock.now()).unwrap_or(None);
        self.removals
            .record(&removal)
            .map_err(|why| Reply::not_sent(&why))?;
        let sent = self.way.send(&request, end).await;
        let noted = match &sent {
            ForwardResult::Answer(answer) if answer.outcome().is_none() => {
                let task = task_of(answer);
                // Without the task the record is worth less, not wrong.
                task.map_or(Ok(()), |task| {
                    self.removals.record(&Removal {
                        task: Some(task),
                        ..removal
                    })
                })
            }
            ForwardResult::Answer(answer) if answer.outcome() == Some(CallEffect::Unknown) => {
                Ok(())
            }
            // It surely was not carried out; an earlier one may still have been cut short.
            ForwardResult::Answer(_) | ForwardResult::Never(_) => match &earlier {
                None => self.removals.forget(vmid),
                Some(earlier) => self.removals.record(earlier),
            },
            ForwardResult::Unknown(_) => Ok(()),
        };
        if let Err(why) = noted {
            tracing::error!(why, "the record of a removal is not up to date");
        }
        Ok(Reply::of(sent))
    }

    /// A reading of the region passed: what is recorded of VMs that it does not show is over.
    pub(super) fn saw(&self, policy: &BrokerPolicy, body: &[u8]) {
        let intents = self.intents.vmids();
        if self.removals.vmids().is_empty() && intents.is_empty() {
            return;
        }
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        // An answer that may hide a guest is no reading of the region.
        let Ok(resources) = rows::resources(&body["data"]) else {
            return;
        };
        let there: BTreeMap<u32, bool> = census::entries(&resources)
            .map(|(vmid, entry)| {
                let vm = entry.text("type").as_deref() == Some("qemu") && !entry.flag("template");
                // What cannot be read may be ours.
                (vmid, vm || entry.text(rows::ODD).is_some())
            })
            .collect();
        let vmids = there.keys().copied().collect();
        removals::forget_gone(&self.removals, &vmids);
        self.census.keep(&vmids);
        for vmid in intents {
            // A container or a template at the VMID is not ours either.
            if there.get(&vmid) != Some(&true) {
                self.gone(policy, vmid, there.contains_key(&vmid));
            }
        }
    }

    /// No VM is at this VMID: whether a clone of ours may still put one there.
    fn gone(&self, policy: &BrokerPolicy, vmid: u32, taken: bool) {
        let now = self.clock.now();
        let Ok(Some(record)) = self.intents.get(vmid, now) else {
            return;
        };
        let wait = match &record.task {
            _ if record.settled || taken => Span::ZERO,
            // As long as its task runs there is at least its placeholder.
            Some(_) => SETTLED,
            None => policy.allow.quarantine,
        };
        let done = if !taken && record.may_come(now) {
            if !record.settled {
                return;
            }
            // What is recorded of the VM is forgotten with it; a clone of it that was not answered may still come.
            self.intents.record(&record.of_open_clones())
        } else if now.since(record.asked) < wait {
            return;
        } else {
            self.intents.forget(vmid)
        };
        if let Err(why) = done {
            tracing::warn!(why, "the record of a VM that is gone is still there");
        }
    }

    /// Whether the VM may be destroyed, with what is to be recorded of it; and whether only past its
    /// lock: the remains of a clone or of a removal whose worker died.
    async fn may_destroy(
        &self,
        policy: &BrokerPolicy,
        host: &str,
        vmid: u32,
        end: Instant,
    ) -> Result<(Removal, bool), Ends> {
        if !policy.in_range(vmid) {
            return Err(Reply::refused(&format!(
                "VM {vmid} is outside the configured range"
            )));
        }
        let config = self.config(host, vmid, end).await?;
        let lock = config.lock.as_deref();
        let bare = config.ownership() == Ownership::Unmarked && !config.template;
        if bare && lock == Some(removals::LOCK) {
            let removal = self.interrupted(host, vmid, &config, end).await?;
            return Ok((removal, true));
        }
        let locked = lock == Some(CLONE_LOCK);
        let now = self.clock.now();
        let removal = |machine: &str, cluster: &str| Removal {
            vmid,
            machine: machine.to_owned(),
            cluster: cluster.to_owned(),
            host: host.to_owned(),
            asked: now,
            task: None,
        };
        if is_being_made(lock) && bare {
            let intent = self.placeholder(policy, host, vmid, &config, end).await?;
            return Ok((removal(&intent.machine, &intent.cluster), true));
        }
        let mark: Mark = self
            .mark(policy, vmid, &config)
            .map_err(|why| Reply::refused(&why))?;
        owned::no_data(vmid, &config).map_err(|why| Reply::refused(&why))?;
        let removal = removal(&mark.machine, &mark.cluster);
        let record = self.now_ours(&mark, host, &config)?;
        if locked {
            // A clone of several disks that ended between them.
            self.dead_clone(policy, host, &record, end).await?;
        }
        Ok((removal, locked))
    }

    /// The locked VM without a mark is what a clone of ours left, and nobody else's.
    async fn placeholder(
        &self,
        policy: &BrokerPolicy,
        host: &str,
        vmid: u32,
        config: &VmConfig,
        end: Instant,
    ) -> Result<CloneIntent, Ends> {
        let refuse = |why: String| Reply::refused(&why);
        let intent = self.intents.get(vmid, self.clock.now()).map_err(refuse)?;
        let lock = config.lock.as_deref();
        let Some(intent) = intent.filter(|intent| intent.may_be_placeholder(lock)) else {
            return Err(refuse(format!(
                "VM {vmid} is a clone under way that no intent of ours names; if it is dead, `qm destroy {vmid} --skiplock` on {host} removes it"
            )));
        };
        if let Err(why) = owned::placeholder(vmid, config) {
            self.noticed(policy, vmid, config);
            return Err(refuse(why));
        }
        self.dead_clone(policy, host, &intent, end).await?;
        let (first, _) = intent.span();
        let since = (first.0 / 1000 - owned::CLOCKS).max(0).to_string();
        let limit = TASKS.to_string();
        let params = [
            ("source", "all"),
            ("typefilter", intent.task_kind()),
            ("since", &since),
            ("limit", &limit),
        ];
        let path = ["nodes", host, "tasks"];
        let tasks = self.read_sound(&path, &params, end, sound::tasks).await?;
        let tasks = owned::making_tasks(&tasks, &intent);
        if let Some(task) = owned::others_clone(&tasks, &intent, &self.claimed(vmid)) {
            return Err(refuse(format!(
                "VM {vmid} may be what clone task {task} of somebody else left; `qm destroy {vmid} --skiplock` on {host} removes it, if it is nobody's"
            )));
        }
        Ok(intent)
    }

    /// The clone tasks that are known to be of other machines.
    fn claimed(&self, vmid: u32) -> BTreeSet<Upid> {
        let now = self.clock.now();
        let others = self
            .intents
            .vmids()
            .into_iter()
            .filter(|other| *other != vmid);
        others
            .filter_map(|other| self.intents.get(other, now).ok()??.task)
            .collect()
    }

    /// Checks that the VM is left over from a removal of ours on which no task runs any more.
    async fn interrupted(
        &self,
        host: &str,
        vmid: u32,
        config: &VmConfig,
        end: Instant,
    ) -> Result<Removal, Ends> {
        let refuse = |why: String| Reply::refused(&why);
        let removal = self
            .removals
            .get(vmid, self.clock.now())
            .map_err(refuse)?
            .ok_or_else(|| {
                refuse(format!(
                    "VM {vmid} is what an interrupted removal left, and none of ours is recorded; `qm destroy {vmid} --skiplock` on {host} finishes it"
                ))
            })?;
        removals::nothing_left(vmid, config).map_err(refuse)?;
        self.cluster.check(&removal.cluster).map_err(refuse)?;
        if removal.host != host {
            return Err(refuse(format!(
                "VM {vmid} was to be destroyed on {}, not {host}",
                removal.host
            )));
        }
        let (id, limit) = (vmid.to_string(), TASKS.to_string());
        let params = [("source", "active"), ("vmid", &*id), ("limit", &*limit)];
        let path = ["nodes", host, "tasks"];
        let tasks = self.read_sound(&path, &params, end, sound::tasks).await?;
        let tasks = Task::read_all(&tasks);
        let under_way = tasks.iter().find(|task| {
            task.running && (task.upid.id() == id || Some(&task.upid) == removal.task.as_ref())
        });
        if let Some(task) = under_way {
            return Err(refuse(format!(
                "VM {vmid}: task {} is still under way",
                task.upid
            )));
        }
        Ok(removal)
    }

    /// The clone of `intent` is not under way any more and had its time.
    pub(super) async fn dead_clone(
        &self,
        policy: &BrokerPolicy,
        host: &str,
        intent: &CloneIntent,
        end: Instant,
    ) -> Result<(), Ends> {
        let refuse = |why: String| Err(Reply::refused(&why));
        let vmid = intent.vmid;
        if intent.host != host {
            return refuse(format!(
                "VM {vmid} was to be made on {}, not {host}",
                intent.host
            ));
        }
        self.cluster
            .check(&intent.cluster)
            .map_err(|why| Reply::refused(&why))?;
        let (_, last) = intent.span();
        let age = self.clock.now().since(last);
        if age < policy.allow.quarantine {
            return refuse(format!(
                "VM {vmid} is a clone asked for {age} ago; it is in quarantine for {}",
                policy.allow.quarantine
            ));
        }
        let limit = TASKS.to_string();
        let params = [
            ("source", "active"),
            ("typefilter", intent.task_kind()),
            ("limit", &limit),
        ];
        let path = ["nodes", host, "tasks"];
        let tasks = self.read_sound(&path, &params, end, sound::tasks).await?;
        let tasks = owned::making_tasks(&tasks, intent);
        if let Some(task) = owned::clone_under_way(&tasks, intent, &self.claimed(vmid)) {
            return refuse(format!("VM {vmid}: clone task {task} is still under way"));
        }
        // What a call made that was not answered, the task of a later one says nothing of.
        if let Some(task) = intent
            .task
            .as_ref()
            .filter(|_| intent.unanswered.is_empty())
        {
            let task_path = ["nodes", host, "tasks", task.as_str(), "status"];
            // A task that nobody remembers any more says nothing against it.
            if let Ok(data) = self.read(&task_path, &[], end).await {
                owned::not_taken(vmid, &TaskState::read(&data)).or_else(refuse)?;
            }
        }
        Ok(())
    }
}
