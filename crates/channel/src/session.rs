//! A client in another process, as its server sees it.
//!
//! How: a record on the ring becomes an [`Incoming`], whose buffers are in the client's memory, mirrored here. On an
//! untrusted channel they are in private memory, and the kernel copies from and to the client. The reply goes back on the
//! other ring, from whatever thread replies.
//! Invariants: a request's mirrors stay mapped until the request is replied to or dropped, whether its client is there or
//! not.
//! Trust: everything that a client sends is checked before it is used: places against its announcements, slots against the
//! table, sizes against the granted limits. A record that no honest client sends ends the channel.
//! Source: thesis §5.1, §7.2.

use std::sync::Arc;
use std::time::Duration;

use genie_io::carrier::{Allowance, Caller, Contract, Located, Mirrored, Work};
use genie_io::{Client, Error, Incoming, Service, ServiceId};
use genie_memory::{Direction, Extent, Mapping, Segments};
use genie_passing::{Receipt, Scheme};
use genie_ring::Producer;
use genie_sys::Errno;

use super::arenas::{ArenaView, Arenas};
use super::evictions::Aborted;
use super::in_progress::{Granted, InProgress};
use super::long_calls::LongCalls;
use super::private::Private;
use super::telemetry;
use super::wire::record::{
    Body, Element, Kind, Limit, Outcome, Progress, Refusal, ReplyWriter, Request, Slot, encode_slot,
};
use crate::counts::Counts;
use crate::primitive::{AtomicBool, AtomicU64, Mutex, Ordering};

/// One client's channel.
#[derive(Debug)]
pub(crate) struct Session {
    terms: Terms,
    pub(super) arenas: Arenas,
    pub(super) in_progress: Mutex<InProgress>,
    is_gone: AtomicBool,
    /// How many control messages the server has acted upon.
    heard: AtomicU64,
    /// The worker waits until the server has acted upon the next one.
    is_held: AtomicBool,
    /// Replies wait for room on the ring.
    is_behind: AtomicBool,
    pub(super) long_calls: LongCalls,
    /// What ended the channel, if the client broke the rules.
    wrong: Mutex<Option<String>>,
}

/// What client and server have agreed on.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) client: Client,
    pub(super) mapping: Mapping,
    /// The limits granted at first.
    pub(super) granted: Granted,
    pub(super) services: Vec<Service>,
    /// What the server may keep of the client's outputs.
    pub(super) allowance: Arc<Allowance>,
    /// How data is copied, on an untrusted channel.
    pub(super) private: Option<Private>,
}

impl Caller for Session {
    fn client(&self) -> &Client {
        Self::client(self)
    }

    fn allowance(&self) -> &Arc<Allowance> {
        &self.terms.allowance
    }

    fn is_aborted(&self, slot: Slot) -> bool {
        self.is_gone() || self.in_progress.lock().is_aborted(slot)
    }

    fn reply(&self, slot: Slot, mut work: Box<Work>, error: Option<Error>) {
        let mut error = error.or_else(|| work.check_inputs().err());
        // If the client is gone, no data is brought to it.
        if error.is_none() && !self.is_gone() {
            error = work.bring().err();
        }
        if let (Some(private), None) = (&self.terms.private, &error)
            && !self.is_gone()
        {
            error = private.write_back(&mut work).err();
        }
        // Mappings made for this request end before the client may use its memory again.
        work.let_go();
        let counts = if error.is_some() { Counts::FAILURE } else { Counts::of(&work) };
        let mut in_progress = self.in_progress.lock();
        let is_anticipated = in_progress.leave(slot);
        in_progress.counts = in_progress.counts.plus(counts);
        let body = &mut in_progress.body;
        let kind = match (is_anticipated, &error) {
            // The request has been replied to in anticipation; the client is still to hear that it is over.
            (true, _) => {
                encode_slot(body, slot);
                Kind::Done
            }
            (_, None) => {
                let outcome = Outcome::Ok { anticipated: false, argument: work.reply_argument() };
                let mut writer = encode(body, slot, &work, outcome);
                if work.carries_inputs() {
                    work.each_short_input(|carried, here| carried.copy_to(&work, writer.carried(here)));
                    work.each_carried_input(|element, here| {
                        element.copy_carried(&work, writer.carried(here));
                    });
                }
                Kind::Reply
            }
            (_, Some(error)) => {
                encode_error(body, slot, &work, error);
                Kind::Reply
            }
        };
        in_progress.fit(slot);
        self.push(&mut in_progress, kind);
        drop(in_progress);
        telemetry::served(&counts);
        work.end();
    }

    fn anticipate(&self, slot: Slot, work: &Work) {
        let mut in_progress = self.in_progress.lock();
        let outcome = Outcome::Ok { anticipated: true, argument: work.reply_argument() };
        let _ = encode(&mut in_progress.body, slot, work, outcome);
        // A reply that is too long becomes a failure when the server is done.
        if !in_progress.fit(slot) {
            in_progress.anticipate(slot);
            self.push(&mut in_progress, Kind::Reply);
        }
    }

    fn progress(&self, slot: Slot, buffer: usize, len: usize) {
        let mut in_progress = self.in_progress.lock();
        let progress = Progress { slot, buffer: buffer as u16, len: len as u64 };
        let encoded = progress.encode(&mut in_progress.body);
        encoded.expect("the index and the length are those of a request that came in a record");
        self.push(&mut in_progress, Kind::Progress);
    }

    fn locations(&self, named: &[(u16, Extent)]) -> Mirrored {
        self.arenas.locations(named)
    }

    fn contracted(&self, slot: Slot, contract: &Arc<Contract>) -> bool {
        // When the channel ends, all requests in progress are aborted. If that came too early for this contract, `is_gone`
        // says so here.
        self.in_progress.lock().contracted(slot, contract) || self.is_gone()
    }
}

impl Session {
    /// The client, as the server's code sees it.
    pub(super) fn client(&self) -> &Client {
        &self.terms.client
    }

    pub(super) fn new(terms: Terms, arenas: Arenas, producer: Producer) -> Self {
        Self {
            arenas,
            in_progress: Mutex::new(InProgress::new(&terms.granted, producer)),
            terms,
            is_gone: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            long_calls: LongCalls::default(),
            wrong: Mutex::default(),
        }
    }

    /// Makes of a request's record the [`Incoming`] that the server's code gets; `None` if the request was refused here.
    ///
    /// # Errors
    /// What is wrong with the request: the channel is to be ended.
    pub(super) fn receive(
        self: &Arc<Self>,
        view: &mut ArenaView,
        request: &Request<'_>,
    ) -> Result<Option<Incoming>, String> {
        let bytes = request.bytes as usize;
        let entered = self.in_progress.lock().enter(request.slot, bytes)?;
        let id = match entered {
            Ok(id) => id,
            Err(refusal) => {
                self.refuse(request.slot, refusal);
                return Ok(None);
            }
        };
        let service = usize::from(request.service);
        let (number, of_it) = (ServiceId(service as u32), self.terms.services.get(service));
        let service = of_it.ok_or_else(|| format!("there is no service {service}"))?;
        let work = match self.work(view, request, service) {
            Ok(work) => work,
            Err(Unfit::Wrong(wrong)) => return Err(wrong),
            Err(Unfit::Short(refusal)) => {
                self.in_progress.lock().leave(request.slot);
                self.refuse(request.slot, refusal);
                return Ok(None);
            }
        };
        let caller = Arc::<Self>::clone(self);
        Ok(Some(Incoming::brought(work, (caller, request.slot, id), (number, service))))
    }

    /// Finds a request's data. If there is no room to map it, and nothing else is pending, all that is kept mapped is
    /// unmapped first.
    fn work(
        &self,
        view: &mut ArenaView,
        request: &Request<'_>,
        access: &Service,
    ) -> Result<Box<Work>, Unfit> {
        self.arenas.look(view);
        let mut work = self.found(view, request, access);
        if let Err(Unfit::Short(_)) = work
            && self.requests_count() == 1
        {
            self.arenas.clear().map_err(Unfit::Wrong)?;
            work = self.found(view, request, access);
        }
        work
    }

    fn found(
        &self,
        view: &mut ArenaView,
        request: &Request<'_>,
        access: &Service,
    ) -> Result<Box<Work>, Unfit> {
        let mut work = Work::received(request.argument, request.room);
        let mut carried = request.carried;
        let shorts = request.shorts();
        if shorts.len() > 0 {
            for (direction, len) in shorts {
                work.receive_short(direction, cut(&mut carried, len, direction), len);
            }
            return Ok(work);
        }
        for buffer in request.buffers() {
            work.begin_buffer(buffer.direction, buffer.is_copied || self.terms.private.is_some());
            for element in buffer.elements() {
                if element.is_carried() {
                    let data = cut(&mut carried, element.len as usize, buffer.direction);
                    work.receive(buffer.direction, data, element.len as usize);
                    continue;
                }
                let located = self.element(view, &element, buffer.direction, access)?;
                work.add_located(located);
            }
        }
        Ok(work)
    }

    fn element(
        &self,
        view: &mut ArenaView,
        element: &Element<'_>,
        direction: Direction,
        access: &Service,
    ) -> Result<Box<Located>, Unfit> {
        let writes = direction == Direction::In;
        let receipt = Receipt::new(Scheme::Fragment);
        if let Some(private) = &self.terms.private {
            return private.transfer(element, direction, receipt).map_err(|error| self.unfit(error));
        }
        let is_touched = if writes { access.writes || access.reads } else { access.reads };
        let mut located = Located::named(Segments::new(), element.len as usize, receipt);
        for segment in element.segments {
            let extent = Extent { offset: segment.offset() as usize, len: segment.len() as usize };
            let (mirror, known) = view.mirror(segment.arena()).map_err(Unfit::Wrong)?;
            let seen = match (is_touched, self.terms.mapping) {
                (false, _) => mirror.check(&[extent], writes),
                (true, Mapping::Cached) if segment.arena() == 0 => {
                    mirror.span(known, extent, writes).map(|span| located.see(span))
                }
                // A forwarded arena may be withdrawn: the request holds it, even where its objects stay mapped.
                (true, Mapping::Cached | Mapping::Transient) => {
                    mirror.map(&[extent], writes).map(|mapped| located.hold(mapped))
                }
            };
            seen.map_err(|error| self.unfit(error.into()))?;
            located.name(segment.arena(), extent);
        }
        Ok(located)
    }

    /// Tells from an error whether there is no room for a request here, or the request is wrong.
    fn unfit(&self, error: Error) -> Unfit {
        use genie_memory::Error as Memory;
        let Error::Passing(genie_passing::Error::Memory(found)) = &error else {
            return Unfit::Wrong(error.to_string());
        };
        let mapped = self.arenas.mapped();
        let (limit, asked, pending, allowed) = match found {
            Memory::Limit { asked, used, limit } => (Limit::Data, *asked, *used, *limit),
            Memory::Pieces { limit } => (Limit::Pieces, 1, *limit, *limit),
            Memory::Addresses { asked } => (Limit::Data, *asked, mapped, mapped),
            Memory::Kernel(found) if found.errno == Errno::NOMEM => (Limit::Data, 0, mapped, mapped),
            _ => return Unfit::Wrong(error.to_string()),
        };
        let [asked, pending, allowed] = [asked, pending, allowed].map(|count| count as u64);
        Unfit::Short(Refusal { limit, asked, pending, allowed })
    }

    fn refuse(&self, slot: Slot, refusal: Refusal) {
        let mut in_progress = self.in_progress.lock();
        in_progress.counts = in_progress.counts.plus(Counts::FAILURE);
        ReplyWriter::begin(&mut in_progress.body, slot, Outcome::Refused(refusal));
        self.push(&mut in_progress, Kind::Reply);
        drop(in_progress);
        telemetry::served(&Counts::FAILURE);
    }

    /// The request to be aborted: its name, and the requests that it has originated. `None` if it was aborted before. The
    /// caller aborts it, which may reply to it, and that takes the lock again.
    pub(super) fn abort(&self, slot: Slot) -> Option<Aborted> {
        self.in_progress.lock().abort(slot)
    }

    /// All pending requests: their names, and the requests that they have originated.
    pub(super) fn all(&self) -> Vec<Aborted> {
        self.in_progress.lock().all()
    }

    /// How long the server may take to let a request go.
    pub(super) fn abort_timeout(&self) -> Duration {
        self.terms.granted.abort_timeout
    }

    /// Whether nothing is pending.
    pub(super) fn is_idle(&self) -> bool {
        self.requests_count() == 0
    }

    fn requests_count(&self) -> u32 {
        self.in_progress.lock().load().1
    }

    /// Ends the channel, because the client hung up or broke the rules: no reply is sent any more. The client's memory stays
    /// mapped for requests until they are over.
    pub(super) fn end(&self, wrong: Option<String>) {
        if let Some(wrong) = wrong {
            self.wrong.lock().get_or_insert(wrong);
        }
        self.is_gone.store(true, Ordering::Release);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Counts a message that the control thread has acted upon; returns whether the worker is to be told.
    pub(super) fn has_heard_one(&self) -> bool {
        // These operations and those of `has_heard` are in one order: either this sees that the worker waits, or the worker
        // sees the count.
        self.heard.fetch_add(1, Ordering::SeqCst);
        self.is_held.swap(false, Ordering::SeqCst)
    }

    /// Whether the control thread has acted upon this many messages; if not, the worker is told of the next one.
    pub(super) fn has_heard(&self, messages: u64) -> bool {
        let has_heard = || self.heard.load(Ordering::SeqCst) >= messages;
        if has_heard() {
            return true;
        }
        self.is_held.store(true, Ordering::SeqCst);
        has_heard()
    }

    /// What the client did wrong, if it did what no honest client does.
    pub(super) fn wrong(&self) -> Option<String> {
        self.wrong.lock().clone()
    }

    /// Sends replies that had to wait, as far as there is room. When the client then makes more room, that wakes the worker,
    /// if the worker has armed the ring of requests before this call.
    pub(super) fn flush(&self) {
        let mut in_progress = self.in_progress.lock();
        let sent = in_progress.catch_up();
        self.is_behind.store(in_progress.is_behind(), Ordering::Relaxed);
        drop(in_progress);
        self.heed(sent);
    }

    /// The same for a worker that does not sleep, so that nothing tells it of room.
    pub(super) fn flush_if_behind(&self) {
        if self.is_behind.load(Ordering::Relaxed) {
            self.flush();
        }
    }

    /// Sends the record in `in_progress.body`, now or when there is room.
    fn push(&self, in_progress: &mut InProgress, kind: Kind) {
        if !self.is_gone() {
            let sent = in_progress.push(kind);
            if in_progress.is_behind() {
                self.is_behind.store(true, Ordering::Relaxed);
            }
            self.heed(sent);
        }
    }

    /// Ends the channel if the client has spoilt its ring of replies.
    fn heed(&self, sent: Result<(), String>) {
        if let Err(wrong) = sent {
            self.end(Some(wrong));
        }
    }
}

/// What a request carries of an element, off the front of what it carries: nothing of an input.
#[inline]
fn cut<'r>(carried: &mut &'r [u8], len: usize, direction: Direction) -> &'r [u8] {
    let here = if direction == Direction::Out { len } else { 0 };
    let data;
    (data, *carried) = carried.split_at(here);
    data
}

/// Why a request does not reach the server's code.
enum Unfit {
    /// No honest client sends it.
    Wrong(String),
    /// There is no room for its data.
    Short(Refusal),
}

fn encode_error(body: &mut Body, slot: Slot, work: &Work, error: &Error) {
    match error {
        Error::Dropped => drop(ReplyWriter::begin(body, slot, Outcome::Dropped)),
        Error::Panicked { message } => {
            let _ = ReplyWriter::begin(body, slot, Outcome::Panicked { message });
        }
        Error::ArgumentTooLong { len, .. } => {
            let _ = ReplyWriter::begin(body, slot, Outcome::ArgumentTooLong { len: *len });
        }
        Error::Untold { buffer } => {
            let _ = ReplyWriter::begin(body, slot, Outcome::Untold { buffer: *buffer });
        }
        Error::Server(error) => {
            let _ = encode(body, slot, work, Outcome::Failed { code: error.code, message: &error.message });
        }
        error => {
            let message = error.to_string();
            let _ = ReplyWriter::begin(body, slot, Outcome::Failed { code: 0, message: &message });
        }
    }
}

fn encode<'b>(body: &'b mut Body, slot: Slot, work: &Work, outcome: Outcome<'_>) -> ReplyWriter<'b> {
    let mut writer = ReplyWriter::begin(body, slot, outcome);
    work.each_buffer(|_, _, _, actual| {
        let written = writer.buffer(actual as u64);
        written.expect("the lengths and the count are those of a request that came in a record");
    });
    writer
}
