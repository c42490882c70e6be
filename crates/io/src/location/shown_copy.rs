//! Shown copies: what a server in another process works on where it may not be shown the data's own memory.
//!
//! Why: a contractor's client was promised that data passed by copy shows a server nothing but that server's pool, and so
//! with data below `ConnectOptions::shown_from`. The data may lie in memory of the client's space that holds other things,
//! or in another server's pool.
//! How: the subcontractor gets a buffer of its own pool. Output is copied there with the request; of an input, what the
//! subcontractor has passed is copied back when its reply is taken. Inputs that are forwarded whole, before they are ready,
//! are made in the subcontractor's pool at once (`forwarded.rs`), and are not copied for this unless somebody else works on
//! them later.
//! Source: thesis §5.1 (zero completion), §7.5. Differs: a descriptor grants access to a whole object, so other data in it
//! cannot be zeroed.

use genie_memory::{Direction, Segments, Space, SystemBuffer};
use genie_passing::{Parties, Reason, Scheme};

use super::{LocatedTransfer, Location};
use crate::Error;

/// The server of another process that data is forwarded to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Viewer<'a> {
    /// The space whose memory can be named to the server.
    pub(crate) space: &'a Space,
    pub(crate) parties: Parties,
    /// Whether nothing is announced to the server: the kernel copies.
    pub(crate) is_silent: bool,
}

impl Viewer<'_> {
    /// Whether the data at `location` may be named to the server; memory of the client's own only if `in_place`.
    fn may_see(&self, location: &Location, in_place: bool) -> bool {
        // What cannot be named to the server is refused when the request is encoded.
        let is_shown =
            |span| !self.space.is_alias(span) || self.space.may_show(span, self.parties.lender, in_place);
        match location {
            Location::Here(spans) => spans.iter().copied().all(is_shown),
            // `show_to` looks at the memory that this transfer was given.
            Location::Forwarded(_) | Location::Carried(_) => false,
            // The contractor's own client has announced these objects to the contractor.
            Location::There(..) => true,
        }
    }

    fn buffer(&self, len: usize) -> Result<SystemBuffer, Error> {
        let (space, lender) = (self.space, self.parties.lender);
        let allocate = || space.system_buffer_shown(lender, lender, len);
        Ok(space.for_len(len).with_stand_ins(lender, allocate)?)
    }
}

impl LocatedTransfer {
    /// Makes ready what the server in another process will be shown.
    pub(crate) fn show_to(&mut self, viewer: &Viewer<'_>, direction: Direction) -> Result<(), Error> {
        let mut is_own = false;
        if direction == Direction::In {
            if let Some(input) = self.forwarded()
                && self.segments.is_empty()
            {
                (self.segments, is_own) = input.ready_for(viewer.parties)?;
            }
            self.ready()?;
        }
        if viewer.is_silent
            || self.len == 0
            || self.shown.is_some()
            || self.may_be_seen(viewer, direction, is_own)
        {
            return Ok(());
        }
        let buffer = viewer.buffer(self.len)?;
        self.map(direction == Direction::In)?;
        match direction {
            Direction::Out => {
                self.receipt.copied += buffer.data().copy_data(&self.data());
                self.receipt.reason = Some(Reason::Unshown);
                buffer.ensure_kept()?;
            }
            // The pool's memory may hold data of other clients of this process: what the server does not fill is to be nobody's.
            Direction::In if self.is_of_carried() => drop(buffer.data().fill(0)),
            Direction::In => {}
        }
        self.shown = Some(Box::new(buffer));
        Ok(())
    }

    /// Whether the server may work on the data itself. `is_own` says whether its memory was made for this server alone.
    fn may_be_seen(&self, viewer: &Viewer<'_>, direction: Direction, is_own: bool) -> bool {
        let in_place = direction == Direction::In || self.len >= viewer.parties.shown_from;
        match self.forwarded() {
            // A migrant buffer's memory is the client's from the start.
            Some(input) => {
                let is_move = input.receipt().is_some_and(|receipt| receipt.effective == Scheme::Move);
                is_own && is_move || viewer.may_see(&Location::Here(self.segments()), in_place)
            }
            None => self.fragment_locations().iter().all(|location| viewer.may_see(location, in_place)),
        }
    }

    fn is_of_carried(&self) -> bool {
        self.fragment_locations().iter().any(|location| matches!(location, Location::Carried(_)))
    }

    /// What the server in another process works on: a copy, or the memory that a forwarded input had when this was sent; none if
    /// that is where the fragment's locations say.
    pub(crate) fn shown(&self) -> Option<Segments> {
        let copy = self.shown.as_deref().map(SystemBuffer::segments);
        copy.or_else(|| self.forwarded().map(|_| self.segments()))
    }

    /// Brings the first `actual` bytes of an input from the copy that the server has filled.
    ///
    /// # Errors
    /// The server has taken the copy's memory away: what was read there is no data.
    pub(super) fn bring_shown(&mut self, actual: usize) -> Result<(), Error> {
        if let Some(buffer) = self.shown.take() {
            let all = self.data_mut();
            let actual = actual.min(all.len());
            self.receipt.copied += all.part(0..actual).copy_data(&buffer.data().into_data());
            self.receipt.reason = Some(Reason::Unshown);
            buffer.ensure_kept()?;
        }
        Ok(())
    }
}
