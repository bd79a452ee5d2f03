//! Who asked for something: the end of a pause, a retry, an evacuation or its end. Whoever answers the command knows it, and the loop
//! records it with the turn in which that holds: so it is noted in the state directory in between.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};

use super::journal::write_durably;
use super::state::{StateError, StateFiles};
use crate::model::foreign;

/// Where it is noted.
const FILE: &str = "askers.json";
/// Longest name kept, in characters.
const MAX: usize = 200;
/// Notes kept at most. More are there only where nothing is recorded, and so nobody takes them.
const MOST: usize = 1_000;
/// Taken while the file is read and written: commands are answered beside the loop.
static FILE_IN_USE: Mutex<()> = Mutex::new(());

/// What a person asks for, of which it is noted who did.
#[derive(Clone, Copy, Debug)]
pub enum PersonOrder<'a> {
    /// The end of a pause.
    Resume,
    /// The end of the waits of a pool.
    Retry {
        /// The pool.
        pool: &'a str,
    },
    /// A host is to be emptied.
    Evacuate {
        /// Its region.
        region: &'a str,
        /// The host.
        host: &'a str,
    },
    /// A host may have machines again.
    EndEvacuation {
        /// Its region.
        region: &'a str,
        /// The host.
        host: &'a str,
    },
}

impl PersonOrder<'_> {
    /// Its name in the file.
    fn key(self) -> String {
        match self {
            PersonOrder::Resume => "resume".to_owned(),
            PersonOrder::Retry { pool } => format!("retry {pool}"),
            PersonOrder::Evacuate { region, host } => format!("evacuate {region}/{host}"),
            PersonOrder::EndEvacuation { region, host } => {
                format!("evacuate --end {region}/{host}")
            }
        }
    }
}

impl StateFiles {
    /// Notes who asks for it, before it is carried out.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note_asker(&self, order: PersonOrder<'_>, by: &str) -> Result<(), StateError> {
        let _alone = FILE_IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut askers = self.read_askers();
        while askers.len() >= MOST {
            askers.pop_first();
        }
        askers.insert(order.key(), foreign::line(by, MAX));
        self.write_askers(&askers)
    }

    /// Who asked for it, told once; `None` where nobody noted it, as when the file of a pause was taken away by hand.
    pub fn take_asker(&self, order: PersonOrder<'_>) -> Option<String> {
        let _alone = FILE_IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut askers = self.read_askers();
        let by = askers.remove(&order.key())?;
        // A note that stays would be told of the next order of its kind, too, were it not overwritten then.
        let _ = self.write_askers(&askers);
        Some(foreign::line(&by, MAX)).filter(|by| !by.is_empty())
    }

    /// All notes. A file that cannot be read has none: what was asked for is done all the same.
    fn read_askers(&self) -> BTreeMap<String, String> {
        let text = std::fs::read(self.path(FILE)).ok();
        let read = text.and_then(|text| serde_json::from_slice(&text).ok());
        read.unwrap_or_default()
    }

    /// Writes the notes; where there is none the file goes.
    fn write_askers(&self, askers: &BTreeMap<String, String>) -> Result<(), StateError> {
        let path = self.path(FILE);
        if askers.is_empty() {
            return match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(StateError::new("remove", path, error))
                }
                _ => Ok(()),
            };
        }
        let written = serde_json::to_vec(askers).map_err(std::io::Error::from);
        written
            .and_then(|text| write_durably(&path, &text))
            .map_err(|source| StateError::new("write", path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asked_for_what_is_told_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = StateFiles::open(folder.path()).expect("opens");
        let (host, region) = ("pve2", "east");
        let orders = [
            PersonOrder::Resume,
            PersonOrder::Retry { pool: "general" },
            PersonOrder::Evacuate { region, host },
            PersonOrder::Evacuate {
                region: "west",
                host,
            },
            PersonOrder::EndEvacuation { region, host },
        ];
        for (number, order) in orders.into_iter().enumerate() {
            assert_eq!(files.take_asker(order), None);
            files.note_asker(order, "nobody").expect("noted");
            let by = format!("ann-{number}");
            files.note_asker(order, &by).expect("noted anew");
        }
        let again = StateFiles::open(folder.path()).expect("opens");
        for (number, order) in orders.into_iter().enumerate() {
            assert_eq!(again.take_asker(order), Some(format!("ann-{number}")));
            assert_eq!(files.take_asker(order), None, "it was told");
        }
        assert!(!files.path(FILE).exists(), "nothing is left");
        files
            .note_asker(PersonOrder::Resume, "ann\u{1b}[31m")
            .expect("noted");
        let by = files.take_asker(PersonOrder::Resume);
        assert_eq!(by.as_deref(), Some(r"ann\u{1b}[31m"));
    }

    #[test]
    fn notes_that_nobody_takes_do_not_pile_up_and_a_broken_file_has_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = StateFiles::open(folder.path()).expect("opens");
        let many: BTreeMap<String, String> = (0..MOST)
            .map(|number| (format!("retry a-{number:04}"), "ann".to_owned()))
            .collect();
        files.write_askers(&many).expect("written");
        let order = PersonOrder::Retry { pool: "b" };
        files.note_asker(order, "bob").expect("noted");
        assert_eq!(files.read_askers().len(), MOST);
        assert_eq!(files.take_asker(order).as_deref(), Some("bob"));
        std::fs::write(files.path(FILE), "{").expect("written");
        assert_eq!(files.take_asker(order), None);
        files.note_asker(order, "bob").expect("noted");
        assert_eq!(files.take_asker(order).as_deref(), Some("bob"));
    }
}
