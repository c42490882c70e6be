//! Records: private copies of what a peer has sent.

use crate::layout::INLINE_MAX;
use crate::line::LINE_PAYLOAD;

/// A record taken from a ring: a kind and bytes that the peer can no longer change. One `Record` is reused for many.
///
/// Shape: 448 bytes in place, and a buffer on the heap that grows to the longest spilled record seen, at most
/// [`crate::Layout::record_max`].
#[derive(Debug)]
pub struct Record {
    kind: u8,
    len: usize,
    /// Where the payload is: `spilled`, else `lines`.
    is_spilled: bool,
    lines: [[u8; LINE_PAYLOAD]; INLINE_MAX / LINE_PAYLOAD],
    spilled: Vec<u8>,
}

impl Record {
    /// A record of no bytes.
    pub const fn new() -> Self {
        Self { kind: 0, len: 0, is_spilled: false, lines: [[0; _]; _], spilled: Vec::new() }
    }

    /// The kind that the sender gave.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// The sender's bytes.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        if self.is_spilled { &self.spilled[..self.len] } else { &self.lines.as_flattened()[..self.len] }
    }

    /// Where the payload of a record in the lines goes; the caller has checked the length.
    #[inline]
    pub(crate) fn set_inline(&mut self, kind: u8, len: usize) -> &mut [[u8; LINE_PAYLOAD]] {
        (self.kind, self.len, self.is_spilled) = (kind, len, false);
        &mut self.lines
    }

    /// Where the payload of a spilled record goes; the caller has checked the length.
    pub(crate) fn set_spilled(&mut self, kind: u8, len: usize) -> &mut [u8] {
        (self.kind, self.len, self.is_spilled) = (kind, len, true);
        if self.spilled.len() < len {
            self.spilled.resize(len, 0);
        }
        &mut self.spilled[..len]
    }
}

impl Default for Record {
    fn default() -> Self {
        Self::new()
    }
}
