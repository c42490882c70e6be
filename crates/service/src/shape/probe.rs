//! A deserializer that has nothing to deserialize, and writes down what it is asked for.

use std::collections::BTreeSet;

use serde::de::value::{Error, U32Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::{Trace, VISITS};

/// How many named types may be within each other. A type that has no end is given up there.
const DEEPEST: usize = 64;

/// Writes the type that is asked for behind `text`.
pub(super) struct Probe<'t> {
    pub(super) trace: &'t mut Trace,
    pub(super) text: &'t mut String,
}

impl Probe<'_> {
    /// Visits a named type: `visit` is given the place for its definition, behind the name.
    fn named<R>(
        self,
        name: &'static str,
        visit: impl FnOnce(&mut Trace, &mut String) -> Result<R, Error>,
    ) -> Result<R, Error> {
        *self.text += name;
        self.visited(name, |trace| {
            let mut definition = name.to_owned();
            let visited = visit(trace, &mut definition)?;
            if trace.within == 0 {
                trace.structs.insert(definition);
            }
            Ok(visited)
        })
    }

    /// Notes that a named type is being visited.
    fn visited<R>(
        self,
        name: &'static str,
        visit: impl FnOnce(&mut Trace) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let Self { trace, .. } = self;
        trace.visits += 1;
        if trace.visited.len() == DEEPEST || trace.visits >= VISITS {
            trace.visits = VISITS;
            return Err(Error::custom("the type is within itself everywhere"));
        }
        let is_within_itself = trace.visited.contains(&name);
        trace.visited.push(name);
        trace.within += usize::from(is_within_itself);
        trace.returns += usize::from(is_within_itself);
        let visited = visit(trace);
        trace.within -= usize::from(is_within_itself);
        trace.visited.pop();
        visited
    }

    /// Whether lists are empty, so that a type within itself has an end.
    fn is_empty(&self) -> bool {
        self.trace.within > 0
    }

    fn fields<'t>(
        trace: &'t mut Trace,
        text: &'t mut String,
        names: &'static [&'static str],
        len: usize,
    ) -> Fields<'t> {
        Fields { trace, text, names, next: 0, len }
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
        *self.text += "Option<";
        let value = match self.is_empty() {
            true => visitor.visit_none(),
            false => visitor.visit_some(Probe { trace: &mut *self.trace, text: &mut *self.text }),
        };
        *self.text += ">";
        value
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
        *self.text += name;
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named(name, |trace, text| {
            *text += "(";
            let value = visitor.visit_newtype_struct(Probe { trace, text: &mut *text });
            *text += ")";
            value
        })
    }

    fn deserialize_seq<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Error> {
        let len = usize::from(!self.is_empty());
        *self.text += "[";
        let value = visitor.visit_seq(Self::fields(self.trace, self.text, &[], len));
        *self.text += "]";
        value
    }

    fn deserialize_tuple<V: Visitor<'r>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        *self.text += "(";
        let value = visitor.visit_seq(Self::fields(self.trace, self.text, &[], len));
        *self.text += ")";
        value
    }

    fn deserialize_tuple_struct<V: Visitor<'r>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named(name, |trace, text| Probe { trace, text }.deserialize_tuple(len, visitor))
    }

    fn deserialize_map<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Error> {
        let len = usize::from(!self.is_empty());
        *self.text += "{";
        let value = visitor.visit_map(Self::fields(self.trace, self.text, &[], len));
        *self.text += "}";
        value
    }

    fn deserialize_struct<V: Visitor<'r>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named(name, |trace, text| {
            *text += " { ";
            let value = visitor.visit_seq(Self::fields(trace, text, fields, fields.len()));
            *text += " }";
            value
        })
    }

    fn deserialize_enum<V: Visitor<'r>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.text += name;
        self.visited(name, |trace| {
            if variants.is_empty() {
                return Err(Error::custom("the type has no values"));
            }
            let is_first = trace.within == 0;
            let (depth, returns) = (trace.visited.len(), trace.returns);
            let known = trace.enums.entry((name, variants)).or_default();
            known.fields.resize(variants.len(), BTreeSet::new());
            let variant = match known.end {
                _ if is_first => known.next,
                Some(end) => end,
                None => depth % variants.len(),
            };
            known.next = (known.next + usize::from(is_first)) % variants.len();
            let mut fields = String::new();
            let value = visitor.visit_enum(Variant { trace: &mut *trace, text: &mut fields, variant })?;
            let is_end = trace.returns == returns;
            let known = trace.enums.entry((name, variants)).or_default();
            if is_end {
                known.end = Some(variant);
            }
            if is_first {
                known.fields[variant].insert(fields);
            }
            Ok(value)
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

/// The parts of a type, one after the other.
struct Fields<'t> {
    trace: &'t mut Trace,
    text: &'t mut String,
    /// Their names, where they have any.
    names: &'static [&'static str],
    next: usize,
    len: usize,
}

impl<'r> SeqAccess<'r> for Fields<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if self.next == self.len {
            return Ok(None);
        }
        *self.text += if self.next == 0 { "" } else { ", " };
        if let Some(name) = self.names.get(self.next) {
            *self.text += name;
            *self.text += ": ";
        }
        self.next += 1;
        seed.deserialize(Probe { trace: &mut *self.trace, text: &mut *self.text }).map(Some)
    }
}

impl<'r> MapAccess<'r> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<S::Value, Error> {
        *self.text += ": ";
        seed.deserialize(Probe { trace: &mut *self.trace, text: &mut *self.text })
    }
}

/// One variant of an enum.
struct Variant<'t> {
    trace: &'t mut Trace,
    text: &'t mut String,
    variant: usize,
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
        let value = seed.deserialize(Probe { trace: self.trace, text: &mut *self.text });
        *self.text += ")";
        value
    }

    fn tuple_variant<V: Visitor<'r>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        Probe { trace: self.trace, text: self.text }.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'r>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.text += " { ";
        let value = visitor.visit_seq(Probe::fields(self.trace, self.text, fields, fields.len()));
        *self.text += " }";
        value
    }
}
