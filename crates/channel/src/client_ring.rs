//! One client's ring as its worker holds it, and what the records on it ask for.
//!
//! Trust: a record that breaks the rules ends its client's session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use genie_io::Incoming;
use genie_ring::{Consumer, Mode, Record as Received};

use super::arenas::ArenaView;
use super::evictions::Departure;
use super::session::Session;
use super::shared::Shared;
use super::wire::record::{Record, Slot};

const BROKEN: &str = "it took memory away that it had announced";

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
    /// Requests that wait until others of the client have come back from the server's code.
    pub(super) waiting: VecDeque<(Slot, Incoming)>,
    /// The number of the look of the control thread's before the client's last request.
    pub(super) asked: u32,
}

/// What became of a client's next record.
pub(super) enum Next {
    /// There is none.
    Nothing,
    /// The worker has acted upon it.
    Acted,
    /// The server's code is to be called with this request.
    Call(Slot, Incoming),
}

impl Drop for ClientRing {
    fn drop(&mut self) {
        if !self.waiting.is_empty() {
            // The server is being stopped. Its client learns that it has gone, not that its code dropped these requests.
            self.session.end(None);
        }
    }
}

impl ClientRing {
    /// Takes the next record, and acts upon it unless the server's code is to be called with it, which it may be if `may_call`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn next(&mut self, shared: &Arc<Shared>, may_call: bool) -> Result<Next, String> {
        if self.session.is_gone() {
            return Ok(Next::Nothing);
        }
        if may_call && let Some((slot, request)) = self.waiting.pop_front() {
            return Ok(Next::Call(slot, request));
        }
        if self.is_held() || !self.consumer.pop(&mut self.record).map_err(|broken| broken.to_string())? {
            return Ok(Next::Nothing);
        }
        let record = Record::decode(self.record.kind(), self.record.payload());
        match record.map_err(|malformed| malformed.to_string())? {
            Record::Request(request) => {
                self.asked = shared.looks.load(Ordering::Relaxed);
                let slot = request.slot;
                let received = self.session.receive(&mut self.view, &request)?;
                if self.view.is_broken() {
                    return Err(BROKEN.to_owned());
                }
                match received {
                    Some(request) if may_call => return Ok(Next::Call(slot, request)),
                    Some(request) => self.waiting.push_back((slot, request)),
                    None => {}
                }
            }
            Record::Abort(slot) => match self.waiting.iter().position(|(waits, _)| *waits == slot) {
                // It is dropped, and that is its reply.
                Some(index) => drop(self.waiting.remove(index)),
                None => {
                    let aborted = self.session.abort(slot);
                    let now = aborted.and_then(|aborted| self.session.long_calls.abort(slot, aborted));
                    shared.evictions.evict(now, &self.departure);
                }
            },
            // This replaces the last number: the control thread has acted upon that message already.
            Record::Said(messages) => self.awaited = messages,
            Record::Reply(_) | Record::Done(_) | Record::Progress(_) => {
                return Err("a client sends no replies".to_owned());
            }
        }
        Ok(Next::Acted)
    }

    /// The server's code has returned from a call with this request.
    pub(super) fn returned(&mut self, shared: &Arc<Shared>, slot: Slot) {
        if self.session.is_gone() {
            // The control thread may have aborted the request before the server's code had it.
            shared.evictions.evict(self.session.abort(slot), &self.departure);
        } else if self.view.is_broken() {
            self.end(shared, BROKEN.to_owned());
        }
    }

    /// Whether the next record rests on a control message upon which the control thread has not acted yet. When it acts, the
    /// post changes.
    fn is_held(&mut self) -> bool {
        if self.awaited > 0 && self.session.has_heard(self.awaited) {
            self.awaited = 0;
        }
        self.awaited > 0
    }

    /// Whether there is a record to be served.
    pub(super) fn is_ready(&mut self) -> bool {
        self.consumer.is_ready() && !self.is_held() && !self.session.is_gone()
    }

    /// Whether the client asks for something that its worker has not done.
    pub(super) fn asks(&mut self) -> bool {
        !self.waiting.is_empty() || self.is_ready()
    }

    /// Makes the next record ring the bell; returns false when there is a record to be served.
    pub(super) fn arm(&mut self, mode: Mode) -> bool {
        self.consumer.arm(mode) || self.is_held() || self.session.is_gone()
    }

    pub(super) fn end(&self, shared: &Shared, wrong: String) {
        self.session.end(Some(wrong));
        shared.attend();
    }
}
