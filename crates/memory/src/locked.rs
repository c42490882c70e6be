//! The space's lock, held: the tables, and the mark that this thread holds a lock of Genie's; and what is done when it is let go.
//!
//! Why: registrars are told of changes when the lock is free again. And where the program's allocator makes its large allocations in
//! a space, what the holder of that space's lock allocates and frees must not come back to the space. With the feature `allocator`,
//! each thread counts the locks that it holds.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use genie_sys::lock::MutexGuard;

use crate::registrars::Registrars;
use crate::tables::State;

/// The tables of a space, locked.
pub(crate) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    /// Dropped after it: unlocking may wake a thread, but allocates nothing.
    #[cfg(feature = "allocator")]
    _inside: crate::allocator::Inside,
    /// Dropped last: this calls code that is not Genie's.
    _telling: Telling<'a>,
}

/// Tells registrars when it is dropped.
struct Telling<'a>(&'a Arc<Registrars>);

impl Drop for Telling<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.tell();
    }
}

impl<'a> Locked<'a> {
    pub(crate) fn by(registrars: &'a Arc<Registrars>, lock: impl FnOnce() -> MutexGuard<'a, State>) -> Self {
        #[cfg(feature = "allocator")]
        let inside = crate::allocator::Inside::enter();
        Self {
            state: lock(),
            #[cfg(feature = "allocator")]
            _inside: inside,
            _telling: Telling(registrars),
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
