//! Evictions: aborting requests, with the requests that they have originated.
//!
//! How: the server's code is told at once to abort a request that has originated nothing. If a request has originated
//! others, those are aborted first, which may take as long as their servers are allowed. A few threads do that; they start
//! when they are needed and end when nothing is left.
//! Limits: [`THREADS`]; further requests wait. A request is aborted by its client, or when its channel ends; and once more if it was
//! in the server's code when the channel ended.
//! So at most twice as many wait as are pending.
//! Source: thesis §3.1.2 (eviction).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use genie_io::carrier::{Code, Contract};
use genie_io::{Error, RequestId};
use genie_sys::fork::Maker;

use super::session::Session;
use super::telemetry;
use crate::primitive::{Mutex, spawn};

/// How many threads abort originated requests.
const THREADS: usize = 8;

/// A request, and the requests that it has originated.
pub(super) type Aborted = (RequestId, Weak<Contract>);

/// A client in another process. Whatever may take or abort requests of the client holds this; dropping the last one tells
/// the server that the client has left, while the client's memory is still mapped.
#[derive(Debug)]
pub(super) struct Departure {
    maker: Maker,
    server: Code,
    session: Arc<Session>,
}

impl Departure {
    pub(super) fn new(server: &Code, session: &Arc<Session>) -> Arc<Self> {
        Arc::new(Self { maker: Maker::this_process(), server: server.clone(), session: Arc::clone(session) })
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    fn grace(&self) -> Duration {
        self.session.abort_timeout()
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        // A child's copy of the server is not told: the client is the parent's.
        if self.maker.is_this_process() {
            self.server.departed(self.session.client().id);
        }
    }
}

/// A server's evictions.
pub(super) struct Evictions {
    server: Code,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Aborted, Arc<Departure>)>,
    threads: usize,
}

impl Evictions {
    pub(super) fn new(server: &Code) -> Arc<Self> {
        Arc::new(Self { server: server.clone(), state: Mutex::default() })
    }

    /// Aborts a client's requests: for each, the requests that it has originated, then itself. The client has left after
    /// that.
    pub(super) fn evict(
        self: &Arc<Self>,
        requests: impl IntoIterator<Item = Aborted>,
        client: &Arc<Departure>,
    ) {
        for (request, contract) in requests {
            telemetry::evicted(client.session.client(), request);
            if contract.strong_count() == 0 {
                self.server.abort(request);
            } else {
                self.state.lock().waiting.push_back(((request, contract), Arc::clone(client)));
                self.summon();
            }
        }
    }

    /// Starts a thread for the requests that wait, unless there are enough threads.
    fn summon(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.threads >= THREADS {
            return;
        }
        let evictions = Arc::clone(self);
        match spawn("genie-eviction", move || evictions.run()) {
            Ok(_) => state.threads += 1,
            // Without a thread the originated requests go on, until the timeouts of their own clients end them.
            Err(_) if state.threads == 0 => {
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                // This may drop the last `Departure` of a client, which tells the server that the client has left.
                drop(waiting);
            }
            Err(_) => {}
        }
    }

    fn run(&self) {
        while let Some(((request, contract), client)) = self.next() {
            if let Some(contract) = contract.upgrade() {
                contract.evict(&Error::Aborted, client.grace());
            }
            self.server.abort(request);
        }
    }

    /// The request to be aborted next. A thread that finds none ends, and is counted no longer.
    fn next(&self) -> Option<(Aborted, Arc<Departure>)> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.threads -= 1;
        }
        next
    }
}
