//! Requests in progress: what one client has pending at a server, and the ring of its replies.
//!
//! How: a table with a place for each request that was granted; the client names the places. Replies for which the ring has
//! no room wait here until there is some.
//! Invariants: `bytes` and `requests` are the sums over the places that are taken.
//! Trust: the client names places, which are checked against the table. A client that takes no replies is found out: for one
//! that takes them, no more can wait than a reply and a done record for each place.
//! Limits: twice as many waiting replies as places; each is at most as long as the ring's records.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use genie_ring::{Producer, PushError};

use super::evictions::Aborted;
use super::wire::record::{Body, Kind, Limit, Refusal, Slot};
use crate::RequestId;
use crate::contract::Contract;
use crate::request_id::RequestIds;

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
    entries: Vec<Entry>,
    /// Names the requests.
    ids: RequestIds,
    /// Bytes that may be pending.
    limit: usize,
    bytes: usize,
    requests: u32,
    producer: Producer,
    /// The record to be sent next.
    pub(super) body: Body,
    /// Replies for which the ring has had no room.
    backlog: VecDeque<(Kind, Body)>,
}

#[derive(Debug, Clone)]
struct Entry {
    generation: u32,
    /// What the server knows the request by.
    id: RequestId,
    bytes: usize,
    state: State,
    /// The client has asked for it to be aborted.
    is_aborted: bool,
    contract: Weak<Contract>,
}

/// The name of a request that was entered, or why it was not.
pub(super) type Entered = Result<RequestId, Refusal>;

/// The state of a place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Vacant,
    Pending,
    Anticipated,
}

impl Entry {
    fn vacant() -> Self {
        let (state, contract) = (State::Vacant, Weak::new());
        Self { generation: 0, id: RequestId(0), bytes: 0, state, is_aborted: false, contract }
    }
}

impl InProgress {
    pub(super) fn new(granted: &Granted, producer: Producer) -> Self {
        Self {
            entries: vec![Entry::vacant(); granted.requests as usize],
            ids: RequestIds::new(),
            limit: granted.bytes,
            bytes: 0,
            requests: 0,
            producer,
            body: Body::new(),
            backlog: VecDeque::new(),
        }
    }

    /// Enters a request into the table, unless it exceeds what was granted; returns its name within the server.
    pub(super) fn enter(&mut self, slot: Slot, bytes: usize) -> Result<Entered, String> {
        let entry = self.entries.get_mut(slot.index as usize);
        let entry = entry.ok_or_else(|| format!("place {} was not granted", slot.index))?;
        if entry.state != State::Vacant {
            return Err(format!("place {} is taken by another request", slot.index));
        }
        entry.generation = slot.generation;
        entry.bytes = bytes;
        entry.is_aborted = false;
        entry.contract = Weak::new();
        if bytes > self.limit.saturating_sub(self.bytes) {
            let (asked, pending, allowed) = (bytes as u64, self.bytes as u64, self.limit as u64);
            return Ok(Err(Refusal { limit: Limit::Bytes, asked, pending, allowed }));
        }
        entry.state = State::Pending;
        entry.id = self.ids.take();
        self.bytes += bytes;
        self.requests += 1;
        Ok(Ok(entry.id))
    }

    /// Takes a request off the table; returns how it was.
    pub(super) fn leave(&mut self, slot: Slot) -> State {
        let Some(entry) = self.entries.get_mut(slot.index as usize) else { return State::Vacant };
        let state = std::mem::replace(&mut entry.state, State::Vacant);
        self.bytes -= entry.bytes;
        self.requests -= 1;
        state
    }

    /// Notes that a request was replied to in anticipation.
    pub(super) fn anticipate(&mut self, slot: Slot) {
        if let Some(entry) = self.entries.get_mut(slot.index as usize) {
            entry.state = State::Anticipated;
        }
    }

    /// Notes that a request may originate others; returns whether its client has asked for it to be aborted.
    pub(super) fn contracted(&mut self, slot: Slot, contract: &Arc<Contract>) -> bool {
        let Some(entry) = self.entries.get_mut(slot.index as usize) else { return true };
        entry.contract = Arc::downgrade(contract);
        entry.is_aborted
    }

    /// The request to be aborted, and what it has originated; none if it was aborted before.
    pub(super) fn abort(&mut self, slot: Slot) -> Option<Aborted> {
        let entry = self.entries.get_mut(slot.index as usize)?;
        let is_it = entry.generation == slot.generation && entry.state != State::Vacant;
        let is_first = is_it && !std::mem::replace(&mut entry.is_aborted, true);
        is_first.then(|| (entry.id, entry.contract.clone()))
    }

    /// All requests that are pending, and what they have originated.
    pub(super) fn all(&self) -> Vec<Aborted> {
        let taken = self.entries.iter().filter(|entry| entry.state != State::Vacant);
        taken.map(|entry| (entry.id, entry.contract.clone())).collect()
    }

    /// Grants other limits; places are never taken away.
    pub(super) fn grant(&mut self, bytes: usize, requests: u32) -> (usize, u32) {
        self.limit = bytes;
        let places = self.entries.len().max(requests.min(MOST_REQUESTS) as usize);
        self.entries.resize(places, Entry::vacant());
        (bytes, places as u32)
    }

    /// (bytes, requests) pending.
    pub(super) fn load(&self) -> (usize, u32) {
        (self.bytes, self.requests)
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
        self.backlog.push_back((kind, self.body.clone()));
        self.catch_up()?;
        match self.backlog.len() > 2 * self.entries.len() {
            true => Err(format!("it takes no replies: {} wait for it", self.backlog.len())),
            false => Ok(()),
        }
    }

    /// Sends replies that had to wait, as far as there is room; more of that wakes the client, if it has armed the other ring
    /// before.
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
