//! Work: a request's buffers under way, in the hands of the server, the reply or the client, one after the other.
//!
//! How: its memory changes hands, and stays with the thread that was the last to have it, for that thread's next request.

mod buffer;

use std::sync::Arc;

use genie_memory::{Direction, LenderId};
use genie_passing::{Lending, Passing, Reason, Receipt, Scheme, Source, Spare, Target};
use smallvec::SmallVec;

use crate::element::{From, To};
use crate::exchange::Exchange;
use crate::incoming::Access;
use crate::lent::LentTransfer;
use crate::limits::{Admission, Pendings};
use crate::reply::{ReplyBuffer, ReplyElement, Returned};
use crate::request::{Buffers, Elements, RequestBuffer};
use crate::{Error, Failed, Fragment, In, Out, ServerHandle};

use buffer::Kept;
pub(crate) use buffer::{Transfer, WorkBuffer, WorkElement};

/// All of a request's buffers, and its share of the limits.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) buffers: SmallVec<[WorkBuffer; 1]>,
    pub(crate) error: Option<Error>,
    /// None of a request that was admitted in another process.
    admission: Option<Admission>,
}

/// Memory for more buffers than these is not kept.
const MOST_KEPT: usize = 8;

thread_local! {
    /// Work that is over, with nothing in it, for this thread's next request.
    static SPARE: Spare<Box<Work>> = const { Spare::none() };
}

/// By which means a request's elements are passed.
struct Way<'a> {
    passing: &'a Passing,
    lending: Lending,
}

impl Way<'_> {
    fn lent_by(&self, lender: Option<LenderId>) -> Self {
        let lender = lender.unwrap_or(self.lending.lender);
        Self { passing: self.passing, lending: Lending { lender, ..self.lending } }
    }
}

/// Client memory that inputs deliver to, in the order of the borrowed elements.
pub(crate) type Destinations<'i> = SmallVec<[&'i mut [u8]; 1]>;

impl Work {
    /// The work of a request without buffers yet.
    #[inline]
    fn new() -> Box<Self> {
        Spare::take(&SPARE)
            .unwrap_or_else(|| Box::new(Self { buffers: SmallVec::new(), error: None, admission: None }))
    }

    /// The work of a request that `admit` admits, or says why not.
    #[inline]
    pub(crate) fn admitted(
        pendings: &Arc<Pendings>,
        admit: impl FnOnce(&mut Admission) -> Result<(), Error>,
    ) -> Result<Box<Self>, Error> {
        let mut work = Self::new();
        let admission = match &mut work.admission {
            Some(admission) if admission.is_of(pendings) => admission,
            other => other.insert(Admission::new(pendings)),
        };
        let admitted = admit(admission);
        match admitted {
            Ok(()) => Ok(work),
            Err(error) => {
                work.end();
                Err(error)
            }
        }
    }

    /// Ends the work: whatever is still in it is let go. Its memory is kept.
    #[inline]
    pub(crate) fn end(mut self: Box<Self>) {
        self.buffers.iter_mut().flat_map(|buffer| &mut buffer.elements).for_each(WorkElement::end);
        self.buffers.clear();
        self.error = None;
        if let Some(admission) = &mut self.admission {
            admission.end();
        }
        if self.buffers.capacity() > MOST_KEPT {
            // A peer could have had this thread hold as much as it likes.
            return;
        }
        Spare::keep(&SPARE, self);
    }

    /// Runs the request-time operations of all elements. On failure everything is undone, and what was given by value
    /// comes back.
    pub(crate) fn begin<'i>(
        mut work: Box<Self>,
        passing: &Passing,
        buffers: &mut Buffers<'_, 'i>,
        server: &ServerHandle,
    ) -> Result<(Box<Self>, Destinations<'i>), Failed> {
        let server = Way { passing, lending: Lending::by(server.lender()) };
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

    /// The work of a request that came from another process, without buffers.
    pub(crate) fn received() -> Box<Self> {
        Self::new()
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

    /// Adds a buffer without elements.
    #[inline]
    pub(crate) fn add_buffer(&mut self, direction: Direction, argument: &[u8], room: usize) {
        self.buffers.push(WorkBuffer::new(direction, room));
        if let (false, Some(last)) = (argument.is_empty(), self.buffers.last_mut()) {
            last.argument.extend_from_slice(argument);
        }
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
        let way = &way.lent_by(element.lender);
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
                match way.passing.output_from(scheme, Source::Migrant(migrant), way.lending) {
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
        let lent = LentTransfer::fragment(fragment, Receipt::new(scheme));
        self.add(scheme, Ok(Transfer::Lent(lent)), Kept::Nothing);
    }

    fn begin_output(&self, way: &Way<'_>, scheme: Scheme, source: Source<'_>) -> Result<Transfer, Error> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => match way.passing.output_from(scheme, source, way.lending) {
                Ok(output) => Ok(Transfer::Out(output)),
                Err(refused) => Err(refused.error.into()),
            },
        }
    }

    fn add_returned(&mut self, scheme: Scheme, migrant: genie_memory::Migrant) {
        self.add(scheme, Ok(Transfer::None(scheme)), Kept::Nothing);
        let elements = self.buffers.last_mut().map(|buffer| &mut buffer.elements);
        if let Some(element) = elements.and_then(|elements| elements.last_mut()) {
            element.kept = Kept::Migrant(migrant);
        }
    }

    fn add_in<'i>(&mut self, way: &Way<'_>, element: In<'i>) -> Option<&'i mut [u8]> {
        let scheme = element.scheme;
        let way = &way.lent_by(element.lender);
        let begin = |work: &Self, scheme: Scheme, target: Target| match &work.error {
            Some(error) => Err(error.clone()),
            None => match way.passing.input_from(scheme, target, way.lending) {
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

    /// Links the request to those of which parts are passed on in it, unless one of those is being aborted.
    pub(crate) fn originate(&self, exchange: &Arc<Exchange>, server: &ServerHandle) -> Result<(), Error> {
        for element in self.buffers.iter().flat_map(|buffer| &buffer.elements) {
            if let Transfer::Lent(lent) = &element.transfer {
                lent.originate(exchange, server)?;
            }
        }
        Ok(())
    }

    /// Maps what was lent by other processes, as far as the service may touch it.
    pub(crate) fn map_lent(&mut self, access: Access) -> Result<(), Error> {
        for buffer in &mut self.buffers {
            let (is_touched, writes) = match buffer.direction {
                Direction::Out => (access.reads, false),
                Direction::In => (access.writes, true),
            };
            for element in buffer.elements.iter_mut().filter(|_| is_touched) {
                if let Transfer::Lent(lent) = &mut element.transfer {
                    lent.map(writes)?;
                }
            }
        }
        Ok(())
    }

    /// Runs the reply-time operations of all outputs.
    pub(crate) fn finish_outputs(&mut self, succeeded: bool) {
        for element in self.buffers.iter_mut().flat_map(|buffer| &mut buffer.elements) {
            if let Err(error) = element.finish_output(succeeded) {
                self.error.get_or_insert(error);
            }
        }
    }

    /// Runs the reply-time operations of all inputs, delivering to `destinations`: all or, where one lacks room, none.
    pub(crate) fn finish_inputs(&mut self, destinations: Destinations<'_>) -> Result<(), Error> {
        self.check_inputs(&destinations)?;
        let mut destinations = destinations.into_iter();
        for buffer in &mut self.buffers {
            if buffer.direction == Direction::Out {
                continue;
            }
            let mut left = buffer.actual;
            for element in &mut buffer.elements {
                let here = element.len().min(left);
                left -= here;
                let bytes = if element.is_borrowed_input() { destinations.next() } else { None };
                element.finish_input(here, bytes)?;
            }
        }
        Ok(())
    }

    /// Whether all inputs can be delivered: the server had memory for them, and the client has.
    pub(crate) fn check_inputs(&self, destinations: &[&mut [u8]]) -> Result<(), Error> {
        let mut destinations = destinations.iter();
        for buffer in self.buffers.iter().filter(|buffer| buffer.direction == Direction::In) {
            let mut left = buffer.actual;
            for element in &buffer.elements {
                let here = element.len().min(left);
                left -= here;
                let room = if element.is_borrowed_input() { destinations.next() } else { None };
                match &element.transfer {
                    Transfer::In(input) => input.check(here, room.map(|bytes| bytes.len()))?,
                    Transfer::Lent(lent) => lent.check(here)?,
                    Transfer::Out(_) | Transfer::Passed(_) | Transfer::None(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Brings inputs' data that a server has elsewhere to where it was lent memory, in another process.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn bring(&mut self) -> Result<(), Error> {
        for buffer in self.buffers.iter_mut().filter(|buffer| buffer.direction == Direction::In) {
            let mut left = buffer.actual;
            for element in &mut buffer.elements {
                let here = element.len().min(left);
                left -= here;
                if let Transfer::Lent(lent) = &mut element.transfer {
                    lent.bring(here)?;
                }
            }
        }
        Ok(())
    }

    /// Copies the inputs' first bytes to `peeks`; returns how many went to each.
    pub(crate) fn peek(&mut self, peeks: &mut [&mut [u8]]) -> Result<Vec<usize>, Error> {
        let mut peeks = peeks.iter_mut();
        let mut copied = Vec::new();
        for buffer in self.buffers.iter_mut().filter(|buffer| buffer.direction == Direction::In) {
            let mut left = buffer.actual;
            for element in &mut buffer.elements {
                let here = element.len().min(left);
                left -= here;
                let is_borrowed = element.is_borrowed_input();
                if let (true, Transfer::In(input)) = (is_borrowed, &mut element.transfer) {
                    let Some(peek) = peeks.next() else { return Ok(copied) };
                    copied.push(input.peek(here, peek)?);
                }
            }
        }
        Ok(copied)
    }

    /// Turns completed work into what the client gets.
    pub(crate) fn give_back(&mut self) -> SmallVec<[ReplyBuffer; 1]> {
        // What is pushed is put together elsewhere first, and copied.
        match self.buffers.as_mut_slice() {
            [buffer] => SmallVec::from_buf([buffer.give_back()]),
            buffers => buffers.iter_mut().map(WorkBuffer::give_back).collect(),
        }
    }

    /// Whether every output can be left with the server after the client has its reply: none is the client's to have
    /// back, and no input is awaited.
    pub(crate) fn may_be_anticipated(&self) -> bool {
        self.buffers.iter().all(|buffer| {
            buffer.direction == Direction::Out && !buffer.elements.iter().any(WorkElement::holds_buffer)
        })
    }

    /// The receipts so far, for an anticipated reply.
    pub(crate) fn interim(&self) -> Vec<ReplyBuffer> {
        let element =
            |element: &WorkElement| ReplyElement { receipt: element.receipt(), returned: Returned::Nothing };
        self.buffers
            .iter()
            .map(|buffer| ReplyBuffer {
                argument: buffer.reply_argument.clone(),
                actual: buffer.actual,
                elements: buffer.elements.iter().map(element).collect(),
            })
            .collect()
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
            Transfer::Passed(_) | Transfer::Lent(_) | Transfer::None(_) => {}
        }
    }
    transfer
}
