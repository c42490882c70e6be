#![allow(
    unsafe_code,
    reason = "maps objects where nothing is, and unmaps them before anybody uses the mapping"
)]
//! Taking memory for an object by mapping it for a moment.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::mmap::{self, ANYWHERE, Access};

/// Has the kernel allocate the memory of a part of an object by touching each page of it. Where there is too little memory, some
/// pages stay without: the kernel says nothing.
pub(super) fn touch(object: BorrowedFd<'_>, offset: usize, len: usize) -> Result<(), Errno> {
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists; nobody uses it before it
    // is unmapped.
    unsafe {
        let mapped = mmap::map(ANYWHERE, len, Access::ReadWrite.bits(), flags, Some((object, offset)))?;
        libc::munmap(mapped, len);
    }
    Ok(())
}

/// Sets aside, for as long as the object exists, the huge pages that its `len` bytes need.
///
/// Mapping over a reservation would set them aside as well; but where that fails, the kernel has unmapped what was
/// there.
pub(super) fn set_huge_pages_aside(object: BorrowedFd<'_>, len: usize) -> Result<(), Errno> {
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists; nobody uses it before it
    // is unmapped.
    unsafe {
        let mapped = mmap::map(ANYWHERE, len, libc::PROT_NONE, libc::MAP_SHARED, Some((object, 0)))?;
        libc::munmap(mapped, len);
    }
    Ok(())
}
