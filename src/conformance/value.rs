//! What a case file says, with the line of every value: the tree that all readers of this module
//! work on, whatever the file's syntax. Scalars keep their text, so that `1Gi` and `010` arrive as
//! they were written.

use std::fmt;
use std::sync::Arc;

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The file, as it is called in messages.
    pub(super) file: Arc<str>,
    /// Line, from 1.
    pub(super) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Something in a file that cannot be understood: where, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {text}")]
pub(super) struct Wrong {
    pub(super) at: Place,
    pub(super) text: String,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) at: Place,
    pub(super) data: Data,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Data {
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
    List(Vec<Value>),
    /// A map, in the order of the file; no key twice.
    Map(Vec<Entry>),
}

/// One entry of a map.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) at: Place,
    pub(super) value: Value,
}

impl Value {
    /// An error about this value.
    pub(super) fn wrong(&self, text: impl Into<String>) -> Wrong {
        Wrong {
            at: self.at.clone(),
            text: text.into(),
        }
    }

    /// "expected …, found …".
    pub(super) fn expected(&self, what: &str) -> Wrong {
        self.wrong(format!("expected {what}, found {}", self.named()))
    }

    /// What kind of value it is, for messages.
    pub(super) fn named(&self) -> String {
        match &self.data {
            Data::Null => "nothing".to_owned(),
            Data::Scalar { text, .. } => format!("{text:?}"),
            Data::List(items) => format!("a list of {}", items.len()),
            Data::Map(entries) => match entries.first() {
                Some(entry) => format!("a map with the key {:?}", entry.key),
                None => "an empty map".to_owned(),
            },
        }
    }

    /// Whether nothing is there.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.data, Data::Null)
    }

    /// A map without entries in its place.
    pub(super) fn emptied(&self) -> Value {
        Value {
            at: self.at.clone(),
            data: Data::Map(Vec::new()),
        }
    }

    /// The text of a scalar.
    pub(super) fn scalar(&self) -> Option<&str> {
        match &self.data {
            Data::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The entries, if it is a map.
    pub(super) fn map(&self) -> Option<&[Entry]> {
        match &self.data {
            Data::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub(super) fn list(&self) -> Option<&[Value]> {
        match &self.data {
            Data::List(items) => Some(items),
            _ => None,
        }
    }

    /// The value of a key, if it is a map that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.map()?
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.value)
    }

    /// This value laid over `base`: maps key by key, all else as a whole.
    pub(super) fn over(&self, base: &Value) -> Value {
        let (Data::Map(mine), Data::Map(theirs)) = (&self.data, &base.data) else {
            return self.clone();
        };
        let mut entries: Vec<Entry> = theirs
            .iter()
            .map(|entry| match self.get(&entry.key) {
                Some(value) => Entry {
                    value: value.over(&entry.value),
                    ..entry.clone()
                },
                None => entry.clone(),
            })
            .collect();
        let added = mine.iter().filter(|entry| base.get(&entry.key).is_none());
        entries.extend(added.cloned());
        Value {
            at: self.at.clone(),
            data: Data::Map(entries),
        }
    }

    /// A copy in which every `{i}` is the number `index`.
    pub(super) fn numbered(&self, index: usize) -> Value {
        let replace = |text: &str| text.replace(INDEX, &index.to_string());
        let data = match &self.data {
            Data::Null => Data::Null,
            Data::Scalar { text, plain } => Data::Scalar {
                text: replace(text),
                plain: *plain,
            },
            Data::List(items) => Data::List(items.iter().map(|v| v.numbered(index)).collect()),
            Data::Map(entries) => Data::Map(
                entries
                    .iter()
                    .map(|entry| Entry {
                        key: replace(&entry.key),
                        at: entry.at.clone(),
                        value: entry.value.numbered(index),
                    })
                    .collect(),
            ),
        };
        Value {
            at: self.at.clone(),
            data,
        }
    }

    /// A copy of a map in which the text of `key`, where it is there, is another.
    pub(super) fn with_text(mut self, key: &str, other: &str) -> Value {
        if let Data::Map(entries) = &mut self.data {
            let ours = entries.iter_mut().filter(|entry| entry.key == key);
            for entry in ours {
                entry.value.data = Data::Scalar {
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
            Data::Null => false,
            Data::Scalar { text, .. } => text.contains(INDEX),
            Data::List(items) => items.iter().any(Value::has_index),
            Data::Map(entries) => entries
                .iter()
                .any(|entry| entry.key.contains(INDEX) || entry.value.has_index()),
        }
    }

    /// The value as JSON, as YAML 1.2 reads it: for parts written the way Kubernetes does.
    pub(super) fn json(&self) -> serde_json::Value {
        match &self.data {
            Data::Null => serde_json::Value::Null,
            Data::Scalar { text, plain } => scalar_json(text, *plain),
            Data::List(items) => items.iter().map(Value::json).collect(),
            Data::Map(entries) => serde_json::Value::Object(
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
