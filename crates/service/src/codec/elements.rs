//! Elements: how many of them the sequences and maps of an encoded value may have.
//!
//! Why: elements that encode to no bytes, such as units and structs whose fields are all skipped, take memory or time all the
//! same, and a length of a few bytes claims any number of them.
//! How: each element of a sequence and each entry of a map, at whatever depth, uses up one of those that the value may have:
//! when their number is read, so that no memory is reserved for too many; or, where a sequence claims more than there are bytes
//! left, which postcard says by giving no hint of its size, one by one.
//! An element that has bytes has at least one that is no other element's, so a value has no more of these than it has bytes.
//! Limits: the fields of structs and the elements of tuples and arrays do not count, since their type says how many there are.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// How many more elements there may be; none once there were too many.
pub(super) type Left = Cell<Option<usize>>;

/// What takes part in decoding, a deserializer of postcard's or a visitor of serde's, say; elements are counted in all that it
/// is given.
pub(super) struct Counted<'l, P> {
    part: P,
    left: &'l Left,
    /// Whether what it is asked for next are elements that count.
    counts: bool,
}

impl<'l, P> Counted<'l, P> {
    pub(super) fn new(part: P, left: &'l Left) -> Self {
        Self { part, left, counts: false }
    }

    /// Counts the elements that a sequence or map claims; returns whether they are to be counted one by one instead, since it
    /// claims more than there are bytes.
    #[inline]
    fn claim<E: Error>(&self, claimed: Option<usize>) -> Result<bool, E> {
        if self.counts
            && let Some(claimed) = claimed
        {
            self.count(claimed)?;
        }
        Ok(self.counts && claimed.is_none())
    }

    #[inline]
    fn count<E: Error>(&self, elements: usize) -> Result<(), E> {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(elements)));
        self.left.get().map(drop).ok_or_else(|| E::custom("too many elements"))
    }

    /// Counts the element that was asked for, if it is there and was not counted before.
    #[inline]
    fn count_one<V, E: Error>(&self, element: Option<V>) -> Result<Option<V>, E> {
        if self.counts && element.is_some() {
            self.count(1)?;
        }
        Ok(element)
    }
}

/// Methods for what has no values within it.
macro_rules! plain {
    ($($method:ident($($argument:ident: $type:ty),*);)*) => {
        $(#[inline]
        fn $method<V: Visitor<'r>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.part.$method($($argument,)* visitor)
        })*
    };
}

/// Methods for what has values within it, and whether these count.
macro_rules! counted {
    ($($method:ident($($argument:ident: $type:ty),*) $counts:literal;)*) => {
        $(#[inline]
        fn $method<V: Visitor<'r>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.part.$method($($argument,)* Counted { part: visitor, left: self.left, counts: $counts })
        })*
    };
}

impl<'r, D: Deserializer<'r>> Deserializer<'r> for Counted<'_, D> {
    type Error = D::Error;

    plain! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_identifier();
        deserialize_ignored_any();
    }

    counted! {
        deserialize_option() false;
        deserialize_newtype_struct(name: &'static str) false;
        deserialize_seq() true;
        deserialize_map() true;
        deserialize_tuple(len: usize) false;
        deserialize_tuple_struct(name: &'static str, len: usize) false;
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) false;
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) false;
    }

    fn is_human_readable(&self) -> bool {
        self.part.is_human_readable()
    }
}

impl<'r, V: Visitor<'r>> Visitor<'r> for Counted<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.part.expecting(f)
    }

    #[inline]
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.part.visit_none()
    }

    #[inline]
    fn visit_some<D: Deserializer<'r>>(self, from: D) -> Result<V::Value, D::Error> {
        self.part.visit_some(Counted::new(from, self.left))
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'r>>(self, from: D) -> Result<V::Value, D::Error> {
        self.part.visit_newtype_struct(Counted::new(from, self.left))
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'r>>(self, elements: A) -> Result<V::Value, A::Error> {
        let counts = self.claim(elements.size_hint())?;
        self.part.visit_seq(Counted { part: elements, left: self.left, counts })
    }

    #[inline]
    fn visit_map<A: MapAccess<'r>>(self, entries: A) -> Result<V::Value, A::Error> {
        let counts = self.claim(entries.size_hint())?;
        self.part.visit_map(Counted { part: entries, left: self.left, counts })
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'r>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.part.visit_enum(Counted::new(variant, self.left))
    }
}

impl<'r, S: DeserializeSeed<'r>> DeserializeSeed<'r> for Counted<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'r>>(self, from: D) -> Result<S::Value, D::Error> {
        self.part.deserialize(Counted::new(from, self.left))
    }
}

impl<'r, A: SeqAccess<'r>> SeqAccess<'r> for Counted<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let element = self.part.next_element_seed(Counted::new(seed, self.left))?;
        self.count_one(element)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.part.size_hint()
    }
}

impl<'r, A: MapAccess<'r>> MapAccess<'r> for Counted<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let key = self.part.next_key_seed(Counted::new(seed, self.left))?;
        self.count_one(key)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.part.next_value_seed(Counted::new(seed, self.left))
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.part.size_hint()
    }
}

impl<'r, 'l, A: EnumAccess<'r>> EnumAccess<'r> for Counted<'l, A> {
    type Error = A::Error;
    type Variant = Counted<'l, A::Variant>;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'r>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (name, variant) = self.part.variant_seed(seed)?;
        Ok((name, Counted::new(variant, self.left)))
    }
}

impl<'r, A: VariantAccess<'r>> VariantAccess<'r> for Counted<'_, A> {
    type Error = A::Error;

    #[inline]
    fn unit_variant(self) -> Result<(), A::Error> {
        self.part.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'r>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.part.newtype_variant_seed(Counted::new(seed, self.left))
    }

    #[inline]
    fn tuple_variant<V: Visitor<'r>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.part.tuple_variant(len, Counted::new(visitor, self.left))
    }

    #[inline]
    fn struct_variant<V: Visitor<'r>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.part.struct_variant(fields, Counted::new(visitor, self.left))
    }
}
