//! Turns: of the threads that wait for one server's replies, one takes them off the ring; the others sleep.
//!
//! How: a thread that wants to be told says so in one word, which is looked at after every turn; nothing else is done while
//! nobody does.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::primitive::{AtomicU32, Condvar, Mutex, Ordering};

/// The longest sleep without a look at what is waited for.
const LONGEST: Duration = Duration::from_millis(100);

/// The bit of [`Turn::audience`] for loops that wait by descriptor; the others count threads.
const WATCHED: u32 = 1 << 31;

/// The threads and the loop that wait for a turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    audience: AtomicU32,
    lock: Mutex<()>,
    passed: Condvar,
}

impl Turn {
    /// Sleeps until the turn is passed, unless `is_over` already; at most until `deadline`.
    pub(crate) fn sleep(&self, is_over: impl Fn() -> bool, deadline: Option<Instant>) {
        // Partner: the exchange in `pass`.
        self.audience.fetch_add(1, Ordering::AcqRel);
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_over() {
            let left =
                deadline.map_or(LONGEST, |deadline| deadline.saturating_duration_since(Instant::now()));
            let _guard =
                self.passed.wait_timeout(guard, left.min(LONGEST)).unwrap_or_else(PoisonError::into_inner);
        }
        self.audience.fetch_sub(1, Ordering::Relaxed);
    }

    /// From now on, passing the turn says that somebody watches; to be followed by a look at what is waited for.
    pub(crate) fn watch(&self) {
        // Partner: the exchange in `pass`.
        self.audience.fetch_or(WATCHED, Ordering::AcqRel);
    }

    /// Wakes those who sleep, after something was taken for them, or when the turn is free; returns whether somebody
    /// watches.
    #[inline]
    pub(crate) fn pass(&self) -> bool {
        // Changes of the word are in one order. A thread that announces itself before this exchange is seen by it; one that
        // does so after it has the word from here, and with it sees what was done before. A mere look would need a fence on
        // both sides.
        match self.audience.compare_exchange(0, 0, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => false,
            Err(audience) => self.tell(audience),
        }
    }

    #[cold]
    fn tell(&self, audience: u32) -> bool {
        if audience & !WATCHED > 0 {
            // Taking the lock orders this after the sleeper's look and before its sleep, or after the sleep has begun.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.passed.notify_all();
        }
        audience & WATCHED != 0
    }
}
