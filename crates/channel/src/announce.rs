//! Announcements: what a client has told one server about its memory.
//!
//! How: a request names data by its place in an arena. Before the first request that names a memory object, the client sends
//! the object's descriptor over the control socket: read-only, unless the server is to write into the object. No thread
//! waits for the server to read it: a record on the ring says which message the request rests on. Announcements are
//! remembered, so that later requests cost a look at a short list. Another client's arena is withdrawn as soon as nothing
//! here can name it any more: until then that client, which may have gone, does not have its memory back.
//! Invariants: when another object takes an announced object's place, the old object is withdrawn before the new one is
//! announced.
//! Source: thesis §5.1; docs/channel.md.

use std::os::fd::OwnedFd;

use std::sync::{Arc, Weak};

use genie_io::Error;
use genie_io::carrier::Shown;
use genie_memory::{Extent, LenderId, Mirror, Space, Span, WeakMirror};
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
    /// What is announced of the client's own arena, as (start, end, for writing); valid while the space's objects are those
    /// of `version`.
    current: SmallVec<[(usize, usize, bool); 4]>,
    version: u64,
    /// Arenas of other clients, from whose requests parts are forwarded; numbered from 1. An entry does not hold its mirror.
    lent: Vec<Option<(WeakMirror, Arena)>>,
    tally: Tally,
    /// The server, as the lender of its pool.
    lender: LenderId,
    /// Whether the server maps nothing, so that nothing is announced: the kernel copies.
    is_silent: bool,
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
#[derive(Debug, Default)]
struct Arena {
    objects: Vec<Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// The object's number in the process that it comes from.
    id: u64,
    /// Its number on this channel.
    number: u64,
    start: usize,
    end: usize,
    writes: bool,
}

/// Withdraws an arena when its mirror is dropped.
#[derive(Debug)]
struct Withdrawal {
    link: Weak<Link>,
    number: u16,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        let has_channel = |link: &Arc<Link>| !link.is_gone() && !link.is_inherited();
        if let Some(link) = self.link.upgrade().filter(has_channel) {
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
    pub(super) fn new(space: Space, lender: LenderId, trust: Trust) -> Self {
        let base = space.aliases_base();
        Self {
            space,
            base,
            own: Arena::default(),
            current: SmallVec::new(),
            version: 0,
            lent: Vec::new(),
            tally: Tally::default(),
            lender,
            is_silent: trust == Trust::Copied,
        }
    }

    /// The number of the last control message that a request may rest on.
    pub(super) fn said(&self) -> u64 {
        self.tally.message
    }

    /// Names a part of an element, in `segments`, and announces what the server does not know yet.
    ///
    /// # Errors
    /// [`Error::Unforwardable`]; the kernel's reason.
    #[inline]
    pub(super) fn name(
        &mut self,
        link: &Arc<Link>,
        shown: Shown<'_>,
        writes: bool,
        segments: &mut Segments,
    ) -> Result<(), Error> {
        match shown {
            Shown::Own(spans) => self.own(link, spans, writes, segments),
            Shown::Forwarded(spans) => self.own(link, spans, writes, segments).map_err(|error| match error {
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
        writes: bool,
        segments: &mut Segments,
    ) -> Result<(), Error> {
        for span in spans {
            let offset = span.addr().wrapping_sub(self.base);
            if offset >= self.space.aliases_len() {
                return Err(Error::Elsewhere { addr: span.addr(), len: span.len() });
            }
            if !self.is_silent && !self.is_current(offset, span.len(), writes) {
                self.ensure_own(link, offset, span.len(), writes)?;
            }
            segments.push(segment(OWN, offset, span.len()));
        }
        Ok(())
    }

    /// Whether a look at the short list shows that memory was announced.
    fn is_current(&mut self, offset: usize, len: usize, writes: bool) -> bool {
        let version = self.space.objects_version();
        if version != self.version {
            self.version = version;
            self.current.clear();
        }
        let end = offset + len;
        self.current.iter().any(|known| known.0 <= offset && end <= known.1 && (known.2 || !writes))
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
        self.own.ensure(link, OWN, (offset, len, writes), &mut self.tally, find, share)?;
        if let Some(known) =
            self.own.objects.iter().find(|known| known.start <= offset && offset + len <= known.end)
        {
            self.current.push((known.start, known.end, known.writes));
        }
        Ok(())
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
        let announced = Some((mirror.downgrade(), Arena::default()));
        match self.lent.get_mut(index) {
            Some(vacant) => *vacant = announced,
            None => self.lent.push(announced),
        }
        mirror.tie(Withdrawal { link: Arc::downgrade(link), number });
        Ok(number)
    }
}

impl Arena {
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
            if !self.objects.iter().any(is_known) {
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
        let is_replaced = |known: &Known| known.start < end && start < known.end;
        for known in self.objects.iter().filter(|known| is_replaced(known) && known.id != id) {
            tally.message = link.say(&Message::Withdraw(known.number), Vec::new())?;
        }
        let same = self.objects.iter().find(|known| known.id == id).map(|known| known.number);
        let number = same.unwrap_or_else(|| {
            tally.object += 1;
            tally.object
        });
        self.objects.retain(|known| !is_replaced(known));
        let (start64, len64) = (start as u64, len as u64);
        let place = ObjectPlace { arena, id: number, start: start64, len: len64, writable: writes };
        tally.message = link.say(&Message::Object(place), vec![descriptor])?;
        self.objects.push(Known { id, number, start, end, writes });
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
