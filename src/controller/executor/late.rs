//! Calls to PVE that were given up and may be carried out all the same: they wait in a proxy, or in a connection that
//! stalls. What they would do then must find somebody who knows of it.

use std::time::Duration;

use tokio::time::sleep;

use crate::controller::journal::JournalEntry;
use crate::model::action::NodeRef;
use crate::model::region::{Failure, Step};
use crate::model::time::{Span, Time};
use crate::pve::LATE_CALL;

use super::work::{Stop, VmState, Work};

/// Between two looks whether a clone has come.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// Between two looks whether a node may be given back.
const GIVE_BACK: Duration = Duration::from_secs(5);

/// For how long a call may still take effect, by when it was sent (`asked`, in the journal);
/// nothing when it cannot any more.
fn may_come(
    work: &Work,
    asked: impl Fn(&mut JournalEntry) -> &mut Option<Time>,
) -> Result<Option<Span>, Stop> {
    let Some(sent) = *asked(&mut work.entry()?) else {
        return Ok(None);
    };
    let now = work.tools.clock.now();
    if sent > now {
        // The clock was set back: how long ago it was is not known any more.
        work.record(|entry| *asked(entry) = Some(now))?;
    }
    let gone = now.since(sent.min(now));
    Ok((gone < LATE_CALL).then(|| Span(LATE_CALL.0 - gone.0)))
}

/// For how long a clone of the machine may still come whose call was not answered; nothing when none may.
fn clone_may_come(work: &Work) -> Result<Option<Span>, Stop> {
    may_come(work, |entry| &mut entry.unanswered_clone)
}

/// Waits until no shutdown that was sent can take effect any more. Until then the node keeps our taint, or pods would
/// come and lose their node to a shutdown that nobody wants.
pub(super) async fn no_power_off_comes(work: &Work, node: &NodeRef) {
    // A journal that cannot be read says nothing of a shutdown, and stops the work elsewhere.
    while let Ok(Some(left)) = may_come(work, |entry| &mut entry.power_off_sent) {
        work.note(format!(
            "node {} is needed again, but its VM was asked to shut down and may still do so: it takes no pods for {left}",
            node.name
        ));
        sleep(left.to_std().min(GIVE_BACK)).await;
    }
}

/// Waits until no clone of the machine can come any more, or until something has its VMID.
pub(super) async fn no_clone_comes(work: &Work) -> Result<(), Stop> {
    while let Some(left) = clone_may_come(work)? {
        if !matches!(work.look().await?, VmState::Absent) {
            break;
        }
        // A clone that comes is ours by intent, as the first was; what the one that is gone showed says nothing of it.
        if work.entry()?.was_ours() {
            work.record(JournalEntry::forget_vm)?;
        }
        work.progress(format!(
            "PVE did not answer a clone and may still begin it: the VMID is kept for {left}"
        ));
        sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// Ends the journal's entry of a machine whose VM is gone. While a clone of it may still come the entry stays, as the
/// intent by which that VM is ours; it is dropped later.
pub(super) fn end_entry(work: &Work) -> Result<(), Failure> {
    let failure = |stop| work.failure(Step::Destroy, stop);
    if clone_may_come(work).map_err(failure)?.is_some() {
        let forgotten = work.record(JournalEntry::forget_vm);
        return forgotten.map_err(failure);
    }
    let removed = work.tools.journal.remove(&work.machine);
    removed.map_err(|error| work.failure(Step::Destroy, error.into()))
}
