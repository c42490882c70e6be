//! A shared mapping of a memfd, made by bare calls, so that the tests don't rely on the code under test.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// The page size of huge-paged memory here.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// A shared mapping, populated; unmapped when dropped.
pub(crate) struct Mapping {
    addr: usize,
    len: usize,
}

impl Mapping {
    /// Maps `pages` ordinary pages.
    pub(crate) fn ordinary(pages: usize) -> Self {
        let flags = MemfdFlags::CLOEXEC;
        let object = rustix::fs::memfd_create("test", flags).expect("memfd_create");
        Self::of(&object, pages * rustix::param::page_size()).expect("mmap")
    }

    /// Maps `pages` pages of 2 MiB; none where the machine has no free ones.
    pub(crate) fn huge(pages: usize) -> Option<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let object = rustix::fs::memfd_create("test", flags).ok()?;
        Self::of(&object, pages * HUGE_PAGE).ok()
    }

    /// Sizes and maps a memory object; asks for its pages at once, since touching a huge page that is lacking would
    /// otherwise raise SIGBUS.
    fn of(object: &OwnedFd, len: usize) -> rustix::io::Result<Self> {
        rustix::fs::ftruncate(object, len as u64)?;
        rustix::fs::fallocate(object, rustix::fs::FallocateFlags::empty(), 0, len as u64)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel finds room overlaps no other.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                rights,
                MapFlags::SHARED | MapFlags::POPULATE,
                object,
                0,
            )?
        };
        Ok(Self { addr: start as usize, len })
    }

    /// Where it begins.
    pub(crate) fn addr(&self) -> usize {
        self.addr
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Stores a word.
    pub(crate) fn store(&self, offset: usize, value: u32) {
        self.word(offset).store(value, Ordering::SeqCst);
    }

    /// Loads a word.
    pub(crate) fn load(&self, offset: usize) -> u32 {
        self.word(offset).load(Ordering::SeqCst)
    }

    /// Lets the kernel write one byte from a pipe into the memory.
    pub(crate) fn kernel_write(&self, offset: usize, value: u8) -> rustix::io::Result<usize> {
        assert!(offset < self.len);
        let (out, into) = rustix::pipe::pipe()?;
        rustix::io::write(&into, &[value])?;
        let target = std::ptr::with_exposed_provenance_mut::<u8>(self.addr + offset);
        // SAFETY: the byte lies in the mapping, checked above, and is only ever used by atomic words and the kernel.
        let target = unsafe { std::slice::from_raw_parts_mut(target.cast::<std::mem::MaybeUninit<u8>>(), 1) };
        rustix::io::read(&out, target).map(|(filled, _)| filled.len())
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        let word = std::ptr::with_exposed_provenance_mut(self.addr + offset);
        // SAFETY: the word is aligned and inside the mapping, checked above, which lives as long as the borrow.
        unsafe { AtomicU32::from_ptr(word) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `of`, and words are borrowed no longer than this value.
        let result =
            unsafe { rustix::mm::munmap(std::ptr::with_exposed_provenance_mut(self.addr), self.len) };
        assert_eq!(result, Ok(()));
    }
}
