//! What can go wrong in passing data.

use genie_memory::Migrant;

/// The result of passing data.
pub type Result<T> = std::result::Result<T, Error>;

/// Data that could not be passed; the client's buffers are as they were.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The memory crate refused.
    #[error(transparent)]
    Memory(#[from] genie_memory::Error),
    /// Protecting an output does not pay at the moment; the engine copies instead, and no client sees this.
    #[error("faults in this region have lately cost more than copying")]
    Unprofitable,
    /// The memory is a part of a server's frames, which no server in another process is shown; the engine copies instead, and no client
    /// sees this.
    #[error("the memory lies in frames of another server's")]
    Framed,
    /// A migrant scheme was asked to pass a migrant buffer of another integrity.
    #[error(
        "{scheme} passes buffers allocated for {expected} integrity; this one was allocated for the other"
    )]
    Integrity {
        /// The scheme asked for.
        scheme: crate::Scheme,
        /// What it needs.
        expected: &'static str,
    },
    /// A device could not transfer data from its own memory.
    #[error("the device's transfer failed: {message}")]
    Outboard {
        /// What the device says.
        message: String,
    },
    /// The server named more bytes of a buffer than there are.
    #[error("the server named {actual} bytes of a buffer that has {len}")]
    TooLong {
        /// Bytes that the server named.
        actual: usize,
        /// Bytes of the buffer.
        len: usize,
    },
}

/// An output that was refused. A migrant buffer is still the client's, and comes back in `migrant`.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub error: Error,
    /// The buffer.
    pub migrant: Option<Migrant>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { error, migrant: None }
    }
}
