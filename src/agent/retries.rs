//! Pools whose back-off a person ended (`pve-autoscaler retry POOL`): noted in the state directory until the memory that
//! knows of it is saved, so that no crash in between loses it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::journal::write_durably;
use super::state::{StateError, StateFiles};
use crate::model::memory::Memory;
use crate::model::time::Time;

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
            tracing::info!(%pool, "its back-off was ended by a person");
            memory.end_backoff(pool, now);
        }
        Some(memory)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::memory::Backoff;
    use crate::model::time::Span;

    #[test]
    fn a_retry_is_kept_until_the_memory_knows_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = StateFiles::open(folder.path()).expect("opens");
        let backoff = |until| Backoff {
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
