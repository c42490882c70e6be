//! The header of a packet: 8 bytes, which may be followed by more that mean nothing here.
//!
//! Shape: the header's length, the trailer's length, the port (2 bytes, big-endian), and where in its stream the data begins (4 bytes,
//! big-endian, modulo 2^32).

use genie_memory::Data;
use smallvec::SmallVec;

use crate::adapter::program::Instruction::{Check, Load, Require, Return};
use crate::adapter::program::Operand::{In, Number};
use crate::adapter::program::Place::{At, Behind};
use crate::adapter::program::{Comparison, Program, Register, Width};
use crate::adapter::{Adapter, Layout, Piece, Port, Received};
use crate::assembly::{with_bytes, within};

/// The shortest header.
pub const HEADER: usize = 8;

/// How an adapter finds packets' ports, headers and trailers.
///
/// # Panics
/// Never: a test verifies the program.
pub fn layout() -> Layout {
    let instructions = vec![
        Require(At(HEADER as u16)),
        Load(Register::B, Width::One, At(0)),
        Load(Register::C, Width::One, At(1)),
        Load(Register::A, Width::Two, At(2)),
        Check(Register::B, Comparison::AtLeast, Number(HEADER as u64)),
        Require(Behind(Register::B, 0)),
        Return(In(Register::A), In(Register::B), In(Register::C)),
    ];
    Layout::Program(Program::new(instructions).expect("what is verified by a test"))
}

pub(super) fn write(port: u16, at: u32, header: usize, trailer: usize) -> SmallVec<[u8; 64]> {
    let mut bytes = SmallVec::from_elem(0, header.max(HEADER));
    (bytes[0], bytes[1]) = (header as u8, trailer as u8);
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&at.to_be_bytes());
    bytes
}

/// What a packet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) port: u16,
    /// Where in its stream the data begins.
    pub(super) at: u32,
    header: usize,
    trailer: usize,
}

/// None if the packet makes no sense.
pub(super) fn read(received: &Received, adapter: &dyn Adapter) -> Option<Packet> {
    let mut head = [0; HEADER];
    let mut done = received.header.len().min(HEADER);
    head[..done].copy_from_slice(&received.header[..done]);
    // Only packets of ports are in posted segments.
    let port = received.port.unwrap_or(Port(0));
    for piece in &received.pieces {
        done += with_bytes(piece, adapter, port, |data: Data<'_>| data.copy_to(&mut head[done..]));
    }
    let [header, trailer, p1, p0, at3, at2, at1, at0] = head;
    let (header, trailer) = (usize::from(header), usize::from(trailer));
    let (port, at) = (u16::from_be_bytes([p1, p0]), u32::from_be_bytes([at3, at2, at1, at0]));
    // What an adapter has stored for another port is that port's.
    let is_sound = done == HEADER
        && header >= HEADER
        && header + trailer <= received.len
        && received.port.is_none_or(|known| known == Port(u64::from(port)));
    is_sound.then_some(Packet { port, at, header, trailer })
}

impl Packet {
    /// Where the data is.
    pub(super) fn data(&self, received: Received) -> SmallVec<[Piece; 2]> {
        let Received { header, pieces, trailer, .. } = received;
        let len: usize = pieces.iter().map(Piece::len).sum();
        let (front, behind) =
            (self.header.saturating_sub(header.len()), self.trailer.saturating_sub(trailer.len()));
        within(pieces, front.min(len)..len.saturating_sub(behind).max(front.min(len)))
    }
}
