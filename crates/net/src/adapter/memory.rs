//! An adapter's own memory, in which packets wait.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_memory::{Data, DataMut};
use genie_passing::Outboard;
use smallvec::SmallVec;

use crate::Frame;

/// The memory, as far as it is counted.
#[derive(Debug)]
pub(super) struct Memory {
    len: usize,
    used: AtomicUsize,
}

/// A packet in the adapter's memory, or a part of it. Dropping the last part frees the memory.
#[derive(Debug, Clone)]
pub struct Buffer {
    held: Arc<Held>,
    range: Range<usize>,
}

/// Packets, one after the other, to be transferred to one element of an input.
#[derive(Debug, Default)]
pub struct Gathered(SmallVec<[Buffer; 1]>);

#[derive(Debug)]
struct Held {
    bytes: Box<[u8]>,
    memory: Arc<Memory>,
}

impl Memory {
    /// `len` bytes of memory.
    pub(super) fn new(len: usize) -> Self {
        Self { len, used: AtomicUsize::new(0) }
    }

    /// How many bytes packets occupy.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How many bytes are free.
    pub(super) fn free(&self) -> usize {
        self.len - self.used()
    }

    /// Stores a frame; none if too little memory is left.
    pub(super) fn store(self: &Arc<Self>, frame: &Frame<'_>) -> Option<Buffer> {
        let len = frame.len();
        self.take(len)?;
        let mut held = Held { bytes: vec![0; len].into(), memory: Arc::clone(self) };
        frame.store_bytes(0, &mut held.bytes);
        Some(Buffer { held: Arc::new(held), range: 0..len })
    }

    fn take(&self, len: usize) -> Option<()> {
        let take = |used: usize| used.checked_add(len).filter(|used| *used <= self.len);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(drop)
    }
}

impl Buffer {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// A part of it.
    ///
    /// # Panics
    /// When it has fewer bytes.
    #[must_use]
    pub fn part(&self, part: Range<usize>) -> Self {
        assert!(part.start <= part.end && part.end <= self.len(), "bytes {part:?} of {}", self.len());
        let range = self.range.start + part.start..self.range.start + part.end;
        Self { held: Arc::clone(&self.held), range }
    }

    /// The bytes where they lie, for a host or another device that reads them there.
    pub fn data(&self) -> Data<'_> {
        self.held.bytes[self.range.clone()].into()
    }
}

impl FromIterator<Buffer> for Gathered {
    fn from_iter<I: IntoIterator<Item = Buffer>>(buffers: I) -> Self {
        Self(buffers.into_iter().collect())
    }
}

impl Outboard for Gathered {
    fn len(&self) -> usize {
        self.0.iter().map(Buffer::len).sum()
    }

    fn may_fail(&self) -> bool {
        false
    }

    fn data(&self) -> Option<Data<'_>> {
        let mut all = Data::default();
        self.0.iter().for_each(|buffer| all.append(buffer.data()));
        Some(all)
    }

    fn transfer(&mut self, offset: usize, into: DataMut<'_>) -> io::Result<()> {
        if let Some(all) = self.data() {
            into.copy_data(&all.part(offset..all.len()));
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}
