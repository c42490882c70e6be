//! Buffer snap-off: each request's buffering is filled with data alone, and is as long as the request says.
//!
//! Shape: headers and trailers go to lists of their own. In single-packet mode a packet ends its request's buffering; what the buffering
//! has no room for goes to pooled segments. In multiple-packet mode the remainder of a buffering stays at the head of its port's list, so
//! the next packet's data follows without a gap, and a packet may go on in the next request's buffering.
//! Source: thesis §6.5.

use std::collections::BTreeSet;

use smallvec::smallvec;

use super::device::{Adapter, Amended, Counters, Dropped, Free, Mode, NotPosted, Support};
use super::lists::{End, Lists};
use super::pool::Pool;
use super::program::{Layout, Layouts, Program};
use super::received::Received;
use super::segment::{Port, Posting, PostingId, Segment};
use crate::Frame;

/// An adapter that knows where requests' buffering ends.
#[derive(Debug)]
pub struct SnapOff {
    layouts: Layouts,
    lists: Lists,
    /// The ports whose packets follow each other without a gap.
    streams: BTreeSet<Port>,
    pool: Pool,
    counters: Counters,
}

impl SnapOff {
    /// An adapter that finds ports, and what of packets is header and trailer, by `layout`. Data of ports without buffering goes to `pool`.
    pub fn new(layout: Layout, pool: Pool) -> Self {
        let (layouts, lists, streams) = (Layouts::new(layout), Lists::default(), BTreeSet::new());
        Self { layouts, lists, streams, pool, counters: Counters::default() }
    }

    fn end(&self, port: Port) -> End {
        if self.streams.contains(&port) { End::SnapsOff } else { End::DropsPosting }
    }
}

impl Adapter for SnapOff {
    fn support(&self) -> Support {
        Support::SnapOff
    }

    fn arrive(&mut self, frame: &Frame<'_>) -> Result<Received, Dropped> {
        let (len, parsed) = (frame.len(), self.layouts.parse(frame));
        let (header, trailer) = parsed.map_or((0, 0), |parsed| (parsed.header, parsed.trailer));
        let data = header..len - trailer;
        let end = parsed.map_or(End::DropsPosting, |parsed| self.end(parsed.port));
        let list = parsed.and_then(|parsed| self.lists.waiting(parsed.port));
        let plan = list.as_ref().map(|list| list.plan(data.len(), end)).unwrap_or_default();
        let planned = header + plan.iter().map(|planned| planned.len()).sum::<usize>();
        let rest = self.pool.store(frame, planned..data.end);
        let rest = self.counters.stored(len, rest.ok_or(Dropped::NoBuffers))?;
        let mut received = Received { port: parsed.map(|parsed| parsed.port), ..Received::of(len) };
        (received.header, received.trailer) = (smallvec![0; header], smallvec![0; trailer]);
        frame.store_bytes(0, &mut received.header);
        frame.store_bytes(data.end, &mut received.trailer);
        if let Some(list) = list {
            list.store(&plan, frame, header);
            (received.pieces, received.ended) = list.commit(&plan, end);
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

    fn amend(&mut self, port: Port, posting: Posting) -> Result<Amended, NotPosted> {
        self.lists.amend(port, posting)
    }

    fn set_mode(&mut self, port: Port, mode: Mode) -> bool {
        match mode {
            Mode::SinglePacket => self.streams.remove(&port),
            Mode::MultiplePacket => self.streams.insert(port),
        };
        true
    }

    fn segment(&self, port: Port, id: PostingId, segment: usize) -> Option<&Segment> {
        self.lists.segment(port, id, segment)
    }

    fn set_program(&mut self, port: Port, program: Option<Program>) {
        self.layouts.set(port, program);
    }

    fn takes_headers(&self) -> bool {
        true
    }

    fn free(&self) -> Free {
        self.pool.free()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
