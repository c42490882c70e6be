//! Overlay buffers: a device's or server's own buffers, into which input goes before, or without, being asked for.
//!
//! How: a pool holds as many buffers as its owner reserved, of one length and one offset (the length of unstripped
//! headers, say). A client whose buffer has the same offset receives by swapping; `preferred` tells it the offset and
//! length (client-aligned buffering). A client of another space than the pool's gets its data by copying: pages can be
//! passed within one space's tables only. Data that came in several buffers, packet by packet, reaches the client as a chain.
//! Limits: a fixed number of buffers; when all are in use, allocation fails and the owner must wait or drop data.
//! Source: thesis §6.1 (pooled in-host buffering), §7.4.3, table 7.3; §4.1 for preferred alignment and length.

use std::ops::Range;
use std::sync::Arc;

use genie_memory::{DataMut, Part, Segments, Space, SystemBuffer};
use genie_sys::lock::Mutex;
use smallvec::SmallVec;

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

/// One overlay buffer, or the part of it that holds data; dropping it returns it to its pool.
#[derive(Debug)]
pub struct Overlay {
    pool: Overlays,
    buffer: Option<SystemBuffer>,
    /// The part that is passed.
    range: Range<usize>,
    /// How long taking it from the pool took, where that is recorded.
    allocation: Option<u64>,
}

/// Overlay buffers that make up one element of an input: the data of the first, then that of the second, and so on.
///
/// Shape: the parts may be of any lengths, begin anywhere in their buffers, and come from several pools. A part's granules are
/// swapped where they lie in its buffer as they are to lie in the client's; a granule of the client's that several parts share
/// is swapped with the one that has the most data there, and what the others have there is copied. What else is in these granules
/// is zeroed, unless it makes room for the client's own bytes.
#[derive(Debug, Default)]
pub struct Chain(SmallVec<[Overlay; 1]>);

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
        let range = 0..self.len;
        Some(Overlay { pool: self.clone(), buffer: Some(buffer), range, allocation: watch.lap() })
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
        let all = self.buffer.as_ref().map(SystemBuffer::data).unwrap_or_default();
        all.part(self.range.clone())
    }

    /// Narrows the buffer to a part of it, which is all that is passed: what came without a packet's header, say. The client is
    /// shown nothing else of it.
    ///
    /// # Panics
    /// When the part leaves the buffer.
    #[must_use]
    pub fn part(mut self, part: Range<usize>) -> Self {
        assert!(
            part.start <= part.end && part.end <= self.len(),
            "bytes {part:?} of an overlay buffer of {}",
            self.len()
        );
        self.range = self.range.start + part.start..self.range.start + part.end;
        self
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl Chain {
    /// Adds the buffer that holds the data behind what there is already.
    pub fn push(&mut self, later: Overlay) {
        self.0.push(later);
    }

    /// The data, for the buffers' owner to fill.
    pub fn data(&self) -> DataMut<'_> {
        let mut all = DataMut::default();
        self.0.iter().for_each(|overlay| all.append(overlay.data()));
        all
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(Overlay::len).sum()
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Overlay::is_empty)
    }

    pub(crate) fn segments(&self) -> Segments {
        self.data().segments().clone()
    }

    /// How long taking the buffers from their pools took, where that is recorded.
    pub(crate) fn allocation(&self) -> Option<u64> {
        self.0.iter().filter_map(|overlay| overlay.allocation).reduce(|all, more| all + more)
    }

    /// Whether its pages can be passed to a client of `space`.
    pub(crate) fn is_of(&self, space: &Space) -> bool {
        self.0.iter().filter_map(|overlay| overlay.buffer.as_ref()).all(|buffer| buffer.space().is(space))
    }

    /// Its only buffer, if the data begins where that buffer does.
    pub(crate) fn whole_mut(&mut self) -> Option<&mut SystemBuffer> {
        match &mut self.0[..] {
            [Overlay { buffer, range, .. }] if range.start == 0 => buffer.as_mut(),
            _ => None,
        }
    }

    /// The buffers that hold the first `actual` bytes, with their parts of these.
    pub(crate) fn parts_mut(&mut self, actual: usize) -> impl Iterator<Item = (Part, &mut SystemBuffer)> {
        let mut at = 0;
        self.0.iter_mut().filter_map(move |Overlay { buffer, range, .. }| {
            let part = Part { from: range.start, at, len: range.len().min(actual - at) };
            at += part.len;
            buffer.as_mut().filter(|_| part.len > 0).map(|buffer| (part, buffer))
        })
    }
}

impl From<Overlay> for Chain {
    fn from(overlay: Overlay) -> Self {
        Self::from_iter([overlay])
    }
}

impl FromIterator<Overlay> for Chain {
    fn from_iter<I: IntoIterator<Item = Overlay>>(overlays: I) -> Self {
        Self(overlays.into_iter().collect())
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
