//! Followers: of the threads that wait for one server's replies, one (the leader) takes them off the ring; the others sleep.
//!
//! How: a thread that sleeps says so in one word, at which the leader looks whenever it has taken replies or stops leading.
//! While no thread sleeps, the leader does nothing more than that.

use std::time::{Duration, Instant};

use crate::primitive::{AtomicU32, Condvar, Mutex, Ordering};

/// The longest sleep without a look at what is waited for.
const LONGEST: Duration = Duration::from_millis(100);

/// The bit of [`Followers::waiting`] for loops that wait by descriptor; the others count threads.
const WATCHED: u32 = 1 << 31;

/// The threads that sleep while another one leads, and whether an event loop waits.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    waiting: AtomicU32,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Followers {
    /// Sleeps until the leader wakes its followers, unless `is_over` already; at most until `deadline`.
    pub(crate) fn sleep(&self, is_over: impl Fn() -> bool, deadline: Option<Instant>) {
        // Partner: the exchange in `wake`.
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let guard = self.lock.lock();
        if !is_over() {
            let longest = Instant::now() + LONGEST;
            drop(self.woken.wait(guard, Some(deadline.map_or(longest, |deadline| deadline.min(longest)))));
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// From now on [`Followers::wake`] says that an event loop waits. The caller then looks at what it waits for.
    pub(crate) fn watch(&self) {
        // Partner: the exchange in `wake`.
        self.waiting.fetch_or(WATCHED, Ordering::AcqRel);
    }

    /// Wakes the threads that sleep, after something was taken for them, or when no thread leads any more; returns whether an
    /// event loop waits.
    #[inline]
    pub(crate) fn wake(&self) -> bool {
        // Changes of the word are in one order. A thread that announces itself before this exchange is seen by it; one that
        // does so after it has the word from here, and with it sees what was done before. A mere look would need a fence on
        // both sides.
        match self.waiting.compare_exchange(0, 0, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => false,
            Err(waiting) => self.wake_these(waiting),
        }
    }

    #[cold]
    fn wake_these(&self, waiting: u32) -> bool {
        if waiting & !WATCHED > 0 {
            // Taking the lock orders this after the sleeper's look and before its sleep, or after the sleep has begun.
            drop(self.lock.lock());
            self.woken.notify_all();
        }
        waiting & WATCHED != 0
    }
}
