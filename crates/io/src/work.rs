//! Work: a request's buffers under way, owned by the server, the reply and the client, one after the other.
//!
//! How: the last owner's thread keeps the work's memory for its next request.

mod arguments;
mod beginning;
mod buffer;
mod carried;
mod element;
pub(crate) mod forwarded;
pub(crate) mod located;
pub(crate) mod location;
mod short;

use std::sync::Arc;

use genie_memory::{Data, DataMut, Direction};
use genie_passing::{Receipt, Spare};
use smallvec::SmallVec;

use crate::contract::Contract;
use crate::kept::allowance::Allowance;
use crate::limits::{Admission, Pendings};
use crate::reply::{ReplyBuffer, ReplyElement, Returned};
use crate::server::service::Access;
use crate::work::located::Located;
use crate::{Client, Error, Reply, telemetry};

use arguments::Arguments;
pub(crate) use buffer::Seen;
use buffer::Shorts;
pub use buffer::{MAX_SHORTS, Short, WorkBuffer};
pub(crate) use carried::Store;
pub use carried::{Carried, MAX_CARRIED, carried_room};
pub(crate) use element::Transfer;
pub use element::WorkElement;

/// A request's arguments and buffers, and its share of the limits.
///
/// On the client's side, [`Outgoing`](crate::carrier::Outgoing) has it: the carrier sends what it says, and enters the reply. On the
/// server's side, the carrier makes it of what came ([`Work::received`]), and gets it back to send the reply.
#[derive(Debug)]
pub struct Work {
    /// The buffers, if they are not all short.
    buffers: SmallVec<[WorkBuffer; 2]>,
    /// The buffers, if all are short.
    shorts: Shorts,
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
            let (buffers, shorts) = (SmallVec::new(), Shorts::NONE);
            let (arguments, store) = (Arguments::default(), Store::default());
            Box::new(Self {
                buffers,
                shorts,
                arguments,
                store,
                has_wrapped: false,
                error: None,
                admission: None,
            })
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

    /// Ends the work: whatever is still in it is let go. Its memory is kept for this thread's next request.
    #[inline]
    pub fn end(mut self: Box<Self>) {
        for buffer in self.wrapped_mut() {
            buffer.elements.iter_mut().for_each(WorkElement::end);
        }
        if !self.buffers.is_empty() {
            self.buffers.clear();
        }
        self.shorts.clear();
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

    /// What servers may keep of that client's outputs.
    pub(crate) fn allowance(&self) -> Option<&Arc<Allowance>> {
        self.admission.as_ref().map(Admission::allowance)
    }

    /// The client's argument.
    #[inline]
    pub fn argument(&self) -> &[u8] {
        &self.arguments.request
    }

    /// How long the reply's argument may be.
    #[inline]
    pub fn room(&self) -> usize {
        self.arguments.room
    }

    /// The reply's argument.
    #[inline]
    pub fn reply_argument(&self) -> &[u8] {
        &self.arguments.reply
    }

    /// Enters the reply's argument.
    ///
    /// # Errors
    /// [`Error::ArgumentTooLong`]: nothing has changed.
    #[inline]
    pub fn set_reply_argument(&mut self, argument: &[u8]) -> Result<(), Error> {
        self.arguments.set_reply(argument)
    }

    /// The buffers, in order; none if they are [short](Work::shorts).
    #[inline]
    pub fn buffers(&self) -> &[WorkBuffer] {
        &self.buffers
    }

    /// The data of an output, however it is passed; where parts are another process's memory, what is mapped of it.
    ///
    /// # Panics
    /// There is no such buffer.
    pub fn output(&self, index: usize) -> Data<'_> {
        self.buffer(index).expect("a buffer's number").output(&self.store)
    }

    /// The memory of an input: at the client's end, for a carrier to fill before it enters the reply
    /// ([`Outgoing::make_ready`](crate::carrier::Outgoing::make_ready) has been called); at the server's, as the server has filled it.
    ///
    /// # Panics
    /// There is no such buffer.
    pub fn input(&self, index: usize) -> DataMut<'_> {
        self.buffer(index).expect("a buffer's number").input(&self.store)
    }

    /// The work of a request that a carrier brings, without buffers yet: the client's argument, and how long the reply's may be.
    pub fn received(argument: &[u8], room: usize) -> Box<Self> {
        let mut work = Self::new();
        work.arguments.begin(argument, room);
        work
    }

    /// Adds a buffer without elements.
    #[inline]
    pub(crate) fn add_buffer(&mut self, direction: Direction) {
        self.unfold();
        self.buffers.push(WorkBuffer::new(direction));
    }

    /// Adds a buffer to a request that a carrier brings, whose elements are added next. `is_copied` says that most of the data is copied
    /// on its way, for whoever counts.
    #[inline]
    pub fn begin_buffer(&mut self, direction: Direction, is_copied: bool) {
        self.unfold();
        let mut buffer = WorkBuffer::new(direction);
        buffer.is_copied = is_copied;
        self.buffers.push(buffer);
    }

    /// Adds an element to the last buffer, whose data is not in the record.
    ///
    /// # Panics
    /// No buffer has been begun.
    #[inline]
    pub fn add_located(&mut self, located: Box<Located>) {
        self.add_element(WorkElement::located(located));
    }

    /// Adds an element to the last buffer.
    #[inline(always)]
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

    /// Calls `act` with the contracts of the requests of which it forwards parts, until it fails.
    #[inline]
    pub(crate) fn each_contract(
        &self,
        mut act: impl FnMut(&Contract) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.wrapped().iter().try_for_each(|buffer| buffer.contracts().try_for_each(&mut act))
    }

    /// How many requests of this process led to this one, by forwarding parts.
    pub(crate) fn depth(&self) -> u32 {
        self.wrapped().iter().flat_map(WorkBuffer::contracts).map(Contract::depth).max().unwrap_or(0)
    }

    /// Maps located data in memory of other processes, as far as the service may touch it.
    pub(crate) fn map_located(&mut self, access: Access) -> Result<(), Error> {
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
    /// `others`, the rest where the request said: to `destinations`, if their memory was borrowed. `has_losses` says whether a server
    /// has taken memory of the client's away.
    ///
    /// # Errors
    /// There are more `others` than native inputs; an input cannot be delivered.
    pub(crate) fn finish_inputs(
        &mut self,
        mut destinations: Destinations<'_>,
        others: &mut [&mut [u8]],
        has_losses: impl Fn() -> bool,
    ) -> Result<(), Error> {
        if others.is_empty() && !self.shorts.is_empty() {
            return self.deliver_shorts(&mut destinations, has_losses);
        }
        self.unfold();
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

    /// Whether the server had memory for what it says it has passed, at the end of a request that a carrier has brought.
    ///
    /// # Errors
    /// It had not: the request is to fail by this.
    #[inline]
    pub fn check_inputs(&mut self) -> Result<(), Error> {
        self.check_shorts()?;
        each_input(&mut self.buffers, |element, here| element.check_input(here))
    }

    /// Brings data of inputs that a server has elsewhere to the memory that it was shown, at the end of a request that a carrier has
    /// brought. To be called once, unless the client is gone.
    ///
    /// # Errors
    /// No memory: the request is to fail by this.
    #[inline]
    pub fn bring(&mut self) -> Result<(), Error> {
        each_input(self.wrapped_mut(), |element, here| match &mut element.transfer {
            Transfer::Located(located) => located.bring(here),
            _ => Ok(()),
        })
    }

    /// Ends the mappings that last only as long as the request: before the client hears that it is over.
    #[inline]
    pub fn let_go(&mut self) {
        self.wrapped_mut().iter_mut().for_each(WorkBuffer::let_go);
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
        self.unfold();
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

    /// Fills the reply of completed work.
    #[inline]
    pub(crate) fn reply(&mut self, reply: &mut Reply) {
        if !self.arguments.reply.is_empty() {
            reply.argument = std::mem::take(&mut self.arguments.reply);
        }
        self.give_back(&mut reply.buffers);
    }

    /// Adds what the client gets of completed work.
    #[inline]
    pub(crate) fn give_back(&mut self, to: &mut SmallVec<[ReplyBuffer; 2]>) {
        self.shorts.iter().for_each(|short| to.push(short.reply()));
        self.buffers.iter_mut().for_each(|buffer| to.push(buffer.give_back()));
    }

    /// Of each element: the direction, what was done, and how many bytes were passed.
    #[inline]
    pub(crate) fn passed(&self) -> impl Iterator<Item = (Direction, Receipt, usize)> {
        let shorts = self.shorts.iter().map(Short::passed);
        let whole = self.buffers.iter().flat_map(|buffer| {
            buffer.passed().map(|(element, here)| (buffer.direction, element.receipt(), here))
        });
        shorts.chain(whole)
    }

    /// Whether the client can have its reply while the server keeps every output: the client waits for no input, and gets no
    /// buffer back.
    pub(crate) fn may_be_anticipated(&self) -> bool {
        self.shorts.iter().all(|short| short.direction() == Direction::Out)
            && self.buffers.iter().all(|buffer| {
                buffer.direction == Direction::Out && !buffer.elements.iter().any(WorkElement::holds_buffer)
            })
    }

    /// An anticipated reply, with the receipts so far.
    pub(crate) fn interim(&self) -> Box<Reply> {
        let element =
            |element: &WorkElement| ReplyElement { receipt: element.receipt(), returned: Returned::Nothing };
        telemetry::replied(self.passed());
        let buffer = |buffer: &WorkBuffer| ReplyBuffer {
            actual: buffer.actual(),
            elements: buffer.elements.iter().map(element).collect(),
        };
        let buffers = self.shorts.iter().map(Short::reply).chain(self.buffers.iter().map(buffer)).collect();
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
        let mut left = buffer.actual();
        for element in &mut buffer.elements {
            let here = element.len().min(left);
            left -= here;
            act(element, here)?;
        }
    }
    Ok(())
}
