//! Small programs that tell of a frame its port, and how long its header and trailer are.
//!
//! Why: where headers have no fixed length, an adapter that takes them off computes it for each frame, by a program that the host gives
//! it. Whatever the frame, such a program must end, and read nothing that is not there. As with packet filters, this is proved once, when
//! the program is given, and costs frames nothing.
//! How: an [`Instruction`] loads from the frame, computes, compares or returns. Jumps lead forward only. [`Program::new`] follows all paths
//! with the bounds of each register, and refuses a program that might load a byte which it has not required to be there
//! ([`Instruction::Require`]). An application's own header is taken off by a program of its own behind another one ([`Program::then`]),
//! which sees the frame without what was taken off before. A client gives such a program for its port alone: `Layouts`.
//! Invariants: a program runs each of its instructions once at most, reads no byte beyond the frame or its first [`HEAD`], and what it
//! returns fits into the frame. It allocates nothing.
//! Trust: frames are anybody's, and any client that may receive may give a program. The frame's first bytes are read once, and used from the copy.
//! Limits: [`MOST_INSTRUCTIONS`], [`HEAD`].
//! Source: thesis §6.5, §13.1; J. Mogul, R. Rashid and M. Accetta, *The Packet Filter*, 1987. Differs: registers in place of a stack.

#[cfg(any(test, feature = "fuzzing"))]
pub mod check;
mod instruction;
#[cfg(test)]
pub(crate) mod tests;
mod udp;
mod verify;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::segment::Port;
use crate::Frame;
use instruction::MOST_BYTES;

pub use instruction::{
    Comparison, HEAD, Instruction, MOST_INSTRUCTIONS, Operand, Operation, Place, Register, Width,
};
pub use verify::Refused;

/// What an adapter that takes headers and trailers off has to know of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed {
    /// For which port it is.
    pub port: Port,
    /// How long its header is.
    pub header: usize,
    /// How long its trailer is. With the header it is no longer than the frame.
    pub trailer: usize,
}

/// A program that was proved to be harmless.
///
/// ```
/// use genie_net::adapter::program::{Instruction::*, Operand::*, Place::*, Program, Register::*, Width::*};
///
/// // An application's messages begin with the length of their header, and end with a checksum of four bytes.
/// let messages = Program::new(vec![Require(At(2)), Load(B, Two, At(0)), Return(In(A), In(B), Number(4))])?;
/// let in_datagrams = Program::udp().then(messages)?;
/// # Ok::<_, genie_net::adapter::program::Refused>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Each works on what the one before it has left of the frame.
    parts: Arc<[Box<[Instruction]>]>,
    /// How many of a frame's first bytes it reads at most.
    reads: usize,
    /// How long a header and a trailer it returns at most.
    header: u64,
    trailer: u64,
}

/// How an adapter finds port, header and trailer, and takes off what a port's own program finds behind these.
#[derive(Debug)]
pub(super) struct Layouts {
    all: Layout,
    own: BTreeMap<Port, Program>,
}

/// How an adapter finds port, header and trailer.
#[derive(Debug, Clone)]
pub enum Layout {
    /// All frames are for one port, with headers and trailers of these lengths.
    Constants(Parsed),
    /// A program finds them.
    Program(Program),
}

impl Program {
    /// Verifies a program.
    ///
    /// Its registers begin as zeros, but for A, which has the number of the port that the program before this one has found.
    ///
    /// # Errors
    /// The program might read what is not there, or not return.
    pub fn new(instructions: Vec<Instruction>) -> Result<Self, Refused> {
        let proof = verify::verify(&instructions)?;
        let parts = Arc::new([instructions.into()]);
        Ok(Self { parts, reads: proof.reads, header: proof.header, trailer: proof.trailer })
    }

    /// One that takes so many bytes off each frame, and rejects frames that have fewer.
    ///
    /// # Panics
    /// Never: it reads nothing.
    pub fn lengths(header: u16, trailer: u16) -> Self {
        let [header, trailer] = [header, trailer].map(|len| Operand::Number(len.into()));
        let instructions = vec![Instruction::Return(Operand::In(Register::A), header, trailer)];
        Self::new(instructions).expect("one that reads nothing")
    }

    /// The program as bytes, of which [`Program::from_bytes`] makes it again.
    ///
    /// # Panics
    /// Never: instructions are numbers.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(&self.parts[..]).expect("what has a length")
    }

    /// Reads a program, which may be anybody's, and verifies it.
    ///
    /// # Errors
    /// The bytes are no program, or see [`Program::new`] and [`Program::then`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Refused> {
        let unreadable = Refused::Unreadable(bytes.len());
        if bytes.len() > 1 + MOST_INSTRUCTIONS * MOST_BYTES {
            return Err(unreadable);
        }
        let read = postcard::take_from_bytes::<Vec<Vec<_>>>(bytes).ok();
        let (parts, _) = read.filter(|(_, rest)| rest.is_empty()).ok_or(unreadable)?;
        let mut parts = parts.into_iter().map(Self::new);
        let first = parts.next().ok_or(Refused::Empty)?;
        parts.try_fold(first?, |program, later| program.then(later?))
    }

    /// UDP over IPv4, with whatever options, and over IPv6, without extension headers, on Ethernet.
    ///
    /// The port is the destination's. The header is all that precedes the datagram's data, and the trailer all that follows it: what fills
    /// a short frame up. Fragments and other protocols are none of ours.
    ///
    /// # Panics
    /// Never: a test verifies the program.
    pub fn udp() -> Self {
        Self::new(udp::instructions()).expect("what is verified by a test")
    }

    /// This program, and then another one on what this one has left of the frame, as if that were all.
    ///
    /// The header is then what both have found, one after the other, and so is the trailer; the port is that of the later one.
    ///
    /// # Errors
    /// They are too long, or the later one might read too far into the frame.
    pub fn then(mut self, later: Self) -> Result<Self, Refused> {
        self.parts = self.parts.iter().chain(&*later.parts).cloned().collect();
        let len = self.parts.iter().map(|part| part.len()).sum();
        if len > MOST_INSTRUCTIONS {
            return Err(Refused::TooLong(len));
        }
        let (header, reads) = (self.header, later.reads);
        if header.saturating_add(reads as u64) > HEAD as u64 {
            return Err(Refused::BehindTooMuch { header, reads });
        }
        self.reads = self.reads.max(header as usize + reads);
        self.header = header.saturating_add(later.header);
        self.trailer = self.trailer.saturating_add(later.trailer);
        Ok(self)
    }

    /// How long a header, and how long a trailer, it returns at most.
    pub fn longest(&self) -> (u64, u64) {
        (self.header, self.trailer)
    }

    /// Looks at a frame: nothing if it is none of ours.
    ///
    /// # Cost
    /// A copy of as many of the first bytes as the program reads at most, and what the instructions do.
    pub fn run(&self, frame: &Frame<'_>) -> Option<Parsed> {
        self.behind(frame, Parsed { port: Port(0), header: 0, trailer: 0 })
    }

    /// Looks at what was left of a frame: nothing if that is none of ours. What was found before is a part of what is found.
    fn behind(&self, frame: &Frame<'_>, found: Parsed) -> Option<Parsed> {
        let mut head = [0; HEAD];
        let there = frame.read(found.header, &mut head[..self.reads]);
        let left = frame.len() - found.header - found.trailer;
        Some(found.and(self.parse(&head[..there], left, found.port)?))
    }

    /// Looks at `len` bytes, of which `head` has the first ones, as many as programs see, that are for this port.
    pub(crate) fn parse(&self, head: &[u8], len: usize, port: Port) -> Option<Parsed> {
        let mut found = Parsed { port, header: 0, trailer: 0 };
        for part in &*self.parts {
            let left = len - found.header - found.trailer;
            found = found.and(run(part, head.get(found.header..).unwrap_or_default(), left, found.port)?);
        }
        Some(found)
    }
}

impl Parsed {
    /// What both have found, one behind the other.
    fn and(self, inner: Self) -> Self {
        let (header, trailer) = (self.header + inner.header, self.trailer + inner.trailer);
        Self { port: inner.port, header, trailer }
    }
}

impl Layouts {
    pub(super) fn new(all: Layout) -> Self {
        Self { all, own: BTreeMap::new() }
    }

    /// Has a program look at the frames of a port, behind what all have; or none any more.
    pub(super) fn set(&mut self, port: Port, program: Option<Program>) {
        match program {
            Some(program) => self.own.insert(port, program),
            None => self.own.remove(&port),
        };
    }

    /// Looks at a frame: nothing if it is none of ours, or its port's own program rejects it. No program makes it another port's.
    pub(super) fn parse(&self, frame: &Frame<'_>) -> Option<Parsed> {
        let found = self.all.parse(frame)?;
        match self.own.get(&found.port) {
            Some(program) => Some(Parsed { port: found.port, ..program.behind(frame, found)? }),
            None => Some(found),
        }
    }
}

impl Layout {
    /// Looks at a frame: nothing if it is none of ours, or shorter than its header and trailer.
    pub fn parse(&self, frame: &Frame<'_>) -> Option<Parsed> {
        match self {
            Self::Constants(parsed) => {
                (parsed.header.checked_add(parsed.trailer)? <= frame.len()).then_some(*parsed)
            }
            Self::Program(program) => program.run(frame),
        }
    }
}

/// Runs a verified program on a frame of `len` bytes, of which `head` is the beginning.
fn run(program: &[Instruction], head: &[u8], len: usize, port: Port) -> Option<Parsed> {
    let mut registers = [port.0, 0, 0, 0];
    let number = |registers: &[u64; Register::COUNT], operand| match operand {
        Operand::Number(number) => number,
        Operand::In(register) => registers[register as usize],
    };
    let end = |registers: &[u64; Register::COUNT], place| match place {
        Place::At(at) => at.into(),
        Place::Behind(register, more) => registers[register as usize].saturating_add(more.into()),
    };
    let mut rest = program.iter();
    while let Some(instruction) = rest.next() {
        match *instruction {
            Instruction::Require(place) if end(&registers, place) > len as u64 => return None,
            Instruction::Require(_) => {}
            Instruction::Load(to, width, place) => {
                let at = end(&registers, place) as usize;
                debug_assert!(
                    at + width as usize <= len.min(HEAD),
                    "{program:?} reads beyond a frame of {len}"
                );
                registers[to as usize] = load(head.get(at..)?, width)?;
            }
            Instruction::Length(to) => registers[to as usize] = len as u64,
            Instruction::Set(to, operation, operand) => {
                registers[to as usize] = operation.of(registers[to as usize], number(&registers, operand));
            }
            Instruction::Check(a, comparison, b) => {
                if !comparison.of(registers[a as usize], number(&registers, b)) {
                    return None;
                }
            }
            Instruction::Skip(over, a, comparison, b) => {
                if over > 0 && comparison.of(registers[a as usize], number(&registers, b)) {
                    rest.nth(usize::from(over) - 1);
                }
            }
            Instruction::Return(port, header, trailer) => {
                let [port, header, trailer] =
                    [port, header, trailer].map(|operand| number(&registers, operand));
                let fits = header.checked_add(trailer)? <= len as u64;
                return fits.then_some(Parsed {
                    port: Port(port),
                    header: header as usize,
                    trailer: trailer as usize,
                });
            }
        }
    }
    None
}

fn load(bytes: &[u8], width: Width) -> Option<u64> {
    Some(match width {
        Width::One => (*bytes.first()?).into(),
        Width::Two => u16::from_be_bytes(*bytes.first_chunk()?).into(),
        Width::Four => u32::from_be_bytes(*bytes.first_chunk()?).into(),
    })
}
