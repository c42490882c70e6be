//! Memory objects: sealed memfds, huge-paged where the machine allows.
//!
//! Why: a granule must have a name, (object, index), that outlives any one mapping of it, so that pages can be passed
//! between regions and processes; anonymous memory has no such name.
//! Invariants: an object's size never changes (sealed against shrinking and growing), no other seal can be put on an
//! object made here, its descriptor is not inherited by exec, and no other user can open it (mode 0600).
//! Limits: reserved huge pages are set aside when an object is made; where the reserve is empty, making an object of them
//! fails with ENOMEM. Pages are collapsed to huge ones, likewise, when an object is made, and only then. Memory that is taken
//! at once is first looked for in the process's cgroup, which would kill the process and not refuse (`cgroup`).
//! Source: thesis §1.1.1 (memory objects, pages); Linux memfd_create(2), madvise(2).

mod acceptance;
mod taking;

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, SealFlags, SeekFrom};
use rustix::process::Resource;

use crate::{Access, Arena, Errno, Error, GranuleKind, Result, cgroup};
use taking::{set_huge_pages_aside, touch};

/// The unit in which the kernel tells how much memory an object has.
const BLOCK: usize = 512;

/// A memfd of fixed size.
#[derive(Debug)]
pub struct Object {
    descriptor: OwnedFd,
    inode: Inode,
    kind: GranuleKind,
    len: usize,
    huge: usize,
    is_writable: bool,
}

/// Which memory object it is, as the kernel tells objects apart: by the same numbers in each process, and in `/proc/PID/maps`. While
/// somebody has an object open or mapped, no other one has its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    /// The file system's number, as `stat` has it in `st_dev`.
    pub device: u64,
    /// The number within the file system: `st_ino`.
    pub number: u64,
}

impl Inode {
    fn of(found: &rustix::fs::Stat) -> Self {
        Self { device: found.st_dev, number: found.st_ino }
    }
}

impl Object {
    /// Makes an object of `len` bytes, a multiple of the granule size. Memory is taken when the object is mapped and
    /// touched; but reserved huge pages are set aside now, and pages that are to be collapsed are all taken now.
    ///
    /// # Errors
    /// The kernel refused a descriptor, the size, a seal or memory, or has too few huge pages; EFBIG: files may not be
    /// so long (`ulimit -f`). Nothing is left behind. It is no error that pages could not be collapsed:
    /// [`Object::huge_bytes`] tells.
    ///
    /// # Cost
    /// Collapsing takes some 1 ms for each MiB, and several times that while the kernel has to free memory for huge pages.
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
            let error = Error::new("memfd_create", subject(), errno);
            match unmade(kind, errno) {
                Some(remedy) => error.with_remedy(remedy),
                None => error,
            }
        })?;
        rustix::fs::fchmod(&descriptor, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| Error::new("fchmod", subject(), errno))?;
        rustix::fs::ftruncate(&descriptor, len as u64)
            .map_err(|errno| Error::new("ftruncate", subject(), errno))?;
        // The last seal keeps a peer from sealing the object against its owner's stores.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&descriptor, seals)
            .map_err(|errno| Error::new("fcntl(F_ADD_SEALS)", subject(), errno))?;
        let found = rustix::fs::fstat(&descriptor).map_err(|errno| Error::new("fstat", subject(), errno))?;
        let inode = Inode::of(&found);
        if kind == GranuleKind::Huge {
            set_huge_pages_aside(descriptor.as_fd(), len).map_err(|errno| {
                Error::new("mmap", subject(), errno).with_remedy(
                    "reserve huge pages: `sysctl vm.nr_hugepages=N`, or use 4 KiB granules; `genie doctor` tells",
                )
            })?;
        }
        let mut object = Self { descriptor, inode, kind, len, huge: 0, is_writable: true };
        object.huge = match kind {
            GranuleKind::Huge => len,
            GranuleKind::Collapsed => object.collapse()?,
            GranuleKind::Base => 0,
        };
        Ok(object)
    }

    /// Takes memory for all granules, and has the kernel collapse the pages of each; returns how many bytes are of huge
    /// pages then.
    ///
    /// The kernel collapses no holes, and granule after granule is done while its pages are in the CPU's cache. A kernel
    /// that cannot collapse shared memory at all is asked once.
    fn collapse(&self) -> Result<usize> {
        self.ensure_room()?;
        let granule = self.kind.size();
        let arena = Arena::reserve(self.len)?;
        arena.map_for(0, self, 0, self.len, Access::None)?;
        let (mut collapsed, mut can) = (0, true);
        for at in (0..self.len).step_by(granule) {
            self.allocate_part(at, granule)?;
            match can.then(|| arena.collapse(at, granule)) {
                Some(Ok(())) => collapsed += granule,
                Some(Err(error)) => can = error.errno != Errno::INVAL,
                None => {}
            }
        }
        Ok(collapsed)
    }

    /// Has the kernel allocate all of the object's memory now, zeroed where it was not there yet, so that mapping it later
    /// takes no time for allocation.
    ///
    /// # Errors
    /// ENOMEM, ENOSPC: there is too little memory, or too few huge pages; ENOMEM of an *allocation*: the process's cgroup has
    /// too little room, and nothing was taken; EBADF: the descriptor is read-only.
    #[doc(alias = "fallocate")]
    pub fn allocate(&self) -> Result<()> {
        self.ensure_room()?;
        self.allocate_part(0, self.len)
    }

    /// Makes sure that the process's cgroup has room for what the object lacks.
    fn ensure_room(&self) -> Result<()> {
        // Pages of the reserve are not counted as the cgroup's memory.
        if self.kind == GranuleKind::Huge {
            return Ok(());
        }
        cgroup::ensure_room(self.len.saturating_sub(self.taken()?))
    }

    fn allocate_part(&self, offset: usize, len: usize) -> Result<()> {
        let failed = |call, errno| {
            Error::new(call, format!("an object of {} bytes ({})", self.len, self.kind.name()), errno)
        };
        let allocate =
            || rustix::fs::fallocate(&self.descriptor, FallocateFlags::empty(), offset as u64, len as u64);
        match rustix::io::retry_on_intr(allocate) {
            Ok(()) => Ok(()),
            // A system call filter refuses it. Pages that touching does not get are got when they are used.
            Err(Errno::PERM | Errno::NOSYS | Errno::ACCESS) => {
                touch(self.as_fd(), offset, len).map_err(|errno| failed("mmap", errno))
            }
            Err(errno) => Err(failed("fallocate", errno)),
        }
    }

    /// How many bytes of memory it has.
    fn taken(&self) -> Result<usize> {
        let found = rustix::fs::fstat(&self.descriptor)
            .map_err(|errno| Error::new("fstat", format!("an object of {} bytes", self.len), errno))?;
        Ok(found.st_blocks as usize * BLOCK)
    }

    /// Gives all of the object's memory back: whoever has it mapped reads zeros from then on.
    ///
    /// # Errors
    /// EPERM: it is sealed against stores; EBADF: the descriptor is read-only.
    #[doc(alias = "FALLOC_FL_PUNCH_HOLE")]
    pub fn discard(&self) -> Result<()> {
        self.discard_part(0, self.len)
    }

    /// As [`Object::discard`], of `len` bytes from `offset` on. Of pages that do not lie there whole, the bytes that do become
    /// zeros.
    ///
    /// # Errors
    /// As [`Object::discard`].
    pub fn discard_part(&self, offset: usize, len: usize) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.descriptor, flags, offset as u64, len as u64).map_err(|errno| {
            let subject = format!("{len} bytes of an object of {} to be emptied", self.len);
            Error::new("fallocate", subject, errno)
        })
    }

    /// The next bytes of the object from `start` on, and before `end`, that may be other than zeros. All bytes between
    /// are in places that nobody has touched.
    #[doc(alias = "SEEK_DATA")]
    pub fn touched(&self, start: usize, end: usize) -> Option<Range<usize>> {
        let seek = |to| rustix::fs::seek(&self.descriptor, to).map(|at| (at as usize).min(end));
        let from = match seek(SeekFrom::Data(start as u64)) {
            Err(Errno::NXIO) => end,
            found => found.unwrap_or(start),
        };
        let to = seek(SeekFrom::Hole(from as u64)).unwrap_or(end);
        (from < end).then_some(from..to)
    }

    /// Which object it is. Other descriptors of the same memory, in whatever process, have the same inode.
    pub fn inode(&self) -> Inode {
        self.inode
    }

    /// What the granules are made of.
    pub fn kind(&self) -> GranuleKind {
        self.kind
    }

    /// How many of its bytes were in huge pages when it was made: all of an object of reserved ones, none of a peer's
    /// object of other pages.
    pub fn huge_bytes(&self) -> usize {
        self.huge
    }

    /// The size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an object is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// What to do where no memory object can be made.
fn unmade(kind: GranuleKind, errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::PERM | Errno::NOSYS | Errno::ACCESS => Some(
            "a system call filter refuses it: allow memfd_create in the container's seccomp profile; no other memory can be \
             sealed, and so be shown to another process",
        ),
        _ if kind == GranuleKind::Huge => {
            Some("huge pages need a kernel with CONFIG_HUGETLBFS; `genie doctor` tells")
        }
        _ => None,
    }
}

impl AsFd for Object {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests;
