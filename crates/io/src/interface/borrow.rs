//! Borrows: client memory that a synchronous request passes in place, and that nobody else can use until the call returns.
//!
//! How: where a call returns before its outputs have ended (a timeout, an abort, an anticipated reply), the client's space
//! keeps them from the client's stores from then on. Where it returns before its inputs in place have ended, the space gives the
//! client other granules.
//! Limits: where that fails (no memory, no mapping, a server that stores into the same granules), the call returns later:
//! when it succeeds, or when the transfers have ended.

use std::time::Duration;

use genie_memory::{Error, Space};

use crate::ServerHandle;
use crate::primitive::thread;
use crate::reply::ReplyBuffer;
use crate::work::Borrowings;

/// How long to wait before it is tried again to end a borrow.
const RETRY: Duration = Duration::from_millis(1);

/// The borrowed memory of one request. Dropping this ends the borrow.
pub(super) struct Borrow<'a> {
    pub(super) space: &'a Space,
    pub(super) server: &'a ServerHandle,
    pub(super) of: Borrowings,
}

impl Borrow<'_> {
    /// The transfers have ended, so nothing has to be done for their memory.
    #[inline]
    pub(super) fn over(mut self) {
        self.of.outputs.clear();
        self.of.inputs.clear();
    }

    /// Ends the borrow although outputs may be pending, and notes in their receipts what that took.
    pub(super) fn end(mut self, buffers: &mut [ReplyBuffer]) {
        let elements = buffers.iter_mut().flat_map(|buffer| &mut buffer.elements);
        let receipts = elements.map(|element| &mut element.receipt).filter(|receipt| receipt.held);
        for (output, receipt) in std::mem::take(&mut self.of.outputs).into_iter().zip(receipts) {
            let kept = self.until_done(|space| space.end_borrow(output.0, output.1));
            receipt.protected += kept.protected;
            receipt.replaced += kept.replaced;
        }
    }

    /// Returns when `end` has succeeded.
    fn until_done<T: Default>(&self, end: impl Fn(&Space) -> Result<T, Error>) -> T {
        loop {
            match end(self.space) {
                Ok(done) => return done,
                Err(Error::Inherited) => return T::default(),
                Err(_) => {
                    // A transfer may end by a reply that this thread has to take.
                    self.server.collect();
                    thread::sleep(RETRY);
                }
            }
        }
    }
}

impl Drop for Borrow<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.of.outputs.is_empty() || !self.of.inputs.is_empty() {
            self.end_all();
        }
    }
}

impl Borrow<'_> {
    #[cold]
    fn end_all(&mut self) {
        for (addr, len) in std::mem::take(&mut self.of.outputs) {
            self.until_done(|space| space.end_borrow(addr, len));
        }
        for (addr, len) in std::mem::take(&mut self.of.inputs) {
            self.until_done(|space| space.end_input_borrow(addr, len));
        }
    }
}
