//! Over how many system buffers to rotate.
//!
//! Why: the buffer that was used last is in the cache of the CPU that read it. A thread that writes the buffer next on
//! another CPU first takes it out of that cache, line by line; on many machines it is faster to write a buffer that has left
//! that cache already. Long buffers leave the caches anyway, and then fewer buffers are better. No rule holds everywhere, so
//! this is measured.
//! How: one CPU writes a buffer and another one reads it, over and over, rotating over 1, 4, 16 and 64 buffers. More buffers
//! are chosen only when they are faster by a tenth, since they take memory. They are made in a space of their own, which
//! gives its memory back.
//! Limits: 64 MiB of buffers, and no more than the space of the measurements may have, of which the longest buffers take a
//! quarter; for each length 40 ms when quick, half a
//! second when thorough.

use std::time::{Duration, Instant};

use genie_memory::{Config, Data, DataMut, Faults, Granularity, Recycling, Space, SystemBuffer};

use super::effort::Effort;
use super::pair::Pair;
use crate::cost::median;

/// How many buffers are tried.
const COUNTS: [u16; 4] = [1, 4, 16, 64];
/// How many bytes all buffers of one length may take.
const MEMORY: usize = 64 << 20;
/// More buffers must take at most this part of the time.
const WORTH_IT: f64 = 0.9;
/// How many bytes are passed for one sample of short buffers.
const ENOUGH: usize = 4 << 20;

/// For each class, measures over how many buffers of its longest length it is best to rotate. The class without a bound
/// gets the number of the class before it. All are 0 where there is no second CPU, no second thread or no memory.
pub(super) fn measure(space: &Space, pair: Option<Pair>, effort: Effort) -> [u16; Recycling::CLASSES] {
    let config = Config {
        granularity: Granularity::Only(space.granule_kind()),
        limit: MEMORY.min(space.limit()),
        faults: Faults::Never,
        kernel_never_stores: true,
        pool: 0,
    };
    let (Some(pair), Ok(own)) = (pair, Space::new(&config)) else { return [0; Recycling::CLASSES] };
    // What is written is copied from the heap.
    let fits = |len: usize| len <= space.limit() / 4;
    let bounded = Recycling::BOUNDS.map(|len| if fits(len) { best(&own, pair, len, effort) } else { 0 });
    std::array::from_fn(|class| bounded[class.min(bounded.len() - 1)])
}

/// Over how many buffers of `len` bytes it is best to rotate; 0 when that cannot be told.
fn best(space: &Space, pair: Pair, len: usize, effort: Effort) -> u16 {
    let most = (MEMORY / len).min(COUNTS[COUNTS.len() - 1].into());
    let buffers: Vec<SystemBuffer> = (0..most).map_while(|_| space.system_buffer(len).ok()).collect();
    let data: Vec<DataMut<'_>> = buffers.iter().map(SystemBuffer::data).collect();
    let deadline = Instant::now() + effort.time_for_a_length();
    let counts = COUNTS.into_iter().filter(|count| usize::from(*count) <= data.len());
    let mut times: Vec<_> = counts.map(|count| (count, f64::INFINITY)).collect();
    for _ in 0..effort.rotations() {
        for (count, least) in &mut times {
            // Whatever else runs on the two CPUs makes a round slower, never faster.
            let round = cycles(pair, &data[..usize::from(*count)], len, deadline);
            *least = least.min(if round.is_empty() { f64::INFINITY } else { median(round) });
        }
    }
    choose(times.into_iter())
}

/// The first count, or a later count if it is so much faster than the count chosen before it that it pays.
fn choose(times: impl Iterator<Item = (u16, f64)>) -> u16 {
    let measured = times.filter(|(_, time)| time.is_finite());
    let better = |best: (u16, f64), next: (u16, f64)| if next.1 < WORTH_IT * best.1 { next } else { best };
    measured.reduce(better).map_or(0, |(count, _)| count)
}

/// The times in nanoseconds in which single buffers are written and read, when all have been used before.
fn cycles(pair: Pair, buffers: &[DataMut<'_>], len: usize, deadline: Instant) -> Vec<f64> {
    let count = buffers.len();
    let data = vec![1; len];
    let rounds = count + (ENOUGH / len).clamp(4, 64).max(count);
    let mut times = pair.relay(
        (0..rounds).map(|round| round % count).take_while(|_| Instant::now() < deadline),
        |buffer| {
            buffers[buffer].copy_from(&data);
        },
        |buffer| read(&buffers[buffer]),
    );
    times.drain(..count.min(times.len()));
    times
}

/// Reads every byte into a small part of the cache, as a server does that looks at the data and keeps none of it.
fn read(data: &Data<'_>) {
    let mut corner = [0; 4096];
    for at in (0..data.len()).step_by(corner.len()) {
        data.part(at..data.len().min(at + corner.len())).copy_to(&mut corner);
    }
    std::hint::black_box(&corner);
}

impl Effort {
    /// How often each number of buffers is tried at most.
    const fn rotations(self) -> usize {
        match self {
            Self::Quick => 5,
            Self::Thorough => 25,
        }
    }

    /// On a machine that is busy otherwise, measuring one length ends after this time, with what has been measured by
    /// then.
    const fn time_for_a_length(self) -> Duration {
        match self {
            Self::Quick => Duration::from_millis(40),
            Self::Thorough => Duration::from_millis(500),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_buffers_are_chosen_only_when_they_are_faster_by_a_tenth() {
        let best = |times: [f64; 4]| choose(COUNTS.into_iter().zip(times));
        assert_eq!(best([100.0, 95.0, 91.0, 90.5]), 1);
        assert_eq!(best([100.0, 80.0, 79.0, 73.0]), 4, "sixty-four are not a tenth faster than four");
        assert_eq!(best([100.0, 80.0, 79.0, 60.0]), 64);
        assert_eq!(best([100.0, 150.0, 200.0, 300.0]), 1);
    }

    #[test]
    fn what_was_not_measured_is_not_chosen() {
        assert_eq!(choose([(1, 100.0), (4, f64::INFINITY)].into_iter()), 1);
        assert_eq!(choose([(1, f64::INFINITY), (4, f64::INFINITY)].into_iter()), 0);
        assert_eq!(choose([].into_iter()), 0);
    }
}
