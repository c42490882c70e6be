//! Memory objects: sealed memfds, huge-paged where the machine allows.
//!
//! Why: a granule must have a name, (object, index), that outlives any one mapping of it, so that pages can be passed
//! between regions and processes; anonymous memory has no such name.
//! Invariants: an object's size never changes (sealed against shrinking and growing), no other seal can be put on an
//! object made here, its descriptor is not inherited by exec, and no other user can open it (mode 0600).
//! Limits: 2 MiB granules come from the machine's reserve of huge pages, and are set aside when an object is made; where
//! the reserve is empty, making an object fails with ENOMEM.
//! Source: thesis §1.1.1 (memory objects, pages); Linux memfd_create(2).

mod acceptance;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, SealFlags};
use rustix::process::Resource;

use crate::arena::set_huge_pages_aside;
use crate::{Errno, Error, Result};

/// What an object's granules are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GranuleKind {
    /// 2 MiB pages from the machine's reserve (`vm.nr_hugepages`): write protection and swaps cost next to nothing.
    Huge,
    /// 4 KiB granules that the kernel may back with transparent huge pages: fewer faults, the same granularity.
    Transparent,
    /// 4 KiB pages: works everywhere.
    Base,
}

impl GranuleKind {
    /// The granule's size in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Huge => 2 << 20,
            Self::Transparent | Self::Base => 4096,
        }
    }

    /// The kind's name, for tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Huge => "2 MiB huge pages",
            Self::Transparent => "4 KiB pages, transparent huge pages",
            Self::Base => "4 KiB pages",
        }
    }
}

/// A memfd of fixed size.
#[derive(Debug)]
pub struct Object {
    descriptor: OwnedFd,
    kind: GranuleKind,
    len: usize,
    is_writable: bool,
}

impl Object {
    /// Makes an object of `len` bytes, a multiple of the granule size. Memory is taken when the object is mapped and
    /// touched; huge pages are set aside for it now.
    ///
    /// # Errors
    /// The kernel refused a descriptor, the size or a seal, or has too few huge pages; EFBIG: files may not be so long
    /// (`ulimit -f`). Nothing is left behind.
    pub fn create(kind: GranuleKind, len: usize) -> Result<Self> {
        let subject = || format!("an object of {len} bytes ({})", kind.name());
        assert!(
            len.is_multiple_of(kind.size()) && len > 0,
            "object length {len} is no multiple of {}",
            kind.size()
        );
        // Besides the error, the kernel would send SIGXFSZ, which ends the process.
        if rustix::process::getrlimit(Resource::Fsize).current.is_some_and(|limit| len as u64 > limit) {
            return Err(Error::new("ftruncate", subject(), Errno::FBIG)
                .with_remedy("raise the limit on the length of files: `ulimit -f`"));
        }
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if kind == GranuleKind::Huge {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let descriptor = rustix::fs::memfd_create("genie", flags).map_err(|errno| {
            Error::new("memfd_create", subject(), errno)
                .with_remedy("huge pages need a kernel with CONFIG_HUGETLBFS; `genie doctor` tells")
        })?;
        rustix::fs::fchmod(&descriptor, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| Error::new("fchmod", subject(), errno))?;
        rustix::fs::ftruncate(&descriptor, len as u64)
            .map_err(|errno| Error::new("ftruncate", subject(), errno))?;
        // The last seal keeps a peer from sealing the object against its owner's stores.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&descriptor, seals)
            .map_err(|errno| Error::new("fcntl(F_ADD_SEALS)", subject(), errno))?;
        if kind == GranuleKind::Huge {
            set_huge_pages_aside(descriptor.as_fd(), len).map_err(|errno| {
                Error::new("mmap", subject(), errno).with_remedy(
                    "reserve huge pages: `sysctl vm.nr_hugepages=N`, or use 4 KiB granules; `genie doctor` tells",
                )
            })?;
        }
        Ok(Self { descriptor, kind, len, is_writable: true })
    }

    /// Has the kernel allocate all of the object's memory now, zeroed where it was not there yet, so that mapping it later
    /// takes no time for allocation.
    ///
    /// # Errors
    /// ENOMEM, ENOSPC: there is too little memory, or too few huge pages; EBADF: the descriptor is read-only.
    #[doc(alias = "fallocate")]
    pub fn allocate(&self) -> Result<()> {
        loop {
            match rustix::fs::fallocate(&self.descriptor, FallocateFlags::empty(), 0, self.len as u64) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    let subject = format!("an object of {} bytes ({})", self.len, self.kind.name());
                    return Err(Error::new("fallocate", subject, errno));
                }
            }
        }
    }

    /// What the granules are made of.
    pub fn kind(&self) -> GranuleKind {
        self.kind
    }

    /// The size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an object is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl AsFd for Object {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests;
