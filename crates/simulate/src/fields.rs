//! Two readers of one file: the scenario's own sections, and those of the governor, which are read into its
//! own type so that whatever it learns to read can be simulated too.

use std::{cell::Cell, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{
        self, DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor,
        value::Error as Plain,
    },
    forward_to_deserialize_any,
};

/// The names of the fields of a type.
pub(crate) fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let found = Cell::new(&[][..]);
    let _ = T::deserialize(Ask { found: &found });
    found.get()
}

/// Listens to which fields a type wants, and gives none.
struct Ask<'a> {
    found: &'a Cell<&'static [&'static str]>,
}

impl<'de> Deserializer<'de> for Ask<'_> {
    type Error = Plain;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Plain> {
        Err(Plain::custom("no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Plain> {
        self.found.set(fields);
        Err(Plain::custom("only asked"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Shows a struct only the fields that it knows, at the top of a file; below that it is as strict as ever.
pub(crate) struct OnlyOwn<D>(pub(crate) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for OnlyOwn<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Sieve { fields, inner: visitor })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Lets through the entries with these names.
struct Sieve<T> {
    fields: &'static [&'static str],
    inner: T,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Sieve<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Sieve { fields: self.fields, inner: map })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Sieve<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.inner.next_key::<String>()? {
            if self.fields.contains(&key.as_str()) {
                let key: de::value::StringDeserializer<A::Error> = key.into_deserializer();
                return seed.deserialize(key).map(Some);
            }
            self.inner.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(seed)
    }
}
