//! Pooled in-host buffering, and header/data splitting.
//!
//! Source: thesis §6.1, §6.2.

use smallvec::{SmallVec, smallvec};

use super::device::{Adapter, Counters, Dropped, Free, Support};
use super::pool::Pool;
use super::received::Received;
use crate::Frame;

/// An adapter with one scatter list for all ports; with [`Pooled::splitting`], one list more, for headers.
#[derive(Debug)]
pub struct Pooled {
    pool: Pool,
    /// How long the segments of the header list are.
    header: Option<usize>,
    counters: Counters,
}

impl Pooled {
    /// An adapter that stores whole packets into segments of `pool`.
    pub fn new(pool: Pool) -> Self {
        Self { pool, header: None, counters: Counters::default() }
    }

    /// An adapter that stores the first `header` bytes of each packet apart: its data then begins at a granule.
    pub fn splitting(pool: Pool, header: usize) -> Self {
        Self { header: Some(header), ..Self::new(pool) }
    }
}

impl Adapter for Pooled {
    fn support(&self) -> Support {
        self.header.map_or(Support::Pooled, |_| Support::Splitting)
    }

    fn arrive(&mut self, frame: &Frame<'_>) -> Result<Received, Dropped> {
        let len = frame.len();
        let mut header: SmallVec<[u8; 64]> = smallvec![0; self.header.unwrap_or(0).min(len)];
        let pieces = self.pool.store(frame, header.len()..len);
        let pieces = self.counters.stored(len, pieces.ok_or(Dropped::NoBuffers))?;
        frame.store_bytes(0, &mut header);
        Ok(Received { header, pieces, ..Received::of(len) })
    }

    fn takes_headers(&self) -> bool {
        self.header.is_some()
    }

    fn free(&self) -> Free {
        self.pool.free()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
