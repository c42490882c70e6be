//! What can go wrong with memory, and in which state it leaves things.

use crate::{GranuleKind, LenderId, Mark};

/// The result of an operation on memory.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation on memory that failed. Unless a variant says otherwise, nothing has changed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The space's limit on memory is reached.
    #[error("{}", limit_met(*asked, *used, *limit))]
    Limit {
        /// Bytes asked for.
        asked: usize,
        /// Bytes that the space holds already.
        used: usize,
        /// The space's limit, in bytes.
        limit: usize,
    },
    /// A peer's requests have as many pieces of its memory mapped in transient mirrors as they may.
    #[error("{limit} pieces of a peer's memory are mapped, and no more may be; wait for its requests")]
    Pieces {
        /// How many may be.
        limit: usize,
    },
    /// The space's addresses are used up or too fragmented.
    #[error("no {asked} bytes of addresses in a row are free; free buffers or raise the space's limit")]
    Addresses {
        /// Bytes asked for.
        asked: usize,
    },
    /// The process may not have the addresses of a space of this limit (`ulimit -v`).
    #[error(transparent)]
    AddressLimit(genie_sys::Error),
    /// The memory is not one region of this space.
    #[error("the {len} bytes at {addr:#x} are not in one region of this space")]
    Foreign {
        /// First address.
        addr: usize,
        /// Number of bytes.
        len: usize,
    },
    /// The region is not the client's at the moment.
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
    /// There is too little free memory for replacing granules that are stored into while their output is pending.
    #[error(
        "{asked} bytes more must be free to replace granules that are stored into while their output is pending, and \
         {free} are; free buffers or raise the space's limit"
    )]
    Irreplaceable {
        /// Bytes that have to be free, in whole granules.
        asked: usize,
        /// Bytes free, in whole granules, that are not kept for other outputs.
        free: usize,
    },
    /// A peer has described its memory wrongly, or one of its requests names memory that it has not announced.
    #[error("{len} bytes at {start:#x} of a peer's memory can't be used: {what}")]
    Announced {
        /// Where, in the peer's arena.
        start: usize,
        /// How many bytes.
        len: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A lender's pool has too few free granules.
    #[error(
        "{asked} bytes are asked for from a lender's pool of which {free} bytes are free; use the space's own memory, \
         or wait until buffers come back"
    )]
    Lender {
        /// Bytes asked for, in whole granules.
        asked: usize,
        /// Bytes free, in whole granules.
        free: usize,
    },
    /// The lender was removed, or the name is not a lender's.
    #[error("{lender} lends nothing to this space any more; connect to it again")]
    NoLender {
        /// Its name.
        lender: LenderId,
    },
    /// Lent memory is of another granule size.
    #[error("memory of {} was lent to a space of {}; both sides must use the same", lent.name(), own.name())]
    Kind {
        /// What the lent granules are.
        lent: GranuleKind,
        /// What the space's own granules are.
        own: GranuleKind,
    },
    /// There are no more addresses for lent memory.
    #[error(
        "{asked} bytes are lent, but of the addresses for lent memory only {free} are free, maybe in pieces; \
         close connections, or raise the space's limit"
    )]
    Room {
        /// Bytes lent.
        asked: usize,
        /// Bytes of addresses that are free.
        free: usize,
    },
    /// A memory object is gone, or cannot be shown.
    #[error(
        "no memory object can be shown: its lender is gone, memory of it is somebody's alone, or the bytes are in no object"
    )]
    NoObject,
    /// A child made by fork has the handle from its parent.
    #[error("this handle belongs to the process that made it; open an interface of your own after fork")]
    Inherited,
    /// The contents of a buffer are gone: a peer has taken the buffer's memory away.
    #[error(
        "a server has taken memory away that it had lent, or could store into, and with it what was there; free the buffer"
    )]
    Lost,
    /// A length of zero.
    #[error("a buffer of no bytes was asked for")]
    Empty,
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] genie_sys::Error),
}

/// Where freeing buffers would not help, only a higher limit is advised.
fn limit_met(asked: usize, used: usize, limit: usize) -> String {
    if asked > limit {
        format!(
            "{asked} bytes exceed the limit of {limit}; ask for fewer, or raise the limit (in Rust, `Config::limit`)"
        )
    } else {
        format!(
            "{asked} bytes do not fit: {used} of the limit of {limit} bytes are in use; free buffers or raise the limit \
             (in Rust, `Config::limit`)"
        )
    }
}
