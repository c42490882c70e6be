//! Subjects of measurements: each is one scheme that passes data of one length one way.
//!
//! How: each subject has a native buffer of its own, which it passes again and again. Under a migrant scheme it instead gets
//! a buffer for each output, and gives the buffer of each input back. An operation's *latency* runs from composing the
//! request to having the reply; its *cycle* also holds what the client does with the buffer: getting the buffer and storing
//! into it before an output, loading from the buffer and deallocating it after an input.

use std::time::{Duration, Instant};

use genie::mechanism::model::{Allocation, Integrity};
use genie::{Direction, Error, Out, Receipt, Reply, Scheme};
use genie_baselines::Exchanged;
use genie_lab::call::Call;
use genie_lab::client_buffer::ClientBuffer;

use super::bench::{Bench, Place, Task};

/// One operation's times and what it did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    /// The times, and the sum that the server replied, if it was asked for a sum.
    pub(super) times: Exchanged,
    pub(super) receipt: Receipt,
}

/// One scheme, direction and length, at one server.
#[derive(Debug)]
pub(super) struct Subject<'b> {
    pub(super) place: Place,
    pub(super) call: Call,
    pub(super) scheme: Scheme,
    pub(super) direction: Direction,
    pub(super) len: usize,
    bench: &'b Bench,
    buffer: ClientBuffer,
    /// Where the last migrant buffer arrived.
    arrived_at: usize,
}

impl<'b> Subject<'b> {
    /// Allocates what the scheme needs.
    pub(super) fn new(
        bench: &'b Bench,
        (place, call): (Place, Call),
        scheme: Scheme,
        direction: Direction,
        len: usize,
    ) -> Result<Self, Error> {
        let mut buffer = ClientBuffer::default();
        if scheme.allocation() == Allocation::Native {
            buffer.native_mut(&bench.genie, len)?;
        }
        Ok(Self { place, call, scheme, direction, len, bench, buffer, arrived_at: 0 })
    }

    /// Whether the scheme has strong integrity.
    pub(super) fn is_strong(&self) -> bool {
        self.scheme.integrity() == Integrity::Strong
    }

    /// The native buffer's bytes; none under a migrant scheme.
    pub(super) fn native(&self) -> Option<&[u8]> {
        self.buffer.native()
    }

    /// Swaps the native buffers of two subjects of one length.
    pub(super) fn swap_buffers(&mut self, other: &mut Self) {
        debug_assert_eq!(self.len, other.len, "subjects of one series");
        std::mem::swap(&mut self.buffer, &mut other.buffer);
    }

    /// Passes data out, after `prepare` has had the buffer.
    pub(super) fn output(&mut self, task: Task, prepare: impl FnOnce(&mut [u8])) -> Result<Passed, Error> {
        let Self { bench, place, call, scheme, len, buffer, .. } = self;
        let begun = Instant::now();
        let prepared = buffer.prepare(&bench.genie, *scheme, *len, prepare)?;
        let sent = Instant::now();
        let request = bench.request(*place, task, |request| request.out(buffer.output(*scheme, prepared)));
        let result = call.make(request);
        let replied = Instant::now();
        let reply = buffer.settle(result)?;
        Ok(passed(&reply, replied - sent, replied - begun))
    }

    /// Passes data in, and gives `finish` the buffer in which it arrived.
    pub(super) fn input(&mut self, task: Task, finish: impl FnOnce(&[u8])) -> Result<Passed, Error> {
        let Self { bench, place, call, scheme, len, buffer, arrived_at, .. } = self;
        let begun = Instant::now();
        let element = buffer.input(&bench.genie, *scheme, *len)?;
        let result = call.make(bench.request(*place, task, |request| request.input(element)));
        let replied = Instant::now();
        let mut reply = buffer.settle(result)?;
        if let Some(bytes) = buffer.native() {
            finish(bytes);
        } else if let Some(migrant) = reply.take_migrant() {
            *arrived_at = migrant.as_ptr().addr();
            finish(&migrant);
        }
        let finished = Instant::now();
        Ok(passed(&reply, replied - begun, finished - begun))
    }

    /// Fills the buffer that the next input goes to, as far as the client knows which buffer that will be.
    pub(super) fn fill(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.scheme != Scheme::Move {
            // The filled buffer goes back to the place from which the next input takes it.
            let fill = |buffer: &mut [u8]| buffer.copy_from_slice(bytes);
            drop(self.buffer.prepare(&self.bench.genie, self.scheme, self.len, fill)?);
        }
        Ok(())
    }

    /// Gives the region that an input by move left behind back to the free list. Each input by move brings a new region,
    /// which is kept for emulated move when it is deallocated; moving the region out removes it. The region may be as long
    /// as the data, or as the pooled buffer that the data came in.
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

fn passed(reply: &Reply, latency: Duration, cycle: Duration) -> Passed {
    let sum = reply.argument().try_into().ok().map(u64::from_le_bytes);
    Passed { times: Exchanged { latency, cycle, sum }, receipt: reply.buffers[0].elements[0].receipt }
}
