//! Clocks: one clock that all processes read alike, and clocks of the CPU time of a process or a thread.

use std::time::Duration;

use genie_sys::machine;

/// How often reading the CPU clock is timed.
const READINGS: usize = 101;

/// Nanoseconds since some moment that is the same for all processes.
pub fn now_ns() -> u64 {
    machine::monotonic_time().as_nanos() as u64
}

/// A clock of CPU time that subtracts the cost of reading it.
#[derive(Debug, Clone, Copy)]
pub struct CpuClock {
    read: fn() -> Duration,
    /// The time that reading the clock adds between two readings.
    cost: Duration,
}

impl CpuClock {
    /// The clock of this process, that is, of all its threads, so that the work of the fault thread counts, too.
    pub fn of_process() -> Self {
        Self::new(machine::process_cpu_time)
    }

    /// The clock of the calling thread.
    pub fn of_thread() -> Self {
        Self::new(machine::thread_cpu_time)
    }

    /// The cost is the median of many differences between two successive readings.
    fn new(read: fn() -> Duration) -> Self {
        let mut costs: Vec<_> = (0..READINGS)
            .map(|_| {
                let before = read();
                read().saturating_sub(before)
            })
            .collect();
        costs.sort_unstable();
        Self { read, cost: costs[READINGS / 2] }
    }

    /// The time so far.
    pub fn now(self) -> Duration {
        (self.read)()
    }

    /// The CPU time since a reading, less the time that reading adds.
    pub fn since(self, before: Duration) -> Duration {
        self.now().saturating_sub(before).saturating_sub(self.cost)
    }
}
