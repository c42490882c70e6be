//! A server in another process, as its client sees it.
//!
//! How: a request's buffers are named in a record on the ring, after the client's interface has done its part of the data
//! passing; the request itself waits in a table for the reply. Whoever waits for a reply takes replies off the ring, those
//! of other threads' requests as well; one thread at a time does, the others sleep until it has something for them.
//! Invariants: a request in the table belongs to the server until it replies, or is surely gone.
//! Trust: a reply must name a request that is pending; lengths are checked against the request's. What no honest server
//! says ends the channel.
//! Limits: as many requests and bytes as the server has granted; requests beyond wait, or are refused if asynchronous.
//! Source: thesis §5.1, §7.1.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use genie_memory::{Direction, LenderId};
use genie_passing::Preferred;
use genie_ring::{Consumer, Mode, Producer, PushError, Record as Received, Spin};
use genie_sys::poll::Poller;

use super::announce::{Announcements, Segments};
use super::link::Link;
use super::table::Table;
use super::turn::Turn;
use super::wire::control::{Limits, Message};
use super::wire::record::{Body, Kind, Outcome, Record, Reply, RequestWriter, Slot, encode_slot};
use crate::exchange::Awaited;
use crate::work::Transfer;
use crate::{Error, Incoming, RequestId, ServerError, Service, ServiceId};

/// The longest sleep without a look at whether the server is still there.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The client's end of a channel.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(super) name: String,
    pub(super) services: Vec<Service>,
    pub(super) preferred: Vec<Option<Preferred>>,
    pub(super) lender: LenderId,
    pub(super) spin: Spin,
    /// Rung by the server for whoever waits by descriptor.
    pub(super) bell: OwnedFd,
    pub(super) sending: Mutex<Sending>,
    pub(super) receiving: Mutex<Receiving>,
    pub(super) turn: Turn,
    /// A thread takes replies for whom nobody waits.
    pub(super) is_tended: AtomicBool,
    /// The thread that takes replies is at work on one that has left the table.
    pub(super) is_accepting: AtomicBool,
    pub(super) link: Arc<Link>,
}

/// What sends requests.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) producer: Producer,
    pub(super) table: Table,
    pub(super) announcements: Announcements,
    pub(super) body: Body,
    /// Requests to be let go for whose aborts the ring has had no room.
    pub(super) aborts: Vec<Slot>,
}

/// What takes replies.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) consumer: Consumer,
    pub(super) record: Received,
}

impl Remote {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn services(&self) -> &[Service] {
        &self.services
    }

    pub(crate) fn preferred(&self, service: ServiceId) -> Option<Preferred> {
        *self.preferred.get(service.0 as usize)?
    }

    /// Whose pool the server's system buffers come from.
    pub(crate) fn lender(&self) -> LenderId {
        self.lender
    }

    /// Asks the server to let more be pending, or less; returns (bytes, requests) that it grants.
    pub(crate) fn adjust(&self, bytes: usize, requests: u32) -> Result<(usize, u32), Error> {
        let wanted = Limits { pending_bytes: bytes as u64, pending_requests: requests };
        self.link.ask(&Message::LimitsWanted(wanted), &[])?;
        let mut sending = self.sending();
        if let Some(granted) = self.link.granted() {
            let bytes = usize::try_from(granted.pending_bytes).unwrap_or(usize::MAX);
            sending.table.adjust(bytes, granted.pending_requests.min(1 << 16));
        }
        Ok(sending.table.limits())
    }

    /// Sends a request; until `patience` if the server's limits leave no room now, or not at all. Returns whether it was
    /// sent; if not, it has failed.
    pub(crate) fn request(&self, mut request: Incoming, patience: Patience) -> bool {
        if let Err(error) = prepare(&mut request) {
            request.fail(error);
            return false;
        }
        let mut request = request;
        loop {
            let mut sending = self.sending();
            request = match self.put(&mut sending, request) {
                Ok(()) => return true,
                Err((request, Refused::Error(error))) => {
                    drop(sending);
                    request.fail(error);
                    return false;
                }
                Err((request, Refused::NoRoom(error))) => {
                    drop(sending);
                    if !self.make_room(patience) {
                        request.fail(error);
                        return false;
                    }
                    request
                }
            };
        }
    }

    /// Puts a request on the ring and into the table.
    fn put(&self, sending: &mut Sending, request: Incoming) -> Result<(), (Incoming, Refused)> {
        if self.link.is_gone() {
            return Err((request, Refused::Error(self.link.error())));
        }
        // Who aborted it while it waited for room found it nowhere.
        if request.is_aborting() {
            return Err((request, Refused::Error(Error::Dropped)));
        }
        let bytes = request.work().buffers.iter().map(|buffer| buffer.len()).sum();
        let slot = match sending.table.vacant(bytes) {
            Ok(slot) => slot,
            Err(refused @ Error::TooLarge { .. }) => return Err((request, Refused::Error(refused))),
            Err(refused) => return Err((request, Refused::NoRoom(refused))),
        };
        let service = request.service().0 as u16;
        let encoded = self.encode(sending, &request, slot, service);
        if let Err(error) = encoded {
            return Err((request, Refused::Error(error)));
        }
        match sending.producer.push(Kind::Request as u8, &sending.body) {
            Ok(()) => {
                sending.table.put(slot, request, bytes);
                Ok(())
            }
            Err(PushError::Full) => {
                let full = Error::Exhausted {
                    asked: bytes,
                    pending: sending.table.bytes(),
                    limit: sending.table.limit(),
                };
                Err((request, Refused::NoRoom(full)))
            }
            Err(PushError::TooLong { len, max }) => {
                Err((request, Refused::Error(Error::TooManyParts { len, max })))
            }
            Err(error) => {
                self.link.break_off(&error.to_string());
                Err((request, Refused::Error(self.link.error())))
            }
        }
    }

    fn encode(
        &self,
        sending: &mut Sending,
        request: &Incoming,
        slot: Slot,
        service: u16,
    ) -> Result<(), Error> {
        let Sending { announcements, body, .. } = sending;
        let mut writer = RequestWriter::begin(body, slot, service);
        let mut segments = Segments::new();
        for buffer in &request.work().buffers {
            let writes = buffer.direction == Direction::In;
            writer.buffer(buffer.direction, &buffer.argument, buffer.room)?;
            for element in &buffer.elements {
                segments.clear();
                match &element.transfer {
                    Transfer::Out(output) => {
                        announcements.own(&self.link, &output.segments(), writes, &mut segments)?;
                    }
                    Transfer::In(input) => {
                        announcements.own(&self.link, &input.segments(), writes, &mut segments)?;
                    }
                    Transfer::Lent(lent) => {
                        for place in &lent.places(request.origin()) {
                            announcements.lent(&self.link, place, writes, &mut segments)?;
                        }
                    }
                    Transfer::Passed(_) | Transfer::None(_) => {}
                }
                writer.element(segments.iter().copied())?;
            }
        }
        Ok(())
    }

    /// Waits for replies, which make room; returns false when there is no time left for that.
    fn make_room(&self, patience: Patience) -> bool {
        match patience {
            Patience::None => self.collect() > 0,
            Patience::Until(deadline) => {
                if self.collect() == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
                !self.link.is_gone() && deadline.is_none_or(|deadline| Instant::now() < deadline)
            }
        }
    }

    /// Asks the server to let a request go.
    pub(crate) fn abort(&self, request: RequestId) {
        let mut sending = self.sending();
        let Some(slot) = sending.table.find(request) else { return };
        // Where the ring has no room, the server is not taking anything. The client gives the request up in time; from then
        // on it is an orphan, and whoever tends those sends the abort.
        if !sending.abort(slot) {
            sending.aborts.push(slot);
        }
    }

    /// Sends aborts that had to wait for room, as far as there is some.
    pub(super) fn send_aborts(&self) {
        let mut sending = self.sending();
        while let Some(slot) = sending.aborts.last().copied() {
            if sending.table.is_taken(slot) && !sending.abort(slot) {
                return;
            }
            sending.aborts.pop();
        }
    }

    /// Waits until the server has completed all requests older than `before`.
    pub(crate) fn flush(&self, before: RequestId, deadline: Instant) -> bool {
        loop {
            self.collect();
            // The table's lock orders its look after the flag was set.
            let is_older = self.sending().table.has_older(before);
            if !is_older && !self.is_accepting.load(Ordering::Acquire) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Waits until what is awaited has its reply, or has been given up; returns whether it has.
    pub(crate) fn wait(&self, awaited: &mut Awaited<'_>, deadline: Option<Instant>) -> bool {
        loop {
            if awaited.is_replied() {
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            let Some(mut receiving) = self.try_receiving() else {
                let is_free = || self.receiving.try_lock().is_ok();
                self.turn.sleep(|| awaited.is_replied() || is_free(), deadline);
                continue;
            };
            self.receive_until(&mut receiving, awaited, deadline);
            drop(receiving);
            self.pass();
        }
    }

    /// Takes replies off the ring until there is the one that is awaited, the time is over, or the server is gone.
    fn receive_until(&self, receiving: &mut Receiving, awaited: &mut Awaited<'_>, deadline: Option<Instant>) {
        loop {
            let taken = self.receive(receiving, awaited);
            if awaited.is_replied() {
                return;
            }
            if taken > 0 {
                self.pass();
                continue;
            }
            if self.spin.until(|| receiving.consumer.is_ready()) {
                continue;
            }
            let now = Instant::now();
            let left = deadline.map_or(LONGEST_SLEEP, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() || self.link.is_gone() {
                // The thread that noticed it gives up what is pending.
                self.link.settle(awaited);
                return;
            }
            if receiving.consumer.arm(Mode::Futex)
                && let Err(error) = receiving.consumer.sleep(Some(left.min(LONGEST_SLEEP)))
            {
                self.link.break_off(&error.to_string());
            }
            receiving.consumer.disarm();
        }
    }

    /// Takes the replies that are there; returns how many. Nothing, when another thread is taking them.
    pub(crate) fn collect(&self) -> usize {
        let Some(mut receiving) = self.try_receiving() else { return 0 };
        receiving.consumer.disarm();
        let taken = self.receive(&mut receiving, &mut Awaited::none());
        drop(receiving);
        self.pass();
        taken
    }

    /// The same for whoever waits for the descriptor, which is not readable afterwards.
    pub(crate) fn collect_watched(&self) -> usize {
        self.link.quiet();
        let Some(mut receiving) = self.try_receiving() else { return 0 };
        receiving.consumer.disarm();
        let taken = self.receive(&mut receiving, &mut Awaited::none());
        drop(receiving);
        self.turn.pass();
        taken
    }

    /// Has the descriptor become readable with the next reply, or when somebody else may have taken one; returns false
    /// when there is one already.
    pub(crate) fn arm(&self) -> bool {
        // Whoever is taking replies tells the watcher afterwards.
        let Some(mut receiving) = self.try_receiving() else { return true };
        // Of a server that is gone nothing comes; that what is pending has been ended is told, too.
        let is_armed = receiving.consumer.arm(Mode::Descriptor) || self.link.is_gone();
        drop(receiving);
        // A thread may have found the turn taken meanwhile.
        self.turn.pass();
        is_armed
    }

    /// Adds what becomes readable as [`Remote::arm`] says.
    pub(crate) fn watch_by(&self, poller: &Poller, token: u64) -> Result<(), Error> {
        poller.add(&self.bell, token)?;
        self.link.watch_by(poller, token)?;
        self.turn.watch();
        Ok(())
    }

    /// Takes it out again. Of a server that is gone it would stay readable.
    pub(crate) fn unwatch_by(&self, poller: &Poller) {
        // What is not in the set need not be taken out.
        let _ = poller.remove(&self.bell);
        self.link.unwatch_by(poller);
    }

    /// Whether the server is gone, and with it whatever was pending.
    pub(crate) fn is_over(&self) -> bool {
        self.link.is_over()
    }

    /// Has others look whether something has come for them, or whether it is their turn.
    pub(crate) fn pass(&self) {
        if self.turn.pass() {
            self.link.tell_watcher();
        }
    }

    fn try_receiving(&self) -> Option<MutexGuard<'_, Receiving>> {
        match self.receiving.try_lock() {
            Ok(receiving) => Some(receiving),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes the replies that are there, up to the one that is awaited; returns how many.
    fn receive(&self, receiving: &mut Receiving, awaited: &mut Awaited<'_>) -> usize {
        let mut taken = 0;
        loop {
            match receiving.consumer.pop(&mut receiving.record) {
                Ok(false) => return taken,
                Ok(true) => {
                    taken += 1;
                    // Before the request leaves the table; until all that it held is back. Partner: `flush`.
                    self.is_accepting.store(true, Ordering::Relaxed);
                    let accepted = self.accept(&receiving.record, awaited);
                    self.is_accepting.store(false, Ordering::Release);
                    if let Err(wrong) = accepted {
                        self.link.break_off(&wrong);
                        return taken;
                    }
                    if awaited.has_work() {
                        return taken;
                    }
                }
                Err(broken) => {
                    self.link.break_off(&broken.to_string());
                    return taken;
                }
            }
        }
    }

    /// Acts upon a record; an error says what is wrong with it.
    fn accept(&self, record: &Received, awaited: &mut Awaited<'_>) -> Result<(), String> {
        match Record::decode(record.kind(), record.payload()).map_err(|malformed| malformed.to_string())? {
            Record::Reply(reply) => self.replied(&reply, awaited),
            Record::Done(slot) => {
                let done = self.sending().table.take_anticipated(slot);
                match done.ok_or_else(|| format!("{slot:?} is done, which was not anticipated"))? {
                    Ok(anticipated) => drop(anticipated),
                    Err(request) => request.reply(Ok(())),
                }
                Ok(())
            }
            Record::Goodbye => Ok(()),
            Record::Request(_) | Record::Abort(_) => {
                Err("a server makes no requests of its clients".to_owned())
            }
        }
    }

    fn replied(&self, reply: &Reply<'_>, awaited: &mut Awaited<'_>) -> Result<(), String> {
        let unknown = || format!("a reply names {:?}, which is not pending", reply.slot);
        let is_anticipated = reply.outcome == (Outcome::Ok { anticipated: true });
        let mut sending = self.sending();
        let taken = match is_anticipated {
            true => sending.table.take_and_keep(reply.slot),
            false => sending.table.take(reply.slot),
        };
        drop(sending);
        let mut request = taken.ok_or_else(unknown)?;
        for (index, buffer) in reply.buffers().enumerate() {
            let told = usize::try_from(buffer.actual)
                .map_err(|_| Error::Aborted)
                .and_then(|actual| request.set_actual(index, actual))
                .and_then(|()| match buffer.argument {
                    [] => Ok(()),
                    argument => request.set_argument(index, argument),
                });
            if let Err(error) = told {
                request.fail(error.clone());
                return Err(format!("a reply does not fit its request: {error}"));
            }
        }
        match reply.outcome {
            Outcome::Ok { anticipated: false } => request.reply_to(awaited),
            Outcome::Ok { anticipated: true } => {
                // Whether buffers are to come back with the reply the server does not know.
                let anticipated = request.anticipate();
                let left = self.sending().table.put_anticipated(reply.slot, anticipated);
                left.into_iter().for_each(|continued| self.link.keep(continued));
            }
            Outcome::Failed { code, message } => {
                request.reply(Err(ServerError { code, message: message.to_owned() }));
            }
            Outcome::Dropped => request.fail(Error::Dropped),
            Outcome::Refused(refusal) => request.fail(Error::Exhausted {
                asked: refusal.asked as usize,
                pending: refusal.pending as usize,
                limit: refusal.allowed as usize,
            }),
        }
        Ok(())
    }

    pub(super) fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sending {
    /// Asks the server to let a request go; returns whether there was room for that.
    fn abort(&mut self, slot: Slot) -> bool {
        encode_slot(&mut self.body, slot);
        self.producer.push(Kind::Abort as u8, &self.body).is_ok()
    }
}

/// How long a request may wait for room.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// Not at all: it is asynchronous.
    None,
    /// Until then, or for ever.
    Until(Option<Instant>),
}

/// Why a request was not sent.
enum Refused {
    NoRoom(Error),
    Error(Error),
}

/// Makes the inputs ready: over a channel, their memory goes along with the request.
fn prepare(request: &mut Incoming) -> Result<(), Error> {
    for index in 0..request.buffers() {
        if request.direction(index)? == Direction::In {
            request.make_ready(index)?;
        }
    }
    Ok(())
}

impl Drop for Remote {
    fn drop(&mut self) {
        let sending = self.sending.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.link.leave(sending.table.drain());
    }
}
