//! Overlay buffers: a device's or server's own buffers, into which input goes before, or without, being asked for.
//!
//! How: a pool holds as many buffers as its owner reserved, of one length and one offset (the length of unstripped
//! headers, say). A client whose buffer has the same offset receives by swapping; `preferred` tells it the offset and
//! length (client-aligned buffering). A client of another space than the pool's gets its data by copying: pages can be
//! passed within one space's tables only.
//! Limits: a fixed number of buffers; when all are in use, allocation fails and the owner must wait or drop data.
//! Source: thesis §6.1 (pooled in-host buffering), §7.4.3, table 7.3; §4.1 for preferred alignment and length.

use std::sync::Arc;

use genie_memory::{DataMut, Segments, Space, SystemBuffer};
use genie_sys::lock::Mutex;

use crate::recorder::Watch;
use crate::{Recorder, Result};

/// A pool of overlay buffers.
#[derive(Debug, Clone)]
pub struct Overlays {
    pool: Arc<Mutex<Vec<SystemBuffer>>>,
    offset: usize,
    len: usize,
    recorder: Option<&'static Recorder>,
}

/// One overlay buffer; dropping it returns it to its pool.
#[derive(Debug)]
pub struct Overlay {
    pool: Overlays,
    buffer: Option<SystemBuffer>,
    /// How long taking it from the pool took, where that is recorded.
    allocation: Option<u64>,
}

/// How a client should lay out input buffers, so that a server's data can be swapped in: [`Preferred::header`] bytes, then
/// [`Preferred::len`] bytes of data that start [`Preferred::offset`] bytes into a granule, then [`Preferred::trailer`] bytes, and so on
/// for as much as is to come. A client that has other use for headers and trailers than for data makes elements of their own for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preferred {
    /// Where data starts in its first granule.
    pub offset: usize,
    /// How much data comes at once: of a network, what a packet holds besides its header and its trailer.
    pub len: usize,
    /// How many bytes come in front of the data each time, and are passed to the client; 0 where the server takes headers off.
    pub header: usize,
    /// How many bytes come behind the data each time, in the same way.
    pub trailer: usize,
}

impl Overlays {
    /// Reserves `count` buffers of `len` bytes that start `offset` bytes into their first granule.
    ///
    /// # Errors
    /// No memory.
    pub fn reserve(space: &Space, offset: usize, len: usize, count: usize) -> Result<Self> {
        let buffers: genie_memory::Result<_> =
            (0..count).map(|_| space.aligned_buffer(offset, len)).collect();
        let buffers = buffers?;
        Ok(Self { pool: Arc::new(Mutex::new(buffers)), offset, len, recorder: None })
    }

    /// Has the time of each allocation recorded, with the input that the buffer is overlaid on.
    #[must_use]
    pub fn with_recorder(mut self, recorder: &'static Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Takes the buffer that was returned last, if one is free.
    pub fn allocate(&self) -> Option<Overlay> {
        let mut watch = Watch::start(self.recorder);
        let buffer = self.pool.lock().pop()?;
        Some(Overlay { pool: self.clone(), buffer: Some(buffer), allocation: watch.lap() })
    }

    /// The layout that lets clients receive without copying.
    pub fn preferred(&self) -> Preferred {
        Preferred { offset: self.offset, len: self.len, ..Preferred::default() }
    }

    /// How many buffers are free.
    pub fn free(&self) -> usize {
        self.pool.lock().len()
    }
}

impl Overlay {
    /// The buffer's memory, for its owner to fill.
    pub fn data(&self) -> DataMut<'_> {
        self.buffer.as_ref().map(SystemBuffer::data).unwrap_or_default()
    }

    pub(crate) fn segments(&self) -> Segments {
        self.buffer.as_ref().map(SystemBuffer::segments).unwrap_or_default()
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.pool.len
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.pool.len == 0
    }

    /// How long taking it from its pool took, where that is recorded.
    pub(crate) fn allocation(&self) -> Option<u64> {
        self.allocation
    }

    /// Whether its pages can be passed to a client of `space`.
    pub(crate) fn is_of(&self, space: &Space) -> bool {
        self.buffer.as_ref().is_some_and(|buffer| buffer.space().is(space))
    }

    pub(crate) fn buffer_mut(&mut self) -> Option<&mut SystemBuffer> {
        self.buffer.as_mut()
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let Some(mut buffer) = self.buffer.take() else { return };
        // In a child made by fork, the pool's lock may be held by a thread of its parent's.
        if buffer.space().is_inherited() {
            return;
        }
        // A buffer whose granules became a client's region is refilled; where there is no memory for that, the pool has
        // one buffer less.
        if buffer.is_empty() && self.pool.len > 0 && buffer.refill(self.pool.len).is_err() {
            return;
        }
        self.pool.pool.lock().push(buffer);
    }
}
