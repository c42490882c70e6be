//! Shapes: types as they appear in signatures.
//!
//! How: serde's derived code tells the fields and variants of a type to whatever deserializes it. [`Probe`] deserializes a type
//! from nothing, and writes down what it is asked for. Of an enum, each pass visits another variant. A type within itself is
//! visited once more, with nothing in its options and lists, and as a variant without itself. A type that cannot be traced,
//! since it checks its values, say, is known by the name that is written in the trait.
//! Limits: of many enums within enums perhaps not all variants' fields are found in [`PASSES`] passes, but all names are.
//! Invariants: the same type has the same shape in each program.

mod probe;

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use crate::PlainData;
use probe::Probe;

/// How often a type is traced, at most.
const PASSES: usize = 256;

/// How many named types a pass visits, at most.
const VISITS: usize = 10_000;

/// A type as it appears in a signature.
#[derive(Debug)]
pub struct Shape {
    pub(crate) text: String,
    /// What the names in the text stand for.
    pub(crate) definitions: BTreeSet<String>,
}

impl Shape {
    fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), definitions: BTreeSet::new() }
    }
}

/// The shape of a type that serde encodes, written as `text` in the trait.
pub fn serde<T: DeserializeOwned>(text: &str) -> Shape {
    let mut trace = Trace::default();
    for _ in 0..PASSES {
        let mut found = String::new();
        trace.visits = 0;
        match T::deserialize(Probe { trace: &mut trace, text: &mut found }) {
            Ok(_) if trace.is_complete() => return Shape { text: found, definitions: trace.definitions() },
            // Another variant may end sooner.
            Err(_) if trace.visits < VISITS => return Shape::of(text),
            _ => {}
        }
    }
    Shape { text: text.to_owned(), definitions: trace.definitions() }
}

/// The shape of plain data, written as `text` in the trait: its name and size, unless every reader knows the size.
pub fn plain<T: PlainData>(text: &str) -> Shape {
    const KNOWN: [&str; 12] =
        ["u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "f32", "f64"];
    match KNOWN.contains(&text) {
        true => Shape::of(text),
        false => Shape::of(format!("{text} of {} bytes", size_of::<T>())),
    }
}

/// The shape of an output.
pub fn output<T: PlainData>(text: &str) -> Shape {
    Shape::of(format!("&[{}]", plain::<T>(text).text))
}

/// The shape of an input.
pub fn input<T: PlainData>(text: &str) -> Shape {
    Shape::of(format!("&mut [{}]", plain::<T>(text).text))
}

/// What is known of the types in a type.
#[derive(Debug, Default)]
struct Trace {
    /// The named types that are being visited, outermost first.
    visited: Vec<&'static str>,
    /// How many of these are within themselves. Then nothing is written down.
    within: usize,
    /// How many named types this pass has visited, and how many of them were within themselves.
    visits: usize,
    returns: usize,
    structs: BTreeSet<String>,
    /// Enums, by name and variants' names.
    enums: BTreeMap<(&'static str, &'static [&'static str]), Enum>,
}

/// What is known of an enum.
#[derive(Debug, Default)]
struct Enum {
    /// The fields of each variant; several where different enums look alike.
    fields: Vec<BTreeSet<String>>,
    /// The variant to be visited next.
    next: usize,
    /// A variant in which the enum is not.
    end: Option<usize>,
}

impl Trace {
    fn is_complete(&self) -> bool {
        self.enums.values().all(|found| found.fields.iter().all(|fields| !fields.is_empty()))
    }

    fn definitions(self) -> BTreeSet<String> {
        let mut definitions = self.structs;
        for ((name, variants), found) in self.enums {
            let variants =
                variants.iter().zip(found.fields).flat_map(|(variant, found)| match found.is_empty() {
                    true => vec![(*variant).to_owned()],
                    false => found.into_iter().map(|fields| format!("{variant}{fields}")).collect(),
                });
            definitions.insert(format!("{name} {{ {} }}", variants.collect::<Vec<_>>().join(", ")));
        }
        definitions
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;
    use std::num::NonZeroU8;
    use std::time::Duration;

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    enum Unit {
        Metres,
        Feet(u16),
        Other { name: String, per: (u8, f32) },
    }

    #[derive(Serialize, Deserialize)]
    struct Pair(Unit, Option<Unit>);

    #[derive(Serialize, Deserialize)]
    struct Page<T> {
        first: T,
    }

    #[derive(Serialize, Deserialize)]
    enum Outer {
        Plain,
        Inner(Unit, Option<Box<Outer>>),
    }

    #[derive(Serialize, Deserialize)]
    struct Tree {
        children: Vec<Tree>,
        parent: Option<Box<Tree>>,
        name: char,
    }

    #[derive(Serialize, Deserialize)]
    enum Chain {
        Link(Box<Chain>),
        Fork(Box<Chain>, Box<Chain>),
        End,
    }

    #[derive(Serialize, Deserialize)]
    struct Endless(Box<Endless>);

    /// Eight to the power of as many, if each variant was visited within each.
    #[derive(Serialize, Deserialize)]
    enum Bushy {
        A([Box<Bushy>; 8]),
        B([Box<Bushy>; 8]),
        C([Box<Bushy>; 8]),
        D([Box<Bushy>; 8]),
        E([Box<Bushy>; 8]),
        F([Box<Bushy>; 8]),
        G([Box<Bushy>; 8]),
        H([Box<Bushy>; 8]),
        I([Box<Bushy>; 8]),
        J([Box<Bushy>; 8]),
        Leaf(u8),
    }

    fn shape<T: DeserializeOwned>() -> String {
        let shape = serde::<T>("text");
        shape.definitions.into_iter().fold(shape.text, |all, definition| all + "; " + &definition)
    }

    const UNIT: &str = "Unit { Metres, Feet(u16), Other { name: str, per: (u8, f32) } }";

    #[test]
    fn types_are_told_by_what_is_in_them() {
        assert_eq!(shape::<Unit>(), format!("Unit; {UNIT}"));
        assert_eq!(shape::<Vec<Pair>>(), format!("[Pair]; Pair(Unit, Option<Unit>); {UNIT}"));
        assert_eq!(shape::<BTreeMap<u8, [i64; 3]>>(), "{u8: i64}".replace("i64", "(i64, i64, i64)"));
        assert_eq!(shape::<()>(), "()");
        assert_eq!(shape::<Box<(bool, Duration)>>(), "(bool, Duration); Duration { secs: u64, nanos: u32 }");
        assert!(shape::<SocketAddr>().contains("V6"), "{}", shape::<SocketAddr>());
    }

    #[test]
    fn enums_within_enums_are_found() {
        let outer = "Outer { Plain, Inner(Unit, Option<Outer>) }";
        assert_eq!(shape::<Outer>(), format!("Outer; {outer}; {UNIT}"));
    }

    #[test]
    fn one_name_for_two_types_hides_neither() {
        let both = "(Page, Page); Page { first: str }; Page { first: u8 }";
        assert_eq!(shape::<(Page<u8>, Page<String>)>(), both);
    }

    #[test]
    fn types_within_themselves_have_an_end() {
        assert_eq!(shape::<Tree>(), "Tree; Tree { children: [Tree], parent: Option<Tree>, name: char }");
        assert_eq!(shape::<Chain>(), "Chain; Chain { Link(Chain), Fork(Chain, Chain), End }");
        assert_eq!(shape::<Endless>(), "text", "no value of it exists");
        let eight = format!("(({}))", ["Bushy"; 8].join(", "));
        let fields =
            |variant| if variant == "Leaf" { "Leaf(u8)".to_owned() } else { format!("{variant}{eight}") };
        let variants = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "Leaf"].map(fields);
        assert_eq!(shape::<Bushy>(), format!("Bushy; Bushy {{ {} }}", variants.join(", ")));
    }

    #[test]
    fn a_type_that_refuses_values_is_told_by_name() {
        struct Refuses;
        impl<'r> Deserialize<'r> for Refuses {
            fn deserialize<D: serde::Deserializer<'r>>(_deserializer: D) -> Result<Self, D::Error> {
                Err(serde::de::Error::custom("no"))
            }
        }
        assert_eq!(shape::<(u8, Refuses)>(), "text");
        assert_eq!(shape::<NonZeroU8>(), "u8");
    }
}
