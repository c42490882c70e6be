//! A deserializer that has nothing to deserialize, and writes down what it is asked for.

use serde::de::value::Error;
use serde::de::{Deserializer, Error as _, Visitor};

use super::parts::{Fields, Variant};
use super::types::Types;

/// Writes the type that is asked for behind `text`.
pub(super) struct Probe<'t> {
    pub(super) types: &'t mut Types,
    pub(super) text: &'t mut String,
}

impl<'t> Probe<'t> {
    /// Visits a named type, with fields or variants of these names: `visit` is given the place for what it consists of.
    fn named<'r, V: Visitor<'r>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        is_enum: bool,
        visit: impl FnOnce(Probe<'_>, usize) -> Result<V::Value, Error>,
    ) -> Result<V::Value, Error> {
        let Self { types, text } = self;
        let key = (typeid::of::<V>(), name, names);
        let found = types.enter_named(key, is_enum.then_some(names), text)?;
        let mut fields = String::new();
        let value = visit(Probe { types, text: &mut fields }, found.variant);
        types.leave_named(&found, fields, value.is_ok());
        value
    }

    /// Visits a type without a name, between these brackets.
    pub(super) fn unnamed<'r, V: Visitor<'r>>(
        self,
        [open, close]: [&str; 2],
        visit: impl FnOnce(Probe<'_>) -> Result<V::Value, Error>,
    ) -> Result<V::Value, Error> {
        let Self { types, text } = self;
        *text += open;
        types.enter((typeid::of::<V>(), "", &[]))?;
        let value = visit(Probe { types, text });
        types.leave();
        *text += close;
        value
    }

    /// How many elements lists have, and options.
    fn len(&self) -> usize {
        usize::from(!self.types.is_within())
    }

    pub(super) fn fields(self, names: &'static [&'static str], len: usize) -> Fields<'t> {
        Fields { types: self.types, text: self.text, names, next: 0, len }
    }
}

/// Values of primitive types, each with the name and the value that it is given. 0 would be refused more often.
macro_rules! primitive {
    ($($deserialize:ident $visit:ident $name:literal $value:expr;)*) => {$(
        fn $deserialize<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Error> {
            *self.text += $name;
            visitor.$visit($value)
        }
    )*};
}

impl<'r> Deserializer<'r> for Probe<'_> {
    type Error = Error;

    primitive! {
        deserialize_bool visit_bool "bool" true;
        deserialize_u8 visit_u8 "u8" 1;
        deserialize_u16 visit_u16 "u16" 1;
        deserialize_u32 visit_u32 "u32" 1;
        deserialize_u64 visit_u64 "u64" 1;
        deserialize_u128 visit_u128 "u128" 1;
        deserialize_i8 visit_i8 "i8" 1;
        deserialize_i16 visit_i16 "i16" 1;
        deserialize_i32 visit_i32 "i32" 1;
        deserialize_i64 visit_i64 "i64" 1;
        deserialize_i128 visit_i128 "i128" 1;
        deserialize_f32 visit_f32 "f32" 1.0;
        deserialize_f64 visit_f64 "f64" 1.0;
        deserialize_char visit_char "char" 'a';
        deserialize_str visit_borrowed_str "str" "";
        deserialize_string visit_borrowed_str "str" "";
        deserialize_bytes visit_borrowed_bytes "bytes" b"";
        deserialize_byte_buf visit_borrowed_bytes "bytes" b"";
    }

    fn deserialize_option<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Error> {
        self.unnamed::<V>(["Option<", ">"], |probe| match probe.len() {
            0 => visitor.visit_none(),
            _ => visitor.visit_some(probe),
        })
    }

    fn deserialize_unit<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.text += "()";
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'r>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named::<V>(name, &[], false, |_, _| visitor.visit_unit())
    }

    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named::<V>(name, &[], false, |probe, _| {
            probe.unnamed::<V>(["(", ")"], |probe| visitor.visit_newtype_struct(probe))
        })
    }

    fn deserialize_seq<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Error> {
        self.unnamed::<V>(["[", "]"], |probe| {
            let len = probe.len();
            visitor.visit_seq(probe.fields(&[], len))
        })
    }

    fn deserialize_tuple<V: Visitor<'r>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.unnamed::<V>(["(", ")"], |probe| visitor.visit_seq(probe.fields(&[], len)))
    }

    fn deserialize_tuple_struct<V: Visitor<'r>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named::<V>(name, &[], false, |probe, _| probe.deserialize_tuple(len, visitor))
    }

    fn deserialize_map<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Error> {
        self.unnamed::<V>(["{", "}"], |probe| {
            let len = probe.len();
            visitor.visit_map(probe.fields(&[], len))
        })
    }

    fn deserialize_struct<V: Visitor<'r>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named::<V>(name, fields, false, |probe, _| {
            probe.unnamed::<V>([" { ", " }"], |probe| visitor.visit_seq(probe.fields(fields, fields.len())))
        })
    }

    fn deserialize_enum<V: Visitor<'r>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named::<V>(name, variants, true, |probe, variant| {
            visitor.visit_enum(Variant { types: probe.types, text: probe.text, variant })
        })
    }

    fn deserialize_identifier<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'r>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("the type asks what is there, which its encoding does not tell"))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}
