//! Directions of data.

use std::fmt;

/// Which way data goes, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From a server to the client.
    In,
    /// From the client to a server.
    Out,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In => "input",
            Self::Out => "output",
        })
    }
}
