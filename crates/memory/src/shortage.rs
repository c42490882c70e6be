//! Shortages: who is told that a lender's pool is exhausted.
//!
//! Why: only the party that asks a lender for memory can ask it for more, and this floor knows no parties.
//! How: the code that speaks with the lender leaves a function here. It is called by the thread that found the pool exhausted,
//! after it has let the lock go; the buffer is refused all the same.
//! Limits: a pool that keeps a buffer of the length asked for is not exhausted, however many would rather be used in turn.
//! Source: none in the thesis, whose servers' pools have the size that they were registered with.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::space::{Core, Space};
use crate::{Error, LenderId};

/// What is called, with the bytes that were asked for.
type Tell = Arc<dyn Fn(usize) + Send + Sync>;

/// By lender.
#[derive(Default)]
pub(crate) struct Shortages(BTreeMap<LenderId, Tell>);

impl Shortages {
    /// Forgets who is told of a lender's.
    pub(crate) fn forget(&mut self, lender: LenderId) {
        self.0.remove(&lender);
    }
}

impl fmt::Debug for Shortages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Space {
    /// Has `tell` be called whenever the lender's pool has no memory for a system buffer, with the bytes that the buffer
    /// would have taken, until the lender is removed; in place of what was to be called before. It is called by the thread
    /// that wanted the buffer, which goes on when it returns: it had better not wait.
    ///
    /// Of a lender that was removed nobody is told.
    pub fn on_shortage(&self, lender: LenderId, tell: impl Fn(usize) + Send + Sync + 'static) {
        if self.is_inherited() {
            return;
        }
        let mut state = self.core().lock();
        if lender != LenderId::OWN && state.granules.stocks.is_live(lender) {
            state.shortages.0.insert(lender, Arc::new(tell));
        }
    }
}

impl Core {
    /// Tells of a shortage, if that is why a buffer could not be had. The caller must not hold the lock.
    pub(crate) fn tell_shortage(&self, lender: LenderId, error: Error) -> Error {
        if let Error::Lender { asked, .. } = error {
            let tell = self.lock().shortages.0.get(&lender).cloned();
            if let Some(tell) = tell {
                tell(asked);
            }
        }
        error
    }
}
