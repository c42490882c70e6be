//! Values of which each process has its own, made when the process first asks for it.
//!
//! How: a child made by fork finds its parent's value, and makes one of its own. It does not drop the parent's, and waits for no lock
//! in it, which one of the parent's threads may have held at the fork. Nobody waits for a thread that makes a value, which may be
//! missing in a child as well: so what the standard library's `OnceLock` and `LazyLock` would hold in statics is held here.
#![allow(unsafe_code, reason = "pointers from boxes, which are never freed once they have been published")]

use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::fork::Maker;

/// A value for each process, to be kept in a static.
#[derive(Debug)]
pub struct PerProcess<T>(AtomicPtr<Made<T>>, PhantomData<T>);

#[derive(Debug)]
struct Made<T> {
    maker: Maker,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// No process has a value yet.
    #[expect(clippy::new_without_default, reason = "for statics, which no default value is for")]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()), PhantomData)
    }

    /// This process's value. `make` makes it where there is none yet; it is given the value of the process that this one was forked
    /// from, if that had one: a lock in it may be held by a thread that is not here. Of the values that threads make at the same
    /// time, one is kept.
    ///
    /// # Errors
    /// Those of `make`; the next call tries again.
    #[inline]
    pub fn get<E>(
        &'static self,
        make: impl FnOnce(Option<&'static T>) -> Result<T, E>,
    ) -> Result<&'static T, E> {
        // Acquire: with the release in `add`.
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: what the pointer has ever pointed to is never freed.
        match unsafe { found.as_ref() } {
            Some(made) if made.maker.is_this_process() => Ok(&made.value),
            _ => self.add(found, make),
        }
    }

    #[cold]
    fn add<E>(
        &'static self,
        before: *mut Made<T>,
        make: impl FnOnce(Option<&'static T>) -> Result<T, E>,
    ) -> Result<&'static T, E> {
        let maker = Maker::this_process();
        // SAFETY: what the pointer has ever pointed to is never freed.
        let parents = unsafe { before.as_ref() }.map(|made| &made.value);
        let new = Box::into_raw(Box::new(Made { maker, value: make(parents)? }));
        let kept = match self.0.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(first) => {
                // SAFETY: another thread of this process was first, so that nobody else knows of `new`.
                drop(unsafe { Box::from_raw(new) });
                first
            }
        };
        // SAFETY: it is from a box, and never freed.
        Ok(unsafe { &(*kept).value })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::child::{ExitOutcome, fork_child};

    static NUMBER: PerProcess<u32> = PerProcess::new();

    fn number() -> &'static u32 {
        let Ok(number) = NUMBER.get(|parents| Ok::<_, Infallible>(parents.map_or(1, |number| number + 1)));
        number
    }

    #[test]
    fn a_child_has_a_value_of_its_own() {
        assert_eq!(NUMBER.get(|_| Err("not yet")), Err("not yet"));
        let first = number();
        assert!(*first == 1 && std::ptr::eq(first, number()));
        // SAFETY: the child makes a value, which takes no lock that another thread may have.
        let child = unsafe { fork_child(|| *number() as u8 + u8::from(std::ptr::eq(first, number()))) };
        assert_eq!(child.unwrap().wait().unwrap(), ExitOutcome::Code(2));
        assert_eq!(*number(), 1);
    }

    #[test]
    fn threads_that_make_a_value_at_the_same_time_get_one_and_the_same() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        let barrier = std::sync::Barrier::new(4);
        let get = || {
            let Ok(value) = VALUE.get(|_| {
                // Each of them makes one.
                barrier.wait();
                Ok::<_, Infallible>(7)
            });
            std::ptr::from_ref(value).addr()
        };
        let got = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(get)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(got.iter().all(|addr| *addr == got[0]), "{got:x?}");
    }
}
