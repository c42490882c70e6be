//! Proves of a program, before it sees a frame, that it reads no byte which may not be there.
//!
//! How: jumps lead forward only, so one pass over the instructions sees each after all that may run before it. It knows between which
//! bounds each register's number is and how long the frame is at least, by a number or by a register's. Where paths meet, it knows what all
//! of them say. All operations grow or fall with each operand, so the bounds of a result are results of bounds.

use super::instruction::{
    Comparison, HEAD, Instruction, MOST_INSTRUCTIONS, Operand, Operation, Place, Register,
};

/// Why a program is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It has too many instructions.
    #[error("the program has {0} instructions, and {MOST_INSTRUCTIONS} are allowed")]
    TooLong(usize),
    /// It is bytes that make no program.
    #[error("the {0} bytes are no program, or more than one")]
    Unreadable(usize),
    /// It does not return on every path.
    #[error("instruction {at} ({instruction:?}) goes on with instruction {to}, and there are {len}")]
    RunsOut {
        /// Which instruction.
        at: usize,
        /// The same.
        instruction: Instruction,
        /// The one after it.
        to: usize,
        /// How many there are.
        len: usize,
    },
    /// It has no instruction.
    #[error("the program has no instruction, so it returns nothing")]
    Empty,
    /// A load may read beyond the frame.
    #[error(
        "instruction {at} ({instruction:?}) may read up to byte {end} of a frame of which no more than {known} bytes are sure to be there"
    )]
    BeyondFrame {
        /// Which instruction.
        at: usize,
        /// The same.
        instruction: Instruction,
        /// Where the bytes may end.
        end: u64,
        /// How many bytes were required.
        known: u64,
    },
    /// A load may read beyond what programs see.
    #[error(
        "instruction {at} ({instruction:?}) may read up to byte {end}, and programs see the first {HEAD} bytes"
    )]
    BeyondHead {
        /// Which instruction.
        at: usize,
        /// The same.
        instruction: Instruction,
        /// Where the bytes may end.
        end: u64,
    },
    /// A program that goes on behind the header may read beyond what programs see.
    #[error(
        "the program reads {reads} bytes behind a header of up to {header}, and programs see the first {HEAD} bytes"
    )]
    BehindTooMuch {
        /// How long the header before it may be.
        header: u64,
        /// How many bytes it reads.
        reads: usize,
    },
}

/// What is proved of a program.
#[derive(Debug, Default)]
pub(super) struct Proof {
    /// How many of a frame's first bytes it reads at most.
    pub(super) reads: usize,
    /// How long a header and a trailer it returns at most.
    pub(super) header: u64,
    pub(super) trailer: u64,
    /// What is known before each instruction; of one that is never reached, nothing.
    pub(super) before: Vec<Option<Known>>,
}

/// The least and the greatest number that something may be.
pub(super) type Bounds = (u64, u64);

/// What is known where an instruction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// The bounds of each register.
    pub(super) registers: [Bounds; Register::COUNT],
    /// The frame is at least so long.
    pub(super) len: u64,
    /// The frame is longer than a register's number by at least so much.
    pub(super) longer: [Option<u64>; Register::COUNT],
}

/// Proves that a program may run.
pub(super) fn verify(program: &[Instruction]) -> Result<Proof, Refused> {
    let len = program.len();
    match len {
        0 => return Err(Refused::Empty),
        1..=MOST_INSTRUCTIONS => {}
        _ => return Err(Refused::TooLong(len)),
    }
    let mut proof = Proof { before: vec![None; len], ..Proof::default() };
    proof.before[0] = Some(Known::AT_FIRST);
    for (at, &instruction) in program.iter().enumerate() {
        let Some(known) = proof.before[at] else { continue };
        if let Instruction::Load(_, width, place) = instruction {
            let end = known.end(place, width as u64);
            if end > HEAD as u64 {
                return Err(Refused::BeyondHead { at, instruction, end });
            }
            if !known.has(place, width as u64) {
                return Err(Refused::BeyondFrame { at, instruction, end, known: known.len });
            }
            proof.reads = proof.reads.max(end as usize);
        }
        let mut goes_on = |to: usize, after: Option<Known>| {
            let Some(after) = after else { return Ok(()) };
            let next = proof.before.get_mut(to).ok_or(Refused::RunsOut { at, instruction, to, len })?;
            *next = Some(next.map_or(after, |other| other.or(after)));
            Ok(())
        };
        match instruction {
            Instruction::Return(_, header, trailer) => {
                proof.header = proof.header.max(known.bounds(header).1);
                proof.trailer = proof.trailer.max(known.bounds(trailer).1);
            }
            Instruction::Skip(over, register, comparison, operand) => {
                goes_on(at + 1, known.if_so(register, comparison.contrary(), operand))?;
                goes_on(at + 1 + usize::from(over), known.if_so(register, comparison, operand))?;
            }
            Instruction::Check(register, comparison, operand) => {
                goes_on(at + 1, known.if_so(register, comparison, operand))?;
            }
            Instruction::Require(place) => goes_on(at + 1, Some(known.required(place)))?,
            Instruction::Load(to, width, _) => {
                goes_on(at + 1, Some(known.with(to, (0, u64::MAX >> (64 - 8 * width as u32)))))?;
            }
            Instruction::Length(to) => {
                let mut after = known.with(to, (known.len, u64::MAX));
                after.longer[to as usize] = Some(0);
                goes_on(at + 1, Some(after))?;
            }
            Instruction::Set(to, operation, operand) => {
                let bounds = operation.bounds(known.registers[to as usize], known.bounds(operand));
                goes_on(at + 1, Some(known.with(to, bounds)))?;
            }
        }
    }
    Ok(proof)
}

impl Operation {
    /// Between which bounds the result is, of numbers between these.
    fn bounds(self, (a_least, a_most): Bounds, (b_least, b_most): Bounds) -> Bounds {
        match self {
            Self::Move | Self::Add | Self::Multiply | Self::ShiftLeft => {
                (self.of(a_least, b_least), self.of(a_most, b_most))
            }
            Self::Subtract | Self::ShiftRight => (self.of(a_least, b_most), self.of(a_most, b_least)),
            Self::And => (0, a_most.min(b_most)),
            // No bit is set above the highest one that either may have.
            Self::Or => {
                let above = (a_most | b_most).leading_zeros();
                (a_least.max(b_least), u64::MAX.checked_shr(above).unwrap_or(0))
            }
        }
    }
}

impl Known {
    /// What is known of any frame, before the first instruction. A register holds the port that was found before.
    const AT_FIRST: Self =
        Self { registers: [(0, u64::MAX), (0, 0), (0, 0), (0, 0)], len: 0, longer: [None; Register::COUNT] };

    /// What holds wherever this or the other holds.
    fn or(self, other: Self) -> Self {
        let both = |at: usize| (self.registers[at], other.registers[at]);
        Self {
            registers: std::array::from_fn(|at| {
                let (one, two) = both(at);
                (one.0.min(two.0), one.1.max(two.1))
            }),
            len: self.len.min(other.len),
            longer: std::array::from_fn(|at| self.longer[at].min(other.longer[at])),
        }
    }

    fn bounds(&self, operand: Operand) -> Bounds {
        match operand {
            Operand::Number(number) => (number, number),
            Operand::In(register) => self.registers[register as usize],
        }
    }

    /// After a register was changed.
    fn with(mut self, register: Register, bounds: Bounds) -> Self {
        self.registers[register as usize] = bounds;
        self.longer[register as usize] = None;
        self
    }

    /// After the frame was found to have all bytes before a place.
    fn required(mut self, place: Place) -> Self {
        match place {
            Place::At(at) => self.len = self.len.max(at.into()),
            Place::Behind(register, more) => {
                let register = register as usize;
                self.longer[register] = self.longer[register].max(Some(more.into()));
                self.len = self.len.max(self.registers[register].0.saturating_add(more.into()));
            }
        }
        self
    }

    /// Where bytes from a place on may end.
    fn end(&self, place: Place, width: u64) -> u64 {
        match place {
            Place::At(at) => u64::from(at) + width,
            Place::Behind(register, more) => {
                self.registers[register as usize].1.saturating_add(u64::from(more) + width)
            }
        }
    }

    /// Whether the frame is sure to have bytes from a place on.
    fn has(&self, place: Place, width: u64) -> bool {
        let by_register = match place {
            Place::At(_) => false,
            Place::Behind(register, more) => {
                self.longer[register as usize].is_some_and(|longer| u64::from(more) + width <= longer)
            }
        };
        by_register || self.end(place, width) <= self.len
    }

    /// What is known if a comparison's answer is yes; nothing if it never is.
    fn if_so(mut self, register: Register, comparison: Comparison, operand: Operand) -> Option<Self> {
        let (mut a, mut b) = (self.registers[register as usize], self.bounds(operand));
        match comparison {
            Comparison::Equal => {
                a = (a.0.max(b.0), a.1.min(b.1));
                b = a;
            }
            Comparison::Unequal if b.0 == b.1 => {
                if a.0 == b.0 {
                    a.0 = a.0.checked_add(1)?;
                }
                if a.1 == b.0 {
                    a.1 = a.1.checked_sub(1)?;
                }
            }
            Comparison::Unequal => {}
            Comparison::Below => {
                a.1 = a.1.min(b.1.checked_sub(1)?);
                b.0 = b.0.max(a.0.checked_add(1)?);
            }
            Comparison::AtLeast => {
                a.0 = a.0.max(b.0);
                b.1 = b.1.min(a.1);
            }
        }
        if a.0 > a.1 || b.0 > b.1 {
            return None;
        }
        if let Operand::In(other) = operand {
            self.registers[other as usize] = b;
        }
        self.registers[register as usize] = a;
        Some(self)
    }
}
