//! Beginnings: from a request's elements to transfers under way.
//!
//! Invariants: after a request has failed or was refused, none of its transfers is under way, and what it owned is given
//! back.

use genie_memory::Direction;
use genie_passing::{Reason, Receipt, Scheme};

use smallvec::SmallVec;

use super::element::Kept;
use super::{Borrowings, Carried, Destinations, Transfer, Work, WorkElement};
use crate::carrier::Carries;
use crate::request::element::{Element, Memory, Moved};
use crate::request::plan::{Elements, List};
use crate::work::located::Located;
use crate::{Error, Failed, Fragment, Interface, Plan, ServerHandle, telemetry};

use way::{Begin, Way, borrowed_by, is_share, place};

mod way;

impl Work {
    /// Runs the request-time operations of all elements. On failure everything is undone, and what was given by value
    /// comes back. `borrowings` is given if borrowed outputs stay borrowed until they end, or until their borrows are ended:
    /// those are added that are passed in place.
    pub(crate) fn begin<'i>(
        mut work: Box<Self>,
        interface: &Interface,
        server: &ServerHandle,
        plan: &mut Plan<'_, 'i>,
        borrowings: Option<&mut Borrowings>,
    ) -> Result<(Box<Self>, Destinations<'i>), Failed> {
        work.arguments.begin(plan.argument, plan.room);
        let destinations = work.add_all(interface, server, plan, borrowings);
        match work.error.take() {
            None => Ok((work, destinations)),
            Some(error) => Err(work.undo(error)),
        }
    }

    /// Gives back what a request holds when it is refused before any operation has run.
    pub(crate) fn refuse(
        interface: &Interface,
        server: &ServerHandle,
        plan: &mut Plan<'_, '_>,
        error: Error,
    ) -> Failed {
        let mut work = Self::new();
        work.error = Some(error.clone());
        work.add_all(interface, server, plan, None);
        work.error = None;
        work.undo(error)
    }

    fn undo(mut self: Box<Self>, error: Error) -> Failed {
        telemetry::failed(&error);
        self.finish_outputs(false);
        let mut buffers = SmallVec::new();
        self.give_back(&mut buffers);
        let buffers = buffers.into_vec();
        self.end();
        Failed { error, buffers, kept: false }
    }

    /// Takes all elements, and begins their transfers until one fails. After that elements are only taken apart, so that what
    /// they own comes back, too.
    fn add_all<'i>(
        &mut self,
        interface: &Interface,
        server: &ServerHandle,
        plan: &mut Plan<'_, 'i>,
        mut borrowings: Option<&mut Borrowings>,
    ) -> Destinations<'i> {
        let mut destinations = Destinations::new();
        let count = plan.buffers.count();
        if count == 0 {
            return destinations;
        }
        let (passing, parties) = (interface.passing(), server.parties());
        let default = interface.scheme();
        let carries = match server.carrier() {
            Some(carrier) => carrier.carries(plan.room, count),
            None => Carries::NOTHING,
        };
        let way = Way { passing, parties, is_held: borrowings.is_some(), default, carries };
        plan.buffers.take_each(|buffer| match buffer {
            Elements::Out(List::One(element)) if self.add_short(&way, element) => element.lender.is_none(),
            Elements::In(List::One(element)) if self.add_short(&way, element) => {
                if let Memory::Borrowed(bytes) = &mut element.memory {
                    destinations.push(std::mem::take(bytes));
                }
                element.lender.is_none()
            }
            Elements::Out(elements) => {
                self.add_whole(&way, elements, |bytes: &[u8], is_in_place| {
                    let borrowings = borrowings.as_deref_mut().filter(|_| is_in_place);
                    borrowings.into_iter().for_each(|of| of.outputs.push(place(bytes)));
                });
                false
            }
            Elements::In(elements) => {
                self.add_whole(&way, elements, |bytes: &'i mut [u8], is_in_place| {
                    let borrowings = borrowings.as_deref_mut().filter(|_| is_in_place);
                    borrowings.into_iter().for_each(|of| of.inputs.push(place(bytes)));
                    destinations.push(bytes);
                });
                false
            }
        });
        destinations
    }

    /// Adds a buffer that is not short. Calls `borrow` with the memory that it borrows, and whether that is passed in place.
    #[inline(never)]
    fn add_whole<B: Begin<Migrant = M>, M: Moved>(
        &mut self,
        way: &Way<'_>,
        elements: &mut List<Element<B, M>>,
        mut borrow: impl FnMut(B, bool),
    ) {
        self.add_buffer(B::DIRECTION);
        elements.take_each(|element| {
            let is_lasting = matches!(element.memory, Memory::Lasting(_));
            if let Some(bytes) = self.begin_element(way, element) {
                borrow(bytes, !is_lasting && self.is_last_in_place());
            }
        });
    }

    /// Adds a short buffer of a buffer's only element, if its data is borrowed and carried. Returns whether it did.
    #[inline(never)]
    fn add_short<B: Begin>(&mut self, way: &Way<'_>, element: &Element<B, B::Migrant>) -> bool {
        let Element { scheme, is_by_default, memory: Memory::Borrowed(bytes), .. } = element else {
            return false;
        };
        if !self.takes_short() || self.error.is_some() {
            return false;
        }
        let scheme = if *is_by_default { way.default } else { *scheme };
        let by = borrowed_by::<B>(way, scheme, *is_by_default, bytes);
        match self.carried::<B>(way, (scheme, by), bytes, false) {
            Some(carried) => {
                self.shorts.push(carried);
                true
            }
            None => false,
        }
    }

    /// Whether the element added last passes the client's memory in place.
    #[inline]
    fn is_last_in_place(&self) -> bool {
        if !self.has_wrapped {
            return false;
        }
        let last = self.buffers.last().and_then(|buffer| buffer.elements.last());
        last.is_some_and(|element| match &element.transfer {
            Transfer::Out(output) => output.receipt().held,
            Transfer::In(input) => is_share(input.receipt().effective),
            Transfer::Forwarded(_) | Transfer::Located(_) | Transfer::Carried(_) | Transfer::None(_) => false,
        })
    }

    /// Adds an element to the last buffer; returns the memory that it borrows.
    #[inline]
    fn begin_element<B: Begin<Migrant = M>, M: Moved>(
        &mut self,
        way: &Way<'_>,
        element: Element<B, M>,
    ) -> Option<B> {
        let Element { scheme, is_by_default, lender, memory } = element;
        let scheme = if is_by_default { way.default } else { scheme };
        let lender = lender.as_deref();
        match memory {
            Memory::Borrowed(bytes) => {
                let by = borrowed_by::<B>(way, scheme, is_by_default, &bytes);
                if !self.carry::<B>(way, (scheme, by), &bytes, false) {
                    self.begin_native::<B>(way, lender, (scheme, by), &bytes, false);
                }
                Some(bytes)
            }
            Memory::Lasting(bytes) => {
                let by = (scheme, None);
                if !self.carry::<B>(way, (scheme, by), &bytes, true) {
                    self.begin_native::<B>(way, lender, (scheme, by), &bytes, true);
                }
                Some(bytes)
            }
            memory => {
                self.begin_given::<B, M>(way, lender, scheme, memory);
                None
            }
        }
    }

    /// As `begin_element`, for memory that is not borrowed.
    #[inline(never)]
    fn begin_given<B: Begin<Migrant = M>, M: Moved>(
        &mut self,
        way: &Way<'_>,
        lender: Option<&ServerHandle>,
        scheme: Scheme,
        memory: Memory<B, M>,
    ) {
        match memory {
            Memory::Owned(buffer, range) => {
                let by = (scheme, (scheme, None));
                if !self.carry::<B>(way, by, &buffer[range.clone()], true) {
                    self.begin_native::<B>(way, lender, by, &buffer[range.clone()], true);
                }
                self.last_element().kept = Kept::Buffer(buffer, range);
            }
            Memory::Migrant(migrant) if self.error.is_some() => {
                self.add(scheme, Ok(Transfer::None(scheme)), B::keep(migrant));
            }
            Memory::Migrant(migrant) => {
                let (begun, kept) = B::begin_migrant(&way.lent_by(lender), scheme, migrant);
                self.add(scheme, begun, kept);
            }
            Memory::Fragment(fragment) => {
                let Fragment { contract, locations, len, .. } = *fragment;
                let located = Located::fragment(contract, locations, len, Receipt::new(scheme));
                self.add(scheme, Ok(Transfer::Located(located)), Kept::Nothing);
            }
            Memory::Borrowed(_) | Memory::Lasting(_) => unreachable!("begun as what is borrowed"),
        }
    }

    /// Adds a transfer of native memory for `asked`, by the scheme and for the reason in `by`; none after a failure.
    #[inline(never)]
    fn begin_native<B: Begin>(
        &mut self,
        way: &Way<'_>,
        lender: Option<&ServerHandle>,
        (asked, (by, reason)): (Scheme, (Scheme, Option<Reason>)),
        bytes: &[u8],
        is_owned: bool,
    ) {
        let begun = match self.error.is_some() {
            true => Ok(Transfer::None(asked)),
            false => {
                let begun = B::begin_native(&way.lent_by(lender), by, bytes, is_owned);
                begun.map(|transfer| note(asked, reason, transfer))
            }
        };
        self.add(asked, begun, Kept::Nothing);
    }

    /// Has the records carry the data, if that is how it is passed: for `asked`, by the scheme and for the reason in `by`. Returns
    /// whether they do.
    #[inline]
    fn carry<B: Begin>(
        &mut self,
        way: &Way<'_>,
        by: (Scheme, (Scheme, Option<Reason>)),
        bytes: &[u8],
        is_owned: bool,
    ) -> bool {
        if self.error.is_some() {
            return false;
        }
        let Some(carried) = self.carried::<B>(way, by, bytes, is_owned) else { return false };
        self.add_element(WorkElement { transfer: Transfer::Carried(carried), kept: Kept::Nothing });
        true
    }

    /// As [`Work::carry`], without adding an element.
    #[inline(always)]
    fn carried<B: Begin>(
        &mut self,
        way: &Way<'_>,
        (asked, (by, reason)): (Scheme, (Scheme, Option<Reason>)),
        bytes: &[u8],
        is_owned: bool,
    ) -> Option<Carried> {
        let mut carried = B::carry(way, &mut self.store, by, bytes, is_owned)?;
        if let Some(reason) = reason {
            carried.note(asked, reason);
        }
        let space = way.passing.space();
        if B::DIRECTION == Direction::Out
            && space.has_losses()
            && let Err(lost) = space.ensure_kept(bytes.as_ptr().addr(), bytes.len())
        {
            // Where a server has taken memory away, what was copied is zeros, and no data.
            self.error = Some(genie_passing::Error::from(lost).into());
        }
        Some(carried)
    }

    fn last_element(&mut self) -> &mut WorkElement {
        let last = self.buffers.last_mut().and_then(|buffer| buffer.elements.last_mut());
        last.expect("an element has just been added")
    }

    #[inline]
    fn add(&mut self, scheme: Scheme, begun: Result<Transfer, Error>, kept: Kept) {
        let transfer = begun.unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            Transfer::None(scheme)
        });
        self.add_element(WorkElement { transfer, kept });
    }
}

/// Says in the receipt why borrowed memory was not passed by `scheme`, if there is a reason.
#[inline]
fn note(scheme: Scheme, reason: Option<Reason>, mut transfer: Transfer) -> Transfer {
    match (&mut transfer, reason) {
        (Transfer::Out(output), Some(reason)) => output.note(scheme, reason),
        (Transfer::In(input), Some(reason)) => input.note(scheme, reason),
        _ => {}
    }
    transfer
}
