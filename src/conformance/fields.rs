//! Reading maps key by key: whoever asks for a key makes it known, and what nobody asked for is an
//! error that names the line and all that is known there.

use super::nearest;
use super::value::{CaseEntry, CaseError, CaseValue};
use crate::model::words;

/// Whether two keys are one word: `new_nodes`, `newNodes` and `new-nodes` are.
fn same_word(left: &str, right: &str) -> bool {
    let plain = |word: &str| -> String {
        word.chars()
            .filter(|letter| !matches!(letter, '-' | '_'))
            .flat_map(char::to_lowercase)
            .collect()
    };
    plain(left) == plain(right)
}

/// The entries of one map, being read.
#[derive(Debug)]
pub(super) struct CaseFields<'v> {
    what: String,
    value: &'v CaseValue,
    entries: Vec<(&'v CaseEntry, bool)>,
    known: Vec<&'static str>,
}

impl<'v> CaseFields<'v> {
    /// Begins to read a map; `what` is what it describes, with an article.
    pub(super) fn of(
        value: &'v CaseValue,
        what: impl Into<String>,
    ) -> Result<CaseFields<'v>, CaseError> {
        let what = what.into();
        let entries = value
            .map()
            .ok_or_else(|| value.expected(&format!("{what} as a map")))?;
        Ok(CaseFields {
            what,
            value,
            entries: entries.iter().map(|entry| (entry, false)).collect(),
            known: Vec::new(),
        })
    }

    /// The map itself.
    pub(super) fn value(&self) -> &'v CaseValue {
        self.value
    }

    /// The value of a key, if it is there and not empty.
    pub(super) fn take(&mut self, key: &'static str) -> Option<&'v CaseValue> {
        self.known.push(key);
        let exact = self.entries.iter().position(|(entry, _)| entry.key == key);
        let alike = |(entry, taken): &(&CaseEntry, bool)| !taken && same_word(&entry.key, key);
        let index = exact.or_else(|| self.entries.iter().position(alike))?;
        let (entry, taken) = &mut self.entries[index];
        *taken = true;
        Some(&entry.value).filter(|value| !value.is_null())
    }

    /// The value of the first of several names for the same thing.
    pub(super) fn any(&mut self, keys: &[&'static str]) -> Option<&'v CaseValue> {
        let mut found = None;
        for key in keys {
            found = found.or(self.take(key));
        }
        found
    }

    /// The value of a key that must be there.
    pub(super) fn need(&mut self, key: &'static str) -> Result<&'v CaseValue, CaseError> {
        self.take(key).ok_or_else(|| {
            self.value
                .wrong(format!("{} needs the key {key:?}", self.what))
        })
    }

    /// Reads a key with `read`, if it is there.
    pub(super) fn with<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&'v CaseValue) -> Result<T, CaseError>,
    ) -> Result<Option<T>, CaseError> {
        self.take(key).map(read).transpose()
    }

    /// All entries that nobody asked for: names that the file chooses itself.
    pub(super) fn rest(&mut self) -> Vec<&'v CaseEntry> {
        let mut rest = Vec::new();
        for (entry, taken) in &mut self.entries {
            if !std::mem::replace(taken, true) {
                rest.push(*entry);
            }
        }
        rest
    }

    /// All entries that nobody asked for with a `/` in their key: names of extended resources.
    pub(super) fn slashed(&mut self) -> Vec<&'v CaseEntry> {
        let mut found = Vec::new();
        for (entry, taken) in &mut self.entries {
            if !*taken && entry.key.contains('/') {
                *taken = true;
                found.push(*entry);
            }
        }
        found
    }

    /// Every key must have been asked for.
    pub(super) fn done(self) -> Result<(), CaseError> {
        let Some((entry, _)) = self.entries.iter().find(|(_, taken)| !taken) else {
            return Ok(());
        };
        let mut known = self.known;
        known.sort_unstable();
        known.dedup();
        Err(CaseError {
            at: entry.at.clone(),
            text: format!(
                "{} has no key {:?}{}; known here: {}",
                self.what,
                entry.key,
                nearest::hint(&entry.key, known.iter().copied()),
                words::names(&known)
            ),
        })
    }
}
