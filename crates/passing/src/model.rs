//! The data passing model: what a scheme promises, apart from how it keeps the promise.
//!
//! Why: two schemes are interchangeable if they promise the same, whatever their mechanisms; programs come to be
//! corrupted by an optimization when mechanisms are compared instead of promises.
//! How: a scheme has a buffer allocation and a buffer integrity, together its [`Semantics`];
//! [`Semantics::is_compatible_with`] compares two of those. [`Protection`] describes a scheme further and has no part in
//! compatibility.
//! Source: thesis chapter 2, figure 2.1. Differs: optimization conditions, which have a part in compatibility where they are
//! mandatory, are not compared, since no scheme here has a mandatory one. Those of emulated copy are in the documentation of
//! [`Scheme::EmulatedCopy`](crate::Scheme::EmulatedCopy).

mod protection;

use std::fmt;

pub use protection::{Access, Granularity, Protection};

/// Who allocates and frees the buffers that contain the data.
///
/// It decides the shape of the programming interface: a program tells a native-mode interface where an input buffer
/// lies, and a migrant-mode interface tells the program.
///
/// # Source
/// Thesis §2.1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Allocation {
    /// The party: it chooses place and layout, and keeps its output buffers.
    Native,
    /// The I/O interface: it gives input buffers and takes output buffers.
    Migrant,
}

/// What is guaranteed while one party still has access to a buffer that the other works on.
///
/// Strong is greater than weak: it guarantees everything that weak does.
///
/// # Source
/// Thesis §2.1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Integrity {
    /// Nothing: data may be passed in place.
    Weak,
    /// Overwriting an output buffer after the request doesn't change what the other party gets, and an input buffer is
    /// seen only as it was before the request or as it is after a successful reply.
    Strong,
}

/// The four data passing semantics: allocation × integrity.
///
/// # Source
/// Thesis §2.1.2 and §2.1.3, figure 2.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Semantics {
    /// Native buffers, strong integrity.
    Copy,
    /// Native buffers, weak integrity.
    Share,
    /// Migrant buffers, strong integrity.
    Move,
    /// Migrant buffers, weak integrity.
    WeakMove,
}

impl Semantics {
    /// Gives the semantics that these two dimensions define.
    pub const fn new(allocation: Allocation, integrity: Integrity) -> Self {
        match (allocation, integrity) {
            (Allocation::Native, Integrity::Strong) => Self::Copy,
            (Allocation::Native, Integrity::Weak) => Self::Share,
            (Allocation::Migrant, Integrity::Strong) => Self::Move,
            (Allocation::Migrant, Integrity::Weak) => Self::WeakMove,
        }
    }

    /// Says who allocates the buffers.
    pub const fn allocation(self) -> Allocation {
        match self {
            Self::Copy | Self::Share => Allocation::Native,
            Self::Move | Self::WeakMove => Allocation::Migrant,
        }
    }

    /// Says what integrity the buffers have.
    pub const fn integrity(self) -> Integrity {
        match self {
            Self::Copy | Self::Move => Integrity::Strong,
            Self::Share | Self::WeakMove => Integrity::Weak,
        }
    }

    /// Says whether programs written for `expected` run correctly under this: it has the same allocation, and at least the
    /// same integrity.
    ///
    /// # Source
    /// Thesis §2.4.
    pub fn is_compatible_with(self, expected: Self) -> bool {
        self.allocation() == expected.allocation() && self.integrity() >= expected.integrity()
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Migrant => "migrant",
        })
    }
}

impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Weak => "weak",
            Self::Strong => "strong",
        })
    }
}

impl fmt::Display for Semantics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy => "copy",
            Self::Share => "share",
            Self::Move => "move",
            Self::WeakMove => "weak move",
        })
    }
}

#[cfg(test)]
mod tests;
