//! Handles: what C knows by numbers.
//!
//! Invariants: numbers come from a counter that only rises, so that a number names one thing for ever, and a handle that is used twice
//! is found out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use genie_sys::lock::Mutex;

use crate::failure::Failure;

/// The next handle. Requests have smaller numbers: no handle is another one's of another kind.
static NEXT: AtomicU64 = AtomicU64::new(1 << 48);

/// A number that no handle has had.
pub(crate) fn next() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The least number that a handle made from now on can have.
pub(crate) fn least() -> u64 {
    NEXT.load(Ordering::Relaxed)
}

/// There is nothing of this number; `least` is the least that can be this process's own, if it is a child.
#[cold]
pub(crate) fn unknown(what: &str, number: u64, least: Option<u64>) -> Failure {
    if least.is_some_and(|least| number < least) {
        let sentence =
            format!("{what} {number} is the parent process's: its handles are of no use after fork");
        return Failure::new(libc::ECHILD, sentence);
    }
    Failure::new(libc::EBADF, format!("there is no {what} {number}, or it is over"))
}

/// All handles of one kind.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    /// What messages call one of them.
    what: &'static str,
    child_from: Option<u64>,
    known: Mutex<HashMap<u64, T>>,
}

impl<T> Handles<T> {
    /// None yet; `child_from` is as in `Process`.
    pub(crate) fn new(what: &'static str, child_from: Option<u64>) -> Self {
        Self { what, child_from, known: Mutex::default() }
    }

    pub(crate) fn add(&self, thing: T) -> u64 {
        let number = next();
        self.known.lock().insert(number, thing);
        number
    }

    /// Puts back what was removed.
    pub(crate) fn restore(&self, number: u64, thing: T) {
        self.known.lock().insert(number, thing);
    }

    /// Does something with one of them, under the lock.
    pub(crate) fn with<R>(
        &self,
        number: u64,
        act: impl FnOnce(&mut T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        act(self.known.lock().get_mut(&number).ok_or_else(|| self.unknown(number))?)
    }

    /// Takes one out.
    pub(crate) fn remove(&self, number: u64) -> Result<T, Failure> {
        self.known.lock().remove(&number).ok_or_else(|| self.unknown(number))
    }

    /// Takes all of these out, or none.
    ///
    /// # Errors
    /// One is not there, or is named twice.
    pub(crate) fn remove_all(&self, numbers: &[u64]) -> Result<Vec<T>, Failure> {
        let mut known = self.known.lock();
        let mut removed = Vec::new();
        for number in numbers {
            match known.remove(number) {
                Some(thing) => removed.push(thing),
                None => {
                    known.extend(numbers.iter().copied().zip(removed));
                    return Err(self.unknown(*number));
                }
            }
        }
        Ok(removed)
    }

    fn unknown(&self, number: u64) -> Failure {
        unknown(self.what, number, self.child_from)
    }
}
