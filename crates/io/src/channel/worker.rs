//! Workers: the threads that take requests off the rings.
//!
//! How: a worker looks at its clients' rings in turn; when none has had anything for a while it sleeps on all of them at
//! once. What it takes it hands to the server's code, in this thread.
//! Trust: one client is served a bounded number of requests before the next one is looked at.

use std::ops::{BitAnd, BitOr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use genie_ring::{Consumer, Mode, Record as Received, Spin};
use genie_sys::futex;

use super::customer::{Customer, Sight};
use super::listener::Shared;
use super::wire::record::{Record, Slot};
use crate::{Error, RequestId};

/// Requests of one client that are served before others' are looked at.
const TURN: usize = 16;
/// The longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// A client's ring, as its worker holds it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) customer: Arc<Customer>,
    pub(super) consumer: Consumer,
    pub(super) record: Received,
    pub(super) sight: Sight,
}

/// What one thread attends to.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    lines: Vec<Line>,
    /// The inbox's changes that have been seen.
    seen: u32,
}

impl Worker {
    pub(super) fn new(shared: &Arc<Shared>, index: usize) -> Self {
        Self { shared: Arc::clone(shared), index, lines: Vec::new(), seen: 0 }
    }

    /// Serves until the server is stopped.
    pub(super) fn run(mut self) {
        let spin = Spin::new(self.shared.options.spin);
        while !self.shared.has_stopped() {
            let is_idle = !self.turn(|_, _| {});
            if is_idle && !spin.until(|| self.lines.iter().any(|line| line.consumer.is_ready())) {
                self.sleep();
            }
        }
    }

    /// Serves every client's next requests; returns whether there were any. `change` is shown the rings of clients that came
    /// (true) and went.
    pub(super) fn turn(&mut self, mut change: impl FnMut(&Consumer, bool)) -> bool {
        let inbox = &self.shared.inboxes[self.index];
        let changes = inbox.changes.load(Ordering::Acquire);
        if changes != self.seen {
            self.seen = changes;
            let new = inbox.take();
            new.iter().for_each(|line| change(&line.consumer, true));
            self.lines.extend(new);
            for line in self.lines.extract_if(.., |line| line.customer.is_gone()) {
                change(&line.consumer, false);
            }
            // Arenas that were withdrawn are let go.
            self.lines.iter_mut().for_each(|line| line.customer.look(&mut line.sight));
        }
        let shared = &self.shared;
        // Every one is served, whatever the others had.
        self.lines.iter_mut().map(|line| line.serve(shared)).fold(false, BitOr::bitor)
    }

    /// Sleeps until a client or the control thread has something.
    fn sleep(&mut self) {
        if self.arm(Mode::Futex) {
            let mut words = vec![(&self.shared.inboxes[self.index].changes, self.seen)];
            words.extend(self.lines.iter().map(|line| line.consumer.word()));
            // A failure is met by looking again.
            let _ = futex::wait_any(&words, Some(LONGEST_SLEEP));
        }
        self.disarm();
    }

    /// Has every client's next request wake this thread, or the room that it makes for replies that wait; returns false
    /// when there is a request already.
    pub(super) fn arm(&mut self, mode: Mode) -> bool {
        // Every one is armed, whatever the others say.
        let is_armed = self.lines.iter_mut().map(|line| line.consumer.arm(mode)).fold(true, BitAnd::bitand);
        self.flush();
        is_armed
    }

    pub(super) fn disarm(&mut self) {
        self.lines.iter_mut().for_each(|line| line.consumer.disarm());
    }

    /// Sends replies that had to wait for room.
    fn flush(&self) {
        self.lines.iter().for_each(|line| line.customer.flush());
    }
}

impl Line {
    /// Serves what is there, up to a turn; returns whether there was anything.
    fn serve(&mut self, shared: &Arc<Shared>) -> bool {
        if self.customer.is_gone() {
            return false;
        }
        for served in 0..TURN {
            match self.consumer.pop(&mut self.record) {
                Ok(true) => {}
                Ok(false) => return served > 0,
                Err(broken) => {
                    self.end(shared, broken.to_string());
                    return true;
                }
            }
            if let Err(wrong) = self.accept(shared) {
                self.end(shared, wrong);
                return true;
            }
        }
        true
    }

    /// Acts upon a record; an error says what is wrong with it.
    fn accept(&mut self, shared: &Arc<Shared>) -> Result<(), String> {
        let record = Record::decode(self.record.kind(), self.record.payload());
        match record.map_err(|malformed| malformed.to_string())? {
            Record::Request(request) => {
                if let Some(incoming) = self.customer.receive(&mut self.sight, &request)? {
                    shared.server.request(incoming);
                    if self.customer.is_gone() {
                        // The control thread may have asked for it before the server had it.
                        self.evict(shared, request.slot);
                    }
                }
                if self.sight.is_broken() {
                    return Err("it took memory away that it had announced".to_owned());
                }
            }
            Record::Abort(slot) => self.evict(shared, slot),
            Record::Goodbye => {}
            Record::Reply(_) | Record::Done(_) => return Err("a client sends no replies".to_owned()),
        }
        Ok(())
    }

    fn evict(&self, shared: &Arc<Shared>, slot: Slot) {
        if let Some(aborting) = self.customer.aborting(slot) {
            evict(shared, vec![aborting], self.customer.abort_timeout());
        }
    }

    fn end(&self, shared: &Shared, wrong: String) {
        self.customer.end(Some(wrong));
        shared.attend();
    }
}

/// Aborts requests: what they have originated first, then each itself. Where something was originated, that is done by a
/// thread of its own, since it takes time.
pub(super) fn evict(
    shared: &Arc<Shared>,
    requests: Vec<(RequestId, std::sync::Weak<crate::contract::Contract>)>,
    grace: Duration,
) {
    let (plain, contracted): (Vec<_>, Vec<_>) =
        requests.into_iter().partition(|(_, contract)| contract.strong_count() == 0);
    plain.into_iter().for_each(|(request, _)| shared.server.abort(request));
    if contracted.is_empty() {
        return;
    }
    let server = Arc::clone(&shared.server);
    let run = move || {
        for (request, contract) in contracted {
            if let Some(contract) = contract.upgrade() {
                contract.evict(&Error::Aborted, grace);
            }
            server.abort(request);
        }
    };
    // Without a thread the subcontracts run on; their own clients' timeouts end them.
    let _ = std::thread::Builder::new().name("genie-eviction".into()).spawn(run);
}
