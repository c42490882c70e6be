//! Beginnings: from a request's elements to transfers under way.
//!
//! Invariants: of a request that fails or is refused nothing is under way afterwards, and what it owned is given back.

use genie_memory::{Direction, Migrant};
use genie_passing::{Parties, Passing, Reason, Receipt, Scheme, Source, Target};

use super::buffer::Kept;
use super::{Destinations, Transfer, Work, WorkElement};
use crate::element::{From, To};
use crate::location::LocatedTransfer;
use crate::reply::{ReplyBuffer, ReplyElement, Returned};
use crate::request::{Buffers, Elements, RequestBuffer};
use crate::{Error, Failed, Fragment, In, Out, ServerHandle, views};

/// By which means a request's elements are passed.
struct Way<'a> {
    passing: &'a Passing,
    parties: Parties,
}

impl Way<'_> {
    fn lent_by(&self, lender: Option<&ServerHandle>) -> Self {
        let lender = lender.map_or(self.parties.lender, ServerHandle::lender);
        Self { passing: self.passing, parties: Parties { lender, ..self.parties } }
    }
}

impl Work {
    /// Runs the request-time operations of all elements. On failure everything is undone, and what was given by value
    /// comes back.
    pub(crate) fn begin<'i>(
        mut work: Box<Self>,
        passing: &Passing,
        buffers: &mut Buffers<'_, 'i>,
        server: &ServerHandle,
    ) -> Result<(Box<Self>, Destinations<'i>), Failed> {
        let server = Way { passing, parties: Parties::by(server.lender()) };
        let mut destinations = Destinations::new();
        for buffer in buffers.iter_mut() {
            let direction = match buffer.elements {
                Elements::Out(..) => Direction::Out,
                Elements::In(..) => Direction::In,
            };
            work.add_buffer(direction, buffer.argument, buffer.room);
            // After a failure the remaining elements are only taken apart, so that what they own comes back, too.
            match &mut buffer.elements {
                Elements::Out(first, others) => {
                    first.take().into_iter().for_each(|element| work.add_out(&server, element));
                    others.drain(..).for_each(|element| work.add_out(&server, element));
                }
                Elements::In(first, others) => {
                    destinations.extend(first.take().and_then(|element| work.add_in(&server, element)));
                    destinations.extend(others.drain(..).filter_map(|element| work.add_in(&server, element)));
                }
            }
        }
        match work.error.take() {
            None => Ok((work, destinations)),
            Some(error) => {
                work.finish_outputs(false);
                let buffers = work.give_back().into_vec();
                work.end();
                Err(Failed { error, buffers })
            }
        }
    }

    /// Gives back what a request holds that is refused before any operation has run.
    pub(crate) fn refuse(buffers: &mut Buffers<'_, '_>, error: Error) -> Failed {
        let returned = |scheme, returned| ReplyElement { receipt: Receipt::new(scheme), returned };
        let out = |element: Out<'_>| match element.from {
            From::Borrowed(_) | From::Fragment(_) => returned(element.scheme, Returned::Nothing),
            From::Owned(buffer, _) => returned(element.scheme, Returned::Buffer(buffer)),
            From::Migrant(migrant) => returned(element.scheme, Returned::Migrant(migrant)),
        };
        let input = |element: In<'_>| match element.to {
            To::Borrowed(_) | To::Migrant(_) | To::Fragment(_) => returned(element.scheme, Returned::Nothing),
            To::Owned(buffer, _) => returned(element.scheme, Returned::Buffer(buffer)),
        };
        let buffer = |buffer: &mut RequestBuffer<'_, '_>| ReplyBuffer {
            elements: match &mut buffer.elements {
                Elements::Out(first, others) => {
                    first.take().into_iter().chain(others.drain(..)).map(out).collect()
                }
                Elements::In(first, others) => {
                    first.take().into_iter().chain(others.drain(..)).map(input).collect()
                }
            },
            ..ReplyBuffer::default()
        };
        Failed { error, buffers: buffers.iter_mut().map(buffer).collect() }
    }

    fn add(&mut self, scheme: Scheme, begun: Result<Transfer, Error>, kept: Kept) {
        let transfer = begun.unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            Transfer::None(scheme)
        });
        let buffer = self.buffers.last_mut().expect("an element is added to a buffer");
        buffer.elements.push(WorkElement { transfer, kept });
    }

    fn add_out(&mut self, way: &Way<'_>, element: Out<'_>) {
        let scheme = element.scheme;
        let way = &way.lent_by(element.lender.as_deref());
        match element.from {
            From::Borrowed(bytes) => {
                let transfer = self.begin_output(way, borrowable(scheme), Source::Native(bytes));
                self.add(scheme, transfer.map(|transfer| note_borrowed(scheme, transfer)), Kept::Nothing);
            }
            From::Owned(buffer, range) => {
                let transfer = self.begin_output(way, scheme, Source::Native(&buffer[range.clone()]));
                self.add(scheme, transfer, Kept::Buffer(buffer, range));
            }
            From::Migrant(migrant) => {
                if self.error.is_some() {
                    return self.add_returned(scheme, migrant);
                }
                match way.passing.output_from(scheme, Source::Migrant(migrant), way.parties) {
                    Ok(output) => self.add(scheme, Ok(Transfer::Out(output)), Kept::Nothing),
                    Err(refused) => {
                        self.error = Some(refused.error.into());
                        if let Some(migrant) = refused.migrant {
                            self.add_returned(scheme, migrant);
                        }
                    }
                }
            }
            From::Fragment(fragment) => self.add_fragment(scheme, *fragment),
        }
    }

    fn add_fragment(&mut self, scheme: Scheme, fragment: Fragment) {
        let located = LocatedTransfer::fragment(fragment, Receipt::new(scheme));
        self.add(scheme, Ok(Transfer::Located(located)), Kept::Nothing);
    }

    fn begin_output(&self, way: &Way<'_>, scheme: Scheme, source: Source<'_>) -> Result<Transfer, Error> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => match way.passing.output_from(scheme, source, way.parties) {
                Ok(output) => Ok(Transfer::Out(output)),
                Err(refused) => Err(refused.error.into()),
            },
        }
    }

    fn add_returned(&mut self, scheme: Scheme, migrant: Migrant) {
        self.add(scheme, Ok(Transfer::None(scheme)), Kept::Nothing);
        let elements = self.buffers.last_mut().map(|buffer| &mut buffer.elements);
        if let Some(element) = elements.and_then(|elements| elements.last_mut()) {
            element.kept = Kept::Migrant(migrant);
        }
    }

    fn add_in<'i>(&mut self, way: &Way<'_>, element: In<'i>) -> Option<&'i mut [u8]> {
        let scheme = element.scheme;
        let way = &way.lent_by(element.lender.as_deref());
        let begin = |work: &Self, scheme: Scheme, target: Target| match &work.error {
            Some(error) => Err(error.clone()),
            None => match views::begin_input(way.passing, scheme, target, way.parties) {
                Ok(input) => Ok(Transfer::In(input)),
                Err(error) => Err(error.into()),
            },
        };
        let native = |bytes: &[u8]| Target::Native { addr: bytes.as_ptr().addr(), len: bytes.len() };
        match element.to {
            To::Borrowed(bytes) => {
                let transfer = begin(self, borrowable(scheme), native(bytes));
                self.add(scheme, transfer.map(|transfer| note_borrowed(scheme, transfer)), Kept::Nothing);
                Some(bytes)
            }
            To::Owned(buffer, range) => {
                let transfer = begin(self, scheme, native(&buffer[range.clone()]));
                self.add(scheme, transfer, Kept::Buffer(buffer, range));
                None
            }
            To::Migrant(len) => {
                let transfer = begin(self, scheme, Target::Migrant { len });
                self.add(scheme, transfer, Kept::Nothing);
                None
            }
            To::Fragment(fragment) => {
                self.add_fragment(scheme, *fragment);
                None
            }
        }
    }
}

/// The scheme by which borrowed memory can be passed in place of `scheme`.
fn borrowable(scheme: Scheme) -> Scheme {
    match scheme {
        Scheme::Share | Scheme::EmulatedShare => Scheme::Copy,
        native => native,
    }
}

/// Says in the receipt that a share of borrowed memory became a copy.
fn note_borrowed(scheme: Scheme, mut transfer: Transfer) -> Transfer {
    if borrowable(scheme) != scheme {
        match &mut transfer {
            Transfer::Out(output) => output.note(scheme, Reason::Borrowed),
            Transfer::In(input) => input.note(scheme, Reason::Borrowed),
            Transfer::Passed(_) | Transfer::Located(_) | Transfer::None(_) => {}
        }
    }
    transfer
}
