//! A sitting of `fbufs-rw`.

use std::time::Instant;

use super::super::partners::{Partners, each, take_turns};
use super::{ALONE, DISCARD, ID, LENGTHS, LOOPBACK, MEANS, ROUND_TRIP, STREAM, beside, between, lengths};
use crate::error::Result;
use crate::experiment::{Options, Sitting, Step};
use crate::measurement::{Measured, Quantity};
use crate::samples::nanoseconds;
use crate::transport::End;

/// How often each subject has its turn: in a smoke run, and otherwise.
const ROUNDS: (usize, usize) = (2, 16);
/// How many operations a turn has: discards, loopbacks, round trips.
const OPERATIONS: (usize, usize) = (8, 32);
/// How many buffers a stream has: several times as many as may be on their way.
const STREAMED: (usize, usize) = (300, 1024);

fn of<T>(smoke: bool, (small, large): (T, T)) -> T {
    if smoke { small } else { large }
}

/// About how long a step takes: on most machines the kernel copies 64 KiB in some 20 µs, twice.
pub(super) fn seconds(len: usize, smoke: bool) -> f64 {
    let buffers = of(smoke, OPERATIONS) * 14 + of(smoke, STREAMED) * 8;
    (of(smoke, ROUNDS) * buffers) as f64 * (2e-6 + len as f64 * 0.3e-9)
}

/// What takes turns.
struct Subject {
    setting: String,
    /// What is done, and where the other process is, if there is one.
    what: &'static str,
    place: &'static str,
    /// Which means, by its index; none for fbufs of the shortest length.
    means: Option<usize>,
}

/// A sitting under way.
pub(super) struct Rw<'o> {
    options: &'o Options,
    /// Of the means that one thread uses, both ends.
    alone: Vec<[End; 2]>,
    partners: Partners,
    subjects: Vec<Subject>,
}

impl<'o> Rw<'o> {
    pub(super) fn open(options: &'o Options) -> Result<Self> {
        let partners = Partners::open(&MEANS)?;
        let alone =
            MEANS[..ALONE].iter().map(|means| End::both(*means, &partners.pool)).collect::<Result<_>>()?;
        let subjects_of = |setting: String, what, place, count: usize| {
            let subject = move |means| Subject { setting: setting.clone(), what, place, means };
            (0..count).map(Some).chain([None]).map(subject)
        };
        let mut subjects = Vec::new();
        for what in [DISCARD, LOOPBACK] {
            subjects.extend(subjects_of(what.to_owned(), what, "", ALONE));
        }
        for what in [ROUND_TRIP, STREAM] {
            for place in partners.places() {
                subjects.extend(subjects_of(between(what, place), what, place, MEANS.len()));
            }
        }
        Ok(Self { options, alone, partners, subjects })
    }

    fn verify(&mut self, len: usize) -> Result<()> {
        for place in self.partners.places() {
            MEANS.into_iter().try_for_each(|means| self.partners.at(place)?.verify(means, len, true))?;
        }
        Ok(())
    }
}

impl Sitting for Rw<'_> {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let len = step.length(ID, lengths(self.options))?;
        self.verify(len)?;
        let Self { options, alone, partners, subjects } = self;
        let (smoke, seed) = (options.smoke, options.seed ^ len as u64);
        let samples = take_turns(subjects.len(), of(smoke, ROUNDS), seed, |index| {
            let Subject { what, place, means, .. } = subjects[index];
            let (means, len) = means.map_or((0, LENGTHS[0]), |means| (means, len));
            let count = of(smoke, OPERATIONS);
            match what {
                DISCARD => operations(&mut alone[means], len, count, true),
                LOOPBACK => operations(&mut alone[means], len, count, false),
                ROUND_TRIP => {
                    let trips = partners.at(place)?.round_trips(MEANS[means], len, count)?;
                    Ok(trips.into_iter().map(nanoseconds).collect())
                }
                _ => {
                    let count = of(smoke, STREAMED);
                    Ok(vec![each(partners.at(place)?.stream(MEANS[means], len, count)?.time, count)])
                }
            }
        })?;
        let measured = |(subject, samples): (&Subject, Vec<u64>)| {
            let series = subject.means.map_or_else(beside, |means| MEANS[means].name());
            Measured::new(subject.setting.as_str(), series, len, Quantity::Latency, samples)
        };
        Ok(subjects.iter().zip(samples).map(measured).collect())
    }
}

/// Writes and reads at two ends, alternately; returns the times of both, or of the outputs alone.
fn operations([to, from]: &mut [End; 2], len: usize, count: usize, discards: bool) -> Result<Vec<u64>> {
    let once = |number: usize| {
        let start = Instant::now();
        to.write(len, |bytes| bytes[0] = number as u8)?;
        let written = start.elapsed();
        from.read_all(len, len, |_, _| Ok(()))?;
        Ok(nanoseconds(if discards { written } else { start.elapsed() }))
    };
    (0..count).map(once).collect()
}
