//! The space's lock, held: the tables, and the mark that this thread holds a lock of Genie's.
//!
//! Why: where the program's allocator makes its large allocations in a space, what the holder of that space's lock allocates
//! and frees must not come back to the space. With the feature `allocator`, each thread counts the locks that it holds.

use std::ops::{Deref, DerefMut};

use genie_sys::lock::MutexGuard;

use crate::tables::State;

/// The tables of a space, locked.
pub(crate) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    /// Dropped last: unlocking may wake a thread, but allocates nothing.
    #[cfg(feature = "allocator")]
    _inside: crate::allocator::Inside,
}

impl<'a> Locked<'a> {
    pub(crate) fn by(lock: impl FnOnce() -> MutexGuard<'a, State>) -> Self {
        #[cfg(feature = "allocator")]
        let inside = crate::allocator::Inside::enter();
        Self {
            state: lock(),
            #[cfg(feature = "allocator")]
            _inside: inside,
        }
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
