//! How much time to spend on measurements, and how long what is measured takes.

use std::time::Instant;

/// How much time to spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// A fraction of a second: good enough for thresholds.
    Quick,
    /// Some seconds: more lengths and repetitions, for tables that people read.
    Thorough,
}

impl Effort {
    pub(super) const fn rounds(self) -> usize {
        match self {
            Self::Quick => 9,
            Self::Thorough => 61,
        }
    }

    /// The lengths for a space of this limit, all multiples of the granule; the first one whatever the limit.
    pub(super) fn lengths(self, granule: usize, limit: usize) -> Vec<usize> {
        let largest = match self {
            Self::Quick => 4 << 20,
            Self::Thorough => 16 << 20,
        };
        let largest = largest.min(limit / BUFFERS).max(granule);
        let step = if granule > 4096 { 2 } else { 4 };
        std::iter::successors(Some(granule), |len| Some(len * step))
            .take_while(|len| *len <= largest)
            .collect()
    }
}

/// How many buffers of one length the measurements take at most.
const BUFFERS: usize = 4;

/// Runs `action` and returns its result and its time in nanoseconds.
pub(super) fn timed<T>(action: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = std::hint::black_box(action());
    (result, start.elapsed().as_nanos() as f64)
}
