//! Small programs that tell of a frame its port, and how long its header and trailer are.
//!
//! Why: where headers have no fixed length, an adapter that takes them off computes it for each frame, by a program that the host gives
//! it. Whatever the frame, such a program must end, and read nothing that is not there. As with packet filters, this is proved once, when
//! the program is given, and costs frames nothing.
//! How: an [`Instruction`] loads from the frame, computes, compares or returns. Jumps lead forward only. [`Program::new`] follows all paths
//! with the bounds of each register, and refuses a program that might load a byte which it has not required to be there
//! ([`Instruction::Require`]). An application's own header is taken off by a program of its own behind another one ([`Program::then`]),
//! which sees the frame without what was taken off before.
//! Invariants: a program runs each of its instructions once at most, reads no byte beyond the frame or its first [`HEAD`], and what it
//! returns fits into the frame. It allocates nothing.
//! Trust: frames are anybody's, and any client that may receive may give a program. The frame's first bytes are read once, and used from the copy.
//! Limits: [`MOST_INSTRUCTIONS`], [`HEAD`].
//! Source: thesis §6.5, §13.1; J. Mogul, R. Rashid and M. Accetta, *The Packet Filter*, 1987. Differs: registers in place of a stack.

#[cfg(any(test, feature = "fuzzing"))]
pub mod check;
mod instruction;
#[cfg(test)]
mod tests;
mod udp;
mod verify;

use super::segment::Port;
use crate::Frame;

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
#[derive(Debug, Clone)]
pub struct Program {
    /// Each works on what the one before it has left of the frame.
    parts: Vec<Box<[Instruction]>>,
    /// How many of a frame's first bytes it reads at most.
    reads: usize,
    /// How long a header it returns at most.
    header: u64,
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
        Ok(Self { parts: vec![instructions.into()], reads: proof.reads, header: proof.header })
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
        self.parts.extend(later.parts);
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
        Ok(self)
    }

    /// Looks at a frame: nothing if it is none of ours.
    ///
    /// # Cost
    /// A copy of as many of the first bytes as the program reads at most, and what the instructions do.
    pub fn run(&self, frame: &Frame<'_>) -> Option<Parsed> {
        let mut head = [0; HEAD];
        let there = frame.read(0, &mut head[..self.reads]);
        let (head, mut found) = (&head[..there], Parsed { port: Port(0), header: 0, trailer: 0 });
        for part in &self.parts {
            let left = frame.len() - found.header - found.trailer;
            let inner = run(part, head.get(found.header..).unwrap_or_default(), left, found.port)?;
            found = Parsed {
                port: inner.port,
                header: found.header + inner.header,
                trailer: found.trailer + inner.trailer,
            };
        }
        Some(found)
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
