//! Types whose encodings differ have different signatures: each of many types is compared with each other.

mod types;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::codec::{Bytes, Decode, Encode, Plain, Serde, decode_all};
use crate::signature::{Method, Parameter};
use types::*;

/// A type: its name in this test, the service of a method that takes it and of one that returns it, values as JSON and as bytes,
/// and what reads such bytes.
struct Row {
    name: &'static str,
    services: [String; 2],
    values: Vec<(String, Bytes)>,
    read: fn(&[u8]) -> Option<String>,
}

fn row<C, T>(name: &'static str, shape: Shape, values: Vec<T>) -> Row
where
    C: Encode<T> + for<'r> Decode<'r, T>,
    T: Serialize,
{
    let unit: Shape = ("()", serde::<()>);
    let parameter = Parameter { name: "a", shape };
    let takes = Method::new("m", [parameter], (unit, None), (false, false));
    let returns = Method::new("m", [], (shape, None), (false, false));
    let json = |value: &T| serde_json::to_string(value).expect("JSON");
    let value = |value: T| {
        let mut bytes = Bytes::new();
        C::encode(&value, &mut bytes).expect("an encoding");
        (json(&value), bytes)
    };
    let read = |bytes: &[u8]| {
        decode_all::<C, T>(bytes).ok().map(|value| serde_json::to_string(&value).expect("JSON"))
    };
    let services = [takes, returns].map(|method| method.service);
    Row { name, services, values: values.into_iter().map(value).collect(), read }
}

/// Types of serde's are all written alike, as if each program called its own type `T`.
fn of<T: Serialize + DeserializeOwned>(name: &'static str, values: Vec<T>) -> Row {
    row::<Serde, T>(name, ("T", serde::<T>), values)
}

macro_rules! of {
    ($($ty:ty: $($value:expr),+;)*) => { vec![$(of::<$ty>(stringify!($ty), vec![$($value),+])),*] };
}

macro_rules! plain {
    ($($ty:ty: $($value:expr),+;)*) => {
        vec![$(row::<Plain, $ty>(concat!("#[plain] ", stringify!($ty)), ("T", plain::<$ty>), vec![$($value),+])),*]
    };
}

fn rows() -> Vec<Row> {
    let time = Duration::from_secs(70);
    let mut rows = of! {
        (): ();
        bool: true, false;
        u8: 1, 200;
        u16: 1, 300, 65_535;
        u32: 1, 300, u32::MAX;
        u64: 1, 300, u64::MAX;
        usize: 1, 300, usize::MAX;
        u128: 1, u128::MAX;
        i8: 1, -1;
        i16: 1, -300;
        i32: 1, i32::MIN;
        i64: 1, i64::MIN;
        i128: 1, i128::MIN;
        f32: 1.5;
        f64: 1.5;
        char: 'a', 'ß';
        String: "a".into(), "abc".into(), String::new();
        Vec<u8>: vec![1, 97], vec![];
        VecDeque<u8>: [1, 97].into(), [].into();
        Vec<i8>: vec![1, -1], vec![];
        [u8; 2]: [1, 2];
        (u8, u8): (1, 2);
        (u8, u8, u8): (1, 2, 3);
        (u8, (u8, u16)): (1, (2, 300));
        Box<[u16]>: Box::new([300, 1]);
        Box<str>: "abc".into();
        Vec<(u8, u16)>: vec![(1, 300)];
        BTreeMap<u8, u16>: [(1, 300)].into();
        BTreeMap<u16, u8>: [(300, 1)].into();
        Option<u8>: None, Some(7);
        Option<Option<u8>>: None, Some(None), Some(Some(7));
        Option<()>: None, Some(());
        Result<u8, String>: Ok(1), Err("no".into());
        Result<String, u8>: Ok("no".into()), Err(1);
        Ipv4Addr: Ipv4Addr::LOCALHOST;
        Duration: time;
        Marker: Marker;
        Even: Even(300), Even(0);
        (Even, u32): (Even(2), 300);
        (u32, Even): (300, Even(2));
        (i32, Even): (-300, Even(2));
        Wide: Wide { x: 1, y: 300 };
        Swapped: Swapped { y: 300, x: 1 };
        Renamed: Renamed { x: 1, z: 300 };
        Skipping: Skipping { x: 1, y: 0 };
        Seconds: Seconds { x: 1, y: time };
        Odd: Odd { x: 1 };
        (Primitive, u8): (Primitive { x: 1, y: 300 }, 2);
        (u8, Primitive): (2, Primitive { x: 1, y: 300 });
        (Page<u8>, Page<String>): (Page { first: 1 }, Page { first: "a".into() });
        (Page<String>, Page<u8>): (Page { first: "a".into() }, Page { first: 1 });
        Tagged<Tagged<Tagged<u32>>>: Tagged(1, Tagged(2, Tagged(3, 300)));
        Tagged<Tagged<Tagged<i32>>>: Tagged(1, Tagged(2, Tagged(3, -300)));
        Tagged<Tagged<u32>>: Tagged(1, Tagged(2, 300));
        Tagged<Tagged<i32>>: Tagged(1, Tagged(2, -300));
        Tree<u32>: Tree { children: vec![Tree { children: vec![], leaf: 300 }], leaf: 1 };
        Tree<i32>: Tree { children: vec![Tree { children: vec![], leaf: -300 }], leaf: 1 };
        Tree<Tree<u8>>: Tree { children: vec![], leaf: Tree { children: vec![], leaf: 1 } };
        Pong<u32>: pong(300, Ping::Pong(Box::new(pong(1, Ping::End))));
        Pong<i32>: pong(-300, Ping::Pong(Box::new(pong(1, Ping::End))));
        Ping<u32>: Ping::Pong(Box::new(pong(1, Ping::End)));
        Ping<i32>: Ping::Pong(Box::new(pong(-1, Ping::End)));
        Nest<u32>: Nest(vec![(300, Nest(vec![]))]);
        Nest<i32>: Nest(vec![(-300, Nest(vec![]))]);
        a::Unit: a::Unit::A, a::Unit::B;
        b::Unit: b::Unit::A, b::Unit::B;
        c::Unit: c::Unit::A(1), c::Unit::B;
        d::Unit: d::Unit::A { a: 1 }, d::Unit::B;
        e::Unit: e::Unit::A, e::Unit::B, e::Unit::C;
        f::Unit: f::Unit::A, f::Unit::AA, f::Unit::B, f::Unit::C;
        g::Unit: g::Unit::A(1, 2), g::Unit::B;
        h::Unit: h::Unit::A((1, 2)), h::Unit::B(1);
        i::Unit: i::Unit::A(), i::Unit::B;
        j::Unit: j::Unit::A, j::Unit::B;
        c::Node: c::Node { node: a::Node { node: 300 } };
        d::Node: d::Node { node: b::Node { node: -300 } };
        e::Node: e::Node { node: c::Node { node: a::Node { node: 300 } } };
        f::Node: f::Node { node: d::Node { node: b::Node { node: -300 } } };
        g::Node: g::Node { node: Some(Box::new(a::Node { node: 300 })) };
        h::Node: h::Node { node: Some(Box::new(b::Node { node: -300 })) };
        i::Node: i::Node { node: (a::Node { node: 300 }, Box::new(b::Node { node: -300 })) };
        j::Node: j::Node { node: (b::Node { node: -300 }, Box::new(a::Node { node: 300 })) };
    };
    rows.extend(plain! {
        u8: 1, 200;
        u16: 300;
        u32: 300;
        i32: -300;
        f32: 1.5;
        u64: 300;
        usize: 300;
        u128: 300;
        [u8; 2]: [1, 2];
        [u16; 2]: [1, 300];
        [i16; 2]: [1, -300];
        Point: Point { x: 300, y: 1 };
    });
    rows
}

#[test]
fn types_that_read_each_others_bytes_otherwise_have_different_signatures() {
    let rows = rows();
    let agrees = |one: &Row, other: &Row| {
        one.values.iter().all(|(json, bytes)| (other.read)(bytes).as_ref() == Some(json))
    };
    let mut confused = Vec::new();
    for (index, one) in rows.iter().enumerate() {
        assert!(agrees(one, one), "{} reads what it writes", one.name);
        for other in &rows[..index] {
            let is_same = [0, 1].map(|index| one.services[index] == other.services[index]);
            if is_same != [false; 2] && !(agrees(one, other) && agrees(other, one)) {
                confused.push((other.name, one.name));
            }
        }
    }
    assert_eq!(confused, []);
}

/// Otherwise the test above would pass if no signature was like any other.
#[test]
fn types_that_are_alike_have_one_signature() {
    let rows = rows();
    let service = |name| &rows.iter().find(|row| row.name == name).expect(name).services[0];
    for [one, other] in [
        ["Vec<u8>", "VecDeque<u8>"],
        ["[u8; 2]", "(u8, u8)"],
        ["u64", "usize"],
        ["String", "Box<str>"],
        ["Wide", "Renamed"],
    ] {
        assert_eq!(service(one), service(other), "{one} and {other}");
    }
}
