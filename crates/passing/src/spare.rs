//! Spares: memory of transfers that are over, kept for their thread's next ones.
//!
//! Why: calls of the allocator are a visible part of what a short request costs. The test `allocations` of the io crate
//! checks that a short request makes none, nor do several in flight.
//! Invariants: a kept value holds nothing that belongs to anybody; the code that keeps it makes sure of that.
//! Limits: [`MOST`] values for each thread and kind; what is kept beyond them is dropped.

use std::cell::{Cell, RefCell};
use std::thread::LocalKey;

/// The most values of a kind that a thread keeps: as many as a client with several requests in flight uses in turn.
const MOST: usize = 32;

/// A thread's place for values that are over.
pub struct Spare<T> {
    /// The value that was kept last: where one transfer follows the other, there are no others.
    last: Cell<Option<T>>,
    others: RefCell<Vec<T>>,
}

impl<T> Spare<T> {
    /// An empty place.
    #[must_use]
    pub const fn none() -> Self {
        Self { last: Cell::new(None), others: RefCell::new(Vec::new()) }
    }

    /// Takes a value that this thread has kept, if there is one. A thread that is about to end has none.
    #[inline]
    pub fn take(place: &'static LocalKey<Self>) -> Option<T> {
        place.try_with(|spare| spare.last.take().or_else(|| spare.take_other())).ok().flatten()
    }

    /// Keeps `over` for this thread's next one. A thread that is about to end has no next one, and drops it.
    #[inline]
    pub fn keep(place: &'static LocalKey<Self>, over: T) {
        // All of shuttle's threads, in all of its executions, are one thread of the system.
        if !cfg!(interleaved) {
            let _ = place.try_with(|spare| {
                if let Some(before) = spare.last.replace(Some(over)) {
                    spare.keep_other(before);
                }
            });
        }
    }

    #[inline(never)]
    fn take_other(&self) -> Option<T> {
        self.others.try_borrow_mut().ok()?.pop()
    }

    #[inline(never)]
    fn keep_other(&self, before: T) {
        let left = match self.others.try_borrow_mut() {
            Ok(mut others) if others.len() < MOST - 1 => {
                others.push(before);
                None
            }
            _ => Some(before),
        };
        // Only now: what is dropped may keep something.
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    thread_local! {
        static SPARE: Spare<Box<u32>> = const { Spare::none() };
    }

    #[test]
    fn what_is_kept_is_taken_once_and_by_its_own_thread() {
        Spare::keep(&SPARE, Box::new(1));
        Spare::keep(&SPARE, Box::new(2));
        assert_eq!(thread::spawn(|| Spare::take(&SPARE)).join().expect("another thread"), None);
        assert_eq!(Spare::take(&SPARE), Some(Box::new(2)));
        assert_eq!(Spare::take(&SPARE), Some(Box::new(1)));
        assert_eq!(Spare::take(&SPARE), None);
    }

    #[test]
    fn no_more_than_the_most_are_kept() {
        (0..2 * MOST as u32).for_each(|number| Spare::keep(&SPARE, Box::new(number)));
        assert_eq!(std::iter::from_fn(|| Spare::take(&SPARE)).count(), MOST);
    }

    /// When its thread ends, keeps a value, takes one, and says what it took.
    struct Last(mpsc::Sender<Option<Box<u32>>>);

    impl Drop for Last {
        fn drop(&mut self) {
            Spare::keep(&SPARE, Box::new(4));
            let _ = self.0.send(Spare::take(&SPARE));
        }
    }

    #[test]
    fn a_thread_that_is_about_to_end_keeps_nothing() {
        thread_local! {
            static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
        }
        let (say, said) = mpsc::channel();
        let thread = thread::spawn(move || {
            // The thread-local value that a thread touches first is dropped last.
            LAST.with(|last| *last.borrow_mut() = Some(Last(say)));
            Spare::keep(&SPARE, Box::new(3));
        });
        thread.join().expect("a thread that ends well");
        assert_eq!(said.recv(), Ok(None));
    }
}
