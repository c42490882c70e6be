//! Aborting: how the server of a request is asked to let it go, by however many threads at once.
//!
//! How: what the request originated is aborted first, by each of the threads, and then one of them asks the server.
//! Invariants: the server is asked once, and after the servers of all that the request originated. No thread waits for another for
//! longer than it may wait for a server.
//! Source: thesis §3.1.2, figure 3.1.

use std::sync::Arc;
use std::time::Duration;

use super::{Exchange, Phase, State};
use crate::contract::Contract;
use crate::deadline::deadline_after;
use crate::primitive::{Ordering, spawn};
use crate::{Error, ServerHandle, telemetry};

/// Whether the server was asked to let the request go: of several threads that abort it, one does that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    No,
    /// A thread is in the server's code.
    UnderWay,
    Yes,
}

impl Exchange {
    /// Gives the request up, and asks the server to let it go, without waiting for that.
    pub(crate) fn end(self: &Arc<Self>, server: &ServerHandle, reason: &Error, grace: Duration) {
        match self.begin_to_abort(server, reason) {
            Some(contract @ Some(_)) => {
                // Aborting what the request originated takes time.
                let (exchange, server, of) = (Arc::clone(self), server.clone(), reason.clone());
                // Where no thread can be started, the request goes on until the timeouts of what it originated.
                let _ = spawn("genie-eviction", move || {
                    exchange.go_on_to_abort(contract, &server, &of, grace);
                });
            }
            Some(None) => drop(self.ask(server)),
            None => {}
        }
        self.give_up(reason);
        server.look();
    }

    /// Aborts the request: asks the server to let it go, and gives the request up when the server does not within `grace`.
    pub(crate) fn abort(&self, server: &ServerHandle, reason: &Error, grace: Duration) {
        let is_asked = self.ask_to_abort(server, reason, grace);
        if is_asked && !self.wait(server, deadline_after(grace)) {
            self.give_up(reason);
            server.look();
        }
    }

    /// As [`Exchange::abort`], before the request that originated this one is aborted: where another thread is just asking the
    /// server, this waits for that thread, too, since it could otherwise be too late.
    pub(crate) fn evict(&self, server: &ServerHandle, reason: &Error, grace: Duration) {
        self.abort(server, reason, grace);
        let is_settled = |state: &State| state.is_done || state.asked != Asked::UnderWay;
        drop(self.changed.wait_until(self.state.lock(), deadline_after(grace), is_settled));
    }

    /// Asks the server to let the request go, after whatever the request originated has been aborted; returns whether there
    /// was no reply yet.
    pub(crate) fn ask_to_abort(&self, server: &ServerHandle, reason: &Error, grace: Duration) -> bool {
        match self.begin_to_abort(server, reason) {
            Some(contract) => self.go_on_to_abort(contract, server, reason, grace),
            None => false,
        }
    }

    /// Notes that the request is being aborted, unless there is a reply. Returns its contract, if its server has made one.
    ///
    /// A request that its client has given up is still to be aborted, if its server was not asked: a thread that aborts it may be busy
    /// with what it originated.
    fn begin_to_abort(&self, server: &ServerHandle, reason: &Error) -> Option<Option<Arc<Contract>>> {
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
            telemetry::aborted(server.name(), self.id(), reason);
        }
        Some(contract)
    }

    fn go_on_to_abort(
        &self,
        contract: Option<Arc<Contract>>,
        server: &ServerHandle,
        reason: &Error,
        grace: Duration,
    ) -> bool {
        if let Some(contract) = contract {
            contract.evict(reason, grace);
        }
        self.ask(server)
    }

    /// Asks the server to let the request go, unless another thread has asked it; returns whether there was no reply yet.
    fn ask(&self, server: &ServerHandle) -> bool {
        let mut state = self.state.lock();
        // The requests that this one originated may have completed, and so may this request.
        if state.is_done || matches!(state.phase, Phase::Replied(_) | Phase::Anticipated(_)) {
            return false;
        }
        if state.asked == Asked::No {
            state.asked = Asked::UnderWay;
            drop(state);
            server.abort(self.id());
            self.state.lock().asked = Asked::Yes;
            self.changed.notify_all();
        }
        true
    }

    /// Whether the server was asked to let the request go, maybe before it had it.
    pub(crate) fn is_aborting(&self) -> bool {
        self.is_aborting.load(Ordering::Relaxed)
    }
}
