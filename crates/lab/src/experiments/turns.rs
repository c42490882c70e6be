//! Taking turns: all subjects of a step, round by round, in an order drawn anew for each.
//!
//! Why: what drifts while a step is measured then drifts for all alike.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::measurement::{Measured, Quantity};
use crate::parties::{Exchange, Exchanged, Measure, Parties, Route};
use crate::random::Random;

/// Rounds at the beginning that are not counted.
const WARM_UP: usize = 2;
/// Among so many rounds, one measures CPU time, where that is measured at all.
const CPU_TIME_EVERY: usize = 4;
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
    pub(super) exchange: Exchange,
}

/// What a step measures, and how often.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    /// The figure.
    pub(super) setting: String,
    /// In any order.
    pub(super) subjects: Vec<Subject>,
    /// How often each has its turn.
    pub(super) rounds: usize,
    /// Whether some of the rounds measure CPU time.
    pub(super) cpu_time: bool,
    /// Orders the turns.
    pub(super) seed: u64,
}

/// As many rounds as fit into some seconds, when one operation takes so long; at least `least`.
pub(super) fn rounds(seconds: f64, subjects: usize, operation: Duration, least: usize) -> usize {
    let each = operation.as_secs_f64() * subjects as f64;
    ((seconds / each) as usize).clamp(least, 300)
}

/// About how long an operation takes, with storing and comparing its data and waiting for the network.
pub(super) fn estimate(len: usize, network: Duration) -> Duration {
    Duration::from_nanos(80_000 + len as u64 / 2) + network
}

impl Turns {
    /// Measures. A subject that wires memory where that is forbidden is left out.
    pub(super) fn take(&self, parties: &mut [Parties]) -> Result<Vec<Measured>> {
        let mut latencies: Vec<Option<Vec<u64>>> = vec![Some(Vec::new()); self.subjects.len()];
        let (mut cpu_times, mut hand_overs) = (vec![Vec::new(); self.subjects.len()], Vec::new());
        let mut order: Vec<usize> = (0..self.subjects.len()).collect();
        let mut random = Random::new(self.seed);
        for round in 0..WARM_UP + self.rounds {
            random.shuffle(&mut order);
            let measures_cpu = self.cpu_time && round % CPU_TIME_EVERY == WARM_UP % CPU_TIME_EVERY;
            for &index in &order {
                let Some(samples) = &mut latencies[index] else { continue };
                let subject = &self.subjects[index];
                let parties = &mut parties[subject.parties];
                let Some(done) = exchange(parties, &subject.exchange, measures_cpu)? else {
                    latencies[index] = None;
                    continue;
                };
                match done.cpu {
                    _ if round < WARM_UP => {}
                    Some(cpu) => cpu_times[index].push(nanoseconds(cpu)),
                    None => {
                        samples.push(nanoseconds(done.latency));
                        hand_overs.push(nanoseconds(done.hand_over));
                    }
                }
            }
        }
        let mut measured = self.measured(latencies, cpu_times);
        measured.extend(parties.first().and_then(|parties| self.hand_over(parties, hand_overs)));
        Ok(measured)
    }

    fn measured(&self, latencies: Vec<Option<Vec<u64>>>, cpu_times: Vec<Vec<u64>>) -> Vec<Measured> {
        let samples = latencies.into_iter().zip(cpu_times);
        let of = |(subject, (latencies, cpu_times)): (&Subject, (Option<Vec<u64>>, Vec<u64>))| {
            let one = |quantity, samples: Vec<u64>| Measured {
                series: subject.series.clone(),
                setting: self.setting.clone(),
                x: subject.exchange.len as u64,
                quantity,
                samples,
            };
            let both =
                [one(Quantity::Latency, latencies.unwrap_or_default()), one(Quantity::CpuTime, cpu_times)];
            both.into_iter().filter(|one| !one.samples.is_empty())
        };
        self.subjects.iter().zip(samples).flat_map(of).collect()
    }

    /// How long handing the CPU over took, where clients share it.
    fn hand_over(&self, parties: &Parties, samples: Vec<u64>) -> Option<Measured> {
        let seats = parties.seats();
        let series = if seats.device_shares() { HAND_OVER_ALL } else { HAND_OVER };
        let x = self.subjects.first().map_or(0, |subject| subject.exchange.len as u64);
        let (series, setting) = (series.to_owned(), self.setting.clone());
        let measured = Measured { series, setting, x, quantity: Quantity::Latency, samples };
        let is_plain = parties.route() == Route::Device && seats.clients_share();
        (is_plain && !measured.samples.is_empty()).then_some(measured)
    }
}

/// Makes one operation; none where memory may not be wired.
fn exchange(parties: &mut Parties, exchange: &Exchange, measures_cpu: bool) -> Result<Option<Exchanged>> {
    let measure = if measures_cpu { Measure::CpuTime } else { Measure::Latency };
    match parties.exchange(&Exchange { measure, ..*exchange }) {
        Ok(done) => Ok(Some(done)),
        Err(Error::Unwired(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_fill_the_time_within_bounds() {
        let ms = Duration::from_millis(1);
        assert_eq!(rounds(1.0, 8, ms, 6), 125);
        assert_eq!(rounds(1.0, 8, 100 * ms, 6), 6);
        assert_eq!(rounds(100.0, 8, ms, 6), 300);
    }
}
