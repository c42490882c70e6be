//! A server in another process, as its client sees it.
//!
//! How: after the client's interface has done its part of the data passing, a record on the ring names the request's
//! buffers. The request itself waits in a table for its reply, which a waiting thread takes off the other ring
//! (`receiving.rs`).
//! Invariants: a request in the table belongs to the server until the server replies, or is surely gone.
//! Limits: as many requests and bytes as the server has granted. Further requests wait; asynchronous ones are refused.
//! Source: thesis §5.1, §7.1.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use genie_io::carrier::{Awaited, Carrier, Carries, Followers, Outgoing, Patience, Short};
use genie_io::{Error, RequestId, Service, ServiceId};
use genie_memory::{Direction, Space, TellLater};
use genie_passing::{Parties, Passing, Preferred};
use genie_ring::{Producer, PushError, Spin};
use genie_sys::event::Event;
use genie_sys::poll::Poller;

use super::announce::{Announcements, Segments};
use super::in_progress::MOST_REQUESTS;
use super::link::Link;
use super::receiving::Receiving;
use super::table::Table;
use super::wire::control::Limits;
use super::wire::record::{Body, Kind, RequestWriter, Slot, encode_said, encode_slot};
use crate::primitive::{AtomicBool, Mutex, Ordering, thread};

/// The fixed parts of a reply, at most.
const MOST_OF_REPLY: usize = 64;

/// The client's end of a channel.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(super) name: String,
    pub(super) services: Vec<Service>,
    pub(super) parties: Parties,
    /// Whether the server maps nothing: the kernel copies.
    pub(super) is_silent: bool,
    /// The client's space: it takes in the server's pool, and holds the memory of the requests.
    pub(super) space: Space,
    pub(super) spin: Spin,
    /// The longest record, either way.
    pub(super) record_max: usize,
    /// The server rings it for loops that wait by descriptor.
    pub(super) bell: Event,
    pub(super) sending: Mutex<Sending>,
    /// There may be requests on the ring for which the server's bell has not rung.
    pub(super) is_untold: AtomicBool,
    pub(super) receiving: Mutex<Receiving>,
    /// Wakes the leader.
    pub(super) waker: genie_ring::Waker,
    pub(super) followers: Followers,
    /// A thread would arm the bell, and another one leads.
    pub(super) wants_bell: AtomicBool,
    /// A thread takes the replies for which no other thread waits.
    pub(super) is_tended: AtomicBool,
    /// The leader is at work on a reply whose request has left the table.
    pub(super) is_accepting: AtomicBool,
    pub(super) link: Arc<Link>,
}

/// What sends requests.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) producer: Producer,
    pub(super) table: Table,
    pub(super) announcements: Announcements,
    /// The number of the last control message that a record on the ring has told of.
    pub(super) told: u64,
    pub(super) body: Body,
    /// Aborted requests, where the ring had no room for the abort.
    pub(super) aborts: Vec<Slot>,
}

impl Carrier for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn services(&self) -> &[Service] {
        &self.services
    }

    fn preferred(&self, service: ServiceId, argument: &[u8]) -> Result<(Option<Preferred>, u64), Error> {
        self.link.preferred(service.0 as u16, argument)
    }

    fn changes(&self) -> u64 {
        self.link.changes()
    }

    fn is_untrusted(&self) -> bool {
        self.is_silent
    }

    fn is_gone(&self) -> bool {
        self.link.is_gone()
    }

    fn is_inherited(&self) -> bool {
        self.link.is_inherited()
    }

    fn parties(&self) -> Parties {
        self.parties
    }

    #[inline]
    fn carries(&self, room: usize, buffers: usize) -> Carries {
        if self.is_silent {
            return Carries::NOTHING;
        }
        let beside = MOST_OF_REPLY.saturating_add(room).saturating_add(8 * buffers);
        Carries { outputs: true, inputs: self.record_max.saturating_sub(beside) }
    }

    fn adjust(&self, bytes: usize, requests: u32) -> Result<(usize, u32), Error> {
        if self.is_inherited() {
            return Err(Error::Inherited);
        }
        let wanted = Limits { pending_bytes: bytes as u64, pending_requests: requests };
        self.link.adjust(wanted)?;
        Ok(self.sending.lock().table.limits())
    }

    fn has_room(&self, bytes: usize, record: usize) -> bool {
        let is_room = || {
            let may_come = |refused| matches!(refused, Error::TooMany { .. } | Error::Exhausted { .. });
            let mut sending = self.sending.lock();
            let longest = sending.producer.record_max();
            !self.link.is_crowded()
                && !sending.table.vacant(bytes).is_err_and(may_come)
                && sending.producer.has_room(record.min(longest))
        };
        self.is_gone() || is_room() || (self.collect() > 0 && is_room())
    }

    fn poll_room(&self, bytes: usize, record: usize, task: &Waker) -> bool {
        self.has_room(bytes, record) || {
            self.link.room.register(task);
            self.has_room(bytes, record)
        }
    }

    fn request(&self, mut request: Outgoing, passing: &Passing, patience: Patience) -> bool {
        // A pool that is gone with its server is not the client's fault.
        let blame = |error| if self.link.is_gone() { self.link.error().unasked() } else { error };
        if request.work().shorts().is_empty()
            && let Err(error) = request.make_ready(self)
        {
            request.fail(blame(error));
            return false;
        }
        // There is one once registrars have been told that the server is about to be shown what the request names.
        let mut told = None;
        loop {
            let mut sending = self.sending.lock();
            let refused = match self.push(&mut sending, &request, told.is_some()) {
                Ok((slot, bytes)) => {
                    sending.table.put(slot, request, bytes);
                    return true;
                }
                Err(refused) => refused,
            };
            drop(sending);
            told = None;
            let error = match refused {
                Refused::Untold(places) => {
                    places.into_iter().for_each(|(offset, len)| self.space.show(offset, len));
                    told = Some(TellLater::begin());
                    continue;
                }
                // If the server is gone, the next look says so.
                Refused::NoRoom(_) if self.make_room(patience) || self.link.is_gone() => continue,
                Refused::TooLong => match request.wrap_outputs(passing, self.parties) {
                    Ok(()) => continue,
                    Err(error) => blame(error),
                },
                Refused::NoRoom(error) | Refused::Error(error) => error,
            };
            request.fail(error);
            return false;
        }
    }

    fn tell(&self) {
        Self::tell(self);
    }

    fn abort(&self, request: RequestId) {
        let mut sending = self.sending.lock();
        let Some(slot) = sending.table.find(request) else { return };
        // If the ring has no room, the server is taking nothing off it. The client gives the request up when its time is
        // over; then the request is abandoned, and the thread that tends abandoned requests sends the abort.
        if !sending.abort(slot) {
            sending.aborts.push(slot);
        }
    }

    fn flush(&self, before: RequestId, deadline: Option<Instant>) -> bool {
        loop {
            self.collect();
            // `is_accepting` is set before a request leaves the table under this lock: if the table no longer has it, the
            // flag is seen below.
            let is_older = self.sending.lock().table.has_older(before);
            if !is_older && !self.is_accepting.load(Ordering::Acquire) {
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    fn space(&self) -> &Space {
        &self.space
    }

    fn is_over(&self) -> bool {
        self.link.is_over()
    }

    fn wait(&self, awaited: &mut Awaited<'_>, deadline: Option<Instant>) -> bool {
        Self::wait(self, awaited, deadline)
    }

    fn collect(&self) -> usize {
        Self::collect(self)
    }

    fn collect_watched(&self) -> usize {
        Self::collect_watched(self)
    }

    fn tend(self: Arc<Self>) {
        Self::tend(&self);
    }

    fn wake(&self, is_over: bool) {
        Self::wake(self, is_over);
    }

    fn arm(&self) -> bool {
        Self::arm(self)
    }

    fn watch_by(&self, poller: &Poller, token: u64) -> Result<(), Error> {
        Self::watch_by(self, poller, token)
    }

    fn unwatch_by(&self, poller: &Poller) {
        Self::unwatch_by(self, poller);
    }

    fn silence_bell(&self, poller: &Poller) {
        Self::silence_bell(self, poller);
    }
}

impl Remote {
    /// Rings the server's bell for requests for which it has not rung.
    #[inline]
    pub(super) fn tell(&self) {
        // Acquire pairs with the Release of the thread that has put a request on the ring: the bell rings for that one, too. A thread
        // sees its own requests in any case.
        if self.is_untold.load(Ordering::Relaxed)
            && !self.is_inherited()
            && self.is_untold.swap(false, Ordering::Acquire)
        {
            self.sending.lock().producer.ring_bell();
        }
    }

    /// Applies what the server grants.
    pub(super) fn grant(&self, granted: Limits) {
        let bytes = usize::try_from(granted.pending_bytes).unwrap_or(usize::MAX);
        self.sending.lock().table.adjust(bytes, granted.pending_requests.min(MOST_REQUESTS));
        self.link.room.made();
    }

    /// Puts a request on the ring; returns its place in the table, into which the caller puts it, and how many bytes it has. Nothing is
    /// announced unless registrars have been told of it (`is_told`).
    fn push(
        &self,
        sending: &mut Sending,
        request: &Outgoing,
        is_told: bool,
    ) -> Result<(Slot, usize), Refused> {
        if self.link.is_gone() {
            return Err(Refused::Error(self.link.error().unasked()));
        }
        // An abort that came while the request waited for room found no request in the table.
        if request.is_aborting() {
            return Err(Refused::Error(Error::Dropped));
        }
        let mut bytes = 0;
        request.work().each_buffer(|_, _, len, _| bytes += len);
        let slot = sending.table.vacant(bytes).map_err(|refused| match refused {
            Error::TooLarge { .. } => Refused::Error(refused),
            _ => Refused::NoRoom(refused),
        })?;
        if self.link.is_crowded() {
            return Err(Refused::NoRoom(sending.table.full()));
        }
        let service = request.service().0 as u16;
        let encoded = self.encode(sending, request, (slot, service), is_told);
        // Taken in any case, so that it is not told of with the next request.
        let untold = std::mem::take(&mut sending.announcements.untold);
        encoded.map_err(Refused::Error)?;
        if !untold.is_empty() {
            return Err(Refused::Untold(untold));
        }
        if sending.body.len() > self.record_max && request.work().carries_outputs() {
            return Err(Refused::TooLong);
        }
        sending.publish_request().map_err(|error| match error {
            PushError::Full => Refused::NoRoom(sending.table.full()),
            PushError::TooLong { len, max } => Refused::Error(Error::TooManyParts { len, max }),
            error => {
                self.link.break_off(&error.to_string());
                Refused::Error(self.link.error())
            }
        })?;
        match request.is_told_later() {
            true => self.is_untold.store(true, Ordering::Release),
            false => sending.producer.ring_bell(),
        }
        Ok((slot, bytes))
    }

    fn encode(
        &self,
        sending: &mut Sending,
        request: &Outgoing,
        (slot, service): (Slot, u16),
        is_told: bool,
    ) -> Result<(), Error> {
        let Sending { announcements, body, .. } = sending;
        let work = request.work();
        let shorts = work.shorts();
        if !shorts.is_empty() {
            let buffers = shorts.iter().map(Short::extent);
            let mut writer =
                RequestWriter::short(body, slot, service, work.argument(), work.room(), buffers)?;
            for output in shorts.iter().filter(|short| short.direction() == Direction::Out) {
                output.carried().copy_to(work, writer.carried(output.len()));
            }
            return Ok(());
        }
        let mut writer = RequestWriter::begin(body, slot, service, work.argument(), work.room())?;
        let mut segments = Segments::new();
        for buffer in work.buffers() {
            let writes = buffer.direction() == Direction::In;
            writer.buffer(buffer.direction(), buffer.is_copied())?;
            for element in buffer.elements() {
                if let Some(carried) = element.carried() {
                    writer.carried_element(carried.len())?;
                    continue;
                }
                segments.clear();
                element.each_shown(|shown| {
                    announcements.name(&self.link, shown, (writes, is_told), &mut segments)
                })?;
                writer.element(segments.iter().copied())?;
            }
        }
        work.each_carried_output(|carried| carried.copy_to(work, writer.carried(carried.len())));
        Ok(())
    }

    /// Waits for replies, which make room; returns false when no time is left.
    fn make_room(&self, patience: Patience) -> bool {
        match patience {
            Patience::None => self.collect() > 0,
            Patience::Until(deadline) => {
                if self.collect() == 0 {
                    thread::sleep(Duration::from_micros(50));
                }
                !self.link.is_gone() && deadline.is_none_or(|deadline| Instant::now() < deadline)
            }
        }
    }

    /// Sends aborts that had to wait for room, as far as there is room now.
    pub(super) fn send_aborts(&self) {
        let mut sending = self.sending.lock();
        while let Some(slot) = sending.aborts.last().copied() {
            if sending.table.is_taken(slot) && !sending.abort(slot) {
                return;
            }
            sending.aborts.pop();
        }
    }
}

impl Sending {
    /// Puts the request in `body` on the ring, without ringing the server's bell. If there are new control messages, a record before
    /// it says which of them it rests on.
    fn publish_request(&mut self) -> Result<(), PushError> {
        let said = self.announcements.said();
        if said != self.told {
            self.producer.push(Kind::Said as u8, &encode_said(said))?;
            self.told = said;
        }
        self.producer.publish(Kind::Request as u8, &self.body)
    }

    /// Asks the server to let a request go; returns whether there was room for that.
    fn abort(&mut self, slot: Slot) -> bool {
        encode_slot(&mut self.body, slot);
        self.producer.push(Kind::Abort as u8, &self.body).is_ok()
    }
}

/// Why a request was not sent.
enum Refused {
    NoRoom(Error),
    /// The record has no room for what it would carry of outputs.
    TooLong,
    /// Registrars are to be told first that these parts of the client's memory, as (offset, length), are about to be shown.
    Untold(Vec<(usize, usize)>),
    Error(Error),
}

impl Drop for Remote {
    fn drop(&mut self) {
        let sending = self.sending.get_mut();
        let left = sending.table.drain();
        match self.link.is_inherited() {
            // The channel and the pending requests are the parent's.
            true => std::mem::forget(left),
            false => self.link.leave(left),
        }
    }
}
