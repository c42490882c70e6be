//! What can go wrong with memory, and what it leaves behind.

use crate::Mark;

/// The result of an operation on memory.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation on memory that failed. Unless a variant says otherwise, nothing has changed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The space's limit on memory is reached.
    #[error(
        "{asked} bytes are asked for, but {used} of the limit of {limit} bytes are in use; free buffers or raise the limit"
    )]
    Limit {
        /// Bytes asked for.
        asked: usize,
        /// Bytes that the space holds already.
        used: usize,
        /// The space's limit, in bytes.
        limit: usize,
    },
    /// The space's addresses are used up or too fragmented.
    #[error("no {asked} bytes of addresses in a row are free; free buffers or raise the space's limit")]
    Addresses {
        /// Bytes asked for.
        asked: usize,
    },
    /// The memory is not one region of this space.
    #[error("the {len} bytes at {addr:#x} are not in one region of this space")]
    Foreign {
        /// First address.
        addr: usize,
        /// Number of bytes.
        len: usize,
    },
    /// The region is in other hands.
    #[error("the region at {addr:#x} is marked {found}: it is not the client's to pass")]
    Mark {
        /// First address.
        addr: usize,
        /// The mark found.
        found: Mark,
    },
    /// Writes cannot be caught here, so granules cannot be protected.
    #[error("write protection is not available: {reason}; `genie doctor` tells what to do")]
    Unprotectable {
        /// Why.
        reason: &'static str,
    },
    /// A length of zero.
    #[error("a buffer of no bytes was asked for")]
    Empty,
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] genie_sys::Error),
}
