//! Pools whose back-off a person ended (`pve-autoscaler retry POOL`): noted in the state directory until the memory that
//! knows of it is saved, so that no crash in between loses it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::journal::write_durably;
use super::state::{StateError, StateFiles};
use crate::model::memory::Memory;
use crate::model::snapshot::SourceState;
use crate::model::time::{Span, Time};

/// Where they are noted.
const FILE: &str = "retries.json";

impl StateFiles {
    /// Notes that the waits of a pool are to end.
    pub fn add_retry(&self, pool: &str) -> Result<(), StateError> {
        let mut pools = self.retries();
        pools.insert(pool.into());
        let path = self.path(FILE);
        let write = serde_json::to_vec(&pools).map_err(std::io::Error::from);
        write
            .and_then(|text| write_durably(&path, &text))
            .map_err(|source| StateError::new("write", path, source))
    }

    /// The pools whose waits are to end. A file that cannot be read names none: a wait too long does no harm.
    fn retries(&self) -> BTreeSet<Arc<str>> {
        let text = std::fs::read(self.path(FILE));
        let read = text
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        read.unwrap_or_default()
    }

    /// The memory without the waits that are to end; `None` when there are none.
    pub fn without_retried(&self, memory: &Memory, now: Time) -> Option<Memory> {
        let pools = self.retries();
        if pools.is_empty() {
            return None;
        }
        let mut memory = memory.clone();
        for pool in &pools {
            tracing::info!(%pool, "it waits for nothing that failed before");
            memory.end_backoff(pool, now);
        }
        Some(memory)
    }

    /// Whether some are still to end.
    pub fn has_retries(&self) -> bool {
        !self.retries().is_empty()
    }

    /// The memory that knows of them is saved; gives the pools.
    pub fn end_retries(&self) -> Result<BTreeSet<Arc<str>>, StateError> {
        let pools = self.retries();
        let path = self.path(FILE);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StateError::new("remove", path, error))
            }
            _ => Ok(pools),
        }
    }
}

/// A retry waits no longer than this for regions to be read: then what was read before has to do.
const PATIENCE: Span = Span::seconds(15);

/// A retry comes after somebody mended what was in the way, a template often. So regions are read anew before waits end: what is made
/// then is made of what there is now.
#[derive(Debug, Default)]
pub(super) struct RetryWait {
    /// When a turn saw first that waits are to end.
    since: Option<Time>,
}

/// What a turn does about retries.
#[derive(Debug, PartialEq)]
pub(super) enum RetryStep {
    /// Nothing, or it waits for regions that are being read.
    Nothing,
    /// It has regions read anew.
    Poll,
    /// It goes on with this memory, in which nothing waits any more.
    End(Box<Memory>),
}

impl RetryStep {
    /// The memory to go on with, if it is another; `poll` has regions read.
    pub(super) fn carry_out(self, poll: impl FnOnce()) -> Option<Memory> {
        match self {
            RetryStep::Nothing => None,
            RetryStep::Poll => {
                poll();
                None
            }
            RetryStep::End(memory) => Some(*memory),
        }
    }
}

impl RetryWait {
    pub(super) fn look(
        &mut self,
        files: &StateFiles,
        (memory, sources): (&Memory, &BTreeMap<Arc<str>, SourceState>),
        now: Time,
    ) -> RetryStep {
        if !files.has_retries() {
            self.since = None;
            return RetryStep::Nothing;
        }
        let Some(since) = self.since else {
            self.since = Some(now);
            return RetryStep::Poll;
        };
        let regions = sources.iter();
        let mut regions = regions.filter(|(name, _)| name.starts_with("pve/"));
        let fresh = regions.all(|(_, state)| state.as_of > since || state.error.is_some());
        if !fresh && now.since(since) < PATIENCE {
            return RetryStep::Nothing;
        }
        self.since = None;
        match files.without_retried(memory, now) {
            Some(memory) => RetryStep::End(Box::new(memory)),
            None => RetryStep::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::memory::Backoff;

    #[test]
    fn waits_end_once_regions_were_read_anew_or_cannot_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = StateFiles::open(folder.path()).expect("opens");
        let memory = Memory::default();
        let read = |at: i64, error: Option<&str>| {
            let state = SourceState {
                complete: true,
                as_of: Time(at),
                error: error.map(Into::into),
                cause: None,
            };
            BTreeMap::from([("pve/home".into(), state)])
        };
        let mut wait = RetryWait::default();
        let mut look = |read: &BTreeMap<Arc<str>, SourceState>, now: i64| {
            wait.look(&files, (&memory, read), Time(now))
        };
        assert_eq!(look(&read(90, None), 100), RetryStep::Nothing);
        files.add_retry("a").expect("noted");
        assert_eq!(look(&read(90, None), 110), RetryStep::Poll);
        assert_eq!(look(&read(90, None), 120), RetryStep::Nothing);
        let ends = |step: RetryStep| matches!(step, RetryStep::End(_));
        assert!(ends(look(&read(115, None), 130)));
        assert_eq!(look(&read(90, None), 140), RetryStep::Poll);
        assert!(ends(look(&read(90, Some("no route")), 150)));
        assert_eq!(look(&read(90, None), 160), RetryStep::Poll);
        assert!(ends(look(&read(90, None), 160 + PATIENCE.0)));
    }

    #[test]
    fn a_retry_is_kept_until_the_memory_knows_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = StateFiles::open(folder.path()).expect("opens");
        let backoff = |until| Backoff {
            advice: None,
            until: Time(until),
            length: Span::minutes(5),
            failed: Time(0),
            message: "no".into(),
        };
        let hosts = || BTreeMap::from([(Arc::from("pve1"), backoff(9))]);
        let memory = Memory {
            backoff: BTreeMap::from([("a".into(), backoff(9)), ("b".into(), backoff(9))]),
            host_backoff: BTreeMap::from([("a".into(), hosts()), ("b".into(), hosts())]),
            ..Memory::default()
        };
        assert_eq!(files.without_retried(&memory, Time(1)), None);
        files.add_retry("a").expect("noted");
        let again = StateFiles::open(folder.path()).expect("opens");
        let ended = again.without_retried(&memory, Time(1)).expect("a pool");
        for left in [
            ended.backoff.keys().collect::<Vec<_>>(),
            ended.host_backoff.keys().collect(),
        ] {
            assert_eq!(left, [&Arc::from("b")]);
        }
        assert_eq!(again.end_retries().expect("removed"), ["a".into()].into());
        assert_eq!(again.end_retries().expect("twice is fine"), [].into());
        assert_eq!(files.without_retried(&memory, Time(1)), None);
    }
}
