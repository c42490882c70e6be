//! The locks, atomics and threads that requests are passed on by: the standard library's, or those of a scheduler that tests use.
//!
//! Why: with `--cfg interleaved` shuttle decides which thread goes on at every lock, atomic and wait of this module, so that a
//! test meets orders of events that a real scheduler hardly ever produces. A wait with a timeout has none there: a wake-up that is
//! lost is a deadlock, which shuttle reports, where otherwise the timeout would hide it.
//! Limits: the order of memory accesses is not explored, as every atomic is sequentially consistent there; `tests/turns.rs` does
//! that for the one word that needs it.

#[cfg(interleaved)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(interleaved)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(interleaved))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(not(interleaved))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(interleaved))]
pub(crate) use std::thread;

/// Threads of shuttle's. One that sleeps waits for others, and so lets them go on.
#[cfg(interleaved)]
pub(crate) mod thread {
    pub(crate) use std::thread::panicking;

    pub(crate) use shuttle::thread::{Builder, JoinHandle, current};

    pub(crate) fn sleep(_: std::time::Duration) {
        shuttle::thread::yield_now();
    }
}
