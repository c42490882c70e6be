#![allow(unsafe_code, reason = "calls mmap and mremap; what may be mapped over is the caller's duty")]
//! The calls that map and move memory; they return a `Result` where the C library returns special addresses.
//!
//! Why: these calls go through the C library, so that the sanitizers, which replace its functions, know what is mapped
//! where.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::Errno;
use crate::error::last_errno;

/// What may be done with a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing: a touch is a fatal fault.
    None,
    /// Loads only.
    Read,
    /// Loads and stores.
    ReadWrite,
}

impl Access {
    pub(crate) fn bits(self) -> i32 {
        match self {
            Self::None => libc::PROT_NONE,
            Self::Read => libc::PROT_READ,
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// Where the kernel is to choose an address.
pub(crate) const ANYWHERE: *mut c_void = std::ptr::null_mut();

/// The flags of a mapping that only reserves addresses: private anonymous memory, which takes no memory until it is
/// touched.
pub(crate) const RESERVED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Maps `len` bytes at `at`, of a file from an offset on, or of no file.
///
/// # Safety
/// With MAP_FIXED, the caller owns the addresses, and no reference points there. Elsewhere the kernel chooses addresses where
/// nothing is.
pub(crate) unsafe fn map(
    at: *mut c_void,
    len: usize,
    rights: i32,
    flags: i32,
    file: Option<(BorrowedFd<'_>, usize)>,
) -> Result<*mut c_void, Errno> {
    let (descriptor, offset) = file.map_or((-1, 0), |(file, offset)| (file.as_raw_fd(), offset));
    // SAFETY: the caller's promise.
    let mapped = unsafe { libc::mmap(at, len, rights, flags, descriptor, offset as i64) };
    if mapped == libc::MAP_FAILED { Err(last_errno()) } else { Ok(mapped) }
}

/// Moves the `len` bytes mapped at `from` over what is at `to`; `flags` are added to the flags that say so.
///
/// # Safety
/// The caller owns both ranges of addresses, and no reference points to either.
pub(crate) unsafe fn move_over(
    from: *mut c_void,
    len: usize,
    to: *mut c_void,
    flags: i32,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let moved =
        unsafe { libc::mremap(from, len, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | flags, to) };
    if moved == libc::MAP_FAILED { Err(last_errno()) } else { Ok(()) }
}
