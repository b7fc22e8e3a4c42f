//! Reads a JSON value into a Kubernetes type, and stops short of saying what is wrong with it: one pass without paths,
//! which most objects need no more than.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, Map, Value, map};
use std::cell::Cell;
use std::slice;

/// The field whose unknown fields are ignored: a server wrote it, and the server may be newer.
const STATUS: &str = "status";

/// Name of the type of quantities.
const QUANTITY: &str = "Quantity";

/// The object; `None` if the value does not fit its type, or has fields that its type does not have.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
    let has_unknown = Cell::new(false);
    T::deserialize(deserializer(value, &has_unknown)).ok().filter(|_| !has_unknown.get())
}

/// Reads the value as Go would, and notes unknown fields.
pub(super) fn deserializer<'de>(value: &'de Value, has_unknown: &Cell<bool>) -> impl Deserializer<'de, Error = Error> {
    Node { value, has_unknown, level: Level::Root }
}

/// Where in the object a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Status,
    Other,
}

/// A value and where to note unknown fields.
#[derive(Clone, Copy)]
struct Node<'de, 'note> {
    value: &'de Value,
    has_unknown: &'note Cell<bool>,
    level: Level,
}

impl<'de> Node<'de, '_> {
    fn child(self, key: &str, value: &'de Value) -> Self {
        let level = match self.level {
            Level::Root if key == STATUS => Level::Status,
            Level::Root | Level::Other => Level::Other,
            Level::Status => Level::Status,
        };
        Self { value, level, ..self }
    }

    fn map<V: Visitor<'de>>(self, fields: &'de Map<String, Value>, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { parent: self, fields: fields.iter(), value: None })
    }

    fn seq<V: Visitor<'de>>(self, items: &'de [Value], visitor: V) -> Result<V::Value, Error> {
        let mut items = Items { parent: self, items: items.iter() };
        let value = visitor.visit_seq(&mut items)?;
        if items.items.len() > 0 {
            return Err(serde::de::Error::custom("fewer items than there are"));
        }
        Ok(value)
    }
}

/// Forwards to the deserializer of `&Value`, which knows what each hint means for scalars.
macro_rules! scalars {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.value.$method(visitor)
        }
    )*};
}

/// Containers are walked here, so that unknown fields are noticed at any depth.
macro_rules! containers {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, Error> {
            match self.value {
                Value::Object(fields) => self.map(fields, visitor),
                Value::Array(items) => self.seq(items, visitor),
                scalar => scalar.$method($($argument,)* visitor),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Node<'de, '_> {
    type Error = Error;

    scalars! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_identifier deserialize_unit
    }

    containers! {
        deserialize_any()
        deserialize_bytes()
        deserialize_byte_buf()
        deserialize_seq()
        deserialize_map()
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_unit_struct(name: &'static str)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    /// In Go, a null becomes an empty string, such as that of an annotation.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_borrowed_str("") } else { self.value.deserialize_string(visitor) }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    /// In Go, a null becomes a quantity of 0.
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        if name == QUANTITY && self.value.is_null() {
            return visitor.visit_newtype_struct(BorrowedStrDeserializer::<Error>::new("0"));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // Nothing below a variant is looked at.
        if self.value.is_object() {
            self.has_unknown.set(true);
        }
        self.value.deserialize_enum(name, variants, visitor)
    }

    /// What a type does not know. A null is how YAML writes nothing at all.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.level != Level::Status && !self.value.is_null() {
            self.has_unknown.set(true);
        }
        visitor.visit_unit()
    }
}

struct Fields<'de, 'note> {
    parent: Node<'de, 'note>,
    fields: map::Iter<'de>,
    value: Option<(&'de String, &'de Value)>,
}

impl<'de> MapAccess<'de> for Fields<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.value = self.fields.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some((key, value)) = self.value.take() else {
            return Err(serde::de::Error::custom("a value without a key"));
        };
        seed.deserialize(self.parent.child(key, value))
    }
}

struct Items<'de, 'note> {
    parent: Node<'de, 'note>,
    items: slice::Iter<'de, Value>,
}

impl<'de> SeqAccess<'de> for &mut Items<'de, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(value) = self.items.next() else { return Ok(None) };
        seed.deserialize(self.parent.child("", value)).map(Some)
    }
}

#[cfg(test)]
mod tests;
