//! Bodies under construction: bytes in place, on the heap only when there are many.
//!
//! Why: a body is built of small parts of constant size, and a growing vector would cost a call for each part.
//! Invariants: the bytes are the first `len` of `short` while `long` is empty, and all of `long` otherwise.

use std::fmt;
use std::ops::Deref;

use zerocopy::{Immutable, IntoBytes};

/// How many bytes rings carry without their argument area.
const SHORT: usize = 448;

/// The body of a record: a writer builds it, and a ring carries it. Use it again for the next record: then nothing is
/// allocated.
#[derive(Clone)]
pub struct Body {
    short: [u8; SHORT],
    len: usize,
    long: Vec<u8>,
}

impl Body {
    /// An empty body.
    pub const fn new() -> Self {
        Self { short: [0; SHORT], len: 0, long: Vec::new() }
    }

    /// Removes all bytes, and keeps their memory.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        self.long.clear();
    }

    /// Appends a fixed part.
    #[inline]
    pub(super) fn part(&mut self, part: &(impl IntoBytes + Immutable)) {
        self.append(part.as_bytes());
    }

    /// Appends bytes.
    #[inline]
    pub(in crate::wire) fn append(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = self.len + bytes.len();
        match self.short.get_mut(self.len..end) {
            Some(room) if self.long.is_empty() => {
                room.copy_from_slice(bytes);
                self.len = end;
            }
            _ => self.append_long(bytes),
        }
    }

    #[cold]
    fn append_long(&mut self, bytes: &[u8]) {
        self.room_long(bytes.len()).copy_from_slice(bytes);
    }

    /// Appends `len` bytes to be overwritten.
    #[inline]
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        let (start, end) = (self.len, self.len + len);
        if end > SHORT || !self.long.is_empty() {
            return self.room_long(len);
        }
        self.len = end;
        &mut self.short[start..end]
    }

    #[cold]
    fn room_long(&mut self, len: usize) -> &mut [u8] {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short[..self.len]);
        }
        let start = self.long.len();
        self.long.resize(start + len, 0);
        &mut self.long[start..]
    }

    /// Overwrites a part, after a count in it has grown.
    #[inline]
    pub(super) fn put(&mut self, at: usize, part: &(impl IntoBytes + Immutable)) {
        let bytes = part.as_bytes();
        let all = if self.long.is_empty() { &mut self.short[..self.len] } else { &mut self.long[..] };
        all[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Deref for Body {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::new()
    }
}

/// Says how many bytes there are. The bytes themselves may be another request's, and a peer's secrets.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("len", &self.deref().len()).finish_non_exhaustive()
    }
}
