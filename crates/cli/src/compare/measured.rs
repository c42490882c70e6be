//! The measurements of a series, batch by batch, and how batches are put together.
//!
//! Invariants: batches of unlike placement are not mixed: batches of the more frequent placement count, the others are
//! dropped. A wrong byte counts in whatever batch it was found.

use std::collections::BTreeMap;
use std::time::Duration;

use genie::Receipt;
use genie_lab::call::Call;
use genie_lab::data::Verdict;
use genie_lab::placement::Placement;
use genie_lab::probe::majority;
use genie_lab::samples::Samples;

use super::bench::Place;

/// The quantity that samples measure. Numbers are indices of contenders, baselines or servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    /// From request to reply, by a contender.
    Latency(usize),
    /// The same, with the time that the client spends on its buffer.
    Cycle(usize),
    /// The client's CPU time in a cycle.
    CpuTime(usize),
    /// Write faults in a cycle.
    Faults(usize),
    /// A round trip of 64 bytes by a baseline.
    Empty(usize),
    /// A request without a buffer to a server, as one of many in a row.
    Request(usize),
    /// The same where both sides sleep.
    RequestAsleep,
    /// A request without a buffer to the first server, taking turns with requests that pass data.
    RequestInTurn,
    /// A cache line that goes to the peer and back.
    PingPong,
    /// A word that goes to the peer and back, where each side sleeps.
    Futex,
    /// Copying the same amount of data between two ordinary buffers.
    Memcpy,
}

/// The samples of every quantity.
#[derive(Debug, Clone, Default)]
pub(super) struct Records(BTreeMap<Of, Samples>);

impl Records {
    pub(super) fn add(&mut self, of: Of, time: Duration) {
        self.0.entry(of).or_default().add(time);
    }

    pub(super) fn add_number(&mut self, of: Of, number: u64) {
        self.0.entry(of).or_default().add_number(number);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (of, samples) in &other.0 {
            self.0.entry(*of).or_default().merge(samples);
        }
    }

    /// The samples of a quantity, if there are any.
    pub(super) fn get(&self, of: Of) -> Option<&Samples> {
        self.0.get(&of)
    }
}

/// The measurements of one batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) round_trip: Option<Duration>,
    pub(super) records: Records,
}

impl Batch {
    fn placement(&self) -> Option<Placement> {
        self.round_trip.map(Placement::of)
    }
}

/// A scheme or baseline that passes data, and what is known of it besides samples.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) means: Means,
    /// The first difference from the data that was found.
    pub(super) wrong: Option<String>,
}

/// The means by which a contender passes data.
#[derive(Debug, Clone, Copy)]
pub(super) enum Means {
    /// By a scheme, to a server in this place; the receipt is the last measured operation's.
    Scheme(Place, Call, Receipt),
    Baseline(genie_baselines::Means),
}

impl Contender {
    pub(super) fn new(means: Means) -> Self {
        Self { means, wrong: None }
    }

    pub(super) fn judge(&mut self, verdict: Verdict) {
        if let Err(wrong) = verdict {
            self.wrong.get_or_insert(wrong);
        }
    }
}

/// The measurements of all batches that count.
#[derive(Debug)]
pub(super) struct Measurements {
    pub(super) placement: Option<Placement>,
    /// The shortest round trip.
    pub(super) round_trip: Option<Duration>,
    pub(super) records: Records,
    pub(super) contenders: Vec<Contender>,
    /// Batches that were dropped for their placement.
    pub(super) dropped: usize,
}

impl Measurements {
    /// Puts the batches of the most frequent placement together.
    pub(super) fn of_one_placement(batches: &[Batch], contenders: Vec<Contender>) -> Self {
        let placement = majority(batches.iter().map(Batch::placement));
        let like: Vec<_> = batches.iter().filter(|batch| batch.placement() == placement).collect();
        let mut records = Records::default();
        like.iter().for_each(|batch| records.merge(&batch.records));
        let round_trip = like.iter().filter_map(|batch| batch.round_trip).min();
        Self { placement, round_trip, records, contenders, dropped: batches.len() - like.len() }
    }
}
