//! Aborting: what an exchange knows of how its server is asked to let the request go (`handle/eviction.rs`).

use std::sync::Arc;
use std::time::Duration;

use super::{Exchange, Phase, State};
use crate::contract::Contract;
use crate::deadline::deadline_after;
use crate::primitive::Ordering;
use crate::{Error, telemetry};

/// Whether the server was asked to let the request go: of several threads that abort it, one does that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    No,
    /// A thread is in the server's code.
    UnderWay,
    Yes,
}

impl Exchange {
    /// Notes that the request of this server is being aborted, unless there is a reply. Returns its contract, if the server has made
    /// one.
    ///
    /// A request that its client has given up is still to be aborted, if its server was not asked: a thread that aborts it may be busy
    /// with what it originated.
    pub(crate) fn begin_to_abort(&self, server: &str, reason: &Error) -> Option<Option<Arc<Contract>>> {
        let mut state = self.state.lock();
        let is_pending = match state.phase {
            Phase::Waiting | Phase::Forgotten => true,
            Phase::GivenUp(_) => state.asked == Asked::No,
            Phase::Replied(_) | Phase::Anticipated(_) | Phase::Over => false,
        };
        if state.is_done || !is_pending {
            return None;
        }
        let is_first = state.aborting.is_none();
        state.aborting.get_or_insert_with(|| reason.clone());
        // The server takes one lock for the abort and for the request; the lock orders this store for the thread that hands
        // the request over.
        self.is_aborting.store(true, Ordering::Relaxed);
        let contract = state.contract.upgrade();
        drop(state);
        if is_first {
            telemetry::aborted(server, self.id(), reason);
        }
        Some(contract)
    }

    /// Asks the server to let the request go, by `ask`, unless another thread has asked it; returns whether there was no reply yet.
    pub(crate) fn ask(&self, ask: impl FnOnce()) -> bool {
        let mut state = self.state.lock();
        // The requests that this one originated may have completed, and so may this request.
        if state.is_done || matches!(state.phase, Phase::Replied(_) | Phase::Anticipated(_)) {
            return false;
        }
        if state.asked == Asked::No {
            state.asked = Asked::UnderWay;
            drop(state);
            ask();
            self.state.lock().asked = Asked::Yes;
            self.changed.notify_all();
        }
        true
    }

    /// Waits at most so long while a thread is asking the server.
    pub(crate) fn wait_for_asking(&self, timeout: Duration) {
        let is_settled = |state: &State| state.is_done || state.asked != Asked::UnderWay;
        drop(self.changed.wait_until(self.state.lock(), deadline_after(timeout), is_settled));
    }

    /// Whether the server was asked to let the request go, maybe before it had it.
    pub(crate) fn is_aborting(&self) -> bool {
        self.is_aborting.load(Ordering::Relaxed)
    }
}
