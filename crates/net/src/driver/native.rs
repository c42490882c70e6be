//! The adapter that takes the buffers in which a device has stored frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_passing::{Overlays, Preferred};
use smallvec::{SmallVec, smallvec};

use crate::Frame;
use crate::adapter::{Adapter, Counters, Dropped, Free, Piece, Received, Support};
use crate::assembly::within;

/// An adapter of a driver that stores frames in buffers of one pool: pooled in-host buffering by a device (§6.1), or header/data splitting (§6.2)
/// where the device has taken headers off. The host copies these, and nothing else.
///
/// Clones take buffers of the same pool; what each does from then on it counts for itself.
///
/// Limits: a frame that is in no such buffers, or comes when only the driver's reserve is left, is dropped, and counted.
#[derive(Debug, Clone)]
pub struct Native {
    pool: Overlays,
    /// How many buffers in the ring may leave it.
    free: Arc<AtomicUsize>,
    /// Whether headers are to be apart from data.
    splits: bool,
    counters: Counters,
}

impl Native {
    pub(super) fn new(pool: Overlays, free: Arc<AtomicUsize>, splits: bool) -> Self {
        Self { pool, free, splits, counters: Counters::default() }
    }
}

impl Adapter for Native {
    fn support(&self) -> Support {
        if self.splits { Support::Splitting } else { Support::Pooled }
    }

    fn arrive(&mut self, frame: &Frame<'_>) -> Result<Received, Dropped> {
        let len = frame.len();
        let mut header: SmallVec<_> = smallvec![0; if self.splits { headers(frame) } else { 0 }];
        frame.read(0, &mut header);
        let buffers = self.counters.stored(len, frame.take_buffers().ok_or(Dropped::NoBuffers))?;
        let pieces = buffers.into_iter().map(Piece::Pooled).collect();
        let pieces = if self.splits { within(pieces, header.len()..len) } else { pieces };
        Ok(Received { header, pieces, ..Received::of(len) })
    }

    /// The device does not sum.
    fn arrive_summed(&mut self, frame: &Frame<'_>) -> Result<Received, Dropped> {
        self.arrive(frame)
    }

    fn preferred(&self, header: usize, len: usize) -> Preferred {
        let offset = if self.splits { 0 } else { self.pool.preferred().offset };
        Preferred { offset: offset + header, len, ..Preferred::default() }
    }

    fn takes_headers(&self) -> bool {
        self.splits
    }

    fn free(&self) -> Free {
        // Those that have come back are in the ring when somebody looks for frames.
        let segments = self.free.load(Ordering::Relaxed) + self.pool.free();
        Free { segments, bytes: segments * self.pool.preferred().len }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

/// How long the headers are of a datagram without IP options or extension headers.
fn headers(frame: &Frame<'_>) -> usize {
    let mut kind = [0; 2];
    frame.read(12, &mut kind);
    let headers = if kind == [0x86, 0xdd] { 62 } else { 42 };
    headers.min(frame.len())
}
