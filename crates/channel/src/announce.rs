//! Announcements: what a client has told one server about its memory.
//!
//! How: a request names data by its place in an arena. Before the first request that names a memory object, the client sends
//! the object's descriptor over the control socket: read-only, unless the server is to write into the object. No thread
//! waits for the server to read it: a record on the ring says which message the request rests on. Announcements are
//! remembered, so that later requests cost a look at a short list. Another client's arena is withdrawn as soon as nothing
//! here can name it any more: until then that client, which may have gone, does not have its memory back. An object of the client's own
//! is withdrawn when the space lets it go, by the thread that does so; the channel is a registrar of the space.
//! The tables are used under the lock of what sends, which a registrar's call may want, and registrars are told that an object is shown
//! before its descriptor is sent. So a request is encoded once to find what is to be announced, and again when they have been told.
//! Invariants: when another object takes an announced object's place, the old object is withdrawn before the new one is
//! announced. Each object that was announced is withdrawn once at most.
//! Source: thesis §5.1; docs/channel.md.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use genie_io::Error;
use genie_io::carrier::Shown;
use genie_memory::{
    Extent, LenderId, Mirror, Registrar, Registration, SharedObject, Space, Span, WeakMirror,
};
use genie_sys::lock::Mutex;
use smallvec::SmallVec;

use super::link::Link;
use super::sharing;
use super::wire::control::{ArenaPlace, Message, ObjectPlace, Trust};
use super::wire::record::Segment;

/// The arena that holds the aliases of the client's own space.
const OWN: u16 = 0;

/// What has been announced on one channel.
#[derive(Debug)]
pub(super) struct Announcements {
    space: Space,
    base: usize,
    own: Arena,
    /// Has objects withdrawn that the space lets go; there is none where nothing is announced.
    _registration: Option<Registration>,
    /// Arenas of other clients, from whose requests parts are forwarded; numbered from 1. An entry does not hold its mirror.
    lent: Vec<Option<(WeakMirror, Arena)>>,
    tally: Tally,
    /// The server, as the lender of its pool.
    lender: LenderId,
    /// Whether the server maps nothing, so that nothing is announced: the kernel copies.
    is_silent: bool,
    /// What is to be announced when registrars have been told of it, as (offset, length).
    pub(super) untold: Vec<(usize, usize)>,
}

/// What the server has been told so far.
#[derive(Debug, Default)]
struct Tally {
    /// The number of the object announced last.
    object: u64,
    /// The number of the last control message that a request may rest on.
    message: u64,
}

/// The announced objects of one arena.
#[derive(Debug)]
struct Arena {
    /// By their starts.
    objects: BTreeMap<usize, Known>,
    numbers: Arc<Numbers>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// The object's number in the process that it comes from.
    id: u64,
    end: usize,
    writes: bool,
}

/// The numbers that announced objects of one arena have on this channel.
#[derive(Debug)]
struct Numbers {
    link: Weak<Link>,
    /// By the numbers that the objects have in the process that they come from. No thread uses a space while it has this lock.
    numbers: Mutex<BTreeMap<u64, u64>>,
    /// Some objects were withdrawn that the arena's table may still have.
    has_withdrawn: AtomicBool,
}

impl Registrar for Numbers {
    fn added(&self, _: &SharedObject) {}

    fn removed(&self, object: &SharedObject) {
        self.withdraw(object.id.number());
    }
}

impl Numbers {
    /// Withdraws an object if it was announced.
    fn withdraw(&self, id: u64) {
        let Some(number) = self.numbers.lock().remove(&id) else { return };
        // Release pairs with the look before a request is sent: whoever has seen the object go sees this.
        self.has_withdrawn.store(true, Ordering::Release);
        if let Some(link) = open(&self.link) {
            // If it cannot be said, the channel ends, which withdraws everything.
            let _ = link.say(&Message::Withdraw(number), Vec::new());
        }
    }
}

/// The link of a channel that is this process's, and not over.
fn open(link: &Weak<Link>) -> Option<Arc<Link>> {
    link.upgrade().filter(|link| !link.is_gone() && !link.is_inherited())
}

/// Withdraws an arena when its mirror is dropped.
#[derive(Debug)]
struct Withdrawal {
    link: Weak<Link>,
    number: u16,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if let Some(link) = open(&self.link) {
            link.withdraw_arena(self.number);
        }
    }
}

/// An object as its owner knows it.
struct Found {
    id: u64,
    start: usize,
    len: usize,
}

/// Segments of one element, as a record names them.
pub(super) type Segments = SmallVec<[Segment; 2]>;

impl Announcements {
    pub(super) fn new(space: Space, link: &Arc<Link>, lender: LenderId, trust: Trust) -> Self {
        let own = Arena::new(link);
        let is_silent = trust == Trust::Copied;
        let numbers = Arc::clone(&own.numbers);
        let registration = (!is_silent).then(|| space.register(numbers));
        Self {
            base: space.aliases_base(),
            space,
            own,
            _registration: registration,
            lent: Vec::new(),
            tally: Tally::default(),
            lender,
            is_silent,
            untold: Vec::new(),
        }
    }

    /// The number of the last control message that a request may rest on.
    pub(super) fn said(&self) -> u64 {
        self.tally.message
    }

    /// Names a part of an element, in `segments`, and announces what the server does not know yet; memory of the client's own only if
    /// registrars were told of it (`is_told`), and otherwise it is noted in `untold`.
    ///
    /// # Errors
    /// [`Error::Unforwardable`]; the kernel's reason.
    #[inline]
    pub(super) fn name(
        &mut self,
        link: &Arc<Link>,
        shown: Shown<'_>,
        (writes, is_told): (bool, bool),
        segments: &mut Segments,
    ) -> Result<(), Error> {
        let how = (writes, is_told);
        match shown {
            Shown::Own(spans) => self.own(link, spans, how, segments),
            Shown::Forwarded(spans) => self.own(link, spans, how, segments).map_err(|error| match error {
                Error::Elsewhere { .. } => {
                    unforwardable(link, spans.iter().map(|span| span.len()).sum(), NOT_OURS)
                }
                error => error,
            }),
            Shown::Unshown(len) => Err(unforwardable(link, len, UNSHOWN)),
            Shown::Mirrored(_, extents) if self.is_silent => {
                Err(unforwardable(link, extents.iter().map(|extent| extent.len).sum(), UNSHOWN))
            }
            Shown::Mirrored(mirror, extents) => {
                let number = self.arena(link, mirror)?;
                for Extent { offset, len } in extents.iter().copied() {
                    self.ensure_lent(link, number, mirror, (offset, len, writes))?;
                    segments.push(segment(number, offset, len));
                }
                Ok(())
            }
        }
    }

    fn own(
        &mut self,
        link: &Arc<Link>,
        spans: &[Span],
        (writes, is_told): (bool, bool),
        segments: &mut Segments,
    ) -> Result<(), Error> {
        for span in spans {
            let offset = span.addr().wrapping_sub(self.base);
            if offset >= self.space.aliases_len() {
                return Err(Error::Elsewhere { addr: span.addr(), len: span.len() });
            }
            if !self.is_silent && !self.own.has(offset, span.len(), writes) {
                match is_told {
                    true => self.ensure_own(link, offset, span.len(), writes)?,
                    false => self.untold.push((offset, span.len())),
                }
            }
            segments.push(segment(OWN, offset, span.len()));
        }
        Ok(())
    }

    fn ensure_own(&mut self, link: &Arc<Link>, offset: usize, len: usize, writes: bool) -> Result<(), Error> {
        let (space, lender) = (&self.space, self.lender);
        // The server may write its own pool, even where the first data in it is output.
        let is_lent = |at| space.object_at(at).is_some_and(|shared| shared.lender == Some(lender));
        let writes = writes || is_lent(offset);
        let find = |at| {
            let shared = space.object_at(at)?;
            Some(Found { id: shared.id.number(), start: shared.start, len: shared.len })
        };
        let share = |at: usize, writes| match space.object_at(at) {
            Some(shared) => {
                if writes {
                    space.entrust(shared.id, lender);
                }
                Ok(sharing::share(space, shared.id, writes)?)
            }
            None => Err(Error::Elsewhere { addr: at, len }),
        };
        self.own.ensure(link, OWN, (offset, len, writes), &mut self.tally, find, share)
    }

    fn ensure_lent(
        &mut self,
        link: &Arc<Link>,
        number: u16,
        mirror: &Mirror,
        (offset, len, writes): (usize, usize, bool),
    ) -> Result<(), Error> {
        let Some((_, arena)) = &mut self.lent[usize::from(number) - 1] else { return Err(Error::Aborted) };
        let find = |at| {
            let (id, start, len, _) = mirror.object_at(at)?;
            Some(Found { id, start, len })
        };
        let share = |at: usize, writes| match mirror.object_at(at) {
            Some((id, ..)) => Ok(mirror.share(id, writes)?),
            None => Err(Error::Elsewhere { addr: at, len }),
        };
        arena.ensure(link, number, (offset, len, writes), &mut self.tally, find, share)
    }

    /// The number of another client's arena on this channel.
    fn arena(&mut self, link: &Arc<Link>, mirror: &Mirror) -> Result<u16, Error> {
        let is_it =
            |lent: &Option<(WeakMirror, Arena)>| lent.as_ref().is_some_and(|(known, _)| known.is(mirror));
        if let Some(index) = self.lent.iter().position(is_it) {
            return Ok(index as u16 + 1);
        }
        for number in link.withdrawn() {
            self.lent[usize::from(number) - 1] = None;
        }
        let index = self.lent.iter().position(Option::is_none).unwrap_or(self.lent.len());
        let number = u16::try_from(index + 1).map_err(|_| Error::Aborted)?;
        let (base, len) = (mirror.base() as u64, mirror.len() as u64);
        let place = ArenaPlace { number, granule: mirror.granules(), base, len };
        self.tally.message = link.say(&Message::Arena(place), vec![mirror.lifeline()?])?;
        let announced = Some((mirror.downgrade(), Arena::new(link)));
        match self.lent.get_mut(index) {
            Some(vacant) => *vacant = announced,
            None => self.lent.push(announced),
        }
        mirror.tie(Withdrawal { link: Arc::downgrade(link), number });
        Ok(number)
    }
}

impl Arena {
    fn new(link: &Arc<Link>) -> Self {
        let link = Arc::downgrade(link);
        let numbers = Numbers { link, numbers: Mutex::default(), has_withdrawn: AtomicBool::new(false) };
        Self { objects: BTreeMap::new(), numbers: Arc::new(numbers) }
    }

    /// Whether a look at the table shows that `len` bytes from `offset` on were announced.
    fn has(&mut self, offset: usize, len: usize, writes: bool) -> bool {
        if self.numbers.has_withdrawn.load(Ordering::Acquire) {
            self.forget_withdrawn();
        }
        let (mut at, end) = (offset, offset + len);
        while at < end {
            match self.objects.range(..=at).next_back() {
                Some((_, known)) if at < known.end && (known.writes || !writes) => at = known.end,
                _ => return false,
            }
        }
        true
    }

    #[cold]
    fn forget_withdrawn(&mut self) {
        self.numbers.has_withdrawn.store(false, Ordering::Relaxed);
        let numbers = self.numbers.numbers.lock();
        self.objects.retain(|_, known| numbers.contains_key(&known.id));
    }

    /// Announces the objects that hold `len` bytes from `offset` on, unless the server knows them and has the rights it needs.
    fn ensure(
        &mut self,
        link: &Arc<Link>,
        arena: u16,
        (offset, len, writes): (usize, usize, bool),
        tally: &mut Tally,
        find: impl Fn(usize) -> Option<Found>,
        share: impl Fn(usize, bool) -> Result<OwnedFd, Error>,
    ) -> Result<(), Error> {
        let mut at = offset;
        while at < offset + len {
            let missing = || Error::Elsewhere { addr: at, len };
            let found = find(at).ok_or_else(missing)?;
            let end = found.start + found.len;
            let is_known = |known: &Known| known.id == found.id && (known.writes || !writes);
            if !self.objects.get(&found.start).is_some_and(is_known) {
                self.announce(link, arena, &found, writes, tally, share(at, writes)?)?;
            }
            at = end;
        }
        Ok(())
    }

    fn announce(
        &mut self,
        link: &Arc<Link>,
        arena: u16,
        found: &Found,
        writes: bool,
        tally: &mut Tally,
        descriptor: OwnedFd,
    ) -> Result<(), Error> {
        let Found { id, start, len } = *found;
        let end = start + len;
        let is_replaced = |at: usize, known: &Known| at < end && start < known.end && known.id != id;
        for (_, known) in self.objects.extract_if(.., |at, known| is_replaced(*at, known)) {
            self.numbers.withdraw(known.id);
        }
        let number = *self.numbers.numbers.lock().entry(id).or_insert_with(|| {
            tally.object += 1;
            tally.object
        });
        let (start64, len64) = (start as u64, len as u64);
        let place = ObjectPlace { arena, id: number, start: start64, len: len64, writable: writes };
        tally.message = link.say(&Message::Object(place), vec![descriptor])?;
        self.objects.insert(start, Known { id, end, writes });
        Ok(())
    }
}

/// Why parts are not forwarded that are in this process, but not in memory of the interface.
const NOT_OURS: &str = "its data is in another interface's memory, or in private memory, since its client does not trust this server";
/// Why parts are not forwarded that are in another process.
const UNSHOWN: &str = "that server is not trusted, so it is shown no other process's memory";

fn unforwardable(link: &Link, len: usize, why: &'static str) -> Error {
    Error::Unforwardable { server: link.server().to_owned(), len, why }
}

fn segment(arena: u16, offset: usize, len: usize) -> Segment {
    Segment::new(arena, offset as u64, len as u64).expect("places in an arena are below 2^48")
}
