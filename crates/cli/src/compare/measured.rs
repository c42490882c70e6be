//! What a series measures, batch by batch, and how batches are put together.
//!
//! Invariants: batches of unlike placement are not mixed: the more frequent placement counts, the rest is dropped. A wrong
//! byte counts wherever it was found.

use std::collections::BTreeMap;
use std::time::Duration;

use genie::{Receipt, Scheme};
use genie_baselines::Means;
use genie_lab::data::Verdict;
use genie_lab::placement::Placement;
use genie_lab::probe::majority;
use genie_lab::samples::Samples;

use super::place::Place;
use super::subject::Subject;

/// What samples are of. Numbers are places in the order of schemes, baselines and servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    /// From request to reply, by a scheme or by a baseline.
    Latency(By),
    /// The same with what the client does to its buffer.
    Cycle(By),
    /// The client's CPU time in a cycle.
    CpuTime(By),
    /// Write faults in a cycle.
    Faults(By),
    /// A round trip of 64 bytes by a baseline.
    Empty(usize),
    /// A request without a buffer to a server, one of many in a row.
    Request(usize),
    /// The same where both sides sleep.
    RequestAsleep,
    /// A request without a buffer to the first server, in turn with what passes data.
    RequestInTurn,
    /// A cache line's way to the peer and back.
    PingPong,
    /// A word's way to the peer and back, where each side sleeps.
    Futex,
    /// Copying as much data between two ordinary buffers.
    Memcpy,
}

/// What passes data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    Scheme(usize),
    Baseline(usize),
}

/// Samples of everything.
#[derive(Debug, Clone, Default)]
pub(super) struct Book(BTreeMap<Of, Samples>);

impl Book {
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

    /// Where there are any.
    pub(super) fn get(&self, of: Of) -> Option<&Samples> {
        self.0.get(&of)
    }
}

/// What one batch measured.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) round_trip: Option<Duration>,
    pub(super) book: Book,
}

impl Batch {
    fn placement(&self) -> Option<Placement> {
        self.round_trip.map(Placement::of)
    }
}

/// One that passed data, and what is known of it besides samples.
#[derive(Debug)]
pub(super) struct Side<T> {
    pub(super) what: T,
    /// The first difference from the data that was found.
    pub(super) wrong: Option<String>,
}

impl<T> Side<T> {
    pub(super) fn new(what: T) -> Self {
        Self { what, wrong: None }
    }

    pub(super) fn judge(&mut self, verdict: Verdict) {
        if let Err(wrong) = verdict {
            self.wrong.get_or_insert(wrong);
        }
    }
}

/// A scheme at one server.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) place: Place,
    pub(super) scheme: Scheme,
    /// The last measured operation's.
    pub(super) receipt: Receipt,
}

impl Measured {
    pub(super) fn of(subject: &Subject<'_>) -> Self {
        let (place, scheme) = (subject.place, subject.scheme);
        Self { place, scheme, receipt: Receipt::new(scheme) }
    }
}

/// What was measured in all batches that count.
#[derive(Debug)]
pub(super) struct Measurements {
    pub(super) placement: Option<Placement>,
    /// The shortest.
    pub(super) round_trip: Option<Duration>,
    pub(super) book: Book,
    pub(super) schemes: Vec<Side<Measured>>,
    pub(super) baselines: Vec<Side<Means>>,
    /// Batches that were dropped for their placement.
    pub(super) dropped: usize,
}

impl Measurements {
    /// Puts the batches of the most frequent placement together.
    pub(super) fn of_one_placement(
        batches: &[Batch],
        schemes: Vec<Side<Measured>>,
        baselines: Vec<Side<Means>>,
    ) -> Self {
        let placement = majority(batches.iter().map(Batch::placement));
        let like: Vec<_> = batches.iter().filter(|batch| batch.placement() == placement).collect();
        let mut book = Book::default();
        like.iter().for_each(|batch| book.merge(&batch.book));
        let round_trip = like.iter().filter_map(|batch| batch.round_trip).min();
        Self { placement, round_trip, book, schemes, baselines, dropped: batches.len() - like.len() }
    }
}
