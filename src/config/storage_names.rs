//! The storages of a disk: a name, or a list of names of which each host takes the first that it has.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::syntax;

/// What such a value must be, for errors and the manual.
const EXPECTED: &str = "a storage's name such as \"local-zfs\", or a list such as [\"local-zfs\", \"local-lvm\"], of which each host takes the first that it has";

/// The storages that a disk may lie on, as the file says them: `"local-zfs"` or `["local-zfs", "local-lvm"]`. A list of one name is that
/// name. Whether it is empty, and what the names are, is a matter of the file's rules ([`StorageNames::faults`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageNames(Vec<String>);

/// What is wrong with such a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageFault {
    /// Where in the list it is; `None` where the value as a whole is wrong.
    pub position: Option<usize>,
    /// What was expected.
    pub message: &'static str,
}

impl StorageNames {
    /// The names in the file's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The first of them; empty where there is none.
    pub fn first(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// Whether hosts choose among several.
    pub fn is_list(&self) -> bool {
        self.0.len() > 1
    }

    /// Whether a storage is one of them.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|own| own == name)
    }

    /// What is wrong with them.
    pub fn faults(&self) -> Vec<StorageFault> {
        let fault = |position, message| StorageFault { position, message };
        if self.0.is_empty() {
            return vec![fault(None, "expected at least one storage's name")];
        }
        // A single name stands where the key stands.
        let at = |position| Some(position).filter(|_| self.is_list());
        let mut faults = Vec::new();
        for (position, name) in self.0.iter().enumerate() {
            if !syntax::pve_id(name) {
                faults.push(fault(at(position), "expected a storage's name"));
            } else if self.0[..position].contains(name) {
                faults.push(fault(at(position), "is named twice"));
            }
        }
        faults
    }
}

impl From<&str> for StorageNames {
    fn from(name: &str) -> StorageNames {
        StorageNames(vec![name.to_owned()])
    }
}

impl<const N: usize> From<[&str; N]> for StorageNames {
    fn from(names: [&str; N]) -> StorageNames {
        StorageNames(names.map(str::to_owned).into())
    }
}

impl FromIterator<String> for StorageNames {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> StorageNames {
        StorageNames(names.into_iter().collect())
    }
}

impl fmt::Display for StorageNames {
    /// Writes the names as a sentence has them: `a`, `a or b`, `a, b or c`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, name) in self.0.iter().enumerate() {
            f.write_str(match (position, self.0.len() - position) {
                (0, _) => "",
                (_, 1) => " or ",
                _ => ", ",
            })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}

impl Serialize for StorageNames {
    /// A single name is text: what was written before there were lists has the same hash.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [] => "".serialize(serializer),
            [name] => name.serialize(serializer),
            names => names.serialize(serializer),
        }
    }
}

struct StorageVisitor;

impl<'de> Visitor<'de> for StorageVisitor {
    type Value = StorageNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<StorageNames, E> {
        Ok(StorageNames::from(name))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<StorageNames, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = list.next_element()? {
            names.push(name);
        }
        Ok(StorageNames(names))
    }
}

impl<'de> Deserialize<'de> for StorageNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StorageNames, D::Error> {
        deserializer.deserialize_any(StorageVisitor)
    }
}

impl JsonSchema for StorageNames {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "storages".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": EXPECTED,
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1, "uniqueItems": true },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<StorageNames, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_name_and_a_list_are_read_and_written() {
        for (text, written, told) in [
            (r#""a""#, r#""a""#, "a"),
            (r#"["a"]"#, r#""a""#, "a"),
            (r#"["a","b"]"#, r#"["a","b"]"#, "a or b"),
            (r#"["a","b","c"]"#, r#"["a","b","c"]"#, "a, b or c"),
        ] {
            let names = read(text).expect(text);
            assert_eq!(serde_json::to_string(&names).expect("text"), written);
            assert_eq!(names.to_string(), told);
            assert_eq!(names.faults(), [], "{text}");
        }
        for text in ["1", "true", "[1]", r#"{"a": 1}"#, r#"["a", ["b"]]"#] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_storage_is_told_with_its_place() {
        for (text, position) in [
            ("[]", None),
            (r#""""#, None),
            (r#"["a b"]"#, None),
            (r#"["a", ""]"#, Some(1)),
            (r#"["a", "b", "a"]"#, Some(2)),
        ] {
            let faults = read(text).expect(text).faults();
            let places: Vec<Option<usize>> = faults.iter().map(|fault| fault.position).collect();
            assert_eq!(places, [position], "{text}: {faults:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(names in prop::collection::vec("[a-z][a-z0-9-]{0,8}[a-z]", 1..5)) {
            let names: StorageNames = names.into_iter().collect();
            let text = serde_json::to_string(&names).expect("text");
            prop_assert_eq!(read(&text).expect("names"), names);
        }
    }
}
