//! Taking turns: all subjects of a step, round by round, in an order drawn anew for each.
//!
//! Why: what drifts while a step is measured then drifts for all alike.
//! How: most rounds measure latency. Where processing is asked for, a fourth measure CPU time instead, and an eighth count
//! instructions, where this machine does: those hardly differ from one operation to the next, so that few will do.

use std::collections::BTreeMap;

use genie::Scheme;

use crate::counter::{Counting, Event, Modes};
use crate::error::{Error, Result};
use crate::measurement::{Measured, Quantity};
use crate::parties::{Measure, Parties, Route, Transfer, Transferred};
use crate::random::Random;
use crate::samples::nanoseconds;

/// Rounds at the beginning that are not counted.
pub(super) const WARM_UP: usize = 2;
/// Among so many rounds that count, the first one measures CPU time, where that is measured at all.
const CPU_TIME_EVERY: usize = 4;
/// Among so many, one counts instructions, where they can be counted: this one, so that even a few rounds have one.
const INSTRUCTIONS_EVERY: (usize, usize) = (8, 3);
/// The series of the times in which clients that share a CPU hand it over.
pub(super) const HAND_OVER: &str = "hand-over";
/// The same where the device shares it, too.
pub(super) const HAND_OVER_ALL: &str = "hand-over on one CPU";

/// What takes its turn.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    /// The curve that it belongs to.
    pub(super) series: String,
    /// Which of the parties do it, by their place.
    pub(super) parties: usize,
    /// What they do.
    pub(super) transfer: Transfer,
}

impl Subject {
    /// One for each scheme, used at both ends of the first parties, with a curve of its name. A step sets the length.
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
    /// How much data there is.
    pub(super) len: usize,
    /// In any order.
    pub(super) subjects: &'s [Subject],
    /// How often each has its turn.
    pub(super) rounds: usize,
    /// Whether some of the rounds measure I/O processing: its CPU time, and its instructions.
    pub(super) processing: bool,
    /// Orders the turns.
    pub(super) seed: u64,
}

/// The samples of one subject.
type Taken = BTreeMap<Quantity, Vec<u64>>;

impl Turns<'_> {
    /// Measures. A subject that wires memory where that is forbidden is left out.
    pub(super) fn take(&self, parties: &mut [Parties]) -> Result<Vec<Measured>> {
        let modes = if self.processing { Counting::of(Event::Instructions).modes } else { None };
        let mut taken: Vec<Option<Taken>> = vec![Some(Taken::new()); self.subjects.len()];
        let mut hand_overs = Vec::new();
        let mut order: Vec<usize> = (0..self.subjects.len()).collect();
        let mut random = Random::new(self.seed);
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
                if counts && measure == Measure::Latency {
                    hand_overs.push(nanoseconds(done.hand_over));
                }
            }
        }
        let mut measured = Vec::new();
        for (subject, taken) in self.subjects.iter().zip(taken) {
            let all = taken.unwrap_or_default().into_iter();
            measured.extend(all.map(|(quantity, samples)| self.measured(&subject.series, quantity, samples)));
        }
        measured.extend(parties.first().and_then(|parties| self.hand_over(parties, hand_overs)));
        Ok(measured)
    }

    /// What a round that counts measures.
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
        let is_plain = parties.route() == Route::Device && seats.clients_share();
        (is_plain && !samples.is_empty()).then(|| self.measured(series, Quantity::Latency, samples))
    }
}

/// What was measured of an operation; nothing where that could not be.
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
