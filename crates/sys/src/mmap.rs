#![allow(unsafe_code, reason = "calls mmap and mremap; what may be mapped over is the caller's duty")]
//! The calls that map and move memory; they return a `Result` where the C library returns special addresses.
//!
//! Why: these calls go through the C library, so that the sanitizers, which replace its functions, know what is mapped
//! where.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::Errno;
use crate::error::last_errno;
use crate::fork::Maker;

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

/// A shared mapping of what a descriptor of the kernel's offers: rings, or a map's bytes. It is unmapped when it is dropped. A child made by
/// fork has nothing there: the bytes would be both processes'.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: *mut c_void,
    len: usize,
    maker: Maker,
}

// SAFETY: memory at an address that does not depend on the thread; what is there is reached by atomics, or by unsafe code.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `offset` on.
    pub(crate) fn new(descriptor: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, Errno> {
        let (flags, offset) = (libc::MAP_SHARED | libc::MAP_POPULATE, offset as usize);
        // SAFETY: the kernel chooses addresses where nothing is.
        let start =
            unsafe { map(ANYWHERE, len, Access::ReadWrite.bits(), flags, Some((descriptor, offset))) }?;
        let mapping = Self { start, len, maker: Maker::this_process() };
        // SAFETY: only a child has no memory there, whose owners do not use it in one.
        let kept = unsafe { libc::madvise(start, len, libc::MADV_DONTFORK) };
        if kept < 0 { Err(last_errno()) } else { Ok(mapping) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address `offset` bytes from the beginning on, at which there are `len` bytes more.
    ///
    /// # Panics
    /// When there are fewer.
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut c_void {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(is_inside, "{len} bytes at {offset} of a mapping of {}", self.len);
        self.start.wrapping_byte_add(offset)
    }

    /// `count` numbers from `offset` on, which the kernel loads and stores at any moment.
    pub(crate) fn entries<T: Atomic>(&self, offset: usize, count: usize) -> &[T] {
        let start = self.at(offset, count * size_of::<T>()).cast::<T>();
        assert!(start.is_aligned(), "numbers at {offset} of a mapping");
        // SAFETY: inside the mapping, which stays as long as `self`; any bits are a number, and all references to these bytes are to atomics.
        unsafe { std::slice::from_raw_parts(start, count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a child, something else may be mapped at the addresses.
        if self.maker.is_this_process() {
            // SAFETY: mapped by `new`, and borrowed by nobody any more.
            unsafe { libc::munmap(self.start, self.len) };
        }
    }
}

/// Numbers that another party may change.
///
/// # Safety
/// An atomic integer.
pub(crate) unsafe trait Atomic {}

// SAFETY: it is one.
unsafe impl Atomic for std::sync::atomic::AtomicU8 {}
// SAFETY: it is one.
unsafe impl Atomic for std::sync::atomic::AtomicU32 {}
// SAFETY: it is one.
unsafe impl Atomic for std::sync::atomic::AtomicU64 {}
