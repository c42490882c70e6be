//! Shown copies: what a server in another process works on where it may not be shown the data's own memory.
//!
//! Why: a contractor's client was promised that data passed by copy shows a server nothing but that server's pool, and so
//! with data below `ConnectOptions::shown_from`. The data may lie in memory of the client's space that holds other things,
//! or in another server's pool.
//! How: for each location that it may not be shown, the subcontractor gets a buffer of its own pool. Output is copied there with
//! the request; of an input, what the subcontractor has passed is copied back when its reply is taken. Other locations of the
//! same fragment are named as they are. Inputs that are forwarded whole, before they are ready,
//! are made in the subcontractor's pool at once (`forwarded.rs`), and are not copied for this unless somebody else works on
//! them later.
//! Source: thesis §5.1 (zero completion), §7.5. Differs: a descriptor grants access to a whole object, so other data in it
//! cannot be zeroed.

use genie_memory::{Direction, Segments, Space, SystemBuffer};
use genie_passing::{Parties, Reason, Scheme};
use smallvec::SmallVec;

use super::Located;
use crate::Error;
use crate::work::location::Location;

/// The copies of the locations of one transfer that are not shown, in order, each with the number of its location.
pub(super) type ShownCopies = SmallVec<[(usize, Box<SystemBuffer>); 1]>;

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

impl Located {
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
        if viewer.is_silent || self.len == 0 || !self.shown.is_empty() {
            return Ok(());
        }
        for index in 0..self.fragment_locations().len() {
            let location = &self.fragment_locations()[index];
            if location.len() > 0 && !self.may_be_seen(location, viewer, direction, is_own) {
                let copy = self.copied(index, viewer, direction)?;
                self.shown.push((index, Box::new(copy)));
            }
        }
        Ok(())
    }

    /// The copy of one location that the server is shown.
    fn copied(
        &mut self,
        index: usize,
        viewer: &Viewer<'_>,
        direction: Direction,
    ) -> Result<SystemBuffer, Error> {
        let location = &self.fragment_locations()[index];
        let (buffer, is_carried) = (viewer.buffer(location.len())?, matches!(location, Location::Carried(_)));
        match direction {
            Direction::Out => {
                self.receipt.copied += buffer.data().copy_data(&self.data_at(index));
                self.receipt.reason = Some(Reason::Unshown);
                buffer.ensure_kept()?;
            }
            // The pool's memory may hold data of other clients of this process: what the server does not fill is to be nobody's.
            Direction::In if is_carried => {
                buffer.data().fill(0);
            }
            Direction::In => {}
        }
        Ok(buffer)
    }

    /// Whether the server may work on the data at `location` itself. `is_own` says whether a forwarded input's memory was made for
    /// this server alone.
    fn may_be_seen(
        &self,
        location: &Location,
        viewer: &Viewer<'_>,
        direction: Direction,
        is_own: bool,
    ) -> bool {
        let in_place = direction == Direction::In || self.len >= viewer.parties.shown_from;
        match location {
            // A migrant buffer's memory is the client's from the start.
            Location::Forwarded(input) => {
                let is_move = input.receipt().is_some_and(|receipt| receipt.effective == Scheme::Move);
                is_own && is_move || viewer.may_see(&Location::Here(self.segments()), in_place)
            }
            location => viewer.may_see(location, in_place),
        }
    }

    /// What the server in another process works on in place of location `index`: a copy, or the memory that a forwarded input
    /// had when this was sent; none if that is where the location says.
    pub(crate) fn shown(&self, index: usize) -> Option<Segments> {
        let copy = self.shown.iter().find(|(copied, _)| *copied == index);
        copy.map(|(_, copy)| copy.segments()).or_else(|| self.forwarded().map(|_| self.segments()))
    }

    /// Brings the first `actual` bytes of an input from the copies that the server has filled.
    ///
    /// # Errors
    /// The server has taken a copy's memory away: what was read there is no data.
    pub(super) fn bring_shown(&mut self, actual: usize) -> Result<(), Error> {
        for (index, buffer) in std::mem::take(&mut self.shown) {
            let before: usize = self.fragment_locations()[..index].iter().map(Location::len).sum();
            let here = actual.saturating_sub(before).min(buffer.len());
            let copy = buffer.data().into_data();
            self.receipt.copied += self.data_mut_at(index).part(0..here).copy_data(&copy.part(0..here));
            self.receipt.reason = Some(Reason::Unshown);
            buffer.ensure_kept()?;
        }
        Ok(())
    }
}
