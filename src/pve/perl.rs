//! Reading what Perl writes as JSON: numbers that come as strings, booleans as 0 and 1, nulls.
//!
//! PVE's answers are loosely typed (`cores` 2 beside `memory` "512"); everything is read leniently
//! here, and only here.

use serde_json::{Map, Value};

/// A scalar as text: strings as they are, numbers in decimal, booleans as `1` and `0`.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(if *flag { "1" } else { "0" }.to_owned()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A whole number; fractions are cut off, what is out of range is held at the range's end.
pub fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number
            .as_i64()
            .or_else(|| number.as_u64().map(|_| i64::MAX))
            .or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => {
            let text = text.trim();
            text.parse()
                .ok()
                .or_else(|| text.parse::<f64>().ok().and_then(whole))
        }
        Value::Bool(flag) => Some(i64::from(*flag)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the cast saturates, which is what is wanted"
)]
fn whole(number: f64) -> Option<i64> {
    number.is_finite().then_some(number as i64)
}

/// A number with a fraction; never infinite, never NaN.
pub fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    number.filter(|number| number.is_finite())
}

/// Perl's truth: `null`, `0`, `""` and `"0"` are false, everything else is true.
pub fn flag(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty() && text != "0",
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// An answer's object, read leniently; of anything that is no object every field is absent.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(Option<&'a Map<String, Value>>);

impl<'a> Fields<'a> {
    /// The fields of `value`.
    pub fn of(value: &'a Value) -> Fields<'a> {
        Fields(value.as_object())
    }

    /// A field that is present and not null.
    pub fn get(self, key: &str) -> Option<&'a Value> {
        self.0?.get(key).filter(|value| !value.is_null())
    }

    /// A field of fields.
    #[must_use]
    pub fn inner(self, key: &str) -> Fields<'a> {
        Fields(self.get(key).and_then(Value::as_object))
    }

    /// [`text`] of a field.
    pub fn text(self, key: &str) -> Option<String> {
        self.get(key).and_then(text)
    }

    /// [`integer`] of a field.
    pub fn integer(self, key: &str) -> Option<i64> {
        self.get(key).and_then(integer)
    }

    /// [`integer`] of a field, held inside the range of `u32`; absent or negative is 0.
    pub fn count(self, key: &str) -> u32 {
        let value = self.integer(key).unwrap_or(0).max(0);
        u32::try_from(value).unwrap_or(u32::MAX)
    }

    /// [`number`] of a field.
    pub fn number(self, key: &str) -> Option<f64> {
        self.get(key).and_then(number)
    }

    /// [`flag`] of a field; absent is false.
    pub fn flag(self, key: &str) -> bool {
        self.get(key).is_some_and(flag)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn perls_spellings_are_one() {
        for two in [json!(2), json!("2"), json!(" 2 "), json!(2.0), json!("2.9")] {
            assert_eq!(integer(&two), Some(2), "{two}");
        }
        for yes in [json!(1), json!("1"), json!(true), json!("yes")] {
            assert!(flag(&yes), "{yes}");
        }
        for no in [json!(0), json!("0"), json!(""), json!(false), Value::Null] {
            assert!(!flag(&no), "{no}");
        }
        assert_eq!(integer(&json!(u64::MAX)), Some(i64::MAX));
        assert_eq!(number(&json!("0.25")), Some(0.25));
        assert_eq!(number(&json!("inf")), None);
        assert_eq!(text(&json!(512)), Some("512".into()));
    }

    #[test]
    fn absent_null_and_odd_fields_are_absent() {
        let value = json!({"a": null, "b": {"c": "7"}, "d": [1]});
        let fields = Fields::of(&value);
        assert_eq!(fields.text("a"), None);
        assert_eq!(fields.inner("b").integer("c"), Some(7));
        assert_eq!(fields.inner("d").integer("c"), None);
        assert_eq!(fields.count("d"), 0);
        assert_eq!(Fields::of(&json!("x")).text("a"), None);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            "\\PC{0,20}".prop_map(Value::from),
            "[-+]?[0-9.e]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{1,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn nothing_read_panics_and_whole_numbers_survive(value in any_json(), number_in in any::<i64>()) {
            let _ = (text(&value), integer(&value), number(&value), flag(&value));
            let _ = Fields::of(&value).count("a");
            prop_assert_eq!(integer(&json!(number_in)), Some(number_in));
            prop_assert_eq!(integer(&json!(number_in.to_string())), Some(number_in));
        }
    }
}
