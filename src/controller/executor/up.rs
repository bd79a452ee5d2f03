//! Bringing a machine up: from wherever it stands to a working node.

use std::time::Duration;

use tokio::time::sleep;

use crate::controller::journal::JournalEntry;
use crate::model::region::{Failure, Step};
use crate::model::time::Span;

use super::tools::Tools;
use super::work::Work;
use super::{clone, firewall, guest, joining, nocloud, node, vm};

/// `/cluster/resources` shows for so long how a VM was before: its host tells every ten seconds (pvestatd).
const TOLD: Duration = Duration::from_secs(11);

/// Whose plan a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanOrigin {
    /// One that was just decided.
    Fresh,
    /// One that was decided before and that nobody was at since.
    Earlier,
}

/// Brings the machine up. Every step first looks whether it is done already.
pub(super) async fn bring_up(
    tools: Tools,
    entry: &JournalEntry,
    plan: PlanOrigin,
) -> Result<(), Failure> {
    let work = open(tools, entry, Step::Intent)?;
    let result = brought_up(&work, plan).await;
    if result.as_ref().is_err_and(|failure| !failure.transient) && may_be_kept(&work) {
        // Whoever has a login on the host reads what is on its image.
        nocloud::give_up_image(&work).await;
    }
    result
}

/// The machine's pool keeps some that failed, to be looked into.
fn may_be_kept(work: &Work) -> bool {
    let pools = &work.tools.settings.policy.pools;
    let pool = pools.get(work.mark.pool.as_str());
    pool.is_some_and(|pool| pool.keep_failed.is_some())
}

async fn brought_up(work: &Work, plan: PlanOrigin) -> Result<(), Failure> {
    let deadlines = work.tools.settings.deadlines.clone();
    clone::ensure(work, plan).await?;
    let configured = async {
        // What a VM was given before it went on is what it was planned with, whatever the file says by then.
        let newest = work.entry()?;
        if newest.configured && newest.step > Step::Configure {
            return Ok(());
        }
        vm::configured(work).await?;
        firewall::settled(work).await
    };
    work.step(Step::Configure, deadlines.configure, configured)
        .await?;
    work.step(Step::Resize, deadlines.resize, vm::resized(work))
        .await?;
    let started = async {
        nocloud::placed(work).await?;
        vm::started(work).await
    };
    work.step(Step::Start, deadlines.start, started).await?;
    // A node that is registered already (we were away) needs no join.
    let known = async {
        let uuid = node::uuid(work).await?;
        let joined = node::has_joined(work, &uuid)?;
        Ok((uuid, joined))
    };
    let (uuid, joined) = match known.await {
        Ok(known) => known,
        Err(stop) => {
            let stop = work.unless_gone(Step::Start, stop).await;
            return Err(work.failure(Step::Start, stop));
        }
    };
    let joined = if joined {
        Ok(())
    } else {
        join(work, &uuid).await
    };
    // It has joined, or failed and may be kept: nobody may join with its token any more, one from before a restart included.
    node::drop_token(work).await;
    joined?;
    let name = work
        .step(
            Step::Register,
            deadlines.register,
            node::registers(work, &uuid),
        )
        .await?;
    work.step(
        Step::Initialize,
        deadlines.initialize,
        node::initialized(work, &name),
    )
    .await?;
    node::drop_token(work).await;
    nocloud::take_out_image(work).await;
    work.record(|stored| {
        stored.step = Step::Done;
        stored.reached = stored.reached.max(Some(Step::Done));
        stored.since = work.tools.clock.now();
        stored.upid = None;
        stored.failure = None;
    })
    .map_err(|stop| work.failure(Step::Initialize, stop))
}

/// Starts the VM of a working node that is off: it comes up by itself, its kubelet with it. One that
/// HA manages is left to it.
pub(super) async fn start(tools: Tools, entry: &JournalEntry) -> Result<(), Failure> {
    let work = open(tools, entry, Step::Start)?;
    let limit = work.tools.settings.deadlines.start;
    work.step(Step::Start, limit, vm::switched_on(&work))
        .await?;
    // Until then the machine counts as busy: what is read of it is from before its start.
    sleep(TOLD).await;
    Ok(())
}

/// Waits for the guest and lets it join.
async fn join(work: &Work, uuid: &str) -> Result<(), Failure> {
    let deadlines = &work.tools.settings.deadlines;
    if joining::asks_nobody(work) {
        // As long as the guest agent would be given for all of it.
        let limit = Span(deadlines.agent.0 + deadlines.os.0 + deadlines.join.0);
        let joins = guest::joins_by_itself(work, uuid);
        return work.step(Step::Join, limit, joins).await;
    }
    work.step(Step::Agent, deadlines.agent, guest::agent_answers(work))
        .await?;
    let probe = work
        .step(Step::Os, deadlines.os, guest::system_ready(work))
        .await?;
    let joined = guest::joined(work, &probe, uuid);
    work.step(Step::Join, deadlines.join, joined).await
}

/// Says on the node of a machine which host its VM is on. One that was registered anew is labelled and opened as it was at first.
pub(super) async fn relabel(tools: Tools, entry: &JournalEntry) -> Result<(), Failure> {
    let work = open(tools, entry, Step::Initialize)?;
    let limit = work.tools.settings.deadlines.initialize;
    let relabelled = async {
        match node::follows_its_vm(&work).await? {
            Some(name) => node::initialized(&work, &name).await,
            None => Ok(()),
        }
    };
    work.step(Step::Initialize, limit, relabelled).await
}

pub(super) fn open(tools: Tools, entry: &JournalEntry, step: Step) -> Result<Work, Failure> {
    let at = tools.clock.now();
    Work::open(tools, entry).map_err(|stop| stop.into_lasting_failure(step, at))
}
