//! The instructions of programs over headers.
//!
//! A program that a client gives to a server is in postcard's format: the order of the names here, and of what they have, is what both know.

use serde::{Deserialize, Serialize};

/// How many of a frame's first bytes a program sees.
pub const HEAD: usize = 256;
/// How many instructions a program may have, with those of the programs behind it.
pub const MOST_INSTRUCTIONS: usize = 64;
/// How many bytes an instruction takes at most, with the length of its part: the one that returns three numbers.
pub(super) const MOST_BYTES: usize = 2 + 3 * 11;

/// A register of a program: 64 bits, without a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fuzzing", derive(arbitrary::Arbitrary))]
#[expect(missing_docs, reason = "a letter is all that there is to say")]
pub enum Register {
    A,
    B,
    C,
    D,
}

impl Register {
    /// How many there are.
    pub(super) const COUNT: usize = 4;
}

/// What an instruction works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fuzzing", derive(arbitrary::Arbitrary))]
pub enum Operand {
    /// This number.
    Number(u64),
    /// The number in this register.
    In(Register),
}

/// A place in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fuzzing", derive(arbitrary::Arbitrary))]
pub enum Place {
    /// So many bytes from the frame's start.
    At(u16),
    /// So many bytes more than the register says.
    Behind(Register, u16),
}

/// How many bytes an instruction loads, in network order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fuzzing", derive(arbitrary::Arbitrary))]
#[expect(missing_docs, reason = "a number is all that there is to say")]
pub enum Width {
    One = 1,
    Two = 2,
    Four = 4,
}

/// What an instruction makes of a register's number and an operand.
///
/// What is above `u64::MAX` becomes `u64::MAX`, and what is below zero becomes zero: nothing wraps around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fuzzing", derive(arbitrary::Arbitrary))]
pub enum Operation {
    /// The operand.
    Move,
    /// The sum.
    Add,
    /// The difference.
    Subtract,
    /// The product.
    Multiply,
    /// The bits that both have.
    And,
    /// The bits that either has.
    Or,
    /// The product with two to the power of the operand.
    ShiftLeft,
    /// The bits, as many places lower as the operand says.
    ShiftRight,
}

/// What is asked of a register's number and an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fuzzing", derive(arbitrary::Arbitrary))]
pub enum Comparison {
    /// Whether they are equal.
    Equal,
    /// Whether they are not.
    Unequal,
    /// Whether the register's number is less.
    Below,
    /// Whether it is not.
    AtLeast,
}

/// An instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fuzzing", derive(arbitrary::Arbitrary))]
pub enum Instruction {
    /// The frame has all bytes before this place, or is none of ours.
    Require(Place),
    /// Loads the bytes from this place on.
    Load(Register, Width, Place),
    /// Loads the length of the frame.
    Length(Register),
    /// Changes a register.
    Set(Register, Operation, Operand),
    /// The answer is yes, or the frame is none of ours.
    Check(Register, Comparison, Operand),
    /// Passes over so many instructions if the answer is yes.
    Skip(u8, Register, Comparison, Operand),
    /// Ends the program: the port, and how long header and trailer are.
    Return(Operand, Operand, Operand),
}

impl Operation {
    /// What it makes of two numbers.
    pub(super) fn of(self, a: u64, b: u64) -> u64 {
        // No shift is longer than 64 places, after which nothing is left.
        let places = b.min(64) as u32;
        match self {
            Self::Move => b,
            Self::Add => a.saturating_add(b),
            Self::Subtract => a.saturating_sub(b),
            Self::Multiply => a.saturating_mul(b),
            Self::And => a & b,
            Self::Or => a | b,
            Self::ShiftLeft if a.leading_zeros() < places => u64::MAX,
            Self::ShiftLeft => a.checked_shl(places).unwrap_or(0),
            Self::ShiftRight => a.checked_shr(places).unwrap_or(0),
        }
    }
}

impl Comparison {
    /// The answer for two numbers.
    pub(super) fn of(self, a: u64, b: u64) -> bool {
        match self {
            Self::Equal => a == b,
            Self::Unequal => a != b,
            Self::Below => a < b,
            Self::AtLeast => a >= b,
        }
    }

    /// The question with the contrary answer.
    pub(super) fn contrary(self) -> Self {
        match self {
            Self::Equal => Self::Unequal,
            Self::Unequal => Self::Equal,
            Self::Below => Self::AtLeast,
            Self::AtLeast => Self::Below,
        }
    }
}
