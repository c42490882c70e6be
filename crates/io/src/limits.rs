//! Limits on the bytes in an interface's pending requests.
//!
//! Why: a pending request holds memory; a client that asks faster than its servers reply would take it all.
//! How: a request is admitted when its bytes fit; a synchronous one waits for room, an asynchronous one is refused.
//! Source: thesis §3.1.2, point 1.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;

/// What an interface allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in all pending requests together.
    pub pending_bytes: usize,
    /// The longest time any request may take, also one that asks for more or for none; `None` is no limit.
    pub timeout: Option<Duration>,
    /// How long a server may take to let an aborted request go before the client goes on without its buffers.
    pub abort_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pending_bytes: 1 << 30, timeout: None, abort_timeout: Duration::from_millis(100) }
    }
}

/// The count of pending bytes.
#[derive(Debug)]
pub(crate) struct Pendings {
    used: AtomicUsize,
    limit: usize,
    waiters: AtomicUsize,
    queue: Mutex<()>,
    room: Condvar,
}

/// One request's share of the limit; dropping it makes room.
#[derive(Debug)]
pub(crate) struct Admission {
    pendings: Arc<Pendings>,
    bytes: usize,
}

impl Pendings {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            limit,
            waiters: AtomicUsize::new(0),
            queue: Mutex::new(()),
            room: Condvar::new(),
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Admits a request if it fits now.
    pub(crate) fn try_admit(self: &Arc<Self>, bytes: usize) -> Result<Admission, Error> {
        if bytes > self.limit {
            return Err(Error::TooLarge { asked: bytes, limit: self.limit });
        }
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        // SeqCst pairs with the waiter's: either it sees the room made, or whoever makes room sees the waiter.
        match self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits) {
            Ok(_) => Ok(Admission { pendings: Arc::clone(self), bytes }),
            Err(pending) => Err(Error::Exhausted { asked: bytes, pending, limit: self.limit }),
        }
    }

    /// Admits a request as soon as it fits.
    pub(crate) fn admit(
        self: &Arc<Self>,
        bytes: usize,
        timeout: Option<Duration>,
    ) -> Result<Admission, Error> {
        let refused = match self.try_admit(bytes) {
            Err(refused @ Error::Exhausted { .. }) => refused,
            decided => return decided,
        };
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut guard = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            match self.try_admit(bytes) {
                Err(Error::Exhausted { .. }) => {}
                decided => break decided,
            }
            guard = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.room.wait(guard).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => {
                    break Err(timeout.map_or(refused, |t| Error::TimedOut { timeout: t }));
                }
                Some(left) => self.room.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        };
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.pendings.used.fetch_sub(self.bytes, Ordering::SeqCst);
        if self.pendings.waiters.load(Ordering::SeqCst) > 0 {
            // Taking the lock orders this after the waiter's look and before its sleep, or after the sleep has begun.
            drop(self.pendings.queue.lock().unwrap_or_else(PoisonError::into_inner));
            self.pendings.room.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_fits_is_refused_at_once() {
        let pendings = Arc::new(Pendings::new(10));
        assert_eq!(pendings.admit(11, None).unwrap_err(), Error::TooLarge { asked: 11, limit: 10 });
    }

    #[test]
    fn an_asynchronous_request_is_refused_and_a_synchronous_one_waits() {
        let pendings = Arc::new(Pendings::new(10));
        let first = pendings.try_admit(8).unwrap();
        assert_eq!(pendings.try_admit(4).unwrap_err(), Error::Exhausted { asked: 4, pending: 8, limit: 10 });
        let waiter = {
            let pendings = Arc::clone(&pendings);
            std::thread::spawn(move || pendings.admit(4, None).map(drop))
        };
        while pendings.waiters.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(first);
        waiter.join().unwrap().unwrap();
        assert_eq!(pendings.used(), 0);
    }

    #[test]
    fn waiting_ends_with_the_timeout() {
        let pendings = Arc::new(Pendings::new(10));
        let _first = pendings.try_admit(8).unwrap();
        let timeout = Duration::from_millis(5);
        assert_eq!(pendings.admit(4, Some(timeout)).unwrap_err(), Error::TimedOut { timeout });
    }
}
