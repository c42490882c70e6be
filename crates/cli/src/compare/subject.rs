//! What is measured: one scheme that passes data of one length one way.
//!
//! How: each subject has a native buffer of its own, which it passes again and again, or, under a migrant scheme, gets a
//! buffer for each output and gives each input's back. An operation's *latency* runs from composing the request to
//! having the reply; its *cycle* also holds what the client does with the buffer: getting and storing into one before an
//! output, loading from and deallocating one after an input.

use std::time::{Duration, Instant};

use genie::model::{Allocation, Integrity};
use genie::{Buffer, Direction, Error, Failed, In, Out, Receipt, Reply, Request, Scheme};

use super::bench::{Bench, Task};
use super::place::Place;

/// One operation's times and what it did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    pub(super) latency: Duration,
    pub(super) cycle: Duration,
    pub(super) receipt: Receipt,
    /// The sum that the server replied, if it was asked for one.
    pub(super) sum: Option<u64>,
}

/// One scheme, direction and length, at one server.
#[derive(Debug)]
pub(super) struct Subject<'b> {
    pub(super) place: Place,
    pub(super) scheme: Scheme,
    pub(super) direction: Direction,
    pub(super) len: usize,
    bench: &'b Bench,
    /// The native buffer, except while it is shared.
    buffer: Option<Buffer>,
    /// Where the last migrant buffer arrived.
    arrived_at: usize,
}

impl<'b> Subject<'b> {
    /// Allocates what the scheme needs.
    pub(super) fn new(
        bench: &'b Bench,
        place: Place,
        scheme: Scheme,
        direction: Direction,
        len: usize,
    ) -> Result<Self, Error> {
        let native = scheme.allocation() == Allocation::Native;
        let buffer = native.then(|| bench.genie.allocate(len)).transpose()?;
        Ok(Self { place, scheme, direction, len, bench, buffer, arrived_at: 0 })
    }

    /// Whether the scheme has strong integrity.
    pub(super) fn is_strong(&self) -> bool {
        self.scheme.integrity() == Integrity::Strong
    }

    /// The native buffer's bytes; none under a migrant scheme.
    pub(super) fn native(&self) -> Option<&[u8]> {
        self.buffer.as_deref()
    }

    /// Exchanges the native buffers of two subjects of one length.
    pub(super) fn exchange_buffers(&mut self, other: &mut Self) {
        debug_assert_eq!(self.len, other.len, "subjects of one series");
        std::mem::swap(&mut self.buffer, &mut other.buffer);
    }

    /// Passes data out, after `prepare` has been given the buffer.
    pub(super) fn output(&mut self, task: Task, prepare: impl FnOnce(&mut [u8])) -> Result<Passed, Error> {
        let (bench, place, scheme, strong) = (self.bench, self.place, self.scheme, self.is_strong());
        let begun = Instant::now();
        let (sent, result) = match (&mut self.buffer, strong) {
            (Some(buffer), true) => {
                prepare(buffer);
                let sent = Instant::now();
                (
                    sent,
                    bench.request(place, task, |request| request.out(Out::borrowed(scheme, buffer))).send(),
                )
            }
            (held @ Some(_), false) => {
                let mut buffer = held.take().expect("matched");
                prepare(&mut buffer);
                let sent = Instant::now();
                (sent, bench.request(place, task, |request| request.out(Out::owned(scheme, buffer))).send())
            }
            (None, _) => {
                let mut migrant = bench.genie.allocate_migrant(self.len, strong)?;
                prepare(&mut migrant);
                let sent = Instant::now();
                (
                    sent,
                    bench.request(place, task, |request| request.out(Out::migrant(scheme, migrant))).send(),
                )
            }
        };
        let replied = Instant::now();
        let reply = self.take_back(result)?;
        Ok(Passed { latency: replied - sent, cycle: replied - begun, ..passed(&reply) })
    }

    /// Passes data in, and gives `finish` the buffer in which it arrived.
    pub(super) fn input(&mut self, task: Task, finish: impl FnOnce(&[u8])) -> Result<Passed, Error> {
        let begun = Instant::now();
        let result = self.input_request(task);
        let replied = Instant::now();
        let mut reply = self.take_back(result)?;
        if let Some(bytes) = self.buffer.as_deref() {
            finish(bytes);
        } else if let Some(migrant) = reply.take_migrant() {
            self.arrived_at = migrant.as_ptr().addr();
            finish(&migrant);
        }
        let finished = Instant::now();
        Ok(Passed { latency: replied - begun, cycle: finished - begun, ..passed(&reply) })
    }

    #[inline]
    fn input_request(&mut self, task: Task) -> Result<Reply, Failed> {
        let (scheme, len, strong) = (self.scheme, self.len, self.is_strong());
        let element = match (&mut self.buffer, strong) {
            (Some(buffer), true) => In::borrowed(scheme, buffer),
            (held @ Some(_), false) => In::owned(scheme, held.take().expect("matched")),
            (None, _) => In::migrant(scheme, len),
        };
        self.bench
            .request(self.place, task, move |request: Request<'_, '_, '_>| request.input(element))
            .send()
    }

    /// Takes a shared buffer back from the reply, or from the failed request.
    fn take_back(&mut self, result: Result<Reply, Failed>) -> Result<Reply, Error> {
        let shared = self.scheme.allocation() == Allocation::Native && !self.is_strong();
        match result {
            Ok(mut reply) => {
                if shared {
                    self.buffer = reply.take_buffer();
                }
                Ok(reply)
            }
            Err(mut failed) => {
                if shared {
                    self.buffer = failed.take_buffer();
                }
                Err(failed.error)
            }
        }
    }

    /// Fills the buffer that the next input goes to, as far as the client knows which one that will be.
    pub(super) fn fill(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if let Some(buffer) = &mut self.buffer {
            buffer.copy_from_slice(bytes);
        } else if self.scheme != Scheme::Move {
            let mut migrant = self.bench.genie.allocate_migrant(self.len, self.is_strong())?;
            migrant.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Gives back to the free list what an input by move left behind: each one brings a new region, which is kept for
    /// emulated move when it is deallocated; moving it out removes it. The region may be as long as the data, or as the
    /// pooled buffer that the data came in.
    pub(super) fn tidy(&self) -> Result<(), Error> {
        if (self.scheme, self.direction) != (Scheme::Move, Direction::In) {
            return Ok(());
        }
        for len in [self.len, self.bench.data.all().len()] {
            let migrant = self.bench.genie.allocate_migrant(len, true)?;
            if migrant.as_ptr().addr() == self.arrived_at {
                let request =
                    self.bench.request(self.place, Task::NULL, |request| request.out(Out::moved(migrant)));
                return request.send().map(drop).map_err(|failed| failed.error);
            }
        }
        Ok(())
    }
}

/// What a reply says, before times are known.
fn passed(reply: &Reply) -> Passed {
    Passed {
        latency: Duration::ZERO,
        cycle: Duration::ZERO,
        receipt: *reply.receipt(),
        sum: reply.argument().try_into().ok().map(u64::from_le_bytes),
    }
}
