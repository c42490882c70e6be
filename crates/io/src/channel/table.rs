//! The client's table of the requests that are pending at one server.

use super::wire::record::Slot;
use crate::outgoing::Outgoing;
use crate::{Error, RequestId};

/// Requests by their places.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    bytes: usize,
    limit: usize,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    bytes: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Vacant,
    Pending(Outgoing),
    /// About to be vacant, or continued.
    Kept,
    /// Replied to, but the server goes on with the outputs. The client has its reply, unless it is to have its buffers back
    /// with that: then it waits until the server is done.
    Continued(Outgoing),
}

impl Table {
    /// A table for as many requests and bytes as the server granted.
    pub(super) fn new(requests: u32, limit: usize) -> Self {
        let entry = |_| Entry { generation: 0, bytes: 0, state: State::Vacant };
        Self {
            entries: (0..requests).map(entry).collect(),
            vacant: (0..requests).rev().collect(),
            bytes: 0,
            limit,
        }
    }

    /// A place for a request of so many bytes; it is taken by [`Table::put`].
    pub(super) fn vacant(&self, bytes: usize) -> Result<Slot, Error> {
        if bytes > self.limit {
            return Err(Error::TooLarge { asked: bytes, limit: self.limit });
        }
        let Some(index) = self.vacant.last() else {
            return Err(Error::TooMany { pending: self.entries.len(), limit: self.entries.len() });
        };
        if self.bytes + bytes > self.limit {
            return Err(Error::Exhausted { asked: bytes, pending: self.bytes, limit: self.limit });
        }
        Ok(Slot { index: *index, generation: self.entries[*index as usize].generation })
    }

    /// The error for a channel that carries no more requests now, whatever the limits on what is pending say.
    #[cold]
    pub(super) fn full(&self) -> Error {
        Error::ChannelFull { pending: self.entries.len() - self.vacant.len() }
    }

    /// Fills the place that [`Table::vacant`] named last.
    pub(super) fn put(&mut self, slot: Slot, request: Outgoing, bytes: usize) {
        debug_assert_eq!(self.vacant.last(), Some(&slot.index));
        self.vacant.pop();
        self.bytes += bytes;
        let entry = &mut self.entries[slot.index as usize];
        entry.bytes = bytes;
        entry.state = State::Pending(request);
    }

    /// Takes a pending request out.
    pub(super) fn take(&mut self, slot: Slot) -> Option<Outgoing> {
        match self.leave(slot, |state| matches!(state, State::Pending(_)))? {
            State::Pending(request) => Some(request),
            _ => None,
        }
    }

    /// Takes a pending request out and keeps its place, for [`Table::put_continued`].
    pub(super) fn take_and_keep(&mut self, slot: Slot) -> Option<Outgoing> {
        let entry = self.entries.get_mut(slot.index as usize)?;
        if entry.generation != slot.generation || !matches!(entry.state, State::Pending(_)) {
            return None;
        }
        match std::mem::replace(&mut entry.state, State::Kept) {
            State::Pending(request) => Some(request),
            _ => None,
        }
    }

    /// Keeps what the server goes on with, at the place that was kept. Gives it back where the table was emptied meanwhile.
    pub(super) fn put_continued(&mut self, slot: Slot, request: Outgoing) -> Option<Outgoing> {
        let entry = &mut self.entries[slot.index as usize];
        if !matches!(entry.state, State::Kept) {
            return Some(request);
        }
        entry.state = State::Continued(request);
        None
    }

    /// Takes out what the server has gone on with.
    pub(super) fn take_continued(&mut self, slot: Slot) -> Option<Outgoing> {
        match self.leave(slot, |state| matches!(state, State::Continued(_)))? {
            State::Continued(request) => Some(request),
            _ => None,
        }
    }

    /// Changes the limits; places are never taken away.
    pub(super) fn adjust(&mut self, bytes: usize, requests: u32) {
        self.limit = bytes;
        let more = self.entries.len() as u32..requests.max(self.entries.len() as u32);
        let entry = |_| Entry { generation: 0, bytes: 0, state: State::Vacant };
        self.entries.extend(more.clone().map(entry));
        // At the other end than the one that is taken from.
        self.vacant.splice(0..0, more.rev());
    }

    /// (bytes, requests) that may be pending.
    pub(super) fn limits(&self) -> (usize, u32) {
        (self.limit, self.entries.len() as u32)
    }

    /// Where the request of this name is pending.
    pub(super) fn find(&self, request: RequestId) -> Option<Slot> {
        let is_it = |entry: &Entry| match &entry.state {
            State::Pending(pending) | State::Continued(pending) => pending.id() == request,
            _ => false,
        };
        let index = self.entries.iter().position(is_it)?;
        Some(Slot { index: index as u32, generation: self.entries[index].generation })
    }

    /// Whether the request of this name is still there.
    pub(super) fn is_taken(&self, slot: Slot) -> bool {
        let entry = self.entries.get(slot.index as usize);
        entry
            .is_some_and(|entry| entry.generation == slot.generation && !matches!(entry.state, State::Vacant))
    }

    /// Whether the server still has a part of a request older than `before`.
    pub(super) fn has_older(&self, before: RequestId) -> bool {
        self.entries.iter().any(|entry| match &entry.state {
            State::Pending(request) | State::Continued(request) => request.id() < before,
            State::Kept => true,
            State::Vacant => false,
        })
    }

    /// Whether there are requests whose replies no thread waits for.
    pub(super) fn has_abandoned(&self) -> bool {
        self.entries.iter().any(|entry| match &entry.state {
            State::Pending(request) | State::Continued(request) => request.is_abandoned(),
            State::Kept => true,
            State::Vacant => false,
        })
    }

    /// Takes everything out.
    pub(super) fn drain(&mut self) -> Vec<Outgoing> {
        let mut all = Vec::new();
        for (index, entry) in (0..).zip(&mut self.entries) {
            match std::mem::replace(&mut entry.state, State::Vacant) {
                State::Vacant => continue,
                State::Kept => {}
                State::Pending(request) | State::Continued(request) => all.push(request),
            }
            self.vacant.push(index);
        }
        self.bytes = 0;
        all
    }

    fn leave(&mut self, slot: Slot, expected: impl Fn(&State) -> bool) -> Option<State> {
        let entry = self.entries.get_mut(slot.index as usize)?;
        if entry.generation != slot.generation || !expected(&entry.state) {
            return None;
        }
        entry.generation = entry.generation.wrapping_add(1);
        self.bytes -= entry.bytes;
        self.vacant.push(slot.index);
        Some(std::mem::replace(&mut entry.state, State::Vacant))
    }
}
