//! Shared pages: an object that several processes have mapped, of which each page is in one owner's hands at a time.
//!
//! Why: processes that agree, by words in the memory itself, which of them has which page want to use the pages as bytes.
//! What the words say is not to be relied on: another process can store there what it likes.
//! How: the object's first pages are words, as atomics. The other pages can be *claimed*; which pages this process has
//! claimed is kept in memory of its own, so that one page is never claimed twice here, whatever the words say.
//! Trust: other processes that have the object may store into claimed pages at any moment, as a lender may into the memory
//! that it has lent: safe code sees bytes change, and no more. They cannot take pages away, since the object is sealed
//! against shrinking; a hole that they punch reads as zeros.
//! Limits: memory is taken at the first touch; where there is none left, or may not be overcommitted, the touch is SIGBUS.
#![allow(
    unsafe_code,
    reason = "makes references to the words of a mapped object, and to pages that are claimed once in this process"
)]

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Access, Arena, Error, GranuleKind, Object, Result};

/// The length of a page in bytes.
pub const PAGE: usize = GranuleKind::Base.size();

const BITS: usize = u64::BITS as usize;

/// An object, mapped whole.
#[derive(Debug)]
pub struct Shared {
    object: Object,
    arena: Arena,
    /// Bytes of words, before the pages.
    words: usize,
    /// A bit for each page: whether it is claimed here.
    claims: Box<[AtomicU64]>,
    traps: bool,
}

impl Shared {
    /// Maps an object whose first `words` bytes, whole pages, are words. With `traps`, pages that are not claimed cannot be
    /// touched: a stray touch kills the process. No memory is taken.
    ///
    /// # Errors
    /// Too many mappings or addresses; EINVAL: the object is too short, or not of small pages.
    pub fn map(object: Object, words: usize, traps: bool) -> Result<Self> {
        if object.kind() != GranuleKind::Base || words > object.len() || !words.is_multiple_of(PAGE) {
            let subject = format!("an object of {} bytes with {words} bytes of words", object.len());
            return Err(Error::new("check", subject, crate::Errno::INVAL)
                .with_remedy("take objects of 4 KiB pages that are as long as their words say"));
        }
        let arena = Arena::reserve(object.len())?;
        arena.map_unfilled(0, &object, 0, object.len())?;
        if traps && object.len() > words {
            arena.protect(words, object.len() - words, Access::None)?;
        }
        let pages = (object.len() - words) / PAGE;
        let claims = (0..pages.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { object, arena, words, claims, traps })
    }

    /// The words, which other processes load and store at any moment.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        let start = std::ptr::with_exposed_provenance(self.arena.base());
        // SAFETY: mapped for loads and stores as long as the arena exists, or replaced by zeros in a child; any bits are
        // valid, and the only other references to these bytes are those made here.
        unsafe { std::slice::from_raw_parts(start, self.words / size_of::<AtomicU64>()) }
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        (self.object.len() - self.words) / PAGE
    }

    /// The object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Which page an address lies in, and the offset there.
    pub fn page_of(&self, addr: usize) -> Option<(usize, usize)> {
        let offset = self.arena.offset_of(addr)?.checked_sub(self.words)?;
        (offset / PAGE < self.pages()).then_some((offset / PAGE, offset % PAGE))
    }

    /// Locks `count` pages from `first` on into memory, which takes memory for all of them; their bytes are not touched.
    ///
    /// # Errors
    /// The memory-lock limit is too low.
    ///
    /// # Panics
    /// When the pages are not there.
    #[doc(alias = "mlock")]
    pub fn lock(&self, first: usize, count: usize) -> Result<()> {
        self.arena.lock(self.words + first * PAGE, count * PAGE)
    }

    /// Unlocks pages.
    ///
    /// # Errors
    /// None is expected.
    ///
    /// # Panics
    /// When the pages are not there.
    pub fn unlock(&self, first: usize, count: usize) -> Result<()> {
        self.arena.unlock(self.words + first * PAGE, count * PAGE)
    }

    /// As [`Shared::try_claim`]; none where that fails, too.
    pub fn claim(self: &Arc<Self>, first: usize, count: usize) -> Option<Claim> {
        self.try_claim(first, count).ok().flatten()
    }

    /// Takes `count` pages from `first` on for the caller alone; none where one of them is claimed already, or is not there.
    /// Bytes are whatever they were.
    ///
    /// Cost: an atomic operation for each 64 pages; with traps, a system call.
    ///
    /// # Errors
    /// With traps, ENOMEM: the limit of mappings is reached; the pages are not claimed.
    pub fn try_claim(self: &Arc<Self>, first: usize, count: usize) -> Result<Option<Claim>> {
        let end = first.checked_add(count).filter(|end| *end <= self.pages() && count > 0);
        let Some(end) = end else { return Ok(None) };
        for (index, mask) in masks(first, end) {
            // Acquire: pairs with the Release in `unclaim`, by the thread that used the pages before.
            let before = self.claims[index].fetch_or(mask, Ordering::Acquire);
            if before & mask != 0 {
                self.claims[index].fetch_and(before | !mask, Ordering::Release);
                self.unclaim(first, index * BITS);
                return Ok(None);
            }
        }
        let claim = Claim { shared: Arc::clone(self), first, count };
        if self.traps {
            let opened = self.arena.protect(claim.offset(), claim.len(), Access::ReadWrite);
            opened.map_err(|error| {
                error.with_remedy("raise vm.max_map_count, or let fewer buffers lie apart")
            })?;
        }
        Ok(Some(claim))
    }

    /// Takes the marks off pages; nothing where `first` is not before `end`.
    fn unclaim(&self, first: usize, end: usize) {
        for (index, mask) in masks(first, end) {
            self.claims[index].fetch_and(!mask, Ordering::Release);
        }
    }
}

/// The words of a bit string in which the bits from `first` to before `end` lie, with those bits.
fn masks(first: usize, end: usize) -> impl Iterator<Item = (usize, u64)> {
    (first / BITS..end.div_ceil(BITS)).filter(move |_| first < end).map(move |index| {
        let (from, to) = (first.max(index * BITS) - index * BITS, end.min((index + 1) * BITS) - index * BITS);
        (index, (!0 >> (BITS - (to - from))) << from)
    })
}

/// Pages in one owner's hands. Dropping this ends the claim; the pages keep their bytes.
#[derive(Debug)]
pub struct Claim {
    shared: Arc<Shared>,
    first: usize,
    count: usize,
}

impl Claim {
    /// The first page.
    #[inline]
    pub fn first(&self) -> usize {
        self.first
    }

    /// The number of pages.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where the pages are in the object, in bytes.
    pub fn offset(&self) -> usize {
        self.shared.words + self.first * PAGE
    }

    /// The object's mapping.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Gives the pages' memory back to the kernel. They are zeros from now on, of new memory where they are touched. What the
    /// kernel still reads from the old pages stays as it was.
    ///
    /// # Errors
    /// As [`Object::discard`].
    pub fn discard(&mut self) -> Result<()> {
        self.shared.object.discard_part(self.offset(), self.len())
    }

    fn start(&self) -> usize {
        self.shared.arena.base() + self.offset()
    }
}

impl Deref for Claim {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped accessibly as long as `shared` exists; claimed, so that this owner makes the only references.
        unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.start()), self.count * PAGE)
        }
    }
}

impl DerefMut for Claim {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = std::ptr::with_exposed_provenance_mut(self.start());
        // SAFETY: as in `deref`, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start, self.count * PAGE) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.shared.traps {
            // Where the limit of mappings is reached, a stray touch is not trapped.
            let _ = self.shared.arena.protect(self.offset(), self.count * PAGE, Access::None);
        }
        self.shared.unclaim(self.first, self.first + self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{ExitOutcome, fork_child};

    fn shared(pages: usize, traps: bool) -> Arc<Shared> {
        let object = Object::create(GranuleKind::Base, (1 + pages) * PAGE).unwrap();
        Arc::new(Shared::map(object, PAGE, traps).unwrap())
    }

    #[test]
    fn a_page_is_claimed_once_until_it_is_dropped() {
        let shared = shared(200, false);
        for (first, count) in [(0, 1), (60, 10), (64, 64), (1, 199), (199, 1)] {
            let claim = shared.claim(first, count).unwrap();
            assert_eq!((claim.len(), claim.first(), claim.count()), (count * PAGE, first, count));
            for page in 0..200 {
                let is_ours = (first..first + count).contains(&page);
                assert_eq!(shared.claim(page, 1).is_none(), is_ours, "page {page} of {first}+{count}");
            }
            assert!(shared.claim(0, 200).is_none());
            drop(claim);
            assert!(shared.claim(0, 200).is_some(), "after {first}+{count}");
        }
        assert!(
            [(200, 1), (199, 2), (0, 0), (usize::MAX, 2)].iter().all(|at| shared.claim(at.0, at.1).is_none())
        );
    }

    #[test]
    fn two_mappings_of_one_object_see_each_others_words_and_bytes_until_they_are_discarded() {
        let one = shared(4, false);
        let object = Object::accept(one.object().duplicate().unwrap()).unwrap();
        let other = Arc::new(Shared::map(object, PAGE, false).unwrap());
        one.words()[3].store(77, Ordering::Relaxed);
        one.claim(2, 1).unwrap().fill(9);
        let mut claim = other.claim(2, 1).unwrap();
        assert_eq!((other.words()[3].load(Ordering::Relaxed), claim[4095]), (77, 9));
        claim.discard().unwrap();
        assert!(claim.iter().all(|byte| *byte == 0));
        assert_eq!(one.page_of(claim.as_ptr() as usize), None);
        assert_eq!(other.page_of(claim.as_ptr() as usize + 5), Some((2, 5)));
    }

    #[test]
    fn a_page_that_nobody_claims_traps_if_that_was_asked_for() {
        let shared = shared(2, true);
        let addr = {
            let mut claim = shared.claim(1, 1).unwrap();
            claim[0] = 1;
            claim.as_ptr()
        };
        // SAFETY: the child loads a byte, from memory of an arena, which the child has as zeros.
        let child = unsafe { fork_child(|| *addr) }.unwrap();
        assert_eq!(child.wait().unwrap(), ExitOutcome::Code(0), "a child of fork has zeros");
        assert!(crate::process::read_memory(crate::process::own_pid(), addr as usize, &mut [0]).is_err());
        assert_eq!(shared.claim(1, 1).unwrap()[0], 1);
    }
}
