//! The measurements of a series, batch by batch, and how batches are put together.
//!
//! Invariants: batches of unlike placement are not mixed: batches of the more frequent placement count, the others are
//! dropped. A wrong byte counts in whatever batch it was found.

use std::collections::BTreeMap;
use std::time::Duration;

use genie::Receipt;
use genie_baselines::Exchanged;
use genie_lab::call::Call;
use genie_lab::data::Verdict;
use genie_lab::placement::Placement;
use genie_lab::probe::majority;
use genie_lab::samples::{Samples, nanoseconds};

use super::bench::Place;

/// The parts into which copy's time is divided.
const WHOLE: u64 = 10_000;

/// The quantity that samples measure. Numbers are indices of contenders, baselines or servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    /// From request to reply, by a contender.
    Latency(usize),
    /// The same, with the time that the client spends on its buffer.
    Cycle(usize),
    /// The client's CPU time in a cycle.
    CpuTime(usize),
    /// A contender's latency in ten-thousandths of copy's, which was measured beside it.
    LatencyOfCopy(usize),
    /// The same of cycles.
    CycleOfCopy(usize),
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
    /// The same with an argument of 64 bytes.
    ArgumentInTurn,
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

    /// Adds what contenders that were measured beside each other took, as shares of what copy took.
    pub(super) fn add_beside(&mut self, copy: Exchanged, others: &[(usize, Exchanged)]) {
        let share =
            |time: Duration, of: Duration| nanoseconds(time).saturating_mul(WHOLE) / nanoseconds(of).max(1);
        for (index, other) in others {
            self.add_number(Of::LatencyOfCopy(*index), share(other.latency, copy.latency));
            self.add_number(Of::CycleOfCopy(*index), share(other.cycle, copy.cycle));
        }
    }

    /// The middle of the shares of copy's time, as a factor.
    pub(super) fn of_copy(&self, of: Of) -> Option<f64> {
        self.get(of).map(|samples| samples.median() as f64 / WHOLE as f64)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn exchanged(us: u64) -> Exchanged {
        let time = Duration::from_micros(us);
        Exchanged { latency: time, cycle: 2 * time, sum: None }
    }

    /// A share was the quotient of two medians. Where rounds took unlike times, as on a busy machine, or in unlike caches when other
    /// schemes took turns, the medians were of unlike rounds: "129 % of copy" of what took 90 %.
    #[test]
    fn a_share_of_copys_time_is_of_rounds_and_not_of_medians() {
        let mut records = Records::default();
        let (mut copies, mut others) = (Vec::new(), Vec::new());
        // Most copies fall into quick rounds, and most of the other's measurements into slow ones.
        for (round, slow) in [1, 1, 10, 10, 10].into_iter().enumerate() {
            let copy = if round == 2 { 90 } else { 100 * slow };
            copies.push(copy);
            others.push(if round == 2 { 900 } else { 90 * slow });
            records.add_beside(exchanged(copy), &[(3, exchanged(others[round]))]);
        }
        let median = |mut times: Vec<u64>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        assert!(median(others) > 8 * median(copies), "medians deceive");
        for of in [Of::LatencyOfCopy(3), Of::CycleOfCopy(3)] {
            let share = records.of_copy(of).unwrap();
            assert!((share - 0.9).abs() < 0.01, "{share}");
        }
        assert_eq!(records.of_copy(Of::LatencyOfCopy(2)), None);
    }
}
