//! Buffer snap-off in software, over an adapter with early demultiplexing that splits headers.
//!
//! How: the device drops the remainder of a packet's last segment. When the driver processes the packet, the remainder is put back at the
//! head of the list, or passed over with the rest of its request's buffering.
//! Limits: a packet that comes before its predecessor was processed is stored behind the gap; that is counted, and its data has to be
//! copied. Trailers are data.
//! Source: thesis §6.5, last paragraph.

use std::collections::{BTreeMap, BTreeSet};

use super::device::{Adapter, Amended, Counters, Dropped, Free, Mode, NotPosted, Support};
use super::early::EarlyDemultiplexing;
use super::pool::Pool;
use super::program::{Layout, Program};
use super::received::{Piece, Received};
use super::segment::{Port, Posting, PostingId, Segment};
use crate::Frame;

/// Snap-off as far as software can have it.
#[derive(Debug)]
pub struct Approximation {
    device: EarlyDemultiplexing,
    streams: BTreeSet<Port>,
    /// How many packets of a port the driver has not processed.
    unprocessed: BTreeMap<Port, u32>,
    back_to_back: u64,
}

impl Approximation {
    /// Snap-off over such a device: see [`EarlyDemultiplexing::splitting`].
    pub fn new(layout: Layout, pool: Pool) -> Self {
        let device = EarlyDemultiplexing::splitting(layout, pool);
        Self { device, streams: BTreeSet::new(), unprocessed: BTreeMap::new(), back_to_back: 0 }
    }

    /// How many packets came before the list was as it had to be.
    pub fn back_to_back(&self) -> u64 {
        self.back_to_back
    }
}

impl Adapter for Approximation {
    fn support(&self) -> Support {
        Support::SnapOff
    }

    fn arrive(&mut self, frame: &Frame<'_>) -> Result<Received, Dropped> {
        let received = self.device.arrive(frame)?;
        if let Some(port) = received.port {
            let unprocessed = self.unprocessed.entry(port).or_default();
            *unprocessed += 1;
            self.back_to_back += u64::from(*unprocessed > 1);
        }
        Ok(received)
    }

    fn processed(&mut self, received: &Received) {
        let Some(port) = received.port else { return };
        if let Some(unprocessed) = self.unprocessed.get_mut(&port) {
            *unprocessed -= 1;
            if *unprocessed == 0 {
                self.unprocessed.remove(&port);
            }
        }
        let Some(list) = self.device.lists.known(port) else { return };
        match received.pieces.last() {
            Some(Piece::Posted { posting, segment, at, len }) if self.streams.contains(&port) => {
                list.put_back(*posting, *segment, at + len);
            }
            Some(Piece::Posted { posting, .. }) => list.pass_over(*posting),
            _ => {}
        }
    }

    fn post(&mut self, port: Port, posting: Posting, at_head: bool) -> Result<(), NotPosted> {
        self.device.post(port, posting, at_head)
    }

    fn reclaim(&mut self, port: Port, id: PostingId) -> Option<Posting> {
        self.device.reclaim(port, id)
    }

    fn amend(&mut self, port: Port, posting: Posting) -> Result<Amended, NotPosted> {
        // What the device has dropped of packets that were not processed is not put back yet.
        if self.unprocessed.contains_key(&port) {
            return Err(NotPosted(posting));
        }
        self.device.lists.amend(port, posting)
    }

    fn set_mode(&mut self, port: Port, mode: Mode) -> bool {
        match mode {
            Mode::SinglePacket => self.streams.remove(&port),
            Mode::MultiplePacket => self.streams.insert(port),
        };
        true
    }

    fn segment(&self, port: Port, id: PostingId, segment: usize) -> Option<&Segment> {
        self.device.lists.segment(port, id, segment)
    }

    fn set_program(&mut self, port: Port, program: Option<Program>) {
        self.device.set_program(port, program);
    }

    fn takes_headers(&self) -> bool {
        true
    }

    fn free(&self) -> Free {
        self.device.free()
    }

    fn counters(&self) -> Counters {
        self.device.counters()
    }
}
