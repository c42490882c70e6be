//! Locks that ignore poison.
//!
//! Why: a thread that stops at poison turns another thread's panic into its own. What panics here is the program's code, such as a
//! server's. When Genie calls that code, what its locks guard is whole, so poison would tell the next thread nothing.
//! How: the standard library's locks: one word each, known to no table of the process's, so that a child made by fork inherits
//! nothing but that word.

use std::sync::{PoisonError, TryLockError};

use super::raw;
pub use super::raw::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use crate::fork::Maker;

/// [`std::sync::Mutex`] without poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(raw::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(raw::Mutex::new(value))
    }

    /// Locks, as soon as no other thread has the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks, unless a thread has the lock.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks; in a child that has inherited the lock from its maker, as [`Mutex::try_lock`]: the thread that has the lock may be none of the
    /// child's.
    #[inline]
    pub fn lock_made_by(&self, maker: Maker) -> Option<MutexGuard<'_, T>> {
        if maker.is_this_process() { Some(self.lock()) } else { self.try_lock() }
    }

    /// What the lock guards; nobody else has the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the lock guarded.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`std::sync::RwLock`] without poison.
#[derive(Debug, Default)]
pub struct RwLock<T>(raw::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(raw::RwLock::new(value))
    }

    /// Locks for reading, as soon as no thread has the lock for writing.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for writing, as soon as no other thread has the lock.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_lock_under_which_a_thread_panicked_still_locks() {
        let locks = Arc::new((Mutex::new(1), RwLock::new(2)));
        let theirs = Arc::clone(&locks);
        let thread = std::thread::spawn(move || {
            let _held = (theirs.0.lock(), theirs.1.write());
            panic!("this is what is tested");
        });
        assert!(thread.join().is_err());
        assert_eq!((*locks.0.lock(), *locks.1.read()), (1, 2));
        *locks.1.write() = 3;
        assert!(locks.0.try_lock().is_some(), "it is poisoned, but nobody has it");
        let mut locks = Arc::into_inner(locks).expect("the thread has ended");
        assert_eq!((*locks.0.get_mut(), locks.0.into_inner()), (1, 1));
    }
}
