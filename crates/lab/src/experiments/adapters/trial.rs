//! One trial: transfers over an adapter while some of the conditions hold.

use genie::{In, Out, Pending, Scheme};
use genie_net::Rate;
use genie_net::adapter::Support;
use genie_net::transfer::{HEADER, Receiving, Shape};
use genie_passing::Thresholds;

use super::super::link::{GRANULE, Link, Over, name};
use super::conditions::Held;
use crate::data::{Data, difference};
use crate::error::{Error, Result};
use crate::interface::Granule;

/// How much data a packet has where all packets are alike: two granules.
pub(super) const L: usize = 2 * GRANULE;
/// The lengths of headers, data and trailers where they vary, one packet after the other.
const HEADERS: [usize; 3] = [HEADER, 24, 12];
const DATA: [usize; 3] = [L, 5000, 3000];
const TRAILERS: [usize; 3] = [4, 0, 16];
/// Where client buffers begin that are not laid out as the server prefers.
const OFFSET: usize = 1024;

/// How much of a packet may be copied at most where copying is avoided: what lies on granules with its header or the next one's.
pub(super) const EDGES: usize = 2 * HEADER;

/// A level of support, and the conditions that hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    pub(super) support: Support,
    pub(super) held: Held,
}

impl Trial {
    /// How long transfers and client buffers are, in quarters of L. Those that are no multiples of L are no multiples of a granule either:
    /// with those, buffering that is aligned once stays so, too.
    fn quarters(self) -> (usize, usize) {
        match (self.held.has(5), self.held.has(6)) {
            (true, true) => (8, 8),
            (true, false) => (8, 12),
            (false, true) => (9, 9),
            (false, false) => (9, 13),
        }
    }

    /// How many bytes are passed: as many as make whole transfers, and whole client buffers.
    pub(super) fn passed(self) -> usize {
        let (transfer, buffer) = self.quarters();
        transfer * buffer * L / 4
    }

    fn lens(self) -> (usize, usize) {
        let (transfer, buffer) = self.quarters();
        (transfer * L / 4, buffer * L / 4)
    }

    /// How the sender cuts its data.
    fn shape(self) -> Shape {
        let of = |number, one: usize, varied: [usize; 3]| {
            if self.held.has(number) { vec![one] } else { varied.to_vec() }
        };
        Shape {
            headers: of(3, HEADER, HEADERS),
            data: of(4, L, DATA),
            trailers: of(3, TRAILERS[0], TRAILERS),
        }
    }

    /// How the receiver expects it to be cut.
    fn expected(self) -> Shape {
        if self.held.has(7) { self.shape() } else { Shape::of(L) }
    }

    /// The greatest share of the bytes that is copied where copying is avoided.
    pub(super) fn bound(self) -> f64 {
        let (transfer, shape) = (self.lens().0, self.shape());
        let (mut packets, mut at) = (0, 0);
        while at < transfer {
            at += shape.data[packets % shape.data.len()];
            packets += 1;
        }
        (packets * EDGES) as f64 / transfer as f64
    }

    /// Makes it; returns how many bytes the host has copied.
    ///
    /// # Errors
    /// No memory, a request failed, or the data is damaged.
    pub(super) fn make(self) -> Result<u64> {
        let genie = Granule::Base.open()?;
        genie.passing().adjust_thresholds(|thresholds| *thresholds = Thresholds::ALWAYS);
        let receiving = Receiving::of(self.expected());
        let link = Link::open(genie, self.support, Over::Wire(Rate::Unlimited), self.shape(), receiving)?;
        let data = Data::generate(self.passed());
        let (transfer, buffer) = self.lens();
        let offset = if self.held.has(2) { link.preferred_offset()? } else { OFFSET };
        let buffers = self.passed() / buffer;
        let ask = || {
            let buffer = link.genie.allocate_at(offset, buffer)?;
            link.ask(In::owned(Scheme::EmulatedCopy, buffer))
        };
        let mut waiting = Vec::new();
        if self.held.has(1) {
            waiting = (0..buffers).map(|_| ask()).collect::<Result<_>>()?;
        }
        for part in data.all().chunks(transfer) {
            link.send(Out::copy(part))?.sync().map_err(|failed| failed.error)?;
        }
        if !self.held.has(1) {
            waiting = (0..buffers).map(|_| ask()).collect::<Result<_>>()?;
        }
        let mut copied = link.totals().copied;
        for (pending, expected) in waiting.into_iter().zip(data.all().chunks(buffer)) {
            copied += self.take(pending, expected)?;
        }
        Ok(copied)
    }

    /// Takes an input; returns how many bytes were copied for it.
    fn take(self, pending: Pending<'static>, expected: &[u8]) -> Result<u64> {
        let failed = |what: &str| {
            Error::Peer(format!(
                "{what} ({}, {}); this is an error of Genie's, please report it",
                name(self.support),
                self.held.name()
            ))
        };
        if !pending.is_replied() {
            drop(pending.abort());
            return Err(failed("data that was sent did not arrive"));
        }
        let mut reply = pending.sync().map_err(|failed| failed.error)?;
        let copied = reply.receipt().copied;
        let buffer = reply.take_buffer().ok_or_else(|| failed("a buffer did not come back"))?;
        match difference(&buffer, expected) {
            None => Ok(copied as u64),
            Some(at) => Err(failed(&format!("byte {at} arrived damaged"))),
        }
    }
}
