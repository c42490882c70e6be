//! The result of a comparison, as one JSON document.
//!
//! Invariants: later versions add to this shape and never change it.

use std::collections::BTreeMap;

use genie::model::Integrity;
use genie::{Direction, Reason, Receipt};
use genie_baselines::{MESSAGE, Means};
use genie_lab::length;
use genie_lab::machine::Machine;
use genie_lab::placement::Placement;
use genie_lab::samples::{Samples, Spread, nanoseconds, rounded};
use serde::Serialize;

use super::measured::{self, Contender, Measurements, Of, Records};
use super::overhead::Overhead;
use super::place::Place;
use super::throughput::Throughput;
use crate::failure::Failure;

/// Everything that one run found.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) machine: Machine,
    pub(super) granule: usize,
    pub(super) file: String,
    pub(super) limits: Limits,
    pub(super) results: Vec<Row>,
    /// Other means of passing data to another process.
    pub(super) baselines: Vec<BaselineRow>,
    /// How much more a server in another process costs, where both kinds of server were measured.
    pub(super) overhead: Vec<Overhead>,
    /// With several requests in flight, where that was asked for.
    pub(super) throughput: Vec<Throughput>,
}

impl Document {
    /// The failure of the first row with wrong bytes.
    pub(super) fn wrong(&self) -> Option<Failure> {
        let schemes = self.results.iter().map(|row| (row.scheme, &row.timed));
        let others = self.baselines.iter().map(|row| (row.name, &row.timed));
        let flows = self.throughput.iter().find(|row| !row.verified);
        let flow =
            flows.map(|row| format!("wrong bytes by {} in flight at {}", row.by, length::format(row.length)));
        let wrong = schemes.chain(others).find_map(|(name, Timed { direction, length, wrong, .. })| {
            let wrong = wrong.as_ref()?;
            Some(format!("wrong bytes by {name} {direction} of {}: {wrong}", length::format(*length)))
        });
        wrong.or(flow).map(Failure::could_not)
    }
}

/// The limits that no scheme can beat, and where they were measured.
#[derive(Debug, Default, Serialize)]
pub(super) struct Limits {
    /// The time for a cache line to go to another CPU and back; none on a machine of one CPU.
    pub(super) pingpong_ns: Option<u64>,
    pub(super) placement: Option<&'static str>,
    /// Copying between two warm ordinary buffers, by length.
    pub(super) memcpy_us: BTreeMap<usize, f64>,
    /// The time for a cache line to go from this process to its peer and back, in microseconds; none without baselines.
    pub(super) ping_pong_us: Option<f64>,
    /// The time for a word to go to the peer and back, where each side sleeps in futex until the other side wakes it.
    pub(super) futex_hand_over_us: Option<f64>,
    /// A request without buffers.
    pub(super) empty_request_us: f64,
    /// Batches that were dropped because the CPUs were placed differently from the rest of the series.
    pub(super) batches_dropped: usize,
}

/// The measurements of one means of passing data, at one length in one direction.
#[derive(Debug, Serialize)]
pub(super) struct Timed {
    pub(super) direction: &'static str,
    pub(super) server: &'static str,
    pub(super) length: usize,
    pub(super) touch: &'static str,
    pub(super) latency_us: Spread,
    pub(super) cycle_us: Spread,
    /// Length divided by the median latency; a megabyte is 10^6 bytes.
    pub(super) throughput_mb_s: f64,
    /// The client's CPU time in a cycle; it includes the work of an in-process server.
    pub(super) cpu_us: f64,
    pub(super) verified: bool,
    /// How the CPUs were placed.
    pub(super) placement: Option<&'static str>,
    /// How many latencies were measured.
    pub(super) samples: u64,
    /// What was wrong with the data, if anything was.
    #[serde(skip)]
    pub(super) wrong: Option<String>,
}

/// One scheme.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) scheme: &'static str,
    #[serde(flatten)]
    pub(super) timed: Timed,
    pub(super) receipt: Passed,
    /// Whether the scheme has strong integrity.
    #[serde(skip)]
    pub(super) strong: bool,
}

/// One baseline. Rows in the direction `empty` are round trips of 64 bytes without data;
/// the rows named `genie` are requests without buffers.
#[derive(Debug, Serialize)]
pub(super) struct BaselineRow {
    pub(super) name: &'static str,
    #[serde(flatten)]
    pub(super) timed: Timed,
}

/// The direction of round trips without data.
pub(super) const EMPTY: &str = "empty";

/// How the data was passed: the receipt of the last measured operation.
#[derive(Debug, Serialize)]
pub(super) struct Passed {
    pub(super) copied: usize,
    pub(super) referenced: u32,
    pub(super) protected: u32,
    pub(super) swapped: u32,
    /// Write faults in a cycle, the client's touching included: the median.
    pub(super) faults: u64,
    pub(super) reason: Option<Reason>,
    pub(super) mapped: u32,
    pub(super) zeroed: usize,
    /// The scheme that took effect.
    pub(super) effective: &'static str,
}

/// The settings of what was measured together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) direction: &'static str,
    pub(super) length: usize,
    /// The sides that touch the data.
    pub(super) touch: &'static str,
    pub(super) placement: Option<Placement>,
}

impl Timed {
    fn new(records: &Records, by: usize, wrong: Option<String>, server: &'static str, block: Block) -> Self {
        let samples = |of: Of| records.get(of).cloned().unwrap_or_default();
        let latency = samples(Of::Latency(by));
        Self {
            latency_us: latency.spread(),
            cycle_us: samples(Of::Cycle(by)).spread(),
            throughput_mb_s: throughput(block.length, latency.spread()),
            cpu_us: rounded(samples(Of::CpuTime(by)).median_us()),
            verified: wrong.is_none(),
            wrong,
            ..Self::empty(&latency, server, block)
        }
    }

    /// A round trip without data, as a row of an empty block.
    fn empty(times: &Samples, server: &'static str, block: Block) -> Self {
        let spread = times.spread();
        Self {
            direction: block.direction,
            server,
            length: block.length,
            touch: block.touch,
            latency_us: spread,
            cycle_us: spread,
            throughput_mb_s: throughput(block.length, spread),
            cpu_us: 0.0,
            verified: true,
            placement: block.placement.map(Placement::name),
            samples: times.count(),
            wrong: None,
        }
    }

    /// The length and the direction, which all rows of its block have in common.
    pub(super) fn at(&self) -> (usize, &'static str) {
        (self.length, self.direction)
    }
}

/// The rows of one series.
pub(super) fn rows(measured: Measurements, block: Block) -> (Vec<Row>, Vec<BaselineRow>) {
    let Measurements { records, contenders, .. } = measured;
    let (mut schemes, mut baselines) = (Vec::new(), Vec::new());
    for (by, Contender { means, wrong }) in contenders.into_iter().enumerate() {
        match means {
            measured::Means::Scheme(place, receipt) => schemes.push(Row {
                scheme: receipt.asked.name(),
                timed: Timed::new(&records, by, wrong, place.name(), block),
                receipt: Passed::new(&receipt, records.get(Of::Faults(by)).map_or(0, Samples::median)),
                strong: receipt.asked.integrity() == Integrity::Strong,
            }),
            measured::Means::Baseline(means) => baselines.push(BaselineRow {
                name: means.name(),
                timed: Timed::new(&records, by, wrong, Place::Process.name(), block),
            }),
        }
    }
    (schemes, baselines)
}

/// The word for a direction.
pub(super) fn name(direction: Direction) -> &'static str {
    if direction == Direction::Out { "out" } else { "in" }
}

/// Megabytes a second, of the median.
fn throughput(length: usize, latency: Spread) -> f64 {
    rounded(length as f64 / latency.median.max(1e-3))
}

impl Passed {
    fn new(receipt: &Receipt, faults: u64) -> Self {
        Self {
            copied: receipt.copied,
            referenced: receipt.referenced,
            protected: receipt.protected,
            swapped: receipt.swapped,
            faults,
            reason: receipt.reason,
            mapped: receipt.mapped,
            zeroed: receipt.zeroed,
            effective: receipt.effective.name(),
        }
    }
}

/// Gathers the facts that all series give about the machine.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    memcpy: BTreeMap<usize, Samples>,
    /// The records of all series.
    records: Records,
    round_trips: Vec<(Option<Placement>, u64)>,
    dropped: usize,
}

impl Gathering {
    pub(super) fn add(&mut self, length: usize, measurements: &Measurements) {
        if let Some(times) = measurements.records.get(Of::Memcpy) {
            self.memcpy.entry(length).or_default().merge(times);
        }
        self.records.merge(&measurements.records);
        let nanoseconds = measurements.round_trip.map_or(0, nanoseconds);
        self.round_trips.push((measurements.placement, nanoseconds));
        self.dropped += measurements.dropped;
    }

    fn placement(&self) -> Option<Placement> {
        genie_lab::probe::majority(self.round_trips.iter().map(|(placement, _)| *placement))
    }

    /// Round trips without data: requests without buffers to the servers in these places, and those of the baselines.
    pub(super) fn empty_rows(
        &self,
        places: impl Iterator<Item = Place>,
        means: impl Iterator<Item = Means>,
    ) -> Vec<BaselineRow> {
        let block = Block { direction: EMPTY, length: MESSAGE, touch: "none", placement: self.placement() };
        let row = |(name, place, of): (&'static str, Place, Of)| {
            let timed = Timed::empty(self.records.get(of)?, place.name(), block);
            Some(BaselineRow { name, timed })
        };
        let requests = places.enumerate().map(|(index, place)| ("genie", place, Of::Request(index)));
        let asleep = ("genie-blocking", Place::Process, Of::RequestAsleep);
        let baselines =
            means.enumerate().map(|(index, means)| (means.name(), Place::Process, Of::Empty(index)));
        requests.chain([asleep]).chain(baselines).filter_map(row).collect()
    }

    pub(super) fn limits(&self) -> Limits {
        let placement = self.placement();
        let median = |of: Of| self.records.get(of).map(|samples| rounded(samples.median_us()));
        let of_placement = self.round_trips.iter().filter(|(here, _)| *here == placement);
        let mut times: Vec<_> = of_placement.map(|(_, time)| *time).collect();
        times.sort_unstable();
        Limits {
            pingpong_ns: placement.and_then(|_| times.get(times.len() / 2).copied()),
            placement: placement.map(Placement::name),
            ping_pong_us: median(Of::PingPong),
            futex_hand_over_us: median(Of::Futex),
            memcpy_us: self
                .memcpy
                .iter()
                .map(|(length, times)| (*length, rounded(times.median_us())))
                .collect(),
            empty_request_us: median(Of::RequestInTurn).unwrap_or_default(),
            batches_dropped: self.dropped,
        }
    }
}
