//! Arenas: ranges of addresses that stay ours, into which granules of objects are mapped and moved.
#![allow(
    unsafe_code,
    reason = "maps, moves and protects only inside ranges that the arena reserved for itself"
)]
//!
//! Why: a mapping that is unmapped leaves a hole into which any thread's next mmap may fall; mapping over that hole
//! would then destroy another thread's memory. An arena reserves its addresses once and replaces mappings in place, so
//! that there is never a hole.
//! How: reserve = an inaccessible anonymous mapping; every later mapping is MAP_FIXED over a part of it, and a part
//! that is given up becomes a reservation again.
//! Invariants: until the arena is dropped, each of its addresses is mapped at every moment, even if it is inaccessible.
//! No mapping in an arena is inherited by fork (MADV_DONTFORK): a child has zeros there (see [`fork`](crate::fork)). Where a
//! system call filter refuses that advice, children inherit the mappings, and `fork` maps zeros over them; a child that a bare
//! `clone` makes would see, and could change, its parent's memory.
//! Limits: each change of (object, offset) along the addresses is a mapping of its own; the kernel's limit is
//! vm.max_map_count, at which calls fail with ENOMEM and leave the old mapping intact. Where a huge-paged object has lost
//! pages to a hole that a peer punched, mmap over a range fails after it has unmapped the range; and so does mremap, up to Linux
//! 6.16, where it finds that it cannot move page tables. A few instructions later the range is reserved again; before that,
//! another thread's mmap may take its addresses.

mod placement;
mod private;

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::sync::Weak;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::fork::Placed;
use crate::guard::{Guard, Registration, Replaces};
use crate::lock::Mutex;
use crate::mmap::{self, ANYWHERE, RESERVED};
use crate::{Error, GranuleKind, Object, Result, Span};

pub use crate::mmap::Access;
pub use private::{map_private, move_private, unmap_private};

/// Alignment of an arena's base: a huge page, so that page tables can be moved whole.
const ALIGN: usize = 2 << 20;

/// What [`Arena::swap`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swapped {
    /// Each range shows what the other one showed.
    Both,
    /// The first range shows what the second one showed; what the second range shows is unknown, and it should be given
    /// up.
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
        let start = unsafe { mmap::map(ANYWHERE, whole, libc::PROT_NONE, RESERVED, None) };
        let start = start.map_err(|errno| {
            Error::new("mmap", format!("{whole} bytes of addresses"), errno)
                .with_remedy("raise `ulimit -v` or ask for a lower memory limit")
        })? as usize;
        Ok(Self::of_reservation(start.next_multiple_of(ALIGN), len, (start, whole)))
    }

    /// Makes an arena of reserved addresses: (address, length).
    fn of_reservation(base: usize, len: usize, reservation: (usize, usize)) -> Self {
        let placed = Placed::new(base, len);
        let arena = Self { base, len, reservation, placed, guard: Mutex::default() };
        arena.dont_fork(0, len);
        arena
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

    /// Maps `len` bytes of `object` from `object_offset` on at `offset`, in place of what is there. Where there is
    /// memory, page tables are filled, so that no touch faults. Collapsed pages are shown as huge ones if the range is
    /// aligned as it is in the object.
    ///
    /// Cost: one or two system calls; for huge pages about a microsecond a granule, for 4 KiB pages a minor fault each.
    ///
    /// # Errors
    /// Too many mappings or no memory. What was mapped there before still is, unless the object is of huge pages and a
    /// peer has punched holes into it and taken the pages: the kernel then unmaps first, and the range is inaccessible.
    pub fn map(&self, offset: usize, object: &Object, object_offset: usize, len: usize) -> Result<()> {
        self.map_in_place(offset, object, object_offset, len, Access::ReadWrite)
    }

    fn map_in_place(
        &self,
        offset: usize,
        object: &Object,
        object_offset: usize,
        len: usize,
        access: Access,
    ) -> Result<()> {
        self.check_mapping(offset, object, object_offset, len);
        let at = self.pointer(offset);
        // SAFETY: the range lies inside this arena (checked above), whose addresses belong to it alone; what Rust
        // references exist into it is the duty of the code that made them.
        unsafe { map_object(at, libc::MAP_FIXED, object, object_offset, len, access) }
            .inspect_err(|_| self.fill_hole(offset, len))?;
        self.dont_fork(offset, len);
        Ok(())
    }

    /// As [`Arena::map`], but leaves the page tables empty: the object gets memory where it is touched.
    ///
    /// Cost: two system calls; later a fault for each page touched.
    ///
    /// # Errors
    /// As [`Arena::map`].
    pub fn map_unfilled(
        &self,
        offset: usize,
        object: &Object,
        object_offset: usize,
        len: usize,
    ) -> Result<()> {
        self.check_mapping(offset, object, object_offset, len);
        let (at, flags) = (self.pointer(offset), libc::MAP_SHARED | libc::MAP_FIXED);
        let rights = Access::ReadWrite.bits();
        // SAFETY: as in `map`.
        unsafe { mmap::map(at, len, rights, flags, Some((object.as_fd(), object_offset))) }.map_err(
            |errno| {
                self.fill_hole(offset, len);
                Error::new("mmap", format!("{len} bytes of an object"), errno).with_remedy(remedy())
            },
        )?;
        self.dont_fork(offset, len);
        Ok(())
    }

    /// As [`Arena::map`], with the access given, and for a peer's objects. A read-only descriptor can be mapped for loads
    /// only. Granules that the object's owner has never touched get memory now.
    ///
    /// Cost: as [`Arena::map`], and for reserved huge pages two system calls more: the mapping is made elsewhere, and
    /// moved here when nothing can fail any more.
    ///
    /// # Errors
    /// Too many mappings or no memory; EACCES: the object's descriptor does not allow stores; EPERM: it is sealed against
    /// them. What was mapped there before still is.
    pub fn map_for(
        &self,
        offset: usize,
        object: &Object,
        object_offset: usize,
        len: usize,
        access: Access,
    ) -> Result<()> {
        // Only pages of the reserve may turn out to be lacking after the old mapping is gone.
        if object.kind() != GranuleKind::Huge {
            return self.map_in_place(offset, object, object_offset, len, access);
        }
        self.check_mapping(offset, object, object_offset, len);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let mapped = unsafe { map_object(ANYWHERE, 0, object, object_offset, len, access)? };
        // As in `dont_fork`.
        let _ = advise(mapped, len, libc::MADV_DONTFORK, "madvise(MADV_DONTFORK)");
        let moved = self.move_here(mapped, offset, len);
        if moved.is_err() {
            // SAFETY: mapped above, and still there, known to nobody else.
            unsafe { libc::munmap(mapped, len) };
        }
        moved
    }

    /// Has the kernel make a huge page of the pages of an object that are mapped at the range, all of which must be
    /// there. The range is one huge page long, and aligned; it need not be accessible. Mappings of the same pages
    /// elsewhere show the huge page from their next touch on, where they are aligned.
    ///
    /// # Errors
    /// EINVAL: the kernel cannot do this to shared memory (before Linux 6.1), or not all pages are there. ENOMEM, EAGAIN,
    /// EBUSY: it found no huge page now. The pages stay as they are.
    #[doc(alias = "MADV_COLLAPSE")]
    pub(crate) fn collapse(&self, offset: usize, len: usize) -> Result<()> {
        self.check(offset, len);
        self.advise(offset, len, libc::MADV_COLLAPSE, "madvise(MADV_COLLAPSE)")
    }

    /// Moves a mapping from outside the arena to `offset`, in place of what is there.
    fn move_here(&self, mapped: *mut c_void, offset: usize, len: usize) -> Result<()> {
        // SAFETY: the range lies inside this arena, as `map_for` has checked; the mapping belongs to `map_for` alone.
        let moved = unsafe { mmap::move_over(mapped, len, self.pointer(offset), 0) };
        moved.map_err(|errno| {
            self.fill_hole(offset, len);
            Error::new("mremap", format!("{len} bytes of an object"), errno).with_remedy(remedy())
        })
    }

    /// Reserves the range again if the kernel has left a hole there. If another thread has mapped into the hole
    /// meanwhile, that mapping is left alone.
    fn fill_hole(&self, offset: usize, len: usize) {
        let (at, flags) = (self.pointer(offset), RESERVED | libc::MAP_FIXED_NOREPLACE);
        // SAFETY: MAP_FIXED_NOREPLACE maps where nothing is mapped, or nowhere; the range is this arena's.
        if unsafe { mmap::map(at, len, libc::PROT_NONE, flags, None) }.is_ok() {
            self.dont_fork(offset, len);
        }
    }

    /// Gives the range back to the reservation: inaccessible and without memory.
    ///
    /// # Errors
    /// Too many mappings; the old mapping is intact.
    pub fn unmap(&self, offset: usize, len: usize) -> Result<()> {
        self.check(offset, len);
        let (at, flags) = (self.pointer(offset), RESERVED | libc::MAP_FIXED);
        // SAFETY: as in `map`.
        unsafe { mmap::map(at, len, libc::PROT_NONE, flags, None) }
            .map_err(|errno| Error::new("mmap", format!("{len} bytes to be reserved again"), errno))?;
        // A child that inherits a reservation inherits nothing.
        self.dont_fork(offset, len);
        Ok(())
    }

    /// Swaps the page tables, and with them the granules, of the ranges at `a` and `b`, through the range at
    /// `scratch`; all three are `len` bytes long and do not overlap. Unless a move fails, no address is unmapped at any moment: a
    /// load from `a` meanwhile finds either its old or its new bytes.
    ///
    /// Both ranges must be mappings of objects with small pages; the kernel refuses to do this to huge-paged ones,
    /// for which [`Arena::map`] is as fast. Registrations with a userfaultfd are lost, as [`Arena::move_tables`] says.
    ///
    /// # Errors
    /// [`Errno::FAULT`] when a range spans several mappings, which Linux up to 6.16 cannot move; ENOMEM at the limit of
    /// mappings. Both ranges show what they showed before.
    pub fn swap(&self, a: usize, b: usize, scratch: usize, len: usize) -> Result<Swapped> {
        self.move_tables(a, scratch, len)?;
        if let Err(error) = self.move_tables(b, a, len) {
            // A kernel that moves several mappings may have moved some of them.
            self.move_tables(scratch, a, len)?;
            return Err(error);
        }
        Ok(self.move_tables(scratch, b, len).map_or(Swapped::FirstOnly, |()| Swapped::Both))
    }

    /// Moves the page tables at `from` over those at `to`; `from` stays mapped, its page tables empty: a touch there
    /// fills them again, from the same object. A registration with a userfaultfd is lost; and so is that of a mapping beside `to`
    /// which shows the bytes next to those moved, and is registered like `from`: the kernel joins the two.
    ///
    /// # Errors
    /// As [`Arena::swap`]; `to` may be inaccessible.
    pub fn move_tables(&self, from: usize, to: usize, len: usize) -> Result<()> {
        self.check(from, len);
        self.check(to, len);
        // SAFETY: both ranges lie inside this arena. MREMAP_DONTUNMAP keeps `from` mapped.
        unsafe { mmap::move_over(self.pointer(from), len, self.pointer(to), libc::MREMAP_DONTUNMAP) }.map_err(
            |errno| {
                self.fill_hole(to, len);
                Error::new("mremap", format!("{len} bytes of page tables"), errno)
            },
        )
    }

    /// Changes what may be done with the range.
    ///
    /// # Errors
    /// Too many mappings; nothing has changed, or only a first part of the range has.
    pub fn protect(&self, offset: usize, len: usize, access: Access) -> Result<()> {
        self.check(offset, len);
        // SAFETY: as in `map`; taking access away makes a stray touch fault, which is intended.
        let result = unsafe { libc::mprotect(self.pointer(offset), len, access.bits()) };
        done(result, "mprotect", len, None)
    }

    /// Wires the range: its memory stays resident.
    ///
    /// # Errors
    /// The memory-lock limit is too low; nothing is wired.
    pub fn lock(&self, offset: usize, len: usize) -> Result<()> {
        self.check(offset, len);
        // SAFETY: wiring changes no contents.
        let result = unsafe { libc::mlock(self.pointer(offset), len) };
        done(result, "mlock", len, Some("raise the memory-lock limit: `ulimit -l unlimited`, or limits.conf"))
    }

    /// Unwires the range.
    ///
    /// # Errors
    /// The kernel's, for a range that is not mapped.
    pub fn unlock(&self, offset: usize, len: usize) -> Result<()> {
        self.check(offset, len);
        // SAFETY: unwiring changes no contents.
        let result = unsafe { libc::munlock(self.pointer(offset), len) };
        done(result, "munlock", len, None)
    }

    /// The range as raw memory. A caller that loads or stores through it makes sure that the arena exists and that the range
    /// is mapped accessibly meanwhile.
    pub fn span(&self, offset: usize, len: usize) -> Span {
        self.check(offset, len);
        Span::new(self.pointer(offset).cast(), len)
    }

    /// Guards the arena. From now on, if a page's memory is lost in a way that `replaces` names, a touch of the page reads
    /// zeros and breaks the guard, instead of killing the process. Guarding the same arena again returns the same guard.
    ///
    /// The guard ends with the last of its handles, or with the arena.
    ///
    /// # Errors
    /// ENOSPC: too many arenas are guarded (see [`guard`](crate::guard)).
    pub fn guard(&self, replaces: Replaces) -> Result<Guard> {
        let mut held = self.guard.lock();
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

    fn check_mapping(&self, offset: usize, object: &Object, object_offset: usize, len: usize) {
        self.check(offset, len);
        assert!(
            object_offset.checked_add(len).is_some_and(|end| end <= object.len()),
            "mapping beyond the object's end"
        );
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "range {offset:#x}+{len:#x} leaves the arena of {:#x} bytes",
            self.len
        );
    }

    /// Keeps a mapping from children. The mapping is in use from here on, so no caller may fail where this does. It fails only
    /// under a system call filter; then the handler of `fork` maps zeros over what a child has inherited.
    fn dont_fork(&self, offset: usize, len: usize) {
        let _ = self.advise(offset, len, libc::MADV_DONTFORK, "madvise(MADV_DONTFORK)");
    }

    fn advise(&self, offset: usize, len: usize, advice: i32, call: &'static str) -> Result<()> {
        advise(self.pointer(offset), len, advice, call)
    }
}

fn advise(at: *mut c_void, len: usize, advice: i32, call: &'static str) -> Result<()> {
    // SAFETY: the advices used (DONTFORK and COLLAPSE) change no contents.
    let result = unsafe { libc::madvise(at, len, advice) };
    done(result, call, len, None)
}

fn done(result: i32, call: &'static str, len: usize, remedy: Option<&'static str>) -> Result<()> {
    if result == 0 {
        return Ok(());
    }
    Err(Error { remedy, ..Error::last(call, format!("{len} bytes")) })
}

/// Maps a part of an object, with page tables filled if it may be touched.
///
/// # Safety
/// With MAP_FIXED, the caller owns the addresses.
unsafe fn map_object(
    at: *mut c_void,
    fixed: i32,
    object: &Object,
    object_offset: usize,
    len: usize,
    access: Access,
) -> Result<*mut c_void> {
    let filled = if access == Access::None { 0 } else { libc::MAP_POPULATE };
    let flags = libc::MAP_SHARED | fixed | filled;
    // SAFETY: the caller's promise; elsewhere the kernel chooses addresses where nothing is.
    let mapped = unsafe { mmap::map(at, len, access.bits(), flags, Some((object.as_fd(), object_offset))) };
    mapped.map_err(|errno| {
        let remedy = match errno {
            Errno::ACCESS | Errno::PERM => "its owner allows loads only",
            _ => remedy(),
        };
        Error::new("mmap", format!("{len} bytes of an object"), errno).with_remedy(remedy)
    })
}

/// What helps where nothing more can be mapped. The kernel does not say which limit it was.
fn remedy() -> &'static str {
    match getrlimit(Resource::As).current {
        Some(_) => "raise the limit on addresses (`ulimit -v`), free memory, or raise vm.max_map_count",
        None => "free memory or raise vm.max_map_count",
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // A child keeps its zeros: views of the arena's memory may outlive this copy of the arena.
        if !self.placed.is_own() {
            return;
        }
        // Others may map at these addresses from here on.
        let guard = self.guard.get_mut();
        if let Some(registration) = guard.upgrade() {
            registration.retire();
        }
        self.placed.leave();
        let (start, len) = self.reservation;
        // SAFETY: the arena owns the whole reservation; users of its spans have promised not to use them after it.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start), len) };
    }
}

#[cfg(test)]
mod tests;
