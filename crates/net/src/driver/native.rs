//! The adapter that takes the buffers in which a device has stored frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_passing::{Overlays, Preferred};
use smallvec::SmallVec;

use crate::Frame;
use crate::adapter::{Adapter, Counters, Dropped, Free, Piece, Received, Support};

/// An adapter of a driver that stores frames in buffers of one pool: pooled in-host buffering by a device (§6.1). The host copies nothing.
///
/// Clones take buffers of the same pool; what each does from then on it counts for itself.
///
/// Limits: a frame that is in no such buffers, or comes when only the driver's reserve is left, is dropped, and counted.
#[derive(Debug, Clone)]
pub struct Native {
    pool: Overlays,
    /// How many buffers in the ring may leave it.
    free: Arc<AtomicUsize>,
    counters: Counters,
}

impl Native {
    pub(super) fn new(pool: Overlays, free: Arc<AtomicUsize>) -> Self {
        Self { pool, free, counters: Counters::default() }
    }
}

impl Adapter for Native {
    fn support(&self) -> Support {
        Support::Pooled
    }

    fn arrive(&mut self, frame: &Frame<'_>) -> Result<Received, Dropped> {
        let len = frame.len();
        let buffers = self.counters.stored(len, frame.take_buffers().ok_or(Dropped::NoBuffers))?;
        let pieces: SmallVec<_> = buffers.into_iter().map(Piece::Pooled).collect();
        Ok(Received { pieces, ..Received::of(len) })
    }

    /// The device does not sum.
    fn arrive_summed(&mut self, frame: &Frame<'_>) -> Result<Received, Dropped> {
        self.arrive(frame)
    }

    fn preferred(&self, header: usize, len: usize) -> Preferred {
        Preferred { offset: self.pool.preferred().offset + header, len, ..Preferred::default() }
    }

    fn free(&self) -> Free {
        let segments = self.free.load(Ordering::Relaxed);
        Free { segments, bytes: segments * self.pool.preferred().len }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
