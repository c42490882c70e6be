//! The program that finds UDP's datagrams on an Ethernet.
//!
//! Source: RFC 768, RFC 791, RFC 8200. Differs: IPv6 with extension headers is none of ours.

use super::instruction::Comparison::{AtLeast, Below, Equal, Unequal};
use super::instruction::Instruction::{self, Check, Length, Load, Require, Return, Set, Skip};
use super::instruction::Operand::{In, Number};
use super::instruction::Operation::{Add, And, Move, Multiply, Subtract};
use super::instruction::Place::{At, Behind};
use super::instruction::Register::{A, B, C, D};
use super::instruction::Width::{One, Two};

/// Where the IP header begins.
const IP: u16 = 14;

/// B: the type of the Ethernet's frame.
const ETHERNET: &[Instruction] = &[
    Require(At(IP)),
    Load(B, Two, At(IP - 2)),
    Skip(IPV4.len() as u8, B, Unequal, Number(0x0800)), //
];

/// A: how many bytes are behind the IP header, C: how long that header is.
const IPV4: &[Instruction] = &[
    Require(At(IP + 20)),
    // The version, and the header's length in words of four bytes.
    Load(C, One, At(IP)),
    Check(C, AtLeast, Number(0x45)),
    Check(C, Below, Number(0x50)),
    Set(C, And, Number(0xf)),
    Set(C, Multiply, Number(4)),
    // A fragment has an offset, or more behind it.
    Load(D, Two, At(IP + 6)),
    Set(D, And, Number(0x3fff)),
    Check(D, Equal, Number(0)),
    Load(D, One, At(IP + 9)),
    Check(D, Equal, Number(17)),
    Load(A, Two, At(IP + 2)),
    Set(A, Subtract, In(C)),
    // To UDP: the type is this one.
    Skip(IPV6.len() as u8, B, Equal, Number(0x0800)),
];

/// The same registers.
const IPV6: &[Instruction] = &[
    Check(B, Equal, Number(0x86dd)),
    Require(At(IP + 40)),
    Load(C, One, At(IP)),
    Check(C, AtLeast, Number(0x60)),
    Check(C, Below, Number(0x70)),
    Load(D, One, At(IP + 6)),
    Check(D, Equal, Number(17)),
    Load(A, Two, At(IP + 4)),
    Set(C, Move, Number(40)),
];

/// B: how long the datagram is by its own header, D: how many bytes the frame has behind the IP header.
const UDP: &[Instruction] = &[
    Require(Behind(C, IP + 8)),
    Load(B, Two, Behind(C, IP + 4)),
    Check(B, AtLeast, Number(8)),
    Check(A, AtLeast, In(B)),
    Length(D),
    Set(D, Subtract, Number(IP as u64)),
    Set(D, Subtract, In(C)),
    Check(D, AtLeast, In(A)),
    // The trailer, the port, and the header.
    Set(D, Subtract, In(B)),
    Load(A, Two, Behind(C, IP + 2)),
    Set(C, Add, Number(IP as u64 + 8)),
    Return(In(A), In(C), In(D)),
];

/// The whole program.
pub(super) fn instructions() -> Vec<Instruction> {
    [ETHERNET, IPV4, IPV6, UDP].concat()
}
