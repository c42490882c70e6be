//! Shapes: types as they appear in signatures.
//!
//! How: serde's derived code tells the fields and variants of a type to whatever deserializes it. [`Probe`] deserializes a type
//! from nothing, and writes down what it is asked for. Of an enum, each pass visits another variant. A type within itself is
//! visited once more, with nothing in its options and lists, and as a variant without itself.
//! Limits: a type that refuses values, since it checks them, say, is known by the name that is written in the trait and by what
//! comes before the value it refuses. Types beyond the bounds in `types.rs` are known up to these. Signatures say what is read,
//! which a type that serde writes otherwise than it reads it does not agree with.
//! Invariants: the same type has the same shape in each program.

#[cfg(test)]
mod pairs;
mod parts;
mod probe;
#[cfg(test)]
mod tests;
mod types;

use std::any::type_name;

use serde::de::DeserializeOwned;

use crate::PlainData;
use probe::Probe;
pub use types::Types;

/// A type as it is written in a trait, and what makes its shape of that.
pub type Shape = (&'static str, fn(&mut Types, &str) -> String);

/// The shape of a type that serde encodes, written as `written` in the trait. What its names stand for is added to `types`.
pub fn serde<T: DeserializeOwned>(types: &mut Types, written: &str) -> String {
    let (mut whole, mut furthest) = (None, String::new());
    types.start();
    while (whole.is_none() || !types.is_complete()) && types.go_on() {
        let mut text = String::new();
        match T::deserialize(Probe { types, text: &mut text }) {
            Ok(_) => whole = Some(text),
            Err(_) if text.len() > furthest.len() => furthest = text,
            Err(_) => {}
        }
    }
    whole.unwrap_or_else(|| format!("{written} beginning {furthest}"))
}

/// The shape of plain data that is passed as an encoded argument or result is.
pub fn plain<T: PlainData>(_: &mut Types, written: &str) -> String {
    format!("#[plain] {}", data::<T>(written))
}

/// The shape of an output.
pub fn output<T: PlainData>(_: &mut Types, written: &str) -> String {
    format!("&[{}]", data::<T>(written))
}

/// The shape of an input.
pub fn input<T: PlainData>(_: &mut Types, written: &str) -> String {
    format!("&mut [{}]", data::<T>(written))
}

/// Plain data: its name and size, unless every reader knows the size. Types of Rust's own have one name, whatever a program
/// calls them.
fn data<T>(written: &str) -> String {
    const KNOWN: [&str; 12] =
        ["u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "f32", "f64"];
    let name = if type_name::<T>().contains("::") { written } else { type_name::<T>() };
    match KNOWN.contains(&type_name::<T>()) {
        true => name.to_owned(),
        false => format!("{name} of {} bytes", size_of::<T>()),
    }
}
