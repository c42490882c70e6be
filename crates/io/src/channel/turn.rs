//! Turns: of the threads that wait for one server's replies, one takes them off the ring; the others sleep.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest sleep without a look at what is waited for.
const LONGEST: Duration = Duration::from_millis(100);

/// Who waits for a turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    waiting: AtomicU32,
    lock: Mutex<()>,
    passed: Condvar,
}

impl Turn {
    /// Sleeps until the turn is passed, unless `is_over` already; at most until `deadline`.
    pub(super) fn sleep(&self, is_over: impl Fn() -> bool, deadline: Option<Instant>) {
        // SeqCst pairs with that in `pass`: either the passer sees this thread, or this thread sees what it did.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_over() {
            let left =
                deadline.map_or(LONGEST, |deadline| deadline.saturating_duration_since(Instant::now()));
            let _guard =
                self.passed.wait_timeout(guard, left.min(LONGEST)).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes those who sleep, after something was taken for them, or when the turn is free.
    pub(super) fn pass(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            // Taking the lock orders this after the sleeper's look and before its sleep, or after the sleep has begun.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.passed.notify_all();
        }
    }
}
