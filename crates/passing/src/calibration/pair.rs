//! Two CPUs that hand work to each other: what waking a sleeper costs, and what handing on buffers costs.
//!
//! Limits: where the user may have no other thread (`ulimit -u`), nothing is measured.

use std::sync::atomic::{AtomicU32, Ordering};

use genie_sys::machine::{self, Turns, on_two_cpus};

use super::effort::timed;
use crate::cost::median;

/// Tells the second thread to end.
const END: u32 = u32::MAX;

/// The number of the item that the second thread is to read, alone on its cache line, as the turns are.
#[repr(align(128))]
struct Item(AtomicU32);

/// Two CPUs that this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    first: usize,
    second: usize,
}

impl Pair {
    /// The first and the last CPU that this thread may use, when there are two.
    pub(super) fn of_this_thread() -> Option<Self> {
        let cpus = machine::allowed_cpus().ok()?;
        let (first, second) = (*cpus.first()?, *cpus.last()?);
        let pinnable = |cpu| machine::pin_thread(cpu).is_ok();
        (first != second && pinnable(first) && pinnable(second)).then_some(Self { first, second })
    }

    /// What waking a thread that sleeps on the other CPU costs, in nanoseconds: half of the round trip of two threads
    /// that wake each other, as the median of `rounds`. `None` where no second thread can be had, or the kernel cannot
    /// wake it.
    pub(super) fn wake(self, rounds: u32) -> Option<f64> {
        let turns = Turns::default();
        let there = || {
            let _ = (0..rounds).all(|round| turns.sleep_until(2 * round + 1) && turns.wake(2 * round + 2));
        };
        let trip = |round| turns.wake(2 * round + 1) && turns.sleep_until(2 * round + 2);
        let here = || {
            let trips = (0..rounds).map(|round| timed(|| trip(round)));
            trips.map(|(done, time)| done.then_some(time)).collect::<Option<Vec<_>>>()
        };
        let trips = on_two_cpus((self.first, here), (self.second, there)).ok()??;
        Some(median(trips) / 2.0)
    }

    /// How long `write` on one CPU and `read` on the other take together for each of the numbers in `items`, in
    /// nanoseconds. The measurement ends with the numbers. Returns no times where no second thread can be had.
    pub(super) fn relay(
        self,
        items: impl Iterator<Item = usize>,
        write: impl Fn(usize),
        read: impl Fn(usize) + Sync,
    ) -> Vec<f64> {
        let (turns, item) = (Turns::default(), Item(AtomicU32::new(END)));
        let there = || {
            for round in 0.. {
                turns.spin_until(2 * round + 1);
                match item.0.load(Ordering::Relaxed) {
                    END => return,
                    item => read(item as usize),
                }
                turns.hand_over(2 * round + 2);
            }
        };
        let here = || {
            let mut rounds = 0;
            let times = items
                .map(|number| {
                    let ((), time) = timed(|| {
                        write(number);
                        item.0.store(number as u32, Ordering::Relaxed);
                        turns.hand_over(2 * rounds + 1);
                        turns.spin_until(2 * rounds + 2);
                    });
                    rounds += 1;
                    time
                })
                .collect();
            item.0.store(END, Ordering::Relaxed);
            turns.hand_over(2 * rounds + 1);
            times
        };
        on_two_cpus((self.first, here), (self.second, there)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use genie_sys::lock::Mutex;
    use rustix::process::{Resource, Rlimit, getuid, setrlimit};
    use rustix::thread::set_thread_res_uid;

    use super::*;
    use crate::skip::skip;

    fn pair(test: &str) -> Option<Pair> {
        let pair = Pair::of_this_thread();
        if pair.is_none() {
            skip(test, "only one CPU");
        }
        pair
    }

    #[test]
    #[cfg_attr(miri, ignore = "pins threads")]
    fn a_relay_reads_each_item_after_it_was_written_in_order() {
        let Some(pair) = pair("a_relay_reads_each_item_after_it_was_written_in_order") else { return };
        let log = Mutex::new(Vec::new());
        let note = |what, item| log.lock().push((what, item));
        let times = pair.relay([3, 1, 4].into_iter(), |item| note('w', item), |item| note('r', item));
        assert_eq!(times.len(), 3);
        let expected = [('w', 3), ('r', 3), ('w', 1), ('r', 1), ('w', 4), ('r', 4)];
        assert_eq!(*log.lock(), expected);
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

    /// Forbids this thread to start another one; returns whether that worked. The limit does not bind root.
    fn forbid_threads() -> bool {
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        setrlimit(Resource::Nproc, none).expect("a lower limit");
        let nobody = rustix::process::Uid::from_raw(65_534);
        let is_bound = !getuid().is_root() || set_thread_res_uid(nobody, nobody, nobody).is_ok();
        is_bound && thread::Builder::new().spawn(|| ()).is_err()
    }

    /// Once, opening an interface panicked here if the user could have no more threads.
    #[test]
    #[cfg_attr(miri, ignore = "runs a process")]
    fn nothing_is_measured_where_there_is_no_other_thread_to_be_had() {
        const TEST: &str = "nothing_is_measured_where_there_is_no_other_thread_to_be_had";
        let Some(pair) = pair(TEST) else { return };
        if std::env::var_os(TEST).is_some() {
            if !forbid_threads() {
                return skip(TEST, "the number of threads cannot be limited");
            }
            assert_eq!(pair.wake(1), None);
            assert!(pair.relay([3].into_iter(), |_| (), |_| ()).is_empty());
            return;
        }
        // The limit is for a whole process.
        let mut alone = Command::new(std::env::current_exe().expect("this program"));
        let name = format!("calibration::pair::tests::{TEST}");
        let output = alone.args(["--exact", &name]).env(TEST, "").output().expect("a process");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
