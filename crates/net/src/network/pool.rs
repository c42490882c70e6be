//! Buffers in main memory, for drivers that copy.

use std::sync::Arc;

use genie_memory::{DataMut, Object};
use genie_sys::{GranuleKind, Result};

use super::driving::Incoming;
use crate::Frame;
use crate::checksum::{Checksum, Sum};
use crate::driver::card::memory::Memory;
use crate::driver::card::words::{BUFFER, MEMORY, POOL};

/// As many buffers as a card has, for each way.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) memory: Arc<Memory>,
    sending: Vec<u32>,
    receiving: Vec<u32>,
}

impl Pool {
    pub(super) fn new() -> Result<Self> {
        let memory = Arc::new(Memory::map(&Object::create(GranuleKind::Base, MEMORY)?)?);
        Ok(Self { memory, sending: (0..POOL).collect(), receiving: (POOL..2 * POOL).collect() })
    }

    pub(super) fn allocate(&mut self) -> Option<u32> {
        self.sending.pop()
    }

    pub(super) fn has_room(&self) -> bool {
        !self.receiving.is_empty()
    }

    pub(super) fn release(&mut self, buffer: u32) {
        if buffer < POOL { self.sending.push(buffer) } else { self.receiving.push(buffer) }
    }

    /// Copies a frame to a buffer, and sums it meanwhile if `sums`; none if there is no buffer, or it fits none.
    pub(super) fn receive(&mut self, frame: &Frame<'_>, sums: bool) -> Option<Incoming> {
        let len = frame.len();
        if len == 0 || len > BUFFER {
            return None;
        }
        let buffer = self.receiving.pop()?;
        let into = self.memory.buffer(buffer).part(0..len);
        Some(Incoming { buffer, len, sum: store(frame, &into, sums) })
    }
}

fn store(frame: &Frame<'_>, into: &DataMut<'_>, sums: bool) -> Option<u16> {
    if !sums {
        frame.store(0..frame.len(), into);
        return None;
    }
    let mut sum = Sum::new(Checksum::Internet);
    frame.store_summed(0..frame.len(), into, &mut sum);
    Some(sum.finish() as u16)
}
