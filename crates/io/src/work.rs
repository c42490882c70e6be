//! Work: a request's buffers under way, owned by the server, the reply and the client, one after the other.
//!
//! How: the last owner's thread keeps the work's memory for its next request.

mod arguments;
mod beginning;
mod buffer;
mod carried;
pub(crate) mod forwarded;
pub(crate) mod located;
pub(crate) mod location;

use std::sync::Arc;

use genie_memory::Direction;
use genie_passing::{Receipt, Spare};
use smallvec::SmallVec;

use crate::contract::Contract;
use crate::limits::{Admission, Pendings};
use crate::reply::{ReplyBuffer, ReplyElement, Returned};
use crate::server::service::Access;
use crate::{Client, Error, Reply, telemetry};

use arguments::Arguments;
pub(crate) use buffer::{Transfer, WorkBuffer, WorkElement};
pub(crate) use carried::{Carried, Store};
pub use carried::{MAX_CARRIED, carried_room};

/// A request's buffers, and its share of the limits.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) buffers: SmallVec<[WorkBuffer; 2]>,
    pub(crate) arguments: Arguments,
    /// The bytes of carried elements.
    pub(crate) store: Store,
    /// Whether an element is not carried, so that more than its bytes is to be dealt with.
    has_wrapped: bool,
    pub(crate) error: Option<Error>,
    /// None for a request that was admitted in another process.
    admission: Option<Admission>,
}

/// Memory for more buffers than this is not kept.
const MOST_KEPT: usize = 8;

thread_local! {
    /// Work that is over, with nothing in it, for this thread's next request.
    static SPARE: Spare<Box<Work>> = const { Spare::none() };
}

/// Client memory that inputs deliver to, in the order of the borrowed elements.
pub(crate) type Destinations<'i> = SmallVec<[&'i mut [u8]; 1]>;

/// Addresses and lengths of borrowed client memory that is passed in place, in the order of its elements.
#[derive(Debug, Default)]
pub(crate) struct Borrowings {
    pub(crate) outputs: SmallVec<[(usize, usize); 1]>,
    pub(crate) inputs: SmallVec<[(usize, usize); 1]>,
}

impl Work {
    /// The work of a request without buffers yet.
    #[inline]
    fn new() -> Box<Self> {
        Spare::take(&SPARE).unwrap_or_else(|| {
            let (buffers, arguments, store) = (SmallVec::new(), Arguments::default(), Store::default());
            Box::new(Self { buffers, arguments, store, has_wrapped: false, error: None, admission: None })
        })
    }

    /// The work of a request that `admit` admits, or the reason why `admit` refuses it.
    #[inline]
    pub(crate) fn admitted(
        pendings: &Arc<Pendings>,
        admit: impl FnOnce(&Pendings) -> Result<u64, Error>,
    ) -> Result<Box<Self>, Error> {
        let mut work = Self::new();
        let admission = match &mut work.admission {
            Some(admission) if admission.is_of(pendings) => admission,
            other => other.insert(Admission::new(pendings)),
        };
        match admission.take(admit) {
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
        for buffer in self.wrapped_mut() {
            buffer.elements.iter_mut().for_each(WorkElement::end);
        }
        self.buffers.clear();
        self.has_wrapped = false;
        self.arguments.end();
        self.store.end();
        self.error = None;
        if let Some(admission) = &mut self.admission {
            admission.end();
        }
        if self.buffers.capacity() > MOST_KEPT {
            // Otherwise a peer could make this thread hold as much memory as the peer likes.
            return;
        }
        Spare::keep(&SPARE, self);
    }

    /// The client of this process whose interface admitted the request.
    pub(crate) fn client(&self) -> Option<&Client> {
        self.admission.as_ref().map(Admission::client)
    }

    /// The work of a request that came from another process, without buffers, and with room for so many carried bytes.
    pub(crate) fn received(argument: &[u8], room: usize, carried: usize) -> Box<Self> {
        let mut work = Self::new();
        work.store.reserve(carried);
        work.arguments.begin(argument, room);
        work
    }

    /// Adds a buffer without elements.
    #[inline]
    pub(crate) fn add_buffer(&mut self, direction: Direction) {
        self.buffers.push(WorkBuffer::new(direction));
    }

    /// Adds an element to the last buffer.
    #[inline]
    pub(crate) fn add_element(&mut self, element: WorkElement) {
        self.has_wrapped |= !matches!(element.transfer, Transfer::Carried(_));
        self.buffers.last_mut().expect("an element is added to a buffer").elements.push(element);
    }

    /// The buffers, if an element is not carried; else none, since of carried elements there is nothing to begin or to end.
    #[inline]
    fn wrapped(&self) -> &[WorkBuffer] {
        if self.has_wrapped { &self.buffers } else { &[] }
    }

    /// As [`Work::wrapped`].
    #[inline]
    pub(crate) fn wrapped_mut(&mut self) -> &mut [WorkBuffer] {
        if self.has_wrapped { &mut self.buffers } else { &mut [] }
    }

    /// The contracts of the requests of which it forwards parts.
    #[inline]
    pub(crate) fn contracts(&self) -> impl Iterator<Item = &Contract> {
        let elements = self.wrapped().iter().flat_map(|buffer| &buffer.elements);
        elements.filter_map(|element| match &element.transfer {
            Transfer::Located(located) => located.contract(),
            _ => None,
        })
    }

    /// How many requests of this process led to this one, by forwarding parts.
    pub(crate) fn depth(&self) -> u32 {
        self.contracts().map(Contract::depth).max().unwrap_or(0)
    }

    /// Maps memory of other processes, as far as the service may touch it.
    pub(crate) fn map_lent(&mut self, access: Access) -> Result<(), Error> {
        for buffer in self.wrapped_mut() {
            let (is_touched, writes) = match buffer.direction {
                Direction::Out => (access.reads, false),
                Direction::In => (access.writes, true),
            };
            for element in buffer.elements.iter_mut().filter(|_| is_touched) {
                if let Transfer::Located(located) = &mut element.transfer {
                    located.map(writes)?;
                }
            }
        }
        Ok(())
    }

    /// Takes back the inputs that were forwarded: no fragment is left.
    pub(crate) fn take_back(&mut self) {
        for element in self.buffers.iter_mut().flat_map(|buffer| &mut buffer.elements) {
            if let Transfer::Forwarded(forwarded) = &element.transfer
                && let Some(input) = forwarded.take()
            {
                element.transfer = Transfer::In(input);
            }
        }
    }

    /// Runs the reply-time operations of all outputs.
    #[inline]
    pub(crate) fn finish_outputs(&mut self, succeeded: bool) {
        if !self.has_wrapped {
            return;
        }
        for buffer in &mut self.buffers {
            for element in &mut buffer.elements {
                if let Err(error) = element.finish_output(succeeded) {
                    self.error.get_or_insert(error);
                }
            }
        }
    }

    /// Runs the reply-time operations of all inputs: all, or none where one cannot be delivered. The first native inputs go to
    /// `others`, the rest where the request said: to `destinations`, if their memory was borrowed. `has_losses` says whether a server has taken memory of the client's away.
    ///
    /// # Errors
    /// There are more `others` than native inputs; an input cannot be delivered.
    pub(crate) fn finish_inputs(
        &mut self,
        mut destinations: Destinations<'_>,
        others: &mut [&mut [u8]],
        has_losses: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let (given, native) = (others.len(), || self.inputs_native());
        if given > 0 && given > native() {
            return Err(Error::TooManyDestinations { given, inputs: native() });
        }
        // Where the delivery of a single input fails, it has no effect.
        if self.has_several_inputs()
            && let Err(error) = self.prepare_inputs(&destinations, others)
        {
            let forget = |element: &mut WorkElement, _| {
                element.forget_input();
                Ok(())
            };
            each_input(&mut self.buffers, forget)?;
            return Err(error);
        }
        let (mut destinations, mut others) = (destinations.iter_mut(), others.iter_mut());
        each_input(&mut self.buffers, |element, here| {
            let own = if element.is_borrowed_input() { destinations.next() } else { None };
            let other = if element.is_native_input() { others.next() } else { None };
            let bytes = other.map(|bytes| &mut **bytes).or(own.map(|bytes| &mut **bytes));
            element.finish_input(here, bytes, (&self.store, &has_losses))
        })
    }

    fn inputs_native(&self) -> usize {
        let elements = self.buffers.iter().flat_map(|buffer| &buffer.elements);
        elements.filter(|element| element.is_native_input()).count()
    }

    fn has_several_inputs(&self) -> bool {
        let inputs = self.buffers.iter().filter(|buffer| buffer.direction == Direction::In);
        inputs.map(|buffer| buffer.elements.len()).sum::<usize>() > 1
    }

    /// Does the part of the delivery that can fail.
    fn prepare_inputs(&mut self, destinations: &[&mut [u8]], others: &[&mut [u8]]) -> Result<(), Error> {
        let (mut destinations, mut others) = (destinations.iter(), others.iter());
        each_input(&mut self.buffers, |element, here| {
            let own = if element.is_borrowed_input() { destinations.next() } else { None };
            let other = if element.is_native_input() { others.next() } else { None };
            element.prepare_input(here, other.or(own).map(|bytes| &**bytes))
        })
    }

    /// Whether the server had memory for what it says it has passed.
    pub(crate) fn check_inputs(&mut self) -> Result<(), Error> {
        each_input(&mut self.buffers, |element, here| element.check_input(here))
    }

    /// Brings data of inputs that a server has elsewhere to the memory that it was shown. The client is in another process.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn bring(&mut self) -> Result<(), Error> {
        each_input(self.wrapped_mut(), |element, here| match &mut element.transfer {
            Transfer::Located(located) => located.bring(here),
            _ => Ok(()),
        })
    }

    /// Ends completed work whose reply nobody takes: what it brings to the request of which it is a part comes there all the same.
    pub(crate) fn leave(mut self: Box<Self>) {
        if self.error.is_none() {
            // A contractor that takes no reply does not learn of an error.
            let _ = self.check_inputs().and_then(|()| self.bring());
        }
    }

    /// Copies the native inputs' first bytes to `peeks`; returns how many went to each.
    pub(crate) fn peek(&mut self, peeks: &mut [&mut [u8]]) -> Result<Vec<usize>, Error> {
        let (mut peeks, mut peeked) = (peeks.iter_mut(), Vec::new());
        each_input(&mut self.buffers, |element, here| {
            let peek = if element.is_native_input() { peeks.next() } else { None };
            match (&mut element.transfer, peek) {
                (Transfer::In(input), Some(peek)) => peeked.push(input.peek(here, peek)?),
                (Transfer::Carried(carried), Some(peek)) => {
                    peeked.push(carried.peek(&self.store, here, peek))
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(peeked)
    }

    /// The reply of completed work.
    #[inline]
    pub(crate) fn reply(&mut self) -> Reply {
        let argument = std::mem::take(&mut self.arguments.reply);
        Reply { anticipated: false, argument, buffers: self.give_back() }
    }

    /// Converts completed work into what the client gets.
    pub(crate) fn give_back(&mut self) -> SmallVec<[ReplyBuffer; 1]> {
        // Pushing would make the buffer elsewhere first, and copy it.
        match self.buffers.as_mut_slice() {
            [buffer] => SmallVec::from_buf([buffer.give_back()]),
            buffers => buffers.iter_mut().map(WorkBuffer::give_back).collect(),
        }
    }

    /// Of each element: the direction, what was done, and how many bytes were passed.
    #[inline]
    pub(crate) fn passed(&self) -> impl Iterator<Item = (Direction, Receipt, usize)> {
        self.buffers.iter().flat_map(WorkBuffer::passed)
    }

    /// Whether the client can have its reply while the server keeps every output: the client waits for no input, and gets no
    /// buffer back.
    pub(crate) fn may_be_anticipated(&self) -> bool {
        self.buffers.iter().all(|buffer| {
            buffer.direction == Direction::Out && !buffer.elements.iter().any(WorkElement::holds_buffer)
        })
    }

    /// An anticipated reply, with the receipts so far.
    pub(crate) fn interim(&self) -> Box<Reply> {
        let element =
            |element: &WorkElement| ReplyElement { receipt: element.receipt(), returned: Returned::Nothing };
        telemetry::replied(self.passed());
        let buffer = |buffer: &WorkBuffer| ReplyBuffer {
            actual: buffer.actual,
            elements: buffer.elements.iter().map(element).collect(),
        };
        let buffers = self.buffers.iter().map(buffer).collect();
        Box::new(Reply { anticipated: true, argument: self.arguments.reply.clone(), buffers })
    }
}

/// Calls `act` with the elements of all inputs, and how many bytes of each were passed, until it fails.
#[inline]
fn each_input(
    buffers: &mut [WorkBuffer],
    mut act: impl FnMut(&mut WorkElement, usize) -> Result<(), Error>,
) -> Result<(), Error> {
    for buffer in buffers.iter_mut().filter(|buffer| buffer.direction == Direction::In) {
        let mut left = buffer.actual;
        for element in &mut buffer.elements {
            let here = element.len().min(left);
            left -= here;
            act(element, here)?;
        }
    }
    Ok(())
}
