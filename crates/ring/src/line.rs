//! Lines: the 64-byte cells that a ring is made of, and the contents of each line's first word.
//!
//! How: word 0 is the header, and its sequence says which position the line was last written for; the other seven
//! words are payload.
//!
//! ```text
//! bit 0                32          48     56     64
//!     | sequence (u32) | len (u16) | kind | role |     then 56 bytes of payload
//! ```
//!
//! Invariants: every line of a lap is written with the sequence of its own position, so a line that an earlier lap
//! wrote never looks like this lap's record. Zeros are no valid sequence until 2^32 lines have been written, and by
//! then every line of the ring has been written.

use crate::primitive::{AtomicU64, Ordering};

/// Bytes of a line.
pub(crate) const LINE: usize = 64;
/// Bytes of a line that carry payload.
pub(crate) const LINE_PAYLOAD: usize = 56;
/// Words of a line.
const WORDS: usize = LINE / size_of::<u64>();

/// One cache line of shared memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    words: [AtomicU64; WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == LINE && align_of::<Line>() == LINE);

impl Line {
    /// A line with these words.
    pub(crate) fn new(words: [u64; WORDS]) -> Self {
        Self { words: words.map(AtomicU64::new) }
    }

    /// Loads the header; with Acquire, for the Release in [`Line::store_header`], so that the rest of the record is
    /// seen too.
    #[inline]
    pub(crate) fn header(&self) -> Header {
        Header(self.words[0].load(Ordering::Acquire))
    }

    /// Stores the header, and with it publishes what was stored before.
    #[inline]
    pub(crate) fn store_header(&self, header: Header) {
        self.words[0].store(header.0, Ordering::Release);
    }

    /// Stores at most 56 bytes of payload.
    #[inline]
    pub(crate) fn store(&self, bytes: &[u8]) {
        store_words(&self.words[1..], bytes);
    }

    /// Copies all 56 bytes of payload out.
    #[inline]
    pub(crate) fn load(&self, bytes: &mut [u8; LINE_PAYLOAD]) {
        load_words(&self.words[1..], bytes);
    }

    /// All words, for lines that carry payload alone.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}

/// Copies `bytes` into `words`, the last word filled up with zeros.
#[inline]
pub(crate) fn store_words(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter().zip(whole) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        words[whole.len()].store(last, Ordering::Relaxed);
    }
}

/// Copies `words` into `bytes`, which may end within the last word.
#[inline]
pub(crate) fn load_words(words: &[AtomicU64], bytes: &mut [u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks_mut(8)) {
        chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..chunk.len()]);
    }
}

/// The role of a line in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The first line of a record whose payload is in the lines.
    First = 1,
    /// The only line of a record whose payload is in the argument area; its payload is the length, a u64.
    Spilled = 2,
    /// A further line of a record.
    Continuation = 3,
}

/// The first word of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header(u64);

impl Header {
    /// The header of the line at `position`.
    #[inline]
    pub(crate) fn new(position: u64, len: u16, kind: u8, role: Role) -> Self {
        let sequence = u64::from(sequence_of(position));
        Self(sequence | u64::from(len) << 32 | u64::from(kind) << 48 | (role as u64) << 56)
    }

    /// The header of the line at `position` if it is a further line of a record.
    #[inline]
    pub(crate) fn continuation(position: u64) -> Self {
        Self::new(position, 0, 0, Role::Continuation)
    }

    /// Whether the line was written for `position` and not for an earlier lap.
    #[inline]
    pub(crate) fn is_of(self, position: u64) -> bool {
        self.0 as u32 == sequence_of(position)
    }

    /// Bytes of payload in the record's lines.
    #[inline]
    pub(crate) fn len(self) -> usize {
        usize::from((self.0 >> 32) as u16)
    }

    /// The record's kind.
    #[inline]
    pub(crate) fn kind(self) -> u8 {
        (self.0 >> 48) as u8
    }

    /// The line's role; the raw byte if it is no role.
    #[inline]
    pub(crate) fn role(self) -> Result<Role, u8> {
        match (self.0 >> 56) as u8 {
            1 => Ok(Role::First),
            2 => Ok(Role::Spilled),
            3 => Ok(Role::Continuation),
            unknown => Err(unknown),
        }
    }
}

#[inline]
fn sequence_of(position: u64) -> u32 {
    (position as u32).wrapping_add(1)
}

/// Lines that a record of `len` bytes takes.
#[inline]
pub(crate) fn lines_of(len: usize) -> usize {
    len.div_ceil(LINE_PAYLOAD).max(1)
}
