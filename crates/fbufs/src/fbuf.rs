//! Fbufs: buffers that have one owner at a time.

use std::ops::{Deref, DerefMut};

use genie_io::Interface;
use genie_memory::{Migrant, Space};
use genie_sys::shared::{Claim, PAGE};

use crate::Pool;
use crate::error::{Error, Result};

/// A buffer, in this process's hands: of a [`Pool`], or of an interface of Genie's ([`Connection`](crate::Connection)).
///
/// Shape: whole pages, of which a part, anywhere, is the data that this dereferences to. To write it away, by
/// [`Pool::write`], gives it up; to drop it deallocates it. Members of its group could store into a pool's buffer meanwhile, and
/// servers into one that they have filled; honest ones do not.
#[derive(Debug)]
pub struct Fbuf {
    pages: Pages,
    start: usize,
    len: usize,
}

/// Where the bytes are.
#[derive(Debug)]
enum Pages {
    /// In a pool, whose members know them by their places.
    Pool(Pool, Claim),
    /// In a migrant buffer, which an interface passes to servers.
    Migrant(Migrant, Interface),
    /// Nowhere: it is being dropped or passed on, or a write that failed has no buffer to give back.
    Gone,
}

impl Fbuf {
    pub(crate) fn new(pool: Pool, claim: Claim, start: usize, len: usize) -> Self {
        debug_assert!(start + len <= claim.len(), "{start}+{len} leaves an fbuf of {} bytes", claim.len());
        Self { pages: Pages::Pool(pool, claim), start, len }
    }

    /// A migrant buffer, all of which is data.
    pub(crate) fn of_migrant(migrant: Migrant, interface: &Interface) -> Self {
        let len = migrant.len();
        Self { pages: Pages::Migrant(migrant, interface.clone()), start: 0, len }
    }

    /// The pool that it is of; none if it is a migrant buffer of an interface's.
    pub fn pool(&self) -> Option<&Pool> {
        if let Pages::Pool(pool, _) = &self.pages { Some(pool) } else { None }
    }

    /// How many bytes its pages have, data or not.
    pub fn capacity(&self) -> usize {
        match &self.pages {
            Pages::Pool(_, claim) => claim.len(),
            Pages::Migrant(migrant, _) => migrant.len(),
            Pages::Gone => 0,
        }
    }

    /// How many bytes there are in front of the data, in its pages: headers go there.
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Makes `len` bytes, `start` bytes from its pages' start on, the data. No byte moves.
    ///
    /// # Errors
    /// [`Error::TooShort`]: its pages have fewer; nothing has changed.
    pub fn set_data(&mut self, start: usize, len: usize) -> Result<()> {
        let capacity = self.capacity();
        if start.checked_add(len).is_none_or(|end| end > capacity) {
            return Err(Error::TooShort { asked: len, len: capacity.saturating_sub(start) });
        }
        (self.start, self.len) = (start, len);
        Ok(())
    }

    /// Narrows the data to its first `len` bytes.
    ///
    /// # Errors
    /// [`Error::TooShort`]: it has fewer.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len {
            Err(Error::TooShort { asked: len, len: self.len })
        } else {
            self.set_data(self.start, len)
        }
    }

    /// Where the data is in the pool, in bytes: the same in all members. None for a migrant buffer.
    pub fn offset(&self) -> Option<usize> {
        if let Pages::Pool(_, claim) = &self.pages { Some(claim.first() * PAGE + self.start) } else { None }
    }

    /// Deallocates it, which dropping does as well.
    #[doc(alias = "uf_deallocate")]
    pub fn deallocate(self) {}

    /// A buffer without pages, where there is none to give back.
    pub(crate) fn gone() -> Self {
        Self { pages: Pages::Gone, start: 0, len: 0 }
    }

    /// A buffer of the same kind, of the same pool or interface.
    pub(crate) fn allocate_alike(&self, len: usize) -> Result<Self> {
        match &self.pages {
            Pages::Pool(pool, _) => pool.allocate(len),
            Pages::Migrant(migrant, interface) => Self::allocate_migrant(interface, len, migrant.is_strong()),
            Pages::Gone => Err(Error::TooShort { asked: len, len: 0 }),
        }
    }

    pub(crate) fn allocate_migrant(interface: &Interface, len: usize, is_strong: bool) -> Result<Self> {
        Ok(Self::of_migrant(interface.allocate_migrant(len, is_strong)?, interface))
    }

    /// Copies the first `len` bytes, fewer than there are, into a buffer of their own; this buffer keeps the rest, or, where
    /// there is no other one, all.
    pub(crate) fn split_by_copy(mut self, len: usize) -> (Result<Self>, Self) {
        let mut part = self.allocate_alike(len);
        if let Ok(part) = &mut part {
            part.copy_from_slice(&self[..len]);
            (self.start, self.len) = (self.start + len, self.len - len);
        }
        (part, self)
    }

    /// Fails in a child made by fork that has this buffer from its parent: zeros are there.
    pub(crate) fn ensure_own(&self) -> Result<()> {
        match &self.pages {
            Pages::Pool(pool, _) => pool.ensure_own(),
            Pages::Migrant(_, interface) if interface.space().is_inherited() => Err(Error::Inherited),
            Pages::Migrant(..) | Pages::Gone => Ok(()),
        }
    }

    /// The pages of a pool's buffer: the first one, and how many.
    pub(crate) fn run(&self) -> (usize, usize) {
        if let Pages::Pool(_, claim) = &self.pages { (claim.first(), claim.count()) } else { (0, 0) }
    }

    /// Ends this process's hold of a pool's pages, which are not freed: the caller passes them on.
    pub(crate) fn give_up(mut self) {
        if let Pages::Pool(pool, claim) = self.take_pages() {
            pool.0.hand_back(claim);
        }
    }

    /// The migrant buffer, if it is one of this space.
    pub(crate) fn into_migrant(mut self, space: &Space) -> Result<Migrant, Self> {
        match self.take_pages() {
            Pages::Migrant(migrant, interface) if interface.space().is(space) => Ok(migrant),
            pages => {
                self.pages = pages;
                Err(self)
            }
        }
    }

    fn take_pages(&mut self) -> Pages {
        std::mem::replace(&mut self.pages, Pages::Gone)
    }
}

impl Deref for Fbuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let (start, end) = (self.start, self.start + self.len);
        match &self.pages {
            Pages::Pool(_, claim) => &claim[start..end],
            Pages::Migrant(migrant, _) => &migrant[start..end],
            Pages::Gone => &[],
        }
    }
}

impl DerefMut for Fbuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.start, self.start + self.len);
        match &mut self.pages {
            Pages::Pool(_, claim) => &mut claim[start..end],
            Pages::Migrant(migrant, _) => &mut migrant[start..end],
            Pages::Gone => &mut [],
        }
    }
}

impl Drop for Fbuf {
    fn drop(&mut self) {
        if let Pages::Pool(pool, claim) = self.take_pages() {
            pool.0.deallocate(claim);
        }
    }
}
