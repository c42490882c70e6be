//! How long a cache line takes from one CPU to another and back.
//!
//! Why: on a virtual machine the host moves the CPUs, and measurements of near and far placements must be
//! kept apart.
//! How: two pinned threads take turns at adding one to a word that both spin on; the median of batches is
//! reported.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::pin_thread;
use crate::{Error, Result};

/// Round trips that are timed together, since one is shorter than the clock is exact.
const BATCH: u32 = 100;

/// Between two turns that nothing delays, a thread spins less often than this; then it lets others run, since the other one
/// may wait for its own CPU until they have.
const SPINS: u32 = 10_000;

/// Each round adds two to the word, which must not wrap.
const ROUNDS_MAX: u32 = 1_000_000_000;

/// A word alone on its cache line and on the line that CPUs fetch along with it.
#[repr(align(128))]
struct Line(AtomicU32);

/// Measures the round trip of a cache line between two CPUs: the median over batches of 100 of `rounds` round
/// trips, rounded up to whole batches.
///
/// # Errors
/// EINVAL: the CPUs are one and the same, or not both this process's to use; no rounds, or more than a thousand million.
/// EAGAIN: there is no second thread to be had.
///
/// # Cost
/// Both CPUs spin meanwhile. Where other threads want them, it takes a slice of time now and then for a round trip.
pub fn ping_pong(cpu_a: usize, cpu_b: usize, rounds: u32) -> Result<Duration> {
    let batches = rounds.div_ceil(BATCH);
    if cpu_a == cpu_b || rounds == 0 || rounds > ROUNDS_MAX {
        let subject = format!("{rounds} rounds between CPU {cpu_a} and CPU {cpu_b}");
        return Err(Error::new("ping-pong", subject, Errno::INVAL)
            .with_remedy("name two CPUs and at least 1 and at most 1000000000 rounds"));
    }
    let line = Line(AtomicU32::new(0));
    std::thread::scope(|scope| {
        let pinned = pin_thread(cpu_a)?;
        let (report, ready) = mpsc::channel();
        let line = &line;
        let other = move || {
            let pinned = pin_thread(cpu_b);
            let may_start = pinned.is_ok();
            let sent = report.send(pinned.as_ref().map(|_| ()).map_err(Clone::clone));
            if may_start && sent.is_ok() {
                (0..batches * BATCH).for_each(|round| take_turn(line, 2 * round + 1));
            }
        };
        std::thread::Builder::new().spawn_scoped(scope, other).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
            Error::new("clone", "a second thread", errno)
                .with_remedy("raise the limit on processes (`ulimit -u`), or free memory")
        })?;
        ready.recv().expect("the other thread reports before it ends")?;
        let times = (0..batches).map(|batch| time_batch(line, batch)).collect();
        drop(pinned);
        Ok(median(times) / BATCH)
    })
}

fn time_batch(line: &Line, batch: u32) -> Duration {
    let start = Instant::now();
    for round in batch * BATCH..(batch + 1) * BATCH {
        take_turn(line, 2 * round);
        // The other side's answer ends the round trip.
        spin_until(line, 2 * round + 2);
    }
    start.elapsed()
}

fn take_turn(line: &Line, turn: u32) {
    spin_until(line, turn);
    // Release, for the Acquire in `spin_until`.
    line.0.store(turn + 1, Ordering::Release);
}

fn spin_until(line: &Line, turn: u32) {
    let mut spins = 0;
    while line.0.load(Ordering::Acquire) != turn {
        std::hint::spin_loop();
        spins += 1;
        if spins % SPINS == 0 {
            std::thread::yield_now();
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::allowed_cpus;

    #[test]
    fn a_round_trip_between_two_cpus_takes_more_than_no_time_and_less_than_a_slice() {
        let [a, b, ..] = allowed_cpus().unwrap()[..] else {
            eprintln!(
                "SKIP a_round_trip_between_two_cpus_takes_more_than_no_time_and_less_than_a_slice: only one CPU"
            );
            return;
        };
        let time = ping_pong(a, b, 20_000).unwrap();
        assert!(time > Duration::from_nanos(10) && time < Duration::from_millis(1), "{time:?}");
        assert!(allowed_cpus().unwrap().len() >= 2, "the caller is let go");
    }

    #[test]
    fn one_cpu_no_rounds_and_unknown_cpus_are_refused() {
        let cpu = allowed_cpus().unwrap()[0];
        assert_eq!(ping_pong(cpu, cpu, 100).unwrap_err().errno, Errno::INVAL);
        assert_eq!(ping_pong(cpu, cpu + 1, 0).unwrap_err().errno, Errno::INVAL);
        assert_eq!(ping_pong(cpu, usize::MAX, 100).unwrap_err().errno, Errno::INVAL);
        assert_eq!(ping_pong(usize::MAX, cpu, 100).unwrap_err().errno, Errno::INVAL);
    }
}
