//! Taking turns: all subjects of a step have a turn in each round, in an order drawn anew for each round.
//!
//! Why: a drift while a step is measured then affects all subjects alike.
//! How: most rounds measure latency. Where processing is to be measured, a fourth of the rounds measure CPU time instead,
//! and an eighth count instructions, if this machine can: instructions hardly differ from one operation to the next, so that
//! few samples will do.

use std::collections::BTreeMap;

use genie::Scheme;

use crate::counter::{Counting, Event, Modes};
use crate::error::{Error, Result};
use crate::measurement::{Measured, Quantity};
use crate::medium::{BY_DRIVER, BY_KERNEL};
use crate::parties::{Measure, Parties, Route, Transfer, Transferred};
use crate::samples::nanoseconds;
use fastrand::Rng;

/// Rounds at the beginning that are not counted.
pub(super) const WARM_UP: usize = 2;
/// Of each group of this many rounds that count, the first measures CPU time, where that is measured at all.
const CPU_TIME_EVERY: usize = 4;
/// The size of a group of rounds, and the round of each group that counts instructions, where they can be counted. It comes
/// early, so that even a few rounds include one.
const INSTRUCTIONS_EVERY: (usize, usize) = (8, 3);
/// The series of the times in which clients that share a CPU hand it over.
pub(super) const HAND_OVER: &str = "hand-over";
/// The same where the device shares it, too.
pub(super) const HAND_OVER_ALL: &str = "hand-over on one CPU";

/// A subject, which takes turns with others.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    /// The curve that it belongs to.
    pub(super) series: String,
    /// Which group of parties makes the transfer, by its index.
    pub(super) parties: usize,
    /// The transfer that they make.
    pub(super) transfer: Transfer,
}

impl Subject {
    /// A subject for each scheme, which is used at both ends of the first parties and has a curve of its name. A step sets
    /// the length.
    pub(super) fn schemes() -> Vec<Self> {
        let of = |scheme: Scheme| Self {
            series: scheme.name().to_owned(),
            parties: 0,
            transfer: Transfer::of(scheme, 0),
        };
        Scheme::ALL.map(of).to_vec()
    }
}

/// What a step measures, and how often.
#[derive(Debug, Clone)]
pub(super) struct Turns<'s> {
    /// The figure.
    pub(super) setting: &'s str,
    /// The length of the data.
    pub(super) len: usize,
    /// The subjects, in any order.
    pub(super) subjects: &'s [Subject],
    /// How often each subject has its turn.
    pub(super) rounds: usize,
    /// Whether some of the rounds measure I/O processing: its CPU time, and its instructions.
    pub(super) processing: bool,
    /// The seed for the order of the turns.
    pub(super) seed: u64,
}

/// The samples of one subject.
type Taken = BTreeMap<Quantity, Vec<u64>>;

impl Turns<'_> {
    /// Measures all subjects. A subject that wires memory where that is forbidden is left out.
    pub(super) fn take(&self, parties: &mut [Parties]) -> Result<Vec<Measured>> {
        let modes = if self.processing { Counting::of(Event::Instructions).modes } else { None };
        let mut taken: Vec<Option<Taken>> = vec![Some(Taken::new()); self.subjects.len()];
        let mut copied: Vec<Vec<[u64; 3]>> = vec![Vec::new(); self.subjects.len()];
        let mut hand_overs = Vec::new();
        let mut order: Vec<usize> = (0..self.subjects.len()).collect();
        let mut random = Rng::with_seed(self.seed);
        for round in 0..WARM_UP + self.rounds {
            random.shuffle(&mut order);
            let counts = round >= WARM_UP;
            let measure = if counts { self.measure(round - WARM_UP, modes) } else { Measure::Latency };
            for &index in &order {
                let Some(samples) = &mut taken[index] else { continue };
                let subject = &self.subjects[index];
                let its = Transfer { len: self.len, measure, ..subject.transfer };
                let Some(done) = transfer(&mut parties[subject.parties], &its)? else {
                    taken[index] = None;
                    continue;
                };
                if let Some((quantity, sample)) = sample(measure, &done).filter(|_| counts) {
                    samples.entry(quantity).or_default().push(sample);
                }
                if let Some(brought) = done.brought.filter(|_| counts) {
                    let at_ends = (done.output.copied + done.input.copied) as u64;
                    copied[index].push([at_ends, brought.driver, brought.kernel]);
                }
                if counts && measure == Measure::Latency {
                    hand_overs.push(nanoseconds(done.hand_over));
                }
            }
        }
        let mut measured = Vec::new();
        for ((subject, taken), copied) in self.subjects.iter().zip(taken).zip(copied) {
            let all = taken.unwrap_or_default().into_iter();
            measured.extend(all.map(|(quantity, samples)| self.measured(&subject.series, quantity, samples)));
            let copied = |(at, who): (usize, &str)| {
                let (setting, samples) =
                    (format!("{}{who}", self.setting), copied.iter().map(|copied| copied[at]));
                Measured::new(setting, &subject.series, self.len, Quantity::Bytes, samples.collect())
            };
            let copied = ["", BY_DRIVER, BY_KERNEL].into_iter().enumerate().map(copied);
            measured.extend(copied.filter(|measured| !measured.samples.is_empty()));
        }
        measured.extend(parties.first().and_then(|parties| self.hand_over(parties, hand_overs)));
        Ok(measured)
    }

    /// The quantity that a round that counts measures.
    fn measure(&self, round: usize, modes: Option<Modes>) -> Measure {
        if self.processing && round.is_multiple_of(CPU_TIME_EVERY) {
            return Measure::CpuTime;
        }
        let (every, which) = INSTRUCTIONS_EVERY;
        match modes {
            Some(modes) if round % every == which => Measure::Count(Event::Instructions, modes),
            _ => Measure::Latency,
        }
    }

    fn measured(&self, series: &str, quantity: Quantity, samples: Vec<u64>) -> Measured {
        Measured::new(self.setting, series, self.len, quantity, samples)
    }

    /// How long handing the CPU over took, where clients share it.
    fn hand_over(&self, parties: &Parties, samples: Vec<u64>) -> Option<Measured> {
        let seats = parties.seats();
        let series = if seats.device_shares() { HAND_OVER_ALL } else { HAND_OVER };
        let is_plain = matches!(parties.route(), Route::Device(_)) && seats.clients_share();
        (is_plain && !samples.is_empty()).then(|| self.measured(series, Quantity::Latency, samples))
    }
}

/// The sample of an operation; none where it could not be measured.
fn sample(measure: Measure, done: &Transferred) -> Option<(Quantity, u64)> {
    match measure {
        Measure::CpuTime => Some((Quantity::CpuTime, nanoseconds(done.cpu?))),
        Measure::Count(_, modes) => Some((Quantity::instructions(modes), done.count?)),
        Measure::Latency | Measure::Operations => Some((Quantity::Latency, nanoseconds(done.latency))),
    }
}

/// Makes one operation; none where memory may not be wired.
pub(super) fn transfer(parties: &mut Parties, transfer: &Transfer) -> Result<Option<Transferred>> {
    match parties.transfer(transfer) {
        Ok(done) => Ok(Some(done)),
        Err(Error::Unwired(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measures(processing: bool, modes: Option<Modes>) -> Vec<Measure> {
        let turns = Turns { setting: "", len: 0, subjects: &[], rounds: 0, processing, seed: 0 };
        (0..16).map(|round| turns.measure(round, modes)).collect()
    }

    #[test]
    fn most_rounds_measure_latency_and_even_a_few_measure_everything() {
        let all = measures(true, Some(Modes::User));
        let of = |measure| all.iter().filter(|one| **one == measure).count();
        let instructions = Measure::Count(Event::Instructions, Modes::User);
        assert_eq!((of(Measure::Latency), of(Measure::CpuTime), of(instructions)), (10, 4, 2));
        assert!(all[..4].contains(&instructions) && all[..4].contains(&Measure::CpuTime));
    }

    #[test]
    fn what_is_not_asked_for_or_cannot_be_counted_is_not_measured() {
        let uncounted = measures(true, None);
        assert_eq!(uncounted.iter().filter(|one| **one == Measure::Latency).count(), 12);
        assert!(!uncounted.iter().any(|one| matches!(one, Measure::Count(..))));
        assert!(measures(false, None).iter().all(|one| *one == Measure::Latency));
    }
}
