//! Sharing: the one file of this crate with unsafe code, which shares memory with other processes.
//!
//! Why it is sound: what another process may store into is memory that it has lent, or that a request of the interface names
//! for it; and a descriptor goes to that process alone.
#![allow(unsafe_code, reason = "other processes store into the memory that is shared with them")]

use std::os::fd::OwnedFd;

use genie_memory::{LenderId, ObjectId, Space};
use genie_sys::Object;

/// Takes in an object that a server in another process lends.
pub(crate) fn lend(space: &Space, lender: LenderId, object: Object) -> genie_memory::Result<()> {
    // SAFETY: the lender stores into it where a request of this space says so; the descriptor came over a socket, and
    // this process has no other use for it.
    unsafe { space.lend(lender, object) }
}

/// A descriptor of one of a space's objects, for a server in another process; read-only unless it `writes`.
pub(crate) fn share(space: &Space, id: ObjectId, writes: bool) -> genie_memory::Result<OwnedFd> {
    match writes {
        // SAFETY: the descriptor is sent over a socket and closed.
        true => unsafe { space.share_writable(id) },
        false => space.share(id),
    }
}
