//! Two threads on two CPUs that take turns, to measure how long a cache line takes from one to the other and back, and other
//! things.
//!
//! Why: on a virtual machine the host moves the CPUs, and measurements of near and far placements must be kept apart.
//! How: a word counts the turns; each thread waits until the word says that it is its turn, does its part, and adds one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::pin_thread;
use crate::futex::{self, Wait};
use crate::{Error, Result};

/// How many round trips are timed together, since the clock is too coarse for one.
const BATCH: u32 = 100;

/// Between two turns that nothing delays, a thread spins less often than this. After this many spins it lets other
/// threads run, since the partner may be waiting for its own CPU until they have run.
const SPINS: u32 = 10_000;

/// Each round adds two to the word, which must not wrap.
const ROUNDS_MAX: u32 = 1_000_000_000;

/// How long a sleeper waits for its turn. Only a thread that is stopped from outside takes so long.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of the current turn: a word alone on its cache line and on the line that CPUs fetch along with it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Turns(AtomicU32);

impl Turns {
    /// Waits for `turn` without sleeping. The Acquire sees what the other thread did before its Release.
    pub fn spin_until(&self, turn: u32) {
        let mut spins = 0;
        while self.0.load(Ordering::Acquire) != turn {
            std::hint::spin_loop();
            spins += 1;
            if spins % SPINS == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Waits for `turn` asleep; returns whether it came.
    pub fn sleep_until(&self, turn: u32) -> bool {
        loop {
            let found = self.0.load(Ordering::Acquire);
            if found == turn {
                return true;
            }
            if matches!(futex::wait(&self.0, found, Some(PATIENCE)), Ok(Wait::TimedOut) | Err(_)) {
                return false;
            }
        }
    }

    /// Makes it `turn`, for a thread that spins.
    pub fn hand_over(&self, turn: u32) {
        self.0.store(turn, Ordering::Release);
    }

    /// Makes it `turn`, and wakes the thread that sleeps until then; returns whether the kernel could wake it.
    pub fn wake(&self, turn: u32) -> bool {
        self.hand_over(turn);
        futex::wake(&self.0, 1).is_ok()
    }
}

/// Runs `here` in this thread and `there` in another thread, each held on a CPU of its own. Returns what `here`
/// returns.
///
/// # Errors
/// EINVAL: a CPU doesn't exist, or isn't this process's to use. EAGAIN: no second thread can be had.
pub fn on_two_cpus<T>(
    (cpu_here, here): (usize, impl FnOnce() -> T),
    (cpu_there, there): (usize, impl FnOnce() + Send),
) -> Result<T> {
    std::thread::scope(|scope| {
        let _pinned = pin_thread(cpu_here)?;
        let (report, ready) = mpsc::channel();
        let other = move || {
            let pinned = pin_thread(cpu_there);
            let may_start = pinned.is_ok();
            let sent = report.send(pinned.as_ref().map(|_| ()).map_err(Clone::clone));
            if may_start && sent.is_ok() {
                there();
            }
        };
        std::thread::Builder::new().spawn_scoped(scope, other).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
            Error::new("clone", "a second thread", errno)
                .with_remedy("raise the limit on processes (`ulimit -u`), or free memory")
        })?;
        ready.recv().expect("the other thread reports before it ends")?;
        Ok(here())
    })
}

/// Measures the round trip of a cache line between two CPUs: the median over batches of 100 of `rounds` round
/// trips, rounded up to whole batches.
///
/// # Errors
/// EINVAL: the CPUs are one and the same, or not both this process's to use; no rounds, or more than a thousand million.
/// EAGAIN: no second thread can be had.
///
/// # Cost
/// Both CPUs spin meanwhile. If other threads want these CPUs, a round trip now and then takes a slice of CPU time.
pub fn ping_pong(cpu_a: usize, cpu_b: usize, rounds: u32) -> Result<Duration> {
    if cpu_a == cpu_b || rounds == 0 || rounds > ROUNDS_MAX {
        let subject = format!("{rounds} rounds between CPU {cpu_a} and CPU {cpu_b}");
        return Err(Error::new("ping-pong", subject, Errno::INVAL)
            .with_remedy("name two CPUs and at least 1 and at most 1000000000 rounds"));
    }
    let (turns, batches) = (Turns::default(), rounds.div_ceil(BATCH));
    let answer = || {
        for round in 0..batches * BATCH {
            turns.spin_until(2 * round + 1);
            turns.hand_over(2 * round + 2);
        }
    };
    let ask = || (0..batches).map(|batch| time_batch(&turns, batch)).collect();
    let mut times: Vec<Duration> = on_two_cpus((cpu_a, ask), (cpu_b, answer))?;
    times.sort_unstable();
    Ok(times[times.len() / 2] / BATCH)
}

fn time_batch(turns: &Turns, batch: u32) -> Duration {
    let start = Instant::now();
    for round in batch * BATCH..(batch + 1) * BATCH {
        turns.hand_over(2 * round + 1);
        turns.spin_until(2 * round + 2);
    }
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::allowed_cpus;

    #[test]
    fn a_round_trip_between_two_cpus_takes_more_than_no_time_and_less_than_a_slice() {
        let [a, b, ..] = allowed_cpus().unwrap()[..] else {
            return crate::skip::skip(
                "a_round_trip_between_two_cpus_takes_more_than_no_time_and_less_than_a_slice",
                "only one CPU",
            );
        };
        let time = ping_pong(a, b, 20_000).unwrap();
        assert!(time > Duration::from_nanos(10) && time < Duration::from_millis(1), "{time:?}");
        assert!(allowed_cpus().unwrap().len() >= 2, "the caller is let go");
    }

    #[test]
    fn one_cpu_no_rounds_and_unknown_cpus_are_refused() {
        let cpu = allowed_cpus().unwrap()[0];
        for (a, b, rounds) in
            [(cpu, cpu, 100), (cpu, cpu + 1, 0), (cpu, usize::MAX, 100), (usize::MAX, cpu, 100)]
        {
            assert_eq!(ping_pong(a, b, rounds).unwrap_err().errno, Errno::INVAL);
        }
    }
}
