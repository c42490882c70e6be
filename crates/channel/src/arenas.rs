//! What a client has announced of its memory, and how this process sees it.
//!
//! How: one mirror for the client's own arena, and one for each arena of another client from whose requests it forwards
//! parts.
//! Invariants: the memory that a request names stays mapped until the request is replied to or dropped, whatever the client
//! withdraws.
//! Trust: the client chooses numbers, places and descriptors, and each is checked.
//! Limits: [`ARENAS`] at once; the client's [`Quota`] of addresses, reserved and mapped.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use genie_io::carrier::Mirrored;
use genie_memory::{Extent, Extents, Known, Mapping, Mirror, Quota};
use genie_sys::{GranuleKind, Object};

use super::wire::control::{ArenaPlace, Ending, ObjectPlace, Reason};
use crate::primitive::RwLock;

/// How many arenas a client may have announced at once.
const ARENAS: usize = 128;

/// One client's memory.
#[derive(Debug)]
pub(super) struct Arenas {
    mapping: Mapping,
    quota: Quota,
    /// By number.
    mirrors: RwLock<Mirrors>,
    /// How often an arena came or went.
    changes: AtomicU64,
}

type Mirrors = Vec<Option<Mirror>>;

/// What a worker knows of a client's memory.
#[derive(Debug, Default)]
pub(super) struct ArenaView {
    changes: u64,
    mirrors: Vec<Option<(Mirror, Known)>>,
}

impl Arenas {
    /// The client's own arena, number 0.
    pub(super) fn new(own: Mirror, mapping: Mapping, quota: Quota) -> Self {
        Self { mapping, quota, mirrors: RwLock::new(vec![Some(own)]), changes: AtomicU64::new(1) }
    }

    /// Brings a worker's view up to date with the arenas that there are.
    pub(super) fn look(&self, view: &mut ArenaView) {
        let changes = self.changes.load(Ordering::Acquire);
        if view.changes != changes {
            let mirrors = self.mirrors.read();
            let known = |mirror: &Option<Mirror>| mirror.clone().map(|mirror| (mirror, Known::default()));
            view.mirrors = mirrors.iter().map(known).collect();
            view.changes = changes;
        }
    }

    /// The locations of data that the client has named, to be shown to another server.
    pub(super) fn locations(&self, named: &[(u16, Extent)]) -> Mirrored {
        let mirrors = self.mirrors.read();
        let mut locations = Mirrored::new();
        let mut last = None;
        for (number, extent) in named {
            match (locations.last_mut(), last == Some(*number)) {
                (Some((_, extents)), true) => extents.push(*extent),
                _ => {
                    // An arena that was withdrawn meanwhile holds no data any more.
                    let Ok(mirror) = find(&mirrors, *number) else { continue };
                    locations.push((mirror.clone(), Extents::from_iter([*extent])));
                    last = Some(*number);
                }
            }
        }
        locations
    }

    /// Enters an object that the client announced.
    pub(super) fn announce(&self, place: &ObjectPlace, descriptor: OwnedFd) -> Result<(), Ending> {
        let object = Object::accept(descriptor).map_err(|error| Ending::of(Reason::Object, &error.into()))?;
        if object.len() as u64 != place.len || (place.writable && !object.is_writable()) {
            let sentence = format!("an object of {} bytes is not as announced: {place:?}", object.len());
            return Err(Ending::new(Reason::Object, sentence));
        }
        let mirrors = self.mirrors.read();
        let mirror = find(&mirrors, place.arena).map_err(|wrong| Ending::new(Reason::Object, wrong))?;
        let announced = mirror.announce(place.id, place.start as usize, object);
        announced.map_err(|error| Ending::of(Reason::Object, &error))
    }

    /// How many objects there are; each is a descriptor, a mapping, or both.
    pub(super) fn objects_count(&self) -> usize {
        self.mirrors.read().iter().flatten().map(Mirror::objects_count).sum()
    }

    /// How many arenas there are.
    pub(super) fn count(&self) -> usize {
        self.mirrors.read().iter().flatten().count()
    }

    /// Forgets an object. `is_idle` says whether nothing is pending: only then are withdrawn objects unmapped, since no
    /// request uses them.
    pub(super) fn withdraw(&self, id: u64, is_idle: impl Fn() -> bool) -> Result<(), String> {
        let mirrors = self.mirrors.read();
        let mut was_there = false;
        for mirror in mirrors.iter().flatten() {
            was_there |= mirror.withdraw(id).map_err(|error| error.to_string())?;
            if is_idle() {
                mirror.sweep().map_err(|error| error.to_string())?;
            }
        }
        if was_there { Ok(()) } else { Err(format!("object {id}, withdrawn, was not announced")) }
    }

    /// Unmaps everything, which is mapped again as it is needed. To be called when nothing is pending.
    pub(super) fn clear(&self) -> Result<(), String> {
        self.mirrors.read().iter().flatten().try_for_each(Mirror::clear).map_err(|error| error.to_string())
    }

    /// Bytes that are mapped.
    pub(super) fn mapped(&self) -> usize {
        self.quota.mapped()
    }

    /// Enters another client's arena, of which the client forwards parts.
    pub(super) fn add(&self, place: &ArenaPlace, lifeline: OwnedFd) -> Result<(), Ending> {
        let mut mirrors = self.mirrors.write();
        let number = usize::from(place.number);
        let is_next = number == mirrors.len();
        if !is_next && mirrors.get(number).is_none_or(Option::is_some) {
            let sentence =
                format!("arena {number} was announced, and arena {} is the last", mirrors.len() - 1);
            return Err(Ending::new(Reason::Malformed, sentence));
        }
        if mirrors.iter().flatten().count() >= ARENAS {
            return Err(Ending::new(Reason::Exhausted, format!("more than {ARENAS} arenas were announced")));
        }
        let (base, len) = (place.base as usize, place.len as usize);
        let granules: GranuleKind = place.granule;
        let mirror = Mirror::new(base, len, granules, self.mapping, lifeline, &self.quota);
        let mirror = Some(mirror.map_err(|error| Ending::of(Reason::Malformed, &error))?);
        match mirrors.get_mut(number) {
            Some(vacant) => *vacant = mirror,
            None => mirrors.push(mirror),
        }
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Forgets an arena. It is unmapped when the last request in it is over and no worker's view has it any more. The
    /// client's own arena stays as long as the channel.
    pub(super) fn remove(&self, number: u16) -> Result<(), String> {
        let mut mirrors = self.mirrors.write();
        let found = mirrors.get_mut(usize::from(number)).filter(|_| number > 0).and_then(Option::take);
        self.changes.fetch_add(1, Ordering::Release);
        drop(mirrors);
        found.map(drop).ok_or_else(|| missing(number))
    }
}

fn find(mirrors: &Mirrors, number: u16) -> Result<&Mirror, String> {
    let mirror = mirrors.get(usize::from(number)).and_then(Option::as_ref);
    mirror.ok_or_else(|| missing(number))
}

impl ArenaView {
    pub(super) fn mirror(&mut self, number: u16) -> Result<(&Mirror, &mut Known), String> {
        let mirror = self.mirrors.get_mut(usize::from(number)).and_then(Option::as_mut);
        let (mirror, known) = mirror.ok_or_else(|| missing(number))?;
        Ok((mirror, known))
    }

    /// Whether the client has taken away memory that it had announced.
    pub(super) fn is_broken(&self) -> bool {
        self.mirrors.iter().flatten().any(|(mirror, _)| mirror.is_broken())
    }
}

fn missing(number: u16) -> String {
    format!("arena {number} was not announced")
}
