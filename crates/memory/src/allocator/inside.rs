//! Whether this thread is inside Genie's memory code, where an allocation must not come back to it.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    /// How many times this thread is inside. It has no destructor, so that it can be used while a thread's other locals are
    /// destroyed, and after.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// This thread is inside until this is dropped.
#[derive(Debug)]
pub(crate) struct Inside(PhantomData<*const ()>);

impl Inside {
    #[inline]
    pub(crate) fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(PhantomData)
    }

    /// Whether this thread is inside.
    #[inline]
    pub(crate) fn is_here() -> bool {
        DEPTH.get() > 0
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
