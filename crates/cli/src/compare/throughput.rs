//! One-way throughput: outputs with several requests in flight, as made by a client that does not wait for each reply.
//!
//! How: the client makes requests, in one batch, until as many are in flight as asked for, and then takes the replies of the older half.
//! Each scheme is measured twice: with system buffers recycled in a small rotation, and as calibration
//! found best. In turns with them a stream of buffers through plain shared memory is measured, with few buffers and with many,
//! which shows whether recycling matters on this machine; and the baselines that pass many, which answer once, in the end. Whoever is to
//! touch the data, the client copies all of it into shared memory there, and the peer sums it.
//! Limits: lengths up to 1 MiB; longer data does not need many requests.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use genie::mechanism::model::Allocation;
use genie::{Batch, Error, Pending, Scheme};
use genie_baselines::{Baselines, LONGEST_OF_MANY};
use genie_lab::client_buffer::ClientBuffer;
use genie_lab::data::sum;
use genie_lab::length;
use genie_lab::samples::rounded;
use genie_lab::touch::{self, Touch};
use genie_memory::Recycling;
use serde::Serialize;

use super::bench::{Bench, POLLED, Place, Task};
use crate::failure::Failure;

/// The schemes that are measured.
const SCHEMES: [Scheme; 3] = [Scheme::Copy, Scheme::EmulatedCopy, Scheme::WeakMove];
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
    /// A scheme, a baseline, or `shared-memory`.
    pub(super) by: &'static str,
    pub(super) server: &'static str,
    pub(super) length: usize,
    /// Requests in flight.
    pub(super) outstanding: usize,
    /// How buffers are recycled: in a small rotation, in a large one, as calibration found best, or in the baseline's own way.
    pub(super) recycling: &'static str,
    /// How many buffers rotate.
    pub(super) buffers: usize,
    /// The middle of five measurements, in 10^6 bytes a second.
    pub(super) mb_s: f64,
    /// Whether the sums at the server or the peer were right, as far as it summed known data.
    pub(super) verified: bool,
}

/// Measures each scheme at each length and server, with both ways of recycling, and the baselines that pass many; all take turns, and
/// each measurement makes at most `requests` requests.
pub(super) fn measure(
    bench: &Bench,
    mut baselines: Option<&mut Baselines>,
    lengths: &[usize],
    touch: Touch,
    outstanding: usize,
    requests: usize,
) -> Result<Vec<Throughput>, Failure> {
    let mut rows = Vec::new();
    for len in lengths.iter().copied().filter(|len| *len <= LONGEST_OF_MANY) {
        let turns = Turns { bench, len, touch, outstanding, requests };
        let ways = ways(bench, baselines.as_deref());
        let mut found = vec![Vec::with_capacity(TIMES); ways.len()];
        for _ in 0..TIMES {
            for (way, found) in ways.iter().zip(&mut found) {
                found.extend(turns.turn(*way, baselines.as_deref_mut())?);
            }
        }
        let measured = ways.into_iter().zip(found).filter(|(_, found)| !found.is_empty());
        rows.extend(measured.map(|(way, found)| turns.row(way, &found)));
    }
    Ok(rows)
}

/// What takes turns.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// A stream through so many buffers of shared memory.
    Limit(usize),
    /// The baseline with this number and this name.
    Baseline(usize, &'static str),
    /// A scheme, with buffers recycled in this way, which has this name.
    Scheme(Place, Scheme, &'static str, Recycling),
}

/// All that take turns. The calibrated recycling, which is the interface's own, is the last one to be set.
fn ways(bench: &Bench, baselines: Option<&Baselines>) -> Vec<Way> {
    let limits = [FEW, MANY].map(Way::Limit).into_iter().filter(|_| baselines.is_some());
    let means = baselines.into_iter().flat_map(Baselines::means).enumerate();
    let many = means.filter(|(_, means)| means.passes_many());
    let many = many.map(|(index, means)| Way::Baseline(index, means.name()));
    let small = Recycling { rotation: [FEW as u16; Recycling::CLASSES] };
    let recycling = [("small", small), ("calibrated", bench.genie.passing().costs().recycling())];
    let schemes = bench.places().flat_map(|place| SCHEMES.map(|scheme| (place, scheme)));
    let schemes = schemes
        .flat_map(|(place, scheme)| recycling.map(|(name, how)| Way::Scheme(place, scheme, name, how)));
    limits.chain(many).chain(schemes).collect()
}

/// The settings that all turns at one length have in common.
#[derive(Debug)]
struct Turns<'b> {
    bench: &'b Bench,
    len: usize,
    touch: Touch,
    outstanding: usize,
    /// The most requests that one measurement makes.
    requests: usize,
}

impl Turns<'_> {
    /// Measures once. Returns the bytes a second, and whether the data was right; none where there is no memory for a stream.
    fn turn(&self, way: Way, baselines: Option<&mut Baselines>) -> Result<Option<(f64, bool)>, Failure> {
        if !matches!(way, Way::Scheme(..)) {
            // The peer has its CPU for itself when the memory servers there have gone to sleep.
            std::thread::sleep(2 * POLLED);
        }
        let len = self.len;
        Ok(match (way, baselines) {
            (Way::Limit(buffers), Some(baselines)) => {
                baselines.rotate(buffers, len, self.requests)?.map(|bytes| (bytes, true))
            }
            (Way::Baseline(index, _), Some(baselines)) => {
                let (data, count) = (self.bench.data.of(len), self.count());
                let (time, right) = baselines.pass_many(index, data, self.outstanding, count)?;
                Some((self.bytes_a_second(time), right == count as u64))
            }
            (Way::Scheme(place, scheme, _, recycling), _) => {
                self.bench.genie.space().set_recycling(recycling);
                Some(Flow::new(self, place, scheme).pass().map_err(|error| {
                    let len = length::format(len);
                    Failure::could_not(format!(
                        "the throughput of {scheme} at {len} could not be measured: {error}"
                    ))
                })?)
            }
            _ => None,
        })
    }

    /// How often a measurement passes data.
    fn count(&self) -> usize {
        (BYTES / self.len).min(self.requests).max(2 * self.outstanding)
    }

    fn bytes_a_second(&self, time: Duration) -> f64 {
        (self.count() * self.len) as f64 / time.as_secs_f64()
    }

    fn row(&self, way: Way, found: &[(f64, bool)]) -> Throughput {
        let Self { len, outstanding, .. } = *self;
        let (by, server, outstanding, recycling, buffers) = match way {
            Way::Limit(FEW) => ("shared-memory", Place::Process, FEW, "small", FEW),
            Way::Limit(buffers) => ("shared-memory", Place::Process, buffers, "large", buffers),
            Way::Baseline(_, name) => (name, Place::Process, outstanding, "own", outstanding),
            Way::Scheme(place, scheme, recycling, how) => {
                (scheme.name(), place, outstanding, recycling, usize::from(how.rotation(len)))
            }
        };
        let mb_s = middle(found.iter().map(|(bytes, _)| *bytes).collect());
        let (server, verified) = (server.name(), found.iter().all(|(_, right)| *right));
        Throughput { by, server, length: len, outstanding, recycling, buffers, mb_s, verified }
    }
}

/// The requests of one measurement.
#[derive(Debug)]
struct Flow<'t> {
    turns: &'t Turns<'t>,
    place: Place,
    scheme: Scheme,
    /// The sum that the server must reply, where it is known.
    sum: Option<u64>,
    /// Whether the server has replied no other sum.
    right: Cell<bool>,
}

impl<'t> Flow<'t> {
    fn new(turns: &'t Turns<'t>, place: Place, scheme: Scheme) -> Self {
        let known = turns.touch.by_server() && scheme.allocation() == Allocation::Native;
        let sum = known.then(|| sum(turns.bench.data.of(turns.len)));
        Self { turns, place, scheme, sum, right: Cell::new(true) }
    }

    /// Passes data out again and again. Returns the bytes a second, and whether all sums were right.
    fn pass(&self) -> Result<(f64, bool), Error> {
        let Turns { bench, len, outstanding, .. } = *self.turns;
        // One buffer more than are in flight, so that no buffer is stored into while it is in flight.
        let mut buffers = VecDeque::new();
        for _ in 0..=outstanding {
            let mut buffer = ClientBuffer::default();
            if self.scheme.allocation() == Allocation::Native {
                buffer.native_mut(&bench.genie, len)?.copy_from_slice(bench.data.of(len));
            }
            buffers.push_back(buffer);
        }
        self.requests(&mut buffers, outstanding)?;
        let start = Instant::now();
        self.requests(&mut buffers, self.turns.count())?;
        Ok((self.turns.bytes_a_second(start.elapsed()), self.right.get()))
    }

    fn requests(&self, buffers: &mut VecDeque<ClientBuffer>, count: usize) -> Result<(), Error> {
        let Turns { bench, outstanding, .. } = *self.turns;
        let mut flight = VecDeque::with_capacity(outstanding);
        let mut left = count;
        while left > 0 {
            let mut batch = bench.genie.batch();
            while left > 0 && flight.len() < outstanding {
                flight.push_back(self.begin(&mut batch, &mut buffers[0])?);
                buffers.rotate_left(1);
                left -= 1;
            }
            drop(batch);
            let older = flight.len().div_ceil(2);
            flight.drain(..older).try_for_each(|pending| self.finish(pending))?;
        }
        flight.into_iter().try_for_each(|pending| self.finish(pending))
    }

    fn begin(&self, batch: &mut Batch, buffer: &mut ClientBuffer) -> Result<Pending<'static>, Error> {
        let Turns { bench, len, touch, .. } = *self.turns;
        let task = if touch.by_server() { Task::SUM } else { Task::NULL };
        let prepare = |bytes: &mut [u8]| {
            if let Some(amount) = touch.by_client() {
                touch::store(bytes, amount, bench.data.of(len));
            }
        };
        let prepared = buffer.prepare(&bench.genie, self.scheme, len, prepare)?;
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
