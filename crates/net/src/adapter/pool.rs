//! The pooled scatter list: segments of the host's that any packet may take.

use std::ops::Range;

use genie_memory::Space;
use genie_passing::{Overlays, Result};
use smallvec::SmallVec;

use super::device::Free;
use super::received::Piece;
use crate::Frame;

/// A pool of segments of one length.
///
/// Shape: at a packet's end the adapter drops the remainder of the segment; the next packet begins in the next one (§6.1).
#[derive(Debug)]
pub struct Pool {
    segments: Overlays,
    len: usize,
}

impl Pool {
    /// Reserves `count` segments of `len` bytes each, which begin at a granule.
    ///
    /// # Errors
    /// No memory.
    pub fn reserve(space: &Space, len: usize, count: usize) -> Result<Self> {
        Ok(Self::of(Overlays::reserve(space, 0, len, count)?))
    }

    /// A pool of overlay buffers that are there: frames of one memory object, for example.
    pub fn of(segments: Overlays) -> Self {
        let len = segments.preferred().len;
        Self { segments, len }
    }

    /// How long a segment is.
    pub fn segment(&self) -> usize {
        self.len
    }

    /// How many segments are free.
    pub fn free(&self) -> Free {
        let segments = self.segments.free();
        Free { segments, bytes: segments * self.len }
    }

    /// Stores bytes `from` of a frame; nothing, if there are too few segments.
    pub(super) fn store(&self, frame: &Frame<'_>, from: Range<usize>) -> Option<SmallVec<[Piece; 2]>> {
        let mut pieces = SmallVec::new();
        let mut at = from.start;
        while at < from.end {
            let len = self.len.min(from.end - at);
            let segment = self.segments.allocate()?.part(0..len);
            frame.store(at..at + len, &segment.data());
            pieces.push(Piece::Pooled(segment));
            at += len;
        }
        Some(pieces)
    }
}
