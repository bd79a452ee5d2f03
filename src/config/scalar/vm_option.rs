//! What a VM's option is set to, where any of PVE's options may be named.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// What such a value must be, for errors and the schema.
const EXPECTED: &str = "true or false, a number, or text in quotes as PVE writes it";

/// The value of an option of a VM: `true`, `0.5`, `"source=/dev/urandom"`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum VmOptionValue {
    /// `true` and `false`, which PVE calls 1 and 0.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// Another number.
    Number(f64),
    /// Text.
    Text(String),
}

impl VmOptionValue {
    /// As it is written to PVE.
    pub fn text(&self) -> String {
        match self {
            VmOptionValue::Flag(on) => u8::from(*on).to_string(),
            VmOptionValue::Whole(number) => number.to_string(),
            VmOptionValue::Number(number) => number.to_string(),
            VmOptionValue::Text(text) => text.clone(),
        }
    }
}

struct VmOptionVisitor;

impl Visitor<'_> for VmOptionVisitor {
    type Value = VmOptionValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_bool<E: de::Error>(self, on: bool) -> Result<VmOptionValue, E> {
        Ok(VmOptionValue::Flag(on))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<VmOptionValue, E> {
        Ok(VmOptionValue::Whole(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<VmOptionValue, E> {
        let whole = i64::try_from(number).map(VmOptionValue::Whole);
        whole.map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &EXPECTED))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<VmOptionValue, E> {
        Ok(VmOptionValue::Number(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<VmOptionValue, E> {
        Ok(VmOptionValue::Text(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for VmOptionValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<VmOptionValue, D::Error> {
        deserializer.deserialize_any(VmOptionVisitor)
    }
}

impl JsonSchema for VmOptionValue {
    fn schema_name() -> Cow<'static, str> {
        "vm-option".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["boolean", "number", "string"], "description": EXPECTED })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn values_are_written_as_pve_takes_them_and_as_they_were_read() {
        let read = |text: &str| toml::from_str::<BTreeMap<String, VmOptionValue>>(text);
        for (value, text) in [
            ("true", "1"),
            ("false", "0"),
            ("7", "7"),
            ("0.5", "0.5"),
            ("1.0", "1"),
            ("\"model=ib700\"", "model=ib700"),
        ] {
            let file = format!("a = {value}\n");
            let options = read(&file).unwrap_or_else(|error| panic!("{value}: {error}"));
            assert_eq!(options["a"].text(), text);
            assert_eq!(toml::to_string(&options).as_deref(), Ok(&*file));
        }
        for value in ["[1]", "{ a = 1 }", "2026-01-01"] {
            assert!(read(&format!("a = {value}\n")).is_err(), "{value}");
        }
    }
}
