//! Fbufs: buffers that have one owner at a time.

use std::ops::{Deref, DerefMut};

use genie_sys::shared::{Claim, PAGE};

use crate::Pool;
use crate::error::{Error, Result};

/// A buffer of a pool's, in this process's hands.
///
/// Shape: whole pages of the pool, of which a part, anywhere, is the data that this dereferences to. To write it away, by
/// [`Pool::write`], gives it up; to drop it deallocates it. Members of its group could store into it meanwhile; honest ones
/// do not.
#[derive(Debug)]
pub struct Fbuf {
    pool: Pool,
    /// None while it is being dropped or passed on, and where a write that failed has no buffer to give back.
    claim: Option<Claim>,
    start: usize,
    len: usize,
}

impl Fbuf {
    pub(crate) fn new(pool: Pool, claim: Claim, start: usize, len: usize) -> Self {
        debug_assert!(start + len <= claim.len(), "{start}+{len} leaves an fbuf of {} bytes", claim.len());
        Self { pool, claim: Some(claim), start, len }
    }

    /// The pool that it is of.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How many bytes its pages have, data or not.
    pub fn capacity(&self) -> usize {
        self.claim.as_ref().map_or(0, |pages| pages.len())
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

    /// Where the data is in the pool, in bytes: the same in all members.
    pub fn offset(&self) -> usize {
        self.claim.as_ref().map_or(0, |pages| pages.first() * PAGE) + self.start
    }

    /// Deallocates it, which dropping does as well.
    #[doc(alias = "uf_deallocate")]
    pub fn deallocate(self) {}

    /// A buffer without pages, where there is none to give back.
    pub(crate) fn empty(pool: Pool) -> Self {
        Self { pool, claim: None, start: 0, len: 0 }
    }

    /// Copies the first `len` bytes, fewer than there are, into a buffer of their own; this buffer keeps the rest, or, where
    /// there is no other one, all.
    pub(crate) fn split_by_copy(mut self, len: usize) -> (Result<Self>, Self) {
        let mut part = self.pool.allocate(len);
        if let Ok(part) = &mut part {
            part.copy_from_slice(&self[..len]);
            (self.start, self.len) = (self.start + len, self.len - len);
        }
        (part, self)
    }

    pub(crate) fn pages(&self) -> &Claim {
        self.claim.as_ref().expect("taken only by value")
    }

    /// Ends this process's hold of the pages, which are not freed: the caller passes them on.
    pub(crate) fn give_up(mut self) {
        if let Some(claim) = self.claim.take() {
            self.pool.0.hand_back(claim);
        }
    }
}

impl Deref for Fbuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.claim.as_ref().map_or(&[], |pages| &pages[self.start..self.start + self.len])
    }
}

impl DerefMut for Fbuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.start, self.start + self.len);
        self.claim.as_mut().map_or(&mut [], |pages| &mut pages[start..end])
    }
}

impl Drop for Fbuf {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.pool.0.deallocate(claim);
        }
    }
}
