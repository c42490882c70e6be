//! The client's table of the requests that are pending at one server.

use genie_io::carrier::Outgoing;
use genie_io::{Error, RequestId};

use super::places::Places;
use super::wire::record::Slot;

/// The requests that are pending, and the places that are vacant.
#[derive(Debug)]
pub(super) struct Table {
    requests: Places<Entry>,
    vacant: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    /// None while the leader is at work on the request's reply.
    request: Option<Outgoing>,
    /// Replied to in anticipation: the server goes on with the outputs. The client has its reply, unless it wants its
    /// buffers back with the reply: then it waits until the server is done.
    is_continued: bool,
}

impl Table {
    /// A table for as many requests and bytes as the server granted.
    pub(super) fn new(requests: u32, limit: usize) -> Self {
        Self { requests: Places::new(requests, limit), vacant: (0..requests).rev().collect() }
    }

    /// A place for a request of this many bytes. [`Table::put`] takes it.
    pub(super) fn vacant(&self, bytes: usize) -> Result<Slot, Error> {
        let ((pending, _), (limit, places)) = (self.requests.load(), self.limits());
        if bytes > limit {
            return Err(Error::TooLarge { asked: bytes, limit });
        }
        let Some(index) = self.vacant.last() else {
            return Err(Error::TooMany { pending: places as usize, limit: places as usize });
        };
        if self.requests.would_exceed(bytes) {
            return Err(Error::Exhausted { asked: bytes, pending, limit });
        }
        Ok(self.requests.slot(*index))
    }

    /// The error for a channel that carries no more requests now, although the limits on pending requests would allow more.
    #[cold]
    pub(super) fn full(&self) -> Error {
        Error::ChannelFull { pending: self.requests.load().1 as usize }
    }

    /// Fills the place that [`Table::vacant`] named last.
    pub(super) fn put(&mut self, slot: Slot, request: Outgoing, bytes: usize) {
        let index = self.vacant.pop();
        debug_assert_eq!(index, Some(slot.index));
        self.requests.put(slot, bytes, Entry { request: Some(request), is_continued: false });
    }

    /// Takes a pending request out.
    pub(super) fn take(&mut self, slot: Slot) -> Option<Outgoing> {
        self.leave(slot, false)
    }

    /// Takes out a request with whose outputs the server has gone on.
    pub(super) fn take_continued(&mut self, slot: Slot) -> Option<Outgoing> {
        self.leave(slot, true)
    }

    fn leave(&mut self, slot: Slot, is_continued: bool) -> Option<Outgoing> {
        let entry = self.requests.get(slot)?;
        if entry.request.is_none() || entry.is_continued != is_continued {
            return None;
        }
        self.vacant.push(slot.index);
        self.requests.take(slot)?.request
    }

    /// A pending request that is not replied to.
    pub(super) fn pending(&mut self, slot: Slot) -> Option<&mut Outgoing> {
        self.requests.get_mut(slot).filter(|entry| !entry.is_continued)?.request.as_mut()
    }

    /// Takes a pending request out and keeps its place, for [`Table::put_continued`].
    pub(super) fn take_and_keep(&mut self, slot: Slot) -> Option<Outgoing> {
        self.requests.get_mut(slot).filter(|entry| !entry.is_continued)?.request.take()
    }

    /// Keeps a request with whose outputs the server goes on, at the place that was kept. Gives it back where the table was
    /// emptied meanwhile.
    pub(super) fn put_continued(&mut self, slot: Slot, request: Outgoing) -> Option<Outgoing> {
        let Some(entry) = self.requests.get_mut(slot) else { return Some(request) };
        entry.is_continued = true;
        entry.request.replace(request)
    }

    /// Changes the limits; places are never taken away.
    pub(super) fn adjust(&mut self, bytes: usize, requests: u32) {
        self.requests.limit = bytes;
        let before = self.requests.count();
        self.requests.grow(requests);
        // The new places go in at the front; [`Table::put`] takes from the end.
        self.vacant.splice(0..0, (before..self.requests.count()).rev());
    }

    /// (bytes, requests) that may be pending.
    pub(super) fn limits(&self) -> (usize, u32) {
        (self.requests.limit, self.requests.count())
    }

    /// The place of the request with this name, if it is still there.
    pub(super) fn find(&self, name: RequestId) -> Option<Slot> {
        let is_it = |entry: &Entry| entry.request.as_ref().is_some_and(|request| request.id() == name);
        self.requests.iter().find(|(_, entry)| is_it(entry)).map(|(slot, _)| slot)
    }

    /// Whether the request that this slot names is still there.
    pub(super) fn is_taken(&self, slot: Slot) -> bool {
        self.requests.get(slot).is_some()
    }

    /// Whether the server still has a part of a request older than `before`.
    pub(super) fn has_older(&self, before: RequestId) -> bool {
        self.has(|request| request.id() < before)
    }

    /// Whether there are requests for whose replies no thread waits.
    pub(super) fn has_abandoned(&self) -> bool {
        self.has(Outgoing::is_abandoned)
    }

    /// Whether there is a request for which `is_it` is true, or a request at whose reply the leader is at work, which may be
    /// one.
    fn has(&self, is_it: impl Fn(&Outgoing) -> bool) -> bool {
        self.requests.iter().any(|(_, entry)| entry.request.as_ref().is_none_or(&is_it))
    }

    /// Takes everything out.
    pub(super) fn drain(&mut self) -> Vec<Outgoing> {
        let slots: Vec<_> = self.requests.iter().map(|(slot, _)| slot).collect();
        self.vacant.extend(slots.iter().map(|slot| slot.index));
        slots.into_iter().filter_map(|slot| self.requests.take(slot)?.request).collect()
    }
}
