//! A network's lock, which a thread that has one already does not wait for.
//!
//! Why: a module runs while its network is locked. If it waited for a lock, that might be this thread's own, or that of a thread that waits
//! for this one.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use genie_sys::Errno;
use genie_sys::lock::{Mutex, MutexGuard};

thread_local! {
    /// Whether this thread has a network's lock.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What a lock guards, locked by this thread.
pub(super) struct Locked<'l, T> {
    guard: MutexGuard<'l, T>,
    was_inside: bool,
}

impl<'l, T> Locked<'l, T> {
    /// Locks.
    ///
    /// # Errors
    /// EDEADLK: this thread has such a lock, and another thread, or this one, has the lock that is asked for.
    pub(super) fn of(lock: &'l Mutex<T>) -> Result<Self, Errno> {
        let was_inside = IS_INSIDE.get();
        let guard = if was_inside { lock.try_lock() } else { Some(lock.lock()) };
        let guard = guard.ok_or(Errno::DEADLK)?;
        IS_INSIDE.set(true);
        Ok(Self { guard, was_inside })
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        IS_INSIDE.set(self.was_inside);
    }
}
