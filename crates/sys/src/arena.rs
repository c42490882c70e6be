//! Arenas: ranges of addresses that stay ours, into which granules of objects are mapped and moved.
#![allow(
    unsafe_code,
    reason = "maps, moves and protects only inside ranges that the arena reserved for itself"
)]
//!
//! Why: a mapping that is unmapped leaves a hole into which any thread's next mmap may fall; mapping over that hole
//! would then destroy a stranger's memory. An arena reserves its addresses once and replaces mappings in place, so that
//! there never is a hole.
//! How: reserve = an inaccessible anonymous mapping; every later mapping is MAP_FIXED over a part of it, and a part
//! that is given up becomes a reservation again.
//! Invariants: each address of the arena is mapped at every moment, be it inaccessibly, until the arena is dropped.
//! No mapping in an arena is inherited by fork (MADV_DONTFORK): a child has zeros there (see [`fork`](crate::fork)).
//! Limits: each change of (object, offset) along the addresses is a mapping of its own; the kernel's limit is
//! vm.max_map_count, at which calls fail with ENOMEM and leave the old mapping intact.

mod placement;
mod private;

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError, Weak};

use rustix::io::Errno;

use crate::fork::Placed;
use crate::guard::{Guard, Registration, Replaces};
use crate::{Error, GranuleKind, Object, Result, Span};

pub use private::{map_private, move_private, unmap_private};

/// Alignment of an arena's base: a huge page, so that page tables can be moved whole.
const ALIGN: usize = 2 << 20;

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
    fn bits(self) -> i32 {
        match self {
            Self::None => libc::PROT_NONE,
            Self::Read => libc::PROT_READ,
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// What [`Arena::exchange`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchanged {
    /// Each range shows what the other one showed.
    Both,
    /// The first range shows what the second one showed; of the second nothing is known, and it should be given up.
    FirstOnly,
}

/// A reserved range of addresses.
#[derive(Debug)]
pub struct Arena {
    base: usize,
    len: usize,
    reservation: (usize, usize),
    /// Tells children made by fork where to map zeros.
    placed: Placed,
    guard: Mutex<Weak<Registration>>,
}

impl Arena {
    /// Reserves `len` bytes of addresses, aligned to 2 MiB. No memory is used.
    ///
    /// # Errors
    /// The address space is limited (`ulimit -v`), or never that large.
    pub fn reserve(len: usize) -> Result<Self> {
        let too_long = || Error::new("mmap", format!("{len} bytes of addresses"), Errno::NOMEM);
        let len = len.checked_next_multiple_of(ALIGN).ok_or_else(too_long)?;
        let whole = len.checked_add(ALIGN).ok_or_else(too_long)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                whole,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Error::new("mmap", format!("{whole} bytes of addresses"), last_errno())
                .with_remedy("raise `ulimit -v` or ask for a lower memory limit"));
        }
        let start = start as usize;
        Self::of_reservation(start.next_multiple_of(ALIGN), len, (start, whole))
    }

    /// Takes what was reserved, (address, length), for an arena.
    fn of_reservation(base: usize, len: usize, reservation: (usize, usize)) -> Result<Self> {
        let placed = Placed::new(base, len);
        let arena = Self { base, len, reservation, placed, guard: Mutex::default() };
        arena.dont_fork(0, len)?;
        Ok(arena)
    }

    /// The first address.
    pub fn base(&self) -> usize {
        self.base
    }

    /// The length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an arena is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where `addr` lies in the arena, if it does.
    pub fn offset_of(&self, addr: usize) -> Option<usize> {
        addr.checked_sub(self.base).filter(|offset| *offset < self.len)
    }

    /// Maps `len` bytes of `object` from `object_offset` on at `offset`, in place of what is there, with page tables
    /// filled so that no touch faults.
    ///
    /// Cost: one or two system calls; for huge pages about a microsecond a granule, for 4 KiB pages a minor fault each.
    ///
    /// # Errors
    /// Too many mappings or no memory; what was mapped there before still is.
    pub fn map(&self, offset: usize, object: &Object, object_offset: usize, len: usize) -> Result<()> {
        self.map_for(offset, object, object_offset, len, Access::ReadWrite)
    }

    /// As [`Arena::map`], with the access given. A descriptor that can only be read can be mapped for loads only. Granules
    /// that the object's owner has never touched get memory now.
    ///
    /// # Errors
    /// As [`Arena::map`]; EACCES: the object's descriptor does not allow stores; EPERM: it is sealed against them.
    pub fn map_for(
        &self,
        offset: usize,
        object: &Object,
        object_offset: usize,
        len: usize,
        access: Access,
    ) -> Result<()> {
        self.check(offset, len);
        assert!(
            object_offset.checked_add(len).is_some_and(|end| end <= object.len()),
            "mapping beyond the object's end"
        );
        let transparent = object.kind() == GranuleKind::Transparent;
        let populate = if transparent || access == Access::None { 0 } else { libc::MAP_POPULATE };
        let at = self.pointer(offset);
        // SAFETY: the range lies inside this arena (checked above), whose addresses belong to it alone; what Rust
        // references exist into it is the duty of the caller of `span`.
        let mapped = unsafe {
            libc::mmap(
                at,
                len,
                access.bits(),
                libc::MAP_SHARED | libc::MAP_FIXED | populate,
                object.as_fd().as_raw_fd(),
                object_offset as i64,
            )
        };
        if mapped == libc::MAP_FAILED {
            let error = Error::new("mmap", format!("{len} bytes of an object"), last_errno());
            return Err(match error.errno {
                Errno::ACCESS | Errno::PERM => error.with_remedy("its owner allows loads only"),
                _ => error.with_remedy("free memory or raise vm.max_map_count"),
            });
        }
        self.dont_fork(offset, len)?;
        if transparent {
            self.populate_transparently(offset, len, access)?;
        }
        Ok(())
    }

    /// Gives the range back to the reservation: inaccessible and without memory.
    ///
    /// # Errors
    /// Too many mappings; the old mapping is intact.
    pub fn unmap(&self, offset: usize, len: usize) -> Result<()> {
        self.check(offset, len);
        // SAFETY: as in `map`.
        let mapped = unsafe {
            libc::mmap(
                self.pointer(offset),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(Error::new("mmap", format!("{len} bytes to be reserved again"), last_errno()));
        }
        self.dont_fork(offset, len)
    }

    /// Exchanges the page tables, and with them the granules, of the ranges at `a` and `b`, through the range at
    /// `scratch`; all three are `len` bytes long and do not overlap. No address is unmapped at any moment: a load from
    /// `a` meanwhile finds either its old or its new bytes.
    ///
    /// Both ranges must be mappings of objects with small pages; the kernel refuses to do this to huge-paged ones,
    /// for which [`Arena::map`] is as fast. A registration with a userfaultfd is lost.
    ///
    /// # Errors
    /// [`Errno::FAULT`] when a range spans several mappings, which Linux up to 6.16 cannot move; ENOMEM at the limit of
    /// mappings. Both ranges show what they showed before.
    pub fn exchange(&self, a: usize, b: usize, scratch: usize, len: usize) -> Result<Exchanged> {
        for offset in [a, b, scratch] {
            self.check(offset, len);
        }
        self.move_tables(a, scratch, len)?;
        if let Err(error) = self.move_tables(b, a, len) {
            // A kernel that moves several mappings may have moved some of them.
            self.move_tables(scratch, a, len)?;
            return Err(error);
        }
        Ok(self.move_tables(scratch, b, len).map_or(Exchanged::FirstOnly, |()| Exchanged::Both))
    }

    /// Moves the page tables at `from` over those at `to`; `from` stays mapped, its page tables empty: a touch there
    /// fills them again, from the same object.
    fn move_tables(&self, from: usize, to: usize, len: usize) -> Result<()> {
        // SAFETY: both ranges lie inside this arena (checked by `exchange`). MREMAP_DONTUNMAP keeps `from` mapped.
        let moved = unsafe {
            libc::mremap(
                self.pointer(from),
                len,
                len,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP,
                self.pointer(to),
            )
        };
        if moved == libc::MAP_FAILED {
            return Err(Error::new("mremap", format!("{len} bytes of page tables"), last_errno()));
        }
        Ok(())
    }

    /// Changes what may be done with the range.
    ///
    /// # Errors
    /// Too many mappings; nothing has changed, or only a first part of the range has.
    pub fn protect(&self, offset: usize, len: usize, access: Access) -> Result<()> {
        self.check(offset, len);
        // SAFETY: as in `map`; taking access away makes a stray touch fault, which is what is asked for.
        let result = unsafe { libc::mprotect(self.pointer(offset), len, access.bits()) };
        self.done(result, "mprotect", len, None)
    }

    /// Wires the range: its memory stays resident.
    ///
    /// # Errors
    /// The memory-lock limit is too low; nothing is wired.
    pub fn lock(&self, offset: usize, len: usize) -> Result<()> {
        self.check(offset, len);
        // SAFETY: wiring changes no contents.
        let result = unsafe { libc::mlock(self.pointer(offset), len) };
        self.done(
            result,
            "mlock",
            len,
            Some("raise the memory-lock limit: `ulimit -l unlimited`, or limits.conf"),
        )
    }

    /// Unwires the range.
    ///
    /// # Errors
    /// The kernel's, for a range that is not mapped.
    pub fn unlock(&self, offset: usize, len: usize) -> Result<()> {
        self.check(offset, len);
        // SAFETY: unwiring changes no contents.
        let result = unsafe { libc::munlock(self.pointer(offset), len) };
        self.done(result, "munlock", len, None)
    }

    /// The range as raw memory.
    ///
    /// # Safety
    /// The range must stay mapped accessibly, and the arena must exist, while the span or a copy of it is used; and
    /// whoever holds Rust references into the range must not be broken by what is done through the span.
    pub unsafe fn span(&self, offset: usize, len: usize) -> Span {
        self.check(offset, len);
        // SAFETY: inside the arena; the rest is the caller's duty.
        unsafe { Span::new(self.pointer(offset).cast(), len) }
    }

    /// Guards the arena: from now on, a touch of a page of it whose memory is lost as `replaces` says reads zeros, and breaks
    /// the guard, instead of killing the process. A second guard of the same arena is the same one.
    ///
    /// The guard ends with the last of its handles, or with the arena.
    ///
    /// # Errors
    /// ENOSPC: too many arenas are guarded (see [`guard`](crate::guard)).
    pub fn guard(&self, replaces: Replaces) -> Result<Guard> {
        let mut held = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(registration) = held.upgrade() {
            return Ok(Guard::of(registration));
        }
        let guard = Guard::of(Registration::new(self.base, self.len, replaces)?);
        *held = guard.registration();
        Ok(guard)
    }

    fn pointer(&self, offset: usize) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.base + offset)
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "range {offset:#x}+{len:#x} leaves the arena of {:#x} bytes",
            self.len
        );
    }

    fn dont_fork(&self, offset: usize, len: usize) -> Result<()> {
        self.advise(offset, len, libc::MADV_DONTFORK, "madvise(MADV_DONTFORK)")
    }

    fn populate_transparently(&self, offset: usize, len: usize, access: Access) -> Result<()> {
        // The advice fails on kernels without transparent huge pages, where it is not needed either.
        let _ = self.advise(offset, len, libc::MADV_HUGEPAGE, "madvise(MADV_HUGEPAGE)");
        match access {
            Access::None => Ok(()),
            Access::Read => self.advise(offset, len, libc::MADV_POPULATE_READ, "madvise(MADV_POPULATE_READ)"),
            Access::ReadWrite => {
                self.advise(offset, len, libc::MADV_POPULATE_WRITE, "madvise(MADV_POPULATE_WRITE)")
            }
        }
    }

    fn advise(&self, offset: usize, len: usize, advice: i32, call: &'static str) -> Result<()> {
        // SAFETY: the advices used (DONTFORK, HUGEPAGE, POPULATE_READ and _WRITE) change no contents.
        let result = unsafe { libc::madvise(self.pointer(offset), len, advice) };
        self.done(result, call, len, None)
    }

    fn done(&self, result: i32, call: &'static str, len: usize, remedy: Option<&'static str>) -> Result<()> {
        if result == 0 {
            return Ok(());
        }
        Err(Error { remedy, ..Error::new(call, format!("{len} bytes"), last_errno()) })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // A child keeps its zeros: what was made of the arena may be there longer than this copy of it.
        if !self.placed.is_own() {
            return;
        }
        // Others may map at these addresses from here on.
        let guard = self.guard.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(registration) = guard.upgrade() {
            registration.retire();
        }
        let (start, len) = self.reservation;
        // SAFETY: the arena owns the whole reservation; `span` obliges its callers not to outlive it.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start), len) };
    }
}

/// Sets aside, for as long as the object exists, the huge pages that its `len` bytes need.
///
/// Mapping over a reservation would do that as well; but where it fails, the kernel has unmapped what was there.
pub(crate) fn set_huge_pages_aside(object: BorrowedFd<'_>, len: usize) -> std::result::Result<(), Errno> {
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists; nobody uses it before it
    // is unmapped.
    unsafe {
        let mapped =
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, libc::MAP_SHARED, object.as_raw_fd(), 0);
        if mapped == libc::MAP_FAILED {
            return Err(last_errno());
        }
        libc::munmap(mapped, len);
    }
    Ok(())
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests;
