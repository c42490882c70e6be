//! The names of lenders, the parties whose memory system buffers are made of.

use std::fmt;

/// Names a party that lends memory to a space. No two lenders in this process have the same name, even if they lend to
/// different spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LenderId(pub(crate) u32);

impl LenderId {
    /// The space itself.
    pub const OWN: Self = Self(0);

    /// No party. An object that nobody has lent, although it is numbered as a lent one, goes when all of its granules are
    /// free, as if its lender were gone.
    pub(crate) const NOBODY: Self = Self(u32::MAX);
}

impl Default for LenderId {
    fn default() -> Self {
        Self::OWN
    }
}

impl fmt::Display for LenderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OWN => f.write_str("the space itself"),
            Self::NOBODY => f.write_str("nobody"),
            Self(number) => write!(f, "lender {number}"),
        }
    }
}
