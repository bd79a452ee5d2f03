//! Clones, and VMs that are made of settings: counted, recorded, forwarded.

use tokio::time::Instant;

use crate::model::action::NO_TEMPLATE;
use crate::model::mark::Mark;
use crate::model::policy::VOLUMES_VMID;
use crate::pve::{CallEffect, PveRequest, TaskState};

use super::allow::AdmittedCall;
use super::forward::ForwardResult;
use super::intents::CloneIntent;
use super::owned;
use super::policy::BrokerPolicy;
use super::service::{BrokerService, Ends, Reply, in_time, place, task_of};

impl BrokerService {
    /// Clones the template in the path, if the limits leave room for one more machine, and only after
    /// the intent is durable.
    pub(super) async fn clone_vm(
        &self,
        policy: &BrokerPolicy,
        call: &AdmittedCall,
        request: PveRequest,
        end: Instant,
    ) -> Result<Reply, Ends> {
        let (host, template) = place(call)?;
        let mark = self.new_mark(call)?;
        let config = self.config(host, template, end).await?;
        let refuse = |why: String| Reply::refused(&why);
        owned::template(policy, template, &config).map_err(refuse)?;
        let target = call.param("target").unwrap_or(host);
        owned::fits_pool(policy, &mark, target, template, &config).map_err(refuse)?;
        self.make_vm(policy, (&mark, (host, target), template), request, end)
            .await
    }

    /// Makes a VM of settings, as [`BrokerService::clone_vm`] clones one.
    pub(super) async fn create_vm(
        &self,
        policy: &BrokerPolicy,
        call: &AdmittedCall,
        request: PveRequest,
        end: Instant,
    ) -> Result<Reply, Ends> {
        let mark = self.new_mark(call)?;
        owned::made_of_settings(policy, call, &mark).map_err(|why| Reply::refused(&why))?;
        let host = call.host.as_deref().unwrap_or_default();
        self.make_vm(policy, (&mark, (host, host), NO_TEMPLATE), request, end)
            .await
    }

    /// The mark of the VM that a call makes.
    fn new_mark(&self, call: &AdmittedCall) -> Result<Mark, Ends> {
        let refuse = |why: String| Reply::refused(&why);
        let mark = owned::mark_of_clone(call).map_err(refuse)?;
        if mark.vmid == VOLUMES_VMID {
            return Err(refuse(format!(
                "no machine gets VMID {VOLUMES_VMID}: the Proxmox CSI plugin names its volumes after it, \
                 and they would be destroyed with the VM"
            )));
        }
        self.cluster.check(&mark.cluster).map_err(refuse)?;
        Ok(mark)
    }

    /// Sends the call that makes a machine's VM, of a template or of none, after its intent is durable.
    async fn make_vm(
        &self,
        policy: &BrokerPolicy,
        (mark, (host, target), template): (&Mark, (&str, &str), u32),
        request: PveRequest,
        end: Instant,
    ) -> Result<Reply, Ends> {
        let (intent, earlier) = self
            .intend(policy, mark, (host, target), template, end)
            .await?;
        let sent = match in_time(end) {
            Ok(()) => self.way.send(&request, end).await,
            Err(_) => ForwardResult::Never("the checks before it took all its time".to_owned()),
        };
        match &sent {
            ForwardResult::Answer(answer) if answer.outcome().is_none() => {
                if let Some(task) = task_of(answer) {
                    // Without the task the intent is worth less, not wrong: the clone runs.
                    if let Err(why) = self.intents.record(&intent.answered(task)) {
                        tracing::error!(why, "the clone's task could not be noted");
                    }
                }
            }
            ForwardResult::Answer(answer) if answer.outcome() == Some(CallEffect::Unknown) => {}
            // It surely was not carried out: whatever appears at that VMID is not ours.
            ForwardResult::Answer(_) | ForwardResult::Never(_) => {
                let undone = match &earlier {
                    None => self.intents.forget(mark.vmid),
                    Some(earlier) => self.intents.record(earlier),
                };
                if let Err(why) = undone {
                    tracing::error!(why, "the intent of a refused clone is still there");
                }
            }
            ForwardResult::Unknown(_) => {}
        }
        Ok(Reply::of(sent))
    }

    /// Makes the intent of a clone durable, when its VMID is free and the limits leave room. The second
    /// value is the one that the same machine had already (its first attempt's outcome may be open).
    async fn intend(
        &self,
        policy: &BrokerPolicy,
        mark: &Mark,
        (host, target): (&str, &str),
        template: u32,
        end: Instant,
    ) -> Result<(CloneIntent, Option<CloneIntent>), Ends> {
        // Until the intent is durable nobody else counts: two clones at once would both find room.
        let _one = self.counting.lock().await;
        let taken = || {
            // The words by which the client knows a taken VMID.
            Reply::refused(&format!("VM {} already exists or is being made", mark.vmid))
        };
        let now = self.clock.now();
        let earlier = self
            .intents
            .get(mark.vmid, now)
            .map_err(|why| Reply::not_sent(&why))?;
        let same = earlier.as_ref().is_some_and(|intent| {
            !intent.settled && intent.machine == mark.machine && intent.template == template
        });
        if let Some(intent) = &earlier
            && !same
            && self.may_run(policy, intent, end).await
        {
            return Err(taken());
        }
        let resources = self.resources(end).await?;
        if owned::exists(&resources, mark.vmid) && !same {
            return Err(taken());
        }
        self.room_for(policy, (mark, target), resources, end)
            .await?;
        let intent = CloneIntent::new(mark, host, template, now)
            .on(mark, target)
            .after(earlier.as_ref());
        let fail = |why: String| Reply::not_sent(&why);
        self.intents.record(&intent).map_err(fail)?;
        self.cluster.learn(&mark.cluster).map_err(fail)?;
        Ok((intent, earlier.filter(|_| same)))
    }

    /// Whether a clone of `intent` may still be under way or come.
    pub(super) async fn may_run(
        &self,
        policy: &BrokerPolicy,
        intent: &CloneIntent,
        end: Instant,
    ) -> bool {
        if intent.may_come(self.clock.now()) {
            return true;
        }
        if intent.settled || self.clock.now().since(intent.asked) >= policy.allow.quarantine {
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
}
