//! Shortages: who is told that a lender's pool is exhausted.
//!
//! Why: only the party that asks a lender for memory can ask it for more, and this crate does not know the parties.
//! How: the code that speaks with the lender leaves a function here. The thread that finds the pool exhausted calls it after
//! releasing the lock; the buffer is refused all the same.
//! Limits: a pool that keeps a buffer of the length asked for does not count as exhausted, even if it has fewer such buffers
//! than are to be rotated over.
//! Source: none in the thesis, whose servers' pools have the size that they were registered with.

use std::sync::Arc;

use crate::space::{Core, Space};
use crate::tables::stock::{Stocks, Tell};
use crate::{Error, LenderId};

impl Space {
    /// Has `tell` called whenever the lender's pool has no memory for a system buffer, of any granule size, with the bytes that
    /// the buffer would have taken, until the lender is removed. `tell` takes the place of any function set before. The thread that
    /// wanted the buffer calls `tell` and goes on when it returns, so `tell` had better not wait.
    ///
    /// For a lender that was removed, nothing is called.
    pub fn on_shortage(&self, lender: LenderId, tell: impl Fn(usize) + Send + Sync + 'static) {
        if self.is_inherited() {
            return;
        }
        let tell: Arc<dyn Fn(usize) + Send + Sync> = Arc::new(tell);
        for space in self.each() {
            if let Some(stock) = space.core().lock().granules.stocks.lender(lender) {
                stock.on_shortage = Some(Tell(Arc::clone(&tell)));
            }
        }
    }
}

impl Core {
    /// Tells of a shortage, if that is why a buffer could not be had. The caller must not hold the lock.
    pub(crate) fn tell_shortage(&self, lender: LenderId, error: Error) -> Error {
        if let Error::Lender { asked, .. } = error {
            let stock = |stocks: &Stocks| Some(Arc::clone(&stocks.get(lender)?.on_shortage.as_ref()?.0));
            let tell = stock(&self.lock().granules.stocks);
            if let Some(tell) = tell {
                tell(asked);
            }
        }
        error
    }
}
