//! Outboard buffering: packets wait in memory of the adapter's own until the host asks for them.
//!
//! Source: thesis §6.6.

use std::sync::Arc;

use smallvec::SmallVec;

use super::device::{Adapter, Counters, Dropped, Free, Support};
use super::memory::Memory;
use super::received::{Piece, Received};
use crate::Frame;

/// An adapter with memory of its own.
#[derive(Debug)]
pub struct Outboard {
    memory: Arc<Memory>,
    counters: Counters,
}

impl Outboard {
    /// An adapter with `len` bytes of memory.
    pub fn new(len: usize) -> Self {
        let memory = Arc::new(Memory::new(len));
        Self { memory, counters: Counters::default() }
    }

    /// How many bytes of its memory packets occupy.
    pub fn used(&self) -> usize {
        self.memory.used()
    }
}

impl Adapter for Outboard {
    fn support(&self) -> Support {
        Support::Outboard
    }

    fn arrive(&mut self, frame: &Frame<'_>) -> Result<Received, Dropped> {
        let stored = self.memory.store(frame).ok_or(Dropped::NoBuffers);
        let buffer = self.counters.stored(frame.len(), stored)?;
        Ok(Received { pieces: SmallVec::from_iter([Piece::Outboard(buffer)]), ..Received::of(frame.len()) })
    }

    fn free(&self) -> Free {
        Free { bytes: self.memory.free(), ..Free::default() }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
