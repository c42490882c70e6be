//! A client in another process, as its server sees it.
//!
//! How: a record on the ring becomes an [`Incoming`] whose buffers are in the client's memory, mirrored here, or, when the
//! two don't trust each other, in private memory that the kernel copies from and to. The reply goes back on the other
//! ring, from whatever thread replies.
//! Invariants: a request's mirrors stay mapped until it is replied to or dropped, whether its client is there or not.
//! Trust: everything that a client sends is checked before it is used: places against what it announced, slots against
//! the table, sizes against the limits granted. What no honest client says ends the channel.
//! Source: thesis §5.1, §7.2.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use genie_memory::{Direction, Extent, Extents, Known, Mapping, Mirror, Segments};
use genie_passing::{Receipt, Scheme};
use genie_ring::Producer;
use genie_sys::{GranuleKind, Object};

use super::books::{Books, Granted, State};
use super::private::Private;
use super::wire::control::{ArenaPlace, ObjectPlace};
use super::wire::record::{Body, Element, Kind, Outcome, Refusal, ReplyWriter, Request, Slot, encode_slot};
use crate::contract::Contract;
use crate::incoming::{Access, Origin};
use crate::lent::{Lent, LentTransfer, Places};
use crate::work::{Work, WorkBuffer, WorkElement};
use crate::{Error, Incoming, RequestId, ServiceId};

/// One client's channel.
#[derive(Debug)]
pub(crate) struct Customer {
    /// Tells the server's clients apart.
    pub(super) number: u32,
    pub(super) name: String,
    pub(super) pid: u32,
    mapping: Mapping,
    abort_timeout: Duration,
    services: Vec<Access>,
    mirrors: RwLock<Vec<Option<Mirror>>>,
    /// How often an arena came or went.
    arenas: AtomicU64,
    books: Mutex<Books>,
    /// Of a client that is not trusted, or does not trust: how its data is copied.
    private: Option<Private>,
    is_gone: AtomicBool,
    /// What ended the channel, if the client broke the rules.
    wrong: Mutex<Option<String>>,
}

/// What a worker knows of a client's memory.
#[derive(Debug, Default)]
pub(super) struct Sight {
    arenas: u64,
    mirrors: Vec<Option<(Mirror, Known)>>,
}

/// How a new channel is to be.
pub(super) struct Terms {
    pub(super) number: u32,
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) mapping: Mapping,
    pub(super) granted: Granted,
    pub(super) services: Vec<Access>,
    pub(super) mirror: Mirror,
    pub(super) producer: Producer,
    pub(super) private: Option<Private>,
}

impl Customer {
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            number: terms.number,
            name: terms.name,
            pid: terms.pid,
            mapping: terms.mapping,
            abort_timeout: terms.granted.abort_timeout,
            services: terms.services,
            mirrors: RwLock::new(vec![Some(terms.mirror)]),
            arenas: AtomicU64::new(1),
            books: Mutex::new(Books::new(&terms.granted, terms.producer)),
            private: terms.private,
            is_gone: AtomicBool::new(false),
            wrong: Mutex::default(),
        }
    }

    /// Turns a request's record into what the server's code gets; `None` when it was answered here already.
    ///
    /// # Errors
    /// What is wrong with it: the channel is to be ended.
    pub(super) fn receive(
        self: &Arc<Self>,
        sight: &mut Sight,
        request: &Request<'_>,
    ) -> Result<Option<Incoming>, String> {
        let bytes = request.bytes as usize;
        if let Some(refusal) = self.books().enter(request.slot, bytes)? {
            self.refuse(request.slot, refusal);
            return Ok(None);
        }
        let service = usize::from(request.service);
        let access = *self.services.get(service).ok_or_else(|| format!("there is no service {service}"))?;
        self.look(sight);
        let mut work = Work::received();
        for (index, buffer) in request.buffers().enumerate() {
            work.buffers.push(WorkBuffer::new(buffer.direction, buffer.argument, buffer.room));
            for element in buffer.elements() {
                let lent = self.element(sight, &element, buffer.direction, access)?;
                work.buffers[index].elements.push(WorkElement::lent(lent));
            }
        }
        let origin = Origin::There(Arc::clone(self), request.slot);
        Ok(Some(Incoming::new(work, origin, ServiceId(service as u32), access)))
    }

    fn element(
        &self,
        sight: &mut Sight,
        element: &Element<'_>,
        direction: Direction,
        access: Access,
    ) -> Result<Box<LentTransfer>, String> {
        let writes = direction == Direction::In;
        let receipt = Receipt::new(Scheme::Fragment);
        if let Some(private) = &self.private {
            return private.transfer(element, direction, receipt).map_err(|error| error.to_string());
        }
        let is_touched = if writes { access.writes || access.reads } else { access.reads };
        let mut lent = LentTransfer::named(Segments::new(), element.len as usize, receipt);
        for segment in element.segments {
            let extent = Extent { offset: segment.offset() as usize, len: segment.len() as usize };
            let (mirror, known) = sight.mirror(segment.arena())?;
            let seen = match (is_touched, self.mapping) {
                (false, _) => mirror.check(&[extent], writes),
                (true, Mapping::Cached) if segment.arena() == 0 => {
                    mirror.span(known, extent, writes).map(|span| lent.see(span))
                }
                // The request holds an arena that may be withdrawn, even where its objects stay mapped.
                (true, Mapping::Cached | Mapping::Transient) => {
                    mirror.map(&[extent], writes).map(|mapped| lent.hold(mapped))
                }
            };
            seen.map_err(|error| error.to_string())?;
            lent.name(segment.arena(), extent);
        }
        Ok(lent)
    }

    /// Sees to it that a worker knows the arenas that there are.
    pub(super) fn look(&self, sight: &mut Sight) {
        let arenas = self.arenas.load(Ordering::Acquire);
        if sight.arenas != arenas {
            let mirrors = self.mirrors.read().unwrap_or_else(PoisonError::into_inner);
            let known = |mirror: &Option<Mirror>| mirror.clone().map(|mirror| (mirror, Known::default()));
            sight.mirrors = mirrors.iter().map(known).collect();
            sight.arenas = arenas;
        }
    }

    /// Where data is that the client has named, for another server to be lent it.
    pub(crate) fn places(&self, named: &[(u16, Extent)]) -> Places {
        let mirrors = self.mirrors.read().unwrap_or_else(PoisonError::into_inner);
        let mut places = Places::new();
        let mut last = None;
        for (number, extent) in named {
            match (places.last_mut(), last == Some(*number)) {
                (Some(Lent::There(_, extents)), true) => extents.push(*extent),
                _ => {
                    let mirror = mirrors.get(usize::from(*number)).and_then(Option::as_ref);
                    // An arena that was withdrawn since holds nothing any more.
                    let Some(mirror) = mirror else { continue };
                    places.push(Lent::There(mirror.clone(), Extents::from_iter([*extent])));
                    last = Some(*number);
                }
            }
        }
        places
    }

    fn refuse(&self, slot: Slot, refusal: Refusal) {
        let mut books = self.books();
        ReplyWriter::begin(&mut books.body, slot, Outcome::Refused(refusal));
        self.push(&mut books, Kind::Reply);
    }

    /// The server's reply to a request.
    pub(crate) fn reply(&self, slot: Slot, mut work: Box<Work>, error: Option<Error>) {
        let error = error.or_else(|| work.check_inputs(&[]).err());
        let error = error.or_else(|| work.bring().err());
        let error = match (&self.private, error) {
            (Some(private), None) => private.write_back(&mut work).err(),
            (_, error) => error,
        };
        // Mappings for the time of the request end before the client may use its memory again.
        work.buffers.iter_mut().for_each(WorkBuffer::let_go);
        let mut books = self.books();
        let state = books.leave(slot);
        let body = &mut books.body;
        let kind = match (state, &error) {
            // It has been replied to; what is left to say is that it is over.
            (State::Anticipated, _) => {
                encode_slot(body, slot);
                Kind::Done
            }
            (_, None) => {
                encode(body, slot, &work, Outcome::Ok { anticipated: false });
                Kind::Reply
            }
            (_, Some(error)) => {
                encode_error(body, slot, &work, error);
                Kind::Reply
            }
        };
        self.push(&mut books, kind);
    }

    /// The server's anticipated reply.
    pub(crate) fn anticipate(&self, slot: Slot, work: &Work) {
        let mut books = self.books();
        books.anticipate(slot);
        encode(&mut books.body, slot, work, Outcome::Ok { anticipated: true });
        self.push(&mut books, Kind::Reply);
    }

    /// Notes that a request originates others.
    pub(crate) fn contracted(&self, slot: Slot, contract: &Arc<Contract>) {
        self.books().contracted(slot, contract);
    }

    /// What the requests are called within the server.
    pub(crate) fn id(&self, slot: Slot) -> RequestId {
        let generation = u64::from(slot.generation & 0xffff);
        RequestId(
            u64::from(self.number & 0xff_ffff) << 40 | generation << 24 | u64::from(slot.index & 0xff_ffff),
        )
    }

    /// The request to be aborted: its name, and what it has originated.
    pub(super) fn aborting(&self, slot: Slot) -> Option<(RequestId, Weak<Contract>)> {
        let contract = self.books().contract(slot)?;
        Some((self.id(slot), contract))
    }

    /// All requests that are pending.
    pub(super) fn all(&self) -> Vec<(RequestId, Weak<Contract>)> {
        let pending = self.books().all();
        pending.into_iter().map(|(slot, contract)| (self.id(slot), contract)).collect()
    }

    /// How long the server may take to let a request go.
    pub(super) fn abort_timeout(&self) -> Duration {
        self.abort_timeout
    }

    /// Grants other limits; places are never taken away.
    pub(super) fn grant(&self, bytes: usize, requests: u32) -> (usize, u32) {
        self.books().grant(bytes, requests)
    }

    /// (bytes, requests) pending.
    pub(super) fn load(&self) -> (usize, u32) {
        self.books().load()
    }

    /// Enters an object that the client announced.
    pub(super) fn announce(&self, place: &ObjectPlace, descriptor: OwnedFd) -> Result<(), String> {
        let object = Object::accept(descriptor).map_err(|error| error.to_string())?;
        if object.len() as u64 != place.len || (place.writable && !object.is_writable()) {
            return Err(format!("an object of {} bytes is not as announced: {place:?}", object.len()));
        }
        let mirrors = self.mirrors.read().unwrap_or_else(PoisonError::into_inner);
        let mirror = mirrors.get(usize::from(place.arena)).and_then(Option::as_ref);
        let mirror = mirror.ok_or_else(|| format!("arena {} was not announced", place.arena))?;
        mirror.announce(place.id, place.start as usize, object).map_err(|error| error.to_string())
    }

    /// Forgets an object.
    pub(super) fn withdraw(&self, id: u64) -> Result<(), String> {
        let mirrors = self.mirrors.read().unwrap_or_else(PoisonError::into_inner);
        // While nothing is pending, nobody works in what is unmapped; a request that comes meanwhile waits for the books.
        let books = self.books();
        for mirror in mirrors.iter().flatten() {
            mirror.withdraw(id);
            if books.load().1 == 0 {
                mirror.sweep().map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Enters an arena that the client passes parts of on.
    pub(super) fn add_arena(&self, place: &ArenaPlace, lifeline: OwnedFd) -> Result<(), String> {
        let mut mirrors = self.mirrors.write().unwrap_or_else(PoisonError::into_inner);
        let number = usize::from(place.number);
        let is_next = number == mirrors.len();
        if !is_next && mirrors.get(number).is_none_or(Option::is_some) {
            return Err(format!("arena {number} was announced, and arena {} is the last", mirrors.len() - 1));
        }
        let granules: GranuleKind = place.granule;
        let mirror = Mirror::new(place.base as usize, place.len as usize, granules, self.mapping, lifeline);
        let mirror = Some(mirror.map_err(|error| error.to_string())?);
        match mirrors.get_mut(number) {
            Some(vacant) => *vacant = mirror,
            None => mirrors.push(mirror),
        }
        self.arenas.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Forgets an arena; the last request in it unmaps it, or the worker that knows it. Returns whether there was one that
    /// may go: the client's own stays as long as the channel.
    pub(super) fn remove_arena(&self, number: u16) -> bool {
        let mut mirrors = self.mirrors.write().unwrap_or_else(PoisonError::into_inner);
        let mirror = mirrors.get_mut(usize::from(number)).filter(|_| number > 0).and_then(Option::take);
        self.arenas.fetch_add(1, Ordering::Release);
        drop(mirrors);
        mirror.is_some()
    }

    /// Ends the channel, because the client hung up or broke the rules: no reply is sent any more. What requests need of
    /// the client's memory stays until they are over.
    pub(super) fn end(&self, wrong: Option<String>) {
        if let Some(wrong) = wrong {
            self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(wrong);
        }
        self.is_gone.store(true, Ordering::Release);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// What the client did that no honest one does.
    pub(super) fn wrong(&self) -> Option<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends replies that had to wait, as far as there is room; more of that wakes whoever has armed the other ring before.
    pub(super) fn flush(&self) {
        let sent = self.books().catch_up();
        self.heed(sent);
    }

    /// Sends the record in `books.body`, now or when there is room.
    fn push(&self, books: &mut Books, kind: Kind) {
        if !self.is_gone() {
            self.heed(books.push(kind));
        }
    }

    /// Ends the channel when the client has spoilt the way back.
    fn heed(&self, sent: Result<(), String>) {
        if let Err(wrong) = sent {
            self.end(Some(wrong));
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sight {
    fn mirror(&mut self, number: u16) -> Result<(&Mirror, &mut Known), String> {
        let mirror = self.mirrors.get_mut(usize::from(number)).and_then(Option::as_mut);
        let (mirror, known) = mirror.ok_or_else(|| format!("arena {number} was not announced"))?;
        Ok((mirror, known))
    }

    /// Whether the client has taken memory away that it had announced.
    pub(super) fn is_broken(&self) -> bool {
        self.mirrors.iter().flatten().any(|(mirror, _)| mirror.is_broken())
    }
}

fn encode_error(body: &mut Body, slot: Slot, work: &Work, error: &Error) {
    match error {
        Error::Dropped => drop(ReplyWriter::begin(body, slot, Outcome::Dropped)),
        Error::Server(error) => {
            encode(body, slot, work, Outcome::Failed { code: error.code, message: &error.message });
        }
        error => {
            let message = error.to_string();
            let _ = ReplyWriter::begin(body, slot, Outcome::Failed { code: 0, message: &message });
        }
    }
}

fn encode(body: &mut Body, slot: Slot, work: &Work, outcome: Outcome<'_>) {
    let mut writer = ReplyWriter::begin(body, slot, outcome);
    for buffer in &work.buffers {
        // Lengths and counts were the request's, which came in a record, too.
        if writer.buffer(buffer.actual as u64, &buffer.reply_argument).is_err() {
            let message = "the reply is too large for a record";
            let _ = ReplyWriter::begin(body, slot, Outcome::Failed { code: 0, message });
            return;
        }
    }
}
