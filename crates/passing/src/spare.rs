//! Spares: memory of a transfer that is over, kept for its thread's next one.
//!
//! Why: calls of the allocator are a visible part of what a short request costs. The test `allocations` of the io crate
//! checks that a short request makes none.
//! Invariants: a kept value holds nothing that belongs to anybody; the code that keeps it makes sure of that.
//! Limits: one value for each thread and kind; a value that is kept takes the place of the one before.

use std::cell::Cell;
use std::thread::LocalKey;

/// A thread's place for one value that is over.
pub struct Spare<T>(Cell<Option<T>>);

impl<T> Spare<T> {
    /// An empty place.
    #[must_use]
    pub const fn none() -> Self {
        Self(Cell::new(None))
    }

    /// Takes the value that this thread has kept, if there is one. A thread that is about to end has none.
    #[inline]
    pub fn take(place: &'static LocalKey<Self>) -> Option<T> {
        place.try_with(|spare| spare.0.take()).ok().flatten()
    }

    /// Keeps `over` for this thread's next one. A thread that is about to end has no next one, and drops it.
    #[inline]
    pub fn keep(place: &'static LocalKey<Self>, over: T) {
        // All of shuttle's threads, in all of its executions, are one thread of the system.
        if !cfg!(interleaved) {
            let _ = place.try_with(|spare| spare.0.set(Some(over)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
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
        assert_eq!(Spare::take(&SPARE), None);
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
