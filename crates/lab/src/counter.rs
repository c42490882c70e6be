//! Counters of events in all threads of this process: of the instructions that its processors carry out, above all.
//!
//! How: each existing thread gets a counter of its own. Threads that it starts inherit the counter; processes that it starts
//! do not. A piece of work is counted as the difference between two readings of all counters, less what reading adds, which
//! is measured beforehand.
//! Why: a thread with a counter costs more at each switch, even while the counter is off, and each counter takes time to
//! read. So counters are opened for the operation whose events count and closed after it, and such operations measure
//! nothing else.
//! Invariants: a count is complete or there is none. Where the kernel shares the processor's counters among several users,
//! or a thread runs on a core that has no counter for the event, the missed events could be estimated from the time; they
//! are not.
//! Limits: a thread that appears while counters are being opened may not be counted.
//! Source: J. C. Brustoloni's thesis, §8.1, estimates I/O processing time; here the instructions in that time are counted as
//! well.

mod refusal;

use std::io;

use perf_event::Builder;
use perf_event::events::{self, Hardware, Software};
use serde::{Deserialize, Serialize};

pub use refusal::Refusal;

/// How often reading the counters is tried, to find out how many events it adds.
const TRIALS: usize = 15;
/// The share of the time for which a counter must have been there: the kernel's accounts may be some nanoseconds off.
const PRESENT: f64 = 0.99;

/// An event that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// Instructions, which only a processor can count.
    #[doc(alias = "PERF_COUNT_HW_INSTRUCTIONS")]
    Instructions,
    /// Page faults, which the kernel itself counts, on every machine.
    #[doc(alias = "PERF_COUNT_SW_PAGE_FAULTS")]
    PageFaults,
    /// Nanoseconds in which threads ran, in whatever mode; the kernel's as well.
    #[doc(alias = "PERF_COUNT_SW_TASK_CLOCK")]
    RunTime,
}

impl Event {
    /// Such events, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::PageFaults => "page faults",
            Self::RunTime => "nanoseconds of running",
        }
    }

    fn kind(self) -> events::Event {
        match self {
            Self::Instructions => Hardware::INSTRUCTIONS.into(),
            Self::PageFaults => Software::PAGE_FAULTS.into(),
            Self::RunTime => Software::TASK_CLOCK.into(),
        }
    }
}

/// The modes of the processor in which events count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Modes {
    /// The modes of the program, and of the kernel on the program's behalf.
    UserAndKernel,
    /// The mode of the program alone.
    User,
}

impl Modes {
    /// The modes, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::UserAndKernel => "in user mode and in the kernel",
            Self::User => "in user mode",
        }
    }
}

/// Whether an event can be counted here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counting {
    /// The modes in which it can be counted; none where it can't be counted.
    pub modes: Option<Modes>,
    /// Why it cannot be counted in all modes, and what to do about that: a sentence without its full stop.
    pub lack: Option<String>,
}

impl Counting {
    /// Tries to count the event.
    pub fn of(event: Event) -> Self {
        let Err(in_kernel) = Counter::open(event, Modes::UserAndKernel) else {
            return Self { modes: Some(Modes::UserAndKernel), lack: None };
        };
        match Counter::open(event, Modes::User) {
            Ok(_) => Self { modes: Some(Modes::User), lack: Some(in_kernel.to_string()) },
            Err(refusal) => Self { modes: None, lack: Some(refusal.to_string()) },
        }
    }
}

/// Counts an event in all threads of this process, from when it is opened until it is dropped.
#[derive(Debug)]
pub struct Counter {
    event: Event,
    modes: Modes,
    threads: Vec<perf_event::Counter>,
    /// How many events a pair of readings adds.
    cost: u64,
}

/// The values of all counters at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Reading {
    count: u64,
    /// For how long the threads have run since the counters were opened, in nanoseconds.
    ran_ns: u64,
    /// For how much of that time the counters were present.
    counted_ns: u64,
}

impl Reading {
    /// The events since an earlier reading; none where counters were absent.
    fn since(self, before: Self) -> Option<u64> {
        let ran = self.ran_ns.saturating_sub(before.ran_ns);
        let counted = self.counted_ns.saturating_sub(before.counted_ns);
        let is_complete = counted as f64 >= ran as f64 * PRESENT;
        is_complete.then(|| self.count.saturating_sub(before.count))
    }
}

impl Counter {
    /// Opens a counter for each thread of this process, and finds out how many events reading them adds.
    ///
    /// # Errors
    /// The machine has no such counter, or this process may not have it.
    ///
    /// # Cost
    /// Some system calls for each thread: tens of microseconds in all.
    #[doc(alias = "perf_event_open")]
    pub fn open(event: Event, modes: Modes) -> Result<Self, Refusal> {
        let refused = |error| Refusal::new(event, modes, error);
        let mut counter = Self { event, modes, threads: Vec::new(), cost: 0 };
        for thread in threads().map_err(refused)? {
            match of_thread(event, modes, thread) {
                Ok(one) => counter.threads.push(one),
                // The thread has ended meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        counter.cost = counter.cost().map_err(refused)?;
        Ok(counter)
    }

    /// Does `work`, and returns how many events there were meanwhile in all threads; none where counters were absent, and an
    /// error where they could not be read.
    pub fn around<T>(&mut self, work: impl FnOnce() -> T) -> (T, Result<Option<u64>, Refusal>) {
        let before = self.read();
        let result = work();
        let after = self.read();
        let count = before.and_then(|before| Ok(after?.since(before)));
        let own = count.map(|count| count.map(|count| count.saturating_sub(self.cost)));
        (result, own.map_err(|error| Refusal::new(self.event, self.modes, error)))
    }

    fn read(&mut self) -> io::Result<Reading> {
        let mut sum = Reading::default();
        for thread in &mut self.threads {
            let one = thread.read_count_and_time()?;
            sum.count += one.count;
            sum.ran_ns += one.time_enabled;
            sum.counted_ns += one.time_running;
        }
        Ok(sum)
    }

    /// The typical difference between two readings with nothing between them.
    fn cost(&mut self) -> io::Result<u64> {
        let mut costs = [0; TRIALS];
        for cost in &mut costs {
            let before = self.read()?;
            *cost = self.read()?.count.saturating_sub(before.count);
        }
        costs.sort_unstable();
        Ok(costs[TRIALS / 2])
    }
}

/// The threads of this process.
fn threads() -> io::Result<Vec<i32>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        threads.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(threads)
}

fn of_thread(event: Event, modes: Modes, thread: i32) -> io::Result<perf_event::Counter> {
    let mut builder = Builder::new().kind(event.kind()).observe_pid(thread);
    builder.exclude_kernel(modes == Modes::User);
    builder.inherit(true).inherit_thread(true).enabled(true);
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_complete_or_there_is_none() {
        let before = Reading { count: 10, ran_ns: 1_000, counted_ns: 400 };
        let after = |counted_ns| Reading { count: 25, ran_ns: 2_000, counted_ns };
        assert_eq!(after(1_400).since(before), Some(15));
        assert_eq!(after(1_391).since(before), Some(15));
        assert_eq!(after(1_380).since(before), None);
        assert_eq!(after(400).since(before), None);
    }

    #[test]
    fn this_thread_is_among_the_threads() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(threads().unwrap().contains(&own));
    }
}
