//! The clocks of an exchange: one that all processes read alike, and that of the CPU time of one of them.

use std::time::Duration;

use genie_sys::machine;
use rustix::time::{ClockId, clock_gettime};

/// How often reading the CPU clock is timed.
const READINGS: usize = 101;

/// Nanoseconds since some moment that is the same for all processes.
#[doc(alias = "CLOCK_MONOTONIC")]
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The CPU time of this process: of all its threads, so that what the fault thread does counts, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuClock {
    /// What reading the clock adds between two readings.
    cost: Duration,
}

impl CpuClock {
    pub(super) fn new() -> Self {
        let mut costs: Vec<_> = (0..READINGS)
            .map(|_| {
                let before = machine::process_cpu_time();
                machine::process_cpu_time().saturating_sub(before)
            })
            .collect();
        costs.sort_unstable();
        Self { cost: costs[READINGS / 2] }
    }

    /// The CPU time since a reading, less what reading adds.
    pub(super) fn since(self, before: Duration) -> Duration {
        machine::process_cpu_time().saturating_sub(before).saturating_sub(self.cost)
    }
}
