//! What the daemon keeps on disk beside the journal: the brain's memory, and the pause.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::model::foreign::{self, ForeignText};
use crate::model::memory::{self, Memory};
use crate::model::time::Time;
use crate::model::tolerant;
use crate::model::words;

use super::journal::{Journal, UnreadableEntry, write_durably};
use super::{panicked_view, panics};

/// The panics of earlier daemons.
const PANICS: &str = "panics.json";
/// The view on which the last decision panicked that did.
const PANICKED_VIEW: &str = "panicked-view.json";

/// The state directory's files.
#[derive(Clone, Debug)]
pub struct StateFiles {
    directory: PathBuf,
}

/// A state file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {path}: {source}; {}", what_helps(source))]
pub struct StateError {
    verb: &'static str,
    path: PathBuf,
    source: std::io::Error,
}

/// What a person does about it.
fn what_helps(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room there: `df -h` and `df -i` of the directory show how full it is"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "its file system is mounted read-only: `dmesg` may say why"
        }
        _ => "is the state directory writable by the daemon's user?",
    }
}

impl StateError {
    /// Cannot `verb` the file at `path`.
    pub(super) fn new(verb: &'static str, path: PathBuf, source: std::io::Error) -> StateError {
        StateError { verb, path, source }
    }
}

impl StateFiles {
    /// Where a file of this name lies.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The files in `directory`, which is made if need be.
    pub fn open(directory: &Path) -> Result<StateFiles, StateError> {
        std::fs::create_dir_all(directory).map_err(|source| StateError {
            verb: "make",
            path: directory.to_owned(),
            source,
        })?;
        Ok(StateFiles {
            directory: directory.to_owned(),
        })
    }

    /// Where the journal lies.
    pub fn journal(&self) -> PathBuf {
        self.directory.join(super::journal::DIRECTORY)
    }

    /// Where the record of decisions lies.
    pub fn record(&self) -> PathBuf {
        self.directory.join(crate::record::DIRECTORY)
    }

    /// The files of the journal that are no entries; none where it cannot be read at all, which the daemon says.
    pub fn unreadable_entries(&self) -> Vec<UnreadableEntry> {
        Journal::open(&self.journal()).map_or_else(|_| Vec::new(), |(_, unreadable)| unreadable)
    }

    /// The memory, and a word about it when it was there but could not be used. A lost memory may
    /// delay a removal and never hastens one, and costs a pool that failed one more attempt at most before it is
    /// remembered again ([`Memory`]), so the daemon goes on with an empty one.
    ///
    /// What a newer version remembered besides is passed over, and lost with the next save: this one does not keep it true, and a timer
    /// that ran on from before would hasten what a lost one delays.
    pub fn load_memory(&self) -> (Memory, Option<String>) {
        let path = self.memory_path();
        let lost = |why: String| {
            (
                Memory::default(),
                Some(format!("{}: {why}; timers begin anew", path.display())),
            )
        };
        match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (Memory::default(), None),
            Err(error) => lost(error.to_string()),
            Ok(text) => match tolerant::read::<Memory>(&text, memory::VERSION) {
                Ok((memory, _)) if memory.version == memory::VERSION => (memory, None),
                Ok(_) => lost("it names no version".to_owned()),
                Err(error) => lost(error),
            },
        }
    }

    /// Writes the memory.
    pub fn save_memory(&self, memory: &Memory) -> Result<(), StateError> {
        let path = self.memory_path();
        let text = serde_json::to_vec(memory).map_err(|e| StateError {
            verb: "encode",
            path: path.clone(),
            source: e.into(),
        })?;
        write_durably(&path, &text).map_err(|source| StateError {
            verb: "write",
            path,
            source,
        })
    }

    /// The reason given for a pause, if one holds.
    pub fn paused(&self) -> Option<String> {
        match std::fs::read_to_string(self.pause_path()) {
            Ok(reason) if reason.trim().is_empty() => Some(words::NO_REASON.to_owned()),
            Ok(reason) => Some(foreign::line(reason.trim(), ForeignText::MAX)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            // A pause that cannot be read is a pause.
            Err(error) => Some(format!("the pause file cannot be read: {error}")),
        }
    }

    /// Begins or ends a pause; it survives restarts.
    pub fn set_paused(&self, reason: Option<&str>) -> Result<(), StateError> {
        let path = self.pause_path();
        let done = match reason {
            Some(reason) => write_durably(&path, reason.as_bytes()),
            None => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        done.map_err(|source| StateError {
            verb: "write",
            path,
            source,
        })
    }

    /// Notes a panic for the next daemon. For a panic's hook: it takes no lock and waits for nobody.
    pub fn record_panic(&self, said: ForeignText, now: Time) -> Result<(), StateError> {
        let path = self.directory.join(PANICS);
        panics::record(&path, said, now).map_err(|source| StateError {
            verb: "write",
            path,
            source,
        })
    }

    /// Keeps the view on which a decision panicked, for who reports it. For a panic's hook, as [`StateFiles::record_panic`].
    pub fn keep_panicked_view(&self) -> Result<(), StateError> {
        let path = self.directory.join(PANICKED_VIEW);
        panicked_view::keep(&path).map_err(|source| StateError {
            verb: "write",
            path,
            source,
        })
    }

    /// When a daemon before this one last ended by a panic, and what is to be said of it. To be asked before the memory is
    /// read: where panics came one after the other it is set aside.
    pub fn after_panics(&self, now: Time) -> Option<(Time, String)> {
        panics::look(&self.directory.join(PANICS), &self.memory_path(), now)
    }

    fn memory_path(&self) -> PathBuf {
        self.directory.join("memory.json")
    }

    fn pause_path(&self) -> PathBuf {
        self.directory.join("paused")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::action::Reason;
    use crate::model::memory::Backoff;
    use crate::model::time::Span;

    /// A back-off, a timer and what was evicted survive a downgrade. What only the newer version knows is not written again, since
    /// nobody keeps it true.
    #[test]
    fn a_memory_of_a_newer_version_keeps_what_this_one_knows() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = StateFiles::open(directory.path()).expect("opens");
        let backoff = Backoff {
            until: Time(9_000),
            length: Span::minutes(5),
            failed: Time(5_000),
            message: "no space".into(),
            advice: None,
        };
        let memory = Memory {
            version: memory::VERSION,
            began: Some(Time(5_000)),
            unneeded_since: [("small-a".into(), Time(7_000))].into(),
            backoff: [("small".into(), backoff.clone())].into(),
            host_backoff: [("small".into(), [("pve1".into(), backoff)].into())].into(),
            serial: 17,
            removals: [("small-a".into(), Reason::NoVm)].into(),
            ..Memory::default()
        };
        let mut newer = serde_json::to_value(&memory).expect("plain data");
        newer["moods"] = json!({"small": "2026-01-01T00:00:00Z"});
        // A reason of a kind that this version does not have costs that entry alone.
        newer["removals"]["small-b"] = json!({"why": "bored", "since": 5});
        for place in ["/backoff/small", "/host_backoff/small/pve1"] {
            newer.pointer_mut(place).expect("it is there")["tries"] = json!(3);
        }
        let file = directory.path().join("memory.json");
        std::fs::write(&file, newer.to_string()).expect("written");
        assert_eq!(files.load_memory(), (memory.clone(), None));
        files.save_memory(&memory).expect("saved");
        let text = std::fs::read(&file).expect("it is there");
        let saved: Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(saved.get("moods"), None);
        // A newer version that raises the number says that the rest alone is worth nothing.
        newer["version"] = json!(memory::VERSION + 1);
        std::fs::write(&file, newer.to_string()).expect("written");
        let (lost, word) = files.load_memory();
        assert_eq!(lost, Memory::default());
        let word = word.expect("it is said");
        assert!(word.contains("version 2 is unknown"), "{word}");
        assert!(word.contains("timers begin anew"), "{word}");
    }

    #[test]
    fn memory_and_pause_survive_and_a_broken_memory_is_said() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = StateFiles::open(directory.path()).expect("opens");
        assert_eq!(files.load_memory(), (Memory::default(), None));
        let memory = Memory {
            version: memory::VERSION,
            began: Some(Time(5)),
            ..Memory::default()
        };
        files.save_memory(&memory).expect("saved");
        assert_eq!(files.load_memory(), (memory.clone(), None));
        // An older program wrote `born`.
        let file = directory.path().join("memory.json");
        let text = std::fs::read_to_string(&file).expect("it is text");
        let older = text.replace("\"began\"", "\"born\"");
        assert_ne!(older, text);
        std::fs::write(&file, older).expect("written");
        assert_eq!(files.load_memory(), (memory, None));
        std::fs::write(&file, "{").expect("written");
        assert!(
            files
                .load_memory()
                .1
                .is_some_and(|word| word.contains("timers begin anew"))
        );
        assert_eq!(files.paused(), None);
        files.set_paused(Some("maintenance")).expect("paused");
        assert_eq!(files.paused().as_deref(), Some("maintenance"));
        files.set_paused(Some(" \n")).expect("paused");
        assert_eq!(files.paused().as_deref(), Some("no reason given"));
        files.set_paused(None).expect("resumed");
        files.set_paused(None).expect("again");
        assert_eq!(files.paused(), None);
    }

    #[test]
    fn what_helps_goes_by_why_nothing_is_written() {
        for (kind, words) in [
            (ErrorKind::StorageFull, "`df -h`"),
            (ErrorKind::QuotaExceeded, "`df -h`"),
            (ErrorKind::ReadOnlyFilesystem, "`dmesg`"),
            (ErrorKind::PermissionDenied, "the daemon's user?"),
        ] {
            let error = StateError::new("write", "/s/memory.json".into(), kind.into());
            let said = error.to_string();
            assert!(
                said.starts_with("cannot write /s/memory.json: ") && said.contains(words),
                "{said}"
            );
        }
    }
}
