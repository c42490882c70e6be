//! What shapes say.

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
    let mut types = Types::default();
    let shape = serde::<T>(&mut types, "text");
    types.definitions().into_iter().fold(shape, |all, definition| all + "; " + &definition)
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
    let both = "(Page, Page#2); Page { first: u8 }; Page#2 { first: str }";
    assert_eq!(shape::<(Page<u8>, Page<String>)>(), both);
}

#[test]
fn types_within_themselves_have_an_end() {
    assert_eq!(shape::<Tree>(), "Tree; Tree { children: [Tree], parent: Option<Tree>, name: char }");
    assert_eq!(shape::<Chain>(), "Chain; Chain { Link(Chain), Fork(Chain, Chain), End }");
    assert_eq!(shape::<Endless>(), "text beginning Endless; Endless(Endless)?", "no value of it exists");
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
    assert_eq!(shape::<(u8, Refuses)>(), "text beginning (u8, )");
    assert_eq!(shape::<NonZeroU8>(), "u8");
}

#[test]
fn a_type_within_itself_that_has_no_name_has_an_end() {
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Nest(Vec<(u8, Nest)>);
    assert_eq!(shape::<Nest>(), "[(u8, [])]");
}

#[test]
fn plain_data_of_rusts_own_types_is_called_what_it_is() {
    type Sample = f32;
    type Both = [Sample; 2];
    let types = &mut Types::default();
    assert_eq!(output::<Sample>(types, "Sample"), "&[f32]");
    assert_eq!(plain::<Both>(types, "Both"), "#[plain] [f32; 2] of 8 bytes");
    assert_eq!(plain::<u32>(types, "u32"), "#[plain] u32");
}
