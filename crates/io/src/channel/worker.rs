//! Workers: the threads that take requests off the rings.
//!
//! How: a worker goes round its clients' rings; when none has had a record for a while, it sleeps on all of them at once. It
//! calls the server's code with each request that it takes, in its own thread.
//! A client's records that rest on control messages wait until the control thread has acted upon those messages; other
//! clients' records do not wait.
//! Trust: one client is served a bounded number of requests before the next one is looked at.

use std::ops::{BitAnd, BitOr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use genie_ring::{Consumer, Mode, Record as Received, Spin};
use genie_sys::futex;

use super::arenas::ArenaView;
use super::evictions::Departure;
use super::listener::Shared;
use super::session::Session;
use super::wire::record::{Record, Slot};

/// The most records of one client that a round serves.
const ROUND: usize = 16;
/// The longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// A client's ring, as its worker holds it.
#[derive(Debug)]
pub(super) struct ClientRing {
    pub(super) session: Arc<Session>,
    pub(super) departure: Arc<Departure>,
    pub(super) consumer: Consumer,
    pub(super) record: Received,
    pub(super) view: ArenaView,
    /// The number of the control message that the next record rests on; 0 if the control thread has acted upon all of them.
    pub(super) awaited: u64,
}

/// What one thread attends to.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    rings: Vec<ClientRing>,
}

impl Worker {
    pub(super) fn new(shared: &Arc<Shared>, index: usize) -> Self {
        Self { shared: Arc::clone(shared), index, rings: Vec::new() }
    }

    /// Serves until the server is stopped.
    pub(super) fn run(mut self) {
        let spin = Spin::new(self.shared.options.spin);
        while !self.shared.has_stopped() {
            let is_idle = !self.serve(|_, _| {});
            if self.shared.is_inherited() {
                // The server's code has forked, and this is the child, which has returned from that code: rings and clients
                // are the parent's.
                return std::mem::forget(self);
            }
            if is_idle && !spin.until(|| self.rings.iter_mut().any(ClientRing::is_ready)) {
                self.sleep();
            }
        }
    }

    /// Serves every client's next requests; returns whether there were any. Calls `change` with the ring of each client that
    /// has come (true) or gone (false).
    pub(super) fn serve(&mut self, mut change: impl FnMut(&Consumer, bool)) -> bool {
        let inbox = &self.shared.inboxes[self.index];
        let changes = inbox.changes.load(Ordering::Acquire);
        if changes != inbox.seen.load(Ordering::Relaxed) {
            inbox.seen.store(changes, Ordering::Relaxed);
            let new = inbox.take();
            new.iter().for_each(|ring| change(&ring.consumer, true));
            self.rings.extend(new);
            for ring in self.rings.extract_if(.., |ring| ring.session.is_gone()) {
                change(&ring.consumer, false);
            }
            // This lets go of withdrawn arenas.
            self.rings.iter_mut().for_each(|ring| ring.session.arenas.look(&mut ring.view));
        }
        let shared = &self.shared;
        // `bitor` does not stop at the first true: every ring is served.
        self.rings.iter_mut().map(|ring| ring.serve(shared)).fold(false, BitOr::bitor)
    }

    /// Sleeps until a client or the control thread has something.
    fn sleep(&mut self) {
        if self.arm(Mode::Futex) {
            let inbox = &self.shared.inboxes[self.index];
            let mut words = vec![(&inbox.changes, inbox.seen.load(Ordering::Relaxed))];
            // A held ring is left out: it is not armed, and its word would not let this thread sleep.
            let free = self.rings.iter().filter(|ring| ring.awaited == 0);
            words.extend(free.map(|ring| ring.consumer.word()));
            // If this fails, the thread looks again.
            let _ = futex::wait_any(&words, Some(LONGEST_SLEEP));
        }
        self.disarm();
    }

    /// Makes this thread wake when a client sends its next request, or makes room for replies that wait. Returns false when
    /// there is a request already.
    pub(super) fn arm(&mut self, mode: Mode) -> bool {
        // `bitand` does not stop at the first false: every ring is armed.
        let is_armed = self.rings.iter_mut().map(|ring| ring.arm(mode)).fold(true, BitAnd::bitand);
        self.flush();
        is_armed
    }

    pub(super) fn disarm(&mut self) {
        self.rings.iter_mut().for_each(|ring| ring.consumer.disarm());
    }

    /// Sends replies that had to wait for room.
    fn flush(&self) {
        self.rings.iter().for_each(|ring| ring.session.flush());
    }
}

impl ClientRing {
    /// Serves the records that are there, at most [`ROUND`] of them; returns whether there were any.
    fn serve(&mut self, shared: &Arc<Shared>) -> bool {
        if shared.is_inherited() || self.session.is_gone() || self.is_held() {
            return false;
        }
        for served in 0..ROUND {
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
            if shared.is_inherited() || self.is_held() {
                return true;
            }
        }
        true
    }

    /// Whether the next record rests on a control message upon which the control thread has not acted yet. When it acts, the
    /// inbox changes.
    fn is_held(&mut self) -> bool {
        if self.awaited > 0 && self.session.has_heard(self.awaited) {
            self.awaited = 0;
        }
        self.awaited > 0
    }

    /// Whether there is a record to be served.
    fn is_ready(&mut self) -> bool {
        self.consumer.is_ready() && !self.is_held()
    }

    /// Makes the next record ring the bell; returns false when there is a record to be served.
    fn arm(&mut self, mode: Mode) -> bool {
        self.consumer.arm(mode) || self.is_held()
    }

    /// Acts upon a record; an error says what is wrong with it.
    fn accept(&mut self, shared: &Arc<Shared>) -> Result<(), String> {
        let record = Record::decode(self.record.kind(), self.record.payload());
        match record.map_err(|malformed| malformed.to_string())? {
            Record::Request(request) => {
                if let Some(incoming) = self.session.receive(&mut self.view, &request)? {
                    shared.server.request(|| incoming);
                    if self.session.is_gone() {
                        // The control thread may have aborted the request before the server's code had it.
                        self.evict(shared, request.slot);
                    }
                }
                if self.view.is_broken() {
                    return Err("it took memory away that it had announced".to_owned());
                }
            }
            Record::Abort(slot) => self.evict(shared, slot),
            // This replaces the last number: the control thread has acted upon that message already.
            Record::Said(messages) => self.awaited = messages,
            Record::Reply(_) | Record::Done(_) => return Err("a client sends no replies".to_owned()),
        }
        Ok(())
    }

    fn evict(&self, shared: &Arc<Shared>, slot: Slot) {
        shared.evictions.evict(self.session.abort(slot), &self.departure);
    }

    fn end(&self, shared: &Shared, wrong: String) {
        self.session.end(Some(wrong));
        shared.attend();
    }
}
