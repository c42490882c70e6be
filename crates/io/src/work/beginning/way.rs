//! Ways: by which means a request's elements are passed, and how the transfers of either direction begin.

use genie_memory::{LenderId, Migrant};
use genie_passing::{Hold, Parties, Passing, Reason, Scheme, Source, Target};

use crate::carrier::Carries;
use crate::request::element::{Borrowed, Moved};
use crate::work::carried::{Carried, Store};
use crate::work::element::{Kept, Transfer};
use crate::{Error, ServerHandle, views};

/// By which means a request's elements are passed.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) passing: &'a Passing,
    pub(super) parties: Parties,
    /// The request's borrows last until its outputs end, or are ended one by one.
    pub(super) is_held: bool,
    /// The interface's default scheme.
    pub(super) default: Scheme,
    pub(super) carries: Carries,
}

impl Way<'_> {
    /// A server in another process is shown whole objects, and so sees no other server's pool: its own pool lends.
    #[inline]
    pub(super) fn lent_by(&self, lender: Option<&ServerHandle>) -> Self {
        match lender {
            Some(lender) if self.parties.server == LenderId::OWN => {
                let lender = lender.parties().lender;
                Self { parties: Parties { lender, ..self.parties }, ..*self }
            }
            _ => *self,
        }
    }

    /// What keeps stores away from native memory that is borrowed, or owned.
    #[inline]
    fn hold(&self, is_owned: bool) -> Hold {
        match (is_owned, self.is_held) {
            (true, _) => Hold::Owner,
            (false, true) => Hold::Borrow,
            (false, false) => Hold::None,
        }
    }

    #[inline]
    fn output(&self, scheme: Scheme, source: Source<'_>) -> (Result<Transfer, Error>, Kept) {
        match self.passing.output_from(scheme, source, self.parties) {
            Ok(output) => (Ok(Transfer::Out(output)), Kept::Nothing),
            Err(refused) => (Err(refused.error.into()), refused.migrant.map_or(Kept::Nothing, Kept::Migrant)),
        }
    }

    fn input(&self, scheme: Scheme, target: Target) -> Result<Transfer, Error> {
        Ok(Transfer::In(views::begin_input(self.passing, scheme, target, self.parties)?))
    }
}

/// How transfers of one direction begin.
pub(super) trait Begin: Borrowed {
    type Migrant: Moved;

    /// By which scheme borrowed memory is passed, and why not by `scheme`.
    fn borrowed_by(way: &Way<'_>, scheme: Scheme, bytes: &[u8]) -> (Scheme, Option<Reason>);

    /// Has the records carry the data, if that is how it is passed and there is room.
    fn carry(
        way: &Way<'_>,
        store: &mut Store,
        scheme: Scheme,
        bytes: &[u8],
        is_owned: bool,
    ) -> Option<Carried>;

    /// Begins with borrowed memory, or with memory that the work owns until the transfer ends.
    fn begin_native(way: &Way<'_>, scheme: Scheme, bytes: &[u8], is_owned: bool) -> Result<Transfer, Error>;

    /// After a failure the migrant buffer comes back.
    fn begin_migrant(
        way: &Way<'_>,
        scheme: Scheme,
        migrant: Self::Migrant,
    ) -> (Result<Transfer, Error>, Kept);

    /// What is given back of a migrant buffer that is not passed.
    fn keep(migrant: Self::Migrant) -> Kept;
}

impl Begin for &[u8] {
    type Migrant = Migrant;

    fn borrowed_by(way: &Way<'_>, scheme: Scheme, _: &[u8]) -> (Scheme, Option<Reason>) {
        match is_share(scheme) && !way.is_held {
            true => (Scheme::Copy, Some(Reason::Borrowed)),
            false => (scheme, None),
        }
    }

    #[inline(always)]
    fn carry(
        way: &Way<'_>,
        store: &mut Store,
        scheme: Scheme,
        bytes: &[u8],
        is_owned: bool,
    ) -> Option<Carried> {
        if !way.carries.outputs {
            return None;
        }
        let at = place(bytes);
        let passed = way.passing.carry_output(scheme, at, way.hold(is_owned), way.parties)?;
        Carried::output(store, passed, bytes)
    }

    #[inline]
    fn begin_native(way: &Way<'_>, scheme: Scheme, bytes: &[u8], is_owned: bool) -> Result<Transfer, Error> {
        let source = match way.hold(is_owned) {
            Hold::None => Source::Native(bytes),
            Hold::Borrow => Source::Borrowed(bytes),
            Hold::Owner => Source::Owned(bytes),
        };
        way.output(scheme, source).0
    }

    fn begin_migrant(way: &Way<'_>, scheme: Scheme, migrant: Migrant) -> (Result<Transfer, Error>, Kept) {
        way.output(scheme, Source::Migrant(migrant))
    }

    fn keep(migrant: Migrant) -> Kept {
        Kept::Migrant(migrant)
    }
}

impl Begin for &mut [u8] {
    type Migrant = usize;

    fn borrowed_by(way: &Way<'_>, scheme: Scheme, bytes: &[u8]) -> (Scheme, Option<Reason>) {
        match (is_share(scheme), way.is_held) {
            (true, false) => (Scheme::Copy, Some(Reason::Borrowed)),
            // At the end of the borrow whole granules may have to be replaced.
            (true, true) if !way.passing.space().is_alone(bytes.as_ptr().addr(), bytes.len()) => {
                (Scheme::EmulatedCopy, Some(Reason::Neighbours))
            }
            _ => (scheme, None),
        }
    }

    #[inline(always)]
    fn carry(
        way: &Way<'_>,
        store: &mut Store,
        scheme: Scheme,
        bytes: &[u8],
        is_owned: bool,
    ) -> Option<Carried> {
        if way.carries.inputs == 0 {
            return None;
        }
        let is_borrowed = way.hold(is_owned) == Hold::Borrow;
        let passed = way.passing.carry_input(scheme, place(bytes), is_borrowed, way.parties);
        Carried::input(store, passed?, bytes.len(), way.carries.inputs)
    }

    fn begin_native(way: &Way<'_>, scheme: Scheme, bytes: &[u8], _: bool) -> Result<Transfer, Error> {
        way.input(scheme, Target::Native { addr: bytes.as_ptr().addr(), len: bytes.len() })
    }

    fn begin_migrant(way: &Way<'_>, scheme: Scheme, len: usize) -> (Result<Transfer, Error>, Kept) {
        (way.input(scheme, Target::Migrant { len }), Kept::Nothing)
    }

    fn keep(_len: usize) -> Kept {
        Kept::Nothing
    }
}

/// By which scheme borrowed memory is passed, and why not by `scheme`.
#[inline]
pub(super) fn borrowed_by<B: Begin>(
    way: &Way<'_>,
    scheme: Scheme,
    is_by_default: bool,
    bytes: &[u8],
) -> (Scheme, Option<Reason>) {
    match B::borrowed_by(way, scheme, bytes) {
        // A program that names no scheme loses nothing by a default that cannot be had here (§13.1).
        (Scheme::Copy, Some(Reason::Borrowed)) if is_by_default => {
            (Scheme::EmulatedCopy, Some(Reason::Borrowed))
        }
        by => by,
    }
}

/// Where bytes are, and how many.
pub(super) fn place(bytes: &[u8]) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}

/// Whether the scheme lets a server work in the client's own memory.
pub(super) fn is_share(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Share | Scheme::EmulatedShare)
}
