//! The result of a comparison, as one JSON document.
//!
//! Invariants: later versions add to this shape and never change it.

use std::collections::BTreeMap;

use genie::{Direction, Reason, Receipt};
use serde::Serialize;

use super::machine::Machine;
use super::series::{Measured, Measurements};
use super::statistics::{Samples, Spread, rounded};
use crate::placement::Placement;

/// Everything that one run found.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) machine: Machine,
    pub(super) granule: usize,
    pub(super) file: String,
    pub(super) limits: Limits,
    pub(super) results: Vec<Row>,
    /// Other means of passing data; none here.
    pub(super) baselines: Vec<Row>,
}

/// What no scheme can beat, and where it was measured.
#[derive(Debug, Default, Serialize)]
pub(super) struct Limits {
    /// A cache line's way to another CPU and back; none on a machine of one CPU.
    pub(super) pingpong_ns: Option<u64>,
    pub(super) placement: Option<&'static str>,
    /// Copying between two warm ordinary buffers, by length.
    pub(super) memcpy_us: BTreeMap<usize, f64>,
    /// A request without buffers.
    pub(super) empty_request_us: f64,
    /// Batches that were dropped because the CPUs were placed otherwise than in the rest of their series.
    pub(super) batches_dropped: usize,
}

/// One scheme at one length in one direction.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) scheme: &'static str,
    pub(super) direction: &'static str,
    pub(super) server: &'static str,
    pub(super) length: usize,
    pub(super) touch: &'static str,
    pub(super) latency_us: Spread,
    pub(super) cycle_us: Spread,
    /// Length divided by the median latency; a megabyte is 10^6 bytes.
    pub(super) throughput_mb_s: f64,
    /// The client's CPU time in a cycle; the work of an in-process server is in it.
    pub(super) cpu_us: f64,
    pub(super) receipt: Passed,
    pub(super) verified: bool,
    /// How the CPUs were placed.
    pub(super) placement: Option<&'static str>,
    /// How many latencies were measured.
    pub(super) samples: u64,
    /// Whether the scheme has strong integrity.
    #[serde(skip)]
    pub(super) strong: bool,
    /// What was wrong with the data.
    #[serde(skip)]
    pub(super) wrong: Option<String>,
}

/// What was done to pass the data: the receipt of the last measured operation.
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

impl Row {
    pub(super) fn new(
        measured: Measured,
        direction: Direction,
        length: usize,
        touch: &'static str,
        placement: Option<Placement>,
    ) -> Self {
        let latency = measured.latency.spread();
        Self {
            scheme: measured.scheme.name(),
            direction: match direction {
                Direction::Out => "out",
                Direction::In => "in",
            },
            server: "in-process",
            length,
            touch,
            latency_us: latency,
            cycle_us: measured.cycle.spread(),
            throughput_mb_s: rounded(length as f64 / latency.median.max(1e-3)),
            cpu_us: rounded(measured.cpu.median_us()),
            receipt: Passed::new(&measured.receipt, measured.faults.median()),
            verified: measured.wrong.is_none(),
            placement: placement.map(Placement::name),
            samples: measured.latency.count(),
            strong: measured.scheme.integrity() == genie::model::Integrity::Strong,
            wrong: measured.wrong,
        }
    }
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

/// Gathers what the series say about the machine.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    memcpy: BTreeMap<usize, Samples>,
    empty_request: Option<Samples>,
    round_trips: Vec<(Option<Placement>, u64)>,
    dropped: usize,
}

impl Gathering {
    pub(super) fn add(&mut self, length: usize, measurements: &Measurements) {
        self.memcpy.entry(length).or_insert_with(Samples::new).merge(&measurements.memcpy);
        self.empty_request.get_or_insert_with(Samples::new).merge(&measurements.empty_request);
        let nanoseconds = measurements.round_trip.map_or(0, |time| time.as_nanos() as u64);
        self.round_trips.push((measurements.placement, nanoseconds));
        self.dropped += measurements.dropped;
    }

    pub(super) fn limits(&self) -> Limits {
        let placement = super::probe::majority(self.round_trips.iter().map(|(placement, _)| *placement));
        let mut times = self.round_trips.iter().filter(|(here, _)| *here == placement).map(|(_, time)| *time);
        let mut sorted: Vec<_> = times.by_ref().collect();
        sorted.sort_unstable();
        Limits {
            pingpong_ns: placement.and_then(|_| sorted.get(sorted.len() / 2).copied()),
            placement: placement.map(Placement::name),
            memcpy_us: self
                .memcpy
                .iter()
                .map(|(length, times)| (*length, rounded(times.median_us())))
                .collect(),
            empty_request_us: self.empty_request.as_ref().map_or(0.0, |times| rounded(times.median_us())),
            batches_dropped: self.dropped,
        }
    }
}
