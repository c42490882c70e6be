//! Eviction: how the server of a request is asked to let it go, by however many threads at once.
//!
//! How: what the request originated is aborted first, by each of the threads, and then one of them asks the server.
//! Invariants: the server is asked once, and after the servers of all that the request originated. No thread waits for another for
//! longer than it may wait for a server.
//! Source: thesis §3.1.2, figure 3.1.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::contract::{Contract, Originated};
use crate::deadline::deadline_after;
use crate::exchange::Exchange;
use crate::primitive::spawn;
use crate::{Error, ServerHandle, sequel};

/// A request that a contractor made of a server.
struct Subcontract {
    exchange: Weak<Exchange>,
    server: ServerHandle,
}

impl Originated for Subcontract {
    fn is_over(&self) -> bool {
        self.exchange.strong_count() == 0
    }

    /// Where another thread is just asking the server, this waits for that thread, too, since it could otherwise be too late for the
    /// request that originated this one.
    fn evict(&self, reason: &Error, grace: Duration) {
        if let Some(exchange) = self.exchange.upgrade() {
            self.server.evict(&exchange, reason, grace);
            exchange.wait_for_asking(sequel::patience(grace));
        }
    }
}

impl ServerHandle {
    /// A request of this server, for the one that originates it.
    pub(crate) fn originated(&self, exchange: &Arc<Exchange>) -> Arc<dyn Originated> {
        Arc::new(Subcontract { exchange: Arc::downgrade(exchange), server: self.clone() })
    }

    /// Gives a request up, and asks the server to let it go, without waiting for that.
    pub(crate) fn give_up(&self, exchange: &Arc<Exchange>, reason: &Error, grace: Duration) {
        match exchange.begin_to_abort(self.name(), reason) {
            Some(contract @ Some(_)) => {
                // Aborting what the request originated takes time.
                let (exchange, server, of) = (Arc::clone(exchange), self.clone(), reason.clone());
                // Where no thread can be started, the request goes on until the timeouts of what it originated.
                let _ = spawn("genie-eviction", move || {
                    server.go_on_to_evict(&exchange, contract, &of, grace);
                });
            }
            Some(None) => drop(self.go_on_to_evict(exchange, None, reason, grace)),
            None => {}
        }
        exchange.give_up(reason);
        self.look();
    }

    /// Asks the server to let a request go, and gives the request up when the server does not within `grace`.
    pub(crate) fn evict(&self, exchange: &Exchange, reason: &Error, grace: Duration) {
        let is_asked = self.ask_to_let_go(exchange, reason, grace);
        if is_asked && !self.wait_for(exchange, deadline_after(grace)) {
            exchange.give_up(reason);
            self.look();
        }
    }

    /// Asks the server to let a request go, after whatever the request originated has been aborted; returns whether there
    /// was no reply yet.
    pub(crate) fn ask_to_let_go(&self, exchange: &Exchange, reason: &Error, grace: Duration) -> bool {
        let begun = exchange.begin_to_abort(self.name(), reason);
        begun.is_some_and(|contract| self.go_on_to_evict(exchange, contract, reason, grace))
    }

    fn go_on_to_evict(
        &self,
        exchange: &Exchange,
        contract: Option<Arc<Contract>>,
        reason: &Error,
        grace: Duration,
    ) -> bool {
        if let Some(contract) = contract {
            contract.evict(reason, grace);
        }
        exchange.ask(|| self.abort(exchange.id()))
    }
}
