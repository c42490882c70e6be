//! The result of a comparison, as one JSON document.
//!
//! Invariants: later versions add to this shape and never change it.

use std::collections::BTreeMap;

use genie::mechanism::model::Integrity;
use genie::{Direction, Reason, Receipt};
use genie_baselines::{MESSAGE, Means};
use genie_lab::length;
use genie_lab::machine::Machine;
use genie_lab::placement::Placement;
use genie_lab::samples::{Samples, Spread, nanoseconds, rounded};
use genie_passing::calibration::Circumstances;
use serde::Serialize;

use super::bench::Place;
use super::measured::{self, Contender, Measurements, Of, Records};
use super::overhead::Overhead;
use super::throughput::Throughput;
use crate::failure::Failure;

/// Everything that one run found.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) machine: Machine,
    /// How the costs were measured from which thresholds follow.
    pub(super) costs: Option<Circumstances>,
    pub(super) granule: usize,
    pub(super) file: String,
    pub(super) limits: Limits,
    pub(super) results: Vec<Row>,
    /// Other means of passing data to another process.
    pub(super) baselines: Vec<Row>,
    /// How much more a server in another process costs, where both kinds of server were measured.
    pub(super) overhead: Vec<Overhead>,
    /// With several requests in flight, where that was asked for.
    pub(super) throughput: Vec<Throughput>,
}

impl Document {
    /// The failure of the first row with wrong bytes.
    pub(super) fn wrong(&self) -> Option<Failure> {
        let flows = self.throughput.iter().find(|row| !row.verified);
        let flow =
            flows.map(|row| format!("wrong bytes by {} in flight at {}", row.by, length::format(row.length)));
        let wrong = self.results.iter().chain(&self.baselines).find_map(|row| {
            let (wrong, length) = (row.wrong.as_ref()?, length::format(row.length));
            Some(format!("wrong bytes by {} {} of {length}: {wrong}", row.name(), row.direction))
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
    /// A request without buffers whose argument is 64 bytes long.
    pub(super) argument_us: f64,
    /// Batches that were dropped because the CPUs were placed differently from the rest of the series.
    pub(super) batches_dropped: usize,
}

/// What passed the data: the field of a row that names it, and its value.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    /// A scheme.
    Scheme(&'static str),
    /// A baseline; or `genie`, whose rows are requests without buffers.
    Name(&'static str),
}

/// The measurements of one means of passing data, at one length in one direction. Rows in the direction `empty` are round
/// trips of 64 bytes without data.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) by: By,
    pub(super) direction: &'static str,
    pub(super) server: &'static str,
    /// By which function the client made its requests, if a scheme passed the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<&'static str>,
    pub(super) length: usize,
    pub(super) touch: &'static str,
    pub(super) latency_us: Spread,
    pub(super) cycle_us: Spread,
    /// What it takes beside copy, if it is emulated copy and copy was measured, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) of_copy: Option<OfCopy>,
    /// Length divided by the median latency; a megabyte is 10^6 bytes.
    pub(super) throughput_mb_s: f64,
    /// The client's CPU time in a cycle; it includes the work of an in-process server.
    pub(super) cpu_us: f64,
    pub(super) verified: bool,
    /// How the CPUs were placed.
    pub(super) placement: Option<&'static str>,
    /// How many latencies were measured.
    pub(super) samples: u64,
    /// What the scheme did, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) receipt: Option<Passed>,
    /// What was wrong with the data, if anything was.
    #[serde(skip)]
    pub(super) wrong: Option<String>,
    /// Whether it is a scheme of strong integrity.
    #[serde(skip)]
    pub(super) strong: bool,
}

/// The factors between what a scheme takes and what copy takes in the same turn: the middle of all turns.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct OfCopy {
    pub(super) latency: f64,
    pub(super) cycle: f64,
}

/// The direction of round trips without data.
pub(super) const EMPTY: &str = "empty";

/// How the data was passed: the receipt of the last measured operation.
#[derive(Debug, Serialize)]
pub(super) struct Passed {
    pub(super) copied: usize,
    pub(super) referenced: u32,
    pub(super) held: bool,
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

impl Row {
    /// The row of the contender with this index.
    fn new(records: &Records, index: usize, contender: Contender, block: Block) -> Self {
        let samples = |of: Of| records.get(of).cloned().unwrap_or_default();
        let latency = samples(Of::Latency(index));
        let plain = match contender.means {
            measured::Means::Scheme(place, call, receipt) => Self {
                call: Some(call.name()),
                receipt: Some(Passed::new(&receipt, samples(Of::Faults(index)).median())),
                strong: receipt.asked.integrity() == Integrity::Strong,
                ..Self::empty(By::Scheme(receipt.asked.name()), &latency, place, block)
            },
            measured::Means::Baseline(means) => {
                Self::empty(By::Name(means.name()), &latency, Place::Process, block)
            }
        };
        Self {
            cycle_us: samples(Of::Cycle(index)).spread(),
            of_copy: OfCopy::new(records, index),
            cpu_us: rounded(samples(Of::CpuTime(index)).median_us()),
            verified: contender.wrong.is_none(),
            wrong: contender.wrong,
            ..plain
        }
    }

    /// A row that has latencies alone, as round trips without data have.
    fn empty(by: By, latency: &Samples, place: Place, block: Block) -> Self {
        let spread = latency.spread();
        Self {
            by,
            direction: block.direction,
            server: place.name(),
            call: None,
            length: block.length,
            touch: block.touch,
            latency_us: spread,
            cycle_us: spread,
            of_copy: None,
            throughput_mb_s: rounded(block.length as f64 / spread.median.max(1e-3)),
            cpu_us: 0.0,
            verified: true,
            placement: block.placement.map(Placement::name),
            samples: latency.count(),
            receipt: None,
            wrong: None,
            strong: false,
        }
    }

    /// What passed the data.
    pub(super) fn name(&self) -> &'static str {
        match self.by {
            By::Scheme(name) | By::Name(name) => name,
        }
    }

    /// What passed the data, and by which call where that is the less usual one.
    pub(super) fn label(&self) -> String {
        match self.call {
            Some("submit") => format!("{}, submit", self.name()),
            _ => self.name().to_owned(),
        }
    }

    /// The length and the direction, which all rows of its block have in common.
    pub(super) fn at(&self) -> (usize, &'static str) {
        (self.length, self.direction)
    }
}

/// The rows of one series: the schemes', and the baselines'.
pub(super) fn rows(measured: Measurements, block: Block) -> (Vec<Row>, Vec<Row>) {
    let Measurements { records, contenders, .. } = measured;
    let contenders = contenders.into_iter().enumerate();
    let rows = contenders.map(|(index, contender)| Row::new(&records, index, contender, block));
    rows.partition(|row| row.receipt.is_some())
}

/// The word for a direction.
pub(super) fn name(direction: Direction) -> &'static str {
    if direction == Direction::Out { "out" } else { "in" }
}

impl OfCopy {
    fn new(records: &Records, index: usize) -> Option<Self> {
        let latency = rounded(records.of_copy(Of::LatencyOfCopy(index))?);
        Some(Self { latency, cycle: rounded(records.of_copy(Of::CycleOfCopy(index))?) })
    }
}

impl Passed {
    fn new(receipt: &Receipt, faults: u64) -> Self {
        Self {
            copied: receipt.copied,
            referenced: receipt.referenced,
            held: receipt.held,
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
    ) -> Vec<Row> {
        let block = Block { direction: EMPTY, length: MESSAGE, touch: "none", placement: self.placement() };
        let row = |(name, place, of): (&'static str, Place, Of)| {
            Some(Row::empty(By::Name(name), self.records.get(of)?, place, block))
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
            argument_us: median(Of::ArgumentInTurn).unwrap_or_default(),
            batches_dropped: self.dropped,
        }
    }
}
