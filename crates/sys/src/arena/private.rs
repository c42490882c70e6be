#![allow(unsafe_code, reason = "maps new memory; moving and unmapping it is the caller's duty")]
//! Private memory outside any arena, which a forked child inherits.

use super::{Arena, done};
use crate::mmap::{self, ANYWHERE, Access};
use crate::{Error, Result};

/// Maps `len` bytes of private, zeroed memory, which a forked child inherits.
///
/// # Errors
/// No memory.
pub fn map_private(len: usize) -> Result<*mut u8> {
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    unsafe {
        mmap::map(ANYWHERE, len, Access::ReadWrite.bits(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None)
    }
    .map(<*mut _>::cast)
    .map_err(|errno| Error::new("mmap", format!("{len} bytes of private memory"), errno))
}

/// Moves private memory to an address at which nothing is mapped, with a system call only.
///
/// # Errors
/// The kernel's; the memory is where it was.
///
/// # Safety
/// `from` was returned by [`map_private`] for `len` bytes, and no reference points there or to what is at `to`.
pub unsafe fn move_private(from: *mut u8, len: usize, to: *mut u8) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { mmap::move_over(from.cast(), len, to.cast(), 0) }
        .map_err(|errno| Error::new("mremap", "private memory", errno))
}

/// Unmaps private memory.
///
/// # Safety
/// `addr` was returned by [`map_private`] for `len` bytes, was not moved, and no reference points there.
pub unsafe fn unmap_private(addr: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(addr.cast(), len) };
}

impl Arena {
    /// In a child made by fork: frees the child's own memory in whole pages of the arena, which read as zeros from then on.
    ///
    /// # Panics
    /// In the process that has made the arena.
    ///
    /// # Errors
    /// The kernel's, for a range that is not mapped.
    pub fn free_private(&self, offset: usize, len: usize) -> Result<()> {
        assert!(!self.placed.is_own(), "only a child has private memory in an arena");
        self.check(offset, len);
        // SAFETY: in a child, the arena holds private memory only (`fork`), whose owner gives these pages up.
        let result = unsafe { libc::madvise(self.pointer(offset), len, libc::MADV_DONTNEED) };
        done(result, "madvise(MADV_DONTNEED)", len, None)
    }
}
