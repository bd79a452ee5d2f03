//! What the loop begins with: the journal and the memory of the one before, and clients for PVE.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::controller::daemon::DaemonParts;
use crate::controller::journal::{Journal, JournalError};
use crate::controller::state::StateFiles;
use crate::model::memory::Memory;
use crate::model::region::RegionName;
use crate::model::time::{Span, Time};

/// Opens the journal; what cannot be read of it is said.
pub(super) fn journal(state: &StateFiles) -> Result<Journal, JournalError> {
    let (journal, unreadable) = Journal::open(&state.journal())?;
    for problem in unreadable {
        tracing::error!(%problem, "a file in the journal is not a valid entry and is ignored");
    }
    Ok(journal)
}

/// Reads the memory. What lies in the future of `now`, there and in the journal, is moved to it: the
/// clock was set back while no daemon ran.
pub(super) fn memory(
    state: &StateFiles,
    journal: &Journal,
    now: Time,
) -> Result<Memory, JournalError> {
    let (mut memory, word) = state.load_memory();
    if let Some(word) = word {
        tracing::warn!("{word}");
    }
    memory.end_future(now);
    journal.step(Span::ZERO, now)?;
    Ok(memory)
}

/// The seed of what runs beside the loop.
pub(super) fn seed(random: &Mutex<StdRng>) -> u64 {
    let mut rng = random.lock().unwrap_or_else(PoisonError::into_inner);
    rng.random()
}

/// A client for each region.
pub(super) fn clients(parts: &DaemonParts) -> BTreeMap<RegionName, crate::pve::Client> {
    let regions = parts.pve.iter();
    regions
        .map(|(name, transport)| (name.clone(), crate::pve::Client::new(transport.clone())))
        .collect()
}
