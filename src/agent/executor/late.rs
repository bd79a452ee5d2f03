//! Calls to PVE that were given up and may be carried out all the same: they wait in a proxy, or in a connection that
//! stalls. What they would do then must find somebody who knows of it.

use std::time::Duration;

use tokio::time::sleep;

use crate::agent::journal::Entry;
use crate::model::region::{Failure, Step};
use crate::model::time::Span;
use crate::pve::LATE_CALL;

use super::work::{Look, Stop, Work};

/// [`LATE_CALL`], for waiting.
pub(super) const LATE: Duration = Duration::from_millis(LATE_CALL.0.unsigned_abs());
/// Between two looks whether a clone has come.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// For how long a clone of the machine may still come whose call was not answered; nothing when none may.
fn clone_may_come(work: &Work) -> Result<Option<Span>, Stop> {
    let Some(asked) = work.entry()?.unanswered_clone else {
        return Ok(None);
    };
    let now = work.tools.clock.now();
    if asked > now {
        // The clock was set back: how long ago it was is not known any more.
        work.record(|entry| entry.unanswered_clone = Some(now))?;
    }
    let gone = now.since(asked.min(now));
    Ok((gone < LATE_CALL).then(|| Span(LATE_CALL.0 - gone.0)))
}

/// Waits until no clone of the machine can come any more, or until something has its VMID.
pub(super) async fn no_clone_comes(work: &Work) -> Result<(), Stop> {
    while let Some(left) = clone_may_come(work)? {
        if !matches!(work.look().await?, Look::Absent) {
            break;
        }
        // A clone that comes is ours by intent, as the first was; what the one that is gone showed says nothing of it.
        if work.entry()?.was_ours() {
            work.record(Entry::forget_vm)?;
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
        let forgotten = work.record(Entry::forget_vm);
        return forgotten.map_err(failure);
    }
    let removed = work.tools.journal.remove(&work.machine);
    removed.map_err(|error| work.failure(Step::Destroy, error.into()))
}
