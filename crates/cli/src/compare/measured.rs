//! What a series measures, batch by batch, and how batches are put together.
//!
//! Invariants: batches of unlike placement are not mixed: the more frequent placement counts, the rest is dropped. A wrong
//! byte counts wherever it was found.

use std::time::Duration;

use genie::{Receipt, Scheme};
use genie_baselines::{Exchanged, Means};
use genie_lab::data::Verdict;
use genie_lab::placement::Placement;
use genie_lab::probe::majority;
use genie_lab::samples::Samples;

use super::place::Place;
use super::subject::{Passed, Subject};

/// What was measured of anything that passes data.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) latency: Samples,
    pub(super) cycle: Samples,
    pub(super) cpu: Samples,
    /// The first difference from the data that was found.
    pub(super) wrong: Option<String>,
}

/// What was measured of one scheme, at one server.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) place: Place,
    pub(super) scheme: Scheme,
    pub(super) times: Times,
    /// Write faults in a cycle.
    pub(super) faults: Samples,
    /// The last measured operation's.
    pub(super) receipt: Receipt,
}

/// What was measured of one baseline.
#[derive(Debug)]
pub(super) struct Baseline {
    pub(super) means: Means,
    pub(super) times: Times,
    /// Round trips of 64 bytes, without data.
    pub(super) empty: Samples,
}

/// The limits of control, between this process and its peer.
#[derive(Debug, Clone)]
pub(super) struct Control {
    pub(super) ping_pong: Samples,
    pub(super) futex: Samples,
    /// Requests without a buffer for which both sides sleep, as they do for `futex`.
    pub(super) asleep: Samples,
    /// Requests without a buffer, at the server in each place.
    pub(super) requests: Vec<(Place, Samples)>,
}

/// What was measured in one batch, and then in all that count.
#[derive(Debug)]
pub(super) struct Measurements {
    pub(super) placement: Option<Placement>,
    pub(super) round_trip: Option<Duration>,
    pub(super) schemes: Vec<Measured>,
    pub(super) baselines: Vec<Baseline>,
    pub(super) control: Control,
    pub(super) memcpy: Samples,
    pub(super) empty_request: Samples,
    /// Batches that were dropped for their placement.
    pub(super) dropped: usize,
}

impl Times {
    fn new() -> Self {
        let [latency, cycle, cpu] = std::array::from_fn(|_| Samples::new());
        Self { latency, cycle, cpu, wrong: None }
    }

    pub(super) fn judge(&mut self, verdict: Verdict) {
        if let Err(wrong) = verdict {
            self.wrong.get_or_insert(wrong);
        }
    }

    fn merge(&mut self, later: Self) {
        self.latency.merge(&later.latency);
        self.cycle.merge(&later.cycle);
        self.cpu.merge(&later.cpu);
        self.judge(later.wrong.map_or(Ok(()), Err));
    }
}

impl Measured {
    fn new(subject: &Subject<'_>) -> Self {
        let (place, scheme) = (subject.place, subject.scheme);
        Self { place, scheme, times: Times::new(), faults: Samples::new(), receipt: Receipt::new(scheme) }
    }

    pub(super) fn add(&mut self, passed: &Passed, faults: u64) {
        self.faults.add_number(faults);
        self.times.latency.add(passed.latency);
        self.times.cycle.add(passed.cycle);
        self.receipt = passed.receipt;
    }
}

impl Baseline {
    fn new(means: Means) -> Self {
        Self { means, times: Times::new(), empty: Samples::new() }
    }

    pub(super) fn add(&mut self, exchanged: &Exchanged) {
        self.times.latency.add(exchanged.latency);
        self.times.cycle.add(exchanged.cycle);
    }
}

impl Measurements {
    /// An empty batch.
    pub(super) fn new(
        round_trip: Option<Duration>,
        subjects: &[Subject<'_>],
        means: impl Iterator<Item = Means>,
        places: impl Iterator<Item = Place>,
    ) -> Self {
        let [ping_pong, futex, asleep, memcpy, empty_request] = std::array::from_fn(|_| Samples::new());
        let requests = places.map(|place| (place, Samples::new())).collect();
        Self {
            placement: round_trip.map(Placement::of),
            round_trip,
            schemes: subjects.iter().map(Measured::new).collect(),
            baselines: means.map(Baseline::new).collect(),
            control: Control { ping_pong, futex, asleep, requests },
            memcpy,
            empty_request,
            dropped: 0,
        }
    }

    fn merge(&mut self, later: Self) {
        for (one, other) in self.schemes.iter_mut().zip(later.schemes) {
            one.times.merge(other.times);
            one.faults.merge(&other.faults);
            one.receipt = other.receipt;
        }
        for (one, other) in self.baselines.iter_mut().zip(later.baselines) {
            one.times.merge(other.times);
            one.empty.merge(&other.empty);
        }
        self.control.merge(&later.control);
        self.memcpy.merge(&later.memcpy);
        self.empty_request.merge(&later.empty_request);
        self.round_trip = self.round_trip.min(later.round_trip);
    }

    /// Takes nothing but the wrong bytes of a batch that does not count.
    fn judge(&mut self, dropped: Self) {
        for (one, other) in self.schemes.iter_mut().zip(dropped.schemes) {
            one.times.judge(other.times.wrong.map_or(Ok(()), Err));
        }
        for (one, other) in self.baselines.iter_mut().zip(dropped.baselines) {
            one.times.judge(other.times.wrong.map_or(Ok(()), Err));
        }
    }

    /// Puts the batches of the most frequent placement together.
    pub(super) fn of_one_placement(batches: Vec<Self>) -> Self {
        let placement = majority(batches.iter().map(|batch| batch.placement));
        let (like, unlike): (Vec<_>, Vec<_>) =
            batches.into_iter().partition(|batch| batch.placement == placement);
        let mut like = like.into_iter();
        let mut sum = like.next().expect("the majority has a member");
        like.for_each(|batch| sum.merge(batch));
        sum.dropped = unlike.len();
        unlike.into_iter().for_each(|batch| sum.judge(batch));
        sum
    }
}

impl Control {
    pub(super) fn merge(&mut self, later: &Self) {
        self.ping_pong.merge(&later.ping_pong);
        self.futex.merge(&later.futex);
        self.asleep.merge(&later.asleep);
        for ((_, one), (_, other)) in self.requests.iter_mut().zip(&later.requests) {
            one.merge(other);
        }
    }
}
