//! A JSON value as a type reads it, without the fields that the type does not have. A type tells its fields when it is read
//! (`deserialize_struct`), aliases too. One that keeps unknown fields itself tells none, and is given all.

use std::vec;

use serde::de::value::StringDeserializer;
use serde::de::{
    Deserialize as _, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer as _,
    MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value, map};

use super::UnknownParts;

/// A value that is read, and where its unknown parts are noted.
pub(super) struct ValueReader<'a> {
    pub(super) value: Value,
    pub(super) unknown: &'a mut UnknownParts,
}

impl<'de> Deserializer<'de> for ValueReader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(items) => visitor.visit_seq(ItemReader(items.into_iter())),
            Value::Object(fields) => visitor.visit_map(FieldReader {
                fields: fields.into_iter(),
                value: None,
                unknown: self.unknown,
            }),
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let value = match self.value {
            Value::Object(fields) => {
                let (known, rest): (Map<_, _>, Map<_, _>) = fields
                    .into_iter()
                    .partition(|(name, _)| names.contains(&name.as_str()));
                self.unknown.fields = rest;
                Value::Object(known)
            }
            other => other,
        };
        let unknown = self.unknown;
        ValueReader { value, unknown }.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(fields) if fields.len() == 1 => {
                let mut fields = fields.into_iter();
                let (variant, value) = fields.next().unwrap_or_default();
                visitor.visit_enum(VariantReader {
                    variant,
                    value,
                    unknown: self.unknown,
                })
            }
            other => other.deserialize_enum(name, variants, visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

/// The items of a list.
struct ItemReader(vec::IntoIter<Value>);

impl<'de> SeqAccess<'de> for ItemReader {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(value) = self.0.next() else {
            return Ok(None);
        };
        let mut passed_over = UnknownParts::default();
        let unknown = &mut passed_over;
        seed.deserialize(ValueReader { value, unknown }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// The fields of an object.
struct FieldReader<'a> {
    fields: map::IntoIter,
    value: Option<(String, Value)>,
    unknown: &'a mut UnknownParts,
}

impl<'de> MapAccess<'de> for FieldReader<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.fields.next() else {
            return Ok(None);
        };
        let key = seed.deserialize(KeyReader(name.clone()))?;
        self.value = Some((name, value));
        Ok(Some(key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let (name, value) = self
            .value
            .take()
            .ok_or_else(|| Error::custom("a value was asked for before its key"))?;
        let mut below = UnknownParts::default();
        let unknown = &mut below;
        let read = seed.deserialize(ValueReader { value, unknown });
        if !below.is_empty() {
            self.unknown.below.insert(name, below);
        }
        read
    }
}

/// A variant that has something in it.
struct VariantReader<'a> {
    variant: String,
    value: Value,
    unknown: &'a mut UnknownParts,
}

impl<'de, 'a> EnumAccess<'de> for VariantReader<'a> {
    type Error = Error;
    type Variant = ValueReader<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, ValueReader<'a>), Error> {
        let variant = seed.deserialize(KeyReader(self.variant.clone()))?;
        let content = ValueReader {
            value: self.value,
            unknown: self.unknown.below.entry(self.variant).or_default(),
        };
        Ok((variant, content))
    }
}

impl<'de> VariantAccess<'de> for ValueReader<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        <()>::deserialize(self)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_struct("", fields, visitor)
    }
}

/// A key of a map: a text, which may stand for a number or for a variant.
pub(super) struct KeyReader(pub(super) String);

/// Reads a number where the key is one; where it is none, the reader says what it expected.
macro_rules! numbers {
    ($($method:ident $visit:ident $kind:ty;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.parse::<$kind>() {
                Ok(number) => visitor.$visit(number),
                Err(_) => visitor.visit_string(self.0),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for KeyReader {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let variant: StringDeserializer<Error> = self.0.into_deserializer();
        visitor.visit_enum(variant)
    }

    numbers! {
        deserialize_i8 visit_i64 i64;
        deserialize_i16 visit_i64 i64;
        deserialize_i32 visit_i64 i64;
        deserialize_i64 visit_i64 i64;
        deserialize_u8 visit_u64 u64;
        deserialize_u16 visit_u64 u64;
        deserialize_u32 visit_u64 u64;
        deserialize_u64 visit_u64 u64;
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}
