//! What the kernel still has of a sender's memory.
//!
//! How: the memory begins with buffers, of `stride` bytes each; then come headers, of [`HEADROOM`] bytes each; the rest is the
//! application's. Buffers and headers are slots. The kernel tells of each part of a frame that it has sent, the parts of a frame one after the
//! other: so a part of the application's memory belongs to the headers that came last.

use super::buffer::HEADROOM;

/// How many parts of each slot are still to be sent.
#[derive(Debug)]
pub(super) struct Slots {
    awaited: Vec<u32>,
    stride: usize,
    buffers: usize,
    last: usize,
}

impl Slots {
    pub(super) fn new(stride: usize, buffers: usize, headers: usize) -> Self {
        Self { awaited: vec![0; buffers + headers], stride, buffers, last: 0 }
    }

    /// The slot of what is `at` a place; none beyond them.
    pub(super) fn at(&self, at: usize) -> Option<usize> {
        let beyond = at.checked_sub(self.buffers * self.stride);
        let slot = beyond.map_or(at / self.stride, |beyond| self.buffers + beyond / HEADROOM);
        (slot < self.awaited.len()).then_some(slot)
    }

    /// Parts were put into the ring.
    pub(super) fn put(&mut self, slot: usize, parts: usize) {
        self.awaited[slot] += parts as u32;
    }

    /// The kernel has sent the part that is `at` a place.
    pub(super) fn sent(&mut self, at: usize) {
        self.last = self.at(at).unwrap_or(self.last);
        let awaited = &mut self.awaited[self.last];
        *awaited = awaited.saturating_sub(1);
    }

    /// Whether the kernel has sent all.
    pub(super) fn is_settled(&self, slot: usize) -> bool {
        self.awaited[slot] == 0
    }
}
