//! Early demultiplexing: a scatter list for each port.
//!
//! Shape: a packet's bytes, header and all, fill the segments of its port's list one after the other, whoever posted them; the remainder
//! of its last segment is dropped. What finds no segment is stored in pooled ones. Segments for headers and trailers lie between those
//! for data, where the driver has posted them so (fig. 6.5, 6.6).
//! Source: thesis §6.4.

use smallvec::smallvec;

use super::device::{Adapter, Counters, Dropped, Free, NotPosted, Support};
use super::lists::{End, Lists};
use super::pool::Pool;
use super::program::{Layout, Layouts, Program};
use super::received::Received;
use super::segment::{Port, Posting, PostingId, Segment};
use crate::Frame;

/// An adapter that knows packets' ports before it stores them.
#[derive(Debug)]
pub struct EarlyDemultiplexing {
    layouts: Layouts,
    /// Whether headers are stored apart.
    splits: bool,
    pub(super) lists: Lists,
    pool: Pool,
    counters: Counters,
}

impl EarlyDemultiplexing {
    /// An adapter that finds packets' ports by `layout`, and stores packets of ports without segments in `pool`.
    pub fn new(layout: Layout, pool: Pool) -> Self {
        let layouts = Layouts::new(layout);
        Self { layouts, splits: false, lists: Lists::default(), pool, counters: Counters::default() }
    }

    /// The same with header/data splitting for each port.
    pub fn splitting(layout: Layout, pool: Pool) -> Self {
        Self { splits: true, ..Self::new(layout, pool) }
    }
}

impl Adapter for EarlyDemultiplexing {
    fn support(&self) -> Support {
        Support::EarlyDemultiplexing
    }

    fn arrive(&mut self, frame: &Frame<'_>) -> Result<Received, Dropped> {
        let (len, parsed) = (frame.len(), self.layouts.parse(frame));
        let header = parsed.filter(|_| self.splits).map_or(0, |parsed| parsed.header);
        let list = parsed.and_then(|parsed| self.lists.waiting(parsed.port));
        let plan = list.as_ref().map(|list| list.plan(len - header, End::DropsSegment)).unwrap_or_default();
        let planned = header + plan.iter().map(|planned| planned.len()).sum::<usize>();
        let rest = self.pool.store(frame, planned..len);
        let rest = self.counters.stored(len, rest.ok_or(Dropped::NoBuffers))?;
        let mut received = Received { port: parsed.map(|parsed| parsed.port), ..Received::of(len) };
        received.header = smallvec![0; header];
        frame.store_bytes(0, &mut received.header);
        if let Some(list) = list {
            list.store(&plan, frame, header);
            received.pieces = list.commit(&plan, End::DropsSegment).0;
        }
        received.pieces.extend(rest);
        Ok(received)
    }

    fn post(&mut self, port: Port, posting: Posting, at_head: bool) -> Result<(), NotPosted> {
        self.lists.of(port).add(posting, at_head).map_err(NotPosted)
    }

    fn reclaim(&mut self, port: Port, id: PostingId) -> Option<Posting> {
        self.lists.take(port, id)
    }

    fn segment(&self, port: Port, id: PostingId, segment: usize) -> Option<&Segment> {
        self.lists.segment(port, id, segment)
    }

    fn set_program(&mut self, port: Port, program: Option<Program>) {
        self.layouts.set(port, program);
    }

    fn takes_headers(&self) -> bool {
        self.splits
    }

    fn free(&self) -> Free {
        self.pool.free()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
