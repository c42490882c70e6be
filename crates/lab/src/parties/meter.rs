//! Meters what passing data takes of a client's process: CPU time, or events that are counted.
//!
//! How: it runs around request, posting and the taking of replies, and adds up. An operation has one meter at most: the
//! reading of each disturbs what comes next, and a counter costs at each switch of threads besides.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Measure;
use crate::clock::CpuClock;
use crate::counter::{Counter, Refusal};
use crate::error::Result;

/// A meter of one operation in one process.
#[derive(Debug)]
pub(super) enum Meter {
    /// Nothing is metered.
    None,
    /// CPU time.
    CpuTime {
        /// What reading the clock adds.
        clock: CpuClock,
        /// So far.
        time: Duration,
    },
    /// Events.
    Count {
        /// Open for as long as the meter is there.
        counter: Counter,
        /// Of each piece of work; none of those during which counters were absent.
        counts: Vec<std::result::Result<Option<u64>, Refusal>>,
    },
}

/// What was metered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Metered {
    pub(super) cpu: Option<Duration>,
    pub(super) count: Option<u64>,
}

impl Metered {
    /// Both clients': what only one of them has is not known.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.zip(other.cpu).map(|(one, other)| one + other),
            count: self.count.zip(other.count).map(|(one, other)| one + other),
        }
    }
}

impl Meter {
    /// A meter for an operation of which this is measured.
    ///
    /// # Errors
    /// What is to be counted cannot be.
    pub(super) fn of(measure: Measure, clock: CpuClock) -> Result<Self> {
        Ok(match measure {
            Measure::Latency | Measure::Operations => Self::None,
            Measure::CpuTime => Self::CpuTime { clock, time: Duration::ZERO },
            Measure::Count(event, modes) => {
                Self::Count { counter: Counter::open(event, modes)?, counts: Vec::new() }
            }
        })
    }

    /// Does something, and adds what that takes.
    pub(super) fn around<T>(&mut self, work: impl FnOnce() -> T) -> T {
        match self {
            Self::None => work(),
            Self::CpuTime { clock, time } => {
                let before = clock.now();
                let result = work();
                *time += clock.since(before);
                result
            }
            Self::Count { counter, counts } => {
                let (result, count) = counter.around(work);
                counts.push(count);
                result
            }
        }
    }

    /// What it has metered.
    ///
    /// # Errors
    /// The counters could not be read.
    pub(super) fn finish(self) -> Result<Metered> {
        Ok(match self {
            Self::None => Metered::default(),
            Self::CpuTime { time, .. } => Metered { cpu: Some(time), count: None },
            Self::Count { counts, .. } => {
                let count: std::result::Result<Option<u64>, Refusal> = counts.into_iter().sum();
                Metered { cpu: None, count: count? }
            }
        })
    }
}
