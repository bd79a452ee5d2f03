//! Documents of ours that a newer version may have written: what this one does not know of them is passed over, at any depth, and not
//! lost where the document is written anew ([why](../../docs/decisions/documents-of-newer-versions.md)).
//!
//! The types themselves may deny unknown fields: what people write by hand, and what is decided anew, is read by them as they are.

mod reader;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::foreign;
use reader::{KeyReader, ValueReader};

/// Longest text of a version that is shown, in characters.
const SHOWN: usize = 40;

/// Fields of a line or an object that this version does not know, with their values: a part of a type that keeps them itself
/// (`#[serde(flatten)]`), as a mark does.
pub type UnknownFields = BTreeMap<String, JsonText>;

/// A value in JSON, as text: it is compared and ordered, and nothing else is done with it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JsonText(String);

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // It was a value.
        let value: Value = serde_json::from_str(&self.0).unwrap_or_default();
        value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonText, D::Error> {
        Value::deserialize(deserializer).map(|value| JsonText(value.to_string()))
    }
}

/// What a document has that this version does not know, by the place where it stands. Of the items of a list nothing is kept: they may
/// stand elsewhere when the document is written anew.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnknownParts {
    fields: Map<String, Value>,
    below: BTreeMap<String, UnknownParts>,
}

impl UnknownParts {
    /// Whether this version knows all of the document.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.below.values().all(UnknownParts::is_empty)
    }

    /// Notes the entries of a map of the document whose kinds this version does not have: [`known_entries`] leaves them out.
    pub fn note_entries<K: DeserializeOwned>(&mut self, document: &Value, map: &str) {
        let Some(entries) = document.get(map).and_then(Value::as_object) else {
            return;
        };
        let strange = entries
            .iter()
            .filter(|(key, _)| K::deserialize(KeyReader((*key).clone())).is_err())
            .map(|(key, value)| (key.clone(), value.clone()));
        let strange: Map<String, Value> = strange.collect();
        if !strange.is_empty() {
            let below = self.below.entry(map.to_owned()).or_default();
            below.fields.extend(strange);
        }
    }

    /// Puts it where it stood, in a document that this version writes. What stood in a part that is not there any more goes with it.
    pub fn put_back(&self, document: &mut Value) {
        let Value::Object(document) = document else {
            return;
        };
        for (name, parts) in &self.below {
            if let Some(part) = document.get_mut(name) {
                parts.put_back(part);
            }
        }
        for (name, value) in &self.fields {
            let place = document.entry(name.clone());
            place.or_insert_with(|| value.clone());
        }
    }
}

/// Reads a document of this format, and what it has that this version does not know. A document that names another format as its
/// `version` is not read: whoever raises it says that nobody can work with the rest alone.
///
/// # Errors
/// It is no JSON, has another format, or what this version knows of it is not what that must be.
pub fn read<T: DeserializeOwned>(text: &[u8], format: u32) -> Result<(T, UnknownParts), String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if let Some(version) = value.get("version")
        && version.as_u64() != Some(u64::from(format))
    {
        let version = foreign::line(&version.to_string(), SHOWN);
        return Err(format!(
            "version {version} is unknown: another version of pve-autoscaler wrote it"
        ));
    }
    let mut unknown = UnknownParts::default();
    let read = T::deserialize(ValueReader {
        value,
        unknown: &mut unknown,
    });
    read.map(|document| (document, unknown))
        .map_err(|error| error.to_string())
}

/// A value that this version can read; nothing where it cannot: a newer version may say there what this one does not know. For
/// `#[serde(deserialize_with)]`, where the absence of the value has a meaning of its own.
///
/// # Errors
/// It is no JSON.
pub fn if_known<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Value::deserialize(deserializer)?;
    let mut unknown = UnknownParts::default();
    let unknown = &mut unknown;
    Ok(T::deserialize(ValueReader { value, unknown }).ok())
}

/// The entries of a map that this version can read, without the others: a newer version has kinds that this one does not have. For
/// `#[serde(deserialize_with)]`, where each entry stands for itself.
///
/// # Errors
/// It is no map.
pub fn known_entries<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: DeserializeOwned + Ord,
    V: DeserializeOwned,
{
    let all = BTreeMap::<String, Value>::deserialize(deserializer)?;
    let known = all.into_iter().filter_map(|(key, value)| {
        let mut unknown = UnknownParts::default();
        let value = V::deserialize(ValueReader {
            value,
            unknown: &mut unknown,
        });
        Some((K::deserialize(KeyReader(key)).ok()?, value.ok()?))
    });
    Ok(known.collect())
}
