//! Two threads on two CPUs that take turns: what handing over costs, with sleeping and with spinning.
//!
//! How: a word counts the turns; each thread waits until the word says that it is its turn, does its part, and adds one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use genie_sys::futex::{self, Wait};
use genie_sys::machine;

use super::measure::{median, timed};

/// Between two hand-overs that nothing delays, a thread spins less often than this; then it lets others run.
const SPINS: u32 = 10_000;
/// How long a sleeper waits for a turn. Only a thread that is stopped from outside takes so long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Tells the second thread to end.
const END: u32 = u32::MAX;

/// Two CPUs that this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    first: usize,
    second: usize,
}

/// A word alone on its cache line and on the line that CPUs fetch along with it.
#[repr(align(128))]
#[derive(Default)]
struct Turn(AtomicU32);

impl Pair {
    /// The first and the last CPU that this thread may use, when there are two.
    pub(super) fn of_this_thread() -> Option<Self> {
        let cpus = machine::allowed_cpus().ok()?;
        let (first, second) = (*cpus.first()?, *cpus.last()?);
        let pinnable = |cpu| machine::pin_thread(cpu).is_ok();
        (first != second && pinnable(first) && pinnable(second)).then_some(Self { first, second })
    }

    /// What waking a thread that sleeps on the other CPU costs, in nanoseconds: half of the round trip of two that wake
    /// each other, the median of `rounds`.
    pub(super) fn wake(self, rounds: u32) -> Option<f64> {
        let turn = Turn::default();
        let trips = thread::scope(|scope| {
            scope.spawn(|| {
                let _pinned = machine::pin_thread(self.second);
                (0..rounds).all(|round| turn.sleep_until(2 * round + 1) && turn.pass(2 * round + 2))
            });
            let _pinned = machine::pin_thread(self.first);
            let trip = |round| turn.pass(2 * round + 1) && turn.sleep_until(2 * round + 2);
            let trips = (0..rounds).map(|round| timed(|| trip(round)));
            trips.map(|(done, time)| done.then_some(time)).collect::<Option<Vec<_>>>()
        })?;
        Some(median(&trips) / 2.0)
    }

    /// How long `write` on one CPU and `read` on the other take together for each of the numbers in `items`, in
    /// nanoseconds. The numbers end the measurement.
    pub(super) fn relay(
        self,
        items: impl Iterator<Item = usize>,
        write: impl Fn(usize),
        read: impl Fn(usize) + Sync,
    ) -> Vec<f64> {
        let (turn, item) = (Turn::default(), Turn::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                let _pinned = machine::pin_thread(self.second);
                for round in 0.. {
                    turn.spin_until(2 * round + 1);
                    match item.0.load(Ordering::Relaxed) {
                        END => return,
                        item => read(item as usize),
                    }
                    turn.0.store(2 * round + 2, Ordering::Release);
                }
            });
            let _pinned = machine::pin_thread(self.first);
            let mut rounds = 0;
            let times = items
                .map(|number| {
                    let ((), time) = timed(|| {
                        write(number);
                        item.0.store(number as u32, Ordering::Relaxed);
                        turn.0.store(2 * rounds + 1, Ordering::Release);
                        turn.spin_until(2 * rounds + 2);
                    });
                    rounds += 1;
                    time
                })
                .collect();
            item.0.store(END, Ordering::Relaxed);
            turn.0.store(2 * rounds + 1, Ordering::Release);
            times
        })
    }
}

impl Turn {
    /// Waits for `turn` without sleeping. The Acquire sees what the other did before its Release.
    fn spin_until(&self, turn: u32) {
        let mut spins = 0;
        while self.0.load(Ordering::Acquire) != turn {
            std::hint::spin_loop();
            spins += 1;
            if spins % SPINS == 0 {
                thread::yield_now();
            }
        }
    }

    /// Waits for `turn` asleep; returns whether it came.
    fn sleep_until(&self, turn: u32) -> bool {
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

    /// Makes it `turn`, and wakes who sleeps until then; returns whether the kernel could.
    fn pass(&self, turn: u32) -> bool {
        self.0.store(turn, Ordering::Release);
        futex::wake(&self.0, 1).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Mutex;

    use super::*;

    fn pair(test: &str) -> Option<Pair> {
        let pair = Pair::of_this_thread();
        if pair.is_none() {
            skip(test);
        }
        pair
    }

    fn skip(test: &str) {
        let line = format!("SKIP {test}: only one CPU");
        eprintln!("{line}");
        let Some(path) = std::env::var_os("GENIE_SKIP_LOG") else { return };
        let log = std::fs::OpenOptions::new().append(true).create(true).open(path);
        log.and_then(|mut log| writeln!(log, "{line}")).expect("the SKIP log can be written");
    }

    #[test]
    #[cfg_attr(miri, ignore = "pins threads")]
    fn a_relay_reads_each_item_after_it_was_written_in_order() {
        let Some(pair) = pair("a_relay_reads_each_item_after_it_was_written_in_order") else { return };
        let log = Mutex::new(Vec::new());
        let note = |what, item| log.lock().unwrap().push((what, item));
        let times = pair.relay([3, 1, 4].into_iter(), |item| note('w', item), |item| note('r', item));
        assert_eq!(times.len(), 3);
        let expected = [('w', 3), ('r', 3), ('w', 1), ('r', 1), ('w', 4), ('r', 4)];
        assert_eq!(*log.lock().unwrap(), expected);
    }

    #[test]
    #[cfg_attr(miri, ignore = "pins threads")]
    fn a_relay_of_nothing_ends() {
        let Some(pair) = pair("a_relay_of_nothing_ends") else { return };
        assert!(pair.relay(std::iter::empty(), |_| (), |_| ()).is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "pins threads")]
    fn a_wake_up_takes_longer_than_a_store() {
        let Some(pair) = pair("a_wake_up_takes_longer_than_a_store") else { return };
        let wake = pair.wake(50).expect("futexes work");
        assert!(wake > 100.0, "{wake} ns");
    }
}
