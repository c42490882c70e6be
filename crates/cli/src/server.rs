//! The memory server that the commands pass data to and from.

use genie::{Interface, ServerHandle, memory};

use crate::failure::Failure;

/// Requests are served one at a time; one buffer more lets a pool of the server's breathe.
pub(crate) const POOLED_BUFFERS: usize = 2;

/// The server's buffers for input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Buffers {
    /// Made by the interface for each request.
    Customized,
    /// The server's own, as long as the greatest length, each starting where a granule does.
    Pooled,
}

impl Buffers {
    /// Opens a memory server whose own buffers, if it has any, are `longest` bytes long.
    pub(crate) fn open(self, genie: &Interface, longest: usize) -> Result<ServerHandle, Failure> {
        let server = match self {
            Self::Customized => memory::Memory::customized(),
            Self::Pooled => memory::Memory::pooled(genie.space(), 0, longest, POOLED_BUFFERS)
                .map_err(Failure::could_not)?,
        };
        Ok(ServerHandle::new(server))
    }
}
