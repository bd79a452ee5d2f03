//! Clearing away what crashes and failures leave: placeholders, intents, cordons, Node objects.

use std::time::Duration;

use tokio::time::sleep;

use crate::agent::journal::Entry;
use crate::model::action::{Action, NodeRef};
use crate::model::cluster::ReadyStatus;
use crate::model::region::{Failure, Step};
use crate::model::time::Span;
use crate::pve::Cause;

use super::clone;
use super::node;
use super::tools::Tools;
use super::work::{Look, Stop, Work, passing};

/// Time for one sweep action; what is not done then is planned again.
const DEADLINE: Span = Span::minutes(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(2);

fn open(tools: Tools, entry: &Entry) -> Result<Work, Failure> {
    let at = tools.clock.now();
    Work::open(tools, entry).map_err(|stop| {
        let (Stop::Failed(message) | Stop::Transient(message)) = stop;
        Failure {
            step: Step::Destroy,
            message: message.into(),
            at,
            transient: false,
        }
    })
}

/// Destroys the locked placeholder of a dead clone, or what is left of a VM whose removal was cut
/// short, and with it the intent.
pub(super) async fn clear_placeholder(tools: Tools, entry: &Entry) -> Result<(), Failure> {
    let work = open(tools, entry)?;
    work.step(Step::Destroy, DEADLINE, cleared(&work)).await?;
    node::drop_token(&work).await;
    work.tools
        .journal
        .remove(&work.machine)
        .map_err(|error| work.failure(Step::Destroy, error.into()))
}

async fn cleared(work: &Work) -> Result<(), Stop> {
    loop {
        let going = match work.look().await? {
            Look::Absent => return Ok(()),
            Look::Placeholder => false,
            Look::Going => true,
            Look::Ours(_) => {
                return Err(Stop::Transient(
                    "the clone came to life after all".to_owned(),
                ));
            }
            Look::Foreign(how) => return Err(Stop::Failed(format!("hands off: {how}"))),
        };
        if going && work.being_destroyed().await? {
            work.note(work.going());
            sleep(PAUSE).await;
            continue;
        }
        if !going && clone::running(work).await? {
            return Err(Stop::Transient(
                "a clone of the template runs; the placeholder may be its".to_owned(),
            ));
        }
        let host = placeholder_host(work).await?;
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
            Err(error) if passing(&error) || error.cause() == Cause::Gone => {
                work.note(error.to_string());
                sleep(PAUSE).await;
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
pub(super) async fn drop_intent(tools: Tools, entry: &Entry) -> Result<(), Failure> {
    let work = open(tools, entry)?;
    work.step(Step::Destroy, DEADLINE, nothing_there(&work))
        .await?;
    node::drop_token(&work).await;
    work.tools
        .journal
        .remove(&work.machine)
        .map_err(|error| work.failure(Step::Destroy, error.into()))
}

async fn nothing_there(work: &Work) -> Result<(), Stop> {
    if clone::running(work).await? {
        return Err(Stop::Transient("a clone runs that may be its".to_owned()));
    }
    match work.look().await? {
        Look::Absent | Look::Foreign(_) => Ok(()),
        Look::Ours(_) | Look::Placeholder | Look::Going => {
            Err(Stop::Transient("its VM is there after all".to_owned()))
        }
    }
}

fn failure(tools: &Tools, step: Step, message: String) -> Failure {
    Failure {
        step,
        message: message.into(),
        at: tools.clock.now(),
        transient: false,
    }
}

fn target(tools: &Tools, action: &Action, step: Step) -> Result<NodeRef, Failure> {
    action
        .target
        .node
        .clone()
        .ok_or_else(|| failure(tools, step, "the action names no node".to_owned()))
}

/// Takes our leaving taint off a node and uncordons it.
pub(super) async fn release(tools: &Tools, action: &Action) -> Result<(), Failure> {
    let node = target(tools, action, Step::Drain)?;
    tools
        .kube
        .release_node(&node)
        .await
        .map(drop)
        .map_err(|error| failure(tools, Step::Drain, error.to_string()))
}

/// Deletes a Node of ours whose VM is gone: looked for once more, by UUID in the whole region.
pub(super) async fn delete_node(tools: &Tools, action: &Action) -> Result<(), Failure> {
    let planned = target(tools, action, Step::DeleteNode)?;
    let fail = |message: String| failure(tools, Step::DeleteNode, message);
    let Some(node) = tools
        .kube
        .node(&planned.name)
        .await
        .map_err(|error| fail(error.to_string()))?
    else {
        return Ok(());
    };
    if node.uid != planned.uid {
        return Err(fail(format!(
            "node {} is not the one it was when this was planned",
            planned.name
        )));
    }
    if node.ready.status == ReadyStatus::True {
        return Err(fail(format!(
            "node {} is Ready; something runs behind it",
            planned.name
        )));
    }
    let client = tools.pve.get(&action.target.region).ok_or_else(|| {
        fail(format!(
            "region {} is not in the configuration",
            action.target.region
        ))
    })?;
    let resources = client
        .resources()
        .await
        .map_err(|error| fail(error.to_string()))?;
    if let Some(guest) = resources.guests.get(&action.target.vmid) {
        let config = client
            .vm_config(&guest.host, action.target.vmid)
            .await
            .map_err(|error| fail(error.to_string()))?;
        if config.uuid.as_deref() == Some(&*node.system_uuid) {
            return Err(fail(format!(
                "VM {} has the node's UUID; it is not gone",
                action.target.vmid
            )));
        }
    }
    tools
        .kube
        .delete_node(&planned)
        .await
        .map(drop)
        .map_err(|error| fail(error.to_string()))
}
