//! Requests in progress: what one client has pending at a server, and the ring of its replies.
//!
//! How: a place for each request that the client was granted; the client names the places. Replies for which the ring has no
//! room wait here until there is room.
//! Trust: the client names places, which are checked. A client that takes no replies is found out by their number: for a
//! client that takes them, at most a reply, a done record and a word of progress wait for each place.
//! Limits: three times as many waiting records as places; each is at most as long as the ring's records. Of progress, the last word on
//! each buffer waits, while fewer records wait than there are places: what is not told by then, a later word or the reply tells.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use genie_io::RequestId;
use genie_io::carrier::{Contract, RequestIds};
use genie_ring::{Producer, PushError};

use super::evictions::Aborted;
use super::places::Places;
use super::wire::U48;
use super::wire::record::{Body, Kind, Limit, Refusal, ReplyWriter, Slot};
use crate::counts::Counts;

/// The most requests that a client may have pending: its table has a place for each from the start.
pub(super) const MOST_REQUESTS: u32 = 1 << 16;

/// What a client may have pending.
#[derive(Debug, Clone, Copy)]
pub(super) struct Granted {
    pub(super) bytes: usize,
    pub(super) requests: u32,
    pub(super) abort_timeout: Duration,
}

/// What is pending, and the ring of replies.
#[derive(Debug)]
pub(super) struct InProgress {
    requests: Places<Entry>,
    /// Names the requests.
    ids: RequestIds,
    producer: Producer,
    /// The record to be sent next.
    pub(super) body: Body,
    pub(super) counts: Counts,
    /// Replies for which the ring has no room yet.
    backlog: VecDeque<(Kind, Body)>,
}

#[derive(Debug)]
struct Entry {
    /// The request's name within the server.
    id: RequestId,
    /// The client has a reply, and is still to hear that the request is over.
    is_anticipated: bool,
    /// The client has asked for the request to be aborted.
    is_aborted: bool,
    contract: Weak<Contract>,
}

/// The name of a request that was entered, or why the request was not entered.
pub(super) type Entered = Result<RequestId, Refusal>;

impl InProgress {
    pub(super) fn new(granted: &Granted, producer: Producer) -> Self {
        Self {
            requests: Places::new(granted.requests, granted.bytes),
            ids: RequestIds::default(),
            producer,
            body: Body::new(),
            counts: Counts::default(),
            backlog: VecDeque::new(),
        }
    }

    /// Enters a request, unless it exceeds what was granted; returns its name within the server.
    pub(super) fn enter(&mut self, slot: Slot, bytes: usize) -> Result<Entered, String> {
        match self.requests.is_taken(slot.index) {
            None => return Err(format!("place {} was not granted", slot.index)),
            Some(true) => return Err(format!("place {} is taken by another request", slot.index)),
            Some(false) => {}
        }
        if self.requests.would_exceed(bytes) {
            let [asked, pending, allowed] =
                [bytes, self.requests.load().0, self.requests.limit].map(|count| count as u64);
            return Ok(Err(Refusal { limit: Limit::Bytes, asked, pending, allowed }));
        }
        let id = self.ids.take_alone();
        let entry = Entry { id, is_anticipated: false, is_aborted: false, contract: Weak::new() };
        self.requests.put(slot, bytes, entry);
        Ok(Ok(id))
    }

    /// Takes a request out; returns whether it was replied to in anticipation.
    pub(super) fn leave(&mut self, slot: Slot) -> bool {
        self.requests.take(slot).is_some_and(|entry| entry.is_anticipated)
    }

    /// Notes that a request was replied to in anticipation.
    pub(super) fn anticipate(&mut self, slot: Slot) {
        if let Some(entry) = self.requests.get_mut(slot) {
            entry.is_anticipated = true;
        }
    }

    /// Notes that a request may originate others; returns whether its client has asked for it to be aborted.
    pub(super) fn contracted(&mut self, slot: Slot, contract: &Arc<Contract>) -> bool {
        let Some(entry) = self.requests.get_mut(slot) else { return true };
        entry.contract = Arc::downgrade(contract);
        entry.is_aborted
    }

    /// The request to be aborted, and what it has originated; none if it was aborted before.
    pub(super) fn abort(&mut self, slot: Slot) -> Option<Aborted> {
        let entry = self.requests.get_mut(slot)?;
        let is_first = !std::mem::replace(&mut entry.is_aborted, true);
        is_first.then(|| (entry.id, entry.contract.clone()))
    }

    /// Whether the client has asked for a request to be aborted.
    pub(super) fn is_aborted(&self, slot: Slot) -> bool {
        self.requests.get(slot).is_none_or(|entry| entry.is_aborted)
    }

    /// All requests that are pending, and what they have originated, but for those that are being aborted already.
    pub(super) fn all(&self) -> Vec<Aborted> {
        let kept = self.requests.iter().filter(|(_, entry)| !entry.is_aborted);
        kept.map(|(_, entry)| (entry.id, entry.contract.clone())).collect()
    }

    /// Grants other limits; places are never taken away.
    pub(super) fn grant(&mut self, bytes: usize, requests: u32) -> (usize, u32) {
        self.requests.limit = bytes;
        self.requests.grow(requests.min(MOST_REQUESTS));
        (bytes, self.requests.count())
    }

    /// (bytes, requests) pending.
    pub(super) fn load(&self) -> (usize, u32) {
        self.requests.load()
    }

    /// Puts a failure in place of a reply in `body` that the ring can never carry; returns whether that was needed.
    pub(super) fn fit(&mut self, slot: Slot) -> bool {
        ReplyWriter::fit(&mut self.body, slot, self.producer.record_max())
    }

    /// Sends the record in `body`, now or when there is room; an error says how the client has spoilt its ring.
    pub(super) fn push(&mut self, kind: Kind) -> Result<(), String> {
        if self.backlog.is_empty() {
            match self.producer.push(kind as u8, &self.body) {
                Ok(()) => return Ok(()),
                Err(PushError::Full) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        // A reply, a done record and a word of progress for each.
        let places = self.requests.count() as usize;
        if kind == Kind::Progress {
            // The request and the buffer are what a later word has in common with the one that waits.
            let named = ..self.body.len() - size_of::<U48>();
            let is_same = |(of, body): &&mut (Kind, Body)| *of == kind && body[named] == self.body[named];
            if let Some((_, waiting)) = self.backlog.iter_mut().find(is_same) {
                *waiting = self.body.clone();
                return Ok(());
            }
            if self.backlog.len() >= places {
                return Ok(());
            }
        }
        self.backlog.push_back((kind, self.body.clone()));
        self.catch_up()?;
        match self.backlog.len() > 3 * places {
            true => Err(format!("it takes no replies: {} wait for it", self.backlog.len())),
            false => Ok(()),
        }
    }

    /// Whether replies wait for room.
    pub(super) fn is_behind(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Sends replies that had to wait, as far as there is room. When the client then makes more room, that wakes the worker,
    /// if the worker has armed the ring of requests before this call.
    pub(super) fn catch_up(&mut self) -> Result<(), String> {
        while let Some((kind, body)) = self.backlog.pop_front() {
            match self.producer.push(kind as u8, &body) {
                Ok(()) => {}
                Err(PushError::Full) => {
                    self.backlog.push_front((kind, body));
                    match self.producer.want_room() {
                        Ok(true) => return Ok(()),
                        Ok(false) => {}
                        Err(broken) => return Err(broken.to_string()),
                    }
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }
}
