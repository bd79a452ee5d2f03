//! What a case file says, with the line of every value: the tree that all readers of this module
//! work on, whatever the file's syntax. Scalars keep their text, so that `1Gi` and `010` arrive as
//! they were written.

use std::fmt;
use std::sync::Arc;

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourcePosition {
    /// The file, as it is called in messages.
    pub(super) file: Arc<str>,
    /// Line, from 1.
    pub(super) line: usize,
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Something in a file that cannot be understood: where, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {text}")]
pub(super) struct CaseError {
    pub(super) at: SourcePosition,
    pub(super) text: String,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct CaseValue {
    pub(super) at: SourcePosition,
    pub(super) data: CaseData,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum CaseData {
    /// Nothing.
    Null,
    /// A scalar, as text; `plain` ones may mean a number or a truth value.
    Scalar {
        /// The text.
        text: String,
        /// It was not quoted.
        plain: bool,
    },
    /// A list.
    List(Vec<CaseValue>),
    /// A map, in the order of the file; no key twice.
    Map(Vec<CaseEntry>),
}

/// One entry of a map.
#[derive(Clone, Debug)]
pub(super) struct CaseEntry {
    pub(super) key: String,
    pub(super) at: SourcePosition,
    pub(super) value: CaseValue,
}

impl CaseValue {
    /// An error about this value.
    pub(super) fn wrong(&self, text: impl Into<String>) -> CaseError {
        CaseError {
            at: self.at.clone(),
            text: text.into(),
        }
    }

    /// "expected …, found …".
    pub(super) fn expected(&self, what: &str) -> CaseError {
        self.wrong(format!("expected {what}, found {}", self.named()))
    }

    /// What kind of value it is, for messages.
    pub(super) fn named(&self) -> String {
        match &self.data {
            CaseData::Null => "nothing".to_owned(),
            CaseData::Scalar { text, .. } => format!("{text:?}"),
            CaseData::List(items) => format!("a list of {}", items.len()),
            CaseData::Map(entries) => match entries.first() {
                Some(entry) => format!("a map with the key {:?}", entry.key),
                None => "an empty map".to_owned(),
            },
        }
    }

    /// Whether nothing is there.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.data, CaseData::Null)
    }

    /// A map without entries in its place.
    pub(super) fn emptied(&self) -> CaseValue {
        CaseValue {
            at: self.at.clone(),
            data: CaseData::Map(Vec::new()),
        }
    }

    /// The text of a scalar.
    pub(super) fn scalar(&self) -> Option<&str> {
        match &self.data {
            CaseData::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The entries, if it is a map.
    pub(super) fn map(&self) -> Option<&[CaseEntry]> {
        match &self.data {
            CaseData::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub(super) fn list(&self) -> Option<&[CaseValue]> {
        match &self.data {
            CaseData::List(items) => Some(items),
            _ => None,
        }
    }

    /// The value of a key, if it is a map that has it.
    pub(super) fn get(&self, key: &str) -> Option<&CaseValue> {
        self.map()?
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.value)
    }

    /// This value laid over `base`: maps key by key, all else as a whole.
    pub(super) fn over(&self, base: &CaseValue) -> CaseValue {
        let (CaseData::Map(mine), CaseData::Map(theirs)) = (&self.data, &base.data) else {
            return self.clone();
        };
        let mut entries: Vec<CaseEntry> = theirs
            .iter()
            .map(|entry| match self.get(&entry.key) {
                Some(value) => CaseEntry {
                    value: value.over(&entry.value),
                    ..entry.clone()
                },
                None => entry.clone(),
            })
            .collect();
        let added = mine.iter().filter(|entry| base.get(&entry.key).is_none());
        entries.extend(added.cloned());
        CaseValue {
            at: self.at.clone(),
            data: CaseData::Map(entries),
        }
    }

    /// A copy in which every `{i}` is the number `index`.
    pub(super) fn numbered(&self, index: usize) -> CaseValue {
        let replace = |text: &str| text.replace(INDEX, &index.to_string());
        let data = match &self.data {
            CaseData::Null => CaseData::Null,
            CaseData::Scalar { text, plain } => CaseData::Scalar {
                text: replace(text),
                plain: *plain,
            },
            CaseData::List(items) => {
                CaseData::List(items.iter().map(|v| v.numbered(index)).collect())
            }
            CaseData::Map(entries) => CaseData::Map(
                entries
                    .iter()
                    .map(|entry| CaseEntry {
                        key: replace(&entry.key),
                        at: entry.at.clone(),
                        value: entry.value.numbered(index),
                    })
                    .collect(),
            ),
        };
        CaseValue {
            at: self.at.clone(),
            data,
        }
    }

    /// A copy of a map in which the text of `key`, where it is there, is another.
    pub(super) fn with_text(mut self, key: &str, other: &str) -> CaseValue {
        if let CaseData::Map(entries) = &mut self.data {
            let ours = entries.iter_mut().filter(|entry| entry.key == key);
            for entry in ours {
                entry.value.data = CaseData::Scalar {
                    text: other.to_owned(),
                    plain: false,
                };
            }
        }
        self
    }

    /// Whether `{i}` stands anywhere in it.
    pub(super) fn has_index(&self) -> bool {
        match &self.data {
            CaseData::Null => false,
            CaseData::Scalar { text, .. } => text.contains(INDEX),
            CaseData::List(items) => items.iter().any(CaseValue::has_index),
            CaseData::Map(entries) => entries
                .iter()
                .any(|entry| entry.key.contains(INDEX) || entry.value.has_index()),
        }
    }

    /// The value as JSON, as YAML 1.2 reads it: for parts written the way Kubernetes does.
    pub(super) fn json(&self) -> serde_json::Value {
        match &self.data {
            CaseData::Null => serde_json::Value::Null,
            CaseData::Scalar { text, plain } => scalar_json(text, *plain),
            CaseData::List(items) => items.iter().map(CaseValue::json).collect(),
            CaseData::Map(entries) => serde_json::Value::Object(
                entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.value.json()))
                    .collect(),
            ),
        }
    }
}

/// Stands for a pod's number where several are made from one entry.
pub(super) const INDEX: &str = "{i}";

/// The name of one of several: with its number where `{i}` stands, else at the end.
pub(super) fn numbered_name(stem: &str, index: usize) -> String {
    if stem.contains(INDEX) {
        stem.replace(INDEX, &index.to_string())
    } else {
        format!("{stem}-{index}")
    }
}

fn scalar_json(text: &str, plain: bool) -> serde_json::Value {
    if plain {
        match text {
            "true" => return true.into(),
            "false" => return false.into(),
            "null" | "~" | "" => return serde_json::Value::Null,
            _ => {}
        }
        if let Ok(number) = text.parse::<i64>() {
            return number.into();
        }
        let number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        if number && let Ok(serde_json::Value::Number(number)) = serde_json::from_str(text) {
            return serde_json::Value::Number(number);
        }
    }
    text.into()
}
