//! Locks that ignore poison, and condition variables whose signal costs nothing while no thread waits.
//!
//! Why: a thread that panics under one of these locks has changed nothing by halves, so that poison would tell others nothing.
//! The standard library's condition variables make a system call for each signal, whether a thread waits or not.

use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::raw;
use super::raw::Ordering::Relaxed;

pub(crate) type MutexGuard<'a, T> = raw::MutexGuard<'a, T>;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(raw::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(raw::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, unless a thread has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar {
    inner: raw::Condvar,
    /// Threads that wait. A thread counts itself under the lock, after it has seen that it must wait.
    waiters: raw::AtomicU32,
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Waits for a signal, at most until `deadline`. It may end without either.
    pub(crate) fn wait<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, T> {
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
    pub(crate) fn wait_until<'a, T>(
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
    pub(crate) fn notify_all(&self) {
        // A thread that waits counted itself before it let go of the lock that this change was made under.
        if self.waiters.load(Relaxed) > 0 {
            self.inner.notify_all();
        }
    }
}
