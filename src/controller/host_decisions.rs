//! Why machines came to their hosts, for whoever asks after the decision: of machines on their way up it is remembered, of all others the
//! record is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::controller::turn::Turn;
use crate::kubernetes::lease;
use crate::model::cluster::ObjectKey;
use crate::model::host_choice::HostDecision;
use crate::model::region::{Machine, Step};
use crate::model::time::Time;
use crate::record::{History, ReadError};

/// The record is read no longer for one machine: its decision lies in one segment, of which a slow processor reads the whole in less.
const LONGEST: Duration = Duration::from_secs(5);

/// The decisions that made machines; clones are the same decisions.
#[derive(Clone, Debug, Default)]
pub struct HostDecisions(Arc<KnownDecisions>);

/// What is known of them, and where the others are.
#[derive(Debug, Default)]
struct KnownDecisions {
    /// The directory of the record; `None`: there is none to read.
    record: Option<PathBuf>,
    /// Those of machines that this daemon planned and that are no working nodes yet.
    under_way: Mutex<BTreeMap<Arc<str>, HostDecision>>,
    /// The machine that was looked up last in the record: whoever looks at it goes on asking. Locked while the record is read, so that
    /// one reads at a time.
    last: Mutex<Option<RecordLookup>>,
}

/// A machine by its name and the time when it was planned, and what the record has of it.
#[derive(Debug)]
struct RecordLookup {
    machine: Arc<str>,
    created: Time,
    found: Option<HostDecision>,
    /// Who led then, where nothing was found and another instance did.
    leader: Option<Arc<str>>,
}

impl HostDecisions {
    /// Those of the record in this directory; nothing is read yet.
    pub fn of_record(directory: PathBuf) -> HostDecisions {
        HostDecisions(Arc::new(KnownDecisions {
            record: Some(directory),
            ..KnownDecisions::default()
        }))
    }

    /// Takes the machines that a turn plans, and forgets those that came up, went, or were not begun.
    pub fn decided(&self, turn: &Turn) {
        let machines = &turn.snapshot.machines;
        let chosen = turn.decision.report.chosen_hosts.iter();
        let planned = chosen.map(|(machine, choice)| {
            let made = HostDecision::new(turn.at, choice.clone());
            (machine.clone(), made)
        });
        let mut under_way = locked(&self.0.under_way);
        under_way.retain(|name, made| {
            let machine = machines.get(name);
            machine.is_some_and(|machine| machine.mark.created == made.at && comes(machine))
        });
        under_way.extend(planned);
    }

    /// Those of machines on their way up, by machine.
    pub fn under_way(&self) -> BTreeMap<Arc<str>, HostDecision> {
        locked(&self.0.under_way).clone()
    }

    /// The decision that made a machine of this name at exactly this time. May read the record, which takes seconds at the most and is no work
    /// for the loop's thread.
    pub fn find(&self, machine: &str, created: Time) -> Option<HostDecision> {
        let known = locked(&self.0.under_way).get(machine).cloned();
        if let Some(known) = known.filter(|made| made.at == created) {
            return Some(known);
        }
        let record = self.0.record.as_deref()?;
        let mut last = locked(&self.0.last);
        if let Some(last) = &*last
            && (&*last.machine, last.created) == (machine, created)
        {
            return last.found.clone();
        }
        let found = read(record, machine, created);
        let leader = match &found {
            Some(_) => None,
            None => read_leader(record, created),
        };
        *last = Some(RecordLookup {
            machine: machine.into(),
            created,
            found: found.clone(),
            leader,
        });
        found
    }

    /// The host of the instance that made a machine at exactly this time, where the record does not have the machine's making and another
    /// instance led then. May read the record, as [`find`](Self::find) does.
    pub fn maker(&self, machine: &str, created: Time) -> Option<Arc<str>> {
        if self.find(machine, created).is_some() {
            return None;
        }
        let last = locked(&self.0.last);
        let last = last.as_ref()?;
        let same = (&*last.machine, last.created) == (machine, created);
        let leader = last.leader.as_deref().filter(|_| same)?;
        Some(lease::host_of(leader).into())
    }

    /// Whether the record has a machine of this name. Reads the record, which takes seconds at the most and is no work for the loop's thread.
    pub fn has_recorded(&self, machine: &str) -> bool {
        self.look_up(|history, in_time| history.has_machine(machine, in_time))
    }

    /// Whether the record tells what became of a pod. Reads the record, as [`has_recorded`](Self::has_recorded) does.
    pub fn has_recorded_pod(&self, pod: &ObjectKey) -> bool {
        self.look_up(|history, in_time| history.has_pod(pod, in_time))
    }

    /// Whether something is in the record, for some seconds at the most.
    fn look_up(
        &self,
        has: impl FnOnce(&History, &mut dyn FnMut() -> bool) -> Result<bool, ReadError>,
    ) -> bool {
        let Some(record) = self.0.record.as_deref() else {
            return false;
        };
        // One reads at a time.
        let _last = locked(&self.0.last);
        let began = Instant::now();
        let mut in_time = || began.elapsed() < LONGEST;
        let history = History::open(record);
        let found = history.and_then(|history| has(&history, &mut in_time));
        found.unwrap_or_else(|error| {
            tracing::debug!(%error, "whether the record has it was not read");
            false
        })
    }
}

/// Whether a machine is on its way up, as far as is known.
fn comes(machine: &Machine) -> bool {
    machine.step.is_none_or(|(step, _)| step < Step::Done)
}

/// Looks into the record. That there is none, or that it cannot be read, is for `history` to say.
fn read(record: &Path, machine: &str, created: Time) -> Option<HostDecision> {
    let began = Instant::now();
    let in_time = || began.elapsed() < LONGEST;
    let history = History::open(record);
    let found = history.and_then(|history| history.chosen_host(machine, created, in_time));
    match found {
        Ok(found) => found.map(|choice| HostDecision::new(created, choice)),
        Err(error) => {
            tracing::debug!(machine, %error, "why it came to its host was not read");
            None
        }
    }
}

/// Looks into the record for another instance that led at a time.
fn read_leader(record: &Path, at: Time) -> Option<Arc<str>> {
    let began = Instant::now();
    let in_time = || began.elapsed() < LONGEST;
    let history = History::open(record);
    let found = history.and_then(|history| history.other_leader(at, in_time));
    found.unwrap_or_else(|error| {
        tracing::debug!(%error, "who led was not read");
        None
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "host_decisions/tests.rs"]
mod tests;
