//! Objects that come from another process: what a descriptor must be to be mapped here.
//!
//! Why: a process that maps a file trusts the file: if the file shrinks, the process's next touch of it kills the process,
//! and if the file is of a user's own file system (FUSE), a touch may wait for ever.
//! How: by calls that no file system answers, until it is certain that the kernel's own memory is behind the descriptor.
//! Trust: the peer has its own descriptor of the same memory: it changes bytes at any moment, and may punch holes, which
//! read as zeros in small pages, and may raise SIGBUS in huge pages (see [`guard`](crate::guard)). A read-only descriptor
//! restricts only processes of other users: processes of the same user, and root, can open the memory again for writing.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, SealFlags};

use super::{GranuleKind, Inode, Object};
use crate::{Errno, Error, Result};

impl Object {
    /// Accepts a descriptor that a peer sent as an object: a memfd that can be read, and can neither shrink nor grow. A
    /// memfd of 4 KiB pages is taken for [`GranuleKind::Base`], though its owner may have had its pages collapsed.
    ///
    /// # Errors
    /// EINVAL: it is no memory object, lacks a seal, has granules of a size unknown here, or is empty; EBADF: it cannot
    /// be read. The descriptor is closed.
    pub fn accept(descriptor: OwnedFd) -> Result<Self> {
        let mode = access_mode(descriptor.as_fd())?;
        check_seals(descriptor.as_fd())?;
        let kind = kind_of(descriptor.as_fd())?;
        let (len, inode) = checked_len(descriptor.as_fd(), kind)?;
        let huge = if kind == GranuleKind::Huge { len } else { 0 };
        Ok(Self { descriptor, inode, kind, len, huge, is_writable: mode == OFlags::RDWR })
    }

    /// Whether the descriptor lets its holder map the memory for stores.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// A descriptor of the same memory that allows reading only, to be sent to a peer.
    ///
    /// # Errors
    /// EACCES: the object is another user's. The limit on descriptors; /proc is not mounted.
    pub fn read_only(&self) -> Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.descriptor.as_raw_fd());
        rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
            Error::new("open", format!("{path}, an object of {} bytes, for reading", self.len), errno)
                .with_remedy("mount /proc, or raise the limit on open files: `ulimit -n`")
        })
    }

    /// Another descriptor of the same memory, with the same rights.
    ///
    /// # Errors
    /// The limit on descriptors.
    pub fn duplicate(&self) -> Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(&self.descriptor, 0).map_err(|errno| {
            Error::new("fcntl(F_DUPFD_CLOEXEC)", format!("an object of {} bytes", self.len), errno)
        })
    }
}

/// How the descriptor was opened: for reading, or for both.
fn access_mode(descriptor: BorrowedFd<'_>) -> Result<OFlags> {
    let flags = rustix::fs::fcntl_getfl(descriptor)
        .map_err(|errno| Error::new("fcntl(F_GETFL)", "a peer's descriptor", errno))?;
    let mode = flags & OFlags::RWMODE;
    if mode == OFlags::WRONLY || flags.contains(OFlags::PATH) {
        return Err(Error::new("check", "a peer's descriptor, which cannot be read,", Errno::BADF)
            .with_remedy("a peer is to send descriptors that can be read"));
    }
    Ok(mode)
}

/// Only memory objects have seals at all, and the kernel reads seals without asking a file system.
fn check_seals(descriptor: BorrowedFd<'_>) -> Result<()> {
    let seals = rustix::fs::fcntl_get_seals(descriptor).map_err(|errno| {
        Error::new("fcntl(F_GET_SEALS)", "a peer's descriptor", errno)
            .with_remedy("it is no memory object; a peer is to send memfds")
    })?;
    let needed = SealFlags::SHRINK | SealFlags::GROW;
    if !seals.contains(needed) {
        let subject = format!("a peer's memory object, whose seals are {:#x},", seals.bits());
        return Err(Error::new("check", subject, Errno::INVAL).with_remedy(
            "a peer is to seal its objects against shrinking and growing before it sends them",
        ));
    }
    Ok(())
}

fn kind_of(descriptor: BorrowedFd<'_>) -> Result<GranuleKind> {
    let found = rustix::fs::fstatfs(descriptor)
        .map_err(|errno| Error::new("fstatfs", "a peer's memory object", errno))?;
    match (found.f_type, found.f_bsize as usize) {
        (libc::TMPFS_MAGIC, _) => Ok(GranuleKind::Base),
        (libc::HUGETLBFS_MAGIC, size) if size == GranuleKind::Huge.size() => Ok(GranuleKind::Huge),
        (kind, size) => {
            let subject =
                format!("a peer's memory object with pages of {size} bytes (file system {kind:#x})");
            Err(Error::new("check", subject, Errno::INVAL)
                .with_remedy("a peer is to make its objects of pages of 4 KiB or 2 MiB"))
        }
    }
}

fn checked_len(descriptor: BorrowedFd<'_>, kind: GranuleKind) -> Result<(usize, Inode)> {
    let found = rustix::fs::fstat(descriptor)
        .map_err(|errno| Error::new("fstat", "a peer's memory object", errno))?;
    let len = usize::try_from(found.st_size).unwrap_or(0);
    if len == 0 || !len.is_multiple_of(kind.size()) {
        let subject = format!("a peer's memory object of {} bytes ({})", found.st_size, kind.name());
        return Err(Error::new("check", subject, Errno::INVAL)
            .with_remedy("a peer is to make its objects of one or more whole granules"));
    }
    Ok((len, Inode::of(&found)))
}
