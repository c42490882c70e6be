//! Meters of the cost of passing data in a client's process: CPU time, or counted events.
//!
//! How: a meter runs around requesting, posting and the taking of replies, and adds up. An operation has one meter at most:
//! reading a meter disturbs the work that follows, and a counter also makes each switch of threads more expensive.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::CpuClock;
use crate::counter::{Counter, Event, Modes, Refusal};
use crate::error::Result;

/// What is measured of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The end-to-end latency.
    Latency,
    /// The CPU time; the latency then includes the reading of that clock.
    CpuTime,
    /// How often something happens, in these modes; the latency then includes the cost of counting.
    Count(Event, Modes),
    /// How long each operation took; the latency then includes the taking of these times.
    Operations,
}

/// A meter of one operation in one process.
#[derive(Debug)]
pub(super) enum Meter {
    /// Nothing is metered.
    None,
    /// CPU time.
    CpuTime {
        /// The clock, which knows the cost of reading it.
        clock: CpuClock,
        /// The time so far.
        time: Duration,
    },
    /// Events.
    Count {
        /// The counter, open as long as the meter exists.
        counter: Counter,
        /// A count for each piece of work; none for a piece during which counters were absent.
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
    /// The sum of both clients' meters; a quantity that only one of them has is unknown.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.zip(other.cpu).map(|(one, other)| one + other),
            count: self.count.zip(other.count).map(|(one, other)| one + other),
        }
    }
}

impl Meter {
    /// A meter for an operation of which `measure` is measured.
    ///
    /// # Errors
    /// The event cannot be counted.
    pub(super) fn of(measure: Measure, clock: CpuClock) -> Result<Self> {
        Ok(match measure {
            Measure::Latency | Measure::Operations => Self::None,
            Measure::CpuTime => Self::CpuTime { clock, time: Duration::ZERO },
            Measure::Count(event, modes) => {
                Self::Count { counter: Counter::open(event, modes)?, counts: Vec::new() }
            }
        })
    }

    /// Does `work`, and adds what it takes.
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

    /// What the meter has measured.
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
