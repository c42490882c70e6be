//! Types that are easily taken for each other.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Types that are called alike in different modules: `Unit`, `Node` and `Outer`, whose encodings differ.
macro_rules! modules {
    ($($module:ident($node:ty) { $($unit:tt)* })*) => {$(
        pub(crate) mod $module {
            use super::*;
            #[derive(Serialize, Deserialize)]
            pub(crate) struct Node { pub(crate) node: $node }
            #[derive(Serialize, Deserialize)]
            pub(crate) enum Unit { $($unit)* }
        }
    )*};
}

modules! {
    a(u32) { A, B }
    b(i32) { B, A }
    c(a::Node) { A(u8), B }
    d(b::Node) { A { a: u8 }, B }
    e(c::Node) { #[serde(alias = "AA")] A, B, C }
    f(d::Node) { A, AA, B, C }
    g(Option<Box<a::Node>>) { A(u8, u8), B }
    h(Option<Box<b::Node>>) { A((u8, u8)), B(u8) }
    i((a::Node, Box<b::Node>)) { A(), B }
    j((b::Node, Box<a::Node>)) { #[serde(rename = "B")] A, #[serde(rename = "A")] B }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Tagged<T>(pub(super) u8, pub(super) T);

#[derive(Serialize, Deserialize)]
pub(super) struct Page<T> {
    pub(super) first: T,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Tree<T> {
    pub(super) children: Vec<Tree<T>>,
    pub(super) leaf: T,
}

#[derive(Serialize, Deserialize)]
pub(super) enum Ping<T> {
    Pong(Box<Pong<T>>),
    End,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Pong<T> {
    pub(super) ping: Ping<T>,
    pub(super) then: Option<Box<Pong<T>>>,
    pub(super) leaf: T,
}

/// Within itself, and without a name.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Nest<T>(pub(super) Vec<(T, Nest<T>)>);

/// Refuses 1, and so is not looked into.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "u32")]
pub(super) struct Even(pub(super) u32);

impl TryFrom<u32> for Even {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, &'static str> {
        if number.is_multiple_of(2) { Ok(Self(number)) } else { Err("odd") }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Marker;

macro_rules! structs {
    ($($name:ident $called:literal { $($(#[$attribute:meta])* $field:ident: $ty:ty),* })*) => {$(
        #[derive(Serialize, Deserialize)]
        #[serde(rename = $called)]
        pub(super) struct $name { $($(#[$attribute])* pub(super) $field: $ty),* }
    )*};
}

structs! {
    Wide "S" { x: u8, y: u16 }
    Swapped "S" { y: u16, x: u8 }
    Renamed "S" { x: u8, #[serde(rename = "y")] z: u16 }
    Skipping "S" { x: u8, #[serde(skip)] #[expect(dead_code, reason = "serde skips it")] y: u16 }
    Seconds "S" { x: u8, #[serde(with = "seconds")] y: Duration }
    Odd "S" { #[serde(rename = "x: u8, y")] x: u8 }
    Primitive "u8" { x: u8, y: u16 }
}

mod seconds {
    use super::*;

    pub(super) fn serialize<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(time.as_secs() as i64)
    }

    pub(super) fn deserialize<'r, D: serde::Deserializer<'r>>(from: D) -> Result<Duration, D::Error> {
        i64::deserialize(from).map(|seconds| Duration::from_secs(seconds.unsigned_abs()))
    }
}

#[derive(Serialize, Deserialize, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Point {
    pub(super) x: u32,
    pub(super) y: u32,
}

pub(super) fn pong<T>(leaf: T, ping: Ping<T>) -> Pong<T> {
    Pong { ping, then: None, leaf }
}
