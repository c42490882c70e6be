//! The parts of a type that [`Probe`] is asked for: fields, elements and variants.

use serde::de::value::{Error, U32Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::probe::Probe;
use super::types::{Types, word};

/// The parts of a type, one after the other.
pub(super) struct Fields<'t> {
    pub(super) types: &'t mut Types,
    pub(super) text: &'t mut String,
    /// Their names, where they have any.
    pub(super) names: &'static [&'static str],
    pub(super) next: usize,
    pub(super) len: usize,
}

impl<'r> SeqAccess<'r> for Fields<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if self.next == self.len {
            return Ok(None);
        }
        *self.text += if self.next == 0 { "" } else { ", " };
        if let Some(name) = self.names.get(self.next) {
            *self.text += &word(name);
            *self.text += ": ";
        }
        self.next += 1;
        seed.deserialize(Probe { types: &mut *self.types, text: &mut *self.text }).map(Some)
    }
}

impl<'r> MapAccess<'r> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<S::Value, Error> {
        *self.text += ": ";
        seed.deserialize(Probe { types: &mut *self.types, text: &mut *self.text })
    }
}

/// One variant of an enum.
pub(super) struct Variant<'t> {
    pub(super) types: &'t mut Types,
    pub(super) text: &'t mut String,
    pub(super) variant: usize,
}

impl<'r> EnumAccess<'r> for Variant<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'r>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let index: U32Deserializer<Error> = (self.variant as u32).into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'r> VariantAccess<'r> for Variant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'r>>(self, seed: S) -> Result<S::Value, Error> {
        *self.text += "(";
        let value = seed.deserialize(Probe { types: self.types, text: &mut *self.text });
        *self.text += ")";
        value
    }

    fn tuple_variant<V: Visitor<'r>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        Probe { types: self.types, text: self.text }.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'r>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        Probe { types: self.types, text: self.text }
            .unnamed::<V>([" { ", " }"], |probe| visitor.visit_seq(probe.fields(fields, fields.len())))
    }
}
