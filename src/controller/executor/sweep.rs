//! Clearing away what crashes and failures leave: placeholders, intents, cordons, Node objects.

use std::time::Duration;

use tokio::time::sleep;

use crate::controller::journal::JournalEntry;
use crate::model::action::{Action, NodeRef};
use crate::model::cluster::{Node, ReadyStatus};
use crate::model::region::{Failure, GuestKind, Step};
use crate::model::time::Span;
use crate::pve::{FailureCause, GuestResource};

use super::clone;
use super::late;
use super::nocloud;
use super::node;
use super::tools::Tools;
use super::work::{Stop, VmState, Work, is_transient, kube_within};

/// Time for one sweep action; what is not done then is planned again.
const DEADLINE: Span = Span::minutes(5);
/// Time for dropping an intent: a clone that was not answered is waited for.
const DROP_DEADLINE: Span = Span::minutes(10);
/// Time for one Kubernetes call of a sweep, with all its tries.
const KUBE_PATIENCE: Duration = Duration::from_mins(1);
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(2);

fn open(tools: Tools, entry: &JournalEntry) -> Result<Work, Failure> {
    let at = tools.clock.now();
    Work::open(tools, entry).map_err(|stop| stop.into_lasting_failure(Step::Destroy, at))
}

/// Destroys the locked placeholder of a dead clone, or what is left of a VM whose removal was cut
/// short, and with it the intent.
pub(super) async fn delete_placeholder(tools: Tools, entry: &JournalEntry) -> Result<(), Failure> {
    let work = open(tools, entry)?;
    work.attempt(Step::Destroy, DEADLINE, cleared(&work))
        .await?;
    node::drop_token(&work).await;
    nocloud::remove_image(&work).await;
    late::end_entry(&work)
}

async fn cleared(work: &Work) -> Result<(), Stop> {
    loop {
        let going = match work.look().await? {
            VmState::Absent => return Ok(()),
            VmState::Placeholder => false,
            VmState::Going => true,
            VmState::Ours(_) => {
                work.doubt();
                return Err(Stop::Transient("the clone finished after all".to_owned()));
            }
            VmState::Foreign(how) => return Err(Stop::Failed(format!("left alone: {how}"))),
            VmState::Changed(how) => return Err(Stop::Failed(how)),
        };
        if going && work.being_destroyed().await? {
            work.note(work.going());
            sleep(PAUSE).await;
            continue;
        }
        if !going && clone::running(work).await? {
            return Err(Stop::Transient(
                "a clone of the template is running; the placeholder may belong to it".to_owned(),
            ));
        }
        let host = placeholder_host(work).await?;
        work.enter(Step::Destroy)?;
        let vmid = work.mark.vmid;
        match work.pve.destroy(&host, vmid).await {
            Ok(upid) => {
                let Some(text) = work.follow(&upid).await? else {
                    if !going {
                        work.disk_left();
                    }
                    continue;
                };
                return Err(Stop::Failed(if going {
                    format!("{}: {text}", work.going())
                } else {
                    format!(
                        "the placeholder could not be destroyed: {text}; remove it by hand: qm unlock {vmid} && qm destroy {vmid}"
                    )
                }));
            }
            Err(error) if is_transient(&error) || error.cause() == FailureCause::Gone => {
                work.note(error.to_string());
                work.wait_before_retry(&error, PAUSE).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn placeholder_host(work: &Work) -> Result<std::sync::Arc<str>, Stop> {
    let resources = work
        .patiently("reading the resources", || work.pve.resources())
        .await?;
    resources
        .guests
        .get(&work.mark.vmid)
        .map(|guest| guest.host.clone())
        .ok_or_else(|| Stop::Transient("the placeholder went away".to_owned()))
}

/// Drops the intent of a machine whose VM is not there.
pub(super) async fn drop_intent(tools: Tools, entry: &JournalEntry) -> Result<(), Failure> {
    let work = open(tools, entry)?;
    work.attempt(Step::Destroy, DROP_DEADLINE, nothing_there(&work))
        .await?;
    node::drop_token(&work).await;
    nocloud::remove_image(&work).await;
    work.tools
        .journal
        .remove(&work.machine)
        .map_err(|error| work.failure(Step::Destroy, error.into()))
}

async fn nothing_there(work: &Work) -> Result<(), Stop> {
    late::no_clone_comes(work).await?;
    // What once carried our mark is not made by a clone any more.
    if !work.entry()?.was_ours() && clone::running(work).await? {
        return Err(Stop::Transient(
            "a running clone may belong to this machine".to_owned(),
        ));
    }
    let mut look = work.look().await?;
    if work.entry()?.was_ours() && matches!(look, VmState::Foreign(_)) {
        // The mark is gone: one reading may have lost it on the way.
        sleep(PAUSE).await;
        look = work.look().await?;
    }
    match look {
        VmState::Absent | VmState::Foreign(_) => Ok(()),
        VmState::Ours(_) | VmState::Placeholder | VmState::Going | VmState::Changed(_) => {
            // The plan is from before that.
            work.doubt();
            Err(Stop::Transient("its VM is there after all".to_owned()))
        }
    }
}

/// What a sweep action on a node is done with.
struct Sweep<'a> {
    tools: &'a Tools,
    action: &'a Action,
    step: Step,
}

impl Sweep<'_> {
    fn failure(&self, message: String) -> Failure {
        Failure {
            advice: None,
            step: self.step,
            message: message.into(),
            at: self.tools.clock.now(),
            transient: false,
            host: None,
        }
    }

    /// The node that the action names.
    fn node(&self) -> Result<NodeRef, Failure> {
        let node = self.action.target.node.clone();
        node.ok_or_else(|| self.failure("the action names no node".to_owned()))
    }

    /// Tries a Kubernetes call until it is answered, an error comes that waiting does not mend, or the sweep's
    /// time is up.
    async fn patiently<T, F>(&self, call: impl FnMut() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, crate::kubernetes::KubeError>>,
    {
        kube_within(&self.action.target.machine, KUBE_PATIENCE, call)
            .await
            .map_err(|error| self.failure(error.to_string()))
    }
}

/// Takes our leaving taint off a node and uncordons it.
pub(super) async fn release(
    tools: &Tools,
    action: &Action,
    entry: Option<&JournalEntry>,
) -> Result<(), Failure> {
    let sweep = Sweep {
        tools,
        action,
        step: Step::Drain,
    };
    let node = sweep.node()?;
    if let Some(entry) = entry.filter(|entry| entry.power_off_sent.is_some()) {
        late::no_power_off_comes(&open(tools.clone(), entry)?, &node).await;
    }
    sweep.patiently(|| tools.kube.release_node(&node)).await?;
    // A drain that stands in the journal without its cordon would never end.
    let now = tools.clock.now();
    let back = tools.journal.update(&action.target.machine, |stored| {
        if matches!(stored.step, Step::Drain | Step::Detach) {
            stored.step = Step::Done;
            stored.since = now;
        }
    });
    back.map_err(|error| sweep.failure(error.to_string()))
}

/// Deletes a Node of ours whose VM is gone: looked for once more, by VMID, name and UUID in the whole region.
pub(super) async fn delete_node(tools: &Tools, action: &Action) -> Result<(), Failure> {
    let sweep = Sweep {
        tools,
        action,
        step: Step::DeleteNode,
    };
    let planned = sweep.node()?;
    let Some(node) = sweep.patiently(|| tools.kube.node(&planned.name)).await? else {
        return Ok(());
    };
    if node.uid != planned.uid {
        return Err(sweep.failure(format!(
            "node {} is not the one it was when this was planned",
            planned.name
        )));
    }
    if node.ready.status == ReadyStatus::True && !planted!(ReadyNodeDeleted) {
        return Err(sweep.failure(format!(
            "node {} is Ready; something runs behind it",
            planned.name
        )));
    }
    not_behind(&sweep, &node).await?;
    sweep
        .patiently(|| tools.kube.delete_node(&planned))
        .await
        .map(drop)
}

/// No VM that there is may be behind the node: none of its VMID, of its name or of our range has its UUID.
async fn not_behind(sweep: &Sweep<'_>, node: &Node) -> Result<(), Failure> {
    let target = &sweep.action.target;
    let (tools, region) = (sweep.tools, &target.region);
    let client = tools
        .pve
        .get(region)
        .ok_or_else(|| sweep.failure(format!("region {region} is not in the configuration")))?;
    let resources = client.resources().await;
    let resources = resources.map_err(|error| sweep.failure(error.to_string()))?;
    let range = tools.settings.policy.regions.get(region);
    let may_be = |vmid: u32, guest: &GuestResource| {
        guest.kind == GuestKind::Qemu
            && !guest.template
            && (vmid == target.vmid
                || guest.name == target.machine
                || range.is_some_and(|range| (range.vmid_first..=range.vmid_last).contains(&vmid)))
    };
    if !resources.guests.contains_key(&target.vmid) && !target.host.is_empty() {
        // PVE leaves out of its list what the caller may not see any more.
        let vmid = target.vmid;
        match client.vm_config(&target.host, vmid).await {
            Ok(config) if config.uuid.as_deref() == Some(&*node.system_uuid) => {
                return Err(sweep.failure(format!(
                    "VM {vmid} has the node's UUID, though PVE does not list it; it is not gone"
                )));
            }
            Err(error) if is_transient(&error) && resources.is_online(&target.host) => {
                return Err(sweep.failure(format!(
                    "PVE does not list VM {vmid}, and its host does not say whether it is there: {error}"
                )));
            }
            Ok(_) | Err(_) => {}
        }
    }
    for (vmid, guest) in resources
        .guests
        .iter()
        .filter(|(vmid, guest)| may_be(**vmid, guest))
    {
        match client.vm_config(&guest.host, *vmid).await {
            Ok(config) if config.uuid.as_deref() == Some(&*node.system_uuid) => {
                return Err(sweep.failure(format!("VM {vmid} has the node's UUID; it is not gone")));
            }
            Ok(_) => {}
            // It may have moved between the two calls.
            Err(error) => return Err(sweep.failure(error.to_string())),
        }
    }
    Ok(())
}
