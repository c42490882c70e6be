//! Condition variables whose signal costs nothing while no thread waits.
//!
//! Why: the standard library's make a system call for each signal, whether a thread waits or not.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::raw::{self, MutexGuard, Ordering::Relaxed};

/// A condition variable for the data of a [`Mutex`](crate::lock::Mutex).
#[derive(Debug, Default)]
pub struct Condvar {
    inner: raw::Condvar,
    /// Threads that wait. A thread counts itself under the lock, after it has seen that it must wait.
    waiters: raw::AtomicU32,
}

impl Condvar {
    /// One for which no thread waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for a signal, at most until `deadline`. It may end without either.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Option<Instant>) -> MutexGuard<'a, T> {
        self.waiters.fetch_add(1, Relaxed);
        let guard = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            None => self.inner.wait(guard).unwrap_or_else(PoisonError::into_inner),
            Some(Duration::ZERO) => guard,
            Some(left) => self.inner.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0,
        };
        self.waiters.fetch_sub(1, Relaxed);
        guard
    }

    /// Waits until `is_over`, at most until `deadline`; the result says whether it is.
    pub fn wait_until<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
        is_over: impl Fn(&T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        while !is_over(&guard) {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return (guard, false);
            }
            guard = self.wait(guard, deadline);
        }
        (guard, true)
    }

    /// Wakes all threads that wait. To be called after what they wait for was changed under the lock.
    #[inline]
    pub fn notify_all(&self) {
        // A thread that waits counted itself before it let go of the lock that this change was made under.
        if self.waiters.load(Relaxed) > 0 {
            self.inner.notify_all();
        }
    }

    /// The same for one of the threads.
    #[inline]
    pub fn notify_one(&self) {
        if self.waiters.load(Relaxed) > 0 {
            self.inner.notify_one();
        }
    }
}
