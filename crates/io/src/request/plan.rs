//! Plans: what requests ask for, apart from who makes them and which server they are made of.
//!
//! Why: a program that composes requests in loops, from another program's description, or again and again, has them where they stay.
//! [`Request`](crate::Request) composes a plan of its own by value, as is best for what is written out.
//! Source: thesis §7.3 (buffer headers).

use std::time::Duration;

use genie_memory::{Direction, Space};
use genie_passing::CARRIED;

use crate::request::element::{Borrowed, Element, Memory, Moved};
use crate::work::{MAX_CARRIED, carried_room};
use crate::{In, Out, Returned, ServerHandle, ServiceId};

/// What a request asks for: a service, a timeout, an argument, and buffers, each with its elements. It can be kept, and made of any server
/// ([`Plan::send`], [`Plan::submit`]); that takes the buffers out of it, and leaves the rest.
///
/// ```
/// # use genie_io as genie;
/// # use genie::servers::memory::{Memory, STORE};
/// # fn main() -> Result<(), genie::Error> {
/// # let (interface, server) = (genie::Interface::open()?, genie::ServerHandle::new(Memory::customized()));
/// let mut plan = genie::Plan::new(STORE);
/// for (name, contents) in [("a file", &b"its contents"[..]), ("another one", b"others")] {
///     plan.set_argument(name.as_bytes());
///     plan.out(genie::Out::copy(contents));
///     plan.send(&interface, &server)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Plan<'o, 'i> {
    pub(crate) service: ServiceId,
    pub(crate) timeout: Option<Duration>,
    pub(crate) argument: &'o [u8],
    pub(crate) room: usize,
    /// Dropping the pending request aborts it.
    pub(crate) aborts: bool,
    /// The server is told of it later, by [`ServerHandle::tell`].
    pub(crate) is_told_later: bool,
    pub(crate) buffers: Buffers<'o, 'i>,
}

impl<'o, 'i> Plan<'o, 'i> {
    /// A plan without buffers, and with an empty argument.
    #[inline(always)]
    pub fn new(service: ServiceId) -> Self {
        Self {
            service,
            timeout: None,
            argument: &[],
            room: 0,
            aborts: false,
            is_told_later: false,
            buffers: Buffers::default(),
        }
    }

    /// Sets the deadline; see [`Request::timeout`](crate::Request::timeout).
    #[inline(always)]
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    /// Sets the argument; see [`Request::argument`](crate::Request::argument).
    #[inline(always)]
    pub fn set_argument(&mut self, argument: &'o [u8]) {
        self.argument = argument;
    }

    /// Makes room for the argument that comes back; see [`Request::room`](crate::Request::room).
    #[inline(always)]
    pub fn set_room(&mut self, len: usize) {
        self.room = len;
    }

    /// Begins an output buffer with one element.
    #[inline(always)]
    pub fn out(&mut self, element: Out<'o>) {
        self.buffers.begin(Elements::Out(List::One(element)));
    }

    /// Begins an input buffer with one element.
    #[inline(always)]
    pub fn input(&mut self, element: In<'i>) {
        self.buffers.begin(Elements::In(List::One(element)));
    }

    /// Adds an element to the last buffer, an output one.
    ///
    /// # Panics
    /// When there is no buffer yet, or the last one is for input.
    pub fn and_out(&mut self, element: Out<'o>) {
        match &mut self.buffers.last {
            Some(Elements::Out(elements)) => {
                self.buffers.sum.add(&element);
                elements.add(element);
            }
            _ => panic!("and_out adds to an output buffer; begin one by out"),
        }
    }

    /// Adds an element to the last buffer, an input one.
    ///
    /// # Panics
    /// When there is no buffer yet, or the last one is for output.
    pub fn and_input(&mut self, element: In<'i>) {
        match &mut self.buffers.last {
            Some(Elements::In(elements)) => {
                self.buffers.sum.add(&element);
                elements.add(element);
            }
            _ => panic!("and_input adds to an input buffer; begin one by input"),
        }
    }

    /// Takes the buffers out, and returns what was given by value: for a request that is not to be made after all.
    pub fn take_given(&mut self) -> Vec<Returned> {
        let mut given = Vec::new();
        self.buffers.take_each(|buffer| {
            match buffer {
                Elements::Out(elements) => elements.take_each(|element| match element.memory {
                    Memory::Migrant(migrant) => given.push(Returned::Migrant(migrant)),
                    Memory::Owned(buffer, _) => given.push(Returned::Buffer(buffer)),
                    _ => {}
                }),
                Elements::In(elements) => elements.take_each(|element| {
                    if let Memory::Owned(buffer, _) = element.memory {
                        given.push(Returned::Buffer(buffer));
                    }
                }),
            }
            false
        });
        given
    }

    /// The first server that can't serve requests with memory of this space: `server`, or one that elements name.
    #[inline]
    pub(crate) fn foreign_server<'s>(
        &'s self,
        server: &'s ServerHandle,
        sum: &Sum,
        space: &Space,
    ) -> Option<&'s ServerHandle> {
        match server.is_of(space) {
            false => Some(server),
            true if sum.names_lenders => self.foreign_lender(space),
            true => None,
        }
    }

    #[cold]
    fn foreign_lender(&self, space: &Space) -> Option<&ServerHandle> {
        self.buffers.iter().find_map(|buffer| match buffer {
            Elements::Out(elements) => elements.foreign_lender(space),
            Elements::In(elements) => elements.foreign_lender(space),
        })
    }

    /// What its elements come to.
    #[inline]
    pub(crate) fn sum(&self) -> Sum {
        self.buffers.sum
    }

    /// How long the request's record on a channel can be, unless its data lies in very many pieces.
    pub(crate) fn longest_record(&self) -> usize {
        let (mut count, mut carried) = (0, 0);
        let mut see = |len: usize| {
            count += 1;
            carried += if len <= CARRIED { carried_room(len) } else { 0 };
        };
        for buffer in self.buffers.iter() {
            match buffer {
                Elements::Out(elements) => elements.iter().for_each(|element| see(element.len())),
                Elements::In(elements) => elements.iter().for_each(|element| see(element.len())),
            }
        }
        self.argument.len() + 128 * (1 + count) + carried.min(MAX_CARRIED)
    }
}

/// A request's buffers. The first and the last one are fields of their own, and so is a buffer's only element: an element of a
/// vector, even of a small one, has an address, and each step would copy it from one vector to the next.
#[derive(Debug, Default)]
pub(crate) struct Buffers<'o, 'i> {
    /// None unless there are several.
    first: Option<Elements<'o, 'i>>,
    between: Vec<Elements<'o, 'i>>,
    last: Option<Elements<'o, 'i>>,
    /// Of all of them.
    sum: Sum,
}

impl<'o, 'i> Buffers<'o, 'i> {
    /// All of them, in order.
    fn iter(&self) -> impl Iterator<Item = &Elements<'o, 'i>> {
        self.first.iter().chain(&self.between).chain(&self.last)
    }

    /// Has `take` take out what each buffer holds, in order, and lets the buffers go. It returns whether it has left nothing that would
    /// have to be dropped.
    #[inline]
    pub(crate) fn take_each(&mut self, mut take: impl FnMut(&mut Elements<'o, 'i>) -> bool) {
        let mut take_out = |buffer: &mut Option<Elements<'o, 'i>>| match buffer.as_mut().map(&mut take) {
            Some(true) => std::mem::forget(buffer.take()),
            Some(false) => *buffer = None,
            None => {}
        };
        // Most requests have one buffer.
        if self.first.is_some() {
            take_out(&mut self.first);
            self.between.drain(..).for_each(|buffer| take_out(&mut Some(buffer)));
        }
        take_out(&mut self.last);
        self.sum = Sum::default();
    }

    /// Whether the next buffer has a field.
    #[inline(always)]
    pub(crate) fn is_next_in_place(&self) -> bool {
        self.first.is_none()
    }

    /// Begins a buffer.
    #[inline(always)]
    pub(crate) fn begin(&mut self, buffer: Elements<'o, 'i>) {
        match &buffer {
            Elements::Out(elements) => elements.iter().for_each(|element| self.sum.add(element)),
            Elements::In(elements) => elements.iter().for_each(|element| self.sum.add(element)),
        }
        match (&self.first, &self.last) {
            (_, None) => self.last = Some(buffer),
            (None, Some(_)) => self.first = self.last.replace(buffer),
            (Some(_), Some(_)) => self.add(buffer),
        }
    }

    #[inline(never)]
    fn add(&mut self, buffer: Elements<'o, 'i>) {
        self.between.extend(self.last.replace(buffer));
    }

    /// How many there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        usize::from(self.first.is_some()) + self.between.len() + usize::from(self.last.is_some())
    }
}

/// The elements of one buffer of a request.
#[derive(Debug)]
pub(crate) enum Elements<'o, 'i> {
    Out(List<Out<'o>>),
    In(List<In<'i>>),
}

/// A buffer's elements of one direction.
#[derive(Debug)]
pub(crate) enum List<E> {
    One(E),
    Several(Vec<E>),
}

impl<E> List<E> {
    #[inline]
    fn iter(&self) -> std::slice::Iter<'_, E> {
        match self {
            Self::One(element) => std::slice::from_ref(element).iter(),
            Self::Several(elements) => elements.iter(),
        }
    }

    /// Takes all elements out, in order.
    pub(crate) fn take_each(&mut self, mut act: impl FnMut(E)) {
        match std::mem::replace(self, Self::Several(Vec::new())) {
            Self::One(element) => act(element),
            Self::Several(elements) => elements.into_iter().for_each(act),
        }
    }

    pub(crate) fn add(&mut self, element: E) {
        *self = match std::mem::replace(self, Self::Several(Vec::new())) {
            Self::One(first) => Self::Several(vec![first, element]),
            Self::Several(mut elements) => {
                elements.push(element);
                Self::Several(elements)
            }
        };
    }
}

impl<B: Borrowed, M: Moved> List<Element<B, M>> {
    /// The first lender that can't serve requests with memory of this space, among those that elements name.
    fn foreign_lender(&self, space: &Space) -> Option<&ServerHandle> {
        self.iter().filter_map(|element| element.lender.as_deref()).find(|lender| !lender.is_of(space))
    }
}

/// What a request's elements come to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    pub(crate) bytes: usize,
    /// There are buffers that were given by value.
    pub(crate) gives: bool,
    /// Elements say who lends for them.
    names_lenders: bool,
}

impl Sum {
    #[inline(always)]
    fn add<B: Borrowed, M: Moved>(&mut self, element: &Element<B, M>) {
        self.bytes = self.bytes.saturating_add(element.len());
        self.gives |= match element.memory {
            Memory::Owned(..) => true,
            Memory::Migrant(_) => B::DIRECTION == Direction::Out,
            Memory::Borrowed(_) | Memory::Lasting(_) | Memory::Fragment(_) => false,
        };
        self.names_lenders |= element.lender.is_some();
    }
}
