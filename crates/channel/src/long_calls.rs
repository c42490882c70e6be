//! Long calls: requests of one client with which workers are in the server's code, while another worker attends to the client.

use super::evictions::Aborted;
use super::wire::record::Slot;
use crate::primitive::{AtomicBool, AtomicU32, Mutex, Ordering};

/// One client's long calls.
#[derive(Debug, Default)]
pub(super) struct LongCalls {
    count: AtomicU32,
    /// Each call's request. A request that is aborted meanwhile is kept here: the server is asked to let it go when the call is
    /// over, since a server that keeps requests may not have kept this one yet.
    calls: Mutex<Vec<(Slot, Option<Aborted>)>>,
    /// The client's last call was a long one, so the next may be.
    are_likely: AtomicBool,
}

impl LongCalls {
    /// Whether the next call is expected to be a long one.
    pub(super) fn are_likely(&self) -> bool {
        self.are_likely.load(Ordering::Relaxed)
    }

    /// Notes whether a call was long, if that is known.
    pub(super) fn note(&self, was_long: Option<bool>) {
        if let Some(was_long) = was_long {
            self.are_likely.store(was_long, Ordering::Relaxed);
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// The worker that is in the server's code with this request is relieved.
    pub(super) fn begin(&self, slot: Slot) {
        self.are_likely.store(true, Ordering::Relaxed);
        self.calls.lock().push((slot, None));
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// The worker has come back; returns the request if it was aborted meanwhile.
    pub(super) fn end(&self, slot: Slot) -> Option<Aborted> {
        let mut calls = self.calls.lock();
        let index = calls.iter().position(|(called, _)| *called == slot)?;
        self.count.fetch_sub(1, Ordering::SeqCst);
        calls.swap_remove(index).1
    }

    /// Keeps a request that is aborted until its call is over; gives it back if no call with it goes on.
    pub(super) fn abort(&self, slot: Slot, aborted: Aborted) -> Option<Aborted> {
        let mut calls = self.calls.lock();
        match calls.iter_mut().find(|(called, _)| *called == slot) {
            Some((_, kept)) => {
                *kept = Some(aborted);
                None
            }
            None => Some(aborted),
        }
    }
}
