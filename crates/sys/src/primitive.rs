//! The locks, atomics and threads of requests and of what carries them: the standard library's, or those of a scheduler that tests use.
//!
//! Why: with `--cfg interleaved` shuttle decides which thread goes on at every lock, atomic and wait of this module, so that a
//! test meets orders of events that a real scheduler hardly ever produces. Under shuttle, timeouts of waits never end: a
//! lost wake-up is a deadlock, which shuttle reports; otherwise the timeout would hide it.
//! Limits: the order of memory accesses is not explored, since every atomic is sequentially consistent under shuttle;
//! `tests/followers.rs` explores that order for the one word that needs it.

// Made again, of what shuttle has.
#[cfg(interleaved)]
#[path = "condvar.rs"]
#[allow(unreachable_pub, dead_code, reason = "the file is a public part of this crate")]
mod condvar;
#[cfg(interleaved)]
#[path = "lock.rs"]
#[allow(unreachable_pub, dead_code, reason = "the file is a public part of this crate")]
mod lock;

#[cfg(not(interleaved))]
use crate::lock;

#[cfg(not(interleaved))]
pub use crate::Condvar;
#[cfg(interleaved)]
pub use condvar::Condvar;
pub use lock::{Mutex, MutexGuard, RwLock};
pub use raw::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(interleaved))]
pub use std::thread;

#[cfg(not(interleaved))]
pub use crate::thread::{Thread, spawn};
#[cfg(interleaved)]
pub use thread::{Thread, spawn};

#[cfg(interleaved)]
pub use shuttle::thread_local;
#[cfg(not(interleaved))]
pub use std::thread_local;

/// What the standard library and shuttle both have.
#[allow(unreachable_pub, reason = "`lock` exports the guards")]
mod raw {
    #[cfg(interleaved)]
    pub use shuttle::sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic::*,
    };
    #[cfg(not(interleaved))]
    pub use std::sync::atomic::*;
}

/// Threads of shuttle's. A thread that sleeps waits for other threads, and so lets them go on.
#[cfg(interleaved)]
pub mod thread {
    pub use std::thread::panicking;

    /// As `genie_sys::thread::Thread`.
    #[derive(Debug)]
    pub struct Thread(shuttle::thread::JoinHandle<()>);

    /// As `genie_sys::thread::spawn`.
    pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> crate::Result<Thread> {
        let builder = shuttle::thread::Builder::new().name(name.to_owned());
        Ok(Thread(builder.spawn(run).expect("shuttle's threads")))
    }

    impl Thread {
        /// Whether this is the thread that asks.
        pub fn is_current(&self) -> bool {
            self.0.thread().id() == shuttle::thread::current().id()
        }

        /// Waits until the thread has ended.
        pub fn join(self) {
            let _ = self.0.join();
        }
    }

    /// Lets other threads go on.
    pub fn sleep(_: std::time::Duration) {
        shuttle::thread::yield_now();
    }
}
