//! One-way throughput: outputs with several requests in flight, as made by a client that does not wait for each reply.
//!
//! How: the client makes requests, in one batch, until as many are in flight as asked for, and then takes the replies of the older half.
//! Each scheme is measured twice: with system buffers recycled in a small rotation, and as calibration
//! found best. Beside them a stream of buffers through plain shared memory is measured, with few buffers and with many,
//! which shows whether recycling matters on this machine.
//! Limits: lengths up to 1 MiB; longer data does not need many requests.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Instant;

use genie::mechanism::model::Allocation;
use genie::{Batch, Error, Pending, Scheme};
use genie_baselines::Baselines;
use genie_lab::client_buffer::ClientBuffer;
use genie_lab::data::sum;
use genie_lab::length;
use genie_lab::samples::rounded;
use genie_lab::touch::{self, Touch};
use genie_memory::Recycling;
use serde::Serialize;

use super::bench::{Bench, Place, Task};
use crate::failure::Failure;

/// The schemes that are measured.
const SCHEMES: [Scheme; 3] = [Scheme::Copy, Scheme::EmulatedCopy, Scheme::WeakMove];
/// The longest data that is measured.
const LONGEST: usize = 1 << 20;
/// How many bytes one measurement passes.
const BYTES: usize = 64 << 20;
/// How many requests one measurement makes at most, unless fewer rounds were asked for.
pub(super) const REQUESTS: usize = 20_000;
/// How often each combination is measured.
const TIMES: usize = 5;
/// A small rotation, and a large one.
const FEW: usize = 8;
const MANY: usize = 64;

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Throughput {
    /// A scheme, or `shared-memory`.
    pub(super) by: &'static str,
    pub(super) server: &'static str,
    pub(super) length: usize,
    /// Requests in flight.
    pub(super) outstanding: usize,
    /// How buffers are recycled: in a small rotation, or as calibration found best.
    pub(super) recycling: &'static str,
    /// How many buffers rotate.
    pub(super) buffers: usize,
    /// The middle of five measurements, in 10^6 bytes a second.
    pub(super) mb_s: f64,
    /// Whether the server's sums were right, as far as it summed known data.
    pub(super) verified: bool,
}

/// Measures each scheme at each length and server, with both ways of recycling, which take turns; each measurement makes at
/// most `requests` requests.
pub(super) fn measure(
    bench: &Bench,
    mut baselines: Option<&mut Baselines>,
    lengths: &[usize],
    touch: Touch,
    outstanding: usize,
    requests: usize,
) -> Result<Vec<Throughput>, Failure> {
    let mut rows = Vec::new();
    for len in lengths.iter().copied().filter(|len| *len <= LONGEST) {
        for buffers in [FEW, MANY] {
            rows.extend(stream(baselines.as_deref_mut(), buffers, len, requests)?);
        }
        for place in bench.places() {
            for scheme in SCHEMES {
                let known = touch.by_server() && scheme.allocation() == Allocation::Native;
                let sum = known.then(|| sum(bench.data.of(len)));
                let right = Cell::new(true);
                let measured =
                    schemes(bench, &Flow { place, scheme, len, touch, outstanding, requests, sum, right });
                rows.extend(measured.map_err(|error| {
                    let len = length::format(len);
                    Failure::could_not(format!(
                        "the throughput of {scheme} at {len} could not be measured: {error}"
                    ))
                })?);
            }
        }
    }
    Ok(rows)
}

/// A stream through shared memory.
fn stream(
    baselines: Option<&mut Baselines>,
    buffers: usize,
    len: usize,
    requests: usize,
) -> Result<Option<Throughput>, Failure> {
    let Some(baselines) = baselines else { return Ok(None) };
    let mut found = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let Some(bytes) = baselines.rotate(buffers, len, requests)? else { return Ok(None) };
        found.push(bytes);
    }
    let recycling = if buffers == FEW { "small" } else { "large" };
    let (by, server) = ("shared-memory", Place::Process.name());
    Ok(Some(Throughput {
        by,
        server,
        length: len,
        outstanding: buffers,
        recycling,
        buffers,
        mb_s: middle(found),
        verified: true,
    }))
}

/// The measurements that take turns.
#[derive(Debug)]
struct Flow {
    place: Place,
    scheme: Scheme,
    len: usize,
    touch: Touch,
    outstanding: usize,
    /// The most requests that one measurement makes.
    requests: usize,
    /// The sum that the server must reply, where it is known.
    sum: Option<u64>,
    /// Whether the server has replied no other sum.
    right: Cell<bool>,
}

fn schemes(bench: &Bench, flow: &Flow) -> Result<[Throughput; 2], Error> {
    let calibrated = bench.genie.passing().costs().recycling();
    let small = Recycling { rotation: [FEW as u16; Recycling::CLASSES] };
    let mut found = [Vec::new(), Vec::new()];
    for _ in 0..TIMES {
        for (recycling, found) in [small, calibrated].into_iter().zip(&mut found) {
            bench.genie.space().set_recycling(recycling);
            found.push(flow.pass(bench)?);
        }
    }
    // The calibrated recycling was set last.
    let [few, best] = found.map(middle);
    let row = |recycling, buffers: u16, mb_s| Throughput {
        by: flow.scheme.name(),
        server: flow.place.name(),
        length: flow.len,
        outstanding: flow.outstanding,
        recycling,
        buffers: usize::from(buffers),
        mb_s,
        verified: flow.right.get(),
    };
    Ok([row("small", small.rotation(flow.len), few), row("calibrated", calibrated.rotation(flow.len), best)])
}

impl Flow {
    /// Passes data out again and again and returns the bytes a second.
    fn pass(&self, bench: &Bench) -> Result<f64, Error> {
        // One buffer more than are in flight, so that no buffer is stored into while it is in flight.
        let mut buffers = VecDeque::new();
        for _ in 0..=self.outstanding {
            let mut buffer = ClientBuffer::default();
            if self.scheme.allocation() == Allocation::Native {
                buffer.native_mut(&bench.genie, self.len)?.copy_from_slice(bench.data.of(self.len));
            }
            buffers.push_back(buffer);
        }
        let count = (BYTES / self.len).min(self.requests).max(2 * self.outstanding);
        self.requests(bench, &mut buffers, self.outstanding)?;
        let start = Instant::now();
        self.requests(bench, &mut buffers, count)?;
        Ok((count * self.len) as f64 / start.elapsed().as_secs_f64())
    }

    fn requests(
        &self,
        bench: &Bench,
        buffers: &mut VecDeque<ClientBuffer>,
        count: usize,
    ) -> Result<(), Error> {
        let mut flight = VecDeque::with_capacity(self.outstanding);
        let mut left = count;
        while left > 0 {
            let mut batch = bench.genie.batch();
            while left > 0 && flight.len() < self.outstanding {
                flight.push_back(self.begin(bench, &mut batch, &mut buffers[0])?);
                buffers.rotate_left(1);
                left -= 1;
            }
            drop(batch);
            let older = flight.len().div_ceil(2);
            flight.drain(..older).try_for_each(|pending| self.finish(pending))?;
        }
        flight.into_iter().try_for_each(|pending| self.finish(pending))
    }

    fn begin(
        &self,
        bench: &Bench,
        batch: &mut Batch,
        buffer: &mut ClientBuffer,
    ) -> Result<Pending<'static>, Error> {
        let task = if self.touch.by_server() { Task::SUM } else { Task::NULL };
        let prepare = |bytes: &mut [u8]| {
            if let Some(amount) = self.touch.by_client() {
                touch::store(bytes, amount, bench.data.of(self.len));
            }
        };
        let prepared = buffer.prepare(&bench.genie, self.scheme, self.len, prepare)?;
        let element = buffer.output(self.scheme, prepared);
        let request = bench.request(self.place, task, |request| request.out(element));
        request.batched(batch).submit().map_err(|failed| failed.error)
    }

    /// Takes the reply; the sum of a native buffer's data is known.
    fn finish(&self, pending: Pending<'_>) -> Result<(), Error> {
        let reply = pending.sync().map_err(|failed| failed.error)?;
        let found = reply.argument().try_into().ok().map(u64::from_le_bytes);
        if self.sum.is_some_and(|sum| found != Some(sum)) {
            self.right.set(false);
        }
        Ok(())
    }
}

/// The middle of some bytes a second, in megabytes.
fn middle(mut found: Vec<f64>) -> f64 {
    found.sort_by(f64::total_cmp);
    rounded(found[found.len() / 2] / 1e6)
}
